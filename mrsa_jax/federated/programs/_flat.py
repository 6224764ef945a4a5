"""The slots of many trainings as one flat list, and rounds of all of them as one program."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array

from mrsa_jax._device import map_tiles
from mrsa_jax._mesh import spread
from mrsa_jax._streams import Stream, round_key
from mrsa_jax.data import ClientData
from mrsa_jax.federated.programs._cohort import by_size, client_update, mapped, measured_width
from mrsa_jax.federated.programs._rounds import (
    Carried,
    Fixed,
    Report,
    Round,
    Trained,
    aggregated_where_run,
    trainer_at,
)


class Slots(NamedTuple):
    """The cohorts of some runs as one list; S slots."""

    run: Any  # int32: which of the runs
    row: Any  # int32: which row of the merged clients
    member: Any  # int32: which client of its run
    present: Any  # bool


@functools.partial(jax.jit, static_argnames=("width", "mesh"))
def flat_updates(
    trainers: Any,
    parameters: Array,
    pool: ClientData,
    keys: Array,
    rounds: Array,
    slots: Slots,
    *,
    width: int,
    mesh: Mesh | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """Train each slot from its run's model.

    Returns:
        Updates by place, which are finite, rounding keys, and each slot's place; None for its own.
    """
    place = None
    if mesh is not None or 1 < width < len(slots.run):
        order = by_size(slots.present, pool.sizes[slots.row], 1 if mesh is None else mesh.size)
        slots, place = jax.tree.map(lambda column: column[order], slots), jnp.argsort(order)

    def of_one_device(trainers: Any, parameters: Any, pool: Any, keys: Any, slots: Any) -> Any:
        def one(position: Array, is_present: Array) -> Array:
            own = jax.tree.map(lambda column: column[position], slots)
            trainer: Any = jax.tree.map(lambda leaf: leaf[own.run], trainers)
            key = jax.random.fold_in(keys[own.run], own.member)
            size = jnp.where(is_present, pool.sizes[own.row], jnp.int32(0))
            return client_update(trainer, key, parameters[own.run], pool, own.row, size)

        positions = jnp.arange(slots.run.shape[0], dtype=jnp.int32)
        updates = mapped(one, positions, slots.present, width)
        updates = jnp.where(slots.present[:, None], updates, jnp.float32(0))
        return updates, jnp.isfinite(jnp.sum(updates, axis=1))

    each = jax.vmap(round_key, in_axes=(0, 0, None))
    shared = (trainers, parameters, pool, each(keys, rounds, Stream.LOCAL_TRAINING))
    train = of_one_device if mesh is None else spread(of_one_device, mesh, len(shared), 1)
    updates, is_finite = train(*shared, slots)
    return updates, is_finite, each(keys, rounds, Stream.QUANTIZATION), place


@functools.partial(jax.jit, static_argnames=("server", "keep", "width", "tile"))
def runs_program(
    fixed: tuple[Fixed, ...],
    carried: tuple[Carried, ...],
    rounds: tuple[Round, ...],
    first_rows: Array,
    client_data: ClientData,
    *,
    server: Any,
    keep: bool,
    width: int | None,
    tile: int,
) -> tuple[tuple[Carried, ...], Report]:
    """Run rounds of several runs of one structure as one program, each run as by itself.

    Args:
        fixed: Of each run.
        carried: Before the first of the rounds.
        rounds: With an axis of rounds; fills are last, of each run as many as it has.
        first_rows: int32 [B], where in the data each run's clients begin.
        client_data: All runs' clients.
        server: The optimizer.
        keep: Whether to report the sums.
        width: Clients side by side; as many as are right for the processor if None.
        tile: Runs aggregated side by side.

    Returns:
        What each run carries after its last, and the reports with axes of rounds and runs.
    """
    own = _stacked(fixed)

    def step(carried: Carried, round_: Round) -> tuple[Carried, Report]:
        trained = _trained(own, carried, round_, first_rows, client_data, width)

        def one(run: tuple[Any, ...]) -> tuple[Carried, Report]:
            return aggregated_where_run(*run, server=server, keep=keep)

        finished: Any = map_tiles(one, (own, carried, trained, round_), tile)
        return finished

    after, reports = jax.lax.scan(step, _stacked(carried), _stacked(rounds, 1))
    each = (jax.tree.map(lambda leaf, at=at: leaf[at], after) for at in range(len(fixed)))
    return tuple(each), reports


def _stacked(runs: tuple[Any, ...], axis: int = 0) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis), *runs)


def _trained(
    own: Fixed, carried: Carried, round_: Round, first_rows: Array, data: ClientData,
    width: int | None,
) -> Trained:  # fmt: skip
    """Train a round's cohorts of all runs that run it."""
    num_runs, num_slots = round_.members.shape
    trainers = own.trainer
    if round_.factor is not None:
        trainers = jax.vmap(trainer_at)(trainers, round_.factor)
    run_of = jnp.repeat(jnp.arange(num_runs, dtype=jnp.int32), num_slots)
    members = round_.members.reshape(-1)
    present = round_.sends & (round_.is_run & carried.is_sound)[:, None]
    slots = Slots(run_of, members + first_rows[run_of], members, present.reshape(-1))
    width = measured_width(carried.parameters.shape[1]) if width is None else width
    updates, is_finite, rounding_keys, place = flat_updates(
        trainers, carried.parameters, data, own.key, round_.index, slots, width=width
    )
    if place is not None:
        updates, is_finite = updates[place], is_finite[place]
    updates = updates.reshape(num_runs, num_slots, -1)
    return Trained(updates, is_finite.reshape(num_runs, num_slots), rounding_keys)
