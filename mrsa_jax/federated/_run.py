"""One training on its way.

What it is given, what it carries from round to round, its reports.
A round is local training, secure aggregation and server step. By itself it is some
executables, each compiled once and shared by all schemes, seeds and learning rates; or
the rounds between two evaluations are one program (`_rounds`). `train` drives one run,
`train_many` several side by side; only local training differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import samples_at_once
from mrsa_jax._core.slots import padded_slots
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, as_key, by_words, fold, with_own_keys
from mrsa_jax.federated._drift import Drift, Sketch
from mrsa_jax.federated._evaluate import batched, by_client, evaluation
from mrsa_jax.federated._json_lines import Callback, Metrics
from mrsa_jax.federated._models import initial_parameters, layers_of
from mrsa_jax.federated._steps import loss_of
from mrsa_jax.federated._training import Training, check_test
from mrsa_jax.federated.programs import (
    PLAIN_AVERAGE,
    Carried,
    LocalTrainer,
    Round,
    Stateful,
    Trained,
    aggregated,
    first_states,
    trainer_at,
)
from mrsa_watch._base.html import finding, number, shown, telling


@finding
class TrainingResult:
    """Result of a training.

    Attributes:
        parameters: f32 [d], the last global model; of a diverged training, what its
            last round left.
        evaluated_rounds: int [E], rounds after which the model was tested (from 0).
        accuracy: f32 [E]; nan from the round on in which the training diverged.
        loss: f32 [E], mean cross-entropy in nats; nan likewise.
        status: int32 [J], `Status` of each round; `NOT_RUN` for the rounds in which
            somebody was asked after the training had diverged.
        clipped_fraction: f32 [J], share of the updates' entries outside the quantizer's
            range; nan where nothing was sent.
        wrapped: int32 [J], coordinates in which noise took the true sum out of the
            ring's window, so that it was decoded wrongly; 0 without noise.
        aggregates: f32 [J', d], the sums of the J' rounds with status OK, in order;
            None unless asked for.
        diverged_round: First round in which no client's update was finite, or the model
            or its test loss was not, or None. No round after it is run. Under an
            aggregator that does not leave out updates which are not finite, the first
            round with such an update.
        participation: bool [J, N], who is in the sum that the server learnt of each
            round; a row of zeros where it learnt none.
        components: int32 [J, N], for each client the number of the learnt sum that it
            is in, -1 for none: sums over parts of a round where its graph became
            disconnected, in failed rounds too (`selection.learnt_rows` lists them all).
        failed_uploads: bool [J, N], whose update was not finite, so that no sum
            contains it.
        drift: Spread and memory of the clients' updates, of the rounds before any that
            diverged; None unless asked for.
        client_accuracy: f32 [E, N], on each client's `client_test`; None without one.
        client_loss: f32 [E, N], likewise.
        shared: f32 [h], what the server keeps in addition to the model, of a trainer
            with state.
        client_states: f32 [N, s], what each client keeps, likewise.
        weights: uint32 [N], by which updates were multiplied in the sums, or None for 1
            each. What sums leak is then of `selection.learnt_rows(result)`, not of
            `participation`.
    """

    _repr_html_ = telling

    parameters: np.ndarray
    evaluated_rounds: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    status: np.ndarray
    clipped_fraction: np.ndarray
    wrapped: np.ndarray
    aggregates: np.ndarray | None
    diverged_round: int | None
    participation: np.ndarray
    components: np.ndarray
    failed_uploads: np.ndarray
    drift: Drift | None
    client_accuracy: np.ndarray | None = None
    client_loss: np.ndarray | None = None
    shared: np.ndarray | None = None
    client_states: np.ndarray | None = None
    weights: np.ndarray | None = None

    def _rows(self) -> list[tuple[str, str]]:
        summed = int(np.asarray(self.participation).any(axis=1).sum())
        rows = [
            ("rounds", f"{len(self.status)}, {summed} with a sum"),
            ("parameters", shown(self.parameters)),
        ]
        if len(self.evaluated_rounds):
            after = f"after round {int(self.evaluated_rounds[-1]) + 1}"
            accuracy, loss = float(self.accuracy[-1]), float(self.loss[-1])
            if not np.isnan(accuracy) or np.isnan(loss):  # labels may be no classes
                rows.append(("test accuracy", f"{number(100 * accuracy)} %, {after}"))
            rows.append(("test loss", number(loss)))
        failed = int(np.asarray(self.failed_uploads).sum())
        if failed:
            rows.append(("failed uploads", f"{failed}: updates that were not finite"))
        if self.diverged_round is not None:
            rows.append(("diverged", f"in round {self.diverged_round + 1}"))
        return rows + ([] if self.drift is None else [("drift", str(self.drift))])


class Log(NamedTuple):
    """Reports of the rounds so far, in host memory; written in place."""

    status: np.ndarray
    clipped_fraction: np.ndarray
    wrapped: np.ndarray
    participation: np.ndarray
    components: np.ndarray
    failed_uploads: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray

    @classmethod
    def empty(cls, cohorts: np.ndarray, num_evaluations: int) -> Log:
        """Return the log of a training that is to begin: every round skipped."""
        num_rounds = len(cohorts)
        return cls(
            np.full(num_rounds, int(Status.SKIPPED), np.int32),
            np.full(num_rounds, np.nan, np.float32),
            np.zeros(num_rounds, np.int32),
            np.zeros(cohorts.shape, np.bool_),
            np.full(cohorts.shape, -1, np.int32),
            np.zeros(cohorts.shape, np.bool_),
            np.full(num_evaluations, np.nan, np.float32),
            np.full(num_evaluations, np.nan, np.float32),
        )

    def metrics(
        self, index: int, cohort_size: int, evaluated: np.ndarray, diverged: int
    ) -> Metrics:
        """Return the figures of a finished round as plain numbers.

        Args:
            index: The round.
            cohort_size: How many were asked.
            evaluated: int [E], the rounds after which the model is tested.
            diverged: The round in which the training diverged, after which nothing is
                tested; -1 for none.
        """
        metrics: Metrics = {
            "step": index,
            "status": Status(int(self.status[index])).name,
            "cohort_size": cohort_size,
            "summed_clients": int(self.participation[index].sum()),
            "wrapped": int(self.wrapped[index]),
            "failed_uploads": int(self.failed_uploads[: index + 1].sum()),
        }
        if not np.isnan(self.clipped_fraction[index]):
            metrics["clipped_fraction"] = float(self.clipped_fraction[index])
        if index == diverged:
            return metrics | {"diverged": True}
        tested = int(np.searchsorted(evaluated, index))
        if tested < len(evaluated) and evaluated[tested] == index:
            metrics["loss"] = float(self.loss[tested])
            if not np.isnan(self.accuracy[tested]):  # of labels that are no classes
                metrics["accuracy"] = float(self.accuracy[tested])
        return metrics


class Run:
    """One training: its settings, checked, and what it carries from round to round.

    Args:
        seed: Integer or key.
        training: What is trained.
        test: Its test set, as `prepared_test` returns it.
        callback: As for `train`.
    """

    def __init__(
        self, seed: Any, training: Training, test: Any, callback: Callback | None = None
    ) -> None:
        """Lay out the rounds to train, the evaluations due, and an empty log."""
        # First what is fixed; then what moves from round to round and is all that a
        # checkpoint holds. `_train` runs one of these, `_many` several side by side,
        # and `_program` says how many rounds go into one program.
        self.key = as_key(seed)
        self.training = training
        self.test = test
        self.callback = callback
        self.to_train = training.to_train
        self.factors = training.factors
        self.weights: Any = training.weights
        order: Any = training.slot_order
        cohorts = training.history.cohorts
        every = int(training.evaluate_every)
        num_rounds, num_clients = cohorts.shape
        self.server: Any = PLAIN_AVERAGE if training.server is None else training.server
        self.members, self.present = padded_slots(
            cohorts[self.to_train], training.width, order
        )
        due = np.union1d(
            np.arange(every - 1, num_rounds, every), np.arange(num_rounds)[-1:]
        )
        is_tested = test is not None or training.client_test is not None
        self.evaluated = (due if is_tested else due[:0]).astype(np.int64)
        # trained rounds after which a test follows: before it, the model is that of the
        # round
        self.stops = np.unique(
            np.searchsorted(self.to_train, self.evaluated, side="right")
        )
        # from here on all that moves
        self.done = 0  # trained rounds
        self.diverged = -1  # the round in which it diverged
        self.told = 0  # rounds that the callback has heard of
        self.by_client: np.ndarray | None = None
        if training.client_test is not None:
            shape = (2, len(self.evaluated), num_clients)
            self.by_client = np.full(shape, np.nan, np.float32)
        self.aggregates: list[np.ndarray] = []
        self.log = Log.empty(cohorts, len(self.evaluated))
        self.sketch: Sketch | None = None
        if training.measure_drift:
            layers = layers_of(training.model, training.sample_shape)
            self.sketch = Sketch(self.key, layers, self.members.shape)
        parameters = (
            initial_parameters(self.key, training.model, training.sample_shape)
            if training.initial_parameters is None
            else on_device(training.initial_parameters, jnp.float32)
        )
        aggregator, server = None, None
        if len(self.to_train):
            aggregator = training.aggregator.init()
            server = with_own_keys(
                self.server.init(parameters), fold(self.key, int(Stream.SERVER))
            )
        states = first_states(training.trainer, training.dim, num_clients)
        self.carried = Carried(parameters, aggregator, server, np.bool_(True), states)

    @property
    def parameters(self) -> Array:
        """The model as it is now."""
        parameters: Array = self.carried.parameters
        return parameters

    @property
    def coordinates(self) -> np.ndarray | None:
        """The coordinates of each update that are reported."""
        return None if self.sketch is None else self.sketch.coordinates

    @property
    def width(self) -> int:
        """Slots of a round."""
        return int(self.members.shape[1])

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to train."""
        return self.diverged >= 0 or self.done == len(self.to_train)

    @property
    def round_index(self) -> int:
        """The round to train next."""
        return int(self.to_train[self.done])

    @property
    def next_trainer(self) -> LocalTrainer | Stateful:
        """The trainer at the learning rate of the round to train next."""
        factor = None if self.factors is None else jnp.float32(self.factors[self.done])
        trainer: LocalTrainer | Stateful = trainer_at(
            self.training.trainer, factor, self.carried.states
        )
        return trainer

    @property
    def next_round(self) -> Round:
        """The round to train next."""
        round_: Round = jax.tree.map(lambda leaf: leaf[0], self.rounds(1, 1))
        return round_

    @property
    def until_evaluation(self) -> int:
        """Rounds to train up to the next one after which the model is tested."""
        later = self.stops[self.stops > self.done]
        return int(later[0] if len(later) else len(self.to_train)) - self.done

    def rounds(self, count: int, length: int) -> Round:
        """Return the next `count` rounds as a program of `length` takes them."""
        places = self.done + np.arange(length)
        is_run = np.arange(length) < count
        # Rounds that only fill the program repeat the last one and are marked by
        # `is_run`.
        places = np.minimum(places, len(self.to_train) - 1)
        indices, members = self.to_train[places], self.members[places]
        rows = self.training.history.survivors[indices]
        # From clients to slots: [rounds, steps, slots]. Empty slots hold some client,
        # hence `present`.
        alive = np.take_along_axis(rows, members[:, None, :], axis=2)
        alive &= self.present[places][:, None, :]
        has_steps = alive.shape[1] == 5
        weights = None
        if self.weights is not None:
            weights = np.where(alive[:, 0], self.weights[members], np.uint32(0))
        keys = self.training.history.keys
        return Round(
            is_run=is_run,
            index=indices.astype(np.int32),
            members=members,
            alive=alive if has_steps else alive[:, 0],
            sends=alive[:, 3 if has_steps else 0],
            factor=None if self.factors is None else self.factors[places],
            weights=weights,
            assignment_key=by_words(
                lambda column: on_device(np.asarray(column)[indices]), keys
            ),
        )

    def finish(self, trained: Trained) -> None:
        """Aggregate the next round's updates, step, and log the round's report."""
        round_ = self.next_round
        round_ = round_._replace(
            members=on_device(round_.members), alive=on_device(round_.alive)
        )
        self.carried, report = aggregated(
            self.training.aggregator,
            self.server,
            self.carried,
            trained,
            round_,
            self.training.keep_aggregates,
            self.coordinates,
        )
        self.log_round(jax.device_get(report))  # the one wait for the device

    def log_round(self, report: Any) -> None:
        """Log the report, in host memory, of the round that was trained."""
        index = self.round_index
        members = self.members[self.done]
        log = self.log
        log.status[index] = report.status
        log.clipped_fraction[index] = report.clipped_fraction
        log.wrapped[index] = report.wrapped
        log.participation[index, members[report.summed]] = True
        log.failed_uploads[index, members[report.failed_uploads]] = True
        inside = report.components >= 0
        # Components are numbered by slot; the log names them by client.
        log.components[index, members[inside]] = members[report.components[inside]]
        if report.sums is not None and report.status == Status.OK:
            update, weight = report.sums
            self.aggregates.append(update * np.float32(weight))
        if self.sketch is not None:
            self.sketch.values[self.done] = report.sketch
        self.done += 1
        if not all(np.all(finite) for finite in jax.tree.leaves(report.is_finite)):
            self._end(index)

    def _end(self, index: int) -> None:
        """Keep in which round the training diverged; no later one is run."""
        self.diverged = index
        self.log.status[self.to_train[self.done :]] = int(Status.NOT_RUN)

    def evaluate(self) -> None:
        """Test the model for all rounds that leave it as it is now."""
        if self.diverged >= 0:
            return
        # from the last trained round to the next one, which leaves another model
        first = int(self.to_train[self.done - 1]) if self.done else 0
        ahead = self.to_train[self.done :][:1]
        after = ahead[0] if len(ahead) else len(self.log.status)
        start, stop = np.searchsorted(self.evaluated, [first, after])
        if start >= stop:
            return
        model = self.training.model
        loss = loss_of(self.training.trainer)
        if self.test is not None:
            scores = evaluation(model, self.parameters, *self.test, loss=loss)
            accuracy, mean_loss = jax.device_get(scores)
            if np.isnan(mean_loss):
                self._end(first)
                return
            self.log.accuracy[start:stop] = accuracy
            self.log.loss[start:stop] = mean_loss
        if self.by_client is not None:
            scores = by_client(
                model, self.parameters, self.training.client_test, loss=loss
            )
            self.by_client[:, start:stop] = np.stack(jax.device_get(scores))[:, None]

    def tell(self) -> None:
        """Tell the callback of the rounds that are over since it last received any."""
        # Skipped rounds are over, too, once a later one is trained: each is reported
        # once.
        first, self.told = self.told, self._over
        if self.callback is not None:
            for index in range(first, self.told):
                cohort_size = int(self.training.history.cohorts[index].sum())
                self.callback(
                    self.log.metrics(index, cohort_size, self.evaluated, self.diverged)
                )

    @property
    def _over(self) -> int:
        """Number of finished rounds: all before the one to train next."""
        if self.diverged >= 0:
            return self.diverged + 1
        is_last = self.done == len(self.to_train)
        return len(self.training.history.cohorts) if is_last else self.round_index

    def identity(self) -> dict[str, Any]:
        """Return, by name, what another training would have otherwise."""
        data = self.training.client_data
        identity = {
            "seed": self.key,
            "history": (self.training.history, self.training.slot_order),
            "trainer": self.training.trainer,
            "aggregator": self.training.aggregator,
            "client_data": (data.labels, data.indices, data.sizes),
            "weights": self.weights,
            "rate_schedule": self.factors,
            "evaluations": self.evaluated,
            "start": self.parameters,
        }
        if self.sketch is not None:
            identity["measure_drift"] = self.coordinates
        return identity

    def state(self) -> dict[str, Any]:
        """Return the pytree on which the next round and the result depend."""
        state = {
            "parameters": self.parameters,
            "server": self.carried.server,
            "aggregator": self.carried.aggregator,
            "log": self.log._asdict(),
            "done": np.asarray(self.done, np.int32),
            "diverged": np.asarray(self.diverged, np.int32),
        }
        if self.sketch is not None:
            state["sketch"] = self.sketch.values
        if self.carried.states is not None:
            state["states"] = self.carried.states
        if self.by_client is not None:
            state["by_client"] = self.by_client
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.carried = Carried(
            on_device(state["parameters"]),
            state["aggregator"],
            state["server"],
            np.bool_(True),
            state.get("states"),
        )
        self.log = Log(*map(np.array, Log(**state["log"])))
        self.done = int(state["done"])
        self.diverged = int(state["diverged"])
        self.told = self._over
        if self.sketch is not None:
            self.sketch.values = np.array(state["sketch"])
        if self.by_client is not None:
            self.by_client = np.array(state["by_client"])

    def result(self) -> TrainingResult:
        """Return the training's result."""
        sums = None
        if self.training.keep_aggregates:
            none = np.zeros((0, self.training.sent_dim), np.float32)
            sums = np.stack(self.aggregates) if self.aggregates else none
        tests: Any = (None, None) if self.by_client is None else self.by_client
        states: Any = jax.device_get(self.carried.states) or (None, None)
        return TrainingResult(
            parameters=np.asarray(self.parameters),
            evaluated_rounds=self.evaluated,
            aggregates=sums,
            diverged_round=None if self.diverged < 0 else self.diverged,
            drift=self._drift(),
            client_accuracy=tests[0],
            client_loss=tests[1],
            shared=states[0],
            client_states=states[1],
            weights=self.weights,
            **self.log._asdict(),
        )

    def _drift(self) -> Drift | None:
        """Measure the drift of the updates of clients that sent theirs."""
        if self.sketch is None:
            return None
        # The round that diverged is no measurement.
        done = max(0, self.done - (self.diverged >= 0))
        indices = self.to_train[:done]
        members = self.members[:done]
        steps = self.training.history.survivors[indices]
        alive = steps[:, 3 if steps.shape[1] == 5 else 0]
        alive = alive & ~self.log.failed_uploads[indices]
        sends = np.take_along_axis(alive, members, axis=1) & self.present[:done]
        return self.sketch.drift(np.where(sends, members, np.int32(-1)), indices)


def prepared_test(
    test: Sequence[Any] | None, sample_shape: tuple[int, ...], trainer: Any
) -> Any:
    """Return the test set in batches if it fits the clients' samples."""
    check_test(test, sample_shape)
    if test is None:
        return None
    size = samples_at_once("tests", sample_shape)
    inputs, labels = test
    return batched(inputs, labels, size, is_own=loss_of(trainer) is not None)
