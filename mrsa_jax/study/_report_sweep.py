"""The page of a sweep, and the figures of any study's data set drawn in memory."""

from __future__ import annotations

import io
import pathlib
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mrsa_jax import plotting
from mrsa_jax._html import shown, tidy
from mrsa_jax.study import _points, _report
from mrsa_jax.study._explorer import explorer
from mrsa_jax.study._page import Section, data_table, figures_section, settings_section

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["default_axes", "drawn", "plot_any", "study_pictures", "sweep_page"]

_CURVES = {
    "strong_privacy": "Strong multi-round privacy T.",
    "exposed_clients": "Clients whose own update is a combination of the sums the server has.",
    "aggregation_cardinality": "Aggregation cardinality C: mean number of clients in a sum.",
    "fairness_gap": "Fairness gap F.",
    "accuracy": "Accuracy of the global model on the test set.",
}
_UNUSED = ("out", "resources", "checkpoint_every")  # settings of a point that a sweep has not
_MOST_OTHERS = 4  # figures of quantities that no name is known for


def default_axes(results: xr.Dataset, table: pd.DataFrame) -> tuple[str, str | None]:
    """Return along which of a sweep's axes curves run, and which tells them apart.

    Schemes tell curves apart; of the others the first that has several values runs along.
    """
    names = _points.point_columns(results)
    varied = [name for name in names if table[name].nunique() > 1] or list(names[:1])
    others = [name for name in varied if name != "scheme"]
    if not others:
        return varied[0], None
    if "scheme" in varied:
        return others[0], "scheme"
    hue = next((name for name in others[1:] if 1 < table[name].nunique() <= 12), None)
    return others[0], hue


def plot_any(
    results: xr.Dataset,
    table: pd.DataFrame,
    variable: str,
    x: str | None = None,
    hue: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a quantity of a sweep over one of its axes; what is not given is chosen."""
    first, second = default_axes(results, table)
    if x is None:
        x = first if first != hue else next(
            (n for n in _points.point_columns(results) if n != hue), first)  # fmt: skip
    if hue is None and second != x:
        hue = second
    return plotting.plot_points(table, variable, x=x, hue=hue, ax=ax)


def drawn(results: xr.Dataset, table: pd.DataFrame) -> dict[str, tuple[str, bytes]]:
    """Return the figures of a sweep, each with what it shows: name -> caption, PNG."""
    pictures: dict[str, tuple[str, bytes]] = {}

    def draw(name: str, caption: str, plot: Any) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with plotting.style():
            figure = Figure(layout="constrained")
            FigureCanvasAgg(figure)
            plot(figure.subplots())
            stream = io.BytesIO()
            figure.savefig(stream, format="png", dpi=150)
        pictures[name] = (caption, stream.getvalue())

    if not len(table):
        return pictures
    has = {str(name): None for name in table if table[name].notna().any()}
    if {"strong_privacy", "aggregation_cardinality"} <= set(has):
        caption = "What privacy costs: strong privacy T against cardinality C."
        draw("tradeoff", caption, lambda ax: plotting.plot_privacy_cost(table, ax=ax))
    known = [name for name in _CURVES if name in has]
    names = {*_points.point_columns(results), *_CURVES, "seconds"}
    others = [name for name in has if name not in names]
    others = [name for name in others if table[name].nunique() > 1] or others
    for name in [*known, *(others[:_MOST_OTHERS] if not known else [])]:
        caption = _CURVES.get(name, str(name).replace("_", " ").capitalize() + ".")
        draw(name, caption, lambda ax, name=name: plot_any(results, table, name, ax=ax))
    return pictures


def study_pictures(results: xr.Dataset) -> dict[str, bytes]:
    """Return the figures of a study that is in no folder, as PNG by name."""
    with tempfile.TemporaryDirectory() as folder:
        written = plotting.save_study_figures(results, pathlib.Path(folder))
        return {name: path.read_bytes() for name, path in written.items()}


def sweep_page(
    manifest: Mapping[str, Any], results: xr.Dataset, known: Mapping[str, type] | None = None
) -> str:
    """Return the page of a sweep: words, its points to sort and look at, figures, settings.

    Args:
        manifest: Its provenance.
        results: Its data set.
        known: Configurations of commands that are not the studies' own.
    """
    table = _points.points(results)
    names = _points.point_columns(results)
    words = "".join(f"<p>{tidy(text)}</p>" for text in _points.sweep_sentences(results))
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
    defaults = _report.defaults_of(own, known)
    changing = {field for axis in axes for field in axis["fields"]} | {*_UNUSED}
    changing |= {"schemes"} if "scheme" in changing else set()
    base = _without(config.get("base", config), changing)
    if defaults is not None:
        defaults = _without(defaults, changing)
        base = {name: value for name, value in base.items() if name in defaults}
    settings = settings_section(base, defaults)
    settings = Section("Settings", lines + settings.content)
    sections = [
        Section("Findings", words),
        Section("Points", explorer(table, names).html if len(table) else ""),
        figures_section(drawn(results, table)),
    ]
    sizes = " x ".join(f"{results.sizes[name]} {name}" for name in _points.axes_of(results))
    lead = [f"{swept or 'study'}: {sizes}, seed {manifest.get('seed')}"]
    return _report.whole_page(manifest, lead, sections, None, settings=settings)


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
