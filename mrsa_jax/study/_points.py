"""A study as a table: a row for each scheme, or for each point of a sweep that is done."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.study import _summary

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


def is_sweep(results: xr.Dataset) -> bool:
    """Return whether a data set holds the points of a sweep."""
    return "done" in results or "axes" in results.attrs


def axes_of(results: xr.Dataset) -> tuple[str, ...]:
    """Return the names of a sweep's axes, the outermost first."""
    named = [str(axis["name"]) for axis in results.attrs.get("axes", ())]
    found = [name for name in named if name in results.dims]
    return tuple(found or (str(dim) for dim in results["done"].dims))


def point_columns(results: xr.Dataset) -> tuple[str, ...]:
    """Return the columns of `points` that say which point a row is."""
    if not is_sweep(results):
        return ("scheme",)
    axes = axes_of(results)
    inner = [
        str(name)
        for name, coord in results.coords.items()
        if len(coord.dims) == 1 and coord.dims[0] in axes and name not in axes
    ]
    return (*axes, *inner, *(["label"] if "label" in results.data_vars else []))


def columns_of(results: xr.Dataset, field: str) -> tuple[str, ...]:
    """Return which of the columns of `point_columns` hold a setting, whatever its axis is called.

    Args:
        results: Of a sweep or a study.
        field: Name of the setting, such as `"seed"` or `"scheme"`.
    """
    fields = {name: results[name].attrs.get("field", name) for name in point_columns(results)}
    return tuple(name for name, own in fields.items() if own == field)


def points(results: xr.Dataset) -> pd.DataFrame:
    """Return a study as a table, a row a scheme or a point that is done.

    Over trials each quantity is a mean, but strong T and what the worst client is hidden among are
    the smallest, and the first round that exposes somebody the earliest; nan where there is none.
    Trajectories give their last entry.
    """
    import pandas as pd

    if not is_sweep(results):
        rows = [dataclasses.asdict(row) for row in _summary.summarise(results)]
        frame = pd.DataFrame(rows).drop(columns="failures")
        optional = [name for name in frame if frame[name].isna().all()]
        return frame.drop(columns=[name for name in optional if name != "strong_privacy"])
    axes = axes_of(results)
    own = (*axes, *_rows(results))
    grid = np.indices([results.sizes[dim] for dim in own]).reshape(len(own), -1)
    columns: dict[str, Any] = {}
    for name in point_columns(results):
        values = results[name].transpose(*[dim for dim in own if dim in results[name].dims], ...)
        places = tuple(grid[own.index(str(dim))] for dim in values.dims if dim in own)
        columns[name] = np.asarray(values)[places] if places else np.asarray(values)
        if columns[name].ndim > 1:  # the only row of each point
            columns[name] = columns[name][:, 0]
    for name in sorted(map(str, results.data_vars), key=_rank):
        along = own if set(own) <= set(results[name].dims) else axes
        found = _reduced(name, results[name], along)
        if found is not None:
            columns[name] = found[tuple(grid[: len(along)])]
    kept = _done(results, axes)[tuple(grid[: len(axes)])]
    if "label" in columns:
        kept = kept & (columns["label"] != "")  # a point with fewer rows than others
    return pd.DataFrame(columns)[kept].reset_index(drop=True)


def _rows(results: xr.Dataset) -> tuple[str, ...]:
    """Return the dimension of what a point attacks, where that is several things."""
    several = "label" in results and results.sizes.get("row", 1) > 1
    return ("row",) if several else ()


def _done(results: xr.Dataset, axes: tuple[str, ...]) -> np.ndarray:
    """Return which points are complete."""
    if "done" not in results:
        return np.ones([results.sizes[axis] for axis in axes], bool)
    return np.asarray(results["done"].transpose(*axes)).astype(bool)


_TELLING = ("_rate", "_error", "auc", "accuracy", "recovered", "psnr", "ssim")


def _rank(name: str) -> tuple[bool, bool, str]:
    """Return where a quantity comes among others: what tells most first, bounds last."""
    return not name.endswith(_TELLING), name.endswith(("_lower", "_upper", "_count")), name


