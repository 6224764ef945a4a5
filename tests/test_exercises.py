"""Exercises of notebooks: each number is changed as its text asks, and all cells run."""

from __future__ import annotations

import ast
import json
import pathlib
from typing import Any

import jax
import jaxtyping
import matplotlib.pyplot as plt
import pytest

NOTEBOOKS = pathlib.Path(__file__).resolve().parents[1] / "notebooks"

# of the size of the tests: the text of the notebook, and what its exercise makes of it
CHANGES = {
    "01_multi_round_leakage": [
        ("(24, 6, 60, 500)", "(24, 6, 90, 500)"),
        ("(24, 6, 60, 500)", "(24, 12, 60, 500)"),
    ],
    "02_certified_privacy": [("(24, 8, 4, 40)", "(24, 8, 2, 40)")],
    "03_secagg_step_by_step": [('rule = "majority"', 'rule = "remark4"')],
    "04_heterogeneous_quantization": [
        ("hetero.segment_matrix(scheme, 5)", "hetero.segment_matrix(scheme, 6)")
    ],
    "05_accuracy_against_privacy": [("0.4, 0.5), num", "0.4, 0.7), num")],
    "06_attacks": [('("digits", 8, 20, 75)', '("digits", 8, 30, 75)')],
    "07_sweeps": [("[0.02, 0.6, num_rates]", "[0.02, 0.7, num_rates]")],
    "08_byzantine_clients": [('("digits", 5, 20, 10)', '("digits", 7, 20, 10)')],
    "09_availability": [("(3, 4, 6, 12)\n", "(2, 3, 4, 6, 12)\n")],
    "10_audit_your_log": [("(16, 4, 4, 60)", "(16, 4, 8, 60)")],
    "11_hidden_among": [("(32, 8, 4, 16)", "(32, 8, 2, 16)")],
    "12_differential_privacy": [
        ("= 1.0, 4.0, 1e-5, 0", "= 1.0, 2.0, 1e-5, 0"),
        ("= 1.0, 4.0, 1e-5, 0", "= 1.0, 8.0, 1e-5, 0"),
    ],
    "13_explore": [("(24, 6, 60)", "(36, 6, 60)"), ("(24, 6, 60)", "(24, 12, 60)")],
    "14_attributes": [
        ("local_steps = 0 ", "local_steps = 1 "),
        ("num_held = 6 ", "num_held = 1 "),
    ],
}


def test_every_notebook_has_its_exercise() -> None:
    assert sorted(CHANGES) == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [(name, *pair) for name, pairs in CHANGES.items() for pair in pairs],
)
def test_the_exercise_runs(
    name: str,
    old: str,
    new: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    cells = [
        "".join(cell["source"])
        for cell in json.loads(text)["cells"]
        if cell["cell_type"] == "code"
    ]
    assert sum(cell.count(old) for cell in cells) == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MRSA_JAX_SMALL", "1")
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    names: dict[str, Any] = {"__name__": "__main__"}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for number, cell in enumerate(cells):
            statements = ast.Interactive(ast.parse(cell.replace(old, new)).body)
            exec(compile(statements, f"{name}[{number}]", "single"), names)
    plt.close("all")
    assert capsys.readouterr().out.endswith("claim holds\n")
