"""Figures of HeteroSAg remade: matrices, privacy levels, errors, expansion, costs, accuracy.

Each takes a tidy data frame, a row for each point, as `mrsa_jax.reproduce` makes them, and draws
on `ax`, or on a figure of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._accuracy import over_seeds
from mrsa_jax.plotting._study import _axes, _legend
from mrsa_jax.plotting._style import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "plot_byzantine_tolerance",
    "plot_claimed_levels",
    "plot_count_growth",
    "plot_expansion",
    "plot_quantization_errors",
    "plot_seed_curves",
    "plot_segment_matrix",
    "plot_survival",
    "plot_unequal_moduli",
]

# Okabe and Ito; one colour and line for each curve of the experiments.
_PALE = ("#BFE3F7", "#F6DDA6", "#B5E3D3", "#F3C9DD", "#F7F0A8", "#F3C7A8")
_COLOURS = ("#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00")
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_WARNING = "#D55E00"


def plot_segment_matrix(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot a segment-selection matrix (columns segment, group, label, block, print).

    One colour for each block of a row; rows that cannot be read in the print are framed.
    """
    from matplotlib.patches import Rectangle

    with style():
        ax = _axes(ax)
        segments, groups = data["segment"].max() + 1, data["group"].max() + 1
        for _, cell in data.iterrows():
            at = (cell["group"] - 0.5, cell["segment"] - 0.5)
            face = "#f4f4f4" if cell["block"] < 0 else _PALE[cell["block"] % len(_PALE)]
            ax.add_patch(Rectangle(at, 1, 1, fc=face, ec="white", lw=1.5))
            small = len(str(cell["label"])) > 2
            ax.text(
                cell["group"], cell["segment"], cell["label"], ha="center", va="center",
                fontsize=7.5 if small else 10,
            )  # fmt: skip
        unread = data[~data["print"].str.startswith("equal")]["segment"].unique()
        for segment in unread:
            at = (-0.47, segment - 0.45)
            ax.add_patch(Rectangle(at, groups - 0.06, 0.9, fc="none", ec=_WARNING, lw=1.6))
        ax.set(xlim=(-0.55, groups - 0.45), ylim=(segments - 0.45, -0.55))
        ax.set_xticks(range(groups))
        ax.set_yticks(range(segments))
        ax.set(xlabel="group" if groups > 5 or data["label"].str.len().max() < 3 else "subgroup",
               ylabel="segment")  # fmt: skip
        ax.set_aspect("equal")
        ax.grid(visible=False)
    return ax


