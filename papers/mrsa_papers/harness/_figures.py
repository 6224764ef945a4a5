"""Shared tools for the items' figures: files, styles, and curves over seeds."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting
from mrsa_jax._core.drawing import named_if_not_drawn
from mrsa_jax.plotting import scheme_colour
from mrsa_jax.plotting.names import legend, short
from mrsa_jax.plotting.styles import MARKERS, SHADES, WARNING, scheme_dashes
from mrsa_papers.harness._images import image_from_text
from mrsa_papers.harness._intervals import interval
from mrsa_papers.harness._items import Item

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [  # with types of what is drawn, and on what, for type checkers alone
    "COLOURS",
    "LINES",
    "MARKERS",
    "SHADES",
    "WARNING",
    "Axes",
    "Draw",
    "Figure",
    "beside",
    "by_scheme",
    "draw_image_grid",
    "draw_seed_curves",
    "draw_seeds",
    "drawn",
    "in_turn",
    "labelled",
    "legend",
    "log_ticks",
    "panels",
    "pd",
    "save_figure",
    "scheme_colour",
    "short",
]

Draw = Callable[["Figure", "pd.DataFrame"], None]
"""A function that draws an item's data on its figure."""

# Okabe and Ito; one colour and line for each curve.
COLOURS = ("#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00")
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))


_LOOK: Any = {  # of figures of several panels, larger than a column
    "figure.figsize": (7.6, 3.8),
    "font.size": 10,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 12,
    "legend.fontsize": 8.5,
}


def labelled(
    draw: Callable[[Axes, pd.DataFrame], object], words: Mapping[str, Any]
) -> Draw:
    """Return a function that draws on the only axes of a figure, with a legend.

    Args:
        draw: Draws an item's data on axes.
        words: Of `Axes.set`, once all is drawn.
    """

    def on_figure(figure: Figure, data: pd.DataFrame) -> None:
        ax = figure.subplots()
        draw(ax, data)
        ax.set(**words)
        if ax.get_legend() is None:
            legend(ax)

    return on_figure


def drawn(draw: Draw, data: pd.DataFrame) -> Figure:
    """Return an item's figure in the package's style."""
    with plotting.style():
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        mpl.rcParams.update(_LOOK)
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, data)
    return figure


def save_figure(item: Item, draw: Draw, folder: pathlib.Path) -> pathlib.Path:
    """Write an item's figure as PNG, SVG and PDF, its data as CSV beside them.

    Return the PNG.
    """
    with named_if_not_drawn(item.name):
        plotting.save_figure(drawn(draw, item.data), folder / item.name)
    item.data.to_csv(folder / f"{item.name}.csv", index=False)
    return folder / f"{item.name}.png"


def draw_seed_curves(
    ax: Axes,
    data: pd.DataFrame,
    *,
    curve: str,
    x: str = "round",
    xlabel: str = "rounds",
) -> None:
    """Draw accuracy over rounds or time.

    Means over seeds with 95 % intervals, of two the range.

    Args:
        ax: Where to draw.
        data: Columns seed, accuracy, the one of `curve` and that of `x`.
        curve: Column that tells curves apart.
        x: Column of the horizontal axis; the same for all seeds of a curve.
        xlabel: Its label.
    """
    for _, rows, look in in_turn(data, curve, color=COLOURS, ls=LINES):
        draw_seeds(ax, rows, look, x)
    ax.set(xlabel=xlabel, ylabel="test accuracy (%)", ylim=(0, 100), xlim=(0, None))


