"""The page of a reproduction.

A verdict on each claim of the papers, and the figures remade.
"""

from __future__ import annotations

import collections
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mrsa_jax.study.publishing import _report
from mrsa_jax.study.publishing._page import Section, data_table, settings_section
from mrsa_jax.study.publishing._series import badge
from mrsa_jax.study.stores._files import read_part
from mrsa_papers._catalog import PAPERS
from mrsa_papers._config import ReproduceConfig
from mrsa_papers._drawing import best_figure, drawing_colours
from mrsa_watch._base.html import Markup, plain_settings, tidy

_LEGEND = (
    "Reproduced: within the tolerance. Our reading: it fails as the words are read "
    "here, and they can be read otherwise; or a setting that the paper states is not "
    "met. Not stated: it fails for an input that the paper does not give. Paper errs: "
    "ours differs and is proven right, by arithmetic or by a witness. Undecided: the "
    "interval holds values that meet the claim and values that do not, or only data "
    "instead of the paper's speak against it. Differs: missed by more than the "
    "tolerance; the reason stands beside it where it is known."
)
_HEADINGS = {
    "claim": "Claim",
    "verdict": "Verdict",
    "paper": "Paper",
    "ours": "Ours",
    "tolerance": "Tolerance",
    "why": "Why it differs",
    "note": "Note",
}
_TINY = re.compile(r"\b\d\.\d{3,}e-(?:09|[1-9]\d)\b")
_KINDS = {
    "reproduced": "good",
    "paper errs": "told",
    "holds on other data": "told",
    "ours": "told",
    "other settings": "fair",
    "our reading": "told",
    "not stated": "told",
    "undecided": "fair",
    "no data": "fair",
}


def reproduction_page(folder: pathlib.Path, content: Mapping[str, Any]) -> str:
    """Return the page of a reproduction.

    Args:
        folder: Its folder.
        content: What is in its `verdicts.json`.
    """
    items, manifest = content["items"], content["manifest"]
    checks = [check for item in items for check in item["checks"]]
    sections = [
        Section(
            "Verdicts",
            f'<p class="verdict">{_badges(checks)}</p>'
            f"<p>{len(items)} items, {len(checks)} claims: {tidy(_counts(checks))}.</p>"
            + _overview(items)
            + f'<p class="note">{_LEGEND}</p>',
        ),
        *_papers(folder, items),
    ]
    config = manifest.get("config", {})
    size = "fast size" if config.get("fast") or config.get("small") else "full size"
    lead = [f"{size.capitalize()}, seed {manifest.get('seed')}"]
    settings = settings_section(config, plain_settings(ReproduceConfig()))
    title = "a paper's tables and figures, remade and judged"
    style = drawing_colours("".join(section.content for section in sections))
    return _report.whole_page(
        manifest, lead, sections, settings=settings, title=title, style=style
    )


def _papers(folder: pathlib.Path, items: list[dict[str, Any]]) -> Iterable[Section]:
    """Return a section for each paper, with all its items."""
    by_paper: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        by_paper.setdefault(str(item.get("paper", "")), []).append(item)
    for paper, rows in by_paper.items():
        content = "".join(_item(folder, item) for item in rows)
        yield Section(PAPERS.get(paper, paper) or "Items", content)


def _name(item: Mapping[str, Any]) -> str:
    return f"{item['paper']}.{item['name']}" if "paper" in item else str(item["name"])


def _counts(checks: list[dict[str, Any]]) -> str:
    """Count the verdicts of each kind, and the misses that were not expected."""
    counts = collections.Counter(check["verdict"] for check in checks)
    missed = sum(check.get("standing") == "missed" for check in checks)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return words + (f" ({missed} not expected)" if missed else "")


def _badges(checks: list[dict[str, Any]]) -> Markup:
    """Count the verdicts of each kind, as coloured words."""
    counts = collections.Counter((check["verdict"], _kind(check)) for check in checks)
    badges = [
        badge(kind, f"{count} {verdict}") for (verdict, kind), count in counts.items()
    ]
    missed = sum(check.get("standing") == "missed" for check in checks)
    badges += [badge("bad", f"{missed} not expected")] if missed else []
    return Markup(" ".join(badges))


def _kind(check: Mapping[str, Any]) -> str:
    """Return the colour of a verdict: a miss is bad unless a reason for it is known."""
    other = "fair" if check.get("standing") in ("as expected", "explained") else "bad"
    return _KINDS.get(check["verdict"], other)


def _overview(items: list[dict[str, Any]]) -> str:
    timed = any("seconds" in item for item in items)
    replaced = any(item.get("own_data") for item in items)
    rows = []
    for item in items:
        link = Markup(f'<a href="#{_anchor(item)}">{tidy(_name(item))}</a>')
        row = [link, _badges(item["checks"]), item["title"]]
        row += [f"{item.get('seconds', 0):.1f}"] * timed
        rows.append(row + [item.get("own_data", "")] * replaced)
    headings = ["Item", "Verdicts", "What", *["Seconds"] * timed]
    headings += ["Data instead of the paper's"] * replaced
    return data_table(headings, rows, "Items")


def _short(value: Any) -> str:
    """Shorten a claim's numbers, whose last digits differ by rounding alone."""
    return _TINY.sub(lambda match: f"{float(match.group()):.2g}", str(value))


def _anchor(item: Mapping[str, Any]) -> str:
    return "item-" + Section(_name(item), "").anchor


def _item(folder: pathlib.Path, item: Mapping[str, Any]) -> str:
    """Return an item: its figure, and what of it was claimed and found."""
    checks = item["checks"]
    used = [n for n in _HEADINGS if any(str(check.get(n, "")) for check in checks)]
    rows = [
        [
            badge(_kind(check), check[name])
            if name == "verdict"
            else _short(check.get(name, ""))
            for name in used
        ]
        for check in checks
    ]
    table = data_table([_HEADINGS[n] for n in used], rows, f"Claims of {_name(item)}")
    title = f'<h3 id="{_anchor(item)}">{tidy(_name(item))}: {tidy(item["title"])}</h3>'
    places = (folder / "items" / _name(item), folder)
    files = [place / f"{item['name']}.png" for place in places]
    picture = next((path for path in files if path.is_file()), None)
    if picture is None:
        return title + table
    caption = item["title"]
    record = picture.parent / "item.json"
    if record.is_file():
        caption = read_part(record).get("caption") or caption
    return title + best_figure(caption, picture, picture.with_suffix(".svg")) + table
