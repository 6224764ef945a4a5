"""Exact chances on 32-bit words: an event of chance p happens iff a uniform word is below p·2^32.

Chances are rounded to a multiple of 2^-32; 0 never happens and 1 always does, and what is between
them, however near, is rounded to neither.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, UInt32

from mrsa_jax._core.arrays import host_array, on_device, one_program
from mrsa_jax._core.device import is_traced
from mrsa_watch._base.errors import is_number, require

ALWAYS = 2**32 - 1
"""The largest threshold, which stands for chance 1."""


def check_chances(value: Any, argument: str) -> np.ndarray:
    """Return a chance or a vector of chances as float64, or raise naming `argument`."""
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array | list | tuple)
    rule = "must be a number or one number per client"
    require(is_array or is_number(value), argument, rule, value)
    array = host_array(value, argument)
    require(array.dtype.kind in "fiu", argument, "must hold real numbers", value)
    array = array.astype(np.float64)
    rule = "must be a number or a vector with one entry per client"
    require(array.ndim <= 1 and array.size > 0, argument, rule, f"shape {array.shape}")
    bad = array[~((array >= 0.0) & (array <= 1.0))]
    require(bad.size == 0, argument, "must lie in [0, 1]", *bad[:1].tolist())
    return array


def threshold(chances: np.ndarray) -> np.ndarray:
    """Return uint32 thresholds for float64 chances in [0, 1]."""
    scaled = np.clip(np.round(chances * 2.0**32), 1.0, float(ALWAYS - 1))
    sure = np.where(chances >= 1.0, float(ALWAYS), 0.0)
    return np.where((chances > 0.0) & (chances < 1.0), scaled, sure).astype(np.uint32)


def threshold_chance(thresholds: np.ndarray) -> np.ndarray:
    """Return the float64 chances that thresholds stand for."""
    return np.where(thresholds == ALWAYS, 1.0, thresholds.astype(np.float64) / 2.0**32)


@one_program
def happens(
    words: UInt32[Array, " clients *trials"], thresholds: UInt32[Array, "*clients"]
) -> Bool[Array, " clients *trials"]:
    """Return whether each event happens, from one uniform word each.

    Args:
        words: One for each client, trials as trailing axes.
        thresholds: One for all clients, or [N].
    """
    limits = jnp.expand_dims(thresholds, tuple(range(thresholds.ndim, words.ndim)))
    limits = jnp.broadcast_to(limits, words.shape)
    return (words < limits) | (limits == jnp.uint32(ALWAYS))


def spread(array: Array, argument: str, num_clients: int, kind: str = "number") -> Array:
    """Return one number for each client from one for all, or the [N] given.

    Args:
        array: One number, or [N].
        argument: Name used in the message.
        num_clients: N.
        kind: What the message calls a number.

    Raises:
        ConfigurationError: If there are numbers for another number of clients.
    """
    shape = array.shape
    rule = f"must be one {kind} or {num_clients}, one for each client"
    require(len(shape) == 0 or shape[-1] == num_clients, argument, rule, f"shape {shape}")
    if len(shape) > 0:
        return array
    if is_traced(array):
        return jnp.broadcast_to(array, (num_clients,))
    return on_device(np.broadcast_to(np.asarray(array), num_clients))
