"""A training's folder: what it holds at each moment, who may go on in it, and kills."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray as xr

import mrsa_jax
from mrsa_jax import ConfigurationError, OutputExistsError, federated
from mrsa_jax.cli import Bars, main
from mrsa_jax.study import (
    DataConfig,
    DemoConfig,
    PopulationConfig,
    TrainConfig,
    TrainingConfig,
    config_hash,
    load_config,
    open_study,
    run,
)
from mrsa_jax.study.stores import _sources
from mrsa_jax.study.stores._run_folder import DivergedError, run_folder
from mrsa_jax.study.stores._store import (
    check_output,
    is_complete,
    provenance,
    study_folder,
)

SMALL = ["--num-clients", "12", "--cohort-size", "4", "--dropout-rates", "0.3"]
LEARN = ["--dataset", "digits", "--model", "logistic", "--evaluate-every", "8"]
TRAIN = ["train", *SMALL, *LEARN, "--scheme", "batch_partitioning:2"]


def _config(tmp_path: pathlib.Path, **changes: object) -> TrainConfig:
    return TrainConfig(out=tmp_path / "run", **changes)  # type: ignore[arg-type]


def _stop(
    config: TrainConfig, error: BaseException | None = None, saved: bool = False
) -> None:
    """Begin the run of a configuration and leave it as an error would, an interrupt by default."""
    with (
        contextlib.suppress(KeyboardInterrupt, ConfigurationError),
        run_folder(config, provenance(config)) as own,
    ):
        if saved:
            (own.checkpoints / "10").mkdir(parents=True)
        raise error or KeyboardInterrupt


def _finish(config: TrainConfig, results: xr.Dataset) -> None:
    with (
        run_folder(config, provenance(config)),
        study_folder(config, is_held=True) as folder,
    ):
        folder.write_results(results)


def _names(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_unfinished_run_of_the_same_settings_is_resumed_or_given_up(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _config(tmp_path)
    _stop(config)
    with pytest.raises(
        OutputExistsError, match=r"same settings.*--resume continues it, --over"
    ):
        check_output(config)
    assert main(["train", "--out", str(config.out)]) == 2
    assert "--resume continues it, --overwrite starts anew" in capsys.readouterr().err
    for wish in ({"resume": True}, {"overwrite": True}):
        assert check_output(dataclasses.replace(config, **wish)) == config.out
    assert main(["train", "--out", str(config.out), "--resume", "--overwrite"]) == 2
    assert "`resume` must not be set with `overwrite`" in capsys.readouterr().err


def test_a_run_of_other_settings_is_not_resumed(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _config(tmp_path)
    _stop(config, saved=True)
    words = ["train", "--out", str(config.out), "--learning-rate", "0.2", "--seed", "3"]
    assert main([*words, "--resume"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    other = dataclasses.replace(
        config, seed=3, training=TrainingConfig(learning_rate=0.2)
    )
    for text in (
        "`resume` must continue a run of the same settings",
        config_hash(config),
        config_hash(other),
        "seed is 3 now and was 0",
        "training.learning_rate is 0.2 now and was 0.1",
        f"--config {config.out / 'run.toml'} repeats its settings",
    ):
        assert text in said
    assert main(words) == 2
    assert "must not hold another run" in capsys.readouterr().err
    with pytest.raises(OutputExistsError, match="must not hold another run"):
        check_output(DemoConfig(out=config.out))
    assert check_output(DemoConfig(out=config.out, overwrite=True))
    assert (config.out / "checkpoints" / "10").is_dir()


def test_a_finished_study_of_other_settings_is_not_resumed(
    tmp_path: pathlib.Path, results: xr.Dataset
) -> None:
    _finish(_config(tmp_path), results)
    with pytest.raises(ConfigurationError, match="rounds is 9 now and was 150"):
        check_output(_config(tmp_path, rounds=9, resume=True))
    assert check_output(_config(tmp_path, resume=True))
    assert is_complete(_config(tmp_path))
    assert not is_complete(_config(tmp_path, rounds=9))


def test_a_run_of_other_code_or_files_is_not_resumed(
    tmp_path: pathlib.Path, results: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the same name, size and time; another version; no record of either."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in (
        "train-images-idx3",
        "train-labels-idx1",
        "t10k-images-idx3",
        "t10k-labels-idx1",
    ):
        (folder / f"{name}-ubyte").write_bytes(b"old")
    config = _config(tmp_path, data=DataConfig(dataset="idx", directory=folder))
    resumed = dataclasses.replace(config, resume=True)
    for complete in (False, True):
        _finish(config, results) if complete else _stop(config, saved=True)
        assert check_output(resumed)
        labels = folder / "train-labels-idx1-ubyte"
        times = labels.stat().st_atime_ns, labels.stat().st_mtime_ns
        labels.write_bytes(b"new")
        os.utime(labels, ns=times)
        with pytest.raises(ConfigurationError) as caught:
            check_output(resumed)
        assert "train-labels-idx1-ubyte has changed (directory)" in str(caught.value)
        assert str(caught.value).endswith(
            "start anew with --overwrite and without --resume"
        )
        labels.write_bytes(b"old")
        assert check_output(resumed)
        with monkeypatch.context() as patch:
            patch.setattr(_sources, "__version__", "9.0")
            with pytest.raises(
                ConfigurationError, match=r"mrsa_jax is 9\.0 now and was "
            ):
                check_output(resumed)
            patch.setattr(_sources, "_ALIKE", ((mrsa_jax.__version__, "9.0"),))
            assert check_output(resumed)
        if not complete:
            assert (config.out / "checkpoints" / "10").is_dir()
            assert check_output(dataclasses.replace(config, overwrite=True))
            shutil.rmtree(config.out)
    path = config.out / "study.json"
    content = json.loads(path.read_text())
    del content["made_by"]
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match="kept no record of files and code"):
        check_output(resumed)
    assert open_study(config.out)


@pytest.mark.smoke
def test_two_processes_do_not_share_a_folder(tmp_path: pathlib.Path) -> None:
    config = _config(tmp_path, resume=True)
    anew = dataclasses.replace(config, resume=False, overwrite=True)
    with contextlib.suppress(KeyboardInterrupt), run_folder(config, provenance(config)):
        for wish in (config, anew, DemoConfig(out=config.out, overwrite=True)):
            with pytest.raises(
                OutputExistsError, match="in which another process trains"
            ):
                check_output(wish)
        with pytest.raises(OutputExistsError, match="in which another process trains"):
            _stop(config)
        assert (config.out / "run.json").is_file()
        raise KeyboardInterrupt
    assert check_output(config)


def test_the_folder_says_from_the_start_what_runs_there(tmp_path: pathlib.Path) -> None:
    config = _config(
        tmp_path, rounds=7, population=PopulationConfig(24, 6, (0.0, 0.25))
    )
    with (
        contextlib.suppress(KeyboardInterrupt),
        run_folder(config, provenance(config)) as own,
    ):
        assert own.path == config.out
        assert not own.has_checkpoint
        content = json.loads((config.out / "run.json").read_text())
        assert content["config_hash"] == config_hash(config)
        assert content["config"]["rounds"] == 7
        assert load_config(TrainConfig, config.out / "run.toml") == config
        raise KeyboardInterrupt
    assert _names(config.out) == {"run.json", "run.toml", "run.lock"}
    with pytest.raises(ConfigurationError, match="not complete: --resume continues it"):
        open_study(config.out)


def test_wishes_of_one_call_are_not_kept(tmp_path: pathlib.Path) -> None:
    config = _config(tmp_path, overwrite=True, json=True)
    _stop(config)
    assert load_config(TrainConfig, config.out / "run.toml") == _config(tmp_path)


@pytest.mark.parametrize(
    ("error", "saved", "stays"),
    [
        (KeyboardInterrupt(), False, True),
        (ConfigurationError("no such data"), False, False),
        (ConfigurationError("late"), True, True),
        (DivergedError("nan", 0, None), True, False),
    ],
)
def test_what_cannot_be_continued_leaves_nothing(
    tmp_path: pathlib.Path,
    results: xr.Dataset,
    error: BaseException,
    saved: bool,
    stays: bool,
) -> None:
    config = _config(tmp_path)
    _stop(config, error, saved)
    assert config.out.exists() == stays
    # beside a finished study it is the study that stays
    finished = _config(tmp_path, rounds=3, overwrite=True)
    _finish(finished, results)
    before = _names(config.out)
    _stop(dataclasses.replace(config, overwrite=True), error, saved)
    assert (_names(config.out) == before) != stays
    assert is_complete(finished) != stays
    xr.testing.assert_equal(open_study(config.out).load(), results)


def test_a_run_that_never_began_is_no_hindrance(tmp_path: pathlib.Path) -> None:
    config = _config(tmp_path)
    config.out.mkdir()
    (config.out / "run.lock").write_text("")
    (config.out / "run.toml").write_text("")
    assert check_output(config)


def _kill_after(words: list[str], out: pathlib.Path, step: int) -> None:
    """Kill a command at a moment of its own once a checkpoint from `step` on is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mrsa_jax", *words], stderr=subprocess.PIPE, text=True
    )
    try:
        limit = time.monotonic() + 300
        folder = out / "checkpoints"
        while not folder.is_dir() or not any(
            one.isdigit() and int(one) >= step for one in os.listdir(folder)
        ):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < limit
            time.sleep(0.005)
        time.sleep(random.random() * 0.1)
        assert process.poll() is None, "it was done before the signal"
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_a_run_that_is_killed_and_interrupted_ends_as_one_that_is_not(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kill -9, a flipped bit, Ctrl-C, then to the end.

    Every number is equal, weights too.
    """
    weights: list[np.ndarray] = []
    train = federated.train

    def recorded(*args: object, **kwargs: object) -> federated.TrainingResult:
        result = train(*args, **kwargs)  # type: ignore[arg-type]
        if len(result.status) > 1:  # not the one round that compiles beforehand
            weights.append(result.parameters)
        return result

    monkeypatch.setattr(federated, "train", recorded)
    out = tmp_path / "run"
    words = [*TRAIN, "--rounds", "70", "--decay-rounds", "30", "--server", "momentum"]
    words += ["--out", str(out), "--checkpoint-every", "2"]
    _kill_after(words, out, 4)
    assert {"run.json", "run.toml", "checkpoints"} <= _names(out)
    steps = sorted(
        int(name) for name in _names(out / "checkpoints") if name.isdecimal()
    )
    older, newest = steps[-2:]
    spoilt = out / "checkpoints" / f"{newest}" / "state.npz"
    content = bytearray(spoilt.read_bytes())
    content[len(content) // 2] ^= 4
    spoilt.write_bytes(content)

    with monkeypatch.context() as interrupted:
        whole_update = Bars.update

        def update(self: Bars, done: int, total: int) -> None:
            whole_update(self, done, total)
            if done == total - 10:
                signal.raise_signal(signal.SIGINT)

        interrupted.setattr(Bars, "update", update)
        assert main([*words, "--resume"]) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert f"{newest} is damaged: step {older} is used instead" in said
    assert "interrupted; --resume continues it from its newest checkpoint" in said

    assert main([*words, "--resume", "--json"]) == 0
    (performance,) = json.loads(capsys.readouterr().out)["performance"].values()
    trained = performance["rounds_trained"]
    assert trained - 12 <= performance["resumed_after_rounds"] <= trained - 10
    resumed = open_study(out).load()
    assert json.loads((out / "study.json").read_text())["performance"] == {
        "Multi-RoundSecAgg (T=2)": performance
    }
    assert resumed.attrs["performance"]["Multi-RoundSecAgg (T=2)"] == performance
    # the settings are those of the file that the run kept
    whole = run(load_config(TrainConfig, out / "config.toml"))
    assert set(resumed.data_vars) == set(whole.data_vars)
    for name, values in whole.data_vars.items():
        np.testing.assert_array_equal(resumed[name], values)
    np.testing.assert_array_equal(*weights)
    assert int((whole["status"] == 0).sum()) == trained
    # nothing of the run is left, inside or beside
    assert _names(tmp_path) == {"run"}
    assert not any(name.startswith(("run.", "checkpoints")) for name in _names(out))
    # once complete, it is shown again
    stamp = (out / "study.json").stat().st_mtime_ns
    assert main([*words, "--resume"]) == 0
    captured = capsys.readouterr()
    assert "is complete" in " ".join(captured.err.split())
    assert "Multi-RoundSecAgg (T=2)" in captured.out
    assert (out / "study.json").stat().st_mtime_ns == stamp
