"""Noise in trainings.

Against the ledger's sums by hand, the mechanism's variance, and no noise.
The oracle of the account is a plain loop over who survived, and epsilon by bisection of
the Gaussian mechanism's delta (Balle and Wang, 2018).
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy import optimize, stats

from mrsa_jax import ConfigurationError, study
from mrsa_jax.study.publishing import _summary
from mrsa_jax.study.runs import _build
from mrsa_jax.study.runs._build import build_bounded, build_mechanism

pytestmark = pytest.mark.long

_COHORT, _CLIENTS, _DIM, _DELTA = 4, 12, 650, 1e-4
# tables of noise in rings of more bits take seconds
_NOISY = {
    "noise_multiplier": 1.5,
    "clip_norm": 0.5,
    "target_delta": _DELTA,
    "modulus_bits": 16,
}


def _config(**more: Any) -> study.TrainConfig:
    base = study.TrainConfig(
        rounds=9, scheme=more.pop("scheme", "uniform"), seed=more.pop("seed", 0)
    )
    parts = {
        "population": {
            "num_clients": _CLIENTS,
            "cohort_size": _COHORT,
            "dropout_rates": (0.2,),
        },
        "data": {"dataset": "digits"},
        "training": {"model": "logistic", "evaluate_every": 4, "measure_drift": False},
        "aggregation": _NOISY,
    }
    for name, own in more.items():
        parts[name] = parts.get(name, {}) | own
    return dataclasses.replace(
        base,
        **{
            name: dataclasses.replace(getattr(base, name), **own)
            for name, own in parts.items()
        },
    )


def _epsilon(mu: float, delta: float = _DELTA) -> float:
    """Return epsilon of mu-Gaussian differential privacy, by bisection."""

    def above(at: float) -> float:
        here, there = (
            stats.norm.cdf(mu / 2 - at / mu),
            stats.norm.logcdf(-mu / 2 - at / mu),
        )
        return float(here - math.exp(at + there)) - delta

    return (
        0.0 if mu == 0 or above(0.0) < 0 else float(optimize.brentq(above, 0.0, 200.0))
    )


@pytest.fixture(scope="module")
def trained() -> xr.Dataset:
    """Rounds in which clients are lost at every step, some of whose sums are smaller or none."""
    return study.run(_config(protocol={"step_dropout_rate": 0.05}))


def test_the_account_is_of_those_who_survived(trained: xr.Dataset) -> None:
    rows = trained["participation"].values[0]
    mechanism = build_mechanism(_config().aggregation, _COHORT, _DIM)
    sensitivity, deviation = mechanism.sensitivity, 1.5 * 0.5
    assert 0.5 < sensitivity < 0.51
    real, planned = np.zeros((9, _CLIENTS)), np.zeros((9, _CLIENTS))
    for number, row in enumerate(rows):
        if row.any():
            variance = deviation**2 * row.sum() / _COHORT
            real[number, row] = sensitivity**2 / variance
            planned[number, row] = sensitivity**2 / deviation**2
    sizes = rows.sum(axis=1)
    assert ((sizes > 0) & (sizes < _COHORT)).any()
    mu = np.sqrt(np.cumsum(real, axis=0))
    np.testing.assert_allclose(trained["mu"].values[0], mu[-1], rtol=1e-9)
    np.testing.assert_allclose(
        trained["planned_mu"].values[0], np.sqrt(planned.sum(axis=0)), rtol=1e-9
    )
    epsilon = np.array([[_epsilon(own) for own in at] for at in mu])
    np.testing.assert_allclose(trained["epsilon"].values[0], epsilon[-1], rtol=1e-7)
    tested = trained["evaluation"].values - 1
    assert tested.tolist() == [3, 7, 8]
    np.testing.assert_allclose(
        trained["epsilon_worst"].values[0], epsilon[tested].max(axis=1), rtol=1e-7
    )
    np.testing.assert_allclose(
        trained["epsilon_mean"].values[0], epsilon[tested].mean(axis=1), rtol=1e-7
    )
    each = [
        mechanism.epsilon(_DELTA, survivors=sizes[own]) for own in rows.T if own.any()
    ]
    assert float(trained["epsilon_proven"][0]) == pytest.approx(max(each), rel=0.01)
    assert epsilon[-1].max() < max(each) < 1.2 * epsilon[-1].max()
    assert trained["epsilon"].attrs["delta"] == _DELTA
    assert trained["wrapped"].sizes == {"scheme": 1, "round": 9}


def test_what_noise_adds_to_a_mean_is_its_variance() -> None:
    """Of n survivors' zero updates the mean has variance n shares over n^2 in each coordinate."""
    config = _config().aggregation
    average = _build.build_aggregator(
        b"seed", config, _COHORT, _DIM, cohort_size=_COHORT
    )
    updates, members = jnp.zeros((_COHORT, _DIM), jnp.float32), jnp.arange(_COHORT)
    run = jax.jit(
        lambda key, alive: average.aggregate(
            key, average.init(), updates, members, alive
        )[0]
    )
    for survivors in (_COHORT, 2):
        alive = jnp.arange(_COHORT) < survivors
        means = [run(jax.random.key(seed), alive).update for seed in range(30)]
        share = (1.5 * 0.5) ** 2 / _COHORT
        found = np.square(np.asarray(means, np.float64)) / (share / survivors)
        # sums of squares of about 19,500 normal numbers: five standard deviations are 5
        # %
        assert abs(found.mean() - 1) < 5 * math.sqrt(2 / found.size)
        assert abs(np.mean(np.asarray(means, np.float64))) < 5 * math.sqrt(
            share / survivors / found.size
        )


