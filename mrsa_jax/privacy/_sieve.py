"""Light vectors of one or two groups where there are too many columns for a kernel basis.

With B a basis of columns, row i of X = B^-1 A says which other columns move with column i: none,
and the column stands alone; one, or a multiple of another row, and two columns form a light
vector. Only the products of X with a few random vectors are ever computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax.privacy._exact import PRIME, residues_of, solve_on
from mrsa_jax.privacy._groups import Groups
from mrsa_jax.privacy._space import Vector

__all__ = ["Sieve", "independent_by_mixing"]

_SECOND = 1_199_999_993
_AXES = 3
_SPARE = 16
_MOST_PAIRS = 16


def independent_by_mixing(matrix: np.ndarray) -> np.ndarray:
    """Return rows that are no combinations of earlier ones, by random sums of the columns.

    Rows are independent if their images are; the converse fails with chance rows / 2**31.
    """
    from mrsa_jax.modular import _elimination

    rng = np.random.default_rng(90_001)
    width = min(matrix.shape[1], len(matrix) + _SPARE)
    mixed = _product(_entries(matrix), rng.integers(0, PRIME, (matrix.shape[1], width)), PRIME)
    return np.flatnonzero(_elimination.independent_rows(mixed, np.uint64(PRIME)))


def _entries(matrix: np.ndarray) -> Any:
    """Return a matrix's non-zero entries as a sparse array."""
    from scipy import sparse

    rows, columns = np.nonzero(matrix)
    return sparse.csr_array((matrix[rows, columns], (rows, columns)), shape=matrix.shape)


def _product(entries: Any, factors: np.ndarray, prime: int) -> np.ndarray:
    """Return entries @ factors modulo a prime, uint64; sums are split so that none overflows."""
    left = entries.copy()
    left.data = (left.data % prime).astype(np.int64)
    low, high = factors & 0xFFFF, factors >> 16
    bits = int(left.max()).bit_length() + 16 + int(left.shape[1]).bit_length()
    parts = [(left, low, 0), (left, high, 16)]
    if bits > 62:
        small, large = left.copy(), left.copy()
        small.data &= 0xFFFF
        large.data >>= 16
        parts = [(small, low, 0), (small, high, 16), (large, low, 16), (large, high, 32)]
    total = np.zeros((left.shape[0], factors.shape[1]), np.int64)
    for half, factor, shift in parts:
        total = (total + (half @ factor) % prime * pow(2, shift, prime)) % prime
    return total.astype(np.uint64)


def _column_basis(rows: np.ndarray, entries: Any) -> np.ndarray:
    """Return as many independent columns as there are independent rows, modulo the prime.

    A random part of the columns spans most of the space; a column that the rest needs is not
    orthogonal to what annihilates that part.
    """
    from mrsa_jax.modular import _elimination

    rank, columns = rows.shape
    order = np.random.default_rng(90_002).permutation(columns)
    part = order[: 2 * rank]
    vectors = np.ascontiguousarray(residues_of(rows[:, part], PRIME).T)
    form, pivots = _elimination.reduced_echelon(vectors, np.arange(rank), np.uint64(PRIME))
    chosen = part[_elimination.independent_rows(vectors, np.uint64(PRIME))]
    if len(chosen) == rank:
        return chosen
    free = np.setdiff1d(np.arange(rank), pivots)
    annihilators = np.zeros((len(free), rank), np.int64)
    annihilators[np.arange(len(free)), free] = 1
    annihilators[:, pivots] = (PRIME - form[:, free].T.astype(np.int64)) % PRIME
    images = _product(entries.T.tocsr(), annihilators.T, PRIME)
    _, more = _elimination.reduced_echelon(
        np.ascontiguousarray(images.T), np.arange(columns), np.uint64(PRIME)
    )
    return np.concatenate([chosen, more])


