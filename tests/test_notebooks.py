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


def _tags(cell: dict[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])  # type: ignore[no-any-return]


def _text(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    parts = [
        output.get("text", ""),
        data.get("text/plain", ""),
        data.get("text/html", ""),
    ]
    return "\n".join("".join(part) for part in parts)


@pytest.mark.smoke("12_differential_privacy")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_stored_as_run_in_order(path: pathlib.Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    cells = _cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs), (
        "no figure is stored"
    )
    for output in outputs:
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", _text(output)
        assert not MACHINE.search(_text(output)), _text(output)
        assert "\r" not in _text(output), "bars of progress"
        assert len(output.get("data", {}).get("text/plain", [])) < 40, (
            "a repr of many lines"
        )
    assert "claim holds" in "".join(map(_text, cells[-1]["outputs"]))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_opens_with_the_question_and_a_picture_of_the_answer(
    path: pathlib.Path,
) -> None:
    """Which is one that the notebook draws; `notebooks/store.py` attaches it."""
    (first, *_) = _cells(path, "markdown")
    picture = r"!\[.{30,}\]\(attachment:answer\.png\)\n\n\*.{30,}\*"
    opening = (
        rf"# \d+\. .+\n\n\*\*Question\.\*\* (.+\n)+\n{picture}\n\n\*\*Claim\.\*\* "
    )
    assert re.match(opening, "".join(first["source"]))
    (answer,) = (cell for cell in _cells(path) if "answer" in _tags(cell))
    pictures = (
        output["data"].get("image/png")
        for output in answer["outputs"]
        if "data" in output
    )
    drawn = next(picture for picture in pictures if picture)
    assert first["attachments"] == {"answer.png": {"image/png": drawn}}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_shows_what_it_teaches(path: pathlib.Path) -> None:
    """Machinery and the claim's list are hidden on the page; other cells are short."""
    (machinery, settings, *_), (*_, claim) = _cells(path), _cells(path)
    assert "hide-cell" in _tags(machinery)
    assert "hide-input" in _tags(claim)
    assert settings["source"][0].startswith(("import ", "from "))
    shown = [
        cell
        for cell in _cells(path)
        if not {"hide-cell", "hide-input"} & {*_tags(cell)}
    ]
    assert not any("environ" in "".join(cell["source"]) for cell in shown)
    assert max(len(cell["source"]) for cell in shown) <= 18


def test_each_has_its_seconds() -> None:
    """In the table that the first page's cards read.

    At full size, and at that of the tests.
    """
    table = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`(\w+)`\].* \| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    assert [name for name, *_ in rows] == [path.stem for path in PATHS]
    for _, *seconds in rows:
        full, small = map(int, seconds)
        assert full % 5 == small % 5 == 0 < small <= full


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
    with pytest.raises(
        ImportError, match="write a wheel or a git address into `source`"
    ):
        exec(first, {})
    monkeypatch.setenv("MRSA_JAX_SOURCE", "some.whl")
    exec(first, {})
    assert called == [[sys.executable, "-m", "pip", "install", "--quiet", "some.whl"]]


def _assigned(nodes: list[ast.stmt]) -> set[str]:
    """Return the names that statements assign in the scope of their cell."""
    names: set[str] = set()
    left: list[ast.AST] = list(nodes)
    inner = ast.FunctionDef | ast.Lambda | ast.ClassDef
    inner |= ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    while left:
        node = left.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, inner):
            left += ast.iter_child_nodes(node)
    return names


