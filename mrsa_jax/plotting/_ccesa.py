"""Figures of CCESA remade: bounds on failure, p*, t, growth of resources, times, bandwidth.

Each takes a tidy data frame, a row for each point, as `mrsa_jax.reproduce` makes them, and draws
on `ax`, or on a figure of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._study import _axes, _legend
from mrsa_jax.plotting._style import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "plot_bandwidth_ratio",
    "plot_connection_probability",
    "plot_failure_bounds",
    "plot_growth",
    "plot_running_times",
    "plot_share_thresholds",
    "plot_unmasking",
]

# One colour and marker for each q_total, in order; one colour for each protocol.
_COLOURS = ("#000000", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#0072B2")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_PROTOCOLS = {"SecAgg": "#E69F00", "CCESA": "#0072B2"}
_PRINTED = "#CC79A7"
_LIMIT = "#777777"
_DASHES: dict[str, Any] = {
    "P_r, t rounded up": "-",
    "P_r, real t": ":",
    "P_r, exact union bound": "--",
    "P_p": "-",
}


def plot_failure_bounds(
    data: pd.DataFrame,
    bounds: Sequence[str],
    *,
    limit: float | int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot bounds on a chance of failure over n (columns q_total, n, bound, log10).

    Args:
        data: The points, with the logarithm to base 10 of each bound.
        bounds: Which bounds to draw: the first with markers, the others as lines.
        limit: Exponent of ten that the paper claims as an upper limit, marked if given.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        for i, (total, curves) in enumerate(data.groupby("q_total")):
            for name in bounds:
                curve = curves[curves["bound"] == name].sort_values("n")
                is_first = name == bounds[0]
                ax.plot(
                    curve["n"],
                    curve["log10"],
                    color=_COLOURS[i % 6],
                    ls=_DASHES.get(name, "--"),
                    lw=1.8 if is_first else 1.2,
                    marker=_MARKERS[i % 6] if is_first else None,
                    ms=5,
                    label=f"$q_{{total}}$ = {total:g}" if is_first else None,
                )
        for name in bounds[1:]:
            ax.plot([], [], color="#444444", lw=1.2, ls=_DASHES.get(name, "--"), label=name[5:])
        if limit is not None:
            ax.axhline(limit, color="#777777", lw=0.9, ls=(0, (1, 2)))
            ax.annotate(
                f"the paper's limit, $10^{{{limit:g}}}$",
                (data["n"].max(), limit),
                xytext=(0, 3),
                textcoords="offset points",
                ha="right",
                fontsize=8,
                color="#555555",
            )
        ax.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:g}}}$")
        ax.set(xlabel="clients n", ylabel="bound on the chance (log axis)")
        _legend(ax)
    return ax


def plot_connection_probability(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot p* over n, computed and printed (columns q_total, n, ours, printed)."""
    with style():
        ax = _axes(ax)
        wrong = (data["printed"] - data["ours"].round(3)).abs() > 1e-9
        for i, (total, curve) in enumerate(data.groupby("q_total")):
            label = f"$q_{{total}}$ = {total:g}"
            ax.plot(curve["n"], curve["ours"], color=_COLOURS[i % 6], lw=1.4, label=label)
        ax.plot(
            data["n"], data["printed"], "x", color="#444444", ms=6, label="printed in Table G.2"
        )
        ax.plot(
            data["n"][wrong],
            data["printed"][wrong],
            "o",
            mfc="none",
            mec=_PRINTED,
            ms=12,
            label="third digit differs",
        )
        ax.set(xlabel="clients n", ylabel="connection probability p*", ylim=(0, 1))
        ax.set_title("Threshold connection probability, eq. (5)")
        _legend(ax)
    return ax


