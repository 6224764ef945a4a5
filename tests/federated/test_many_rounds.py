"""Rounds of many trainings as one program.

Each run as `train` gives it under the same form.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax.federated.programs import runs_program
from mrsa_jax.secagg.averages import AggregateOut

_CLIENTS, _COHORT, _DIM, _ROUNDS = 6, 4, 650, 9
_MODEL = mj.federated.logistic(10)
_SERVER = optax.sgd(0.5, momentum=0.9)


@functools.cache
def _data(seed: int) -> tuple[mj.data.Dataset, mj.data.ClientData]:
    dataset = mj.data.load("digits", seed=0)
    small = dataclasses.replace(
        dataset,
        train_inputs=dataset.train_inputs[:60],
        train_labels=dataset.train_labels[:60],
        test_inputs=dataset.test_inputs[:50],
        test_labels=dataset.test_labels[:50],
    )
    return small, mj.data.dirichlet_by_class(seed, small, _CLIENTS, concentration=2.0)


def _rule() -> mj.secagg.GraphRule:
    return mj.secagg.graph_rule(
        mj.graphs.erdos_renyi(_COHORT, 0.7), _CLIENTS, threshold=2
    )


@functools.cache
def _history(seed: int) -> mj.selection.RoundHistory:
    """Rounds that are skipped, that fail and that fall apart, others in each run."""
    return mj.selection.rollout_rounds(
        seed,
        mj.selection.uniform(_CLIENTS, _COHORT),
        mj.availability.independent(0.25),
        mj.availability.independent_steps(0.08),
        _ROUNDS,
        rule=_rule(),
    )


def _average(fidelity: Any = "sets", **more: Any) -> mj.secagg.RingAverage:
    return mj.secagg.ring_average(
        mj.quantize.stochastic(2**12, 0.5),
        _COHORT,
        _DIM,
        rule=_rule(),
        fidelity=fidelity,
        **more,
    )


def _runs() -> dict[str, list[Any]]:
    """Return four runs: of one structure, but a weighted one; the third diverges."""
    plain, weights = _average(key_material=7), np.asarray(_data(0)[1].sizes)
    weighted = _average(max_weight=weights)
    return {
        "seeds": [3, 4, 5, 6],
        "client_data": [_data(seed)[1] for seed in (0, 1, 0, 0)],
        "participation": [_history(seed) for seed in (5, 6, 5, 7)],
        "trainer": [
            mj.federated.local_sgd(_MODEL, rate, batch_size=8, momentum=0.5)
            for rate in (0.3, 0.1, 3.0, 0.2)
        ],
        "aggregator": [plain, _average(), plain, weighted],
        "weights": [None, None, None, weights],
        "rate_schedule": [mj.federated.decay_at(4, 0.5)] * 2
        + [lambda index: 3e38 if index > 3 else 0.1]
        + [mj.federated.decay_at(6, 0.1)],
    }


def _settings() -> dict[str, Any]:
    small, _ = _data(0)
    test = (small.test_inputs, small.test_labels)
    return {"server": _SERVER, "test": test, "evaluate_every": 4}


def _together(form: str = "xla", runs: Any = None, **more: Any) -> list[Any]:
    own = dict(_runs() if runs is None else runs)
    keep = more.pop("keep_aggregates", False)
    seeds = own.pop("seeds")
    trainings = [
        mj.federated.Training(
            _MODEL,
            keep_aggregates=keep,
            **_settings(),
            **dict(zip(own, values, strict=True)),
        )
        for values in zip(*own.values(), strict=True)
    ]
    with mj.use_form(form):
        return mj.federated.train_many(seeds, trainings, **({"side_by_side": 4} | more))


@functools.cache
def _alone(number: int) -> mj.federated.TrainingResult:
    own = {name: values[number] for name, values in _runs().items()}
    seed = own.pop("seeds")
    with mj.use_form("xla"):
        return mj.federated.train(
            seed,
            mj.federated.Training(_MODEL, keep_aggregates=True, **own, **_settings()),
        )


def _assert_same(
    one: mj.federated.TrainingResult, other: mj.federated.TrainingResult
) -> None:
    for field in ("status", "participation", "components", "evaluated_rounds"):
        np.testing.assert_array_equal(
            getattr(one, field), getattr(other, field), err_msg=field
        )
    assert one.diverged_round == other.diverged_round
    # a rounding that falls on the other side moves an entry by one quantization step
    np.testing.assert_allclose(one.parameters, other.parameters, atol=2e-3)
    np.testing.assert_allclose(one.loss, other.loss, atol=1e-2)
    np.testing.assert_allclose(one.clipped_fraction, other.clipped_fraction, atol=1e-3)


def _counted(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """Return where it will be noted which rounds of which runs each program ran, and how."""
    programs: list[tuple[np.ndarray, dict[str, Any]]] = []
    program = runs_program

    def noted(*arguments: Any, **settings: Any) -> Any:
        out = program(*arguments, **settings)
        programs.append((np.asarray(out[1].is_run), settings))
        return out

    noted.eval_shape = program.eval_shape  # type: ignore[attr-defined]
    monkeypatch.setattr("mrsa_jax.federated._program.runs_program", noted)
    return programs


@functools.cache
def _played() -> tuple[
    list[mj.federated.TrainingResult], list[Any], list[tuple[int, int]]
]:
    """Return the runs trained together, what each program ran, and what was told on the way."""
    calls: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        programs = _counted(patch)
        found = _together(
            keep_aggregates=True, progress=lambda *call: calls.append(call)
        )
    return found, programs, calls


@pytest.mark.long
def test_each_run_as_by_itself() -> None:
    together, programs, calls = _played()
    for number, many in enumerate(together):
        alone = _alone(number)
        _assert_same(many, alone)
        assert many.aggregates.shape == alone.aggregates.shape
        np.testing.assert_allclose(many.aggregates, alone.aggregates, atol=0.1)
    codes = {int(code) for result in together for code in result.status}
    # and some that failed
    assert {mj.Status.OK, mj.Status.SKIPPED, mj.Status.NOT_RUN} < codes
    assert together[2].diverged_round is not None
    rounds = [
        int(
            np.sum(
                (one.status != mj.Status.SKIPPED) & (one.status != mj.Status.NOT_RUN)
            )
        )
        for one in together
    ]
    trained = sum(rounds)
    assert sum(int(ran.sum()) for ran, _ in programs) == trained
    # all but the weighted one together
    assert {ran.shape[1] for ran, _ in programs} == {3, 1}
    assert len({ran.shape for ran, _ in programs}) == 2  # each compiled once
    assert max(int(ran.sum()) for ran, _ in programs) > 5
    # step k is told of when all runs are through with it, however far ahead programs
    # are
    steps = range(1, max(rounds) + 1)
    assert [done for done, _ in calls] == [
        sum(min(k, own) for own in rounds) for k in steps
    ]


@pytest.mark.long
def test_stopped_and_resumed(tmp_path: pathlib.Path) -> None:
    def stop_at(limit: int) -> Any:
        def progress(done: int, total: int) -> None:
            if done >= limit:
                raise KeyboardInterrupt

        return progress

    store = mj.federated.checkpoints(tmp_path, every=2)
    for limit in (5, 14):
        with pytest.raises(KeyboardInterrupt):
            _together(checkpoints=store, progress=stop_at(limit))
    assert os.listdir(tmp_path)
    for one, other in zip(_together(checkpoints=store), _played()[0], strict=True):
        _assert_same(one, other)


@pytest.mark.long
def test_a_bound_on_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {name: values[:2] for name, values in _runs().items()}
    needed = mj.federated.memory_estimate(
        _MODEL, _data(0)[1], trainer=runs["trainer"][0], cohort_size=_COHORT, width=1
    )
    programs = _counted(monkeypatch)
    bounded = _together(runs=runs, memory_bytes=needed.peak_bytes + 3 * 10**4)
    for number, one in enumerate(bounded):
        _assert_same(one, _alone(number))
    assert all(
        own["tile"] == 1 and 1 < own["width"] < 2 * _COHORT for _, own in programs
    )
    with pytest.raises(
        mj.ConfigurationError, match="must hold the training of one client"
    ):
        _together(runs=runs, memory_bytes=10_000)


@dataclasses.dataclass(frozen=True)
class _OnTheHost:
    """An aggregator that cannot be traced: no pytree, and it looks at values."""

    def init(self) -> int:
        return 0

    def aggregate(
        self, key: Any, state: int, updates: Any, members: Any, survivors: Any
    ) -> tuple[Any, int]:
        alive = np.asarray(survivors)
        mean = jnp.asarray(np.asarray(updates)[alive].mean(axis=0))
        out = AggregateOut(
            mean,
            jnp.int32(0),
            mean,
            jnp.float32(0),
            jnp.asarray(alive),
            jnp.zeros(len(alive), jnp.int32),
            jnp.uint32(1),
        )
        return out, state + 1


@pytest.mark.long
def test_what_cannot_be_traced_goes_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = _counted(monkeypatch)
    runs = {name: values[:2] for name, values in _runs().items()}
    runs["participation"] = [_history(seed).survivors[:, 0] for seed in (5, 6)]
    runs["aggregator"] = [_average(), _OnTheHost()]
    one, other = _together(runs=runs), _together("loops", runs)
    assert {ran.shape[1] for ran, _ in programs} == {1}
    for mine, theirs in zip(one, other, strict=True):
        _assert_same(mine, theirs)
