"""The page of a sweep, its charts, and the plot of any of its quantities."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting.chart import Chart, draw
from mrsa_jax.plotting.points import (
    accuracy_epsilon_chart,
    as_shown,
    by_hue,
    check_columns,
    heading,
    quantity,
)
from mrsa_jax.study.kinds import swept_kind
from mrsa_jax.study.publishing import _page, _points, _report
from mrsa_jax.study.publishing._best import best_sentences
from mrsa_jax.study.publishing._explorer import linked
from mrsa_jax.study.publishing._page import Section
from mrsa_jax.study.publishing._points import cost_charts
from mrsa_jax.study.publishing._series import Series, keys, legend, places
from mrsa_jax.study.publishing._svg import drawn
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import counted, number, shown

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

_CURVES = (
    "accuracy",
    "loss",
    "strong_privacy",
    "hidden_among_worst",
    "update_hidden_worst",
    "lasting_hidden_worst",
    "exposed_clients",
    "aggregation_cardinality",
    "fairness_gap",
    "expected_fairness_gap",
    "epsilon_worst",
)
_MOST_OTHERS = 6  # charts of quantities that no name is known for
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
    has = [name for name in _points.numeric(table) if table[name].notna().any()]
    usual = [name for name in _CURVES if name in has]
    usual_names = {*_points.point_columns(results), *_CURVES, *_STATISTICS}
    others = [
        name for name in has if name not in usual_names and not name.endswith(_EDGES)
    ]
    # quantities that change first; if none does, any
    others = [name for name in others if table[name].nunique() > 1] or others
    chosen = usual or others[:_MOST_OTHERS]
    charts = {
        name: _points.sweep_chart(results, table, name, x, hue) for name in chosen
    }
    if {"accuracy", "epsilon_worst", "epsilon_mean"} <= set(has):
        charts = {"accuracy_epsilon": accuracy_epsilon_chart(table, hue)} | charts
    return {name: chart for name, chart in charts.items() if chart.lines}


_EDGES = ("_lower", "_upper", "_count")


def over_seeds(
    table: pd.DataFrame, names: Sequence[str], seeds: Sequence[str]
) -> tuple[pd.DataFrame, Mapping[tuple[int, str], tuple[float, float]]]:
    """Return the points that differ in their seeds alone as one row each.

    Args:
        table: All points.
        names: Columns that say which point a row is.
        seeds: Those of them that are seeds.

    Returns:
        A table with the mean of every quantity (the least of strong T and of what the
        worst client is hidden among), and how many seeds; and by row and column between
        which values it lies, where these differ.
    """
    settings = [name for name in names if name not in seeds]
    if not seeds or not settings or not len(table):
        return table, {}
    # dropna: settings may be None, which pandas takes for missing
    groups = table.groupby(settings, sort=False, dropna=False)
    measured = _points.numeric(table, *names)
    how: dict[Any, Any] = {
        name: "mean" if quantity(name).statistic == "mean" else "min"
        for name in measured
    }
    pooled = groups.agg(how).reset_index()
    pooled.insert(len(settings), "seeds", groups.size().to_numpy())
    low, high = groups[measured].min().to_numpy(), groups[measured].max().to_numpy()
    # where seeds agree there is no range to show
    spans = {
        (int(i), measured[k]): (float(low[i, k]), float(high[i, k]))
        for i, k in zip(*np.nonzero(high > low), strict=True)
    }
    return pooled, spans


def _verdict(rows: pd.DataFrame) -> tuple[str, str] | None:
    if "exposed_clients" not in rows:
        return None
    exposed = int((rows["exposed_clients"] > 0).sum())
    if exposed:
        some = f" in {exposed} of {len(rows)}" * (exposed < len(rows))
        return "bad", f"exposed{some}"
    lasts = "guaranteed_privacy" in rows and bool(
        (rows["guaranteed_privacy"] > 1).all()
    )
    return ("good", "T lasts") if lasts else ("fair", "not yet exposed")


def _words(rows: pd.DataFrame, names: Sequence[str]) -> str:
    usual = (
        "accuracy",
        "strong_privacy",
        "hidden_among_worst",
        "aggregation_cardinality",
        "epsilon_worst",
    )
    columns = [name for name in usual if name in rows and rows[name].notna().any()]
    if not columns:
        measured = _points.numeric(rows, *names, "seconds")
        columns = [
            name
            for name in measured
            if not name.endswith(_EDGES) and rows[name].notna().any()
        ]
        varied = [name for name in columns if rows[name].nunique() > 1]
        columns = (varied or columns)[:3]
    parts = []
    for name in columns:
        values = as_shown(name, rows[name].dropna().to_numpy(float))
        low, high = number(values.min(), 3), number(values.max(), 3)
        parts.append(f"{heading(name)} {low if low == high else f'{low} to {high}'}")
    return "; ".join([*parts, counted(len(rows), "point")])


# settings of a point that a sweep has not
_UNUSED = ("out", "resources", "checkpoint_every")
_MOST_HUES = 12  # values that colours and marks tell apart, of what is no scheme


def default_axes(
    results: xr.Dataset,
    table: pd.DataFrame,
    x: str | None = None,
    hue: str | None = None,
) -> tuple[str, str | None]:
    """Return along which of a sweep's axes curves run, and which tells them apart.

    Whatever is attacked, and schemes, are distinguished wherever they differ; of the
    others the first numbers run along. Seeds are pooled, unless nothing else differs.

    Args:
        results: A sweep.
        table: Its points.
        x: The column that runs along, where that is given.
        hue: The one that tells curves apart, where that is given.
    """
    names = _points.point_columns(results)
    seeds = _points.columns_of(results, "seed")
    counts = {name: table[name].nunique() for name in names}
    varied = [name for name in names if counts[name] > 1]
    # seeds are pooled, and a column cannot run along and tell apart
    free = [name for name in varied if name not in (*seeds, x, hue)]
    kinds = [
        name
        for name in ("label", *_points.columns_of(results, "scheme"))
        if name in free
    ]
    if x is None:
        others = (
            [name for name in free if name not in kinds]
            or kinds
            or varied
            or list(names)
        )
        numbers = _points.numeric(table)
        x = next((name for name in others if name in numbers), others[0])
    if hue is None:
        candidates = [
            name for name in (*kinds, *free) if _points.differs(table, name, [x])
        ]
        hue = next(
            (n for n in candidates if n in kinds or counts[n] <= _MOST_HUES), None
        )
    return x, hue


def plot_any(
    results: xr.Dataset,
    table: pd.DataFrame,
    variable: str,
    x: str | None = None,
    hue: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a quantity of a sweep over one of its axes; what is not given is chosen.

    What else the points of a mark differ in, and is averaged, is listed by
    `ax.get_label()`.
    """
    check_columns(table, variable=variable, x=x, hue=hue)
    require(
        bool(table[variable].notna().any()), "variable", "must have values", variable
    )
    axes = default_axes(results, table, x, hue)
    return draw(_points.sweep_chart(results, table, variable, *axes), ax=ax)


