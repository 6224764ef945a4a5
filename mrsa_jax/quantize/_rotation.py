"""The random rotation that spreads a vector evenly over its coordinates: signs, then Hadamard.

H D x / sqrt(d) for d a power of two: D flips signs at random, H is the Walsh-Hadamard matrix. Only
additions and subtractions of whole vectors, so that the bits do not depend on what else is in the
program.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float32, UInt32

from mrsa_jax._streams import as_key, random_words
from mrsa_jax._tracing import one_program


def padded_length(dim: int) -> int:
    """Return the next power of two.

    Examples:
        >>> [padded_length(dim) for dim in (1, 2, 3, 1000)]
        [1, 2, 4, 1024]
    """
    return 1 << (dim - 1).bit_length()


def sign_words(seed: int, length: int) -> UInt32[Array, " words"]:
    """Return the random bits of a vector's signs, 32 a word."""
    return random_words(as_key(seed), (-(-length // 32),))


def rotate(
    values: Float32[Array, " dim"], words: UInt32[Array, " words"]
) -> Float32[Array, " padded"]:
    """Return H D x of values padded with zeros: the rotation, times the root of its length."""
    length = padded_length(values.shape[0])
    padded = jnp.pad(values, (0, length - values.shape[0]))
    return hadamard(padded * _signs(words, length))


def rotate_back(
    values: Float32[Array, " padded"], words: UInt32[Array, " words"], dim: int
) -> Float32[Array, " dim"]:
    """Return the first coordinates of D H y: what undoes `rotate`, times its length."""
    length = values.shape[0]
    return (hadamard(values) * _signs(words, length))[:dim]


def _signs(words: Array, length: int) -> Float32[Array, " padded"]:
    shifts = jnp.arange(32, dtype=jnp.uint32)
    bits = (words[:, None] >> shifts[None]) & jnp.uint32(1)
    return jnp.float32(1) - jnp.float32(2) * bits.reshape(-1)[:length].astype(jnp.float32)


@one_program
def hadamard(values: Float32[Array, " padded"]) -> Float32[Array, " padded"]:
    """Return H x by the fast transform, d log2 d additions, two of its steps in one pass.

    Measured on two cores (12 vectors of 2**20) as fast as products by Kronecker factors, whose
    sums would depend on the shape.

    Args:
        values: float32 of a power of two.

    Examples:
        >>> hadamard(jnp.asarray([1.0, 2.0, 3.0, 4.0], jnp.float32)).tolist()
        [10.0, -2.0, -4.0, 0.0]
    """
    length = values.shape[0]
    done, left = 1, length
    while left > 1:
        size = min(4, left)
        parts = list(jnp.moveaxis(values.reshape(done, size, left // size), 1, 0))
        for near in (1, 2)[: int(math.log2(size))]:
            low = [one for one in range(size) if not one & near]
            sums = {one: parts[one] + parts[one | near] for one in low}
            rest = {one | near: parts[one] - parts[one | near] for one in low}
            parts = [(sums | rest)[one] for one in range(size)]
        # else XLA would fuse all passes and compute each sum again wherever it is read
        values = lax.optimization_barrier(jnp.stack(parts, axis=1).reshape(length))
        done, left = done * size, left // size
    return values
