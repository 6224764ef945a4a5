"""What attacks on sums recover: errors of single clients by scheme, and what is told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import _gaussian
from mrsa_jax.plotting._colours import scheme_colour
from mrsa_jax.plotting._names import legend, short
from mrsa_jax.plotting._style import caption, drawing, scheme_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_LEAST = 1e-6  # smaller errors are drawn in the first bin of a histogram by scheme


def plot_error_histogram(
    data: pd.DataFrame, *, column: str = "error", least: float = _LEAST, ax: Axes | None = None
) -> Axes:
    """Plot how many of the clients are recovered with which error, a histogram a scheme.

    Args:
        data: Columns scheme and the error, a row for each client and seed.
        column: Which error.
        least: Smaller errors are drawn as this.
        ax: Where to draw; a figure of its own when None.
    """
    with drawing(ax) as ax:
        bins = np.logspace(np.log10(least), 6, 4 * int(6 - np.log10(least)) + 1).tolist()
        for label, rows in data.groupby("scheme", sort=False):
            values = rows[column].dropna()
            shown = np.clip(values, 1.01 * least, 0.99e6)
            name, colour = str(label), scheme_colour(str(label))
            share = np.full(len(shown), 100 / len(shown))
            words = f"{short(name)}: mean {values.mean():.2g}"
            ax.hist(shown, bins, weights=share, color=colour, alpha=0.25, histtype="stepfilled")
            ax.hist(
                shown, bins, weights=share, color=colour, histtype="step", lw=1.4,
                ls=scheme_line(name), label=words,
            )  # fmt: skip
        ax.axvline(1, color="#777777", lw=0.8, ls=":")
        ax.set(
            xscale="log",
            xlim=(least, 1e6),
            xlabel="relative squared error of a client",
            ylabel="clients (%)",
        )
        ax.set_ylim(0, 100)
        caption(ax, "Clients by the error with which their updates are recovered.")
        _legend(ax)
    return ax


def _legend(ax: Axes) -> None:
    """Put the legend outside, but for panels, which have no room beside them."""
    figure = ax.get_figure(root=True)
    if figure is not None and len(figure.axes) > 1:
        ax.legend(loc="best")
    else:
        legend(ax)


def plot_roc(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot rates of true against false positives: the formula's as curves, measured as points.

    Args:
        data: Rows of `scores.csv` of `mrsa-jax attack distinguish`: columns scheme, whose, mu,
            fpr, tpr, and the interval's lower and upper.
        ax: Where to draw; a figure of its own when None.
    """
    with drawing(ax) as ax:
        least = float(data["fpr"].min()) / 2
        rates = np.logspace(np.log10(least), 0, 200)[:-1]
        ax.plot(rates, rates, color="#777777", lw=0.8, ls=":", label="chance")
        for (label, whose), rows in data.groupby(["scheme", "whose"], sort=False):
            colour, mu = scheme_colour(str(label)), float(rows["mu"].iloc[0])
            is_worst = whose == "worst"
            ax.plot(
                rates, _gaussian.true_positive_rate(mu, rates), color=colour, lw=1.4,
                ls="-" if is_worst else "--",
            )  # fmt: skip
            middle = rows["tpr"]
            ends = [middle - rows["lower"], rows["upper"] - middle]
            words = f"{short(str(label))}, {whose} client: mu = {mu:.3g}"
            ax.errorbar(
                rows["fpr"], middle, ends, color=colour, ls="none", capsize=2.5,
                marker="o" if is_worst else "s", ms=4.5, mfc=colour if is_worst else "white",
                label=words,
            )  # fmt: skip
        ax.set(
            xscale="log",
            xlim=(least, 1),
            ylim=(0, 1.02),
            xlabel="rate of false positives",
            ylabel="rate of true positives",
        )
        caption(ax, "True against false positives: the formula's as curves, measured as points.")
        _legend(ax)
    return ax
