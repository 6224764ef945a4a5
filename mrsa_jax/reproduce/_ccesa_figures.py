"""Which figure shows which item of CCESA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import plotting
from mrsa_jax.reproduce._ccesa_membership import sum_size
from mrsa_jax.reproduce._figures import Draw, on_one
from mrsa_jax.reproduce._images import image_from_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["FIGURES"]


def _bounds(figure: Figure, data: pd.DataFrame) -> None:
    """Draw Theorem 5 with t rounded up and real, and Theorem 6 beside it."""
    figure.set_size_inches(12.4, 4.2)
    left, right = figure.subplots(1, 2)
    reliability = ("P_r, t rounded up", "P_r, real t", "P_r, exact union bound")
    plotting.plot_failure_bounds(data, reliability, limit=-2, ax=left)
    plotting.plot_failure_bounds(data, ("P_p",), limit=-40, ax=right)
    left.set_title("Unreliable: Theorem 5 at p*")
    right.set_title("Not private: Theorem 6 at p*")
    left.get_legend().remove()
    handles, labels = left.get_legend_handles_labels()
    right.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _growth(figure: Figure, data: pd.DataFrame) -> None:
    """Draw each quantity of Table 1 on axes of its own."""
    panels = list(data.groupby("quantity", sort=False))
    figure.set_size_inches(13, 7)
    axes = figure.subplots(2, 3).ravel()
    for ax, (name, rows) in zip(axes, panels, strict=False):
        plotting.plot_growth(rows, ax=ax)
        ax.set_title(str(name), fontsize=9.5)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()


def _times(figure: Figure, data: pd.DataFrame) -> None:
    """Draw Steps 1 to 3 and the server on axes of their own."""
    wide = data[["n", "q_total"]].drop_duplicates().shape[0] > 2
    figure.set_size_inches(13 if wide else 9, 7)
    axes = figure.subplots(2, 2).ravel()
    for k, (ax, step) in enumerate(
        zip(axes, ("Step 1", "Step 2", "Step 3", "Server"), strict=True)
    ):
        plotting.plot_running_times(data[data["step"] == step], ax=ax)
        ax.set_title(step if step == "Server" else f"{step}, one client")
        if k != 1:
            ax.get_legend().remove()


def _reliability(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy over rounds for several p, a panel a setting, and the rates of failure."""
    tests = data[data["measure"] == "accuracy"].copy()
    tests["curve"] = [_curve_name(p) for p in tests["p"]]
    panels = list(tests.groupby(["split", "q_total"], sort=False))
    figure.set_size_inches(4.4 * (len(panels) + 1) + 0.6, 4.1)
    *left, right = figure.subplots(1, len(panels) + 1)
    for k, (ax, ((split, total), rows)) in enumerate(zip(left, panels, strict=True)):
        plotting.plot_seed_curves(rows, curve="curve", ax=ax)
        ax.set_title(f"{split}, $q_{{total}}$ = {total:g}")
        if k:
            ax.set_ylabel("")
            ax.sharey(left[0])
    left[-1].legend(loc="center right")
    plotting.plot_failure_rates(data[data["measure"] == "failure"], ax=right)
    right.set_title("Rounds that fail")


def _inverted(figure: Figure, data: pd.DataFrame) -> None:
    """Draw what each scheme lets see of some clients' classes beside their images."""
    rows, scores = [], []
    shown = data[data["pixels"].notna()]
    for name, own in shown.groupby("scheme", sort=False):
        line = own.sort_values("column")
        images = [
            image_from_text(*cells) for cells in zip(line["shape"], line["pixels"], strict=True)
        ]
        rows.append((str(name), np.stack(images)))
        is_judged = line["r"].notna().all()
        words = [
            f"r = {round(r, 2) + 0.0:.2f} {'✓' if is_found else ''}"
            for r, is_found in zip(line["r"], line["identified"], strict=True)
        ]
        scores.append(words if is_judged else None)
    plotting.plot_image_grid(rows, scores=scores, figure=figure)


def _members(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy by training set, areas by size of the sum, and curves on log axes."""
    figure.set_size_inches(14.5, 4.3)
    left, middle, right = figure.subplots(1, 3)
    scores = data[data["measure"] == "scores"]
    main = scores[scores["method"] == "shadow models"]
    plotting.plot_membership_accuracy(main[main["scheme"].map(sum_size) <= 1], ax=left)
    sizes = scores["scheme"].map(sum_size)
    smallest = scores["n_train"] == scores["n_train"].min()
    sums = scores.assign(size=sizes)[(sizes > 0) & smallest]
    plotting.plot_membership_auc(sums, ax=middle)
    plotting.plot_membership_roc(data[data["measure"] == "curve"], ax=right)
    left.set_title("Shadow models")
    middle.set_title("Sums of T, smallest training set")
    right.set_title("Likelihood ratio, smallest training set")


def _curve_name(p: float) -> str:
    if p == 1:
        return "SecAgg (p = 1)"
    return f"p = {p:g}" if round(p, 2) == p else f"p* = {p:.4f}"


FIGURES: dict[str, Draw] = {
    "table1": _growth,
    "fig3": _bounds,
    "tableg2": on_one(plotting.plot_connection_probability),
    "remark4": on_one(plotting.plot_share_thresholds),
    "proposition1": on_one(plotting.plot_unmasking),
    "bandwidth": on_one(plotting.plot_bandwidth_ratio),
    "table2": _times,
    "fig4": _reliability,
    "figb1": _reliability,
    "fig2": _inverted,
    "table3": _members,
}
"""What draws each item on a figure."""
