"""Euclidean norms of updates, and updates shortened to one.

Added up in pairs: the error is log2 d roundings, and the bits do not depend on what else is in the
program.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float32

from mrsa_jax._tracing import one_program

SLACK = 2.0**-19
"""Of a norm to shorten to, kept free for the roundings of float32."""


@one_program
def norm(values: Float32[Array, " dim"]) -> Float32[Array, ""]:
    """Return the Euclidean norm of numbers whose squares float32 holds."""
    length = 1 << (values.shape[0] - 1).bit_length()
    squares = jnp.pad(values * values, (0, length - values.shape[0]))
    squares = lax.optimization_barrier(squares)  # else the product may round with the sum
    while length > 1:
        length //= 2
        squares = squares[:length] + squares[length:]
    return jnp.sqrt(squares[0])


def scaled_down(
    values: Float32[Array, " dim"], clip_norm: Float32[Array, ""]
) -> tuple[Float32[Array, ""], Float32[Array, " dim"]]:
    """Return s and x / s, of which no square overflows, nor vanishes where it matters.

    What is not finite counts as 0.
    """
    finite = jnp.where(jnp.isfinite(values), values, jnp.float32(0))
    size = jnp.maximum(jnp.max(jnp.abs(finite)), clip_norm * jnp.float32(2.0**-20))
    # XLA may divide by multiplying with 1 / s, which must not be too small for float32
    near = jnp.where(size > jnp.float32(2.0**63), jnp.float32(2.0**-64), jnp.float32(1.0))
    return size, (finite * near) / (size * near)


def factor_within(
    size: Float32[Array, ""], length: Float32[Array, ""], clip_norm: Float32[Array, ""]
) -> Float32[Array, ""]:
    """Return what x / s of norm `length` is to be multiplied by: s, or less if x is too long."""
    limit = clip_norm * jnp.float32(1.0 - SLACK)
    is_long = size * length > limit
    return jnp.where(is_long, limit / jnp.maximum(length, jnp.float32(2.0**-60)), size)


@one_program
def shortened(
    values: Float32[Array, " dim"], clip_norm: Float32[Array, ""]
) -> Float32[Array, " dim"]:
    """Return an update of norm at most `clip_norm`, its direction kept.

    Args:
        values: float32; what is not finite counts as 0.
        clip_norm: Positive.

    Examples:
        >>> shortened(jnp.asarray([0.5, float("inf")]), jnp.float32(2.0)).tolist()
        [0.5, 0.0]
        >>> short = shortened(jnp.asarray([3e38, 3e38]), jnp.float32(2.0))
        >>> 1.9999 < float(norm(short)) < 2.0
        True
    """
    size, small = scaled_down(values, clip_norm)
    factor = factor_within(size, norm(small), clip_norm)
    small, factor = lax.optimization_barrier((small, factor))
    finite = jnp.where(jnp.isfinite(values), values, jnp.float32(0))
    return jnp.where(factor < size, small * factor, finite)
