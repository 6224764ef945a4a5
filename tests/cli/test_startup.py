"""Commands start without what they do not need yet.

Where work begins, it is not imported.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

# Runs commands until they compile their first program, or report their first stage;
# then it prints which of the named modules are there. Each of several is a copy of one
# process that has JAX.
_UNTIL_WORK = """
import logging, os, sys

os.environ["JAX_LOG_COMPILES"] = "1"
rows = [row.split("|") for row in sys.argv[1:]]
if len(rows) > 1:
    import jax
for place, (words, moment, heavy) in enumerate(rows):
    if len(rows) == 1 or os.fork() == 0:
        break
    if os.wait()[1]:
        print("ended before work began:", words)
else:
    os._exit(0)

def stop():
    names = [name for name in heavy.split() if name in sys.modules]
    print(f"loaded by {words}:", *names, flush=True)
    os._exit(0)

class AtCompile(logging.Handler):
    def emit(self, record):
        if record.getMessage().startswith("Compiling"):
            stop()

from mrsa_jax.cli import console, main

if moment == "compile":
    logging.getLogger("jax").addHandler(AtCompile())
else:
    console.Bars.stage = lambda *_: stop()
os._exit(main(words.split()) or 1)
"""
# Only results, figures, workers and a few data sets need these.
_NEVER = "dask distributed matplotlib.pyplot pandas scipy.stats sklearn torch tensorflow xarray"
_MODELS = "flax optax"  # and what knows them
_STORE = "zarr"
_LOG = "round,client\n0,a\n0,b\n1,b\n1,c\n2,a\n2,c\n"
_SWEEP = 'rounds = 8\ntrials = 2\n[grid]\nscheme = ["uniform", "partition"]\n'


def _loaded(
    rows: list[tuple[str, str, str]], folder: pathlib.Path
) -> dict[str, list[str]]:
    """Return of each command which modules were there when its work began."""
    (folder / "log.csv").write_text(_LOG)
    (folder / "study.toml").write_text(_SWEEP)
    done = subprocess.run(
        [sys.executable, "-c", _UNTIL_WORK, *map("|".join, rows)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"^loaded by (.*?):(.*)$", done.stdout, re.MULTILINE))
    assert list(found) == [words for words, _, _ in rows], done.stdout + done.stderr
    return {words: names.split() for words, names in found.items()}


@pytest.mark.long
def test_what_is_not_loaded_when_work_begins(tmp_path: pathlib.Path) -> None:
    rows = [
        ("simulate", "stage", f"{_NEVER} {_MODELS} {_STORE}"),
        ("train", "stage", f"{_NEVER} {_STORE}"),
        ("sweep study.toml", "stage", f"{_NEVER} {_MODELS} {_STORE}"),
        ("secagg", "compile", f"{_NEVER} {_MODELS} {_STORE}"),
        ("segments --fidelity sets --dim 10", "stage", f"{_NEVER} {_MODELS} {_STORE}"),
        ("audit log.csv", "compile", f"{_NEVER} {_MODELS} {_STORE}"),
        ("advise --log log.csv", "stage", f"{_NEVER} {_MODELS} {_STORE}"),
        ("attack disaggregation", "compile", f"{_NEVER} {_STORE}"),
        ("attack gradients", "compile", f"{_NEVER} {_STORE}"),
        ("reproduce multiround.fig4a --fast", "compile", f"{_NEVER} {_STORE}"),
    ]
    assert _loaded(rows, tmp_path) == {words: [] for words, _, _ in rows}


@pytest.mark.long
def test_what_a_command_needs_would_be_seen(tmp_path: pathlib.Path) -> None:
    seen = _loaded(
        [("train", "stage", "flax xarray"), ("sweep study.toml", "stage", "zarr")],
        tmp_path,
    )
    assert list(seen.values()) == [["flax"], []]
    assert _loaded([("sweep study.toml", "stage", "jax zarr")], tmp_path) == {
        "sweep study.toml": ["jax"]
    }


_MISSING = """
import sys
from mrsa_jax.cli import main

for words in sys.argv[2:]:
    assert main(words.split()) == 2, words
    print("loaded:", *(name for name in sys.argv[1].split() if name in sys.modules), flush=True)
"""
_ABSENT = {
    "audit none.csv": "none.csv: expected a file",
    "advise --log none.csv": "none.csv: expected a file",
    "watch none.csv": "`file` must be a participation log that is there",
    "sweep none.toml": "`study` must be an existing TOML file",
    "report none": "`folder` must be a folder",
}


def test_a_missing_file_is_told_before_anything_heavy_is_imported(
    tmp_path: pathlib.Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MISSING, "jax numpy numba scipy", *_ABSENT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["loaded:"] * len(_ABSENT)
    errors = done.stderr.splitlines()
    assert len(errors) == len(_ABSENT), done.stderr
    for line, words in zip(errors, _ABSENT.values(), strict=True):
        assert line.startswith("error: ")
        assert words in line
