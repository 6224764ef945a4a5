"""Seconds from a command's start to the first compilation of its work.

Byte code and compiled programs are in their caches: the first start of a case puts them
there. A start ends where JAX says (`JAX_LOG_COMPILES`) that it compiles the first
program after the first line of progress; small programs of the preparations come
before. Commands without progress begin with their first program, and those that compile
nothing run to their end. One case is of a first finding instead, by a command that has
nothing in its caches of programs.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from mrsa_jax.bench.harness import Measurement, compare

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
_FILES = {"study.toml": _SWEEP, "log.csv": _LOG}


def _with_bytecode() -> dict[str, str]:
    """Return the environment, in which Python keeps its byte code."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # empty: not set


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
    place = tempfile.mkdtemp(dir=folder)
    environment = cold_environment(place) if is_cold else _with_bytecode()
    # lines are awaited in this order
    awaited = list(until)
    lines = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=place,
        env=environment | {"JAX_LOG_COMPILES": "1"},
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if awaited and awaited[0] in line:
                    awaited.pop(0)
                    if not awaited:
                        return ""
            status = process.wait()
        finally:
            # the start is over, and the work after it does not matter
            process.kill()
    if not awaited and status == 0:
        return ""
    return f"ended with {status}: " + "".join(lines[-_LAST_LINES:])


def starts(
    command: str,
    until: Sequence[str] = _WORKS,
    before: str = "",
    is_cold: bool = False,
) -> Measurement:
    """Time the start of a command; it is over when it has printed what is awaited.

    Args:
        command: The words that follow `mrsa-jax`; it may read the files of `_FILES` in
            the folder above its own.
        until: Parts of lines, awaited one after another; none at all: until it ends.
        before: Words of a command that makes what it reads, in that folder.
        is_cold: Whether its caches of compiled programs are empty each time.
    """
    ours = [sys.executable, "-m", "mrsa_jax"]

    def check(problem: str, of_jax: str) -> None:
        assert not problem, problem
        assert not of_jax, of_jax

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = pathlib.Path(place)
        for name, text in _FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
        if before:
            words = [*ours, *before.split()]
            subprocess.run(words, cwd=folder, check=True, capture_output=True)
        return compare(
            lambda: _start([*ours, *command.split()], folder, until, is_cold),
            lambda: _start([sys.executable, "-c", _JAX_ALONE], folder, _COMPILES),
            work=1,
            check=check,
        )
