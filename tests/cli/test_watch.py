"""`mrsa-jax watch`: a line a sum, the exit status, and a file that survives every kill."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from mrsa_jax import live
from mrsa_jax.cli import main
from mrsa_watch._watch import Kept


def record(
    path: pathlib.Path, sums: list[list[str]], aggregation: str = "secagg+"
) -> None:
    with live.Recorder(
        path, system="test", aggregation=aggregation, salt=b""
    ) as recorder:
        for j, clients in enumerate(sums):
            recorder.record(j + 1, clients, status="learnt" if clients else "aborted")


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "participation.jsonl"
    record(path, [["a", "b", "c", "d"], [], ["a", "b"], ["c", "d"], ["a", "e"], ["e"]])
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fail-below", "0"], "`fail_below` must be at least 1; got 0"),
        (
            ["--fail-below-hidden", "0.5"],
            "`fail_below_hidden` must be a finite number of at least",
        ),
        (["--poll", "0"], "`poll` must be positive and finite; got 0.0"),
        (
            ["--effort", "-1"],
            "`effort` must be a finite number of at least 0; got -1.0",
        ),
        (
            ["--wait"],
            "`wait` must not be set with --once, which waits for nothing; got True",
        ),
        (["--poll", "2"], "`poll` must not be set with --once, which waits for"),
        (
            ["--out", "nowhere/state"],
            "`out` must lie in an existing folder; got 'nowhere/state'",
        ),
    ],
)
def test_misuse(
    words: list[str],
    message: str,
    log: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["watch", str(log), "--once", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
@pytest.mark.parametrize(
    "rows",
    [
        [
            [1, 0, 1, 0, 1],
            [0, 1, 0, 2**62, 1],
            [1, 0, 0, 1, 0],
            [2**63, 2**63, 1, 0, 2**62],
            [0, 1, 1, 0, 1],
        ],
        [[0, 0, 2**57, 1], [1, 2**57, 0, 1], [1, 0, 2**57, 0], [1, 1, 0, 2**57]],
    ],
)
def test_large_weights_that_expose_everybody(
    rows: list[list[int]], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    with live.Recorder(
        path, system="test", aggregation="secagg+", salt=b""
    ) as recorder:
        for j, row in enumerate(rows):
            names = [f"c{i}" for i, weight in enumerate(row) if weight]
            recorder.record(j + 1, names, weights=[weight for weight in row if weight])
    assert main(["watch", str(path), "--fail-below", "2", "--once"]) == 3
    assert f"{len(rows[0])} exposed" in capsys.readouterr().out
    assert main(["audit", str(path), "--fail-below", "2"]) == 3


def test_files_of_other_kinds(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    assert main(["watch", str(path), "--once"]) == 2
    path.write_text("round,client\n1,a\n")
    assert main(["watch", str(path)]) == 2  # at once, though it would wait for more
    errors = " ".join(capsys.readouterr().err.split())
    assert "`file` must be a participation log that is there; got" in errors
    assert "in JSON Lines; mrsa-jax audit reads other kinds; got" in errors
    path.write_text('{"round": 1, "clients": ["a"]}\n')
    assert main(["watch", str(path), "--once"]) == 2
    assert "log.csv:1" in capsys.readouterr().err


@pytest.mark.smoke
def test_a_log_that_is_not_there_is_an_error_at_once(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt name was waited for, for ever and in silence."""
    path = tmp_path / "typo.jsonl"
    for words in ([], ["--keep-going"], ["--json"], ["--once"]):
        assert main(["watch", str(path), *words]) == 2
        said = " ".join(capsys.readouterr().err.split())
        more = (
            "" if "--once" in words else " (--wait waits for one that is not there yet)"
        )
        assert (
            f"`file` must be a participation log that is there{more}; got '{path}'"
            in said
        )


def test_a_line_a_sum(log: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(log), "--once"]) == 0
    out, err = capsys.readouterr()
    # a, b and e are equals in round 5; which rounding names is no matter
    assert re.sub(r"among 1.50 \([abe]\)", "among 1.50 (a)", out).splitlines() == [
        "round 1: 4 clients, rank 1; 0 exposed; strong T 4; weak T 4; worst hidden "
        "among 4.00 (a)",
        "round 3: 4 clients, rank 2; 0 exposed; strong T 2; weak T 2; worst hidden "
        "among 2.00 (a)",
        "round 4: 4 clients, rank 2; 0 exposed; strong T 2; weak T 2; worst hidden "
        "among 2.00 (a)",
        "round 5: 5 clients, rank 3; 0 exposed; strong T 1; weak T 2; worst hidden "
        "among 1.50 (a)",
        "round 6: 5 clients, rank 4; 3 exposed (new: a, b, e); strong T 1; weak T 1; "
        "worst hidden among 1 (a)",
    ]
    assert err == ""


