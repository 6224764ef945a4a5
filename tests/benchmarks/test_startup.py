"""Starts of programs.

They end at the awaited line, and a program that never says it is wrong.
"""

from __future__ import annotations

import pathlib
import sys
import time

import pytest

from benchmarks.topics import startup as _startup
from mrsa_jax.bench import harness


def _program(code: str) -> list[str]:
    return [sys.executable, "-c", f"import sys, time\n{code}"]


def test_a_start_ends_at_the_line_and_the_program_with_it(
    tmp_path: pathlib.Path,
) -> None:
    code = (
        "open('begun', 'w')\n"
        "for line in ('it begins not', 'soon', 'now it begins'):\n"
        "    print(line, file=sys.stderr, flush=True)\n"
        "time.sleep(60); open('late', 'w')"
    )
    begun = time.monotonic()
    assert _startup._start(_program(code), tmp_path, ["soon", "it begins"]) == ""
    assert time.monotonic() - begun < 50
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"begun"}


@pytest.mark.parametrize("until", [["it begins"], []])
def test_a_program_that_breaks_down_is_no_start(
    until: list[str], tmp_path: pathlib.Path
) -> None:
    problem = _startup._start(_program("sys.exit('broken')"), tmp_path, until)
    assert problem.startswith("ended with 1")
    assert problem.endswith("broken\n")


def test_a_program_that_ends_without_the_line_is_no_start(
    tmp_path: pathlib.Path,
) -> None:
    assert _startup._start(_program(""), tmp_path, ["it begins"]).startswith(
        "ended with 0"
    )
    assert _startup._start(_program(""), tmp_path, []) == ""


def test_a_cold_start_has_empty_caches_of_its_own_each_time(
    tmp_path: pathlib.Path,
) -> None:
    code = (
        "import os\n"
        "place = os.environ['JAX_COMPILATION_CACHE_DIR'], "
        "os.environ['NUMBA_CACHE_DIR']\n"
        "used = any(map(os.path.exists, place))\n"
        "[os.makedirs(one, exist_ok=True) for one in place]\n"
        "print('used' if used else 'empty')"
    )
    for _ in range(2):
        assert _startup._start(_program(code), tmp_path, ["empty"], is_cold=True) == ""


@pytest.mark.long
def test_a_case_that_does_not_start_has_no_time() -> None:
    with pytest.raises(harness.ResultsDifferError, match="must be a known command"):
        _startup.starts("simulte")
