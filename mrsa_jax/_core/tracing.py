"""What functions of arrays owe to a caller's `jit`, `vmap` and `shard_map`.

A function whose work is a program takes traced arrays as they come. One that must know the values
(its result is a Python value, a search on the CPU, an array whose shape depends on them) refuses
them with a sentence.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from mrsa_jax._core.device import is_traced, platform
from mrsa_watch._base.checks import KNOWN
from mrsa_watch._base.errors import require

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

one_program = functools.partial(jax.jit, inline=True)
"""Decorates what people call by itself: one program there, nothing of its own in another one."""


# What XLA leaves out for a CPU's program that is to be there soon: it is compiled in a quarter to a
# half of the time and runs up to seventeen times as long.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
# Entries up to which compiling is most of the work: of 180 clients and 180 rounds. There a first
# call saves 0.7 to 4 seconds, a later one loses 0.01 to 0.8; at 360 of each, about a second each.
LITTLE = 2**15


def quick_for_little(
    entries: Callable[..., int], **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as `jax.jit` does, but for little work on a CPU in less time.

    Integers are the same either way; floats may differ in their last digits.

    Args:
        entries: How many there are to work on, of the function's arguments, which come by place.
        options: Of `jax.jit`.

    Returns:
        Decorates the function, whose attribute `in_full` never compiles so: for parts of much.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        full = jax.jit(function, **options)

        @functools.cache
        def quick() -> Callable[..., Any]:
            return jax.jit(function, compiler_options=_quick_options(), **options)

        @functools.wraps(function)
        def chosen(*arguments: Any, **named: Any) -> Any:
            is_much = platform() != "cpu" or _is_tracing() or entries(*arguments) > LITTLE
            return (full if is_much else quick())(*arguments, **named)

        chosen.in_full = full  # type: ignore[attr-defined]
        return chosen

    return decorated


@functools.cache
def _quick_options() -> dict[str, Any]:
    """Return the options, none where this version of XLA has not all of them."""
    try:
        jax.jit(lambda: 0, compiler_options=QUICK)()
    except jax.errors.JaxRuntimeError:
        return {}
    return QUICK


def needs_values(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Make a function refuse traced arguments.

    With values it runs as it does outside, even where it is called while a caller's function is
    traced.

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

    @functools.wraps(function)
    def checked(*given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        if _holds_traced((given, named)):
            bound = inspect.signature(function).bind(*given, **named).arguments
            argument, value = next(item for item in bound.items() if _holds_traced(item[1]))
            require(False, argument, KNOWN, value)
        if not _is_tracing():  # what is compiled in another context is compiled once more
            return function(*given, **named)
        with jax.ensure_compile_time_eval():
            return function(*given, **named)

    return checked


def _is_tracing() -> bool:
    """Return whether a caller's function is being traced: then constants are traced as well."""
    return isinstance(jax.device_put(np.int32(0)), jax.core.Tracer)


def _holds_traced(values: Any) -> bool:
    """Return whether anything in these values, fields of plain dataclasses among it, is traced."""
    leaves = jax.tree.leaves(values)
    records = [leaf for leaf in leaves if dataclasses.is_dataclass(leaf)]
    return is_traced(leaves) or any(is_traced(list(vars(record).values())) for record in records)


def program_of(tree: Any) -> tuple[Any, ...]:
    """Return what of a pytree of schemes decides which program runs it; its numbers do not.

    Args:
        tree: Schemes, such as a selector and an availability model.

    Returns:
        A hashable value: the structure with its static fields, and each leaf's shape and type.

    Examples:
        >>> import mrsa_jax as mj
        >>> of = [program_of(mj.selection.batch_partitioning(12, 6, t)) for t in (2, 3)]
        >>> of[0] == of[1] != program_of(mj.selection.batch_partitioning(24, 6, 2))
        True
    """
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(leaf), jnp.result_type(leaf).name) for leaf in leaves)


def varying_like(start: Any, *values: Any) -> Any:
    """Return what a loop starts from, as what may differ between the devices that its data does.

    Inside a caller's `shard_map`, constants are the same on all devices of the mesh and data are
    not; a loop must start from what it ends in.

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


# ---- Trials and clients dealt out to the devices of a mesh: each works on its share, none waits.


def checked_mesh(mesh: Any) -> Mesh | None:
    """Return the mesh if it is one of a single axis; None for None or a single device."""
    if mesh is None:
        return None
    require(isinstance(mesh, Mesh), "mesh", "must be a jax.sharding.Mesh", type(mesh).__name__)
    require(len(mesh.axis_names) == 1, "mesh", "must have one axis", mesh.axis_names)
    # what lies where is said by `spread`, not by the types of its axes
    return Mesh(mesh.devices, mesh.axis_names) if mesh.size > 1 else None


def spread(function: Any, mesh: Mesh, num_shared: int, num_sharded: int) -> Any:
    """Map a function over the mesh: the first arguments replicated, the others and results cut."""
    own, cut = PartitionSpec(), PartitionSpec(mesh.axis_names[0])
    # a user's scheme, model or optimizer may start a loop from constants
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(own,) * num_shared + (cut,) * num_sharded,
        out_specs=cut,
        check_vma=False,
    )
