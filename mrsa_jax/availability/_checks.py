"""Checks of numbers that availability models share, and spreading one number over clients."""

from __future__ import annotations

import numbers
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._errors import require

__all__ = ["check_integers", "check_numbers", "is_integer", "spread"]


def check_numbers(argument: str, value: Any) -> np.ndarray:
    """Return a finite number or a vector of them as float64, or raise naming `argument`."""
    rule = "must be a number or one number per client"
    array = _plain_array(argument, rule, value, kinds="fiu").astype(np.float64)
    bad = array[~np.isfinite(array)]
    require(bad.size == 0, argument, "must be finite", *bad[:1].tolist())
    return array


def check_integers(argument: str, value: Any) -> np.ndarray:
    """Return an integer or a vector of them as int64, or raise naming `argument`."""
    rule = "must be an integer or one integer per client"
    return _plain_array(argument, rule, value, kinds="iu").astype(np.int64)


def _plain_array(argument: str, rule: str, value: Any, kinds: str) -> np.ndarray:
    is_bool = isinstance(value, bool)
    require(not is_bool and not isinstance(value, str), argument, rule, value)
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    require(array.dtype.kind in kinds, argument, rule, value)
    require(array.ndim <= 1 and array.size > 0, argument, rule, f"shape {array.shape}")
    return array


def spread(argument: str, array: Array, num_clients: int) -> Array:
    """Return one number for each client from one for all, or the [N] given.

    Raises:
        ConfigurationError: If there are numbers for another number of clients.
    """
    shape = array.shape
    rule = f"must be one number or {num_clients}, one for each client"
    require(len(shape) == 0 or shape[-1] == num_clients, argument, rule, f"shape {shape}")
    return array if len(shape) > 0 else jnp.broadcast_to(array, (num_clients,))


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer (a bool is not)."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
