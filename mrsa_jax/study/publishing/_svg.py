"""Draw charts as inline SVG that stays readable at any width, with its values.

The lines lie in a separate drawing that is stretched to the available room, in the
units of the data, so that a script can read the values back; ticks and marks are placed
in percent of that room, and so keep their size. Where scripts are not run, everything
but the values shows.

Nothing here imports matplotlib or JAX.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax._core.pictures import png_address
from mrsa_jax.plotting.chart import FEW, Cells, Chart, Line
from mrsa_jax.study.publishing._assets import piece
from mrsa_watch._base.html import number, shown

_MOST_TICKS = 6
_MOST_POINTS = 600  # of a curve: more than a screen has room for
_MOST_RINGS = 4  # of marks that share a place
_LONGEST = 24  # characters below an axis


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
        if not is_tight:
            low = min(low, ticks[0])
            high = max(high, ticks[-1])
        pad = (high - low) / 25 if is_padded else 0.0
        inside = tuple(tick for tick in ticks if low <= tick <= high)
        return cls(low - pad, high + pad, inside)

    def units(self, values: np.ndarray) -> np.ndarray:
        """Return values in the axis' units; nan for what a logarithmic axis lacks."""
        if not self.is_log:
            return values
        return np.asarray(np.log10(np.where(values > 0, values, np.nan)))

    def place(self, value: float) -> float:
        """Return the place of a value on the axis, from 0 to 1."""
        return (float(self.units(_floats(value))) - self.low) / (self.high - self.low)


def _ticks(low: float, high: float, is_whole: bool) -> tuple[float, ...]:
    """Return round numbers, one step apart, that enclose two values."""
    # the least of 1, 2, 2.5, 5 and 10 times a power of ten that gives few ticks
    rough = (high - low) / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (1, 2, 5, 10) if is_whole else (1, 2, 2.5, 5, 10)
    step = next(s * power for s in steps if s * power >= rough * (1 - 1e-9))
    if is_whole:
        step = max(1.0, round(step))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    # twelve digits: 0.3, not 0.30000000000000004
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


def _log_scale(low: float, high: float, is_padded: bool) -> Scale:
    """Return a logarithmic axis: ticks at powers of ten, and between few of them."""
    least = math.log10(low)
    most = math.log10(high)
    if most - least < 1e-9:
        least -= 0.2
        most += 0.2
    decades = most - least
    is_long = decades > 2.2
    every = math.ceil(decades / _MOST_TICKS) if is_long else 1
    powers = range(math.floor(least), math.ceil(most) + 1, every)
    leads: tuple[float, ...] = (1,)
    if is_long:
        least = min(least, powers[0])
        most = max(most, powers[-1])
    else:
        leads = (1, 2, 5) if decades > 0.9 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    ticks = [float(f"{lead * 10.0**power:.12g}") for power in powers for lead in leads]
    pad = (most - least) / (25 if is_padded else 50)
    inside = tuple(t for t in ticks if least - pad <= math.log10(t) <= most + pad)
    return Scale(least - pad, most + pad, inside, True)


def drawn(chart: Chart, places: dict[str, int], *, is_large: bool = False) -> str:
    """Return a chart as a figure; "" where there is nothing to draw.

    Args:
        chart: What to draw.
        places: The place of each series in the page's legend.
        is_large: Whether it is what a page opens with.
    """
    if chart.cells is not None:
        return _picture(chart, chart.cells)
    along = _scale(chart, "x")
    up = _scale(chart, "y")
    if along is None or up is None:
        return ""
    curves = []
    marks: list[dict[str, Any]] = []
    for line in chart.lines:
        style = f"s{places[line.series]}"
        marks += _marks(line, style, along, up)
        if line.kind != "marks":
            curves.append(_curve(line, style, along, up))
    # y points down in a drawing: curves are drawn upside down and turned
    box = (along.low, -up.high, along.high - along.low, up.high - up.low)
    is_zero = not any(np.nansum(np.abs(_floats(line.y))) for line in chart.lines)
    return piece(
        "curves",
        chart,
        curves,
        marks,
        _rules(along, up, chart),
        _ticks_of(along, up, chart),
        " ".join(map(_n, box)),
        is_empty=bool(chart.empty) and is_zero,
        is_large=is_large,
    )


