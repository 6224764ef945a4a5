"""`mrsa-jax audit --certificate`, and `mrsa_check.py` as a sceptic runs it.

By Python alone.
"""

from __future__ import annotations

import ast
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from mrsa_jax.cli import main
from mrsa_watch import mrsa_check

QUICK = ["--effort", "0.01"]
CHECKER = pathlib.Path(mrsa_check.__file__)
LOG = """round,client,examples
1,anna,10
1,bob,1/3
1,carl,5
2,bob,2/3
2,carl,10
3,dora,1
"""
HEADER = (
    '{"format": "mrsa-jax participation log", "version": 1, "system": "x", '
    '"aggregation": "secagg+", "pseudonyms": null, "run": '
)
JSONL = f"""{HEADER}0}}
{{"round": 1, "clients": ["anna", "bob"], "weights": [1, "3/7"]}}
{{"round": 1, "sum": 1, "clients": ["carl", "dora"], "noise": 0.5, "clip": 1.0}}
{{"round": 2, "status": "aborted", "asked": ["anna"]}}
{HEADER}1}}
{{"round": 1, "clients": ["bob"], "weights": [0.50]}}
{{"round": 1, "clients": ["bob"], "weights": ["1/2"], "time": "later"}}
{{"round": 2, "clien#torn
{{"round": 3, "clients": ["an"""


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a log with weights, which exposes dora."""
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def sceptic(*words: object, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run a copy of the checker elsewhere, without any package that is installed."""
    copy = folder / "mrsa_check.py"
    copy.write_bytes(CHECKER.read_bytes())
    command = [sys.executable, "-I", "-S", str(copy), *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=folder
    )


def test_the_checker_is_one_short_file_of_the_standard_library() -> None:
    text = CHECKER.read_text()
    assert (
        text.count("\n") < 1_250
    )  # of which 80 are for names that may be one client's
    assert max(map(len, text.splitlines())) <= 100
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).split(".")[0])
    assert names <= sys.stdlib_module_names
    assert not {"assert", "eval", "exec"} & set(text.replace("(", " ").split())


def test_a_certificate_is_written_told_of_and_checked(
    log: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.cert.json"
    path.write_text("something else")  # is replaced, as a recipe is
    words = [
        "audit",
        str(log),
        *QUICK,
        "--weight-column",
        "examples",
        "--certificate",
        str(path),
    ]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Certificate written to" in said
    assert "mrsa_check.py" in said
    done = sceptic(path, log, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "checked: claim 4: client 'dora' is exposed" in done.stdout.splitlines()[:9]
    ), done.stdout
    assert "not checked, no short proof: 'no client is exposed earlier" in done.stdout
    log.write_text(LOG + "4,carl,1\n")
    done = sceptic(path, log, folder=tmp_path)
    assert done.returncode == 1
    assert "REFUSED: log: the certificate is not of SHA-256" in done.stdout
    assert "claim" not in done.stdout.replace("claims", "")


def test_json_names_the_certificate(
    log: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.cert.json"
    words = [
        "audit",
        str(log),
        *QUICK,
        "--ignore-columns",
        "examples",
        "--coalition",
        "carl",
    ]
    words += [
        "--noise-multiplier",
        "1",
        "--clip-norm",
        "1",
        "--certificate",
        str(path),
        "--json",
    ]
    assert main(words) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["certificate"] == str(path)
    made = json.loads(path.read_text())
    assert made["clients"][made["coalition"][0]] == "carl"
    assert "mu and epsilon of clients beneath noise: floats" in made["no short proof"]
    done = sceptic(path, log, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "the server knows 'carl'" in done.stdout


def test_a_participation_log_of_ours(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs, several sums, weights, repetitions, torn lines.

    Read as the audit reads them.
    """
    log, path = tmp_path / "log.jsonl", tmp_path / "audit.cert.json"
    log.write_text(JSONL)
    assert main(["audit", str(log), *QUICK, "--certificate", str(path)]) == 0
    made = json.loads(path.read_text())
    assert made["reading"] == {"layout": "lines"}
    assert made["rounds"] == ["0:1/0", "0:1/1", "1:1/0"]
    assert made["sums"][0] == [[0, 1], [1, "3/7"]]
    done = sceptic(path, log, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "client 'bob' is exposed" in done.stdout
    assert "client 'anna' is exposed" in done.stdout


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["none.json", "log.csv"], 2, "No such file"),
        (["log.csv"], 2, "required: log"),
        (
            ["log.csv", "log.csv"],
            1,
            "REFUSED: certificate: malformed (JSONDecodeError)",
        ),
        (["--steps", "x", "log.csv", "log.csv"], 2, "invalid int"),
        (["--help"], 0, "certificate log"),
    ],
)
def test_the_checker_misused(
    log: pathlib.Path, tmp_path: pathlib.Path, words: list[str], status: int, text: str
) -> None:
    done = sceptic(*words, folder=tmp_path)
    assert done.returncode == status
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("steps", [0, 50])
def test_too_few_steps_leave_claims_unchecked(
    log: pathlib.Path,
    tmp_path: pathlib.Path,
    steps: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "audit.cert.json"
    words = [
        "audit",
        str(log),
        *QUICK,
        "--ignore-columns",
        "examples",
        "--certificate",
        str(path),
    ]
    assert main(words) == 0
    done = sceptic(path, log, "--steps", steps, folder=tmp_path)
    assert done.returncode == 3
    assert "steps" in done.stdout


@pytest.mark.parametrize("place", ["none/x.json", "."])
def test_where_a_certificate_cannot_be_written(
    log: pathlib.Path,
    tmp_path: pathlib.Path,
    place: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["audit", str(log), *QUICK, "--ignore-columns", "examples"]
    assert main([*words, "--certificate", str(tmp_path / place)]) in (1, 2)
    said = capsys.readouterr().err
    assert "`certificate` must" in said
    assert "Traceback" not in said
    assert not list(tmp_path.glob("*.part"))


def test_a_log_that_changes_during_the_audit(
    log: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from mrsa_jax import privacy

    made = privacy.certificate

    def later(*arguments: object) -> object:
        log.write_text(LOG + "4,anna,1\n")
        return made(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(privacy, "certificate", later)
    path = tmp_path / "audit.cert.json"
    words = [
        "audit",
        str(log),
        *QUICK,
        "--ignore-columns",
        "examples",
        "--certificate",
        str(path),
    ]
    assert main(words) == 2
    assert "`file` must not change while it is audited" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.slow
def test_an_interrupted_audit_has_the_certificate_of_what_it_found(
    tmp_path: pathlib.Path,
) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    P = np.zeros((90, 120), int)
    for row in P:
        row[rng.permutation(120)[:12]] = 1
    log, path = tmp_path / "log.csv", tmp_path / "audit.cert.json"
    np.savetxt(log, P, "%d", delimiter=",")
    command = [
        sys.executable,
        "-m",
        "mrsa_jax",
        "audit",
        str(log),
        "--effort",
        "100",
        "--certificate",
        str(path),
    ]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "lightest combination" in line:
                break
        time.sleep(1)  # until it has taken note of what it said
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)
    assert running.returncode == 130
    assert any(
        "not finished" in text
        for text in json.loads(path.read_text())["no short proof"]
    )
    done = sceptic(path, log, folder=tmp_path)
    assert done.returncode == 0, done.stdout
