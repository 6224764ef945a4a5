"""Compiled meet in the middle: sets of few numbers whose (signed) sum vanishes modulo a prime.

A set is cut where half of its members lie on either side: the sums of all possible first halves
go into a table as the cut moves up, the sums of last halves are looked up in it. So every set
is met exactly once, in the square root of the number of sets. A table that outgrew the cache
would cost a memory access for every sum; instead the range of sums is cut into parts, each with
a small table, and the sums are formed anew for each.

Import inside functions only (see `modular._compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax.modular._compiled import compiled

INSERT, PROBE, FIND = 0, 1, 2
NONE, FOUND, FULL = 0, 1, 2
EMPTY = np.uint64(2**64 - 1)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@compiled
def _act(mode, key, weight, limit, table, table_weights, state):  # type: ignore[no-untyped-def]
    """Insert a sum into the table, or look it up; `state[0]` counts the entries."""
    if mode == FIND:
        return FOUND
    last = np.uint64(table.shape[0] - 1)
    slot = key & last
    while table[slot] != EMPTY:
        if table[slot] == key:
            if mode == INSERT:
                if weight < table_weights[slot]:
                    table_weights[slot] = weight
                return NONE
            return FOUND if weight + table_weights[slot] <= limit else NONE
        slot = (slot + _ONE) & last
    if mode == INSERT:
        if 4 * state[0] >= 3 * table.shape[0]:
            return FULL
        table[slot] = key
        table_weights[slot] = weight
        state[0] += 1
    return NONE


@compiled
def walk(
    mode,
    literals,
    signs,
    weights,
    low,
    high,
    count,
    base,
    base_weight,
    cap,
    limit,
    prime,
    part,
    shift,
    table,
    table_weights,
    state,
    chosen,
    sums,
    loads,
):  # type: ignore[no-untyped-def]
    """Form base plus all sums of `count` numbers with indices in [low, high), in order.

    Args:
        mode: What to do with each: `INSERT`, `PROBE`, or `FIND` (stop at the first).
        literals: uint64 `[signs * numbers]`: every number, with `signs` 2 followed by its
            negative; residues.
        signs: 1 or 2. With 2 a sum and its negative count as the same: the smaller one.
        weights: int64 `[numbers]`, ascending.
        low: First index.
        high: End of the indices.
        count: How many numbers are added to `base`.
        base: uint64 residue.
        base_weight: Its weight.
        cap: Largest weight of base and numbers.
        limit: Largest weight of a whole set, both halves together.
        prime: uint64, below 2**62.
        part: Only sums with `sum >> shift == part` are taken.
        shift: uint64.
        table: uint64, a power of two long, `EMPTY` where free.
        table_weights: int64: the least weight of each sum.
        state: int64 `[1]`.
        chosen: int64 `[count]`, out: literals of the last sum.
        sums: uint64 scratch.
        loads: int64 scratch.

    Returns:
        `NONE`, `FOUND` or `FULL`.
    """
    if count == 0:
        key = base
        if signs == 2 and prime - key < key:
            key = prime - key
        if key >> shift != part:
            return NONE
        return _act(mode, key, base_weight, limit, table, table_weights, state)
    depth = 0
    chosen[0] = low * signs
    sums[0] = base
    loads[0] = base_weight
    while depth >= 0:
        first = chosen[depth] // signs
        if depth < count - 1:
            left = count - depth
            if first + left > high or loads[depth] + left * weights[first] > cap:
                depth -= 1
                if depth >= 0:
                    chosen[depth] += 1
                continue
            total = sums[depth] + literals[chosen[depth]]
            sums[depth + 1] = total - prime if total >= prime else total
            loads[depth + 1] = loads[depth] + weights[first]
            chosen[depth + 1] = (first + 1) * signs
            depth += 1
            continue
        start, load = sums[depth], loads[depth]
        for place in range(first, high):
            weight = load + weights[place]
            if weight > cap:
                break
            for literal in range(place * signs, (place + 1) * signs):
                key = start + literals[literal]
                key = key - prime if key >= prime else key
                if signs == 2:
                    other = prime - key
                    key = other if other < key else key
                if key >> shift == part:
                    done = _act(mode, key, weight, limit, table, table_weights, state)
                    if done != NONE:
                        chosen[depth] = literal
                        return done
        depth -= 1
        if depth >= 0:
            chosen[depth] += 1
    return NONE


@compiled
def search(
    literals,
    negatives,
    signs,
    weights,
    size,
    limit,
    prime,
    part,
    shift,
    table,
    table_weights,
    chosen,
):  # type: ignore[no-untyped-def]
    """Search one part of the range of sums for a set of `size` numbers that sums to zero.

    Args:
        literals: uint64 `[signs * numbers]` as for `walk`.
        negatives: The same of the negative numbers.
        signs: 1 for plain sums, 2 for sums with coefficients 1 and -1.
        weights: int64 `[numbers]`, ascending.
        size: Numbers in the set, at least 2.
        limit: Largest total weight.
        prime: uint64.
        part: uint64.
        shift: uint64.
        table: uint64 scratch, a power of two long.
        table_weights: int64 scratch of the same length.
        chosen: int64 `[size]`, out: when found the literals of the set.

    Returns:
        `NONE`, `FOUND` or `FULL` (the table is too small).
    """
    numbers = weights.shape[0]
    front = size // 2
    back = size - front
    table[:] = EMPTY
    state = np.zeros(1, np.int64)
    inside = np.zeros(size + 1, np.int64)
    sums = np.zeros(size + 1, np.uint64)
    loads = np.zeros(size + 1, np.int64)
    least = 0
    for i in range(front):
        least += weights[i]
    for cut in range(front - 1, numbers - back + 1):
        if cut >= front:
            done = walk(PROBE, literals, signs, weights, cut + 1, numbers, back - 1, literals[cut * signs], weights[cut], limit - least, limit, prime, part, shift, table, table_weights, state, inside, sums, loads)  # fmt: skip
            if done == FOUND:
                chosen[front] = cut * signs
                for i in range(back - 1):
                    chosen[front + 1 + i] = inside[i]
                _find_front(literals, negatives, signs, weights, front, back, limit, prime, table, table_weights, state, chosen, inside, sums, loads)  # fmt: skip
                return FOUND
        behind = 0
        for i in range(cut + 1, min(cut + 1 + back, numbers)):
            behind += weights[i]
        done = walk(INSERT, negatives, signs, weights, 0, cut, front - 1, negatives[cut * signs], weights[cut], limit - behind, limit, prime, part, shift, table, table_weights, state, inside, sums, loads)  # fmt: skip
        if done == FULL:
            return FULL
    return NONE


@compiled
def _find_front(
    literals,
    negatives,
    signs,
    weights,
    front,
    back,
    limit,
    prime,
    table,
    table_weights,
    state,
    chosen,
    inside,
    sums,
    loads,
):  # type: ignore[no-untyped-def]
    """Complete a last half that was met in the table by its first half."""
    total = _ZERO
    room = limit
    for i in range(front, front + back):
        total = (total + literals[chosen[i]]) % prime
        room -= weights[chosen[i] // signs]
    key = total
    if signs == 2 and prime - key < key:
        key = prime - key
    cut = chosen[front] // signs
    walk(FIND, negatives, signs, weights, 0, cut, front, _ZERO, 0, room, limit, prime, key, _ZERO, table, table_weights, state, inside, sums, loads)  # fmt: skip
    other = _ZERO
    for i in range(front):
        other = (other + literals[inside[i]]) % prime
    flip = 1 if signs == 2 and (other + total) % prime != _ZERO else 0
    for i in range(front):
        chosen[i] = inside[i] ^ flip
