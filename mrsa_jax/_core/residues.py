"""Integers of any size as small ones: modulo a prime, or numbered; and the words of residues."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.device import multiplies_wide

# ---- Products and quotients of 32-bit words that need 64 bits, without 64-bit arrays.


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


# ---- Integers of any size as small ones: modulo a prime, or numbered; and the words of residues.


def residues(array: np.ndarray | Array, prime: int | Array) -> Array:
    """Return the integers of `array` modulo `prime` as uint32, negative ones included."""
    if isinstance(array, jax.Array):
        if array.dtype == jnp.bool_ or jnp.issubdtype(array.dtype, jnp.unsignedinteger):
            if array.dtype.itemsize < 4:
                return array.astype(jnp.uint32)
            return (array % jnp.asarray(prime, array.dtype)).astype(jnp.uint32)
        if array.dtype.itemsize < 4:
            array = array.astype(jnp.int32)
        return jnp.remainder(array, jnp.asarray(prime, array.dtype)).astype(jnp.uint32)
    return on_device(host_residues(array, int(prime), np.uint32))


def host_residues(array: np.ndarray, prime: int, kind: type[np.number]) -> np.ndarray:
    """Return integers of any size on the host modulo `prime`, of a type that holds it."""
    if array.dtype == np.bool_:
        return array.astype(kind)
    if array.dtype != object and array.dtype.itemsize < 8:
        array = array.astype(np.int64)
    return (array % prime).astype(kind)


def codes(array: np.ndarray) -> np.ndarray:
    """Return int32 numbers that are equal exactly where integers of any size are, 0 for 0 only."""
    if array.dtype == np.bool_:
        return array.astype(np.int32)
    values, places = np.unique(array, return_inverse=True)
    zero = int(np.searchsorted(values, 0)) if (values == 0).any() else -1
    return (places.reshape(array.shape) - zero).astype(np.int32)


def is_power_of_two(modulus: int) -> bool:
    """Return whether R = 2**b, so that residues are the low bits of wrapped words.

    Examples:
        >>> is_power_of_two(2**20), is_power_of_two(37)
        (True, False)
    """
    return modulus & (modulus - 1) == 0


def words_per_residue(modulus: int) -> int:
    """Return how many 32-bit words of keystream one residue takes: 1 for R = 2**b, else 2.

    Two words (64 bits) keep a residue within R/2**64 < 2**-33 of uniform.

    Examples:
        >>> words_per_residue(2**20), words_per_residue(37)
        (1, 2)
    """
    return 1 if is_power_of_two(modulus) else 2
