"""What a figure shows, made once from data and drawn twice: on axes, and in a report.

Nothing here imports matplotlib.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mrsa_jax.plotting.names import (
    OWN,
    legend,
    legend_of_widths,
    name_curves,
    plain,
    short,
)
from mrsa_jax.plotting.styles import (
    CHANCE,
    MARKERS,
    WARNING,
    drawing,
    look,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


FEW = 12
"""Points of a line that are marked."""

ALL = "all points"
"""The one series of points that nothing tells apart."""

_FIXED: dict[str, dict[str, Any]] = tomllib.loads(
    (pathlib.Path(__file__).parent / "charts.toml").read_text(encoding="utf-8")
)


class Line(NamedTuple):
    """One line, or the points of one kind.

    Attributes:
        series: Whose it is: its colour, and what switches it.
        x: Where, float[n].
        y: How much, float[n]; nan where there is nothing.
        name: What of the series it is, in addition to its values; "" for the only one.
        low: Lower edge of a band around it, or None.
        high: Upper edge.
        kind: "line", "step" (a value holds until the next) or "marks" (no line).
        weight: "main", "thin", "thick" or "broad" (and pale, for what lies below
            others), and maybe "solid" or "dashed" whatever the series is.
        words: Words about each mark, instead of its values.
        rows: The row of a table that each mark, or the whole line, stands for; none
            when empty.
        shade: Accuracy of each mark's model in percent, which fills it in a picture, or
            None.
    """

    series: str
    x: Any
    y: Any
    name: str = ""
    low: Any = None
    high: Any = None
    kind: str = "line"
    weight: str = "main"
    words: Sequence[str] = ()
    rows: Sequence[int] = ()
    shade: Any = None


class Cells(NamedTuple):
    """A picture of cells, a row per round from the top and a column per client.

    Attributes:
        values: uint8[rows, columns], the kind of each cell.
        kinds: Name and colour of each kind; "" for those without a key.
        edges: Columns before which a line stands.
    """

    values: np.ndarray
    kinds: Sequence[tuple[str, str]]
    edges: Sequence[int] = ()

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Name and colour of what a key must tell."""
        return [kind for kind in self.kinds if kind[0]]


@dataclasses.dataclass(frozen=True)
class Chart:
    """A drawing and what it shows.

    Attributes:
        title: What it shows, in short.
        caption: How to read it.
        lines: What is drawn; what lies below comes first.
        x_label: Of the axis below.
        y_label: Of the axis at the left, with its unit.
        x_from: Least value that the axis below holds in any case, or None.
        y_range: Values that the axis at the left holds in any case.
        is_log_x: Whether the axis below is logarithmic.
        is_log_y: Whether the one at the left is.
        whole: Axes of whole numbers: "", "x", "y" or "xy".
        rules: Levels to compare with: value, words.
        empty: What is said where all values are zero.
        ticks: What stands along the axis below instead of numbers: place, words.
        are_schemes: Whether its series are schemes, whose colours are the same
            everywhere.
        names_lines: Whether the key of a picture names each line, not each series
            alone.
        marks_points: Whether a picture marks the points of short lines, as a report
            always does.
        cells: What is drawn instead of lines, or None.
    """

    title: str
    caption: str
    lines: Sequence[Line]
    x_label: str = "rounds"
    y_label: str = ""
    x_from: float | None = None
    y_range: tuple[float, ...] = (0.0,)
    is_log_x: bool = False
    is_log_y: bool = False
    whole: str = "x"
    rules: Sequence[tuple[float, str]] = ()
    empty: str = ""
    ticks: Sequence[tuple[float, str]] = ()
    are_schemes: bool = True
    names_lines: bool = False
    marks_points: bool = False
    cells: Cells | None = None

    @classmethod
    def named(
        cls,
        name: str,
        lines: Sequence[Line] = (),
        *,
        told: Mapping[str, Any] | None = None,
        **own: Any,
    ) -> Chart:
        """Return a chart of which `charts.toml` has what is fixed.

        Args:
            name: Of the chart there.
            lines: What is drawn.
            told: What fills the {fields} of its words.
            **own: Attributes that are not fixed.
        """
        fixed = {part: _told(value, told or {}) for part, value in _FIXED[name].items()}
        return cls(**{"lines": lines, **fixed, **own})

    @property
    def series(self) -> tuple[str, ...]:
        """The labels of what is drawn, each once."""
        return tuple(dict.fromkeys(line.series for line in self.lines))


