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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mrsa_jax._html import tidy
from mrsa_jax.plotting import scheme_colour

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 2000
_LEFT_SIDE = ' class="t"'  # where words stand
_MOST_RINGS = 4  # where points share a place, the lower ones show as rings
_WIDTH, _HEIGHT = 330, 250
_LEFT, _BOTTOM, _TOP, _RIGHT = 66, 44, 12, 12

_HEADINGS = {
    "scheme": "Scheme",
    "strong_privacy": "Strong T",
    "weak_lower": "Weak T, at least",
    "weak_upper": "Weak T, at most",
    "hidden_among_worst": "Hidden among (worst)",
    "hidden_among_median": "Hidden among (median)",
    "aggregation_cardinality": "C",
    "accuracy": "Accuracy (%)",
    "exposed_clients": "Exposed",
    "fairness_gap": "F",
    "rank": "Rank",
    "skipped_rounds": "Skipped",
    "first_exposed_round": "First exposed round",
    "first_exposed_after": "Exposed from",
    "reconstruction_error": "Attack's error",
    "seconds": "Seconds",
}
_AXES = {
    "strong_privacy": "strong T",
    "hidden_among_worst": "hidden among (worst client)",
    "aggregation_cardinality": "cardinality C",
    "accuracy": "accuracy (%)",
}
_PAIRS = (
    ("strong_privacy", "aggregation_cardinality"),
    ("hidden_among_worst", "aggregation_cardinality"),
    ("strong_privacy", "accuracy"),
    ("aggregation_cardinality", "accuracy"),
)

_STYLE = """
#ID { font: 14px/1.4 system-ui, sans-serif; }
#ID .plots { display: flex; flex-wrap: wrap; gap: .6rem; }
#ID .plots svg { flex: 1 1 17rem; max-width: 24rem; height: auto; }
#ID .key { list-style: none; padding: 0; margin: .3rem 0 .8rem; display: flex; flex-wrap: wrap;
           gap: .2rem 1rem; }
#ID .key li { margin: 0; } #ID .key svg { vertical-align: -1px; }
#ID svg text { fill: currentColor; font-size: 12px; }
#ID svg line { stroke: currentColor; opacity: .25; }
#ID circle { stroke: currentColor; stroke-width: .8; opacity: .8; cursor: pointer; }
#ID .scroll { overflow: auto; max-height: 30rem; }
#ID table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
#ID th, #ID td { padding: .25rem .6rem; text-align: right; white-space: nowrap;
                 border-bottom: 1px solid rgba(128,128,128,.35); font-weight: normal; }
#ID .t { text-align: left; }
#ID th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0;
                padding: .35rem 0; cursor: pointer; }
#ID th[aria-sort=ascending] button::after { content: " \\2191"; }
#ID th[aria-sort=descending] button::after { content: " \\2193"; }
#ID tr.on > * { background: rgba(0,114,178,.22); }
#ID circle.on { opacity: 1; stroke-width: 3; }
#ID circle.off { opacity: .15; }
@media print { #ID .scroll { max-height: none; overflow: visible; } #ID table { font-size: 7pt; }
               #ID th, #ID td { white-space: normal; padding: .1rem .25rem; } }
"""

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
    content = _plots(shown, names) + _table(shown, names)
    if len(table) > len(shown):
        content += f"<p>{len(table) - len(shown)} more rows are not shown.</p>"
    return Explorer(_with_script(content))


def pictures(table: pd.DataFrame, names: Sequence[str]) -> str:
    """Return an explorer's pictures alone; "" where there is nothing to draw."""
    content = _plots(table.head(_MOST_ROWS), names)
    return _with_script(content) if content else ""


def _with_script(content: str) -> str:
    own = f"mrsa-{zlib.crc32(content.encode()):08x}"
    script = f"<script>{_SCRIPT.replace('ID', own)}</script>"
    style = f"<style>{_STYLE.replace('ID', own)}</style>"
    return f'<div id="{own}">{style}{content}{script}</div>'


def _plots(table: pd.DataFrame, names: Sequence[str]) -> str:
    """Return the pictures over the list of what their colours mean."""
    plots = "".join(_plot(table, names, x, y) for x, y in _pairs(table, names))
    if not plots:
        return ""
    legend = ""
    if "scheme" in table:
        legend = "".join(
            f'<li><svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">'
            f'<circle cx="6" cy="6" r="5" fill="{scheme_colour(label)}"/></svg> {tidy(label)}</li>'
            for label in dict.fromkeys(map(str, table["scheme"]))
        )
        legend = f'<ul class="key">{legend}</ul>'
    return f'<div class="plots">{plots}</div>{legend}'


