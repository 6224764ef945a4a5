"""Roll many configurations out at once.

Numbers stacked, trials side by side, one program.
Rates, T, K and seeds are data, so configurations that differ in nothing else run in one
compiled program, several of them in a call where each has few trials; trials are dealt
out to a mesh.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.batches import at_once, within_memory
from mrsa_jax._core.factories import program_of
from mrsa_jax._core.mesh import checked_mesh
from mrsa_jax._core.programs import quick_for_little
from mrsa_jax._core.selector import Selector
from mrsa_jax._core.streams import Seed, trial_key
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import Availability
from mrsa_jax.selection import _rollout
from mrsa_jax.selection._by_kernel import counts_by_kernel, runs_kernel
from mrsa_jax.selection._by_loops import (
    Rollout,
    counts_by_loops,
    history_by_loops,
    runs_loops,
)
from mrsa_jax.selection._rollout import _entries, _in_chunks, _play, _start, checked
from mrsa_watch._base.errors import check_size, require


def rollout_counts(
    seed: Seed,
    selector: Selector,
    availability: Availability,
    num_rounds: int,
    num_trials: int,
    *,
    first: int = 0,
) -> Int32[Array, "trials clients"]:
    """Count in how many rounds each client took part, in many trials.

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
        >>> counts = mj.selection.rollout_counts(5, *scheme, num_rounds=9, num_trials=2)
        >>> bool(
        ...     (
        ...         counts == mj.selection.rollout_trials(5, *scheme, 9, 2).sum(axis=1)
        ...     ).all()
        ... )
        True
        >>> bool(
        ...     (
        ...         mj.selection.rollout_counts(5, *scheme, 9, 1, first=1)[0]
        ...         == counts[1]
        ...     ).all()
        ... )
        True
    """
    job = checked(seed, selector, availability, num_rounds, num_trials, first)
    if runs_loops(job.key, *job.schemes):
        return counts_by_loops(job)
    return _in_chunks(_counts_chunk, job, 1)


@quick_for_little(_entries, static_argnames=("num_rounds",))
def _counts_chunk(
    key: Key[Array, ""],
    trials: Array,
    selector: Any,
    availability: Any,
    num_rounds: int,
) -> Int32[Array, "trials clients"]:
    keys = jax.vmap(lambda trial: trial_key(key, trial))(trials)
    start = _start(keys, selector, availability)
    if runs_kernel(keys, selector, availability):
        schemes = selector, availability
        return counts_by_kernel(keys, schemes, start, num_rounds).T

    def step(states: Any, j: Array) -> tuple[Any, None]:
        return _play(keys, selector, availability, states, j)[0], None

    states, _ = lax.scan(step, start, jnp.arange(num_rounds, dtype=jnp.uint32))
    return states[0].counts.T


@needs_values
def rollout_many(
    seeds: Sequence[Seed],
    selectors: Sequence[Selector],
    availabilities: Sequence[Availability],
    num_rounds: int,
    num_trials: int,
    *,
    mesh: Mesh | None = None,
    width: int = 1,
    first: int = 0,
) -> Bool[np.ndarray, "cells trials rounds clients"]:
    """Return participation under many configurations, all of one program.

    Args:
        seeds: Of each configuration; equal seeds give paired trials.
        selectors: Of each.
        availabilities: Of each.
        num_rounds: J >= 1.
        num_trials: B >= 1, of each.
        mesh: Devices of one axis that each configuration's trials are dealt out to; the
            result is the same to the bit. With devices of several processes all must
            make this call.
        width: Make the program for this many configurations if there are fewer, so that
            lists of different lengths share one; what is computed in vain is dropped.
        first: As for `rollout_trials`.

    Returns:
        bool[cells, B, J, N]; entry c equals `rollout_trials` of configuration c.

    Raises:
        ConfigurationError: As `rollout_trials`, and if the lists differ in length, are
            empty, or hold schemes of different programs (`program_of`).

    Examples:
        >>> import mrsa_jax as mj
        >>> picks = [mj.selection.batch_partitioning(6, 2, t) for t in (1, 2)]
        >>> online = [mj.availability.independent(rate) for rate in (0.1, 0.4)]
        >>> both = mj.selection.rollout_many([3, 4], picks, online, 5, num_trials=2)
        >>> bool(
        ...     (
        ...         both[1] == mj.selection.rollout_trials(4, picks[1], online[1], 5, 2)
        ...     ).all()
        ... )
        True
    """
    count = len(seeds)
    lengths = (count, len(selectors), len(availabilities))
    require(
        count > 0 and len(set(lengths)) == 1,
        "seeds",
        "must be as many as the other lists, and at least one",
        *lengths,
    )
    check_size(width, "width")
    cells = [
        checked(*each, num_rounds, num_trials, first)
        for each in zip(seeds, selectors, availabilities, strict=True)
    ]
    program = program_of(cells[0].schemes)
    require(
        all(program_of(cell.schemes) == program for cell in cells),
        "selectors",
        "must all be of one program: of one class, with the same sizes",
    )
    over = checked_mesh(mesh)
    # three ways to the same bits: compiled loops, one configuration after another where
    # each fills the device, or several in one call
    if over is None and all(runs_loops(cell.key, *cell.schemes) for cell in cells):
        return np.stack(list(map(history_by_loops, cells)))
    num_clients, trials = cells[0].num_clients, cells[0].num_trials
    together = at_once("selection", 4 * num_clients * trials)
    if over is not None or together == 1:
        roll = _rollout._roll_chunk
        parts = (_rollout._in_chunks(roll, cell, num_clients, over) for cell in cells)
        return np.stack(list(map(_gathered, parts)))
    what = (
        f"configurations of {trials:,} trials of {cells[0].num_rounds:,} rounds "
        f"with {num_clients:,} clients"
    )
    return within_memory(
        functools.partial(_stacked, cells),
        min(together, max(width, count)),
        "num_trials",
        what,
    )


def _stacked(cells: list[Rollout], size: int) -> np.ndarray:
    """Run several configurations in each call.

    All calls have one size; the last is filled up.
    """
    _, _, rounds, trials, first = cells[0]
    indices = jnp.arange(first, first + trials, dtype=jnp.uint32)

    def one(start: int) -> np.ndarray:
        # the last call is filled up with its last configuration
        together = [cells[min(start + i, len(cells) - 1)] for i in range(size)]
        keys, schemes = jax.tree.map(
            lambda *leaves: jnp.stack(leaves),
            *[(cell.key, cell.schemes) for cell in together],
        )
        return np.asarray(_roll_cells(keys, indices, *schemes, rounds))

    starts = range(0, len(cells), size)
    inputs = [(cell.key, cell.schemes) for cell in cells]
    parts = _rollout._side_by_side(one, starts, _rollout._workers(inputs))
    return np.concatenate(parts)[: len(cells)]


@quick_for_little(
    lambda keys, *of: keys.size * _rollout._entries(keys, *of),
    static_argnames=("num_rounds",),
)
def _roll_cells(
    keys: Key[Array, " cells"],
    trials: Array,
    selectors: Any,
    availabilities: Any,
    num_rounds: int,
) -> Bool[Array, "cells trials rounds clients"]:
    def one(key: Array, selector: Any, availability: Any) -> Array:
        return _rollout._roll_chunk(key, trials, selector, availability, num_rounds)

    return jax.vmap(one)(keys, selectors, availabilities)


def _gathered(values: Array) -> np.ndarray:
    """Return an array of which this process may hold a part only."""
    if values.is_fully_addressable:
        return np.asarray(values)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(values, tiled=True))
