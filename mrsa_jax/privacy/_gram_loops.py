"""Compiled passes over the Gram matrices of histories' rows.

Whether regular, and leverages.
Compiling takes longer than most of what is computed: what few histories need is a
separate loop. Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled, power

# a prime: the products of 1,024 pairs of residues add up in uint64
_SMALL = np.uint64(2**27 - 39)
_MOST_SUMMED = 1024


@compiled
def gram_of(history, ranks):
    """Count the clients that two rows share, and list each one's rows.

    Args:
        history: bool `[rounds, clients]`.
        ranks: int32 `[rounds]`: rows that raise them count.

    Returns:
        int32: the places among these rows of each client's, client by client; int32
        `[clients]`: where each client's end; float64 `[rank, rank]`: the upper half of
        integers.
    """
    rank = ranks[-1]
    lists, ends = (
        np.empty(rank * history.shape[1], np.int32),
        np.empty(history.shape[1], np.int32),
    )
    gram = np.zeros((rank, rank))
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
    return lists, ends, gram


@compiled
def _is_regular(gram):
    """Return whether no leading minor of a symmetric integer matrix is 0 mod a prime.

    Then none is zero, and its rows are independent.
    """
    rank = gram.shape[0]
    rows, over = np.empty((rank, rank), np.uint32), np.empty(rank, np.uint64)
    sums = np.empty(rank, np.uint64)
    for k in range(rank):
        line = sums[: rank - k]
        for i in range(line.size):
            line[i] = np.uint64(gram[k, k + i])
        for j in range(k):
            head = np.uint64(rows[j, k]) * over[j] % _SMALL
            factor, row = np.uint64((_SMALL - head) % _SMALL), rows[j, k:]
            for i in range(line.size):
                line[i] += factor * np.uint64(row[i])
            if j % _MOST_SUMMED == 0:
                for i in range(line.size):
                    line[i] %= _SMALL
        for i in range(line.size):
            line[i] %= _SMALL
            rows[k, k + i] = np.uint32(line[i])
        if line[0] == np.uint64(0):
            return False
        over[k] = power(line[0], _SMALL - np.uint64(2), _SMALL)
    return True


@compiled
def _add(row, factor, other):
    """Add a multiple to a row: a loop from 0 on, which becomes vector instructions."""
    for j in range(row.size):
        row[j] += factor * other[j]


@compiled
def _add_four(row, f, a, g, b, h, c, e, d):
    for j in range(row.size):
        row[j] += (f * a[j] + g * b[j]) + (h * c[j] + e * d[j])


@compiled
def _inverse_factor(gram):
    """Replace G = U^T U, of which the upper half is there, by U^-1.

    Return whether it is one.
    The lower half must be zeros.
    """
    rank = gram.shape[0]
    for start in range(0, rank, 4):
        end = min(start + 4, rank)
        for k in range(start, end):
            head = gram[k, k:]
            for j in range(start, k):
                _add(head, -gram[j, k], gram[j, k:])
            if not head[0] > 0.0:
                return False
            over = 1.0 / np.sqrt(head[0])
            for i in range(head.size):
                head[i] *= over
        a, b, c, d = gram[start], gram[end - 3], gram[end - 2], gram[end - 1]
        for i in range(end, rank):
            _add_four(
                gram[i, i:], -a[i], a[i:], -b[i], b[i:], -c[i], c[i:], -d[i], d[i:]
            )
    line, every = np.empty(rank), np.arange(rank).astype(np.int32)
    for k in range(rank - 1, -1, -1):
        over = 1.0 / gram[k, k]
        _combine(every[k + 1 :], gram[k, k + 1 :], gram, line)
        gram[k, k] = over
        for i in range(k + 1, rank):
            gram[k, i] = -over * line[i]
    return True


@compiled
def _combine(places, factors, upper, total):
    """Fill with the sum of some rows of a triangular matrix times factors."""
    for k in range(total.size):
        total[k] = 0.0
    whole = places.size - places.size % 4
    for t in range(0, whole, 4):
        k = places[t]
        b, c, d = upper[places[t + 1]], upper[places[t + 2]], upper[places[t + 3]]
        _add_four(
            total[k:],
            factors[t],
            upper[k, k:],
            factors[t + 1],
            b[k:],
            factors[t + 2],
            c[k:],
            factors[t + 3],
            d[k:],
        )
    for t in range(whole, places.size):
        k = places[t]
        _add(total[k:], factors[t], upper[k, k:])


_TILE = 32  # clients whose columns stay in cache
_NEAR_ONE = 0.01  # a tenth, squared


@compiled
def _second_factor(units, gram):
    """Fill with the factor that makes nearly orthonormal rows orthonormal.

    Returns:
        Whether they nearly were, and it exists.
    """
    clients, rank = units.shape
    for k in range(rank):
        for i in range(rank):
            gram[k, i] = 0.0
    whole = clients - clients % 4
    for start in range(0, whole, _TILE):
        for k in range(rank):
            line = gram[k, k:]
            for i in range(start, min(start + _TILE, whole), 4):
                a, b, c, d = (
                    units[i, k:],
                    units[i + 1, k:],
                    units[i + 2, k:],
                    units[i + 3, k:],
                )
                _add_four(line, a[0], a, b[0], b, c[0], c, d[0], d)
    for i in range(whole, clients):
        for k in range(rank):
            _add(gram[k, k:], units[i, k], units[i, k:])
    off = 0.0
    for k in range(rank):
        off += (gram[k, k] - 1.0) ** 2
        for i in range(k + 1, rank):
            off += 2.0 * gram[k, i] ** 2
    return off < _NEAR_ONE and _inverse_factor(gram)


@compiled
def _first_factor(gram, scale, lengths):
    """Replace a Gram matrix by the factor that makes its rows orthonormal.

    Args:
        gram: As `gram_of` has filled it.
        scale: float64 `[rank]`, filled with one over the lengths of the rows.
        lengths: float64 `[rank]`, filled with the squared lengths of the factor's
            columns, of rows of length 1.

    Returns:
        The sum of the squares of that factor's rows' absolute sums, infinite where
        there is none.
    """
    rank = gram.shape[0]
    for k in range(rank):
        scale[k] = 1.0 / np.sqrt(gram[k, k])
    for k in range(rank):
        line = gram[k, k:]
        for i in range(line.size):
            line[i] *= scale[k] * scale[k + i]
    if not _inverse_factor(gram):
        return np.inf
    sums, total = np.empty(rank), 0.0
    for k in range(rank):
        sums[k] = lengths[k] = 0.0
    for k in range(rank):
        for i in range(k, rank):
            sums[i] += abs(gram[k, i])
            lengths[i] += gram[k, i] * gram[k, i]
            gram[k, i] *= scale[k]
    for k in range(rank):
        total += sums[k] * sums[k]
    return total


@compiled
def _units(lists, ends, i, ones, scale, gram, unit):
    """Fill with client i's column of the rows that the factor makes.

    Return its squared length.
    """
    start = ends[i - 1] if i > 0 else 0
    _combine(lists[start : ends[i]], ones, gram, unit)
    total = 0.0
    for place in range(start, ends[i]):
        total += scale[lists[place]] * scale[lists[place]]
    return total


@compiled
def leverage_trials(history, ranks, is_due, most, leverages, rows, growth, sums):
    """Find the leverages of trials by one factor of their Gram matrix, or by two.

    A second factor, of the rows that the first one makes, is taken where one does not
    do.

    Args:
        history: As for `collapse`.
        ranks: int32 `[trials, rounds]`: the rows that raise them, which are
            independent.
        is_due: bool `[trials]`, which trials.
        most: float64 `[trials]`: up to this sum of the squares of the rows' absolute
            sums of the factor, of rows of length 1, one factor will do.
        leverages: float64 `[trials, clients]`, filled.
        rows: float64 `[trials, clients]`, filled with the squared lengths of columns of
            these rows.
        growth: float64 `[trials]`, filled with the sum of the squares of what the rows'
            lengths grow by; NaN where there is no factor, or more are needed.
        sums: float64 `[trials]`, filled with that of the squares of the absolute sums.
    """
    clients = history.shape[2]
    for b in range(history.shape[0]):
        if not is_due[b]:
            continue
        rank = ranks[b, -1]
        lists, ends, gram = gram_of(history[b], ranks[b])
        scale, lengths, ones = np.empty(rank), np.empty(rank), np.ones(rank)
        sums[b], growth[b] = _first_factor(gram, scale, lengths), np.nan
        if not np.isfinite(sums[b]):
            continue
        units = np.empty((clients, rank))
        for i in range(clients):
            rows[b, i] = _units(lists, ends, i, ones, scale, gram, units[i])
        is_twice = sums[b] > most[b]
        if is_twice and not _second_factor(units, gram):
            continue
        growth[b] = 0.0
        for k in range(rank):
            square = lengths[k]
            if is_twice:
                length = 0.0
                for i in range(k + 1):
                    length += abs(gram[i, k]) * np.sqrt(lengths[i])
                square = length * length
            growth[b] += square
        line, every = np.empty(rank), np.arange(rank).astype(np.int32)
        for i in range(clients):
            if is_twice:
                _combine(every, units[i], gram, line)
                units[i, :] = line
            leverages[b, i] = 0.0
            for k in range(rank):
                leverages[b, i] += units[i, k] * units[i, k]


@compiled
def regular_trials(history, ranks, is_due):
    """Leave of trials as due those whose rows are proven to be independent."""
    for b in range(history.shape[0]):
        if is_due[b]:
            is_due[b] = _is_regular(gram_of(history[b], ranks[b])[2])
