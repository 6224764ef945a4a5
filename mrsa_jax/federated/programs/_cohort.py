"""One round of local training: a trainer mapped over the members of a cohort.

Clients are trained a few side by side, in turns, from one model; a client's random
stream comes from its own index, so that neither its slot nor its company changes what
it learns.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float32, Int32, Key

from mrsa_jax._core.arrays import are_finite, zeros
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.factories import bucket
from mrsa_jax._core.mesh import spread
from mrsa_jax._core.programs import products_by_library
from mrsa_jax._core.streams import Stream, as_key, by_words, random_words, round_key
from mrsa_jax._core.traced import is_traced
from mrsa_jax.data import ClientData


@runtime_checkable
class LocalTrainer(Protocol):
    """Local training of one client; a pytree. The library maps it over the cohort.

    A trainer may also have `update_from_pool` (see `LocalSGD`), which is then used in
    its place and saves the copy of each client's samples, `scaled` for learning-rate
    schedules, and `loss` (see `local_sgd`), by which models are then tested.
    """

    def update(
        self,
        key: Key[Array, ""],
        parameters: Float32[Array, " dim"],
        inputs: Float32[Array, "samples ..."],
        labels: Array,
        size: Int32[Array, ""],
    ) -> Float32[Array, " dim"]:
        """Return new minus old parameters.

        Only the first `size` samples are the client's.
        """
        ...


@runtime_checkable
class StatefulTrainer(Protocol):
    """Local training that keeps a state from round to round, such as `scaffold`.

    A pytree.
    The server keeps f32 [h] and sends them with the model; each client keeps its own
    f32 [s]; both begin at zero. What a client sends is its update and, behind it, h
    more entries, whose sum over N the server adds to what it keeps. A round without a
    sum changes neither.
    """

    def state_sizes(self, dim: int) -> tuple[int, int]:
        """Return h and s, for a model of `dim` entries."""
        ...

    def update_with_state(
        self,
        key: Key[Array, ""],
        parameters: Float32[Array, " dim"],
        shared: Float32[Array, " shared"],
        own: Float32[Array, " own"],
        inputs: Float32[Array, "samples ..."],
        labels: Array,
        size: Int32[Array, ""],
    ) -> tuple[
        Float32[Array, " dim"], Float32[Array, " shared"], Float32[Array, " own"]
    ]:
        """Return the update, the rest of the message, and the client's new state."""
        ...


class States(NamedTuple):
    """State that is kept from round to round in addition to the model.

    Attributes:
        shared: f32 [h], by the server.
        own: f32 [N, s], by each client.
    """

    shared: Array
    own: Array


class Stateful(NamedTuple):
    """A trainer of clients that keep something, with what they have kept so far."""

    trainer: Any
    states: States


def first_states(trainer: Any, dim: int, num_clients: int) -> States | None:
    """Return the state before the first round; None if a trainer keeps nothing."""
    sizes = getattr(trainer, "state_sizes", None)
    if sizes is None:
        return None
    shared, kept_size = sizes(dim)
    return States(
        zeros(shared, jnp.float32), zeros((num_clients, kept_size), jnp.float32)
    )


@products_by_library(static_argnames=("width",))
def cohort_updates(
    trainer: LocalTrainer | Stateful,
    parameters: Float32[Array, " dim"],
    client_data: ClientData,
    key: Key[Array, ""],
    round_index: Int32[Array, ""],
    members: Int32[Array, " slots"],
    present: Bool[Array, " slots"],
    width: int | None = None,
) -> tuple[Float32[Array, "slots sent"], Bool[Array, " slots"], Key[Array, ""]]:
    """Train the members of a cohort from one model.

    A client's random stream comes from its own index, not from its slot. `width`
    clients are trained side by side (static), so many that their parameters stay in
    cache if None; it bounds the memory and changes the updates by rounding only.

    Returns:
        Updates f32 [slots, d] (zero in slots that are not present), of clients who keep
        something followed by what else they send and what they keep now; which are
        finite, and the round's key for quantization.
    """
    training_key = round_key(key, round_index, Stream.LOCAL_TRAINING)
    local, states = trainer, None
    if isinstance(trainer, Stateful):
        local, states = trainer

    def one(slot: Array, is_present: Array) -> Array:
        member = members[slot]
        # By client, not by slot: the order of slots changes no draw.
        own_key = jax.random.fold_in(training_key, member)
        # An absent client has no samples, so no step is taken for it.
        size = jnp.where(is_present, client_data.sizes[member], jnp.int32(0))
        state = None if states is None else (states.shared, states.own[member])
        arguments = own_key, parameters, client_data, member, size, state
        return client_update(local, *arguments)

    width = measured_width(parameters.shape[0]) if width is None else width
    updates, is_finite = side_by_side(one, present, client_data.sizes[members], width)
    return updates, is_finite, round_key(key, round_index, Stream.QUANTIZATION)