def sweep_page(
    manifest: Mapping[str, Any], results: xr.Dataset, folder: pathlib.Path
) -> str:
    """Return the page of a sweep: words, points to sort, figures, settings.

    Args:
        manifest: Its provenance.
        results: Its data set.
        folder: Where a command that draws its points writes their figures.
    """
    table = _points.points(results)
    config = manifest.get("config", {})
    axes = config.get("axes", ())
    swept = str(manifest.get("swept", ""))
    parts, series = _measured(results, table) if len(table) else ([], [])
    style = ""
    if "claim_text" in results:
        parts.append(Section("Claims", _claims(results)))
    if "chart" in results:
        figures, style = swept_kind(swept).figures(results, folder)
        parts.insert(1, Section("Figures", figures))
    said = _points.sweep_sentences(results) + best_sentences(results)
    findings = Section("Findings", _page.paragraphs(said))
    sizes = " x ".join(
        _counted(results.sizes[name], name) for name in _points.axes_of(results)
    )
    return _report.whole_page(
        manifest,
        [f"{swept or 'study'}: {sizes}, seed {manifest.get('seed')}"],
        [*parts[:1], findings, *parts[1:]],
        settings=_settings(swept, config.get("base", config), axes),
        series=series,
        style=style,
    )


def _claims(results: xr.Dataset) -> str:
    """Return a table of the claims of a paper's item at each of its points."""
    axes = list(_points.axes_of(results))
    names = ("claim_text", "ours", "verdict")
    values = [results[name].transpose(*axes, "claim").to_numpy() for name in names]
    rows = [
        (*_places(results, axes, place[:-1]), *(str(each[place]) for each in values))
        for place in np.ndindex(values[0].shape)
        if values[0][place]
    ]
    headings = [*(axis.replace("_", " ") for axis in axes), "Claim", "Ours", "Verdict"]
    caption = "What the item found at each point"
    return _page.data_table(headings, rows, caption, where="in the results")


