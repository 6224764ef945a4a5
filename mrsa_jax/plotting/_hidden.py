"""Figures of how well clients are hidden over rounds, beside weak T, which overstates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._colours import scheme_colour
from mrsa_jax.plotting._names import legend, short
from mrsa_jax.plotting._study import over_rounds
from mrsa_jax.plotting._style import WARNING, caption, drawing, whole_numbers

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes


def plot_hidden_among(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot as in a sum of how many clients the worst hidden client is, over rounds.

    Thin lines show the median client (a mean over trials).
    """

    def more(ax: Axes) -> None:
        rounds = results["round"].values + 1
        for label in results["scheme"].values:
            median = results["hidden_among_median"].sel(scheme=label)
            median = median.mean("trial") if "trial" in median.dims else median
            ax.plot(rounds, median.values, lw=0.7, color=scheme_colour(str(label)))
        ax.axhline(1, color=WARNING, lw=1, ls=":")

    words = "As in a sum of how many clients the worst is hidden (thin: the median client)"
    label = "hidden among (clients)"
    return over_rounds(results, "hidden_among_worst", ax, label, words, counts=True, more=more)


def plot_overstatement(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot weak T and what the worst client is hidden among: random selection against blocks.

    Of the schemes it takes the first that keeps no strong T, and of those that do the one with
    the largest sums.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    with drawing(ax) as ax:
        rounds = results["round"].values + 1
        for label in _compared(results):
            one, colour = results.sel(scheme=label), scheme_colour(label)
            lower, upper = (one[name].values for name in ("weak_lower", "weak_upper"))
            draw: dict[str, Any] = {"color": colour, "drawstyle": "steps-post"}
            band = f"{short(label)}: weak T lies in here" if (lower < upper).any() else None
            ax.fill_between(rounds, lower, upper, step="post", color=colour, alpha=0.12, lw=0,
                            label=band)  # fmt: skip
            for edge in (lower, upper):
                ax.plot(rounds, edge, lw=0.5, **draw)
            exact = np.where(lower == upper, upper, np.nan)
            ax.plot(rounds, exact, lw=1.6, ls=(0, (4, 2)), label=f"{short(label)}: weak T", **draw)
            hidden = one["hidden_among_worst"].values
            ax.plot(rounds, hidden, lw=3.2, label=f"{short(label)}: hidden among, worst", **draw)
        ax.axhline(1, color=WARNING, lw=1, ls=":", label="exposed")
        most = float(np.nanmax(results["weak_upper"].values))
        ticks = [tick for tick in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96) if tick <= most]
        ax.set(
            xlabel="rounds",
            ylabel="clients (log axis)",
            yscale="log",
            ylim=(0.92, 1.12 * most),
        )
        ax.yaxis.set_major_locator(FixedLocator(ticks))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter("{x:g}")
        ax.margins(x=0)
        whole_numbers(ax.xaxis)
        caption(ax, "Combinations of sums hold weak T clients, and hide the worst among far fewer.")
        legend(ax)
    return ax


def overstatement_data(results: xr.Dataset) -> pd.DataFrame:
    """Return what `plot_overstatement` shows as a table, a row for each round."""
    import pandas as pd

    names = {"weak_lower": "weak T at least", "weak_upper": "weak T at most",
             "hidden_among_worst": "worst hidden among"}  # fmt: skip
    columns = {
        f"{label} {words}": results[name].sel(scheme=label).values
        for label in _compared(results)
        for name, words in names.items()
    }
    return pd.DataFrame(columns, index=pd.Index(results["round"].values, name="round"))


def _compared(results: xr.Dataset) -> list[str]:
    """Return the labels of the schemes that are set against each other."""
    labels = [str(label) for label in results["scheme"].values]
    kept = [int(value) for value in results["guaranteed_privacy"].values]
    sums = results["aggregation_cardinality"].isel(round=-1).values
    loose = [label for label, lasts in zip(labels, kept, strict=True) if lasts <= 1]
    order = np.argsort(-sums, kind="stable")
    tight = [labels[place] for place in order if kept[place] > 1]
    return [*loose[:1], *tight[:1]]
