"""Rollouts of blocks and of coins as compiled loops, on the CPU's cores.

But not of traces.
Bit for bit those of the array programs: the state of a trial stays in cache, a round
draws only the words that decide it, and nothing is compiled for new sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.selector import Selector
from mrsa_jax._core.streams import is_threefry
from mrsa_jax._core.threads import over_ranges
from mrsa_jax.availability import Availability
from mrsa_jax.selection._bernoulli import BernoulliSelection
from mrsa_jax.selection._blocks import BlockSelection


def runs_loops(key: Any, selector: Any, availability: Any) -> bool:
    """Return whether rollouts of a scheme, under availability for its clients, are run here."""
    # `_loops` plays what these choose with JAX and `_ranking` on a GPU, from the same
    # words; a class made from them may choose otherwise
    is_known = type(selector) in _SHAPES and "_limits" in vars(type(availability))
    if not is_known or not is_threefry(key):
        return False
    form = chosen_form(("loops", "xla", "pallas"), key, selector, availability)
    clients = selector.num_clients
    shapes = _SHAPES[type(selector)](clients)
    is_one = all(leaf.shape in shapes for leaf in jax.tree.leaves(selector))
    is_one &= all(leaf.ndim == 1 for leaf in jax.tree.leaves(availability))
    # the loops take a table: a client's limits over a cycle, of all together up to 1
    # GiB
    return form == "loops" and is_one and availability._period * clients <= 2**28


# of what is known of one scheme, not of several side by side
_SHAPES: dict[type, Callable[[int], tuple[tuple[int, ...], ...]]] = {
    BlockSelection: lambda _: ((),),
    BernoulliSelection: lambda clients: ((), (clients,)),
}


def counts_by_loops(
    key: Key[Array, ""],
    selector: Selector,
    availability: Availability,
    num_rounds: int,
    num_trials: int,
    first: int,
) -> Int32[Array, "trials clients"]:
    """Return in how many rounds each client took part."""
    kept = np.empty((num_trials, 0, selector.num_clients), np.bool_)
    return on_device(_play(key, selector, availability, num_rounds, first, kept))


def history_by_loops(
    key: Key[Array, ""],
    selector: Selector,
    availability: Availability,
    num_rounds: int,
    num_trials: int,
    first: int,
) -> Bool[np.ndarray, "trials rounds clients"]:
    """Return who took part in each round, on the host."""
    history = np.zeros((num_trials, num_rounds, selector.num_clients), np.bool_)
    _play(key, selector, availability, num_rounds, first, history)
    return history


def _play(
    key: Array, scheme: Any, online: Any, rounds: int, first: int, history: np.ndarray
) -> np.ndarray:
    """Fill the history, unless it has no rounds; return the counts."""
    from mrsa_jax.selection import _loops

    trials, clients = len(history), scheme.num_clients
    is_of_blocks = type(scheme) is BlockSelection
    size = int(scheme.block_size) if is_of_blocks else 1
    # the first clients of all blocks, then the second ones
    every = np.arange(clients // size * size).reshape(-1, size).T.ravel()
    order = np.zeros(-(-clients // _loops.LANES) * _loops.LANES, np.uint32)
    rows, chained = online._limits(rounds), int(online._period == 0)
    limits = np.zeros((len(rows), order.size), np.uint32)
    order[: every.size], limits[:, : every.size] = every, rows[:, every]
    numbers: tuple[Any, ...]
    if is_of_blocks:
        numbers = (
            size,
            int(scheme.blocks_per_cohort),
            int(scheme.least_used_blocks),
            rounds,
        )
    else:
        chances = np.zeros_like(order)
        chances[:clients] = np.asarray(scheme.threshold)
        numbers = chances, rounds
    play = _loops.play_blocks if is_of_blocks else _loops.play_coins
    own = np.array(jax.random.key_data(key))  # writable: one type, to be compiled once
    counts = np.empty((trials, clients), np.int32)

    def part(some: slice) -> None:
        play(
            own,
            first + some.start,
            order,
            limits,
            chained,
            *numbers,
            counts[some],
            history[some],
        )

    over_ranges("played", part, trials)
    return counts
