"""The page of a sweep, and the figures of any study's data set drawn in memory."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mrsa_jax import plotting
from mrsa_jax._errors import ConfigurationError, nearest
from mrsa_jax._html import shown
from mrsa_jax.study import _points, _report
from mrsa_jax.study._explorer import explorer
from mrsa_jax.study._page import (
    Section,
    data_table,
    figures_section,
    paragraphs,
    png_of,
    settings_section,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

_CURVES = {
    "strong_privacy": "Strong T: the fewest clients who only move together.",
    "hidden_among_worst": "Hidden among: as in a sum of how many clients the worst client is.",
    "exposed_clients": "Clients whose own update is a combination of the sums the server has.",
    "aggregation_cardinality": "Aggregation cardinality C: mean number of clients in a sum.",
    "fairness_gap": "Fairness gap F.",
    "accuracy": "Accuracy of the global model on the test set.",
    "epsilon_worst": "Epsilon of the worst client's whole history, against the server.",
}
_UNUSED = ("out", "resources", "checkpoint_every")  # settings of a point that a sweep has not
_MOST_HUES = 12  # values that colours and marks tell apart, of what is no scheme
_MOST_OTHERS = 4  # figures of quantities that no name is known for


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
        own = [name for name in (*kinds, *free) if _differs(table, name, [x])]
        hue = next((n for n in own if n in kinds or counts[n] <= _MOST_HUES), None)
    return x, hue


def _differs(table: pd.DataFrame, name: str, others: list[str]) -> bool:
    """Return whether a column has several values where others have one each."""
    return name not in others and int(table.groupby(others)[name].nunique().max()) > 1


def _pooled(
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
        if _differs(shown, name, kept)
    ]
    if over:
        words.append(f"mean and range over {', '.join(over)}")
    return "; ".join(words)


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
    x, hue = default_axes(results, table, x, hue)
    # no curve runs over seeds: they stand side by side
    seeds = dict.fromkeys(_points.columns_of(results, "seed"), str)
    ax = plotting.plot_points(table.astype(seeds), variable, x=x, hue=hue, ax=ax)
    ax.set_label(_pooled(results, table, variable, x, hue))
    return ax


def accuracy_epsilon(results: xr.Dataset, table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Plot accuracy against epsilon: a curve for each scheme or T, else for what differs first."""
    noises = _points.columns_of(results, "aggregation.noise_multiplier")
    pooled = {*noises, *_points.columns_of(results, "seed")}
    free = [name for name in _points.point_columns(results) if table[name].nunique() > 1]
    free = [name for name in free if name not in pooled]
    schemes = [name for name in _points.columns_of(results, "scheme") if name in free]
    hue = next(iter([*schemes, *free]), None)
    names = dict.fromkeys(noises[:1], "noise_multiplier")
    if hue in schemes:
        names, hue = names | {hue: "scheme"}, "scheme"
    return plotting.plot_accuracy_epsilon(table.rename(columns=names), hue=hue, ax=ax)


def drawn(results: xr.Dataset, table: pd.DataFrame) -> dict[str, tuple[str, bytes]]:
    """Return the figures of a sweep, each with what it shows: name -> caption, PNG."""
    pictures: dict[str, tuple[str, bytes]] = {}

    if not len(table):
        return pictures
    has = {str(name): None for name in table if table[name].notna().any()}
    if {"strong_privacy", "aggregation_cardinality"} <= set(has):
        caption = "What privacy costs: strong T against cardinality C."
        schemes = dict.fromkeys(_points.columns_of(results, "scheme"), "scheme")
        named = table.rename(columns=schemes)
        plot: Callable[..., Any] = functools.partial(plotting.plot_privacy_cost, named)
        pictures["tradeoff"] = (caption, png_of(plot))
    if {"accuracy", "epsilon_worst", "epsilon_mean"} <= set(has):
        caption = (
            "Accuracy against the epsilon of clients' whole histories, against the server: the "
            "worst client's (full marks) and the clients' mean (hollow)."
        )
        plot = functools.partial(accuracy_epsilon, results, table)
        pictures["accuracy_epsilon"] = (caption, png_of(plot))
    known = [name for name in _CURVES if name in has]
    names = {*_points.point_columns(results), *_CURVES, "seconds"}
    others = [name for name in has if name not in names]
    others = [name for name in others if table[name].nunique() > 1] or others
    for name in [*known, *(others[:_MOST_OTHERS] if not known else [])]:
        caption = _CURVES.get(name, str(name).replace("_", " ").capitalize() + ".")
        pooled = _pooled(results, table, name, *default_axes(results, table))
        caption += f" {pooled[0].upper()}{pooled[1:]}." if pooled else ""
        plot = functools.partial(plot_any, results, table, name)
        pictures[name] = (caption, png_of(plot))
    return pictures


def study_pictures(results: xr.Dataset) -> dict[str, bytes]:
    """Return the figures of a study that is in no folder, as PNG by name."""
    with tempfile.TemporaryDirectory() as folder:
        written = plotting.save_study_figures(results, pathlib.Path(folder))
        return {name: path.read_bytes() for name, path in written.items()}


def sweep_page(manifest: Mapping[str, Any], results: xr.Dataset) -> str:
    """Return the page of a sweep: words, its points to sort and look at, figures, settings.

    Args:
        manifest: Its provenance.
        results: Its data set.
    """
    table = _points.points(results)
    names = _points.point_columns(results)
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
    sections = [
        Section("Findings", paragraphs(_points.sweep_sentences(results))),
        Section("Points", explorer(table, names).html if len(table) else ""),
        figures_section(drawn(results, table)),
    ]
    sizes = " x ".join(f"{results.sizes[name]} {name}" for name in _points.axes_of(results))
    lead = [f"{swept or 'study'}: {sizes}, seed {manifest.get('seed')}"]
    return _report.whole_page(manifest, lead, sections, settings=settings)


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
