"""Rollouts of blocks and of coins as compiled loops, on the CPU's cores.

But not of traces.
Bit for bit those of the array programs: the state of a trial stays in cache, a round
draws only the words that decide it, and nothing is compiled for new sizes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Int32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.streams import is_threefry
from mrsa_jax._core.threads import over_ranges
from mrsa_jax.selection._bernoulli import BernoulliSelection
from mrsa_jax.selection._blocks import BlockSelection


class Rollout(NamedTuple):
    """A rollout whose arguments were checked.

    Attributes:
        key: Of the seed.
        schemes: The selector, who is online among its clients, and what else decides.
        num_rounds: J.
        num_trials: B.
        first: Number of the first trial.
    """

    key: Array
    schemes: tuple[Any, ...]
    num_rounds: int
    num_trials: int
    first: int = 0

    @property
    def num_clients(self) -> int:
        """N."""
        return int(self.schemes[0].num_clients)

    def history(self, num_rounds: int) -> np.ndarray:
        """Return room for some rounds of all trials, bool[B, rounds, N]."""
        shape = (self.num_trials, num_rounds, self.num_clients)
        return np.zeros(shape, np.bool_)


def runs_loops(key: Any, selector: Any, availability: Any) -> bool:
    """Return whether compiled loops can run rollouts of a scheme.

    Its availability must be for its clients.
    """
    # `_loops` plays what these choose with JAX and `_ranking` on a GPU, from the same
    # words; a class made from them may choose otherwise
    is_played = type(selector) in (BlockSelection, BernoulliSelection)
    if not (is_played and "_limits" in vars(type(availability)) and is_threefry(key)):
        return False
    clients = selector.num_clients
    # numbers of one scheme, not of several side by side
    shapes = [()] if type(selector) is BlockSelection else [(), (clients,)]
    is_single = all(leaf.shape in shapes for leaf in jax.tree.leaves(selector))
    is_single &= all(leaf.ndim == 1 for leaf in jax.tree.leaves(availability))
    form = chosen_form(("loops", "xla", "pallas"), key, selector, availability)
    # the loops take a table: a client's limits over a cycle, of all together up to 1
    # GiB
    return form == "loops" and is_single and availability._period * clients <= 2**28


def counts_by_loops(job: Rollout) -> Int32[Array, "trials clients"]:
    """Return in how many rounds each client took part."""
    return on_device(_play(job, job.history(0)))


def history_by_loops(job: Rollout) -> Bool[np.ndarray, "trials rounds clients"]:
    """Return participation histories on the host."""
    history = job.history(job.num_rounds)
    _play(job, history)
    return history


def _play(job: Rollout, history: np.ndarray) -> np.ndarray:
    """Fill the history, unless it has no rounds; return the counts."""
    from mrsa_jax._core.threefry_loops import WORDS
    from mrsa_jax.selection._loops import Sizes, Tables, play

    scheme, online = job.schemes
    rounds = job.num_rounds
    clients = scheme.num_clients
    padding = (0, -clients % WORDS)
    chances = np.zeros(0, np.uint32)
    blocks = 1, 0, 0
    if type(scheme) is BlockSelection:
        blocks = (
            int(scheme.block_size),
            int(scheme.blocks_per_cohort),
            int(scheme.least_used_blocks),
        )
    else:
        each = np.broadcast_to(np.asarray(scheme.threshold), clients)
        chances = np.pad(each, padding)
    # the first clients of all blocks, then the second ones; zeros beyond the last block
    size = blocks[0]
    whole = clients // size * size
    every = np.arange(whole, dtype=np.uint32).reshape(-1, size).T.ravel()
    padding = (0, clients - whole + padding[1])
    order = np.pad(every, padding)
    limits = np.pad(online._limits(rounds)[:, every], ((0, 0), padding))
    # writable: one type, to be compiled once
    tables = Tables(np.array(jax.random.key_data(job.key)), order, limits, chances)
    chained = int(online._period == 0)
    counts = np.empty((len(history), clients), np.int32)

    def part(trials: slice) -> None:
        sizes = Sizes(job.first + trials.start, rounds, chained, *blocks)
        play(tables, sizes, counts[trials], history[trials])

    over_ranges("played", part, len(history))
    return counts
