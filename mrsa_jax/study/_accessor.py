"""`results.mrsa`: what a study's data set can do by itself, in a notebook above all.

The accessor is registered with xarray when a study is run or opened, and schemes are found by their
label and by what a configuration calls them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting
from mrsa_jax._errors import ConfigurationError, nearest, require
from mrsa_jax._html import number, tidy
from mrsa_jax.plotting._chart import ALL
from mrsa_jax.plotting._points import shown_scale
from mrsa_jax.study import _chart_look, _cite, _points, _report, _summary
from mrsa_jax.study._chart_look import Series, asset
from mrsa_jax.study._config import scheme_label
from mrsa_jax.study._page import write_page
from mrsa_jax.study._points import HEADINGS, cost_charts, heading
from mrsa_jax.study._svg import drawn

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes


# ---- A quick look at strong T against C against accuracy: small linked pictures over a sortable
# table.
#
# One piece of HTML without widgets, servers or anything to fetch. It shows in a notebook, in a
# report and from a file, offline; where scripts are not run, table and pictures still stand.

_MOST_ROWS = 2000
_LEFT_SIDE = ' class="t"'  # where words stand


@dataclasses.dataclass(frozen=True)
class Explorer:
    """What `results.mrsa.explore()` gives: a notebook shows it as it is.

    Attributes:
        html: The whole of it.
    """

    html: str

    def _repr_html_(self) -> str:
        """Return it for a notebook."""
        return self.html

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write it as a page of its own, and return where.

        Args:
            path: File to write.
        """
        target = pathlib.Path(path)
        target.write_text(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><title>mrsa_jax</title></head>'
            f"<body>{self.html}</body></html>\n",
            encoding="utf-8",
        )
        return target


def explorer(table: pd.DataFrame, names: Sequence[str]) -> Explorer:
    """Return an explorer of a table of schemes or points.

    Args:
        table: A row a point.
        names: Columns that say which point a row is; the other columns are what was measured.
    """
    shown = table.head(_MOST_ROWS)
    labels = [str(one) for one in shown["scheme"]] if "scheme" in shown else [ALL]
    series = [Series(label, is_scheme="scheme" in shown) for label in dict.fromkeys(labels)]
    places = _chart_look.places(series)
    charts = cost_charts(shown, names, "scheme" if "scheme" in shown else None)
    plots = "".join(drawn(chart, places) for chart in charts.values())
    legend = _chart_look.keys(series, is_switch=False) if plots else ""
    content = f'<div class="pictures">{plots}</div>{legend}' + _rows(table, names)
    look = f"\n{asset('chart.css')}{_chart_look.day_colours(series)}"
    style = f"\n{asset('notebook.css')}#ID {{ {look} }}"
    return Explorer(_with_script(content, style, f"\n{asset('chart.js')}" * bool(plots)))


def linked(
    table: pd.DataFrame,
    names: Sequence[str],
    figures: str,
    spans: Mapping[tuple[int, str], tuple[float, float]],
) -> str:
    """Return a table to sort whose rows light up with the marks of a page's figures.

    Args:
        table: A row a point.
        names: Columns that say which point a row is.
        figures: Charts whose marks know their rows, as HTML.
        spans: By row and column between which values a mean lies, where they differ.
    """
    pictures = f'<div class="figures">{figures}</div>' * bool(figures)
    return _with_script(pictures + _rows(table, names, spans), "", "")


def _rows(
    table: pd.DataFrame,
    names: Sequence[str],
    spans: Mapping[tuple[int, str], tuple[float, float]] | None = None,
) -> str:
    """Return the first rows of a table, and how many there are beside them."""
    left = len(table) - _MOST_ROWS
    return _table(table.head(_MOST_ROWS), names, spans or {}) + (
        f"<p>{left} more rows are not shown.</p>" if left > 0 else ""
    )


def _with_script(content: str, style: str, script: str) -> str:
    own = f"mrsa-{zlib.crc32(content.encode()):08x}"
    inner = f"<script>\n{asset('explorer.js').replace('ID', own)}{script}</script>"
    look = f"<style>\n{(asset('explorer.css') + style).replace('ID', own)}</style>"
    return f'<div id="{own}">{look}{content}{inner}</div>'


