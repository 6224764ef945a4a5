"""The figures of a study as files, the data of each beside it."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax.plotting._axes import draw
from mrsa_jax.plotting._files import FORMATS, save_figure
from mrsa_jax.plotting._study import OPENING, compared, quantile, study_charts

if TYPE_CHECKING:
    import xarray as xr


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
    for name, chart in study_charts(results).items():
        figure = functools.partial(draw, chart)
        written[name], *_ = save_figure(figure, folder / name, formats=formats, apart=True)
        _figure_data(results, name).to_csv(folder / f"{name}.csv")
    return written


_EPSILON = ["accuracy", "epsilon_mean", "epsilon_worst"]
_WEAK = {"weak_lower": "weak T at least", "weak_upper": "weak T at most",
         "hidden_among_worst": "worst hidden among"}  # fmt: skip


def _figure_data(results: xr.Dataset, name: str) -> Any:
    """Return what a figure shows as a table: a column for each scheme, quantiles where banded."""
    import pandas as pd

    if name in ("accuracy_epsilon", "epsilon"):  # a row for each scheme and test
        return results[_EPSILON].to_dataframe()[_EPSILON]
    columns, axis = {}, "round"
    if name == OPENING:
        for label in compared(results):
            for variable, words in _WEAK.items():
                columns[f"{label} {words}"] = results[variable].sel(scheme=label).values
    elif "trial" not in results[name].dims:
        return results[name].transpose(..., "scheme").to_pandas()
    else:
        axis = next(str(dim) for dim in results[name].dims if dim not in ("trial", "scheme"))
        for label in results["scheme"].values:
            own = results[name].sel(scheme=label).transpose("trial", axis)
            columns[f"{label} mean"] = own.mean("trial").values
            columns |= {f"{label} q{q:g}": quantile(own.values, q) for q in (0.05, 0.95)}
    return pd.DataFrame(columns, index=pd.Index(results[axis].values, name=axis))
