"""Put together reports, each one HTML file that needs no other file.

A report carries its style and its figures inside and lets the browser fetch nothing, so
it opens offline. It fits a phone, prints, follows the reader's light or dark scheme,
and names its tables and figures for those who listen to it.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mrsa_jax.plotting.chart import Chart
from mrsa_jax.study._cite import papers_behind
from mrsa_jax.study.publishing._assets import asset, piece
from mrsa_jax.study.publishing._series import Series, colours, keys, places
from mrsa_jax.study.publishing._svg import drawn
from mrsa_watch._base.html import Markup, counted, settings_rows, shown

_MOST_ROWS = 400
_TALL = 25  # rows of a table that scrolls inside the page
# of a picture's pixels: its smallest text has 11, and 16, screen pixels
_READ = 0.62
_MOST = 0.9


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        title: Its heading, as plain text.
        content: Its HTML.
    """

    title: str
    content: str

    @property
    def anchor(self) -> str:
        """The name that links jump to."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


def page(
    title: str,
    lead: Sequence[str],
    sections: Sequence[Section],
    *,
    series: Sequence[Series] = (),
    style: str = "",
) -> str:
    """Return a whole page.

    Args:
        title: Its heading and title.
        lead: Short lines below the heading.
        sections: Its parts, in reading order; those without content are left out.
        series: What is drawn on it, in the order of its legend.
        style: More of its style sheet.
    """
    parts = [section for section in sections if section.content]
    styles = (asset("report.css"), asset("chart.css"), colours(series), style)
    has_plots = any('class="plot"' in section.content for section in parts)
    script = asset("chart.js") if has_plots else ""
    text = piece("page", title, lead, parts, "\n".join(styles), script)
    return f"{text}\n"


def paragraphs(texts: Iterable[str]) -> Markup:
    """Return sentences, a paragraph each."""
    return piece("paragraphs", texts)


def note(text: str) -> Markup:
    """Return a paragraph in small print."""
    return piece("note", text)


def data_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    caption: str,
    *,
    most: int = _MOST_ROWS,
    where: str = "",
) -> Markup:
    """Return a table that scrolls inside the page if it is too wide for it.

    Args:
        headings: Of the columns.
        rows: Cells as text or `Markup`; columns of numbers stand to the right.
        caption: What it shows.
        most: Rows that are shown.
        where: Where the rest is, if there are more.
    """
    num_more = len(rows) - most
    rest = f"{num_more} more rows{' in ' + where if where else ''}."
    return piece(
        "table",
        headings,
        [_kind([str(row[k]) for row in rows]) for k in range(len(headings))],
        rows[:most],
        caption,
        is_tall=min(len(rows), most) > _TALL,
        rest=rest if num_more > 0 else "",
    )


def _kind(column: Sequence[str]) -> str:
    """Return the style of a column, by its cells."""
    kinds = []
    if not all(map(_NUMBER.fullmatch, column)):
        kinds.append("text")
    if any(len(text) > 40 for text in column):
        kinds.append("long")
    return " ".join(kinds)


_NUMBER = re.compile(
    r"[-+]?[\d.,]+(e[-+]?\d+)?( ?[%±/].*)?|-|–|nan|none|inf", re.IGNORECASE
)


def figures_section(
    pictures: Mapping[str, bytes], captions: Mapping[str, str]
) -> Section:
    """Return pictures side by side, by name as PNG.

    The caption of a picture is that of its name, or the name itself.
    """
    content = "".join(
        figure(captions.get(name, name.replace("_", " ").capitalize()), png)
        for name, png in pictures.items()
    )
    return Section("Pictures", piece("figures", content) if pictures else "")


def charts_section(
    charts: Mapping[str, Chart], series: Sequence[Series], title: str = "Figures"
) -> Section:
    """Return charts side by side, below the legend in short."""
    order = places(series)
    figures = "".join(drawn(chart, order) for chart in charts.values())
    return Section(title, keys(series) + piece("figures", figures) if figures else "")


def verdicts(lines: Iterable[tuple[str, str, str]]) -> Markup:
    """Return verdicts, a line each: the badge's kind and word, and what it is about."""
    return piece("verdicts", lines)


def opening(charts: Sequence[Chart], series: Sequence[Series]) -> str:
    """Return the charts that a page opens with: a large one, and a second, if any."""
    order = places(series)
    figures = [drawn(chart, order, is_large=True) for chart in charts]
    kind = "opening two" if len(figures) > 1 else "opening"
    return f'<div class="{kind}">{"".join(figures)}</div>' if any(figures) else ""


def figure(caption: str, png: bytes) -> Markup:
    """Return one figure with its picture inside."""
    # a PNG's first chunk holds its width and height, behind eight bytes of signature
    width, height = struct.unpack(">II", png[16:24]) if len(png) >= 24 else (0, 0)
    size = {
        "width": width,
        "height": height,
        "least": f"{_READ * width:.0f}",
        "most": f"{_MOST * width:.0f}",
    }
    return piece("picture", caption, size, base64.b64encode(png).decode())


_HIDDEN = ("json", "out", "overwrite", "resume")  # what one call asked of its output


def settings_section(
    values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Section:
    """Return settings as tables, one for each section, changed values marked in words.

    Args:
        values: Nested settings.
        defaults: The same with the defaults; None where they are not known.
    """
    studied = _without_hidden(values)
    sections = settings_rows(studied, _without_hidden(defaults or {}))
    num_changed = sum(is_changed for _, rows in sections for *_, is_changed in rows)
    words = "All settings have their defaults."
    if num_changed:
        words = (
            f"{counted(num_changed, 'setting')} changed from the default, in bold and "
            "marked."
        )
    content = piece("settings", sections)
    return Section("Settings", content if defaults is None else note(words) + content)


def _without_hidden(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _HIDDEN}


_PROVENANCE = ("command", "swept", "seed", "config_hash", "created", "commit", "device",
               "python", "schema", "is_complete")  # fmt: skip


def provenance_section(manifest: Mapping[str, Any]) -> Section:
    """Return the facts that repeat the study: seed, hash, commit, versions, time."""
    facts = {
        name: manifest[name] for name in _PROVENANCE if manifest.get(name) is not None
    }
    if "device" in facts:  # "cpu cpu" says it twice
        facts["device"] = " ".join(dict.fromkeys(str(facts["device"]).split()))
    rows = [(name.replace("_", " "), value) for name, value in facts.items()]
    versions = manifest.get("versions")
    if versions:
        rows.append(("versions", shown(versions, 1000).replace(": ", " ")))
    others = {*manifest} - {*_PROVENANCE, "versions", "config", "axes"}
    rest = {name: value for name, value in manifest.items() if name in others}
    more = json.dumps(rest, indent=2, default=str) if rest else ""
    return Section("Provenance", piece("provenance", rows, more))


def papers_section(spec: Any) -> Section:
    """Return the papers behind a study, each with what they stand for, and BibTeX."""
    sources = papers_behind(spec)
    bibtex = "\n\n".join(paper.bibtex for paper, _ in sources)
    return Section("Papers", piece("papers", sources, bibtex))