def _parsed(path: pathlib.Path) -> list[list[ast.stmt]]:
    return [ast.parse("".join(cell["source"])).body for cell in _cells(path)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_parameters_are_tagged_checked_and_used(path: pathlib.Path) -> None:
    """Values that papermill puts after the tagged cell last until the end."""
    tagged = ["parameters" in _tags(cell) for cell in _cells(path)]
    assert [place for place, is_tagged in enumerate(tagged) if is_tagged] == [1]
    _, settings, check, *later = _parsed(path)
    names = _assigned(settings)
    assert names
    # numbers and texts, not what follows from them
    allowed = ast.Import | ast.ImportFrom | ast.Assign
    assert all(isinstance(node, allowed) for node in settings)
    read = {
        node.id
        for statement in settings
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert read <= {"small"}
    (call,) = (node for node in ast.walk(check[0]) if isinstance(node, ast.List))
    listed = ast.literal_eval(call)
    assert len(listed) == len(names)
    assert {*listed} == names
    used = {
        node.id
        for cell in later
        for statement in cell
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert names <= used, f"no use of {sorted(names - used)}"
    again = {name for cell in later for name in _assigned(cell)}
    assert not names & again, f"overwritten: {sorted(names & again)}"
    assert "settings" not in again
    last = "".join(_cells(path)[-1]["source"])
    assert last.endswith('print(f"{settings}: claim holds")')


def _run(
    path: pathlib.Path,
    injected: str = "",
    last: int | None = None,
    names: dict[str, Any] | None = None,
) -> None:
    """Execute the cells of a notebook, and one after the tagged cell.

    At the size of the tests, in this process, whose imports and programs all share;
    with the names that a kernel has already.
    """
    names = {"__name__": "__main__"} if names is None else names
    # a user's settings, not the suite's strict ones
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for cell in _cells(path)[:last]:
            sources = ["".join(cell["source"])]
            if "parameters" in _tags(cell) and injected:
                sources.append(injected)
            for source in sources:
                body = ast.Interactive(ast.parse(source).body)
                place = f"{path.name}[{cell['execution_count']}]"
                exec(compile(body, place, "single"), names)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_parameter_that_a_notebook_lacks_is_refused(path: pathlib.Path) -> None:
    for source in ("no_such_number = 60", "num_client = [1, 2]", "a, b = None, {}"):
        with pytest.raises(NameError, match="no parameters of this notebook") as caught:
            _run(path, source, 3)
        name = source.partition(" ")[0].strip(",")
        assert name in str(caught.value)
    # cells that run again meet the names of later ones
    kernel: dict[str, Any] = {"__name__": "__main__"}
    _run(path, "", 3, kernel)
    _run(path, "rank = 5", 3, kernel)


@pytest.mark.long(
    "01_multi_round_leakage",
    "03_secagg_step_by_step",
    "04_heterogeneous_quantization",
    "05_accuracy_against_privacy",
    "06_attacks",
    "08_byzantine_clients",
    "09_availability",
    "10_audit_your_log",
    "11_hidden_among",
    "12_differential_privacy",
    "13_explore",
    "14_attributes",
)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_runs_at_a_small_size(
    path: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At full size each has a kernel."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    _run(path)
    plt.close("all")
    assert capsys.readouterr().out.endswith(": claim holds\n")


# At the size of the tests; a parameter that changes what is printed.
OTHERS = {
    "01": "num_clients = 30",
    "02": "num_clients = 32",
    "03": "seed = 8",
    "04": "num_rounds = 70",
    "05": "num_clients = 108",
    "06": "num_clients = 16",
    "07": "num_clients = 96",
    "08": "seed = 1",
    "09": "p = 0.25",
    "10": "num_clients = 20",
    "11": "num_clients = 40",
    "12": "multiplier = 3.0",
    "13": "num_clients = 36",
    "14": "hospitals = 36",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_another_parameter_changes_the_result(
    path: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As papermill sets it.

    The claim holds for it, by name and value, or an assertion fails.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    _run(path)
    usual = capsys.readouterr().out
    injected = OTHERS[path.stem[:2]]
    try:
        _run(path, injected)
    except AssertionError:
        claimed = False
    else:
        claimed = True
    other = capsys.readouterr().out
    plt.close("all")
    *usual_lines, _ = usual.splitlines()
    *other_lines, claim = other.splitlines()
    assert other_lines != usual_lines
    name, _, value = injected.partition(" = ")
    assert claimed is claim.endswith(": claim holds")
    assert not claimed or f"'{name}': {value}" in claim