def _told(value: Any, told: Mapping[str, Any]) -> Any:
    """Return a value of a file with its fields filled in, and tuples for lists."""
    if isinstance(value, list):
        return tuple(_told(one, told) for one in value)
    return value.format(**told) if isinstance(value, str) else value


# ---- Curves that coincide, drawn so that each is seen: dashes in turn, never values
# moved.

_NEAR = 0.006  # of the axis: about half a line's width
_DASH = 4.0  # widths of the line


def interleave(ax: Axes, lines: Sequence[Line2D]) -> None:
    """Draw dashes of each curve in turn wherever several of them run on one another.

    Every dash lies on its own curve: nothing is moved.

    Args:
        ax: The axes, their limits set.
        lines: Curves over the same x, drawn alike.
    """
    if len(lines) < 2:
        return
    x = np.asarray(lines[0].get_xdata(), float)
    values = np.stack([np.asarray(line.get_ydata(), float) for line in lines])
    height = ax.get_ylim()[1] - ax.get_ylim()[0]
    heights = np.log10(values) if ax.get_yscale() == "log" else values / height
    if ax.get_yscale() == "log":
        heights = heights / np.ptp(np.log10(ax.get_ylim()))
    step = lines[0].get_drawstyle() == "steps-post"
    pieces: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for first, last, groups in _runs(_groups(heights), step):
        for group in groups:
            for turn, k in enumerate(group):
                pieces.setdefault((k, turn, len(group)), []).append((first, last))
    for (k, turn, count), spans in pieces.items():
        line, path = lines[k], _path(x, values[k], spans, step)
        dashes = (-turn * _DASH % (count * _DASH), (_DASH, (count - 1) * _DASH))
        ax.plot(
            *path.T,
            color=line.get_color(),
            lw=line.get_linewidth(),
            ls=dashes,
            dash_capstyle="butt",
            label="_coinciding",
            zorder=line.get_zorder() + 0.1,
        )


def staggered(ax: Axes, lines: Sequence[Line2D]) -> None:
    """Make marks hollow, and the earlier ones larger, where marks of several curves coincide.

    Args:
        ax: The axes, their limits set.
        lines: Curves with marks.
    """
    points = [
        line.get_transform().transform(np.asarray(line.get_xydata())) for line in lines
    ]
    figure = ax.get_figure(root=True)
    assert figure is not None
    near = 0.5 * lines[0].get_markersize() * figure.dpi / 72 if lines else 0.0
    meet = any(
        np.isfinite(gaps := np.linalg.norm(a[:, None] - b[None], axis=-1)).any()
        and float(np.nanmin(gaps)) < near
        for i, a in enumerate(points)
        for b in points[:i]
    )
    for k, line in enumerate(lines if meet else ()):
        size = line.get_markersize() + min(1.8 * (len(lines) - 1 - k), 9.0)
        line.set(markersize=size, markerfacecolor="none")


def _groups(heights: np.ndarray) -> list[tuple[tuple[int, ...], ...]]:
    """Return which curves lie on one another at each place, those that lie alone left out."""
    if len(heights) < 2:
        return []
    order = np.argsort(heights, axis=0, kind="stable")
    found = []
    for place in range(heights.shape[1]):
        groups: list[list[int]] = []
        for k in order[:, place]:
            value = heights[k, place]
            if not np.isfinite(value):
                continue
            if groups and value - heights[groups[-1][0], place] <= _NEAR:
                groups[-1].append(int(k))
            else:
                groups.append([int(k)])
        found.append(tuple(tuple(sorted(group)) for group in groups if len(group) > 1))
    return found


def _runs(
    groups: Sequence[tuple[tuple[int, ...], ...]], step: bool
) -> list[tuple[int, int, tuple[tuple[int, ...], ...]]]:
    """Return the stretches on which the same curves coincide.

    First and last place, groups.
    A step runs on to the next place whatever happens there; a slope coincides if both
    ends do.
    """
    found, first = [], 0
    for place in range(1, len(groups) + 1):
        if place == len(groups) or groups[place] != groups[first]:
            last = min(place, len(groups) - 1) if step else place - 1
            if groups[first] and last > first:
                found.append((first, last, groups[first]))
            first = place
    return found


def _path(
    x: np.ndarray, y: np.ndarray, spans: Sequence[tuple[int, int]], step: bool
) -> np.ndarray:
    """Return the points of a curve on some stretches, with a gap after each."""
    parts = []
    for first, last in spans:
        at, values = x[first : last + 1], y[first : last + 1]
        if step:
            at, values = np.repeat(at, 2)[1:-1], np.repeat(values[:-1], 2)
        parts += [np.column_stack([at, values]), np.full((1, 2), np.nan)]
    return np.concatenate(parts)


