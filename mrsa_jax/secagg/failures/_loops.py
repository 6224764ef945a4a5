"""Compiled rounds of CCESA at the fidelity of sets.

Random graph, losses, Theorems 1 and 2.
Import inside functions only (see `_core.compiled`). Sets of clients are 64-bit words,
client i at bit i % 64 of word i // 64; of an adjacency matrix, word w of row i is
`rows[w, i]`. The random words are those of `streams.pair_words` and `client_words`, so
a round is bit for bit the one that `graphs.erdos_renyi` and
`availability.independent_steps` draw from the same keys.
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax._core.streams import _CLIENTS, _PAIRS, ALWAYS
from mrsa_jax._core.threefry_loops import threefry_words
from mrsa_jax.secagg.failures._verdicts import (
    DISCONNECTED,
    NO_SUM,
    NOT_PRIVATE,
    PLANTED_FIRST,
    UNMASKABLE,
    UNRELIABLE,
)

_ALWAYS = np.uint32(ALWAYS)
_CLIENT_WORDS, _PAIR_WORDS = np.uint32(_CLIENTS), np.uint32(_PAIRS)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_AT_ONCE = 2048  # words that stay in cache


@compiled
def _num_bits(word):
    word = word - ((word >> _ONE) & np.uint64(0x5555555555555555))
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def _has(members, client):
    return (members[client >> 6] >> np.uint64(client & 63)) & _ONE != _ZERO


@compiled
def _draw_survivors(key, limits, places, words, alive):
    """Fill V0 to V4.

    Client i has left by step s when its word is below limits[s - 1, i].
    """
    clients = limits.shape[1]
    threefry_words(key[0], key[1], _CLIENT_WORDS, 0, places[:clients], words[:clients])
    alive[:] = _ZERO
    for i in range(clients):
        place, bit = i >> 6, _ONE << np.uint64(i & 63)
        alive[0, place] |= bit
        for step in range(4):
            limit = limits[step, i]
            if words[i] >= limit and limit != _ALWAYS:
                alive[step + 1, place] |= bit


@compiled
def _draw_graph(key, limit, places, words, rows):
    """Fill an Erdős–Rényi graph; i and j are joined when their word is below the limit."""
    clients = rows.shape[1]
    rows[:] = _ZERO
    if limit == np.uint32(0):
        return
    first, stop = 0, 0  # the words that are drawn: those of several j at once
    for j in range(1, clients):
        # the word of i <= j stands at j (j + 1) / 2 + i
        row = j * (j + 1) // 2
        if row + j > stop:
            first, stop = row, min(row + words.size, (clients * (clients + 1)) // 2)
            threefry_words(
                key[0],
                key[1],
                _PAIR_WORDS,
                first,
                places[: stop - first],
                words[: stop - first],
            )
        own = words[row - first : row - first + j]
        if limit == _ALWAYS:
            own[:] = np.uint32(0)
        place, shift = j >> 6, np.uint64(j & 63)
        column = rows[place]
        for i in range(j):
            column[i] |= np.uint64(own[i] < limit) << shift
        for base in range(0, j, 64):
            bits = _ZERO
            for i in range(base, min(base + 64, j)):
                bits |= np.uint64(own[i] < limit) << np.uint64(i - base)
            rows[base >> 6, j] |= bits


@compiled
def _places(clients):
    """Return counters from 0, as many as words are drawn at once."""
    return np.arange(max(clients, _AT_ONCE)).astype(np.uint32)


@compiled
def _flood(rows, first, alive, reached, frontier, around):
    """Fill `reached` with the component of `first` in the graph on `alive`.

    `around` is filled with all clients, dead or alive, that its members are joined to.
    """
    width = rows.shape[0]
    reached[:] = _ZERO
    frontier[:] = _ZERO
    around[:] = _ZERO
    frontier[first >> 6] |= _ONE << np.uint64(first & 63)
    growing = True
    while growing:
        for w in range(width):
            reached[w] |= frontier[w]
        for w in range(width):
            bits = frontier[w]
            i = w << 6
            while bits != _ZERO:
                if bits & _ONE != _ZERO:
                    for v in range(width):
                        around[v] |= rows[v, i]
                bits >>= _ONE
                i += 1
        growing = False
        for w in range(width):
            frontier[w] = around[w] & alive[w] & ~reached[w]
            growing |= frontier[w] != _ZERO


@compiled
def _num_holders(rows, here, client):
    """Return how many of those who hold shares of a client's secrets are among `here`."""
    count = np.int64(_has(here, client))
    for w in range(rows.shape[0]):
        count += _num_bits(rows[w, client] & here[w])
    return count


