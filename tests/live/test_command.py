"""The commands of `mrsa-watch`, from the first line of a log to a certificate's check."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mrsa_watch import read_log
from mrsa_watch._command import main

SUMS = [["a", "b", "c", "d"], [], ["a", "b"], ["c", "d"], ["a", "e"], ["e"]]


def run(words: str, monkeypatch: pytest.MonkeyPatch, *lines: object) -> int:
    text = "".join(
        f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main(words.split())


@pytest.fixture
def log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    path = tmp_path / "log.jsonl"
    lines = [
        {"round": j, "clients": clients, "status": "learnt" if clients else "aborted"}
        for j, clients in enumerate(SUMS, start=1)
    ]
    words = f"record {path} --system test --aggregation secagg --plain-names"
    assert run(words, monkeypatch, *lines) == 0
    return path


def test_what_is_recorded_is_read(log: pathlib.Path) -> None:
    found = read_log(log)
    assert found.clients == ("a", "b", "c", "d", "e")
    assert found.participation.astype(int).tolist() == [
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [1, 0, 0, 0, 1],
        [0, 0, 0, 0, 1],
    ]


def test_names_are_pseudonyms_unless_asked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    words = f"record {path} --system test --aggregation secagg"
    assert run(words, monkeypatch, {"round": 1, "clients": ["anna", "bob"]}) == 0
    assert "anna" not in path.read_text()
    assert [len(name) for name in read_log(path).clients] == [32, 32]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "`input, line 1` must hold a JSON object"),
        ("{", "input, line 1: expected a JSON object on one line; found"),
        ({"clients": ["a"]}, "must hold round, clients and no others than"),
        (
            {"round": 1, "clients": ["a"], "colour": 3},
            "`input, line 1` must hold round, clients and no others",
        ),
        ({"round": 1, "clients": "anna"}, "`clients` must be names of clients"),
    ],
)
def test_lines_that_are_no_sums(
    line: object,
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "log.jsonl"
    words = f"record {path} --system test --aggregation secagg"
    good = {"round": 9, "clients": ["a", "b"]}
    assert run(words, monkeypatch, line, good) == 2
    assert message in capsys.readouterr().err
    assert len(path.read_text().splitlines()) == 1  # the header


def test_watch_tells_each_sum_and_stops_at_a_breach(
    log: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = log.with_name("metrics.prom")
    assert run(f"watch {log} --once --json --metrics {metrics}", monkeypatch) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # by hand: c + d adds nothing to a + b + c + d and a + b; e gives a away, and so b
    assert [each["rank"] for each in told] == [1, 2, 2, 3, 4]
    assert [each["weak_lower"] for each in told] == [4, 2, 2, 2, 1]
    assert [each["newly_exposed"] for each in told] == [[], [], [], [], ["a", "b", "e"]]
    words = f"watch {log} --once --fail-below 3 --metrics {metrics}"
    assert run(words, monkeypatch) == 3
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("round 3: ")
    assert "BREACH: weak T is 2, below 3" in out
    text = metrics.read_text()
    assert text.endswith("# EOF\n")
    found = {
        sample.name: (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    labels = {"log": str(log)}
    wanted = {
        "sums": 2,
        "clients": 4,
        "rank": 2,
        "exposed_clients": 0,
        "weak_t_lower": 2,
        "weak_t_upper": 2,
        "strong_t": 2,
        "hidden_among": 2,
        "last_round": 3,
        "breaches": 1,
    }
    assert found == {
        f"mrsa_watch_{name}": (labels, value) for name, value in wanted.items()
    }


def test_metrics_of_a_log_with_a_strange_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'a"b\\c.jsonl'
    words = ["record", str(path), "--system", "s", "--aggregation", "secagg"]
    monkeypatch.setattr(
        "sys.stdin", io.StringIO('{"round": 1, "clients": ["a", "b"]}\n')
    )
    assert main(words) == 0
    assert main(["watch", str(path), "--once", "--metrics", str(tmp_path / "m")]) == 0
    families = list(text_string_to_metric_families((tmp_path / "m").read_text()))
    assert {sample.labels["log"] for each in families for sample in each.samples} == {
        str(path)
    }


def test_gate_says_who_is_to_be_left_out(
    log: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # without a + e and e
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:5]))
    before = log.read_bytes()
    cohorts = [["a", "b"], ["a", "b", "e"], ["f", "g"]]
    assert run(f"gate {log} --fail-below 2 --new-clients", monkeypatch, *cohorts) == 3
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["allowed"] for each in told] == [True, False, True]
    assert told[1]["leave_out"] == ["e"]
    assert [(each["known"], each["asked"]) for each in told] == [(2, 2), (2, 3), (0, 2)]
    assert {each["last_round"] for each in told} == {4}
    assert run(f"gate {log} --fail-below 2", monkeypatch, *cohorts[:1]) == 0
    capsys.readouterr()
    assert run(f"gate {log} --fail-below 2", monkeypatch, *cohorts) == 3
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["allowed"] for each in told] == [True, False, False]
    assert [each["leave_out"] for each in told] == [[], ["e"], ["f", "g"]]
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("watch nowhere.jsonl", "`log` must be a participation log that is there"),
        ("gate nowhere.jsonl", "`path` must be a participation log; got"),
        (
            "preflight --num-clients 9 --cohort-size 10 --rounds 3",
            "`cohort_size` must be at most",
        ),
        (
            "preflight --num-clients 9 --cohort-size 4 --rounds 3 --blocks 2",
            "must be a multiple of",
        ),
    ],
)
def test_misuse(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_a_certificate_is_checked(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.json").write_text("{}")
    (tmp_path / "log").write_text("x")
    assert main(["check", str(tmp_path / "c.json"), str(tmp_path / "log")]) != 0
    assert capsys.readouterr().out


def test_preflight_fails_where_a_bar_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "preflight --num-clients 12 --cohort-size 4 --rounds 30 --loss-rate 0.1"
    assert run(words, monkeypatch) == 0
    assert run(f"{words} --fail-below 2", monkeypatch) == 3
    assert (
        "BREACH: weak T is 1 in a simulated history, below 2" in capsys.readouterr().out
    )
    assert run(f"{words} --blocks 2 --fail-below 2 --json", monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["weak_lower"] == 2


def test_the_blocks_of_the_readme_run(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (pathlib.Path(__file__).parents[2] / "watch" / "README.md").read_text(
        encoding="utf-8"
    )
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    told = capsys.readouterr().out
    assert told.startswith("True False ('cleo',) weak T would be 1, below 2\n")
    assert "weak T of the worst:       3\n" in told


# ---- Streams and files that fail.


@pytest.mark.parametrize(
    ("streams", "status", "message"),
    [
        (
            {"stdout": "/dev/full"},
            1,
            "could not be printed: standard output: No space left",
        ),
        ({"stdout": None}, 1, "could not be printed: standard output: it is closed"),
        ({"stdin": None}, 2, "`input` must be open"),
    ],
)
def test_streams_that_fail_end_in_a_sentence(
    log: pathlib.Path,
    streams: dict[str, str | None],
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(f"gate {log}", monkeypatch)
    with contextlib.ExitStack() as stack:
        text = io.TextIOWrapper(io.BytesIO(b'["a", "b"]\n'))
        monkeypatch.setattr("sys.stdin", text)
        for name, path in streams.items():
            stream = None if path is None else stack.enter_context(open(path, "w"))
            monkeypatch.setattr(f"sys.{name}", stream)
        assert main(["gate", str(log)]) == status
        if streams.get("stdout"):
            with contextlib.suppress(OSError):
                stream.close()
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--wait", "--poll 2"])
def test_once_waits_for_nothing(
    words: str, log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(log), "--once", *words.split()]) == 2
    flag = words.split()[0][2:]
    told = f"`{flag}` must not be set with --once, which waits for nothing"
    assert told in capsys.readouterr().err


def test_names_are_printed_where_only_ascii_is(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    words = f"record {path} --system s --aggregation secagg --plain-names"
    assert run(words, monkeypatch, {"round": 1, "clients": ["Zoë", "東京"]}) == 0
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert main(["watch", str(path), "--once"]) == 0
    assert b"Zo\\xeb" in out.buffer.getvalue()


def test_metrics_go_through_links_and_into_devices(
    log: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target, link, pipe = (log.with_name(name) for name in ("metrics", "link", "pipe"))
    words = f"watch {log} --once --metrics"
    link.symlink_to(target)
    for _ in range(2):
        assert run(f"{words} {link}", monkeypatch) == 0
        assert link.is_symlink()
        assert target.read_text().endswith("# EOF\n")
    target.chmod(0o640)
    assert run(f"{words} {link}", monkeypatch) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert run(f"{words} {pipe}", monkeypatch) == 0
    assert os.read(reader, 100).startswith(b"# HELP mrsa_watch_sums")
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    capsys.readouterr()
    device = pathlib.Path("/dev/full")
    assert run(f"{words} {device}", monkeypatch) == 1
    assert (
        "`metrics` must have room to be written; got '/dev/full'"
        in capsys.readouterr().err
    )
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.parametrize(
    "words",
    [
        "gate {zip}",
        "watch {zip} --once",
        "watch {deep} --once",
        "gate {deep}",
        "check {deep} {zip}",
    ],
)
def test_files_of_another_kind_are_refused(
    words: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "zip").write_bytes(b"PK\x03\x04" + bytes(40) + b"\n")
    (tmp_path / "deep").write_bytes(b'{"format": ' + b"[" * 100_000 + b"\n")
    words = words.format(zip=tmp_path / "zip", deep=tmp_path / "deep")
    assert run(words, monkeypatch, ["a"]) in (1, 2)
    printed = capsys.readouterr()
    assert (
        "expected" in printed.err
        or "must be" in printed.err
        or "REFUSED" in printed.out
    )


def test_a_plan_has_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    words = "preflight --num-clients 12 --cohort-size 4 --rounds 1000000000"
    assert main(words.split()) == 2
    assert (
        "`num_rounds` must be at most 200000 in all trials" in capsys.readouterr().err
    )


def test_the_package_is_a_command() -> None:
    words = [sys.executable, "-m", "mrsa_watch", "--version"]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.startswith("mrsa-watch ")


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_signal_ends_a_watch_with_whole_lines(
    log: pathlib.Path, number: signal.Signals, status: int
) -> None:
    kept = log.with_name("kept.jsonl")
    words = [sys.executable, "-m", "mrsa_watch", "watch", str(log), "--out", str(kept)]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as own:
        assert own.stdout is not None
        assert own.stderr is not None
        for _ in range(5):
            own.stdout.readline()
        own.send_signal(number)
        errors = own.stderr.read()
    assert own.returncode == status
    assert (
        "interrupted; each line that was printed, kept or recorded is whole" in errors
    )
    assert len([json.loads(line) for line in kept.read_text().splitlines()]) == 5
