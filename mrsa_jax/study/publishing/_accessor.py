"""`results.mrsa`: what a study's data set can do by itself, in a notebook above all.

The accessor is registered with xarray when a study is run or opened, and schemes are
found by their label and by what a configuration calls them.
"""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting
from mrsa_jax.study import _cite
from mrsa_jax.study.publishing import (
    _best,
    _points,
    _report,
    _report_sweep,
    _summary,
)
from mrsa_jax.study.publishing._explorer import Explorer, explorer
from mrsa_jax.study.settings._attributes import attributes, with_attributes
from mrsa_jax.study.settings._config import scheme_label
from mrsa_jax.study.stores import _store
from mrsa_watch._base.errors import require
from mrsa_watch._base.files import write_whole

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes


def find_schemes(results: xr.Dataset) -> xr.Dataset:
    """Return a data set whose axis of schemes, if any, finds both kinds of names.

    Before xarray 2026.9 an array of this axis meets one with a plain axis only if that
    went through here too.

    Examples:
        >>> import xarray as xr
        >>> data = xr.Dataset(coords={"scheme": ["Random", "Multi-RoundSecAgg (T=4)"]})
        >>> found = find_schemes(data)
        >>> found.sel(scheme="batch_partitioning:4").scheme.item()
        'Multi-RoundSecAgg (T=4)'
        >>> found.sel(scheme="Random").scheme.item()
        'Random'
    """
    # a sweep's axis of schemes may have any name: its attribute tells the field
    for name in map(str, results.xindexes):
        if results[name].attrs.get("field", name) == "scheme":
            results = results.drop_indexes(name).set_xindex(name, _index())
    return results


@functools.cache
def _index() -> Any:
    """Return the index's class; xarray, its base, takes a second to import."""
    from xarray.indexes import PandasIndex

    class SchemeIndex(PandasIndex):
        """An index of labels that also knows `batch_partitioning:4` and the like."""

        def sel(
            self, labels: dict[Any, Any], method: Any = None, tolerance: Any = None
        ) -> Any:
            """Return the places of labels, or of schemes that are written so."""
            # an index of one dimension is asked for one name at a time
            ((name, wanted),) = labels.items()
            if isinstance(wanted, str):
                wanted = self._label(wanted)
            elif isinstance(wanted, list | tuple | np.ndarray):
                wanted = [self._label(label) for label in np.ravel(wanted).tolist()]
            return super().sel({name: wanted}, method, tolerance)

        def _label(self, wanted: Any) -> Any:
            return wanted if wanted in self.index else scheme_label(wanted)

    SchemeIndex.__qualname__ = SchemeIndex.__name__  # where pickle looks for it
    return SchemeIndex


def __getattr__(name: str) -> Any:
    if name == "SchemeIndex":
        return _index()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_study(path: str | os.PathLike[str]) -> xr.Dataset:
    """Open the results of a study.

    Args:
        path: Folder that a command wrote, e.g. `results/demo`.

    Returns:
        The data set, lazily loaded; its attributes hold the provenance, and
        `results.mrsa` has its table, plots and report.

    Raises:
        ConfigurationError: If the folder holds no complete study of a known schema, or
            one of weighted sums whose figures are of sums without weights.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "study")
        >>> clients = mj.study.PopulationConfig(num_clients=8, cohort_size=4)
        >>> config = mj.study.SimulateConfig(
        ...     out=folder, rounds=5, trials=2, schemes=("uniform",), population=clients
        ... )
        >>> _ = mj.study.run_and_save(config)
        >>> results = mj.study.open_study(folder)
        >>> results["scheme"].values.tolist(), results.sizes["round"]
        (['Random'], 5)
    """
    return described(_store.open_results(path), {})


def described(results: xr.Dataset, provenance: Mapping[str, Any]) -> xr.Dataset:
    """Return results with provenance, `results.mrsa` and both names of schemes."""
    register()
    return with_attributes(find_schemes(results), provenance)


def register() -> None:
    """Give every xarray data set the accessor `mrsa`; again is no harm."""
    import xarray as xr

    if "mrsa" not in vars(xr.Dataset):
        xr.register_dataset_accessor("mrsa")(StudyAccessor)


