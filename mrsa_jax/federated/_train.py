"""Federated training over a participation history that is known beforehand.

Selection does not look at the updates, so the history is rolled out first and only rounds that
were not skipped are trained. A round is three executables, each compiled once and shared by all
schemes, seeds and learning rates: local training, secure aggregation, server step.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jaxtyping import Array, Bool, Float32, Int32, Key

from mrsa_jax._errors import require
from mrsa_jax._status import Status
from mrsa_jax._streams import as_key
from mrsa_jax.data import ClientData
from mrsa_jax.federated._local import LocalTrainer, check_model, cohort_updates
from mrsa_jax.federated._models import initial_parameters
from mrsa_jax.federated._server import PLAIN_AVERAGE, batched, evaluation, server_step
from mrsa_jax.secagg import Aggregator

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
    """

    parameters: np.ndarray
    evaluated_rounds: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    status: np.ndarray
    clipped_fraction: np.ndarray
    aggregates: np.ndarray | None
    diverged_round: int | None


def train(
    seed: int | Key[Array, ""],
    model: nn.Module,
    client_data: ClientData,
    participation: Bool[Array, "rounds clients"] | np.ndarray,
    *,
    trainer: LocalTrainer,
    aggregator: Aggregator,
    server: optax.GradientTransformation | None = None,
    test: tuple[Any, Any] | None = None,
    evaluate_every: int = 10,
    initial_parameters: Float32[Array, " dim"] | np.ndarray | None = None,
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
        participation: bool [J, N], who is in the sum of each round.
        trainer: Local training, e.g. `local_sgd`.
        aggregator: Secure aggregation, e.g. `mrsa_jax.secagg.ring_average` with as many
            participants as the largest cohort.
        server: `optax` optimizer that takes minus the mean update for a gradient; plain averaging
            if None.
        test: Test inputs and labels; without them nothing is evaluated.
        evaluate_every: Evaluate after rounds `evaluate_every - 1`, ... and after the last.
        initial_parameters: f32 [d] to start from; drawn from the seed if None.
        keep_aggregates: Keep each round's sum, f32 [J', d] in host memory.
        progress: Called after each trained round with (rounds done, rounds to train).

    Returns:
        The result; a diverged training is reported in `diverged_round`, not raised.

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
    history = _checked_history(participation, client_data.num_clients)
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
    )
    return _result(run, *_train_rounds(run, history, int(evaluate_every), progress))


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
    aggregator_state: Any = None
    server_state: Any = None
    aggregates: list[Any] = dataclasses.field(default_factory=list)

    def one_round(
        self, index: int, members: np.ndarray, present: np.ndarray
    ) -> tuple[Array, Array, Array]:
        """Train, aggregate, step; return status, clipped fraction and whether all is finite."""
        slots, is_present = jnp.asarray(members), jnp.asarray(present)
        updates, is_finite, rounding_key = cohort_updates(
            self.trainer,
            self.parameters,
            self.client_data,
            self.key,
            jnp.int32(index),
            slots,
            is_present,
        )
        out, self.aggregator_state = self.aggregator.aggregate(
            rounding_key, self.aggregator_state, updates, slots, is_present
        )
        status = jnp.asarray(out.status, jnp.int32)
        self.parameters, self.server_state, is_model_finite = server_step(
            self.server, self.parameters, self.server_state, out.update, status == int(Status.OK)
        )
        if self.keep_aggregates:
            self.aggregates.append(np.asarray(out.update) * np.float32(present.sum()))
        return status, out.clipped_fraction, is_finite & is_model_finite


def _train_rounds(
    run: _Run,
    history: np.ndarray,
    evaluate_every: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[int, Any], dict[int, Any], int]:
    """Go through the rounds; return what each trained and each evaluated round reported."""
    num_rounds = len(history)
    to_train = np.flatnonzero(history.any(axis=1))
    members, present = _slots(history[to_train], run.aggregator)
    if len(to_train):
        run.aggregator_state = run.aggregator.init()
        run.server_state = run.server.init(run.parameters)
    reports: dict[int, Any] = {}
    evaluations: dict[int, Any] = {}
    latest: Any = None  # the evaluation of the current model
    slot_of = {int(index): slot for slot, index in enumerate(to_train)}
    for index in range(num_rounds):
        slot = slot_of.get(index)
        if slot is not None:
            before = run.parameters
            reports[index] = run.one_round(index, members[slot], present[slot])
            latest = None
            jax.block_until_ready(before)  # at most one round is under way behind this one
            if progress is not None:
                progress(slot + 1, len(to_train))
        is_due = (index + 1) % evaluate_every == 0 or index == num_rounds - 1
        if run.test is not None and is_due:
            latest = latest or evaluation(run.model, run.parameters, *run.test)
            evaluations[index] = latest
    return reports, evaluations, num_rounds


def _result(
    run: _Run, reports: dict[int, Any], evaluations: dict[int, Any], num_rounds: int
) -> TrainingResult:
    """Bring everything to the host, in one go."""
    reports, evaluations = jax.device_get((reports, evaluations))
    status = np.full(num_rounds, int(Status.SKIPPED), np.int32)
    clipped = np.full(num_rounds, np.nan, np.float32)
    diverged = None
    for index, (code, fraction, is_finite) in sorted(reports.items()):
        status[index], clipped[index] = code, fraction
        if diverged is None and not is_finite:
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
    )


def _slots(
    rows: np.ndarray, aggregator: Any
) -> tuple[Int32[np.ndarray, "rounds slots"], Bool[np.ndarray, "rounds slots"]]:
    """Return each round's members, in ascending order, padded to the width of the aggregator."""
    sizes = rows.sum(axis=1)
    largest = int(sizes.max(initial=1))
    width = int(getattr(aggregator, "num_participants", largest))
    require(
        width >= largest,
        "aggregator",
        "must have a participant for each member of the largest cohort",
        f"{width} participants",
        f"{largest} members",
    )
    present = np.arange(width)[None, :] < sizes[:, None]
    members = np.zeros((len(rows), width), np.int32)
    members[present] = np.nonzero(rows)[1]
    return members, present


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


def _checked_history(participation: Any, num_clients: int) -> np.ndarray:
    history = np.asarray(participation)
    require(history.dtype == np.bool_, "participation", "must be boolean", f"dtype {history.dtype}")
    require(
        history.ndim == 2 and history.shape[1] == num_clients,
        "participation",
        f"must have one row for each round and {num_clients} columns, one for each client",
        history.shape,
    )
    return history


def _check_same_model(trainer: Any, model: nn.Module) -> None:
    trained = getattr(trainer, "model", model)
    require(trained == model, "trainer", "must train the `model` given", trained, model)
