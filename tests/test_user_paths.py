"""A path that begins with ~ is in the user's folder, or refused: no folder is called ~."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax._core.flags import with_user_paths
from mrsa_jax.study import AuditConfig, SimulateConfig, TrainConfig, load_config
from mrsa_jax.study.settings._load import check_types
from mrsa_watch import Gate, Recorder, follow
from mrsa_watch._base.files import user_path


@pytest.fixture(autouse=True)
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.chdir(tmp_path)
    return found


def test_paths_of_settings(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    written = pathlib.Path("~/x")
    for config in (SimulateConfig(out=written), TrainConfig(out=written)):
        assert with_user_paths(config).out == home / "x"
        with pytest.raises(ConfigurationError, match="`out` must not begin with ~"):
            check_types(config)
    audit = AuditConfig(
        file=written, out=written, certificate=written, recipe_file=written
    )
    expanded = with_user_paths(audit)
    for field in ("file", "out", "certificate", "recipe_file"):
        assert getattr(expanded, field) == home / "x"
    assert with_user_paths(expanded) is expanded
    (tmp_path / "c.toml").write_text('out = "~/y"')
    assert load_config(SimulateConfig, tmp_path / "c.toml").out == home / "y"


def test_nested_paths_of_settings(home: pathlib.Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Inner:
        files: tuple[Any, ...]

    @dataclasses.dataclass(frozen=True)
    class Outer:
        inner: Inner

    paths = (pathlib.Path("~/a"), pathlib.Path("b"))
    assert with_user_paths(Outer(Inner(paths))) == Outer(
        Inner((home / "a", pathlib.Path("b")))
    )


def test_paths_of_logs(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with Recorder("~/log.jsonl", system="s", aggregation="secagg") as recorder:
        recorder.record(1, ["a", "b", "c"])
    assert recorder.path == home / "log.jsonl"
    assert len(list(follow("~/log.jsonl", poll_seconds=None))) == 2
    gate = Gate.from_log("~/log.jsonl", salt="~/log.jsonl.salt", fail_below=2)
    assert gate.check([["a", "b", "c"]])[0].allowed
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_folder_that_nobody_has_is_an_error() -> None:
    with pytest.raises(
        ConfigurationError, match="`salt` must be a path; the folder that ~ stands"
    ):
        user_path("~nobody-of-this-name/x", "salt")
