"""Membership inference: who is called right, by what was seen, and at which price.

Each takes a tidy data frame, as `mrsa_jax.reproduce` makes them, and draws on `ax`, or on a figure
of its own. Carlini et al. (2022): an attack that is right on average may still be sure of nobody,
so the curve of true over false positives is drawn on logarithmic axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._study import _axes
from mrsa_jax.plotting._style import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["plot_membership_accuracy", "plot_membership_auc", "plot_membership_roc"]

_COLOURS = ("#D55E00", "#E69F00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_LUCK = "#777777"


def plot_membership_roc(
    data: pd.DataFrame, *, lowest: float = 1e-3, ax: Axes | None = None
) -> Axes:
    """Plot the share of members found over the share of others called members, on log axes.

    Args:
        data: Columns scheme, fpr and tpr, a row for each point; a curve for each scheme, in the
            order in which they come. Where there are columns chance low and chance high (the same
            for all schemes), the band between them is shaded.
        lowest: Smallest rate that is shown; a curve starts where its rates are at least this.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        for k, (name, rows) in enumerate(data.groupby("scheme", sort=False)):
            curve = rows.sort_values("fpr")
            curve = curve[(curve["fpr"] >= lowest) & (curve["tpr"] >= lowest)]
            colour, line = _COLOURS[k % 7], _LINES[k % 7]
            ax.plot(curve["fpr"], curve["tpr"], color=colour, ls=line, label=str(name))
        if "chance low" in data:
            band = data[data["scheme"] == data["scheme"].iloc[0]].sort_values("fpr")
            ends = (band[name].clip(lower=lowest / 10) for name in ("chance low", "chance high"))
            ax.fill_between(band["fpr"], *ends, color=_LUCK, alpha=0.2, lw=0)
        ax.plot([lowest, 1], [lowest, 1], color=_LUCK, lw=0.9, ls=":", label="chance")
        ax.set(xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.15))
        ax.set(xlabel="false positives (log axis)", ylabel="members found (log axis)")
        ax.legend(loc="lower right")
    return ax


def plot_membership_accuracy(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the share of candidates told right for each size of the training set.

    Args:
        data: Columns scheme, n_train, accuracy, lower, upper (shares) and printed (percent, nan
            where the paper has none of these data), a row for each point.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        names = list(dict.fromkeys(data["scheme"]))
        sizes = sorted(data["n_train"].unique())
        for k, name in enumerate(names):
            rows = data[data["scheme"] == name].set_index("n_train").reindex(sizes)
            places = np.arange(len(sizes)) + 0.2 * (k - (len(names) - 1) / 2)
            middle = 100 * rows["accuracy"]
            reach = np.stack([middle - 100 * rows["lower"], 100 * rows["upper"] - middle])
            ax.errorbar(places, middle, yerr=reach, color=_COLOURS[k % 7], ls="none", capsize=3,
                        marker=_MARKERS[k % 7], ms=6, lw=1.4, label=str(name))  # fmt: skip
            ax.plot(places, rows["printed"], ls="none", marker="_", ms=14, mew=2,
                    color=_COLOURS[k % 7], alpha=0.55)  # fmt: skip
        if data["printed"].notna().any():
            ax.plot([], [], ls="none", marker="_", ms=12, mew=2, color=_LUCK, label="printed")
        ax.axhline(50, color=_LUCK, lw=0.9, ls=":")
        ax.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        ax.set(xlabel="training samples of all clients", ylabel="candidates told right (%)")
        ax.set(ylim=(40, 102), xlim=(-0.5, len(sizes) - 0.5))
        ax.grid(axis="x", visible=False)
        ax.legend(loc="upper right")
    return ax


def plot_membership_auc(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the area under the curve over how many clients are in a sum.

    Args:
        data: Columns method, size, auc, auc low and auc high, a row for each point.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        sizes = sorted(data["size"].unique())
        for k, (name, rows) in enumerate(data.groupby("method", sort=False)):
            curve = rows.sort_values("size")
            reach = np.stack([curve["auc"] - curve["auc low"], curve["auc high"] - curve["auc"]])
            ax.errorbar(curve["size"], curve["auc"], yerr=reach, color=_COLOURS[k % 7],
                        marker=_MARKERS[k % 7], ms=6, lw=1.4, capsize=3,
                        ls=_LINES[k % 7], label=str(name))  # fmt: skip
        ax.axhline(0.5, color=_LUCK, lw=0.9, ls=":")
        ax.set_xscale("log", base=2)
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
        ax.set(xlabel="clients in the sum, T", ylabel="area under the curve", ylim=(0.45, 1.02))
        ax.legend(loc="upper right")
    return ax
