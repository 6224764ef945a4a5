"""Folders of sweeps that were computed apart become one.

All is compared before anything is written. Then the grid is laid out, and records are
copied as they are: after an interruption the folder is a sweep that lacks points, and
the same call resumes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.study._progress import Progress, checked_progress, warn
from mrsa_jax.study.kinds import swept_kind
from mrsa_jax.study.publishing._accessor import open_study
from mrsa_jax.study.settings._config import studied
from mrsa_jax.study.settings._load import from_dict
from mrsa_jax.study.stores._files import read_json
from mrsa_jax.study.stores._records import Index, Record
from mrsa_jax.study.stores._runner import Variable
from mrsa_jax.study.stores._view import CELL, View
from mrsa_jax.study.sweeps._axes import (
    Axis,
    Sweep,
    check_axes,
    hint_of,
    hints_of,
    read_field,
)
from mrsa_jax.study.sweeps._keys import RANGED
from mrsa_jax.study.sweeps._store import SweepStore, manifest_of
from mrsa_watch._base.errors import ConfigurationError, is_number, require

if TYPE_CHECKING:
    import xarray as xr

_COMPUTED = {"float64": (1e-9, 0.0), "float32": (2.0**-23, 0.0)}
"""Relative and absolute tolerance of floats of one key on two machines.

In double precision they are sums and decompositions, which are known to nine digits; in
single precision one quotient of two integers, which is rounded once.
"""
_TRAINED = 0.1, 0.05
"""The same of what follows from trained numbers.

No power of the precision bounds it: a sum in another order moves an update to another
level of the quantizer, and training amplifies that. With SSE and with AVX2 a CPU's
losses of a convex model differed by 1e-6 after 200 rounds, those of networks by up to
0.07, their accuracies by 0.04, and what their updates share by 0.012. Integers, as who
was in which sum, are compared to the bit.
"""


def merge(
    folders: Sequence[str | pathlib.Path],
    out: str | pathlib.Path,
    *,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Combine the points of several sweeps in one folder, and open it.

    Use it for a study whose parts were computed on machines without a common disk. Axes
    get the values of all folders, and settings that differ between them become axes;
    cells that no folder has stay empty. Trials of a point that two folders have are
    compared: integers to the bit, floats to nine digits, those of single precision to
    the last. Results of trained numbers may differ by a tenth or by 0.05, because
    machines round differently. Nothing is computed, and merging again changes nothing.

    Args:
        folders: Folders of sweeps of one command.
        out: Folder of the result: a new one, or that of a sweep, whose points are kept.
        progress: Receives warnings of records that are damaged, whose points stay
            empty.

    Returns:
        Data set of all of them, as `sweep` returns it.

    Raises:
        ConfigurationError: If a folder holds no sweep or one of another command, axes
            do not fit together, or a point that two folders have differs: nothing is
            written then.
        OutputExistsError: If `out` holds something else.
        StoreError: If it cannot be written.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pathlib, tempfile
        >>> below = pathlib.Path(tempfile.mkdtemp())
        >>> small = {"rounds": 5, "trials": 2}
        >>> small["population"] = {"num_clients": 6, "cohort_size": 3}
        >>> for seed in (0, 1):
        ...     grid = {"scheme": ["uniform", "weighted"]}
        ...     study = small | {"seed": seed, "grid": grid}
        ...     _ = mj.study.sweep(study, out=below / str(seed))
        >>> both = mj.study.merge([below / "0", below / "1"], below / "both")
        >>> dict(both["done"].sizes), int(both["done"].sum())
        ({'scheme': 2, 'seed': 2}, 4)
    """
    good = isinstance(folders, list | tuple) and len(folders) > 0
    good = good and all(isinstance(folder, str | os.PathLike) for folder in folders)
    require(good, "folders", "must be a list of folders of sweeps", folders)
    require(
        isinstance(out, str | os.PathLike), "out", "must be the path of a folder", out
    )
    target = pathlib.Path(out)
    # one folder by two names is read once
    paths = {path.resolve(): path for path in map(pathlib.Path, folders)}
    # points that the target already holds take part in all comparisons
    if (read_json(target / "study.json") or {}).get("command") == "sweep":
        paths.setdefault(target.resolve(), target)
    parts = [_part(path) for path in paths.values()]
    for part in parts:
        for text in part.index.losses():
            warn(checked_progress(progress), f"{text}: what they held is left out")
    # before anything is written, as it may raise
    union, cells = _union(parts)
    for place, part in enumerate(parts):
        for other in parts[:place]:
            _check_agree(other, part)
    variables: dict[str, Variable] = {}
    inner: dict[str, int] = {}
    for part in parts:
        variables |= part.view.variables
        for dim, length in part.view.shown["inner"].items():
            inner[dim] = max(length, inner.get(dim, 0))
    union = dataclasses.replace(union, out=target)
    with contextlib.closing(SweepStore.create(union, cells, variables, inner)) as store:
        store.index.refresh()
        for record in (folder for part in parts for folder in part.records()):
            # a merge that is repeated copies nothing twice
            if not any(
                sizes.first == record.first
                and sizes.end >= record.end
                and sizes.kept >= record.kept
                for sizes in store.index.records.get(record.key, ())
            ):
                store.take(record.frame())
        store.show()
    return open_study(target)


