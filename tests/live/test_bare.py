"""The small distribution in an environment that holds NumPy and nothing else of ours."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
UV = shutil.which("uv", path=str(pathlib.Path(sys.executable).parent))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(UV is None, reason="uv builds and installs")]
# what these test needs nothing but the small distribution, so they are the same tests
FILES = [
    *(f"tests/live/test_{name}.py" for name in ("follow", "held", "history", "recorder")),
    *(f"tests/live/test_{name}.py" for name in ("killed", "command", "preflight")),
    "tests/privacy/test_checker_by_hand.py",
    "tests/privacy/logs/test_jsonl.py",
]
MOST_MB = 80


def _run(*words: str, folder: pathlib.Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("bare")
    assert UV is not None
    _run(UV, "venv", "-q", "-p", sys.executable, str(folder / "env"), folder=folder)
    python = folder / "env" / "bin" / "python"
    pins = str(ROOT / "constraints.txt")
    _run(UV, "pip", "install", "-q", "-p", str(python), "-c", pins, str(ROOT / "watch"),
         folder=folder)  # fmt: skip
    return python


def test_it_is_small_and_loads_no_jax(bare: pathlib.Path) -> None:
    (packages,) = bare.parents[1].glob("lib/python*/site-packages")
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 2**20
    print(f"{size:.0f} MB")  # noqa: T201  (shown by -s and on failure)
    assert size < MOST_MB
    code = "import sys; from mrsa_watch import Gate, Recorder; print('jax' in sys.modules)"
    assert _run(str(bare), "-c", code, folder=bare.parent) == "False\n"
    installed = {path.name.split("-")[0] for path in packages.glob("*.dist-info")}
    assert installed == {"mrsa_watch", "numpy"}


def test_its_tests_pass_there(bare: pathlib.Path) -> None:
    assert UV is not None
    pins = str(ROOT / "constraints.txt")
    tools = ("pytest", "hypothesis", "prometheus-client")
    _run(UV, "pip", "install", "-q", "-p", str(bare), "-c", pins, *tools, folder=ROOT)
    options = ["-q", "-c", "/dev/null", "--noconftest", "--import-mode=importlib",
               "-p", "no:cacheprovider", "--rootdir", str(ROOT)]  # fmt: skip
    told = _run(str(bare), "-m", "pytest", *options, *FILES, folder=ROOT)
    assert " passed" in told
