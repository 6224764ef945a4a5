"""SIGTERM, SIGINT and SIGKILL at any moment.

What is finished is kept, and the rest can go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import cli
from mrsa_jax.cli import console, main
from mrsa_jax.cli.console import Interrupts, TerminatedError

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
_SMALL = "--num-clients 12 --cohort-size 4 --dropout-rates 0"
_TWO = "--schemes uniform partition"
_LEARN = f"{_SMALL} --dataset digits --model logistic"


@dataclasses.dataclass(frozen=True)
class Command:
    """A command that writes.

    Attributes:
        words: Behind `mrsa-jax`, in a folder of inputs.
        marker: Standard error when its work is on its way; None for a command without
            bars.
        seconds: After that.
        files: What it may leave, apart from inputs.
    """

    words: str
    marker: str | None
    seconds: float = 0.5
    files: tuple[str, ...] = ("out",)


COMMANDS = {
    "demo": Command(f"demo {_LEARN} {_TWO} --rounds 3000 --out out", "training ("),
    "simulate": Command(
        f"simulate {_SMALL} {_TWO} --rounds 2000 --trials 200 --out out", "Random ("
    ),
    "train": Command(
        f"train {_LEARN} --rounds 3000 --scheme uniform --out out", "training ("
    ),
    "audit": Command(
        "audit log.npy --effort 100 --out out --certificate cert.json",
        "lightest combination",
        1.0,
        ("out", "cert.json"),
    ),
    "watch": Command(
        "watch log.jsonl --out lines --metrics m", "", 1.0, ("lines", "m")
    ),
    "advise": Command(f"advise {_SMALL} --rounds 400 --out out", None),
    "attack": Command(
        f"attack least-squares {_SMALL} --rounds 3000 --out out", "training ("
    ),
    "sweep": Command("sweep sweep.toml --out out", "sweep of simulate"),
    "merge": Command("sweep merge one two --out out", None),
    "reproduce": Command("reproduce multiround.theorem3 --out out", "Theorem 3"),
    "report": Command("report one --out page.html", None, files=("page.html",)),
    "bench": Command(
        "bench rank --n 12 --trials 5 --repeats 400000 --out out", "rank ("
    ),
}
KILLED = {name: COMMANDS[name] for name in ("sweep", "bench", "watch")} | {
    "train": Command(
        f"train {_LEARN} --rounds 200 --scheme uniform --checkpoint-every 5 --out out",
        "training (",
        0.2,
    )
}
MOMENTS = ("early", "begun", "late")

_SWEEP = """
command = "simulate"
rounds = 200
trials = 20
[population]
num_clients = 30
cohort_size = 6
[grid]
scheme = ["uniform", "partition", "batch_partitioning:3"]
population.dropout_rates = { linspace = [0.1, 0.5, 40] }
"""
_PART = """
command = "simulate"
rounds = 20
trials = 2
schemes = ["uniform"]
[population]
num_clients = 12
cohort_size = 4
[grid]
seed = [SEED]
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a folder with what commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    history = mj.selection.rollout(
        1, mj.selection.uniform(120, 12), mj.availability.independent(0.1), 90
    )
    np.save(folder / "log.npy", np.asarray(history))
    with mj.live.Recorder(
        folder / "log.jsonl", system="x 1", aggregation="secagg"
    ) as recorder:
        for number, row in enumerate(np.asarray(history)):
            clients = [f"c{i}" for i in np.flatnonzero(row)]
            if clients:
                recorder.record(number, clients)
    (folder / "sweep.toml").write_text(_SWEEP)
    for name, seed in (("one", "1"), ("two", "2")):
        (folder / f"{name}.toml").write_text(_PART.replace("SEED", seed))
        words = ["sweep", str(folder / f"{name}.toml"), "--out", str(folder / name)]
        assert main([*words, "--json"]) == 0
    return folder


