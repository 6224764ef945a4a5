"""Rounds as one program.

Bit for bit what rounds by themselves give, in results, steps and words.
The oracle is the training whose rounds are executables of their own, driven from the
host one by one, which `test_train` compares with plain loops.
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
from mrsa_jax._core import batches as _batches
from mrsa_jax.federated.programs import runs_program
from mrsa_jax.secagg.averages import AggregateOut

pytestmark = pytest.mark.long

_CLIENTS, _COHORT, _DIM = 6, 4, 650
_MODEL = mj.federated.logistic(10)
_FIELDS = ("parameters", "accuracy", "loss", "status", "clipped_fraction", "wrapped",
           "participation", "components", "evaluated_rounds", "aggregates")  # fmt: skip


@functools.cache
def _data() -> tuple[mj.data.Dataset, mj.data.ClientData]:
    dataset = mj.data.load("digits", seed=0)
    small = dataclasses.replace(
        dataset,
        train_inputs=dataset.train_inputs[:60],
        train_labels=dataset.train_labels[:60],
    )
    return small, mj.data.dirichlet_by_class(0, small, _CLIENTS, concentration=2.0)


@functools.cache
def _history(num_rounds: int = 16) -> mj.selection.RoundHistory:
    """Rounds that are skipped, that fail and that fall apart, over graphs."""
    return mj.selection.rollout_rounds(
        5,
        mj.selection.uniform(_CLIENTS, _COHORT),
        mj.availability.independent(0.25),
        mj.availability.independent_steps(0.06),
        num_rounds,
        rule=_rule(),
    )


def _rule() -> mj.secagg.GraphRule:
    return mj.secagg.graph_rule(
        mj.graphs.erdos_renyi(_COHORT, 0.7), _CLIENTS, threshold=2
    )


def _train_in(
    form: str, fidelity: str = "sets", **more: Any
) -> mj.federated.TrainingResult:
    small, clients = _data()
    average = mj.secagg.ring_average(
        mj.quantize.stochastic(2**12, 0.5),
        _COHORT,
        _DIM,
        rule=_rule(),
        fidelity=fidelity,
        max_weight=np.asarray(clients.sizes),
        clip_rule=mj.quantize.following_range(4.0),
    )
    call = {
        name: more.pop(name)
        for name in ("checkpoints", "progress", "callback")
        if name in more
    }
    settings: dict[str, Any] = {
        "trainer": mj.federated.local_sgd(_MODEL, 0.3, batch_size=8, momentum=0.5),
        "aggregator": average,
        "server": _SERVER,
        "test": (small.test_inputs[:50], small.test_labels[:50]),
        "evaluate_every": 5,
        "rate_schedule": mj.federated.decay_at(6, 0.5),
        "weights": clients.sizes,
    }
    with mj.use_form(form):
        training = mj.federated.Training(
            _MODEL, clients, _history(), **(settings | more)
        )
        return mj.federated.train(3, training, **call)


_SERVER = optax.sgd(0.5, momentum=0.9)


def _assert_equal(
    one: mj.federated.TrainingResult, other: mj.federated.TrainingResult
) -> None:
    for field in _FIELDS:
        np.testing.assert_array_equal(
            getattr(one, field), getattr(other, field), err_msg=field
        )
    assert one.diverged_round == other.diverged_round


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return where the rounds that each program ran, and its length, will be noted."""
    programs: list[tuple[int, int]] = []
    program = runs_program

    def noted(*arguments: Any, **settings: Any) -> Any:
        out = program(*arguments, **settings)
        programs.append((int(np.sum(out[1].is_run)), len(out[1].is_run)))
        return out

    noted.eval_shape = program.eval_shape  # type: ignore[attr-defined]
    monkeypatch.setattr("mrsa_jax.federated._program.runs_program", noted)
    return programs


@pytest.mark.parametrize(
    "fidelity", ["sets", pytest.param("array", marks=pytest.mark.slow)]
)
def test_equal_to_rounds_by_themselves(
    fidelity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, list[Any]] = {"loops": [], "xla": []}
    told: dict[str, list[Any]] = {"loops": [], "xla": []}
    results = {}
    programs = _counted(monkeypatch)
    for form, words in said.items():
        results[form] = _train_in(
            form,
            fidelity,
            keep_aggregates=True,
            progress=lambda *own, words=words: words.append(own),
            callback=told[form].append,
        )
    _assert_equal(results["loops"], results["xla"])
    assert said["loops"] == said["xla"]
    assert told["loops"] == told["xla"]
    codes = set(results["xla"].status.tolist())
    assert {mj.Status.OK, mj.Status.SKIPPED} < codes  # and some that failed
    trained = (results["xla"].status != mj.Status.SKIPPED).sum()
    assert sum(count for count, _ in programs) == trained
    assert len({length for _, length in programs}) == 1  # compiled once
    assert max(count for count, _ in programs) > 1


