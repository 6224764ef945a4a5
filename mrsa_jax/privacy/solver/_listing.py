"""Compiled lists of the sets of columns whose keys sum to a given one, modulo a word's own.

Of what a lifting (`_lifting`) looks at after a word of the binary code: at which further places
half the vector may be odd. Import inside functions only (see `mrsa_jax._compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._compiled import compiled
from mrsa_jax.privacy.solver._costs import CLEAR, HALF, LISTED, VISIT
from mrsa_jax.privacy.solver._words import EMPTY, MIX, MOST_LISTED, grow, insert, probe, subsets


@compiled
def reduced_keys(keys, word, size, target, outside, count, reduced):
    """Write the keys of the columns `outside` modulo the span of a word's; return target's too."""
    basis = np.zeros(size, np.uint64)
    tops = np.zeros(size, np.uint64)
    rank = 0
    for i in range(size):
        value = keys[word[i]]
        for k in range(rank):
            if value & tops[k]:
                value ^= basis[k]
        if value != np.uint64(0):
            low = value & (~value + np.uint64(1))
            for k in range(rank):
                if basis[k] & low:
                    basis[k] ^= value
            basis[rank] = value
            tops[rank] = low
            rank += 1
    for i in range(count):
        reduced[i] = keys[outside[i]]
    for k in range(rank):
        if target & tops[k]:
            target ^= basis[k]
        vector, top = basis[k], tops[k]
        for i in range(count):
            reduced[i] ^= vector if reduced[i] & top else np.uint64(0)
    return target


@compiled
def most_listed(spent, budget):
    """Return how many words or sets the budget still allows to be looked at."""
    return np.int64(min(np.float64(MOST_LISTED), max(0.0, budget - spent[0]) / LISTED))


@compiled
def _list_few(count, more, target, reduced, head, links, lefts, rights, table, most):
    """List the sets of two or three groups whose keys sum to the target, as `list_sets`."""
    order = np.uint64(64 - 10)
    found = np.int64(0)
    for i in range(1024):
        head[i] = EMPTY
    for d in range(count):
        # The table holds the groups before d; c == d stands for no third group.
        for c in range(d if more == 2 else d + 1, d + 1 if more == 2 else count):
            want = target ^ reduced[d] ^ (reduced[c] if c != d else np.uint64(0))
            place = np.uint64(head[np.int64((want * MIX) >> order)])
            while place != EMPTY:
                if reduced[np.int64(place)] == want:
                    if found >= most:
                        return lefts, rights, np.int64(-1)
                    if found == lefts.shape[0]:
                        lefts = grow(lefts)
                        rights = grow(rights)
                    lefts[found] = place
                    rights[found] = np.uint64(d)
                    if c != d:
                        rights[found] += table[2, c]
                    found += 1
                place = links[np.int64(place)]
        slot = np.int64((reduced[d] * MIX) >> order)
        links[d] = np.uint64(head[slot])
        head[slot] = np.uint32(d)
    return lefts, rights, found


@compiled
def _list_many(count, more, target, reduced, space, lefts, rights, table, spent, budget):
    """List the sets of four groups or more whose keys sum to the target, as `list_sets`."""
    sums, packs, head, links = space[2], space[3], space[6], space[7]
    left = more // 2
    right = more - left
    bits = 13 if left == 2 else 18
    order = np.uint64(64 - bits)
    for i in range(1 << bits):
        head[i] = EMPTY
    spent[0] += CLEAR * (1 << bits)
    starts = np.zeros(2, np.int64)
    starts[1] = count
    items = np.empty(count, np.int64)
    for i in range(count):
        items[i] = i
    nothing, whole = np.uint64(0), np.uint64(63)
    total, stored = np.int64(0), np.int64(0)
    some_left, some_right = np.empty(64, np.uint64), np.empty(64, np.uint64)
    for b in range(count):
        for half in range(2):
            low, high, size = (b + 1, count, right) if half == 0 else (np.int64(0), b, left)
            sums, packs, n, visits = subsets(
                reduced, low, high, b, size, whole, nothing, starts, items, sums, packs, table
            )
            spent[0] += VISIT * visits + HALF * max(n, 0)
            if n < 0 or spent[0] > budget:
                return lefts, rights, np.int64(-1)
            if half == 1:
                links, stored = insert(sums, packs, n, head, links, order, stored)
                continue
            some_left, some_right, found = probe(
                reduced, target, sums, packs, n, left, table, head, links, order,
                some_left, some_right, most_listed(spent, budget) - total,
            )  # fmt: skip
            if found < 0:
                return lefts, rights, np.int64(-1)
            while total + found > lefts.shape[0]:
                lefts = grow(lefts)
                rights = grow(rights)
            for i in range(found):
                lefts[total + i] = some_left[i]
                rights[total + i] = some_right[i]
            total += found
    return lefts, rights, total


@compiled
def list_sets(count, more, target, reduced, space, table, spent, budget):
    """List the sets of `more` groups whose reduced keys sum to the target.

    Returns:
        The numbers of the halves of more // 2 and of the remaining groups, and how many sets
        there are; -1 for too many.
    """
    lefts, rights = space[4], space[5]
    if more == 0:
        return lefts, rights, np.int64(target == np.uint64(0))
    if more == 1:
        found = np.int64(0)
        for i in range(count):
            if reduced[i] == target:
                rights[found] = np.uint64(i)
                found += 1
        return lefts, rights, found
    if more <= 3:
        spent[0] += LISTED + HALF / 8 * (count if more == 2 else count * count / 2)
        return _list_few(
            count, more, target, reduced, space[6], space[7], lefts, rights, table,
            most_listed(spent, budget),
        )  # fmt: skip
    return _list_many(count, more, target, reduced, space, lefts, rights, table, spent, budget)
