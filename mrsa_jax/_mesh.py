"""Trials and clients dealt out to the devices of a mesh: each works on its share, none waits."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec

from mrsa_jax._errors import require


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
