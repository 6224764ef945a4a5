"""`mrsa-jax audit` as a pipeline meets it: misuse, a shell's log, gates, files, interrupts."""

from __future__ import annotations

import csv
import json
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main

QUICK = ["--effort", "0.01"]
# Sums of rounds 3 and 9 minus round 12: site-41 alone. Written as a shell would.
LOG = """round,client
12,site-60
3,site-17
3,site-18
3,site-41
9,site-50
9,site-60
12,site-17
12,site-18
12,site-50
"""


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a small log in which one client is exposed."""
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (LOG + "13\n", [], "log.csv:11: expected 2 fields; found 1: '13'"),
        (LOG + "12,site-50\n", [], "log.csv:11: expected each client once in a round"),
        ("", [], "log.csv:1: expected a header or a row of participation; found an empty file"),
        (LOG, ["--round-column", "when"], "log.csv:1: expected one column 'when'"),
        (LOG, ["--memory-gib", "1e-9"], "`memory_bytes` must"),
        (LOG, ["--memory-gib", "0"], "`memory_gib` must be positive; got 0.0"),
        (LOG, ["--memory-gib", "nan"], "`memory_gib` must be positive; got nan"),
        (LOG, ["--effort", "-1"], "`effort` must be a number of at least 0; got -1.0"),
        (LOG, ["--effort", "nan"], "`effort` must be a number of at least 0; got nan"),
        (LOG, ["--fail-below", "0"], "`fail_below` must be at least 1; got 0"),
        (LOG, ["--recipe-file", "none/x.csv"], "`recipe_file` must lie in an existing folder; got"),
    ],
)
def test_misuse_is_answered_with_status_2(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    flags: list[str],
    message: str,
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content)
    assert main(["audit", str(path), *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "words", [[], ["x.csv", "--layout", "wide"], ["x.csv", "--definition", ""]]
)
def test_flags_that_do_not_parse(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *words]) == 2
    assert capsys.readouterr().err


def test_no_such_file(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path / "none.csv")]) == 2
    assert "none.csv: expected a file; found none that can be read" in capsys.readouterr().err


def test_the_findings_in_words(log: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(log), *QUICK]) == 0
    captured = capsys.readouterr()
    said = " ".join(captured.out.split())
    findings = [
        "1 of 5 clients are exposed",
        "client site-41 (from round 12 on)",
        "100.0% of the variance of client site-41's update",
        "Weak privacy T is 1 (proven)",
        "The sum of rounds 3 and 9 minus round 12 is client site-41's update alone.",
        "Strong privacy T is 1",
    ]
    places = [said.index(finding) for finding in findings]
    assert places == sorted(places)  # the most urgent first
    assert "weak privacy" in captured.err  # progress goes elsewhere
    assert "[" not in captured.out


def test_json_is_all_that_is_printed(log: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", str(log), *QUICK, "--json", "--fail-below", "2"]
    assert main(words) == 3
    content = json.loads(capsys.readouterr().out)
    assert content["file"] == str(log)
    assert content["exposed"] == [{"client": "site-41", "first_round": 12}]
    assert content["weak_privacy"]["witness"] in (["1", "1", "-1"], ["-1", "-1", "1"])
    assert content["weak_privacy"]["certified"] is True
    assert content["gate"] == {
        "target": 2,
        "definition": "weak",
        "passed": False,
        "reason": "weak privacy T is 1, below 2",
    }


@pytest.mark.parametrize(
    ("target", "definition", "status"),
    [(2, "weak", 0), (3, "weak", 3), (2, "strong", 0), (3, "strong", 3), (1, "weak", 0)],
)
def test_gates(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    target: int,
    definition: str,
    status: int,
) -> None:
    """Blocks of two, all of whose sums are solved for."""
    path = tmp_path / "blocks.csv"
    path.write_text("1,1,0,0\n1,1,1,1\n")
    words = ["audit", str(path), *QUICK, "--fail-below", str(target), "--definition", definition]
    assert main(words) == status
    assert ("PASSED" if status == 0 else "FAILED") in capsys.readouterr().out


def test_a_history_of_nobody_fails_every_gate(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "zeros.csv"
    path.write_text("0,0\n0,0\n")
    assert main(["audit", str(path), *QUICK]) == 0
    assert "T is undefined" in capsys.readouterr().out
    assert main(["audit", str(path), *QUICK, "--fail-below", "1", "--json"]) == 3
    content = json.loads(capsys.readouterr().out)
    assert content["weak_privacy"]["lower"] is None
    assert content["strong_privacy"] is None
    assert content["recipe"] is None


def test_the_whole_recipe_goes_to_a_file(tmp_path: pathlib.Path) -> None:
    """Long recipes are shortened on the screen; the file's arithmetic is exact."""
    rng = np.random.default_rng(2)
    history = rng.random((13, 14)) < 0.5
    np.save(tmp_path / "log.npy", history)
    recipe = tmp_path / "recipe.csv"
    words = ["audit", str(tmp_path / "log.npy"), *QUICK, "--recipe-file", str(recipe)]
    assert main(words) == 0
    with recipe.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    left = [0] * 14
    for row in rows:
        if row["kind"] == "round":
            for i in np.flatnonzero(history[int(row["name"])]):
                left[i] += int(row["coefficient"])
    wanted = {int(r["name"]): int(r["coefficient"]) for r in rows if r["kind"] == "client"}
    assert wanted
    assert {i: v for i, v in enumerate(left) if v} == wanted
    assert list(tmp_path.glob("*.part")) == []


def test_settings_may_come_from_a_file(
    tmp_path: pathlib.Path, log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "audit.toml"
    settings.write_text("effort = 0.01\nfail_below = 2\njson = true\n")
    assert main(["audit", str(log), "--config", str(settings)]) == 3
    assert json.loads(capsys.readouterr().out)["gate"]["target"] == 2


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in ("--fail-below", "--json", "--effort", "--round-column", "--memory-gib", "FILE"):
        assert flag in text


def test_an_interrupt_leaves_with_130(tmp_path: pathlib.Path) -> None:
    online = mj.availability.independent(0.1)
    history = mj.selection.rollout(1, mj.selection.uniform(60, 10), online, 45)
    np.save(tmp_path / "log.npy", np.asarray(history))
    words = ["audit", str(tmp_path / "log.npy"), "--effort", "50"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mrsa_jax", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert any("weak privacy" in line for line in process.stderr)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert "interrupted" in said
    assert process.returncode == 130
    assert printed == ""
