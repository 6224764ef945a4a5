"""Every command where nothing can be printed or written.

A sentence, an exit status, no loss.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pathlib
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import pytest
from matplotlib.figure import Figure

from mrsa_jax.cli import main
from mrsa_watch._base.errors import StoreError, writing
from mrsa_watch._base.streams import outlets

POPULATION = ["--num-clients", "8", "--cohort-size", "4"]
QUICK: dict[str, list[str]] = {
    "simulate": ["--rounds", "3", "--trials", "1", "--schemes", "uniform", *POPULATION],
    "audit": ["{log}", "--effort", "0.01"],
    "attack": ["disaggregation", "--rounds", "9", "--dim", "3", *POPULATION],
    "reproduce": ["heterosag.matrices", "--fast"],
    "sweep": ["{study}"],
}
PRINTING: dict[str, list[str]] = {
    "secagg": ["--fidelity", "sets", "--num-clients", "6", "--dim", "2"],
    "segments": ["--dim", "10"],
    "data": ["list"],
    "bench": ["--list"],
    "report": ["{study}.out"],
}
LONGER: dict[str, list[str]] = {
    "demo": ["--rounds", "2", "--schemes", "uniform", *POPULATION],
    "train": ["--rounds", "2", "--scheme", "uniform", *POPULATION],
    "bench": ["hetero", "--quick"],
}
STUDY = """rounds = 3
trials = 1
[population]
num_clients = 8
cohort_size = 4
[grid]
scheme = ["uniform"]
"""
LOG = "round,client\n1,ann\n1,bob\n2,ann\n2,bj\u00f8rn\n3,bob\n3,bj\u00f8rn\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a folder with what the commands read."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "log").write_text(LOG, encoding="utf-8")
    (folder / "study").write_text(STUDY)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        assert (
            main(["sweep", str(folder / "study"), "--out", str(folder / "study.out")])
            == 0
        )
    return folder


def words_of(command: str, words: list[str], place: pathlib.Path) -> list[str]:
    return [
        command,
        *(word.format(log=place / "log", study=place / "study") for word in words),
    ]


def output(letters: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=letters, write_through=True)


def text_of(stream: io.TextIOWrapper) -> str:
    raw: Any = stream.buffer
    return str(raw.getvalue().decode(stream.encoding))


def run(
    words: list[str], monkeypatch: pytest.MonkeyPatch, stdout: Any
) -> tuple[int, str]:
    """Return the exit status and what went to standard error."""
    with monkeypatch.context() as patch:
        errors = io.StringIO()
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", errors)
        return main(words), errors.getvalue()


def findings(text: str) -> str:
    """Return what was found, without times and places."""
    times = r"[\d.]+ s\b|\b\d+\.\d(?=\s*$|\s*\||\s\s)"
    kept = re.sub(rf"(?m)^(Written|Wrote|\d+ of \d+ cells).*\n?|{times}", "", text)
    # columns follow the times
    return " ".join(kept.replace("-", " ").replace("=", " ").split())


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond a few bytes: what a full disk does to whoever writes."""
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    jax.config.update("jax_enable_compilation_cache", False)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, kept[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        jax.config.update("jax_enable_compilation_cache", True)


@pytest.mark.long
@pytest.mark.parametrize("command", QUICK)
def test_what_cannot_be_saved_is_printed_first(
    command: str,
    place: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = words_of(command, QUICK[command], place)

    def drawn_at_once(_: Figure, place: Any, **__: Any) -> None:
        (place.write if hasattr(place, "write") else place.write_bytes)(bytes(200))

    monkeypatch.setattr(Figure, "savefig", drawn_at_once)
    ascii_only = output("ascii")
    status, errors = run(
        [*words, "--out", str(tmp_path / "out")], monkeypatch, ascii_only
    )
    assert status == 0, errors
    told = findings(text_of(ascii_only))

    with full_disk(100):
        again = output("ascii")
        status, errors = run(
            [*words, "--out", str(tmp_path / "full")], monkeypatch, again
        )
    assert status == 1
    assert errors.count("error:") == 1
    assert re.search(r"error: `out` must have room to be written; got '.*full", errors)
    assert "a file is larger than is allowed" in errors
    assert findings(text_of(again)) == told
    assert not (tmp_path / "full" / "study.json").exists() or command == "sweep"
    assert not list(tmp_path.glob(".full*"))

    with open("/dev/full", "w", encoding="utf-8") as nowhere:
        status, errors = run(
            [*words, "--out", str(tmp_path / "unseen")], monkeypatch, nowhere
        )
        assert status == 1
        assert "standard output: No space left on device" in errors
        with contextlib.suppress(OSError):
            nowhere.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), nowhere.fileno())
    assert {path.name for path in (tmp_path / "unseen").iterdir()} == {
        path.name for path in (tmp_path / "out").iterdir()
    }


