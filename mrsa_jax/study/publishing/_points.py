"""Tables of studies, a row for each scheme or point of a sweep, and their charts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting.chart import Chart
from mrsa_jax.plotting.points import (
    MOST_CURVES,
    as_shown,
    heading,
    label_of,
    pair_chart,
    points_chart,
    quantity,
)
from mrsa_jax.study.publishing import _summary
from mrsa_jax.study.settings._attributes import attributes
from mrsa_jax.study.settings._config import DataConfig, PopulationConfig
from mrsa_jax.study.stores._runner import VARIABLES_OF_WEAK
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import number

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

_WIDE = 50.0  # an axis whose ends are this many times apart is logarithmic
_PAIRS = (
    ("strong_privacy", "aggregation_cardinality"),
    ("hidden_among_worst", "aggregation_cardinality"),
    ("strong_privacy", "accuracy"),
    ("aggregation_cardinality", "accuracy"),
)


def cost_charts(
    table: pd.DataFrame, names: Sequence[str], hue: str | None
) -> dict[str, Chart]:
    """Return charts of points, by name: those of the pairs that the table has.

    Args:
        table: A row a point.
        names: Columns that say which point a row is.
        hue: Column that tells series apart, or None.
    """
    return {
        f"{y}_{x}": pair_chart(table, x, y, hue, words_of(table, names, x, y))
        for x, y in _pairs(table, names)
    }


def _pairs(table: pd.DataFrame, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of quantities to draw: by default the first two that exist."""

    def has(*both: str) -> bool:
        if not set(both) <= set(table):
            return False
        return bool(
            np.isfinite(table[list(both)].to_numpy(np.float64)).all(axis=1).any()
        )

    pairs = [(x, y) for x, y in _PAIRS if has(x, y)]
    if pairs or not len(table):
        return pairs
    numbers = numeric(table)
    along = [n for n in names if n in numbers]
    measured = [n for n in numeric(table, *names, "seconds") if has(n)]
    free = [*along[:1], *measured]
    return [(free[0], free[1])] if len(free) > 1 and has(free[0], free[1]) else []


def numeric(table: pd.DataFrame, *but: str) -> list[str]:
    """Return the columns of numbers, in their order.

    Args:
        table: A row per point.
        *but: Columns that are left out.
    """
    return [str(n) for n in table if table[n].dtype.kind in "iuf" and n not in but]


def words_of(table: pd.DataFrame, names: Sequence[str], x: str, y: str) -> list[str]:
    """Return words on each point: its settings and its measures."""
    settings = table[list(names)].itertuples(index=False, name=None)
    pairs = (as_shown(name, table[name].to_numpy(np.float64)) for name in (x, y))
    return [
        ", ".join(
            f"{heading(n)} {value}" for n, value in zip(names, values, strict=True)
        )
        + f": {heading(x)} {number(a)}, {heading(y)} {number(b)}"
        for values, a, b in zip(settings, *pairs, strict=True)
    ]


def sweep_chart(
    results: xr.Dataset, table: pd.DataFrame, name: str, x: str, hue: str | None
) -> Chart:
    """Return the chart of one quantity of a sweep; the caption names pooled axes."""
    if x in columns_of(results, "seed"):  # no curve runs over them
        # text, so that seeds are places on the axis and not numbers
        table = table.assign(**{x: table[x].astype(str)})
    values = table[x].to_numpy(float) if x in numeric(table) else np.zeros(1)
    # values that span this much get a log axis
    is_wide = values.min() > 0 and values.max() >= _WIDE * values.min()
    about = quantity(name)
    title = about.title or heading(name).capitalize()
    note = pooled_words(results, table, name, x, hue)
    caption = f"{about.words} {note[:1].upper()}{note[1:]}{'.' * bool(note)}".strip()
    chart = points_chart(table, name, x, hue, log="x" * bool(is_wide))
    return dataclasses.replace(chart, title=title, caption=caption)


def pooled_words(
    results: xr.Dataset, table: pd.DataFrame, variable: str, x: str, hue: str | None
) -> str:
    """Say what the marks and curves of a figure are means of; "" if of nothing."""
    words = []
    trials = results.sizes.get("trial", 1)
    if trials > 1 and variable in results and "trial" in results[variable].dims:
        words.append(f"points: {quantity(variable).statistic} of {trials} trials")
    rows = table[table[variable].notna()]
    drawn = [x] if hue is None else [x, hue]
    over = [
        f"{name.replace('_', ' ')} ({rows[name].nunique()})"
        for name in point_columns(results)
        if differs(rows, name, drawn)
    ]
    if over:
        words.append(f"mean and range over {', '.join(over)}")
    return "; ".join(words)


