"""Attacks on a recorded run of `mrsa-jax train`: its rounds, its data, its model."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import study
from mrsa_jax.attacks._attribute import Attribute
from mrsa_jax.cli import main
from mrsa_jax.study._progress import Silent
from mrsa_jax.study.attack._membership import _pairs
from mrsa_jax.study.attack._recorded import RecordedRun
from mrsa_jax.study.kinds import attacks
from mrsa_jax.study.stores._store import open_results
from mrsa_watch._base.errors import ConfigurationError

_OTHERS: dict[str, list[Any]] = {
    "schemes": [("weighted",)], "dropout_rates": [(0.25,)], "assignment": ["cyclic"],
    "availability": ["markov:3"], "dataset": ["digits", "mnist_5k"],
    "directory": [pathlib.Path()], "model": ["mlp", "logistic"],
    "partition": ["dirichlet"], "mechanism": ["discrete_gaussian"], "local_steps": [2],
    "mask": [pathlib.Path("mask.npy")], "seen": [("padded",)], "photo": ["china"],
    "folder": [pathlib.Path()], "solved": [pathlib.Path()], "single_label": [False],
    "balanced": [False], "num_clients": [48], "cohort_size": [4], "clip_norm": [1.0, 0.5],
    "shards_per_client": [3], "concentration": [0.3], "noise_multiplier": [1.0, 2.0],
    "momentum": [0.25],
}  # fmt: skip
_COMMON = {"seed", "out", "overwrite", "json", "run"}
_NEEDED: dict[str, dict[str, Any]] = {
    "gradients": {"client": 1},
    "distinguish": {"others": ("gaussian",)},
}
# the rules of the other two are tested with their files
_OF_RUNS = [
    name
    for name, row in attacks().items()
    if not row.not_run and name not in ("least-squares", "disaggregation")
]


def _without_effect() -> list[tuple[str, str]]:
    return [
        (name, field.name)
        for name in _OF_RUNS
        for field in dataclasses.fields(attacks()[name].settings)
        if field.name not in {*_COMMON, *attacks()[name].of_rounds}
    ]


@pytest.mark.parametrize(("name", "field"), _without_effect())
def test_what_a_run_decides_is_refused(
    name: str, field: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("mask.npy", np.ones(2, np.bool_))
    (tmp_path / "results.zarr").mkdir()
    settings = attacks()[name].settings(run=tmp_path, **_NEEDED.get(name, {}))
    study.validate(settings)
    value = getattr(settings, field)
    if field in _OTHERS:
        other = next(other for other in _OTHERS[field] if other != value)
    else:
        other = value + 1 if isinstance(value, int) else value / 2
    settings = dataclasses.replace(settings, **{field: other})
    flag = "from" if field == "solved" else field
    with pytest.raises(ConfigurationError, match=rf"`{flag}` must not be set with --r"):
        study.validate(settings)


def test_a_broken_store_is_refused_by_the_setting(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.zarr").mkdir()
    (tmp_path / "config.toml").write_text(study.to_toml(study.TrainConfig()))
    assert main(["attack", "membership", "--run", str(tmp_path)]) == 2
    assert "`run` must be the folder of a study" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("inconsistency --run DIR", "the server lies while a round runs"),
        ("inconsistency --run=DIR", "the server lies while a round runs"),
        ("distinguish --run DIR", "compare hundreds of trainings, and a run is one"),
        ("attribute --run DIR --attribute record", "a record is one client's alone"),
        ("membership --run nowhere", "must be the folder of a complete run"),
        ("model-inversion --run DIR", "its config.toml must be an existing TOML file"),
        ("gradients --run DIR", "`client` must be set together with --from or --run"),
        ("gradients --run DIR --from DIR --client 1", "whose sums are solved first"),
        ("disaggregation --run DIR --counts f.npy", "must not be set without --agg"),
    ],
)
def test_the_reason_why_a_run_is_refused(
    words: str,
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("f.npy", np.ones((2, 2)))
    (tmp_path / "results.zarr").mkdir()
    assert main(["attack", *words.replace("DIR", str(tmp_path)).split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def _trained(
    folder: pathlib.Path,
    clients: tuple[int, int] = (10, 3),
    rounds: int = 14,
    partition: Any = "iid",
    **aggregation: Any,
) -> study.TrainConfig:
    config = study.TrainConfig(
        out=folder,
        rounds=rounds,
        scheme="uniform",
        population=study.PopulationConfig(*clients),
        data=study.DataConfig(dataset="digits", partition=partition),
        training=study.TrainingConfig(model="logistic"),
        aggregation=study.AggregationConfig(**aggregation),
        resources=study.ResourceConfig(devices=1),
    )
    study.run_and_save(config)
    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    _trained(folder)
    return folder


def _settings(name: str, run: pathlib.Path, **more: Any) -> Any:
    return attacks()[name].settings(run=run, **more)


def _history(run: pathlib.Path) -> np.ndarray:
    rows: np.ndarray = open_results(run)["participation"].to_numpy()[0]
    return rows.astype(np.bool_)


@pytest.mark.long
def test_shifts_are_looked_for_in_the_rounds_of_the_run(run: pathlib.Path) -> None:
    settings = _settings("distinguish", run, others=("gaussian",), trials=50, shift=0.7)
    expected = mj.privacy.distinguishability(_history(run), 0.7).mu
    for row in study.run(settings).summary:
        assert row["formula_mu"] == pytest.approx(expected[row["client"]])
        assert row["sums"] == _history(run).any(axis=1).sum()


@pytest.mark.long
def test_columns_are_looked_for_by_the_counts_of_the_run(run: pathlib.Path) -> None:
    found = study.run(_settings("disaggregation", run, interval=2))
    counts = _history(run).sum(axis=0)
    assert [row["sums"] for row in found.scores] == counts.tolist()
    rows = _history(run)[_history(run).any(axis=1)]
    right = [row["right"] for row in found.scores]
    assert found.summary[0]["columns_right"] == sum(right)
    recovered = found.arrays["participation_0"]
    # a client whose counts no other has is compared with its own column
    alone = [
        sum(row["group"] == r["group"] for r in found.scores) for row in found.scores
    ]
    for client in np.flatnonzero(np.asarray(alone) == 1):
        assert right[client] == (recovered[:, client] == rows[:, client]).all()


@pytest.mark.long
def test_images_of_a_run_are_those_of_its_estimates(
    run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """One command does what two do, and inverts the same model."""
    solved = tmp_path / "solved"
    study.run_and_save(_settings("least-squares", run, out=solved))
    more = {"client": 2, "iterations": 3, "restarts": 1}
    once = study.run(_settings("gradients", run, **more))
    twice = study.run(attacks()["gradients"].settings(solved=solved, **more))
    for name, array in once.arrays.items():
        np.testing.assert_allclose(array, twice.arrays[name], atol=1e-5)
    found = study.run(_settings("model-inversion", run, iterations=4))
    recorded = RecordedRun.read(run)
    shape = recorded.dataset.train_inputs.shape[1:]
    view = mj.attacks.views.ModelView(
        recorded.model, jnp.asarray(np.load(solved / "model.npy")), tuple(shape), 10
    )
    attack = mj.attacks.model_inversion(num_steps=4, step_size=0.02)
    expected = attack.run(None, view).images
    np.testing.assert_allclose(found.arrays["aggregate"], expected, atol=1e-5)


@pytest.mark.long
def test_members_are_compared_with_others_of_their_class(run: pathlib.Path) -> None:
    recorded = RecordedRun.read(run)
    labels = np.asarray(recorded.clients.labels)
    others = np.asarray(recorded.dataset.test_labels)
    for client in range(10):
        pairs = _pairs(recorded, client, others)
        held = recorded.clients.indices[client][: int(recorded.clients.sizes[client])]
        assert {*pairs[:, 0].tolist()} <= {*np.asarray(held).tolist()}
        assert len({*pairs[:, 1].tolist()}) == len(pairs) > 0
        assert (labels[pairs[:, 0]] == others[pairs[:, 1]]).all()
    found = study.run(_settings("membership", run, methods=("loss",), num_shadows=3))
    members = np.flatnonzero(_history(run)[_history(run).any(axis=1)][-1])
    assert {row["seen"] for row in found.scores} == {f"sum of {len(members)}"}
    rule = f"`num_targets` must be at most the {len(members)} clients of the last sum"
    with pytest.raises(ConfigurationError, match=rule):
        study.run(_settings("membership", run, num_targets=9))


@pytest.mark.long
def test_a_class_that_clients_hold_shows_in_the_sums_of_a_run(
    tmp_path: pathlib.Path,
) -> None:
    """Each of twenty clients holds one digit, so two hold each."""
    folder, target = tmp_path / "run", 3
    _trained(folder, clients=(20, 4), rounds=30, partition="shards")
    settings = _settings("attribute", folder, num_shadows=40, target_class=target)
    found = study.run(settings)
    assert {row["method"] for row in found.summary} == {"joint", "prolin"}
    for row in found.summary:
        # the bound is of attributes that are drawn, which a run's are not
        assert row["bound_auc"] is None
        assert row["sums"] == _history(folder).any(axis=1).sum()
    assert max(row["auc"] for row in found.summary) > 0.8


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run whose sums have noise of deviation .8 x .5; each digit is with two clients."""
    folder = tmp_path_factory.mktemp("runs") / "noisy"
    _trained(folder, (20, 3), 14, "shards", noise_multiplier=0.8, clip_norm=0.5)
    return folder


