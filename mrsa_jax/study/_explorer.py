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

from mrsa_jax._html import number, tidy
from mrsa_jax.study import _chart_look
from mrsa_jax.study._chart import drawn
from mrsa_jax.study._chart_look import Series
from mrsa_jax.study._cost import ALL, HEADINGS, cost_charts, heading, shown_scale

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 2000
_LEFT_SIDE = ' class="t"'  # where words stand

_STYLE = """
#ID .pictures { display: grid; gap: 1.2rem 2rem;
                grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); }
#ID circle { cursor: pointer; }
#ID .scroll { overflow: auto; max-height: 30rem; margin-top: 1rem; }
#ID table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
#ID th, #ID td { padding: .25rem .6rem; text-align: right; white-space: nowrap;
                 border-bottom: 1px solid rgba(128,128,128,.35); font-weight: normal; }
#ID .t { text-align: left; }
#ID th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0;
                padding: .35rem 0; cursor: pointer; }
#ID th[aria-sort=ascending] button::after { content: " \\2191"; }
#ID th[aria-sort=descending] button::after { content: " \\2193"; }
#ID tr.on > * { background: rgba(0,114,178,.22); }
#ID circle.on { stroke: currentColor; stroke-width: 3; }
#ID circle.off { opacity: .2; }
@media print { #ID .scroll { max-height: none; overflow: visible; } #ID table { font-size: 7pt; }
               #ID th, #ID td { white-space: normal; padding: .1rem .25rem; } }
"""

_ALONE = """
#ID { font: 14px/1.4 system-ui, sans-serif; --soft: currentColor; --ink: currentColor;
      --line: rgba(128,128,128,.4); --paper: Canvas; --link: #0072B2; }
#ID circle { stroke: currentColor; } #ID .tip { color: CanvasText; }
"""
"""What is a page's own elsewhere; a notebook's ground is light or dark whatever the system says."""

_SCRIPT = """
(function () {
  document.querySelectorAll('#ID').forEach(function (box) {
    if (box.dataset.ready) { return; }
    box.dataset.ready = 'yes';
    var body = box.querySelector('tbody'), pinned = null;
    var marks = Array.prototype.slice.call(box.querySelectorAll('[data-i]'));
    function light(i) {
      marks.forEach(function (mark) {
        mark.classList.toggle('on', i !== null && mark.dataset.i === i);
        mark.classList.toggle('off', i !== null && mark.dataset.i !== i);
      });
    }
    marks.forEach(function (mark) {
      mark.addEventListener('mouseenter', function () { light(mark.dataset.i); });
      mark.addEventListener('mouseleave', function () { light(pinned); });
      mark.addEventListener('focus', function () { light(mark.dataset.i); });
      mark.addEventListener('blur', function () { light(pinned); });
      mark.addEventListener('click', function () {
        pinned = pinned === mark.dataset.i ? null : mark.dataset.i;
        light(pinned);
      });
    });
    box.querySelectorAll('th button').forEach(function (button, column) {
      button.addEventListener('click', function () {
        var head = button.parentElement;
        var down = head.getAttribute('aria-sort') === 'descending';
        box.querySelectorAll('thead th').forEach(function (one) {
          one.removeAttribute('aria-sort');
        });
        head.setAttribute('aria-sort', down ? 'ascending' : 'descending');
        var sign = down ? 1 : -1;
        Array.prototype.slice.call(body.rows).sort(function (a, b) {
          var x = a.cells[column].dataset.v, y = b.cells[column].dataset.v;
          if (x === undefined || y === undefined) { return (x === undefined) - (y === undefined); }
          var p = Number(x), q = Number(y);
          return sign * (isNaN(p) || isNaN(q) ? x.localeCompare(y) : p - q);
        }).forEach(function (row) { body.appendChild(row); });
      });
    });
  });
})();
"""


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
    places = _chart_look.places(series)
    charts = cost_charts(shown, names, "scheme" if "scheme" in shown else None)
    plots = "".join(drawn(chart, places) for chart in charts.values())
    legend = _chart_look.keys(series, is_switch=False) if plots else ""
    content = f'<div class="pictures">{plots}</div>{legend}' + _rows(table, names)
    style = f"{_ALONE}#ID {{ {_chart_look.STYLE}{_chart_look.day_colours(series)} }}"
    return Explorer(_with_script(content, style, _chart_look.SCRIPT * bool(plots)))


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
    inner = f"<script>{_SCRIPT.replace('ID', own)}{script}</script>"
    look = f"<style>{(_STYLE + style).replace('ID', own)}</style>"
    return f'<div id="{own}">{look}{content}{inner}</div>'


def _table(
    table: pd.DataFrame,
    names: Sequence[str],
    spans: Mapping[tuple[int, str], tuple[float, float]],
) -> str:
    known = [n for n in HEADINGS if n in table and n not in names]
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
