"""Rounds as one program: a scan over local training, secure aggregation and server step.

What a round does once its clients are trained is written once, for a round by itself (executables
of their own, driven from the host) and for many in one program. A round of a program that comes
after one which diverged, or that only fills the program up to its length, changes nothing.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from mrsa_jax._status import Status
from mrsa_jax.data import ClientData
from mrsa_jax.federated.programs._cohort import cohort_updates
from mrsa_jax.federated.programs._step import server_step


class Trained(NamedTuple):
    """What the local training of one round gives.

    Attributes:
        updates: f32 [slots, d].
        is_finite: bool, or one for each slot.
        rounding_key: From which the quantizer draws.
    """

    updates: Array
    is_finite: Array
    rounding_key: Array


class Round(NamedTuple):
    """What one round is told; of several in a program, each with an axis of rounds before it.

    Attributes:
        is_run: bool; not what only fills a program up.
        index: int32, the round.
        members: int32 [slots], clients.
        alive: bool [5, slots], V0 to V4; or [slots], who was asked, where nobody is lost.
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
    """What goes from round to round.

    Attributes:
        parameters: f32 [d].
        aggregator: State of the aggregator.
        server: State of the server's optimizer.
        is_sound: bool, nothing has diverged so far.
    """

    parameters: Any
    aggregator: Any
    server: Any
    is_sound: Any


class Report(NamedTuple):
    """What a round reports; on the device until it is read.

    Attributes:
        is_run: bool, or None for a round that was run by itself.
        status: int32.
        clipped_fraction: f32.
        is_finite: bool, whether updates and model are.
        summed: bool [slots].
        components: int32 [slots].
        sums: The mean update and the weight that make the round's sum; None unless kept.
        sketch: f32 [slots, S], some coordinates of each client's update; None unless asked for.
        wrapped: int32, coordinates in which noise took the sum out of its ring's window.
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


class Fixed(NamedTuple):
    """What is the same in all rounds.

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


def trainer_at(trainer: Any, factor: Any) -> Any:
    """Return the trainer at a round's learning rate."""
    return trainer if factor is None else trainer.scaled(factor)


def aggregated(
    aggregator: Any, server: Any, carried: Carried, trained: Trained, round_: Round, keep: bool,
    coordinates: Any = None,
) -> tuple[Carried, Report]:  # fmt: skip
    """Aggregate a round's updates and step; nothing waits for the device here."""
    extras: dict[str, Any] = {}  # what only some histories and aggregators know
    if round_.weights is not None:
        extras["weights"] = round_.weights
    if round_.assignment_key is not None:
        extras["assignment_key"] = round_.assignment_key
    out, state = aggregator.aggregate(
        trained.rounding_key, carried.aggregator, trained.updates, round_.members, round_.alive,
        **extras,
    )  # fmt: skip
    status = jnp.asarray(out.status, jnp.int32)
    is_ok = status == int(Status.OK)
    parameters, server_state, is_model_finite = server_step(
        server, carried.parameters, carried.server, out.update, is_ok
    )
    summed, components = _learnt(out, is_ok, round_.sends)
    is_finite = (trained.is_finite, is_model_finite)
    sums = None
    if keep:
        count = getattr(out, "total_weight", None)
        sums = out.update, round_.sends.sum() if count is None else count
    sketch = None if coordinates is None else _picked(trained.updates, coordinates)
    # an aggregator without noise need not count what cannot happen
    wrapped = jnp.asarray(getattr(out, "wrapped", 0), jnp.int32)
    report = Report(
        None, status, out.clipped_fraction, is_finite, summed, components, sums, sketch, wrapped
    )
    return Carried(parameters, state, server_state, carried.is_sound), report


@jax.jit
def _picked(updates: Array, coordinates: Array) -> Array:
    return updates[:, coordinates]


def _learnt(out: Any, is_ok: Any, sends: Any) -> tuple[Any, Any]:
    """Return who is in the round's sum, and in which learnt sum each client is."""
    if hasattr(out, "components"):
        return out.summed, out.components
    # an aggregator that gives no more than a status sums those who send
    summed = is_ok & jnp.asarray(sends)
    return summed, jnp.where(summed, jnp.argmax(sends).astype(jnp.int32), jnp.int32(-1))


@functools.partial(jax.jit, static_argnames=("server", "keep", "width"))
def rounds_program(
    fixed: Fixed,
    carried: Carried,
    rounds: Round,
    client_data: ClientData,
    *,
    server: Any,
    keep: bool,
    width: int | None,
) -> tuple[Carried, Report]:
    """Run rounds one after another, as one program without a word to the host.

    Args:
        fixed: Of the training.
        carried: Before the first of the rounds.
        rounds: With an axis of rounds; fills are last.
        client_data: All clients' samples.
        server: The optimizer.
        keep: Whether to report the sums.
        width: As in `cohort_updates`.

    Returns:
        What is carried after the last, and the reports with an axis of rounds.
    """

    def run(carried: Carried, round_: Round) -> tuple[Carried, Report]:
        trainer = trainer_at(fixed.trainer, round_.factor)
        trained = Trained(
            *cohort_updates(
                trainer, carried.parameters, client_data, fixed.key, round_.index,
                round_.members, round_.sends, width=width,
            )
        )  # fmt: skip
        own = fixed.aggregator, server, carried, trained, round_, keep
        return _finished(*own, fixed.coordinates)

    return jax.lax.scan(functools.partial(_only_where_run, run), carried, rounds)


def aggregated_where_run(
    fixed: Fixed, carried: Any, trained: Any, round_: Any, *, server: Any, keep: bool
) -> tuple[Carried, Report]:
    """Do what `aggregated` does inside a program that has trained without looking who is run."""

    def run(carried: Carried, round_: Round) -> tuple[Carried, Report]:
        own = fixed.aggregator, server, carried, trained, round_, keep
        return _finished(*own, fixed.coordinates)

    return _only_where_run(run, carried, round_)


def _finished(*arguments: Any) -> tuple[Carried, Report]:
    """Aggregate, and keep in mind whether all is finite."""
    after, report = aggregated(*arguments)
    is_finite = functools.reduce(jnp.logical_and, map(jnp.all, report.is_finite))
    after = after._replace(is_sound=after.is_sound & is_finite)
    return after, report._replace(is_run=jnp.bool_(True), is_finite=is_finite)


def _only_where_run(run: Any, carried: Carried, round_: Round) -> tuple[Carried, Report]:
    """Run a round unless it only fills, or comes after one that diverged: then report zeros."""

    def idle(carried: Carried, round_: Round) -> tuple[Carried, Report]:
        shapes = jax.eval_shape(run, carried, round_)[1]
        return carried, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    is_run: Bool[Array, ""] = round_.is_run & carried.is_sound
    return jax.lax.cond(is_run, run, idle, carried, round_)