def test_the_cut_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _train_in("xla", test=None)
    for most in (1, 3):
        pace = "mrsa_jax.federated._train.Pace"
        monkeypatch.setattr(f"{pace}.__exit__", lambda *_: None)
        monkeypatch.setattr(
            f"{pace}.__init__", lambda self, most=most: vars(self).update(most=most)
        )
        _assert_equal(whole, _train_in("xla", test=None))
    monkeypatch.setitem(_batches._WORK, "rounds", _batches._Work(2 * 16 * _COHORT, 0))
    programs = _counted(monkeypatch)
    _assert_equal(whole, _train_in("xla", test=None))
    assert {length for _, length in programs} == {2}


def test_nothing_after_a_round_that_diverged() -> None:
    trained = np.flatnonzero(_history().survivors[:, 0].any(axis=1))
    settings: dict[str, Any] = {
        "rate_schedule": lambda index: 3e38 if index == trained[4] else 0.1,
        "trainer": mj.federated.local_sgd(_MODEL, 3.0, batch_size=8, momentum=0.5),
    }
    steps: dict[str, list[Any]] = {"loops": [], "xla": []}
    results = {}
    for form, own in steps.items():
        settings["progress"] = lambda *call, own=own: own.append(call)
        results[form] = _train_in(form, **settings)
    _assert_equal(results["loops"], results["xla"])
    assert steps["loops"] == steps["xla"]
    assert results["xla"].diverged_round == trained[4]
    assert mj.Status.NOT_RUN in results["xla"].status


def test_stopped_within_a_program_and_resumed(tmp_path: pathlib.Path) -> None:
    whole = _train_in("loops")

    def stop_at(limit: int) -> Any:
        def progress(done: int, total: int) -> None:
            if done == limit:
                raise KeyboardInterrupt

        return progress

    store = mj.federated.checkpoints(tmp_path, every=3)
    for limit in (2, 5, 10):
        with pytest.raises(KeyboardInterrupt):
            _train_in("xla", checkpoints=store, progress=stop_at(limit))
        saved = [int(name) for name in os.listdir(tmp_path)]
        assert max(saved, default=0) == limit // 3 * 3
    _assert_equal(_train_in("xla", checkpoints=store), whole)


@dataclasses.dataclass(frozen=True)
class _OnTheHost:
    """An aggregator that cannot be traced: no pytree, and it looks at values."""

    def init(self) -> int:
        return 0

    def aggregate(
        self, key: Any, state: int, updates: Any, members: Any, survivors: Any
    ) -> tuple[Any, int]:
        mean = jnp.asarray(np.asarray(updates)[np.asarray(survivors)].mean(axis=0))
        out = AggregateOut(
            mean,
            jnp.int32(0),
            mean,
            jnp.float32(0),
            jnp.asarray(survivors),
            jnp.zeros(len(survivors), jnp.int32),
            jnp.uint32(1),
        )
        return out, state + 1


def test_what_cannot_be_traced_goes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = _counted(monkeypatch)
    clients = _data()[1]
    history = np.ones((3, _CLIENTS), bool)
    trainer = mj.federated.local_sgd(_MODEL, 0.3, batch_size=8)
    training = mj.federated.Training(_MODEL, clients, history, trainer, _OnTheHost())
    one, other = (
        _in_form(form, mj.federated.train, 0, training) for form in ("loops", "xla")
    )
    np.testing.assert_array_equal(one.parameters, other.parameters)
    assert not programs


def _in_form(form: str, function: Any, *arguments: Any, **more: Any) -> Any:
    with mj.use_form(form):
        return function(*arguments, **more)


def test_misuse_is_said_as_by_itself() -> None:
    with pytest.raises(mj.ConfigurationError, match="the ring's budget allows"):
        _train_in("xla", weights=np.full(_CLIENTS, 10**6))
