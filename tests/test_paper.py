"""The report in `paper/`.

Its text is made from its numbers, and these from the package.
"""

from __future__ import annotations

import json
import pathlib
import re
import runpy
import subprocess
import sys
from typing import Any

import pytest

PAPER = pathlib.Path(__file__).resolve().parents[1] / "paper"
MAKER = PAPER / "make.py"
MAKE = runpy.run_path(str(MAKER))
TEMPLATE = (PAPER / "paper.template.md").read_text(encoding="utf-8")
NUMBERS = json.loads((PAPER / "numbers.json").read_text(encoding="utf-8"))
# what may hold digits of its own: formulas, code, names of files; entries of the
# bibliography
_SYMBOLS = re.compile(
    r"```.*?^```$|`[^`]*`|^    .*$|\]\([^)]*\)", re.MULTILINE | re.DOTALL
)


def typed(template: str) -> list[str]:
    """Return the digits of a template that neither a placeholder nor a formula holds."""
    body, _, _ = template.partition("\n## References\n")
    return re.findall(r".*\d.*", _SYMBOLS.sub("", re.sub(r"\{[^{}]*\}", "", body)))


def test_the_text_is_the_template_filled_with_the_numbers() -> None:
    text = MAKE["text"](NUMBERS, TEMPLATE)
    assert text == (PAPER / "paper.md").read_text(encoding="utf-8")
    assert len(text.split("## References")[0].split()) > 2_500
    # no list or code by wrapping
    assert not re.search(r"^\d+[.)] |^```.*```$", text, re.MULTILINE)
    for name in re.findall(r"\]\((figures/\w+\.svg)\)", text):
        assert (PAPER / name).read_text(encoding="utf-8").startswith("<?xml"), name


def test_no_number_is_typed_by_hand() -> None:
    assert typed(TEMPLATE) == []
    assert typed("a {b[c]:.2f} of `1/T`\n\n    h = 1\n\n```\n2\n```\n") == []
    assert typed("T is 4 {b}\n\n## References\n\n1982") == ["T is 4 "]


def test_a_line_is_repeated_for_each_entry() -> None:
    told = {"a": {"n": 2, "rows": {"x": {"y": 1.0}, "z": {"y": 2.5}}}}
    text = MAKE["text"](told, "of {a[n]}\n%each a[rows]: | {y:.1f} |\n")
    assert text == "of 2\n| 1.0 |\n| 2.5 |\n"


def test_rules_ask_whom_frameworks_ask() -> None:
    """Six rules: all but drawing with replacement ask K clients, and a cycle is a partition."""
    rules = MAKE["rules"](12, 4, 0)
    sums = {name: MAKE["replayed"](rule, 12, 6) for name, rule in rules.items()}
    assert all((one.sum(axis=1) == 4).all() for one in sums.values())
    assert {name for name, one in sums.items() if one.max() > 1} == {"pfl, random"}
    assert (sums["pfl, minimize_reuse"][:3] == sums["pfl, minimize_reuse"][3:]).all()
    again = MAKE["replayed"](MAKE["rules"](12, 4, 1)["FedML"], 12, 6)
    assert (again == sums["FedML"]).all()  # in every deployment


def flat(told: Any, path: str = "") -> dict[str, Any]:
    """Return every number by its path."""
    if isinstance(told, dict | list):
        pairs = told.items() if isinstance(told, dict) else enumerate(told)
        return {
            key: value
            for name, one in pairs
            for key, value in flat(one, f"{path}/{name}").items()
        }
    return {path: told}


@pytest.mark.long
def test_numbers_are_those_that_the_package_computes() -> None:
    """Counts, certified and exposed clients exactly.

    A training and what follows from it nearly.
    """
    code = f"import json, runpy; print(json.dumps(runpy.run_path({str(MAKER)!r})['numbers']()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=1_800,
    )
    assert done.returncode == 0, done.stderr
    found, stored = flat(json.loads(done.stdout.splitlines()[-1])), flat(NUMBERS)
    assert found.keys() == stored.keys()
    for path, value in stored.items():
        if isinstance(value, float):
            near = (
                0.02
                if path.startswith(("/training", "/one_norm", "/selectors"))
                else 1e-4
            )
            assert found[path] == pytest.approx(value, rel=near, abs=1e-4), path
        else:
            assert found[path] == value, path
