"""Compiled loops for exact searches on the CPU, where the form of loops is allowed.

Most of them eliminate modulo a prime below 2**31: what that takes stands here.

XLA splits the small, branching steps of an elimination or an enumeration over threads and loses
most of its time there; such loops are compiled by numba instead. Modules of compiled loops are
imported only by the functions that use them, so that the package starts without numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mrsa_jax._core.device import chosen_form


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of NumPy arrays and integers, as `mrsa_watch._base.compiled` says.

    Raises:
        ConfigurationError: If numba is not there.
    """
    chosen_form(("loops",))
    from mrsa_watch._base.compiled import compiled as by_numba

    return by_numba(function)


# ---- Elimination modulo a prime below 2**31.


@compiled
def power(base, exponent, prime):
    """Return base ** exponent modulo a prime below 2**32."""
    result = np.uint64(1)
    square = np.uint64(base) % prime
    left = np.uint64(exponent)
    while left > np.uint64(0):
        if left & np.uint64(1):
            result = result * square % prime
        square = square * square % prime
        left >>= np.uint64(1)
    return result


@compiled
def first_nonzero(row):
    """Return the place of the first entry that is not zero, -1 if there is none."""
    for j in range(row.shape[0]):
        if row[j] != 0:
            return j
    return -1


@compiled
def bring_up(work, rank, column):
    """Swap the first row from `rank` on that is not zero in a column to place `rank`.

    Returns False when there is none.
    """
    for i in range(rank, work.shape[0]):
        if work[i, column] != 0:
            if i != rank:
                for j in range(work.shape[1]):
                    kept = work[rank, j]
                    work[rank, j] = work[i, j]
                    work[i, j] = kept
            return True
    return False


@compiled
def _reduce_row(row, basis, pivots, rank, prime):
    """Clear the pivots of `basis[:rank]` (rows with a leading 1) from a row, in place.

    A multiple is subtracted by adding (prime - factor) times the row, so that all stays positive.
    """
    for k in range(rank):
        start = pivots[k]
        factor = row[start]
        if factor != np.uint64(0):
            other = prime - factor
            for j in range(start, row.shape[0]):
                row[j] = (row[j] + other * basis[k, j]) % prime


@compiled
def independent_rows(rows, prime):
    """Return which rows are not combinations of the rows before them, modulo a prime.

    `rows` are residues, uint64 `[rows, columns]`; the answer is bool `[rows]`. Its sum is the rank.
    """
    count, columns = rows.shape
    most = min(count, columns)
    basis = np.zeros((most, columns), np.uint64)
    pivots = np.zeros(most, np.int64)
    grew = np.zeros(count, np.bool_)
    rank = 0
    for i in range(count):
        if rank == most:
            break
        row = rows[i].copy()
        _reduce_row(row, basis, pivots, rank, prime)
        place = first_nonzero(row)
        if place < 0:
            continue
        inverse = power(row[place], prime - np.uint64(2), prime)
        for j in range(columns):
            basis[rank, j] = row[j] * inverse % prime
        pivots[rank] = place
        grew[i] = True
        rank += 1
    return grew


@compiled
def reduced_echelon(rows, prime):
    """Return the reduced row-echelon form of residues.

    Args:
        rows: uint64 `[rows, columns]`, residues.
        prime: uint64.

    Returns:
        The form's non-zero rows `[rank, columns]` and each row's pivot column `[rank]`.
    """
    work = rows.copy()
    count, columns = work.shape
    pivots = np.zeros(min(count, columns), np.int64)
    rank = 0
    for column in range(columns):
        if rank == count:
            break
        if not bring_up(work, rank, column):
            continue
        inverse = power(work[rank, column], prime - np.uint64(2), prime)
        for j in range(columns):
            work[rank, j] = work[rank, j] * inverse % prime
        for i in range(count):
            factor = work[i, column]
            if i != rank and factor != np.uint64(0):
                other = prime - factor
                for j in range(columns):
                    work[i, j] = (work[i, j] + other * work[rank, j]) % prime
        pivots[rank] = column
        rank += 1
    return work[:rank], pivots[:rank]
