"""Compiled enumeration of light words of a binary code by meeting in the middle.

A word is the union of a left half, whose largest column is smaller than all others, and a right
half; their keys (columns' check bits, summed by XOR) agree. Left halves are kept in a hash table
that grows with the columns, so every word is met once. Import inside functions only (see
`modular._compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax.modular._compiled import compiled

MIX = np.uint64(0x9E3779B97F4A7C15)
_TAG = np.uint64(0xC2B2AE3D27D4EB4F)
_LOW = np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0xFFFFFFFF)


@compiled
def grow(array):
    larger = np.empty(2 * array.shape[0], array.dtype)
    for i in range(array.shape[0]):
        larger[i] = array[i]
    return larger


@compiled
def subsets(keys, low, high, fixed, size, shift, part, starts, items, sums, packs, width):
    """List the sets of `size` columns: `fixed` and others of `low..high - 1`.

    Only those are listed whose keys sum (XOR) to something with the leading bits `part` (the bits
    from `shift` on): the last column is taken from those with the leading bits still missing.

    Returns:
        The sums, the sets (`width` bits a column, `fixed` first), and how many there are.
    """
    count = np.int64(0)
    if size == 1:
        if keys[fixed] >> shift == part:
            sums[0] = keys[fixed]
            packs[0] = np.uint64(fixed)
            count = 1
        return sums, packs, count
    free = size - 2
    place = np.zeros(free + 1, np.int64)
    partial = np.zeros(free + 1, np.uint64)
    packed = np.zeros(free + 1, np.uint64)
    partial[0] = keys[fixed]
    packed[0] = np.uint64(fixed)
    level = 0
    following = low
    while True:
        if level == free:
            last = place[free - 1] if free > 0 else low - 1
            key = partial[free]
            bucket = np.int64(part ^ (key >> shift))
            place_bits = np.uint64(width * (free + 1))
            # A single bucket holds all columns in order: skip to the first one allowed
            first = starts[bucket] + (last + 1 if shift == np.uint64(63) else 0)
            for t in range(first, starts[bucket + 1]):
                j = items[t]
                if j <= last:
                    continue
                if j >= high:
                    break
                if count == sums.shape[0]:
                    sums = grow(sums)
                    packs = grow(packs)
                sums[count] = key ^ keys[j]
                packs[count] = packed[free] | (np.uint64(j) << place_bits)
                count += 1
        elif following <= high - 1 - (free - level):
            place[level] = following
            partial[level + 1] = partial[level] ^ keys[following]
            packed[level + 1] = packed[level] | (
                np.uint64(following) << np.uint64(width * (level + 1))
            )
            level += 1
            following += 1
            continue
        level -= 1
        if level < 0:
            return sums, packs, count
        following = place[level] + 1


@compiled
def unpack(packed, size, width, target, offset):
    field = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(size):
        target[offset + i] = np.int64((packed >> np.uint64(width * i)) & field)


@compiled
def _sum_keys(keys, packed, size, width):
    field = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    total = np.uint64(0)
    for i in range(size):
        total ^= keys[np.int64((packed >> np.uint64(width * i)) & field)]
    return total


@compiled
def probe(keys, target, sums, packs, count, left, width, head, links, order, lefts, rights):
    """Match right halves with the left halves in the table; return the pairs that sum to target."""
    found = np.int64(0)
    for i in range(count):
        want = sums[i] ^ target
        slot = np.int64((want * MIX) >> order)
        tag = (want * _TAG) >> np.uint64(32)
        place = np.uint64(head[slot])
        while place != EMPTY:
            link = links[2 * np.int64(place)]
            if link >> np.uint64(32) == tag:
                packed = links[2 * np.int64(place) + 1]
                if _sum_keys(keys, packed, left, width) == want:
                    if found == lefts.shape[0]:
                        lefts = grow(lefts)
                        rights = grow(rights)
                    lefts[found] = packed
                    rights[found] = packs[i]
                    found += 1
            place = link & _LOW
    return lefts, rights, found


@compiled
def insert(sums, packs, count, head, links, order, stored):
    """Add left halves to the table; return its links and how many they are."""
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