def plot_unequal_moduli(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot which sums of Example 1 are wrong (columns Z_1, Z_2, Z_3, codes, is wrong)."""
    with style():
        ax = _axes(ax)
        pads = list(dict.fromkeys(zip(data["Z_1"], data["Z_2"], data["Z_3"], strict=True)))
        codes = sorted(data["codes"].unique())
        table = data.set_index(["Z_1", "Z_2", "Z_3", "codes"])["is wrong"]
        grid = np.asarray([[table[(*own, code)] for own in pads] for code in codes])
        from matplotlib.colors import ListedColormap

        ax.imshow(grid, cmap=ListedColormap(["#e8eef2", _WARNING]), aspect="auto", vmin=0, vmax=1)
        ax.set_xticks(range(len(pads)), ["\n".join(map(str, own)) for own in pads])
        ax.set_yticks(range(len(codes)), [" ".join(code) for code in codes], fontsize=7.5)
        ax.set(xlabel="pads of users 1, 2, 3 (Table II)", ylabel="inputs of users 1, 2, 3")
        ax.set_title(f"Wrong sums (orange): {int(grid.sum())} of {grid.size}")
        ax.grid(visible=False)
    return ax


def plot_claimed_levels(data: pd.DataFrame, *, size: str = "G", ax: Axes | None = None) -> Axes:
    """Plot privacy levels claimed and true over the number of groups.

    Columns: the size, T (nan without one), claimed, true. Without T a line and marks; with T a
    map over both, wrong claims crossed, true levels written beside.
    """
    with style():
        ax = _axes(ax)
        many = {"G": "groups G", "Z": "subgroups Z"}.get(size, size)
        ax.set_xticks(range(int(data[size].min()), int(data[size].max()) + 1))
        if data["T"].notna().any():
            looks = {True: ("o", "#0072B2", "claim holds"),
                     False: ("X", _WARNING, "claim too high (true level beside)")}  # fmt: skip
            for holds, rows in data.groupby("holds"):
                marker, colour, label = looks[bool(holds)]
                ax.scatter(rows[size], rows["T"], s=34, marker=marker, color=colour, label=label)
            for _, row in data[~data["holds"]].iterrows():
                ax.annotate(f"{row['true']:.2f}", (row[size], row["T"]), xytext=(0, 5),
                            textcoords="offset points", fontsize=6.5, ha="center")  # fmt: skip
            ax.set(xlabel=f"number of {many}", ylabel="threshold T")
            ax.set(ylim=(1.3, data["T"].max() + 2.2))
            ax.legend(loc="upper left")
            return ax
        ax.plot(data[size], data["claimed"], color="#777777", lw=1.3, label="claimed")
        for holds, rows in data.groupby("holds"):
            ax.plot(rows[size], rows["true"], "o" if holds else "X", ms=7, ls="none",
                    color="#0072B2" if holds else _WARNING,
                    label="true, as claimed" if holds else "true, not as claimed")  # fmt: skip
        ax.set(xlabel=f"number of {many}", ylabel="privacy level", ylim=(-0.03, 1.03))
        ax.legend(loc="best")
    return ax


def plot_quantization_errors(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot bounds, exact and simulated errors of schemes.

    Columns: scheme, updates (halfway or uniform), bound, exact, simulated.
    """
    with style():
        ax = _axes(ax)
        names = list(dict.fromkeys(data["scheme"]))
        places = np.arange(len(names))
        bounds = data.drop_duplicates("scheme").set_index("scheme")["bound"]
        ax.bar(places, bounds[names], width=0.62, color="#d9e6ee", label="bound, Theorem 2")
        for shift, (kind, colour) in zip(
            (-0.13, 0.13), (("halfway", "#0072B2"), ("uniform", "#009E73")), strict=True
        ):
            rows = data[data["updates"] == kind].set_index("scheme").loc[names]
            ax.plot(places + shift, rows["exact"], "_", ms=15, mew=2.2, color=colour,
                    label=f"exact, {kind} values")  # fmt: skip
            ax.plot(places + shift, rows["simulated"], "x", ms=6, mew=1.4, color="#333333",
                    label="simulated" if kind == "uniform" else None)  # fmt: skip
        ax.set_yscale("log")
        ax.set_xticks(places, names)
        ax.set(ylabel="error of the mean, of a coordinate\n(over the range squared, log axis)")
        ax.set_title("Quantization error: N = 20, K = 2, 4, 8, 10, 12")
        ax.grid(axis="x", visible=False)
        _legend(ax)
    return ax


def plot_expansion(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the expansion factor over users that sum together (columns K, summed, factor, ...)."""
    with style():
        ax = _axes(ax)
        for i, (levels, rows) in enumerate(data.groupby("K")):
            names: dict[Any, str] = {2: "2", 16: "16", 65536: "2^{16}"}
            name = names.get(levels, str(levels))
            ax.plot(rows["summed"], rows["real bits"], color=_COLOURS[i + 1], lw=1.2)
            ax.plot(rows["summed"], rows["factor"], _MARKERS[i], ls="none", ms=5,
                    color=_COLOURS[i + 1], label=f"$K = {name}$")  # fmt: skip
        ax.axvline(14, color="#777777", lw=0.9, ls=":")
        ax.annotate("two subgroups of 7", (14, ax.get_ylim()[1]), xytext=(4, -10),
                    textcoords="offset points", fontsize=8, color="#555555")  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set(xlabel="users that sum together, |S|", ylabel="bits sent over bits of the code")
        ax.set_title("Bandwidth expansion (marks: whole bits)")
        _legend(ax)
    return ax


def plot_survival(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the chance of two survivors everywhere (columns n, p, Z, formula, simulated)."""
    with style():
        ax = _axes(ax)
        for i, ((size, total), rows) in enumerate(data.groupby(["n", "Z"])):
            rows = rows.sort_values("p")
            words = "one subgroup" if total == 1 else f"all of {total} subgroups"
            ax.plot(rows["p"], rows["formula"], color=_COLOURS[i % 6], ls=_LINES[i % 6],
                    label=f"n = {size}, {words}")  # fmt: skip
            ax.plot(rows["p"], rows["simulated"], "x", color="#333333", ms=6,
                    label="simulated" if i == 0 else None)  # fmt: skip
        ax.set(xlabel="dropout rate p", ylabel="chance of two survivors or more", ylim=(0, 1.03))
        ax.set_title("Theorem 4: one subgroup, and every subgroup")
        _legend(ax)
    return ax


def plot_byzantine_tolerance(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot tolerated attackers over groups (columns G, paper, exact)."""
    with style():
        ax = _axes(ax)
        ax.step(data["G"], data["exact"], where="mid", color="#0072B2", label="exact")
        ax.plot(data["G"], data["paper"], color=_WARNING, ls="--", label="printed, 0.25 G - 1")
        ax.set(xlabel="number of groups G", ylabel="attackers n_B", ylim=(-0.7, None))
        ax.set_title("Byzantine users that a median bears under MC")
        _legend(ax)
    return ax


def plot_count_growth(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot counted costs over what is varied, on log axes (columns at, count, value, varied)."""
    with style():
        ax = _axes(ax)
        for i, (name, rows) in enumerate(data.groupby("count", sort=False)):
            ax.plot(rows["at"], rows["value"], color=_COLOURS[i % 6], marker=_MARKERS[i % 6],
                    ms=4.5, ls=_LINES[i % 6], lw=1.4, label=str(name))  # fmt: skip
        varied = str(data["varied"].iloc[0])
        ax.set(xscale="log", yscale="log", xlabel=varied)
        ticks = sorted(data["at"].unique())
        ax.set_xticks(ticks, [f"{value:,}" for value in ticks])
        ax.minorticks_off()
    return ax


def plot_seed_curves(
    data: pd.DataFrame,
    *,
    curve: str,
    x: str = "round",
    xlabel: str = "rounds",
    ax: Axes | None = None,
) -> Axes:
    """Plot accuracy over rounds or time: means over seeds with 95 % intervals, of two the range.

    Args:
        data: Columns seed, accuracy, the one of `curve` and that of `x`.
        curve: Column that tells curves apart.
        x: Column of the horizontal axis; the same for all seeds of a curve.
        xlabel: Its label.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        for i, (name, rows) in enumerate(data.groupby(curve, sort=False)):
            table = 100 * rows.pivot_table(index=x, columns="seed", values="accuracy")
            colour, mean = _COLOURS[i % 6], table.mean(axis=1)
            ax.plot(table.index, mean, color=colour, ls=_LINES[i % 6], label=str(name))
            if table.shape[1] > 1:
                ends = over_seeds(table)
                ax.fill_between(table.index, *ends, color=colour, alpha=0.14, lw=0)
        ax.set(xlabel=xlabel, ylabel="test accuracy (%)", ylim=(0, 100), xlim=(0, None))
    return ax
