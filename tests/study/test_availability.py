"""Availability models by name.

Misuse, what each name builds, and a sweep over all of them.
"""

from __future__ import annotations

import inspect
import pathlib

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, cli
from mrsa_jax.study import PopulationConfig, SimulateConfig, TrainConfig, validate
from mrsa_jax.study.runs import _build

N, K = 12, 4


def population(text: str, *rates: float, how: str = "cyclic") -> PopulationConfig:
    return PopulationConfig(N, K, rates or (0.2, 0.5), how, text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (
            population("marcov:3"),
            "must be a known model; got 'marcov'; did you mean 'markov'",
        ),
        (
            population("independent:3"),
            "must be plain 'independent' .*; got 'independent:3'",
        ),
        (population("markov"), "must be written markov:ROUNDS, .* got 'markov'"),
        (population("markov:0.5"), "must be written markov:ROUNDS"),
        (population("markov:x"), "must be written markov:ROUNDS"),
        (
            population("markov:2", 0.8),
            r".*at least p / \(1 - p\) rounds .* got 2.0 and 0.8",
        ),
        (population("diurnal:0.1", 0.5), "must be written diurnal:AMPLITUDE:PERIOD"),
        (population("diurnal:0.1:0", 0.5), "must be written diurnal:AMPLITUDE:PERIOD"),
        (
            population("diurnal:0.4:24", 0.8),
            r".*between 0 and min\(p, 1 - p\) .* got 0.4 and 0.8",
        ),
        (
            population("replay:none.npy"),
            "must name an existing .npy file .* got 'none.npy'",
        ),
        (
            population("cyclic", how="by_label"),
            "must be independent or markov with rates by label",
        ),
    ],
)
def test_misuse_names_the_rule(own: PopulationConfig, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`availability` {words}"):
        validate(TrainConfig(population=own, scheme="uniform"))


def test_a_wave_is_around_one_rate() -> None:
    with pytest.raises(
        ConfigurationError, match="`dropout_rates` must be one rate for a diurnal"
    ):
        validate(
            SimulateConfig(
                population=population("diurnal:0.1:24"), schemes=("uniform",)
            )
        )


def test_a_trace_is_checked_before_any_work(tmp_path: pathlib.Path) -> None:
    (tmp_path / "broken.npy").write_bytes(b"no array")
    np.save(tmp_path / "other.npy", np.ones((3, N + 1), bool))
    for name, words in (
        ("broken", "`availability` must name a sound .npy file"),
        ("other", f"`trace` must have {N} columns"),
    ):
        own = population(f"replay:{tmp_path / name}.npy")
        with pytest.raises(ConfigurationError, match=words):
            mj.study.check(
                SimulateConfig(population=own, schemes=("uniform",), out=tmp_path / "x")
            )


def test_every_model_of_the_package_has_a_name(tmp_path: pathlib.Path) -> None:
    own = mj.availability
    trace = np.random.default_rng(0).random((5, N)) < 0.6
    np.save(tmp_path / "trace.npy", trace)
    file = f"replay:{tmp_path / 'trace.npy'}"
    two, turns = [0.2, 0.5] * 6, [0, 1] * 6
    wave = own.diurnal(0.5, 0.25, 3, [0, 1, 2] * 4)
    rows = {
        "independent": (
            population("independent"),
            own.independent(np.float32(two)),
            two,
        ),
        "markov": (population("markov:4"), own.markov(np.float32(two), 4.0), two),
        "cyclic": (population("cyclic"), own.cyclic([0.2, 0.5], turns), [0.35] * N),
        "diurnal": (population("diurnal:0.25:3", 0.5), wave, [0.5] * N),
        "replay": (population(file), own.replay(trace), 1 - trace.mean(axis=0)),
    }
    with pytest.raises(ConfigurationError) as caught:
        validate(
            SimulateConfig(population=population("nonsense"), schemes=("uniform",))
        )
    named = set(str(caught.value).partition("known: ")[2].rstrip(")").split(", "))
    assert set(rows) == named
    factories = {
        name
        for name in own.__all__
        if inspect.isfunction(inspect.unwrap(getattr(own, name)))
        and "steps" not in name
    }
    # steps are --step-dropout-rate
    assert factories - {"assign_rates", "register"} == named
    for config, wanted, rates in rows.values():
        model, known = _build.build_online(7, config)
        assert jax.tree.structure(model) == jax.tree.structure(wanted)
        for ours, theirs in zip(
            jax.tree.leaves(model), jax.tree.leaves(wanted), strict=True
        ):
            assert np.array_equal(np.asarray(ours), np.asarray(theirs))
        np.testing.assert_allclose(known, rates, rtol=1e-6)
    for mode, beyond, start in (
        ("random", "repeat", "random"),
        ("absent", "absent", "first"),
    ):
        model, _ = _build.build_online(7, population(f"{file}:{mode}"))
        wanted = own.replay(trace, beyond=beyond, start=start)  # type: ignore[arg-type]
        for ours, theirs in zip(
            jax.tree.leaves(model), jax.tree.leaves(wanted), strict=True
        ):
            assert np.array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.long
def test_a_sweep_goes_over_models(tmp_path: pathlib.Path) -> None:
    study = {
        "rounds": 20,
        "trials": 3,
        "schemes": ["batch_partitioning:2"],
        "population": {"num_clients": N, "cohort_size": K, "dropout_rates": [0.4]},
        "grid": {
            "population.availability": ["independent", "markov:8", "diurnal:0.3:6"]
        },
    }
    found = mj.study.sweep(study, out=tmp_path / "sweep").load()
    assert found["availability"].values.tolist() == [
        "independent",
        "markov:8",
        "diurnal:0.3:6",
    ]
    assert (found["strong_privacy"].values >= 2).all()
    known = np.isfinite(found["expected_cardinality"].values).ravel().tolist()
    assert known == [True, False, False]


@pytest.mark.long
def test_flags_name_them() -> None:
    words = ["train", "--availability", "markov:6", "--dropout-rates", "0.3"]
    assert cli._parse(words).population.availability == "markov:6"
