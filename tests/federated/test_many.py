"""Trainings side by side.

Each as `train` alone, over skipped rounds, seeds, rates and schemes.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.federated import _many, programs

pytestmark = pytest.mark.long

_CLIENTS, _COHORT = 6, 3


@functools.cache
def _dataset() -> mj.data.Dataset:
    dataset = mj.data.load("digits", seed=0)
    return dataclasses.replace(
        dataset,
        train_inputs=dataset.train_inputs[:90],
        train_labels=dataset.train_labels[:90],
        test_inputs=dataset.test_inputs[:60],
        test_labels=dataset.test_labels[:60],
    )


@functools.cache
def _clients(seed: int = 0) -> mj.data.ClientData:
    return mj.data.dirichlet_by_class(seed, _dataset(), _CLIENTS, concentration=2.0)


_MODEL = mj.federated.logistic(10)


def _history(
    seed: int, num_rounds: int = 5, skipped: tuple[int, ...] = ()
) -> np.ndarray:
    generator = np.random.default_rng(seed)
    history = np.zeros((num_rounds, _CLIENTS), bool)
    for row in history:
        row[generator.choice(_CLIENTS, _COHORT, replace=False)] = True
    history[list(skipped)] = False
    return history


def _trainer(rate: float = 0.3, **more: Any) -> mj.federated.LocalSGD:
    return mj.federated.local_sgd(_MODEL, rate, **({"batch_size": 8} | more))


@functools.cache
def _average() -> Any:
    return mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), _COHORT, 650)


def _training(
    history: Any, clients: Any = None, trainer: Any = None, **more: Any
) -> mj.federated.Training:
    own = _clients() if clients is None else clients
    return mj.federated.Training(
        _MODEL,
        own,
        history,
        _trainer() if trainer is None else trainer,
        _average(),
        **more,
    )


def _many_of(seeds: Any, trainings: Any, **more: Any) -> list[Any]:
    return mj.federated.train_many(seeds, trainings, **({"side_by_side": 8} | more))


def _assert_same(
    many: mj.federated.TrainingResult, alone: mj.federated.TrainingResult
) -> None:
    for field in ("status", "participation", "components", "evaluated_rounds"):
        np.testing.assert_array_equal(getattr(many, field), getattr(alone, field))
    assert many.diverged_round == alone.diverged_round
    # a rounding that falls on the other side moves an entry by one quantization step
    np.testing.assert_allclose(many.parameters, alone.parameters, atol=5 * 1e-5)
    np.testing.assert_allclose(many.loss, alone.loss, atol=1e-3)
    np.testing.assert_allclose(many.clipped_fraction, alone.clipped_fraction, atol=1e-3)


def test_misuse() -> None:
    history = _history(0)
    one = _training(history)
    with pytest.raises(
        mj.ConfigurationError, match="`seeds` must be one, or 3 as others are; got 2"
    ):
        _many_of([0, 1], [one] * 3)
    with pytest.raises(
        mj.ConfigurationError, match="`trainings` must be one, or 3 as others are"
    ):
        _many_of([0, 1, 2], [])
    with pytest.raises(mj.ConfigurationError, match="`trainings` must be a `federated"):
        inspect.unwrap(mj.federated.train_many)([0, 1], one.model)
    other = _training(history, trainer=_trainer(batch_size=9))
    with pytest.raises(
        mj.ConfigurationError, match="trainers that differ in their numbers only"
    ):
        _many_of(0, [one, other])
    wide = mj.federated.mlp(10)
    other = dataclasses.replace(
        one, model=wide, trainer=mj.federated.local_sgd(wide, 0.3, batch_size=8)
    )
    with pytest.raises(
        mj.ConfigurationError, match="`trainings` must all train one model"
    ):
        _many_of(0, [one, other])
    checkpoints = mj.federated.checkpoints("never_made")
    with pytest.raises(
        mj.ConfigurationError, match="`keep_aggregates` must not be set"
    ):
        _many_of(0, _training(history, keep_aggregates=True), checkpoints=checkpoints)
    with pytest.raises(
        mj.ConfigurationError, match="`memory_bytes` must hold the training of one"
    ):
        _many_of(0, one, memory_bytes=10_000)
    with pytest.raises(
        mj.ConfigurationError, match="`side_by_side` must be a positive integer"
    ):
        _many_of(0, one, side_by_side=0)


def test_on_a_cpu_runs_take_turns_and_are_those_of_train() -> None:
    histories = [_history(0), _history(1, skipped=(0, 3))]
    test = (_dataset().test_inputs, _dataset().test_labels)
    trainings = [
        _training(history, test=test, evaluate_every=2 + number)
        for number, history in enumerate(histories)
    ]
    found = _many_of([3, 4], trainings, side_by_side=None)
    for number, one in enumerate(found):
        alone = mj.federated.train(3 + number, trainings[number])
        for field in dataclasses.fields(alone):
            np.testing.assert_array_equal(
                getattr(one, field.name), getattr(alone, field.name)
            )


def test_merged_pools_by_hand() -> None:
    def data(inputs: list[float], indices: list[list[int]]) -> mj.data.ClientData:
        count = len(inputs)
        return mj.data.ClientData(
            np.asarray(inputs, np.float32).reshape(count, 1),
            np.arange(count, dtype=np.int32) % 2,
            np.asarray(indices, np.int32),
            np.asarray([len(row) for row in indices], np.int32),
            2,
        )

    one, copy = data([5, 6, 7], [[2, 0], [1, 1]]), data([5, 6, 7], [[0, 1, 2]])
    other = data([8, 9], [[1], [0]])
    pool, firsts = _many.merged([one, copy, one, other])
    assert firsts == [0, 2, 0, 3]
    assert pool.inputs[:, 0].tolist() == [5, 6, 7, 8, 9]
    assert pool.indices[:, 0].tolist() == [2, 1, 0, 4, 3]
    assert pool.indices.shape == (5, 3)
    assert pool.sizes.tolist() == [2, 2, 3, 1, 1]


def test_equal_to_single_trainings() -> None:
    """Seeds, rates, schedules, skipped rounds, partitions of other widths: all at once."""
    histories = [
        _history(0),
        _history(1, skipped=(0, 3)),
        _history(2, 7, skipped=(2, 4, 5)),
    ]
    clients = [_clients(0), _clients(1), _clients(0)]
    assert clients[0].indices.shape != clients[1].indices.shape
    trainers = [_trainer(0.3), _trainer(0.1), _trainer(0.5)]
    schedules = [
        None,
        mj.federated.decay_at(2, 0.5),
        mj.federated.decay_at((1, 4), 0.1),
    ]
    test = (_dataset().test_inputs, _dataset().test_labels)
    calls: list[tuple[int, int]] = []
    trainings = [
        _training(
            history, own, trainer, rate_schedule=schedule, test=test, evaluate_every=2
        )
        for history, own, trainer, schedule in zip(
            histories, clients, trainers, schedules, strict=True
        )
    ]
    together = _many_of([3, 4, 5], trainings, progress=lambda *call: calls.append(call))
    for number, many in enumerate(together):
        _assert_same(many, mj.federated.train(3 + number, trainings[number]))
    # 5, 3 and 4 trained rounds: every run trains in every step until it is through
    assert calls == [(3, 12), (6, 12), (9, 12), (11, 12), (12, 12)]
    assert len({tuple(result.parameters[:4].tolist()) for result in together}) == 3


def test_memory_bound_and_mesh_change_nothing() -> None:
    import jax

    histories = [_history(seed, 3) for seed in range(3)]
    trainings = [_training(history) for history in histories]
    free = _many_of([0, 1, 2], trainings)
    mesh = jax.make_mesh((2,), ("clients",))
    settings = mj.federated.memory_estimate(
        _MODEL, _clients(), trainer=_trainer(), cohort_size=_COHORT, width=1
    )
    bound = settings.peak_bytes + 4 * 650 * 4
    for more in ({"mesh": mesh}, {"memory_bytes": bound}):
        for one, other in zip(
            _many_of([0, 1, 2], trainings, **more), free, strict=True
        ):
            _assert_same(one, other)


def test_a_diverged_run_stops_and_the_others_go_on() -> None:
    history = _history(0)
    test = (_dataset().test_inputs, _dataset().test_labels)
    lost, fine = _many_of(
        0,
        [
            _training(history, trainer=_trainer(rate), test=test, evaluate_every=1)
            for rate in (3e38, 0.3)
        ],
    )
    assert lost.diverged_round == 0
    assert (lost.status[1:] == mj.Status.NOT_RUN).all()
    assert np.isnan(lost.accuracy).all()
    assert fine.diverged_round is None
    assert (fine.status == mj.Status.OK).all()
    assert np.isfinite(fine.accuracy).all()


def test_other_seeds_rates_and_histories_compile_nothing_new() -> None:
    _many_of([0, 1], [_training(_history(0)), _training(_history(1))])
    compiled = programs.cohort_updates._cache_size()
    slow = _training(_history(3, 4), trainer=_trainer(0.01))
    _many_of(
        [2, 3], [slow, _training(_history(4, skipped=(1, 2)), trainer=_trainer(0.2))]
    )
    assert programs.cohort_updates._cache_size() == compiled
