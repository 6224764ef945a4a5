"""Compiled enumeration of light words of a binary code by meeting in the middle.

A word is the union of a left half, whose largest column is smaller than all others, and
a right half; their keys (columns' check bits, summed by XOR) agree. Left halves are
kept in a hash table that grows with the columns, so every word is met once.

A half is kept as one number, its rank among the sets of its size: columns c_0 < c_1 <
... are C(c_0, 1) + C(c_1, 2) + ... (the combinatorial number system; Knuth, The Art of
Computer Programming, 7.2.1.3), which fits 64 bits wherever the halves can be gone
through at all. Import inside functions only (see `_core.compiled`).

The sets that extend a word at the second digit are listed at the end.
"""

from __future__ import annotations

import math

import numpy as np

from mrsa_jax._core.compiled import compiled
from mrsa_jax.privacy.solver._costs import CLEAR, HALF, LISTED, VISIT

MIX = np.uint64(0x9E3779B97F4A7C15)
_TAG = np.uint64(0xC2B2AE3D27D4EB4F)
_LOW = np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0xFFFFFFFF)
# Numbers of sets stay below 2**63, so that no sum of them wraps.
LARGEST = 2**63 - 1
# No list grows beyond this: where a code has so many words, the search gives up.
MOST_LISTED = 1 << 26


def binomials(columns: int, most: int) -> np.ndarray:
    """Return C(j, i) for i up to `most` and j up to `columns`, as uint64 `[i, j]`.

    Raises:
        OverflowError: If the sets of this many columns cannot all be numbered in 64
            bits.
    """
    sizes = range(max(most, 2) + 1)
    if max(math.comb(columns, i) for i in sizes) > LARGEST:
        raise OverflowError(f"sets of {most} of {columns} columns do not fit 64 bits")
    return np.array(
        [[math.comb(j, i) for j in range(columns + 1)] for i in sizes], np.uint64
    )


@compiled
def grow(array):
    larger = np.empty(2 * array.shape[0], array.dtype)
    for i in range(array.shape[0]):
        larger[i] = array[i]
    return larger


@compiled
def subsets(
    keys, low, high, fixed, size, shift, part, starts, items, sums, packs, table
):
    """List the sets of `size` columns: `fixed` and others of `low..high - 1`.

    Only those are listed whose keys sum (XOR) to something with the leading bits `part`
    (the bits from `shift` on): the last column is taken from those with the leading
    bits still missing. `fixed` lies below `low` or from `high` on; `table` holds
    `binomials`.

    Returns:
        The sums, the sets' numbers, how many there are (-1 for more than
        `MOST_LISTED`), and how many sets of one column less were gone through.
    """
    if size >= table.shape[0] or max(high, fixed + 1) >= table.shape[1]:
        raise OverflowError("a set of columns has no number in this table")
    count = np.int64(0)
    # Others are numbered after a fixed column that is smaller, before one that is
    # larger.
    below = 1 if fixed < low else 0
    number = table[1 if below else size, fixed]
    if size == 1:
        if keys[fixed] >> shift == part:
            sums[0] = keys[fixed]
            packs[0] = number
            count = 1
        return sums, packs, count, np.int64(1)
    free = size - 2
    visits = np.int64(0)
    place = np.zeros(free + 1, np.int64)
    partial = np.zeros(free + 1, np.uint64)
    packed = np.zeros(free + 1, np.uint64)
    partial[0] = keys[fixed]
    packed[0] = number
    level = 0
    following = low
    while True:
        row = table[level + 1 + below]
        if level == free:
            visits += 1
            last = place[free - 1] if free > 0 else low - 1
            key = partial[free]
            bucket = np.int64(part ^ (key >> shift))
            # A single bucket holds all columns in order: skip to the first one allowed
            first = starts[bucket] + (last + 1 if shift == np.uint64(63) else 0)
            for t in range(first, starts[bucket + 1]):
                j = items[t]
                if j <= last:
                    continue
                if j >= high:
                    break
                if count == sums.shape[0]:
                    if count >= MOST_LISTED:
                        return sums, packs, np.int64(-1), visits
                    sums = grow(sums)
                    packs = grow(packs)
                sums[count] = key ^ keys[j]
                packs[count] = packed[free] + row[j]
                count += 1
        elif following <= high - 1 - (free - level):
            place[level] = following
            partial[level + 1] = partial[level] ^ keys[following]
            packed[level + 1] = packed[level] + row[following]
            level += 1
            following += 1
            continue
        level -= 1
        if level < 0:
            return sums, packs, count, visits
        following = place[level] + 1


@compiled
def unpack(number, size, table, target, offset):
    """Write the columns of a set, ascending, given its number."""
    high = table.shape[1]
    for i in range(size, 0, -1):
        row = table[i]
        low = np.int64(i - 1)  # C(low, i) is 0
        while high - low > 1:
            middle = (low + high) // 2
            if row[middle] <= number:
                low = middle
            else:
                high = middle
        target[offset + i - 1] = low
        number -= row[low]
        high = low


@compiled
def _sum_keys(keys, number, size, table, columns):
    unpack(number, size, table, columns, 0)
    total = np.uint64(0)
    for i in range(size):
        total ^= keys[columns[i]]
    return total