@compiled
def _ends_without_a_sum(rows, alive, thresholds, sends, answers):
    """Return whether the server learns no sum, as clients refuse (`heeded`).

    `sends` and `answers` are filled with V3 and V4 less those who refuse.
    """
    clients = rows.shape[1]
    sends[:] = alive[3]
    for i in range(clients):
        limit = np.int64(thresholds[i])
        is_short = (
            _num_holders(rows, alive[2], i) < limit <= _num_holders(rows, alive[1], i)
        )
        if _has(alive[3], i) and is_short:
            sends[i >> 6] &= ~(_ONE << np.uint64(i & 63))
    answers[:] = alive[4] & sends
    num_summed = 0
    for i in range(clients):
        num_summed += _has(sends, i)
        if _has(answers, i) and _num_holders(rows, sends, i) < np.int64(thresholds[i]):
            answers[i >> 6] &= ~(_ONE << np.uint64(i & 63))
    if num_summed < FEWEST_IN_A_SUM:
        return True
    for i in range(clients):
        if _num_holders(rows, answers, i) >= np.int64(thresholds[i]):
            continue
        is_needed = _has(sends, i)
        if _has(alive[2], i):
            for w in range(rows.shape[0]):
                is_needed |= rows[w, i] & sends[w] != _ZERO
        if is_needed:
            return True
    return False


@compiled
def judge_round(rows, alive, thresholds, sets):
    """Return one round's byte, by Theorems 1 and 2, and whose needed secret is lost first, or -1.

    `sets` is uint64[5, words] to work in.
    """
    width, clients = rows.shape
    silent, reached, frontier, around, left = (
        sets[0],
        sets[1],
        sets[2],
        sets[3],
        sets[4],
    )
    silent[:] = _ZERO
    verdict, first_lost, num_summed = 0, -1, 0
    for w in range(width):
        num_summed += _num_bits(alive[3, w])
    for i in range(clients):
        degree, shares, summed = 0, 0, _ZERO
        for w in range(width):
            degree += _num_bits(rows[w, i])
            shares += _num_bits(rows[w, i] & alive[4, w])
            summed |= rows[w, i] & alive[3, w]
        if 2 * np.int64(thresholds[i]) <= degree + 1:
            verdict |= UNMASKABLE
        if shares + np.int64(_has(alive[4], i)) < np.int64(thresholds[i]):
            silent[i >> 6] |= _ONE << np.uint64(i & 63)
            if _has(alive[3], i) or (_has(alive[2], i) and summed != _ZERO):
                verdict |= UNRELIABLE
                first_lost = i if first_lost < 0 else first_lost
    ends_without = num_summed < FEWEST_IN_A_SUM
    if verdict & UNRELIABLE:  # clients who refuse a list change no other rounds
        ends_without = _ends_without_a_sum(rows, alive, thresholds, reached, around)
    if ends_without:
        verdict |= NO_SUM
    parts = 0
    leaks = False
    left[:] = alive[3]
    for first in range(clients):
        if not _has(left, first):
            continue
        # the component of `first` in G_3, and all that its members are joined to
        parts += 1
        _flood(rows, first, left, reached, frontier, around)
        protected = False
        for w in range(width):
            left[w] &= ~reached[w]
            protected |= (reached[w] | (around[w] & alive[2, w])) & silent[w] != _ZERO
        leaks |= not protected
    if parts > 1:
        verdict |= DISCONNECTED
        if leaks:
            verdict |= NOT_PRIVATE
    return verdict, first_lost


