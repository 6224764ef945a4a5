"""The page of all selectors is made of the stored cards."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest

from mrsa_jax.study.suite import load_version, read_card
from mrsa_jax.study.suite._table import COLUMNS, table_page

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "benchmarks" / "results" / "suite" / "v1"
PAGE = (ROOT / "docs" / "suite.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cards() -> dict[str, dict[str, Any]]:
    found = [read_card(path) for path in sorted(FOLDER.glob("*.json"))]
    return {card["label"]: card for card in found}


def test_all_selectors_have_a_card(cards: dict[str, dict[str, Any]]) -> None:
    from mrsa_jax.selection.registry import BUILT_IN

    schemes = load_version("v1").schemes
    assert {*BUILT_IN, "lotto_random", "fcp_sampling", "flower_sampling"} == {*schemes}
    assert {card["scheme"] for card in cards.values()} == {*schemes.values()}


def test_the_page_is_that_of_the_cards(cards: dict[str, dict[str, Any]]) -> None:
    assert table_page(list(cards.values()), "suite.svg") == PAGE
    assert (ROOT / "docs" / "suite.svg").is_file()


def test_its_numbers_are_those_of_the_cards(cards: dict[str, dict[str, Any]]) -> None:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    names = {
        name.replace("_", " ").capitalize(): name
        for name in load_version("v1").scenarios
    }
    assert list(parts[::2]) == list(names)
    checked = 0
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        head, _, *rows = (
            [cell.strip() for cell in line.split("|")[1:-1]] for line in lines
        )
        assert sorted(row[0] for row in rows) == sorted(cards)
        before = float("inf")
        for label, *cells in rows:
            figures = cards[label]["scenarios"][names[title]].get("figures", {})
            for column, cell in zip(head[1:], cells, strict=True):
                values = [figures[name]["value"] for name in COLUMNS[column] if figures]
                stated = [value for value in values if value is not None]
                if cell == "-":
                    assert not stated
                    continue
                number = float(re.match(r"[-\d.,e]+", cell)[0].replace(",", ""))  # type: ignore[index]
                assert number == pytest.approx(stated[0], rel=6e-3), (title, label)
                checked += 1
                if column == "hidden among":
                    assert number <= before * 1.01
                    before = number
    assert checked > 1500
