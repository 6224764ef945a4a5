"""Residues modulo a 61-bit prime as NumPy arrays, and replacements of compiled loops.

Residues are kept times 2**64 (Montgomery), so that a product takes no division; words
wrap on purpose. The second half does what `_loops` does if numba is not installed: the
same residues to the bit, the same floats except for their last digits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mrsa_watch._high_word import HALF, LOW, high_word

Words = np.ndarray[Any, np.dtype[np.uint64]]

_ZERO = np.uint64(0)
_SQUARE = 1 << 128


def times(a: Any, b: Any, prime: np.uint64, inverse: np.uint64) -> Any:
    """Return a b / 2**64 modulo an odd prime below 2**63.

    `inverse` is 1 / prime modulo 2**64.
    """
    with np.errstate(over="ignore"):
        high = high_word(a, b)
        # the lower words of both products agree: the upper ones differ by the residue
        taken = high_word(a * b * inverse, prime)
        return high - taken + np.where(high < taken, prime, _ZERO)


def plus(a: Any, b: Any, prime: np.uint64) -> Any:
    """Return sums of residues."""
    # both are below 2**63, so that their sum does not wrap
    total = a + b
    return total - np.where(total >= prime, prime, _ZERO)


def negative(a: Any, prime: np.uint64) -> Any:
    """Return residues with the other sign."""
    return np.where(a == _ZERO, a, prime - a)


def total(residues: Words, axis: int, prime: np.uint64, inverse: np.uint64) -> Any:
    """Return sums of fewer than 2**31 residues along an axis."""
    # halves of words, so that no sum overflows
    low = (residues & LOW).sum(axis=axis, dtype=np.uint64)
    high = (residues >> HALF).sum(axis=axis, dtype=np.uint64)
    return _joined(low, high, prime, inverse)


def _joined(low: Any, high: Any, prime: np.uint64, inverse: np.uint64) -> Any:
    """Return low + 2**32 high, of words below 2**63 both, as a residue."""
    step = np.uint64((1 << 96) % int(prime))  # 2**32, as residues are kept
    return plus(times(high, step, prime, inverse), low % prime, prime)


def reciprocal(a: Any, prime: np.uint64) -> np.uint64:
    """Return the residue whose product with `a`, which is not 0, is one."""
    # a is x 2**64: one over it, times 2**128, is 2**64 / x, as residues are kept
    return np.uint64(pow(int(a), -1, int(prime)) * _SQUARE % int(prime))


def class_sums(
    vectors: Words,
    classes: np.ndarray,
    count: int,
    prime: np.uint64,
    inverse: np.uint64,
) -> Words:
    """Return sums of kernel vectors over classes of clients, `[vectors, classes]`."""
    # halves of words, so that no sum overflows
    halves = np.zeros((2, len(vectors), count), np.uint64)
    for sums, part in zip(halves, (vectors & LOW, vectors >> HALF), strict=True):
        for row, entries in zip(sums, part, strict=True):
            # `row[classes] += entries` would count one client per class
            np.add.at(row, classes, entries)
    return np.asarray(_joined(halves[0], halves[1], prime, inverse))


def lightest(
    first: Words, second: Words, is_alone: np.ndarray, sizes: np.ndarray
) -> tuple[int, int, int]:
    """Return the weights of the lightest vectors, by keys of classes modulo two primes.

    Classes with the same keys in both are parallel. Classes of size 0 are none.

    Returns:
        The weight of the lightest class alone; of the lightest two parallel ones; and
        of the three lightest that are neither alone nor heavier than a parallel one. -1
        where there are none.
    """
    single = sizes[is_alone & (sizes > 0)]
    others = np.flatnonzero(~is_alone & (sizes > 0))
    # groups of equal keys next to each other, the lightest class of each first
    others = others[np.lexsort((sizes[others], second[others], first[others]))]
    weights = sizes[others]
    is_same = np.ones(max(0, len(others) - 1), bool)
    for keys in (first[others], second[others]):
        is_same &= keys[1:] == keys[:-1]
    is_head = np.append(True, ~is_same)[: len(weights)]  # the lightest of its group
    pairs = (weights[1:] + weights[:-1])[is_same & is_head[:-1]]
    heads = np.sort(weights[is_head])[:3]
    return (
        int(single.min()) if len(single) else -1,
        int(pairs.min()) if len(pairs) else -1,
        int(heads.sum()) if len(heads) == 3 else -1,
    )


def loops() -> Any:
    """Return the module of loops over a history: numba's if installed, else this."""
    try:
        from mrsa_watch import _loops
    except ImportError:
        return sys.modules[__name__]
    return _loops


