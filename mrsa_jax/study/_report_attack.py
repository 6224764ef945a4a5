"""The page of an attack: a line for each thing attacked, scores in their order, what was found."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from mrsa_jax._html import number, shown, tidy
from mrsa_jax.study import _report
from mrsa_jax.study._chart import Chart, Line
from mrsa_jax.study._chart_look import Series, legend
from mrsa_jax.study._page import Section, data_table, figures_section, opening, paragraphs

_MOST_WORDS = 5  # numbers of a summary that stand in the line of what was attacked
_ERRORS = "errors"


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
    series = _series(content["summary"])
    charts = _charts(content["scores"], series)
    lines = legend(series, "What was attacked") if series else ""
    glance = opening(list(charts.values()), series) + lines
    summary = rows_table(content["summary"], "What was attacked", where="summary.csv")
    scores = rows_table(content["scores"], "Each score", where="scores.csv")
    files = [path for path in sorted(folder.glob("*.png")) if path.stem not in charts]
    pictures = {path.stem: path.read_bytes() for path in files}
    arrays = ", ".join(path.name for path in sorted(folder.glob("*.npy")))
    note = f'<p class="note">What was recovered is beside this page: {tidy(arrays)}.</p>'
    sections = [
        Section("At a glance", glance),
        Section("Findings", words),
        Section("Summary", summary),
        figures_section(_report.captioned(pictures)),
        Section("Scores", scores + note * bool(arrays)),
    ]
    lead = [str(content.get("title", "")), f"Seed {manifest.get('seed')}"]
    title = "an attack, and its scores"
    return _report.whole_page(manifest, lead, sections, title=title, series=series)


def _series(summary: list[dict[str, Any]]) -> list[Series]:
    """Return a line for each scheme of a summary; none where something else was attacked."""
    found = {}
    for row in summary:
        if "scheme" in row and str(row["scheme"]) not in found:
            found[str(row["scheme"])] = Series(str(row["scheme"]), _verdict(row), _words(row))
    return list(found.values()) if len(found) == len(summary) else []


def _verdict(row: Mapping[str, Any]) -> tuple[str, str] | None:
    exposed = row.get("exposed")
    if not isinstance(exposed, int) or isinstance(exposed, bool):
        return None
    return ("bad", "exposed") if exposed else ("good", "nobody exposed")


def _words(row: Mapping[str, Any]) -> str:
    numbers = [
        f"{name.replace('_', ' ')} {_cell(value)}"
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return "; ".join(numbers[:_MOST_WORDS])


def _charts(scores: list[dict[str, Any]], series: list[Series]) -> dict[str, Chart]:
    """Return the errors of each scheme's clients in rising order; none without errors."""
    lines = []
    for label in (one.label for one in series):
        own = [row.get("error") for row in scores if str(row.get("scheme")) == label]
        known = [float(value) for value in own if isinstance(value, int | float)]
        errors = np.sort([value for value in known if np.isfinite(value)])
        if errors.size:
            share = 100 * (np.arange(errors.size) + 1) / errors.size
            lines.append(Line(label, share, np.maximum(errors, 1e-12)))
    if not lines:
        return {}
    caption = (
        "Relative squared error of each client's update as it was reconstructed, clients in the "
        "order of their errors; 1 means nothing was learnt beyond zero."
    )
    chart = Chart("Errors of what was reconstructed", caption, lines, "clients (%)",
                  "relative squared error (log axis)", is_log_y=True, y_range=(1.0,), whole="",
                  rules=((1.0, "1: nothing learnt"),))  # fmt: skip
    return {_ERRORS: chart}


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
