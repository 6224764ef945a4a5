"""Compiled rollouts of block selection: one trial after the other, whose state stays in cache.

Who is chosen is bit for bit what `_blocks` chooses from the same keys: the words are those of
`streams.client_words`, compared as `_ranking` compares them. Blocks are handled as one unit each,
in vectors of a multiple of `LANES`; clients and blocks beyond the last are never available.

Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled
from mrsa_jax._core.streams import _CLIENTS, ALWAYS, Stream
from mrsa_jax._core.threefry_loops import fold_keys, threefry_words

LANES = 16
_TILE = 64  # rounds whose keys are made together
_ALWAYS = np.uint32(ALWAYS)
_FIRST_WORDS, _SECOND_WORDS = np.uint32(_CLIENTS), np.uint32(_CLIENTS + 1)
_AVAILABILITY, _SELECTION = np.uint32(Stream.AVAILABILITY), np.uint32(Stream.SELECTION)
_TOP = np.int32(2**31 - 1)  # the score and the key of who is no candidate
_LAST = np.int32(2**31 - 2)  # the largest key
_TAKEN = np.int32(-1)  # the score of who is chosen
_ONE = np.uint32(1)
_NEAR = 4  # keys, from which on walking takes fewest passes


@compiled
def _score(words, limits, size, blocks, counts, scores):
    """Fill scores with the counts of available blocks; return their number.

    Client c of block b has place c * blocks + b among words and limits.
    """
    for i in range(blocks):
        online = (words[i] >= limits[i]) & (limits[i] != _ALWAYS)
        scores[i] = counts[i] if online else _TOP
    for c in range(1, size):
        own, bounds = words[c * blocks : (c + 1) * blocks], limits[c * blocks : (c + 1) * blocks]
        for i in range(blocks):
            online = (own[i] >= bounds[i]) & (bounds[i] != _ALWAYS)
            scores[i] = scores[i] if online else _TOP
    able = np.int32(0)
    for i in range(blocks):
        able = np.int32(able + np.int32(scores[i] != _TOP))
    return able


@compiled
def _by_place(limits, size, blocks):
    """Return the clients in the order in which words are drawn, and their limits in that order."""
    order, own = np.zeros(limits.size, np.uint32), np.full(limits.size, _ALWAYS)
    for block in range(blocks):
        for c in range(size):
            order[c * blocks + block] = block * size + c
            own[c * blocks + block] = limits[block * size + c]
    return order, own


@compiled
def _count_to(keys, bound):
    count = np.int32(0)
    for i in range(keys.size):
        count = np.int32(count + np.int32(keys[i] <= bound))
    return count


@compiled
def _walk(keys, bound, steps):
    """Return a bound with so many more different keys at or below it, or fewer if negative."""
    for _ in range(steps):
        above = _TOP
        for i in range(keys.size):
            above = min(above, keys[i] if keys[i] > bound else _TOP)
        bound = above
    for _ in range(-steps):
        within = _TAKEN
        for i in range(keys.size):
            within = max(within, keys[i] if keys[i] <= bound else _TAKEN)
        bound = np.int32(within - np.int32(1))
    return bound


@compiled
def _bound(keys, wanted, candidates):
    """Return what `wanted` of the candidates' keys are at most, if some number is.

    As `_ranking` does, moves the ends between which it is, but only until a few steps from key to
    key are left.
    """
    low, high, below, upto = np.int64(-1), np.int64(_LAST), np.int64(0), np.int64(candidates)
    probe, missing = low, np.int64(wanted)
    while abs(missing) > _NEAR and high - low > 1:
        share = (wanted - below + 0.5) / (upto - below + 1.0)
        step = np.int64((high - low) * share)
        probe = low + min(max(step, 1), high - low - 1)
        count = np.int64(_count_to(keys, np.int32(probe)))
        missing = wanted - count
        if missing > 0:
            low, below = probe, count
        else:
            high, upto = probe, count
    return _walk(keys, np.int32(probe), missing)


@compiled
def _take_smallest(keys, wanted, candidates, scores):
    """Mark as taken those with the smallest (key, index), `wanted` of the candidates."""
    bound = _bound(keys, wanted, candidates)
    missing = wanted - _count_to(keys, bound)
    if missing != 0:  # equal keys
        low, high = np.int64(-1), np.int64(_LAST)
        while high - low > 1:
            middle = (low + high) // 2
            if _count_to(keys, np.int32(middle)) < wanted:
                low = middle
            else:
                high = middle
        bound = np.int32(low)
        missing = wanted - _count_to(keys, bound)
    for i in range(keys.size):
        scores[i] = _TAKEN if keys[i] <= bound else scores[i]
    for i in range(keys.size if missing else 0):
        if missing > 0 and keys[i] == bound + 1:
            scores[i] = _TAKEN
            missing -= 1


@compiled
def _take_least_used(k0, k1, wanted, every, units, firsts, words, keys, scores):
    """Mark as taken those with the smallest (count, key, index), `wanted` of the available."""
    while wanted > 0:
        least = _TOP
        for i in range(scores.size):
            least = min(least, _TOP if scores[i] == _TAKEN else scores[i])
        tied = np.int32(0)
        for i in range(scores.size):
            tied = np.int32(tied + np.int32(scores[i] == least))
        if tied <= wanted:
            for i in range(scores.size):
                scores[i] = _TAKEN if scores[i] == least else scores[i]
        else:
            found = 0
            for i in range(scores.size):
                units[found], firsts[found] = i, every[i]
                found += scores[i] == least
            upto = (found + LANES - 1) // LANES * LANES
            threefry_words(k0, k1, _FIRST_WORDS, 0, firsts[:upto], words[:upto])
            keys[:] = _TOP
            for i in range(found):
                keys[units[i]] = min(np.int32(words[i] >> _ONE), _LAST)
            _take_smallest(keys, wanted, tied, scores)
        wanted -= tied


@compiled
def _take_any(k0, k1, wanted, candidates, every, words, keys, scores):
    """Mark as taken those with the smallest (key, index), `wanted` of the available."""
    threefry_words(k0, k1, _SECOND_WORDS, 0, every, words)
    for i in range(scores.size):
        key = min(np.int32(words[i] >> _ONE), _LAST)
        keys[i] = key if (scores[i] >= 0) & (scores[i] != _TOP) else _TOP
    _take_smallest(keys, wanted, candidates, scores)


@compiled
def _fold_rounds(k0, k1, first, keys):
    """Fill keys `[6, rounds]`: the rounds' own, of their availability and of their selection."""
    own = np.empty((3, keys.shape[1]), np.uint32)
    own[0], own[1] = k0, k1
    for j in range(keys.shape[1]):
        own[2, j] = first + j
    fold_keys(own[0], own[1], own[2], keys[0], keys[1])
    own[2] = _AVAILABILITY
    fold_keys(keys[0], keys[1], own[2], keys[2], keys[3])
    own[2] = _SELECTION
    fold_keys(keys[0], keys[1], own[2], keys[4], keys[5])


