"""Another study is replaced by a sweep if, and only if, one of three ways to say so is used."""

from __future__ import annotations

import json
import pathlib

import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main

_SWEEP = """
command = "simulate"
rounds = 4
trials = 1
schemes = ["uniform"]
{more}
[grid]
seed = [1]
"""


@pytest.fixture
def out(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the folder of another command's study."""
    folder = tmp_path / "out"
    folder.mkdir()
    manifest = {
        "command": "simulate",
        "config_hash": "1234",
        "created": "yesterday",
        "schema": 2,
    }
    (folder / "study.json").write_text(json.dumps(manifest))
    return folder


def _written(tmp_path: pathlib.Path, more: str = "") -> str:
    path = tmp_path / "sweep.toml"
    path.write_text(_SWEEP.format(more=more))
    return str(path)


def test_nobody_asked(
    out: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(mj.OutputExistsError, match="must not hold another study"):
        mj.study.sweep(_written(tmp_path), out=out, dry_run=True)
    assert main(["sweep", _written(tmp_path), "--out", str(out), "--dry-run"]) == 2
    assert "must not hold another study" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("way", ["file", "argument", "flag"])
def test_it_was_asked_for(way: str, out: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = _written(tmp_path, "overwrite = true" if way == "file" else "")
    flags = ["--overwrite"] if way == "flag" else []
    if way != "argument":
        assert main(["sweep", file, "--out", str(out), "--dry-run", *flags]) == 0
    if way != "flag":
        found = mj.study.sweep(file, out=out, dry_run=True, overwrite=way == "argument")
        assert found["points"] == 1
    assert (out / "study.json").exists()  # a dry run replaces nothing
