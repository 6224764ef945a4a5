"""Which figure shows which item of Multi-RoundSecAgg, and how a figure is written."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting
from mrsa_jax.reproduce._images import image_from_text
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
    plotting.plot_weak_privacy(panels["bounds"], ax=left)
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


def _errors(figure: Figure, data: pd.DataFrame) -> None:
    """Draw errors of clients by scheme: frozen, slow and moving, a row for each window."""
    lengths = sorted(data["rounds"].unique())
    speeds = sorted(data["speed"].unique())
    figure.set_size_inches(4.6 * (1 + len(speeds)), 3.3 * len(lengths))
    grid = figure.subplots(len(lengths), 1 + len(speeds), squeeze=False, sharex=True, sharey=True)
    for axes, length in zip(grid, lengths, strict=True):
        rows = data[data["rounds"] == length]
        panels = [("updates that do not change", rows[rows["speed"] == speeds[0]], "frozen")]
        for speed in speeds:
            words = "own learning rate" if speed == 1 else f"learning rate x {speed:g}"
            panels.append((words, rows[rows["speed"] == speed], "error"))
        for ax, (words, own, column) in zip(axes, panels, strict=True):
            plotting.plot_error_histogram(own, column=column, ax=ax)
            ax.set_title(f"{length} rounds, {words}")
            ax.set(xlabel=ax.get_xlabel() if length == lengths[-1] else "", ylabel="")
        axes[0].set_ylabel("clients (%)")


def _errors_of_models(figure: Figure, data: pd.DataFrame) -> None:
    """Draw errors of clients' models: frozen and moving, with that of the global model."""
    figure.set_size_inches(10.4, 3.8)
    panels = (("frozen", "models that do not change"), ("error", "models of the training"))
    for ax, (column, words) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        plotting.plot_error_histogram(data, column=column, ax=ax)
        guess = data["unattacked"].mean()
        ax.axvline(guess, color="#D55E00", ls=":", lw=1.6, label=f"global model: {guess:.2g}")
        ax.legend(fontsize=8, loc="upper right")
        ax.set_title(words)


def _motion(figure: Figure, data: pd.DataFrame) -> None:
    """Draw the error against motion by T, and of random selection by the window's length."""
    figure.set_size_inches(11.5, 4.2)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    first = data["rounds"].min()
    plotting.plot_error_of_motion(data[data["rounds"] == first], ax=left)
    plotting.plot_error_of_motion(data[data["target"] == 1], by="rounds", ax=right)
    left.set_title(f"Windows of {first} rounds (dashed: no motion)")
    right.set_ylabel("")
    right.set_title("Random selection, windows of other lengths")


def _inverted(figure: Figure, data: pd.DataFrame) -> None:
    """Draw what was inverted beside the originals, a row for each thing that is seen."""
    rows: list[tuple[str, np.ndarray]] = []
    scores: list[list[str] | None] = []
    shown = data[data["pixels"].notna()]
    for name in ["original", *(seen for seen in shown["seen"].unique() if seen != "original")]:
        line = shown[shown["seen"] == name].sort_values("client")
        cells = zip(line["shape"], line["pixels"], strict=True)
        rows.append((str(name), np.stack([image_from_text(*cell) for cell in cells])))
        is_scored = bool(line["psnr"].notna().all())
        scores.append([f"{value:.1f} dB" for value in line["psnr"]] if is_scored else None)
    plotting.plot_image_grid(rows, scores=scores, figure=figure)


def _exposure(figure: Figure, data: pd.DataFrame) -> None:
    """Draw who was recovered by who was predicted exposed, and errors against leverage."""
    figure.set_size_inches(11.5, 4.2)
    left, right = figure.subplots(1, 2)
    plotting.plot_recovered(data, column="trained", ax=left)
    plotting.plot_predicted_error(data, ax=right)
    left.set_title("Trained updates that do not change")
    right.set_title("Clients who are not exposed")


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
    "fig9": _errors,
    "fig10": _inverted,
    "fig8_2021": _errors_of_models,
    "motion": _motion,
    "exposure": _exposure,
    "image_motion": on_one(plotting.plot_quality_of_motion),
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
