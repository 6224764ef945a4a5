"""Read arrays from what users pass.

This is the one place that rejects fractions, NaN and bad ranks. Matrices of integers
may be NumPy arrays, JAX arrays or nested lists, of bools, integers or floats that are
whole numbers; nothing is ever rounded. Single numbers are checked by
`mrsa_watch._base.errors`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jaxtyping import Array, Bool, Float

from mrsa_jax._core.traced import holds_traced, is_traced
from mrsa_watch._base.errors import (
    KNOWN,
    ConfigurationError,
    check_integer,
    require,
    shortened,
)
from mrsa_watch._base.tables import require_array

_RULE = "must hold bools or integers"


def as_integers(values: Any, argument: str, *, min_ndim: int = 2) -> np.ndarray | Array:
    """Return `values` as an array of bools or integers, exactly.

    Args:
        values: Anything array-like; tracers pass through if their type is bool or
            integer.
        argument: Name used in messages.
        min_ndim: Fewest axes allowed; the last two must not be empty.

    Returns:
        A JAX array if one was given with such a type, otherwise a NumPy array (object
        arrays of Python integers included).

    Raises:
        ConfigurationError: If there are too few axes, an empty one, a fraction or a
            NaN.
    """
    require_array(values, argument)
    if isinstance(values, jax.Array) and _is_exact(values.dtype):
        array: Any = values
    else:
        if isinstance(values, jax.core.Tracer):
            require(False, argument, _RULE, values.dtype)
        array = host_array(values, argument)
    require(
        array.ndim >= min_ndim,
        argument,
        f"must have at least {min_ndim} axes",
        array.shape,
    )
    require(
        all(size > 0 for size in array.shape),
        argument,
        "must not be empty",
        array.shape,
    )
    return array if _is_exact(array.dtype) else _whole_numbers(array, argument)


def on_device(values: Any, dtype: Any = None) -> Array:
    """Put values on the device, without a program where the host has them.

    As `jnp.asarray`, which compiles one for every new shape and type of an array on the
    host.

    Args:
        values: Arrays of JAX, traced ones included, stay where they are. What the host
            has is copied: `jax.device_put` alone shares a CPU's memory, and would show
            later changes.
        dtype: Wanted; None keeps the type, 64-bit types as wide as JAX is set to. A
            Python number stays weakly typed, and lists take NumPy's common type.

    Examples:
        >>> (
        ...     on_device(np.asarray([3, 2**32 - 1]), np.uint32).dtype,
        ...     on_device([0.5]).dtype,
        ... )
        (dtype('uint32'), dtype('float32'))
    """
    if isinstance(values, jax.Array):
        return values if dtype is None else values.astype(dtype)
    if dtype is None and type(values) in (int, float, complex):
        return jnp.asarray(values)
    try:
        host_type = np.asarray(values).dtype
    except (
        TypeError,
        ValueError,
    ):  # a list of traced values or of keys, or no array at all
        host_type = np.dtype(object)
    # which NumPy might read as numbers; JAX says what it takes
    if host_type.kind not in "biufcV":
        return jnp.asarray(values, dtype)
    kind = host_type if dtype is None else np.dtype(dtype)
    return jax.device_put(np.array(values, dtypes.canonicalize_dtype(kind)))


def zeros(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """Return zeros on the device without a program.

    In one that is being traced, as part of it.
    """
    host = jax.device_put(np.zeros(shape, dtype))
    return jnp.zeros(shape, dtype) if isinstance(host, jax.core.Tracer) else host


def host_array(values: object, argument: str) -> np.ndarray:
    """Convert a user's values to a NumPy array of any type.

    Raises:
        ConfigurationError: If it is traced, as arguments of a function under `jax.jit`
            are, or nothing that NumPy makes an array of.
    """
    is_traced = isinstance(values, jax.core.Tracer)
    try:
        if not is_traced:
            return np.asarray(values)
    except jax.errors.TracerArrayConversionError:
        is_traced = True
    except (TypeError, ValueError, OverflowError):
        pass
    rule = (
        KNOWN
        if is_traced
        else "must hold real numbers or bools, all rows of one length"
    )
    raise ConfigurationError(f"`{argument}` {rule}; got {shortened(values)}")


def _is_exact(dtype: Any) -> bool:
    return dtype == np.bool_ or jnp.issubdtype(dtype, np.integer)


def _whole_numbers(array: np.ndarray, argument: str) -> np.ndarray:
    if array.dtype == object:
        whole = all(isinstance(value, int | np.integer) for value in array.flat)
        require(whole, argument, _RULE, array.dtype)
        return array
    if array.dtype.itemsize == 2:  # float16 and bfloat16, which hold no bound of 2**53
        array = array.astype(np.float64)
    numeric = np.issubdtype(array.dtype, np.floating)
    require(numeric, argument, _RULE, array.dtype)
    finite = np.isfinite(array)
    require(bool(finite.all()), argument, _RULE, array[~finite][:1].tolist())
    fractions = array != np.floor(array)
    require(not fractions.any(), argument, _RULE, array[fractions][:1].tolist())
    require(
        bool((np.abs(array) < 2**53).all()), argument, "must hold floats below 2**53"
    )
    return array.astype(np.int64)


def binary_matrix(values: object, argument: str) -> np.ndarray:
    """Return a non-empty matrix of bools, or of integers 0 and 1, as bools."""
    rule = "must be a boolean (or 0/1 integer) matrix [rounds, clients]"
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(None)
    require(array.dtype.kind in "biu", argument, rule, f"dtype {array.dtype}")
    require(array.ndim == 2 and array.size > 0, argument, rule, f"shape {array.shape}")
    extremes = {int(array.min()), int(array.max())}
    require(extremes <= {0, 1}, argument, rule, *sorted(extremes))
    return array.astype(np.bool_)


def check_integers(values: Any, argument: str, minimum: int) -> list[int]:
    """Return a list of integers as Python's, each of at least `minimum`, or raise."""
    require(
        host_array(values, argument).ndim == 1,
        argument,
        "must be a list of integers",
        values,
    )
    return [check_integer(value, argument, minimum) for value in values]


