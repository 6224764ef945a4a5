"""Who survives the steps of one round of a secure-aggregation protocol.

CCESA, Section 2 and Algorithm 1: V0 is the cohort; V1, V2, V3 and V4 are the clients still there
after key exchange, share distribution, masked inputs and unmasking, each within the one before.
The sum is over V3. q -> `step_dropout_rate`, q_total = 1 - (1 - q)^4 -> `total_dropout_rate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Key

from mrsa_jax._core.arrays import on_device, one_program, pytree
from mrsa_jax._core.device import is_traced
from mrsa_jax._core.factories import also_traced
from mrsa_jax._core.streams import ALWAYS, check_chances, client_words, happens, threshold
from mrsa_watch._base.errors import require

# ---- The contract that every availability model keeps.


@runtime_checkable
class Availability(Protocol):
    """Who is online: a pytree whose numbers are leaves.

    `state` is what the next round needs (None for a model without memory). `sample` is written
    for one trial; a model whose class has `takes_trials = True` also takes keys [B] (its state's
    last axis, if any, being the trials) and returns [N, B]. Other models are mapped by `jax.vmap`.
    One whose rounds and clients are independent, with the same chances in every round, has these
    as `dropout_rates`.
    """

    def for_clients(self, num_clients: int) -> Availability:
        """Return the model for `num_clients` clients; a single number serves them all."""
        ...

    def init(self, key: Key[Array, ""]) -> Any:
        """Return the state before the first round."""
        ...

    def sample(self, key: Key[Array, ""], state: Any) -> tuple[Bool[Array, " clients"], Any]:
        """Return who is online in a round, bool[N], and the next state."""
        ...


# ---- Who survives the steps of one round of a secure-aggregation protocol.

_STEPS = 4


@runtime_checkable
class StepDropout(Protocol):
    """Who survives the protocol's steps: a pytree whose numbers are leaves.

    `sample` is written for one round; a model whose class has `takes_trials = True` also takes
    keys [B] and cohorts [n, B], and returns [5, n, B]. Other models are mapped by `jax.vmap`.
    """

    def sample(
        self, key: Key[Array, ""], cohort: Bool[Array, " clients"]
    ) -> Bool[Array, "5 clients"]:
        """Return V0 (the cohort) to V4 as rows, each within the one before."""
        ...


@pytree
class IndependentSteps:
    """Clients who leave at each step independently; built by `independent_steps`.

    Attributes:
        thresholds: uint32[4] or [4, N], non-decreasing: a client has left by step s when its word
            is below entry s - 1, so that one word per client decides all steps.
    """

    thresholds: Array
    takes_trials: ClassVar[bool] = True

    @one_program
    def sample(
        self, key: Key[Array, "*trials"], cohort: Bool[Array, " clients *trials"]
    ) -> Bool[Array, "5 clients *trials"]:
        """Return V0 to V4; client i's draw does not depend on the number of clients.

        Keys of many trials give trials as trailing axes.
        """
        num_clients = cohort.shape[0]
        rates = self.thresholds.shape[1:]
        rule = f"must be one rate or {num_clients}, one for each client"
        require(rates in ((), (num_clients,)), "step_dropout_rate", rule, f"shape {rates}")
        words = client_words(key, num_clients)
        left = [happens(words, self.thresholds[step]) for step in range(_STEPS)]
        return jnp.stack([cohort, *(cohort & ~gone for gone in left)])


@also_traced
def independent_steps(step_dropout_rate: ArrayLike | Sequence[float | int]) -> IndependentSteps:
    """Return the model in which every client leaves at each of the four steps with chance q.

    Args:
        step_dropout_rate: q in [0, 1], for everybody or [N]: the chance to leave at one step
            of those who are still there. Chances to have left by a step are rounded to
            multiples of 2^-32.

    Returns:
        The model, a pytree; rates are traced, so that changing them compiles nothing new.

    Raises:
        ConfigurationError: If a rate is not a number in [0, 1], or there is none.

    Edge cases: q = 0 keeps everybody; q = 1 leaves V1 to V4 empty.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> import jax
        >>> model = mj.availability.independent_steps([0.0, 1.0])
        >>> model.sample(jax.random.key(0), jnp.asarray([True, True])).tolist()[3:]
        [[True, False], [True, False]]

    Source: CCESA, Section 2 (dropout of each step independent, with one rate q).
    """
    rates = check_chances(step_dropout_rate, "step_dropout_rate", as_data=True)
    steps = np.arange(1, _STEPS + 1, dtype=np.float64).reshape((-1,) + (1,) * rates.ndim)
    numbers = jnp if is_traced(rates) else np
    with np.errstate(divide="ignore"):
        left = -numbers.expm1(steps * numbers.log1p(-rates)[None])
    return IndependentSteps(on_device(threshold(left, illegal=ALWAYS)))