def side_by_side(
    of_slot: Any, present: Array, sizes: Array, width: int
) -> tuple[Float32[Array, "slots sent"], Bool[Array, " slots"]]:
    """Train slots, at most `width` at once, those of like sizes together.

    Args:
        of_slot: From a slot and whether it is present, its update.
        present: bool [slots]; the updates of others are zeros.
        sizes: int32 [slots], samples of each.
        width: Slots at once.

    Returns:
        The updates by slot, and which are finite.
    """

    def of_present(slot: Array, is_present: Array) -> Array:
        # Absent slots hold whatever the loop left there.
        return jnp.where(is_present, of_slot(slot, is_present), jnp.float32(0))

    order = jnp.arange(present.shape[0], dtype=jnp.int32)
    is_grouped = 1 < width < present.shape[0]
    if is_grouped:
        order = by_size(present, sizes)
    updates = mapped(of_present, order, present[order], width)
    # The argsort of a permutation is its inverse: back to the order of slots.
    updates = updates[jnp.argsort(order)] if is_grouped else updates
    return updates, are_finite(updates)


def client_update(
    trainer: Any,
    key: Key[Array, ""],
    parameters: Float32[Array, " dim"],
    client_data: ClientData,
    row: Int32[Array, ""],
    size: Int32[Array, ""],
    state: tuple[Array, Array] | None = None,
) -> Float32[Array, " sent"]:
    """Return the update of a row of the data, from its first `size` samples.

    With a `state`, of the server and of the client, the update is followed by what else
    the client sends and what it keeps.
    """
    inputs, labels = client_data.inputs, client_data.labels
    indices = client_data.indices[row]
    from_pool = getattr(trainer, "update_from_pool", None)
    if state is None and from_pool is not None:
        return from_pool(key, parameters, inputs, labels, indices, size)
    samples = inputs[indices], labels[indices], size
    if state is None:
        return trainer.update(key, parameters, *samples)
    return jnp.concatenate(trainer.update_with_state(key, parameters, *state, *samples))


def in_buckets(client_data: ClientData, trainer: Any) -> ClientData:
    """Pad clients' data to rows and columns that several sizes share.

    So other numbers of clients, and of the largest's samples, are trained by the same
    program, to the bit. There are more columns only where a minibatch has fewer and is
    taken from the pool: a larger one would add up in another order, and copies of
    samples would be as much longer.
    """
    indices, sizes = client_data.indices, client_data.sizes
    clients, columns = indices.shape
    is_taken = hasattr(trainer, "update_from_pool")
    batch = getattr(trainer, "batch_size", columns) if is_taken else columns
    # If a batch holds all columns, more of them would change the batch, hence the
    # rounding.
    more = bucket(columns) - columns if batch < columns else 0
    spare = (0, bucket(clients) - clients)
    if is_traced(client_data) or (more, spare[1]) == (0, 0):
        return client_data
    return dataclasses.replace(
        client_data,
        indices=jax.device_put(np.pad(np.asarray(indices), (spare, (0, more)))),
        sizes=jax.device_put(np.pad(np.asarray(sizes), spare)),
    )


def measured_width(dim: int) -> int:
    """Return the number of clients to train side by side if memory is no limit."""
    return at_once("clients", 4 * dim)


def by_size(
    present: Array, sizes: Array, num_devices: int = 1
) -> Int32[Array, " slots"]:
    """Return the order in which slots are trained, one run of equal length per device.

    Who train together take the steps of the largest, so like sizes go together; and
    slots are dealt out to the devices in turns, largest first: these then end at about
    the same time.
    """
    order = jnp.argsort(-jnp.where(present, sizes, jnp.int32(0)))
    # Slot j of the sorted order goes to device j mod D: reshape, then transpose.
    return order.reshape(-1, num_devices).T.ravel().astype(jnp.int32)


