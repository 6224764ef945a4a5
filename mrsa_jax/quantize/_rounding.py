"""Conditional stochastic rounding to integers: draw again until the norm keeps its bound.

Which draw is taken is decided by the exact sum of squares of integers, so that the bound holds for
every vector, whatever floating point made of it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float32, Key, UInt32

from mrsa_jax._streams import random_words
from mrsa_jax._tracing import one_program

LARGEST = 2**24
"""Codes must be below this by magnitude: their squares' parts are then exact in 32 bits."""
MAX_DIM = 2**24
_DRAWS = 64
_DRAW = 0x64726100  # "dra\0": of the first draw's key
_BLOCK = 256


def round_within(
    key: Key[Array, ""],
    values: Float32[Array, " dim"],
    most: UInt32[Array, ""],
    bound: UInt32[Array, " 2"],
) -> UInt32[Array, " dim"]:
    """Round each value to one of its two neighbouring integers, the norm squared within a bound.

    Magnitudes are rounded: t + f with 0 <= f < 1 becomes t + 1 with chance f (a word of randomness
    each), else t. All are drawn again until the sum of squares is at most the bound, 64 times at
    the most; then towards zero; and zeros, should even that be too long.

    Args:
        key: JAX key; draw r is by its `fold_in` with `_DRAW` + r.
        values: float32.
        most: Largest magnitude of an integer, below `LARGEST`.
        bound: uint32[2], high and low word.

    Returns:
        Integers as two's complement words.
    """
    size = jnp.minimum(jnp.abs(values), most.astype(jnp.float32))
    floor = jnp.floor(size)
    threshold = ((size - floor) * jnp.float32(2**32)).astype(jnp.uint32)
    least = floor.astype(jnp.uint32)

    def draw(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        _, _, number = state
        words = random_words(jax.random.fold_in(key, number + _DRAW), values.shape)
        rounded = jnp.minimum(least + (words < threshold).astype(jnp.uint32), most)
        return rounded, is_within(rounded, bound), number + jnp.int32(1)

    def is_open(state: tuple[Array, Array, Array]) -> Array:
        return ~state[1] & (state[2] < _DRAWS)

    first = draw((least, jnp.zeros((), jnp.bool_), jnp.int32(0)))
    rounded, is_kept, _ = lax.while_loop(is_open, draw, first)
    fallback = jnp.where(is_within(least, bound), least, jnp.uint32(0))
    chosen = jnp.where(is_kept, rounded, fallback)
    return jnp.where(values < 0, jnp.uint32(0) - chosen, chosen)


@one_program
def is_within(sizes: UInt32[Array, " dim"], bound: UInt32[Array, " 2"]) -> Bool[Array, ""]:
    """Return whether the sum of squares is at most a bound, exactly.

    Args:
        sizes: uint32 below `LARGEST`, at most `MAX_DIM` of them.
        bound: uint32[2], high and low word.

    Examples:
        >>> sizes = jnp.full(3, 2**24 - 1, jnp.uint32)
        >>> exact = 3 * (2**24 - 1) ** 2
        >>> [bool(is_within(sizes, jnp.asarray(divmod(exact - less, 2**32), jnp.uint32)))
        ...  for less in (0, 1)]
        [True, False]
    """
    high, low = squared_norm(sizes)
    return (high < bound[0]) | ((high == bound[0]) & (low <= bound[1]))


@one_program
def squared_norm(sizes: UInt32[Array, " dim"]) -> tuple[Array, Array]:
    """Return the high and low word of the sum of squares (below 2**64 as 2**24 * 2**48 is 2**72).

    A size is a 2**12 + b with a, b < 2**12, hence its square a a 2**24 + 2 a b 2**12 + b b.
    Beyond 2**64 - 1 the sum is given as that.
    """
    upper, lower = sizes >> jnp.uint32(12), sizes & jnp.uint32(0xFFF)
    limbs = jnp.zeros(6, jnp.uint32)  # of 16 bits, lowest first
    for product, shift in ((upper * upper, 24), (upper * lower, 13), (lower * lower, 0)):
        high, low = _total(product)
        limbs = _add_shifted(limbs, high, 16 + shift)
        limbs = _add_shifted(limbs, low, shift)
    words = limbs[0::2] | (limbs[1::2] << jnp.uint32(16))
    is_more = words[2] > 0
    top = jnp.uint32(0xFFFFFFFF)
    return jnp.where(is_more, top, words[1]), jnp.where(is_more, top, words[0])


def _total(words: UInt32[Array, " dim"]) -> tuple[Array, Array]:
    """Return h and l with h 2**16 + l the sum of at most 2**24 words below 2**24."""
    padded = jnp.pad(words, (0, -words.shape[0] % _BLOCK))
    blocks = jnp.sum(padded.reshape(-1, _BLOCK), axis=1, dtype=jnp.uint32)
    high = jnp.sum(blocks >> jnp.uint32(16), dtype=jnp.uint32)
    return high, jnp.sum(blocks & jnp.uint32(0xFFFF), dtype=jnp.uint32)


def _add_shifted(limbs: Array, word: Array, shift: int) -> Array:
    """Add word 2**shift to limbs of 16 bits."""
    first, own = divmod(shift, 16)
    half = jnp.uint32(0xFFFF)
    low, high = (word & half) << jnp.uint32(own), (word >> jnp.uint32(16)) << jnp.uint32(own)
    added = [low & half, (low >> jnp.uint32(16)) + (high & half), high >> jnp.uint32(16)]
    out, carry = [], jnp.uint32(0)
    for place in range(limbs.shape[0]):
        value = limbs[place] + carry
        if first <= place < first + len(added):
            value = value + added[place - first]
        out.append(value & half)
        carry = value >> jnp.uint32(16)
    return jnp.stack(out)