def test_the_first_breach_ends_it(
    log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bars = ["--fail-below", "2", "--fail-below-hidden", "1.8"]
    assert main(["watch", str(log), "--once", *bars]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert re.search(
        r"BREACH: client [abe] is hidden among 1.50, below 1.8$", lines[-1]
    )
    assert main(["watch", str(log), "--once", "--keep-going", "--json", *bars]) == 3
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(one["breaches"]) for one in told] == [0, 0, 0, 1, 2]
    assert told[-1] == {
        "run": 0,
        "round": 6,
        "sum": 0,
        "sums": 5,
        "clients": 5,
        "rank": 4,
        "exposed": 3,
        "newly_exposed": ["a", "b", "e"],
        "strong": 1,
        "weak_lower": 1,
        "weak_upper": 1,
        "is_searched": False,
        "hidden": 1.0,
        "hidden_client": "a",
        "error_bits": told[-1]["error_bits"],
        "breaches": ["weak T is 1, below 2", "client a is hidden among 1, below 1.8"],
    }


def test_a_server_that_saw_all_is_told_of(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    record(path, [["a", "\u202eb"], ["\u202eb", "c"], ["a", "c"]], aggregation="plain")
    assert main(["watch", str(path), "--once"]) == 0
    out, err = capsys.readouterr()
    assert err.count("the server saw every update by itself") == 1
    assert "\u202e" not in out
    assert r"\u202eb" in out


def test_a_log_that_comes_later_and_grows(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"

    def write() -> None:
        time.sleep(0.3)
        record(path, [["a", "b"], ["b", "c"]])
        with path.open("ab") as stream:
            line = b'{"round": 9, "clients": ["a", "b", "d"]}\n'
            for part in (line[:7], line[7:]):
                stream.write(part)
                stream.flush()
                time.sleep(0.2)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert (
            main(["watch", str(path), "--wait", "--poll", "0.05", "--fail-below", "2"])
            == 3
        )
    finally:
        writer.join()
    out, err = capsys.readouterr()
    assert "log is not there yet: waiting for it" in " ".join(err.split())
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "round 1",
        "round 2",
        "round 9",
    ]


def test_kept_lines(
    log: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "state.jsonl"
    words = ["watch", str(log), "--once", "--out", str(out)]
    assert main([*words, "--json"]) == 0
    printed, whole = capsys.readouterr().out, out.read_text()
    assert printed == whole
    ends = [place + 1 for place, mark in enumerate(whole) if mark == "\n"]
    for cut in (0, 1, ends[0] - 1, ends[0], ends[2] + 40, ends[-1] - 1, ends[-1]):
        out.write_text(whole[:cut])
        assert main([*words, "--json"]) == 0
        assert out.read_text() == whole
        kept = max([0, *(end for end in ends if end <= cut)])
        assert capsys.readouterr().out == whole[kept:]  # and no line is printed again
    assert main([*words, "--fail-below", "2"]) == 2  # the last line would have a breach
    assert "(line 5 is of another); got" in " ".join(capsys.readouterr().err.split())
    assert out.read_text() == whole
    with Kept(out):
        assert main(words) == 2
    assert "`out` must be no other watch's" in capsys.readouterr().err


def _wait_for_lines(
    path: pathlib.Path, count: int, process: subprocess.Popen[bytes]
) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.002)


@pytest.mark.slow
def test_killed_at_ten_moments_it_keeps_every_line_once(tmp_path: pathlib.Path) -> None:
    generator = random.Random(1)
    names = [f"client {i}" for i in range(3000)]
    log, out, whole = tmp_path / "log", tmp_path / "state", tmp_path / "whole"
    record(log, [generator.sample(names, 300) for _ in range(250)])
    words = [
        "watch",
        str(log),
        "--fail-below",
        "3",
        "--fail-below-hidden",
        "1.5",
        "--out",
    ]
    assert main([*words, str(whole), "--once"]) == 0
    command = [sys.executable, "-m", "mrsa_jax", *words, str(out)]
    for kill in range(10):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, start_new_session=True
        )
        _wait_for_lines(out, 25 * kill + generator.randrange(1, 24), process)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert whole.read_bytes().startswith(out.read_bytes())
    assert out.read_bytes() != whole.read_bytes()
    done = subprocess.run(
        [*command, "--once"], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_an_interrupt_ends_it(log: pathlib.Path) -> None:
    command = [sys.executable, "-m", "mrsa_jax", "watch", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.match(rb"round 6: ", lines[-1])
    assert b"Traceback" not in errors