@dataclasses.dataclass(frozen=True)
class _Part:
    """A folder that is merged: what it studies, its cells and its records by key."""

    sweep: Sweep
    view: View
    index: Index

    def records(self) -> Iterator[Record]:
        """Go through all of its records."""
        return itertools.chain.from_iterable(self.index.records.values())

    def rows(self) -> Iterator[tuple[tuple[int, ...], dict[str, Any], Any]]:
        """Go through the cells.

        Place, what the axes set there, and what is to be shown.
        """
        for index, cell in zip(
            np.ndindex(*self.sweep.shape), self.view.cells, strict=True
        ):
            yield index, dict(self.sweep.changes(index)), cell

    def named(self, key: str) -> str:
        """Return in words where the point with a key is."""
        places = np.flatnonzero(self.view.cells["key"] == key.encode())
        if not len(places):
            return f"point {key[:12]}"  # of code or files that have changed since
        index = np.unravel_index(int(places[0]), self.sweep.shape)
        return self.sweep.named(tuple(map(int, index)))


def _part(folder: pathlib.Path) -> _Part:
    manifest = manifest_of(folder, "folders")
    index = Index(folder).refresh()
    view = View(folder, manifest, index)
    # of another version, perhaps: a grid has no place for them
    index.drop_unfit(view.layout)
    return _Part(_swept(manifest["config"]), view, index)


def _swept(config: Mapping[str, Any]) -> Sweep:
    """Return the sweep whose `SweepConfig` a folder's manifest holds."""
    kind = swept_kind(config["swept"])
    axes = []
    for axis in config["axes"]:
        hints = [
            hint_of(kind.settings, field, axis["name"]) for field in axis["fields"]
        ]
        rows = tuple(
            tuple(
                None if value is None else read_field(hint, value, axis["name"])
                for hint, value in zip(hints, row, strict=True)
            )
            for row in axis["values"]
        )
        axes.append(Axis(axis["name"], tuple(axis["fields"]), rows))
    keep = config.get("keep")
    return Sweep(
        kind,
        from_dict(kind.settings, dict(config["base"]), ""),
        tuple(axes),
        pathlib.Path(config["out"]),
        skip_impossible=config["skip_impossible"],
        trajectories=config["trajectories"],
        keep=tuple(keep) if keep else None,
    )


