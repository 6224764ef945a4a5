"""A quick look at strong T against C against accuracy: small linked pictures over a sortable table.

One piece of HTML without widgets, servers or anything to fetch. It shows in a notebook, in a
report and from a file, offline; where scripts are not run, table and pictures still stand.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax.plotting.chart import ALL
from mrsa_jax.plotting.points import QUANTITIES, heading, shown_scale
from mrsa_jax.study import _page
from mrsa_jax.study._page import Series, asset
from mrsa_jax.study._points import cost_charts
from mrsa_jax.study._svg import drawn
from mrsa_watch._base.html import number, tidy

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 2000
_LEFT_SIDE = ' class="t"'  # where words stand


@dataclasses.dataclass(frozen=True)
class Explorer:
    """What `results.mrsa.explore()` gives: a notebook shows it as it is.

    Attributes:
        html: The whole of it.
    """

    html: str

    def _repr_html_(self) -> str:
        """Return it for a notebook."""
        return self.html

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write it as a page of its own, and return where.

        Args:
            path: File to write.
        """
        target = pathlib.Path(path)
        target.write_text(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><title>mrsa_jax</title></head>'
            f"<body>{self.html}</body></html>\n",
            encoding="utf-8",
        )
        return target


def explorer(table: pd.DataFrame, names: Sequence[str]) -> Explorer:
    """Return an explorer of a table of schemes or points.

    Args:
        table: A row a point.
        names: Columns that say which point a row is; the other columns are what was measured.
    """
    shown = table.head(_MOST_ROWS)
    labels = [str(one) for one in shown["scheme"]] if "scheme" in shown else [ALL]
    series = [Series(label, is_scheme="scheme" in shown) for label in dict.fromkeys(labels)]
    places = _page.places(series)
    charts = cost_charts(shown, names, "scheme" if "scheme" in shown else None)
    plots = "".join(drawn(chart, places) for chart in charts.values())
    legend = _page.keys(series, is_switch=False) if plots else ""
    content = f'<div class="pictures">{plots}</div>{legend}' + _rows(table, names)
    look = f"\n{asset('chart.css')}{_page.day_colours(series)}"
    style = f"\n{asset('notebook.css')}#ID {{ {look} }}"
    return Explorer(_with_script(content, style, f"\n{asset('chart.js')}" * bool(plots)))


def linked(
    table: pd.DataFrame,
    names: Sequence[str],
    figures: str,
    spans: Mapping[tuple[int, str], tuple[float, float]],
) -> str:
    """Return a table to sort whose rows light up with the marks of a page's figures.

    Args:
        table: A row a point.
        names: Columns that say which point a row is.
        figures: Charts whose marks know their rows, as HTML.
        spans: By row and column between which values a mean lies, where they differ.
    """
    pictures = f'<div class="figures">{figures}</div>' * bool(figures)
    return _with_script(pictures + _rows(table, names, spans), "", "")


def _rows(
    table: pd.DataFrame,
    names: Sequence[str],
    spans: Mapping[tuple[int, str], tuple[float, float]] | None = None,
) -> str:
    """Return the first rows of a table, and how many there are beside them."""
    left = len(table) - _MOST_ROWS
    return _table(table.head(_MOST_ROWS), names, spans or {}) + (
        f"<p>{left} more rows are not shown.</p>" if left > 0 else ""
    )


def _with_script(content: str, style: str, script: str) -> str:
    own = f"mrsa-{zlib.crc32(content.encode()):08x}"
    inner = f"<script>\n{asset('explorer.js').replace('ID', own)}{script}</script>"
    look = f"<style>\n{(asset('explorer.css') + style).replace('ID', own)}</style>"
    return f'<div id="{own}">{look}{content}{inner}</div>'


def _table(
    table: pd.DataFrame, names: Sequence[str], spans: Mapping[tuple[int, str], tuple[float, float]]
) -> str:
    known = [n for n, own in QUANTITIES.items() if own.heading and n in table and n not in names]
    columns = [*names, *known]
    columns += [str(n) for n in table if n not in columns]
    is_text = {n: table[n].dtype.kind not in "iuf" for n in columns}
    head = "".join(
        f'<th scope="col"{_LEFT_SIDE * is_text[n]}>'
        f'<button type="button">{tidy(heading(n))}</button></th>'
        for n in columns
    )
    lines = []
    for i, values in enumerate(table[columns].itertuples(index=False, name=None)):
        cells = "".join(
            _cell(value, shown_scale(name), is_text[name], spans.get((i, name)), is_first=k == 0)
            for k, (name, value) in enumerate(zip(columns, values, strict=True))
        )
        lines.append(f'<tr data-i="{i}" tabindex="0">{cells}</tr>')
    return (
        f'<div class="scroll"><table aria-label="Points; a heading sorts"><thead><tr>{head}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(
    value: Any, scale: float, is_text: bool, span: tuple[float, float] | None, *, is_first: bool
) -> str:
    tag = 'th scope="row"' if is_first else "td"
    end = tag.split()[0]
    if is_text:
        own = tidy(value)
        return f'<{tag} class="t" data-v="{own}">{own}</{end}>'
    size = scale * float(value)
    if not math.isfinite(size):
        return f"<{tag}>-</{end}>"
    low, high = (number(scale * edge) for edge in span or (0.0, 0.0))
    words = f" ({low} to {high})" if low != high else ""
    return f'<{tag} data-v="{size:.9g}">{number(size)}{words}</{end}>'
