"""The figures of a study as files, the data of each beside it."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting import _study
from mrsa_jax.plotting._drift import plot_bits, plot_drift
from mrsa_jax.plotting._epsilon import plot_epsilon, plot_learning_epsilon
from mrsa_jax.plotting._files import FORMATS, save_figure
from mrsa_jax.plotting._hidden import overstatement_data, plot_hidden_among, plot_overstatement
from mrsa_jax.plotting._study import quantile_of

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

OPENING = "weak_and_hidden"  # what a report opens with

# The variable without which there is no figure, and what draws it.
_FIGURES: dict[str, tuple[str, Callable[..., Axes]]] = {
    OPENING: ("weak_lower", plot_overstatement),
    "hidden_among_worst": ("hidden_among_worst", plot_hidden_among),
    "strong_privacy": ("strong_privacy", _study.plot_privacy),
    "exposed_clients": ("exposed_clients", _study.plot_exposure),
    "fairness_gap": ("fairness_gap", _study.plot_fairness),
    "aggregation_cardinality": ("aggregation_cardinality", _study.plot_cardinality),
    "accuracy": ("accuracy", _study.plot_accuracy),
    "accuracy_epsilon": ("epsilon_worst", plot_learning_epsilon),
    "epsilon": ("epsilon_worst", plot_epsilon),
    "reconstruction_error": ("reconstruction_error", _study.plot_reconstruction),
    "bits_worst": ("bits_worst", plot_bits),
    "correlation": ("correlation", plot_drift),
}


def save_study_figures(
    results: xr.Dataset, directory: str | pathlib.Path, *, formats: Sequence[str] = FORMATS
) -> dict[str, pathlib.Path]:
    """Write each figure that the results have data for as PNG, its data as CSV beside it.

    For print it is also in the folder's `figures/`, as SVG and PDF; `with style("single"):` around
    the call gives the width of one column.

    Args:
        results: Data set of a study.
        directory: Existing folder.
        formats: As of `save_figure`, PNG first.

    Returns:
        Name of each figure -> path of its PNG, in reading order.
    """
    folder = pathlib.Path(directory)
    written = {}
    for name, (shows, plot) in _FIGURES.items():
        if shows not in results or not np.isfinite(results[shows]).any():
            continue
        draw = functools.partial(plot, results)
        path, *_ = save_figure(draw, folder / name, formats=formats, apart=True)
        data = _DATA[name](results) if name in _DATA else _figure_data(results, shows)
        data.to_csv(folder / f"{name}.csv")
        written[name] = path
    return written


def _epsilon_data(results: xr.Dataset) -> Any:
    """Return accuracy, mean and worst epsilon, a row for each scheme and test."""
    names = ["accuracy", "epsilon_mean", "epsilon_worst"]
    return results[names].to_dataframe()[names]


_DATA: dict[str, Callable[[Any], Any]] = {
    OPENING: overstatement_data,
    **dict.fromkeys(("accuracy_epsilon", "epsilon"), _epsilon_data),
}  # of a figure that shows more than one variable


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
            columns[f"{label} q{quantile:g}"] = quantile_of(curve, quantile)
    axis = next(dim for dim in values.dims if dim not in ("trial", "scheme"))
    return pd.DataFrame(columns, index=pd.Index(values[axis].values, name=axis))
