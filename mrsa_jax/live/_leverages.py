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
_LEAST = 1e-7  # of a row of length 1: of a shorter rest floats do not know nine digits
_AT_ONCE = 16  # rows that are asked about


class Rest(NamedTuple):
    """What a row has beside those before it.

    Attributes:
        values: float64 `[clients]`.
        along: Its part in the orthonormal rows, `[rank]`.
        length: Of `values`.
        overlaps: The row's products with the others, entries as `Rows` holds them: of two rows
            without weights exactly how many clients are in both.
    """

    values: np.ndarray
    along: np.ndarray
    length: float
    overlaps: np.ndarray

    @property
    def is_accurate(self) -> bool:
        """Whether floats know its direction to about nine digits."""
        return self.length > _LEAST

    def shares(self) -> np.ndarray:
        """Return what it adds to each client's leverage."""
        return (self.values / max(self.length, 1e-300)) ** 2


class Leverages:
    """Leverages after the rows so far.

    Attributes:
        values: float64 `[clients]`.
        is_accurate: Whether floats have told all rows apart well enough for nine digits.
    """

    def __init__(self) -> None:
        self.values = np.zeros(0)
        self.is_accurate = True
        self._lower = np.zeros((0, 0))
        self._rank = 0

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
        along, overlaps = np.zeros(rank), np.zeros(rank)
        for count in range(_PASSES):
            seen = _loops.inner_one(*kept, rank, rest)
            overlaps = overlaps if count else seen
            part = (seen * scales)[:, None]
            _loops.solve_lower(lower, part)
            if _loops.length(part[:, 0]) <= _NOTHING * _loops.length(rest):
                break
            along += part[:, 0]
            _loops.solve_upper(lower, part)
            _loops.spread_one(*kept, part[:, 0] * scales, rest)
        rest *= row.scale
        return Rest(rest, along * row.scale, float(_loops.length(rest)), overlaps)

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
        along, overlaps = np.zeros((2, rank, len(asked)))
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
            _loops.spread(*kept, part * scales, rest)
        units = np.asarray([row.scale for row in asked])
        rest *= units
        along *= units
        lengths = np.linalg.norm(rest, axis=0)
        return [
            Rest(rest[:, k], along[:, k], float(lengths[k]), overlaps[:, k])
            for k in range(len(asked))
        ]

    def take(self, rest: Rest) -> None:
        """Make a row the next one, given what it has beside the others."""
        rank = self._rank
        self._lower = grown(self._lower, rank + 1, rank + 1)
        self._lower[rank, :rank] = rest.along
        self._lower[rank, rank] = max(rest.length, 1e-300)
        self._rank = rank + 1
        self.values = self.values + rest.shares()
        self.is_accurate = self.is_accurate and rest.is_accurate