# ---- A chart on Matplotlib axes: the data, names and levels of a report's, and a key
# next to them.

_WIDTHS = {"main": 1.5, "thin": 0.8, "thick": 3.2, "broad": 6.0}
_STYLES: dict[str, Any] = {"solid": "-", "dashed": (0, (4, 2))}
_MOST_TICKS = 6  # places of marks that have a tick each


def draw(chart: Chart, *, ax: Axes | None = None) -> Axes:
    """Draw a chart on axes, or on those of a new figure."""
    with drawing(ax) as ax:
        if chart.cells is not None:
            return _draw_cells(ax, chart, chart.cells)
        named: set[str] = set()
        drawn = [_drawn(ax, chart, line, named) for line in chart.lines]
        _scales(ax, chart)
        alike: dict[Any, list[Line2D]] = {}  # curves of one kind, of a series each
        for line, own in zip(chart.lines, drawn, strict=True):
            kind = (
                line.kind,
                line.weight,
                line.name,
                np.asarray(line.x, float).tobytes(),
            )
            alike.setdefault(kind, []).append(own)
        for kind, curves in alike.items():
            interleave(ax, curves if kind[0] != "marks" else [])
        marked = [
            own
            for own in drawn
            if own.get_marker() in MARKERS and not own.get_markevery()
        ]
        staggered(ax, marked)
        _shades(ax, chart, drawn)
        for level, words in chart.rules:
            _rule(ax, level, words)
        if chart.empty:
            values = np.concatenate(
                [np.ravel(np.asarray(o.y, float)) for o in chart.lines]
            )
            known = values[np.isfinite(values)]
            if known.size and not known.any():
                ax.text(
                    0.5,
                    0.5,
                    chart.empty,
                    transform=ax.transAxes,
                    ha="center",
                    va="center",
                )
        ax.set(xlabel=chart.x_label, ylabel=chart.y_label)
        if chart.names_lines or any(line.kind == "marks" for line in chart.lines):
            legend(ax, above=any(line.shade is not None for line in chart.lines))
        else:
            name_curves(ax, gap=6.0 if marked else 2.0)
        if not chart.names_lines:
            legend_of_widths(ax, _widths(chart))
        ax.set_label(chart.caption)  # outside the picture; saved files tell it
    return ax


