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

from mrsa_jax.plotting._drift import plot_bits, plot_drift
from mrsa_jax.plotting._style import (
    drawing,
    legend,
    scheme_colour,
    scheme_line,
    short,
    style,
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


def _over_rounds(
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
    return _over_rounds(results, "strong_privacy", ax, label, title, step=True)


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
    return _over_rounds(
        results, "exposed_clients", ax, label, title, step=True, limits=limits, more=more
    )


def plot_fairness(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the fairness gap F over rounds."""
    title = "Most minus least often summed client, a round"
    return _over_rounds(results, "fairness_gap", ax, "fairness gap F", title, limits=(0, 0.5))


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
    return _over_rounds(results, "aggregation_cardinality", ax, label, title, more=more)


def plot_accuracy(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the test accuracy of the global model over rounds."""
    shown = results.assign(accuracy=100 * results["accuracy"])
    label, title = "test accuracy (%)", "Test accuracy"
    return _over_rounds(shown, "accuracy", ax, label, title, axis="evaluation", limits=(0, 100))


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


# By the variable that each shows.
_FIGURES: dict[str, Callable[..., Axes]] = {
    "strong_privacy": plot_privacy,
    "exposed_clients": plot_exposure,
    "fairness_gap": plot_fairness,
    "aggregation_cardinality": plot_cardinality,
    "accuracy": plot_accuracy,
    "reconstruction_error": plot_reconstruction,
    "bits_worst": plot_bits,
    "correlation": plot_drift,
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
    for name, plot in _FIGURES.items():
        if name not in results or not np.isfinite(results[name]).any():
            continue
        with style():
            figure = Figure(layout="constrained")
            FigureCanvasAgg(figure)
            plot(results, ax=figure.subplots())
            path = folder / f"{name}.png"
            figure.savefig(path)
        _figure_data(results, name).to_csv(folder / f"{name}.csv")
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
