"""Names of curves at their right ends, or in a legend where they have no room there."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Transform

OWN = "mrsa_jax"  # gid of figures that were made here, which may grow
_NARROW = 5.0  # inches: in a column there is no room next to the axes
_LINE = 1.25  # a line of text, in font sizes
_LETTER = 0.56  # the mean letter's width
_LEADER = 15.0  # points from the axes to a name
_WIDEST = 0.3  # of the figure's width, that names may take


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
    """Write each labelled curve's name at its right end, or put a legend next to the axes.

    At their ends names are moved apart, with a piece of their line that leads to them.
    A legend is drawn where a curve ends earlier, something other than a curve is named,
    or there is no room.

    Args:
        ax: What has been drawn, its limits set.
        gap: Points that are left free right of a curve's end.
    """
    found, names = ax.get_legend_handles_labels()
    handles: list[Any] = list(found)
    if not handles:
        return
    names = (
        names if _fits(ax, handles, names) else [_abbreviated(name) for name in names]
    )
    if _fits(ax, handles, names):
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
    else:
        legend(ax)


def legend(ax: Axes, *, above: bool = False) -> None:
    """Put the legend next to the axes, in a column above them, where no curve can run behind it."""
    handles = ax.get_legend_handles_labels()[0]
    figure = ax.get_figure(root=True)
    assert figure is not None
    if not handles:
        return
    if figure.get_figwidth() >= _NARROW and not above:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
        return
    names = [_abbreviated(str(handle.get_label())) for handle in handles]
    size = _font_size()
    room = 72 * figure.get_figwidth() - 5 * size  # next to what stands left of the axes
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
    rows = -(-sum(name.count("\n") + 1 for name in names) // columns)
    if figure.get_gid() == OWN:  # room for the rows
        figure.set_figheight(figure.get_figheight() + rows * _font_size() * 1.5 / 72)


def legend_of_widths(ax: Axes, meanings: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Say above the axes, or below them, what thin, broad and dashed lines mean in all colours."""
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

    figure = ax.get_figure(root=True)
    assert figure is not None
    if not meanings:
        return
    names = [name for name, _ in meanings]
    room = 72 * ax.bbox.width / figure.dpi
    columns = _columns(names, room)
    is_taken = ax.get_legend() is not None and figure.get_figwidth() < _NARROW
    place: Any = (
        ("upper right", (1.0, -0.25)) if is_taken else ("lower right", (1.0, 1.0))
    )
    key = Legend(
        ax,
        [Line2D([], [], color="0.35", **look) for _, look in meanings],
        names,
        loc=place[0],
        bbox_to_anchor=place[1],
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.0,
    )
    ax.add_artist(key).set_clip_on(False)
    if figure.get_gid() == OWN:  # room for the rows
        # and that below the axis' own words
        rows = -(-len(names) // columns) + is_taken
        figure.set_figheight(figure.get_figheight() + rows * _font_size() * 1.5 / 72)


def _columns(names: Sequence[str], room: float) -> int:
    """Return how many columns of a key fit into a width in points."""
    longest = max((len(line) for name in names for line in name.split("\n")), default=0)
    return max(
        1, min(4, len(names), int(room / (_font_size() * (longest * _LETTER + 4.5))))
    )


def spread(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
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
    level = isotonic_regression(np.asarray(wanted, float)[order] - below).x
    middles = np.empty(len(order))
    middles[order] = np.clip(level, start, start + free) + below
    return middles


@dataclasses.dataclass
class _Ends:
    """Where curves end and where their names stand, found anew whenever they are drawn."""

    ax: Axes
    lines: list[Line2D]
    rows: list[int]
    gap: float

    def start(self, k: int, renderer: Any) -> Transform:
        """Return the end of a curve, in pixels, as a shift."""
        from matplotlib.transforms import Affine2D

        x, y = self._ends()[k]
        return Affine2D().translate(x + renderer.points_to_pixels(self.gap), y)

    def place(self, k: int, renderer: Any) -> Transform:
        """Return where a name stands, in pixels, as a shift."""
        from matplotlib.transforms import Affine2D

        box = self.ax.bbox
        height = renderer.points_to_pixels(_font_size(self.ax) * _LINE)
        heights = [height * rows for rows in self.rows]
        middles = spread([y for _, y in self._ends()], heights, box.y0, box.y1)
        right = box.x1 + renderer.points_to_pixels(_LEADER + self.gap)
        return Affine2D().translate(right, middles[k])

    def _ends(self) -> list[tuple[float, float]]:
        box = self.ax.bbox
        shown = [_end(line) for line in self.lines]
        return [(box.x1, float(np.clip(y, box.y0, box.y1))) for _, y in shown]


def _end(line: Line2D) -> tuple[float, float]:
    """Return where a curve ends, in pixels; not a number where nothing is drawn."""
    points = np.column_stack([np.asarray(values, float) for values in line.get_data()])
    points = points[np.isfinite(points).all(1)]
    if not len(points):
        return float("nan"), float("nan")
    x, y = line.get_transform().transform(points[-1])
    return float(x), float(y)


def _fits(ax: Axes, handles: Sequence[Any], names: Sequence[str]) -> bool:
    """Return whether all that is named are curves to the right end, with room for their names."""
    from matplotlib.lines import Line2D

    figure = ax.get_figure(root=True)
    assert figure is not None
    if not all(
        isinstance(one, Line2D) and one.get_linestyle() != "None" for one in handles
    ):
        return False
    box = ax.bbox
    if not all(abs(_end(one)[0] - box.x1) <= 0.02 * box.width for one in handles):
        return False
    pixels = figure.dpi / 72 * _font_size()
    rows = sum(name.count("\n") + 1 for name in names)
    longest = max(len(line) for name in names for line in name.split("\n"))
    return bool(
        rows * _LINE * pixels <= 0.9 * box.height
        and longest * _LETTER * pixels <= _WIDEST * figure.bbox.width
    )


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
