"""The page of a sweep, and the plot of any of its quantities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mrsa_jax._errors import ConfigurationError, nearest, require
from mrsa_jax._html import shown
from mrsa_jax.plotting._axes import draw
from mrsa_jax.study import _chart_look, _points, _report
from mrsa_jax.study._chart_look import Series, keys, legend
from mrsa_jax.study._cost import cost_charts
from mrsa_jax.study._explorer import linked
from mrsa_jax.study._page import (
    Section,
    charts_section,
    data_table,
    opening,
    paragraphs,
    settings_section,
)
from mrsa_jax.study._svg import drawn
from mrsa_jax.study._sweep_figures import (
    differs,
    over_seeds,
    sweep_chart,
    sweep_charts,
    sweep_series,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

_UNUSED = ("out", "resources", "checkpoint_every")  # settings of a point that a sweep has not
_MOST_HUES = 12  # values that colours and marks tell apart, of what is no scheme


def default_axes(
    results: xr.Dataset,
    table: pd.DataFrame,
    x: str | None = None,
    hue: str | None = None,
) -> tuple[str, str | None]:
    """Return along which of a sweep's axes curves run, and which tells them apart.

    Whatever is attacked, and schemes, are told apart wherever they differ; of the others the first
    numbers run along. Seeds are pooled, unless nothing else differs.

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
    free = [name for name in varied if name not in (*seeds, x, hue)]
    kinds = [name for name in ("label", *_points.columns_of(results, "scheme")) if name in free]
    if x is None:
        others = [name for name in free if name not in kinds] or kinds or varied or list(names)
        numbers = [name for name in others if table[name].dtype.kind in "iuf"]
        x = (numbers or others)[0]
    if hue is None:
        own = [name for name in (*kinds, *free) if differs(table, name, [x])]
        hue = next((n for n in own if n in kinds or counts[n] <= _MOST_HUES), None)
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

    What the points of a mark differ in beside, and is averaged, is told by `ax.get_label()`.
    """
    for argument, name in (("x", x), ("hue", hue)):
        if name is not None and name not in table:
            hint = nearest(name, [str(column) for column in table])
            raise ConfigurationError(f"`{argument}` must be a column; got {name!r}; {hint}")
    require(bool(table[variable].notna().any()), "variable", "must have values", variable)
    return draw(sweep_chart(results, table, variable, *default_axes(results, table, x, hue)), ax=ax)


def sweep_page(manifest: Mapping[str, Any], results: xr.Dataset) -> str:
    """Return the page of a sweep: words, its points to sort and look at, figures, settings.

    Args:
        manifest: Its provenance.
        results: Its data set.
    """
    table = _points.points(results)
    config = manifest.get("config", {})
    axes = config.get("axes", ())
    rows = [
        (axis["name"], ", ".join(axis["fields"]), shown([_value(v) for v in axis["values"]], 600))
        for axis in axes
        if "values" in axis
    ]
    lines = data_table(("Axis", "Settings", "Values"), rows, "What changes") if rows else ""
    swept = str(manifest.get("swept", ""))
    own = swept.split()[-1].replace("-", "") if swept else ""
    defaults = _report.defaults_of(own)
    changing = {field for axis in axes for field in axis["fields"]} | {*_UNUSED}
    changing |= {"schemes"} if "scheme" in changing else set()
    base = _without(config.get("base", config), changing)
    if defaults is not None:
        defaults = _without(defaults, changing)
        base = {name: value for name, value in base.items() if name in defaults}
    settings = settings_section(base, defaults)
    settings = Section("Settings", lines + settings.content)
    parts, series = _found(results, table) if len(table) else ([], [])
    findings = Section("Findings", paragraphs(_points.sweep_sentences(results)))
    sections = [*parts[:1], findings, *parts[1:]]
    sizes = " x ".join(_counted(results.sizes[name], name) for name in _points.axes_of(results))
    lead = [f"{swept or 'study'}: {sizes}, seed {manifest.get('seed')}"]
    return _report.whole_page(manifest, lead, sections, settings=settings, series=series)


def _found(results: xr.Dataset, table: pd.DataFrame) -> tuple[list[Section], list[Series]]:
    """Return what was measured: a large chart and a line a curve, the points, and charts."""
    names = _points.point_columns(results)
    x, hue = default_axes(results, table)
    series = sweep_series(
        table, names, hue, are_schemes=hue in _points.columns_of(results, "scheme")
    )
    places = _chart_look.places(series)
    seeds = _points.columns_of(results, "seed")
    settings = [name for name in names if name not in seeds] or list(names)
    pooled, spans = over_seeds(table, names, [name for name in seeds if name not in (x, hue)])
    has_cost = {"strong_privacy", "accuracy"} & set(pooled)
    costs = cost_charts(pooled, settings, hue) if has_cost else {}
    charts = sweep_charts(results, table, x, hue)
    learnt = [name for name in charts if name.startswith("accuracy")]
    source = charts if learnt or not costs else costs
    first = {name: source.pop(name) for name in (learnt or list(source))[:1]}
    points = linked(pooled, settings, "".join(drawn(c, places) for c in costs.values()), spans)
    opened = opening(list(first.values()), series) + legend(series, "Curves")
    sections = [
        Section("At a glance", opened),
        Section("Points", keys(series) * bool(costs) + points),
        charts_section(charts, series),
    ]
    return sections, series


def _counted(size: int, name: str) -> str:
    """Return how many values an axis has, in words."""
    plural = "" if size == 1 or name.endswith("s") else "s"
    return f"{size} {name.replace('_', ' ')}{plural}"


def _without(settings: Mapping[str, Any], fields: set[str], where: str = "") -> dict[str, Any]:
    """Return nested settings without some, named with dots: what changes has no one value."""
    return {
        name: _without(value, fields, f"{where}{name}.") if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if f"{where}{name}" not in fields
    }


def _value(row: Any) -> Any:
    """Return a place on an axis in short: the only value, or the zipped ones."""
    values = row if isinstance(row, list | tuple) else [row]
    if len(values) == 1:
        one = values[0]
        return f"[{shown(one)}]" if isinstance(one, list | tuple) else one
    return f"({shown(list(values))})"
