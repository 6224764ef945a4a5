"""Which figure shows which item of HeteroSAg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax import plotting
from mrsa_jax.reproduce._figures import Draw, on_one

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["FIGURES"]


def _matrices(figure: Figure, data: pd.DataFrame) -> None:
    """Draw each matrix on axes of its own."""
    panels = list(data.groupby("matrix", sort=False))
    figure.set_size_inches(11.5, 7.6)
    axes = figure.subplots(2, 3).ravel()
    for ax, (name, rows) in zip(axes, panels, strict=False):
        plotting.plot_segment_matrix(rows, ax=ax)
        ax.set_title(str(name), fontsize=10)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()


def _levels(figure: Figure, data: pd.DataFrame) -> None:
    """Draw SC, MC and HC side by side."""
    size = "G" if "G" in data else "Z"
    figure.set_size_inches(13, 4)
    for ax, (name, rows) in zip(
        figure.subplots(1, 3), data.groupby("scheme", sort=False), strict=True
    ):
        plotting.plot_claimed_levels(rows, size=size, ax=ax)
        ax.set_title(str(name))


def _costs(figure: Figure, data: pd.DataFrame) -> None:
    """Draw the costs over each of the three numbers."""
    figure.set_size_inches(14, 4)
    axes = figure.subplots(1, 3)
    for ax, (_, rows) in zip(axes, data.groupby("varied", sort=False), strict=True):
        plotting.plot_count_growth(rows, ax=ax)
    axes[0].set_ylabel("count (log axis)")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _accuracy(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy over rounds and over time, in encoded and in plain bits."""
    own = data[(data["classes"] == "sorted classes") & (data["factor"] == 1)]
    figure.set_size_inches(13.5, 4.1)
    axes = figure.subplots(1, 3, sharey=True)
    axis = (
        ("round", "rounds"),
        ("seconds, encoded bits", "communication time (s), bits as sent"),
        ("seconds, plain bits", "communication time (s), plain bits"),
    )
    for ax, (x, label) in zip(axes, axis, strict=True):
        plotting.plot_seed_curves(own, curve="scheme", x=x, xlabel=label, ax=ax)
    for ax in axes[1:]:
        ax.set_ylabel("")
    axes[0].set_title("Experiment 1")
    axes[-1].legend(loc="lower right")


def _byzantine(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy with and without an attacker."""
    figure.set_size_inches(8.6, 4.2)
    ax = figure.subplots()
    plotting.plot_seed_curves(data, curve="run", ax=ax)
    ax.set_title("Experiment 2: one attacker of 20, MC")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


FIGURES: dict[str, Draw] = {
    "matrices": _matrices,
    "examples": on_one(plotting.plot_unequal_moduli),
    "theorem1": _levels,
    "theorem3": _levels,
    "error_bounds": on_one(plotting.plot_quantization_errors),
    "expansion": on_one(plotting.plot_expansion),
    "theorem4": on_one(plotting.plot_survival),
    "byzantine_bound": on_one(plotting.plot_byzantine_tolerance),
    "costs": _costs,
    "fig3a": _accuracy,
    "fig3b": _byzantine,
}
"""What draws each item on a figure."""
