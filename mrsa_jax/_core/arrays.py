"""Arrays from what users pass, and what functions of them owe to `jit`, `vmap`, `shard_map`.

This is the one place that rejects fractions, NaN and bad ranks. Matrices of integers
may be NumPy arrays, JAX arrays or nested lists, of bools, integers or floats that are
whole numbers; nothing is ever rounded. Single numbers are checked by
`mrsa_watch._base.errors`.

A function whose work is a program takes traced arrays as they come. One that must know
the values (its result is a Python value, a search on the CPU, an array whose shape
depends on them) refuses them with a sentence.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes, lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int32

from mrsa_jax._core.device import is_traced, platform
from mrsa_jax._core.floats import usual_floats
from mrsa_jax._core.pictures import with_picture
from mrsa_watch._base.errors import (
    KNOWN,
    ConfigurationError,
    check_integer,
    require,
    shortened,
)
from mrsa_watch._base.html import brief
from mrsa_watch._base.tables import require_array
from mrsa_watch._base.values import by_value

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
    """Return `values` as an array on the device, without a program where the host has them.

    As `jnp.asarray`, which compiles one for every new shape and type of an array on the
    host.

    Args:
        values: Arrays of JAX, traced ones included, stay where they are. What the host
            has is copied: `jax.device_put` alone shares a CPU's memory, and would show
            later changes.
        dtype: Wanted; None keeps the type, 64-bit types as wide as JAX is set to. A
            Python number stays weakly typed, and lists take NumPy's common type.

    Examples:
        >>> on_device(np.asarray([3, 2**32 - 1]), np.uint32).dtype, on_device([0.5]).dtype
        (dtype('uint32'), dtype('float32'))
    """
    if isinstance(values, jax.Array):
        return values if dtype is None else values.astype(dtype)
    if dtype is None and type(values) in (int, float, complex):
        return jnp.asarray(values)
    try:
        own = np.asarray(values).dtype
    except (
        TypeError,
        ValueError,
    ):  # a list of traced values or of keys, or no array at all
        own = np.dtype(object)
    # which NumPy might read as numbers; JAX says what it takes
    if own.kind not in "biufcV":
        return jnp.asarray(values, dtype)
    kind = own if dtype is None else np.dtype(dtype)
    return jax.device_put(np.array(values, dtypes.canonicalize_dtype(kind)))


def zeros(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """Return zeros on the device without a program.

    In one that is being traced, as part of it.
    """
    host = jax.device_put(np.zeros(shape, dtype))
    return jnp.zeros(shape, dtype) if isinstance(host, jax.core.Tracer) else host


def host_array(values: Any, argument: str) -> np.ndarray:
    """Return what a user passed as a NumPy array, of whatever it holds.

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


def binary_matrix(values: Any, argument: str) -> np.ndarray:
    """Return a matrix of bools, or of integers 0 and 1, that is not empty, as bools, or raise."""
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
    is_list = host_array(values, argument).ndim == 1
    require(is_list, argument, "must be a list of integers", values)
    return [check_integer(value, argument, minimum) for value in values]


