"""The integers of an array modulo a prime, as 32-bit words."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

__all__ = ["residues"]


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
    if array.dtype == np.bool_:
        return jnp.asarray(array, jnp.uint32)
    if array.dtype.itemsize < 4 or array.dtype == np.uint32:
        array = array.astype(np.int64)
    return jnp.asarray((array % prime).astype(np.uint32))
