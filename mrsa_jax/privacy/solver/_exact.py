"""Exact integers: combinations of rounds that are checked, and the eliminations behind them.

Everything here is decided over the integers. Residues only choose which system is solved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from mrsa_jax._prime import draw_primes
from mrsa_jax._residues import host_residues


def residues_of(matrix: np.ndarray, prime: int) -> np.ndarray:
    """Return integers of any size as uint64 residues."""
    return host_residues(matrix, prime, np.uint64)


def independent_rows(residues: np.ndarray, prime: int) -> np.ndarray:
    """Return which rows are not combinations of those before them, modulo a prime: bool."""
    from mrsa_jax import _elimination

    found: np.ndarray = _elimination.independent_rows(
        np.ascontiguousarray(residues), np.uint64(prime)
    )
    return found


def reduced_echelon(residues: np.ndarray, prime: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the non-zero rows of the reduced echelon form, and each one's pivot column."""
    from mrsa_jax import _elimination

    form, pivots = _elimination.reduced_echelon(np.ascontiguousarray(residues), np.uint64(prime))
    return form, pivots


def kernel_of(residues: np.ndarray, prime: int) -> np.ndarray:
    """Return a kernel basis modulo a prime, transposed: uint64 `[columns, corank]`."""
    form, pivots = reduced_echelon(residues, prime)
    columns = residues.shape[1]
    free = np.setdiff1d(np.arange(columns), pivots)
    kernel = np.zeros((columns, len(free)), np.uint64)
    kernel[free, np.arange(len(free))] = 1
    kernel[pivots] = (np.uint64(prime) - form[:, free]) % np.uint64(prime)
    return kernel


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
    rank, columns = matrix.shape
    (prime,) = draw_primes(1)
    inside = np.zeros(columns, np.bool_)
    inside[np.asarray(list(support), np.int64)] = True
    kept = np.flatnonzero(inside)
    order = np.concatenate([np.flatnonzero(~inside), kept[np.argsort(-weights[kept])]])
    basis = order[independent_rows(residues_of(matrix, prime).T[order], prime)]
    # The last column that raises the rank is inside `support` unless those outside have it all.
    if len(basis) < rank or not inside[basis[-1]]:
        return None
    return solve_on(matrix, basis)


def combination_through(
    matrix: np.ndarray, support: Any, weights: np.ndarray, column: int
) -> tuple[list[int], np.ndarray] | None:
    """Find a combination as `combination_on` that is not zero at one column of the support.

    None when there is none.
    """
    rank, columns = matrix.shape
    (prime,) = draw_primes(1)
    inside = np.zeros(columns, np.bool_)
    inside[np.asarray(list(support), np.int64)] = True
    inside[column] = False
    kept = np.flatnonzero(inside)
    outside = np.setdiff1d(np.flatnonzero(~inside), [column])
    order = np.concatenate([outside, [column], kept[np.argsort(-weights[kept])]])
    basis = order[independent_rows(residues_of(matrix, prime).T[order], prime)]
    if len(basis) < rank or column not in basis:  # the others span it
        return None
    return solve_on(matrix, np.append(basis[basis != column], column))


def solve_on(matrix: np.ndarray, basis: np.ndarray) -> tuple[list[int], np.ndarray] | None:
    """Return z with z M zero on all columns of a basis but the last, and the support of z M.

    None when the columns are no basis after all (dependent over the rationals).
    """
    solved = solve_each(matrix, basis, [len(basis) - 1])
    return None if solved is None else (solved[0], support_of(solved[0], matrix))


def solve_each(
    matrix: np.ndarray, basis: np.ndarray, places: Sequence[int]
) -> list[list[int]] | None:
    """Return a z for each of some places: z M is zero on all columns of a basis but that one.

    Coprime Python integers; None when the columns are no basis after all.
    """
    import flint

    square = flint.fmpz_mat([[int(value) for value in row] for row in matrix[:, basis].T])
    target = flint.fmpz_mat(len(basis), len(places))
    for column, place in enumerate(places):
        target[place, column] = 1
    try:
        solution = square.solve(target)
    except ZeroDivisionError:
        return None
    numerators, _ = cast(Any, solution).numer_denom()
    every = []
    for column in numerators.transpose().tolist():
        values = [int(value) for value in column]
        divisor = math.gcd(*values)
        every.append([value // divisor for value in values])
    return every


def support_of(coefficients: list[int], matrix: np.ndarray) -> np.ndarray:
    """Return where the combination of rows is not zero, computed in Python integers."""
    used = [j for j, z in enumerate(coefficients) if z]
    total = [0] * matrix.shape[1]
    for j in used:
        z, row = coefficients[j], matrix[j]
        for k in np.flatnonzero(row):
            total[k] += z * int(row[k])
    return np.asarray([value != 0 for value in total])
