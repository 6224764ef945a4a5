"""The mutants still fit the code.

What `make mutants` needs of its rows, without making any.
"""

from __future__ import annotations

import ast
import functools

import pytest
from rows import ROOT, Mutant, mutants, replaced, spans

# Parts of the package that the mutants are over, one or more folders or files each.
PARTS = (
    "selection", "availability", "graphs", "modular", "quantize", "secagg", "secagg/failures",
    "secagg/costs", "protocol", "hetero", "privacy", "privacy/solver", "watch/mrsa_watch/logs",
    "watch/mrsa_watch/mrsa_check.py", "watch/mrsa_watch/_", "dp", "data", "federated",
    "attacks", "study", "study/sweeps", "plotting", "cli",
)  # fmt: skip


@functools.cache
def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@functools.cache
def _places(row: Mutant) -> list[tuple[int, int]]:
    return spans(_text(row.file), row.old)


def test_a_text_is_found_in_any_layout() -> None:
    source = "x = f(\n    a,\n    b,\n)\ny = f(a, b)"
    places = spans(source, "f(a, b)")
    assert [source[start:end] for start, end in places] == [
        "f(\n    a,\n    b,\n)",
        "f(a, b)",
    ]
    assert spans(source, "f(a, c)") == []


def test_old_texts_occur_once_and_differ_from_the_new() -> None:
    wrong = [row.name for row in mutants() if len(_places(row)) != 1]
    assert not wrong
    assert not [row.name for row in mutants() if row.old == row.new]
    assert len({row.name for row in mutants()}) == len(mutants())


def test_mutated_files_are_python() -> None:
    """All mutants of a file together, but for those that change the same text."""
    for path in sorted({row.file for row in mutants()}):
        left = [row for row in mutants() if row.file == path]
        while left:
            text, later = _text(path), []
            for row in left:
                places = spans(text, row.old)
                if len(places) != 1:
                    later.append(row)
                    continue
                text = replaced(text, places[0], row.new)
            ast.parse(text)
            assert len(later) < len(left)
            left = later


def test_named_tests_are_there() -> None:
    nodes = [test.split("::") for row in mutants() for test in (*row.tests, *row.long)]
    missing = {
        "::".join(node)
        for node in nodes
        if not (ROOT / node[0]).is_file()
        or (node[1:] and f"def {node[1]}(" not in _text(node[0]))
    }
    assert not missing
    assert all(row.tests or row.long for row in mutants())


def test_every_part_has_mutants() -> None:
    files = [row.file.removeprefix("mrsa_jax/") for row in mutants()]
    bare = [part for part in PARTS if not any(file.startswith(part) for file in files)]
    assert not bare
    assert len(files) >= 120


def test_a_row_that_no_longer_fits_says_so() -> None:
    row = Mutant("family", "mrsa_jax/_version.py", "not there", "", "nothing", ())
    with pytest.raises(
        ValueError, match=r"_version.py: nothing: old text occurs 0 times"
    ):
        row.text()