def test_without_noise_a_bound_that_nothing_reaches_changes_rounding_alone() -> None:
    silent = {"noise_multiplier": 0.0, "modulus_bits": 32}
    plain = study.run(_config(aggregation=silent | {"clip_norm": None}, training={}))
    bounded = study.run(_config(aggregation=silent | {"clip_norm": 100.0}))
    np.testing.assert_allclose(bounded["loss"], plain["loss"], atol=2e-3)
    np.testing.assert_allclose(bounded["accuracy"], plain["accuracy"], atol=0.01)
    np.testing.assert_array_equal(bounded["participation"], plain["participation"])
    assert not {"epsilon", "mu", "wrapped"} & (set(plain) | set(bounded))
    tight = study.run(_config(aggregation=silent | {"clip_norm": 1e-3}))
    start = float(np.log(10))
    assert (
        abs(float(tight["loss"][0, -1]) - start)
        < 0.1
        < start - float(plain["loss"][0, -1])
    )


def test_more_noise_is_less_accuracy_and_less_epsilon(trained: xr.Dataset) -> None:
    found = [
        study.run(_config(aggregation={"noise_multiplier": z, "noise": noise}))
        for z, noise in (
            (0.05, "skellam"),
            (0.05, "discrete_gaussian"),
            (50.0, "skellam"),
        )
    ]
    little, other, much = (float(own["loss"][0, -1]) for own in found)
    assert little < 2.2 < much
    assert other == pytest.approx(little, abs=0.05)
    worst = [float(own["epsilon_worst"][0, -1]) for own in found]
    assert worst[0] == worst[1] > float(trained["epsilon_worst"][0, -1]) > worst[2]


