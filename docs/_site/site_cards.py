"""Pictures that lead to pages.

A card for each notebook on the first page, the gallery as a grid.
Pages stay plain Markdown, as the repository shows them. Claims and seconds come from
the table of `docs/notebooks.md`, and the picture of a notebook is the one that it shows
below its question.
"""

from __future__ import annotations

import base64
import io
import json
import pathlib
import re
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
_ROW = re.compile(
    r"^\| \[`(\d\d_\w+)`\]\([^)]*\) \| (.+) \| (\d+) \| \d+ \|$", re.MULTILINE
)
_FIGURE = re.compile(r"^### (.+)\n\n(.+)\n\n!\[[^\]]*\]\(([^)]+)\)$", re.MULTILINE)
_WIDTH = 360  # pixels of a picture in a card


def _thumbnail(picture: bytes) -> str:
    """Return a small copy of a picture, as an address that holds it."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.thumbnail((_WIDTH, _WIDTH))
    out = io.BytesIO()
    image.quantize(64).save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def _answer(notebook: str) -> str:
    """Return the picture that a notebook's text attaches to its first cell, in base 64."""
    (first, *_) = json.loads(notebook)["cells"]
    return "".join(first["attachments"]["answer.png"]["image/png"]).strip()


def notebook_cards() -> str:
    """Return the grid of notebooks: picture, name, claim and seconds of each."""
    table = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    cards = ["## Notebooks", "", "::::{grid} 1 2 2 3", ":gutter: 3", ""]
    for name, claim, seconds in _ROW.findall(table):
        title = name[3:].replace("_", " ").capitalize()
        plain = re.sub(r" \(\[[^)]*\)\)", "", claim)
        notebook = (ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
        address = _thumbnail(base64.b64decode(_answer(notebook)))
        cards += [
            f":::{{grid-item-card}} {title}",
            f":link: ../notebooks/{name}",
            ":link-type: doc",
            f'<img class="thumbnail" alt="" src="{address}">',
            "",
            plain[0].upper() + plain[1:] + ".",
            "",
            f"*About {seconds} s on one core.*",
            ":::",
        ]
    return "\n".join([*cards, "::::", ""])


def gallery_grid(page: str) -> str:
    """Return the grid of a page's figures, each leading to its section."""
    cards = ["::::{grid} 2 2 3 4", ":gutter: 2", ""]
    for name, words, picture in _FIGURE.findall(page):
        anchor = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        cards += [
            # where a line may break
            ":::{grid-item-card} " + name.replace("_", "_\u200b"),
            f":img-top: {picture}",
            f':img-alt: "{words}"',
            f':link: "#{anchor}"',
            ":::",
        ]
    return "\n".join([*cards, "::::", ""])


def _expand(app: Any, docname: str, source: list[str]) -> None:
    if docname == "docs/index":
        source[0] = source[0].replace("<!-- cards of notebooks -->", notebook_cards())
    elif docname == "docs/gallery/index":
        head, mark, rest = source[0].partition("\n## ")
        source[0] = head + "\n" + gallery_grid(source[0]) + mark + rest
    elif docname.startswith("notebooks/"):  # MyST knows no attachments
        address = "data:image/png;base64," + _answer(source[0])
        source[0] = source[0].replace("(attachment:answer.png)", f"({address})")


def _describe(
    app: Any, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """Say to other sites what a page is called, and show the project's picture with it."""
    title = re.sub(r"<[^>]*>", "", str(context.get("title", ""))) or "mrsa_jax"
    words = "Which clients' updates do the sums of secure aggregation reveal over many rounds?"
    found = {
        "og:title": title,
        "og:type": "website",
        "og:site_name": "mrsa_jax",
        "og:description": words,
    }
    tags = "".join(
        f'<meta property="{name}" content="{own}">' for name, own in found.items()
    )
    context["metatags"] = context.get("metatags", "") + tags


def setup(app: Any) -> dict[str, Any]:
    """Connect the pages."""
    app.connect("source-read", _expand)
    app.connect("html-page-context", _describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
