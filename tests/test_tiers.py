"""Which tests run when, and what a default test may cost: the rules of conftest.py."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import jaxtyping
import numpy as np
import pytest

from mrsa_jax.secagg.failures import _verdicts

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEAR = """
import time
import pytest

def spend(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass

@pytest.fixture(scope="module")
def prepared():
    spend(1)

def test_cheap():
    spend(0.01)

def test_with_a_dear_fixture(prepared):
    pass

def test_with_a_dear_child():
    import subprocess, sys
    code = "import time\\nwhile time.process_time() < 1: pass"
    subprocess.run([sys.executable, "-c", code], check=True)

@pytest.mark.long
@pytest.mark.parametrize("case", range(2))
def test_listed(case):
    spend(1)

def test_compiles_a_loop():
    from mrsa_jax._core.compiled import compiled

    def count(values):
        total = 0
        for value in values:
            total += value
        return total

    import numpy as np

    compiled(count)(np.arange(3))
"""


def test_examples_of_the_long_tier_are_there_once_each() -> None:
    lines = (ROOT / "tests" / "long_examples.txt").read_text().splitlines()
    assert lines == sorted(set(lines))
    for line in lines:
        file, _, example = line.partition("::")
        assert example.rpartition(".")[2] in (ROOT / file).read_text(), line


@pytest.mark.long
def test_too_dear_a_test_fails_the_session(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    rules = (ROOT / "conftest.py").read_text()
    for usual, own in (
        ("_FAILS = 4", "_FAILS = 1"),
        ('"a test": 1.0', '"a test": 0.5'),
    ):
        assert rules.count(usual) == 1
        rules = rules.replace(usual, own)
    (tmp_path / "conftest.py").write_text(rules)
    (tmp_path / "tests" / "long_examples.txt").touch()
    (tmp_path / "tests" / "test_dear.py").write_text(DEAR)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "--costs", "tests"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )
    assert "4 passed" in done.stdout, done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    told = done.stdout.partition("too dear")[2]
    assert "test_with_a_dear_fixture" in told
    assert "test_with_a_dear_child" in told
    assert "test_cheap" not in told
    assert "test_compiles_a_loop" not in told


@pytest.mark.long
def test_a_file_that_makes_jax_values_at_its_import_is_an_error(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copy(ROOT / "tests" / "long_examples.txt", tmp_path / "tests")
    for name, value in (
        ("a_numpy", "numpy.ones(2)"),
        ("b_jax", "jax.numpy.ones(2)"),
        ("c", "1"),
    ):
        code = f"import jax, numpy\n\nVALUE = {value}\n\n\ndef test_one():\n    pass\n"
        (tmp_path / "tests" / f"test_{name}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "--collect-only", "tests"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert "tests/test_b_jax.py makes JAX values when it is imported" in done.stdout
    assert "3 tests collected, 1 error" in done.stdout


@pytest.mark.parametrize("turn", range(2))
def test_types_are_checked_in_the_first_calls_of_each_test(turn: int) -> None:
    floats = np.zeros(3, np.float32)  # not on the device, and not of bools
    for _ in range(10):
        with pytest.raises(jaxtyping.TypeCheckError, match="_packed"):
            _verdicts._packed(floats)
    assert not _verdicts._packed(floats).any()
