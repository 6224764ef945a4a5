"""Roll out how often clients take part, keeping nothing else."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int32, Key

from mrsa_jax._core.arrays import quick_for_little
from mrsa_jax._core.selector import Selector
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.availability import Availability
from mrsa_jax.selection._by_loops import counts_by_loops, runs_loops
from mrsa_jax.selection._rollout import _check, _entries, _in_chunks, _play, _start
from mrsa_watch._base.errors import check_integer, check_size


def rollout_counts(
    seed: int | Key[Array, ""],
    selector: Selector,
    availability: Availability,
    num_rounds: int,
    num_trials: int,
    *,
    first: int = 0,
) -> Int32[Array, "trials clients"]:
    """Return in how many rounds each client took part, of many trials, keeping nothing else.

    Trials are those of `rollout_trials` with the same seed.

    Args:
        seed: Integer or typed key.
        selector: Whom the server asks.
        availability: Who is online.
        num_rounds: J >= 1.
        num_trials: B >= 1.
        first: As for `rollout_trials`.

    Returns:
        int32[B, N].

    Raises:
        ConfigurationError: As `rollout_trials`.

    Examples:
        >>> import mrsa_jax as mj
        >>> scheme = mj.selection.uniform(6, 2), mj.availability.independent(0.3)
        >>> counts = rollout_counts(5, *scheme, num_rounds=9, num_trials=2)
        >>> bool((counts == mj.selection.rollout_trials(5, *scheme, 9, 2).sum(axis=1)).all())
        True
        >>> bool((rollout_counts(5, *scheme, 9, 1, first=1)[0] == counts[1]).all())
        True
    """
    rounds, bound = _check(selector, availability, num_rounds)
    trials, key = check_size(num_trials, "num_trials"), as_key(seed)
    start = check_integer(first, "first", 0, 2**31 - trials)
    if runs_loops(key, selector, bound):
        return counts_by_loops(key, selector, bound, rounds, trials, start)
    return _in_chunks(_counts_chunk, key, (selector, bound), rounds, trials, 1, first=start)


@quick_for_little(_entries, static_argnames=("num_rounds",))
def _counts_chunk(
    key: Key[Array, ""], trials: Array, selector: Any, availability: Any, num_rounds: int
) -> Int32[Array, "trials clients"]:
    keys = jax.vmap(lambda trial: trial_key(key, trial))(trials)

    def step(states: Any, j: Array) -> tuple[Any, None]:
        return _play(keys, selector, availability, states, j)[0], None

    start = _start(keys, selector, availability)
    states, _ = lax.scan(step, start, jnp.arange(num_rounds, dtype=jnp.uint32))
    return states[0].counts.T
