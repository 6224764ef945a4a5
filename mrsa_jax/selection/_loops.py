"""Compiled rollouts of blocks and of coins: one trial after the other, whose state stays in cache.

Who is chosen is bit for bit what `_blocks` chooses from the same keys: the words are those of
`streams.client_words`, compared as `_ranking` compares them. Blocks are handled as one unit each,
in vectors of a multiple of `LANES`; clients and blocks beyond the last are never available.

Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled
from mrsa_jax._core.streams import _CLIENTS, ALWAYS, Stream
from mrsa_jax._core.threefry_loops import threefry, threefry_words

LANES = 16
_TILE = 64  # rounds whose keys are made together
_ALWAYS = np.uint32(ALWAYS)
_FIRST_WORDS, _SECOND_WORDS = np.uint32(_CLIENTS), np.uint32(_CLIENTS + 1)
_AVAILABILITY, _SELECTION = int(Stream.AVAILABILITY), int(Stream.SELECTION)
_TOP = np.int32(2**31 - 1)  # the score and the key of who is no candidate
_LAST = np.int32(2**31 - 2)  # the largest key
_TAKEN = np.int32(-1)  # the score of who is chosen
_ZERO, _ONE = np.uint32(0), np.uint32(1)
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
            _fill(keys, _TOP)
            for i in range(found):
                keys[units[i]] = min(np.int32(words[i] >> _ONE), _LAST)
            _take_smallest(keys, wanted, np.int64(tied), scores)
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
def _fold(k0, k1, step, by, x, y):
    """Fill the words of keys into which step, step + by, step + 2 by... are folded."""
    for j in range(x.size):
        x[j], y[j] = threefry(k0[j], k1[j], _ZERO, np.uint32(step + by * j))


@compiled
def _fill(values, value):
    for i in range(values.size):
        values[i] = value


@compiled
def _count(scores, counts):
    for i in range(scores.size):
        counts[i] = np.int32(counts[i] + np.int32(scores[i] == _TAKEN))


@compiled
def _keep(scores, size, row):
    """Fill a row of the history with the clients of the blocks that are taken."""
    if size == 1:
        for i in range(row.size):
            row[i] = scores[i] == _TAKEN
        return
    for block in range(row.size // size):
        for i in range(block * size, (block + 1) * size):
            row[i] = scores[block] == _TAKEN


@compiled
def play_coins(key, first, order, limits, chances, rounds, totals, history):
    """Play all rounds of trials in which each available client joins by a separate coin.

    Args:
        key: As for `play_blocks`.
        first: As there.
        order: uint32, the clients; up to a multiple of `LANES`.
        limits: uint32, of each, as there.
        chances: uint32, of each: a client joins when its word is below; `ALWAYS` for always.
        rounds: J.
        totals: As there.
        history: As there.
    """
    words, others = np.empty(limits.size, np.uint32), np.empty(limits.size, np.uint32)
    scores, counts = np.empty(limits.size, np.int32), np.empty(limits.size, np.int32)
    trials = totals.shape[0]
    x0, x1 = np.empty(max(trials, rounds), np.uint32), np.empty(max(trials, rounds), np.uint32)
    k0, k1 = np.empty(trials, np.uint32), np.empty(trials, np.uint32)
    r0, r1 = np.empty(rounds, np.uint32), np.empty(rounds, np.uint32)
    a0, a1 = np.empty(rounds, np.uint32), np.empty(rounds, np.uint32)
    s0, s1 = np.empty(rounds, np.uint32), np.empty(rounds, np.uint32)
    _fill(x0, key[0])
    _fill(x1, key[1])
    _fold(x0, x1, first, 1, k0, k1)
    for trial in range(trials):
        _fill(counts, np.int32(0))
        _fill(x0, k0[trial])
        _fill(x1, k1[trial])
        _fold(x0, x1, 0, 1, r0, r1)
        _fold(r0, r1, _AVAILABILITY, 0, a0, a1)
        _fold(r0, r1, _SELECTION, 0, s0, s1)
        for j in range(rounds):
            threefry_words(a0[j], a1[j], _FIRST_WORDS, 0, order, words)
            threefry_words(s0[j], s1[j], _FIRST_WORDS, 0, order, others)
            for i in range(scores.size):
                online = (words[i] >= limits[i]) & (limits[i] != _ALWAYS)
                joins = (others[i] < chances[i]) | (chances[i] == _ALWAYS)
                scores[i] = _TAKEN if online & joins else _TOP
            _count(scores, counts)
            if history.shape[1]:
                _keep(scores, 1, history[trial, j])
        for i in range(totals.shape[1]):
            totals[trial, i] = counts[i]


@compiled
def play_blocks(key, first, order, limits, size, wanted, by_use, rounds, totals, history):
    """Play all rounds of trials.

    Args:
        key: uint32[2], of the seed.
        first: Number of the first trial.
        order: uint32, the clients in the order in which words are drawn: the first ones of all
            blocks, then the second ones; up to a multiple of `LANES`.
        limits: uint32, in that order: a client is away when its word is below; `ALWAYS` beyond the
            clients.
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
    every = order[:width]  # the first clients of the blocks; behind them what counts for nothing
    units, firsts = np.empty(width + 1, np.uint32), np.empty(width + 1, np.uint32)
    keys, counts = np.empty(width, np.int32), np.empty(width, np.int32)
    scores, trials, tile = np.empty(width, np.int32), totals.shape[0], min(rounds, _TILE)
    # words of keys: the seed's or a trial's, the trials' or the rounds', and those of two streams
    x0, x1 = np.empty(max(trials, tile), np.uint32), np.empty(max(trials, tile), np.uint32)
    k0, k1 = np.empty(trials, np.uint32), np.empty(trials, np.uint32)
    r0, r1 = np.empty(tile, np.uint32), np.empty(tile, np.uint32)
    a0, a1 = np.empty(tile, np.uint32), np.empty(tile, np.uint32)
    s0, s1 = np.empty(tile, np.uint32), np.empty(tile, np.uint32)
    _fill(scores, _TOP)
    _fill(x0, key[0])
    _fill(x1, key[1])
    _fold(x0, x1, first, 1, k0, k1)
    for trial in range(trials):
        _fill(counts, np.int32(0))
        _fill(x0, k0[trial])
        _fill(x1, k1[trial])
        for j in range(rounds):
            k = j % _TILE
            if k == 0:
                _fold(x0, x1, j, 1, r0, r1)
                _fold(r0, r1, _AVAILABILITY, 0, a0, a1)
                _fold(r0, r1, _SELECTION, 0, s0, s1)
            threefry_words(a0[k], a1[k], _FIRST_WORDS, 0, order, words)
            able = _score(words, limits, size, blocks, counts, scores)
            if able < wanted:
                continue
            _take_least_used(s0[k], s1[k], by_use, every, units, firsts, others, keys, scores)
            if wanted > by_use:
                _take_any(s0[k], s1[k], wanted - by_use, able - by_use, every, others, keys, scores)
            _count(scores, counts)
            if history.shape[1]:
                _keep(scores, size, history[trial, j])
        for i in range(totals.shape[1]):
            block = i // size
            totals[trial, i] = counts[block] if block < blocks else 0
