"""A cohort's clients spread over the devices of a mesh.

Each device trains its share of the slots with the data and the model replicated; the updates are
then gathered on the first device, where aggregation and server step run as without a mesh. Slots
are padded to a multiple of the devices with slots in which nobody is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._core.arrays import spread, zeros
from mrsa_jax._core.streams import Stream, as_key, round_key
from mrsa_jax.data import ClientData
from mrsa_jax.federated.programs._cohort import LocalTrainer, by_size, cohort_updates


def replicated(tree: Any, mesh: Mesh) -> Any:
    """Copy a pytree to every device of the mesh; of several processes, all must have the same."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    if not _spans_processes(mesh):
        return jax.device_put(tree, everywhere)

    def copied(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return leaf
        return jax.make_array_from_process_local_data(everywhere, np.asarray(leaf))

    return _by_words(copied, tree)


def gathered(tree: Any, mesh: Mesh) -> Any:
    """Bring a pytree to the first device of the mesh, of each process that has a part in it."""
    if _spans_processes(mesh):
        everywhere = NamedSharding(mesh, PartitionSpec())
        whole = jax.jit(lambda values: values, out_shardings=everywhere)(tree)
    else:
        whole = jax.device_put(tree, mesh.devices.flat[0])
    # the part that is here: the whole's type still names the mesh
    return _by_words(lambda leaf: leaf.addressable_data(0), whole)


def held_where_gathered(tree: Any, mesh: Mesh | None) -> Any:
    """Bring the arrays that a training starts from to where its updates are `gathered`.

    What is computed from those stays there: it would be data of another place from the second
    round on, for which all programs are compiled once more.
    """
    if mesh is None:
        return tree

    def held(leaf: Any) -> Any:
        return gathered(replicated(leaf, mesh), mesh) if isinstance(leaf, jax.Array) else leaf

    return jax.tree.map(held, tree)


def _spans_processes(mesh: Mesh) -> bool:
    return len({device.process_index for device in mesh.devices.flat}) > 1


def _by_words(change: Callable[[Any], Any], tree: Any) -> Any:
    """Change every leaf, random keys by the words that they are."""

    def changed(leaf: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
            return change(leaf)
        words = change(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))

    return jax.tree.map(changed, tree)


@functools.partial(jax.jit, static_argnames=("mesh", "width"))
def sharded(*arguments: Any, mesh: Mesh, width: int | None) -> tuple[Array, Array, Array, Array]:
    """Return updates by place, whether all are finite, the rounding key and each slot's place."""

    def of_one_device(*arguments: Any) -> tuple[Array, Array]:
        updates, is_finite, _ = cohort_updates(*arguments, width=width)
        return updates, is_finite[None]

    *shared, members, present = arguments
    _, _, client_data, key, round_index = shared
    spare = (0, -members.shape[0] % mesh.size)
    members, present = jnp.pad(members, spare), jnp.pad(present, spare)
    order = by_size(present, client_data.sizes[members], mesh.size)
    slots = members[order], present[order]
    updates, is_finite = spread(of_one_device, mesh, len(shared), 2)(*shared, *slots)
    rounding_key = round_key(key, round_index, Stream.QUANTIZATION)
    return updates, jnp.all(is_finite), rounding_key, jnp.argsort(order)


def trained_cohort(
    *arguments: Any, mesh: Mesh | None = None, width: int | None = None
) -> tuple[Float32[Array, "slots dim"], Bool[Array, ""], Key[Array, ""]]:
    """Train a cohort as `cohort_updates` does, its slots spread over the mesh if there is one.

    Args:
        arguments: As there, up to `present`; clients' data are best on all devices already
            (`replicated`).
        mesh: Of one axis, or None.
        width: Clients side by side on each device.

    Returns:
        What `cohort_updates` returns, on the mesh's first device.
    """
    if mesh is None:
        return cohort_updates(*arguments, width=width)
    updates, is_finite, rounding_key, place = gathered(
        sharded(*replicated(arguments, mesh), mesh=mesh, width=width), mesh
    )
    return updates[place[: len(arguments[-1])]], is_finite, rounding_key


def lowered_cohort_updates(
    trainer: LocalTrainer,
    parameters: Float32[Array, " dim"],
    client_data: ClientData,
    num_slots: int,
    *,
    mesh: Mesh | None,
    width: int | None = None,
) -> Any:
    """Return the program that trains a cohort, lowered for its devices but not yet compiled.

    Args:
        trainer: As in `cohort_updates`.
        parameters: f32 [d].
        client_data: Nothing is copied: shapes are enough.
        num_slots: Slots of the cohort.
        mesh: Of one axis, or None.
        width: Clients side by side on each device.

    Returns:
        What `jax.jit` lowers to; with a mesh its memory is that of each device.
    """
    shared = (trainer, parameters, client_data, as_key(0), jnp.int32(0))
    slots = zeros(num_slots, jnp.int32), zeros(num_slots, bool)
    if mesh is None:
        return cohort_updates.lower(*shared, *slots, width=width)
    everywhere = NamedSharding(mesh, PartitionSpec())
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        (*shared, *slots),
    )
    return sharded.lower(*shapes, mesh=mesh, width=width)
