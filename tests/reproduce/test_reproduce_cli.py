"""`mrsa-jax reproduce` as a user meets it: misuse, a folder of figures, the exit status."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from mrsa_jax import reproduce
from mrsa_jax.cli import main
from mrsa_jax.reproduce import _multiround
from mrsa_jax.reproduce._context import Context
from mrsa_jax.reproduce._items import Item

FAST = ["reproduce", "multiround", "--small", "--only", "table1", "fig2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "multirond"], "did you mean 'multiround'"),
        (["reproduce", "multiround", "--only", "fig4d"], "did you mean 'fig4"),
        (["reproduce", "--seed", "-1"], "`seed` must lie in [0, 2**32); got -1"),
    ],
)
def test_misuse_is_answered_in_one_line(
    words: list[str],
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("chapter 1")
    assert main([*FAST, "--out", str(tmp_path), "--overwrite"]) == 2
    assert "`out` must be empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_items_are_written_with_their_data(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([*FAST, "--out", str(out), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in content["items"]] == ["table1", "fig2"]
    assert [item["verdict"] for item in content["items"]] == ["paper errs", "reproduced"]
    assert content["missed"] == []
    stored = json.loads((out / "verdicts.json").read_text())
    assert stored["items"] == content["items"]
    assert stored["manifest"]["command"] == "reproduce"
    names = {path.name for path in out.iterdir()}
    figures = {f"{name}.{end}" for name in ("table1", "fig2") for end in ("png", "svg", "csv")}
    assert names == figures | {"verdicts.json", "verdicts.md", "report.html", "study.json"}
    assert pd.read_csv(out / "fig2.csv")["member"].sum() == 24
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page
    assert "91390" in (out / "verdicts.md").read_text()
    assert main([*FAST, "--out", str(out)]) == 0  # the same again may replace it
    assert "paper errs" in capsys.readouterr().out


def test_a_missed_tolerance_is_exit_status_1(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = _multiround.MAKERS["fig2"]

    def spoilt(context: Context) -> Item:
        item = make(context)
        check = dataclasses.replace(item.checks[0], verdict="differs")
        return dataclasses.replace(item, checks=(*item.checks, check))

    monkeypatch.setitem(_multiround.MAKERS, "fig2", spoilt)
    assert main([*FAST, "--out", str(tmp_path / "out")]) == 1
    assert "differs" in capsys.readouterr().out


def test_a_failure_half_way_leaves_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(context: Context) -> Item:
        raise RuntimeError("out of memory")

    monkeypatch.setitem(_multiround.MAKERS, "fig2", fail)
    config = reproduce.ReproduceConfig(only=("table1", "fig2"), out=tmp_path / "out")
    with pytest.raises(RuntimeError, match="out of memory"):
        reproduce.run_and_save(config)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_is_exit_status_130(tmp_path: pathlib.Path) -> None:
    words = ["reproduce", "--only", "theorem3", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "mrsa_jax", *words], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "Theorem 3" in process.stderr.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert "interrupted" in said
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
