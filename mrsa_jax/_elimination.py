"""Compiled elimination modulo a prime below 2**31, for searches on the CPU.

Import inside functions only (see `_compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._compiled import compiled


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
    columns = row.shape[0]
    for k in range(rank):
        start = pivots[k]
        factor = row[start]
        if factor != np.uint64(0):
            other = prime - factor
            for j in range(columns):
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
        place = -1
        for j in range(columns):
            if row[j] != np.uint64(0):
                place = j
                break
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
def reduced_echelon(rows, order, prime):
    """Return the reduced row-echelon form of residues, choosing pivots in a given column order.

    Args:
        rows: uint64 `[rows, columns]`, residues.
        order: int64 `[columns]`: columns in the order in which they are tried as pivots.
        prime: uint64.

    Returns:
        The form's non-zero rows `[rank, columns]` and each row's pivot column `[rank]`.
    """
    work = rows.copy()
    count, columns = work.shape
    pivots = np.zeros(min(count, columns), np.int64)
    rank = 0
    for place in range(columns):
        if rank == count:
            break
        column = order[place]
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


@compiled
def rank_of(rows, prime):
    """Return the rank of residues, uint64 `[rows, columns]`, modulo a prime."""
    work = rows.copy()
    count, columns = work.shape
    rank = 0
    for column in range(columns):
        if rank == count:
            break
        if not bring_up(work, rank, column):
            continue
        inverse = power(work[rank, column], prime - np.uint64(2), prime)
        for i in range(rank + 1, count):
            factor = work[i, column] * inverse % prime
            if factor != np.uint64(0):
                other = prime - factor
                for j in range(column, columns):
                    work[i, j] = (work[i, j] + other * work[rank, j]) % prime
        rank += 1
    return rank