_NOISE = "The sums of this run have noise"


@pytest.mark.long
def test_the_noise_of_a_run_reaches_those_who_score_its_sums(
    noisy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, seen = Attribute, []
    real = attack.run

    def watched(self: Any, key: Any, view: Any) -> Any:
        seen.append((self.trainer, view))
        return real(self, key, view)

    monkeypatch.setattr(attack, "run", watched)
    more = {"num_shadows": 40, "target_class": 3, "estimators": ("joint",)}
    report = study.run(_settings("attribute", noisy, **more))
    ((trainer, view),) = seen
    # of 14 x 650 entries, to two deviations; the lattice's rounding is far below
    assert view.sum_noise == pytest.approx(0.8 * 0.5, rel=2 / np.sqrt(2 * 14 * 650))
    assert _NOISE in " ".join(report.sentences)
    # shadow clients clip their updates as clients do, to .5
    recorded = RecordedRun.read(noisy)
    rows = recorded.clients.indices[0]
    samples = recorded.clients.inputs[rows], recorded.clients.labels[rows]
    arguments = jax.random.key(0), recorded.start, *samples, recorded.clients.sizes[0]
    lengths = [
        float(jnp.linalg.norm(each.update(*arguments)))
        for each in (trainer, recorded.trainer)
    ]
    assert lengths[0] == pytest.approx(0.5, rel=1e-5)
    assert lengths[1] > 0.6


@pytest.mark.long
def test_the_noise_of_a_run_is_in_the_predicted_error(
    noisy: pathlib.Path, run: pathlib.Path
) -> None:
    """An estimate is E times the sums: noise adds s^2 d |E_i|^2 to its squared error."""
    history = _history(noisy)[_history(noisy).any(axis=1)]
    summed = RecordedRun.read(noisy).summed(Silent())
    squares = np.square(np.linalg.pinv(history.astype(float))).sum(axis=1)
    ratio = 0.4**2 / np.square(summed.sent[history.any(axis=0)]).mean()
    report = study.run(_settings("least-squares", noisy))
    without = mj.attacks.predicted_error(history)
    predicted = np.asarray([row["predicted_error"] for row in report.scores])
    np.testing.assert_allclose(predicted, without + ratio * squares, rtol=0.04)
    # nearly all of the error is noise, and clients' updates have about one length
    row = report.summary[0]
    assert row["mean_error"] == pytest.approx(predicted.mean(), rel=0.25)
    assert np.linalg.norm(summed.sent, axis=1).max() <= 0.5
    words = " ".join(report.sentences)
    assert "exposed apart from the noise in the sums" in words
    assert "never change with this noise" in words
    assert "noise" not in " ".join(study.run(_settings("least-squares", run)).sentences)


@pytest.mark.long
def test_a_test_of_shifts_is_given_the_noise_of_a_run(noisy: pathlib.Path) -> None:
    settings = _settings("distinguish", noisy, others=("gaussian",), trials=20)
    with pytest.raises(ConfigurationError, match=r"must be set for a run with noise"):
        study.run(settings)
    report = study.run(dataclasses.replace(settings, noise=100.0))
    assert _NOISE in " ".join(report.sentences)


@pytest.mark.parametrize("graph", ["complete", "erdos_renyi"])
def test_a_run_with_several_sums_per_round_has_no_history_of_sums(
    graph: str, tmp_path: pathlib.Path
) -> None:
    config = study.TrainConfig(scheme="batch_partitioning:2")
    if graph == "complete":
        config = dataclasses.replace(config, hetero=study.SegmentConfig(segments="sc"))
    else:
        protocol = study.ProtocolConfig(graph=graph, connection_probability=0.4)
        config = dataclasses.replace(config, protocol=protocol)
    (tmp_path / "config.toml").write_text(study.to_toml(config))
    (tmp_path / "results.zarr").mkdir()
    np.save(tmp_path / "f.npy", np.ones((2, 2)))
    rule = "`run` must be of one sum per round"
    for settings in (
        _settings("distinguish", tmp_path, others=("gaussian",)),
        _settings("least-squares", tmp_path, aggregates=tmp_path / "f.npy"),
    ):
        with pytest.raises(ConfigurationError, match=rule):
            study.run(settings)


@pytest.mark.long
def test_canaries_are_of_the_noise_of_a_run(
    run: pathlib.Path, noisy: pathlib.Path
) -> None:
    with pytest.raises(ConfigurationError, match="`run` must be of a run with noise"):
        study.run(_settings("canaries", run))
    settings = _settings("canaries", noisy, others=("known",), trials=40)
    mechanism = mj.dp.ring_mechanism(
        "skellam", 0.8, 0.5, dim=650, num_clients=3, modulus_bits=32
    )
    ledger = mj.dp.ledger(_history(noisy), mechanism=mechanism)
    for row in study.run(settings).summary:
        assert row["ledger_mu"] == pytest.approx(ledger.mu[row["client"]])
