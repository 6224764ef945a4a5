"""Compiled draws of privacy losses with coins: blocks of b rounds, samples as lanes.

Import inside functions only (see `_core.compiled`). The recursion, its words and its
numbers are those of `_privacy_losses`, which says what they mean; logarithms,
exponentials and turns are polynomials here, so that the compiler makes vectors of every
loop over samples.
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled
from mrsa_jax._core.streams import _BLOCKS
from mrsa_jax._core.threefry_loops import threefry

_ZERO = np.uint32(0)
_NORMALS, _COINS = np.uint32(_BLOCKS), np.uint32(_BLOCKS + 1)
_F = np.float32
_MAGIC = _F(1.5 * 2.0**23)  # added and taken away, it rounds to an integer
_LOG2_E, _LN2 = _F(1 / np.log(2.0)), _F(np.log(2.0))
_LN2_HIGH = _F(0.693359375)  # few bits: its products with small integers are exact
_LN2_LOW = _F(np.log(2.0) - 0.693359375)
_TURN = _F(2.0 * np.pi / 2.0**32)
_HALF, _ONE, _TWO = _F(0.5), _F(1.0), _F(2.0)


@compiled
def _exp(x):
    """Return e^x for |x| below 87."""
    turned = np.float32(x * _LOG2_E + _MAGIC)
    whole = turned - _MAGIC
    r = (x - whole * _LN2_HIGH) - whole * _LN2_LOW
    # Taylor's, |r| <= log(2) / 2: good to 2e-8
    p = _F(1 / 720) + r * _F(1 / 5040)
    p = _F(1 / 120) + r * p
    p = _F(1 / 24) + r * p
    p = _F(1 / 6) + r * p
    p = _HALF + r * p
    p = _ONE + r * (_ONE + r * p)
    power = np.int32((turned.view(np.int32) << np.int32(23)) + np.int32(127 << 23))
    return p * power.view(np.float32)


@compiled
def _log(u):
    """Return log(u) for a normal number u > 0.

    Of a mantissa near 1, by atanh's series.
    """
    bits = np.float32(u).view(np.int32)
    exponent = np.int32((bits - np.int32(0x3F3504F3)) >> np.int32(23))
    mantissa = np.int32(bits - np.int32(exponent << np.int32(23))).view(np.float32)
    s = (mantissa - _ONE) / (mantissa + _ONE)  # |s| <= 0.1716
    t = s * s
    p = _F(2 / 7) + t * _F(2 / 9)
    p = _F(2 / 5) + t * p
    p = _F(2 / 3) + t * p
    return _F(exponent) * _LN2 + (_TWO * s + s * t * p)


@compiled
def _normals(first, second):
    """Return two standard normal numbers, up to 6.7, by Box and Muller's transform."""
    u = (_F(np.int32(first >> np.uint32(1))) + _HALF) * _F(2.0**-31)
    radius = np.sqrt(-_TWO * _log(u))
    turn = np.int32(second)
    quarter = np.int32(np.int32(turn + np.int32(1 << 29)) >> np.int32(30))
    # within a quarter pi
    a = _F(np.int32(turn - np.int32(quarter << np.int32(30)))) * _TURN
    t = a * a
    p = _F(-1 / 5040) + t * _F(1 / 362880)
    p = _F(1 / 120) + t * p
    p = _F(-1 / 6) + t * p
    sine = a + a * t * p
    p = _F(-1 / 720) + t * _F(1 / 40320)
    p = _F(1 / 24) + t * p
    p = -_HALF + t * p
    cosine = _ONE + t * p
    is_odd = (quarter & np.int32(1)) != np.int32(0)
    x = sine if is_odd else cosine
    y = cosine if is_odd else sine
    # a quarter turn takes (x, y) to (-y, x)
    x = -x if ((quarter + np.int32(1)) & np.int32(2)) != np.int32(0) else x
    y = -y if (quarter & np.int32(2)) != np.int32(0) else y
    return radius * x, radius * y


@compiled
def _draw_pair(k0, k1, start, upper, lower):
    for i in range(upper.size):
        x, y = threefry(k0, k1, _NORMALS, np.uint32(start + np.uint32(i)))
        upper[i], lower[i] = _normals(x, y)


@compiled
def _draw_tosses(k0, k1, start, tosses):
    for i in range(tosses.size):
        x, _ = threefry(k0, k1, _COINS, np.uint32(start + np.uint32(i)))
        tosses[i] = np.uint32(x >> np.uint32(1))


@compiled
def _take_turn(joined, before, b):
    """Keep who joined in the block that has ended.

    The next block counts from 0 on.
    """
    for i in range(joined.size):
        last = joined[i]
        is_in = last < b
        before[i] = np.int32(last - b) if is_in else b
        joined[i] = last if is_in else np.int32(0)  # rested from there on


