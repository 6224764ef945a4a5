"""Leverages of a growing history: among how many clients each is hidden after every sum.

With L the Cholesky factor of the rows' Gram matrix (rows of length 1), L^-1 P is orthonormal; the
rest q of a new row beside P is r - P^T L^-T L^-1 P r, and adds q_i^2 / |q|^2 to client i's
leverage. Floats err in q by the condition of L, so the rest is projected again until nothing comes
of it (Gram and Schmidt, repeated); L's new row has the length of q itself for its corner and never
a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mrsa_jax.live._rows import Row, Rows, grown

_PASSES = 5
_NOTHING = 1e-13  # of the rest's length: what a pass may still find in it
# The length that a combination of rows of length 1 may have, made one long, for nine digits: floats
# err by it as `privacy._orthonormal` says, where short rests alone do not tell.
_LONGEST = 1e-9 * 2.0**53
_ROUNDINGS = 8  # of a projection and its repetitions, a row
_AT_ONCE = 16  # rows that are asked about


class Rest(NamedTuple):
    """What a row has beside those before it.

    Attributes:
        values: float64 `[clients]`.
        along: Its part in the orthonormal rows, `[rank]`.
        length: Of `values`.
        growth: The length of the combination of rows of length 1 that `values` is, made one long.
        overlaps: The row's products with the others, entries as `Rows` holds them: of two rows
            without weights exactly how many clients are in both.
    """

    values: np.ndarray
    along: np.ndarray
    length: float
    growth: float
    overlaps: np.ndarray

    def shares(self) -> np.ndarray:
        """Return what it adds to each client's leverage."""
        return (self.values / max(self.length, 1e-300)) ** 2


class Leverages:
    """Leverages after the rows so far.

    Attributes:
        values: float64 `[clients]`.
    """

    def __init__(self) -> None:
        self.values = np.zeros(0)
        self._growth = 0.0
        self._lower = np.zeros((0, 0))
        self._rank = 0

    def is_accurate(self, rest: Rest | None) -> bool:
        """Return whether floats know the leverages, with those of a rest, to nine digits."""
        last = 0.0 if rest is None else rest.growth**2
        rank = self._rank + (rest is not None)
        # sums of so many products, in rows of which so many are of length 1; not where not a number
        return bool(np.sqrt(self._growth + last) * (2 * _ROUNDINGS * max(1, rank)) <= _LONGEST)

    def join(self, count: int) -> None:
        """Take in clients up to so many."""
        self.values = np.concatenate([self.values, np.zeros(max(0, count - len(self.values)))])

    def rest(self, rows: Rows, row: Row) -> Rest:
        """Return what a row has beside those before it."""
        from mrsa_jax.live import _loops

        rank, scales = self._rank, rows.scales[: self._rank]
        lower = self._lower[:rank, :rank]
        kept = rows.starts, rows.held, rows.clients, rows.values
        rest = np.zeros(len(self.values))
        rest[row.places] = row.floats
        along, overlaps, combined = np.zeros(rank), np.zeros(rank), np.zeros(rank)
        for count in range(_PASSES):
            seen = _loops.inner_one(*kept, rank, rest)
            overlaps = overlaps if count else seen
            part = (seen * scales)[:, None]
            _loops.solve_lower(lower, part)
            if _loops.length(part[:, 0]) <= _NOTHING * _loops.length(rest):
                break
            along += part[:, 0]
            _loops.solve_upper(lower, part)
            combined += part[:, 0]
            _loops.spread_one(*kept, part[:, 0] * scales, rest)
        rest *= row.scale
        length = float(_loops.length(rest))
        growth = _growth(combined * row.scale, length)
        return Rest(rest, along * row.scale, length, growth, overlaps)

    def rests(self, rows: Rows, asked: Sequence[Row], clients: int) -> list[Rest]:
        """Return the rests of rows that are only asked about, many at once.

        Args:
            rows: The rows so far.
            asked: The others.
            clients: How many clients there are with those whom only they know.
        """
        found: list[Rest] = []
        for start in range(0, len(asked), _AT_ONCE):
            found += self._block(rows, asked[start : start + _AT_ONCE], clients)
        return found

    def _block(self, rows: Rows, asked: Sequence[Row], clients: int) -> list[Rest]:
        from mrsa_jax.live import _loops

        rank, scales = self._rank, rows.scales[: self._rank, None]
        lower = self._lower[:rank, :rank]
        kept = rows.starts, rows.held, rows.clients, rows.values
        rest = np.zeros((clients, len(asked)))
        for k, row in enumerate(asked):
            rest[row.places, k] = row.floats
        along, overlaps, combined = np.zeros((3, rank, len(asked)))
        for count in range(_PASSES):
            part = _loops.inner(*kept, rank, rest)
            overlaps = overlaps if count else part.copy()
            part *= scales
            _loops.solve_lower(lower, part)
            lengths = np.linalg.norm(rest, axis=0)
            if (np.linalg.norm(part, axis=0) <= _NOTHING * lengths).all():
                break
            along += part
            _loops.solve_upper(lower, part)
            combined += part
            _loops.spread(*kept, part * scales, rest)
        units = np.asarray([row.scale for row in asked])
        rest *= units
        along *= units
        combined *= units
        lengths = np.linalg.norm(rest, axis=0)
        return [
            Rest(rest[:, k], along[:, k], float(lengths[k]),
                 _growth(combined[:, k], float(lengths[k])), overlaps[:, k])
            for k in range(len(asked))
        ]  # fmt: skip

    def take(self, rest: Rest) -> None:
        """Make a row the next one, given what it has beside the others."""
        rank = self._rank
        self._lower = grown(self._lower, rank + 1, rank + 1)
        self._lower[rank, :rank] = rest.along
        self._lower[rank, rank] = max(rest.length, 1e-300)
        self._rank = rank + 1
        self.values = self.values + rest.shares()
        self._growth += rest.growth**2


def _growth(combined: np.ndarray, length: float) -> float:
    """Return the length of a combination of rows, the last of them once, per length of its sum."""
    return min(float(np.sqrt(1 + combined @ combined) / max(length, 1e-150)), 1e150)
