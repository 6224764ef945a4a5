"""Federated training over a participation history that is known beforehand.

Selection does not look at the updates, so the history is rolled out first and only rounds that
were not skipped are trained. A round is three executables, each compiled once and shared by all
schemes, seeds and learning rates: local training, secure aggregation, server step.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._errors import require
from mrsa_jax._status import Status
from mrsa_jax._streams import as_key
from mrsa_jax.data import ClientData
from mrsa_jax.federated._history import (
    PlayedRound,
    Rounds,
    checked_order,
    checked_rounds,
    checked_weights,
    played,
    slots,
)
from mrsa_jax.federated._local import LocalTrainer, check_model, cohort_updates
from mrsa_jax.federated._models import initial_parameters
from mrsa_jax.federated._server import PLAIN_AVERAGE, batched, evaluation, server_step
from mrsa_jax.secagg import Aggregator
from mrsa_jax.selection import RoundHistory

__all__ = ["TrainingResult", "train"]

_TEST_BATCH = 500


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingResult:
    """What a training left behind.

    Attributes:
        parameters: f32 [d], the last global model.
        evaluated_rounds: int [E], rounds after which the model was tested (from 0).
        accuracy: f32 [E].
        loss: f32 [E], mean cross-entropy in nats.
        status: int32 [J], `Status` of each round.
        clipped_fraction: f32 [J], share of the updates' entries outside the quantizer's range;
            nan where nothing was sent.
        aggregates: f32 [J', d], the sums of the J' rounds with status OK, in order; None unless
            asked for.
        diverged_round: First round in which an update or the model was not finite, or None.
        participation: bool [J, N], who is in the sum that the server learnt of each round; a row
            of zeros where it learnt none.
        components: int32 [J, N], for each client the number of the learnt sum that it is in, -1
            for none: sums over parts of a round where its graph fell apart, in failed rounds too
            (`selection.learnt_rows` lists them all).
    """

    parameters: np.ndarray
    evaluated_rounds: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    status: np.ndarray
    clipped_fraction: np.ndarray
    aggregates: np.ndarray | None
    diverged_round: int | None
    participation: np.ndarray
    components: np.ndarray


def train(
    seed: int | Key[Array, ""],
    model: nn.Module,
    client_data: ClientData,
    participation: Bool[Array, "rounds clients"] | np.ndarray | RoundHistory,
    *,
    trainer: LocalTrainer,
    aggregator: Aggregator,
    server: optax.GradientTransformation | None = None,
    test: tuple[Any, Any] | None = None,
    evaluate_every: int = 10,
    initial_parameters: Float32[Array, " dim"] | np.ndarray | None = None,
    survivors: Bool[Array, "rounds 5 clients"] | np.ndarray | None = None,
    weights: ArrayLike | Sequence[int] | None = None,
    slot_order: ArrayLike | Sequence[int] | None = None,
    keep_aggregates: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> TrainingResult:
    """Train one global model over the rounds of a participation history.

    In each round the cohort trains from the global model, the aggregator makes the mean of its
    updates from their quantized sum, and the server steps along it. Skipped rounds (zero rows)
    leave the model alone and cost nothing; a round whose aggregation fails leaves it alone too.

    Args:
        seed: Integer or key; initial model, shuffling and rounding come from it.
        model: Flax module from images to logits.
        client_data: All clients' samples.
        participation: bool [J, N], whom the server asked, in rounds in which nobody is lost; or
            a `selection.RoundHistory`, whose rounds run with its survivors over its graphs: with
            the rule of its rollout in the aggregator, its sums are those that are learnt.
        trainer: Local training, e.g. `local_sgd`.
        aggregator: Secure aggregation, e.g. `mrsa_jax.secagg.ring_average` with as many
            participants as the largest cohort.
        server: `optax` optimizer that takes minus the mean update for a gradient; plain averaging
            if None.
        test: Test inputs and labels; without them nothing is evaluated.
        evaluate_every: Evaluate after rounds `evaluate_every - 1`, ... and after the last.
        initial_parameters: f32 [d] to start from; drawn from the seed if None.
        survivors: bool [J, 5, N], V0 to V4 of each round, whose V0 is `participation`; needs an
            aggregator that takes them, e.g. a `ring_average`. Only clients of V3 train.
        weights: Integers [N], e.g. `client_data.sizes`, for an aggregator of weighted means.
        slot_order: The clients 0 to N - 1 in the order in which they fill the aggregator's slots,
            e.g. slowest first for a `hetero.segment_average`, whose groups are slots; by number
            if None.
        keep_aggregates: Keep each round's sum, f32 [J', d] in host memory.
        progress: Called after each trained round with (rounds done, rounds to train).

    Returns:
        The result; a round that failed says why in `status`, a diverged training is reported in
        `diverged_round`: neither raises.

    Raises:
        ConfigurationError: If shapes, model and data do not fit, or the history is not boolean.

    Examples:
        >>> import mrsa_jax as mj
        >>> data = mj.data.load("digits")
        >>> clients = mj.data.iid(0, data, num_clients=4)
        >>> model = mj.federated.logistic(10)
        >>> history = np.array([[True, False, True, False], [False] * 4])
        >>> result = train(
        ...     0, model, clients, history,
        ...     trainer=mj.federated.local_sgd(model, 0.1, batch_size=100),
        ...     aggregator=mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 2, 650))
        >>> [mj.Status(code).name for code in result.status]
        ['OK', 'SKIPPED']

    Source: Multi-RoundSecAgg, eq. (2) with weights 1/K (its first version omits the
    normalisation) and Algorithm 1; skipped rounds as in Section 4.
    """
    key = as_key(seed)
    history = checked_rounds(participation, survivors, client_data.num_clients)
    dim = check_model(model, client_data)
    _check_same_model(trainer, model)
    require(
        isinstance(evaluate_every, numbers.Integral) and evaluate_every >= 1,
        "evaluate_every",
        "must be a positive integer",
        evaluate_every,
    )
    run = _Run(
        key=key,
        model=model,
        client_data=client_data,
        trainer=trainer,
        aggregator=aggregator,
        server=PLAIN_AVERAGE if server is None else server,
        test=None if test is None else batched(*test, _TEST_BATCH),
        parameters=_start(initial_parameters, key, model, client_data, dim),
        keep_aggregates=keep_aggregates,
        weights=checked_weights(weights, client_data.num_clients),
        slot_order=checked_order(slot_order, client_data.num_clients),
    )
    return _result(run, *_train_rounds(run, history, int(evaluate_every), progress))


class _Report(NamedTuple):
    """What a round reports."""

    status: Any
    clipped_fraction: Any
    is_finite: Any
    summed: Any
    components: Any


@dataclasses.dataclass
class _Run:
    """What the loop over rounds carries."""

    key: Key[Array, ""]
    model: nn.Module
    client_data: ClientData
    trainer: LocalTrainer
    aggregator: Aggregator
    server: optax.GradientTransformation
    test: Any
    parameters: Array
    keep_aggregates: bool
    weights: np.ndarray | None
    slot_order: np.ndarray | None = None
    aggregator_state: Any = None
    server_state: Any = None
    aggregates: list[Any] = dataclasses.field(default_factory=list)

    def one_round(self, index: int, one: PlayedRound) -> _Report:
        """Train those who send, aggregate, step."""
        members = jnp.asarray(one.members)
        updates, is_finite, rounding_key = cohort_updates(
            self.trainer,
            self.parameters,
            self.client_data,
            self.key,
            jnp.int32(index),
            members,
            jnp.asarray(one.sends),
        )
        extras: dict[str, Any] = {}  # what only some histories and aggregators know
        if self.weights is not None:
            extras["weights"] = np.where(one.survivors[0], self.weights[one.members], 0)
        if one.assignment_key is not None:
            extras["assignment_key"] = one.assignment_key
        alive = one.survivors if one.has_steps else one.sends
        out, self.aggregator_state = self.aggregator.aggregate(
            rounding_key, self.aggregator_state, updates, members, jnp.asarray(alive), **extras
        )
        status = jnp.asarray(out.status, jnp.int32)
        is_ok = status == int(Status.OK)
        self.parameters, self.server_state, is_model_finite = server_step(
            self.server, self.parameters, self.server_state, out.update, is_ok
        )
        summed, components = _learnt(out, is_ok, one.sends)
        if self.keep_aggregates:
            weight = getattr(out, "total_weight", one.sends.sum())
            self.aggregates.append(np.asarray(out.update) * np.float32(weight))
        finite = is_finite & is_model_finite
        return _Report(status, out.clipped_fraction, finite, summed, components)


def _learnt(out: Any, is_ok: Array, sends: np.ndarray) -> tuple[Any, Any]:
    """Return who is in the round's sum, and in which learnt sum each client is."""
    if hasattr(out, "components"):
        return out.summed, out.components
    # an aggregator that gives no more than a status sums those who send
    summed = is_ok & jnp.asarray(sends)
    return summed, jnp.where(summed, jnp.int32(np.argmax(sends)), jnp.int32(-1))


