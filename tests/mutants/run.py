"""Make the mutants one at a time, and report which of them the tests kill.

    python tests/mutants/run.py [--family NAME ...] [--match PATTERN] [--tier test|long]

Works on a copy of the repository. A process that has imported the heavy libraries forks
for each mutant, whose tests so start at once. A mutant is killed if one of its tests
fails, or if they do not end in time; without a mutant all of them must pass. The
seconds are processor seconds of tests and imports. The exit status is 1 if fewer
mutants are killed than the tier asks for.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings

import pytest
from rows import ROOT, Mutant, mutants

LEAST_KILLED = {"test": 0.9, "long": 0.95}
LIMIT_SECONDS = 600.0
_HEAVY = (
    "jax", "flax.linen", "optax", "numba", "scipy.stats", "pandas", "xarray", "zarr", "flint",
    "beartype", "hypothesis", "cryptography.hazmat.primitives.asymmetric",
)  # fmt: skip
_OPTIONS = (
    "-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
# JAX reads these when it is imported, before `conftest.py`, which says why.
_SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
_PASSED, _FAILED, _BROKEN, _NO_TEST, _TIMEOUT, _NO_PYTEST = 0, 1, 2, 5, -1, 99
_VERDICTS = {
    _PASSED: "survived",
    _FAILED: "killed",
    _BROKEN: "killed",
    _NO_TEST: "survived (no such test)",
    _TIMEOUT: "killed (no end)",
}


def _copy(tree: pathlib.Path) -> None:
    def ignored(folder: str, names: list[str]) -> set[str]:
        hidden = (
            {name for name in names if name.startswith(".")}
            if folder == str(ROOT)
            else set()
        )
        return hidden | {"__pycache__", "build", "dist", "results"}

    shutil.copytree(ROOT, tree, ignore=ignored)


def _pytest(
    tree: pathlib.Path, arguments: list[str], limit: float
) -> tuple[int, float, str]:
    """Return the exit status of pytest in a fork, its processor seconds, and what it printed."""
    log = tree.parent / "log"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(tree)
        sys.path[:1] = str(tree), str(tree / "watch")
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
        # what is imported is compiled once for all mutants, beside the copies
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        try:
            status = int(pytest.main([*_OPTIONS, *arguments]))
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
            status = _NO_PYTEST
        os._exit(status)
    end, done = time.monotonic() + limit, 0
    while not done and time.monotonic() < end:
        time.sleep(0.02)
        done, status, used = os.wait4(pid, os.WNOHANG)
    if not done:
        os.killpg(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status) if done else _TIMEOUT
    return code, used.ru_utime + used.ru_stime, log.read_text()


def _is_killed(mutant: Mutant, tree: pathlib.Path, number: int, tier: str) -> bool:
    """Change the copy, run the mutant's tests, change it back; tell of it in a line."""
    path = tree / mutant.file
    source, date = path.read_text(), path.stat().st_mtime_ns
    path.write_text(mutant.text(tree))
    # no bytecode or machine code kept of the file is of this date
    os.utime(path, (number, number))
    status, seconds, printed = _pytest(tree, _arguments([mutant], tier), LIMIT_SECONDS)
    path.write_text(source)
    os.utime(path, ns=(date, date))
    if status not in _VERDICTS:
        raise RuntimeError(f"{mutant.name}: pytest ended with {status}:\n{printed}")
    killer = re.search(r"^(FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    by = f"  by {killer[2]}" if killer else ""
    _say(f"{seconds:6.1f} s  {_VERDICTS[status]}  {mutant.name}{by}")
    return status not in (_PASSED, _NO_TEST)


def _arguments(rows: list[Mutant], tier: str) -> list[str]:
    tests = [
        test
        for row in rows
        for test in (*row.tests, *(row.long if tier == "long" else ()))
    ]
    return [*(("-m", "not slow") if tier == "long" else ()), *dict.fromkeys(tests)]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--family", nargs="*", help="only the mutants of these families"
    )
    parser.add_argument(
        "--match", default="", help="only those whose place or reason this finds"
    )
    parser.add_argument("--tier", choices=tuple(LEAST_KILLED), default="test")
    return parser.parse_args()


def main() -> int:
    """Run what is asked for."""
    asked = _asked()
    rows = [row for row in mutants() if not asked.family or row.family in asked.family]
    rows = [row for row in rows if re.search(asked.match, row.name)]
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore")  # of forks beside threads: none of ours runs yet
    for library in _HEAVY:
        importlib.import_module(library)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = pathlib.Path(folder, "tree")
        _copy(tree)
        status, seconds, printed = _pytest(tree, _arguments(rows, asked.tier), math.inf)
        if status != _PASSED:
            _say(f"{printed}\nThe tests must pass without a mutant.")
            return 2
        _say(f"{seconds:6.1f} s  all tests pass without a mutant")
        killed = [
            _is_killed(row, tree, number, asked.tier)
            for number, row in enumerate(rows, 1)
        ]
    survivors = [row.name for row, dead in zip(rows, killed, strict=True) if not dead]
    _say(
        f"{sum(killed)} of {len(rows)} mutants killed in "
        f"{time.monotonic() - start:.0f} s"
    )
    _say("".join(f"  survived: {name}\n" for name in survivors))
    return int(sum(killed) < LEAST_KILLED[asked.tier] * len(rows))


if __name__ == "__main__":
    sys.exit(main())
