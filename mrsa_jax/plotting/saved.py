"""The figures of a study as files, the data of each next to it."""

from __future__ import annotations

import contextvars
import os
import pathlib
import pickle
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.drawing import named_if_not_drawn
from mrsa_jax.plotting.chart import Chart, draw
from mrsa_jax.plotting.names import OURS, figure_of
from mrsa_jax.plotting.study_charts import (
    OPENING,
    compared,
    quantile,
    study_charts,
    weak_means,
)
from mrsa_jax.plotting.styles import style
from mrsa_watch._base.errors import check_known, require

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FORMATS = ("png", "svg", "pdf")
PRINT = "figures"  # folder of what is for print, where it stands apart
_MOST_MARKS = 600  # of one artist; more are pixels in files for print
_MOST_CORNERS = 6000
_PIXELS = 300  # an inch, of such artists


def save_figure(
    figure: Figure | Axes | Chart | Callable[..., Any],
    path: str | os.PathLike[str],
    *,
    formats: Sequence[str] = FORMATS,
    apart: bool = False,
) -> tuple[pathlib.Path, ...]:
    """Write a figure as PNG, SVG and PDF, ready for a paper.

    SVG holds text as text elements and PDF embeds fonts of type 42, so that both can be
    searched and edited. Parts with very many points are written as pixels in an
    otherwise sharp file. The caption (`ax.get_label()`) is in the files' metadata, and
    the same figure gives the same bytes.

    Args:
        figure: A figure, its axes, a `plotting.chart.Chart`, or a function that draws
            on `ax`, such as `functools.partial(plot_study, results, "loss")`; the last
            two are drawn in the width of `style`.
        path: Where to write, without the formats' endings, in an existing folder.
        formats: Some of `"png"`, `"svg"` and `"pdf"`.
        apart: Whether SVG and PDF go into a folder `figures` next to the PNG.

    Returns:
        The files, in the order of `formats`.

    Raises:
        ConfigurationError: If a format is unknown, or there is none.

    Examples:
        >>> import mrsa_jax as mj
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mj.plotting.save_figure(
        ...         lambda ax: ax.plot([1, 2]), f"{folder}/line", formats=["svg"]
        ...     )[0].name
        'line.svg'
    """
    require(len(formats) > 0, "formats", "must name a format")
    for form in formats:
        check_known(form, "formats", FORMATS, "known formats")
    target = pathlib.Path(path)
    with style():
        drawn = _figure(figure)
        written = []
        for form in formats:
            is_apart = apart and form != "png"
            folder = target.parent / PRINT if is_apart else target.parent
            folder.mkdir(exist_ok=True)
            place = folder / f"{target.name}.{form}"
            try:
                _write(drawn, place, form)
            except BaseException:
                place.unlink(missing_ok=True)  # half of a picture
                raise
            written.append(place)
            if isinstance(figure, Chart) or callable(figure):
                # laid out once: it costs as much as drawing
                drawn.set_layout_engine("none")
    return tuple(written)


def _write(drawn: Figure, place: pathlib.Path, form: str) -> None:
    captions = [str(ax.get_label()) for ax in drawn.axes if ax.get_label()]
    title = {"Title": " ".join(captions)}
    if form == "png":
        drawn.savefig(place, format=form, metadata=title)
        return
    _rasterize(drawn)
    date = {"svg": "Date", "pdf": "CreationDate"}[form]
    drawn.savefig(
        place,
        format=form,
        dpi=_PIXELS,
        metadata=title | {date: None},
    )


def _figure(figure: Any) -> Figure:
    """Return a figure: as given, of axes, or drawn now."""
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if isinstance(figure, Axes):
        return figure_of(figure)
    if isinstance(figure, Figure):
        return figure
    # not by pyplot, which would keep the figure and ask for a window
    drawn = Figure(layout="constrained", gid=OURS)
    FigureCanvasAgg(drawn)
    ax = drawn.subplots()
    draw(figure, ax=ax) if isinstance(figure, Chart) else figure(ax=ax)
    return drawn


def _rasterize(figure: Figure) -> None:
    """Let artists of very many points be pixels in files that are sharp otherwise."""
    from matplotlib.collections import Collection, PathCollection
    from matplotlib.lines import Line2D

    for ax in figure.axes:
        for artist in ax.get_children():
            if isinstance(artist, PathCollection):
                dense = len(np.asarray(artist.get_offsets())) > _MOST_MARKS
            elif isinstance(artist, Collection):
                dense = sum(map(len, artist.get_paths())) > _MOST_CORNERS
            elif isinstance(artist, Line2D):
                marked = artist.get_marker() not in ("None", "none", "", " ", None)
                most = _MOST_MARKS if marked else _MOST_CORNERS
                dense = len(np.asarray(artist.get_xydata())) > most
            else:
                continue
            if dense:
                artist.set_rasterized(True)


