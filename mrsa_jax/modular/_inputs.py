"""Exact integers from what users pass: the one place that rejects fractions, NaN and bad ranks.

Matrices may be NumPy arrays, JAX arrays or nested lists, of bools, integers or floats that are
whole numbers; nothing is ever rounded.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._errors import ConfigurationError, require, shortened
from mrsa_jax._tracing import KNOWN

_RULE = "must hold bools or integers"


def as_integers(values: Any, argument: str, *, min_ndim: int = 2) -> np.ndarray | Array:
    """Return `values` as an array of bools or integers, exactly.

    Args:
        values: Anything array-like; tracers pass through if their type is bool or integer.
        argument: Name used in messages.
        min_ndim: Fewest axes allowed; the last two must not be empty.

    Returns:
        A JAX array if one was given with such a type, otherwise a NumPy array (object arrays of
        Python integers included).

    Raises:
        ConfigurationError: If there are too few axes, an empty one, a fraction or a NaN.
    """
    require_array(values, argument)
    if isinstance(values, jax.Array) and _is_exact(values.dtype):
        array: Any = values
    else:
        if isinstance(values, jax.core.Tracer):
            require(False, argument, _RULE, values.dtype)
        array = host_array(values, argument)
    require(array.ndim >= min_ndim, argument, f"must have at least {min_ndim} axes", array.shape)
    require(all(size > 0 for size in array.shape), argument, "must not be empty", array.shape)
    return array if _is_exact(array.dtype) else _whole_numbers(array, argument)


def is_table(values: Any) -> bool:
    """Return whether a value is a table of a library such as pandas, not an array."""
    return hasattr(values, "columns") and not isinstance(values, np.ndarray | jax.Array)


def host_array(values: Any, argument: str) -> np.ndarray:
    """Return what a user passed as a NumPy array, of whatever it holds.

    Raises:
        ConfigurationError: If it is traced, as arguments of a function under `jax.jit` are, or
            nothing that NumPy makes an array of.
    """
    is_traced = isinstance(values, jax.core.Tracer)
    try:
        if not is_traced:
            return np.asarray(values)
    except jax.errors.TracerArrayConversionError:
        is_traced = True
    except (TypeError, ValueError, OverflowError):
        pass
    rule = "must hold real numbers or bools, all rows of one length"
    if is_traced:
        rule = KNOWN
    raise ConfigurationError(f"`{argument}` {rule}; got {shortened(values)}")


def require_array(values: Any, argument: str) -> None:
    """Raise for what NumPy would turn into an array of another meaning: a file's name, a table."""
    if isinstance(values, str | os.PathLike):
        rule = "must be an array; mrsa_jax.privacy.read_log reads a file"
        require(False, argument, rule, str(values))
    if is_table(values):
        rule = ("must be an array; mrsa_jax.privacy.read_log(table).participation is that of a "
                "table with rounds and clients")  # fmt: skip
        require(False, argument, rule, type(values).__name__)


def _is_exact(dtype: Any) -> bool:
    return dtype == np.bool_ or jnp.issubdtype(dtype, np.integer)


def _whole_numbers(array: np.ndarray, argument: str) -> np.ndarray:
    if array.dtype == object:
        whole = all(isinstance(value, int | np.integer) for value in array.flat)
        require(whole, argument, _RULE, array.dtype)
        return array
    numeric = np.issubdtype(array.dtype, np.floating)
    require(numeric, argument, _RULE, array.dtype)
    finite = np.isfinite(array)
    require(bool(finite.all()), argument, _RULE, array[~finite][:1].tolist())
    fractions = array != np.floor(array)
    require(not fractions.any(), argument, _RULE, array[fractions][:1].tolist())
    require(bool((np.abs(array) < 2**53).all()), argument, "must hold floats below 2**53")
    return array.astype(np.int64)


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


def check_integer(
    value: Any, argument: str, minimum: int, maximum: int | None = None, *, rule: str | None = None
) -> int:
    """Return `value` as a Python int after checking its kind and range.

    Args:
        value: Anything; bools, fractions and strings are rejected.
        argument: Name used in the message.
        minimum: Smallest legal value.
        maximum: Largest legal value, if there is one.
        rule: The range in words, where the bare numbers would be hard to read.

    Returns:
        The integer.

    Raises:
        ConfigurationError: If `value` is no integer or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        require(False, argument, "must be an integer", value)
    number = int(value)
    if rule is None:
        rule = (
            f"must be at least {minimum}"
            if maximum is None
            else f"must lie in [{minimum}, {maximum}]"
        )
    require(minimum <= number and (maximum is None or number <= maximum), argument, rule, value)
    return number


def check_integers(values: Any, argument: str, minimum: int) -> list[int]:
    """Return a list of integers as Python's, each of at least `minimum`, or raise."""
    is_list = host_array(values, argument).ndim == 1
    require(is_list, argument, "must be a list of integers", values)
    return [check_integer(value, argument, minimum) for value in values]
