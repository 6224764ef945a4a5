"""Integer vectors u with M u = 0: the proofs of what does not follow from sums.

Small ones where the lattice of all of them can be reduced; solutions of linear systems
elsewhere.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np

_MOST_REDUCED = 250  # classes of clients: the reduction takes seconds
_LEAST_REDUCED = 8  # of so few vectors large entries do no harm
_MOST_SOLVED = 400  # classes of clients whose whole basis is solved for
_LARGEST = 1000  # coefficient of a generic vector
# of the coefficients of a vector that is as near as can be to a unit vector
_STEPS = 2**24
_ATTEMPTS = 20


class Kernel:
    """The integer vectors that M makes zero.

    Args:
        matrix: M, integers `[rounds, classes]`.
        rows: Rows that are independent and span all.
        basis: Columns on which those are regular.
        sizes: Clients of each class.

    Attributes:
        vectors: A basis; empty where only generic vectors can be had, or there are
            none.
    """

    def __init__(
        self,
        matrix: np.ndarray,
        rows: np.ndarray,
        basis: np.ndarray,
        sizes: Sequence[int],
    ) -> None:
        self._matrix, self._kept, self._basis = matrix, rows, basis
        self._free = np.setdiff1d(np.arange(matrix.shape[1]), basis)
        self._sizes = np.asarray(sizes, np.float64)
        self.vectors: list[list[int]] = []
        classes, corank = matrix.shape[1], len(self._free)
        if corank > _LEAST_REDUCED and classes <= _MOST_REDUCED:
            self.vectors = _reduced(matrix, corank)
        if not self.vectors and corank and classes <= _MOST_SOLVED:
            self.vectors = self._solved(np.eye(corank, dtype=np.int64))
        if self.vectors:
            self._rows = np.array([_unit_sized(u) for u in self.vectors]) / np.sqrt(
                self._sizes
            )
            orthonormal, upper = np.linalg.qr(self._rows.T)
            self._factors = np.linalg.lstsq(upper, orthonormal.T, rcond=None)[0]

    def generic(self, count: int, wanted: Collection[int]) -> list[list[int]]:
        """Return random combinations in which each wanted place is not always zero.

        Fewer, the whole basis, where there are no more; where a wanted place cannot be
        had, with it zero.
        """
        corank = len(self._free)
        if not corank:
            return []
        if len(self.vectors) == corank <= count:
            return self.vectors
        rng = np.random.default_rng(secrets.randbits(128))
        drawn: list[list[int]] = []
        for _ in range(_ATTEMPTS):
            factors = rng.integers(1, _LARGEST, (min(count, corank), corank))
            drawn = (
                self._solved(factors.T)
                if not self.vectors
                else [
                    _primitive(
                        [
                            sum(
                                int(a) * u[k]
                                for a, u in zip(line, self.vectors, strict=True)
                            )
                            for k in range(self._matrix.shape[1])
                        ]
                    )
                    for line in factors * rng.choice([-1, 1], factors.shape)
                ]
            )
            if all(any(u[k] for u in drawn) for k in wanted):
                break
        return drawn

    def towards(self, k: int) -> list[int] | None:
        """Return a combination of the basis near the projection of a unit vector.

        In the metric in which the members of a class share what the class has. None
        without a basis.
        """
        if not self.vectors:
            return None
        factors = self._factors[:, k]
        largest = float(np.abs(factors).max())
        if not np.isfinite(largest) or not largest:
            return self.vectors[0]
        scales = np.array([float(max(map(abs, u)).bit_length()) for u in self.vectors])
        exact = [int(a) for a in np.rint(factors / largest * _STEPS)]
        top = int(scales.max())
        whole = [a << (top - int(bits)) for a, bits in zip(exact, scales, strict=True)]
        u = [
            sum(a * v[i] for a, v in zip(whole, self.vectors, strict=True))
            for i in range(self._matrix.shape[1])
        ]
        return _primitive(u) if any(u) else self.vectors[0]

    def _solved(self, factors: np.ndarray) -> list[list[int]]:
        """Solve for vectors with given free places, each times a denominator."""
        import flint

        rows = self._matrix[self._kept].astype(object)
        square = flint.fmpz_mat(rows[:, self._basis].tolist())
        right = -(rows[:, self._free] @ factors.astype(object))
        numerators, divisor = cast(
            Any,
            square.solve(
                flint.fmpz_mat([[int(v) for v in row] for row in right.tolist()])
            ),
        ).numer_denom()
        vectors = []
        for column, entries in zip(
            numerators.transpose().tolist(), factors.T, strict=True
        ):
            u = [0] * self._matrix.shape[1]
            for place, value in zip(self._basis, column, strict=True):
                u[place] = int(value)
            for place, value in zip(self._free, entries, strict=True):
                u[place] = int(value) * int(divisor)
            vectors.append(_primitive(u))
        # the rows that were kept may span too little where a prime chose them
        whole = flint.fmpz_mat([[int(v) for v in row] for row in self._matrix])
        rests = (whole * flint.fmpz_mat(vectors).transpose()).transpose().tolist()
        return [
            u for u, entries in zip(vectors, rests, strict=True) if not any(entries)
        ]


def _reduced(matrix: np.ndarray, corank: int) -> list[list[int]]:
    """Return a reduced basis of the lattice of all integer u with M u = 0.

    None if it fails.
    Of the lattice of all (u, c M u), with c so large that no short vector has M u other
    than zero.
    """
    import flint

    rows, columns = matrix.shape
    for bits in (60, 150, 400):
        whole = flint.fmpz_mat(columns, columns + rows)
        for k in range(columns):
            whole[k, k] = 1
            for j in np.flatnonzero(matrix[:, k]):
                whole[k, columns + int(j)] = int(matrix[j, k]) << bits
        basis = [
            [int(value) for value in row] for row in cast(Any, whole.lll()).tolist()
        ]
        short = [row[:columns] for row in basis if not any(row[columns:])]
        if len(short) == corank:
            return short
    return []


def _primitive(u: list[int]) -> list[int]:
    common = math.gcd(*u) or 1
    return [value // common for value in u]


def _unit_sized(u: list[int]) -> list[float]:
    """Return a vector as floats, divided by a power of 2 about its largest entry."""
    size = 1 << max(map(abs, u)).bit_length()
    return [value / size for value in u]
