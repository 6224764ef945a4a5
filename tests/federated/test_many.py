"""Trainings side by side: each as `train` alone, over skipped rounds, seeds, rates and schemes."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.federated import _many

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


def _history(seed: int, num_rounds: int = 5, skipped: tuple[int, ...] = ()) -> np.ndarray:
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


def _many_of(seeds: Any, clients: Any, histories: Any, **more: Any) -> list[Any]:
    settings: dict[str, Any] = {"trainers": _trainer(), "aggregators": _average()}
    settings |= {"side_by_side": 8} | more
    return mj.federated.train_many(seeds, _MODEL, clients, histories, **settings)


def _assert_same(many: mj.federated.TrainingResult, alone: mj.federated.TrainingResult) -> None:
    for field in ("status", "participation", "components", "evaluated_rounds"):
        np.testing.assert_array_equal(getattr(many, field), getattr(alone, field))
    assert many.diverged_round == alone.diverged_round
    # a rounding that falls on the other side moves an entry by one quantization step
    np.testing.assert_allclose(many.parameters, alone.parameters, atol=5 * 1e-5)
    np.testing.assert_allclose(many.loss, alone.loss, atol=1e-3)
    np.testing.assert_allclose(many.clipped_fraction, alone.clipped_fraction, atol=1e-3)


def test_misuse() -> None:
    history = _history(0)
    with pytest.raises(
        mj.ConfigurationError, match="`seeds` must be one, or 3 as others are; got 2"
    ):
        _many_of([0, 1], _clients(), history, trainers=[_trainer()] * 3)
    other = [_trainer(), _trainer(batch_size=9)]
    with pytest.raises(mj.ConfigurationError, match="`trainers` must differ in their numbers only"):
        _many_of(0, _clients(), history, trainers=other)
    with pytest.raises(mj.ConfigurationError, match="`participation` must be boolean"):
        _many_of([0, 1], _clients(), [history, history.astype(int)])
    checkpoints = mj.federated.checkpoints("never_made")
    with pytest.raises(mj.ConfigurationError, match="`keep_aggregates` must be left out"):
        _many_of(0, _clients(), history, keep_aggregates=True, checkpoints=checkpoints)
    with pytest.raises(mj.ConfigurationError, match="`memory_bytes` must hold the training of one"):
        _many_of(0, _clients(), history, memory_bytes=10_000)
    with pytest.raises(mj.ConfigurationError, match="`side_by_side` must be a positive integer"):
        _many_of(0, _clients(), history, side_by_side=0)


def test_on_a_cpu_runs_take_turns_and_are_those_of_train() -> None:
    histories = [_history(0), _history(1, skipped=(0, 3))]
    test = (_dataset().test_inputs, _dataset().test_labels)
    found = _many_of(
        [3, 4], _clients(), histories, test=test, evaluate_every=[2, 3], side_by_side=None
    )
    for number, one in enumerate(found):
        alone = mj.federated.train(
            3 + number, _MODEL, _clients(), histories[number], trainer=_trainer(),
            aggregator=_average(), test=test, evaluate_every=2 + number,
        )  # fmt: skip
        for field in dataclasses.fields(alone):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(alone, field.name))


def test_merged_pools_by_hand() -> None:
    def data(inputs: list[float], indices: list[list[int]]) -> mj.data.ClientData:
        count = len(inputs)
        return mj.data.ClientData(
            np.asarray(inputs, np.float32).reshape(count, 1), np.arange(count, dtype=np.int32) % 2,
            np.asarray(indices, np.int32), np.asarray([len(row) for row in indices], np.int32), 2,
        )  # fmt: skip

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
    histories = [_history(0), _history(1, skipped=(0, 3)), _history(2, 7, skipped=(2, 4, 5))]
    clients = [_clients(0), _clients(1), _clients(0)]
    assert clients[0].indices.shape != clients[1].indices.shape
    trainers = [_trainer(0.3), _trainer(0.1), _trainer(0.5)]
    schedules = [None, mj.federated.decay_at(2, 0.5), mj.federated.decay_at((1, 4), 0.1)]
    test = (_dataset().test_inputs, _dataset().test_labels)
    calls: list[tuple[int, int]] = []
    together = _many_of(
        [3, 4, 5], clients, histories, trainers=trainers, rate_schedule=schedules, test=test,
        evaluate_every=2, progress=lambda *call: calls.append(call),
    )  # fmt: skip
    for number, many in enumerate(together):
        alone = mj.federated.train(
            3 + number, _MODEL, clients[number], histories[number], trainer=trainers[number],
            aggregator=_average(), rate_schedule=schedules[number], test=test, evaluate_every=2,
        )  # fmt: skip
        _assert_same(many, alone)
    # 5, 3 and 4 trained rounds: every run trains in every step until it is through
    assert calls == [(3, 12), (6, 12), (9, 12), (11, 12), (12, 12)]
    assert len({tuple(result.parameters[:4].tolist()) for result in together}) == 3


def test_memory_bound_and_mesh_change_nothing() -> None:
    import jax

    histories = [_history(seed, 3) for seed in range(3)]
    free = _many_of([0, 1, 2], _clients(), histories)
    mesh = jax.make_mesh((2,), ("clients",))
    settings = mj.federated.memory_estimate(
        _MODEL, _clients(), trainer=_trainer(), cohort_size=_COHORT, width=1
    )
    bound = settings.peak_bytes + 4 * 650 * 4
    for more in ({"mesh": mesh}, {"memory_bytes": bound}):
        for one, other in zip(
            _many_of([0, 1, 2], _clients(), np.stack(histories), **more), free, strict=True
        ):
            _assert_same(one, other)


def test_a_diverged_run_stops_and_the_others_go_on() -> None:
    history = _history(0)
    test = (_dataset().test_inputs, _dataset().test_labels)
    lost, fine = _many_of(
        0, _clients(), history, trainers=[_trainer(3e38), _trainer(0.3)], test=test,
        evaluate_every=1,
    )  # fmt: skip
    assert lost.diverged_round == 0
    assert (lost.status[1:] == mj.Status.NOT_RUN).all()
    assert np.isnan(lost.accuracy).all()
    assert fine.diverged_round is None
    assert (fine.status == mj.Status.OK).all()
    assert np.isfinite(fine.accuracy).all()


def test_other_seeds_rates_and_histories_compile_nothing_new() -> None:
    _many_of([0, 1], _clients(), [_history(0), _history(1)])
    compiled = _many.flat_updates._cache_size()
    _many_of([2, 3], _clients(), [_history(3, 4), _history(4, skipped=(1, 2))],
             trainers=[_trainer(0.01), _trainer(0.2)])  # fmt: skip
    assert _many.flat_updates._cache_size() == compiled
