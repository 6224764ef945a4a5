"""Lines that commands write while they train: equal to the results that they store."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, study
from mrsa_jax.cli import main

CONFIG = study.TrainConfig(
    rounds=9,
    scheme="batch_partitioning:2",
    checkpoint_every=2,
    population=study.PopulationConfig(
        num_clients=8, cohort_size=4, dropout_rates=(0.3,)
    ),
    data=study.DataConfig(dataset="digits"),
    training=study.TrainingConfig(model="logistic", batch_size=200, evaluate_every=4),
    aggregation=study.AggregationConfig(
        noise_multiplier=2.0, clip_norm=1.0, modulus_bits=16
    ),
    track=("json_lines",),
)
BY_ROUND = (
    "strong_privacy",
    "exposed_clients",
    "hidden_among_worst",
    "fairness_gap",
    "wrapped",
)
BY_TEST = ("accuracy", "loss", "epsilon_mean", "epsilon_worst")


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures out: they take longer than the trainings."""
    monkeypatch.setattr("mrsa_jax.plotting.save_study_figures", lambda *_, **__: {})


class _Stops(study.Progress):
    """Interrupts after some rounds."""

    def stage(self, name: str, total: int) -> None:
        """Do nothing."""

    def update(self, done: int, total: int) -> None:
        """Interrupt in the fourth trained round."""
        if done == 4 and total > 4:
            raise KeyboardInterrupt


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _assert_equal(records: list[dict[str, Any]], results: Any) -> None:
    """Compare with one scheme's part of a data set.

    What has no value there is not told.
    """
    tests = {
        int(round_) - 1: at for at, round_ in enumerate(results["evaluation"].values)
    }
    assert [own["step"] for own in records] == results["round"].values.tolist()
    for own in records:
        for name in (*BY_ROUND, *BY_TEST):
            if name not in results:  # without noise
                assert own.get(name, 0) == 0
                continue
            at = own["step"] if name in BY_ROUND else tests.get(own["step"])
            value = np.nan if at is None else results[name].values[at]
            assert (name in own) == bool(np.isfinite(value))
            assert name not in own or own[name] == pytest.approx(
                float(value), rel=1e-12
            )


@pytest.mark.long
def test_a_resumed_run_tells_each_round_once(tmp_path: pathlib.Path) -> None:
    config = dataclasses.replace(CONFIG, out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        study.run_and_save(config, _Stops())
    while_it_runs = _lines(config.out / "run.tracking" / "metrics.jsonl")
    assert len(while_it_runs) >= 4
    study.run_and_save(dataclasses.replace(config, resume=True))
    assert not (config.out / "run.tracking").exists()
    results = study.open_study(config.out).load().isel(scheme=0)
    records = _lines(config.out / "tracking" / "metrics.jsonl")
    _assert_equal(records, results)
    assert records[: len(while_it_runs)] == while_it_runs
    assert {own["scheme"] for own in records} == {"Multi-RoundSecAgg (T=2)"}
    other = dataclasses.replace(config, track=())
    assert study.config_hash(other) == study.config_hash(config)


@pytest.mark.long
def test_a_demo_tells_of_every_scheme(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {field.name for field in dataclasses.fields(study.DemoConfig)}
    own = {
        name: getattr(CONFIG, name)
        for name in ("population", "data", "training", "rounds")
    }
    assert set(own) < names
    config = study.DemoConfig(
        **own, schemes=("uniform", "partition"), out=tmp_path / "demo"
    )
    file = tmp_path / "demo.toml"
    file.write_text(study.to_toml(config))
    assert main(["demo", "--config", str(file), "--track", "json_lines"]) == 0
    capsys.readouterr()
    results = study.open_study(config.out).load()
    records = _lines(config.out / "tracking" / "metrics.jsonl")
    for label in results["scheme"].values:
        mine = [one for one in records if one["scheme"] == label]
        _assert_equal(mine, results.sel(scheme=label))


def test_misuse(tmp_path: pathlib.Path) -> None:
    swept = {"command": "train", "track": ["json_lines"], "grid": {"seed": [1]}}
    with pytest.raises(ConfigurationError, match="`track` must not be set for a sweep"):
        study.sweep(swept, out=tmp_path / "sweep")
    swept = {"command": "train", "grid": {"track": [["json_lines"]]}}
    with pytest.raises(ConfigurationError, match=r"`grid\.track` cannot be an axis"):
        study.sweep(swept, out=tmp_path / "sweep")