@pytest.mark.long
@pytest.mark.parametrize("command", PRINTING)
def test_what_cannot_be_printed_is_said(
    command: str, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words_of(command, PRINTING[command], place)
    for stdout, why in ((None, "it is closed"), (output("ascii"), None)):
        status, errors = run(words, monkeypatch, stdout)
        assert status == int(why is not None)
        assert (why or "") in errors
        assert "Traceback" not in errors


@pytest.mark.parametrize("command", [*QUICK, "demo", "train"])
def test_a_place_that_may_not_be_written_is_refused_before_work(
    command: str,
    place: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = words_of(command, {**QUICK, **LONGER}[command], place)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    status, errors = run(
        [*words, "--out", str(tmp_path / "out")], monkeypatch, output("utf-8")
    )
    assert status == 1
    assert "error: `out` must lie in a writable folder; got" in errors
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "out")
    status, errors = run([*words, "--out", below], monkeypatch, output("utf-8"))
    assert status == 2
    assert "error: `out` must be a folder; got" in errors


def outlet_of(stream: Any) -> Any:
    """Return what a command has for its standard output instead of a stream."""
    before = sys.stdout
    sys.stdout = stream
    try:
        with outlets() as outlet:
            return outlet
    finally:
        sys.stdout = before


def test_an_outlet_writes_what_its_letters_allow_and_remembers_the_first_failure() -> (
    None
):
    text = "T \u00b1 1 \u2500\u2502\u256d \u2013 \u2026 bj\u00f8rn \u20ac \U0001f600 \udc80"
    for letters in ("ascii", "latin-1", "cp1252", "utf-8"):
        stream = output(letters)
        outlet = outlet_of(stream)
        assert outlet.write(text) == len(text)
        assert outlet.failure is None
        shown = text_of(stream)
        for letter in text:  # unchanged wherever there is such a letter
            try:
                letter.encode(letters)
            except UnicodeEncodeError:
                assert letter not in shown
            else:
                assert letter in shown
    stream = output("ascii")
    outlet_of(stream).write("3 \u00b1 1 \u20ac")
    assert text_of(stream) == "3 +- 1 \\u20ac"
    closed = io.StringIO()
    closed.close()
    for nowhere in (None, closed):
        outlet = outlet_of(nowhere)
        outlet.write("x")
        outlet.flush()
        assert outlet.failure is not None
        assert not outlet.isatty() if nowhere is None else True


def test_a_failure_elsewhere_is_no_failure_of_the_output(
    tmp_path: pathlib.Path,
) -> None:
    inside, other = str(tmp_path / "out" / "x"), str(tmp_path.parent / "else" / "x")
    for number, name, is_ours in (
        (errno.EACCES, inside, True),
        (errno.EACCES, None, True),
        (errno.EACCES, other, False),
        (errno.ENOENT, other, False),
        (errno.ENOSPC, other, True),
    ):
        with (
            pytest.raises(OSError, match=r"words|have room") as caught,
            writing(tmp_path / "out"),
        ):
            raise OSError(number, "words", name) if name else OSError(number, "words")
        assert isinstance(caught.value, StoreError) == is_ours


FAILURES = {
    "closed": (">&-", 1),
    "full": (">/dev/full", 1),
    "errors full": ("2>/dev/full", 0),
    "errors closed": ("2>&-", 0),
    "ascii": ("", 0),
    "disk": ("", 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES)
def test_every_command_as_a_shell_starts_it(
    failure: str, place: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    redirection, expected = FAILURES[failure]
    environment = dict(os.environ)
    if failure == "ascii":
        environment |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    for number, (command, words) in enumerate(
        [*QUICK.items(), *LONGER.items(), *PRINTING.items()]
    ):
        words = words_of(command, words, place)
        saves = command in QUICK or (command in LONGER and words[1] != "--list")
        target = tmp_path / f"{number}"
        if saves:
            words += ["--out", str(target)]
        limit = "ulimit -f 0;" if failure == "disk" else ""
        if failure == "disk":
            environment["JAX_ENABLE_COMPILATION_CACHE"] = "0"
        done = subprocess.run(
            [
                "bash",
                "-c",
                f'{limit} exec "$0" -m mrsa_jax "$@" {redirection}',
                sys.executable,
                *words,
            ],
            env=environment,
            capture_output=True,
            check=False,
            text=True,
        )
        told = done.stdout + done.stderr
        assert "Traceback" not in told, (words, told)
        assert "Exception ignored" not in told, (words, told)
        if failure == "disk" and not saves and command != "report":
            assert done.returncode == 0, (words, told)
            continue
        assert done.returncode == expected, (words, told)
        assert ("error:" in told) == (expected == 1), (words, told)
        assert target.exists() == ((saves and failure != "disk") or target.exists()), (
            words
        )


def test_a_stream_that_is_closed_at_the_end_changes_no_exit_status() -> None:
    """A log's handler that is shut down may take standard error with it."""
    code = (
        "import atexit, sys\nfrom mrsa_jax.__main__ import run\n"
        "atexit.register(sys.stderr.close)\nsys.argv = ['mrsa-jax', '--version']\nrun()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("mrsa-jax")
