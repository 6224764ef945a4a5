"""Among how many clients the update of any one round is hidden, by NumPy alone.

Where updates drift, the best linear estimate of client i's update of round r from the
sums so far explains the share h = |L^-1 c|^2 of its variance: L is the Cholesky factor
of M = (P P^T) o R and c = D_i R e_r (`mrsa_jax.privacy.hidden_among` with a memory;
docs/hidden_among.md). A further sum adds a row to L and an entry to each L^-1 c, so
that it costs the sums so far times the updates that were sent, and never the whole
history again.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mrsa_watch._base.errors import check_number, require
from mrsa_watch._lasting import Lasting

_MOST_ENTRIES = 2**26  # of L^-1 c of all updates: half a gigabyte
_MOST_ERROR = 5e-7  # of a share, relative to it: six digits, as `hidden_among` promises
_ABOVE = math.nextafter(1.0, 2.0)


class WorstUpdate(NamedTuple):
    """The worst hidden update of one round, or the worst hidden lasting part.

    Attributes:
        hidden: Size of a single sum that would hide it equally well; None if it is not
            known.
        client: The client that sent it.
    """

    hidden: float | None
    client: Hashable = None


class Updates:
    """Follows how well each round's update is hidden, if all updates drift alike.

    Args:
        memory: rho of the correlation rho^|r - r'| of what lasts of an update: from 0
            to 0.999999.
        share: Of an update's variance that lasts; the rest is fresh in each round.

    Raises:
        ConfigurationError: If one of them is no such number.

    Edge cases: not known from the second sum of a round on (of one part, where there
    are parts), beyond half a gigabyte of memory, and where floats know fewer than six
    digits. A client who is alone in a sum is hidden among 1, and otherwise more.

    Examples:
        >>> updates = Updates(0.5)
        >>> round(updates.add((0, 0), ["anna", "bob"]).hidden, 6)
        2.0
        >>> round(updates.add((0, 1), ["anna", "cleo"]).hidden, 6)
        1.875
    """

    def __init__(self, memory: float, share: float = 1.0) -> None:
        self.memory = check_number(
            memory, "memory", "must lie in [0, 0.999999]", 0.0, 0.999999
        )
        self.share = check_number(share, "share", "must lie in [0, 1]", 0.0, 1.0)
        self._parts: dict[str | None, _Part] = {None: _Part(self.memory, self.share)}
        self._whole: list[tuple[Any, ...]] = []

    @property
    def words(self) -> str:
        """Return under which condition the figures hold."""
        share = "" if self.share == 1.0 else f", share {self.share:.3g}"
        return f"if updates drift with memory {self.memory:.6g}{share}"

    @property
    def lasting_words(self) -> str:
        """Return under which condition the figures of what lasts hold."""
        return f"if share {self.share:.3g} of them never changes"

    def lasting(self) -> WorstUpdate | None:
        """Return the client whose lasting part is hidden worst; None at share 0 or 1.

        With share 1 the update of a round is what lasts of it, and with share 0 nothing
        lasts.
        """
        if not 0.0 < self.share < 1.0:
            return None
        parts = self._parts.values()
        return _least([part.worst_lasting() for part in parts if part.rounds])

    def add(
        self,
        name: Hashable,
        clients: Sequence[Hashable],
        weights: Sequence[Any] | None = None,
        part: str | None = None,
    ) -> WorstUpdate:
        """Add a sum and return the worst hidden update of all sums so far.

        Args:
            name: Of the sum's round; rounds follow each other in the order in which
                they come.
            clients: Who is in the sum.
            weights: Their factors in it; all 1 if None. Of 0 are as if absent.
            part: Of which coordinates it is; a sum of whole updates counts in every
                part.
        """
        row = name, _scaled(clients, weights)
        due = list(self._parts.values())
        if part is None:
            self._whole.append(row)
        else:
            if part not in self._parts:
                self._parts[part] = _Part(self.memory, self.share)
                for before in self._whole:
                    self._parts[part].add(*before)
            due = [self._parts[part]]
        for each in due:
            each.add(*row)
        return _least([each.worst() for each in self._parts.values() if each.rounds])


class _Part:
    """The sums of one part of the vector, or of whole updates."""

    def __init__(self, memory: float, share: float) -> None:
        self._memory = memory
        self._share = share
        # M, scaled to a unit diagonal, has no eigenvalue below this, however many rows
        self._least = (1 - share) + share * (1 - memory) / (1 + memory)
        self.lasting = Lasting(share) if 0.0 < share < 1.0 else None
        self.rounds: dict[Hashable, int] = {}
        self._is_known = True
        self._alone: list[Hashable] = []  # clients who were alone in a sum
        self._names: dict[Hashable, int] = {}
        self._rows = np.zeros((0, 0))  # P, with room to grow
        self._factor = np.zeros((0, 0))  # L
        self._solved = np.zeros((0, 0))  # L^-1 c, a column for each update
        self._of = np.zeros((2, 0), np.int64)  # whose update, and of which row
        self._shares = np.zeros(0)

    def add(self, name: Hashable, weights: dict[Hashable, float]) -> None:
        if not weights:
            return
        if len(weights) == 1:
            self._alone += weights
        if name in self.rounds:  # R = 1 between two rows: they may depend on each other
            self._is_known = False
        row = self.rounds.setdefault(name, len(self.rounds))
        if self.lasting is not None:
            self.lasting.add(list(weights), list(weights.values()))
        size = (row + 1) * (self._of.shape[1] + len(weights))
        self._is_known &= size <= _MOST_ENTRIES
        if not self._is_known:
            self._rows = self._factor = self._solved = np.zeros((0, 0))
            return
        at = np.array([self._names.setdefault(i, len(self._names)) for i in weights])
        self._rows = _room(self._rows, row + 1, len(self._names))
        self._rows[row, at] = list(weights.values())
        self._put(row, at)

    def _put(self, row: int, at: np.ndarray) -> None:
        """Add a row to the factor, an entry to each known update, and new updates."""
        P = self._rows[: row + 1, : len(self._names)]
        lags = np.arange(row, -1, -1, dtype=float)
        # R between this row and each one so far; 1 for the row itself
        kernel = np.where(lags == 0, 1.0, self._share * self._memory**lags)
        # the further row of L is (y, pivot), with L y = head
        head = (P[:row] @ P[row]) * kernel[:row]
        self._factor = _room(self._factor, row + 1, row + 1)
        L = self._factor[: row + 1, : row + 1]
        y = _substituted(L[:row, :row], head[:, None])[:, 0]
        L[row, :row] = y
        L[row, row] = pivot = math.sqrt(float(P[row] @ P[row] - y @ y))
        count = self._of.shape[1]
        new = len(at)
        self._solved = _room(self._solved, row + 1, count + new)
        solved = self._solved[: row + 1, : count + new]
        if count:
            owners, places = self._of
            # an update of round r meets this row with the kernel share rho^(row - r)
            entries = P[row, owners] * kernel[places]
            solved[row, :count] = (entries - y @ solved[:row, :count]) / pivot
            self._shares += solved[row, :count] ** 2
        solved[:, count:] = _substituted(L, P[:, at] * kernel[:, None])
        self._shares = np.append(self._shares, (solved[:, count:] ** 2).sum(axis=0))
        self._of = np.append(self._of, [at, np.full(new, row)], axis=1)

    def worst(self) -> WorstUpdate:
        """Return the worst update, or that nothing is known of it."""
        rows = len(self.rounds)
        error = (3 * rows * (rows + 1) + 8 * rows) * 2.0**-53 / self._least
        if not self._is_known or error > _MOST_ERROR:
            return WorstUpdate(None)
        at = int(np.argmax(self._shares))
        client = list(self._names)[self._of[0, at]]
        if self._alone:
            return WorstUpdate(1.0, self._alone[0])
        return WorstUpdate(max(1 / float(self._shares[at]), _ABOVE), client)

    def worst_lasting(self) -> WorstUpdate:
        """Return the client whose lasting part is hidden worst, if it is known."""
        # two sums of a round
        if self.lasting is None or self.lasting.count > len(self.rounds):
            return WorstUpdate(None)
        return WorstUpdate(*self.lasting.worst())


def _least(updates: Sequence[WorstUpdate]) -> WorstUpdate:
    """Return an update that is not known, or else the worst."""
    return min(updates, key=lambda each: each.hidden or 0.0, default=WorstUpdate(None))


def _scaled(
    clients: Sequence[Hashable], weights: Sequence[Any] | None
) -> dict[Hashable, float]:
    """Return the clients whose weight is not 0, and their weights times a power of two.

    The largest is then from 1 to 2, so that no product of two overflows, or loses a
    whole row. A row's scale changes no share.
    """
    if weights is None:
        return dict.fromkeys(clients, 1.0)
    pairs = zip(clients, weights, strict=True)
    exact = {
        client: Fraction(*weight.as_integer_ratio())
        for client, weight in pairs
        if weight
    }
    largest = max(exact.values(), default=Fraction(1))
    exponent = largest.numerator.bit_length() - largest.denominator.bit_length()
    scale = Fraction(2) ** exponent
    return {client: float(weight / scale) for client, weight in exact.items()}


def _room(array: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return an array with room for the rows and columns, grown by half if needed."""
    if rows <= array.shape[0] and columns <= array.shape[1]:
        return array
    more = [
        (0, 0 if want <= have else max(want, have * 3 // 2, 8) - have)
        for have, want in zip(array.shape, (rows, columns), strict=True)
    ]
    return np.pad(array, more)


def _substituted(L: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return L^-1 of columns, row by row."""
    solved = np.zeros_like(right)
    for k in range(len(L)):
        solved[k] = (right[k] - L[k, :k] @ solved[:k]) / L[k, k]
    return solved


def checked_updates(memory: float | None, share: float) -> Updates | None:
    """Return a follower of the updates, None where no drift is asked about.

    Raises:
        ConfigurationError: If a number is out of range, or a share comes without a
            memory.
    """
    if memory is None:
        require(share == 1.0, "share", "must be used together with memory", share)
        return None
    return Updates(memory, share)