def draw_seeds(
    ax: Axes,
    rows: pd.DataFrame,
    look: Mapping[str, Any],
    x: str = "round",
    *,
    alpha: float = 0.14,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> None:
    """Draw the mean accuracy over seeds as a curve, over what they span: 95 %.

    Of two, the range.

    Args:
        ax: Where to draw.
        rows: Columns seed, accuracy and the one of `x`.
        look: Words of the curve's `plot`.
        x: Column of the horizontal axis.
        alpha: Of what the seeds span, as a band.
        limits: Where the band is cut off.
    """
    table = 100 * rows.pivot_table(index=x, columns="seed", values="accuracy")
    ax.plot(table.index, table.mean(axis=1), **look)
    if table.shape[1] > 1:
        ends = np.clip([interval(row).shown for row in table.to_numpy()], *limits)
        ax.fill_between(table.index, *ends.T, color=look["color"], alpha=alpha, lw=0)


def by_scheme(data: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Go through the schemes of a table: label, rows, and the look of its curve."""
    for label, rows in data.groupby("scheme", sort=False):
        name = str(label)
        dashes = (0, scheme_dashes(name) or None)
        yield name, rows, {"color": scheme_colour(name), "ls": dashes, "label": name}


def in_turn(
    data: pd.DataFrame, by: str | list[str], label: str = "{}", **looks: Sequence[Any]
) -> Iterator[tuple[Any, pd.DataFrame, dict[str, Any]]]:
    """Go through groups of rows: value, rows, and the look of its curve.

    Args:
        data: The rows.
        by: Column that tells groups apart, or several.
        label: Of a curve, with the group's value instead of `{}`.
        **looks: Words of `plot`, each with the looks that groups get in turn.
    """
    for place, (value, rows) in enumerate(data.groupby(by, sort=False)):
        look = {word: choices[place % len(choices)] for word, choices in looks.items()}
        yield value, rows, look | {"label": label.format(value)}


def panels(
    figure: Figure,
    data: pd.DataFrame,
    by: str,
    draw: Callable[[Axes, pd.DataFrame], object],
    *,
    rows: int = 1,
    columns: int | None = None,
    title: Mapping[str, Any] | None = None,
    **words: Any,
) -> list[Axes]:
    """Draw each group of rows on axes of its own, its name above; return the axes.

    Args:
        figure: Where to draw.
        data: The rows.
        by: Column that tells groups apart.
        draw: Draws the rows of one.
        rows: Rows of axes.
        columns: Axes in a row, as many as there are groups if None.
        title: Words of `Axes.set_title`.
        **words: Of `Figure.subplots`.
    """
    groups = list(data.groupby(by, sort=False))
    grid = figure.subplots(rows, columns or len(groups), squeeze=False, **words)
    axes: list[Axes] = list(grid.ravel())
    for ax, (name, group) in zip(axes, groups, strict=False):
        draw(ax, group)
        ax.set_title(str(name), **(title or {}))
    for ax in axes[len(groups) :]:
        ax.set_axis_off()
    return axes


def beside(
    ax: Axes, text: str, at: tuple[Any, Any], shift: tuple[int, int], **words: Any
) -> None:
    """Write small words beside a point, shifted by points of a font."""
    look = {"fontsize": 8.5} | words
    ax.annotate(text, at, xytext=shift, textcoords="offset points", **look)


def log_ticks(ax: Axes, values: Any, spec: str = "") -> None:
    """Name each of some values on a logarithmic horizontal axis, and nothing else."""
    ticks = sorted(set(values))
    ax.set_xticks(ticks, [f"{value:{spec}}" for value in ticks])
    ax.minorticks_off()


def draw_image_grid(
    figure: Figure,
    data: pd.DataFrame,
    by: str,
    order: str,
    score: str,
    words: Callable[[Any], str],
) -> None:
    """Draw the images in a table's cells, one row for each kind of view.

    Args:
        figure: Where to draw.
        data: Columns shape, pixels, and the three that are named here.
        by: Column that names a row.
        order: Column that sorts a row.
        score: Column of what is scored: a row without it has no words.
        words: What stands below an image, from its row of the table.
    """
    images, scores = [], []
    for name, rows in data[data["pixels"].notna()].groupby(by, sort=False):
        line = rows.sort_values(order)
        cells = zip(line["shape"], line["pixels"], strict=True)
        images.append((str(name), [image_from_text(*pixels) for pixels in cells]))
        is_scored = bool(line[score].notna().all())
        scores.append([words(row) for _, row in line.iterrows()] if is_scored else None)
    plotting.plot_image_grid(images, scores=scores, figure=figure)
