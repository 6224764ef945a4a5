"""The pictures of the pages on concepts are those that their script draws."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import xml.etree.ElementTree as ET

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PICTURES = DOCS / "concepts" / "pictures"


def test_pictures_are_drawn_as_they_stand_and_shown_with_words() -> None:
    spec = importlib.util.spec_from_file_location("draw", PICTURES / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    drawn = {own.__name__: own().svg() for own in draw.PICTURES}
    assert drawn == {path.stem: path.read_text() for path in PICTURES.glob("*.svg")}
    shown = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    for name, words in drawn.items():
        ET.fromstring(words)
        assert re.search(rf"!\[[^\]]{{20,}}\]\([^)]*pictures/{name}\.svg\)", shown), name


def test_every_concept_opens_with_a_picture() -> None:
    pages = [path for path in (DOCS / "concepts").glob("*.md") if path.name != "index.md"]
    assert len(pages) == 6
    for page in pages:
        assert page.read_text().split("\n\n")[1].startswith("!["), page.name