def _pairs(table: pd.DataFrame, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return which quantities are drawn against which; the first two there are, without those."""

    def has(name: str) -> bool:
        return name in table and bool(table[name].notna().any())

    pairs = [(x, y) for x, y in _PAIRS if has(x) and has(y)]
    if pairs or not len(table):
        return pairs
    numbers = [str(n) for n in table if table[n].dtype.kind in "iuf"]
    measured = [n for n in numbers if n not in names and n != "seconds" and has(n)]
    along = [n for n in names if n in numbers]
    free = [*along[:1], *measured]
    return [(free[0], free[1])] if len(free) > 1 else []


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name.replace("_", " ") + " (%)" * name.endswith("accuracy"))


def _scale(name: str) -> float:
    """Return what a quantity is multiplied by to be shown: accuracies are in percent."""
    return 100.0 if name.endswith("accuracy") else 1.0


def _table(table: pd.DataFrame, names: Sequence[str]) -> str:
    known = [n for n in _HEADINGS if n in table and n not in names]
    columns = [*names, *known]
    columns += [str(n) for n in table if n not in columns]
    is_text = {n: table[n].dtype.kind not in "iuf" for n in columns}
    head = "".join(
        f'<th scope="col"{_LEFT_SIDE * is_text[n]}>'
        f'<button type="button">{tidy(_heading(n))}</button></th>'
        for n in columns
    )
    lines = []
    for i, values in enumerate(table[columns].itertuples(index=False, name=None)):
        cells = "".join(
            _cell(value, _scale(name), is_text[name], is_first=k == 0)
            for k, (name, value) in enumerate(zip(columns, values, strict=True))
        )
        lines.append(f'<tr data-i="{i}" tabindex="0">{cells}</tr>')
    return (
        f'<div class="scroll"><table aria-label="Points; a heading sorts"><thead><tr>{head}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(value: Any, scale: float, is_text: bool, *, is_first: bool) -> str:
    tag = 'th scope="row"' if is_first else "td"
    end = tag.split()[0]
    if is_text:
        own = tidy(value)
        return f'<{tag} class="t" data-v="{own}">{own}</{end}>'
    number = scale * float(value)
    if not math.isfinite(number):
        return f"<{tag}>-</{end}>"
    return f'<{tag} data-v="{number:.9g}">{_short(number)}</{end}>'


def _short(number: float) -> str:
    if number == int(number) and abs(number) < 10**7:
        return str(int(number))
    return f"{number:.4g}"


class _Range(NamedTuple):
    """An axis of a picture: where values lie, and its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, values: np.ndarray, *, from_zero: bool) -> _Range:
        """Return an axis that holds all values, with three to six round ticks."""
        from matplotlib.ticker import MaxNLocator

        low, high = float(values.min()), float(values.max())
        low = min(0.0, low) if from_zero else low
        if high <= low and not (from_zero and high == 0):
            low, high = low - 0.5, high + 0.5
        high = high if high > low else 1.0  # of nothing but zeros: no less than none
        locator = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], min_n_ticks=1)
        ticks = tuple(map(float, locator.tick_values(low, high)))
        pad = 0.04 * (ticks[-1] - ticks[0])
        return cls(ticks[0] - pad, ticks[-1] + pad, ticks)

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def _plot(table: pd.DataFrame, names: Sequence[str], x: str, y: str) -> str:
    xs = _scale(x) * table[x].to_numpy(np.float64)
    ys = _scale(y) * table[y].to_numpy(np.float64)
    good = np.flatnonzero(np.isfinite(xs) & np.isfinite(ys))
    if not good.size:
        return ""
    across = _Range.of(xs[good], from_zero=x != "accuracy")
    up = _Range.of(ys[good], from_zero=y != "accuracy")
    parts = _grid(across, up)
    places = [(round(float(xs[i]), 6), round(float(ys[i]), 6)) for i in good]
    for order, i in enumerate(good):
        above = min(places[order + 1 :].count(places[order]), _MOST_RINGS)
        words = ", ".join(f"{_heading(n)} {table[n].iloc[i]}" for n in names)
        label = f"{words}: {_heading(x)} {_short(xs[i])}, {_heading(y)} {_short(ys[i])}"
        colour = scheme_colour(str(table["scheme"].iloc[i])) if "scheme" in table else "#0072B2"
        parts.append(
            f'<circle data-i="{i}" cx="{_right(across.place(xs[i])):.1f}" '
            f'cy="{_down(up.place(ys[i])):.1f}" r="{6 + 2.5 * above:g}" fill="{colour}">'
            f"<title>{tidy(label)}</title></circle>"
        )
    names_of_axes = [tidy(_AXES.get(n, n.replace("_", " "))) for n in (x, y)]
    parts.append(
        f'<text x="{_right(0.5):.0f}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{names_of_axes[0]}</text>"
        f'<text transform="translate(13 {_down(0.5):.0f}) rotate(-90)" text-anchor="middle">'
        f"{names_of_axes[1]}</text>"
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{names_of_axes[1]} against {names_of_axes[0]}; the table holds the numbers">'
        f"{''.join(parts)}</svg>"
    )


def _right(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _down(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _grid(across: _Range, up: _Range) -> list[str]:
    """Return the lines and numbers behind the points."""
    left, right, bottom, top = _right(0.0), _right(1.0), _down(0.0), _down(1.0)
    columns = [(tick, _right(across.place(tick))) for tick in across.ticks]
    rows = [(tick, _down(up.place(tick))) for tick in up.ticks]
    return [
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom:.1f}" y2="{top:.1f}"/>'
        f'<text x="{at:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{tick:.4g}</text>'
        for tick, at in columns
    ] + [
        f'<line y1="{at:.1f}" y2="{at:.1f}" x1="{left:.1f}" x2="{right:.1f}"/>'
        f'<text x="{left - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">{tick:.4g}</text>'
        for tick, at in rows
    ]