def _train_rounds(
    run: _Run,
    history: Rounds,
    evaluate_every: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[int, tuple[np.ndarray, Any]], dict[int, Any], np.ndarray]:
    """Go through the rounds; return what each trained and each evaluated round reported."""
    cohorts = history.cohorts
    num_rounds = len(cohorts)
    to_train = np.flatnonzero(cohorts.any(axis=1))
    members, present = slots(cohorts[to_train], run.aggregator, run.slot_order)
    if len(to_train):
        run.aggregator_state = run.aggregator.init()
        run.server_state = run.server.init(run.parameters)
    reports: dict[int, tuple[np.ndarray, Any]] = {}
    evaluations: dict[int, Any] = {}
    latest: Any = None  # the evaluation of the current model
    slot_of = {int(index): slot for slot, index in enumerate(to_train)}
    for index in range(num_rounds):
        slot = slot_of.get(index)
        if slot is not None:
            before = run.parameters
            one = played(history, index, members[slot], present[slot])
            reports[index] = (one.members, run.one_round(index, one))
            latest = None
            jax.block_until_ready(before)  # at most one round is under way behind this one
            if progress is not None:
                progress(slot + 1, len(to_train))
        is_due = (index + 1) % evaluate_every == 0 or index == num_rounds - 1
        if run.test is not None and is_due:
            latest = latest or evaluation(run.model, run.parameters, *run.test)
            evaluations[index] = latest
    return reports, evaluations, cohorts


