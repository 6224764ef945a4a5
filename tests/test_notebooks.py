"""Notebooks run, and are stored as run in order, ready for a machine without us."""

from __future__ import annotations

import ast
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import jax
import jaxtyping
import matplotlib.pyplot as plt
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 600_000
# folders of a machine, and addresses of objects, which no other run repeats
MACHINE = re.compile(
    r"(?:^|[\s'\"(=])/(?:home|root|tmp|work|Users|var|opt)/|site-packages|0x[0-9a-f]{9}"
)


def _cells(path: pathlib.Path, kind: str = "code") -> list[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == kind]


def _text(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    parts = [output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")]
    return "\n".join("".join(part) for part in parts)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_stored_as_run_in_order(path: pathlib.Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    cells = _cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs), "no figure is stored"
    for output in outputs:
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", _text(output)
        assert not MACHINE.search(_text(output)), _text(output)
        assert "\r" not in _text(output), "bars of progress"
        assert len(output.get("data", {}).get("text/plain", [])) < 40, "a repr of many lines"
    assert "claim holds" in "".join(map(_text, cells[-1]["outputs"]))


def test_the_first_cell_installs_where_the_package_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same in all; it does nothing where the package can be imported."""
    (first,) = {"".join(_cells(path)[0]["source"]) for path in PATHS}
    called: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda words, check: called.append(words))
    exec(first, {})
    assert not called
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("MRSA_JAX_SOURCE", raising=False)
    with pytest.raises(ImportError, match="write a wheel or a git address into `source`"):
        exec(first, {})
    monkeypatch.setenv("MRSA_JAX_SOURCE", "some.whl")
    exec(first, {})
    assert called == [[sys.executable, "-m", "pip", "install", "--quiet", "some.whl"]]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_runs_at_a_small_size(
    path: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process, whose imports and programs all share; at full size each has a kernel."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    names: dict[str, Any] = {"__name__": "__main__"}
    # a user's settings, not the suite's strict ones
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for cell in _cells(path):
            statements = ast.Interactive(ast.parse("".join(cell["source"])).body)
            exec(compile(statements, f"{path.name}[{cell['execution_count']}]", "single"), names)
    plt.close("all")
    assert capsys.readouterr().out.endswith("claim holds\n")
