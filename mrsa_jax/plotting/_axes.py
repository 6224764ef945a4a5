"""A chart on Matplotlib axes: the data, names and levels of a report's, and a key beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._chart import FEW, Chart, Line
from mrsa_jax.plotting._colours import look
from mrsa_jax.plotting._names import legend, name_curves, plain, short
from mrsa_jax.plotting._style import (
    MARKERS,
    WARNING,
    caption,
    drawing,
    nobody,
    slant,
    whole_numbers,
)
from mrsa_jax.plotting._together import interleave, staggered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_WIDTHS = {"main": 1.5, "thin": 0.8, "thick": 3.2}
_STYLES: dict[str, Any] = {"solid": "-", "dashed": (0, (4, 2))}
_MOST_TICKS = 6  # places of marks that have a tick each


def draw(chart: Chart, *, ax: Axes | None = None) -> Axes:
    """Draw a chart on axes, or on those of a figure of its own."""
    with drawing(ax) as ax:
        named: set[str] = set()
        drawn = [_drawn(ax, chart, line, named) for line in chart.lines]
        _scales(ax, chart)
        alike: dict[Any, list[Line2D]] = {}  # curves of one kind, of a series each
        for line, own in zip(chart.lines, drawn, strict=True):
            kind = (line.kind, line.weight, line.name, np.asarray(line.x, float).tobytes())
            alike.setdefault(kind, []).append(own)
        for kind, curves in alike.items():
            interleave(ax, curves if kind[0] != "marks" else [])
        marked = [own for own in drawn if own.get_marker() in MARKERS and not own.get_markevery()]
        staggered(ax, marked)
        _shades(ax, chart, drawn)
        for level, words in chart.rules:
            _rule(ax, level, words)
        if chart.empty:
            nobody(ax, np.concatenate([np.ravel(line.y) for line in chart.lines]), chart.empty)
        ax.set(xlabel=chart.x_label, ylabel=chart.y_label)
        if chart.names_lines or any(line.kind == "marks" for line in chart.lines):
            legend(ax, above=any(line.shade is not None for line in chart.lines))
        else:
            name_curves(ax, gap=6.0 if marked else 2.0)
        caption(ax, chart.caption)
    return ax


def _drawn(ax: Axes, chart: Chart, line: Line, named: set[str]) -> Line2D:
    """Draw one line and the band around it; name it if no other has its name in the key."""
    place = chart.series.index(line.series)
    colour, dashes = look(line.series, place, is_scheme=chart.are_schemes)
    weight, *more = line.weight.split()
    is_step, known = line.kind == "step", np.isfinite(np.asarray(line.y, float))
    if line.low is not None and (line.kind == "marks" or known.sum() < 2):
        ax.vlines(line.x, line.low, line.high, color=colour, alpha=0.4, lw=1.4)
    elif line.low is not None:
        ax.fill_between(line.x, line.low, line.high, step="post" if is_step else None,
                        color=colour, alpha=0.14, lw=0)  # fmt: skip
    is_key = chart.names_lines or not (line.series in named or weight == "thin")
    is_key &= chart.are_schemes or len(chart.lines) > 1
    named |= {line.series} if is_key else set()
    name = f", {line.name}" * bool(line.name)
    key = short(line.series) + name if chart.names_lines else plain(line.series)
    (drawn,) = ax.plot(
        line.x, line.y, color=colour, lw=_WIDTHS[weight],
        ls="" if line.kind == "marks" else _STYLES[more[0]] if more else (0, dashes or None),
        drawstyle="steps-post" if is_step else "default",
        label=key if is_key else f"_{line.series}{name}",
    )  # fmt: skip
    alone = known & ~np.append(known[1:], False) & ~np.append(False, known[:-1])
    is_short = chart.marks_points and weight != "thin" and known.sum() <= FEW
    if line.kind == "marks" or is_short:
        drawn.set(marker=MARKERS[place % len(MARKERS)], markersize=4.5, clip_on=False)
    elif alone.any():  # what no line would show
        drawn.set(marker="o", markersize=3.0, markevery=np.flatnonzero(alone).tolist())
    return drawn


def _shades(ax: Axes, chart: Chart, drawn: list[Line2D]) -> None:
    """Fill marks by how well the models behind them have learnt, with a scale beside the axes."""
    pairs = [pair for pair in zip(chart.lines, drawn, strict=True) if pair[0].shade is not None]
    known = [value for line, _ in pairs for value in line.shade if np.isfinite(value)]
    for line, own in pairs if known else ():
        own.set(markersize=own.get_markersize() + 3, markerfacecolor="none", markeredgewidth=1.5)
        marks = ax.scatter(line.x, line.y, own.get_markersize() ** 2, line.shade, lw=0,
                           marker=own.get_marker(), zorder=own.get_zorder() - 0.1, cmap="cividis",
                           vmin=min(known) - 1e-9, vmax=max(known) + 1e-9)  # fmt: skip
        if line is pairs[-1][0]:
            ax.figure.colorbar(marks, ax=ax, label="test accuracy (%)", pad=0.02)


def _scales(ax: Axes, chart: Chart) -> None:
    """End the axes where curves end, with room for what runs at the lowest and highest."""
    ax.set(**{f"{axis}scale": "log" for axis, is_log in
              (("x", chart.is_log_x), ("y", chart.is_log_y)) if is_log})  # fmt: skip
    ys = np.concatenate([np.zeros(0), *(np.ravel(np.asarray(o.y, float)) for o in chart.lines)])
    is_flat = not chart.is_log_y and not ys[np.isfinite(ys)].any()
    ax.dataLim.update_from_data_y(np.array([*chart.y_range, *([1.0] if is_flat else [])]), False)
    if chart.x_from is not None:
        ax.dataLim.update_from_data_x(np.array([chart.x_from]), False)
    is_of_marks = any(line.kind == "marks" for line in chart.lines) and not chart.ticks
    ax.margins(x=0.04 * is_of_marks, y=0.03)
    ax.autoscale_view()
    places = np.unique(np.concatenate([np.zeros(0), *(np.ravel(o.x) for o in chart.lines)]))
    if chart.ticks:
        ax.set_xticks([at for at, _ in chart.ticks], [short(words) for _, words in chart.ticks])
        slant(ax, len(chart.ticks) > 3)
        ax.set_xlim(-0.5, len(chart.ticks) - 0.5)
    elif len(places) == max((len(line.x) for line in chart.lines), default=0) <= _MOST_TICKS:
        ax.set_xticks(places, [f"{place:.4g}" for place in places])
        ax.xaxis.minorticks_off()
    elif chart.is_log_x:
        _few_decades(ax.xaxis)
    elif "x" in chart.whole:
        whole_numbers(ax.xaxis)
    if chart.is_log_y:
        _few_decades(ax.yaxis)
    elif "y" in chart.whole:
        whole_numbers(ax.yaxis)


def _few_decades(axis: Any) -> None:
    """Write plain numbers on a logarithmic axis of few powers of ten."""
    from matplotlib.ticker import LogLocator, NullLocator

    decades = float(np.ptp(np.log10(axis.get_view_interval())))
    if decades < 1.5:
        subs = (1.0, 2.0, 5.0) if decades > 0.9 else (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")


def _rule(ax: Axes, level: float, words: str) -> None:
    """Draw a level to compare with, where the axis reaches it, and write its words on it."""
    from matplotlib import patheffects

    low, high = ax.get_ylim()
    if low <= level <= high:
        ax.axhline(level, color=WARNING, lw=1, ls=":")
        ax.annotate(
            words, (1, level), xycoords=("axes fraction", "data"), xytext=(-2, 2), color=WARNING,
            textcoords="offset points", ha="right", fontsize=8,
            path_effects=[patheffects.withStroke(linewidth=2, foreground="white")],
        )  # fmt: skip
