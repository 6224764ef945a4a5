"""ChaCha20 keystream as a compiled loop, for pads on the CPU (RFC 8439).

Import inside functions only (see `compiled`). Twenty rounds on sixteen words stand in
one loop body, so that the compiler keeps eight or sixteen blocks side by side in vector
registers; XLA's one-array-an-operation form writes each intermediate to memory.
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled

LANES = 16
"""Blocks of a tile."""
TILE = 16 * LANES
"""Words of a tile."""

_C0, _C1, _C2, _C3 = (
    np.uint32(word) for word in (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
)


@compiled
def _rotate(word, bits):
    return np.uint32(
        np.uint32(word << np.uint32(bits)) | (word >> np.uint32(32 - bits))
    )


@compiled
def _quarter(a, b, c, d):
    a = np.uint32(a + b)
    d = _rotate(np.uint32(d ^ a), 16)
    c = np.uint32(c + d)
    b = _rotate(np.uint32(b ^ c), 12)
    a = np.uint32(a + b)
    d = _rotate(np.uint32(d ^ a), 8)
    c = np.uint32(c + d)
    b = _rotate(np.uint32(b ^ c), 7)
    return a, b, c, d


@compiled
def _double_round(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):  # noqa: E741
    a, e, i, m = _quarter(a, e, i, m)
    b, f, j, n = _quarter(b, f, j, n)
    c, g, k, o = _quarter(c, g, k, o)
    d, h, l, p = _quarter(d, h, l, p)  # noqa: E741
    a, f, k, p = _quarter(a, f, k, p)
    b, g, l, m = _quarter(b, g, l, m)  # noqa: E741
    c, h, i, n = _quarter(c, h, i, n)
    d, e, j, o = _quarter(d, e, j, o)
    return a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p


@compiled
def keystream_tile(key, nonce, counter, out):
    """Write the keystream of `LANES` blocks, word w of block b to `out[w * LANES + b]`.

    The twenty rounds are written out: only the loop over blocks may be left for the
    compiler to turn it into vectors, and the constant stride tells it that the rows do
    not overlap.
    """
    k0, k1, k2, k3 = key[0], key[1], key[2], key[3]
    k4, k5, k6, k7 = key[4], key[5], key[6], key[7]
    n0, n1, n2 = nonce[0], nonce[1], nonce[2]
    for b in range(LANES):
        t = np.uint32(counter + np.uint32(b))
        x = (_C0, _C1, _C2, _C3, k0, k1, k2, k3, k4, k5, k6, k7, t, n0, n1, n2)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        out[b] = x[0] + _C0
        out[LANES + b] = x[1] + _C1
        out[2 * LANES + b] = x[2] + _C2
        out[3 * LANES + b] = x[3] + _C3
        out[4 * LANES + b] = x[4] + k0
        out[5 * LANES + b] = x[5] + k1
        out[6 * LANES + b] = x[6] + k2
        out[7 * LANES + b] = x[7] + k3
        out[8 * LANES + b] = x[8] + k4
        out[9 * LANES + b] = x[9] + k5
        out[10 * LANES + b] = x[10] + k6
        out[11 * LANES + b] = x[11] + k7
        out[12 * LANES + b] = x[12] + t
        out[13 * LANES + b] = x[13] + n0
        out[14 * LANES + b] = x[14] + n1
        out[15 * LANES + b] = x[15] + n2


@compiled
def _remainder(high, low, divisor, reciprocal):
    """Return (high 2^32 + low) mod a normalised divisor > high.

    Source: Möller and Granlund (2011).
    """
    estimate = np.uint64(high) * np.uint64(reciprocal)
    estimate += (np.uint64(high) << np.uint64(32)) | np.uint64(low)
    quotient = np.uint32(np.uint32(estimate >> np.uint64(32)) + np.uint32(1))
    rest = np.uint32(low - np.uint32(quotient * divisor))
    rest = np.uint32(rest + divisor) if rest > np.uint32(estimate) else rest
    return np.uint32(rest - divisor) if rest >= divisor else rest


@compiled
def partly_reduced_tile(words, modulus, out):
    """Reduce pairs of words (low first) below R 2^32 by one product; R is below 2^31.

    Pair k of block b, words 2k and 2k + 1, goes to `out[k * LANES + b]`, congruent to
    it modulo R. `modulus` is R 2^32.
    """
    word = np.uint64(1 << 32) % (modulus >> np.uint64(32))
    for k in range(8):
        for b in range(LANES):
            low = np.uint64(words[2 * k * LANES + b])
            high = np.uint64(words[(2 * k + 1) * LANES + b])
            out[k * LANES + b] = high * word + low


@compiled
def reduce_tile(values, modulus, out):
    """Write values below R 2^32 modulo R, which is no power of two and below 2^31.

    `modulus` is R 2^32.
    """
    divisor = np.uint32(modulus >> np.uint64(32))
    shift = np.uint32(0)
    while divisor < np.uint32(1 << 31):
        divisor = np.uint32(divisor << np.uint32(1))
        shift = np.uint32(shift + np.uint32(1))
    whole = np.uint64(0xFFFFFFFFFFFFFFFF) // np.uint64(divisor)
    reciprocal = np.uint32(whole - np.uint64(1 << 32))
    for i in range(values.shape[0]):
        value = values[i] << np.uint64(shift)
        high, low = np.uint32(value >> np.uint64(32)), np.uint32(value)
        out[i] = np.uint32(_remainder(high, low, divisor, reciprocal) >> shift)