def _table(
    table: pd.DataFrame, names: Sequence[str], spans: Mapping[tuple[int, str], tuple[float, float]]
) -> str:
    known = [n for n in HEADINGS if n in table and n not in names]
    columns = [*names, *known]
    columns += [str(n) for n in table if n not in columns]
    is_text = {n: table[n].dtype.kind not in "iuf" for n in columns}
    head = "".join(
        f'<th scope="col"{_LEFT_SIDE * is_text[n]}>'
        f'<button type="button">{tidy(heading(n))}</button></th>'
        for n in columns
    )
    lines = []
    for i, values in enumerate(table[columns].itertuples(index=False, name=None)):
        cells = "".join(
            _cell(value, shown_scale(name), is_text[name], spans.get((i, name)), is_first=k == 0)
            for k, (name, value) in enumerate(zip(columns, values, strict=True))
        )
        lines.append(f'<tr data-i="{i}" tabindex="0">{cells}</tr>')
    return (
        f'<div class="scroll"><table aria-label="Points; a heading sorts"><thead><tr>{head}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(
    value: Any, scale: float, is_text: bool, span: tuple[float, float] | None, *, is_first: bool
) -> str:
    tag = 'th scope="row"' if is_first else "td"
    end = tag.split()[0]
    if is_text:
        own = tidy(value)
        return f'<{tag} class="t" data-v="{own}">{own}</{end}>'
    size = scale * float(value)
    if not math.isfinite(size):
        return f"<{tag}>-</{end}>"
    low, high = (number(scale * edge) for edge in span or (0.0, 0.0))
    words = f" ({low} to {high})" if low != high else ""
    return f'<{tag} data-v="{size:.9g}">{number(size)}{words}</{end}>'


# ---- `results.mrsa`: what a study's data set can do by itself, in a notebook above all.


def find_schemes(results: xr.Dataset) -> xr.Dataset:
    """Return a data set whose axis of schemes, if it has one, finds both kinds of names.

    Before xarray 2026.9 an array of this axis meets one with a plain axis only if that went
    through here too.

    Examples:
        >>> import xarray as xr
        >>> data = xr.Dataset(coords={"scheme": ["Random", "Multi-RoundSecAgg (T=4)"]})
        >>> found = find_schemes(data)
        >>> found.sel(scheme="batch_partitioning:4").scheme.item()
        'Multi-RoundSecAgg (T=4)'
        >>> found.sel(scheme="Random").scheme.item()
        'Random'
    """
    for name in map(str, results.xindexes):
        if results[name].attrs.get("field", name) == "scheme":
            results = results.drop_indexes(name).set_xindex(name, _index())
    return results


@functools.cache
def _index() -> Any:
    """Return the index's class; xarray, which it stands on, takes a second to import."""
    from xarray.indexes import PandasIndex

    class SchemeIndex(PandasIndex):
        """An index of labels that also knows `batch_partitioning:4` and the like."""

        def sel(self, labels: dict[Any, Any], method: Any = None, tolerance: Any = None) -> Any:
            """Return where labels are, or the schemes that are written so."""
            ((name, wanted),) = labels.items()
            if isinstance(wanted, str):
                wanted = self._label(wanted)
            elif isinstance(wanted, list | tuple | np.ndarray):
                wanted = [self._label(one) for one in np.ravel(wanted).tolist()]
            return super().sel({name: wanted}, method, tolerance)

        def _label(self, wanted: Any) -> Any:
            return wanted if wanted in self.index else scheme_label(wanted)

    SchemeIndex.__qualname__ = SchemeIndex.__name__  # where pickle looks for it
    return SchemeIndex


