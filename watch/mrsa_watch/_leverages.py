"""Kernels and leverages of a growing history: exposed clients and hidden ones.

What it cannot distinguish are random vectors of its kernel modulo a large prime. With S
as many clients (pivots) as there are independent rows P, B = P[:, S] invertible and A
its inverse, a further row r is c P on S for c = r_S A; it is independent if some client
s has sigma = r_s - c P_s not 0, and s is the next pivot. The vector n with n_s = 1, n_S
= -A P_s is in the kernel of P, and r n = sigma; so w - (r w / sigma) n is in that of
both for every w in the kernel of P. It changes w at the pivots alone: where a kernel
vector was drawn at random, a client who is no pivot keeps its first number, and w stays
a random vector of the kernel. A takes O(t^2) products per row. Client i is exposed
exactly if all kernel vectors are 0 at i, except by chance.

With L the Cholesky factor of the rows' Gram matrix (rows of length 1), L^-1 P is
orthonormal; the rest q of a new row after P is r - P^T L^-T L^-1 P r, and adds q_i^2 /
|q|^2 to client i's leverage. Floats err in q by the condition of L, so the rest is
projected again until nothing comes of it (Gram and Schmidt, repeated); L's new row has
the length of q itself for its corner and never a difference.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mrsa_watch._rows import Row, Rows, grown
from mrsa_watch._vectors import (
    loops,
    negative,
    plus,
    reciprocal,
    times,
    total,
)

VECTORS = 3  # two to compare, and one that a row asked about may use up
_WORD = 1 << 64


class Step(NamedTuple):
    """The change of a kernel by a new row; made by `Kernel.step`."""

    pivot: int
    by_row: np.ndarray
    by_column: np.ndarray
    unit: np.uint64


class Kernel:
    """Random kernel vectors of the rows so far, modulo one prime.

    Attributes:
        prime: uint64, odd and below 2**62.
        vectors: uint64 `[VECTORS, clients]`, a column for every client that is known.
    """

    def __init__(self, prime: int) -> None:
        self.value = prime
        self.prime = np.uint64(prime)
        self.inverse = np.uint64(pow(prime, -1, _WORD))
        self.one = np.uint64(_WORD % prime)
        self.vectors = np.zeros((VECTORS, 0), np.uint64)
        # drawn from the system: no one can choose a history that these vectors miss
        self._rng = np.random.default_rng(secrets.randbits(128))
        self._rank = 0
        self._solver = np.zeros((0, 0), np.uint64)
        self._pivots = np.zeros(0, np.int64)
        self._pivot_of = np.zeros(0, np.int64)
        self._weights = np.zeros(0, np.uint64)  # of the weighted rows, at `Rows.held`
        self._num_held = 0

    @property
    def pivots(self) -> np.ndarray:
        """The clients at which the rows so far have an inverse, `[rank]`."""
        return self._pivots[: self._rank]

    def drawn(self, count: int) -> np.ndarray:
        """Return columns of this many clients that no row contains."""
        return self._rng.integers(0, self.value, (VECTORS, count), np.uint64)

    def join(self, count: int) -> None:
        """Take in clients up to this number."""
        more = count - self.vectors.shape[1]
        if more > 0:
            self.vectors = np.concatenate([self.vectors, self.drawn(more)], axis=1)
            self._pivot_of = np.concatenate([self._pivot_of, np.full(more, -1)])

    def residues(self, row: Row) -> np.ndarray:
        """Return a row's weights as residues; none where all are 1."""
        if row.weights is None:
            return np.zeros(0, np.uint64)
        # times 2**64, the form in which products take no division
        residues = [weight * _WORD % self.value for weight in row.weights]
        return np.asarray(residues, np.uint64)

    def seen(self, row: Row, vectors: np.ndarray | None = None) -> np.ndarray:
        """Return the row's products with kernel vectors: all 0 if dependent."""
        entries = (self.vectors if vectors is None else vectors)[:, row.places]
        if row.weights is not None:
            entries = self._times(entries, self.residues(row))
        return np.asarray(self._total(entries, axis=1))

    def step(self, rows: Rows, row: Row, pivot: int) -> Step | None:
        """Return the step of the row with a client as its pivot; None if it is none."""
        residues = self.residues(row)
        # the combination of the rows so far that has the row's entries at the pivots
        at = self._pivot_of[row.places]
        picked = self._solver[at[at >= 0], : self._rank]
        if len(residues):
            picked = self._times(picked, residues[at >= 0, None])
        by_row = np.asarray(self._total(picked))
        right = self._column(pivot, rows)
        place = int(np.searchsorted(row.places, pivot))
        entry = 0
        if place < len(row.places) and row.places[place] == pivot:
            entry = int(residues[place] if len(residues) else self.one)
        # the entry at the new pivot less what the rows so far give there (Schur
        # complement): 0 where the bordered matrix has no inverse
        corner = (entry - int(self._total(self._times(by_row, right)))) % self.value
        if corner == 0:
            return None
        # most rows lack the client, and their columns of the inverse need no product
        used = np.flatnonzero(right)
        solver = self._solver[: self._rank, used]
        by_column = self._total(self._times(solver, right[used]), axis=1)
        return Step(pivot, by_row, by_column, reciprocal(corner, self.prime))

    def _column(self, client: int, rows: Rows) -> np.ndarray:
        """Return a client's residues in the rows so far."""
        places = np.flatnonzero(rows.clients[: rows.starts[self._rank]] == client)
        column = np.zeros(self._rank, np.uint64)
        # the row of each entry: the last that starts at or before its place
        at = np.searchsorted(rows.starts[: self._rank], places, "right") - 1
        held = rows.held[at]
        column[at] = self.one
        places, at, held = (each[held >= 0] for each in (places, at, held))
        column[at] = self._weights[held + places - rows.starts[at]]
        return column

    def take(self, row: Row, step: Step) -> None:
        """Make the row the next one."""
        rank = self._rank
        # w - (r w / sigma) n, where n is 1 at the new pivot and -A P_s at the others
        factors = self._times(self.seen(row), step.unit)
        self.vectors[:, step.pivot] = plus(
            self.vectors[:, step.pivot], negative(factors, self.prime), self.prime
        )
        pivots = self.pivots
        self.vectors[:, pivots] = plus(
            self.vectors[:, pivots],
            self._times(factors[:, None], step.by_column),
            self.prime,
        )
        self._solver = grown(self._solver, rank + 1, rank + 1)
        loops().grow(
            self._solver,
            rank,
            step.by_row,
            step.by_column,
            step.unit,
            self.prime,
            self.inverse,
        )
        self._pivots = grown(self._pivots, rank + 1)
        self._pivots[rank] = step.pivot
        self._pivot_of[step.pivot] = rank
        residues = self.residues(row)
        end = self._num_held + len(residues)
        self._weights = grown(self._weights, end)
        self._weights[self._num_held : end] = residues
        self._num_held = end
        self._rank = rank + 1

    def _times(self, a: np.ndarray, b: Any) -> np.ndarray:
        return np.asarray(times(a, b, self.prime, self.inverse))

    def _total(self, residues: np.ndarray, axis: int = 0) -> Any:
        return total(residues, axis, self.prime, self.inverse)

    def keys(
        self,
        classes: np.ndarray,
        count: int,
        row: Row | None = None,
        vectors: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a number for each class of clients, equal where classes are parallel.

        Args:
            classes: Class of each client, `[clients]`.
            count: Number of classes.
            row: A row to be taken first, which no state of this kernel sees.
            vectors: Kernel vectors to use instead.

        Returns:
            The keys, and which classes stand alone.
        """
        field = self.prime, self.inverse
        vectors = self.vectors if vectors is None else vectors
        sums = loops().class_sums(vectors, classes, count, *field)
        seen = np.zeros(0, np.uint64) if row is None else self.seen(row, vectors)
        # w less its multiple of a vector that sees the row is in the kernel of both;
        # the two that are left suffice for a ratio
        if seen.any():
            used = int(np.flatnonzero(seen)[-1])
            others = [a for a in range(VECTORS) if a != used]
            factors = self._times(seen[others], reciprocal(seen[used], self.prime))
            taken = self._times(factors[:, None], sums[used])
            sums = plus(sums[others], negative(taken, self.prime), self.prime)
        # parallel classes have one ratio of their sums in all kernel vectors
        keys = loops().ratios(sums[0], sums[1], self.one, *field)
        return keys, (sums == 0).all(axis=0)


_PASSES = 5
_NOTHING = 1e-13  # of the rest's length: what a pass may still find in it
# The length that a combination of rows of length 1 may have, made one long, for nine
# digits: floats err by it as `privacy._orthonormal` says, where short rests alone do
# not tell.
_LONGEST = 1e-9 * 2.0**53
_ROUNDINGS = 8  # of a projection and its repetitions, a row
_AT_ONCE = 16  # rows that are asked about


class Rest(NamedTuple):
    """The part of a row that those before it lack.

    Attributes:
        values: float64 `[clients]`.
        along: Its part in the orthonormal rows, `[rank]`.
        length: Of `values`.
        growth: The length of the combination of rows of length 1 that `values` is, made
            one long.
        overlaps: The row's products with the others, entries as `Rows` holds them: of
            two rows without weights exactly how many clients are in both.
    """

    values: np.ndarray
    along: np.ndarray
    length: float
    growth: float
    overlaps: np.ndarray

    def shares(self) -> np.ndarray:
        """Return the addition to each client's leverage."""
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
        """Return whether floats know the leverages, with a rest, to nine digits."""
        last = 0.0 if rest is None else rest.growth**2
        rank = self._rank + (rest is not None)
        # sums of `rank` products, in rows of which `rank` are of length 1; not where
        # not a number
        return bool(
            np.sqrt(self._growth + last) * (2 * _ROUNDINGS * max(1, rank)) <= _LONGEST
        )

    def join(self, count: int) -> None:
        """Take in clients up to this number."""
        self.values = np.concatenate(
            [self.values, np.zeros(max(0, count - len(self.values)))]
        )

    def rest(self, rows: Rows, row: Row) -> Rest:
        """Return the part of a row that those before it lack, in one fixed order."""
        return self._rests(rows, [row], len(self.values))[0]

    def rests(self, rows: Rows, candidates: Sequence[Row], clients: int) -> list[Rest]:
        """Return the rests of rows that are only asked about, many at once.

        Args:
            rows: The rows so far.
            candidates: The others.
            clients: How many clients there are with those whom only they know.
        """
        rests: list[Rest] = []
        for start in range(0, len(candidates), _AT_ONCE):
            block = candidates[start : start + _AT_ONCE]
            rests += self._rests(rows, block, clients)
        return rests

    def _rests(self, rows: Rows, candidates: Sequence[Row], clients: int) -> list[Rest]:
        rank = self._rank
        scales = rows.scales[:rank, None]
        lower = self._lower[:rank, :rank]
        sparse = rows.starts, rows.held, rows.clients, rows.values
        rest = np.zeros((len(candidates), clients))
        for values, row in zip(rest, candidates, strict=True):
            values[row.places] = row.floats

        along, overlaps, combined = np.zeros((3, rank, len(candidates)))
        for count in range(_PASSES):
            part = loops().inner(*sparse, rank, rest)
            overlaps = overlaps if count else part.copy()
            # rows are stored unscaled, and L is of rows of length 1
            part *= scales
            loops().solve_lower(lower, part)
            if (_lengths(part.T) <= _NOTHING * _lengths(rest)).all():
                break
            along += part
            # L^-1 and then L^-T: the combination of rows that is nearest to the rest
            loops().solve_upper(lower, part)
            combined += part
            loops().spread(*sparse, part * scales, rest)
        units = np.asarray([row.scale for row in candidates])
        rest *= units[:, None]
        along *= units
        combined *= units
        sizes = _lengths(rest).tolist()
        return [
            Rest(
                rest[k],
                along[:, k],
                size,
                _growth(combined[:, k], size),
                overlaps[:, k],
            )
            for k, size in enumerate(sizes)
        ]

    def take(self, rest: Rest) -> None:
        """Make a row the next one, given what it adds to the others."""
        rank = self._rank
        self._lower = grown(self._lower, rank + 1, rank + 1)
        self._lower[rank, :rank] = rest.along
        # never 0, as the solves divide by it
        self._lower[rank, rank] = max(rest.length, 1e-300)
        self._rank = rank + 1
        self.values = self.values + rest.shares()
        self._growth += rest.growth**2


def _lengths(vectors: np.ndarray) -> np.ndarray:
    """Return the length of each row."""
    # by NumPy's sum, whose order is fixed: that of a library's product may change
    return np.asarray(np.sqrt((vectors * vectors).sum(axis=1)))


def _growth(combined: np.ndarray, length: float) -> float:
    """Return the length of a combination with the last row once, over its sum's."""
    # the last row has the factor 1; the bounds keep the square of the result finite
    return min(float(np.sqrt(1 + combined @ combined) / max(length, 1e-150)), 1e150)
