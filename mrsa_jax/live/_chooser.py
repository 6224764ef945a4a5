"""A selector round by round, for servers that are not simulated.

Its state is that of the rounds that are over, so that it can be found again from a log:
a selector that is given no more than those that it chose chooses them again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.pytrees import kept_apart
from mrsa_jax._core.selector import Selector, block_size_of, check_selector, with_counts
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key
from mrsa_watch._base.errors import require


class Chooser:
    """Ask a selector round by round.

    With everybody there it chooses what `selection.rollout` does from the same seed.

    Args:
        selector: Any of `mrsa_jax.selection`.
        seed: Integer in [0, 2**32), or a typed key.

    Attributes:
        num_clients: N.
        round: Rounds that are over, skipped ones too.

    Raises:
        ConfigurationError: If the selector is none, or the seed is neither.

    Examples:
        >>> import mrsa_jax as mj
        >>> chooser = Chooser(mj.selection.batch_partitioning(6, 4, 2), 0)
        >>> cohort = chooser.choose({0, 2, 3, 4, 5})  # 0's block lacks client 1
        >>> chooser.end(cohort, cohort)
        >>> cohort, chooser.round
        ((2, 3, 4, 5), 1)
    """

    def __init__(self, selector: Selector, seed: int | Key[Array, ""]) -> None:
        self._selector = check_selector(selector)
        self._key = trial_key(as_key(seed), 0)
        self._state = selector.init()
        self.num_clients = int(selector.num_clients)
        self.round = 0

    def block(self, client: int) -> int:
        """Return the block of a client, whose members only move together."""
        return client // block_size_of(self._selector)

    def choose(self, available: Collection[int]) -> tuple[int, ...]:
        """Return whom to ask of those who are there, in order.

        Nobody where the round is skipped.
        The state stays as it is until `end`.
        """
        cohort, _ = self._select(available)
        return tuple(np.flatnonzero(np.asarray(cohort)).tolist())

    def end(self, asked: Collection[int], summed: Collection[int]) -> None:
        """Take in how a round went: whom the server asked, and who was in the sum.

        As in `selection.rollout_rounds`, counts are of sums: who was asked in vain is
        not served.

        Raises:
            ConfigurationError: If the selector could not have asked them.
        """
        # the selector chooses the same cohort among those it chose before
        cohort, state = self._select(asked)
        again = set(np.flatnonzero(np.asarray(cohort)).tolist())
        rule = "must be the one that chose the log's rounds, from the same seed"
        require(again == set(asked), "selector", rule, self._selector)
        members = np.asarray(self._of(summed), np.int32)
        # the state counts sums, not cohorts
        counts = on_device(np.asarray(self._state.counts) + members)
        self._state = with_counts(state, counts)
        self.round += 1

    def play(self) -> tuple[int, ...]:
        """Return the cohort of a round in which everybody is there and stays."""
        cohort = self.choose(range(self.num_clients))
        self.end(cohort, cohort)
        return cohort

    def _of(self, clients: Collection[int]) -> Bool[Array, " clients"]:
        row = np.zeros(self.num_clients, np.bool_)
        row[list(clients)] = True
        return on_device(row)

    def _select(
        self, available: Collection[int]
    ) -> tuple[Bool[Array, " clients"], Any]:
        key = round_key(self._key, self.round, Stream.SELECTION)
        selector = kept_apart(self._selector)
        return _step(selector, key, self._state, self._of(available))


def check_clients(clients: Sequence[Any], argument: str, chooser: Chooser) -> list[Any]:
    """Return clients by index, after a check that they are the selector's number."""
    members = list(clients)
    count = len(members)
    rule = "must be as many as the selector's clients"
    require(count == chooser.num_clients, argument, rule, count, chooser.num_clients)
    is_once = len(set(members)) == count
    require(is_once, argument, "must hold each client once", clients)
    return members


@jax.jit
def _step(
    selector: Selector, key: Array, state: Any, available: Array
) -> tuple[Array, Any]:
    return selector.select(key, state, available)