def differs(table: pd.DataFrame, name: str, others: list[str]) -> bool:
    """Return whether a column has several values where others have one each."""
    return name not in others and int(table.groupby(others)[name].nunique().max()) > 1


def is_sweep(results: xr.Dataset) -> bool:
    """Return whether a data set holds the points of a sweep."""
    return "done" in results or "axes" in results.attrs


def axes_of(results: xr.Dataset) -> tuple[str, ...]:
    """Return the names of a sweep's axes, the outermost first."""
    named = [str(axis["name"]) for axis in attributes(results).get("axes", ())]
    axes = [name for name in named if name in results.dims]
    return tuple(axes or (str(dim) for dim in results["done"].dims))


def point_columns(results: xr.Dataset) -> tuple[str, ...]:
    """Return the columns of `points` that identify the point of a row."""
    if not is_sweep(results):
        return ("scheme",)
    axes = axes_of(results)
    inner = [
        str(name)
        for name, coord in results.coords.items()
        if len(coord.dims) == 1 and coord.dims[0] in axes and name not in axes
    ]
    return (*axes, *inner, *(["label"] if "label" in results.data_vars else []))


def columns_of(results: xr.Dataset, *settings: str) -> tuple[str, ...]:
    """Return the columns of `point_columns` that hold settings, whatever their axis is.

    Args:
        results: Of a sweep or a study.
        settings: Names of them without their groups, such as `"seed"` or `"scheme"`.
    """
    fields = {
        name: results[name].attrs.get("field", name) for name in point_columns(results)
    }
    return tuple(
        name for name, field in fields.items() if field.rsplit(".", 1)[-1] in settings
    )


def points(results: xr.Dataset) -> pd.DataFrame:
    """Return a study as a table, a row a scheme or a point that is done.

    Over trials each quantity is a mean, but strong T and what the worst client, or
    update, is hidden among are the smallest, and the first round that exposes somebody
    the earliest; nan where there is none. Trajectories give their last entry.
    """
    import pandas as pd

    if not is_sweep(results):
        rows = [dataclasses.asdict(row) for row in _summary.summarise(results)]
        frame = pd.DataFrame(rows).drop(columns="failures")
        optional = [name for name in frame if frame[name].isna().all()]
        return frame.drop(
            columns=[name for name in optional if name != "strong_privacy"]
        )
    axes = axes_of(results)
    dims = (*axes, *_rows(results))
    grid = np.indices([results.sizes[dim] for dim in dims]).reshape(len(dims), -1)
    columns: dict[str, Any] = {}
    for name in point_columns(results):
        values = results[name].transpose(
            *[dim for dim in dims if dim in results[name].dims], ...
        )
        places = tuple(grid[dims.index(str(dim))] for dim in values.dims if dim in dims)
        columns[name] = np.asarray(values)[places] if places else np.asarray(values)
        if columns[name].ndim > 1:  # the only row of each point
            columns[name] = columns[name][:, 0]
    for name in sorted(map(str, results.data_vars), key=_rank):
        # quantities of a point alone are repeated for each of its rows
        along = dims if set(dims) <= set(results[name].dims) else axes
        reduced = _reduced(name, results[name], along)
        if reduced is not None:
            columns[name] = reduced[tuple(grid[: len(along)])]
    is_done = _done(results, axes)[tuple(grid[: len(axes)])]
    if "label" in columns:
        is_done = is_done & (
            columns["label"] != ""
        )  # a point with fewer rows than others
    return pd.DataFrame(columns)[is_done].reset_index(drop=True)


