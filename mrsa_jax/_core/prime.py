"""Arithmetic modulo a 31-bit prime on uint32 arrays, made for elimination.

Products by a factor that many elements share (Shoup): with its companion floor(f 2**32
/ p) known, f x mod p is five 32-bit multiplications and no division. Nothing needs
64-bit types, and the prime is data, so that one compiled program serves both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.device import is_bound_by_memory, multiplies_wide


def divide_step(
    high: Array,
    low: Array,
    divisor: Array,
    reciprocal: Array,
) -> tuple[Array, Array]:
    """Return quotient and remainder of (high * 2**32 + low) / divisor.

    Needs high < divisor, divisor >= 2**31 and reciprocal = floor((2**64 - 1) /
    divisor) - 2**32.
    """
    quotient_high, quotient_low = multiply_wide(high, reciprocal)
    quotient_low = quotient_low + low
    carry = (quotient_low < low).astype(jnp.uint32)
    quotient_high = quotient_high + high + carry + 1
    remainder = low - quotient_high * divisor
    over = remainder > quotient_low
    quotient = jnp.where(over, quotient_high - 1, quotient_high)
    remainder = jnp.where(over, remainder + divisor, remainder)
    again = remainder >= divisor
    quotient = jnp.where(again, quotient + 1, quotient)
    return quotient, jnp.where(again, remainder - divisor, remainder)


def multiply_wide(left: Array, right: Array) -> tuple[Array, Array]:
    """Return the upper and the lower word of left * right."""
    return multiply_high(left, right), left * right


def multiply_high(left: Array, right: Array) -> Array:
    """Return the upper word of left * right, by one instruction where there is one."""
    if multiplies_wide():
        # not `lax.mulhi`, which compiles for one device only; no array of such words is
        # ever made
        with jax.enable_x64(True):
            product = left.astype(jnp.uint64) * right.astype(jnp.uint64)
            return (product >> jnp.uint64(32)).astype(jnp.uint32)
    left_high, left_low = left >> 16, left & 0xFFFF
    right_high, right_low = right >> 16, right & 0xFFFF
    low = left_low * right_low
    middle = left_high * right_low + (low >> 16)
    cross = left_low * right_high + (middle & 0xFFFF)
    return left_high * right_high + (middle >> 16) + (cross >> 16)


def residues(array: np.ndarray | Array, prime: int | Array) -> Array:
    """Return integers modulo `prime` as uint32, negative ones included."""
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
    """Return integers of any size on the host modulo `prime`."""
    if array.dtype == np.bool_:
        return array.astype(kind)
    if array.dtype != object and array.dtype.itemsize < 8:
        array = array.astype(np.int64)
    return (array % prime).astype(kind)


def codes(array: np.ndarray) -> np.ndarray:
    """Number integers of any size by int32, equal ones alike, 0 as 0."""
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
    """Return the 32-bit words of keystream that one residue takes.

    1 for R = 2**b, else 2. Two words (64 bits) keep a residue within R/2**64 < 2**-33
    of uniform.

    Examples:
        >>> words_per_residue(2**20), words_per_residue(37)
        (1, 2)
    """
    return 1 if is_power_of_two(modulus) else 2


# For values that are traced, and so unknown. Whoever knows them can make a matrix that
# both divide: what is decided about given values takes primes that are drawn for it.
PRIMES = (1_199_999_993, 1_199_999_963)


def minor_bits(matrices: np.ndarray | Array) -> float:
    """Bound log2 of every minor of matrices `[..., rows, columns]` (Hadamard).

    A minor is at most the product of its rows' lengths. Of matrices on a device only
    the largest and the smallest entry are asked for.
    """
    rank, columns = min(matrices.shape[-2:]), matrices.shape[-1]
    if matrices.dtype == object or isinstance(matrices, jax.Array):
        largest = 1
        if matrices.dtype != np.bool_:
            largest = max(abs(int(matrices.max())), abs(int(matrices.min())))
        return rank * (largest.bit_length() + 0.5 * math.log2(columns))
    if matrices.dtype == np.bool_:
        squares = float(matrices.sum(axis=-1, dtype=np.int64).max())
    else:
        squares = float((matrices.astype(np.float64) ** 2).sum(axis=-1).max())
    return rank * 0.5 * math.log2(max(2.0, squares)) * (1 + 1e-9)


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
    return Field(*map(on_device, _numbers(prime)))


def fields(primes: Sequence[int]) -> Field:
    """Return the fields of some primes, stacked along a leading axis of every leaf."""
    return Field(
        *(
            on_device(np.stack(each))
            for each in zip(*map(_numbers, primes), strict=True)
        )
    )


def _numbers(prime: int) -> tuple[np.uint32, np.uint32, np.ndarray]:
    digits = [int(digit) for digit in oct(prime - 2)[2:]]
    pair = np.asarray([prime, (2**64 - 1) // (2 * prime) - 2**32], np.uint32)
    return pair[0], pair[1], np.asarray(digits, np.int32)


@jax.jit
def companion(factor: Array, of: Field) -> Array:
    """Return floor(factor * 2**32 / p) for residues."""
    zero = jnp.zeros_like(factor)
    return divide_step(factor << 1, zero, of.prime << 1, of.reciprocal)[0]


@jax.jit
def scale(values: Array, factor: Array, factor_companion: Array, of: Field) -> Array:
    """Return values * factor mod p for residues.

    All three broadcast against each other.
    The quotient by the companion is short by less than 2, so one subtraction reduces
    the remainder. Where words have no upper product, 16-bit halves without their lowest
    product estimate it: short by less than 3.5 in all, so that the remainder lies below
    3.5 p < 2**32 and takes two.
    """
    if multiplies_wide():
        remainder = values * factor - multiply_high(values, factor_companion) * of.prime
        return jnp.minimum(remainder, remainder - of.prime)
    high, low = values >> 16, values & 0xFFFF
    factor_high, factor_low = factor_companion >> 16, factor_companion & 0xFFFF
    quotient = high * factor_high + ((low * factor_high) >> 16)
    quotient = quotient + ((high * factor_low) >> 16)
    remainder = values * factor - quotient * of.prime
    remainder = jnp.minimum(remainder, remainder - (of.prime << 1))
    return jnp.minimum(remainder, remainder - of.prime)


def subtract(left: Array, right: Array, of: Field) -> Array:
    """Return left - right mod p for residues."""
    difference = left - right
    return jnp.minimum(difference, difference + of.prime)


@jax.jit
def multiply(left: Array, right: Array, of: Field) -> Array:
    """Return left * right mod p for residues of one shape."""
    return reduce_wide(*multiply_wide(left, right), of)


def reduce_wide(high: Array, low: Array, of: Field) -> Array:
    """Return (high * 2**32 + low) mod p for numbers below p * 2**32."""
    top = (high << 1) | (low >> 31)
    return divide_step(top, low << 1, of.prime << 1, of.reciprocal)[1] >> 1


def sum_residues(values: Array, of: Field, axis: int = -1) -> Array:
    """Sum residues over an axis (at most 2**16 of them) modulo p."""
    high = jnp.sum(values >> 16, axis=axis, dtype=jnp.uint32)
    low = jnp.sum(values & 0xFFFF, axis=axis, dtype=jnp.uint32)
    bottom = (high << 16) + low
    carry = (bottom < low).astype(jnp.uint32)
    return reduce_wide((high >> 16) + carry, bottom, of)


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


@functools.cache
def inverses(prime: int) -> np.ndarray:
    """Return int32 inverses of all residues modulo a small prime, 0 for 0."""
    table = np.zeros(prime, np.int32)
    table[1] = 1
    for value in range(2, prime):
        table[value] = (prime - prime // value) * int(table[prime % value]) % prime
    return table


def batch_inverse(values: Array, of: Field) -> Array:
    """Invert many values along the leading axis, by three products each.

    The inverses of two values follow from that of their product (Montgomery's trick).
    """
    is_unit = values != 0
    inverted = _unit_inverses(jnp.where(is_unit, values, 1), of)
    return jnp.where(is_unit, inverted, 0)


def _unit_inverses(units: Array, of: Field) -> Array:
    half = units.shape[0] // 2
    if half < 2:
        return inverse(units, of)
    left, right, rest = units[:half], units[half : 2 * half], units[2 * half :]
    inverted = _unit_inverses(jnp.concatenate([multiply(left, right, of), rest]), of)
    shared, others = inverted[:half], inverted[half:]
    return jnp.concatenate(
        [multiply(shared, right, of), multiply(shared, left, of), others]
    )


def kernel_step(
    kernel: UInt32[Array, "dim dim"],
    row: UInt32[Array, " dim"],
    of: Field,
    *,
    binary: bool = False,
) -> tuple[UInt32[Array, "dim dim"], Bool[Array, ""]]:
    """Shrink a kernel basis by one more row of the matrix.

    The rows of `kernel` (zero rows apart) are a basis of {v : P v = 0} mod p, the
    identity before the first row of P. A basis vector q is an equation that the row
    space V obeys; unit vector e_i lies in V exactly if column i of the basis is zero.

    Args:
        kernel: Basis before, in residues, spent rows being zero; at most 2**16 columns.
        row: The new row of P in residues.
        of: The field (`field`).
        binary: Whether `row` is known to hold only 0 and 1, which halves the work
            (static).

    Returns:
        Basis after, and whether the rank has grown by one.

    Cost: two products (one if `binary`) for each entry of the basis; its shapes are
    fixed, so it can be the body of a `lax.scan`. Accelerators make one product more and
    no inverse, which would be ten steps of a loop: vectors of the basis come out
    multiplied by units.

    Examples:
        >>> row = jnp.asarray([0, 1], jnp.uint32)
        >>> kernel, grew = kernel_step(
        ...     jnp.eye(2, dtype=jnp.uint32), row, field(PRIMES[0])
        ... )
        >>> kernel.tolist(), bool(grew)  # e_1 is known, e_0 is not
        ([[1, 0], [0, 0]], True)
    """
    if binary:
        products = jnp.where(row[None, :] != 0, kernel, 0)
    else:
        products = scale(kernel, row[None, :], companion(row, of)[None, :], of)
    values = sum_residues(products, of)
    pivot = jnp.argmax(values != 0)
    leading, spent = values[pivot], kernel[pivot][None, :]
    if is_bound_by_memory():
        unit = jnp.maximum(leading, 1)
        kernel = scale(kernel, unit, companion(unit, of), of)
        factors = values
    else:
        over = jnp.broadcast_to(inverse(leading[None], of), values.shape)
        factors = multiply(values, over, of)
    step = scale(spent, factors[:, None], companion(factors, of)[:, None], of)
    return subtract(kernel, step, of), leading != 0
