"""The pictures of concepts and how-tos are as their scripts draw them, and each page has one."""

from __future__ import annotations

import importlib
import pathlib
import re
import xml.etree.ElementTree as ET

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PICTURES = DOCS / "concepts" / "pictures"


@pytest.mark.long
def test_pictures_are_drawn_as_they_stand_and_shown_with_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(PICTURES))
    draw, tasks = importlib.import_module("draw"), importlib.import_module("tasks")
    drawn = {own.__name__: own().svg() for own in (*draw.CONCEPTS, *tasks.TASKS)}
    assert drawn == {path.stem: path.read_text() for path in PICTURES.glob("*.svg")}
    shown = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    for name, words in drawn.items():
        ET.fromstring(words)
        assert re.search(rf"!\[[^\]]{{20,}}\]\([^)]*pictures/{name}\.svg\)", shown), (
            name
        )


def test_every_concept_and_how_to_opens_with_a_picture() -> None:
    listed = {
        folder: re.findall(
            r"^[\w/.]+$", (DOCS / folder / "index.md").read_text(), re.MULTILINE
        )
        for folder in ("concepts", "how_to")
    }
    pages = [
        DOCS / folder / f"{name}.md"
        for folder, names in listed.items()
        for name in names
    ]
    assert len(pages) >= 20
    for page in pages:
        assert page.read_text().split("\n\n")[1].startswith("!["), page.name


def test_the_recorded_demo_ends_with_the_table_of_the_tour() -> None:
    frames = ET.parse(DOCS / "demo.svg").getroot().findall("{*}g")
    assert len(frames) >= 8  # the command, a first table, and one for each scheme
    ends = ["".join(line.itertext()) for line in frames[-1].findall("{*}text")]
    tour = (DOCS / "tour.md").read_text().splitlines()
    schemes = [
        "Random",
        "Weighted random",
        "User partition",
        *(f"Multi-RoundSecAgg (T={t})" for t in (6, 4, 3)),
    ]
    for scheme in schemes:
        shown, row = (
            next(line for line in lines if line.startswith(f" {scheme} ")).split()
            for lines in (ends, tour)
        )
        places = iter(row)  # the cells of the tour, in their order, of some columns
        assert all(cell in places for cell in shown), scheme
        assert shown[-1] == row[-1]
