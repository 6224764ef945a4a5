"""Compiled search for light vectors of the row space by lifting from its first binary digit.

A lightest vector v of the row space can be scaled to coprime integers. Its odd entries are then a
word C of the binary code that the saturated lattice of the row space leaves modulo 2, and the
words with few ones are listed completely by meeting in the middle. For each of them the second
digit (modulo 4) says at which few further places v / 2 can be odd; what is left to be
looked at is one small determinant each. Every filter is a necessary condition, so
"none found" is a proof.

Import inside functions only (see `modular._compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax.modular._compiled import compiled
from mrsa_jax.modular._elimination import power
from mrsa_jax.privacy._girth import ANOMALY, FOUND, NONE, SMALL, is_dependent, search
from mrsa_jax.privacy._words import EMPTY, MIX, insert, probe, subsets, unpack

# At most this many check bits of a column are used; the top bit of a word stays free.
MOST_BITS = 63


@compiled
def _reduced(keys, word, size, target, outside, count, reduced):
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
def _clear(small, chosen, size, inverses, others, count, work):
    """Eliminate the chosen vectors modulo `SMALL` from themselves and from some others.

    `small` is int32 `[groups, axes]`, `work` int32 `[size + count, axes]`: receives the chosen
    ones, then the others. Returns False when the chosen ones are dependent modulo `SMALL`.
    """
    axes = small.shape[1]
    for i in range(size):
        for a in range(axes):
            work[i, a] = small[chosen[i], a]
    for i in range(count):
        for a in range(axes):
            work[size + i, a] = small[others[i], a]
    for i in range(size):
        pivot = -1
        for a in range(axes):
            if work[i, a] != 0:
                pivot = a
                break
        if pivot < 0:
            return False
        inverse = inverses[work[i, pivot]]
        for k in range(i + 1, size + count):
            if work[k, pivot] != 0:
                factor = SMALL - work[k, pivot] * inverse % SMALL
                for a in range(pivot, axes):
                    work[k, a] = (work[k, a] + factor * work[i, a]) % SMALL
    return True


@compiled
def _quotient(kernels, primes, chosen, size, others, count):
    """Return the dual vectors of `others` without their parts along the chosen, all primes."""
    axes = kernels.shape[2]
    result = np.zeros((kernels.shape[0], count, axes), np.uint64)
    for which in range(kernels.shape[0]):
        prime = primes[which]
        work = np.empty((size + count, axes), np.uint64)
        for i in range(size):
            work[i] = kernels[which, chosen[i]]
        for i in range(count):
            work[size + i] = kernels[which, others[i]]
        for i in range(size):
            pivot = -1
            for a in range(axes):
                if work[i, a] != np.uint64(0):
                    pivot = a
                    break
            if pivot < 0:
                continue
            inverse = power(work[i, pivot], prime - np.uint64(2), prime)
            for k in range(i + 1, size + count):
                if work[k, pivot] != np.uint64(0):
                    factor = prime - work[k, pivot] * inverse % prime
                    for a in range(axes):
                        work[k, a] = (work[k, a] + factor * work[i, a]) % prime
        result[which] = work[size:]
    return result


@compiled
def _shrink(vectors, prime, axes, seed):
    """Return residues `[groups, corank]` of a large prime folded to `axes` random axes, int32.

    Folding is linear modulo the large prime and gives residues of it; the caller needs them
    modulo the small ones, so it starts from vectors that are known there.
    """
    groups, corank = vectors.shape
    result = np.zeros((groups, axes), np.int32)
    for a in range(axes):
        for c in range(corank):
            seed = (seed * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
            factor = (seed >> 33) % prime
            for k in range(groups):
                result[k, a] = (result[k, a] + factor * vectors[k, c]) % prime
    return result


@compiled
def _small_quotient(whole, prime, chosen, size, others, count, inverses):
    """Return what `_quotient` does modulo a small prime, int64, and whether it is clean."""
    axes = whole.shape[1]
    work = np.empty((size + count, axes), np.int64)
    for i in range(size):
        work[i] = whole[chosen[i]]
    for i in range(count):
        work[size + i] = whole[others[i]]
    for i in range(size):
        pivot = -1
        for a in range(axes):
            if work[i, a] != 0:
                pivot = a
                break
        if pivot < 0:
            return work[size:], False
        inverse = inverses[work[i, pivot]]
        for k in range(i + 1, size + count):
            if work[k, pivot] != 0:
                factor = prime - work[k, pivot] * inverse % prime
                for a in range(axes):
                    work[k, a] = (work[k, a] + factor * work[i, a]) % prime
    return work[size:], True


@compiled
def _extend(chosen, size, room, small, problem, found):
    """Look for a dependent set that is a given set and further groups within a weight."""
    kernels, primes, weights, inverses, inverses_again, whole, whole_again, prefix = problem
    groups = weights.shape[0]
    extra = np.searchsorted(prefix, room, side="right") - 1
    others = np.empty(groups, np.int64)
    work = np.empty((size + groups, small.shape[1]), np.int32)
    if extra <= 0:
        if not _clear(small, chosen, size, inverses, others, 0, work) and is_dependent(
            chosen, size, kernels, primes
        ):
            found[:size] = chosen[:size]
            return FOUND, size
        return NONE, 0
    taken = np.zeros(groups, np.bool_)
    for i in range(size):
        taken[chosen[i]] = True
    count = 0
    for k in range(groups):
        if not taken[k] and weights[k] <= room:
            others[count] = k
            count += 1
    if extra == 1:
        clean = _clear(small, chosen, size, inverses, others, count, work)
        if not clean and is_dependent(chosen, size, kernels, primes):
            found[:size] = chosen[:size]
            return FOUND, size
        for i in range(count):
            zero = True
            if clean:
                for a in range(small.shape[1]):
                    if work[size + i, a] != 0:
                        zero = False
                        break
            if zero:
                chosen[size] = others[i]
                if is_dependent(chosen, size + 1, kernels, primes):
                    found[: size + 1] = chosen[: size + 1]
                    return FOUND, size + 1
        return NONE, 0
    if is_dependent(chosen, size, kernels, primes):
        found[:size] = chosen[:size]
        return FOUND, size
    depth = max(extra, 3)
    first, clean = _small_quotient(whole, SMALL, chosen, size, others, count, inverses)
    second, clean_again = _small_quotient(
        whole_again, inverses_again.shape[0], chosen, size, others, count, inverses_again
    )
    if not clean or not clean_again:
        return ANOMALY, 0
    part = np.zeros(depth, np.int64)
    status, more = search(
        _shrink(first, SMALL, depth, 1),
        _shrink(second, inverses_again.shape[0], depth, 2),
        _quotient(kernels, primes, chosen, size, others, count),
        primes, weights[others[:count]], inverses, inverses_again, room, depth, 0, 1, part,
    )  # fmt: skip
    if status == FOUND:
        found[:size] = chosen[:size]
        for i in range(more):
            found[size + i] = others[part[i]]
        return FOUND, size + more
    return status, 0


@compiled
def _examine_few(size, room, most, count, target, small, problem, space, found):
    """Do what `_examine` does for Y of two groups and, if `most` is 3, of three."""
    weights = problem[2]
    outside, reduced, chosen, _, _, _, _, head, links = space
    order = np.uint64(64 - 10)
    head[:1024] = EMPTY
    for d in range(count):
        # the table holds the groups before d: every set is met once, at its last member
        for c in range(d, count if most == 3 else d + 1):
            # c == d stands for no third group
            want = target ^ reduced[d] ^ (reduced[c] if c != d else np.uint64(0))
            place = np.uint64(head[np.int64((want * MIX) >> order)])
            while place != EMPTY:
                i = np.int64(place)
                if reduced[i] == want:
                    chosen[size] = outside[i]
                    chosen[size + 1] = outside[d]
                    heavy = weights[outside[i]] + weights[outside[d]]
                    more = 2
                    if c != d:
                        chosen[size + 2] = outside[c]
                        heavy += weights[outside[c]]
                        more = 3
                    if heavy <= room:
                        status, total = _extend(
                            chosen, size + more, room - heavy, small, problem, found
                        )
                        if status != NONE:
                            return status, total
                place = links[i]
        slot = np.int64((reduced[d] * MIX) >> order)
        links[d] = np.uint64(head[slot])
        head[slot] = np.uint32(d)
    return NONE, 0


@compiled
def _examine(word, size, room, keys, highs, small, problem, space, found):
    """Look for a light vector whose odd entries are exactly a word of the binary code.

    `room` is the weight left for further groups. With 2 s = the word's checks modulo 4, the
    groups Y where half the vector is odd have keys that sum to s modulo the span of the
    word's; the remaining groups have entries that are multiples of 4.
    """
    weights, prefix = problem[2], problem[7]
    outside, reduced, chosen, sums, packs, lefts, rights, head, links = space
    groups = keys.shape[0]
    low = np.uint64(0)
    target = np.uint64(0)
    for i in range(size):
        target ^= highs[word[i]] ^ (low & keys[word[i]])
        low ^= keys[word[i]]
    extra = np.searchsorted(prefix, room, side="right") - 1
    count = 0
    if extra > 0:
        at = 0
        for k in range(groups):
            while at < size and word[at] < k:
                at += 1
            if (at == size or word[at] != k) and weights[k] <= room:
                outside[count] = k
                count += 1
    target = _reduced(keys, word, size, target, outside, count, reduced)
    for i in range(size):
        chosen[i] = word[i]
    if target == np.uint64(0):
        status, total = _extend(chosen, size, room, small, problem, found)
        if status != NONE:
            return status, total
    if extra >= 1:
        for i in range(count):
            if reduced[i] == target:
                chosen[size] = outside[i]
                status, total = _extend(
                    chosen, size + 1, room - weights[outside[i]], small, problem, found
                )
                if status != NONE:
                    return status, total
    if extra >= 2 and count >= 2:
        status, total = _examine_few(
            size, room, min(extra, 3), count, target, small, problem, space, found
        )
        if status != NONE:
            return status, total
    width = 10
    starts = np.zeros(2, np.int64)
    starts[1] = count
    items = np.arange(count)
    for more in range(4, extra + 1):
        if more > count:
            break
        left = more // 2
        right = more - left
        bits = 13 if left == 2 else 18
        order = np.uint64(64 - bits)
        head[: 1 << bits] = EMPTY
        stored = 0
        view = reduced[:count]
        for b in range(count):
            sums, packs, n = subsets(
                view, b + 1, count, b, right, np.uint64(63), np.uint64(0), starts, items,
                sums, packs, width,
            )  # fmt: skip
            lefts, rights, matches = probe(
                view, target, sums, packs, n, left, width, head, links, order, lefts, rights
            )
            for i in range(matches):
                unpack(lefts[i], left, width, chosen, size)
                unpack(rights[i], right, width, chosen, size + left)
                heavy = 0
                for k in range(size, size + more):
                    chosen[k] = outside[chosen[k]]
                    heavy += weights[chosen[k]]
                if heavy <= room:
                    status, total = _extend(
                        chosen, size + more, room - heavy, small, problem, found
                    )
                    if status != NONE:
                        return status, total
            sums, packs, n = subsets(
                view, 0, b, b, left, np.uint64(63), np.uint64(0), starts, items, sums, packs, width
            )
            links, stored = insert(sums, packs, n, head, links, order, stored)
    return NONE, 0


@compiled
def words(keys, highs, small, problem, limit, size, shift, part, starts, items, slot_bits, found):
    """Go through the words of one size whose left half has given leading bits; examine each.

    Args:
        keys: uint64 `[groups]`: each column's binary checks.
        highs: uint64 `[groups]`: the second digits of the same checks.
        small: int32 `[groups, axes]`: dual vectors modulo `SMALL`, projected to at least as many
            axes as groups fit into `limit`.
        problem: The dual vectors modulo large primes uint64 `[primes, groups, corank]`; the
            primes; weights, ascending; residues' inverses modulo the two small primes;
            the whole dual vectors modulo those, int64 `[groups, corank]`; and the sums of
            the smallest weights (0 first).
        limit: Largest weight of a set.
        size: Groups in a word, at least 1.
        shift: Leading bits are those from here on.
        part: The leading bits of this call's left halves.
        starts: int64: where the columns with each leading bits begin in `items`.
        items: int64 `[groups]`: columns ordered by leading bits, then by index.
        slot_bits: log2 of the size of the table of left halves.
        found: int64: receives a set that is dependent modulo all large primes.

    Returns:
        A status, the size of the set found, and how many words were examined.
    """
    weights = problem[2]
    groups = keys.shape[0]
    width = 8 if groups <= 256 else 12
    space = (
        np.empty(groups, np.int64), np.empty(groups, np.uint64), np.empty(groups, np.int64),
        np.empty(1024, np.uint64), np.empty(1024, np.uint64),
        np.empty(64, np.uint64), np.empty(64, np.uint64),
        np.empty(1 << 18, np.uint32), np.empty(1024, np.uint64),
    )  # fmt: skip
    word = np.zeros(size, np.int64)
    examined = 0
    left = size // 2
    right = size - left
    sums = np.empty(1024, np.uint64)
    packs = np.empty(1024, np.uint64)
    lefts = np.empty(1024, np.uint64)
    rights = np.empty(1024, np.uint64)
    order = np.uint64(64 - slot_bits)
    head = np.full(1 << slot_bits, EMPTY, np.uint32)
    links = np.empty(1 << max(slot_bits, 10), np.uint64)
    stored = 0
    if left == 0:  # words of one column: a column without checks
        links[0] = np.uint64(0)
    for b in range(groups):
        if left == 0:
            if keys[b] != np.uint64(0) or part != np.uint64(0):
                continue
            lefts[0] = np.uint64(0)
            rights[0] = np.uint64(b)
            matches = 1
        else:
            sums, packs, n = subsets(
                keys, b + 1, groups, b, right, shift, part, starts, items, sums, packs, width
            )
            lefts, rights, matches = probe(
                keys, np.uint64(0), sums, packs, n, left, width, head, links, order, lefts, rights
            )
        for i in range(matches):
            unpack(rights[i], right, width, word, left)
            unpack(lefts[i], left, width, word, 0)
            heavy = 0
            for k in range(size):
                heavy += weights[word[k]]
            if heavy > limit:
                continue
            examined += 1
            word.sort()
            status, total = _examine(
                word, size, limit - heavy, keys, highs, small, problem, space, found
            )
            if status != NONE:
                return status, total, examined
        if left > 0:
            sums, packs, n = subsets(
                keys, 0, b, b, left, shift, part, starts, items, sums, packs, width
            )
            links, stored = insert(sums, packs, n, head, links, order, stored)
    return NONE, 0, examined