def _places(
    results: xr.Dataset, axes: Sequence[str], place: Sequence[int]
) -> Iterator[str]:
    """Go through the values of the axes at a cell."""
    for axis, index in zip(axes, place, strict=True):
        yield str(results[axis].to_numpy()[index] if axis in results else index)


def _settings(
    swept: str, base: Mapping[str, Any], axes: Sequence[Mapping[str, Any]]
) -> Section:
    """Return the axes of a sweep, and the settings that stay the same."""
    rows = [
        (
            axis["name"],
            ", ".join(axis["fields"]),
            shown([_value(row) for row in axis["values"]], 600),
        )
        for axis in axes
        if "values" in axis
    ]
    headings = ("Axis", "Settings", "Values")
    lines = _page.data_table(headings, rows, "What changes") if rows else ""
    changing = {field for axis in axes for field in axis["fields"]} | {*_UNUSED}
    if "scheme" in changing:
        changing.add("schemes")
    defaults = _report.defaults_of(swept.split()[-1].replace("-", "") if swept else "")
    base = _without(base, changing)
    if defaults is not None:
        defaults = _without(defaults, changing)
        base = {name: value for name, value in base.items() if name in defaults}
    section = _page.settings_section(base, defaults)
    return Section("Settings", lines + section.content)


def _measured(
    results: xr.Dataset, table: pd.DataFrame
) -> tuple[list[Section], list[Series]]:
    """Return a large chart with its legend, the points, and the other charts."""
    names = _points.point_columns(results)
    x, hue = default_axes(results, table)
    are_schemes = hue in _points.columns_of(results, "scheme")
    series = [
        Series(label, _verdict(rows), _words(rows, names), is_scheme=are_schemes)
        for label, rows in by_hue(table, hue)
    ]
    order = places(series)
    seeds = _points.columns_of(results, "seed")
    settings = [name for name in names if name not in seeds] or list(names)
    pooled, spans = over_seeds(
        table, names, [name for name in seeds if name not in (x, hue)]
    )
    has_cost = {"strong_privacy", "accuracy"} & set(pooled)
    costs = cost_charts(pooled, settings, hue) if has_cost else {}
    charts = sweep_charts(results, table, x, hue)
    # the page opens with what was learnt, else with what privacy costs
    learnt = [name for name in charts if name.startswith("accuracy")]
    source = charts if learnt or not costs else costs
    first = [source.pop(name) for name in (learnt or list(source))[:1]]
    figures = "".join(drawn(chart, order) for chart in costs.values())
    points = linked(pooled, settings, figures, spans)
    sections = [
        Section("At a glance", _page.opening(first, series) + legend(series, "Curves")),
        Section("Points", keys(series) * bool(costs) + points),
        _page.charts_section(charts, series),
    ]
    return sections, series


def _counted(size: int, name: str) -> str:
    """Return the number of values of an axis, in words."""
    plural = "" if size == 1 or name.endswith("s") else "s"
    return f"{size} {name.replace('_', ' ')}{plural}"


def _without(
    settings: Mapping[str, Any], fields: set[str], where: str = ""
) -> dict[str, Any]:
    """Return nested settings without some fields, which are named with dots."""
    return {
        name: _without(value, fields, f"{where}{name}.")
        if isinstance(value, Mapping)
        else value
        for name, value in settings.items()
        if f"{where}{name}" not in fields
    }


def _value(row: Any) -> Any:
    """Return a place on an axis in short: the only value, or the zipped ones."""
    values = row if isinstance(row, list | tuple) else [row]
    if len(values) == 1:
        value = values[0]
        return f"[{shown(value)}]" if isinstance(value, list | tuple) else value
    return f"({shown(list(values))})"