def _floats(values: Any) -> np.ndarray:
    return np.asarray(values, float)


def _picture(chart: Chart, cells: Cells) -> str:
    """Return a picture of cells, a pixel each, with its key."""
    rows, columns = cells.values.shape
    along = Scale.of(0.0, float(columns), is_whole=True, is_tight=True)
    down = Scale.of(0.0, float(rows), is_whole=True, is_tight=True)
    up = Scale(down.high, down.low, down.ticks)
    return piece(
        "cells",
        chart,
        _ticks_of(along, up, chart),
        columns,
        rows,
        png_address(cells.values, [colour for _, colour in cells.kinds]),
        "".join(f"M{edge} 0V{rows}" for edge in cells.edges),
    )


def _scale(chart: Chart, axis: str) -> Scale | None:
    """Return the axis that holds all that is drawn; None where nothing is."""
    is_x = axis == "x"
    is_log = chart.is_log_x if is_x else chart.is_log_y
    ends: list[float] = []
    for line in chart.lines:
        is_drawn = np.isfinite(_floats(line.x)) & np.isfinite(_floats(line.y))
        for part in (line.x,) if is_x else (line.y, line.low, line.high):
            if part is None:
                continue
            values = _floats(part)
            values = values[is_drawn & np.isfinite(values)]
            values = values[values > 0] if is_log else values
            if values.size:
                ends += [float(values.min()), float(values.max())]
    if not ends:
        return None
    fixed = chart.y_range
    if is_x:
        fixed = () if chart.x_from is None else (chart.x_from,)
    ends += [value for value in fixed if value > 0 or not is_log]
    has_marks = any(line.kind == "marks" for line in chart.lines)
    needs_room = has_marks or (is_x and bool(chart.ticks))
    return Scale.of(
        min(ends),
        max(ends),
        is_log=is_log,
        is_whole=axis in chart.whole,
        is_tight=is_x and not needs_room,
        is_padded=has_marks or needs_room,
    )


def _ticks_of(along: Scale, up: Scale, chart: Chart) -> tuple[list[Any], list[Any]]:
    """Return the ticks below (place, anchor, words) and at the left (place, words)."""
    below = []
    for at, words in chart.ticks or [(tick, number(tick)) for tick in along.ticks]:
        place = along.place(at)
        anchor = ""
        if chart.ticks and not 0.2 <= place <= 0.8:  # words end where the drawing does
            anchor = "start" if place < 0.5 else "end"
        below.append((_percent(place), anchor, shown(words, _LONGEST)))
    return below, [(_percent(1 - up.place(tick)), number(tick)) for tick in up.ticks]


def _rules(along: Scale, up: Scale, chart: Chart) -> list[tuple[str, str, str]]:
    """Return levels to compare with: how high each is, where its words stand, words."""
    x = "100%"
    if len(chart.ticks) > 1:  # between the marks, which stand over words
        x = _percent(along.place((chart.ticks[-1][0] + chart.ticks[-2][0]) / 2))
    levels = [(up.place(level), words) for level, words in chart.rules]
    return [(_percent(1 - y), x, words) for y, words in levels if 0 <= y <= 1]