class StudyAccessor:
    """Tables, plots and reports for the results of a study or a sweep.

    Args:
        results: The data set, as `study.run` or `study.open_study` gives it.
    """

    def __init__(self, results: xr.Dataset) -> None:
        """Take a data set, which is checked when something is asked."""
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
        """Return a summary: a row per scheme, or per completed point of a sweep.

        Examples:
            >>> from mrsa_jax import study
            >>> config = study.SimulateConfig(
            ...     rounds=8, trials=2, schemes=("partition",)
            ... )
            >>> study.run(config).mrsa.table()["exposed_clients"].tolist()
            [0.0]
        """
        return _points.points(self._checked())

    def sentences(self) -> tuple[str, ...]:
        """Say in plain sentences what the results show."""
        results = self._checked()
        if not self.is_sweep:
            return _summary.sentences(results)
        return _points.sweep_sentences(results) + _best.best_sentences(results)

    def best_over(
        self,
        axis: str | None = None,
        *,
        by: str | None = None,
        least: bool | None = None,
    ) -> xr.Dataset:
        """Return the best value along an axis of a sweep, for each point of the others.

        As the best learning rate of each scheme. The best value has the best mean over
        the repetitions, which are trials and places on an axis of seeds; how far these
        decide the choice is part of the result.

        Args:
            axis: The axis, or a setting along it; None for that of the study's
                `best_over`.
            by: A number of each point or trial; None for the study's, or the accuracy. A
                number that is missing at a complete point, as that of a training that
                diverged, is worse than any other.
            least: Whether less of it is better; None for the study's, or False.

        Returns:
            A data set over the other axes. `best` is the value, `mean` the quantity's
            mean there, `share` the share of the repetitions in which this value is the
            best by itself, `certainty` the share of bootstrap draws of the repetitions
            in which it has the best mean (nan of one), `compared` the number of values
            that were complete.

        Raises:
            ConfigurationError: For an unknown axis or quantity, with the nearest known
                one.
        """
        return _best.best_over(self._checked(), axis, by=by, least=least)

    def cite(self) -> str:
        """Return BibTeX of the papers, data and software behind the results."""
        return _cite.cite(self._checked())

    def plot_tradeoff(self, *, ax: Axes | None = None) -> Axes:
        """Plot strong T against cardinality C, by accuracy if models were trained."""
        return plotting.plot_privacy_cost(self.table(), ax=ax)

    def plot_privacy(self, *, ax: Axes | None = None, **axes: str) -> Axes:
        """Plot strong T: over rounds for a study, over its axes for a sweep.

        Args:
            ax: Where to draw; a new figure if None.
            **axes: `x` and `hue` of a sweep, as of `plot`.
        """
        return self._curves("strong_privacy", ax, axes)

    def plot_weak_privacy(self, *, ax: Axes | None = None) -> Axes:
        """Plot weak T over rounds, in the band of its bounds, as in Figure 4a.

        A curve for each scheme of a study or each point of a sweep, mean over trials.

        Args:
            ax: Where to draw; a new figure if None.

        Raises:
            ConfigurationError: If the results do not keep weak T
                (`keep = ["weak_privacy"]`), or a sweep has more than 24 points.
        """
        results = self._checked()
        if self.is_sweep:
            results = _points.weak_curves(results)
        return plotting.plot_study(results, "weak_privacy", ax=ax)

    def _curves(self, variable: str, ax: Axes | None, axes: dict[str, str]) -> Axes:
        if self.is_sweep:
            return self.plot(variable, ax=ax, **axes)
        rule = "must not be set unless these are results of sweeps"
        require(not axes, "axes", rule, sorted(axes))
        return plotting.plot_study(self._checked(), variable, ax=ax)

    def plot_accuracy(self, *, ax: Axes | None = None, **axes: str) -> Axes:
        """Plot test accuracy: over rounds for a study, over its axes for a sweep.

        Args:
            ax: Where to draw; a new figure if None.
            **axes: `x` and `hue` of a sweep, as of `plot`.

        Raises:
            ConfigurationError: If nothing was trained.
        """
        results = self._checked()
        require(
            "accuracy" in results,
            "results",
            "must be of a study that trains",
            str(results.attrs.get("command", "no training")),
        )
        return self._curves("accuracy", ax, axes)

    def plot(
        self,
        variable: str,
        *,
        x: str | None = None,
        hue: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot any quantity over any axis, a curve for each value of another.

        Points that share both are averaged, and the band spans their extremes.

        Args:
            variable: Column of `table()`.
            x: Axis, or setting along one, that runs along; chosen when None.
            hue: The one that tells curves apart; chosen when None.
            ax: Where to draw; a new figure if None.

        Raises:
            ConfigurationError: For an unknown name, with the nearest known one.
        """
        return _report_sweep.plot_any(self._results, self.table(), variable, x, hue, ax)

    def explore(
        self,
        *,
        x: str | None = None,
        y: str | None = None,
        colour: str | None = None,
        facet: str | None = None,
    ) -> Explorer:
        """Return pictures linked to a table to sort.

        Strong T, C and accuracy, or any column.
        A notebook shows them with choices of each column where `anywidget` is
        installed; `save(path)` writes them as a page. They need no network. Of a sweep
        that keeps `trajectories`, the points that you click show their curves over the
        rounds.

        Args:
            x: Column of `table()` that runs along.
            y: Measured column; strong T, C and accuracy in pairs if None.
            colour: Column that tells curves apart.
            facet: Column with a picture for each of its values.

        Raises:
            ConfigurationError: For an unknown name, with the nearest known one.
        """
        choice = {"x": x, "y": y, "colour": colour, "facet": facet}
        return explorer(self._checked(), self.table(), choice)

    def report(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write a page of HTML about the results, which needs no other file.

        Args:
            path: File to write, or an existing folder for `report.html`.

        Returns:
            The page.
        """
        results = self._checked()
        manifest: dict[str, Any] = {
            "command": "study",
            "seed": "unknown",
            **attributes(results),
        }
        target = pathlib.Path(path)
        # a folder takes the usual name
        target = target / "report.html" if target.is_dir() else target
        if self.is_sweep:
            with tempfile.TemporaryDirectory() as folder:
                place = pathlib.Path(folder)
                text = _report_sweep.sweep_page(manifest, results, place)
        else:
            text = _report.study_page(manifest, results, spec=results)
        require(
            target.parent.is_dir(),
            "out",
            "must be a file that can be written",
            str(target),
        )
        write_whole(target, text)
        return target

    def _checked(self) -> xr.Dataset:
        """Return the data set; raise if it is no study's."""
        results = self._results
        is_study = self.is_sweep or {"scheme", "round", "client"} <= set(results.dims)
        rule = "must be those of a study, of `study.run` or `study.open_study`"
        require(is_study, "results", rule, sorted(map(str, results.dims)))
        return results
