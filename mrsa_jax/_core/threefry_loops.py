"""Threefry-2x32 in compiled loops: the words and keys of `streams`, bit for bit.

Import inside functions only (see `_core.compiled`). The twenty rounds are written out, so that
the compiler turns a loop over counters into vectors.
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled


@compiled
def _turned(y, left):
    return np.uint32((y << np.uint32(left)) | (y >> np.uint32(32 - left)))


@compiled
def _four(x, y, a, b, c, d):
    x = np.uint32(x + y)
    y = np.uint32(_turned(y, a) ^ x)
    x = np.uint32(x + y)
    y = np.uint32(_turned(y, b) ^ x)
    x = np.uint32(x + y)
    y = np.uint32(_turned(y, c) ^ x)
    x = np.uint32(x + y)
    y = np.uint32(_turned(y, d) ^ x)
    return x, y


@compiled
def threefry(k0, k1, stream, index):
    """Return both words of Threefry-2x32 under a key at the counter (stream, index)."""
    k2 = np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x, y = _four(np.uint32(stream + k0), np.uint32(index + k1), 13, 15, 26, 6)
    x, y = np.uint32(x + k1), np.uint32(y + k2 + np.uint32(1))
    x, y = _four(x, y, 17, 29, 16, 24)
    x, y = np.uint32(x + k2), np.uint32(y + k0 + np.uint32(2))
    x, y = _four(x, y, 13, 15, 26, 6)
    x, y = np.uint32(x + k0), np.uint32(y + k1 + np.uint32(3))
    x, y = _four(x, y, 17, 29, 16, 24)
    x, y = np.uint32(x + k1), np.uint32(y + k2 + np.uint32(4))
    x, y = _four(x, y, 13, 15, 26, 6)
    return np.uint32(x + k2), np.uint32(y + k0 + np.uint32(5))


@compiled
def threefry_words(k0, k1, stream, first, out):
    """Fill `out` with the first words at counters (stream, first + i)."""
    for i in range(out.size):
        out[i] = threefry(k0, k1, stream, np.uint32(first + i))[0]


@compiled
def threefry_words_at(k0, k1, stream, places, factor, out):
    """Fill `out` with the first words at counters (stream, factor x places[i])."""
    for i in range(out.size):
        out[i] = threefry(k0, k1, stream, np.uint32(factor * places[i]))[0]


@compiled
def fold_keys(firsts, seconds, steps, x, y):
    """Fill `x` and `y` with the words of keys into which `steps` are folded, one into each."""
    for i in range(x.size):
        x[i], y[i] = threefry(firsts[i], seconds[i], np.uint32(0), steps[i])