@compiled
def judge_rounds(graph_keys, step_keys, limit, step_limits, thresholds, verdicts, sums):
    """Draw and judge one round for each key.

    Args:
        graph_keys: uint32[B, 2], of the graphs.
        step_keys: uint32[B, 2], of the losses.
        limit: uint32, the threshold of an edge's word.
        step_limits: uint32[4, n], those of a client's word at each step.
        thresholds: int32[n].
        verdicts: uint8[B], filled with the rounds' bytes.
        sums: int32[B], filled with |V3|.
    """
    clients = thresholds.size
    width = (clients + 63) >> 6
    places = _places(clients)
    words = np.empty(places.size, np.uint32)
    rows = np.empty((width, clients), np.uint64)
    alive = np.empty((5, width), np.uint64)
    sets = np.empty((5, width), np.uint64)
    for trial in range(graph_keys.shape[0]):
        _draw_survivors(step_keys[trial], step_limits, places, words, alive)
        _draw_graph(graph_keys[trial], limit, places, words, rows)
        verdicts[trial] = judge_round(rows, alive, thresholds, sets)[0]
        count = 0
        for w in range(width):
            count += _num_bits(alive[3, w])
        sums[trial] = count


@compiled
def _is_first_part(rows, alive, cut, sets):
    """Return whether a cut of V3 parts its first client's component from all the rest."""
    width, clients = rows.shape
    for first in range(clients):
        if not _has(alive[3], first):
            continue
        _flood(rows, first, alive[3], sets[1], sets[2], sets[3])
        within = _has(cut, first)
        for w in range(width):
            side = cut[w] & alive[3, w] if within else alive[3, w] & ~cut[w]
            if side != sets[1, w]:
                return False
        return True
    return False


@compiled
def _plant(rows, alive, cut, client, given):
    """Take away a cut's edges, and replace one client's row."""
    width, clients = rows.shape
    for i in range(clients):
        if _has(alive[3], i):
            within = _has(cut, i)
            for w in range(width):
                other = alive[3, w] & ~cut[w] if within else cut[w]
                rows[w, i] &= ~other
    if client >= 0:
        bit = _ONE << np.uint64(client & 63)
        for i in range(clients):
            rows[client >> 6, i] &= ~bit
            if _has(given, i):
                rows[client >> 6, i] |= bit
        for w in range(width):
            rows[w, client] = given[w]


@compiled
def judge_planted(graph_keys, limit, alive, cuts, planted, given, thresholds, verdicts):
    """Judge rounds of which all but the free edges is given (`_judging.Planted`).

    Args:
        graph_keys: uint32[B, 2], of the graphs.
        limit: uint32, the threshold of an edge's word.
        alive: uint64[B, 5, words], V0 to V4.
        cuts: uint64[B, words], parts of V3 that lose their edges to its rest; empty for
            none.
        planted: int32[B], the clients whose rows are given, or -1.
        given: uint64[B, words], those rows.
        thresholds: int32[n].
        verdicts: uint8[B], filled with the rounds' bytes.
    """
    clients = thresholds.size
    width = (clients + 63) >> 6
    places = _places(clients)
    words = np.empty(places.size, np.uint32)
    rows = np.empty((width, clients), np.uint64)
    sets = np.empty((5, width), np.uint64)
    for trial in range(graph_keys.shape[0]):
        _draw_graph(graph_keys[trial], limit, places, words, rows)
        _plant(rows, alive[trial], cuts[trial], planted[trial], given[trial])
        byte, first_lost = judge_round(rows, alive[trial], thresholds, sets)
        if planted[trial] >= 0:
            first = first_lost == planted[trial]
        else:
            first = _is_first_part(rows, alive[trial], cuts[trial], sets)
        verdicts[trial] = byte | (PLANTED_FIRST if first else 0)
