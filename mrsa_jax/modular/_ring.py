"""Arithmetic modulo R on uint32 arrays, exact without 64-bit types.

The ring of a secure sum (HeteroSAg and CCESA write R): R = 2**b with b <= 32 by
wrapping and clearing high bits, any other R below 2**31 by one conditional subtraction.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt32

from mrsa_jax._core.array_types import Whole
from mrsa_jax._core.prime import divide_step, is_power_of_two
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import pytree, static
from mrsa_watch._base.errors import check_integer, require


def check_modulus(modulus: Any, argument: str = "modulus") -> int:
    """Return `modulus` as a Python int.

    Raise unless the ring can be computed exactly.

    Args:
        modulus: R: a power of two up to 2**32, or any integer in [2, 2**31).
        argument: Name used in the message.

    Returns:
        R.

    Raises:
        ConfigurationError: If R is no integer or outside those sets.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.modular.check_modulus(2**32) == 2**32 and mj.modular.check_modulus(
        ...     37
        ... ) == 37
        True
    """
    rule = "must be a power of two from 2 to 2**32 or any integer in [2, 2**31)"
    value = check_integer(
        modulus,
        argument,
        2,
        2**32,
        rule=rule,
    )
    require(
        value < 2**31 or is_power_of_two(value),
        argument,
        rule,
        modulus,
    )
    return value


@pytree
class Ring:
    """R as numbers that can be traced (build it with `ring_of`).

    One program for many rings.

    Attributes:
        is_power: Whether R = 2**b (static).
        low_bits: R - 1 for R = 2**b, else 2**32 - 1.
        modulus: R, or 0 for R = 2**b.
        shift: By how much R is shifted left to fill 32 bits.
        divisor: R so shifted.
        reciprocal: floor((2**64 - 1) / divisor) - 2**32.
    """

    is_power: bool = static()
    low_bits: Any
    modulus: Any
    shift: Any
    divisor: Any
    reciprocal: Any


def ring_of(modulus: Whole) -> Ring:
    """Return the ring of R elements, each number a uint32.

    Args:
        modulus: R (see `check_modulus`).

    Raises:
        ConfigurationError: If the ring cannot be computed exactly.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> int(mj.modular.add(jnp.uint32(30), jnp.uint32(10), mj.modular.ring_of(37)))
        3
    """
    size = check_modulus(modulus)
    if is_power_of_two(size):
        zero, one = np.uint32(0), np.uint32(1)
        return Ring(
            True,
            np.uint32(size - 1),
            zero,
            one,
            zero,
            zero,
        )
    shift = 32 - size.bit_length()  # at least 1, as R < 2**31
    # the divisor's top bit must be set for the long division (`divide_step`)
    divisor = size << shift
    reciprocal = (2**64 - 1) // divisor - 2**32
    return Ring(
        False,
        np.uint32(2**32 - 1),
        np.uint32(size),
        np.uint32(shift),
        np.uint32(divisor),
        np.uint32(reciprocal),
    )


def _ring(modulus: Any) -> Ring:
    return modulus if isinstance(modulus, Ring) else ring_of(modulus)


def add(
    left: UInt32[Array, "*left"],
    right: UInt32[Array, "*right"],
    modulus: Whole | Ring,
) -> UInt32[Array, "*out"]:
    """Add residues modulo R.

    Args:
        left: Residues in [0, R).
        right: Residues in [0, R), of a shape equal to `left`'s or scalar.
        modulus: R (static, see `check_modulus`), or a `Ring`.

    Returns:
        `(left + right) mod R`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> int(mj.modular.add(jnp.uint32(30), jnp.uint32(10), 37))
        3
    """
    return _add(left, right, _ring(modulus))


def subtract(
    left: UInt32[Array, "*left"],
    right: UInt32[Array, "*right"],
    modulus: Whole | Ring,
) -> UInt32[Array, "*out"]:
    """Subtract residues modulo R.

    Args:
        left: Residues in [0, R).
        right: Residues in [0, R), of a shape equal to `left`'s or scalar.
        modulus: R (static, see `check_modulus`), or a `Ring`.

    Returns:
        `(left - right) mod R`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> int(mj.modular.subtract(jnp.uint32(3), jnp.uint32(10), 37))
        30
    """
    return _subtract(left, right, _ring(modulus))


def ring_sum_over(
    values: UInt32[Array, "*batch"],
    modulus: Whole | Ring,
    axis: int = 0,
) -> UInt32[Array, " ..."]:
    """Sum residues along one axis modulo R.

    Args:
        values: Residues in [0, R).
        modulus: R (static), or a `Ring`.
        axis: The axis that is summed away.

    Returns:
        The sum, in [0, R); zeros where the axis is empty.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> int(mj.modular.ring_sum_over(jnp.asarray([30, 30, 30], jnp.uint32), 37))
        16
    """
    if isinstance(modulus, int) and not is_power_of_two(modulus):
        return _reduced(values, modulus, axis % values.ndim)
    return _summed(values, _ring(modulus), axis % values.ndim)


@functools.partial(one_program, static_argnums=(1, 2))
def _reduced(values: Array, modulus: int, axis: int) -> Array:
    return lax.reduce(
        values,
        jnp.uint32(0),
        lambda a, b: add(a, b, modulus),
        (axis,),
    )


@functools.partial(one_program, static_argnums=2)
def _summed(values: Array, ring: Ring, axis: int) -> Array:
    if ring.is_power:
        return jnp.sum(values, axis=axis, dtype=jnp.uint32) & ring.low_bits
    # A reduction may not refer to a traced R, but up to 2^16 halves of 16 bits need
    # none. More residues are folded in half until they are as few.
    while values.shape[axis] > 2**16:
        half = values.shape[axis] // 2
        first, second, rest = jnp.split(values, (half, 2 * half), axis)
        values = jnp.concatenate([_add(first, second, ring), rest], axis)
    low = jnp.sum(values & 0xFFFF, axis=axis, dtype=jnp.uint32)
    high = jnp.sum(values >> 16, axis=axis, dtype=jnp.uint32)
    word = low + (high << 16)
    return _rest((high >> 16) + (word < low).astype(jnp.uint32), word, ring)


def reduce_words(
    high: UInt32[Array, "*shape"],
    low: UInt32[Array, "*shape"],
    modulus: Whole | Ring,
) -> UInt32[Array, "*shape"]:
    """Reduce the 64-bit numbers high * 2**32 + low modulo R.

    Exact long division of three 32-bit digits by the normalised divisor with a
    precomputed reciprocal (Möller and Granlund, "Improved division by invariant
    integers", algorithm 4).

    Args:
        high: Upper words.
        low: Lower words.
        modulus: R (static), or a `Ring`.

    Returns:
        Residues in [0, R).

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> int(mj.modular.reduce_words(jnp.uint32(5), jnp.uint32(7), 37)) == (
        ...     5 * 2**32 + 7
        ... ) % 37
        True
    """
    return _rest(high, low, _ring(modulus))


@one_program
def _add(left: Array, right: Array, ring: Ring) -> Array:
    # below 2R < 2^32: if it is below R, subtracting R wraps round to something larger
    total = left + right
    return (
        total & ring.low_bits
        if ring.is_power
        else jnp.minimum(total, total - ring.modulus)
    )


@one_program
def _subtract(left: Array, right: Array, ring: Ring) -> Array:
    difference = left - right
    if ring.is_power:
        return difference & ring.low_bits
    return jnp.minimum(difference, difference + ring.modulus)


@one_program
def _rest(high: Array, low: Array, ring: Ring) -> Array:
    if ring.is_power:
        return low & ring.low_bits
    up, d, reciprocal = (
        jnp.asarray(x) for x in (ring.shift, ring.divisor, ring.reciprocal)
    )
    down = 32 - up
    _, remainder = divide_step(
        high >> down,
        (high << up) | (low >> down),
        d,
        reciprocal,
    )
    _, remainder = divide_step(remainder, low << up, d, reciprocal)
    return remainder >> up
