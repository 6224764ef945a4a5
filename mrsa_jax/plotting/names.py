"""Names of curves at their right ends, or in a legend where they have no room there."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Transform

OURS = "mrsa_jax"  # gid of figures that were made here, which may grow
_NARROW = 5.0  # inches: in a column there is no room next to the axes
_LINE = 1.25  # a line of text, in font sizes
_LETTER = 0.56  # the mean letter's width
_LEADER = 15.0  # points from the axes to a name
_WIDEST = 0.3  # of the figure's width, that names may take


def figure_of(ax: Axes) -> Figure:
    """Return the whole figure that axes are in."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def make_room(figure: Figure, inches: float) -> None:
    """Make a figure higher if it was made here."""
    if figure.get_gid() == OURS:
        figure.set_figheight(figure.get_figheight() + inches)


def plain(label: str) -> str:
    r"""Return a label that is shown as it is.

    No formula, no hidden name, one line, not endless.

    Examples:
        >>> plain("$x$"), plain("a" * 50)
        ('\\$x\\$', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…')
    """
    text = "".join(c if c.isprintable() else " " for c in label)
    text = text if len(text) <= 36 else text[:35] + "…"
    text = "\u2009" + text if text.startswith("_") else text
    return re.sub(r"(?<!\\)\$", r"\\$", text)


def short(label: str) -> str:
    """Return a label short enough for an axis tick or a narrow column, shown as it is.

    Examples:
        >>> short("Multi-RoundSecAgg (T=4)")
        'MRSA T=4'
    """
    return plain(_abbreviated(label))


def _abbreviated(name: str) -> str:
    return re.sub(r"^Multi-RoundSecAgg \((.*?)\)", r"MRSA \1", name)


def name_curves(ax: Axes, *, gap: float = 2.0) -> None:
    """Write each labelled curve's name at its right end, or put a legend.

    At their ends names are moved apart, with a piece of their line that leads to them.
    A legend is drawn where a curve ends earlier, something other than a curve is named,
    or there is no room.

    Args:
        ax: What has been drawn, its limits set.
        gap: Points that are left free right of a curve's end.
    """
    drawn, names = ax.get_legend_handles_labels()
    handles: list[Any] = list(drawn)
    if not handles:
        return
    if not _fits(ax, handles, names):
        names = [_abbreviated(name) for name in names]
        if not _fits(ax, handles, names):
            legend(ax)
            return
    ends = _Ends(ax, handles, [name.count("\n") + 1 for name in names], gap)
    for k, (line, name) in enumerate(zip(handles, names, strict=True)):
        leader = {
            "arrowstyle": "-",
            "color": line.get_color(),
            "lw": line.get_linewidth(),
            "ls": getattr(line, "_unscaled_dash_pattern", line.get_linestyle()),
            "shrinkA": 1.5,
            "shrinkB": 0,
            "relpos": (0, 0.5),
        }
        # places are worked out when the figure is drawn: only then is it laid out
        ax.annotate(
            name,
            (0, 0),
            xycoords=functools.partial(ends.start, k),
            xytext=(0, 0),
            textcoords=functools.partial(ends.place, k),
            va="center",
            ha="left",
            fontsize=_font_size(),
            arrowprops=leader,
            annotation_clip=False,
            gid="name",
        )


