"""What a command runs in changes nothing that it finds: caches, homes, numba's settings."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
LOG = "round,client\n1,anna\n1,bob\n1,cleo\n2,anna\n2,bob\n"
WATCH = "from mrsa_watch._command import main; import sys; sys.exit(main(sys.argv[1:]))"
FULL = "from mrsa_jax.cli import main; import sys; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    found = tmp_path_factory.mktemp("logs")
    (found / "log.csv").write_text(LOG)
    lines = '{"round": 1, "clients": ["a", "b", "c"]}\n'
    words = "record log.jsonl --system s --aggregation secagg --plain-names"
    _run(found, WATCH, words, {}, lines)
    return found


def _run(
    folder: pathlib.Path, code: str, words: str, changes: dict[str, str | None], text: str = ""
) -> tuple[str, str]:
    """Run a command in changed surroundings; return what it printed."""
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'watch'}"}
    for name, value in changes.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        cwd=folder, env=variables, input=text, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


SURROUNDINGS: dict[str, tuple[dict[str, str | None], str]] = {
    "plain": ({}, ""),
    "compiler off": ({"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is ignored"),
    "no threads": ({"NUMBA_NUM_THREADS": "0"}, ""),
    "fewer than no threads": ({"NUMBA_NUM_THREADS": "-2"}, ""),
    "no folder for loops": ({"NUMBA_CACHE_DIR": "/proc/none"}, ""),
    "no home": ({"HOME": None, "XDG_CACHE_HOME": None, "JAX_COMPILATION_CACHE_DIR": None}, ""),
    "a home that is none": ({"HOME": "/proc/none", "JAX_COMPILATION_CACHE_DIR": None}, ""),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_an_audit_and_a_watch_are_the_same_everywhere(folder: pathlib.Path, name: str) -> None:
    changes, message = SURROUNDINGS[name]
    out, errors = _run(folder, FULL, "audit log.csv --effort 0 --json", changes)
    assert json.loads(out)["exposed"] == [{"client": "cleo", "first_round": 2}]
    out, errors = _run(folder, WATCH, "watch log.jsonl --once --json", changes)
    assert json.loads(out)["strong"] == 3
    assert message in errors
    assert sorted(path.name for path in folder.iterdir()) == ["log.csv", "log.jsonl"]


def test_a_damaged_cache_is_made_again(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    changes = {"NUMBA_CACHE_DIR": str(tmp_path)}
    words = "watch log.jsonl --once --json"
    expected, errors = _run(folder, WATCH, words, changes)
    assert errors == ""
    entries = [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert entries
    for number, path in enumerate(entries):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if number % 2 else b"\x80no pickle")
    out, errors = _run(folder, WATCH, words, changes)
    assert out == expected
    assert errors.count("compiled code is not kept") <= 2
    out, errors = _run(folder, WATCH, words, changes)
    assert (out, errors) == (expected, "")


def test_where_nothing_can_be_kept_it_is_said_once(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A package that is read-only, for a user without a home."""
    code = (
        "import mrsa_watch._base.compiled as c\n"
        "c.cache_folder = lambda: None\nc.may_write = lambda path: False\n"
        f"{WATCH}"
    )
    out, errors = _run(folder, code, "watch log.jsonl --once --json", {})
    assert json.loads(out)["strong"] == 3
    assert errors.count("NUMBA_CACHE_DIR") == 1
