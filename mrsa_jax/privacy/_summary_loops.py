"""Compiled passes over participation histories: classes of equal columns, and ranks.

Import inside functions only (see `_core.compiled`). Residues are in Montgomery's form:
the integer v stands as v 2^32 modulo the prime, so that a product needs no division.
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled, first_nonzero, lowered, power

_ZERO = np.uint32(0)


@compiled
def _split(row, names, sizes, hits, moved, used):
    """Move the members of each class that a row distinguishes to a separate class."""
    for name in range(used + 1):
        hits[name] = 0
    for i in range(names.size):
        hits[names[i]] += row[i]
    before = used
    for name in range(before + 1):
        moved[name] = name
        # class 0 holds those who were in no sum yet, and never takes anybody back
        if hits[name] > 0 and (hits[name] < sizes[name] or name == 0):
            used += 1
            moved[name] = used
            sizes[used] = hits[name]
            sizes[name] -= hits[name]
    if used > before:
        for i in range(names.size):
            if row[i]:
                names[i] = moved[names[i]]
    return used


@compiled
def collapse(history, names, smallest, distinct, counts):
    """Find the classes of equal columns of histories.

    Args:
        history: bool `[trials, rounds, clients]`.
        names: int32 `[trials, clients]`, filled with each client's class, from 1 on; 0:
            in no sum.
        smallest: int32 `[trials, rounds]`, filled with the size of the smallest class
            after each round; -1 before there is one.
        distinct: int32 `[trials, rounds]`, filled with the number of classes.
        counts: int32 `[trials, clients]`, filled with the rounds of each client.
    """
    clients = names.shape[1]
    sizes, hits = np.empty(clients + 2, np.int32), np.empty(clients + 2, np.int32)
    moved = np.empty(clients + 2, np.int32)
    for b in range(history.shape[0]):
        for i in range(clients):
            names[b, i] = counts[b, i] = 0
        sizes[0] = clients
        used, least = 0, np.int32(-1)
        for j in range(history.shape[1]):
            row = history[b, j]
            for i in range(clients):
                counts[b, i] += row[i]
            before = used
            used = _split(row, names[b], sizes, hits, moved, used)
            if used > before:
                least = sizes[1]
                for name in range(2, used + 1):
                    least = min(least, sizes[name])
            smallest[b, j], distinct[b, j] = least, used


@compiled
def _reduced(value, prime):
    return min(value, np.uint32(value - prime))


@compiled
def _values(row, kernel, free, pivots, rank, unit, prime, negative, values):
    """Fill values with the products of a row with the vectors of the kernel.

    Return one not 0.
    """
    count = values.size
    for c in range(count):
        values[c] = row[free[c]]
    for s in range(rank):
        factor = row[pivots[s]]
        if factor == _ZERO:
            continue
        part, wide = kernel[s, :count], np.uint64(factor)
        if factor == unit:
            for c in range(count):
                values[c] = _reduced(np.uint32(values[c] + part[c]), prime)
        else:
            for c in range(count):
                product = lowered(np.uint64(part[c]) * wide, prime, negative)
                values[c] = _reduced(np.uint32(values[c] + product), prime)
    return first_nonzero(values)


@compiled
def _taken(kernel, at, rank, factors, last, prime, negative, is_zero):
    """Take a vector out of the kernel, and multiples of it from the others.

    `is_zero` shows of which columns nothing is left.
    """
    for s in range(rank):
        head = kernel[s, at]
        kernel[s, at] = kernel[s, last]
        if head == _ZERO:
            continue
        row, some = kernel[s, :last], _ZERO
        for c in range(last):
            product = lowered(np.uint64(factors[c]) * np.uint64(head), prime, negative)
            value = _reduced(np.uint32(row[c] + product), prime)
            row[c] = value
            some = np.uint32(some | value)
        is_zero[s] = some == _ZERO
    some = _ZERO
    for c in range(last):
        kernel[rank, c] = factors[c]
        some = np.uint32(some | factors[c])
    is_zero[rank] = some == _ZERO


@compiled
def follow(rows, is_single, distinct, unit, prime, negative, ranks, first):
    """Follow the rank of rows, and the unit vectors that they span so far.

    Of the null space's basis each vector is 1 in one free column and 0 in the others,
    so only what it holds in the pivot columns is kept, a row for each of these: zero
    once the column's unit vector is a combination.

    Args:
        rows: uint32 `[rounds, columns]`, in the form of residues.
        is_single: bool `[columns]`, whose unit vectors are asked for.
        distinct: int32 `[rounds]`, how many different columns the first rows have, but
            zeros.
        unit: Residue of 1.
        prime: Of 31 bits.
        negative: -1 / prime modulo 2^32.
        ranks: int32 `[rounds]`, filled.
        first: int32 `[columns]`, filled with the rounds of the unit vectors, -1 for
            never.

    Returns:
        Whether all of it is proven. A rank is where it meets the number of rows or of
        distinct columns; then no unit vector is overlooked, and if it meets that of the
        columns none is wrongly found, as the row space is all that is constant on equal
        columns.
    """
    columns = rows.shape[1]
    most = min(rows.shape[0], columns)
    kernel, values = np.empty((most, columns), np.uint32), np.empty(columns, np.uint32)
    free, pivots = np.empty(columns, np.int64), np.empty(most, np.int64)
    is_zero = np.empty(most, np.bool_)
    rank, seen, is_proven = 0, 0, True
    whole = np.uint64(prime)
    square = np.uint64(unit) * np.uint64(unit) % whole
    for c in range(columns):
        free[c], first[c] = c, -1
    for j in range(rows.shape[0]):
        row, count = rows[j], columns - rank
        seen += first_nonzero(row) >= 0
        at = -1
        if count > 0:
            products = values[:count]
            at = _values(
                row, kernel, free, pivots, rank, unit, prime, negative, products
            )
        if at >= 0:
            last = count - 1
            inverse = power(products[at], prime - np.uint32(2), whole) * square % whole
            products[at] = products[last]
            for c in range(last):
                products[c] = lowered(
                    np.uint64(products[c]) * (whole - inverse), prime, negative
                )
            _taken(kernel, at, rank, products, last, prime, negative, is_zero)
            pivots[rank], free[at] = free[at], free[last]
            rank += 1
            for s in range(rank):
                if is_zero[s] and first[pivots[s]] < 0 and is_single[pivots[s]]:
                    first[pivots[s]] = j
                    is_proven &= rank == distinct[j]
        ranks[j] = rank
        is_proven &= rank == min(seen, distinct[j])
    return is_proven


@compiled
def _rows_of(history, scale, names, rows, is_single):
    """Fill the residues of one column of each class, and whether it has one client."""
    for c in range(is_single.size):
        is_single[c] = True
    at = np.empty(is_single.size, np.int64)
    for c in range(at.size):
        at[c] = -1
    for i in range(names.size):
        if names[i] > 0:
            is_single[names[i] - 1] = at[names[i] - 1] < 0
            at[names[i] - 1] = i
    for j in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            rows[j, c] = np.uint32(history[j, at[c]]) * scale


@compiled
def follow_trials(
    history, scale, names, distinct, unit, prime, negative, ranks, first, is_proven
):
    """Follow the collapsed histories of trials that are not proven yet.

    Args:
        history: As for `collapse`; or uint32, residues in their form.
        scale: What makes them of it.
        names: As `collapse` fills them.
        distinct: Likewise, or more: then fewer are proven.
        unit: As for `follow`.
        prime: As there.
        negative: As there.
        ranks: int32 `[trials, rounds]`, filled.
        first: int32 `[trials, clients]`, filled likewise with the rounds that expose
            clients.
        is_proven: bool `[trials]`, filled.
    """
    rounds, clients = history.shape[1:]
    for b in range(history.shape[0]):
        if is_proven[b]:
            continue
        count = distinct[b, -1]
        rows = np.empty((rounds, count), np.uint32)
        is_single, first_of_class = np.empty(count, np.bool_), np.empty(count, np.int32)
        _rows_of(history[b], scale, names[b], rows, is_single)
        is_proven[b] = follow(
            rows,
            is_single,
            distinct[b],
            unit,
            prime,
            negative,
            ranks[b],
            first_of_class,
        )
        for i in range(clients):
            name = names[b, i] - 1
            first[b, i] = first_of_class[name] if name >= 0 and is_single[name] else -1
