"""Figures of how clients' updates drift, and of the bits that sums then tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax.plotting._colours import scheme_colour
from mrsa_jax.plotting._names import name_curves, plain
from mrsa_jax.plotting._style import bands, caption, drawing, scheme_line, whole_numbers
from mrsa_jax.plotting._together import interleave

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


def plot_drift(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot how a client's updates correlate over rounds, beside the fit of a memory.

    Args:
        results: Data set of a study that measured the drift of updates.
        ax: Where to draw; a figure of its own when None.
    """
    with drawing(ax) as ax:
        lags = results["lag"].values
        fits: list[Line2D] = []
        for label in map(str, results["scheme"].values):
            own = results.sel(scheme=label)
            shown, pairs = own["correlation"].values, own["correlation_pairs"].values
            rho, share = (float(own[f"update_{name}"]) for name in ("memory", "lasting"))
            colour = scheme_colour(label)
            sizes = 4 + 30 * pairs / max(1.0, float(pairs.max(initial=0)))
            ax.scatter(lags, shown, sizes, color=colour, alpha=0.45, lw=0)
            fits += ax.plot(lags, share * rho**lags, color=colour, ls=scheme_line(label),
                    label=f"{plain(label)}\n{share:.2g} x {rho:.4g}^rounds")  # fmt: skip
        ax.axhline(0, color="#777777", lw=0.8, ls=":")
        ax.set(xlabel="rounds between two updates of a client", ylabel="correlation",
               xlim=(0, max(float(lags.max(initial=1)), 1.0)),
               ylim=(min(-0.1, _least(results)), 1.05))  # fmt: skip
        ax.margins(x=0)
        whole_numbers(ax.xaxis)
        interleave(ax, fits)
        caption(ax, "Memory of updates: measured (larger marks: more pairs), and its fit.")
        name_curves(ax)
    return ax


def _least(results: xr.Dataset) -> float:
    values = results["correlation"].values[results["correlation_pairs"].values >= 10]
    return float(np.nanmin(values)) - 0.05 if np.isfinite(values).any() else 0.0


def plot_bits(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the bits a coordinate that sums tell of a client's updates, over rounds.

    The line is the median client of those who took part, and the band reaches to the worst.

    Args:
        results: As of `plot_drift`.
        ax: Where to draw; a figure of its own when None.
    """
    with drawing(ax) as ax:
        bands(ax, results, "rounds_done", "bits_median", "bits_worst")
        ax.set(xlabel="rounds", ylabel="bits a coordinate")
        ax.set_ylim(bottom=0)
        ax.locator_params(axis="y", nbins=6)  # whatever the height: labels keep their room
        whole_numbers(ax.xaxis)
        caption(ax, "Bits about a client's updates: median (thick) to worst client (thin).")
        name_curves(ax)
    return ax