def weak_curves(results: xr.Dataset) -> xr.Dataset:
    """Return weak T after each round of each completed point of a sweep.

    Points lie along `scheme`, labelled by their values on the axes that vary.

    Raises:
        ConfigurationError: If the sweep does not keep it or has too many points.
    """
    rule = 'must keep weak T: keep = ["weak_privacy"] in the sweep'
    require("weak_lower_by_round" in results, "results", rule)
    axes = axes_of(results)
    names = [name for name in VARIABLES_OF_WEAK if f"{name}_by_round" in results]
    stored = {f"{name}_by_round": name for name in names}
    paths = results[list(stored)].rename(stored)
    is_done = _done(results, axes).ravel()
    rule = f"must have 1 to {MOST_CURVES} completed points to draw"
    require(0 < is_done.sum() <= MOST_CURVES, "results", rule, int(is_done.sum()))
    varying = [axis for axis in axes if results.sizes[axis] > 1]
    places = itertools.product(*(range(results.sizes[axis]) for axis in axes))
    labels, curves = [], []
    for place in itertools.compress(places, is_done):
        at = dict(zip(axes, place, strict=True))
        values = {axis: results[axis].values[at[axis]] for axis in varying or axes}
        labels.append(", ".join(map(_axis_words, values, values.values())))
        curves.append(paths.isel(at, drop=True))
    import xarray as xr

    joined = xr.concat(curves, "scheme").assign_coords(scheme=labels)
    return joined.assign_coords(round=np.arange(joined.sizes["round"]))


def _axis_words(axis: str, value: Any) -> str:
    """Return a value on an axis as a part of a label."""
    if axis in ("scheme", "schemes"):
        return str(value)
    return f"{quantity(axis).symbol or axis.replace('_', ' ')} {label_of(value)}"


def _rows(results: xr.Dataset) -> tuple[str, ...]:
    """Return the dimension of the targets of a point, if it attacks several."""
    several = "label" in results and results.sizes.get("row", 1) > 1
    return ("row",) if several else ()


def _done(results: xr.Dataset, axes: tuple[str, ...]) -> np.ndarray:
    """Return a grid of booleans: the points that are complete."""
    if "done" not in results:
        return np.ones([results.sizes[axis] for axis in axes], bool)
    return np.asarray(results["done"].transpose(*axes)).astype(bool)


_TELLING = ("_rate", "_error", "auc", "accuracy", "recovered", "psnr", "ssim")


_OUTCOME = "no_sum_rate"  # other rates of rounds are of its causes


def _rank(name: str) -> tuple[bool, bool, bool, str]:
    """Return the place of a quantity: the outcome first, bounds last."""
    is_bound = name.endswith(("_lower", "_upper", "_count"))
    return name != _OUTCOME, not name.endswith(_TELLING), is_bound, name


def _reduced(
    name: str, variable: xr.DataArray, axes: tuple[str, ...]
) -> np.ndarray | None:
    """Return a number for each point; None for a variable that is not of points."""
    is_number = np.issubdtype(variable.dtype, np.number) or variable.dtype == bool
    is_trajectory = name.endswith(("_by_round", "_by_evaluation"))
    if (
        name == "done"
        or is_trajectory
        or not is_number
        or "claim" in variable.dims  # of a paper's item: each is of another thing
        or not set(axes) <= set(variable.dims)
    ):
        return None
    for dim in ("round", "evaluation"):
        if dim in variable.dims:
            variable = variable.isel({dim: -1})
    inner = [dim for dim in variable.dims if dim not in axes]
    values = variable.transpose(*axes, ...).astype(np.float64)
    # those are minima over trials; negative values stand for none
    if quantity(name).statistic != "mean":
        return np.asarray(values.where(values >= 0).min(inner))
    return np.asarray(values.mean(inner))


def sweep_sentences(results: xr.Dataset) -> tuple[str, ...]:
    """Say how far a sweep is, how many points expose clients, and which T to take.

    Only settings that can be chosen are advised: there is a sentence for each value of
    the conditions.
    """
    table, names = points(results), point_columns(results)
    done = _done(results, axes_of(results))
    count, total = int(done.sum()), done.size
    said = [
        f"{count} of {total} points are done."
        if count < total
        else f"All {total} points are done."
    ]
    said += [
        f"{loss[:1].upper()}{loss[1:]}."
        for loss in attributes(results).get("damaged", ())
    ]
    if "exposed_clients" not in table or not len(table):
        return tuple(said)
    safe = table[table["exposed_clients"] == 0]
    said.append(
        f"In {len(safe)} of them the server can solve for no client's own update."
    )
    if "guaranteed_privacy" not in table:
        return tuple(said)
    early = safe[safe["guaranteed_privacy"] <= 1]
    if len(early):
        missing = early["largest_rank"] - early["rank"]
        span = f"{missing.min():.4g}" + (
            f" to {missing.max():.4g}" if missing.max() > missing.min() else ""
        )
        said.append(
            f"In {len(early)} of these no client is exposed yet, but nothing makes "
            "weak T "
            f"last: rounds left, N - rank: {span}."
        )
    return (*said, *_advice(results, table, names))


