"""Define what every selection scheme offers, and the state that it keeps.

A scheme is a frozen pytree: T, K and chances are leaves, only the number of clients is
static. Its state is a named tuple of arrays, `counts` among them; most schemes need
nothing else.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.registry import check_pytree
from mrsa_watch._base.errors import ConfigurationError, MrsaError, require
from mrsa_watch._base.values import by_value


@by_value
class SelectorState(NamedTuple):
    """Hold the state of a selector without further memory.

    Attributes:
        counts: int32[N], rounds in whose sum each client was (the papers' f).
    """

    counts: Int32[Array, " clients"]


@runtime_checkable
class Selector(Protocol):
    """Whom the server asks in each round: a pytree with pure methods.

    `select` is written for one trial. A scheme whose class has `takes_trials = True`
    also takes many at once: keys [B], availability and the state's arrays [N, B],
    cohorts [N, B]; trials innermost is what makes rollouts of many trials fast. Other
    schemes are mapped by `jax.vmap`.

    What else is known of a scheme, its members say if it has them: `cohort_size`, K, of
    one that asks K clients or nobody (any number may be asked without it);
    `block_size`, T, of one that never parts the clients whose i // T agree;
    `privacy_target`, the weak T that it keeps for any number of rounds where blocks do
    not say it; `cardinality(dropout_rates)`, mean and standard deviation of the size of
    a round's sum where clients i are away independently, float64[N];
    `chances(dropout_rates)`, of the same, each client's chance to be in a round where
    all rounds are independent and alike, or None; `share_gap(dropout_rates)`, the gap
    of clients' expected shares of the rounds where it is computed, or None;
    `joins_alone`, whether clients join
    by their own coins; `of_blocks()`, the scheme over its blocks as clients, which
    differ for it in nothing but who is available; `separation`, the least difference of
    two rounds of one client; `depends_on_data`, whether it looks at anything that
    clients' data decide: without it no epsilon is reported for sums with noise.
    """

    @property
    def num_clients(self) -> int:
        """N."""
        ...

    def init(self) -> Any:
        """Return the state before the first round.

        A `SelectorState`, or one with more fields.
        Every state has `.counts`, int32[N], rounds in whose sum each client was.
        """
        ...

    def select(
        self,
        key: Key[Array, ""],
        state: object,
        available: Bool[Array, " clients"],
    ) -> tuple[Bool[Array, " clients"], Any]:
        """Choose a cohort among available clients, none to skip; return the state too.

        `key` is the round's; the cohort has K clients or none, any number for Bernoulli
        and Poisson sampling.
        """
        ...


def check_selector(selector: Any) -> Selector:
    """Return a selector, or raise saying what it lacks to be one."""
    require(
        isinstance(selector, Selector),
        "selector",
        "must have `num_clients`, `init` and `select`",
        selector,
    )
    check_pytree(selector, "selector")
    return selector


def check_select(selector: Selector, argument: str) -> None:
    """Raise if a round of a selector is not of the stated form, or not reproducible.

    The round is traced twice, without computing it: a clock, a random number or a
    counter that Python code reads makes two different programs.

    Raises:
        ConfigurationError: With the argument, by which the selector is made.
    """
    import jax

    first, second = (_traced(selector, argument) for _ in range(2))
    n = selector.num_clients
    cohort, state, start = first[1]
    rule = f"must make a selector whose `select` returns bool[{n}] and a state"
    require(_form(cohort) == ("bool", (n,)), argument, rule, _form(cohort))
    rule = "must make a selector whose `select` returns a state as `init` returns it"
    forms = [jax.tree.map(_form, one) for one in (state, start)]
    require(forms[0] == forms[1], argument, rule, *forms)
    rule = (
        "must make a selector whose `select` does the same in each round: it must read "
        "no clock, and keep nothing but its state"
    )
    require(first[0] == second[0], argument, rule, selector)


def _traced(selector: Selector, argument: str) -> tuple[list[object], Any]:
    """Return the program of a round with its constants, and the forms of its results."""
    import jax

    def play(key: Any, available: Any) -> Any:
        start = selector.init()
        result = selector.select(key, start, available)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError("`select` must return a cohort and a state")
        return *result, start

    n = selector.num_clients
    shapes = jax.eval_shape(lambda: (jax.random.key(0), jax.numpy.zeros(n, bool)))
    try:
        program, forms = jax.make_jaxpr(play, return_shape=True)(*shapes)
    except MrsaError:
        raise
    except Exception as error:  # a user's code raises what it likes
        raise ConfigurationError(
            f"`{argument}` must make a selector that plays a round; it raised "
            f"{type(error).__name__}: {error}"
        ) from error
    # addresses of functions differ, and say nothing
    text = re.sub("0x[0-9a-f]+", "", str(program))
    return [text, *(_bytes(constant) for constant in program.consts)], forms


def _bytes(constant: Any) -> bytes | None:
    """Return the bytes of an array; None of one that has no value yet, or is a key."""
    import jax

    is_key = jax.dtypes.issubdtype(constant.dtype, jax.dtypes.prng_key)
    if is_key or isinstance(constant, jax.core.Tracer):
        return None
    return np.asarray(constant).tobytes()


def _form(array: Any) -> tuple[str, tuple[int, ...]]:
    return str(array.dtype), tuple(array.shape)


def cohort_size_of(selector: Selector) -> int | None:
    """Return K of a selector that asks K clients or nobody, else None."""
    size = getattr(selector, "cohort_size", None)
    return None if size is None else int(size)


def block_size_of(selector: Selector) -> int:
    """Return T of the blocks that a selector never parts, 1 without blocks."""
    return int(getattr(selector, "block_size", 1))


def with_counts(state: Any, counts: Array) -> Any:
    """Return a selector's state with these counts.

    Those of the scheme inside, if it wraps one.
    """
    if "counts" in state._fields:
        return state._replace(counts=counts)
    return state._replace(inner=with_counts(state.inner, counts))