def check_thresholds(
    value: Any, argument: str, count: int, *, batch: bool = False
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
    rule = f"must be one for all or one for each of the {count} clients"
    require(fits, argument, rule, f"shape {limits.shape}")
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


def number_or_vector(value: Any, argument: str) -> np.ndarray:
    """Return a finite number or a vector of them, one per client, as float64, or raise."""
    rule = "must be a number or one number per client"
    array = _plain_array(value, argument, rule, kinds="fiu").astype(np.float64)
    bad = array[~np.isfinite(array)]
    require(bad.size == 0, argument, "must be finite", *bad[:1].tolist())
    return array


def one_number(value: Any, argument: str) -> float:
    """Return one finite number as a Python float, or raise."""
    number = number_or_vector(value, argument)
    require(number.ndim == 0, argument, "must be one number", f"shape {number.shape}")
    return float(number)


def integer_or_vector(value: Any, argument: str) -> np.ndarray:
    """Return an integer or a vector of them, one per client, as int64, or raise."""
    rule = "must be an integer or one integer per client"
    return _plain_array(value, argument, rule, kinds="iu").astype(np.int64)


def _plain_array(value: Any, argument: str, rule: str, kinds: str) -> np.ndarray:
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


# ---- The members of rounds in slots: shapes that do not change with how many were
# asked.


def are_finite(updates: Float[Array, "updates dim"]) -> Bool[Array, " updates"]:
    """Return which updates have neither NaN nor infinite entries."""
    return jnp.all(jnp.isfinite(updates), axis=1)


def padded_slots(
    asked: Bool[np.ndarray, "*rounds clients"],
    width: int,
    order: Int32[np.ndarray, " clients"] | None = None,
) -> tuple[Int32[np.ndarray, "*rounds slots"], Bool[np.ndarray, "*rounds slots"]]:
    """Return the members of each round by slot, and which slots hold one.

    Client 0 fills up.

    Args:
        asked: Who is a member.
        width: Slots of a round, at least as many as any has members.
        order: All clients, in the order in which members take slots; ascending if None.

    Examples:
        >>> members, present = padded_slots(np.asarray([False, True, True]), 3)
        >>> members.tolist(), present.tolist()
        ([1, 2, 0], [True, True, False])
    """
    ordered = asked if order is None else asked[..., order]
    present = np.arange(width) < ordered.sum(axis=-1, keepdims=True)
    members = np.zeros(present.shape, np.int32)
    chosen = np.nonzero(ordered)[-1]
    members[present] = chosen if order is None else order[chosen]
    return members, present


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Value = TypeVar("_Value")


def as_typed(value: Any) -> str:
    """Return the call that makes a scheme, as one types it.

    It is made again and compared, so that only a true call is printed; where none is
    found, as for rates of many clients or numbers that only a transformation knows,
    what `brief` says.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.batch_partitioning(120, 12, 4), mj.availability.independent(0.1)
        (batch_partitioning(120, 12, 4), independent(0.1))
    """
    leaves, shape = jax.tree.flatten(value)
    try:
        calls = [] if is_traced(leaves) else value.typed()
    except (
        TypeError,
        ValueError,
    ):  # schemes of many trials, or what JAX puts into a pytree
        calls = []
    for factory, *arguments in calls:
        try:
            again, form = jax.tree.flatten(factory(*arguments))
        except ConfigurationError:
            continue
        if str(form) == str(shape) and all(map(np.array_equal, again, leaves)):
            return f"{factory.__name__}({', '.join(map(repr, arguments))})"
    return brief(value)


def static() -> Any:
    """Return the field of a `pytree` that decides on programs, instead of a leaf."""
    return dataclasses.field(metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: type[_Value]) -> type[_Value]:
    """Make a frozen dataclass of a class, its fields leaves except those that are static.

    It prints as `brief` does unless the class says how, or has `typed()`, which lists
    calls that may have made it: a factory and its arguments each. Notebooks then show
    its fields too, and where it has `_cells()` a picture. It compares and hashes by
    value, arrays by type, shape and bytes.
    """
    own = as_typed if hasattr(cls, "typed") else brief
    cls.__repr__ = cls.__dict__.get("__repr__", own)  # type: ignore[method-assign]
    if own is as_typed or hasattr(cls, "_cells"):
        cls._repr_html_ = with_picture  # type: ignore[attr-defined]
    frozen = dataclasses.dataclass(frozen=True, eq=False, repr=False)
    return jax.tree_util.register_dataclass(frozen(by_value(cls)))


one_program = functools.partial(jax.jit, inline=True)
"""Decorates what people call by itself.

One program there, nothing separate in another one.
"""


# What XLA leaves out for a CPU's program that is to be there soon: it is compiled in a
# quarter to a half of the time and runs up to seventeen times as long.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
# Entries up to which compiling is most of the work: of 180 clients and 180 rounds.
# There a first call saves 0.7 to 4 seconds, a later one loses 0.01 to 0.8; at 360 of
# each, about a second each.
LITTLE = 2**15


def quick_for_little(
    entries: Callable[..., int], **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as `jax.jit` does, but in less time for little work on a CPU.

    Integers are the same either way; floats may differ in their last digits.

    Args:
        entries: How many there are to work on, of the function's arguments, which come
            by place.
        options: Of `jax.jit`.

    Returns:
        Decorates the function, whose attribute `in_full` never compiles so: for parts
        of much.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        full = jax.jit(function, **options)

        @functools.cache
        def quick() -> Callable[..., Any]:
            return jax.jit(function, compiler_options=_quick_options(), **options)

        @functools.wraps(function)
        def chosen(*arguments: Any, **named: Any) -> Any:
            is_much = (
                platform() != "cpu" or _is_tracing() or entries(*arguments) > LITTLE
            )
            return (full if is_much else quick())(*arguments, **named)

        chosen.in_full = full  # type: ignore[attr-defined]
        return chosen

    return decorated


@functools.cache
def _quick_options() -> dict[str, Any]:
    """Return the options that this version of XLA has."""
    found = {}
    for name, own in QUICK.items():
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0, compiler_options={name: own})()
            found[name] = own
    return found


def needs_values(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Make a function refuse traced arguments.

    With values it runs as it does outside, even where it is called while a caller's
    function is traced.

    Args:
        function: Of arrays whose values it has to know.

    Returns:
        The function; it raises `ConfigurationError`, which names the argument.

    Examples:
        >>> total = needs_values(lambda weights: float(sum(weights)))
        >>> total([1.0, 2.0])
        3.0
        >>> jax.jit(total)([1.0, 2.0])
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `weights` must be known, not traced: call this ...
    """
    usual = usual_floats(function)

    @functools.wraps(function)
    def checked(*given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        if holds_traced((given, named)):
            bound = inspect.signature(function).bind(*given, **named).arguments
            argument, value = next(
                item for item in bound.items() if holds_traced(item[1])
            )
            require(False, argument, KNOWN, value)
        # what is compiled in another context is compiled once more
        if not _is_tracing():
            return usual(*given, **named)
        with jax.ensure_compile_time_eval():
            return usual(*given, **named)

    return checked


def _is_tracing() -> bool:
    """Return whether a caller's function is being traced.

    Then constants are traced as well.
    """
    return isinstance(jax.device_put(np.int32(0)), jax.core.Tracer)


def holds_traced(values: Any) -> bool:
    """Return whether anything in these values, fields of plain dataclasses among it, is traced."""
    leaves = jax.tree.leaves(values)
    records = [leaf for leaf in leaves if dataclasses.is_dataclass(leaf)]
    return is_traced(leaves) or any(
        is_traced(list(vars(record).values())) for record in records
    )


def varying_like(start: Any, *values: Any) -> Any:
    """Return what a loop starts from, as what may differ between the devices that its data does.

    Inside a caller's `shard_map`, constants are the same on all devices of the mesh and
    data are not; a loop must start from what it ends in.

    Args:
        start: A pytree of arrays.
        values: What the loop's results depend on, pytrees of arrays.

    Returns:
        The same values; outside of `shard_map` the same arrays.
    """
    axes = frozenset[str]().union(*(_axes(leaf) for leaf in jax.tree.leaves(values)))
    if not axes:
        return start

    def spread(leaf: Any) -> Any:
        return lax.pcast(leaf, tuple(sorted(axes - _axes(leaf))), to="varying")

    return jax.tree.map(spread, start)


def _axes(leaf: Any) -> frozenset[str]:
    """Return the axes of a mesh along which an array may differ from device to device."""
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)


# ---- Trials and clients dealt out to the devices of a mesh: each works on its share,
# none waits.


def checked_mesh(mesh: Any) -> Mesh | None:
    """Return the mesh if it is one of a single axis; None for None or a single device."""
    if mesh is None:
        return None
    require(
        isinstance(mesh, Mesh),
        "mesh",
        "must be a jax.sharding.Mesh",
        type(mesh).__name__,
    )
    require(len(mesh.axis_names) == 1, "mesh", "must have one axis", mesh.axis_names)
    # what lies where is said by `spread`, not by the types of its axes
    return Mesh(mesh.devices, mesh.axis_names) if mesh.size > 1 else None


def spread(function: Any, mesh: Mesh, num_shared: int, num_sharded: int) -> Any:
    """Map a function over the mesh.

    The first arguments replicated, the others and results cut.
    """
    own, cut = PartitionSpec(), PartitionSpec(mesh.axis_names[0])
    # a user's scheme, model or optimizer may start a loop from constants
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(own,) * num_shared + (cut,) * num_sharded,
        out_specs=cut,
        check_vma=False,
    )
