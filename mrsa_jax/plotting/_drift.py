"""Figures of how clients' updates drift, and of the bits that sums then tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax.plotting._colours import scheme_colour
from mrsa_jax.plotting._style import bands, drawing, legend, scheme_line

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


def plot_drift(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot how a client's updates correlate over rounds, beside the fit of a memory.

    Args:
        results: Data set of a study that measured the drift of updates.
        ax: Where to draw; a figure of its own when None.
    """
    with drawing(ax) as ax:
        lags = results["lag"].values
        for label in map(str, results["scheme"].values):
            own = results.sel(scheme=label)
            shown, pairs = own["correlation"].values, own["correlation_pairs"].values
            rho, share = (float(own[f"update_{name}"]) for name in ("memory", "lasting"))
            colour = scheme_colour(label)
            sizes = 4 + 30 * pairs / max(1.0, float(pairs.max(initial=0)))
            ax.scatter(lags, shown, sizes, color=colour, alpha=0.45, lw=0)
            ax.plot(lags, share * rho**lags, color=colour, ls=scheme_line(label),
                    label=f"{label}\n{share:.2g} x {rho:.4g}^rounds")  # fmt: skip
        ax.axhline(0, color="#777777", lw=0.8, ls=":")
        ax.set(xlabel="rounds between two updates of a client", ylabel="correlation",
               xlim=(0, None), ylim=(min(-0.1, _least(results)), 1.05))  # fmt: skip
        ax.set_title("Memory of updates: measured (larger: more pairs), and its fit")
        legend(ax)
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
        ax.set(xlabel="rounds", ylabel="bits a coordinate", xlim=(0, None), ylim=(0, None))
        ax.set_title("Bits about a client's updates: median to worst client")
        legend(ax)
    return ax
