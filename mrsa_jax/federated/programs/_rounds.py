"""Rounds as one program.

A scan over local training, secure aggregation and server step.
What a round does once its clients are trained is written once, for a round by itself
(separate executables, driven from the host) and for many in one program. A round of a
program that comes after one which diverged, or that only fills the program up to its
length, changes nothing.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._core.batches import map_tiles
from mrsa_jax._core.programs import products_by_library
from mrsa_jax._core.pytrees import kept_apart
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, round_key
from mrsa_jax.data import ClientData
from mrsa_jax.federated.programs._cohort import (
    Stateful,
    States,
    client_update,
    measured_width,
    side_by_side,
)

# The server optimizer is any `optax.GradientTransformation`, applied to minus the mean
# update; plain averaging is SGD with learning rate 1.
PLAIN_AVERAGE = optax.sgd(1.0)


@functools.partial(jax.jit, static_argnums=0)
def server_step(
    transform: Any,
    parameters: Float32[Array, " dim"],
    state: Any,
    update: Float32[Array, " dim"],
    is_learnt: Bool[Array, ""],
) -> tuple[Float32[Array, " dim"], Any, Bool[Array, ""]]:
    """Apply an optimizer's `update` to minus the mean.

    A round without a sum changes nothing.
    Optimizers with the same `update` share a program: what they start from is data.

    Returns:
        New parameters, new optimizer state, and whether all parameters are finite.
    """

    def moved(update: Array) -> tuple[Array, Any]:
        # optimizers rely on standard promotion (Adam: float ** int), whatever the user
        # has set
        with jax.numpy_dtype_promotion("standard"):
            step, after = transform(-update, state, parameters)
            return optax.apply_updates(parameters, step), after

    def kept(update: Array) -> tuple[Array, Any]:
        return parameters, state

    # a branch is never fused with what made the update: it rounds alike in any program
    after, state_after = jax.lax.cond(is_learnt, moved, kept, update)
    return after, state_after, jnp.all(jnp.isfinite(after))


class Trained(NamedTuple):
    """Result of the local training of one round.

    Attributes:
        updates: f32 [slots, d].
        is_finite: bool [slots].
        rounding_key: From which the quantizer draws.
    """

    updates: Array
    is_finite: Array
    rounding_key: Array


class Round(NamedTuple):
    """Inputs of one round.

    Of several in a program, each with an axis of rounds before it.

    Attributes:
        is_run: bool; not what only fills a program up.
        index: int32, the round.
        members: int32 [slots], clients.
        alive: bool [5, slots], V0 to V4; or [slots], who was asked, where nobody is
            lost.
        sends: bool [slots], V3: who trains.
        factor: f32, of the learning rate; None without a schedule.
        weights: uint32 [slots], 0 for who was not asked; None without weights.
        assignment_key: From which the graph is drawn; None where the history has none.
    """

    is_run: Any
    index: Any
    members: Any
    alive: Any
    sends: Any
    factor: Any
    weights: Any
    assignment_key: Any


class Carried(NamedTuple):
    """State that goes from round to round.

    Attributes:
        parameters: f32 [d].
        aggregator: State of the aggregator.
        server: State of the server's optimizer.
        is_sound: bool, nothing has diverged so far.
        states: Of the server and each client in addition to the model; None where they
            keep none.
    """

    parameters: Any
    aggregator: Any
    server: Any
    is_sound: Any
    states: States | None = None


class Report(NamedTuple):
    """Report of a round; on the device until it is read.

    Attributes:
        is_run: bool, or None for a round that was run by itself.
        status: int32.
        clipped_fraction: f32.
        is_finite: bool, whether the model is, and updates: one at least where the
            others are failed uploads.
        summed: bool [slots].
        components: int32 [slots].
        sums: The mean update and the weight that make the round's sum; None unless
            kept.
        sketch: f32 [slots, S], some coordinates of each client's update; None unless
            asked for.
        wrapped: int32, coordinates in which noise took the sum out of its ring's
            window.
        failed_uploads: bool [slots], whose update was not finite and left out of the
            sum; none where the aggregator does not look.
    """

    is_run: Any
    status: Any
    clipped_fraction: Any
    is_finite: Any
    summed: Any
    components: Any
    sums: Any
    sketch: Any = None
    wrapped: Any = None
    failed_uploads: Any = None


class Fixed(NamedTuple):
    """Inputs that are the same in all rounds.

    Attributes:
        key: Of the training.
        trainer: Local training.
        aggregator: Secure aggregation.
        coordinates: int32 [S], of the updates, to report of each client; None for none.
    """

    key: Key[Array, ""]
    trainer: Any
    aggregator: Any
    coordinates: Any = None


def trainer_at(trainer: Any, factor: Any, states: States | None = None) -> Any:
    """Return the trainer at a round's learning rate, with what clients have kept."""
    scaled = trainer if factor is None else trainer.scaled(factor)
    apart = kept_apart(scaled)
    return apart if states is None else Stateful(apart, states)


