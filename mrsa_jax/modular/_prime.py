"""Arithmetic modulo a fixed 31-bit prime on uint32 arrays, made for elimination.

Products by a factor that many elements share (Shoup): with its companion floor(f 2**32 / p)
known, f x mod p is five 32-bit multiplications and no division. Nothing needs 64-bit types.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from mrsa_jax.modular._ring import divide_step, multiply_wide

# Both between 2**30 and 2**32 / 3.5: 31 bits, and 3.5 p still fits in a word (see `scale`).
PRIMES = (1_199_999_993, 1_199_999_963)


def companion(factor: Array, prime: int) -> Array:
    """Return floor(factor * 2**32 / prime) for factors below `prime`."""
    quotient, _ = divide_step(factor << jnp.uint32(1), jnp.zeros_like(factor), prime << 1)
    return quotient


def scale(values: Array, factor: Array, factor_companion: Array, prime: int) -> Array:
    """Return values * factor mod prime, in [0, prime); all three broadcast against each other.

    The quotient is estimated from 16-bit halves without their lowest product: short by less
    than 3.5 in all, so the remainder lies below 3.5 p < 2**32 and two subtractions reduce it.
    """
    sixteen, half = jnp.uint32(16), jnp.uint32(0xFFFF)
    high, low = values >> sixteen, values & half
    factor_high, factor_low = factor_companion >> sixteen, factor_companion & half
    quotient = high * factor_high + ((low * factor_high) >> sixteen)
    quotient = quotient + ((high * factor_low) >> sixteen)
    p = jnp.uint32(prime)
    remainder = values * factor - quotient * p
    remainder = jnp.minimum(remainder, remainder - p - p)
    return jnp.minimum(remainder, remainder - p)


def subtract(left: Array, right: Array, prime: int) -> Array:
    """Return left - right mod prime for residues."""
    difference = left - right
    return jnp.minimum(difference, difference + jnp.uint32(prime))


def multiply(left: Array, right: Array, prime: int) -> Array:
    """Return left * right mod prime for residues of one shape."""
    high, low = multiply_wide(left, right)
    one = jnp.uint32(1)
    top = (high << one) | (low >> jnp.uint32(31))
    _, remainder = divide_step(top, low << one, prime << 1)
    return remainder >> one


def inverse(values: Array, prime: int) -> Array:
    """Return values**(prime - 2) mod prime: the inverse of units, 0 for 0.

    Three bits of the exponent at a time; unrolled it would take seconds to compile.
    """
    powers = [jnp.ones_like(values), values]
    while len(powers) < 8:
        powers.append(multiply(powers[-1], values, prime))
    table = jnp.stack(powers)
    digits = [int(digit) for digit in oct(prime - 2)[2:]]

    def body(place: Array, result: Array) -> Array:
        for _ in range(3):
            result = multiply(result, result, prime)
        factor = lax.dynamic_index_in_dim(table, exponent[place], 0, keepdims=False)
        return multiply(result, factor, prime)

    exponent = jnp.asarray(digits, jnp.int32)
    return lax.fori_loop(1, len(digits), body, table[digits[0]])
