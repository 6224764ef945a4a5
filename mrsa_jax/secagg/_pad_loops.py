"""Compiled loops that pad and sum one block of a plan on the CPU.

Import inside functions only (see `_core.compiled`). Coordinates go tile by tile, so
that a keystream is made in registers and added to rows that stay in cache; inputs are
transposed once, to the order in which a keystream's words come, which spares
transposing every keystream.
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.chacha20_loops import (
    LANES,
    TILE,
    keystream_tile,
    partly_reduced_tile,
    reduce_tile,
)
from mrsa_jax._core.compiled import compiled

# `modulus` is () for 2^b, whose sums wrap by themselves in uint32. Of any other R it is
# (R 2^32,): sums are kept in uint64 below that, since one product brings a pair of
# words there, and are reduced to R once a vector, not once a pad.


@compiled
def _add(row, pad, modulus):
    if len(modulus) == 0:
        for i in range(row.shape[0]):
            row[i] += pad[i]
    else:
        for i in range(row.shape[0]):
            more = row[i] + pad[i]
            row[i] = min(more, more - modulus[0])


@compiled
def _subtract(row, pad, modulus):
    if len(modulus) == 0:
        for i in range(row.shape[0]):
            row[i] -= pad[i]
    else:
        for i in range(row.shape[0]):
            less = row[i] - pad[i]
            row[i] = min(less, less + modulus[0])


@compiled
def _pad(seed, nonce, counter, words, pad, modulus):
    if len(modulus) == 0:
        keystream_tile(seed, nonce, counter, pad)
    else:
        keystream_tile(seed, nonce, counter, words)
        partly_reduced_tile(words, modulus[0], pad)


@compiled
def _sums(count, size, modulus):
    if len(modulus) == 0:
        return np.empty((count, size), np.uint32)
    return np.empty((count, size), np.uint64)


@compiled
def _residues(row, words, modulus):
    if len(modulus) == 0:
        return row
    reduce_tile(row, modulus[0], words)
    return words


# A full tile is transposed by loops whose ends the compiler knows: 0.1 microseconds,
# where a place asked for one by one costs 1.2 in all, a third of a round of few
# clients.


@compiled
def _load_full(row, values, rows):
    for w in range(rows):
        for b in range(LANES):
            row[w * LANES + b] = values[b * rows + w]


@compiled
def _store_full(values, row, rows, low_bits):
    for w in range(rows):
        for b in range(LANES):
            values[b * rows + w] = row[w * LANES + b] & low_bits


@compiled
def _load(row, values, first, width, rows):
    """Transpose coordinates into the order of a tile, zeros beyond the last."""
    if width == 16 * LANES:
        _load_full(row, values[first : first + width], 16)
    elif rows == 8 and width == 8 * LANES:
        _load_full(row, values[first : first + width], 8)
    else:
        for b in range(LANES):
            for w in range(rows):
                place = b * rows + w
                row[w * LANES + b] = (
                    values[first + place] if place < width else np.uint32(0)
                )


@compiled
def _store(values, first, width, rows, row, low_bits):
    if width == 16 * LANES:
        _store_full(values[first : first + width], row, 16, low_bits)
    elif rows == 8 and width == 8 * LANES:
        _store_full(values[first : first + width], row, 8, low_bits)
    else:
        for b in range(LANES):
            for w in range(rows):
                place = b * rows + w
                if place < width:
                    values[first + place] = row[w * LANES + b] & low_bits


@compiled
def pad_tiles(
    inputs,
    start,
    stop,
    members,
    here,
    edges,
    pair_seed,
    self_seed,
    nonces,
    modulus,
    low_bits,
    padded,
    total,
    first,
    last,
):
    """Pad the inputs of some tiles of a block and sum them as the server does.

    Args: `inputs` uint32[n, d]; the block's coordinates and `members` int32[m]; `here`
    bool[m], whose input arrives (V3); `edges` int32[E, 2], places of who adds and who
    subtracts a pair's pad, both in V2 and one of them in V3, and their seeds; `modulus`
    () for 2^b and then `low_bits`, else (R 2^32,); tiles from `first` up to `last`. Writes
    `padded` uint32[n, d] (none if it has no rows) and `total` uint32[stop - start].
    """
    rows = 16 if len(modulus) == 0 else 8
    size = rows * LANES
    count = members.shape[0]
    table = _sums(count, size, modulus)
    removed, pad = _sums(1, size, modulus)[0], _sums(1, size, modulus)[0]
    words = np.empty(TILE, np.uint32)
    for tile in range(first, last):
        offset = start + tile * size
        width = min(size, stop - offset)
        counter = np.uint32(tile * LANES)
        removed[:] = 0
        for i in range(count):
            if here[i]:
                _load(table[i], inputs[members[i]], offset, width, rows)
        for e in range(edges.shape[0]):
            _pad(pair_seed[e], nonces[0], counter, words, pad, modulus)
            adds, subtracts = edges[e, 0], edges[e, 1]
            if here[adds]:
                _add(table[adds], pad, modulus)
            else:
                _subtract(removed, pad, modulus)
            if here[subtracts]:
                _subtract(table[subtracts], pad, modulus)
            else:
                _add(removed, pad, modulus)
        for i in range(count):
            if here[i]:
                _pad(self_seed[i], nonces[1], counter, words, pad, modulus)
                _add(table[i], pad, modulus)
                _add(removed, pad, modulus)
        pad[:] = 0
        for i in range(count):
            if here[i]:
                _add(pad, table[i], modulus)
                if padded.shape[0] > 0:
                    sent = _residues(table[i], words, modulus)
                    _store(padded[members[i]], offset, width, rows, sent, low_bits)
        _subtract(pad, removed, modulus)
        learnt = _residues(pad, words, modulus)
        _store(total, offset - start, width, rows, learnt, low_bits)
