"""The charts of a sweep: each quantity along one of its axes, a curve for each value of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._html import number
from mrsa_jax.plotting._chart import Chart
from mrsa_jax.plotting._points import (
    accuracy_epsilon_chart,
    by_hue,
    points_chart,
    shown_scale,
)
from mrsa_jax.study import _points
from mrsa_jax.study._chart_look import Series
from mrsa_jax.study._cost import heading

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

CURVES = {
    "accuracy": ("Test accuracy", "Accuracy of the global model on the test set."),
    "loss": ("Test loss", "Loss of the global model on the test set."),
    "strong_privacy": ("Strong T", "Strong T: the fewest clients who only move together."),
    "hidden_among_worst": (
        "Hidden among", "Hidden among: as in a sum of how many clients the worst client is."),
    "exposed_clients": (
        "Exposed clients",
        "Clients whose own update is a combination of the sums the server has."),
    "aggregation_cardinality": (
        "Aggregation cardinality C",
        "Aggregation cardinality C: mean number of clients in a sum."),
    "fairness_gap": (
        "Fairness gap F",
        "Fairness gap F: most minus least often summed client, over the rounds."),
    "epsilon_worst": (
        "Epsilon", "Epsilon of the worst client's whole history, against the server."),
}  # fmt: skip
"""What a sweep's page draws of what was measured: title, how to read it."""

_MOST_OTHERS = 6  # charts of quantities that no name is known for
_WIDE = 50.0  # an axis whose ends are this many times apart is logarithmic
_STATISTICS = ("seconds", "largest_rank", "guaranteed_privacy", "expected_cardinality")


def sweep_charts(
    results: xr.Dataset, table: pd.DataFrame, x: str, hue: str | None
) -> dict[str, Chart]:
    """Return the charts of a sweep by name: what was trained first.

    Args:
        results: Its data set.
        table: Its points.
        x: Column that runs along.
        hue: Column that tells curves apart, or None.
    """
    has = [str(name) for name in table if table[name].dtype.kind in "iuf"
           and table[name].notna().any()]  # fmt: skip
    known = [name for name in CURVES if name in has]
    given = {*_points.point_columns(results), *CURVES, *_STATISTICS}
    others = [name for name in has if name not in given and not name.endswith(_EDGES)]
    others = [name for name in others if table[name].nunique() > 1] or others
    chosen = known or others[:_MOST_OTHERS]
    found = {name: sweep_chart(results, table, name, x, hue) for name in chosen}
    if {"accuracy", "epsilon_worst", "epsilon_mean"} <= set(has):
        found = {"accuracy_epsilon": accuracy_epsilon_chart(table, hue)} | found
    return {name: chart for name, chart in found.items() if chart.lines}


_EDGES = ("_lower", "_upper", "_count")


def sweep_chart(
    results: xr.Dataset, table: pd.DataFrame, name: str, x: str, hue: str | None
) -> Chart:
    """Return the chart of one quantity of a sweep; its caption says what it is pooled over."""
    if x in _points.columns_of(results, "seed"):  # no curve runs over them
        table = table.assign(**{x: table[x].astype(str)})
    values = table[x].to_numpy(float) if table[x].dtype.kind in "iuf" else np.zeros(1)
    is_wide = values.min() > 0 and values.max() >= _WIDE * values.min()
    title, words = CURVES.get(name, (heading(name).capitalize(), ""))
    note = pooled_words(results, table, name, x, hue)
    caption = f"{words} {note[:1].upper()}{note[1:]}{'.' * bool(note)}".strip()
    chart = points_chart(table, name, x, hue, log="x" * bool(is_wide))
    return dataclasses.replace(chart, title=title, caption=caption)


