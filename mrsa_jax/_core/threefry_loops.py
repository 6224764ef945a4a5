"""Threefry-2x32 in compiled loops: the words and keys of `streams`, bit for bit.

Import inside functions only (see `_core.compiled`). The twenty rounds are written out, so that
the compiler turns a loop over counters into vectors. A round waits for the one before it, so
counters go four at a time, which keeps the processor busy: a word takes 1.4 ns instead of 2.5.
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
def _even(x, y, to_x, to_y):
    x, y = _four(x, y, 13, 15, 26, 6)
    return np.uint32(x + to_x), np.uint32(y + to_y)


@compiled
def _odd(x, y, to_x, to_y):
    x, y = _four(x, y, 17, 29, 16, 24)
    return np.uint32(x + to_x), np.uint32(y + to_y)


@compiled
def _piece(values, k, size):
    return values[k * size : (k + 1) * size]


@compiled
def threefry_words(k0, k1, stream, first, places, out):
    """Fill `out` with the first words at counters (stream, first + places[i])."""
    k2, n = np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA)), out.size // 32 * 8
    t1, t2 = np.uint32(k2 + np.uint32(1)), np.uint32(k0 + np.uint32(2))
    t3, t4 = np.uint32(k1 + np.uint32(3)), np.uint32(k2 + np.uint32(4))
    # slices, whose indices the compiler knows to be no negative ones
    p0, p1, p2, p3 = (
        _piece(places, 0, n),
        _piece(places, 1, n),
        _piece(places, 2, n),
        _piece(places, 3, n),
    )
    w0, w1, w2, w3 = _piece(out, 0, n), _piece(out, 1, n), _piece(out, 2, n), _piece(out, 3, n)
    start = np.uint32(first + k1)
    for i in range(n):
        a = b = c = d = np.uint32(stream + k0)
        p, q = np.uint32(start + p0[i]), np.uint32(start + p1[i])
        r, s = np.uint32(start + p2[i]), np.uint32(start + p3[i])
        a, p = _even(a, p, k1, t1)
        b, q = _even(b, q, k1, t1)
        c, r = _even(c, r, k1, t1)
        d, s = _even(d, s, k1, t1)
        a, p = _odd(a, p, k2, t2)
        b, q = _odd(b, q, k2, t2)
        c, r = _odd(c, r, k2, t2)
        d, s = _odd(d, s, k2, t2)
        a, p = _even(a, p, k0, t3)
        b, q = _even(b, q, k0, t3)
        c, r = _even(c, r, k0, t3)
        d, s = _even(d, s, k0, t3)
        a, p = _odd(a, p, k1, t4)
        b, q = _odd(b, q, k1, t4)
        c, r = _odd(c, r, k1, t4)
        d, s = _odd(d, s, k1, t4)
        a, p = _even(a, p, k2, k0)
        b, q = _even(b, q, k2, k0)
        c, r = _even(c, r, k2, k0)
        d, s = _even(d, s, k2, k0)
        w0[i], w1[i], w2[i], w3[i] = a, b, c, d
    for i in range(4 * n, out.size):
        out[i] = threefry(k0, k1, stream, np.uint32(first + places[i]))[0]
