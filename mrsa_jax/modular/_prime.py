"""Arithmetic modulo a 31-bit prime on uint32 arrays, made for elimination.

Products by a factor that many elements share (Shoup): with its companion floor(f 2**32 / p)
known, f x mod p is five 32-bit multiplications and no division. Nothing needs 64-bit types, and
the prime is data, so that one compiled program serves both of ours.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from mrsa_jax.modular._ring import divide_step, multiply_wide

# Both between 2**30 and 2**32 / 3.5: 31 bits, and 3.5 p still fits in a word (see `scale`).
PRIMES = (1_199_999_993, 1_199_999_963)


class Field(NamedTuple):
    """The integers modulo a prime: what the functions below need to know of it.

    Attributes:
        prime: uint32 scalar, p.
        reciprocal: uint32 scalar, floor((2**64 - 1) / 2p) - 2**32.
        exponent: int32[11], p - 2 in octal digits.
    """

    prime: Array
    reciprocal: Array
    exponent: Array


def field(prime: int) -> Field:
    """Return the field of a prime between 2**30 and 2**32 / 3.5."""
    digits = [int(digit) for digit in oct(prime - 2)[2:]]
    reciprocal = (2**64 - 1) // (2 * prime) - 2**32
    return Field(jnp.uint32(prime), jnp.uint32(reciprocal), jnp.asarray(digits, jnp.int32))


def fields() -> Field:
    """Return the fields of both `PRIMES`, stacked along a leading axis of every leaf."""
    both = [field(prime) for prime in PRIMES]
    return Field(*(jnp.stack(leaves) for leaves in zip(*both, strict=True)))


def companion(factor: Array, of: Field) -> Array:
    """Return floor(factor * 2**32 / p) for residues."""
    zero = jnp.zeros_like(factor)
    return divide_step(factor << jnp.uint32(1), zero, of.prime << jnp.uint32(1), of.reciprocal)[0]


def scale(values: Array, factor: Array, factor_companion: Array, of: Field) -> Array:
    """Return values * factor mod p for residues; all three broadcast against each other.

    The quotient is estimated from 16-bit halves without their lowest product: short by less
    than 3.5 in all, so the remainder lies below 3.5 p < 2**32 and two subtractions reduce it.
    """
    sixteen, half = jnp.uint32(16), jnp.uint32(0xFFFF)
    high, low = values >> sixteen, values & half
    factor_high, factor_low = factor_companion >> sixteen, factor_companion & half
    quotient = high * factor_high + ((low * factor_high) >> sixteen)
    quotient = quotient + ((high * factor_low) >> sixteen)
    remainder = values * factor - quotient * of.prime
    remainder = jnp.minimum(remainder, remainder - (of.prime << jnp.uint32(1)))
    return jnp.minimum(remainder, remainder - of.prime)


def subtract(left: Array, right: Array, of: Field) -> Array:
    """Return left - right mod p for residues."""
    difference = left - right
    return jnp.minimum(difference, difference + of.prime)


def multiply(left: Array, right: Array, of: Field) -> Array:
    """Return left * right mod p for residues of one shape."""
    return reduce_wide(*multiply_wide(left, right), of)


def reduce_wide(high: Array, low: Array, of: Field) -> Array:
    """Return (high * 2**32 + low) mod p for numbers below p * 2**32."""
    one = jnp.uint32(1)
    top = (high << one) | (low >> jnp.uint32(31))
    return divide_step(top, low << one, of.prime << one, of.reciprocal)[1] >> one


def sum_residues(values: Array, of: Field, axis: int = -1) -> Array:
    """Sum residues over an axis (at most 2**16 of them) modulo p."""
    high = jnp.sum(values >> jnp.uint32(16), axis=axis, dtype=jnp.uint32)
    low = jnp.sum(values & jnp.uint32(0xFFFF), axis=axis, dtype=jnp.uint32)
    bottom = (high << jnp.uint32(16)) + low
    carry = (bottom < low).astype(jnp.uint32)
    return reduce_wide((high >> jnp.uint32(16)) + carry, bottom, of)


def inverse(values: Array, of: Field) -> Array:
    """Return values**(p - 2) mod p: the inverse of units, 0 for 0.

    Three bits of the exponent at a time; unrolled it would take seconds to compile.
    """
    powers = [jnp.ones_like(values), values]
    while len(powers) < 8:
        powers.append(multiply(powers[-1], values, of))
    table = jnp.stack(powers)

    def body(place: Array, result: Array) -> Array:
        for _ in range(3):
            result = multiply(result, result, of)
        factor = lax.dynamic_index_in_dim(table, of.exponent[place], 0, keepdims=False)
        return multiply(result, factor, of)

    first = lax.dynamic_index_in_dim(table, of.exponent[0], 0, keepdims=False)
    return lax.fori_loop(1, of.exponent.shape[0], body, first)