def grow(
    solver: Words,
    rank: int,
    by_row: Words,
    by_column: Words,
    unit: np.uint64,
    prime: np.uint64,
    inverse: np.uint64,
) -> None:
    """Do what `_loops.grow` does."""
    factors = times(by_column, unit, prime, inverse)
    step = times(factors[:, None], by_row, prime, inverse)
    solver[:rank, :rank] = plus(solver[:rank, :rank], step, prime)
    solver[:rank, rank] = negative(factors, prime)
    solver[rank, :rank] = negative(times(by_row, unit, prime, inverse), prime)
    solver[rank, rank] = unit


def ratios(
    top: Words, bottom: Words, one: np.uint64, prime: np.uint64, inverse: np.uint64
) -> Words:
    """Do as `_loops.ratios`: products of pairs, then of those, share one inverse."""
    is_zero = bottom == _ZERO
    levels = [np.where(is_zero, one, bottom)]
    while len(levels[-1]) > 1:
        if len(levels[-1]) % 2:
            levels[-1] = np.append(levels[-1], one)
        levels.append(times(levels[-1][::2], levels[-1][1::2], prime, inverse))
    last = [reciprocal(each, prime) for each in levels.pop()]
    inverses: Any = np.asarray(last, np.uint64)
    for level in reversed(levels):
        # one over a factor is one over the product times the other factor
        others = level.reshape(-1, 2)[:, ::-1].reshape(-1)
        inverses = np.repeat(inverses, 2)[: len(level)]
        inverses = times(inverses, others, prime, inverse)
    quotients = times(top, inverses[: len(top)], prime, inverse)
    return np.where(is_zero, np.where(top == _ZERO, _ZERO, prime), quotients)


def inner(
    starts: np.ndarray,
    held: np.ndarray,
    clients: np.ndarray,
    values: np.ndarray,
    rank: int,
    vectors: np.ndarray,
) -> np.ndarray:
    """Do what `_loops.inner` does."""
    products = np.zeros((rank, len(vectors)))
    for j in range(rank):
        seen = vectors[:, clients[starts[j] : starts[j + 1]]]
        if held[j] >= 0:
            seen = seen * values[held[j] : held[j] + seen.shape[1]]
        products[j] = seen.sum(axis=1)
    return products


def spread(
    starts: np.ndarray,
    held: np.ndarray,
    clients: np.ndarray,
    values: np.ndarray,
    factors: np.ndarray,
    vectors: np.ndarray,
) -> None:
    """Do what `_loops.spread` does."""
    for j, factor in enumerate(factors):
        places = clients[starts[j] : starts[j + 1]]
        entries = np.ones(len(places))
        if held[j] >= 0:
            entries = values[held[j] : held[j] + len(places)]
        vectors[:, places] -= np.multiply.outer(factor, entries)


def solve_lower(lower: np.ndarray, right: np.ndarray) -> None:
    """Do what `_loops.solve_lower` does."""
    for j in range(len(right)):
        right[j] /= lower[j, j]
        # by columns, where `_loops` goes by rows: hence other last digits
        right[j + 1 :] -= np.multiply.outer(lower[j + 1 :, j], right[j])


def solve_upper(lower: np.ndarray, right: np.ndarray) -> None:
    """Do what `_loops.solve_upper` does."""
    for j in range(len(right) - 1, -1, -1):
        right[j] /= lower[j, j]
        right[:j] -= np.multiply.outer(lower[j, :j], right[j])