def _result(
    run: _Run,
    reports: dict[int, tuple[np.ndarray, Any]],
    evaluations: dict[int, Any],
    cohorts: np.ndarray,
) -> TrainingResult:
    """Bring everything to the host, in one go."""
    reports, evaluations = jax.device_get((reports, evaluations))
    status = np.full(len(cohorts), int(Status.SKIPPED), np.int32)
    clipped = np.full(len(cohorts), np.nan, np.float32)
    participation = np.zeros(cohorts.shape, np.bool_)
    components = np.full(cohorts.shape, -1, np.int32)
    diverged = None
    for index, (members, report) in sorted(reports.items()):
        status[index], clipped[index] = report.status, report.clipped_fraction
        participation[index, members[report.summed]] = True
        inside = report.components >= 0
        components[index, members[inside]] = members[report.components[inside]]
        if diverged is None and not report.is_finite:
            diverged = index
    rounds = sorted(evaluations)
    sums = None
    if run.keep_aggregates:
        is_learnt = [status[index] == Status.OK for index in sorted(reports)]
        kept = [sum_ for sum_, keep in zip(run.aggregates, is_learnt, strict=True) if keep]
        sums = np.stack(kept) if kept else np.zeros((0, run.parameters.shape[0]), np.float32)
    return TrainingResult(
        parameters=np.asarray(run.parameters),
        evaluated_rounds=np.asarray(rounds, np.int64),
        accuracy=np.asarray([evaluations[index][0] for index in rounds], np.float32),
        loss=np.asarray([evaluations[index][1] for index in rounds], np.float32),
        status=status,
        clipped_fraction=clipped,
        aggregates=sums,
        diverged_round=diverged,
        participation=participation,
        components=components,
    )


def _start(given: Any, key: Any, model: nn.Module, client_data: ClientData, dim: int) -> Array:
    if given is None:
        return initial_parameters(key, model, tuple(client_data.inputs.shape[1:]))
    require(
        np.shape(given) == (dim,),
        "initial_parameters",
        f"must have the model's {dim} entries",
        np.shape(given),
    )
    return jnp.asarray(given, jnp.float32)


def _check_same_model(trainer: Any, model: nn.Module) -> None:
    trained = getattr(trainer, "model", model)
    require(trained == model, "trainer", "must train the `model` given", trained, model)
