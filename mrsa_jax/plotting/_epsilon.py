"""Figures of differential privacy: epsilon over rounds, and accuracy against it.

Two ends tell of a scheme's clients: the worst one's epsilon, which a promise to everybody has to
name, and their mean. The server knows who took part, so nothing is amplified by sampling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax.plotting._colours import scheme_colour
from mrsa_jax.plotting._names import legend, short
from mrsa_jax.plotting._style import MARKERS, caption, drawing, scheme_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_EPSILON = "ε of a client's whole history"


def plot_accuracy_epsilon(
    table: pd.DataFrame, *, hue: str | None = "scheme", ax: Axes | None = None
) -> Axes:
    """Plot accuracy against epsilon, a mark a point and a curve a scheme, or its T.

    Full marks stand at the worst client's epsilon, hollow ones at the clients' mean. Points of one
    curve and noise are averaged over what else differs (seeds), a bar reaching to the extremes.
    What is trained without noise has no epsilon: it stands as a level across the figure.

    Args:
        table: Columns accuracy (in [0, 1]), epsilon_worst, epsilon_mean, and `hue`; a column
            noise_multiplier tells which points are of one noise, else epsilon does.
        hue: Column that tells curves apart; one curve when None.
        ax: Where to draw; a figure of its own when None.

    Raises:
        ConfigurationError: If a column is missing, or no point has noise and an accuracy.
    """
    needed = ["accuracy", "epsilon_worst", "epsilon_mean", *([] if hue is None else [hue])]
    missing = [name for name in needed if name not in table]
    require(not missing, "table", f"must have the columns {', '.join(needed)}", missing)
    shown = table[table["accuracy"].notna() & table["epsilon_worst"].notna()]
    noisy = shown[np.isfinite(shown["epsilon_worst"])]
    require(len(noisy) > 0, "table", "must have a point with noise and an accuracy", len(table))
    groups = [("", shown)] if hue is None else list(shown.groupby(hue, sort=False))
    from matplotlib.ticker import LogLocator, NullLocator

    with drawing(ax) as ax:
        for index, (value, rows) in enumerate(groups):
            _curve(ax, str(value), rows, MARKERS[index % len(MARKERS)], hue)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set(xlabel=_EPSILON, ylabel="test accuracy (%)", ylim=(-2, 102))
        caption(ax, "Accuracy against privacy: worst client (full), mean (hollow).")
        legend(ax, None if hue in (None, "scheme") else str(hue).replace("_", " "))
    return ax


def _curve(ax: Axes, label: str, rows: pd.DataFrame, marker: str, hue: str | None) -> None:
    """Draw one curve: points with noise in the order of epsilon, those without as a level."""
    colour, line = scheme_colour(label), scheme_line(label)
    named = short(label) if hue is not None else None
    finite = rows[np.isfinite(rows["epsilon_worst"])]
    by = "noise_multiplier" if "noise_multiplier" in rows else "epsilon_worst"
    alike = finite.groupby(finite[by].to_numpy())
    mean = alike[["accuracy", "epsilon_worst", "epsilon_mean"]].mean()
    mean = mean.sort_values("epsilon_worst")
    low, high = alike["accuracy"].min()[mean.index], alike["accuracy"].max()[mean.index]
    draw: dict[str, Any] = {"color": colour, "marker": marker, "ms": 6}
    ax.plot(mean["epsilon_worst"], 100 * mean["accuracy"], ls=line, label=named, **draw)
    ax.plot(mean["epsilon_mean"], 100 * mean["accuracy"], ls="", mfc="none", **draw)
    for name, width in (("epsilon_worst", 1.4), ("epsilon_mean", 0.7)):
        ax.vlines(mean[name], 100 * low, 100 * high, color=colour, alpha=0.5, lw=width)
    without = rows[~np.isfinite(rows["epsilon_worst"])]
    if len(without):
        words = f"{short(label)}, no noise".lstrip(", ")
        level = 100 * float(without["accuracy"].mean())
        ax.axhline(level, color=colour, ls=":", lw=1.2, label=words)