def mapped(of_client: Any, members: Array, present: Array, width: int) -> Array:
    """Map over clients, at most `width` side by side, in turns of about one size."""
    num_members = members.shape[0]
    turns = -(-num_members // width)
    if turns <= 1:
        return jax.vmap(of_client)(members, present)
    if width == 1:
        return jax.lax.map(lambda slot: of_client(*slot), (members, present))
    # The same number of turns by the smallest width: the fewest empty slots.
    width = -(-num_members // turns)
    spare = turns * width - num_members  # empty slots at the end: no samples, no steps
    padded = jnp.pad(members, (0, spare)), jnp.pad(present, (0, spare))
    grid = jax.tree.map(lambda array: array.reshape(turns, width), padded)
    updates = jax.lax.map(lambda slots: jax.vmap(of_client)(*slots), grid)
    return updates.reshape(turns * width, -1)[:num_members]


def shuffled(
    key: Key[Array, ""],
    num_slots: int,
    size: Array,
    batch_size: int,
    num_epochs: int,
    first_epoch: Array | int = 0,
) -> Int32[Array, "epochs slots"]:
    """Shuffle the client's samples for each epoch, and repeat the first one after them.

    So what a minibatch holds beyond the client's samples is finite where they are. The
    order does not depend on the amount of padding: word i of a stream is that of slot
    i.
    """
    slots = jnp.arange(num_slots, dtype=jnp.int32)
    epochs = jnp.int32(first_epoch) + jnp.arange(num_epochs, dtype=jnp.int32)
    keys = jax.vmap(lambda epoch: jax.random.fold_in(key, epoch))(epochs)
    words = jax.vmap(lambda k: random_words(k, (num_slots,)))(keys)
    # Padding sorts last. A real word may also be the largest one, but the sort is
    # stable and real slots come first.
    words = jnp.where(slots[None, :] < size, words, jnp.uint32(0xFFFFFFFF))
    order = jnp.argsort(words, axis=1, stable=True).astype(jnp.int32)
    # Slots behind the samples repeat the first sample; their gradients are masked.
    order = jnp.where(slots[None, :] < size, order, jnp.int32(0))
    spare = -num_slots % batch_size  # a last batch may reach behind the samples
    return jnp.pad(order, ((0, 0), (0, spare)))


# Each device trains its share of the slots with the data and the model replicated; the
# updates are then gathered on the first device, where aggregation and server step run
# as without a mesh. Slots are padded to a multiple of the devices with slots in which
# nobody is.
def replicated(tree: Any, mesh: Mesh) -> Any:
    """Copy a pytree to every device of the mesh."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def gathered(tree: Any, mesh: Mesh) -> Any:
    """Bring a pytree to the first device of the mesh."""
    whole = jax.device_put(tree, mesh.devices.flat[0])
    # the part on this device: the type of the whole still names the mesh
    return by_words(lambda leaf: leaf.addressable_data(0), whole)


def held_where_gathered(tree: Any, mesh: Mesh | None) -> Any:
    """Bring the arrays that a training starts from to where its updates are `gathered`.

    What is computed from those stays there: it would be data of another place from the
    second round on, for which all programs are compiled once more.
    """
    if mesh is None:
        return tree

    def held(leaf: Any) -> Any:
        return (
            gathered(replicated(leaf, mesh), mesh)
            if isinstance(leaf, jax.Array)
            else leaf
        )

    return jax.tree.map(held, tree)


@products_by_library(static_argnames=("mesh", "width"))
def sharded(
    *arguments: Any, mesh: Mesh, width: int | None
) -> tuple[Array, Array, Array, Array]:
    """Return updates by place, which are finite, the rounding key and slots' places."""

    def of_one_device(*arguments: Any) -> tuple[Array, Array]:
        updates, is_finite, _ = cohort_updates(*arguments, width=width)
        return updates, is_finite

    *shared, members, present = arguments
    _, _, client_data, key, round_index = shared
    spare = (0, -members.shape[0] % mesh.size)
    members, present = jnp.pad(members, spare), jnp.pad(present, spare)
    order = by_size(present, client_data.sizes[members], mesh.size)
    slots = members[order], present[order]
    updates, is_finite = spread(of_one_device, mesh, len(shared), 2)(*shared, *slots)
    rounding_key = round_key(key, round_index, Stream.QUANTIZATION)
    return updates, is_finite, rounding_key, jnp.argsort(order)


def trained_cohort(
    *arguments: Any, mesh: Mesh | None = None, width: int | None = None
) -> tuple[Float32[Array, "slots sent"], Bool[Array, " slots"], Key[Array, ""]]:
    """Train a cohort as `cohort_updates` does, with its slots spread over the mesh.

    Args:
        arguments: As there, up to `present`; clients' data are best on all devices
            already (`replicated`).
        mesh: Of one axis, or None.
        width: Clients side by side on each device.

    Returns:
        What `cohort_updates` returns, on the mesh's first device.
    """
    if mesh is None:
        return cohort_updates(*arguments, width=width)
    everywhere = sharded(*replicated(arguments, mesh), mesh=mesh, width=width)
    updates, is_finite, rounding_key, place = gathered(everywhere, mesh)
    # Without the slots that were padded to a multiple of the devices.
    place = place[: len(arguments[-1])]
    return updates[place], is_finite[place], rounding_key


def lowered_cohort_updates(
    trainer: LocalTrainer | Stateful,
    parameters: Float32[Array, " dim"],
    client_data: ClientData,
    num_slots: int,
    *,
    mesh: Mesh | None,
    width: int | None = None,
) -> Any:
    """Lower the program that trains a cohort for its devices, without compiling it.

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
