"""One round of local training: a trainer mapped over the members of a cohort.

Clients are trained a few side by side, in turns, from one model; a client's random stream comes
from its own index, so that neither its slot nor its company changes what it learns.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, Key

from mrsa_jax._core.device import at_once
from mrsa_jax._core.streams import Stream, random_words, round_key
from mrsa_jax.data import ClientData


@runtime_checkable
class LocalTrainer(Protocol):
    """How one client trains; a pytree. The library maps it over the cohort.

    A trainer may also have `update_from_pool` (see `LocalSGD`), which is then used in its place
    and saves the copy of each client's samples, and `scaled` for learning-rate schedules.
    """

    def update(
        self,
        key: Key[Array, ""],
        parameters: Float32[Array, " dim"],
        inputs: Float32[Array, "samples ..."],
        labels: Int32[Array, " samples"],
        size: Int32[Array, ""],
    ) -> Float32[Array, " dim"]:
        """Return new minus old parameters; only the first `size` samples are the client's."""
        ...


@functools.partial(jax.jit, static_argnames=("width",))
def cohort_updates(
    trainer: LocalTrainer,
    parameters: Float32[Array, " dim"],
    client_data: ClientData,
    key: Key[Array, ""],
    round_index: Int32[Array, ""],
    members: Int32[Array, " slots"],
    present: Bool[Array, " slots"],
    width: int | None = None,
) -> tuple[Float32[Array, "slots dim"], Bool[Array, ""], Key[Array, ""]]:
    """Train the members of a cohort from one model.

    A client's random stream comes from its own index, not from its slot. `width` clients are
    trained side by side (static), so many that their parameters stay in cache if None; it bounds
    the memory and changes the updates by rounding only.

    Returns:
        Updates f32 [slots, d] (zero in slots that are not present), whether all are finite, and
        the round's key for quantization.
    """
    training_key = round_key(key, round_index, Stream.LOCAL_TRAINING)

    def one(slot: Array, is_present: Array) -> Array:
        member = members[slot]
        own_key = jax.random.fold_in(training_key, member)
        size = jnp.where(is_present, client_data.sizes[member], jnp.int32(0))
        return client_update(trainer, own_key, parameters, client_data, member, size)

    width = measured_width(parameters.shape[0]) if width is None else width
    order = jnp.arange(members.shape[0], dtype=jnp.int32)
    is_grouped = 1 < width < members.shape[0]
    if is_grouped:
        order = by_size(present, client_data.sizes[members])
    updates = mapped(one, order, present[order], width)
    updates = updates[jnp.argsort(order)] if is_grouped else updates
    updates = jnp.where(present[:, None], updates, jnp.float32(0))
    # one sum a client is finite only if all its entries are (an overflow is divergence too)
    is_finite = jnp.all(jnp.isfinite(jnp.sum(updates, axis=1)))
    return updates, is_finite, round_key(key, round_index, Stream.QUANTIZATION)


def client_update(
    trainer: LocalTrainer,
    key: Key[Array, ""],
    parameters: Float32[Array, " dim"],
    client_data: ClientData,
    row: Int32[Array, ""],
    size: Int32[Array, ""],
) -> Float32[Array, " dim"]:
    """Return the update of the client in one row of the data, for its first `size` samples."""
    inputs, labels, indices = client_data.inputs, client_data.labels, client_data.indices[row]
    from_pool = getattr(trainer, "update_from_pool", None)
    if from_pool is not None:
        return from_pool(key, parameters, inputs, labels, indices, size)
    return trainer.update(key, parameters, inputs[indices], labels[indices], size)


def measured_width(dim: int) -> int:
    """Return how many clients of d parameters train side by side where memory is no matter."""
    return at_once("clients", 4 * dim)


def by_size(present: Array, sizes: Array, num_devices: int = 1) -> Int32[Array, " slots"]:
    """Return the order in which slots are trained, for each device a run of equal length.

    Who train together take the steps of the largest, so like sizes go together; and slots are
    dealt out to the devices in turns, largest first: these then end at about the same time.
    """
    order = jnp.argsort(-jnp.where(present, sizes, jnp.int32(0)))
    return order.reshape(-1, num_devices).T.ravel().astype(jnp.int32)


def mapped(one: Any, members: Array, present: Array, width: int) -> Array:
    """Map over clients, at most `width` side by side, in turns of about one size."""
    num_members = members.shape[0]
    turns = -(-num_members // width)
    if turns <= 1:
        return jax.vmap(one)(members, present)
    width = -(-num_members // turns)
    spare = turns * width - num_members  # empty slots at the end: no samples, no steps
    padded = jnp.pad(members, (0, spare)), jnp.pad(present, (0, spare))
    grid = jax.tree.map(lambda array: array.reshape(turns, width), padded)
    updates = jax.lax.map(lambda slots: jax.vmap(one)(*slots), grid)
    return updates.reshape(turns * width, -1)[:num_members]


def shuffled(
    key: Key[Array, ""], num_slots: int, size: Array, batch_size: int, num_epochs: int
) -> Int32[Array, "epochs slots"]:
    """Return for each epoch the client's own samples in random order, the first sample after them.

    So what a minibatch holds beyond the client's samples is finite where they are. The order does
    not depend on how much padding there is: word i of a stream is that of slot i.
    """
    slots = jnp.arange(num_slots, dtype=jnp.int32)
    keys = jax.vmap(lambda epoch: jax.random.fold_in(key, epoch))(
        jnp.arange(num_epochs, dtype=jnp.int32)
    )
    words = jax.vmap(lambda k: random_words(k, (num_slots,)))(keys)
    words = jnp.where(slots[None, :] < size, words, jnp.uint32(0xFFFFFFFF))
    order = jnp.argsort(words, axis=1, stable=True).astype(jnp.int32)
    order = jnp.where(slots[None, :] < size, order, jnp.int32(0))
    spare = -num_slots % batch_size  # a last batch may reach behind the samples
    return jnp.pad(order, ((0, 0), (0, spare)))
