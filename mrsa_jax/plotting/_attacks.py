"""What least squares recovers: errors of single clients, by scheme, motion, window and exposure.

Each takes a tidy data frame, a row for each client of each seed, as `mrsa_jax.reproduce` makes it,
and draws on `ax`, or on a figure of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._multiround import _MARKERS, _SHADES, _WARNING
from mrsa_jax.plotting._study import _axes
from mrsa_jax.plotting._style import scheme_colour, scheme_line, short, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "plot_error_histogram",
    "plot_error_of_motion",
    "plot_predicted_error",
    "plot_quality_of_motion",
    "plot_recovered",
]

_LEAST = 1e-6  # smaller errors are drawn in the first bin of a histogram by scheme
_ERROR = "relative squared error of a client"


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
    with style():
        ax = _axes(ax)
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
        ax.set(xscale="log", xlim=(least, 1e6), xlabel=_ERROR, ylabel="clients (%)")
        ax.set_ylim(0, 100)
        ax.legend(fontsize=8, loc="upper right")
    return ax


def plot_error_of_motion(data: pd.DataFrame, *, by: str = "scheme", ax: Axes | None = None) -> Axes:
    """Plot the mean error against how far updates move, a curve for each scheme or window.

    A small mark is a seed, a line joins the geometric means over seeds; dashed, where updates
    do not move at all.

    Args:
        data: Columns scheme or rounds, speed, seed, motion, error and frozen; rows of the same
            scheme, rounds, speed and seed are averaged.
        by: `"scheme"`, or `"rounds"` of the window.
        ax: Where to draw; a figure of its own when None.
    """
    from matplotlib.ticker import NullFormatter

    with style():
        ax = _axes(ax)
        for place, (value, rows) in enumerate(data.groupby(by, sort=False)):
            is_scheme, marker = by == "scheme", _MARKERS[place % len(_MARKERS)]
            colour = scheme_colour(str(value)) if is_scheme else _SHADES[-1 - place % len(_SHADES)]
            label = short(str(value)) if is_scheme else f"{value} rounds"
            seeds = rows.groupby(["speed", "seed"])[["motion", "error", "frozen"]].mean()
            logs = seeds[["motion", "error"]].transform(np.log)
            middle = logs.groupby("speed").mean().transform(np.exp)
            words: dict[str, Any] = {"color": colour, "marker": marker}
            ax.plot(middle["motion"], middle["error"], lw=1.4, ms=5, label=label, **words)
            ax.plot(seeds["motion"], seeds["error"], ls="", ms=2.5, alpha=0.4, **words)
            still = seeds["frozen"].mean()
            if still > _LEAST:
                ax.axhline(still, color=colour, ls="--", lw=0.9)
        ax.axhline(1, color="#777777", lw=0.8, ls=":")
        ax.set(xscale="log", yscale="log", xlabel="relative motion of an update in the window")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_ylabel("mean relative squared error")
        ax.legend(fontsize=8)
    return ax


def plot_quality_of_motion(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot how well images are recovered against how far updates move, a curve for each T.

    A small mark is a seed, a line joins the means over seeds; dashed, updates that never change.

    Args:
        data: Columns seen (the label), seed, rate (0: updates that never change), motion and
            psnr; rows of the same label, rate and seed are averaged.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        for place, (label, rows) in enumerate(data.groupby("seen", sort=False)):
            words: dict[str, Any] = {
                "color": _SHADES[-1 - 2 * place % len(_SHADES)],
                "marker": _MARKERS[place % len(_MARKERS)],
            }
            seeds = rows.groupby(["rate", "seed"])[["motion", "psnr"]].mean()
            still, moving = seeds.loc[[0.0]], seeds.drop(index=0.0, level="rate")
            middle = moving.groupby("rate").mean()
            ax.plot(middle["motion"], middle["psnr"], lw=1.4, ms=5, label=str(label), **words)
            ax.plot(moving["motion"], moving["psnr"], ls="", ms=2.5, alpha=0.4, **words)
            ax.axhline(float(still["psnr"].mean()), color=words["color"], ls="--", lw=0.9)
        ax.set(xscale="log", xlabel="motion: variance of a client's updates over their square")
        ax.set_ylabel("mean PSNR (dB)")
        ax.legend(fontsize=8)
    return ax


def plot_recovered(data: pd.DataFrame, *, column: str, ax: Axes | None = None) -> Axes:
    """Plot the errors of clients predicted exposed and of all others, as two histograms.

    Args:
        data: Columns exposed (bool) and the error, a row for each client of each history.
        column: Which error.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        bins = np.logspace(-33, 3, 73).tolist()
        for exposed, words, colour in (
            (True, "predicted exposed", _WARNING),
            (False, "all others", _SHADES[2]),
        ):
            values = np.clip(data.loc[data["exposed"] == exposed, column].dropna(), 1.1e-33, 0.9e3)
            label = f"{words}: {len(values)}"
            ax.hist(values, bins, color=colour, alpha=0.7, label=label, log=True)
        ax.set(xscale="log", xlabel=_ERROR, ylabel="clients", ylim=(0.6, None))
        ax.legend(fontsize=8, loc="upper center")
    return ax


def plot_predicted_error(
    data: pd.DataFrame, *, columns: tuple[str, ...] = ("trained", "drawn"), ax: Axes | None = None
) -> Axes:
    """Plot measured against predicted errors of clients who are not exposed.

    Args:
        data: Columns exposed, predicted and the errors.
        columns: Which errors.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        hidden = data[~data["exposed"]]
        shown = hidden.iloc[:: max(1, len(hidden) // 2500)]
        for column, colour, marker in zip(columns, (_SHADES[1], _SHADES[4]), "os", strict=False):
            ax.plot(
                shown["predicted"], shown[column], marker, color=colour, ms=2, alpha=0.35,
                label=f"{column} updates", rasterized=True,
            )  # fmt: skip
        ax.plot([1e-3, 1], [1e-3, 1], color=_WARNING, lw=1.2, label="measured = predicted")
        ax.set(xscale="log", yscale="log", xlim=(1e-3, 1.15), ylim=(1e-4, 30))
        ax.set(xlabel="predicted error, 1 \N{MINUS SIGN} leverage", ylabel=_ERROR)
        ax.legend(fontsize=8, loc="upper left", markerscale=3)
    return ax
