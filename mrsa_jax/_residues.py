"""Integers of any size as small ones: modulo a prime, or numbered; and the words of residues."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._arrays import on_device


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
