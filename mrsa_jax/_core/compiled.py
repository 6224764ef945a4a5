"""Compiled loops for exact searches on the CPU, where the form of loops is allowed.

Most of them eliminate modulo a prime below 2**31: what that takes stands here.

XLA splits the small, branching steps of an elimination or an enumeration over threads
and loses most of its time there; such loops are compiled by numba instead. Modules of
compiled loops are imported only by the functions that use them, so that the package
starts without numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mrsa_jax._core.forms import chosen_form


def compiled(function: Callable[..., object]) -> Any:
    """Compile a function of NumPy arrays and integers by numba.

    Raises:
        ConfigurationError: If numba is not there.
    """
    chosen_form(("loops",))
    from mrsa_watch._base.compiled import compiled as by_numba

    return by_numba(function)


@compiled
def power(base, exponent, prime):
    """Return base ** exponent modulo a prime below 2**32."""
    result = np.uint64(1)
    square = np.uint64(base) % prime
    rest = np.uint64(exponent)
    while rest > np.uint64(0):
        if rest & np.uint64(1):
            result = result * square % prime
        square = square * square % prime
        rest >>= np.uint64(1)
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
                    entry = work[rank, j]
                    work[rank, j] = work[i, j]
                    work[i, j] = entry
            return True
    return False


@compiled
def add_product(sums, row, factor, square):
    """Add a multiple of residues to sums, kept below the square of the prime."""
    for j in range(row.size):
        total = sums[j] + factor * np.uint64(row[j])
        sums[j] = min(total, total - square)  # what wraps is larger


@compiled
def lowered(value, prime, negative):
    """Return value / 2^32 modulo an odd prime (Montgomery); value < prime 2^32.

    `negative` is -1 / prime modulo 2^32.
    """
    factor = np.uint32(np.uint32(value) * negative)
    rest = np.uint32((value + np.uint64(factor) * np.uint64(prime)) >> np.uint64(32))
    return min(rest, np.uint32(rest - np.uint32(prime)))


@compiled
def negative_inverse(prime):
    """Return -1 / prime modulo 2^32, of an odd prime, as `lowered` takes it."""
    words = np.uint64(2**32)
    return np.uint32(words - power(prime, np.uint64(2**30 - 1), words))


@compiled
def echelon(rows, prime):
    """Return the echelon form of residues `[rows, columns]`, one row after the other.

    Returns:
        bool `[rows]`, which are not combinations of those before: their number is the
        rank. Of these, each less multiples of those before it, the form uint32
        `[most, columns]` (its rows up to a factor, the first entry of each a pivot that
        those behind it lack), the pivots' columns, and 2^64 over each pivot modulo the
        prime.
    """
    count, columns = rows.shape
    most = min(count, columns)
    form, pivots = np.zeros((most, columns), np.uint32), np.zeros(most, np.int64)
    units, grew = np.zeros(most, np.uint64), np.zeros(count, np.bool_)
    negative, square = negative_inverse(prime), prime * prime
    word = np.uint64(2**32) % prime
    sums = np.empty(columns, np.uint64)
    rank = 0
    for i in range(count):
        if rank == most:
            break
        for j in range(columns):
            sums[j] = rows[i, j]
        for k in range(rank):
            start = pivots[k]
            head = lowered(sums[start], prime, negative)
            if head != np.uint32(0):
                factor = np.uint64(lowered(np.uint64(head) * units[k], prime, negative))
                add_product(sums[start:], form[k, start:], prime - factor, square)
        row = form[rank]
        for j in range(columns):
            row[j] = lowered(sums[j], prime, negative)
        place = first_nonzero(row)
        if place < 0:
            continue
        inverse = power(row[place], prime - np.uint64(2), prime)
        units[rank] = inverse * (word * word % prime) % prime
        pivots[rank] = place
        grew[i] = True
        rank += 1
    return grew, form, pivots, units


@compiled
def independent_rows(rows, prime):
    """Mark the rows that are no combinations of those before, modulo a prime.

    `rows` are residues, uint64 `[rows, columns]`; the answer is bool `[rows]`. Its sum
    is the rank.
    """
    return echelon(rows, prime)[0]


@compiled
def independent_rows_of_each(matrices, prime):
    """Apply `independent_rows` to each matrix: bool `[matrices, rows]`."""
    independent = np.empty(matrices.shape[:2], np.bool_)
    for b in range(independent.shape[0]):
        grew = independent_rows(matrices[b], prime)
        for i in range(grew.size):
            independent[b, i] = grew[i]
    return independent


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
    square = prime * prime
    rank = 0
    for column in range(columns):
        if rank == count:
            break
        for i in range(count):
            work[i, column] %= prime
        if not bring_up(work, rank, column):
            continue
        inverse = power(work[rank, column], prime - np.uint64(2), prime)
        for j in range(columns):
            work[rank, j] = work[rank, j] % prime * inverse % prime
        for i in range(count):
            factor = work[i, column]
            if i != rank and factor != np.uint64(0):
                add_product(work[i], work[rank], prime - factor, square)
        pivots[rank] = column
        rank += 1
    return work[:rank] % prime, pivots[:rank]
