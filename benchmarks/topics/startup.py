"""Seconds from a command's start to the first compilation of its work, beside JAX by itself.

Byte code and compiled programs are in their caches: the first start of a case puts them
there. A start ends where JAX says (`JAX_LOG_COMPILES`) that it compiles the first
program after the first line of progress; small programs of the preparations come
before. Commands without progress begin with their first program, and those that compile
nothing run to their end. One case is of a first finding instead, by a command that has
nothing in its caches of programs.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from mrsa_jax.bench.harness import Case, Measurement, compare

_COMPILES = ("Compiling ",)
_WORKS = ("s] ", *_COMPILES)  # a line of progress begins with its seconds
_CACHES = ("JAX_COMPILATION_CACHE_DIR", "NUMBA_CACHE_DIR")
_JAX_ALONE = "import jax; jax.jit(lambda x: x + 1)(1.0)"
_LAST_LINES = 5
_LOG = "round,client\n" + "".join(
    f"{j},{(j + i) % 9}\n" for j in range(40) for i in range(4)
)
_SWEEP = """command = "simulate"
rounds = 40
trials = 4
[grid]
scheme = ["uniform", "partition", "batch_partitioning"]
privacy_target = [3, 4, 6]
"""


@dataclasses.dataclass(frozen=True)
class _Command:
    """A command whose start is measured.

    Attributes:
        words: What follows `mrsa-jax`.
        until: Parts of lines that it prints; its start is over when they have come, one
            after another. None at all: when it ends.
        files: What it reads, by name, in the folder above the one that it runs in.
        before: Words of a command that makes what it reads, in that folder.
        is_cold: Whether its caches of compiled programs are empty each time.
    """

    words: str
    until: tuple[str, ...] = _WORKS
    files: tuple[tuple[str, str], ...] = ()
    before: str = ""
    is_cold: bool = False


_QUICK = {
    "simulate": _Command("simulate"),
    "sweep": _Command("sweep ../study.toml", files=(("study.toml", _SWEEP),)),
}
_ALL = {
    "--help": _Command("--help", ()),
    "demo": _Command("demo"),
    "demo, first finding, cold": _Command("demo", ("Strong T",), is_cold=True),
    **_QUICK,
    "train": _Command("train"),
    "audit": _Command("audit ../log.csv", _COMPILES, files=(("log.csv", _LOG),)),
    "secagg": _Command("secagg", _COMPILES),
    "attack least-squares": _Command("attack least-squares"),
    "attack gradients": _Command("attack gradients"),
    "bench": _Command("bench pads --quick"),
    "report": _Command(
        "report ../study", (), before="simulate --rounds 8 --trials 2 --out study"
    ),
    "data": _Command("data list", ()),
}


def _with_bytecode() -> dict[str, str]:
    """Return the environment, in which Python keeps its byte code whatever a container says."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }


def cold_environment(folder: str) -> dict[str, str]:
    """Return the environment of a program whose caches of compiled programs are empty.

    Args:
        folder: An empty folder, for the caches.
    """
    return _with_bytecode() | {name: f"{folder}/{name}" for name in _CACHES}


def _start(
    command: Sequence[str],
    folder: pathlib.Path,
    until: Sequence[str],
    is_cold: bool = False,
) -> str:
    """Start a program, stop it once its start is over.

    Return what went wrong, or nothing.
    """
    own = tempfile.mkdtemp(dir=folder)
    environment = cold_environment(own) if is_cold else _with_bytecode()
    awaited, said = list(until), []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=own,
        env=environment | {"JAX_LOG_COMPILES": "1"},
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line)
                if awaited and awaited[0] in line:
                    awaited.pop(0)
                    if not awaited:
                        return ""
            status = process.wait()
        finally:
            process.kill()
    if not awaited and status == 0:
        return ""
    return f"ended with {status}: " + "".join(said[-_LAST_LINES:])


def _measure(command: _Command, repeats: int) -> Measurement:
    ours = [sys.executable, "-m", "mrsa_jax"]

    def check(problem: str, of_jax: str) -> None:
        assert not problem, problem
        assert not of_jax, of_jax

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = pathlib.Path(place)
        for name, text in command.files:
            (folder / name).write_text(text, encoding="utf-8")
        if command.before:
            subprocess.run(
                [*ours, *command.before.split()],
                cwd=folder,
                check=True,
                capture_output=True,
            )
        return compare(
            lambda: _start(
                [*ours, *command.words.split()], folder, command.until, command.is_cold
            ),
            lambda: _start([sys.executable, "-c", _JAX_ALONE], folder, _COMPILES),
            work=1,
            unit="starts",
            peer_name="import jax, and its first program",
            check=check,
            repeats=repeats,
            note="aimed at: 15 s on two cores, up to the table of what a server can know"
            if command.is_cold
            else "aimed at: 3 s on two cores, up to the first program that is compiled after the "
            "first line of progress, or to the end of what compiles nothing",
        )


def cases(quick: bool) -> list[Case]:
    """Return the start of every command, or of two."""
    chosen, repeats = (_QUICK, 1) if quick else (_ALL, 3)
    return [
        Case(name, functools.partial(_measure, command=command, repeats=repeats))
        for name, command in chosen.items()
    ]