@compiled
def _wait(joined, tosses, chance):
    for i in range(joined.size):
        joined[i] = np.int32(joined[i] + np.int32(tosses[i] >= chance))


@compiled
def _shift(row, joined, before, here, shift):
    for i in range(row.size):
        hit = (joined[i] == here) | (before[i] == here)
        # a product, of which the compiler makes vectors here, and not of a choice
        row[i] += shift * _F(np.int32(hit))


@compiled
def _add_shifts(released, joined, before, table, band):
    for t in range(len(table)):
        for k in range(band):
            _shift(released[t], joined, before, np.int32(t - k), table[t, k])


@compiled
def _add_product(gain, row, weight):
    for i in range(gain.size):
        gain[i] += row[i] * weight


@compiled
def _pass_round(rested, ending, gain, join, stay):
    for i in range(rested.size):
        now = rested[i] + ending[i]
        ending[i] = join * now * _exp(gain[i])
        rested[i] = stay * now


# written out, for array expressions of numba take longer within the large loop
@compiled
def _add(sums, row):
    for i in range(sums.size):
        sums[i] += row[i]


@compiled
def _scale(row, factors):
    for i in range(row.size):
        row[i] *= factors[i]


@compiled
def _rescale(rested, ending, sums, total):
    """Let those rest who do from the next block on, and divide by the sum of all.

    Its logarithm joins `total`.
    """
    for i in range(rested.size):
        rested[i] += ending[0, i]
        ending[0, i] = _F(0)
        sums[i] = rested[i]
    for t in range(1, len(ending)):
        _add(sums, ending[t])
    for i in range(total.size):
        total[i] += _log(sums[i])
        sums[i] = _ONE / sums[i]
    _scale(rested, sums)
    for t in range(1, len(ending)):
        _scale(ending[t], sums)


@compiled
def _draw_block(key, place, released, joined, before, chances, with_it):
    """Fill a block's releases without the client, and the round in which it joins."""
    number, start, length = place
    k0, k1 = threefry(key[0], key[1], _ZERO, np.uint32(number))
    for pair in range(len(released) // 2):
        at = np.uint32(pair * length + start)
        _draw_pair(k0, k1, at, released[2 * pair], released[2 * pair + 1])
    if with_it:
        tosses = released[-1].view(np.uint32)
        _take_turn(joined, before, np.int32(chances.size))
        _draw_tosses(k0, k1, np.uint32(start), tosses)
        for t in range(chances.size):
            _wait(joined, tosses, chances[t])


@compiled
def draw_losses(keys, tables, chances, length, with_it, out):
    """Fill `out[chunk]` with logarithms of likelihoods of a chunk under each key.

    Args:
        keys: uint32 `[chunks, 2]`.
        tables: float32 `[blocks, b, 2 band + 3]`: of each round the shifts, the weights
            and half of their squares, the chance to join and the one to stay.
        chances: uint32 `[b]`, of having joined after a round, in units of 2**-31.
        length: Samples of a chunk.
        with_it: Whether the client takes part.
        out: float32 `[chunks, length]`.
    """
    blocks, b = tables.shape[:2]
    band = (tables.shape[2] - 3) // 2
    lanes = 256
    while lanes > 16 and lanes * b > 16384:
        lanes //= 2
    rows = np.zeros((band + b + b % 2, lanes), np.float32)
    ending = np.zeros((b, lanes), np.float32)
    joined, before = np.zeros(lanes, np.int32), np.zeros(lanes, np.int32)
    rested, gain = np.zeros(lanes, np.float32), np.zeros(lanes, np.float32)
    for chunk in range(len(keys)):
        for start in range(0, length, lanes):
            rows[:b] = _F(0)
            ending[:] = _F(0)
            joined[:] = np.int32(2 * b)
            rested[:] = _ONE
            total = out[chunk, start : start + lanes]
            total[:] = _F(0)
            for m in range(blocks):
                for k in range(band - 1):
                    rows[k] = rows[b + k]
                table = tables[m]
                place = (m, start, length)
                released = rows[band - 1 :]
                _draw_block(
                    keys[chunk], place, released, joined, before, chances, with_it
                )
                if with_it:
                    _add_shifts(released, joined, before, table, band)
                for t in range(b):
                    gain[:] = -table[t, 2 * band]
                    for k in range(band):
                        _add_product(gain, rows[t + k], table[t, band + k])
                    _pass_round(
                        rested,
                        ending[t],
                        gain,
                        table[t, 2 * band + 1],
                        table[t, 2 * band + 2],
                    )
                _rescale(rested, ending, gain, total)