def check_thresholds(
    value: object,
    argument: str,
    count: int,
    *,
    batch: bool = False,
) -> Any:
    """Return int32[] or int32[count], each at least 1, or raise.

    Args:
        value: One for all clients, or one for each. Traced ones outside [1, 2**31)
            become the largest, which no shares ever reach.
        argument: Name used in messages.
        count: Number of clients.
        batch: Whether leading axes are allowed.
    """
    limits = (
        value if isinstance(value, jax.core.Tracer) else host_array(value, argument)
    )
    kind = "must hold integers" if limits.ndim else "must be an integer"
    require(np.issubdtype(limits.dtype, np.integer), argument, kind, value)
    fits = limits.ndim == 0 or (
        limits.shape[-1] == count and (batch or limits.ndim == 1)
    )
    require(
        fits,
        argument,
        f"must be one for all or one for each of the {count} clients",
        f"shape {limits.shape}",
    )
    most = np.iinfo(np.int32).max
    if is_traced(limits):
        return jnp.where((limits >= 1) & (limits <= most), limits, most).astype(
            np.int32
        )
    bad = limits[(limits < 1) | (limits > most)]
    require(
        bad.size == 0, argument, "must lie in [1, 2**31)", *bad.ravel()[:1].tolist()
    )
    return limits.astype(np.int32)


def number_or_vector(value: object, argument: str) -> np.ndarray:
    """Return a finite number, or one per client, as float64."""
    rule = "must be a number or one number per client"
    array = _plain_array(value, argument, rule, kinds="fiu").astype(np.float64)
    bad = array[~np.isfinite(array)]
    require(bad.size == 0, argument, "must be finite", *bad[:1].tolist())
    return array


def one_number(value: object, argument: str) -> float:
    """Return one finite number as a Python float, or raise."""
    number = number_or_vector(value, argument)
    require(number.ndim == 0, argument, "must be one number", f"shape {number.shape}")
    return float(number)


def integer_or_vector(value: object, argument: str) -> np.ndarray:
    """Return an integer or a vector of them, one per client, as int64, or raise."""
    rule = "must be an integer or one integer per client"
    return _plain_array(value, argument, rule, kinds="iu").astype(np.int64)


def _plain_array(value: object, argument: str, rule: str, kinds: str) -> np.ndarray:
    require(not holds_traced(value), argument, KNOWN, value)
    is_bool = isinstance(value, bool)
    require(not is_bool and not isinstance(value, str), argument, rule, value)
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    require(array.dtype.kind in kinds, argument, rule, value)
    require(array.ndim <= 1 and array.size > 0, argument, rule, f"shape {array.shape}")
    return array


def are_finite(updates: Float[Array, "updates dim"]) -> Bool[Array, " updates"]:
    """Mark the updates without NaN and infinite entries."""
    return jnp.all(jnp.isfinite(updates), axis=1)
