"""What figures of items share: how one is drawn and written, and curves over seeds."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mrsa_jax import plotting
from mrsa_jax.plotting._style import (
    MARKERS,
    SHADES,
    WARNING,
    legend,
    scheme_colour,
    scheme_line,
    short,
)
from mrsa_jax.reproduce.harness._images import image_from_text
from mrsa_jax.reproduce.harness._intervals import interval
from mrsa_jax.reproduce.harness._items import Item

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "LINES",
    "MARKERS",
    "SHADES",
    "WARNING",
    "Draw",
    "draw_seed_curves",
    "drawn",
    "legend",
    "over_seeds",
    "save_figure",
    "scheme_colour",
    "scheme_line",
    "short",
    "shown_images",
]

Draw = Callable[["Figure", "pd.DataFrame"], None]
"""What draws an item's data on its figure."""

# Okabe and Ito; one colour and line for each curve.
COLOURS = ("#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00")
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))


def drawn(draw: Draw, data: pd.DataFrame) -> Figure:
    """Return an item's figure in the package's style."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with plotting.style():
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, data)
    return figure


def save_figure(item: Item, draw: Draw, folder: pathlib.Path) -> pathlib.Path:
    """Write an item's figure as PNG and SVG, its data as CSV beside them; return the PNG."""
    figure = drawn(draw, item.data)
    with plotting.style():
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{item.name}.{suffix}")
    item.data.to_csv(folder / f"{item.name}.csv", index=False)
    return folder / f"{item.name}.png"


def draw_seed_curves(
    ax: Axes, data: pd.DataFrame, *, curve: str, x: str = "round", xlabel: str = "rounds"
) -> None:
    """Draw accuracy over rounds or time: means over seeds with 95 % intervals, of two the range.

    Args:
        ax: Where to draw.
        data: Columns seed, accuracy, the one of `curve` and that of `x`.
        curve: Column that tells curves apart.
        x: Column of the horizontal axis; the same for all seeds of a curve.
        xlabel: Its label.
    """
    for i, (name, rows) in enumerate(data.groupby(curve, sort=False)):
        table = 100 * rows.pivot_table(index=x, columns="seed", values="accuracy")
        colour = COLOURS[i % 6]
        ax.plot(table.index, table.mean(axis=1), color=colour, ls=LINES[i % 6], label=str(name))
        if table.shape[1] > 1:
            ax.fill_between(table.index, *over_seeds(table), color=colour, alpha=0.14, lw=0)
    ax.set(xlabel=xlabel, ylabel="test accuracy (%)", ylim=(0, 100), xlim=(0, None))


def over_seeds(table: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Return the ends of what each row's seeds span: the 95 % interval; of few, the range."""
    ends = [interval(row).shown for row in table.to_numpy()]
    return [low for low, _ in ends], [high for _, high in ends]


def shown_images(rows: pd.DataFrame, order: str) -> list[Any]:
    """Return the images that a table's rows hold, sorted by a column."""
    line = rows.sort_values(order)
    return [image_from_text(*cells) for cells in zip(line["shape"], line["pixels"], strict=True)]
