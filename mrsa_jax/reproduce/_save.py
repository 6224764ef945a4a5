"""Write a reproduction: figures, their data, and the verdicts as JSON, Markdown and HTML."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mrsa_jax._errors import require
from mrsa_jax.reproduce import (
    _ccesa_figures,
    _figures,
    _heterosag,
    _heterosag_figures,
    _multiround,
)
from mrsa_jax.reproduce._ccesa import TRAINED as CCESA_TRAINED
from mrsa_jax.reproduce._ccesa import ccesa
from mrsa_jax.reproduce._config import ReproduceConfig, check_items
from mrsa_jax.reproduce._figures import Draw, save_figure
from mrsa_jax.reproduce._heterosag import heterosag
from mrsa_jax.reproduce._items import Item
from mrsa_jax.reproduce._multiround import multiround
from mrsa_jax.study import Progress, _report, _store

__all__ = ["SavedReproduction", "run_and_save", "verdicts"]

_HEADINGS = ("Item", "Claim", "Paper", "Ours", "Tolerance", "Verdict", "Note")


class _Paper(NamedTuple):
    """A paper's name, what makes its items, what draws them, and which of them train."""

    title: str
    make: Callable[..., list[Item]]
    figures: Mapping[str, Draw]
    trained: tuple[str, ...]


_PAPERS = {
    "multiround": _Paper("Multi-RoundSecAgg", multiround, _figures.FIGURES, _multiround.TRAINED),
    "ccesa": _Paper("CCESA", ccesa, _ccesa_figures.FIGURES, CCESA_TRAINED),
    "heterosag": _Paper("HeteroSAg", heterosag, _heterosag_figures.FIGURES, _heterosag.TRAINED),
}


@dataclasses.dataclass(frozen=True)
class SavedReproduction:
    """A reproduction that has run and is on disk.

    Attributes:
        items: The items, with their checks and data.
        out: Its folder.
    """

    items: tuple[Item, ...]
    out: pathlib.Path

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of the items that differ from the paper by more than their tolerance."""
        return tuple(item.name for item in self.items if item.verdict == "differs")


def run_and_save(config: ReproduceConfig, progress: Progress | None = None) -> SavedReproduction:
    """Remake a paper's items and write them to `config.out`, whole or not at all.

    For each item a PNG, an SVG and the CSV of what they show; for all of them `verdicts.json`,
    `verdicts.md` and `report.html`, which needs nothing beside it.

    Args:
        config: Which items, at which size, and where to.
        progress: Receives how far it is.

    Raises:
        ConfigurationError: For an unknown paper or item, or an output that is no folder.
        OutputExistsError: If the folder holds something else.
    """
    names = check_items(config.paper, config.only)
    paper = _PAPERS[config.paper]
    given = config.dataset != ReproduceConfig().dataset or config.directory is not None
    rule = f"must be left out where no item trains (in this paper {', '.join(paper.trained)} do)"
    trains = bool(set(names) & set(paper.trained))
    require(trains or not given, "dataset", rule, config.dataset, *names)
    words: dict[str, Any] = {
        "small": config.small,
        "seed": config.seed,
        "progress": progress,
        "dataset": config.dataset,
        "directory": config.directory,
    }
    with _store.study_folder(config) as folder:
        items = paper.make(names, **words)
        pictures = {
            item.name: save_figure(item, paper.figures[item.name], folder.path) for item in items
        }
        content = {"items": verdicts(items), "manifest": folder.manifest}
        text = json.dumps(content, indent=2) + "\n"
        (folder.path / "verdicts.json").write_text(text, encoding="utf-8")
        (folder.path / "verdicts.md").write_text(_markdown(items), encoding="utf-8")
        page = _page(paper.title, items, pictures, folder.manifest)
        (folder.path / "report.html").write_text(page, encoding="utf-8")
    return SavedReproduction(tuple(items), config.out)


def verdicts(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return the items' claims and verdicts as plain JSON values."""
    return [
        {
            "name": item.name,
            "title": item.title,
            "verdict": item.verdict,
            "checks": [dataclasses.asdict(check) for check in item.checks],
        }
        for item in items
    ]


def _lines(items: Sequence[Item]) -> list[tuple[str, ...]]:
    return [
        (item.name, c.claim, c.paper, c.ours, c.tolerance, c.verdict, c.note)
        for item in items
        for c in item.checks
    ]


def _markdown(items: Sequence[Item]) -> str:
    rows = [_HEADINGS, ("---",) * len(_HEADINGS), *_lines(items)]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows
    )


def _page(
    paper: str,
    items: Sequence[Item],
    pictures: Mapping[str, pathlib.Path],
    manifest: Mapping[str, Any],
) -> str:
    title = f"mrsa_jax reproduce: {paper}"
    sections = "".join(_section(item, pictures[item.name]) for item in items)
    rows = "".join(
        f"<tr><td>{html.escape(item.title)}</td><td>{item.verdict}</td></tr>" for item in items
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_report._STYLE}"
        "td, th { text-align: left; vertical-align: top; } figure { max-width: 46rem; }</style>"
        f"</head><body><h1>{html.escape(title)}</h1>"
        "<p>Reproduced: within the tolerance. Paper errs: ours differs and is proven right, by "
        "arithmetic or by a witness. Differs: missed.</p>"
        f"<table><thead><tr><th>Item</th><th>Verdict</th></tr></thead><tbody>{rows}</tbody></table>"
        f"{sections}<h2>Settings and provenance</h2>"
        f"<pre>{html.escape(json.dumps(dict(manifest), indent=2))}</pre></body></html>\n"
    )


def _section(item: Item, picture: pathlib.Path) -> str:
    image = base64.b64encode(picture.read_bytes()).decode()
    head = "".join(f"<th>{name}</th>" for name in _HEADINGS[1:])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line[1:]) + "</tr>"
        for line in _lines([item])
    )
    return (
        f"<h2>{html.escape(item.title)}</h2>"
        f'<figure><img alt="{html.escape(item.title)}" src="data:image/png;base64,{image}">'
        f"<figcaption>{html.escape(item.caption)}</figcaption></figure>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