def _marks(line: Line, style: str, along: Scale, up: Scale) -> list[dict[str, Any]]:
    """Return the points of a line, with words for a reader if they are all of it."""
    points = list(zip(map(float, line.x), map(float, line.y), strict=True))
    drawn_ones = [k for k, pair in enumerate(points) if all(map(math.isfinite, pair))]
    is_curve = line.kind != "marks"
    if is_curve and (len(drawn_ones) > FEW or "thin" in line.weight):
        return []
    places = [
        (_percent(along.place(points[k][0])), _percent(1 - up.place(points[k][1])))
        for k in drawn_ones
    ]
    marks = []
    for order, (k, place) in enumerate(zip(drawn_ones, places, strict=True)):
        mark: dict[str, Any] = {"place": style, "x": place[0], "y": place[1]}
        marks.append(mark)
        if is_curve:
            mark |= {"radius": 3, "words": None}
            continue
        if line.low is not None and line.low[k] < line.high[k]:
            ends = (float(line.low[k]), float(line.high[k]))
            mark["range"] = [_percent(1 - up.place(end)) for end in ends]
        # where marks share a place, the lower ones show as rings
        num_above = min(places[order + 1 :].count(place), _MOST_RINGS)
        words = f"{line.series}: {', '.join(map(number, points[k]))}"
        mark |= {
            "row": line.rows[k] if len(line.rows) else None,
            "radius": f"{5 + 2.5 * num_above:g}",
            "words": line.words[k] if len(line.words) else words,
        }
    return marks


def _curve(line: Line, style: str, along: Scale, up: Scale) -> dict[str, Any]:
    shape = _steps if line.kind == "step" else _straight
    return {
        "place": style,
        "weight": line.weight,
        "name": line.name,
        "row": line.rows[0] if len(line.rows) else None,
        "series": line.series,
        "band": _band(line, along, up),
        "path": "".join(map(shape, _runs(line.x, line.y, along, up))),
    }


def _runs(x: Any, y: Any, along: Scale, up: Scale) -> list[np.ndarray]:
    """Return the parts of a line between gaps, in units of the axes, float[n, 2]."""
    points = np.stack([along.units(_floats(x)), up.units(_floats(y))], axis=1)
    is_finite = np.isfinite(points).all(axis=1)
    gaps = np.ma.masked_array(points[:, 0], ~is_finite)
    return [_thinned(points[run]) for run in np.ma.clump_unmasked(gaps)]


def _thinned(points: np.ndarray) -> np.ndarray:
    """Return the ends and extremes of each part of a long line, all of a short one."""
    if len(points) <= _MOST_POINTS:
        return points
    chosen = []
    # four points of each part keep its ends and its spikes
    for part in np.array_split(np.arange(len(points)), _MOST_POINTS // 4):
        heights = points[part, 1]
        chosen.append(part[[0, heights.argmin(), heights.argmax(), -1]])
    return points[np.unique(chosen)]


def _straight(run: np.ndarray) -> str:
    """Return a run of straight lines; points within one are left out."""
    text = [(_n(x), _n(y)) for x, y in run]
    last = len(text) - 1
    corners = [
        pair
        for k, pair in enumerate(text)
        if k in (0, last) or not text[k - 1][1] == pair[1] == text[k + 1][1]
    ]
    # one point is a dot: its line has round ends
    if not last:
        corners *= 2
    return "M" + " ".join(f"{x} {y}" for x, y in corners)


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
    both = _floats([line.low, line.high])
    both[:, ~np.isfinite(both).all(axis=0)] = np.nan  # a gap of one is one of both
    path = ""
    for edges in zip(*(_runs(line.x, y, along, up) for y in both), strict=True):
        below, above = map(_corners, edges) if line.kind == "step" else edges
        # along the lower edge and back along the upper one
        around = np.concatenate([below, above[::-1]])
        path += "M" + " ".join(f"{_n(x)} {_n(y)}" for x, y in around) + "Z"
    return path


def _corners(run: np.ndarray) -> np.ndarray:
    """Return a run of steps as its corners."""
    # each change has two corners: the old value there, and the new
    change = np.flatnonzero(np.diff(run[:, 1])) + 1
    before = np.stack([run[change, 0], run[change - 1, 1]], axis=1)
    corners = np.stack([before, run[change]], axis=1).reshape(-1, 2)
    return np.concatenate([run[:1], corners, run[-1:]])


def _percent(place: float) -> str:
    return f"{100 * place:.4g}%"


def _n(value: Any) -> str:
    """Return a number of a drawing as short as it can be read back."""
    text = f"{float(value):.6g}"
    return "0" if text == "-0" else text