def aggregated(
    aggregator: Any,
    server: Any,
    carried: Carried,
    trained: Trained,
    round_: Round,
    keep: bool,
    coordinates: Any = None,
) -> tuple[Carried, Report]:
    """Aggregate a round's updates and step; nothing waits for the device here."""
    extras: dict[str, Any] = {}  # what only some histories and aggregators know
    if round_.weights is not None:
        extras["weights"] = round_.weights
    if round_.assignment_key is not None:
        extras["assignment_key"] = round_.assignment_key
    # A stateful client sends [update, change of the shared state, new own state]. The
    # first two are summed; the last stays with the client and is cut off here.
    sent, states = trained.updates, carried.states
    if states is not None:
        dim = carried.parameters.shape[0]
        sent, states_sent = _cut(sent, dim + states.shared.shape[0])
    out, state = aggregator.aggregate(
        trained.rounding_key,
        carried.aggregator,
        sent,
        round_.members,
        round_.alive,
        **extras,
    )
    status = jnp.asarray(out.status, jnp.int32)
    is_ok = status == int(Status.OK)
    summed, components = _learnt(out, is_ok, round_.sends)
    update = out.update
    if states is not None:
        update, change = _cut(update, dim)
        # The mean holds the update first, then the change of the shared state.
        states = _kept(states, change, states_sent, round_.members, summed & is_ok)
    before = carried.parameters, carried.server
    parameters, server_state, is_model_finite = server_step(
        server.update, *before, update, is_ok
    )
    left_out = getattr(out, "failed_uploads", None)
    # An aggregator that excludes failed uploads reports them; any other sums them, and
    # the round has diverged.
    failed, can_continue = _failed_uploads(left_out, trained.is_finite, round_.sends)
    is_finite = (can_continue, is_model_finite)
    sums = None
    if keep:
        count = getattr(out, "total_weight", None)
        sums = out.update, round_.sends.sum() if count is None else count
    sketch = None if coordinates is None else _picked(trained.updates, coordinates)
    # an aggregator without noise need not count what cannot happen
    wrapped = jnp.asarray(getattr(out, "wrapped", 0), jnp.int32)
    report = Report(
        None,
        status,
        out.clipped_fraction,
        is_finite,
        summed,
        components,
        sums,
        sketch,
        wrapped,
        failed,
    )
    return Carried(parameters, state, server_state, carried.is_sound, states), report


@functools.partial(jax.jit, static_argnums=1)
def _cut(values: Array, at: int) -> tuple[Array, Array]:
    return values[..., :at], values[..., at:]


@jax.jit
def _kept(
    states: States, change: Array, changed: Array, members: Array, summed: Array
) -> States:
    """Return the state that is kept after a round.

    Of clients in its sum what is new, of others the old.
    """
    num_clients = states.own.shape[0]
    count = jnp.sum(summed, dtype=jnp.int32)
    # SCAFFOLD: c moves by |S| / N of the mean change over the S summed clients.
    moved = states.shared + change * (count.astype(jnp.float32) / num_clients)
    places = jnp.where(summed, members, num_clients)  # one beyond the last is dropped
    shared = jnp.where(count > 0, moved, states.shared)
    return States(shared, states.own.at[places].set(changed, mode="drop"))


@jax.jit
def _picked(updates: Array, coordinates: Array) -> Array:
    return updates[:, coordinates]


def _learnt(out: Any, is_ok: Any, sends: Any) -> tuple[Any, Any]:
    """Return the members of the round's sum, and the component of each client."""
    if hasattr(out, "components"):
        return out.summed, out.components
    # an aggregator that gives no more than a status sums those who send
    summed = is_ok & jnp.asarray(sends)
    return summed, jnp.where(summed, jnp.argmax(sends).astype(jnp.int32), jnp.int32(-1))


@jax.jit
def _failed_uploads(
    left_out: Any, is_finite: Array, sends: Array
) -> tuple[Array, Array]:
    """Return the failed uploads, and whether the training can continue.

    An aggregator that leaves out updates which are not finite needs one that is. Any
    other sums them with the rest, so that all must be.
    """
    if left_out is None:
        return jnp.zeros_like(sends), jnp.all(is_finite | ~sends)
    # With failed uploads excluded, one finite update is enough to continue.
    return left_out, jnp.any(is_finite & sends) | ~jnp.any(sends)


