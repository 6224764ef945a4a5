"""Curves as inline SVG that stay readable at any width, with the values that they are drawn from.

The lines lie in a separate drawing that is stretched to the available room, in the
units of the data, so that a script can read the values back; ticks and marks are placed
in shares of that room, and so keep their size. Where scripts are not run, everything
but the values shows.

Nothing here imports matplotlib or JAX.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax._core.pictures import png_address
from mrsa_jax.plotting.chart import FEW, Cells, Chart, Line
from mrsa_watch._base.html import number, shown, tidy

_MOST_TICKS = 6


class Scale(NamedTuple):
    """An axis: what it holds, in its own units, and its ticks.

    Attributes:
        low: Its start; of a logarithmic axis the logarithm to the base 10.
        high: Its end, above `low`.
        ticks: Round values on it, rising.
        is_log: Whether it is logarithmic.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    @classmethod
    def of(
        cls,
        low: float,
        high: float,
        *,
        is_log: bool = False,
        is_whole: bool = False,
        is_tight: bool = False,
        is_padded: bool = False,
    ) -> Scale:
        """Return an axis that holds two values and all between them.

        Args:
            low: The least; above 0 on a logarithmic axis.
            high: The largest.
            is_log: Whether the axis is logarithmic.
            is_whole: Whether ticks are whole numbers only.
            is_tight: Whether it ends with the values, not with the next tick.
            is_padded: Whether marks at its ends need room.

        Examples:
            >>> Scale.of(0.0, 23.0).ticks
            (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)
            >>> Scale.of(1.0, 500.0, is_log=True).ticks
            (1.0, 10.0, 100.0, 1000.0)
            >>> Scale.of(0.0, 1.0, is_whole=True).ticks, Scale.of(0.0, 0.0).ticks
            ((0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
        """
        if is_log:
            return _log_scale(low, high, is_padded)
        if high <= low:
            half = 0.5 if abs(low) < 10**6 else abs(low) / 10
            low, high = (0.0, 1.0) if low == 0 else (low - half, low + half)
        ticks = _ticks(low, high, is_whole)
        first, last = (
            (low, high) if is_tight else (min(low, ticks[0]), max(high, ticks[-1]))
        )
        pad = (last - first) / 25 if is_padded else 0.0
        kept = tuple(tick for tick in ticks if first <= tick <= last)
        return cls(first - pad, last + pad, kept)

    def units(self, values: np.ndarray) -> np.ndarray:
        """Return values in the units of the axis.

        Nan for what a logarithmic axis has not.
        """
        if not self.is_log:
            return values
        return np.asarray(np.log10(np.where(values > 0, values, np.nan)))

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        own = float(self.units(np.asarray(value, float)))
        return (own - self.low) / (self.high - self.low)