@contextlib.contextmanager
def running(
    command: Command, folder: pathlib.Path, moment: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a command until a moment."""
    words = [sys.executable, "-m", "mrsa_jax", *command.words.split()]
    with (folder / "stderr").open("w") as log:
        process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    try:
        if moment == "early":
            time.sleep(1.0)
        elif command.marker is None:
            time.sleep(2.0 if moment == "begun" else 3.0)
        else:
            _wait_for(process, folder / "stderr", command.marker)
            time.sleep(0.0 if moment == "begun" else command.seconds)
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[str], log: pathlib.Path, marker: str) -> None:
    deadline = time.monotonic() + 120
    lines = log.with_name("lines")
    while process.poll() is None and time.monotonic() < deadline:
        is_watch = not marker and lines.exists() and lines.stat().st_size > 0
        if is_watch or (marker and marker in log.read_text()):
            return
        time.sleep(0.02)


def copied(inputs: pathlib.Path, folder: pathlib.Path) -> set[str]:
    """Link the inputs into a folder; return their names."""
    for path in inputs.iterdir():
        (folder / path.name).symlink_to(path)
    return {path.name for path in inputs.iterdir()} | {"stderr"}


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", STATUS, ids=lambda number: number.name)
@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_keeps_what_is_finished_and_says_so(
    name: str,
    number: signal.Signals,
    moment: str,
    inputs: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    command = COMMANDS[name]
    before = copied(inputs, tmp_path)
    with running(command, tmp_path, moment) as process:
        start = time.monotonic()
        process.send_signal(number)
        status = process.wait(timeout=60)
        took = time.monotonic() - start
    said = (tmp_path / "stderr").read_text()
    if status == 0 and command.marker is None:  # it was done before
        return
    assert status == STATUS[number], said
    assert took < 10, said
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith("interrupted; "), said
    left = set(os.listdir(tmp_path)) - before
    assert left <= set(command.files), left  # nothing half-written is beside it
    for one in left:
        is_named = one in last or (name, one) == ("watch", "m")
        assert is_named, (one, last)
    if name == "audit" and moment == "late":
        assert left == {"out", "cert.json"}
        json.loads((tmp_path / "cert.json").read_text())
        assert (tmp_path / "out" / "study.json").is_file()
    if name == "train" and moment == "late":
        assert "--resume continues it" in last


@pytest.mark.long
@pytest.mark.parametrize("name", KILLED)
@pytest.mark.parametrize("moment", MOMENTS)
def test_what_is_killed_goes_on_from_its_records(
    name: str, moment: str, inputs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The next run ends, with all that is asked for."""
    command = KILLED[name]
    copied(inputs, tmp_path)
    with running(command, tmp_path, moment) as process:
        process.kill()
        assert process.wait(timeout=60) in (-signal.SIGKILL, 0)
    more = {"train": "--resume", "watch": "--once"}.get(name, "")
    if name == "bench":  # what was measured is whole lines
        path = tmp_path / "out" / "records.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        assert all(json.loads(line)["seconds"] for line in lines)
        return
    words = [sys.executable, "-m", "mrsa_jax", *command.words.split(), *more.split()]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if name == "sweep":
        assert "120 of 120 cells are done" in done.stdout
    if name == "watch":
        lines = [
            json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()
        ]
        assert [line["round"] for line in lines] == sorted(
            {line["round"] for line in lines}
        )


# ---- in this process


@pytest.fixture
def sigterm() -> Iterator[object]:
    """Let SIGTERM end nothing for the length of a test; give the handler."""

    def unheard(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGTERM, unheard)
    yield unheard
    signal.signal(signal.SIGTERM, before)


def test_sigterm_is_an_interrupt_and_then_asks_for_nothing_new(sigterm: object) -> None:
    with Interrupts() as interrupts:
        assert interrupts.status == 130
        with pytest.raises(TerminatedError):
            signal.raise_signal(signal.SIGTERM)
        assert interrupts.status == 143
        signal.raise_signal(signal.SIGTERM)  # as `timeout` sends it twice
        with pytest.raises(TerminatedError):
            interrupts.check()
        with interrupts:  # what is nested restores nothing
            pass
        assert signal.getsignal(signal.SIGTERM) is not sigterm
    assert signal.getsignal(signal.SIGTERM) is sigterm


def test_a_second_ctrl_c_of_a_person_ends_what_the_first_saves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Interrupts():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # at once: an echo
        monkeypatch.setattr(console, "_SECONDS_OF_ECHOES", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_process_that_does_not_listen_is_ended_by_a_thread(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    has_ended, is_over = threading.Event(), threading.Event()

    def leave(status: int) -> None:
        ended.append(status)
        has_ended.set()
        is_over.wait(10)  # the process would be gone

    monkeypatch.setattr(console, "_SECONDS_TO_LISTEN", 0.05)
    monkeypatch.setattr(console.os, "_exit", leave)
    # so it is never raised
    monkeypatch.setattr(console, "_compiles", lambda frame: True)
    interrupts = Interrupts()
    interrupts.ends_process = True
    with interrupts:
        interrupts.kept = lambda: "three points are kept"
        signal.raise_signal(signal.SIGTERM)
        assert has_ended.wait(10)
    is_over.set()
    assert ended == [143]
    assert "interrupted; three points are kept" in capfd.readouterr().err


@pytest.mark.usefixtures("sigterm")
@pytest.mark.parametrize(("number", "status"), STATUS.items())
def test_an_attack_cut_short_has_the_status_of_its_signal(
    number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a command saves of a part of its work is no success."""
    from mrsa_jax import cli

    def cut_short(words: list[str]) -> int:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        return cli.INTERRUPTED

    monkeypatch.setattr(cli, "_run", cut_short)
    assert main(["attack"]) == status


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), ValueError()])
def test_an_interrupt_while_a_class_is_made_is_one(
    cause: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 raises a RuntimeError for whatever strikes in `__set_name__`."""

    def run(_: list[str]) -> int:
        raise RuntimeError("Error calling __set_name__") from cause

    monkeypatch.setattr(cli, "_run", run)
    if isinstance(cause, KeyboardInterrupt):
        assert cli.main(["demo"]) == 130
    else:
        with pytest.raises(RuntimeError):
            cli.main(["demo"])
