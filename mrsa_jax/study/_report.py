"""The report of a study: one HTML page that needs nothing beside it."""

from __future__ import annotations

import base64
import html
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from mrsa_jax.study._summary import Row

__all__ = ["COLUMNS", "cells", "reading", "used_columns", "write_report"]

COLUMNS = (
    "Scheme",
    "T",
    "Rank",
    "Exposed",
    "From",
    "F",
    "C",
    "Expected C",
    "Skipped",
    "Accuracy",
    "Error",
    "Level",
    "Seconds",
)
"""Headings of a study's table."""

_CAPTIONS = {
    "strong_privacy": "Strong multi-round privacy T: the fewest clients who only move together.",
    "exposed_clients": "Clients whose own update is a combination of the sums the server has.",
    "fairness_gap": "Fairness gap F: most minus least often summed client, divided by the rounds.",
    "aggregation_cardinality": "Aggregation cardinality C: mean number of clients in a round's sum,"
    " skipped rounds counted; the marks at the right are expectations.",
    "accuracy": "Accuracy of the global model on the test set.",
    "reconstruction_error": "Relative squared error of each client's update as the server's least"
    " squares reconstructs it, models frozen over the whole history (the worst case); 1 means"
    " nothing was learnt beyond zero.",
}

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; max-width: 60rem; margin: auto;
       padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 0; } figcaption { font-size: .9rem; color: #444; }
.figures { display: grid; gap: 1.5rem;
           grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
img { width: 100%; height: auto; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; font-size: .8rem; }
@media print { body { max-width: none; } figure, table { break-inside: avoid; } }
"""


def cells(row: Row) -> tuple[str, ...]:
    """Return a row of the table as text, in the order of `COLUMNS`."""
    first = row.first_exposed_after
    return (
        row.scheme,
        "-" if row.strong_privacy is None else str(row.strong_privacy),
        f"{row.rank:.4g}",
        f"{row.exposed_clients:.4g}",
        "-" if first is None else str(first),
        f"{row.fairness_gap:.3f}",
        f"{row.aggregation_cardinality:.2f}",
        _expected(row),
        f"{row.skipped_rounds:.4g}",
        "-" if row.accuracy is None else f"{100 * row.accuracy:.1f} %",
        "-" if row.reconstruction_error is None else f"{row.reconstruction_error:.2g}",
        "-" if row.privacy_level is None else f"{row.privacy_level:.3g}",
        "-" if row.round_seconds is None else f"{row.round_seconds:.3g}",
    )


def _expected(row: Row) -> str:
    if row.expected_cardinality is None or row.cardinality_error is None:
        return "-"
    return f"{row.expected_cardinality:.2f} ± {row.cardinality_error:.2f}"


def used_columns(rows: Sequence[Row]) -> list[int]:
    """Return which columns have something to show; no attack, no column for its error."""
    lines = [cells(row) for row in rows]
    optional = {"Accuracy", "Error", "Level", "Seconds"}
    return [
        i
        for i, heading in enumerate(COLUMNS)
        if heading not in optional or any(line[i] != "-" for line in lines)
    ]


def write_report(
    folder: pathlib.Path,
    manifest: Mapping[str, Any],
    rows: Sequence[Row],
    sentences: Sequence[str],
    figures: Mapping[str, pathlib.Path],
) -> pathlib.Path:
    """Write `report.html` into a folder: words, table, figures, settings and provenance.

    The page carries its figures inside, opens offline, fits a phone and prints.

    Returns:
        Its path.
    """
    used = used_columns(rows)
    head = "".join(f"<th>{html.escape(COLUMNS[i])}</th>" for i in used)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cells(row)[i])}</td>" for i in used) + "</tr>"
        for row in rows
    )
    pictures = "".join(_figure(name, path) for name, path in figures.items())
    words = "".join(f"<p>{html.escape(text)}</p>" for text in sentences)
    title = f"mrsa_jax {manifest['command']}"
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}: multi-round secure aggregation</h1>{words}"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        f"<p>{html.escape(reading(rows))}</p>"
        f'<h2>Figures</h2><div class="figures">{pictures}</div>'
        f"<h2>Settings and provenance</h2><pre>{html.escape(json.dumps(manifest, indent=2))}</pre>"
        "</body></html>\n"
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


_READING = (
    "T: strong multi-round privacy, the fewest clients whom the sums never separate. Rank: of the "
    "participation matrix; at rank N every update can be solved for. Exposed: clients whose own "
    "update the server can solve for, decided exactly, and from which round on (counted from 1). "
    "F: fairness gap. C: mean number of clients in a sum, beside its expectation and one standard "
    "error."
)
_READING_ERROR = (
    " Error: median relative squared error of the updates that least squares reconstructs, models "
    "frozen over all rounds (the worst case)."
)

_READING_SEGMENTS = (
    " Level: HeteroSAg's privacy level, 1 less the largest share of segments whose sum over some "
    "union of groups the server learns in a round. Seconds: until the slowest group has sent its "
    "inputs of a round, for a cohort whose rates are spread as those of all clients."
)


def reading(rows: Sequence[Row]) -> str:
    """Return how to read the table of these rows."""
    attacked = any(row.reconstruction_error is not None for row in rows)
    segmented = any(row.privacy_level is not None for row in rows)
    return _READING + _READING_ERROR * attacked + _READING_SEGMENTS * segmented


def _figure(name: str, path: pathlib.Path) -> str:
    picture = base64.b64encode(path.read_bytes()).decode()
    caption = _CAPTIONS.get(name, name.replace("_", " "))
    return (
        f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{picture}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
