"""Costs of the searches for light vectors, predicted by counting their steps.

The searches add up the same operations as they go, so prediction and work can be
compared without a clock. Costs are nanoseconds on one core of the machine of
benchmarks/results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# The walk (`_girth`): a vector projected out of the others, each coordinate of those; a
# point of the plane, a pair of points; a term of an elimination.
NODE, COORDINATE, POINT, PAIR, TERM = 60.0, 1.5, 12.0, 4.0, 1.0
# The lifting (`_lifting`): a half of a word, stored or looked up; a set that only lacks
# its last column; a word or set that is looked at, and a word's second digit; an
# operation modulo a large prime; an entry of a table to clear.
HALF, VISIT, LISTED, WORD, MODULAR, CLEAR = 60.0, 20.0, 60.0, 400.0, 4.0, 0.2

_MOST_UNITS = 512  # weights are counted in parts of the limit, at most so fine
_MOST_DEPTH = 64  # sets of more groups of unequal weights are too many in any case
_SMALL = 8191
_HOPELESS = 1e16  # sets or nanoseconds: not worth a closer look
_MOST_PARTS = 9  # as a power of two
_HALVES_A_PART = 1 << 23  # so many stored halves stay near the processor
_MOST_HALVES = 1 << 25  # a part's, of 16 bytes each, where they are spread evenly


def light_sets(
    weights: np.ndarray, limit: int, most: int
) -> tuple[list[float], list[float]]:
    """Count the sets of 0, 1, ... `most` groups that weigh at most `limit`.

    Exact for equal weights; otherwise weights are rounded down to parts of the limit
    where it is large, which counts a few sets too many. Infinite where there are more
    than floats hold.

    Returns:
        Their numbers, and how many of them have room for one more group as heavy as
        their heaviest.
    """
    count = int(np.searchsorted(weights, limit, side="right"))
    if count == 0 or weights[0] == weights[count - 1]:
        fitting = limit // int(weights[0]) if count else 0
        sets = [
            choose(count, size) if size <= fitting else 0.0 for size in range(most + 1)
        ]
        return sets, [
            total if size < fitting else 0.0 for size, total in enumerate(sets)
        ]
    # So many sets there are at least: of groups that are light enough for any set of
    # their size.
    light = np.searchsorted(weights, limit // np.arange(1, most + 1), side="right")
    fewest = max(choose(int(n), size) for size, n in enumerate(light, 1))
    if most > _MOST_DEPTH or fewest > _HOPELESS:
        return [math.inf] * (most + 1), [math.inf] * (most + 1)
    units = min(limit, _MOST_UNITS)
    values, number = np.unique(weights[:count] * units // limit, return_counts=True)
    by_load = np.zeros((most + 1, units + 1))
    by_load[0, 0] = 1.0
    roomy = np.zeros(most + 1)
    for value, copies in zip(values.tolist(), number.tolist(), strict=True):
        before = by_load.copy()
        for taken in range(1, min(copies, most) + 1):
            spare = units - taken * value
            if spare < 0:
                break
            added = choose(copies, taken) * before[: most + 1 - taken, : spare + 1]
            by_load[taken:, taken * value :] += added
            roomy[taken:] += added[:, : max(0, spare - value + 1)].sum(axis=1)
    return by_load.sum(axis=1).tolist(), roomy.tolist()


def choose(count: int, size: int) -> float:
    """Return the binomial coefficient, infinity where it is beyond floats."""
    if size > count:
        return 0.0
    log = math.lgamma(count + 1) - math.lgamma(size + 1) - math.lgamma(count - size + 1)
    if log < 36.0:
        return float(math.comb(count, size))
    return math.exp(log) if log < 700.0 else math.inf


def girth_work(weights: np.ndarray, limit: int, depth: int) -> float:
    """Predict what a walk to `depth` (at least 3) spends that finds nothing."""
    groups, last = len(weights), depth - 3
    if groups >= depth and weights[0] == weights[-1] and depth * weights[0] <= limit:
        if choose(groups - 3, last + 2) > _HOPELESS:
            return math.inf
        # Only sets that can still grow to the full depth: of `last`, with three more to
        # come, ...
        nodes = [choose(groups - depth + level, level) for level in range(last + 1)]
        vectors = [
            (depth - level) * nodes[level] + choose(groups - depth + level, level + 1)
            for level in range(last + 1)
        ]
        rest = groups - 3
        pairs = (
            choose(rest, last + 2) + 3 * choose(rest, last + 1) + 3 * choose(rest, last)
        )
        triples = choose(groups, depth)
    else:
        sets, nodes = light_sets(weights, limit, depth)
        vectors = sets[1:]  # a set of those chosen, and one more
        pairs, triples = sets[last + 2], sets[depth]
    work = POINT * vectors[last] + PAIR * pairs + triples / _SMALL * TERM * depth**3
    for level in range(1, last + 1):
        work += NODE * nodes[level] + COORDINATE * vectors[level] * (depth - level)
    return work


def lifting_work(
    weights: np.ndarray, corank: int, limit: int, most: int, is_even: bool
) -> float:
    """Predict what a lifting spends that finds nothing.

    Infinite where its halves do not fit.
    """
    groups = len(weights)
    stored = choose(groups, most // 2)
    if stored * HALF > _HOPELESS or stored / 2 ** _most_parts(corank) > _MOST_HALVES:
        return math.inf
    sets, _ = light_sets(weights, limit, most)
    if math.inf in sets:
        return math.inf
    return math.fsum(
        size_work(groups, corank, size, is_even, sets)
        for size in range(1, most + 1)
        if not (is_even and size % 2)
    )


def size_work(
    groups: int, corank: int, size: int, is_even: bool, sets: Sequence[float]
) -> float:
    """Predict the part of a lifting that words of one size take."""
    bits = min(corank, 63)
    chance = 2.0 ** (is_even - bits)  # that the columns of a set are a word
    halves = _halves_work(groups, size, num_parts(groups, corank, size))
    matches = choose(groups, size) * chance * LISTED
    return (
        halves + matches + sets[size] * chance * _word_work(groups, corank, size, sets)
    )


def num_parts(groups: int, corank: int, size: int) -> int:
    """Return in how many parts the halves of words are gone through, as a power of two.

    As many as keep a part's table near the processor, unless what all parts do again
    (sets that only lack the last column) would cost more than the halves.
    """
    stored = choose(groups, size // 2)
    least = next(
        p
        for p in range(64)
        if stored / 2**p <= _MOST_HALVES or p == _most_parts(corank)
    )
    wanted = math.ceil(math.log2(max(1.0, stored / _HALVES_A_PART)))
    enough = 1.5 * _halves_work(groups, size, least)
    while wanted > least and _halves_work(groups, size, wanted) > enough:
        wanted -= 1
    return max(least, min(wanted, _most_parts(corank)))


def _most_parts(corank: int) -> int:
    return max(0, min(corank - 2, _MOST_PARTS))


def _halves_work(groups: int, size: int, parts: int) -> float:
    sides = (size // 2, size - size // 2)
    halves = sum(choose(groups, side) for side in sides)
    again = sum(choose(groups, max(0, side - 1)) for side in sides)
    return HALF * halves + VISIT * 2**parts * again


def _word_work(groups: int, corank: int, size: int, sets: Sequence[float]) -> float:
    """Predict the work for one word.

    Further groups by their second digit, then the rest.
    """
    most, count = len(sets) - 1, groups - size
    extra = most - size
    odds = 2.0 ** -max(min(corank, 63) - size + 1, 0)
    total = WORD + TERM * size * count * (extra > 0)
    for more in range(extra + 1):
        listed = odds * choose(count, more)
        # Of those listed, so many are light enough.
        within = sets[size + more] * math.comb(size + more, size) / max(sets[size], 1.0)
        total += (
            _list_work(count, more)
            + odds * within * _extension_work(groups, corank, size + more, most)
            + listed
        )
    return total


def _list_work(count: int, more: int) -> float:
    if more < 2:
        return 0.0
    if more < 4:
        return LISTED + HALF / 8 * (count if more == 2 else count * count / 2)
    half = more // 2
    return CLEAR * (1 << (13 if half == 2 else 18)) + _halves_work(count, more, 0)


def _extension_work(groups: int, corank: int, size: int, most: int) -> float:
    """Predict the work for a set of groups that others may extend."""
    extra, count = most - size, groups - size
    axes = max(most, 3)
    if extra == 0:
        return LISTED + TERM * size * size * axes / 2
    if extra == 1:
        return LISTED + TERM * size * (size + count) * axes
    walk = girth_work(np.ones(count, np.int64), extra, max(extra, 3))
    return 2 * MODULAR * size * (2 * size + count) * corank + walk
