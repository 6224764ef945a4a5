"""Compiled passes over participation histories: classes of equal columns, ranks, and leverages.

Import inside functions only (see `_core.compiled`). Residues are in Montgomery's form: the integer
v stands as v 2^32 modulo the prime, so that a product needs no division.
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled

_ZERO, _HALF = np.uint32(0), np.uint64(32)

# ---- Classes of clients with equal columns, after each round.


@compiled
def _split(row, names, sizes, hits, moved, used):
    """Move the members of each class that a row tells from its others to a class of their own."""
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
        names: int32 `[trials, clients]`, filled with each client's class, from 1 on; 0: in no sum.
        smallest: int32 `[trials, rounds]`, filled with the size of the smallest class after each
            round; -1 before there is one.
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


# ---- Ranks and first exposures modulo a prime, from a basis of the null space.


@compiled
def _times(a, b, prime, negative):
    """Return a b / 2^32 modulo the prime, below 1.3 of it; `negative` is -1 / prime mod 2^32."""
    product = np.uint64(a) * np.uint64(b)
    factor = np.uint32(np.uint32(product) * negative)
    return np.uint32((product + np.uint64(factor) * np.uint64(prime)) >> _HALF)


@compiled
def _reduced(value, prime):
    return min(value, np.uint32(value - prime))


@compiled
def _inverse(value, one, prime, negative):
    """Return the inverse of a residue that is not zero, as the power p - 2."""
    found, square, left = one, value, np.uint32(prime - np.uint32(2))
    while left > _ZERO:
        if left & np.uint32(1):
            found = _reduced(_times(found, square, prime, negative), prime)
        square = _reduced(_times(square, square, prime, negative), prime)
        left = np.uint32(left >> np.uint32(1))
    return found


@compiled
def _first_nonzero(row):
    for c in range(row.size):
        if row[c] != _ZERO:
            return c
    return -1


@compiled
def _values(row, kernel, free, pivots, rank, one, prime, negative, values):
    """Fill values with the products of a row with the vectors of the kernel; return one not 0."""
    count = values.size
    for c in range(count):
        values[c] = row[free[c]]
    for s in range(rank):
        factor = row[pivots[s]]
        if factor == _ZERO:
            continue
        part = kernel[s, :count]
        if factor == one:
            for c in range(count):
                values[c] = _reduced(np.uint32(values[c] + part[c]), prime)
        else:
            for c in range(count):
                product = _reduced(_times(part[c], factor, prime, negative), prime)
                values[c] = _reduced(np.uint32(values[c] + product), prime)
    return _first_nonzero(values)


@compiled
def _taken(kernel, at, rank, factors, last, prime, negative, is_zero):
    """Take a vector out of the kernel, and multiples of it from the others.

    `is_zero` tells of which columns nothing is left.
    """
    for s in range(rank):
        head = kernel[s, at]
        kernel[s, at] = kernel[s, last]
        if head == _ZERO:
            continue
        row, some = kernel[s, :last], _ZERO
        for c in range(last):
            value = np.uint32(row[c] + _times(factors[c], head, prime, negative))
            value = _reduced(_reduced(value, prime), prime)
            row[c] = value
            some = np.uint32(some | value)
        is_zero[s] = some == _ZERO
    some = _ZERO
    for c in range(last):
        kernel[rank, c] = factors[c]
        some = np.uint32(some | factors[c])
    is_zero[rank] = some == _ZERO


@compiled
def follow(rows, is_single, distinct, one, prime, negative, ranks, first):
    """Follow the rank of rows, and which unit vectors are combinations of the rows so far.

    Of the null space's basis each vector is 1 in one free column and 0 in the others, so only
    what it holds in the pivot columns is kept, a row for each of these: zero once the column's
    unit vector is a combination.

    Args:
        rows: uint32 `[rounds, columns]`, in the form of residues.
        is_single: bool `[columns]`, whose unit vectors are asked for.
        distinct: int32 `[rounds]`, how many different columns the first rows have, but zeros.
        one: Residue of 1.
        prime: Of 31 bits.
        negative: -1 / prime modulo 2^32.
        ranks: int32 `[rounds]`, filled.
        first: int32 `[columns]`, filled with the rounds of the unit vectors, -1 for never.

    Returns:
        Whether all of it is proven. A rank is where it meets the number of rows or of distinct
        columns; then no unit vector is overlooked, and if it meets that of the columns none is
        wrongly found, as the row space is all that is constant on equal columns.
    """
    columns = rows.shape[1]
    most = min(rows.shape[0], columns)
    kernel, values = np.empty((most, columns), np.uint32), np.empty(columns, np.uint32)
    free, pivots = np.empty(columns, np.int64), np.empty(most, np.int64)
    is_zero = np.empty(most, np.bool_)
    rank, seen, is_proven = 0, 0, True
    for c in range(columns):
        free[c], first[c] = c, -1
    for j in range(rows.shape[0]):
        row, count = rows[j], columns - rank
        seen += _first_nonzero(row) >= 0
        at = -1
        if count > 0:
            own = values[:count]
            at = _values(row, kernel, free, pivots, rank, one, prime, negative, own)
        if at >= 0:
            last = count - 1
            factor = np.uint32(prime - _inverse(own[at], one, prime, negative))
            own[at] = own[last]
            for c in range(last):
                own[c] = _reduced(_times(own[c], factor, prime, negative), prime)
            _taken(kernel, at, rank, own, last, prime, negative, is_zero)
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
def gram_of(history, ranks, lists, ends, gram):
    """Fill the upper half with the clients that two rows share, and list each one's rows.

    Args:
        history: bool `[rounds, clients]`.
        ranks: int32 `[rounds]`: rows that raise them count.
        lists: int32 `[rank x clients]`, filled with the places among these of each client's rows.
        ends: int32 `[clients]`, filled with where each client's end.
        gram: float64 `[rank, rank]`, filled: integers.
    """
    for k in range(gram.shape[0]):
        for i in range(gram.shape[0]):
            gram[k, i] = 0.0
    end = 0
    for i in range(ends.size):
        start, rank = end, 0
        for j in range(ranks.size):
            if ranks[j] > rank:
                lists[end] = rank
                end += history[j, i]
                rank += 1
        ends[i] = end
        for a in range(start, end):
            row = gram[lists[a]]
            for b in range(a, end):
                row[lists[b]] += 1.0


@compiled
def _rows_of(history, names, one, rows, is_single):
    """Fill the residues of one column of each class, and whether one client is all of it."""
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
            rows[j, c] = one if history[j, at[c]] else _ZERO


@compiled
def follow_trials(history, names, distinct, by_gram, one, prime, negative, ranks, first, is_proven):
    """Follow the collapsed histories of trials that are not proven yet.

    Args:
        history: As for `collapse`, which has filled `names` and `distinct`.
        names: As there.
        distinct: As there.
        by_gram: Only see whether the rows that raise `ranks` are independent, by their Gram matrix.
        one: As for `follow`.
        prime: As there.
        negative: As there.
        ranks: int32 `[trials, rounds]`, filled, but not `by_gram`.
        first: int32 `[trials, clients]`, filled likewise with the rounds that expose clients.
        is_proven: bool `[trials]`, filled.
    """
    rounds, clients = history.shape[1:]
    ends = np.empty(clients, np.int32)
    for b in range(history.shape[0]):
        if is_proven[b]:
            continue
        count = ranks[b, -1] if by_gram else distinct[b, -1]
        rows = np.empty((count if by_gram else rounds, count), np.uint32)
        is_single, own = np.empty(count, np.bool_), np.empty(count, np.int32)
        of_rows, most = np.empty(rows.shape[0], np.int32), np.empty(rows.shape[0], np.int32)
        if by_gram:
            gram = np.empty((count, count))
            gram_of(history[b], ranks[b], np.empty(count * clients, np.int32), ends, gram)
            for k in range(count):
                is_single[k], most[k] = False, count
                for i in range(k, count):
                    value = np.uint64(gram[k, i]) * np.uint64(one) % np.uint64(prime)
                    rows[k, i] = rows[i, k] = np.uint32(value)
        else:
            _rows_of(history[b], names[b], one, rows, is_single)
            for j in range(rounds):
                most[j] = distinct[b, j]
        is_proven[b] = follow(rows, is_single, most, one, prime, negative, of_rows, own)
        if by_gram:
            is_proven[b] = of_rows[-1] == count
            continue
        for j in range(rounds):
            ranks[b, j] = of_rows[j]
        for i in range(clients):
            name = names[b, i] - 1
            first[b, i] = own[name] if name >= 0 and is_single[name] else -1


# ---- Leverages of independent rows, from their Gram matrix.


@compiled
def _add(row, factor, other):
    """Add a multiple to a row: a loop from 0 on, which the compiler makes of vectors."""
    for j in range(row.size):
        row[j] += factor * other[j]


@compiled
def _inverse_factor(gram):
    """Replace G = U^T U, of which the upper half is there, by U^-1; return whether it is one."""
    rank = gram.shape[0]
    for k in range(rank):
        own = gram[k, k:]
        if not own[0] > 0.0:
            return False
        over = 1.0 / np.sqrt(own[0])
        for i in range(own.size):
            own[i] *= over
        for i in range(1, own.size):
            _add(gram[k + i, k + i :], -own[i], own[i:])
    line = np.empty(rank)
    for k in range(rank - 1, -1, -1):
        own, left = gram[k, k:], line[k:]
        over = 1.0 / own[0]
        for i in range(left.size):
            left[i] = 0.0
        for i in range(1, own.size):
            _add(left[i:], -own[i] * over, gram[k + i, k + i :])
        left[0] = over
        for i in range(left.size):
            own[i] = left[i]
    return True


@compiled
def leverages(lists, ends, gram, found, rows):
    """Fill the leverages of clients in independent rows.

    Args:
        lists: As `gram_of` has filled it.
        ends: As there.
        gram: As there, overwritten: by the transposed factor that makes rows of length 1
            orthonormal.
        found: float64 `[clients]`, filled.
        rows: float64 `[clients]`, filled with the squared lengths of columns of these rows.

    Returns:
        The sum of the squares of the factor, and that of the squares of its rows' absolute sums;
        infinite where it does not exist.
    """
    rank = gram.shape[0]
    scale = np.empty(rank)
    for k in range(rank):
        scale[k] = 1.0 / np.sqrt(gram[k, k])
    for k in range(rank):
        own = gram[k, k:]
        for i in range(own.size):
            own[i] *= scale[k] * scale[k + i]
    if not _inverse_factor(gram):
        return np.inf, np.inf
    sums, growth = np.empty(rank), 0.0
    for k in range(rank):
        sums[k] = 0.0
    for k in range(rank):
        own, part = gram[k, k:], sums[k:]
        for i in range(own.size):
            part[i] += abs(own[i])
            growth += own[i] * own[i]
            own[i] *= scale[k]
    unit, start = np.empty(rank), 0
    for i in range(ends.size):
        for k in range(rank):
            unit[k] = 0.0
        rows[i] = found[i] = 0.0
        for place in range(start, ends[i]):
            k = lists[place]
            _add(unit[k:], 1.0, gram[k, k:])
            rows[i] += scale[k] * scale[k]
        start = ends[i]
        for k in range(rank):
            found[i] += unit[k] * unit[k]
    total = 0.0
    for k in range(rank):
        total += sums[k] * sums[k]
    return growth, total


@compiled
def leverage_trials(history, ranks, is_due, found, rows, growth, sums):
    """Find the leverages of trials.

    Args:
        history: As for `collapse`.
        ranks: int32 `[trials, rounds]`: the rows that raise them are independent.
        is_due: bool `[trials]`, which trials.
        found: float64 `[trials, clients]`, filled.
        rows: float64 `[trials, clients]`, filled as by `leverages`.
        growth: float64 `[trials]`, filled with what `leverages` returns.
        sums: float64 `[trials]`, likewise.
    """
    clients = history.shape[2]
    ends = np.empty(clients, np.int32)
    for b in range(history.shape[0]):
        if is_due[b]:
            rank = ranks[b, -1]
            lists, gram = np.empty(rank * clients, np.int32), np.empty((rank, rank))
            gram_of(history[b], ranks[b], lists, ends, gram)
            growth[b], sums[b] = leverages(lists, ends, gram, found[b], rows[b])
