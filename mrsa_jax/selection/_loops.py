"""Compiled rollouts of blocks and of coins.

One trial after the other, whose state stays in cache.
Who is chosen is bit for bit what `_blocks` chooses from the same keys: the words are
those of `streams.client_words`, compared as `_ranking` compares them. Blocks are
handled as one unit each, in vectors of a multiple of `LANES`; clients and blocks beyond
the last are never available.

Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mrsa_jax._core.compiled import compiled
from mrsa_jax._core.streams import _CLIENTS, ALWAYS, Stream
from mrsa_jax._core.threefry_loops import WORDS, threefry, threefry_words

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
def _fold(k0, k1, step, by, x, y):
    """Fill the words of keys into which step, step + by, step + 2 by... are folded."""
    for j in range(x.size):
        x[j], y[j] = threefry(k0[j], k1[j], _ZERO, np.uint32(step + by * j))


@compiled
def _round_keys(k0, k1, j, chained, keys):
    """Return the words of the keys of round j of a trial.

    Of who is online, of who is chosen.
    Those of a whole tile of rounds are kept in keys, uint32[6, tile]; round -chained
    comes first.
    """
    # as many keys at once as a vector loop is worth, made again for each tile of rounds
    k = (j + chained) % _TILE
    if k == 0:
        for i in range(keys.shape[1]):
            keys[4, i], keys[5, i] = k0, k1
        _fold(
            keys[4],
            keys[5],
            j,
            1,
            keys[2],
            keys[3],
        )
        _fold(
            keys[2],
            keys[3],
            _AVAILABILITY,
            0,
            keys[0],
            keys[1],
        )
        _fold(
            keys[2],
            keys[3],
            _SELECTION,
            0,
            keys[4],
            keys[5],
        )
    return keys[0, k], keys[1, k], keys[4, k], keys[5, k]


@compiled
def _move_on(j, chained, limits, words, online):
    """Let clients come and go by their words of round j.

    An online client is 1, others are 0.
    """
    if chained and j >= 0:
        for i in range(words.size):
            leave, back = limits[0, i], limits[1, i]
            limit = leave if online[i] == 1 else back
            # a limit of `ALWAYS` stands for a chance of 1, which no word reaches
            online[i] ^= np.int32((words[i] < limit) | (limit == _ALWAYS))
    else:
        row = j % limits.shape[0]
        for i in range(words.size):
            limit = limits[row, i]
            online[i] = np.int32((words[i] >= limit) & (limit != _ALWAYS))


@compiled
def _score(online, size, blocks, counts, scores):
    """Fill scores with the counts of available blocks; return their number.

    Client c of block b has place c * blocks + b.
    """
    for i in range(blocks):
        scores[i] = counts[i] if online[i] == 1 else _TOP
    for c in range(1, size):
        members = online[c * blocks : (c + 1) * blocks]
        for i in range(blocks):
            scores[i] = scores[i] if members[i] == 1 else _TOP
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
    """Return a bound with a number of further different keys at or below it.

    Of fewer keys where the number is negative.
    """
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
    """Return the bound that `wanted` candidates' keys do not exceed, if any.

    As `_ranking` does, moves the ends between which it is, but only until a few steps
    from key to key are left.
    """
    low = np.int64(-1)
    high = np.int64(_LAST)
    below = np.int64(0)  # keys at or below `low`
    upto = np.int64(candidates)  # keys at or below `high`
    probe = low
    missing = np.int64(wanted)
    while abs(missing) > _NEAR and high - low > 1:
        share = (wanted - below + 0.5) / (upto - below + 1.0)
        step = np.int64((high - low) * share)
        probe = low + min(max(step, 1), high - low - 1)
        count = np.int64(_count_to(keys, np.int32(probe)))
        missing = wanted - count
        if missing > 0:
            low = probe
            below = count
        else:
            high = probe
            upto = count
    return _walk(keys, np.int32(probe), missing)


@compiled
def _take_smallest(keys, wanted, candidates, scores):
    """Mark as taken the `wanted` candidates with the smallest (key, index)."""
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
    """Mark as taken the `wanted` available ones with the least (count, key, index)."""
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
            count = 0
            for i in range(scores.size):
                # written over by the next one unless this unit is tied
                units[count] = i
                firsts[count] = every[i]
                count += scores[i] == least
            upto = (count + WORDS - 1) // WORDS * WORDS
            threefry_words(k0, k1, _FIRST_WORDS, firsts[:upto], words[:upto])
            keys[:] = _TOP
            for i in range(count):
                keys[units[i]] = min(np.int32(words[i] >> _ONE), _LAST)
            _take_smallest(keys, wanted, np.int64(tied), scores)
        wanted -= tied


@compiled
def _take_any(k0, k1, wanted, candidates, every, words, keys, scores):
    """Mark as taken those with the smallest (key, index), `wanted` of the available."""
    threefry_words(k0, k1, _SECOND_WORDS, every, words)
    for i in range(scores.size):
        key = min(np.int32(words[i] >> _ONE), _LAST)
        keys[i] = key if (scores[i] >= 0) & (scores[i] != _TOP) else _TOP
    _take_smallest(keys, wanted, candidates, scores)


@compiled
def _keep(scores, size, row):
    """Fill a row of the history with the clients of the blocks that are taken."""
    if size == 1:
        for i in range(row.size):
            row[i] = scores[i] == _TAKEN
        return
    for block in range(row.size // size):
        row[block * size : (block + 1) * size] = scores[block] == _TAKEN


@compiled
def _toss(k0, k1, order, chances, online, words, scores):
    """Mark as taken the clients online whose coin comes up."""
    threefry_words(k0, k1, _FIRST_WORDS, order, words)
    for i in range(scores.size):
        joins = (words[i] < chances[i]) | (chances[i] == _ALWAYS)
        scores[i] = _TAKEN if (online[i] == 1) & joins else _TOP


class Tables(NamedTuple):
    """Numbers of every client, up to a multiple of `WORDS`.

    Attributes:
        key: uint32[2], of the seed.
        order: uint32, the clients in the order in which words are drawn: the first ones
            of all blocks, then the second ones.
        limits: uint32[rows, clients in that order], a row for each round, the first one
            again after the last: a client is away when its word is below. Of chains
            three rows: for who of those online leaves, who of the others returns, and
            who is away before all rounds.
        chances: uint32, of each client: it joins when its word is below; `ALWAYS` for
            always. None where whole blocks are chosen.
    """

    key: np.ndarray
    order: np.ndarray
    limits: np.ndarray
    chances: np.ndarray


class Sizes(NamedTuple):
    """Sizes of a rollout.

    Attributes:
        first: Number of the first trial.
        rounds: J.
        chained: 1 if who is online depends on the round before, else 0.
        block_size: Clients of a block; 1 where each joins by a coin.
        wanted: Blocks of a cohort.
        by_use: How many of them are chosen by least use.
    """

    first: int
    rounds: int
    chained: int
    block_size: int
    wanted: int
    by_use: int


@compiled
def play(tables, sizes, totals, history):
    """Play all rounds of trials.

    Args:
        tables: `Tables`.
        sizes: `Sizes`.
        totals: int32[B, N], filled with the rounds of each client.
        history: bool[B, J, N] of zeros, filled with who took part; or [B, 0, N].
    """
    # One trial after the other: its counts stay in cache, and keys are made for 64
    # rounds at once. A round scores the blocks whose clients are all there by how often
    # they were used, takes the least used, ties by the smallest random key, and the
    # rest of the cohort by keys alone.
    key, order, limits, chances = tables
    first, rounds, chained, size, wanted, by_use = sizes
    # clients behind the last whole block are in none and are never asked
    blocks = totals.shape[1] // size
    width = (blocks + LANES - 1) // LANES * LANES
    words = np.empty(order.size, np.uint32)
    online = np.empty(order.size, np.int32)
    # the first clients of the blocks; behind them what counts for nothing
    every = order[: (blocks + WORDS - 1) // WORDS * WORDS]
    others = np.empty(every.size, np.uint32)
    firsts = np.empty(every.size + 1, np.uint32)
    units = np.empty(width + 1, np.uint32)
    scores = np.empty(width, np.int32)
    ranks = np.empty(width, np.int32)
    counts = np.empty(width, np.int32)
    keys = np.empty((6, _TILE if rounds > _TILE else rounds + chained), np.uint32)
    scores[:] = _TOP
    for trial in range(totals.shape[0]):
        k0, k1 = threefry(key[0], key[1], _ZERO, np.uint32(first + trial))
        counts[:] = np.int32(0)
        for j in range(-chained, rounds):
            a0, a1, s0, s1 = _round_keys(k0, k1, j, chained, keys)
            threefry_words(a0, a1, _FIRST_WORDS, order, words)
            _move_on(j, chained, limits, words, online)
            if j < 0:
                continue
            if chances.size:
                _toss(s0, s1, order, chances, online, words, scores)
            else:
                able = _score(online, size, blocks, counts, scores)
                if able < wanted:
                    continue
                _take_least_used(
                    s0, s1, by_use, every, units, firsts, others, ranks, scores
                )
                if wanted > by_use:
                    rest = wanted - by_use
                    _take_any(
                        s0,
                        s1,
                        rest,
                        able - by_use,
                        every,
                        others,
                        ranks,
                        scores,
                    )
            for i in range(width):
                counts[i] = np.int32(counts[i] + np.int32(scores[i] == _TAKEN))
            if history.shape[1]:
                _keep(scores, size, history[trial, j])
        for i in range(totals.shape[1]):
            block = i // size
            totals[trial, i] = counts[block] if block < blocks else 0