_MOST_ADVICE = 12  # sentences, one for each value of what is given; the table has all
_NAMES = {
    field.name
    for table in (PopulationConfig, DataConfig)
    for field in dataclasses.fields(table)
}
_GIVEN = (_NAMES | {"rounds", "trials", "step_dropout_rate"}) - {"cohort_size"}
"""Conditions, which are not chosen for privacy: clients, their losses, their data."""


def _advice(
    results: xr.Dataset, table: pd.DataFrame, names: Sequence[str]
) -> list[str]:
    """Say, for each value of the conditions, the largest T that keeps 90 % of K.

    Points that differ in their seeds alone are one setting: means over the seeds, and
    the smallest T.
    """
    seeds, conditions = columns_of(results, "seed"), columns_of(results, *_GIVEN)
    chosen = [name for name in names if name not in (*seeds, *conditions)]
    pooled = _pooled(table, [*conditions, *chosen])
    cohort = columns_of(results, "cohort_size")
    config = attributes(results).get("config", {})
    base = config.get("base", config).get("population", {}).get("cohort_size")
    if not (cohort or base):
        return []
    pooled = pooled.assign(cohort=pooled[cohort[0]] if cohort else base)
    is_safe = (pooled["exposed_clients"] == 0) & pooled["strong_privacy"].notna()
    is_safe &= (pooled["guaranteed_privacy"] > 1) & (
        pooled["aggregation_cardinality"] > 0
    )
    if not is_safe.any():
        return []
    said = []
    for values, group in pooled.groupby(
        list(conditions) or (lambda _: 0), dropna=False, sort=False
    ):
        named = zip(conditions, values if conditions else (), strict=True)
        where = ", ".join(f"{name} {_word(value)}" for name, value in named)
        said.append(
            _sentence(
                group[is_safe[group.index]], chosen, f"At {where}, " if where else ""
            )
        )
    more = len(said) - _MOST_ADVICE
    return [
        *said[:_MOST_ADVICE],
        *([f"The table has {more} more such values."] * (more > 0)),
    ]


def _sentence(settings: pd.DataFrame, chosen: list[str], where: str) -> str:
    """Return the advice among settings whose T lasts, under the same conditions."""
    if not len(settings):
        return f"{where}no setting both sums updates and makes weak T last."
    # C is a mean in float32: a share of just 90 % may come out lower
    settings = settings.assign(
        kept=settings["aggregation_cardinality"] / settings["cohort"]
    )
    enough = settings[settings["kept"] >= 0.9 - 1e-6]
    order = [
        "guaranteed_privacy",
        *(["accuracy"] if "accuracy" in settings else []),
        "kept",
    ]
    if len(enough):
        best = enough.sort_values(order, ascending=False).iloc[0]
        largest = f"{best['guaranteed_privacy']:.0f}"
        text = f"{where}the largest T that keeps 90 % of K is {largest}: "
    else:
        best = settings.sort_values("kept", ascending=False).iloc[0]
        text = f"{where}no T that lasts keeps 90 % of K; the most is kept by "
    setting = (
        ", ".join(f"{name} {_word(best[name])}" for name in chosen)
        or "the only setting"
    )
    text = f"{text}{setting} ({_use(best)})."
    return text[0].upper() + text[1:]


def _pooled(table: pd.DataFrame, settings: list[str]) -> pd.DataFrame:
    """Return a row for each setting: means over its seeds, and the smallest T."""
    points = table.assign(points=1)
    how: dict[Any, Any] = {
        "points": "sum",
        "strong_privacy": "min",
        "guaranteed_privacy": "min",
        "exposed_clients": "max",
        "aggregation_cardinality": _mean,
    }
    if "accuracy" in points and points["accuracy"].notna().any():
        how["accuracy"] = _mean
    groups = points.groupby(settings or (lambda _: 0), sort=False, dropna=False)
    return groups.agg(how).reset_index()


def _mean(values: pd.Series[Any]) -> float:
    # a seed without a value is none of a mean's
    return float(values.mean(skipna=False))


def _use(best: pd.Series[Any]) -> str:
    cardinality = f"{best['aggregation_cardinality']:.3g} of K = {best['cohort']:.0f}"
    what = f"strong T = {best['strong_privacy']:.0f}, C = {cardinality}"
    if "accuracy" in best and best["accuracy"] == best["accuracy"]:
        what += f", {100 * best['accuracy']:.1f} % test accuracy"
    return what + (f", over {best['points']:.0f} seeds" if best["points"] > 1 else "")


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