def test_a_ring_too_small_is_refused_before_any_work(tmp_path: pathlib.Path) -> None:
    config = _config(aggregation={"modulus_bits": 4, "noise_multiplier": 8.0})
    with pytest.raises(ConfigurationError, match="`modulus_bits` must"):
        study.run_and_save(dataclasses.replace(config, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    small = _config(aggregation={"modulus_bits": 5, "noise_multiplier": 0.0})
    with pytest.raises(
        ConfigurationError, match="`modulus_bits` must leave room for a cohort's"
    ):
        study.run(small)
    for clients, dim, bits in ((2, 1, 8), (12, 650, 12), (120, 61706, 32)):
        own = dataclasses.replace(small.aggregation, modulus_bits=bits)
        lattice, noise = build_bounded(own, clients, dim)
        assert noise is None
        assert clients * (int(lattice.num_levels) - 1) // 2 < 2 ** (bits - 1)


def test_a_study_says_what_noise_promises(
    trained: xr.Dataset, tmp_path: pathlib.Path
) -> None:
    (row,) = _summary.summarise(trained)
    assert row.epsilon_worst == trained["epsilon"].values.max()
    assert row.epsilon_mean == pytest.approx(trained["epsilon"].values.mean())
    assert (
        row.planned_epsilon
        == trained["planned_epsilon"].values.max()
        < row.epsilon_worst
    )
    (sentence,) = [
        one for one in trained.mrsa.sentences() if "differentially private" in one
    ]
    assert row.epsilon_proven is not None
    proven = f"is proven to be at most {row.epsilon_proven:.3g} under"
    assert proven in sentence
    gaussian = f"if noise were Gaussian {row.epsilon_worst:.3g} for the worst client"
    assert sentence.index(proven) < sentence.index(gaussian)
    assert "at delta 0.0001" in sentence
    page = re.sub(r"<[^>]+>", " ", trained.mrsa.report(tmp_path).read_text())
    for words in (
        "Differential privacy",
        "Epsilon (proven)",
        f"{row.epsilon_worst:.4g}",
        "Protected against: the server",
        "own device, nor clients who reveal their",
        "Test accuracy against the epsilon",
        "Worst if Gaussian",
        f"epsilon {row.epsilon_proven:.3g} for every client, proven",
    ):
        assert words in page, words
    table = trained.mrsa.table()
    assert table["epsilon_worst"].tolist() == [row.epsilon_worst]


def test_what_drift_hides_is_said_to_be_without_the_noise() -> None:
    measured = study.run(_config(training={"measure_drift": True}))
    (said,) = [one for one in _summary.sentences(measured) if "drift" in one]
    assert "leave out the clients' noise, with which the sums reveal less" in said
    quiet = _config(
        training={"measure_drift": True}, aggregation={"noise_multiplier": 0.0}
    )
    (said,) = [one for one in _summary.sentences(study.run(quiet)) if "drift" in one]
    assert "noise" not in said


def test_a_folder_with_noise_opens_and_old_settings_have_none(
    tmp_path: pathlib.Path,
) -> None:
    config = dataclasses.replace(_config(), out=tmp_path / "out", rounds=3)
    saved = study.run_and_save(config)
    opened = study.open_study(config.out)
    np.testing.assert_array_equal(opened["epsilon"], saved.results["epsilon"])
    assert opened["epsilon"].attrs["delta"] == _DELTA
    assert {"accuracy_epsilon.png", "accuracy_epsilon.csv", "epsilon.png"} <= {
        path.name for path in config.out.iterdir()
    }
    content = study.load_config(study.TrainConfig, config.out / "config.toml")
    assert content.aggregation == config.aggregation
    old = study.to_dict(_config())
    for name in ("noise_multiplier", "clip_norm", "noise", "target_delta"):
        del old["aggregation"][name]
    path = tmp_path / "old.toml"
    path.write_text(
        f"[aggregation]\nnum_levels = {json.dumps(old['aggregation']['num_levels'])}"
    )
    assert study.load_config(study.TrainConfig, path) == study.TrainConfig()


def test_with_segments_a_round_counts_by_the_smallest_sum(
    tmp_path: pathlib.Path,
) -> None:
    """MC at three groups of two.

    Each is by itself in one segment, whose sum is of two clients.
    """
    config = _config(
        population={"num_clients": 12, "cohort_size": 6},
        aggregation={"modulus_bits": 24, "clip": 0.25},
    )
    own = study.SegmentConfig("mc", (2**12,) * 3, client_rates=(1.0, 2.0))
    config = dataclasses.replace(config, hetero=own, rounds=4)
    found = study.run(config)
    rows = found["participation"].values[0]
    assert rows.sum(axis=1).tolist() == [6] * 4
    step = 2 * 0.25 / (2**12 - 1)
    sensitivity = 0.5 + math.sqrt(_DIM) * step
    each = sensitivity / (1.5 * 0.5 * math.sqrt(2 / 6))
    mu = each * np.sqrt(rows.sum(axis=0))
    np.testing.assert_allclose(found["mu"].values[0], mu, rtol=1e-5)
    np.testing.assert_allclose(found["planned_mu"].values[0], mu, rtol=1e-5)
    worst = _epsilon(mu.max())
    assert float(found["epsilon_worst"][0, -1]) == pytest.approx(worst, rel=1e-4)
    assert worst < float(found["epsilon_proven"][0]) < 1.2 * worst
    assert float(found["noise_step"][0]) == pytest.approx(step)
    assert (found["wrapped"].values == 0).all()
    assert found["wrap_probability"].values < 1e-9
    assert "With segments it sums each" in found.mrsa.report(tmp_path).read_text()

    def refused(message: str, **changes: Any) -> None:
        aggregation = dataclasses.replace(config.aggregation, **changes)
        with pytest.raises(ConfigurationError, match=message):
            study.run(dataclasses.replace(config, aggregation=aggregation))

    refused("`modulus_bits` must leave room for the largest sum", modulus_bits=13)
    refused("`modulus_bits` must leave room for noise: .* got 14", modulus_bits=14)
