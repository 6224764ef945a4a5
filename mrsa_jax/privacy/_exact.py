"""Exact integers: ranks that are proven, and combinations of rounds that are checked.

Everything here is decided over the integers. Residues only choose which system is solved.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from mrsa_jax.privacy._groups import collapse, column_codes, log2_length

__all__ = [
    "PRIME",
    "combination_on",
    "large_primes",
    "prefix_ranks",
    "residues_of",
    "solve_on",
    "support_of",
    "unit_vectors",
]

# The prime of the searches: products of two residues fit 62 bits.
PRIME = 2**31 - 1


def residues_of(matrix: np.ndarray, prime: int) -> np.ndarray:
    """Return integers of any size as uint64 residues."""
    return (matrix % prime).astype(np.uint64)


def large_primes() -> Iterator[int]:
    """Return the primes below 2**31, largest first."""
    import flint

    value = PRIME
    while True:
        if flint.fmpz(value).is_prime():
            yield value
        value -= 2


def prefix_ranks(matrix: np.ndarray, *, most_primes: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank of the first j + 1 rows for every j, and from where on it is proven.

    The rank modulo any prime is a proven lower bound. It is proven equal where it meets the
    number of non-zero columns or of distinct non-zero rows so far, or once the product of the
    primes tried exceeds every larger minor (Hadamard): a larger minor would be a multiple of all.

    Returns:
        int64 `[rounds]` and bool `[rounds]`.
    """
    from mrsa_jax.modular import _elimination

    ranks = np.zeros(len(matrix), np.int64)
    bounds = ranks
    bits = 0.0
    needed = np.zeros(len(matrix))
    for tried, prime in enumerate(large_primes()):
        grew = _elimination.independent_rows(residues_of(matrix, prime), np.uint64(prime))
        found = np.cumsum(grew)
        if (found > ranks).any():
            ranks = np.maximum(ranks, found)
            needed = _minor_bits(matrix, ranks)
            bounds = _prefix_bounds(matrix, ranks)
        bits += math.log2(prime)
        proven = (ranks == bounds) | (bits > needed)
        if proven.all() or tried + 1 == most_primes:
            return ranks, proven
    raise AssertionError("primes never end")


def _prefix_bounds(matrix: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return min(distinct non-zero columns, distinct non-zero rows) of every prefix.

    Columns are counted only where the rows leave the rank open.
    """
    _, first = np.unique(column_codes(matrix.T), return_index=True)
    new = np.zeros(len(matrix), np.int64)
    new[first] = 1
    bounds = np.cumsum(new * (matrix != 0).any(axis=1))
    for j in np.flatnonzero(ranks < bounds):
        bounds[j] = min(bounds[j], collapse(matrix[: j + 1]).num_groups)
    return bounds


def _minor_bits(matrix: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return log2 of a bound on the minors one larger than the rank, for every prefix."""
    lengths = [log2_length(row) for row in matrix]
    longest: list[float] = []
    bits = []
    for length, rank in zip(lengths, ranks, strict=True):
        bisect.insort(longest, -length)
        bits.append(-math.fsum(longest[: int(rank) + 1]) * (1 + 1e-9) + 1e-6)
    return np.asarray(bits)


def combination_on(
    matrix: np.ndarray, support: Any, weights: np.ndarray
) -> tuple[list[int], np.ndarray] | None:
    """Find a combination of rows that vanishes outside a set of columns, in exact integers.

    Args:
        matrix: Integers `[rank, columns]` whose rows are independent.
        support: Column indices; what comes back is supported on a subset of them.
        weights: Of the columns: heavier ones are left out where there is a choice.

    Returns:
        Coefficients (coprime Python integers) and the boolean support of the combination, or
        None when the columns outside `support` already have full rank.
    """
    from mrsa_jax.modular import _elimination

    rank, columns = matrix.shape
    inside = np.zeros(columns, np.bool_)
    inside[np.asarray(list(support), np.int64)] = True
    kept = np.flatnonzero(inside)
    order = np.concatenate([np.flatnonzero(~inside), kept[np.argsort(-weights[kept])]])
    residues = residues_of(matrix, PRIME).T[order]
    grew = _elimination.independent_rows(np.ascontiguousarray(residues), np.uint64(PRIME))
    basis = order[np.flatnonzero(grew)]
    # The last column that raises the rank is inside `support` unless those outside have it all.
    if len(basis) < rank or not inside[basis[-1]]:
        return None
    return solve_on(matrix, basis)


def solve_on(matrix: np.ndarray, basis: np.ndarray) -> tuple[list[int], np.ndarray] | None:
    """Return z with z M zero on all columns of a basis but the last, and the support of z M.

    None when the columns are no basis after all (dependent over the rationals).
    """
    import flint

    square = flint.fmpz_mat([[int(value) for value in row] for row in matrix[:, basis].T])
    target = flint.fmpz_mat(len(basis), 1, [0] * (len(basis) - 1) + [1])
    try:
        solution = square.solve(target)
    except ZeroDivisionError:
        return None
    numerators, _ = cast(Any, solution).numer_denom()
    values = [int(value) for value in numerators.entries()]
    divisor = math.gcd(*values)
    coefficients = [value // divisor for value in values]
    return coefficients, support_of(coefficients, matrix)


def support_of(coefficients: list[int], matrix: np.ndarray) -> np.ndarray:
    """Return where the combination of rows is not zero, computed in Python integers."""
    used = [j for j, z in enumerate(coefficients) if z]
    total = [0] * matrix.shape[1]
    for j in used:
        z, row = coefficients[j], matrix[j]
        for k in np.flatnonzero(row):
            total[k] += z * int(row[k])
    return np.asarray([value != 0 for value in total])


def unit_vectors(matrix: np.ndarray, columns: list[int]) -> list[int]:
    """Return those of some columns whose unit vector is a combination of the rows.

    Args:
        matrix: Integers `[rank, columns]` whose rows are independent.
        columns: Candidates.

    A unit vector in the space belongs to a column in every basis of columns: two primes sieve,
    exact integers decide.
    """
    from mrsa_jax.modular import _elimination

    rank, width = matrix.shape
    if rank == width:
        return list(columns)
    suspects = np.asarray(columns, np.int64)
    for which, prime in enumerate((PRIME, 1_199_999_993)):
        order = np.random.default_rng(which).permutation(width)
        form, pivots = _elimination.reduced_echelon(
            residues_of(matrix, prime), order, np.uint64(prime)
        )
        alone = pivots[(form != 0).sum(axis=1) == 1]
        suspects = np.intersect1d(suspects, alone)
        if not len(suspects):
            return []
    return [int(k) for k in suspects if _is_unit(matrix, pivots, int(k))]


def _is_unit(matrix: np.ndarray, basis: np.ndarray, column: int) -> bool:
    order = np.concatenate([basis[basis != column], [column]])
    solved = solve_on(matrix, order)
    return solved is not None and np.flatnonzero(solved[1]).tolist() == [column]