@compiled
def _finish(size, counts, scores, row):
    """Add the round to the counts, and to the history if one is kept."""
    for i in range(scores.size):
        counts[i] = np.int32(counts[i] + np.int32(scores[i] == _TAKEN))
    if size == 1:
        for i in range(row.size):
            row[i] = scores[i] == _TAKEN
        return
    for block in range(row.size // size):
        if scores[block] == _TAKEN:
            row[block * size : (block + 1) * size] = True


@compiled
def play_blocks(key, first, limits, size, wanted, by_use, rounds, totals, history):
    """Play all rounds of trials.

    Args:
        key: uint32[2], of the seed.
        first: Number of the first trial.
        limits: uint32, a client is away when its word is below; `ALWAYS` beyond the clients, up to
            a multiple of `LANES`.
        size: Clients of a block.
        wanted: Blocks of a cohort.
        by_use: How many of them are chosen by least use.
        rounds: J.
        totals: int32[B, N], filled with the rounds of each client.
        history: bool[B, J, N] of zeros, filled with who took part; or [B, 0, N].
    """
    # One trial after the other: its counts stay in cache, and keys are made for 64 rounds at once.
    # A round scores the blocks whose clients are all there by how often they were used, takes the
    # least used, ties by the smallest random key, and the rest of the cohort by keys alone.
    blocks = totals.shape[1] // size
    width = (blocks + LANES - 1) // LANES * LANES
    words, others = np.empty(limits.size, np.uint32), np.empty(width, np.uint32)
    order, bounds = _by_place(limits, size, blocks)
    every = np.arange(width).astype(np.uint32) * np.uint32(size)  # first clients of the blocks
    units, firsts = np.zeros(width + 1, np.uint32), np.zeros(width + 1, np.uint32)
    keys, counts = np.empty(width, np.int32), np.empty(width, np.int32)
    scores = np.full(width, _TOP, np.int32)
    folded = np.empty((6, min(rounds, _TILE)), np.uint32)
    unkept, own = np.empty(0, np.bool_), np.empty((5, 1), np.uint32)
    for trial in range(totals.shape[0]):
        counts[:] = 0
        own[0], own[1], own[2] = key[0], key[1], first + trial
        fold_keys(own[0], own[1], own[2], own[3], own[4])
        for j in range(rounds):
            k = j % _TILE
            if k == 0:
                _fold_rounds(own[3, 0], own[4, 0], j, folded)
            threefry_words(folded[2, k], folded[3, k], _FIRST_WORDS, 0, order, words)
            able = _score(words, bounds, size, blocks, counts, scores)
            if able < wanted:
                continue
            _take_least_used(folded[4, k], folded[5, k], by_use, every, units, firsts, others,
                             keys, scores)  # fmt: skip
            if wanted > by_use:
                _take_any(folded[4, k], folded[5, k], wanted - by_use, able - by_use, every,
                          others, keys, scores)  # fmt: skip
            row = history[trial, j] if history.shape[1] else unkept
            _finish(size, counts, scores, row)
        for i in range(totals.shape[1]):
            block = i // size
            totals[trial, i] = counts[block] if block < blocks else 0
