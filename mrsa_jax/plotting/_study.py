"""Figures of a multi-round study: privacy, exposure, fairness, cardinality, accuracy, attack.

Each takes the study's xarray data set and draws on `ax`, or on a figure of its own. Where the
data set has a `trial` axis the line is the mean and the band spans the 5 % to 95 % quantiles.
"""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._style import legend, scheme_colour, scheme_line, short, style

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = [
    "plot_accuracy",
    "plot_cardinality",
    "plot_exposure",
    "plot_fairness",
    "plot_privacy",
    "plot_reconstruction",
    "save_study_figures",
]


def _axes(ax: Axes | None) -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _curves(results: xr.Dataset, name: str, axis: str, ax: Axes, *, step: bool = False) -> None:
    values = results[name]
    x = results[axis].values + (1 if axis == "round" else 0)
    draw: dict[str, Any] = {"drawstyle": "steps-post"} if step else {}
    for label in results["scheme"].values:
        curve = values.sel(scheme=label)
        colour = scheme_colour(str(label))
        if "trial" in curve.dims:
            low, high = (_quantile(curve, q) for q in (0.05, 0.95))
            ax.fill_between(
                x, low, high, color=colour, alpha=0.15, lw=0, step="post" if step else None
            )
            curve = curve.mean("trial")
        ax.plot(x, curve.values, color=colour, ls=scheme_line(str(label)), label=label, **draw)


def _quantile(curve: xr.DataArray, q: float) -> np.ndarray:
    """Return a quantile over trials; nan, quietly, where no trial has a value yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
        return np.asarray(curve.quantile(q, "trial").values)


def _legend(ax: Axes, results: xr.Dataset) -> None:
    """Put the legend beside the axes; over it what curves and bands are of, if of many trials."""
    trials = results.sizes.get("trial", 1)
    legend(ax, f"mean of {trials} trials\n(band: 5 to 95 %)" if trials > 1 else None)


def plot_privacy(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot strong multi-round privacy T over rounds, from the first sum on."""
    with style():
        ax = _axes(ax)
        _curves(results, "strong_privacy", "round", ax, step=True)
        ax.set(xlabel="rounds", ylabel="strong privacy T (clients)", ylim=(0, None))
        ax.set_title("Fewest clients whose updates move only together")
        _legend(ax, results)
    return ax


def plot_exposure(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot how many clients' own updates the server can solve for, over rounds."""
    from matplotlib.ticker import MaxNLocator

    with style():
        ax = _axes(ax)
        _curves(results, "exposed_clients", "round", ax, step=True)
        ax.set(xlabel="rounds", ylabel="exposed clients")
        most = float(results["exposed_clients"].max())
        if not most:
            ax.text(0.5, 0.5, "nobody is exposed", transform=ax.transAxes, ha="center")
        top = max(1.05 * most, 1.0)
        ax.set_ylim(-0.02 * top, top)  # a line at 0 is seen above the axis
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.set_title("Clients whose own update follows from the sums")
        _legend(ax, results)
    return ax


def plot_fairness(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the fairness gap F over rounds."""
    with style():
        ax = _axes(ax)
        _curves(results, "fairness_gap", "round", ax)
        ax.set(xlabel="rounds", ylabel="fairness gap F", ylim=(0, 0.5))
        ax.set_title("Most minus least often summed client, a round")
        _legend(ax, results)
    return ax


def plot_cardinality(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the aggregation cardinality C over rounds, its expectation as a mark at the right."""
    with style():
        ax = _axes(ax)
        _curves(results, "aggregation_cardinality", "round", ax)
        end = int(results.sizes["round"])
        for label in results["scheme"].values:
            ax.plot(
                [end * 1.02],
                [float(results["expected_cardinality"].sel(scheme=label))],
                marker="<",
                ms=7,
                color=scheme_colour(str(label)),
                clip_on=False,
            )
        ax.set(xlabel="rounds", ylabel="aggregation cardinality C (clients)", ylim=(0, None))
        ax.set_title("Mean number of clients in a sum (< expected)")
        _legend(ax, results)
    return ax


def plot_accuracy(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the test accuracy of the global model over rounds."""
    with style():
        ax = _axes(ax)
        shown = results.assign(accuracy=100 * results["accuracy"])
        _curves(shown, "accuracy", "evaluation", ax)
        ax.set(xlabel="rounds", ylabel="test accuracy (%)", ylim=(0, 100))
        ax.set_title("Test accuracy")
        _legend(ax, results)
    return ax


def plot_reconstruction(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot each client's reconstruction error by scheme (eq. (35); a point a client)."""
    with style():
        ax = _axes(ax)
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


_FIGURES: dict[str, tuple[str, Callable[..., Any]]] = {
    "strong_privacy": ("strong_privacy", plot_privacy),
    "exposed_clients": ("exposed_clients", plot_exposure),
    "fairness_gap": ("fairness_gap", plot_fairness),
    "aggregation_cardinality": ("aggregation_cardinality", plot_cardinality),
    "accuracy": ("accuracy", plot_accuracy),
    "reconstruction_error": ("reconstruction_error", plot_reconstruction),
}


def save_study_figures(
    results: xr.Dataset, directory: str | pathlib.Path
) -> dict[str, pathlib.Path]:
    """Write each figure that the results have data for as PNG, its data as CSV beside it.

    Args:
        results: Data set of a study.
        directory: Existing folder.

    Returns:
        Name of each figure -> path of its PNG, in reading order.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder = pathlib.Path(directory)
    written = {}
    for name, (variable, plot) in _FIGURES.items():
        if variable not in results or not np.isfinite(results[variable]).any():
            continue
        with style():
            figure = Figure(layout="constrained")
            FigureCanvasAgg(figure)
            plot(results, ax=figure.subplots())
            path = folder / f"{name}.png"
            figure.savefig(path)
        _figure_data(results, variable).to_csv(folder / f"{name}.csv")
        written[name] = path
    return written


def _figure_data(results: xr.Dataset, variable: str) -> Any:
    """Return what a figure shows as a table: a column for each scheme, quantiles where banded."""
    import pandas as pd

    values = results[variable]
    if "trial" not in values.dims:
        return values.transpose(..., "scheme").to_pandas()
    columns = {}
    for label in values["scheme"].values:
        curve = values.sel(scheme=label)
        columns[f"{label} mean"] = curve.mean("trial").values
        for quantile in (0.05, 0.95):
            columns[f"{label} q{quantile:g}"] = _quantile(curve, quantile)
    axis = next(dim for dim in values.dims if dim not in ("trial", "scheme"))
    return pd.DataFrame(columns, index=pd.Index(values[axis].values, name=axis))
