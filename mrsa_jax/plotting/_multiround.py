"""Figures of Multi-RoundSecAgg remade: families, trade-offs, privacy, leaks, full rank.

Each takes a tidy data frame, a row for each point, as `mrsa_jax.reproduce` makes them, and draws
on `ax`, or on a figure of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax.plotting._study import _axes, _legend
from mrsa_jax.plotting._style import scheme_colour, scheme_line, short, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "plot_cardinality_of_target",
    "plot_early_leaks",
    "plot_echelon_error",
    "plot_family",
    "plot_family_sizes",
    "plot_full_rank",
    "plot_metric",
    "plot_swaps",
    "plot_tradeoff",
    "plot_weak_privacy",
]

# Neighbouring hues that stay apart for colour-blind readers and in grey: light to dark.
_SHADES = ("#9BD0EF", "#56B4E9", "#0072B2", "#004C7A", "#00253D")
_MARKERS = ("o", "s", "^", "D", "v")
_WARNING = "#D55E00"


def plot_family_sizes(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot printed and exact family sizes (columns scheme, paper, ours) on a log axis."""
    with style():
        ax = _axes(ax)
        places = np.arange(len(data))[::-1]
        for place, (_, row) in zip(places, data.iterrows(), strict=True):
            colour = scheme_colour(row["scheme"])
            ax.hlines(place, 1, float(row["ours"]), color=colour, lw=1.5, alpha=0.4)
            ax.plot(float(row["ours"]), place, "o", color=colour, ms=6)
            ax.annotate(
                f"{int(row['ours']):,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
                (float(row["ours"]), place),
                xytext=(12, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
        ax.plot(
            data["paper"].astype(float),
            places,
            "o",
            mfc="none",
            mec=_WARNING,
            ms=11,
            label="printed",
        )
        ax.set_xscale("log")
        ax.set_xlim(1, 1e24)
        ax.set_yticks(places, [short(label) for label in data["scheme"]])
        ax.set(xlabel="cohorts to choose from, R", ylim=(-0.6, len(data) - 0.4))
        ax.set_title("Family sizes at N = 120, K = 12 (rings: as printed)")
        ax.grid(axis="y", visible=False)
    return ax


def plot_family(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot a family of cohorts (columns row, client, member) as the matrix B."""
    with style():
        ax = _axes(ax)
        matrix = data.pivot(index="row", columns="client", values="member").to_numpy()
        ax.imshow(matrix, cmap="Greys", vmin=0, vmax=1.4, aspect="equal")
        for (row, client), member in np.ndenumerate(matrix):
            colour = "white" if member else "#555555"
            ax.text(client, row, str(member), ha="center", va="center", color=colour, fontsize=9)
        rows, clients = (np.arange(size) for size in matrix.shape)
        ax.set_xticks(clients, [str(client + 1) for client in clients])
        ax.set_yticks(rows, [str(row + 1) for row in rows])
        ax.set(xlabel="client", ylabel="cohort (row of B)")
        ax.set_title("Family of N = 8, K = 4, T = 2")
        ax.grid(visible=False)
    return ax


def plot_cardinality_of_target(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot C against T (columns p, T, theorem, simulated), a line for each dropout rate p."""
    with style():
        ax = _axes(ax)
        for i, (rate, curve) in enumerate(data.groupby("p")):
            ax.plot(
                curve["T"],
                curve["theorem"],
                color=_SHADES[i % 5],
                marker=_MARKERS[i % 5],
                ms=5,
                label=f"p = {rate:g}",
            )
            ax.plot(curve["T"], curve["simulated"], ls="none", marker="x", ms=9, color="#444444")
        ax.plot([], [], ls="none", marker="x", ms=9, color="#444444", label="simulated")
        ax.set(xlabel="privacy target T (clients)", ylabel="expected cardinality C (clients)")
        ax.set(ylim=(0, 12.6), xlim=(0, 12.4))
        ax.set_title("The price of privacy (N = 120, K = 12, equal dropout rates p)")
        _legend(ax)
    return ax


def plot_swaps(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the share of sums that swaps change (columns scheme, sums, changed_sums)."""
    with style():
        ax = _axes(ax)
        share = 100 * data["changed_sums"] / data["sums"]
        places = np.arange(len(data))[::-1]
        colours = [scheme_colour(label) for label in data["scheme"]]
        ax.barh(places, share, color=colours, height=0.6)
        for place, (_, row) in zip(places, data.iterrows(), strict=True):
            text = f"{row['changed_sums']} of {row['sums']}"
            value = 100 * row["changed_sums"] / row["sums"]
            ax.annotate(
                text, (value, place), xytext=(6, 0), textcoords="offset points", va="center"
            )
        ax.set_yticks(places, [short(label) for label in data["scheme"]])
        ax.set(xlabel="sums that change (%)", xlim=(0, 115))
        ax.set_title("Clients swap updates within a block (within pairs where there is none)")
        ax.grid(axis="y", visible=False)
    return ax


def plot_weak_privacy(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot bounds of weak privacy T over rounds (columns scheme, rounds, lower, upper).

    T lies in the band; a line is drawn where its edges meet.
    """
    with style():
        ax = _axes(ax)
        for label, curve in data.groupby("scheme", sort=False):
            colour, rounds = scheme_colour(str(label)), curve["rounds"].to_numpy()
            lower, upper = (curve[name].to_numpy(float) for name in ("lower", "upper"))
            ax.fill_between(rounds, lower, upper, step="post", color=colour, alpha=0.22, lw=0)
            exact = np.where(upper - lower < 1e-9, upper, np.nan)
            line = {"color": colour, "ls": scheme_line(str(label)), "drawstyle": "steps-post"}
            ax.plot(rounds, upper, lw=0.6, **{**line, "ls": "-"})
            ax.plot(rounds, lower, lw=0.6, **{**line, "ls": "-"})
            ax.plot(rounds, exact, label=str(label), **line)
        ax.set(xlabel="rounds", ylabel="weak privacy T (clients)", ylim=(0, None))
        ax.set_title("Proven bounds of T (line: they meet)")
        _legend(ax)
    return ax


def plot_echelon_error(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot an estimate of T over proven bounds (columns scheme, rounds, lower, upper, estimate)."""
    with style():
        ax = _axes(ax)
        for label, curve in data.groupby("scheme", sort=False):
            colour, rounds = scheme_colour(str(label)), curve["rounds"].to_numpy()
            lower, upper = (curve[name].to_numpy(float) for name in ("lower", "upper"))
            ax.fill_between(rounds, lower, upper, step="post", color=colour, alpha=0.25, lw=0)
            words = f"{label}: T at most"
            ax.plot(rounds, upper, color=colour, drawstyle="steps-post", label=words)
            ax.plot(rounds, lower, color=colour, lw=0.6, drawstyle="steps-post")
            ax.plot(
                rounds,
                curve["estimate"],
                color=colour,
                ls=(0, (2, 1)),
                lw=1.4,
                drawstyle="steps-post",
                label=f"{label}: estimate",
            )
        ax.set_yscale("log", base=2)
        ax.set_yticks([1, 2, 3, 6, 12, 24, 48], ["1", "2", "3", "6", "12", "24", "48"])
        ax.minorticks_off()
        ax.set(xlabel="rounds", ylabel="weak privacy T (clients), log axis")
        ax.set_title("Echelon-form estimate against proven bounds of T, one history each")
        _legend(ax)
    return ax


def plot_metric(
    data: pd.DataFrame,
    *,
    ylabel: str,
    title: str,
    top: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a metric over rounds (columns scheme, rounds, mean, low, high), a band a scheme.

    Args:
        data: The points.
        ylabel: What the metric is, with its unit.
        title: Of the axes.
        top: Where the axis of the metric ends; by the data when None.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        for label, curve in data.groupby("scheme", sort=False):
            colour = scheme_colour(str(label))
            ax.fill_between(
                curve["rounds"], curve["low"], curve["high"], color=colour, alpha=0.13, lw=0
            )
            ax.plot(
                curve["rounds"],
                curve["mean"],
                color=colour,
                ls=scheme_line(str(label)),
                label=str(label),
            )
        ax.set(xlabel="rounds", ylabel=ylabel, title=title)
        ax.set_ylim(0, top)
        _legend(ax)
    return ax


def plot_tradeoff(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the T that schemes keep against their C (columns scheme, T, C, C_low, C_high)."""
    with style():
        ax = _axes(ax)
        for i, (_, row) in enumerate(data.iterrows()):
            spread = np.array([[row["C"] - row["C_low"]], [row["C_high"] - row["C"]]])
            ax.errorbar(
                row["C"],
                row["T"],
                xerr=np.maximum(spread, 0),
                marker="oPsD^v"[i % 6],
                ms=11 - 5 * (row["scheme"] == "Weighted random"),
                capsize=3,
                color=scheme_colour(row["scheme"]),
                label=row["scheme"],
                ls="none",
            )
        ax.set(xlabel="average aggregation cardinality C (clients)", xlim=(0, 12.6))
        ax.set(ylabel="privacy T kept for ever (clients)", ylim=(0, 13))
        ax.set_title("Privacy against cardinality (N = 120, K = 12)")
        _legend(ax)
    return ax


def plot_full_rank(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the chance of full rank (columns N, K, selection, rounds, full_rank, bound)."""
    with style():
        ax = _axes(ax)
        for i, ((n, k), both) in enumerate(data.groupby(["N", "K"])):
            for kind, curve in both.groupby("selection"):
                is_iid = kind == "iid"
                label = f"N = {n}, K = {k}" if is_iid else None
                ax.plot(
                    curve["rounds"] - curve["N"],
                    curve["full_rank"],
                    color=_SHADES[i % 5],
                    marker=_MARKERS[i % 5],
                    ms=4,
                    ls="-" if is_iid else ":",
                    label=label,
                )
                if is_iid:
                    bound = curve["bound"].iloc[0]
                    ax.plot([0], [bound], "x", ms=9, mew=2, color=_WARNING, zorder=5)
        ax.plot([], [], color="#444444", label="each client with chance K/N")
        ax.plot([], [], color="#444444", ls=":", label="exactly K a round")
        ax.plot([], [], "x", ms=9, mew=2, color=_WARNING, label="bound (32), o(1) = 0")
        ax.set(xlabel="rounds minus N", ylabel="P(full rank)", ylim=(-0.03, 1.03))
        ax.set_title("Random selection determines every update after about N rounds")
        _legend(ax)
    return ax


def plot_early_leaks(data: pd.DataFrame, *, period: int, ax: Axes | None = None) -> Axes:
    """Plot the share of trials that leaked early (columns scheme, rounds, leaked).

    Args:
        data: The points.
        period: N/K; its multiples are marked.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        for label, curve in data.groupby("scheme", sort=False):
            ax.plot(
                curve["rounds"],
                100 * curve["leaked"],
                color=scheme_colour(str(label)),
                ls=scheme_line(str(label)),
                drawstyle="steps-post",
                label=str(label),
            )
        ax.set_xticks(range(0, int(data["rounds"].max()) + 1, period))
        ax.grid(axis="x", color="#bbbbbb", ls=":")
        ax.set(xlabel=f"rounds (grid: multiples of N/K = {period})", ylim=(0, None))
        ax.set_ylabel("trials with T below\nmin(K, N - rank + 1) so far (%)")
        ax.set_title("Weighted random selection leaks earlier than random")
        _legend(ax)
    return ax