def _widths(chart: Chart) -> list[tuple[str, dict[str, Any]]]:
    """Return what the widths and dashes of lines mean, and how a key draws them.

    One entry each.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in chart.lines:
        weight, *more = line.weight.split()
        style = ":" if line.series == CHANCE else _STYLES[more[0] if more else "solid"]
        look = {"lw": _WIDTHS[weight], "ls": style}
        if line.name and line.kind != "marks":
            found.setdefault(
                line.name, look | {"alpha": 0.22 if weight == "broad" else None}
            )
    return list(found.items())


def _draw_cells(ax: Axes, chart: Chart, cells: Cells) -> Axes:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    looks = ListedColormap([colour for _, colour in cells.kinds])
    rows, columns = cells.values.shape
    ax.imshow(
        cells.values,
        looks,
        aspect="auto",
        interpolation="none",
        vmin=0,
        vmax=len(cells.kinds) - 1,
        extent=(-0.5, columns - 0.5, rows + 0.5, 0.5),  # rounds are counted from 1
    )
    for edge in cells.edges:
        ax.axvline(edge - 0.5, color="white", linewidth=0.8)
    ax.grid(False)
    ax.set(xlabel=chart.x_label, ylabel=chart.y_label)
    if cells.keys:
        patches = [Patch(color=colour, label=name) for name, colour in cells.keys]
        figure = ax.get_figure(root=True)
        assert figure is not None
        # the axis' own words
        below = ScaledTranslation(0, -0.42, figure.dpi_scale_trans)
        ax.legend(
            handles=patches,
            loc="upper left",
            bbox_to_anchor=(0, 0),
            frameon=False,
            bbox_transform=ax.transAxes + below,
        )
        if figure.get_gid() == OWN:  # room for the rows
            figure.set_figheight(figure.get_figheight() + 0.17 * len(patches))
    ax.set_label(chart.caption)  # outside the picture; saved files tell it
    return ax


def _drawn(ax: Axes, chart: Chart, line: Line, named: set[str]) -> Line2D:
    """Draw one line and the band around it.

    Name it if no other has its name in the key.
    """
    place = chart.series.index(line.series)
    colour, dashes = look(line.series, place, is_scheme=chart.are_schemes)
    weight, *more = line.weight.split()
    is_step, known = line.kind == "step", np.isfinite(np.asarray(line.y, float))
    if line.low is not None and (line.kind == "marks" or known.sum() < 2):
        ax.vlines(line.x, line.low, line.high, color=colour, alpha=0.4, lw=1.4)
    elif line.low is not None:
        ax.fill_between(
            line.x,
            line.low,
            line.high,
            step="post" if is_step else None,
            color=colour,
            alpha=0.14,
            lw=0,
        )
    is_key = chart.names_lines or not (line.series in named or weight == "thin")
    is_key &= chart.are_schemes or len(chart.lines) > 1
    named |= {line.series} if is_key else set()
    name = f", {line.name}" * bool(line.name)
    key = short(line.series) + name if chart.names_lines else plain(line.series)
    (drawn,) = ax.plot(
        line.x,
        line.y,
        color=colour,
        lw=_WIDTHS[weight],
        alpha=0.22 if weight == "broad" else None,
        ls=""
        if line.kind == "marks"
        else _STYLES[more[0]]
        if more
        else (0, dashes or None),
        drawstyle="steps-post" if is_step else "default",
        label=key if is_key else f"_{line.series}{name}",
    )
    alone = known & ~np.append(known[1:], False) & ~np.append(False, known[:-1])
    is_short = (
        chart.marks_points and weight not in ("thin", "broad") and known.sum() <= FEW
    )
    if line.kind == "marks" or is_short:
        drawn.set(marker=MARKERS[place % len(MARKERS)], markersize=4.5, clip_on=False)
    elif alone.any():  # what no line would show
        drawn.set(marker="o", markersize=3.0, markevery=np.flatnonzero(alone).tolist())
    return drawn


def _shades(ax: Axes, chart: Chart, drawn: list[Line2D]) -> None:
    """Fill marks by how well the models behind them have learnt, with a scale next to the axes."""
    pairs = [
        pair
        for pair in zip(chart.lines, drawn, strict=True)
        if pair[0].shade is not None
    ]
    known = [value for line, _ in pairs for value in line.shade if np.isfinite(value)]
    for line, own in pairs if known else ():
        own.set(
            markersize=own.get_markersize() + 3,
            markerfacecolor="none",
            markeredgewidth=1.5,
        )
        marks = ax.scatter(
            line.x,
            line.y,
            own.get_markersize() ** 2,
            line.shade,
            lw=0,
            marker=own.get_marker(),
            zorder=own.get_zorder() - 0.1,
            cmap="cividis",
            vmin=min(known) - 1e-9,
            vmax=max(known) + 1e-9,
        )
        if line is pairs[-1][0]:
            ax.figure.colorbar(marks, ax=ax, label="test accuracy (%)", pad=0.02)


def _scales(ax: Axes, chart: Chart) -> None:
    """End the axes where curves end, with room for what runs at the lowest and highest."""
    ax.set(
        **{
            f"{axis}scale": "log"
            for axis, is_log in (("x", chart.is_log_x), ("y", chart.is_log_y))
            if is_log
        }
    )
    ys = np.concatenate(
        [np.zeros(0), *(np.ravel(np.asarray(o.y, float)) for o in chart.lines)]
    )
    is_flat = not chart.is_log_y and not ys[np.isfinite(ys)].any()
    ax.dataLim.update_from_data_y(
        np.array([*chart.y_range, *([1.0] if is_flat else [])]), False
    )
    if chart.x_from is not None:
        ax.dataLim.update_from_data_x(np.array([chart.x_from]), False)
    is_of_marks = any(line.kind == "marks" for line in chart.lines) and not chart.ticks
    ax.margins(x=0.04 * is_of_marks, y=0.03)
    ax.autoscale_view()
    places = np.unique(
        np.concatenate([np.zeros(0), *(np.ravel(o.x) for o in chart.lines)])
    )
    if chart.ticks:
        ax.set_xticks(
            [at for at, _ in chart.ticks], [short(words) for _, words in chart.ticks]
        )
        if len(chart.ticks) > 3:  # slanted names stand clear of one another
            ax.tick_params(axis="x", labelrotation=30)
            for name in ax.get_xticklabels():
                name.set(ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.5, len(chart.ticks) - 0.5)
    elif (
        len(places)
        == max((len(line.x) for line in chart.lines), default=0)
        <= _MOST_TICKS
    ):
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
            words,
            (1, level),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 2),
            color=WARNING,
            textcoords="offset points",
            ha="right",
            fontsize=8,
            path_effects=[patheffects.withStroke(linewidth=2, foreground="white")],
        )
