"""Training over a known history.

Against a plain loop, skipped rounds, failures, fidelity.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax._core.slots import padded_slots
from mrsa_jax.federated import programs
from mrsa_jax.federated._training import checked_order

_CLIENTS = 6


class _Out(NamedTuple):
    update: jax.Array
    status: jax.Array
    learned: jax.Array
    clipped_fraction: jax.Array
    wrapped: jax.Array


@dataclasses.dataclass(frozen=True)
class _PlainMean:
    """Stands in for secure aggregation: the mean itself; chosen calls fail."""

    fails_at: tuple[int, ...] = ()

    def init(self) -> int:
        return 0

    def aggregate(
        self, key: object, state: int, updates: object, members: object, present: object
    ) -> tuple[_Out, int]:
        is_present = np.asarray(present)
        mean = np.asarray(updates)[is_present].mean(axis=0)
        failed = state in self.fails_at
        status = mj.Status.TOO_FEW_SURVIVORS if failed else mj.Status.OK
        update = jnp.asarray(np.full_like(mean, 1e9) if failed else mean)
        numbers = jnp.float32(0.25), jnp.int32(7 * state)
        return _Out(update, jnp.int32(status), update, *numbers), state + 1


@functools.cache
def _setting() -> tuple[mj.data.Dataset, mj.data.ClientData]:
    dataset = mj.data.load("digits", seed=0)
    small = dataclasses.replace(
        dataset,
        train_inputs=dataset.train_inputs[:90],
        train_labels=dataset.train_labels[:90],
    )
    return dataset, mj.data.dirichlet_by_class(0, small, _CLIENTS, concentration=2.0)


def _model() -> object:
    return mj.federated.logistic(10)


def _history(num_rounds: int, seed: int = 0, cohort_size: int = 3) -> np.ndarray:
    generator = np.random.default_rng(seed)
    history = np.zeros((num_rounds, _CLIENTS), bool)
    for row in history:
        row[generator.choice(_CLIENTS, cohort_size, replace=False)] = True
    return history


def _train(
    history: np.ndarray, seed: int = 0, progress: Any = None, **changes: Any
) -> mj.federated.TrainingResult:
    _, clients = _setting()
    settings: dict[str, Any] = {
        "trainer": mj.federated.local_sgd(_model(), 0.3, batch_size=100),
        "aggregator": _PlainMean(),
    }
    training = mj.federated.Training(_model(), clients, history, **(settings | changes))
    return mj.federated.train(seed, training, progress=progress)


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (np.ones((3, _CLIENTS)), "`participation` must be boolean"),
        (np.ones((3, _CLIENTS + 1), bool), "and 6 columns"),
        (np.ones(_CLIENTS, bool), "and 6 columns"),
    ],
)
def test_bad_history(history: np.ndarray, message: str) -> None:
    _, clients = _setting()
    trainer = mj.federated.local_sgd(_model(), 0.3, batch_size=100)
    with pytest.raises((mj.ConfigurationError, TypeError)) as caught:
        mj.federated.Training(_model(), clients, history, trainer, _PlainMean())
    if isinstance(caught.value, mj.ConfigurationError):
        assert message in str(caught.value)


def test_misuse() -> None:
    history = _history(2)
    with pytest.raises(
        mj.ConfigurationError, match="`evaluate_every` must be a positive"
    ):
        _train(history, evaluate_every=0)
    with pytest.raises(mj.ConfigurationError, match="`initial_parameters` must have"):
        _train(history, initial_parameters=np.zeros(3, np.float32))
    other = mj.federated.local_sgd(mj.federated.mlp(10), 0.3, batch_size=100)
    with pytest.raises(mj.ConfigurationError, match="must train the `model` given"):
        _train(history, trainer=other)
    narrow = mj.federated.logistic(4)
    with pytest.raises(mj.ConfigurationError, match="an output for each class"):
        mj.federated.Training(
            narrow,
            _setting()[1],
            history,
            mj.federated.local_sgd(narrow, 0.3, batch_size=100),
            _PlainMean(),
        )


@pytest.mark.long
@pytest.mark.parametrize("server", [None, "momentum"])
def test_equals_a_plain_loop_with_optax(server: str | None) -> None:
    dataset, clients = _setting()
    history = _history(5)
    optimizer = optax.sgd(
        1.0 if server is None else 0.5, momentum=0.9 if server else None
    )
    result = _train(history, server=None if server is None else optimizer)

    @jax.jit
    @jax.grad
    def gradient_of(
        vector: jax.Array, images: jax.Array, truth: jax.Array
    ) -> jax.Array:
        variables = mj.federated.unflatten(_model(), images.shape[1:], vector)
        logits = _model().apply(variables, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, truth).mean()

    start = mj.federated.initial_parameters(0, _model(), (8, 8, 1))
    vector, state = start, optimizer.init(start)
    for row in history:
        updates = []
        for client in np.flatnonzero(row):
            own = np.asarray(clients.indices)[client, : int(clients.sizes[client])]
            images, truth = (
                np.asarray(clients.inputs)[own],
                np.asarray(clients.labels)[own],
            )
            updates.append(-0.3 * np.asarray(gradient_of(vector, images, truth)))
        moves, state = optimizer.update(jnp.asarray(-np.mean(updates, axis=0)), state)
        vector = optax.apply_updates(vector, moves)
    np.testing.assert_allclose(result.parameters, vector, atol=5e-6)
    assert result.diverged_round is None
    np.testing.assert_array_equal(result.status, [mj.Status.OK] * 5)
    np.testing.assert_array_equal(result.clipped_fraction, [0.25] * 5)
    np.testing.assert_array_equal(result.wrapped, [0, 7, 14, 21, 28])
    assert dataset.num_classes == 10


@pytest.mark.long
def test_skipped_rounds_leave_everything_alone() -> None:
    dataset, _ = _setting()
    history = _history(4)
    padded = np.zeros((9, _CLIENTS), bool)
    where = [0, 3, 4, 7]
    padded[where] = history
    test = (dataset.test_inputs, dataset.test_labels)
    calls: list[tuple[int, int]] = []
    # full batches: no randomness tells the rounds apart
    plain = _train(history, test=test, evaluate_every=1)
    skipping = _train(
        padded, test=test, evaluate_every=1, progress=lambda *call: calls.append(call)
    )
    np.testing.assert_allclose(skipping.parameters, plain.parameters, atol=1e-6)
    status = np.full(9, mj.Status.SKIPPED)
    status[where] = mj.Status.OK
    np.testing.assert_array_equal(skipping.status, status)
    np.testing.assert_array_equal(
        np.isnan(skipping.clipped_fraction), status != mj.Status.OK
    )
    assert not skipping.wrapped[status != mj.Status.OK].any()
    np.testing.assert_array_equal(skipping.evaluated_rounds, np.arange(9))
    np.testing.assert_allclose(
        skipping.accuracy, plain.accuracy[[0, 0, 0, 1, 2, 2, 2, 3, 3]], atol=1e-6
    )
    assert calls == [(done, 4) for done in (1, 2, 3, 4)]


def test_nothing_but_skipped_rounds() -> None:
    start = np.random.default_rng(0).normal(size=650).astype(np.float32)
    result = _train(
        np.zeros((3, _CLIENTS), bool), initial_parameters=start, keep_aggregates=True
    )
    np.testing.assert_array_equal(result.parameters, start)
    assert result.aggregates is not None
    assert result.aggregates.shape == (0, 650)
    assert result.diverged_round is None
    assert len(result.evaluated_rounds) == len(result.accuracy) == 0


def test_evaluation_is_after_the_rounds_it_names() -> None:
    dataset, _ = _setting()
    test = (dataset.test_inputs, dataset.test_labels)
    history = _history(7)
    result = _train(history, test=test, evaluate_every=3)
    np.testing.assert_array_equal(result.evaluated_rounds, [2, 5, 6])
    for position, stop in enumerate((3, 6, 7)):
        prefix = _train(history[:stop])
        accuracy, loss = mj.federated.evaluate(_model(), prefix.parameters, *test)
        assert result.accuracy[position] == pytest.approx(accuracy, abs=1e-6)
        assert result.loss[position] == pytest.approx(loss, rel=1e-5)


def test_a_failed_round_changes_nothing_and_is_reported() -> None:
    history = _history(4)
    start = np.zeros(650, np.float32)
    failing = _train(
        history,
        aggregator=_PlainMean(fails_at=(1,)),
        keep_aggregates=True,
        initial_parameters=start,
    )
    without = _train(np.delete(history, 1, axis=0), initial_parameters=start)
    np.testing.assert_allclose(failing.parameters, without.parameters, atol=1e-6)
    assert failing.status[1] == mj.Status.TOO_FEW_SURVIVORS
    assert failing.aggregates is not None
    assert len(failing.aggregates) == 3  # only sums that were learnt
    # of three updates each; the model moved by their means
    np.testing.assert_allclose(
        failing.parameters, failing.aggregates.sum(axis=0) / 3, atol=1e-6
    )


@pytest.mark.long
def test_aggregates_are_sums_of_the_updates() -> None:
    _, clients = _setting()
    history = _history(2)
    # smaller than the cohort's width
    history[1, :] = [True, True, False, False, False, False]
    trainer = mj.federated.local_sgd(_model(), 0.3, batch_size=8)
    result = _train(history, seed=4, trainer=trainer, keep_aggregates=True)
    start = mj.federated.initial_parameters(4, _model(), (8, 8, 1))
    updates = np.asarray(
        mj.federated.client_updates(4, _model(), start, clients, trainer)
    )
    assert result.aggregates is not None
    np.testing.assert_allclose(result.aggregates[0], history[0] @ updates, atol=1e-5)
    after = start + jnp.asarray(result.aggregates[0] / 3)
    updates = np.asarray(
        mj.federated.client_updates(4, _model(), after, clients, trainer, round_index=1)
    )
    np.testing.assert_allclose(result.aggregates[1], updates[0] + updates[1], atol=1e-5)


@pytest.mark.long
def test_divergence_is_reported_with_its_first_round() -> None:
    history = _history(5)
    history[1] = False
    result = _train(
        history,
        trainer=mj.federated.local_sgd(_model(), 3e38, batch_size=4, num_epochs=3),
    )
    assert result.diverged_round == 0
    # the training ends there: the rounds in which somebody was asked were not run
    np.testing.assert_array_equal(
        result.status[1:], [mj.Status.SKIPPED] + [mj.Status.NOT_RUN] * 3
    )
    assert not result.participation[1:].any()
    assert np.isnan(result.clipped_fraction[1:]).all()
    broken = np.full(650, np.nan, np.float32)
    late = np.zeros((4, _CLIENTS), bool)
    late[2] = history[0]
    assert _train(late, initial_parameters=broken).diverged_round == 2


def test_no_table_entry_after_divergence() -> None:
    """A model of zeros that breaks in round 2.

    Entries before it are there, from it on nan.
    """
    dataset, _ = _setting()

    @dataclasses.dataclass(frozen=True)
    class _Breaks(_PlainMean):
        def aggregate(self, *arguments: object) -> tuple[_Out, int]:
            out, state = super().aggregate(*arguments)
            broken = out.update if state < 3 else jnp.full_like(out.update, jnp.nan)
            return out._replace(update=broken), state

    result = _train(
        _history(6),
        aggregator=_Breaks(),
        evaluate_every=1,
        test=(dataset.test_inputs, dataset.test_labels),
    )
    assert result.diverged_round == 2
    np.testing.assert_array_equal(result.evaluated_rounds, np.arange(6))
    np.testing.assert_array_equal(np.isnan(result.accuracy), np.arange(6) >= 2)
    np.testing.assert_array_equal(np.isnan(result.loss), np.arange(6) >= 2)
    np.testing.assert_array_equal(result.status, [0, 0, 0] + [mj.Status.NOT_RUN] * 3)
    assert np.isnan(result.parameters).any()


def test_rates_fall_by_the_round_skipped_ones_counted() -> None:
    """Full batches, so a round of half the rate is half the step.

    A loop of rounds by hand.
    """
    history = _history(5)
    history[2] = False
    schedule = mj.federated.decay_at((2, 4), 0.5)
    result = _train(history, rate_schedule=schedule)
    vector = None
    for index, rate in ((0, 0.3), (1, 0.3), (3, 0.15), (4, 0.075)):
        trainer = mj.federated.local_sgd(_model(), rate, batch_size=100)
        vector = _train(
            history[index : index + 1], trainer=trainer, initial_parameters=vector
        ).parameters
    np.testing.assert_allclose(result.parameters, vector, atol=1e-6)
    with_optax = optax.piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.5})
    np.testing.assert_array_equal(
        _train(history, rate_schedule=with_optax).parameters, result.parameters
    )
    assert not np.allclose(_train(history).parameters, result.parameters, atol=1e-6)


@pytest.mark.parametrize(
    "bad", [-0.1, float("nan"), float("inf"), None, "0.4", [1.0, 0.5]]
)
def test_a_schedule_of_no_factors_is_refused(bad: object) -> None:
    with pytest.raises(
        mj.ConfigurationError, match=r"`rate_schedule\(1\)` must be a finite"
    ):
        _train(_history(3), rate_schedule=lambda index: 1.0 if index == 0 else bad)


def test_misuse_of_schedules_and_tests() -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`rounds` must be integers from 0; got -1"
    ):
        mj.federated.decay_at((3, -1), 0.5)
    for factor in (0.0, -1.0):
        with pytest.raises(mj.ConfigurationError, match="`factor` must be"):
            mj.federated.decay_at(3, factor)

    @dataclasses.dataclass(frozen=True)
    class _Still:
        def update(self, *arguments: object) -> object:
            return jnp.zeros_like(arguments[1])

    with pytest.raises((mj.ConfigurationError, TypeError), match=r"scaled|trainer"):
        _train(
            _history(2), trainer=_Still(), rate_schedule=mj.federated.decay_at(1, 0.5)
        )
    dataset, _ = _setting()
    with pytest.raises(
        mj.ConfigurationError, match=r"`test` must have inputs of .* \(8, 8, 1\)"
    ):
        _train(_history(2), test=(dataset.test_inputs[:, :7], dataset.test_labels))
    with pytest.raises((mj.ConfigurationError, TypeError), match="test"):
        _train(_history(2), test=(dataset.test_inputs,))


def test_decay_is_that_of_optax() -> None:
    ours = mj.federated.decay_at((7, 3, 3), 0.4)
    theirs = optax.piecewise_constant_schedule(1.0, {3: 0.4 * 0.4, 7: 0.4})
    for index in range(10):
        assert ours(index) == pytest.approx(float(theirs(index)), rel=1e-6)
    assert mj.federated.decay_at(7, 0.4) == mj.federated.decay_at([7], 0.4)


@pytest.mark.long
def test_seeds_and_rates_compile_nothing_new() -> None:
    history = _history(3)
    first = _train(history, trainer=mj.federated.local_sgd(_model(), 0.3, batch_size=7))
    compiled = programs.cohort_updates._cache_size()
    other = _train(
        _history(6, seed=2),
        seed=3,
        trainer=mj.federated.local_sgd(_model(), 0.1, batch_size=7),
    )
    assert programs.cohort_updates._cache_size() == compiled
    assert not np.array_equal(first.parameters, other.parameters)


@pytest.mark.long
def test_padded_and_plain_ring_sums_train_the_identical_model() -> None:
    history = _history(4)
    history[2, :] = [True, True, False, False, False, False]
    clip, levels = 0.5, 2**16
    results = {}
    for fidelity in ("array", "sets"):
        aggregator = mj.secagg.ring_average(
            mj.quantize.stochastic(levels, clip),
            3,
            650,
            fidelity=fidelity,
            key_material=1,
        )
        results[fidelity] = _train(history, aggregator=aggregator, keep_aggregates=True)
    for field in ("parameters", "aggregates", "status", "clipped_fraction"):
        np.testing.assert_array_equal(
            getattr(results["array"], field), getattr(results["sets"], field)
        )
    plain = _train(history)
    # Each round errs by less than one quantization step; local steps contract or nearly
    # so.
    step = 2 * clip / (levels - 1)
    np.testing.assert_allclose(
        results["array"].parameters, plain.parameters, atol=4 * 2 * step
    )
    assert not np.array_equal(results["array"].parameters, plain.parameters)


@pytest.mark.long
def test_learns_digits() -> None:
    dataset, _ = _setting()
    clients = mj.data.iid(0, dataset, _CLIENTS)
    training = mj.federated.Training(
        _model(),
        clients,
        _history(25),
        mj.federated.local_sgd(_model(), 0.5, batch_size=32),
        _PlainMean(),
        test=(dataset.test_inputs, dataset.test_labels),
    )
    result = mj.federated.train(0, training)
    assert result.accuracy[-1] > 0.9
    assert result.loss[-1] < result.loss[0]


@pytest.mark.parametrize(
    "order", [[0, 1, 2], [0, 1, 1, 2], [[0, 1, 2, 3]], [0.0, 1.0, 2.0, 3.0]]
)
def test_slots_are_filled_with_each_client_once(order: list) -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`slot_order` must hold the clients 0 to 3"
    ):
        checked_order(order, 4)


def test_slots_follow_the_order_given() -> None:
    """By hand: cohorts {0, 2, 3} and {1} in the order 3, 1, 0, 2."""
    rows = np.array([[1, 0, 1, 1], [0, 1, 0, 0]], bool)
    members, present = padded_slots(rows, 3, np.array([3, 1, 0, 2], np.int32))
    assert members.tolist() == [[3, 0, 2], [1, 0, 0]]
    assert present.tolist() == [[True] * 3, [True, False, False]]
    assert padded_slots(rows, 3)[0].tolist() == [[0, 2, 3], [1, 0, 0]]
