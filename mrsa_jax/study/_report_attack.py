"""The page of an attack: a line for each thing attacked, scores in their order, what was found."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from mrsa_jax._html import number, shown, tidy
from mrsa_jax.study import _report
from mrsa_jax.study._attack_charts import (
    FOUND,
    attack_charts,
    attack_series,
    attack_verdicts,
)
from mrsa_jax.study._chart_look import legend
from mrsa_jax.study._kinds import kind_named
from mrsa_jax.study._page import (
    Section,
    data_table,
    figures_section,
    opening,
    paragraphs,
    verdicts,
)


def attack_page(
    folder: pathlib.Path, content: Mapping[str, Any], manifest: Mapping[str, Any]
) -> str:
    """Return the page of an attack.

    Args:
        folder: Its folder.
        content: What is in its `scores.json`.
        manifest: Its provenance.
    """
    words = paragraphs(content["sentences"])
    if content.get("is_complete") is False:
        words = "<p><strong>Interrupted: this is what was finished by then.</strong></p>" + words
    series = attack_series(content["summary"], content["scores"])
    known = {one.label for one in series}
    charts = {
        name: chart
        for name, chart in attack_charts(content["summary"], content["scores"]).items()
        if known.issuperset(chart.series)
    }
    lines = legend(series, "What was attacked") if series else ""
    told = verdicts(attack_verdicts(content["summary"], content["scores"]))
    glance = told + opening(list(charts.values()), series) + lines
    summary = rows_table(content["summary"], "What was attacked", where="summary.csv")
    scores = rows_table(content["scores"], "Each score", where="scores.csv")
    files = [path for path in sorted(folder.glob("*.png"))
             if not (path.stem in charts or (charts and path.stem.startswith(FOUND)))]  # fmt: skip
    kind = kind_named(str(manifest.get("command", "")))
    images = kind.attack.images if kind is not None and kind.attack is not None else ""
    pictures = _report.captioned({path.stem: path.read_bytes() for path in files})
    if "images" in pictures and images:
        pictures["images"] = (images, pictures["images"][1])
    shown_ones = figures_section(pictures, "Pictures")
    arrays = ", ".join(path.name for path in sorted(folder.glob("*.npy")))
    note = f'<p class="note">What was recovered is beside this page: {tidy(arrays)}.</p>'
    sections = [
        Section("At a glance", glance),
        *([] if charts else [shown_ones]),
        Section("Findings", words),
        Section("Summary", summary),
        *([shown_ones] if charts else []),
        Section("Scores", scores + note * bool(arrays)),
    ]
    lead = [str(content.get("title", "")), f"Seed {manifest.get('seed')}"]
    title = "an attack, and its scores"
    return _report.whole_page(manifest, lead, sections, title=title, series=series)


def rows_table(rows: list[dict[str, Any]], caption: str, *, where: str = "") -> str:
    """Return rows of named values as a table; "" without rows."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    headings = [name.replace("_", " ") for name in names]
    return data_table(headings, cells, caption, most=200, where=where)


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "-"
    return number(value) if isinstance(value, float) else shown(value, 400)
