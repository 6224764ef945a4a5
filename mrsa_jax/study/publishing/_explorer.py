"""Explore points or schemes: small linked pictures over a sortable table.

An explorer is one piece of HTML without servers or anything to fetch. It shows in a
notebook, in a report and from a file, offline; where scripts are not run, table and
pictures still stand. Controls, in notebooks, ask the kernel for another such piece.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import math
import os
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mrsa_jax.plotting.chart import Chart, Line
from mrsa_jax.plotting.points import (
    QUANTITIES,
    as_shown,
    axis_label,
    by_hue,
    check_columns,
    heading,
    pair_chart,
    quantity,
)
from mrsa_jax.study.publishing import _points
from mrsa_jax.study.publishing._assets import asset, piece
from mrsa_jax.study.publishing._points import cost_charts
from mrsa_jax.study.publishing._series import Series, day_colours, keys, places
from mrsa_jax.study.publishing._svg import drawn
from mrsa_watch._base.errors import MrsaError, how_to_install, needed
from mrsa_watch._base.html import number, tidy

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

_MOST_ROWS = 2000
_MOST_FACETS = 12
_MOST_PATHS = 150  # rows with curves over the rounds: each is some kilobytes of a page


class Control(NamedTuple):
    """A control of one setting: a slider, or a choice if there are options.

    Attributes:
        name: Of the setting.
        label: What stands before it.
        low: Least value.
        high: Largest.
        step: Between values.
        options: All values, as text.
    """

    name: str
    label: str
    low: float = 0
    high: float = 0
    step: float = 1
    options: tuple[str, ...] = ()


class Shown(NamedTuple):
    """The picture at some settings.

    Attributes:
        html: The whole of it.
        values: The settings that it is of, which may not be those that were asked for.
        code: Python that makes it, or "".
    """

    html: str
    values: Mapping[str, Any]
    code: str = ""


@dataclasses.dataclass(eq=False, repr=False)
class Explorer:
    """A picture with settings.

    A notebook shows it with controls where `anywidget` is installed.

    Attributes:
        title: What it is of.
        values: The settings now: controls change them.
        controls: What changes them.
        make: Settings -> what is shown.
    """

    title: str
    values: Mapping[str, Any]
    controls: Sequence[Control]
    make: Callable[[Mapping[str, Any]], Shown]

    @property
    def html(self) -> str:
        """The whole of it, at the settings now."""
        return self.make(self.values).html

    @property
    def code(self) -> str:
        """Python that makes it, or ""."""
        return self.make(self.values).code

    @functools.cached_property
    def widget(self) -> Any:
        """The same with its controls, a widget of `anywidget`."""
        kind = _panel()
        now = self.make(self.values)
        controls = [
            control._asdict() | {"options": list(control.options)}
            for control in self.controls
        ]
        panel = kind(controls=controls, **now._asdict())

        def changed(change: Any) -> None:
            try:
                fresh = self.make({**self.values, **change["new"]["values"]})
            except MrsaError as error:
                fresh = Shown(f"<p>{tidy(error)}</p>", self.values, panel.code)
            self.values = fresh.values
            with panel.hold_sync():
                panel.set_trait("shown", panel.shown + 1)
                for name, value in fresh._asdict().items():
                    panel.set_trait(name, value)

        panel.observe(changed, "asked")
        return panel

    def __repr__(self) -> str:
        """Return its title and settings in one line."""
        settings = ", ".join(f"{name} {value}" for name, value in self.values.items())
        return f"<{self.title}: {settings}>"

    def _repr_html_(self) -> str:
        """Return it as it stands, for where no controls can be shown."""
        hint = f"<p>For controls in a notebook: {tidy(how_to_install('explore'))}</p>"
        return self.html + hint * (importlib.util.find_spec("anywidget") is None)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Return it for a notebook: with controls, and as it stands."""
        plain = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if importlib.util.find_spec("anywidget") is None:
            return plain
        live = self.widget._repr_mimebundle_(**options)
        return {**(live[0] if isinstance(live, tuple) else live), **plain}

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write it as a separate page, and return where.

        Args:
            path: File to write.
        """
        target = pathlib.Path(path)
        target.write_text(f"{piece('bare_page', self.html)}\n", encoding="utf-8")
        return target


@functools.cache
def _panel() -> Any:
    """Return the class of widgets; anywidget takes a moment to import."""
    anywidget = needed("anywidget", "explore", "`widget` needs anywidget")
    from traitlets import Dict, Int, List, Unicode

    traits: dict[str, Any] = {
        "controls": List(),
        "values": Dict(),
        "asked": Dict(),
        "html": Unicode(),
        "code": Unicode(),
        "shown": Int(),
    }
    synced = {name: trait.tag(sync=True) for name, trait in traits.items()}
    files = {"_esm": asset("explore.js"), "_css": asset("explore.css")}
    return type("Panel", (anywidget.AnyWidget,), files | synced)


_PAIRS, _NONE = "T, C and accuracy", "-"


def explorer(
    results: xr.Dataset, table: pd.DataFrame, choices: Mapping[str, str | None]
) -> Explorer:
    """Return an explorer of schemes or points: any column on x, y, colour and facets.

    Args:
        results: A study or a sweep.
        table: Its rows.
        choices: Column of each of "x", "y", "colour" and "facet", or None.
    """
    names = _points.point_columns(results)
    check_columns(table, **choices)
    measured = _points.numeric(table, *names)
    # a facet or a colour per value: no more than a reader can tell apart
    few = [n for n in names if 1 < table[n].nunique() <= _MOST_FACETS]
    kinds = {
        "x": (*names, *measured),
        "y": (_PAIRS, *measured),
        "colour": (_NONE, *few),
        "facet": (_NONE, *few),
    }
    # what each begins with: its first option, and colours of schemes
    first = {name: options[0] for name, options in kinds.items()}
    first["colour"] = "scheme" if "scheme" in few else _NONE
    values = {name: choices[name] or usual for name, usual in first.items()}
    controls = [
        Control(name, name, options=tuple(dict.fromkeys((*options, values[name]))))
        for name, options in kinds.items()
    ]
    return Explorer(
        f"{len(table)} rows to explore",
        values,
        controls,
        lambda options: Shown(_points_html(results, table, names, options), options),
    )


def _points_html(
    results: xr.Dataset,
    table: pd.DataFrame,
    names: Sequence[str],
    choices: Mapping[str, Any],
) -> str:
    # a page of more points than this is slow in a browser
    rows = table.head(_MOST_ROWS)
    if choices["y"] == _PAIRS:
        hue = "scheme" if "scheme" in rows else None
        charts = list(cost_charts(rows, names, hue).values())
    else:
        hue = None if choices["colour"] == _NONE else choices["colour"]
        charts = _asked_charts(results, rows, names, choices, hue)
    is_scheme = hue in ("scheme", "schemes")
    series = [Series(label, is_scheme=is_scheme) for label, _ in by_hue(rows, hue)]
    order = places(series)
    plots = "".join(drawn(chart, order) for chart in charts)
    paths = "".join(drawn(chart, order) for chart in _paths(results, rows, hue))
    hint = "Click points or rows to see their curves over the rounds"
    if len(rows) > _MOST_PATHS:
        hint += f": the first {_MOST_PATHS} rows have some"
    legend = keys(series, is_switch=False) if plots else ""
    content = piece(
        "explorer", plots, legend, paths, f"{hint}.", _table(table, names, {})
    )
    return styled(content, series, asset("chart.js") if plots else "")


def _asked_charts(
    results: xr.Dataset,
    table: pd.DataFrame,
    names: Sequence[str],
    choices: Mapping[str, Any],
    hue: str | None,
) -> list[Chart]:
    """Return a chart per facet.

    Curves over an axis, marks that know their rows over all else.
    """
    x, y, facet = choices["x"], choices["y"], choices["facet"]
    charts = []
    for label, facet_rows in by_hue(table, None if facet == _NONE else facet):
        rows = table.assign(**{y: table[y].where(table.index.isin(facet_rows.index))})
        if not rows[y].notna().any():
            continue
        if x in names:
            chart = _points.sweep_chart(results, rows, y, x, hue)
        else:
            chart = pair_chart(rows, x, y, hue, _points.words_of(rows, names, x, y))
        charts.append(
            chart if facet == _NONE else dataclasses.replace(chart, title=label)
        )
    return charts


def _paths(results: xr.Dataset, table: pd.DataFrame, hue: str | None) -> list[Chart]:
    """Return a chart of each trajectory that a sweep keeps.

    A curve for each row, shown if picked.
    Strong T and what the worst is hidden among are the least of the trials, others
    their mean.
    """
    names = [str(name) for name in results.data_vars if str(name).endswith("_by_round")]
    if not names or "label" in table:
        return []
    import pandas as pd

    axes = _points.axes_of(results)
    # where each row of the table lies on the axes of the data set
    places = tuple(
        results.get_index(axis).get_indexer(pd.Index(table[axis])) for axis in axes
    )
    table = table.head(_MOST_PATHS)
    series = {i: label for label, own in by_hue(table, hue) for i in own.index}
    charts = []
    for name in names:
        column = name.removesuffix("_by_round")
        own = results[name].transpose(*axes, ..., "round").astype(np.float64)
        # what is left of an array besides axes and rounds is over trials
        trials = [dim for dim in own.dims if dim not in (*axes, "round")]
        is_least = quantity(column).statistic != "mean"
        reduced = own.where(own >= 0).min(trials) if is_least else own.mean(trials)
        values = as_shown(column, np.asarray(reduced))
        lines = [
            Line(
                label,
                1 + results["round"].to_numpy(),
                values[places][i],
                kind="step",
                rows=(i,),
            )
            for i, label in series.items()
        ]
        charts.append(Chart(heading(column), "", lines, y_label=axis_label(column)))
    return charts


def styled(content: str, series: Sequence[Series], script: str = "") -> str:
    """Return HTML in the look of pages, its own style and script inside."""
    look = f"{asset('chart.css')}{day_colours(series)}"
    return _with_script(content, f"{asset('notebook.css')}#ID {{ {look} }}", script)


def linked(
    table: pd.DataFrame,
    names: Sequence[str],
    figures: str,
    spans: Mapping[tuple[int, str], tuple[float, float]],
) -> str:
    """Return a table to sort whose rows light up with the marks of a page's figures.

    Args:
        table: A row per point.
        names: Columns that say which point a row is.
        figures: Charts whose marks know their rows, as HTML.
        spans: By row and column between which values a mean lies, where they differ.
    """
    pictures = piece("figures", figures) if figures else ""
    return _with_script(pictures + _table(table, names, spans), "", "")


def _with_script(content: str, style: str, script: str) -> str:
    # several pieces may stand in one page: the content gives each another name
    name = f"mrsa-{zlib.crc32(content.encode()):08x}"
    look = (asset("explorer.css") + style).replace("ID", name)
    code = asset("explorer.js").replace("ID", name)
    return piece("scripted", name, content, look, code + script)


def _table(
    table: pd.DataFrame,
    names: Sequence[str],
    spans: Mapping[tuple[int, str], tuple[float, float]],
) -> str:
    """Return the first rows of a table, and the number of the others."""
    columns = [*names]
    columns += [
        n for n, quantity_of in QUANTITIES.items() if quantity_of.heading and n in table
    ]
    columns = list(dict.fromkeys([*columns, *map(str, table)]))
    numbers = _points.numeric(table)
    is_text = {name: name not in numbers for name in columns}
    head = table.head(_MOST_ROWS)[columns]
    rows = [
        [
            _cell(value, name, is_text[name], spans.get((i, name)))
            for name, value in zip(columns, values, strict=True)
        ]
        for i, values in enumerate(head.itertuples(index=False, name=None))
    ]
    headings = [(heading(name), is_text[name]) for name in columns]
    return piece("points", headings, rows, len(table) - _MOST_ROWS)


def _cell(
    value: Any, name: str, is_text: bool, span: tuple[float, float] | None
) -> tuple[str, Any, Any]:
    """Return a cell's style, the value that it is sorted by, and its words."""
    if is_text:
        return "t", value, value
    size = as_shown(name, float(value))
    if not math.isfinite(size):
        return "", None, "-"
    words = number(size)
    if span is not None:
        low, high = (number(as_shown(name, edge)) for edge in span)
        words += f" ({low} to {high})" if low != high else ""
    return "", f"{size:.9g}", words
