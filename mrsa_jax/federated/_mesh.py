"""A cohort's clients spread over the devices of a mesh.

Each device trains its share of the slots with the data and the model replicated; the updates are
then gathered on the first device, where aggregation and server step run as without a mesh. Slots
are padded to a multiple of the devices with slots in which nobody is.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float32, Int32, Key

from mrsa_jax._errors import require
from mrsa_jax._streams import Stream, round_key
from mrsa_jax.data import ClientData
from mrsa_jax.federated._cohort import LocalTrainer, cohort_updates

__all__ = ["checked_mesh", "gathered", "replicated", "sharded_cohort_updates", "spread"]


def checked_mesh(mesh: Any) -> Mesh | None:
    """Return the mesh if it is one of a single axis; None for None or a single device."""
    if mesh is None:
        return None
    require(isinstance(mesh, Mesh), "mesh", "must be a jax.sharding.Mesh", type(mesh).__name__)
    require(len(mesh.axis_names) == 1, "mesh", "must have one axis", mesh.axis_names)
    # what lies where is said by `spread` and `replicated`, not by the types of its axes
    return Mesh(mesh.devices, mesh.axis_names) if mesh.size > 1 else None


def replicated(tree: Any, mesh: Mesh) -> Any:
    """Copy a pytree to every device of the mesh."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def gathered(tree: Any, mesh: Mesh) -> Any:
    """Bring a pytree to the first device of the mesh."""
    return jax.device_put(tree, mesh.devices.flat[0])


def spread(function: Any, mesh: Mesh, num_shared: int, num_sharded: int) -> Any:
    """Map a function over the mesh: the first arguments replicated, the others and results cut."""
    own, cut = PartitionSpec(), PartitionSpec(mesh.axis_names[0])
    # a loop whose carry starts replicated and ends sharded is what local training is
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(own,) * num_shared + (cut,) * num_sharded,
        out_specs=cut,
        check_vma=False,
    )


@functools.partial(jax.jit, static_argnames=("mesh", "width"))
def _sharded(
    trainer: LocalTrainer,
    parameters: Float32[Array, " dim"],
    client_data: ClientData,
    key: Key[Array, ""],
    round_index: Int32[Array, ""],
    members: Int32[Array, " slots"],
    present: Bool[Array, " slots"],
    *,
    mesh: Mesh,
    width: int | None,
) -> tuple[Array, Array, Array]:
    sizes = {} if width is None else {"width": width}

    def of_one_device(*arguments: Any) -> tuple[Array, Array]:
        updates, is_finite, _ = cohort_updates(*arguments, **sizes)
        return updates, is_finite[None]

    shared = (trainer, parameters, client_data, key, round_index)
    spare = (0, -members.shape[0] % mesh.size)
    slots = jnp.pad(members, spare), jnp.pad(present, spare)
    updates, is_finite = spread(of_one_device, mesh, len(shared), 2)(*shared, *slots)
    return updates, jnp.all(is_finite), round_key(key, round_index, Stream.QUANTIZATION)


def sharded_cohort_updates(
    trainer: LocalTrainer,
    parameters: Float32[Array, " dim"],
    client_data: ClientData,
    key: Key[Array, ""],
    round_index: Int32[Array, ""],
    members: Int32[Array, " slots"],
    present: Bool[Array, " slots"],
    *,
    mesh: Mesh,
    width: int | None = None,
) -> tuple[Float32[Array, "slots dim"], Bool[Array, ""], Key[Array, ""]]:
    """Train a cohort as `cohort_updates` does, its slots spread over the mesh.

    Args:
        trainer: As there; so are all arguments up to `present`.
        parameters: f32 [d].
        client_data: Best on all devices already (`replicated`).
        key: Of the training.
        round_index: Of the round.
        members: Clients by slot.
        present: Which slots are filled.
        mesh: Of one axis.
        width: Clients side by side on each device.

    Returns:
        What `cohort_updates` returns, on the mesh's first device.
    """
    shared = replicated((trainer, parameters, client_data, key, round_index), mesh)
    out = _sharded(*shared, members, present, mesh=mesh, width=width)
    updates, is_finite, rounding_key = gathered(out, mesh)
    return updates[: members.shape[0]], is_finite, rounding_key
