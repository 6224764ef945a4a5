"""Sweeps over trainings in one process.

Against single trainings, and where some diverge.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, selection, study
from mrsa_jax._core import batches as _batches
from mrsa_jax.study.runs import _build
from mrsa_jax.study.sweeps import Machine, parse_sweep, plan_sweep, run_sweep

TEXT = """
command = "train"
rounds = 9
scheme = "uniform"
trajectories = true
keep = ["first_exposure", "skipped", "status"]
[population]
num_clients = 8
cohort_size = 4
dropout_rates = [0.4]
[data]
dataset = "digits"
[training]
model = "mlp"
evaluate_every = 3
[grid]
training.server_learning_rate = [1.0, 1e13]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train") / "out"
    sweep = dataclasses.replace(parse_sweep(TEXT), out=folder)
    plan = plan_sweep(sweep)
    return plan, run_sweep(plan).load()


def single(plan, number, **changes):
    config = dataclasses.replace(plan.points[number].config, **changes)
    return study.run(config)


@pytest.mark.long
def test_a_training_that_ends_is_the_single_one(swept):
    plan, results = swept
    cell = results.isel(server_learning_rate=0)
    alone = single(plan, 0).isel(scheme=0)
    assert not cell["diverged"]
    assert np.isnan(cell["diverged_round"])
    assert cell["accuracy"] == alone["accuracy"].values[-1]
    assert cell["best_accuracy"] == alone["accuracy"].values.max()
    for name in ("strong_privacy", "rank", "exposed_clients"):
        np.testing.assert_array_equal(
            cell[f"{name}_by_round"].values, alone[name].values
        )
        assert cell[name] == alone[name].values[-1]
    for name in ("first_exposure", "skipped", "status"):
        np.testing.assert_array_equal(cell[name].values, alone[name].values)
    np.testing.assert_array_equal(
        cell["evaluated_round"].values, alone["evaluation"].values
    )
    for name in (
        "update_spread",
        "update_memory",
        "update_lasting",
        "bits_worst",
        "bits_median",
    ):
        assert cell[name] == pytest.approx(np.ravel(alone[name])[-1], rel=1e-9), name


@pytest.mark.long
def test_of_a_training_that_diverges_the_privacy_is_known(swept):
    """As of the rounds until then, of which the last has no sum.

    No update is finite in it.
    """
    plan, results = swept
    cell = results.isel(server_learning_rate=1)
    with pytest.raises(ConfigurationError, match="diverged in round") as caught:
        single(plan, 1)
    assert type(caught.value).__name__ == "DivergedError"
    last = int(cell["diverged_round"])
    assert bool(cell["done"])
    assert bool(cell["diverged"])
    assert f"diverged in round {last + 1}" in str(caught.value)  # words count from 1
    assert 1 <= last < 8  # the first update is finite, what is trained from it is not
    for name in ("accuracy", "best_accuracy", "loss", "update_memory", "bits_worst"):
        assert np.isnan(cell[name])
    assert cell["failed_uploads"] == 4  # of the last round: its cohort
    online, _ = _build.build_online(0, plan.points[1].config.population)
    P = np.array(selection.rollout(0, selection.uniform(8, 4), online, last + 1))
    assert P[last].any()
    P[last] = False
    alone = study.from_histories({"these": P}).isel(scheme=0)
    for name in ("strong_privacy", "rank", "exposed_clients", "fairness_gap"):
        assert cell[name] == alone[name].values[-1], name
        path = cell[f"{name}_by_round"].values
        np.testing.assert_array_equal(path[: last + 1], alone[name].values)
        beyond = path[last + 1 :]
        assert np.isnan(beyond).all()
    assert cell["rank"] >= 1
    assert cell["skipped_rounds"] == alone["skipped"].values.sum()
    first = alone["first_exposure"].values
    expected = min((r for r in first if r >= 0), default=np.nan)
    np.testing.assert_array_equal(cell["first_exposed_round"], expected)


@pytest.mark.long
def test_trainings_that_fill_the_device_together_are_the_same(monkeypatch, tmp_path):
    """On a CPU one does; an accelerator takes as many as its memory holds."""
    text = TEXT.replace(
        "server_learning_rate = [1.0, 1e13]", "learning_rate = [0.1, 1e13]"
    )
    found = []
    for count in (1, 2):
        sweep = dataclasses.replace(parse_sweep(text), out=tmp_path / f"{count}")
        plan = plan_sweep(sweep)
        assert [group.together for group in plan.groups] == [count]
        found.append(run_sweep(plan).load())
        monkeypatch.setitem(_batches._WORK, "trainings", _batches._WORK["results"])
    assert found[0]["diverged"].values.tolist() == [False, True]
    for name in found[0].drop_vars("seconds"):
        np.testing.assert_allclose(
            found[1][name], found[0][name], atol=1e-5, err_msg=name
        )
    (both,) = plan_sweep(sweep, Machine(2**40)).groups
    assert both.together == 2
    for room, count in ((both.memory_bytes, 2), (both.memory_bytes - 1, 1)):
        assert [
            group.together for group in plan_sweep(sweep, Machine(room)).groups
        ] == [count]


@pytest.mark.long
def test_epsilon_is_that_of_the_single_training_and_infinite_without_noise(tmp_path):
    text = TEXT.replace("training.server_learning_rate = [1.0, 1e13]", "")
    text = text.replace(
        "[grid]", "[aggregation]\nclip_norm = 0.5\nmodulus_bits = 16\n[grid]"
    )
    text = text.replace('"mlp"', '"logistic"')
    text += "aggregation.noise_multiplier = [0.0, 2.0]\naggregation.target_delta = [1e-5, 1e-3]\n"
    plan = plan_sweep(dataclasses.replace(parse_sweep(text), out=tmp_path / "out"))
    results = run_sweep(plan).load()
    with_noise = results.isel(noise_multiplier=1)
    for place, delta in enumerate((1e-5, 1e-3)):
        alone = single(plan, 2 + place).isel(scheme=0)
        cell = with_noise.isel(target_delta=place)
        assert alone["epsilon"].attrs["delta"] == delta
        assert cell["epsilon_worst"] == alone["epsilon"].max()
        assert cell["epsilon_mean"] == alone["epsilon"].mean()
        assert cell["planned_epsilon"] == alone["planned_epsilon"].max()
        assert cell["mu_worst"] == alone["mu"].max()
        assert cell["wrapped"] == alone["wrapped"].sum()
        assert cell["accuracy"] == alone["accuracy"].values[-1]
        for name in ("epsilon_worst", "epsilon_mean"):
            np.testing.assert_array_equal(cell[f"{name}_by_evaluation"], alone[name])
    assert (with_noise["epsilon_worst"].diff("target_delta") < 0).all()
    without = results.isel(noise_multiplier=0)
    for name in ("epsilon_worst", "epsilon_mean", "planned_epsilon", "mu_worst"):
        assert np.isposinf(without[name]).all()
    assert (without["wrapped"] == 0).all()
    page = results.mrsa.report(tmp_path).read_text()
    assert "Test accuracy against the epsilon of the worst client" in page
