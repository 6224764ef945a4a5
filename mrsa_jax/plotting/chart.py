"""Charts: made once from data, and drawn twice, on axes and in a report.

Drawing on axes comes in three parts: lines and cells, scales and keys, and dashes of
curves that coincide. Matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mrsa_jax.plotting.names import (
    figure_of,
    legend,
    legend_of_widths,
    make_room,
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

    @property
    def values(self) -> np.ndarray:
        """Return y as float[n]."""
        return np.ravel(np.asarray(self.y, float))

    @property
    def width(self) -> str:
        """Return the first word of the weight, a key of widths."""
        return self.weight.split()[0]

    @property
    def dashes(self) -> str:
        """Return "solid" or "dashed" if the weight names it, else nothing."""
        return self.weight.removeprefix(self.width).strip()


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
        words: Mapping[str, Any] = MappingProxyType({}),
        **changes: Any,
    ) -> Chart:
        """Return a chart whose fixed attributes are in `charts.toml`.

        Args:
            name: Of the chart there.
            lines: What is drawn.
            words: What fills the {fields} of its texts.
            **changes: Attributes that are not fixed.
        """
        fixed = {part: _filled(value, words) for part, value in _FIXED[name].items()}
        return cls(**{"lines": lines, **fixed, **changes})

    @property
    def series(self) -> tuple[str, ...]:
        """The labels of what is drawn, each once."""
        return tuple(dict.fromkeys(line.series for line in self.lines))

    @property
    def has_marks(self) -> bool:
        """Whether a line consists of marks alone."""
        return any(line.kind == "marks" for line in self.lines)

    @property
    def known(self) -> np.ndarray:
        """The values of all lines that are numbers, float[n]."""
        values = np.concatenate([np.zeros(0), *(line.values for line in self.lines)])
        return values[np.isfinite(values)]


def _filled(value: Any, words: Mapping[str, Any]) -> Any:
    """Return a value of a file with its fields filled in, and tuples for lists."""
    if isinstance(value, list):
        return tuple(_filled(item, words) for item in value)
    return value.format(**words) if isinstance(value, str) else value


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
    limits = np.asarray(ax.get_ylim())
    heights = values
    if ax.get_yscale() == "log":
        heights = np.log10(values)
        limits = np.log10(limits)
    heights = heights / (limits[1] - limits[0])  # in parts of the axis
    step = lines[0].get_drawstyle() == "steps-post"
    # (curve, its turn, curves of its group) -> the stretches on which they coincide
    pieces: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for first, last, groups in _runs(_groups(heights), step):
        for group in groups:
            for turn, k in enumerate(group):
                pieces.setdefault((k, turn, len(group)), []).append((first, last))
    for (k, turn, count), spans in pieces.items():
        line = lines[k]
        path = _path(x, values[k], spans, step)
        # one dash of the period is this curve's, shifted by its turn
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
    """Make marks of several curves that coincide hollow, the earlier ones larger.

    Args:
        ax: The axes, their limits set.
        lines: Curves with marks.
    """
    points = [
        line.get_transform().transform(np.asarray(line.get_xydata())) for line in lines
    ]
    dpi = figure_of(ax).dpi
    near = 0.5 * lines[0].get_markersize() * dpi / 72 if lines else 0.0
    meet = any(
        (np.linalg.norm(a[:, None] - b[None], axis=-1) < near).any()  # nan is not near
        for a, b in itertools.combinations(points, 2)
    )
    for k, line in enumerate(lines if meet else ()):
        size = line.get_markersize() + min(1.8 * (len(lines) - 1 - k), 9.0)
        line.set(markersize=size, markerfacecolor="none")


def _groups(heights: np.ndarray) -> list[tuple[tuple[int, ...], ...]]:
    """Group the curves that lie on one another at each place, without those alone."""
    order = np.argsort(heights, axis=0, kind="stable")
    places = []
    for place in range(heights.shape[1]):
        groups: list[list[int]] = []
        for k in order[:, place].tolist():
            value = heights[k, place]
            if not np.isfinite(value):
                continue
            # near the lowest curve of its group, not only near the next one
            if groups and value - heights[groups[-1][0], place] <= _NEAR:
                groups[-1].append(k)
            else:
                groups.append([k])
        places.append(tuple(tuple(sorted(group)) for group in groups if len(group) > 1))
    return places


def _runs(
    groups: Sequence[tuple[tuple[int, ...], ...]], step: bool
) -> list[tuple[int, int, tuple[tuple[int, ...], ...]]]:
    """List the stretches on which the same curves coincide: first, last place, groups.

    A step runs on to the next place whatever happens there; a slope coincides if both
    ends do.
    """
    runs = []
    first = 0
    for coinciding, places in itertools.groupby(groups):
        behind = first + len(list(places))
        last = min(behind, len(groups) - 1) if step else behind - 1
        if coinciding and last > first:
            runs.append((first, last, coinciding))
        first = behind
    return runs


def _path(
    x: np.ndarray,
    y: np.ndarray,
    spans: Sequence[tuple[int, int]],
    step: bool,
) -> np.ndarray:
    """Return the points of a curve on some stretches, with a gap after each."""
    parts = []
    for first, last in spans:
        at = x[first : last + 1]
        values = y[first : last + 1]
        if step:
            at = np.repeat(at, 2)[1:-1]
            values = np.repeat(values[:-1], 2)
        parts += [np.column_stack([at, values]), np.full((1, 2), np.nan)]
    return np.concatenate(parts)


_WIDTHS = {"main": 1.5, "thin": 0.8, "thick": 3.2, "broad": 6.0}
_PALE = {"broad": 0.22}
_STYLES: dict[str, Any] = {"solid": "-", "dashed": (0, (4, 2))}
_MOST_TICKS = 6  # places of marks that have a tick each


def draw(chart: Chart, *, ax: Axes | None = None) -> Axes:
    """Draw a chart on axes, or on those of a new figure."""
    with drawing(ax) as ax:
        ax.set(xlabel=chart.x_label, ylabel=chart.y_label)
        ax.set_label(chart.caption)  # outside the picture; saved files tell it
        if chart.cells is not None:
            _draw_cells(ax, chart.cells)
            return ax
        named: set[str] = set()
        curves = [_drawn(ax, chart, line, named) for line in chart.lines]
        _scales(ax, chart)
        alike: dict[Any, list[Line2D]] = {}  # curves of one kind, of a series each
        for line, curve in zip(chart.lines, curves, strict=True):
            if line.kind != "marks":
                x = np.asarray(line.x, float).tobytes()
                kind = line.kind, line.weight, line.name, x
                alike.setdefault(kind, []).append(curve)
        for group in alike.values():
            interleave(ax, group)
        marked = [
            curve
            for curve in curves
            if curve.get_marker() in MARKERS and not curve.get_markevery()
        ]
        staggered(ax, marked)
        _shades(ax, chart, curves)
        for level, words in chart.rules:
            _rule(ax, level, words)
        if chart.empty and chart.known.size and not chart.known.any():
            centre: dict[str, Any] = {
                "ha": "center",
                "va": "center",
                "transform": ax.transAxes,
            }
            ax.text(0.5, 0.5, chart.empty, **centre)
        if chart.names_lines or chart.has_marks:
            legend(ax, above=any(line.shade is not None for line in chart.lines))
        else:
            name_curves(ax, gap=6.0 if marked else 2.0)
        if not chart.names_lines:
            legend_of_widths(ax, _widths(chart))
    return ax


def _widths(chart: Chart) -> dict[str, dict[str, Any]]:
    """Map what widths and dashes of lines mean to how a key draws them."""
    meanings: dict[str, dict[str, Any]] = {}
    for line in chart.lines:
        if line.name and line.kind != "marks":
            style = ":" if line.series == CHANCE else _STYLES[line.dashes or "solid"]
            look = {"lw": _WIDTHS[line.width], "ls": style}
            meanings.setdefault(line.name, look | {"alpha": _PALE.get(line.width)})
    return meanings


def _draw_cells(ax: Axes, cells: Cells) -> None:
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
    if cells.keys:
        patches = [Patch(color=colour, label=name) for name, colour in cells.keys]
        figure = figure_of(ax)
        # below the axis' own words
        below = ScaledTranslation(0, -0.42, figure.dpi_scale_trans)
        ax.legend(
            handles=patches,
            loc="upper left",
            bbox_to_anchor=(0, 0),
            frameon=False,
            bbox_transform=ax.transAxes + below,
        )
        make_room(figure, 0.17 * len(patches))


def _drawn(ax: Axes, chart: Chart, line: Line, named: set[str]) -> Line2D:
    """Draw one line and the band around it.

    Name it if no other has its name in the key.
    """
    place = chart.series.index(line.series)
    colour, dashes = look(line.series, place, is_scheme=chart.are_schemes)
    is_step = line.kind == "step"
    known = np.isfinite(line.values)
    if line.low is not None and (line.kind == "marks" or known.sum() < 2):
        ax.vlines(
            line.x,
            line.low,
            line.high,
            color=colour,
            alpha=0.4,
            lw=1.4,
        )
    elif line.low is not None:
        step = "post" if is_step else None
        # a band where there is a curve; vertical lines at marks and lone points
        band: dict[str, Any] = {"color": colour, "alpha": 0.14, "lw": 0, "step": step}
        ax.fill_between(line.x, line.low, line.high, **band)
    # each series is named once, by its first line that is not thin
    is_key = chart.names_lines or not (line.series in named or line.width == "thin")
    is_key &= chart.are_schemes or len(chart.lines) > 1
    if is_key:
        named.add(line.series)
    name = f", {line.name}" * bool(line.name)
    key = short(line.series) + name if chart.names_lines else plain(line.series)
    style = _STYLES[line.dashes] if line.dashes else (0, dashes or None)
    (drawn,) = ax.plot(
        line.x,
        line.y,
        color=colour,
        lw=_WIDTHS[line.width],
        alpha=_PALE.get(line.width),
        ls="" if line.kind == "marks" else style,
        drawstyle="steps-post" if is_step else "default",
        label=key if is_key else f"_{line.series}{name}",
    )
    # a point with nan on either side
    alone = known & ~np.append(known[1:], False) & ~np.append(False, known[:-1])
    is_short = chart.marks_points and known.sum() <= FEW
    if line.kind == "marks" or (is_short and line.width not in ("thin", "broad")):
        drawn.set(marker=MARKERS[place % len(MARKERS)], markersize=4.5, clip_on=False)
    elif alone.any():  # what no line would show
        drawn.set(marker="o", markersize=3.0, markevery=np.flatnonzero(alone).tolist())
    return drawn


def _shades(ax: Axes, chart: Chart, curves: list[Line2D]) -> None:
    """Fill marks by the accuracy of their models, with a scale next to the axes."""
    pairs = zip(chart.lines, curves, strict=True)
    shaded = [(line, curve) for line, curve in pairs if line.shade is not None]
    shades = np.concatenate([np.zeros(0), *(line.shade for line, _ in shaded)])
    shades = shades[np.isfinite(shades)]
    if not len(shades):
        return
    for line, curve in shaded:
        size = curve.get_markersize() + 3
        curve.set(markersize=size, markerfacecolor="none", markeredgewidth=1.5)
        marks = ax.scatter(
            line.x,
            line.y,
            size**2,
            line.shade,
            lw=0,
            marker=curve.get_marker(),
            zorder=curve.get_zorder() - 0.1,
            cmap="cividis",
            vmin=shades.min() - 1e-9,
            vmax=shades.max() + 1e-9,
        )
    ax.figure.colorbar(marks, ax=ax, label="test accuracy (%)", pad=0.02)


def _scales(ax: Axes, chart: Chart) -> None:
    """End the axes where curves end, with room for what runs at both ends."""
    if chart.is_log_x:
        ax.set(xscale="log")
    if chart.is_log_y:
        ax.set(yscale="log")
    levels = [*chart.y_range]
    if not chart.is_log_y and not chart.known.any():
        levels.append(1.0)  # all is flat
    ax.dataLim.update_from_data_y(np.array(levels), False)
    if chart.x_from is not None:
        ax.dataLim.update_from_data_x(np.array([chart.x_from]), False)
    ax.margins(x=0.04 * (chart.has_marks and not chart.ticks), y=0.03)
    ax.autoscale_view()
    places = np.unique(
        np.concatenate([np.zeros(0), *(np.ravel(line.x) for line in chart.lines)])
    )
    longest = max((len(line.x) for line in chart.lines), default=0)
    if chart.ticks:
        _named_ticks(ax, chart.ticks)
    elif len(places) == longest <= _MOST_TICKS:
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


def _named_ticks(ax: Axes, ticks: Sequence[tuple[float, str]]) -> None:
    """Write words along the axis below instead of numbers."""
    ax.set_xticks([place for place, _ in ticks], [short(words) for _, words in ticks])
    if len(ticks) > 3:  # slanted names stand clear of one another
        ax.tick_params(axis="x", labelrotation=30)
        for name in ax.get_xticklabels():
            name.set(ha="right", rotation_mode="anchor")
    ax.set_xlim(-0.5, len(ticks) - 0.5)


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
    """Draw a level to compare with and its words, where the axis reaches it."""
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
