"""Deal trials and clients out to the devices of a mesh: each works on its share."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from mrsa_watch._base.errors import require


def varying_like(start: object, *values: object) -> Any:
    """Make the start of a loop vary over the devices as its data do.

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

    def spread(leaf: object) -> Any:
        return lax.pcast(leaf, tuple(sorted(axes - _axes(leaf))), to="varying")

    return jax.tree.map(spread, start)


def _axes(leaf: object) -> frozenset[str]:
    """Return the mesh axes along which an array may differ."""
    return frozenset(jax.typeof(leaf).manual_axis_type.varying)


def checked_mesh(mesh: Any) -> Mesh | None:
    """Check that a mesh has one axis; return None for a single device."""
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
    whole, cut = PartitionSpec(), PartitionSpec(mesh.axis_names[0])
    # a user's scheme, model or optimizer may start a loop from constants
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(whole,) * num_shared + (cut,) * num_sharded,
        out_specs=cut,
        check_vma=False,
    )
