"""Selection by kernels for NVIDIA GPUs, where they serve: a round, or all in one launch.

Bit for bit the results of the array programs.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.array_types import Flags, TrialKeys
from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.streams import is_threefry
from mrsa_jax.selection._metrics import Running
from mrsa_jax.selection._ranking import by_key, device_steps

_MOST_CLIENTS = 128


def over_trials(
    scheme: Any, key: TrialKeys, state: Any, available: Flags
) -> tuple[Flags, Any]:
    """Return a round's choice of a scheme, by one kernel or by XLA.

    Args:
        scheme: Its `_choose(steps, words, state, available)` takes how to make passes
            over clients (`_ranking.Steps`) and a function that draws a word of each.
        key: Keys, whose axes are the trials'.
        state: Arrays [N, *trials].
        available: [N, *trials].

    Returns:
        The cohort and the new state.
    """
    num_clients = len(available)
    if num_clients <= _MOST_CLIENTS and chosen_form(("xla", "pallas")) == "pallas":
        from mrsa_jax.selection._kernel import one_round

        return one_round(scheme, key, (available, state))
    draw = by_key(key, num_clients)
    return scheme._choose(device_steps(), draw, state, available)


def runs_kernel(key: TrialKeys, selector: Any, availability: Any) -> bool:
    """Return whether a kernel plays the rounds of a scheme.

    Its availability must be for its clients.
    """
    return (
        selector.num_clients <= _MOST_CLIENTS
        and _is_chosen_by_words(selector)
        and "_drawn" in vars(type(availability))
        and is_threefry(key)
        and chosen_form(("xla", "pallas")) == "pallas"
    )


def _is_chosen_by_words(scheme: Any) -> bool:
    # a class made from ours may choose otherwise; a wrapper's scheme is its `selector`
    inner = getattr(scheme, "selector", None)
    return "_choose" in vars(type(scheme)) and (
        inner is None or _is_chosen_by_words(inner)
    )


def history_by_kernel(
    key: TrialKeys, schemes: Any, states: Any, num_rounds: int
) -> Bool[Array, "*trials rounds clients"]:
    """Return participation; `states` are those before the first round."""
    from mrsa_jax.selection._kernel import WORD, all_rounds

    (words,) = all_rounds(key, schemes, states, num_rounds, "history")
    shape = (*words.shape, WORD)
    place = lax.broadcasted_iota(jnp.uint32, shape, 3)
    flags = (jnp.broadcast_to(words[..., None], shape) >> place) & 1 == 1
    flags = flags.reshape(*words.shape[:2], -1)
    num_clients = schemes[0].num_clients
    return flags[..., :num_clients].reshape(*key.shape, num_rounds, num_clients)


def counts_by_kernel(
    key: TrialKeys, schemes: Any, states: Any, num_rounds: int
) -> Int32[Array, " clients *trials"]:
    """Return in how many rounds each client took part."""
    from mrsa_jax.selection._kernel import all_rounds

    (counts,) = all_rounds(key, schemes, states, num_rounds, "counts")
    return counts.reshape(-1, *key.shape)


def statistics_by_kernel(
    key: Key[Array, " trials"], schemes: Any, states: Any, num_rounds: int
) -> tuple[Running, Int32[Array, "trials rounds"], Int32[Array, "trials rounds"]]:
    """Return numbers after every round.

    Running totals; the size of each cohort; the largest difference of counts.
    """
    from mrsa_jax.selection._kernel import all_rounds

    counts, sizes, spread = all_rounds(key, schemes, states, num_rounds, "statistics")
    low = jnp.cumsum(sizes.astype(jnp.uint32), axis=1)
    high = jnp.cumsum(low < sizes.astype(jnp.uint32), axis=1, dtype=jnp.uint32)
    rounds = jnp.arange(1, num_rounds + 1, dtype=jnp.int32)[None]
    return Running(counts, low, high, rounds), sizes, spread
