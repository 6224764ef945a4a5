"""The small distribution in an environment that holds NumPy and nothing else of ours."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest

from mrsa_watch import MrsaError, read_log

ROOT = pathlib.Path(__file__).parents[2]
UV = shutil.which("uv", path=str(pathlib.Path(sys.executable).parent))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(UV is None, reason="uv builds and installs"),
]
# what these test needs nothing but the small distribution, so they are the same tests
FILES = [
    *(
        f"tests/live/test_{name}.py"
        for name in ("follow", "held", "history", "recorder")
    ),
    *(
        f"tests/live/test_{name}.py"
        for name in ("killed", "command", "preflight", "exact")
    ),
    "tests/live/test_vectors.py",
    "tests/privacy/test_checker_by_hand.py",
    "tests/privacy/logs/test_jsonl.py",
]
MOST_MB = 80
COUNT = 1000


def _run(*words: str, folder: pathlib.Path) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "privacy")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("bare")
    assert UV is not None
    _run(UV, "venv", "-q", "-p", sys.executable, str(folder / "env"), folder=folder)
    python = folder / "env" / "bin" / "python"
    pins = str(ROOT / "constraints.txt")
    _run(
        UV,
        "pip",
        "install",
        "-q",
        "-p",
        str(python),
        "-c",
        pins,
        str(ROOT / "watch"),
        folder=folder,
    )
    return python


def test_it_is_small_and_loads_no_jax(bare: pathlib.Path) -> None:
    (packages,) = bare.parents[1].glob("lib/python*/site-packages")
    size = (
        sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
        / 2**20
    )
    print(f"{size:.0f} MB")  # noqa: T201  (shown by -s and on failure)
    assert size < MOST_MB
    code = (
        "import sys; from mrsa_watch import Gate, Recorder; print('jax' in sys.modules)"
    )
    assert _run(str(bare), "-c", code, folder=bare.parent) == "False\n"
    installed = {path.name.split("-")[0] for path in packages.glob("*.dist-info")}
    assert installed == {"mrsa_watch", "numpy"}


def test_its_tests_pass_there(bare: pathlib.Path) -> None:
    assert UV is not None
    pins = str(ROOT / "constraints.txt")
    tools = ("pytest", "hypothesis", "prometheus-client")
    _run(UV, "pip", "install", "-q", "-p", str(bare), "-c", pins, *tools, folder=ROOT)
    options = [
        "-q",
        "-c",
        "/dev/null",
        "--noconftest",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(ROOT),
    ]
    told = _run(str(bare), "-m", "pytest", *options, *FILES, folder=ROOT)
    assert " passed" in told


def readings(folder: str, count: int) -> list[str]:
    """Return what is said of each log of a folder; runs in both environments."""
    said = []
    for k in range(count):
        try:
            log = read_log(pathlib.Path(folder) / f"{k}.log", memory_bytes=1 << 20)
            said.append(repr((log.participation.tolist(), log.rounds, log.clients)))
        except MrsaError as error:
            said.append(re.sub("0x[0-9a-f]+", "an address", str(error)))
    return said


def test_hostile_logs_are_read_there_as_here(
    bare: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = ROOT / "tests" / "test_hostile_files.py"
    spec = importlib.util.spec_from_file_location("test_hostile_files", path)
    assert spec is not None
    assert spec.loader is not None
    files = sys.modules["test_hostile_files"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(files)
    rng, seeds = np.random.default_rng(5), [*files.LINES, *files.TEXTS, *files.ARRAYS]
    for k in range(COUNT):
        data = seeds[k % len(seeds)]
        data = data if k < len(seeds) else files._mutant(data, rng)
        (tmp_path / f"{k}.log").write_bytes(data)
    with warnings.catch_warnings(action="ignore"):  # as outside of pytest
        here = readings(str(tmp_path), COUNT)
    assert sum(words.startswith("(") for words in here) > COUNT / 20
    code = "\n".join(
        (
            "import json, pathlib, re, sys",
            "from mrsa_watch import MrsaError, read_log",
            inspect.getsource(readings),
            f"print(json.dumps(readings(sys.argv[1], {COUNT})))",
        )
    )
    there = json.loads(_run(str(bare), "-c", code, str(tmp_path), folder=tmp_path))
    alike = [k for k, words in enumerate(there) if "pip install 'pyarrow" not in words]
    assert len(alike) > 0.95 * COUNT
    assert [there[k] for k in alike] == [here[k] for k in alike]
