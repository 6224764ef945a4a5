"""Which figure shows which item of Multi-RoundSecAgg, and how a figure is written."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mrsa_jax import plotting
from mrsa_jax.reproduce._items import Item

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Draw", "on_one", "save_figure"]

Draw = Callable[["Figure", "pd.DataFrame"], None]
"""What draws an item's data on its figure."""


def on_one(plot: Callable[..., Axes], **words: Any) -> Draw:
    """Return what draws an item on the only axes of its figure."""

    def draw(figure: Figure, data: pd.DataFrame) -> None:
        plot(data, ax=figure.subplots(), **words)

    return draw


def _privacy_over_rounds(figure: Figure, data: pd.DataFrame) -> None:
    """Draw bounds over trials, one history with certificates, and the published estimate."""
    figure.set_size_inches(14, 3.9)
    left, middle, right = figure.subplots(1, 3)
    panels = dict(list(data.groupby("panel", sort=False)))
    plotting.plot_weak_privacy(panels["proven bounds"], ax=left)
    plotting.plot_weak_privacy(panels["one history"], ax=middle)
    plotting.plot_weak_privacy(panels["echelon estimate"], ax=right)
    for axes, title in (
        (left, "Bounds of T, means over trials"),
        (middle, "One history each, with certificates"),
        (right, "Echelon-form estimate (dots: K)"),
    ):
        axes.set_title(title)
    for axes in (left, middle):
        axes.get_legend().remove()
        axes.set(ylim=(0, 13))
    right.set(ylabel="estimate of T (clients)")
    right.axhline(12, color="#777777", lw=0.8, ls=":")


def _accuracy(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy over rounds, IID and non-IID (or two settings) side by side."""
    panels = list(data.groupby("panel", sort=False))
    figure.set_size_inches(6.2 * len(panels), 5.2)
    for ax, (name, rows) in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        plotting.plot_accuracy_curves(rows, ax=ax)
        ax.set_title(str(name))
        ax.set_ylabel("test accuracy (%)" if name == panels[0][0] else "")


FIGURES: dict[str, Draw] = {
    "table1": on_one(plotting.plot_family_sizes),
    "fig2": on_one(plotting.plot_family),
    "fig3": on_one(plotting.plot_cardinality_of_target),
    "remark7": on_one(plotting.plot_swaps),
    "fig4a": _privacy_over_rounds,
    "echelon": on_one(plotting.plot_echelon_error),
    "fig4b": on_one(
        plotting.plot_metric,
        ylabel="fairness gap F",
        title="Most minus least often summed client, a round",
        top=0.5,
    ),
    "fig4c": on_one(
        plotting.plot_metric,
        ylabel="aggregation cardinality C (clients)",
        title="Mean number of clients in a sum",
    ),
    "fig5a": on_one(plotting.plot_tradeoff),
    "theorem3": on_one(plotting.plot_full_rank),
    "early_leaks": on_one(functools.partial(plotting.plot_early_leaks, period=6)),
    "table3": _accuracy,
    "table4": _accuracy,
    "table5": _accuracy,
    "fig8": _accuracy,
}
"""What draws each item on a figure."""


def save_figure(item: Item, draw: Draw, folder: pathlib.Path) -> pathlib.Path:
    """Write an item's figure as PNG and SVG, its data as CSV beside them; return the PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with plotting.style():
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, item.data)
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{item.name}.{suffix}")
    item.data.to_csv(folder / f"{item.name}.csv", index=False)
    return folder / f"{item.name}.png"