def _union(parts: Sequence[_Part]) -> tuple[Sweep, np.ndarray]:
    """Return the sweep over all values of all axes, and its cells.

    Those of nobody are empty.
    """
    sweeps = [part.sweep for part in parts]
    kinds = list(dict.fromkeys(sweep.kind.name for sweep in sweeps))
    require(len(kinds) == 1, "folders", "must hold sweeps of one command", *kinds)
    # axes that change the same fields are one axis; the last name of it counts
    named = {axis.fields: axis.name for sweep in sweeps for axis in sweep.axes}
    swept = set(itertools.chain.from_iterable(named))
    # trials of a point are a range that can be extended, not an axis
    ranged = ("trials",) if kinds[0] in RANGED else ()
    for field, hint in hints_of(sweeps[0].kind.settings):
        if dataclasses.is_dataclass(hint) or not studied(
            {field.partition(".")[0]: None}
        ):
            # no setting by itself, or one that does not decide what a point is
            continue
        differs = any(
            _at(sweep.base, field) != _at(sweeps[0].base, field) for sweep in sweeps
        )
        if differs and field not in (*swept, *ranged):
            named[(field,)] = field.rpartition(".")[2]

    def row(
        part: _Part, fields: tuple[str, ...], changed: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        return tuple(changed.get(name, _at(part.sweep.base, name)) for name in fields)

    values: dict[tuple[str, ...], dict[tuple[Any, ...], int]] = {
        fields: {} for fields in named
    }
    # values of an axis in the order in which folders have them
    for part in parts:
        for _, changed, _ in part.rows():
            for fields, rows in values.items():
                rows.setdefault(row(part, fields, changed), len(rows))
    # numbers of one field are sorted
    for fields, rows in values.items():
        if all(
            len(row_values) == 1 and is_number(row_values[0]) for row_values in rows
        ):
            values[fields] = {
                row_values: place for place, row_values in enumerate(sorted(rows))
            }
    axes = [Axis(name, fields, tuple(values[fields])) for fields, name in named.items()]
    check_axes(axes)
    cells = np.zeros([len(axis.values) for axis in axes], CELL)
    for part in parts:
        for index, changed, cell in part.rows():
            place = tuple(
                rows[row(part, fields, changed)] for fields, rows in values.items()
            )
            cell_there = cells[place]
            # an empty cell contradicts nothing
            if cell["key"] and cell_there["key"] not in (b"", cell["key"]):
                raise ConfigurationError(
                    "`folders` must hold points of the same code, files and version; "
                    "got "
                    f"{part.sweep.named(index)}, which {str(part.view.folder)!r} has "
                    "of others: "
                    "nothing was merged; run the sweep again in one of them"
                )
            # of one point, the cell with the most trials
            if cell["key"] and cell["trials"] > cell_there["trials"]:
                cells[place] = cell
    base = sweeps[0].base
    if ranged:
        base = dataclasses.replace(
            base, trials=max(sweep.base.trials for sweep in sweeps)
        )
    keep = [
        name
        for name in sweeps[0].keep or ()
        if all(name in row_values.kept for row_values in sweeps)
    ]
    union = dataclasses.replace(
        sweeps[0],
        base=base,
        axes=tuple(axes),
        trajectories=all(sweep.trajectories for sweep in sweeps),
        keep=tuple(keep) or None,
    )
    return union, cells.ravel()


def _at(settings: Any, field: str) -> Any:
    return functools.reduce(getattr, field.split("."), settings)


def _check_agree(first_part: _Part, other: _Part) -> None:
    """Raise for the first point of which two folders have different trials."""
    variables = first_part.view.variables | other.view.variables
    is_trained = getattr(
        first_part.sweep.kind.runner(), "is_trained", lambda name: False
    )
    for b in other.records():
        for a in first_part.index.records.get(b.key, ()):
            # the trials that both records have
            first, end = max(a.first, b.first), min(a.end, b.end)
            # values of all trials together compare only over the same trials
            whole = first_part.view.is_whole and (a.first, a.end) != (b.first, b.end)
            if first >= end or whole:
                continue
            for name, trials in _differing(variables, (a, b), first, end, is_trained):
                where = f" of trials {trials[0]} to {trials[-1]}" if len(trials) else ""
                raise ConfigurationError(
                    "`folders` must agree on the points that both have; got "
                    f"{other.named(b.key)}, which differs between "
                    f"{str(first_part.view.folder)!r} and "
                    f"{str(other.view.folder)!r} in {name}{where}, with the same "
                    "settings and "
                    "code: nothing was merged. One of them is damaged, or a change of "
                    "the package "
                    "that changes results was not told in COMPUTES_ALIKE"
                )


def _differing(
    variables: Mapping[str, Variable],
    both: tuple[Record, Record],
    first: int,
    end: int,
    is_trained: Callable[[str], bool],
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the variables that differ between two records, each with the trials."""
    a, b = (record.values(variables) for record in both)
    for name in (name for name in variables if name in a and name in b):
        is_by_trial = variables[name].dims[:1] == ("trial",)
        # without a trial dimension, all of it counts as one
        x, y = a[name][None], b[name][None]
        if is_by_trial:
            x, y = (
                values[name][first - r.first : end - r.first]
                for values, r in zip((a, b), both, strict=True)
            )
        same = np.zeros(len(x), bool)
        if x.shape == y.shape and x.dtype == y.dtype:
            bounds = (
                _TRAINED
                if is_trained(name)
                else _COMPUTED.get(x.dtype.name, (0.0, 0.0))
            )
            # True: nan equals nan
            close = np.isclose(x, y, *bounds, True) if x.dtype.kind == "f" else x == y
            same = close.reshape(len(x), -1).all(axis=1)
        if not same.all():
            trials = first + np.flatnonzero(~same)
            yield name, trials if is_by_trial else trials[:0]