def _reduced(name: str, variable: xr.DataArray, axes: tuple[str, ...]) -> np.ndarray | None:
    """Return a number for each point; None for what is no quantity of the points."""
    is_number = np.issubdtype(variable.dtype, np.number) or variable.dtype == bool
    is_trajectory = name.endswith(("_by_round", "_by_evaluation"))
    if name == "done" or is_trajectory or not is_number or not set(axes) <= set(variable.dims):
        return None
    for dim in ("round", "evaluation"):
        if dim in variable.dims:
            variable = variable.isel({dim: -1})
    inner = [dim for dim in variable.dims if dim not in axes]
    values = variable.transpose(*axes, ...).astype(np.float64)
    if name in _STATISTICS:
        return np.asarray(values.where(values >= 0).min(inner))
    return np.asarray(values.mean(inner))


_STATISTICS = {
    "strong_privacy": "least",
    "hidden_among_worst": "least",
    "first_exposed_round": "earliest",
    "first_exposure": "earliest",
}


def statistic(name: str) -> str:
    """Return what of the trials of a point the table holds, in a word."""
    return _STATISTICS.get(name, "mean")


def sweep_sentences(results: xr.Dataset) -> tuple[str, ...]:
    """Say how far a sweep is, whom its points expose, and which of those that last is best."""
    table, names = points(results), point_columns(results)
    done = _done(results, axes_of(results))
    count, total = int(done.sum()), done.size
    said = [f"{count} of {total} points are done." if count < total
            else f"All {total} points are done."]  # fmt: skip
    if "exposed_clients" not in table or not len(table):
        return tuple(said)
    safe = table[table["exposed_clients"] == 0]
    said.append(f"In {len(safe)} of them the server can solve for no client's own update.")
    if "guaranteed_privacy" not in table:
        return tuple(said)
    early = safe[safe["guaranteed_privacy"] <= 1]
    if len(early):
        left = early["largest_rank"] - early["rank"]
        span = f"{left.min():.4g}" + (f" to {left.max():.4g}" if left.max() > left.min() else "")
        said.append(f"In {len(early)} of these nobody is exposed yet, but nothing makes weak T "
                    f"last: rounds left, N - rank: {span}.")  # fmt: skip
    seeds = columns_of(results, "seed")
    settings = [name for name in names if name not in seeds]
    best = _most_useful(table, settings)
    if best is not None:
        where = ", ".join(f"{name} {_word(best[name])}" for name in settings) or "the only setting"
        said.append(f"The most useful of those whose weak T lasts is {where}: {_use(best)}.")
    return tuple(said)


def _most_useful(table: pd.DataFrame, settings: list[str]) -> pd.Series[Any] | None:
    """Return the setting that sums the most, or trains best, of those whose strong T always lasts.

    What differs in its seed alone is one setting: means over the seeds, and the smallest strong T.
    """
    own = table.assign(points=1)
    by = "accuracy" if "accuracy" in own and own["accuracy"].notna().any() else ""
    by = by or "aggregation_cardinality"
    how: dict[Any, Any] = {"points": "sum", "strong_privacy": "min", "guaranteed_privacy": "min",
           "exposed_clients": "max", "aggregation_cardinality": _mean, by: _mean}  # fmt: skip
    groups = own.groupby(settings or (lambda _: 0), sort=False, dropna=False)
    pooled = groups.agg(how).reset_index()
    is_safe = (pooled["exposed_clients"] == 0) & pooled["strong_privacy"].notna()
    kept = pooled[is_safe & (pooled["guaranteed_privacy"] > 1) & pooled[by].notna()]
    if not len(kept):
        return None
    return kept.sort_values([by, "strong_privacy"], ascending=False).iloc[0]


def _mean(values: pd.Series[Any]) -> float:
    return float(values.mean(skipna=False))  # a seed without a value is none of a mean's


def _use(best: pd.Series[Any]) -> str:
    what = f"strong T = {best['strong_privacy']:.0f}, C = {best['aggregation_cardinality']:.3g}"
    if "accuracy" in best:
        what += f", {100 * best['accuracy']:.1f} % test accuracy"
    return what + (f" (over {best['points']:.0f} seeds)" if best["points"] > 1 else "")


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
