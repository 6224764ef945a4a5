"""Exact integers: ranks that are proven, and combinations of rounds that are checked.

Everything here is decided over the integers. Residues only choose which system is solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mrsa_jax.privacy._groups import log2_hadamard

__all__ = ["PRIME", "combination_on", "is_rank_proven", "large_primes", "residues_of"]

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
    bounds = _prefix_bounds(matrix)
    bits = 0.0
    needed = np.zeros(len(matrix))
    for tried, prime in enumerate(large_primes()):
        grew = _elimination.independent_rows(residues_of(matrix, prime), np.uint64(prime))
        found = np.cumsum(grew)
        if (found > ranks).any():
            ranks = np.maximum(ranks, found)
            needed = _minor_bits(matrix, ranks)
        bits += math.log2(prime)
        proven = (ranks == bounds) | (bits > needed)
        if proven.all() or tried + 1 == most_primes:
            return ranks, proven
    raise AssertionError("primes never end")


def _prefix_bounds(matrix: np.ndarray) -> np.ndarray:
    """Return min(distinct non-zero columns, distinct non-zero rows) of every prefix."""
    from mrsa_jax.privacy._groups import row_codes

    active = matrix != 0
    codes = row_codes(matrix)
    _, first = np.unique(codes, return_index=True)
    new = np.zeros(len(matrix), np.int64)
    new[first] = 1
    rows = np.cumsum(new * active.any(axis=1))
    label = np.zeros(matrix.shape[1], np.int64)
    ever = np.zeros(matrix.shape[1], np.bool_)
    columns = np.zeros(len(matrix), np.int64)
    for j, row in enumerate(matrix):
        ever |= active[j]
        values = np.unique(row, return_inverse=True)[1] if row.dtype == object else row
        pairs = np.stack([label, values.astype(np.int64)])
        label = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
        columns[j] = len(np.unique(label[ever]))
    return np.minimum(rows, columns)


def _minor_bits(matrix: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return log2 of a bound on the minors one larger than the rank, for every prefix."""
    full = {int(r): log2_hadamard(matrix, int(r) + 1) for r in np.unique(ranks)}
    return np.asarray([full[int(r)] for r in ranks])


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
    return _solve(matrix, basis)


def _solve(matrix: np.ndarray, basis: np.ndarray) -> tuple[list[int], np.ndarray] | None:
    """Return z with z M zero on all basis columns but the last, and the support of z M."""
    import flint

    square = flint.fmpz_mat([[int(value) for value in row] for row in matrix[:, basis].T])
    target = flint.fmpz_mat(len(basis), 1, [0] * (len(basis) - 1) + [1])
    try:
        solution = square.solve(target)
    except ZeroDivisionError:
        return None
    numerators, _ = solution.numer_denom()
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
