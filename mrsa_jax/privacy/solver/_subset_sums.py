"""Compiled meet in the middle.

Sets of few numbers whose (signed) sum vanishes modulo a prime.
A set is cut where half of its members lie on either side: the sums of all possible
first halves go into a table as the cut moves up, the sums of last halves are looked up
in it. So every set is met exactly once, in the square root of the number of sets. A
table that outgrew the cache would cost a memory access for every sum; instead the range
of sums is cut into parts, each with a small table. The last number of a sum is read off
a sorted list, so that no sums are formed but those that lie in the part.

Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mrsa_jax._core.compiled import compiled

INSERT, PROBE, FIND = 0, 1, 2
NONE, FOUND, FULL = 0, 1, 2
EMPTY = np.uint64(2**64 - 1)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_BUCKET_BITS = 6
_BUCKET_SHIFT = np.uint64(61 - _BUCKET_BITS)


class Numbers(NamedTuple):
    """Residues in the order in which sets are cut, and sorted from each place on.

    A literal stands for a number with its sign: place * signs for the number itself
    and, with signs = 2, place * 2 + 1 for its negative.

    Attributes:
        values: uint64 `[literals]`.
        weights: int64 `[places]`.
        lightest: int64 `[places + 1]`: the least weight from each place on.
        ordered: uint64 `[places + 1, literals]`: row i holds the values from place i
            on, sorted.
        literals: int32 `[places + 1, literals]`: whose they are.
        starts: int32 `[places + 1, 2**6 + 1]`: where the values of each 64th of the
            range begin.
    """

    values: np.ndarray
    weights: np.ndarray
    lightest: np.ndarray
    ordered: np.ndarray
    literals: np.ndarray
    starts: np.ndarray


class Part(NamedTuple):
    """The setting of one search.

    Attributes:
        signs: 1 for plain sums, 2 for coefficients 1 and -1: then a sum and its
            negative count as the same, the smaller of the two.
        prime: uint64, at most 2**61.
        low: uint64; only sums from here on are taken,
        width: uint64, so many of them.
        limit: Largest weight of a whole set, both halves together.
    """

    signs: int
    prime: np.uint64
    low: np.uint64
    width: np.uint64
    limit: int


class Scratch(NamedTuple):
    """Memory of one search.

    Attributes:
        table: uint64, a power of two long: sums of first halves, `EMPTY` where free.
        loads: int64, as long: the least weight of each; of length 1 where all numbers
            weigh the same, as then no pair of halves is too heavy.
        used: int64 `[1]`, entries of the table.
        chosen: int64 `[size + 1]`: literals of the sum at hand.
        sums: uint64 `[size + 1]`.
        weights: int64 `[size + 1]`.
    """

    table: np.ndarray
    loads: np.ndarray
    used: np.ndarray
    chosen: np.ndarray
    sums: np.ndarray
    weights: np.ndarray


def prepare(values: np.ndarray, weights: np.ndarray) -> Numbers:
    """Sort what comes after each place; `values` is uint64 `[places, signs]`."""
    places, signs = values.shape
    flat = values.ravel()
    bounds = np.arange(2**_BUCKET_BITS + 1, dtype=np.uint64) << _BUCKET_SHIFT
    ordered = np.zeros((places + 1, flat.size), np.uint64)
    literals = np.zeros((places + 1, flat.size), np.int32)
    starts = np.zeros((places + 1, bounds.size), np.int32)
    for place in range(places):
        rest = flat[place * signs :]
        order = np.argsort(rest, kind="stable")
        ordered[place, : rest.size] = rest[order]
        literals[place, : rest.size] = order + place * signs
        starts[place] = np.searchsorted(rest[order], bounds)
    least = np.minimum.accumulate(weights[::-1])[::-1]
    return Numbers(
        flat, weights, np.append(least, least[-1]), ordered, literals, starts
    )


def scratch(size: int, length: int, is_weighted: bool) -> Scratch:
    """Return memory for sets of `size` numbers and a table of `length`."""
    return Scratch(
        np.empty(length, np.uint64),
        np.empty(length if is_weighted else 1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(size + 1, np.int64),
        np.zeros(size + 1, np.uint64),
        np.zeros(size + 1, np.int64),
    )


@compiled
def _act(mode, limit, key, weight, table, loads, used):
    """Insert a sum into the table, or look it up."""
    if mode == FIND:
        return FOUND
    weighted = loads.shape[0] > 1
    last = np.uint64(table.shape[0] - 1)
    slot = key & last
    while table[slot] != EMPTY:
        if table[slot] == key:
            if mode == PROBE:
                return FOUND if not weighted or weight + loads[slot] <= limit else NONE
            if weighted and weight < loads[slot]:
                loads[slot] = weight
            return NONE
        slot = (slot + _ONE) & last
    if mode == INSERT:
        if 4 * used[0] >= 3 * table.shape[0]:
            return FULL
        table[slot] = key
        if weighted:
            loads[slot] = weight
        used[0] += 1
    return NONE


@compiled
def _walk(mode, part, numbers, first, count, base, weight, cap, scratch):
    """Form `base` plus all sums of `count` literals of different places.

    Sums heavier than `cap`, with `base`'s own `weight`, are left out. When an outcome
    ends the walk, the literals are `scratch.chosen[:count]`.
    """
    signs, prime, least, width, limit = (
        part.signs,
        part.prime,
        part.low,
        part.width,
        part.limit,
    )
    table, loads, used = scratch.table, scratch.loads, scratch.used
    if count == 0:
        key = base
        if signs == 2 and prime - key < key:
            key = prime - key
        if weight > cap or key < least or key - least >= width:
            return NONE
        return _act(mode, limit, key, weight, table, loads, used)
    # Arrays are taken out of their tuples once: each time costs an atomic count of
    # references.
    chosen, sums, weights = scratch.chosen, scratch.sums, scratch.weights
    values, sizes, lightest = numbers.values, numbers.weights, numbers.lightest
    ordered, literals, starts = numbers.ordered, numbers.literals, numbers.starts
    places = sizes.shape[0]
    shift = signs - 1
    depth = 0
    chosen[0], sums[0], weights[0] = first * signs, base, weight
    while depth >= 0:
        literal = chosen[depth]
        place = literal >> shift
        missing = count - depth
        if missing > 1 and place + missing <= places:
            heavier = weights[depth] + sizes[place]
            if heavier + (missing - 1) * lightest[place + 1] > cap:
                chosen[depth] += 1
                continue
            total = sums[depth] + values[literal]
            depth += 1
            sums[depth] = total - prime if total >= prime else total
            weights[depth] = heavier
            chosen[depth] = (place + 1) * signs
            continue
        # The last literal: those that complete the sum to one in the part stand side by
        # side.
        number = signs * (places - place) if missing == 1 else 0
        for side in range(signs if missing == 1 else 0):
            low = least if side == 0 else prime - least - width + _ONE
            start = sums[depth]
            sought = low - start if low >= start else low + (prime - start)
            at = np.int64(starts[place, sought >> _BUCKET_SHIFT])
            while at < number and ordered[place, at] < sought:
                at += 1
            for _ in range(number):
                if at >= number:
                    at = 0
                value = ordered[place, at]
                beyond = value - sought if value >= sought else value + (prime - sought)
                if beyond >= width:
                    break
                literal = np.int64(literals[place, at])
                total_weight = weights[depth] + sizes[literal >> shift]
                if total_weight <= cap:
                    key = low + beyond if side == 0 else prime - (low + beyond)
                    outcome = _act(mode, limit, key, total_weight, table, loads, used)
                    if outcome != NONE:
                        chosen[depth] = literal
                        return outcome
                at += 1
        depth -= 1
        if depth >= 0:
            chosen[depth] += 1
    return NONE


@compiled
def search(part, forward, backward, size, scratch, literals):
    """Search one part of the sums' range for a set of numbers that sums to zero.

    Args:
        part: The part and its rules.
        forward: The numbers by ascending weight.
        backward: Their negatives in the opposite order.
        size: Numbers in the set, at least 2.
        scratch: Memory.
        literals: int64 `[size]`, out: literals of the set (of `forward`).

    Returns:
        `NONE`, `FOUND` or `FULL` (the table is too small).
    """
    signs = part.signs
    places = forward.weights.shape[0]
    front = size // 2
    back = size - front
    scratch.table[:] = EMPTY
    scratch.used[0] = 0
    room = part.limit - forward.weights[:front].sum()
    for cut in range(front - 1, places - back + 1):
        value, weight = forward.values[cut * signs], forward.weights[cut]
        if cut >= front:
            outcome = _walk(
                PROBE, part, forward, cut + 1, back - 1, value, weight, room, scratch
            )
            if outcome == FOUND:
                literals[front] = cut * signs
                # a slice's assignment takes seconds to compile
                for i in range(1, back):
                    literals[front + i] = scratch.chosen[i - 1]
                _find_front(part, forward, backward, size, scratch, literals)
                return FOUND
        mirrored = places - 1 - cut
        value = backward.values[mirrored * signs]
        behind = forward.weights[cut + 1 : cut + 1 + back].sum()
        cap = part.limit - behind
        outcome = _walk(
            INSERT, part, backward, mirrored + 1, front - 1, value, weight, cap, scratch
        )
        if outcome == FULL:
            return FULL
    return NONE


@compiled
def _find_front(part, forward, backward, size, scratch, members):
    """Complete a last half whose sum was met in the table by its first half."""
    signs, prime = part.signs, part.prime
    places = forward.weights.shape[0]
    front = size // 2
    total, room = _ZERO, part.limit
    for i in range(front, size):
        total = (total + forward.values[members[i]]) % prime
        room -= forward.weights[members[i] >> (signs - 1)]
    key = total
    if signs == 2 and prime - key < key:
        key = prime - key
    exactly = Part(signs, prime, key, _ONE, part.limit)
    after = places - (members[front] >> (signs - 1))
    _walk(FIND, exactly, backward, after, front, _ZERO, 0, room, scratch)
    for i in range(front):
        literal = scratch.chosen[i]
        place = places - 1 - (literal >> (signs - 1))
        members[i] = place * signs + (literal & (signs - 1))
        total = (total + forward.values[members[i]]) % prime
    if total != _ZERO:  # it is the negative that was met
        for i in range(front):
            members[i] ^= signs - 1