def pooled_words(
    results: xr.Dataset, table: pd.DataFrame, variable: str, x: str, hue: str | None
) -> str:
    """Say in a figure what its marks and its curves are means of; "" where of nothing."""
    words = []
    trials = results.sizes.get("trial", 1)
    if trials > 1 and variable in results and "trial" in results[variable].dims:
        words.append(f"points: {_points.statistic(variable)} of {trials} trials")
    shown = table[table[variable].notna()]
    kept = [x] if hue is None else [x, hue]
    over = [
        f"{name.replace('_', ' ')} ({shown[name].nunique()})"
        for name in _points.point_columns(results)
        if differs(shown, name, kept)
    ]
    if over:
        words.append(f"mean and range over {', '.join(over)}")
    return "; ".join(words)


def differs(table: pd.DataFrame, name: str, others: list[str]) -> bool:
    """Return whether a column has several values where others have one each."""
    return name not in others and int(table.groupby(others)[name].nunique().max()) > 1


def over_seeds(
    table: pd.DataFrame, names: Sequence[str], seeds: Sequence[str]
) -> tuple[pd.DataFrame, Mapping[tuple[int, str], tuple[float, float]]]:
    """Return the points that differ in their seeds alone as one row each.

    Args:
        table: All points.
        names: Columns that say which point a row is.
        seeds: Those of them that are seeds.

    Returns:
        A table with the mean of every quantity (the least of strong T and of what the worst client
        is hidden among), and how many seeds; and by row and column between which values it lies,
        where these differ.
    """
    settings = [name for name in names if name not in seeds]
    if not seeds or not settings or not len(table):
        return table, {}
    groups = table.groupby(settings, sort=False, dropna=False)
    measured = [str(n) for n in table if n not in names and table[n].dtype.kind in "iuf"]
    how: dict[Any, Any] = {name: _how(name) for name in measured}
    found = groups.agg(how).reset_index()
    found.insert(len(settings), "seeds", groups.size().to_numpy())
    low, high = groups[measured].min().to_numpy(), groups[measured].max().to_numpy()
    spans = {
        (int(i), measured[k]): (float(low[i, k]), float(high[i, k]))
        for i, k in zip(*np.nonzero(high > low), strict=True)
    }
    return found, spans


def _how(name: str) -> str:
    return {"least": "min", "earliest": "min"}.get(_points.statistic(name), "mean")


def sweep_series(
    table: pd.DataFrame, names: Sequence[str], hue: str | None, *, are_schemes: bool
) -> list[Series]:
    """Return what a sweep's page says of each curve: a verdict over all its points."""
    return [
        Series(label, _verdict(rows), _words(rows, names), is_scheme=are_schemes)
        for label, rows in by_hue(table, hue)
    ]


def _verdict(rows: pd.DataFrame) -> tuple[str, str] | None:
    if "exposed_clients" not in rows:
        return None
    exposed = int((rows["exposed_clients"] > 0).sum())
    if exposed:
        return "bad", "exposed" if exposed == len(rows) else f"exposed in {exposed} of {len(rows)}"
    lasts = "guaranteed_privacy" in rows and bool((rows["guaranteed_privacy"] > 1).all())
    return ("good", "T lasts") if lasts else ("fair", "not yet exposed")


def _words(rows: pd.DataFrame, names: Sequence[str]) -> str:
    known = ("accuracy", "strong_privacy", "hidden_among_worst", "aggregation_cardinality",
             "epsilon_worst")  # fmt: skip
    columns = [name for name in known if name in rows and rows[name].notna().any()]
    if not columns:
        measured = [str(n) for n in rows if n not in names and rows[n].dtype.kind in "iuf"]
        columns = [name for name in measured if not name.endswith(_EDGES) and name != "seconds"]
        varied = [name for name in columns if rows[name].nunique() > 1]
        columns = (varied or columns)[:3]
    parts = []
    for name in columns:
        own = shown_scale(name) * rows[name].dropna().to_numpy(float)
        low, high = number(own.min(), 3), number(own.max(), 3)
        parts.append(f"{heading(name)} {low if low == high else f'{low} to {high}'}")
    count = f"{len(rows)} point" + "s" * (len(rows) > 1)
    return "; ".join([*parts, count])
