"""Studies in which updates are not finite, or clipped.

What they report, and of which sums.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import privacy, study
from mrsa_jax._core.pytrees import pytree
from mrsa_jax.study._progress import Silent
from mrsa_jax.study.publishing import _summary
from mrsa_jax.study.runs import _build, _participation, _training_setting

pytestmark = pytest.mark.long

_POPULATION = study.PopulationConfig(num_clients=6, cohort_size=6, dropout_rates=(0.0,))
_LOSSY = study.ProtocolConfig(
    step_dropout_rate=0.08, threshold=3, allow_unmasking_risk=True
)


@pytree
class _Breaks:
    """A trainer for whose clients some rounds give no number."""

    inner: Any
    every: Any

    @property
    def loss(self) -> Any:
        return None

    def update(
        self, key: Any, parameters: Any, inputs: Any, labels: Any, size: Any
    ) -> Any:
        own = self.inner.update(key, parameters, inputs, labels, size)
        draw = jax.random.bits(key, (), jnp.uint32) % self.every
        return jnp.where(draw == 0, jnp.nan, own)


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> None:
    build = _build.build_trainer
    monkeypatch.setattr(
        _build, "build_trainer", lambda *own: _Breaks(build(*own), jnp.uint32(5))
    )


def _config(**more: Any) -> study.TrainConfig:
    own = {
        "rounds": 8,
        "population": _POPULATION,
        "scheme": "batch_partitioning:3",
        "data": study.DataConfig(dataset="digits"),
        "training": study.TrainingConfig(
            model="logistic", batch_size=400, evaluate_every=4
        ),
        "aggregation": study.AggregationConfig(fidelity="sets", weighted=True),
    }
    return study.TrainConfig(**own | more)


def _check(one: Any, P: np.ndarray) -> None:
    hidden = np.asarray(privacy.hidden_among(P))
    last = one.isel(round=-1)
    assert float(last["strong_privacy"]) == privacy.strong_privacy(P)
    worst = hidden[np.isfinite(hidden)].min()
    assert float(last["hidden_among_worst"]) == pytest.approx(worst, rel=1e-9)
    exposed = int((np.asarray(privacy.first_exposure(P)) >= 0).sum())
    assert float(last["exposed_clients"]) == exposed


@pytest.mark.usefixtures("breaking")
def test_figures_are_of_the_sums_that_were_made(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "run"
    saved = study.run_and_save(_config(out=out, track=("json_lines",)))
    one = saved.results.isel(scheme=0)
    rows = one["participation"].values
    failed = one["failed_uploads"].values
    assert failed.any()
    np.testing.assert_array_equal(rows.sum(axis=1) + failed, [6] * 8)
    P = rows * one["weights"].values
    _check(one, P)
    (row,) = saved.rows
    assert row.failed_uploads == failed.sum()
    assert row.guaranteed_privacy == 1  # blocks were split
    assert f"are in no sum: {failed.sum()} under" in " ".join(saved.sentences)
    assert "are in no sum" in (out / "report.html").read_text()
    log = privacy.read_log(out / "participation.jsonl")
    np.testing.assert_array_equal(log.participation, P)
    lines = [
        json.loads(line)
        for line in (out / "participation.jsonl").read_text().splitlines()
    ]
    assert all(line["asked"] == list("012345") for line in lines[1:])
    text = (out / "tracking" / "metrics.jsonl").read_text()
    for line, count in zip(
        map(json.loads, text.splitlines()), failed.cumsum(), strict=True
    ):
        assert line["failed_uploads"] == count
        # else of sums that were not made
        assert ("strong_privacy" in line) == (count == 0)


@pytest.mark.usefixtures("breaking")
@pytest.mark.parametrize("policy", ["ignore", "drop_block"])
def test_beside_losses_of_the_protocol(policy: str) -> None:
    protocol = dataclasses.replace(_LOSSY, split_policy=policy)
    one = study.run(_config(protocol=protocol, rounds=12)).isel(scheme=0)
    assert one["failed_uploads"].values.any()
    components = one["learnt_component"].values
    rows = [
        own == label for own in components for label in np.unique(own[np.isfinite(own)])
    ]
    P = np.asarray(rows) * one["weights"].values
    _check(one, P)
    assert int(one["guaranteed_privacy"]) == (1 if policy == "ignore" else 3)
    if policy == "drop_block":
        assert privacy.weak_privacy(P, effort=0.1).lower >= 3


@pytest.mark.usefixtures("breaking")
@pytest.mark.parametrize(
    "protocol", [study.ProtocolConfig(), _LOSSY], ids=["plain", "lossy"]
)
def test_segments(protocol: study.ProtocolConfig) -> None:
    config = _config(
        protocol=protocol,
        aggregation=study.AggregationConfig(fidelity="sets"),
        hetero=study.SegmentConfig(segments="mc", group_levels=(4, 8, 16)),
        rounds=10,
    )
    setting = _training_setting.setting_of(config, Silent())
    scheme = study.parse_scheme(config.scheme)
    available, _ = _build.build_online(config.seed, config.population, setting.clients)
    played = _training_setting.play(setting, scheme, available)
    training = _training_setting.training_of(setting, scheme, played)
    result = mj.federated.train(config.seed, training)
    assert result.failed_uploads.any()
    actual = _training_setting.as_trained(setting, played, result)
    np.testing.assert_array_equal(actual.history.participation, result.participation)
    for rows, rounds in zip(actual.sums.participation, actual.sums.rounds, strict=True):
        assert not (rows & result.failed_uploads[rounds]).any()
    strong = min(privacy.strong_privacy(rows) for rows in actual.sums.participation)
    assert actual.history.strong_privacy[-1] == strong
    lines = _participation.log_of(setting, actual).splitlines()
    parts = {
        own.get("part")
        for own in map(json.loads, lines[1:])
        if own["status"] == "learnt"
    }
    assert len(parts) == actual.sums.num_segments


@pytest.mark.usefixtures("breaking")
def test_sweeps_keep_the_same(tmp_path: pathlib.Path) -> None:
    from mrsa_jax.study.runs._train_points import run_points
    from mrsa_jax.study.sweeps import Machine

    config = _config()
    alone = study.run(config).isel(scheme=0)
    (found,) = run_points([config], Machine(devices=1), ("trajectories", "status"), 1)
    assert found["failed_uploads"] == alone["failed_uploads"].sum()
    assert found["guaranteed_privacy"] == 1
    for name in (
        "strong_privacy",
        "hidden_among_worst",
        "rank",
        "aggregation_cardinality",
    ):
        np.testing.assert_allclose(found[f"{name}_by_round"], alone[name].values)


def test_the_log_of_a_noisy_run_has_its_noise(tmp_path: pathlib.Path) -> None:
    """The audit of the log has the mu of the run, from who was in each sum."""
    own = study.AggregationConfig(
        fidelity="sets", noise_multiplier=2.0, clip_norm=0.5, modulus_bits=32
    )
    out = tmp_path / "run"
    population = study.PopulationConfig(
        num_clients=12, cohort_size=6, dropout_rates=(0.2,)
    )
    config = _config(aggregation=own, protocol=_LOSSY, out=out, population=population)
    saved = study.run_and_save(config)
    one = saved.results.isel(scheme=0)
    log = privacy.read_log(out / "participation.jsonl")
    found = mj.dp.ledger(log)
    mu = one["mu"].values
    places = [int(client) for client in log.clients]
    # but for rounding to the lattice, which lets a client add a little more than the
    # norm
    np.testing.assert_allclose(found.mu, mu[places], rtol=1e-3)
    failed = [
        json.loads(line)
        for line in (out / "participation.jsonl").read_text().splitlines()
    ]
    assert {own.get("status") for own in failed[1:]} <= {"learnt", "aborted"}


@pytest.mark.parametrize(
    ("aggregation", "words"),
    [
        ({"clip": 1e-6}, "outside the clip range, and so clipped: "),
        ({"clip_norm": 1e-3}, "longer than the clip norm, and so shortened: 100 %"),
    ],
)
def test_clipping_is_reported_where_it_matters(aggregation: Any, words: str) -> None:
    own = study.AggregationConfig(fidelity="sets", **aggregation)
    results = study.run(_config(aggregation=own))
    (row,) = _summary.summarise(results)
    shares = results["clipped_fraction"].values
    assert row.clipped_fraction == pytest.approx(np.nanmean(shares), rel=1e-6)
    assert row.most_clipped == pytest.approx(np.nanmax(shares), rel=1e-6)
    assert row.clipped_fraction > 0.5
    said = " ".join(_summary.said_of((row,), results))
    assert words in said
    quiet = study.run(_config())
    (row,) = _summary.summarise(quiet)
    assert row.most_clipped < 0.01
    assert "clipped" not in " ".join(_summary.said_of((row,), quiet))