class Sieve:
    """Which groups stand alone, and which two form a light vector.

    Attributes:
        is_sound: Whether a basis of columns was found; without one nothing is known.
        alone: Sorted groups whose unit vector is in the space.
    """

    def __init__(self, groups: Groups, rows: np.ndarray) -> None:
        self._groups = groups
        self._rows = rows
        self._entries = _entries(rows)
        self._basis = _column_basis(rows, self._entries)
        self.is_sound = len(self._basis) == len(rows)
        self.alone: list[int] = []
        if self.is_sound:
            self._images = [self._image(prime) for prime in (PRIME, _SECOND)]
            zero = np.all([(image == 0).all(axis=1) for image in self._images], axis=0)
            self.alone = sorted(int(k) for k in self._basis[zero])

    def _image(self, prime: int) -> np.ndarray:
        """Return X times random vectors, int64 `[rank, axes]`."""
        from mrsa_jax.modular import _elimination

        rank, columns = self._rows.shape
        rng = np.random.default_rng([90_003, prime])
        self._factors = rng.integers(1, prime, (columns, _AXES))
        self._factors[self._basis] = 0
        right = _product(self._entries, self._factors, prime)
        system = np.concatenate([residues_of(self._rows[:, self._basis], prime), right], axis=1)
        form, pivots = _elimination.reduced_echelon(
            system, np.arange(rank + _AXES), np.uint64(prime)
        )
        assert (pivots == np.arange(rank)).all()
        return form[:, rank:].astype(np.int64)

    def lightest_single(self) -> Vector | None:
        """Return an exact vector on the lightest group that stands alone."""
        for k in self.alone:
            vector = self._exact(self._basis, k, "column basis")
            if vector is not None:
                return vector
        return None

    def _exact(self, basis: np.ndarray, k: int, method: str) -> Vector | None:
        order = np.concatenate([basis[basis != k], [k]])
        solved = solve_on(self._rows, order)
        if solved is None:
            return None
        coefficients, support = solved
        weight = int(self._groups.sizes[support].sum())
        return Vector(weight, support, tuple(coefficients), method)

    def lightest_pair(self) -> tuple[int, Vector | None]:
        """Return a lower bound on the weight of pairs of groups, and an exact one if it is met.

        The bound is more than the weight of all groups when no two dual vectors are parallel.
        """
        sizes = self._groups.sizes
        pairs = sorted((int(sizes[i] + sizes[j]), i, j) for i, j in self._parallel())
        if not pairs:
            return int(sizes.sum()) + 1, None
        for weight, i, j in pairs[:_MOST_PAIRS]:
            if weight > pairs[0][0]:
                break
            vector = self._pair(i, j)
            if vector is not None and vector.weight <= weight:
                return pairs[0][0], vector
        return pairs[0][0], None

    def _pair(self, i: int, j: int) -> Vector | None:
        basis = self._basis
        if j in basis:
            i, j = j, i
        if i not in basis:
            return None
        if j in basis:
            # Another column takes j's place; then i's row has j alone.
            others = np.setdiff1d(np.arange(self._rows.shape[1]), basis)
            for k in others[:_MOST_PAIRS]:
                swapped = np.where(basis == j, k, basis)
                vector = self._exact(swapped, i, "column basis")
                if vector is not None and vector.weight <= self._groups.sizes[[i, j]].sum():
                    return vector
            return None
        return self._exact(basis, i, "column basis")

    def _parallel(self) -> list[tuple[int, int]]:
        """Return pairs of groups, one at least in the basis, with parallel images mod one prime.

        Free columns have independent unit vectors for dual vectors, images of the factors.
        """
        prime = _SECOND
        image = self._images[1]
        free = np.setdiff1d(np.arange(self._rows.shape[1]), self._basis)
        owners = np.concatenate([self._basis, free])
        vectors = np.concatenate([(prime - image) % prime, self._factors[free]])
        shown = (vectors != 0).any(axis=1)
        owners, vectors = owners[shown], vectors[shown]
        lead = [pow(int(z), -1, prime) if z else 0 for z in vectors[:, 2]]
        scale = np.asarray(lead, np.int64)
        keys = vectors[:, 0] * scale % prime * (1 << 31) + vectors[:, 1] * scale % prime
        order = np.lexsort((self._groups.sizes[owners], keys))
        same = np.flatnonzero(keys[order][1:] == keys[order][:-1])
        return [(int(owners[order[t]]), int(owners[order[t + 1]])) for t in same]
