"""Weights of sums in every figure of a run.

Against the functions of `privacy` on P * sizes.
Three clients of a block have 72, 304 and 65 samples: weighed by them, the sums of
blocks of 3 hide the largest among 1.10, whatever is learnt of it, and strong T is 1.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import shutil
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import privacy, study
from mrsa_jax.study.runs import _training, _trial
from mrsa_jax.study.runs._training_setting import setting_of

pytestmark = pytest.mark.long

SIZES = np.array([72, 304, 65] * 2)
_POPULATION = study.PopulationConfig(num_clients=6, cohort_size=3, dropout_rates=(0.1,))
_TRAINING = study.TrainingConfig(model="logistic", batch_size=400, evaluate_every=3)
_FIELDS = ("strong_privacy", "rank", "hidden_among_worst", "hidden_among_median")


def _clients(seed: int, data: Any, num_clients: int) -> Any:
    """Deal digits out to clients of these sizes."""
    dataset = mj.data.load("digits", seed=seed)
    starts = np.concatenate([[0], np.cumsum(SIZES)[:-1]])
    rows = np.zeros((num_clients, SIZES.max()), np.int32)
    for row, start, size in zip(rows, starts, SIZES, strict=True):
        row[:size] = np.arange(start, start + size)
    inputs, labels = (
        jnp.asarray(dataset.train_inputs),
        jnp.asarray(dataset.train_labels),
    )
    sizes = jnp.asarray(SIZES, jnp.int32)
    return dataset, mj.data.ClientData(
        inputs, labels, jnp.asarray(rows), sizes, num_classes=10
    )


def _config(kind: Any, **more: Any) -> Any:
    own = {
        "rounds": 7,
        "population": _POPULATION,
        "training": _TRAINING,
        "data": study.DataConfig(dataset="digits"),
        "aggregation": study.AggregationConfig(weighted=True, fidelity="sets"),
    }
    return kind(**own | more)


@pytest.fixture
def sized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _training, "setting_of", functools.partial(setting_of, build=_clients)
    )
    monkeypatch.setattr("mrsa_jax.study.runs._build.build_clients", _clients)


def _expected(P: np.ndarray) -> dict[str, Any]:
    """Return what is known after the last sum, from public functions of P."""
    hidden = np.asarray(privacy.hidden_among(P))
    seen = hidden[np.isfinite(hidden)]
    return {
        "strong_privacy": privacy.strong_privacy(P),
        "rank": int(mj.modular.rank(P)),
        "hidden_among_worst": seen.min(),
        "hidden_among_median": np.median(seen),
        "exposed_clients": int((np.asarray(privacy.first_exposure(P)) >= 0).sum()),
    }


def _check(one: Any, P: np.ndarray) -> None:
    last = one.isel(round=-1) if "round" in one.dims else one
    for name, value in _expected(P).items():
        assert float(last[name]) == pytest.approx(value, rel=1e-9), name


def test_a_block_that_moves_alone_in_fractions() -> None:
    """Its sums are one row w: client i is hidden among (sum of w^2) / w_i^2."""
    total = sum(Fraction(int(size)) ** 2 for size in SIZES[:3])
    exact = [float(total / Fraction(int(size)) ** 2) for size in SIZES]
    P = np.kron(np.eye(2, dtype=bool), np.ones((1, 3), bool))[[0, 1, 0, 1]]
    found = _trial.analyse(P, weights=SIZES)
    assert found.hidden_among_worst[-1] == pytest.approx(min(exact), rel=1e-12)
    assert found.hidden_among_worst[-1] == pytest.approx(1.10181, rel=1e-5)
    assert found.hidden_among_median[-1] == pytest.approx(np.median(exact), rel=1e-12)
    assert found.strong_privacy.tolist() == [1] * 4
    assert (found.first_exposure == -1).all()
    lower, upper = _trial.weak_bounds(found, SIZES)  # type: ignore[misc]
    assert lower.tolist() == upper.tolist() == [3] * 4
    plain = _trial.analyse(P)
    assert plain.strong_privacy.tolist() == [3] * 4
    assert plain.hidden_among_worst[-1] == pytest.approx(3.0)


@pytest.mark.parametrize("at_end", [False, True])
def test_histories_are_those_of_the_weighted_matrix(at_end: bool) -> None:
    """Of random histories, weights of 0 and weights that are all alike among them."""
    rng = np.random.default_rng(5)
    for trial in range(24):
        P = rng.random((6, 6)) < 0.5
        P[0, :2] = True
        weights = rng.integers(trial % 2, 5, 6) * (7 if trial % 3 else 1)
        weights[0] = max(weights[0], 1)
        found = _trial.analyse(P, at_end=at_end, weights=weights)
        weighted = P * weights
        for name, value in _expected(weighted).items():
            assert getattr(found, name)[-1] == pytest.approx(value, rel=1e-9), (
                trial,
                name,
            )
        first = np.asarray(privacy.first_exposure(weighted))
        np.testing.assert_array_equal(found.first_exposure, first)
        plain = _trial.analyse(P, at_end=at_end)
        np.testing.assert_array_equal(found.participation, P)
        for name in ("fairness_gap", "aggregation_cardinality"):
            assert getattr(found, name)[-1] == getattr(plain, name)[-1]
        if at_end:
            continue
        lower, upper = _trial.quick_bounds(found, weights)  # type: ignore[misc]
        known = privacy.weak_privacy(weighted, effort=0.1)
        assert known.certified
        assert lower[-1] <= known.lower <= upper[-1], trial


def test_rounds_in_which_clients_are_lost_have_their_weights() -> None:
    parts = np.array([[0, 0, 2, 2], [1, 1, 1, -1], [0, 1, 0, 0]], np.int32)
    own = np.array([[True] * 4, [False] * 4, [True, False, True, True]])
    status = np.zeros(3, np.int32)
    history = mj.selection.RoundHistory(
        np.ones((3, 5, 4), bool), own, status, None, parts
    )
    weights = np.array([3, 5, 2, 7])
    rows, _ = mj.selection.learnt_rows(history)
    found = _trial.analyse_rounds(history, weights=weights)
    for name, value in _expected(rows * weights).items():
        assert getattr(found, name)[-1] == pytest.approx(value, rel=1e-9), name


@pytest.mark.usefixtures("sized")
def test_train_and_the_log_that_it_writes(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "run"
    config = _config(study.TrainConfig, scheme="batch_partitioning:3", out=out)
    saved = study.run_and_save(config)
    one = saved.results.isel(scheme=0)
    P = one["participation"].values * SIZES
    assert P.any()
    np.testing.assert_array_equal(one["weights"].values, SIZES)
    _check(one, P)
    (row,) = saved.rows
    assert row.strong_privacy == 1
    assert row.weak_lower == row.weak_upper == 3
    assert row.guaranteed_privacy == 3
    assert row.hidden_among_worst == pytest.approx(1.10181, rel=1e-5)
    assert "number of samples. T, rank, exposure" in " ".join(saved.sentences)
    assert "number of samples. T, rank, exposure" in (out / "report.html").read_text()
    log = privacy.read_log(out / "participation.jsonl")
    learnt = P[P.any(axis=1)]
    order = [log.clients.index(client) for client in np.flatnonzero(P.any(axis=0))]
    np.testing.assert_array_equal(log.participation[:, order], learnt[:, P.any(axis=0)])
    assert list(log.rounds) == (np.flatnonzero(P.any(axis=1)) + 1).tolist()
    found = privacy.audit(log, effort=0.0)
    assert found.strong == 1
    assert (found.weak.lower, found.weak.upper) == (row.weak_lower, row.weak_upper)
    assert found.weak.rank == row.rank
    assert found.hidden.least == pytest.approx(row.hidden_among_worst, rel=1e-9)
    assert not found.exposed


@pytest.mark.usefixtures("sized")
def test_a_sweep_over_trainings() -> None:
    text = """
        command = "train"
        rounds = 7
        trajectories = true
        [population]
        num_clients = 6
        cohort_size = 3
        dropout_rates = [0.1]
        [data]
        dataset = "digits"
        [training]
        model = "logistic"
        batch_size = 400
        evaluate_every = 3
        [aggregation]
        fidelity = "sets"
        [grid]
        scheme = ["batch_partitioning:3", "uniform"]
        aggregation.weighted = [false, true]
    """
    from mrsa_jax.study.sweeps import Machine, parse_sweep, plan_sweep
    from mrsa_jax.study.sweeps._engine import computed

    plan = plan_sweep(parse_sweep(text), Machine(devices=1))
    seen = set()
    for task in plan.tasks():
        for number, values in zip(task.numbers, computed(plan, task), strict=True):
            own = plan.points[number].config
            alone = study.run(own).isel(scheme=0)
            weights = SIZES if own.aggregation.weighted else np.ones(6, int)
            P = alone["participation"].values * weights
            for name, value in _expected(P).items():
                assert float(values[name]) == pytest.approx(value, rel=1e-9), name
                path = values[f"{name}_by_round"]
                np.testing.assert_allclose(
                    path[P.any(1).argmax() :], alone[name].values[P.any(1).argmax() :]
                )
            seen.add(
                (own.scheme, own.aggregation.weighted, int(values["strong_privacy"]))
            )
    assert ("batch_partitioning:3", False, 3) in seen
    assert ("batch_partitioning:3", True, 1) in seen
    assert len(seen) == 4


@pytest.mark.usefixtures("sized")
def test_a_demo_and_its_attack() -> None:
    """Frozen updates.

    Least squares on P * sizes leaves of a client 1 less its leverage.
    """
    schemes = "batch_partitioning:3", "uniform"
    results = study.run(_config(study.DemoConfig, schemes=schemes, rounds=12))
    for label in results["scheme"].values:
        one = results.sel(scheme=label)
        P = one["participation"].values * SIZES
        _check(one, P)
        known = privacy.weak_privacy(P, effort=0.1)
        last = one.isel(round=-1)
        assert float(last["weak_lower"]) <= known.lower <= float(last["weak_upper"])
    blocks = results.sel(scheme="batch_partitioning:3")
    error = blocks["reconstruction_error"].values
    largest = SIZES.max() == SIZES
    assert error[largest].max() < 0.3 < 0.6 < error[~largest].min()


@pytest.mark.usefixtures("sized")
def test_what_watches_a_training_sees_the_same(tmp_path: pathlib.Path) -> None:
    config = _config(
        study.TrainConfig,
        scheme="batch_partitioning:3",
        track=("json_lines",),
        out=tmp_path / "run",
    )
    one = study.run_and_save(config).results.isel(scheme=0)
    lines = (tmp_path / "run" / "tracking" / "metrics.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert len(told) == config.rounds
    for own, j in zip(told, range(config.rounds), strict=True):
        for name in ("strong_privacy", "hidden_among_worst", "exposed_clients"):
            value = float(one[name].values[j])
            assert own.get(name, np.nan) == pytest.approx(value, rel=1e-9, nan_ok=True)
    assert told[-1]["strong_privacy"] == 1


@pytest.mark.usefixtures("sized")
def test_sums_of_a_weighted_run_are_attacked_with_its_weights(
    tmp_path: pathlib.Path,
) -> None:
    config = _config(study.TrainConfig, scheme="uniform", out=tmp_path / "run")
    one = study.run_and_save(config).results.isel(scheme=0)
    rows = one["participation"].values
    P = rows[rows.any(axis=1)] * SIZES
    updates = np.random.default_rng(0).normal(size=(6, 9))
    np.save(tmp_path / "sums.npy", P @ updates)
    np.save(tmp_path / "updates.npy", updates)
    attack = study.attacks_on_sums.LeastSquaresConfig(
        run=tmp_path / "run",
        aggregates=tmp_path / "sums.npy",
        updates=tmp_path / "updates.npy",
    )
    found = study.run(attack)
    expected = mj.attacks.reconstruction_error(
        updates, mj.attacks.least_squares(P, P @ updates)
    )
    own = [row["error"] for row in found.scores]
    np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-9)


def test_a_study_whose_figures_ignore_weights_is_refused(
    tmp_path: pathlib.Path,
) -> None:
    """As version 1.0 wrote it: with a table that is not of its sums."""
    config = _config(
        study.TrainConfig, scheme="batch_partitioning:3", out=tmp_path / "run"
    )
    study.run_and_save(config)
    assert "weights" in study.open_study(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "results.zarr" / "weights")
    with pytest.raises(mj.ConfigurationError, match="count the weights of its sums"):
        study.open_study(tmp_path / "run")


@pytest.mark.usefixtures("sized")
def test_clients_that_weigh_nothing_are_no_mates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = np.array([72, 0, 65, 10, 20, 30])
    monkeypatch.setattr(f"{__name__}.SIZES", sizes)
    one = study.run(_config(study.TrainConfig, scheme="batch_partitioning:3")).isel(
        scheme=0
    )
    P = one["participation"].values * sizes
    _check(one, P)
    assert int(one["guaranteed_privacy"]) == 2
    lower = float(one["weak_lower"].isel(round=-1))
    assert lower == privacy.weak_privacy(P, effort=0.1).lower == 2


def test_the_settings_are_the_default_but_for_weights() -> None:
    """The figures of a run without weights are what they were."""
    config = dataclasses.replace(
        _config(study.TrainConfig, scheme="batch_partitioning:3"),
        aggregation=study.AggregationConfig(fidelity="sets"),
    )
    one = study.run(config).isel(scheme=0)
    assert "weights" not in one
    P = one["participation"].values
    _check(one, P)
    assert float(one["strong_privacy"].isel(round=-1)) == 3
