"""A study's folder appears complete or not at all, and never replaces another by accident."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray as xr

from mrsa_jax import ConfigurationError, OutputExistsError
from mrsa_jax.study import (
    DataConfig,
    DemoConfig,
    SimulateConfig,
    TrainConfig,
    config_hash,
    open_study,
    run,
)
from mrsa_jax.study.stores._sources import changes, made_by
from mrsa_jax.study.stores._store import check_output, study_folder


def _config(tmp_path: pathlib.Path, **changes: object) -> DemoConfig:
    return DemoConfig(out=tmp_path / "demo", **changes)  # type: ignore[arg-type]


def _write(config: DemoConfig, results: xr.Dataset) -> None:
    with study_folder(config) as folder:
        folder.write_results(results)


def test_files_that_are_no_study_are_left_alone(tmp_path: pathlib.Path) -> None:
    config = _config(tmp_path, overwrite=True)
    config.out.mkdir()
    (config.out / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputExistsError, match="holds other files"):
        check_output(config)
    assert (config.out / "thesis.tex").read_text() == "years of work"


@pytest.mark.smoke
def test_another_study_is_not_replaced_unless_asked(
    tmp_path: pathlib.Path, results: xr.Dataset
) -> None:
    _write(_config(tmp_path), results)
    with pytest.raises(
        OutputExistsError, match=r"must not hold another study.*--overwrite"
    ):
        check_output(_config(tmp_path, seed=1))
    assert check_output(_config(tmp_path, seed=1, overwrite=True))
    assert check_output(_config(tmp_path, json=True))


@pytest.mark.long
def test_results_in_memory_need_no_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    config = SimulateConfig(rounds=4, trials=2, schemes=("partition",), out=tmp_path)
    assert run(config).sizes["trial"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_cannot_be_the_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(ConfigurationError, match="`out` must be a folder"):
        check_output(_config(tmp_path))
    with pytest.raises(ConfigurationError, match="`out` must be a folder"):
        check_output(DemoConfig(out=tmp_path / "demo" / "below"))


def test_results_come_back_with_their_provenance(
    tmp_path: pathlib.Path, results: xr.Dataset
) -> None:
    config = _config(tmp_path)
    _write(config, results)
    loaded = open_study(config.out)
    xr.testing.assert_equal(loaded.load(), results)
    assert loaded.attrs["config_hash"] == config_hash(config)
    assert loaded.attrs["config"]["population"]["num_clients"] == 120
    assert loaded.attrs["versions"]["jax"]
    assert [p.name for p in tmp_path.iterdir()] == ["demo"]


def test_a_second_run_replaces_the_first(
    tmp_path: pathlib.Path, results: xr.Dataset
) -> None:
    config = _config(tmp_path)
    _write(config, results)
    _write(config, results.assign(fairness_gap=results["fairness_gap"] + 1))
    assert float(open_study(config.out)["fairness_gap"].max()) == 2.0
    assert [p.name for p in tmp_path.iterdir()] == ["demo"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interruption_leaves_what_was_there(
    tmp_path: pathlib.Path, results: xr.Dataset, error: type[BaseException]
) -> None:
    config = _config(tmp_path)

    def interrupted() -> None:
        with study_folder(config) as folder:
            folder.write_results(results)
            raise error

    with pytest.raises(error):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    _write(config, results)
    with pytest.raises(error):
        interrupted()
    assert [p.name for p in tmp_path.iterdir()] == ["demo"]
    assert open_study(config.out).sizes["round"] == 3


@pytest.mark.long
def test_a_kill_leaves_no_half_study_and_the_next_run_cleans_up(
    tmp_path: pathlib.Path, results: xr.Dataset
) -> None:
    config = _config(tmp_path)
    code = (
        "import pathlib, time\nfrom mrsa_jax.study import DemoConfig\n"
        "from mrsa_jax.study.stores._store import study_folder\n"
        f"with study_folder(DemoConfig(out=pathlib.Path({str(config.out)!r}))) as "
        "folder:\n"
        "    (folder.path / 'half').write_text('half')\n"
        "    print('ready', flush=True)\n    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not config.out.exists()
    assert len(list(tmp_path.glob(".demo.partial-*"))) == 1
    _write(config, results)
    assert [p.name for p in tmp_path.iterdir()] == ["demo"]


def test_a_kill_between_the_renames_loses_nothing(
    tmp_path: pathlib.Path, results: xr.Dataset
) -> None:
    config = _config(tmp_path)
    _write(config, results)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    config.out.rename(tmp_path / f".demo.replaced-{dead.pid}")

    def failing() -> None:
        with study_folder(config):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert open_study(config.out).sizes["round"] == 3


def test_a_running_neighbour_is_not_disturbed(
    tmp_path: pathlib.Path, results: xr.Dataset
) -> None:
    config = _config(tmp_path)
    neighbour = tmp_path / f".demo.partial-{os.getppid()}"
    neighbour.mkdir()
    _write(config, results)
    assert neighbour.exists()


@pytest.mark.parametrize("content", [None, "{}", "no json"])
def test_what_is_no_study_is_refused(
    tmp_path: pathlib.Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "study.json").write_text(content)
    with pytest.raises(
        ConfigurationError, match="`path` must be the folder of a study"
    ):
        open_study(tmp_path)


def test_times_are_recorded_in_utc(tmp_path: pathlib.Path, results: xr.Dataset) -> None:
    _write(_config(tmp_path), results)
    created = open_study(tmp_path / "demo").attrs["created"]
    age = time.time() - np.datetime64(created.removesuffix("+00:00"), "s").astype(int)
    assert -5 < age < 60


@pytest.mark.parametrize("name", ["mnist", "tfds:toy"])
def test_data_of_the_default_folder_are_among_what_made_a_result(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of the environment may name another folder before a study resumes."""
    found = []
    for folder, content in (("first", "1"), ("copy", "1"), ("other", "2")):
        version = tmp_path / folder / name.removeprefix("tfds:") / "3.0.1"
        version.mkdir(parents=True)
        (version / "dataset_info.json").write_text("{}")
        (version / "samples.array_record").write_text(content)
        monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / folder))
        source = DataConfig(dataset=name)  # type: ignore[arg-type]
        found.append(made_by(TrainConfig(data=source)))
    assert changes(found[0], found[1]) == ()
    assert changes(found[0], found[2]) == (
        "samples.array_record has changed (directory)",
    )
    # what the package holds is of its version
    names = {key for key in made_by(TrainConfig()) if key.startswith("directory")}
    assert names == set()
