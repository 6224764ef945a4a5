"""Figures of a multi-round study: privacy, exposure, fairness, cardinality, accuracy, attack.

Each takes the study's xarray data set and draws on `ax`, or on a figure of its own. Where the
data set has a `trial` axis the line is the mean and the band spans the 5 % to 95 % quantiles.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._colours import scheme_colour
from mrsa_jax.plotting._style import (
    drawing,
    legend,
    scheme_line,
    short,
    whole_numbers,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


def _curves(results: xr.Dataset, name: str, axis: str, ax: Axes, *, step: bool = False) -> None:
    values = results[name]
    x = results[axis].values + (1 if axis == "round" else 0)
    draw: dict[str, Any] = {"drawstyle": "steps-post"} if step else {}
    for label in results["scheme"].values:
        curve = values.sel(scheme=label)
        colour = scheme_colour(str(label))
        if "trial" in curve.dims:
            low, high = (quantile_of(curve, q) for q in (0.05, 0.95))
            ax.fill_between(
                x, low, high, color=colour, alpha=0.15, lw=0, step="post" if step else None
            )
            curve = curve.mean("trial")
        ax.plot(x, curve.values, color=colour, ls=scheme_line(str(label)), label=label, **draw)


def quantile_of(curve: xr.DataArray, q: float) -> np.ndarray:
    """Return a quantile over trials; nan, quietly, where no trial has a value yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
        return np.asarray(curve.quantile(q, "trial").values)


def _legend(ax: Axes, results: xr.Dataset) -> None:
    """Put the legend beside the axes; over it what curves and bands are of, if of many trials."""
    trials = results.sizes.get("trial", 1)
    legend(ax, f"mean of {trials} trials\n(band: 5 to 95 %)" if trials > 1 else None)


def over_rounds(
    results: xr.Dataset,
    name: str,
    ax: Axes | None,
    label: str,
    title: str,
    *,
    axis: str = "round",
    step: bool = False,
    limits: tuple[Any, Any] = (0, None),
    more: Callable[[Axes], None] | None = None,
) -> Axes:
    """Plot a curve for each scheme, and whatever `more` draws."""
    with drawing(ax) as ax:
        _curves(results, name, axis, ax, step=step)
        if more is not None:
            more(ax)
        ax.set(xlabel="rounds", ylabel=label, ylim=limits)
        ax.set_title(title)
        _legend(ax, results)
    return ax


def plot_privacy(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot strong T over rounds, from the first sum on."""
    title = "Fewest clients whose updates move only together"
    label = "strong T (clients)"
    return over_rounds(results, "strong_privacy", ax, label, title, step=True)


def plot_exposure(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot how many clients' own updates the server can solve for, over rounds."""
    most = float(results["exposed_clients"].max())
    top = max(1.05 * most, 1.0)

    def more(ax: Axes) -> None:
        if not most:
            ax.text(0.5, 0.5, "nobody is exposed", transform=ax.transAxes, ha="center")
        whole_numbers(ax.yaxis, min_n_ticks=1)

    title, label = "Clients whose own update follows from the sums", "exposed clients"
    limits = (-0.02 * top, top)  # a line at 0 is seen above the axis
    return over_rounds(
        results, "exposed_clients", ax, label, title, step=True, limits=limits, more=more
    )


def plot_fairness(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the fairness gap F over rounds."""
    title = "Most minus least often summed client, a round"
    return over_rounds(results, "fairness_gap", ax, "fairness gap F", title, limits=(0, 0.5))


def plot_cardinality(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the aggregation cardinality C over rounds, its expectation as a mark at the right."""
    end = 1.02 * int(results.sizes["round"])

    def more(ax: Axes) -> None:
        for label in results["scheme"].values:
            expected = float(results["expected_cardinality"].sel(scheme=label))
            colour = scheme_colour(str(label))
            ax.plot([end], [expected], marker="<", ms=7, color=colour, clip_on=False)

    title = "Mean number of clients in a sum (< expected)"
    label = "aggregation cardinality C (clients)"
    return over_rounds(results, "aggregation_cardinality", ax, label, title, more=more)


def plot_accuracy(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the test accuracy of the global model over rounds."""
    shown = results.assign(accuracy=100 * results["accuracy"])
    label, title = "test accuracy (%)", "Test accuracy"
    return over_rounds(shown, "accuracy", ax, label, title, axis="evaluation", limits=(0, 100))


def plot_reconstruction(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot each client's reconstruction error by scheme (eq. (35); a point a client)."""
    with drawing(ax) as ax:
        labels = [str(label) for label in results["scheme"].values]
        rng = np.random.default_rng(0)  # only spreads the points sideways
        for position, label in enumerate(labels):
            errors = results["reconstruction_error"].sel(scheme=label).values
            errors = errors[np.isfinite(errors)]
            offsets = rng.uniform(-0.25, 0.25, errors.size)
            ax.scatter(
                position + offsets, errors, s=9, alpha=0.55, color=scheme_colour(label), lw=0
            )
            if errors.size:
                ax.hlines(
                    np.median(errors), position - 0.35, position + 0.35, color="#D55E00", lw=2
                )
        ax.axhline(1, color="#777777", lw=0.8, ls=":")
        ax.set_yscale("log")
        ax.set_xticks(range(len(labels)), [short(label) for label in labels])
        ax.tick_params(axis="x", labelrotation=20)
        ax.set(ylabel="relative squared error")
        ax.set_title("Least-squares reconstruction of single updates (bar: median)")
    return ax
