"""Compiled search for light vectors by lifting from their first binary digit.

A lightest vector v of the row space can be scaled to coprime integers. Its odd entries
are then a word C of the binary code that the saturated lattice of the row space leaves
modulo 2, and the words with few ones are listed completely by meeting in the middle.
For each of them the second digit (modulo 4) says at which few further places v / 2 can
be odd; what is left to be looked at is one small determinant each. Every filter is a
necessary condition, so "none found" is a proof.

Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled, first_nonzero, power
from mrsa_jax.privacy.solver._costs import HALF, LISTED, MODULAR, TERM, VISIT, WORD
from mrsa_jax.privacy.solver._girth import (
    ANOMALY,
    FOUND,
    GAVE_UP,
    NONE,
    SMALL,
    Vectors,
    assign,
    eliminate,
    gather,
    search,
    takes,
)
from mrsa_jax.privacy.solver._words import (
    EMPTY,
    MOST_LISTED,
    insert,
    list_sets,
    most_listed,
    probe,
    reduced_keys,
    subsets,
    unpack,
)


@compiled
def _quotient(kernels, primes, chosen, size, others, count):
    """Return the dual vectors of `others` without their parts along the chosen."""
    axes = kernels.shape[2]
    result = np.zeros((kernels.shape[0], count, axes), np.uint64)
    for which in range(kernels.shape[0]):
        prime = primes[which]
        work = np.empty((size + count, axes), np.uint64)
        gather(kernels[which], chosen, size, others, count, work)
        for i in range(size):
            pivot = first_nonzero(work[i])
            if pivot < 0:
                continue
            inverse = power(work[i, pivot], prime - np.uint64(2), prime)
            for k in range(i + 1, size + count):
                if work[k, pivot] != np.uint64(0):
                    factor = prime - work[k, pivot] * inverse % prime
                    for a in range(axes):
                        work[k, a] = (work[k, a] + factor * work[i, a]) % prime
        for i in range(count):
            assign(result[which, i], work[size + i], axes)
    return result


@compiled
def _shrink(vectors, prime, axes, seed):
    """Fold residues `[groups, corank]` to random axes, int32 `[groups, axes]`.

    Folding is linear modulo that prime: sets that are dependent stay so.
    """
    groups, corank = vectors.shape
    result = np.zeros((groups, axes), np.int32)
    for a in range(axes):
        for c in range(corank):
            seed = (
                seed * 6364136223846793005 + 1442695040888963407
            ) & 0x7FFFFFFFFFFFFFFF
            factor = (seed >> 33) % prime
            for k in range(groups):
                result[k, a] = (result[k, a] + factor * vectors[k, c]) % prime
    return result


@compiled
def _small_quotient(whole, prime, chosen, size, others, count, inverses):
    """Return `_quotient` modulo a small prime, int64, and whether it is clean."""
    work = np.empty((size + count, whole.shape[1]), np.int64)
    clean = eliminate(
        gather(whole, chosen, size, others, count, work), size, prime, inverses
    )
    return work[size:], clean


@compiled
def _fitting(prefix, room):
    """Count the groups that fit into a weight.

    A search by NumPy takes a second to compile.
    """
    count = 0
    while count < prefix.shape[0] and prefix[count] <= room:
        count += 1
    return count - 1


@compiled
def _extend(chosen, size, room, small, problem, result, spent, budget):
    """Look for a dependent set of the chosen groups and others within a weight."""
    # Room for no further group: one determinant decides. For one: whatever the chosen
    # leave of it is zero. For more: the search of `_girth`, in the space that the
    # chosen leave.
    kernels, primes, weights, inverses, inverses_again, whole, whole_again, prefix = (
        problem
    )
    groups = weights.shape[0]
    extra = _fitting(prefix, room)
    others = np.empty(groups, np.int64)
    axes, corank = small.shape[1], kernels.shape[2]
    work = np.empty((size + groups, axes), np.int32)
    if extra <= 0:
        spent[0] += LISTED + TERM * size * size * axes / 2
        rows = gather(small, chosen, size, others, np.int64(0), work)
        clean = eliminate(rows, size, SMALL, inverses)
        if not clean and takes(chosen, size, kernels, primes, result):
            return FOUND, size
        return NONE, 0
    taken = np.zeros(groups, np.bool_)
    for i in range(size):
        taken[chosen[i]] = True
    count = np.int64(0)
    for k in range(groups):
        if not taken[k] and weights[k] <= room:
            others[count] = k
            count += 1
    if extra == 1:
        spent[0] += LISTED + TERM * size * (size + count) * axes
        rows = gather(small, chosen, size, others, count, work)
        clean = eliminate(rows, size, SMALL, inverses)
        if not clean and takes(chosen, size, kernels, primes, result):
            return FOUND, size
        for i in range(count):
            if not clean or first_nonzero(rows[size + i]) < 0:
                chosen[size] = others[i]
                if takes(chosen, size + 1, kernels, primes, result):
                    return FOUND, size + 1
        return NONE, 0
    spent[0] += 2 * MODULAR * size * (2 * size + count) * corank
    if takes(chosen, size, kernels, primes, result):
        return FOUND, size
    depth = max(extra, 3)
    first, clean = _small_quotient(
        whole, np.int64(SMALL), chosen, size, others, count, inverses
    )
    second, clean_again = _small_quotient(
        whole_again,
        inverses_again.shape[0],
        chosen,
        size,
        others,
        count,
        inverses_again,
    )
    if not clean or not clean_again:
        return ANOMALY, 0
    part = np.zeros(depth, np.int64)
    quotients = Vectors(
        _shrink(first, np.int64(SMALL), depth, np.int64(1)),
        _shrink(second, inverses_again.shape[0], depth, np.int64(2)),
        _quotient(kernels, primes, chosen, size, others, count),
        primes,
        weights[others[:count]],
        inverses,
        inverses_again,
    )
    status, more = search(
        quotients, room, depth, np.int64(0), np.int64(1), part, spent, budget
    )
    if status == FOUND:
        assign(result, chosen, size)
        for i in range(more):
            result[size + i] = others[part[i]]
        return FOUND, size + more
    return status, 0


@compiled
def _examine(
    word, size, room, keys, highs, small, problem, space, table, result, spent, budget
):
    """Look for a light vector whose odd entries are exactly a word of the binary code.

    `room` is the weight left for further groups. With 2 s = the word's checks modulo 4,
    the groups Y where half the vector is odd have keys that sum to s modulo the span of
    the word's; the remaining groups have entries that are multiples of 4.
    """
    # The vector is odd exactly at the word, so its half is an integer wherever the word
    # is not. Where that half is odd in turn is again a sum of few columns with a known
    # key: list those sets, and ask of each whether its dual vectors are dependent
    # (`_extend`).
    weights, prefix = problem[2], problem[7]
    outside, chosen = space[0], space[1]
    groups = keys.shape[0]
    low = np.uint64(0)
    target = np.uint64(0)
    for i in range(size):
        target ^= highs[word[i]] ^ (low & keys[word[i]])
        low ^= keys[word[i]]
    extra = _fitting(prefix, room)
    count = np.int64(0)
    if extra > 0:
        at = 0
        for k in range(groups):
            while at < size and word[at] < k:
                at += 1
            if (at == size or word[at] != k) and weights[k] <= room:
                outside[count] = k
                count += 1
    reduced = space[8][:count]
    target = reduced_keys(keys, word, size, target, outside, count, reduced)
    assign(chosen, word, size)
    spent[0] += WORD + TERM * size * count
    for more in range(min(extra, count) + 1):
        lefts, rights, listed = list_sets(
            count, more, target, reduced, space, table, spent, budget
        )
        if listed < 0:
            spent[0] = max(spent[0], budget)
            return GAVE_UP, 0
        for i in range(listed):
            unpack(lefts[i], more // 2, table, chosen, size)
            unpack(rights[i], more - more // 2, table, chosen, size + more // 2)
            heavy = np.int64(0)
            for k in range(size, size + more):
                chosen[k] = outside[chosen[k]]
                heavy += weights[chosen[k]]
            if heavy <= room:
                status, total = _extend(
                    chosen,
                    size + more,
                    room - heavy,
                    small,
                    problem,
                    result,
                    spent,
                    budget,
                )
                if spent[0] > budget and status == NONE:
                    status = GAVE_UP
                if status != NONE:
                    return status, total
    return NONE, 0


@compiled
def words(
    keys,
    highs,
    small,
    problem,
    limit,
    size,
    shift,
    part,
    starts,
    items,
    slot_bits,
    table,
    result,
    spent,
    budget,
):
    """Go through the words of one size whose left half has given leading bits.

    Examine each.

    Args:
        keys: uint64 `[groups]`: each column's binary checks.
        highs: uint64 `[groups]`: the second digits of the same checks.
        small: int32 `[groups, axes]`: dual vectors modulo `SMALL`, projected to at
            least as many axes as groups fit into `limit`.
        problem: The dual vectors modulo large primes uint64 `[primes, groups, corank]`;
            the primes; weights, ascending; residues' inverses modulo the two small
            primes; the whole dual vectors modulo those, int64 `[groups, corank]`; and
            the sums of the smallest weights (0 first).
        limit: Largest weight of a set.
        size: Groups in a word, at least 1.
        shift: Leading bits are those from here on.
        part: The leading bits of this call's left halves.
        starts: int64: where the columns with each leading bits begin in `items`.
        items: int64 `[groups]`: columns ordered by leading bits, then by index.
        slot_bits: log2 of the size of the table of left halves.
        table: `binomials` of the groups, for halves of any set within `limit`.
        result: int64: receives a set that is dependent modulo all large primes.
        spent: float64 `[1]`: the work so far in nanoseconds; this call's is added.
        budget: When more than this is spent, the search gives up.

    Returns:
        A status and the size of the set found.
    """
    # A word is two halves with equal checks. The last column of the left half grows
    # from left to right: right halves that begin there are looked up among the left
    # halves that end before it, and only then are the left halves that end there put
    # into the table. So each word comes once.
    weights = problem[2]
    groups = keys.shape[0]
    length = max(1024, groups)
    space = (
        np.empty(groups, np.int64),
        np.empty(2 * groups, np.int64),
        np.empty(1024, np.uint64),
        np.empty(1024, np.uint64),
        np.empty(length, np.uint64),
        np.empty(length, np.uint64),
        np.empty(1 << 18, np.uint32),
        np.empty(length, np.uint64),
        np.empty(groups, np.uint64),
    )
    word = np.zeros(size, np.int64)
    half = size // 2
    right = size - half
    sums = np.empty(1024, np.uint64)
    packs = np.empty(1024, np.uint64)
    lefts = np.empty(1024, np.uint64)
    rights = np.empty(1024, np.uint64)
    order = np.uint64(64 - slot_bits)
    head = np.full(1 << slot_bits, EMPTY, np.uint32)
    links = np.empty(1 << max(slot_bits, 10), np.uint64)
    stored = np.int64(0)
    if half == 0:  # words of one column: a column without checks
        links[0] = np.uint64(0)
    for b in range(groups):
        if half == 0:
            if keys[b] != np.uint64(0) or part != np.uint64(0):
                continue
            lefts[0] = np.uint64(0)
            rights[0] = np.uint64(b)
            matches = 1
        else:
            sums, packs, n, visits = subsets(
                keys,
                b + 1,
                groups,
                b,
                right,
                shift,
                part,
                starts,
                items,
                sums,
                packs,
                table,
            )
            spent[0] += VISIT * visits + HALF * max(n, 0)
            if n < 0 or spent[0] > budget:
                return GAVE_UP, 0
            lefts, rights, matches = probe(
                keys,
                np.uint64(0),
                sums,
                packs,
                n,
                half,
                table,
                head,
                links,
                order,
                lefts,
                rights,
                most_listed(spent, budget),
            )
        if matches < 0:
            spent[0] = max(spent[0], budget)
            return GAVE_UP, 0
        for i in range(matches):
            unpack(rights[i], right, table, word, half)
            unpack(lefts[i], half, table, word, 0)
            heavy = np.int64(0)
            for k in range(size):
                heavy += weights[word[k]]
            spent[0] += LISTED
            if heavy > limit:
                continue
            status, total = _examine(
                word,
                size,
                limit - heavy,
                keys,
                highs,
                small,
                problem,
                space,
                table,
                result,
                spent,
                budget,
            )
            if spent[0] > budget and status == NONE:
                status = GAVE_UP
            if status != NONE:
                return status, total
        if half > 0:
            sums, packs, n, visits = subsets(
                keys, 0, b, b, half, shift, part, starts, items, sums, packs, table
            )
            spent[0] += VISIT * visits + HALF * max(n, 0)
            if n < 0 or stored + n > MOST_LISTED:
                return GAVE_UP, 0
            links, stored = insert(sums, packs, n, head, links, order, stored)
    return NONE, 0