def legend(ax: Axes, *, above: bool = False) -> None:
    """Put the legend next to the axes, or above, where no curve can run behind it."""
    handles = ax.get_legend_handles_labels()[0]
    figure = figure_of(ax)
    if not handles:
        return
    if figure.get_figwidth() >= _NARROW and not above:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
        return
    names = [_abbreviated(str(handle.get_label())) for handle in handles]
    # next to what is left of the axes
    room = 72 * figure.get_figwidth() - 5 * _font_size()
    columns = _columns(names, room)
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        ncols=columns,
        columnspacing=1.0,
        handles=handles,
        labels=names,
    )
    rows = -(-_num_lines(names) // columns)
    make_room(figure, rows * _font_size() * 1.5 / 72)


def legend_of_widths(ax: Axes, meanings: Mapping[str, dict[str, Any]]) -> None:
    """Explain thin, broad and dashed lines of all colours, above or below the axes.

    Args:
        ax: Axes on which all is drawn.
        meanings: Meaning -> how a line of it looks.
    """
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

    figure = figure_of(ax)
    if not meanings:
        return
    names = list(meanings)
    columns = _columns(names, 72 * ax.bbox.width / figure.dpi)
    is_taken = ax.get_legend() is not None and figure.get_figwidth() < _NARROW
    key = Legend(
        ax,
        [Line2D([], [], color="0.35", **look) for look in meanings.values()],
        names,
        loc="upper right" if is_taken else "lower right",
        bbox_to_anchor=(1.0, -0.25 if is_taken else 1.0),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.0,
    )
    ax.add_artist(key).set_clip_on(False)
    # below the axes one more, for the axis' own words
    rows = -(-len(names) // columns) + is_taken
    make_room(figure, float(rows * _font_size() * 1.5 / 72))


def _num_lines(names: Sequence[str]) -> int:
    return sum(name.count("\n") + 1 for name in names)


def _longest(names: Sequence[str]) -> int:
    return max((len(line) for name in names for line in name.split("\n")), default=0)


def _columns(names: Sequence[str], room: float) -> int:
    """Return the number of columns of a key that fit into a width in points."""
    width = _font_size() * (_longest(names) * _LETTER + 4.5)
    return max(1, min(4, len(names), int(room / width)))


def spread(
    wanted: Sequence[float],
    heights: Sequence[float],
    low: float,
    high: float,
) -> Any:
    """Return the middles of boxes nearest to where they are wanted, none over another.

    Args:
        wanted: A middle for each; of equal ones the first stands highest.
        heights: Of the boxes.
        low: Where the lowest may begin.
        high: Where the highest may end; exceeded at both ends alike if there is no
            room.

    Examples:
        >>> spread([5.0, 0.0, 5.0], [2.0, 2.0, 2.0], 0.0, 10.0).tolist()
        [6.0, 1.0, 4.0]
    """
    # takes long: not before a figure is drawn
    from scipy.optimize import isotonic_regression

    sizes = np.asarray(heights, float)
    order = sorted(range(len(wanted)), key=lambda k: (wanted[k], -k))
    below = np.cumsum(sizes[order]) - sizes[order] / 2  # middles of boxes in a pile
    free = max(high - low - float(sizes.sum()), 0.0)
    start = low if free else (low + high - float(sizes.sum())) / 2
    # boxes in this order may not overlap: nearest middles by isotonic regression
    level = isotonic_regression(np.asarray(wanted, float)[order] - below).x
    middles = np.empty(len(order))
    middles[order] = np.clip(level, start, start + free) + below
    return middles


@dataclasses.dataclass
class _Ends:
    """Ends of curves and places of their names, worked out whenever they are drawn."""

    ax: Axes
    lines: list[Line2D]
    rows: list[int]
    gap: float

    def start(self, k: int, renderer: Any) -> Transform:
        """Return the end of a curve, in pixels, as a shift."""
        from matplotlib.transforms import Affine2D

        shift = renderer.points_to_pixels(self.gap)
        return Affine2D().translate(self.ax.bbox.x1 + shift, self._heights()[k])

    def place(self, k: int, renderer: Any) -> Transform:
        """Return the place of a name, in pixels, as a shift."""
        from matplotlib.transforms import Affine2D

        box = self.ax.bbox
        height = renderer.points_to_pixels(_font_size(self.ax) * _LINE)
        boxes = [height * rows for rows in self.rows]
        middles = spread(self._heights(), boxes, box.y0, box.y1)
        right = box.x1 + renderer.points_to_pixels(_LEADER + self.gap)
        return Affine2D().translate(right, middles[k])

    def _heights(self) -> list[float]:
        box = self.ax.bbox
        return [float(np.clip(_end(line)[1], box.y0, box.y1)) for line in self.lines]


def _end(line: Line2D) -> tuple[float, float]:
    """Return the end of a curve, in pixels; not a number where nothing is drawn."""
    points = np.column_stack([np.asarray(values, float) for values in line.get_data()])
    points = points[np.isfinite(points).all(1)]
    if not len(points):
        return float("nan"), float("nan")
    x, y = line.get_transform().transform(points[-1])
    return float(x), float(y)


def _fits(ax: Axes, handles: Sequence[Any], names: Sequence[str]) -> bool:
    """Say whether all named things are curves to the right end, with room for names."""
    from matplotlib.lines import Line2D

    box = ax.bbox
    for handle in handles:
        if not isinstance(handle, Line2D) or handle.get_linestyle() == "None":
            return False
        if not abs(_end(handle)[0] - box.x1) <= 0.02 * box.width:
            return False
    figure = figure_of(ax)
    pixels = figure.dpi / 72 * _font_size()
    is_low = _num_lines(names) * _LINE * pixels <= 0.9 * box.height
    width = _longest(names) * _LETTER * pixels
    return bool(is_low and width <= _WIDEST * figure.bbox.width)


def _font_size(ax: Axes | None = None) -> float:
    """Return the size of names in points.

    As it was when they were written, or as it is now.
    """
    import matplotlib as mpl

    for text in [] if ax is None else ax.texts:
        if text.get_gid() == "name":
            return float(text.get_fontsize())
    size = mpl.rcParams["legend.fontsize"]
    return float(size if isinstance(size, int | float) else mpl.rcParams["font.size"])