def _ticks(low: float, high: float, is_whole: bool) -> tuple[float, ...]:
    """Return round numbers, one step apart, the first at most `low`, the last at least `high`."""
    rough = (high - low) / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (1, 2, 5, 10) if is_whole else (1, 2, 2.5, 5, 10)
    step = next(s * power for s in steps if s * power >= rough * (1 - 1e-9))
    if is_whole:
        step = max(1.0, round(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


def _log_scale(low: float, high: float, is_padded: bool) -> Scale:
    """Return a logarithmic axis.

    Ticks at powers of ten, or at 1, 2 and 5 of few of them.
    """
    least, most = math.log10(low), math.log10(high)
    if most - least < 1e-9:
        least, most = least - 0.2, most + 0.2
    decades = most - least
    if decades > 2.2:
        every = math.ceil(decades / _MOST_TICKS)
        powers = range(math.floor(least), math.ceil(most) + 1, every)
        ticks = [10.0**power for power in powers]
        least, most = min(least, powers[0]), max(most, powers[-1])
    else:
        leads = (1, 2, 5) if decades > 0.9 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        powers = range(math.floor(least), math.ceil(most) + 1)
        ticks = [
            float(f"{lead * 10.0**power:.12g}") for power in powers for lead in leads
        ]
    pad = (most - least) / 25 if is_padded else 0.02 * (most - least)
    kept = tuple(t for t in ticks if least - pad <= math.log10(t) <= most + pad)
    return Scale(least - pad, most + pad, kept, True)


_MOST_POINTS = 600  # of a curve: more than a screen has room for
_MOST_RINGS = 4  # where marks share a place, the lower ones show as rings
_LONGEST = 24  # characters below an axis


def drawn(chart: Chart, places: dict[str, int], *, is_large: bool = False) -> str:
    """Return a chart as a figure; "" where there is nothing to draw.

    Args:
        chart: What to draw.
        places: The place of each series in the page's legend.
        is_large: Whether it is what a page opens with.
    """
    if chart.cells is not None:
        return _picture(chart, chart.cells)
    along, up = _scale(chart, "x"), _scale(chart, "y")
    if along is None or up is None:
        return ""
    frame = _frame(along, up, chart)
    curves: list[str] = []
    marks: list[str] = []
    for line in chart.lines:
        place = f"s{places[line.series]}"
        marks += _marks(line, place, along, up)
        if line.kind != "marks":
            name = f' data-n="{tidy(line.name)}"' if line.name else ""
            row = f' data-i="{line.rows[0]}"' if len(line.rows) else ""
            shape = _steps if line.kind == "step" else _straight
            path = "".join(map(shape, _runs(line.x, line.y, along, up)))
            inner = f'{_band(line, along, up)}<path d="{path}"/>'
            curves.append(
                f'<g class="{place} {line.weight}"{name}{row} '
                f'data-s="{tidy(line.series)}">{inner}</g>'
            )
    words = f'<text class="empty" x="50%" y="50%">{tidy(chart.empty)}</text>'
    box = f"{_n(along.low)} {_n(-up.high)} {_n(along.high - along.low)} {_n(up.high - up.low)}"
    inner = _stretched(box, f'<g transform="scale(1 -1)">{"".join(curves)}</g>')
    is_zero = not any(
        np.nansum(np.abs(np.asarray(line.y, float))) for line in chart.lines
    )
    over = f"{_rules(along, up, chart)}{words * bool(chart.empty and is_zero)}"
    return _figure(chart, f"{frame}{inner}{''.join(marks)}{over}", is_large=is_large)


def _stretched(box: str, content: str) -> str:
    """Return a drawing in the units of the data, as large as there is room."""
    return (
        f'<svg viewBox="{box}" width="100%" height="100%" preserveAspectRatio="none" '
        f'aria-hidden="true">{content}</svg>'
    )


def _picture(chart: Chart, cells: Cells) -> str:
    """Return a picture of cells, a pixel each, with its key."""
    rows, columns = cells.values.shape
    address = png_address(cells.values, [colour for _, colour in cells.kinds])
    along, down = (
        Scale.of(0.0, float(size), is_whole=True, is_tight=True)
        for size in (columns, rows)
    )
    edges = "".join(f"M{edge} 0V{rows}" for edge in cells.edges)
    drawing = (
        f'<image width="{columns}" height="{rows}" preserveAspectRatio="none" '
        f'style="image-rendering: pixelated" href="{address}"/><path class="edge" '
        f'd="{edges}"/>'
    )
    frame = _frame(along, Scale(down.high, down.low, down.ticks), chart)
    inner = _stretched(f"0 0 {columns} {rows}", drawing)
    keys = "".join(
        f'<span class="item" style="--c: {colour}"><span class="dot"></span>'
        f"{tidy(name)}</span>"
        for name, colour in cells.keys
    )
    return _figure(chart, frame + inner, f'<div class="keys">{keys}</div>' * bool(keys))


def _figure(
    chart: Chart, drawing: str, keys: str = "", *, is_large: bool = False
) -> str:
    """Return a drawing with its words around it."""
    logs = "x" * chart.is_log_x + "y" * chart.is_log_y
    label = f"{chart.title}: {chart.y_label} against {chart.x_label}"
    whole = ' data-whole=""' if "x" in chart.whole else ""
    return (
        f'<figure class="chart{" large" * is_large}"><h3>{tidy(chart.title)}</h3>'
        f'<p class="axis">{tidy(chart.y_label)}</p>'
        f'<div class="plot" tabindex="0" role="img" aria-label="{tidy(label)}" '
        f'data-x="{tidy(chart.x_label)}" data-log="{logs}"{whole}>'
        f'<svg width="100%" height="100%" aria-hidden="true">{drawing}</svg></div>'
        f'<p class="axis below">{tidy(chart.x_label)}</p>{keys}'
        f"<figcaption>{tidy(chart.caption)}</figcaption></figure>"
    )


def _scale(chart: Chart, axis: str) -> Scale | None:
    """Return the axis that holds all that is drawn; None where nothing is."""
    found: list[float] = []
    is_log = chart.is_log_x if axis == "x" else chart.is_log_y
    for line in chart.lines:
        good = np.isfinite(np.asarray(line.x, float)) & np.isfinite(
            np.asarray(line.y, float)
        )
        parts = (line.x,) if axis == "x" else (line.y, line.low, line.high)
        for part in parts:
            values = np.asarray([] if part is None else part, float)
            kept = values[good & np.isfinite(values)] if values.size else values
            kept = kept[kept > 0] if is_log else kept
            found += [float(kept.min()), float(kept.max())] if kept.size else []
    if not found:
        return None
    more = (
        chart.y_range
        if axis == "y"
        else ()
        if chart.x_from is None
        else (chart.x_from,)
    )
    found += [value for value in more if value > 0 or not is_log]
    is_category = axis == "x" and bool(chart.ticks)
    return Scale.of(
        min(found),
        max(found),
        is_log=is_log,
        is_whole=axis in chart.whole,
        is_tight=axis == "x" and not _has_marks(chart) and not is_category,
        is_padded=_has_marks(chart) or is_category,
    )


def _has_marks(chart: Chart) -> bool:
    return any(line.kind == "marks" for line in chart.lines)


def _frame(along: Scale, up: Scale, chart: Chart) -> str:
    """Return the lines and numbers behind what is drawn."""
    parts = []
    for tick in up.ticks:
        y = _share(1 - up.place(tick))
        parts.append(
            f'<line x2="100%" y1="{y}" y2="{y}"/>'
            f'<text class="up" x="-8" y="{y}" dy="4">{number(tick)}</text>'
        )
    below = chart.ticks or [(tick, number(tick)) for tick in along.ticks]
    for at, words in below:
        place = along.place(at)
        x, side = _share(place), ""
        if chart.ticks and not 0.2 <= place <= 0.8:  # words end where the drawing does
            side = f' style="text-anchor: {"start" if place < 0.5 else "end"}"'
        parts.append(
            f'<line class="stub" x1="{x}" x2="{x}" y1="100%" y2="100%"/>'
            f'<text class="on"{side} x="{x}" y="100%" dy="18">'
            f"{tidy(shown(words, _LONGEST))}</text>"
        )
    for level, _ in chart.rules:
        if 0 <= up.place(level) <= 1:
            y = _share(1 - up.place(level))
            parts.append(f'<line class="rule" x2="100%" y1="{y}" y2="{y}"/>')
    return "".join(parts)


def _rules(along: Scale, up: Scale, chart: Chart) -> str:
    """Return the words at levels to compare with, over what is drawn."""
    parts = []
    for level, words in chart.rules:
        place = up.place(level)
        if 0 <= place <= 1:
            y, end = _share(1 - place), 'x="100%"'
            if len(chart.ticks) > 1:  # between the marks, which stand over words
                middle = (chart.ticks[-1][0] + chart.ticks[-2][0]) / 2
                end = f'x="{_share(along.place(middle))}" style="text-anchor: middle"'
            parts.append(
                f'<text class="rule" {end} y="{y}" dy="-5">{tidy(words)}</text>'
            )
    return "".join(parts)


def _marks(line: Line, place: str, along: Scale, up: Scale) -> Iterable[str]:
    """Return the points of a line.

    With the words that a reader asks for, if they are all of it.
    """
    at = list(zip(map(float, line.x), map(float, line.y), strict=True))
    shown = [k for k, pair in enumerate(at) if all(map(math.isfinite, pair))]
    if line.kind != "marks" and (len(shown) > FEW or "thin" in line.weight):
        return
    places = [
        (_share(along.place(at[k][0])), _share(1 - up.place(at[k][1]))) for k in shown
    ]
    for order, (k, (x, y)) in enumerate(zip(shown, places, strict=True)):
        if line.kind != "marks":
            yield f'<circle class="{place}" cx="{x}" cy="{y}" r="3"/>'
            continue
        if line.low is not None and line.low[k] < line.high[k]:
            low, high = (
                _share(1 - up.place(float(end[k]))) for end in (line.low, line.high)
            )
            yield f'<line class="{place} range" x1="{x}" x2="{x}" y1="{low}" y2="{high}"/>'
        below = min(places[order + 1 :].count((x, y)), _MOST_RINGS)
        told = [number(value) for value in at[k]]
        words = (
            line.words[k] if len(line.words) else f"{line.series}: {', '.join(told)}"
        )
        row = f' data-i="{line.rows[k]}"' if len(line.rows) else ""
        yield (
            f'<circle class="{place}"{row} cx="{x}" cy="{y}" r="{5 + 2.5 * below:g}">'
            f"<title>{tidy(words)}</title></circle>"
        )


def _runs(x: Any, y: Any, along: Scale, up: Scale) -> list[np.ndarray]:
    """Return what is drawn in one go, as units of the axes: float[n, 2] between gaps."""
    across, height = along.units(np.asarray(x, float)), up.units(np.asarray(y, float))
    good = np.isfinite(across) & np.isfinite(height)
    edges = np.flatnonzero(
        np.diff(np.concatenate([[False], good, [False]]).astype(int))
    )
    points = np.stack([across, height], axis=1)
    return [_thinned(points[a:b]) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _thinned(points: np.ndarray) -> np.ndarray:
    """Return at most so many points.

    Of each part of a long line its ends and its extremes.
    """
    if len(points) <= _MOST_POINTS:
        return points
    kept: set[int] = {0, len(points) - 1}
    for part in np.array_split(np.arange(len(points)), _MOST_POINTS // 4):
        own = points[part, 1]
        kept |= {
            int(part[0]),
            int(part[own.argmin()]),
            int(part[own.argmax()]),
            int(part[-1]),
        }
    return points[sorted(kept)]


def _straight(run: np.ndarray) -> str:
    """Return a run of straight lines; points within one are left out."""
    text = [(_n(x), _n(y)) for x, y in run]
    kept = [
        pair
        for k, pair in enumerate(text)
        if k in (0, len(text) - 1) or not text[k - 1][1] == pair[1] == text[k + 1][1]
    ]
    # one point is a dot: its line has round ends
    kept = kept if len(kept) > 1 else kept * 2
    return "M" + " ".join(f"{x} {y}" for x, y in kept)


def _steps(run: np.ndarray) -> str:
    """Return a run of values that each hold until the next."""
    last = _n(run[0, 1])
    text = f"M{_n(run[0, 0])} {last}"
    for x, y in run[1:]:
        if _n(y) != last:
            last = _n(y)
            text += f"H{_n(x)}V{last}"
    return text + f"H{_n(run[-1, 0])}"


def _band(line: Line, along: Scale, up: Scale) -> str:
    """Return the band around a line; "" without one."""
    if line.low is None or line.high is None:
        return ""
    x, low, high = (np.asarray(part, float) for part in (line.x, line.low, line.high))
    both = np.isfinite(low) & np.isfinite(high)
    edges = [_runs(x, np.where(both, edge, np.nan), along, up) for edge in (low, high)]
    d = ""
    for below, above in zip(*edges, strict=True):
        if line.kind == "step":
            below, above = _corners(below), _corners(above)
        around = np.concatenate([below, above[::-1]])
        d += "M" + " ".join(f"{_n(a)} {_n(b)}" for a, b in around) + "Z"
    return f'<path class="band" d="{d}"/>'


def _corners(run: np.ndarray) -> np.ndarray:
    """Return a run of steps as its corners."""
    change = np.flatnonzero(np.diff(run[:, 1])) + 1
    before = np.stack([run[change, 0], run[change - 1, 1]], axis=1)
    corners = np.stack([before, run[change]], axis=1).reshape(-1, 2)
    return np.concatenate([run[:1], corners, run[-1:]])


def _share(place: Any) -> str:
    return f"{100 * place:.4g}%"


def _n(value: Any) -> str:
    """Return a number of a drawing as short as it can be read back."""
    text = f"{float(value):.6g}"
    return "0" if text == "-0" else text
