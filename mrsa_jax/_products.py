"""Products and quotients of 32-bit words that need 64 bits, without 64-bit arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from mrsa_jax._device import multiplies_wide


def divide_step(high: Array, low: Array, divisor: Array, reciprocal: Array) -> tuple[Array, Array]:
    """Return quotient and remainder of (high * 2**32 + low) / divisor.

    Needs high < divisor, divisor >= 2**31 and reciprocal = floor((2**64 - 1) / divisor) - 2**32.
    """
    quotient_high, quotient_low = multiply_wide(high, reciprocal)
    quotient_low = quotient_low + low
    carry = (quotient_low < low).astype(jnp.uint32)
    quotient_high = quotient_high + high + carry + jnp.uint32(1)
    remainder = low - quotient_high * divisor
    over = remainder > quotient_low
    quotient = jnp.where(over, quotient_high - jnp.uint32(1), quotient_high)
    remainder = jnp.where(over, remainder + divisor, remainder)
    again = remainder >= divisor
    quotient = jnp.where(again, quotient + jnp.uint32(1), quotient)
    return quotient, jnp.where(again, remainder - divisor, remainder)


def multiply_wide(left: Array, right: Array) -> tuple[Array, Array]:
    """Return the upper and the lower word of left * right."""
    return multiply_high(left, right), left * right


def multiply_high(left: Array, right: Array) -> Array:
    """Return the upper word of left * right, by one instruction where there is one."""
    if multiplies_wide():
        # not `lax.mulhi`, which compiles for one device only; no array of such words is ever made
        with jax.enable_x64(True):
            product = left.astype(jnp.uint64) * right.astype(jnp.uint64)
            return (product >> jnp.uint64(32)).astype(jnp.uint32)
    sixteen, half = jnp.uint32(16), jnp.uint32(0xFFFF)
    left_high, left_low = left >> sixteen, left & half
    right_high, right_low = right >> sixteen, right & half
    low = left_low * right_low
    middle = left_high * right_low + (low >> sixteen)
    cross = left_low * right_high + (middle & half)
    return left_high * right_high + (middle >> sixteen) + (cross >> sixteen)