@compiled
def probe(
    keys,
    target,
    sums,
    packs,
    count,
    half,
    table,
    head,
    links,
    order,
    lefts,
    rights,
    most,
):
    """Match right halves with the left halves in the table.

    Returns:
        The halves of the pairs that sum to target, and how many there are (-1 for more
        than `most`).
    """
    matches = np.int64(0)
    columns = np.empty(half, np.int64)
    for i in range(count):
        want = sums[i] ^ target
        slot = np.int64((want * MIX) >> order)
        tag = (want * _TAG) >> np.uint64(32)
        place = np.uint64(head[slot])
        while place != EMPTY:
            link = links[2 * np.int64(place)]
            if link >> np.uint64(32) == tag:
                packed = links[2 * np.int64(place) + 1]
                if _sum_keys(keys, packed, half, table, columns) == want:
                    if matches >= most:
                        return lefts, rights, np.int64(-1)
                    if matches == lefts.shape[0]:
                        lefts = grow(lefts)
                        rights = grow(rights)
                    lefts[matches] = packed
                    rights[matches] = packs[i]
                    matches += 1
            place = link & _LOW
    return lefts, rights, matches


@compiled
def insert(sums, packs, count, head, links, order, stored):
    """Add left halves to the table; return its links and how many they are."""
    if stored + count >= np.int64(EMPTY):
        raise OverflowError("more halves of words than places of 32 bits")
    for i in range(count):
        if 2 * stored + 2 > links.shape[0]:
            links = grow(links)
        slot = np.int64((sums[i] * MIX) >> order)
        tag = (sums[i] * _TAG) >> np.uint64(32)
        links[2 * stored] = (tag << np.uint64(32)) | np.uint64(head[slot])
        links[2 * stored + 1] = packs[i]
        head[slot] = np.uint64(stored)
        stored += 1
    return links, stored


# Compiled lists of the sets of columns whose keys sum to a given one, modulo a word's
# own.
#
# Of what a lifting (`_lifting`) looks at after a word of the binary code: at which
# further places half the vector may be odd. Import inside functions only (see
# `_core.compiled`).


@compiled
def reduced_keys(keys, word, size, target, outside, count, reduced):
    """Write the keys of the columns `outside` modulo the span of a word's.

    Return target's too.
    """
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
    """Return the number of words or sets that the budget still allows."""
    return np.int64(min(np.float64(MOST_LISTED), max(0.0, budget - spent[0]) / LISTED))


@compiled
def _list_few(count, more, target, reduced, head, links, lefts, rights, table, most):
    """List the sets of two or three groups whose keys sum to the target."""
    order = np.uint64(64 - 10)
    matches = np.int64(0)
    for i in range(1024):
        head[i] = EMPTY
    for d in range(count):
        # The table holds the groups before d; c == d stands for no third group.
        for c in range(d if more == 2 else d + 1, d + 1 if more == 2 else count):
            want = target ^ reduced[d] ^ (reduced[c] if c != d else np.uint64(0))
            place = np.uint64(head[np.int64((want * MIX) >> order)])
            while place != EMPTY:
                if reduced[np.int64(place)] == want:
                    if matches >= most:
                        return lefts, rights, np.int64(-1)
                    if matches == lefts.shape[0]:
                        lefts = grow(lefts)
                        rights = grow(rights)
                    lefts[matches] = place
                    rights[matches] = np.uint64(d)
                    if c != d:
                        rights[matches] += table[2, c]
                    matches += 1
                place = links[np.int64(place)]
        slot = np.int64((reduced[d] * MIX) >> order)
        links[d] = np.uint64(head[slot])
        head[slot] = np.uint32(d)
    return lefts, rights, matches


@compiled
def _list_many(
    count, more, target, reduced, space, lefts, rights, table, spent, budget
):
    """List the sets of four groups or more whose keys sum to the target."""
    sums, packs, head, links = space[2], space[3], space[6], space[7]
    first_half = more // 2
    right = more - first_half
    bits = 13 if first_half == 2 else 18
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
            low, high, size = (
                (b + 1, count, right) if half == 0 else (np.int64(0), b, first_half)
            )
            sums, packs, n, visits = subsets(
                reduced,
                low,
                high,
                b,
                size,
                whole,
                nothing,
                starts,
                items,
                sums,
                packs,
                table,
            )
            spent[0] += VISIT * visits + HALF * max(n, 0)
            if n < 0 or spent[0] > budget:
                return lefts, rights, np.int64(-1)
            if half == 1:
                links, stored = insert(sums, packs, n, head, links, order, stored)
                continue
            some_left, some_right, matches = probe(
                reduced,
                target,
                sums,
                packs,
                n,
                first_half,
                table,
                head,
                links,
                order,
                some_left,
                some_right,
                most_listed(spent, budget) - total,
            )
            if matches < 0:
                return lefts, rights, np.int64(-1)
            while total + matches > lefts.shape[0]:
                lefts = grow(lefts)
                rights = grow(rights)
            for i in range(matches):
                lefts[total + i] = some_left[i]
                rights[total + i] = some_right[i]
            total += matches
    return lefts, rights, total


@compiled
def list_sets(count, more, target, reduced, space, table, spent, budget):
    """List the sets of `more` groups whose reduced keys sum to the target.

    Returns:
        The numbers of the halves of more // 2 and of the remaining groups, and how many
        sets exist; -1 for too many.
    """
    lefts, rights = space[4], space[5]
    if more == 0:
        return lefts, rights, np.int64(target == np.uint64(0))
    if more == 1:
        matches = np.int64(0)
        for i in range(count):
            if reduced[i] == target:
                rights[matches] = np.uint64(i)
                matches += 1
        return lefts, rights, matches
    if more <= 3:
        spent[0] += LISTED + HALF / 8 * (count if more == 2 else count * count / 2)
        return _list_few(
            count,
            more,
            target,
            reduced,
            space[6],
            space[7],
            lefts,
            rights,
            table,
            most_listed(spent, budget),
        )
    return _list_many(
        count, more, target, reduced, space, lefts, rights, table, spent, budget
    )