def plot_share_thresholds(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot t between what survives and half of all holders, as shares of the holders' mean.

    Columns: where, n, q_total, p, t, holders left, half of holders.
    """
    with style():
        ax = _axes(ax)
        places = np.arange(len(data))[::-1]
        holders = 2 * data["half of holders"]
        ax.barh(places, data["t"] / holders, height=0.55, color="#56B4E9", label="t of Remark 4")
        left = data["holders left"] / holders
        ax.plot(left, places, "D", color="#009E73", ms=7, label="holders left after dropouts, mean")
        ax.axvline(0.5, color=_PRINTED, lw=1.6, label="half: below it a liar learns both secrets")
        for place, t in zip(places, data["t"], strict=True):
            ax.text(0.02, place, f"t = {t}", va="center", fontsize=8.5)
        ax.set_yticks(places, [_setting(row) for _, row in data.iterrows()])
        ax.set(xlabel="share of a client's holders, (n - 1) p + 1", xlim=(0, 1.08))
        ax.set_title("Enough shares come back, too few for two secrets")
        ax.grid(axis="y", visible=False)
        _legend(ax)
    return ax


def _setting(row: Any) -> str:
    total = "" if np.isnan(row["q_total"]) else f", $q_{{total}}$ = {row['q_total']:g}"
    return f"{row['where']}: n = {row['n']}{total}"


def plot_unmasking(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the chance of the unmasking attack over n (columns q_total, n, exact, bound).

    Points at which it cannot happen, chance 0, are left out.
    """
    with style():
        ax = _axes(ax)
        bound = data.drop_duplicates("n")
        ax.plot(bound["n"], bound["bound"], color=_LIMIT, ls="--", label="Proposition 1, n/(n-1)²")
        for i, (total, curve) in enumerate(data.groupby("q_total")):
            ax.plot(
                curve["n"],
                curve["exact"].where(curve["exact"] > 0),  # no degree is high enough: not shown
                color=_COLOURS[i % 6],
                marker=_MARKERS[i % 6],
                ms=5,
                lw=1.2,
                label=f"exact, $q_{{total}}$ = {total:g}",
            )
        ax.set_yscale("log")
        ax.set(xlabel="clients n", ylabel="chance of a round (log axis)")
        ax.set_title("Some client has 2t - 1 neighbours or more")
        _legend(ax)
    return ax


def plot_growth(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot one quantity over n on log axes with its fit (columns scheme, n, value, claim, ...).

    Further column: exponent, of the value as a power of the claimed growth.
    """
    with style():
        ax = _axes(ax)
        for scheme, curve in data.groupby("scheme", sort=False):
            first = curve.iloc[0]
            claim = str(first["claim"])
            base = claim if claim.isalnum() else f"({claim})"
            ax.plot(
                curve["n"],
                curve["value"],
                marker="s" if scheme == "CCESA" else "o",
                ms=5,
                color=_PROTOCOLS.get(str(scheme), "#444444"),
                label=f"{scheme}: {base}^{first['exponent']:.2f}",
            )
        ax.set(xscale="log", yscale="log", xlabel="clients n")
        ticks = sorted(data["n"].unique())
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.legend(loc="upper left")
    return ax


def plot_running_times(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot times of SecAgg and CCESA in each setting, published, real and as arrays.

    Columns: scheme, n, q_total, published_ms, real_ms, arrays_ms; rows of one step.
    """
    with style():
        ax = _axes(ax)
        settings = list(dict.fromkeys(zip(data["n"], data["q_total"], strict=True)))
        for shift, (scheme, colour) in zip((-0.19, 0.19), _PROTOCOLS.items(), strict=True):
            rows = data[data["scheme"] == scheme].set_index(["n", "q_total"])
            chosen = rows.loc[settings]
            places = np.arange(len(settings)) + shift
            for column, look in (
                ("published_ms", {"marker": "_", "ms": 17, "mew": 2.4}),
                ("real_ms", {"marker": "o", "ms": 7}),
                ("arrays_ms", {"marker": "x", "ms": 7, "mew": 2}),
            ):
                style_words: dict[str, Any] = look
                if chosen[column].notna().any():
                    label = f"{scheme}, {column.removesuffix('_ms')}"
                    ax.plot(
                        places, chosen[column], ls="none", color=colour, label=label, **style_words
                    )
        ax.set_yscale("log")
        ticks = [f"n = {n}\n$q_{{total}}$ = {total:g}" for n, total in settings]
        ax.set_xticks(range(len(settings)), ticks)
        ax.set(ylabel="time (ms, log axis)", xlim=(-0.6, len(settings) - 0.4))
        ax.grid(axis="x", visible=False)
        _legend(ax)
    return ax


def plot_bandwidth_ratio(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot CCESA's additional bandwidth over SecAgg's (columns n, ratio, wire_ratio)."""
    with style():
        ax = _axes(ax)
        ax.plot(data["n"], data["ratio"], color=_PROTOCOLS["CCESA"], marker="s", ms=5,
                label="the paper's count, B_CCESA / B_SA")  # fmt: skip
        ax.plot(data["n"], data["wire_ratio"], "x", color="#444444", ms=8, mew=1.6,
                label="bytes really sent")  # fmt: skip
        for _, row in data[data["n"].isin((100, 300, 500, 1000))].iterrows():
            ax.annotate(f"{row['ratio']:.3f}", (row["n"], row["ratio"]), xytext=(2, 8),
                        textcoords="offset points", fontsize=8.5)  # fmt: skip
        ax.set(xlabel="clients n", ylabel="share of SecAgg's bandwidth", ylim=(0, 0.75))
        ax.set_xlim(None, 1.09 * data["n"].max())
        ax.set_title("Bandwidth beyond the residues, at p* ($q_{total}$ = 0)")
        _legend(ax)
    return ax