def __getattr__(name: str) -> Any:
    if name == "SchemeIndex":
        return _index()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Give every xarray data set the accessor `mrsa`; again is no harm."""
    import xarray as xr

    if "mrsa" not in vars(xr.Dataset):
        xr.register_dataset_accessor("mrsa")(StudyAccessor)


class StudyAccessor:
    """What `results.mrsa` offers for the results of a study or a sweep.

    Args:
        results: The data set, as `study.run` or `study.open_study` gives it.
    """

    def __init__(self, results: xr.Dataset) -> None:
        """Take a data set; whether it is a study's is checked when something is asked."""
        self._results = results

    def __repr__(self) -> str:
        """Say what can be asked."""
        names = [name for name in dir(type(self)) if not name.startswith("_")]
        return f"<results.mrsa: {', '.join(names)}>"

    @property
    def is_sweep(self) -> bool:
        """Whether the data set holds points of a sweep."""
        return _points.is_sweep(self._results)

    def table(self) -> pd.DataFrame:
        """Return a summary, a row for each scheme or each point of a sweep that is done.

        Examples:
            >>> from mrsa_jax import study
            >>> config = study.SimulateConfig(rounds=8, trials=2, schemes=("partition",))
            >>> study.run(config).mrsa.table()["exposed_clients"].tolist()
            [0.0]
        """
        return _points.points(self._checked())

    def sentences(self) -> tuple[str, ...]:
        """Say in plain sentences what the results show."""
        results = self._checked()
        if self.is_sweep:
            return _points.sweep_sentences(results)
        return _summary.sentences(results)

    def cite(self) -> str:
        """Return BibTeX of the papers, data and software behind the results."""
        return _cite.cite(self._checked())

    def plot_tradeoff(self, *, ax: Axes | None = None) -> Axes:
        """Plot strong T against cardinality C; where models were trained, by accuracy."""
        return plotting.plot_privacy_cost(self.table(), ax=ax)

    def plot_privacy(self, *, ax: Axes | None = None, **axes: str) -> Axes:
        """Plot strong T: over rounds for a study, over its axes for a sweep.

        Args:
            ax: Where to draw; a figure of its own when None.
            **axes: `x` and `hue` of a sweep, as of `plot`.
        """
        return self._curves("strong_privacy", plotting.plot_privacy, ax, axes)

    def _curves(
        self, variable: str, over_rounds: Callable[..., Axes], ax: Axes | None, axes: dict[str, str]
    ) -> Axes:
        if self.is_sweep:
            return self.plot(variable, ax=ax, **axes)
        require(not axes, "axes", "must be left out but for sweeps", sorted(axes))
        return over_rounds(self._checked(), ax=ax)

    def plot_accuracy(self, *, ax: Axes | None = None, **axes: str) -> Axes:
        """Plot test accuracy: over rounds for a study, over its axes for a sweep.

        Args:
            ax: Where to draw; a figure of its own when None.
            **axes: `x` and `hue` of a sweep, as of `plot`.

        Raises:
            ConfigurationError: If nothing was trained.
        """
        results = self._checked()
        require("accuracy" in results, "results", "must be of a study that trains",
                str(results.attrs.get("command", "no training")))  # fmt: skip
        return self._curves("accuracy", plotting.plot_accuracy, ax, axes)

    def plot(
        self, variable: str, *, x: str | None = None, hue: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Plot any quantity over any axis, a curve for each value of another.

        Points that share both are averaged, and the band spans their extremes.

        Args:
            variable: Column of `table()`.
            x: Axis, or setting along one, that runs along; chosen when None.
            hue: The one that tells curves apart; chosen when None.
            ax: Where to draw; a figure of its own when None.

        Raises:
            ConfigurationError: For an unknown name, with the nearest known one.
        """
        from mrsa_jax.study._report_sweep import plot_any

        table = self.table()
        if variable not in table:
            hint = nearest(str(variable), [str(name) for name in table])
            raise ConfigurationError(
                f"`variable` must be a column of the table; got {variable!r}; {hint}"
            )
        return plot_any(self._results, table, variable, x, hue, ax)

    def explore(self) -> Explorer:
        """Return a quick look at strong T, C and accuracy: linked pictures over a table to sort.

        A notebook shows it; `save(path)` writes it as a page. It needs no widgets and no network.
        """
        results = self._checked()
        return explorer(self.table(), _points.point_columns(results))

    def report(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write a page of HTML about the results, which needs nothing beside it.

        Args:
            path: File to write, or an existing folder for `report.html`.

        Returns:
            The page.
        """
        from mrsa_jax.study._report_sweep import sweep_page

        results = self._checked()
        manifest: dict[str, Any] = {"command": "study", "seed": "unknown", **results.attrs}
        target = pathlib.Path(path)
        target = target / "report.html" if target.is_dir() else target
        if self.is_sweep:
            text = sweep_page(manifest, results)
        else:
            text = _report.study_page(manifest, results, spec=results)
        write_page(target, text)
        return target

    def _checked(self) -> xr.Dataset:
        """Return the data set; raise if it is no study's."""
        results = self._results
        known = self.is_sweep or {"scheme", "round", "client"} <= set(results.dims)
        rule = "must be those of a study, of `study.run` or `study.open_study`"
        require(known, "results", rule, sorted(map(str, results.dims)))
        return results