class Ahead:
    """Draws figures in a thread, while the rest of their study is computed.

    A study's figures of its histories are known long before its trainings end, which
    leave a core idle. One that is asked for in the end is taken only if it is that of
    the same chart.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._drawn: dict[bytes, Future[bytes]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, results: xr.Dataset) -> None:
        """Draw what there is to draw of results that are not whole.

        Later calls do nothing.
        """
        if self._pool is None:
            self.draw(results)

    def draw(self, results: xr.Dataset) -> None:
        """Draw the figures of results that are not yet drawn."""
        self._pool = self._pool or ThreadPoolExecutor(1)
        for chart in study_charts(results).values():
            # a chart whose data changed meanwhile is drawn again
            name = pickle.dumps(chart)
            if name not in self._drawn:
                context = contextvars.copy_context()  # `style` keeps its column there
                self._drawn[name] = self._pool.submit(context.run, _png, chart)

    def __enter__(self) -> Ahead:
        """Return itself."""
        return self

    def __exit__(self, *fault: object) -> None:
        """Draw nothing more: Matplotlib's settings are of all threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def png(self, chart: Chart) -> bytes | None:
        """Return the picture of a chart, None where it was not drawn."""
        future = self._drawn.get(pickle.dumps(chart))
        return None if future is None or future.cancelled() else future.result()


def _png(chart: Chart) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "figure"
        return save_figure(chart, path, formats=["png"])[0].read_bytes()


def save_study_figures(
    results: xr.Dataset,
    directory: str | pathlib.Path,
    *,
    formats: Sequence[str] = FORMATS,
    ahead: Ahead | None = None,
) -> dict[str, pathlib.Path]:
    """Write each figure that the results have data for as PNG, with its data as CSV.

    For print it is also in the folder's `figures/`, as SVG and PDF;
    `with style("single"):` around the call gives the width of one column.

    Args:
        results: Data set of a study.
        directory: Existing folder.
        formats: As of `save_figure`, PNG first.
        ahead: What draws them meanwhile, where `formats` are PNG alone.

    Returns:
        Name of each figure that could be drawn -> path of its PNG, in reading order.
    """
    folder = pathlib.Path(directory)
    written = {}
    for name, chart in study_charts(results).items():
        with named_if_not_drawn(name):
            picture = None if ahead is None else ahead.png(chart)
            if picture is None:
                written[name], *_ = save_figure(
                    chart, folder / name, formats=formats, apart=True
                )
            else:
                written[name] = folder / f"{name}.png"
                written[name].write_bytes(picture)
        data = _figure_data(results, name)
        if data.index.name == "round":  # counted from 1, as in the figure
            data.index += 1
        data.to_csv(folder / f"{name}.csv")
    return written


_EPSILON = ["accuracy", "epsilon_mean", "epsilon_worst"]
_WEAK = {
    "weak_lower": "weak T at least",
    "weak_upper": "weak T at most",
    "hidden_among_worst": "worst hidden among",
}


def _figure_data(results: xr.Dataset, name: str) -> Any:
    """Return a figure's data as a table.

    A column for each scheme, quantiles where banded.
    """
    import pandas as pd

    if name in ("accuracy_epsilon", "epsilon"):  # a row for each scheme and test
        return results[_EPSILON].to_dataframe()[_EPSILON]
    columns, axis = {}, "round"
    if name == OPENING:
        for label in compared(results):
            for variable, words in _WEAK.items():
                columns[f"{label} {words}"] = results[variable].sel(scheme=label).values
    elif name == "weak_privacy":
        for label in results["scheme"].values:
            bounds = weak_means(results.sel(scheme=label))
            for side, path in zip(("at least", "at most"), bounds, strict=True):
                columns[f"{label} mean {side}"] = path
    elif "trial" not in results[name].dims:
        return results[name].transpose(..., "scheme").to_pandas()
    else:
        (axis,) = map(str, set(results[name].dims) - {"trial", "scheme"})
        for label in results["scheme"].values:
            values = results[name].sel(scheme=label).transpose("trial", axis)
            columns[f"{label} mean"] = values.mean("trial").values
            for q in (0.05, 0.95):
                columns[f"{label} q{q:g}"] = quantile(values.values, q)
    return pd.DataFrame(columns, index=pd.Index(results[axis].values, name=axis))