def _where_run(
    fixed: Fixed,
    trained: Trained,
    server: Any,
    keep: bool,
    carried: Carried,
    round_: Round,
) -> tuple[Carried, Report]:
    """Run a round unless it only fills, or comes after one that diverged.

    Then report zeros.

    Args:
        fixed: Of the training.
        trained: The round's local training.
        server: The optimizer.
        keep: Whether to report the sums.
        carried: Before the round.
        round_: The round.
    """

    def run(carried: Carried, round_: Round) -> tuple[Carried, Report]:
        inputs = (
            fixed.aggregator,
            server,
            carried,
            trained,
            round_,
            keep,
        )
        after, report = aggregated(*inputs, fixed.coordinates)
        is_finite = functools.reduce(jnp.logical_and, map(jnp.all, report.is_finite))
        # A round that diverged is the last: the scan passes over all later ones.
        after = after._replace(is_sound=after.is_sound & is_finite)
        return after, report._replace(is_run=jnp.bool_(True), is_finite=is_finite)

    def idle(carried: Carried, round_: Round) -> tuple[Carried, Report]:
        # Both branches must report the same types: an idle round reports zeros.
        shapes = jax.eval_shape(run, carried, round_)[1]
        return carried, jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes
        )

    is_run: Bool[Array, ""] = round_.is_run & carried.is_sound
    return jax.lax.cond(is_run, run, idle, carried, round_)


@products_by_library(static_argnames=("server", "keep", "width", "tile"))
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
    """Run rounds of runs of one structure as one program, each as by itself.

    Nothing waits for the host.

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
        What each run carries after its last, and the reports with axes of rounds and
        runs.
    """
    of_runs = _stacked(fixed)

    def step(carried: Carried, round_: Round) -> tuple[Carried, Report]:
        trained = _trained(of_runs, carried, round_, first_rows, client_data, width)

        def one(run: tuple[Any, ...]) -> tuple[Carried, Report]:
            fixed, carried, trained, round_ = run
            return _where_run(fixed, trained, server, keep, carried, round_)

        # Aggregation run by run, `tile` at once: it needs several arrays as large as a
        # cohort.
        finished: Any = map_tiles(one, (of_runs, carried, trained, round_), tile)
        return finished

    # Carried values are stacked by run; rounds by round and then by run.
    after, reports = jax.lax.scan(step, _stacked(carried), _stacked(rounds, 1))
    each = (
        jax.tree.map(lambda leaf, at=at: leaf[at], after) for at in range(len(fixed))
    )
    return tuple(each), reports


def _stacked(runs: tuple[Any, ...], axis: int = 0) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis), *runs)


def _trained(
    fixed: Fixed,
    carried: Carried,
    round_: Round,
    first_rows: Array,
    data: ClientData,
    width: int | None,
) -> Trained:
    """Train a round's cohorts of all runs that run it, as one list of slots."""
    num_runs, num_slots = round_.members.shape
    trainers, states = fixed.trainer, carried.states
    if round_.factor is not None:
        trainers = jax.vmap(trainer_at)(trainers, round_.factor)
    run_of = jnp.repeat(jnp.arange(num_runs, dtype=jnp.int32), num_slots)
    members = round_.members.reshape(-1)
    # The pool lists all runs' clients: a run's client i is its row first + i.
    rows = members + first_rows[run_of]
    # Slots of runs that are over train nothing.
    present = round_.sends & (round_.is_run & carried.is_sound)[:, None]
    present = present.reshape(-1)
    each = jax.vmap(round_key, in_axes=(0, 0, None))
    keys = each(fixed.key, round_.index, Stream.LOCAL_TRAINING)

    def one(slot: Array, is_present: Array) -> Array:
        run = run_of[slot]
        trainer: Any = jax.tree.map(lambda leaf: leaf[run], trainers)
        # The key of the client in its own run, not of the row: as when trained alone.
        key = jax.random.fold_in(keys[run], members[slot])
        size = jnp.where(is_present, data.sizes[rows[slot]], jnp.int32(0))
        start, state = carried.parameters[run], None
        if states is not None:
            state = states.shared[run], states.own[run, members[slot]]
        return client_update(trainer, key, start, data, rows[slot], size, state)

    width = measured_width(carried.parameters.shape[1]) if width is None else width
    updates, is_finite = side_by_side(one, present, data.sizes[rows], width)
    rounding_keys = each(fixed.key, round_.index, Stream.QUANTIZATION)
    updates = updates.reshape(num_runs, num_slots, -1)
    return Trained(updates, is_finite.reshape(num_runs, num_slots), rounding_keys)
