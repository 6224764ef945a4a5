"""Compiled loops over a growing history, of residues (`_vectors`) and of floats.

Sums run in one fixed order, so that a history that is read again gives the same floats
to the last bit.

Imported where numba is installed: `_vectors.loops` chooses.
"""

from __future__ import annotations

import numpy as np

from mrsa_watch._base.compiled import compiled
from mrsa_watch._high_word import high_word

_ZERO = np.uint64(0)
_ONE = np.uint64(1)

# the formula of the arrays, for single words
_high = compiled(high_word)


@compiled
def times(a, b, prime, inverse):
    """Return a b / 2**64 modulo an odd prime below 2**63.

    `inverse` is 1 / prime modulo 2**64.
    """
    high = _high(a, b)
    # a b and (a b / prime mod 2**64) prime agree in their lower words, so the
    # difference of the upper ones is exact
    taken = _high(a * b * inverse, prime)
    return high - taken if high >= taken else high + prime - taken


@compiled
def _plus(a, b, prime):
    # both are below 2**63, so that their sum does not wrap
    total = a + b
    return total - prime if total >= prime else total


@compiled
def reciprocal(a, one, prime, inverse):
    """Return the residue whose product with `a` is one; 0 for 0."""
    # Fermat: a to the power prime - 2 is one over a
    exponent = prime - np.uint64(2)
    result, square = one, a
    while exponent > _ZERO:
        if exponent & _ONE:
            result = times(result, square, prime, inverse)
        square = times(square, square, prime, inverse)
        exponent >>= _ONE
    return result


@compiled
def grow(solver, rank, by_row, by_column, unit, prime, inverse):
    """Take one more row and pivot into the inverse of the rows at their pivots.

    `by_column` is the inverse times the new pivot's column, `by_row` the new row times
    the inverse, `unit` one over what is left at the corner.
    """
    # the inverse of a matrix with one more row and column: the old inverse gains a
    # product of rank one
    for k in range(rank):
        factor = times(by_column[k], unit, prime, inverse)
        for j in range(rank):
            step = times(factor, by_row[j], prime, inverse)
            solver[k, j] = _plus(solver[k, j], step, prime)
        # a residue with the other sign; that of 0 is 0 and not the prime
        solver[k, rank] = prime - factor if factor else factor
    for j in range(rank):
        factor = times(by_row[j], unit, prime, inverse)
        solver[rank, j] = prime - factor if factor else factor
    solver[rank, rank] = unit


@compiled
def ratios(top, bottom, one, prime, inverse):
    """Return top / bottom.

    The prime itself where only the bottom is 0, and 0 where both are.
    One inverse serves all (Montgomery's trick).
    """
    before = np.empty(top.shape[0], np.uint64)
    running = one
    # before[k] is the product of the bottoms before k, zeros left aside
    for k in range(top.shape[0]):
        before[k] = running
        if bottom[k] != _ZERO:
            running = times(running, bottom[k], prime, inverse)
    running = reciprocal(running, one, prime, inverse)
    quotients = np.empty(top.shape[0], np.uint64)
    # `running` is one over the product of the bottoms up to k
    for k in range(top.shape[0] - 1, -1, -1):
        if bottom[k] == _ZERO:
            quotients[k] = prime if top[k] != _ZERO else _ZERO
        else:
            unit = times(running, before[k], prime, inverse)
            running = times(running, bottom[k], prime, inverse)
            quotients[k] = times(top[k], unit, prime, inverse)
    return quotients


@compiled
def class_sums(vectors, classes, count, prime, _inverse):
    """Return sums of kernel vectors over classes of clients, `[vectors, classes]`."""
    sums = np.zeros((vectors.shape[0], count), np.uint64)
    for a in range(vectors.shape[0]):
        for k in range(vectors.shape[1]):
            place = classes[k]
            sums[a, place] = _plus(sums[a, place], vectors[a, k], prime)
    return sums


@compiled
def inner(starts, held, clients, values, rank, vectors):
    """Return products of rows with vectors `[vectors, clients]`: `[rows, vectors]`."""
    products = np.empty((rank, vectors.shape[0]))
    for j in range(rank):
        for a in range(vectors.shape[0]):
            total = 0.0
            if held[j] < 0:  # a row without weights: all its entries are 1
                for k in range(starts[j], starts[j + 1]):
                    total += vectors[a, clients[k]]
            else:
                first = held[j] - starts[j]
                for k in range(starts[j], starts[j + 1]):
                    total += values[first + k] * vectors[a, clients[k]]
            products[j, a] = total
    return products


@compiled
def spread(starts, held, clients, values, factors, vectors):
    """Subtract rows times factors `[rows, vectors]` from `[vectors, clients]`."""
    for j in range(factors.shape[0]):
        for a in range(vectors.shape[0]):
            factor = factors[j, a]
            if held[j] < 0:
                for k in range(starts[j], starts[j + 1]):
                    vectors[a, clients[k]] -= factor
            else:
                first = held[j] - starts[j]
                for k in range(starts[j], starts[j + 1]):
                    vectors[a, clients[k]] -= values[first + k] * factor


@compiled
def solve_lower(lower, right):
    """Solve with a lower triangular `[size, size]`, into `right` `[size, many]`."""
    for j in range(right.shape[0]):
        for k in range(j):
            factor = lower[j, k]
            for a in range(right.shape[1]):
                right[j, a] -= factor * right[k, a]
        for a in range(right.shape[1]):
            right[j, a] /= lower[j, j]


@compiled
def solve_upper(lower, right):
    """Solve with the transpose of a lower triangular matrix, instead of `right`."""
    # from the last row up: a column of the transpose is a row of `lower`
    for j in range(right.shape[0] - 1, -1, -1):
        for a in range(right.shape[1]):
            right[j, a] /= lower[j, j]
        for k in range(j):
            factor = lower[j, k]
            for a in range(right.shape[1]):
                right[k, a] -= factor * right[j, a]
