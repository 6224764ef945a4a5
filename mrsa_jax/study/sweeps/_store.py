"""The folder of a sweep.

Its grid, the records of its points, and who computes which of them.
A point is claimed by a lock on a byte that its key chooses, which the system takes back
however a process ends. Locks save work, nothing more: where they do not hold, a point
is computed twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.study.settings._config import different_settings, to_dict
from mrsa_jax.study.stores import _store
from mrsa_jax.study.stores._files import read_json, write_json
from mrsa_jax.study.stores._records import Index, Log, framed
from mrsa_jax.study.stores._view import SCHEMA, View, cells_of
from mrsa_jax.study.sweeps._axes import Axis, Sweep
from mrsa_watch._base.errors import (
    ConfigurationError,
    OutputExistsError,
    StoreError,
    require,
    writing,
)
from mrsa_watch._base.locks import locked, unlock

if TYPE_CHECKING:
    from mrsa_jax.study.stores._runner import Variable
    from mrsa_jax.study.sweeps._keys import Identity

_MANIFEST = "study.json"
_SOURCE = "study.toml"
_LOCK = "points.lock"
_LAYOUT_LOCK = "layout.lock"


def check_sweep_output(sweep: Sweep) -> None:
    """Check that a sweep may be written or continued in its folder.

    Raises:
        OutputExistsError: If it holds something else and `overwrite` is not set.
        ConfigurationError: If it cannot be a folder, or holds another schema.
        StoreError: If it may not be written.
    """
    if sweep.reuse is not None:
        manifest_of(sweep.reuse, "reuse")
        # records are read from the other folder while this one is cleared
        is_kept = not sweep.overwrite or sweep.reuse.resolve() != sweep.out.resolve()
        require(
            is_kept,
            "reuse",
            "must not be the folder that is replaced",
            str(sweep.reuse),
        )
    manifest = read_json(sweep.out / _MANIFEST)
    if (
        manifest is not None
        and manifest.get("command") == "sweep"
        and not sweep.overwrite
    ):
        if manifest.get("schema") != SCHEMA:
            raise ConfigurationError(
                f"`out` must hold a store of schema {SCHEMA}; got "
                f"{manifest.get('schema')!r} in "
                f"{str(sweep.out)!r}, which opens and reports as before: choose "
                "another --out"
            )
        if not os.access(sweep.out, os.W_OK):
            raise StoreError(f"`out` must be a writable folder; got {str(sweep.out)!r}")
        return
    present = [
        name
        for name in (_LAYOUT_LOCK, _MANIFEST, "run.json")
        if (sweep.out / name).exists()
    ]
    # else laid out when it was killed, or its manifest was lost
    if present != [_LAYOUT_LOCK]:
        _store.check_output(sweep.config)


def manifest_of(folder: pathlib.Path, argument: str) -> dict[str, Any]:
    """Return the manifest of a sweep's folder; raise if it is none."""
    manifest = read_json(folder / _MANIFEST) or {}
    good = manifest.get("command") == "sweep" and manifest.get("schema") == SCHEMA
    require(
        good, argument, f"must be the folder of a sweep of schema {SCHEMA}", str(folder)
    )
    return manifest


class SweepStore:
    """An open folder of a sweep.

    Args:
        sweep: What it holds; its folder must be laid out.
    """

    def __init__(self, sweep: Sweep) -> None:
        """Open the folder."""
        self.sweep = sweep
        self.path = sweep.out.absolute()
        self.index = Index(self.path)
        self._log = Log.of(self.path)
        self._claims = _Claims(self.path / _LOCK)

    @classmethod
    def create(
        cls,
        sweep: Sweep,
        cells: np.ndarray,
        variables: Mapping[str, Variable],
        inner: Mapping[str, int],
    ) -> SweepStore:
        """Lay the folder out, or open an existing one, whose grid may be extended.

        Args:
            sweep: What is studied.
            cells: What each cell is to show, of `CELL`.
            variables: What each point has.
            inner: Lengths of the dimensions within a point.
        """
        check_sweep_output(sweep)
        path = sweep.out.absolute()
        with _as_store_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            with (path / _LAYOUT_LOCK).open("ab") as file:
                # held until the grid is written: no process sees half a layout
                locked(file, waits=True)
                check_sweep_output(sweep)  # again: another process may have laid it out
                if sweep.overwrite:
                    _check_not_in_use(path)
                    _clear(path)
                manifest = read_json(path / _MANIFEST)
                grid = _shown(sweep, cells, variables, inner)
                if not _shows(sweep, manifest, grid, cells):
                    if manifest is not None:
                        _check_extends(sweep, manifest, cells)
                        _check_not_in_use(path)
                    _lay_out(sweep, path, cells, grid)
        return cls(sweep)

    def write(
        self,
        identity: Identity,
        first: int,
        count: int,
        values: Mapping[str, Any],
        seconds: float,
    ) -> None:
        """Write a point, or a range of its trials.

        Raises:
            StoreError: If the disk is full or not writable; the store stays sound.
        """
        header = {
            "key": identity.key,
            "settings": identity.settings,
            "first": first,
            "count": count,
            "kept": sorted(self.sweep.kept),
            "seconds": seconds,
            "made_by": json.dumps(identity.made_by, sort_keys=True),
        }
        # one frame, one write: a reader finds the whole point or none
        self.take(framed(header, values))

    def take(self, frame: bytes) -> None:
        """Write a frame as it is."""
        with _as_store_errors(self.path):
            self.index.add_own(self._log.path, self._log.append(frame), frame)

    @contextlib.contextmanager
    def claim(self, keys: Mapping[int, str]) -> Iterator[list[int]]:
        """Hold points that no other process computes; yield their numbers."""
        with _as_store_errors(self.path):
            held = [
                number for number, key in keys.items() if self._claims.take(_byte(key))
            ]
        try:
            self.index.refresh()  # another may have finished one in between
            yield held
        finally:
            for number in held:
                self._claims.give(_byte(keys[number]))

    def show(self) -> None:
        """Put the results together, for readers without this package."""
        manifest = read_json(self.path / _MANIFEST)
        assert manifest is not None
        with _as_store_errors(self.path), (self.path / _LAYOUT_LOCK).open("ab") as file:
            locked(file, waits=True)
            # under the lock, as two writers would mix their arrays
            view = View(self.path, manifest, self.index)
            if not view.is_current():
                view.write()

    def close(self) -> None:
        """Have the disk keep all records, and let go of the lock file."""
        with _as_store_errors(self.path):
            self._log.close()
        self._claims.close()


def _shown(
    sweep: Sweep,
    cells: np.ndarray,
    variables: Mapping[str, Variable],
    inner: Mapping[str, int],
) -> dict[str, Any]:
    """Return a manifest's words about the grid, as JSON has it."""
    used = {dim for variable in variables.values() for dim in variable.dims}
    # which round a test is of differs between points
    lengths = {dim: length for dim, length in inner.items() if dim in used}
    coordinates: list[Any] = [
        [name, name, list(range(length)), {}]
        for name, length in lengths.items()
        if name != "evaluation"
    ]
    for axis in sweep.axes:
        labels = sweep.labels(axis)
        for name, (field, values) in zip(
            _coordinates(axis), labels.items(), strict=True
        ):
            coordinates.append([name, axis.name, values, {"field": field}])
    taken = {name for axis in sweep.axes for name in _coordinates(axis)}
    grid = {
        "axes": [axis.name for axis in sweep.axes],
        "shape": sweep.shape,
        "cells": f"cells-{hashlib.sha256(cells.tobytes()).hexdigest()[:16]}.npy",
        "kept": sorted(sweep.kept),
        "inner": lengths,
        "coordinates": coordinates,
        "variables": [
            [name, array.dims, array.dtype, array.units, array.description]
            for name, array in variables.items()
        ],
        "stored": {name: f"{name}_found" for name in variables if name in taken},
    }
    return dict(json.loads(json.dumps(grid)))


def _lay_out(
    sweep: Sweep, path: pathlib.Path, cells: np.ndarray, grid: dict[str, Any]
) -> None:
    """Write the grid; the manifest, which makes the folder a study, comes last."""
    part = path / f"{grid['cells']}.part"
    with part.open("wb") as file:
        np.save(file, cells)
    # a rename is atomic: the name shows whole contents only
    part.replace(path / grid["cells"])
    if sweep.source:
        (path / _SOURCE).write_text(sweep.source, encoding="utf-8")
    manifest = _store.provenance(sweep.config) | {
        "schema": SCHEMA,
        "swept": sweep.kind.name,
        "axes": [
            {"name": axis.name, "fields": list(axis.fields)} for axis in sweep.axes
        ],
        "view": grid,
    }
    del manifest["made_by"]  # each record has its own
    write_json(path / _MANIFEST, manifest)
    # only now, as the manifest no longer names them
    for old in path.glob("cells-*"):
        if old.name != grid["cells"]:
            old.unlink()


def _shows(
    sweep: Sweep,
    manifest: Mapping[str, Any] | None,
    grid: Any,
    cells: np.ndarray,
) -> bool:
    """Return whether the folder is laid out like this, and undamaged."""
    if manifest is None or manifest.get("view") != grid:
        return False
    if manifest.get("config", {}).get("best_over") != sweep.best_over:
        return False
    try:
        return np.array_equal(cells_of(sweep.out, manifest), cells)
    # cells that are missing or damaged are written again
    except ConfigurationError:
        return False


def _check_extends(sweep: Sweep, manifest: dict[str, Any], cells: np.ndarray) -> None:
    """Raise unless the new grid shows all cells that the folder shows."""
    differing = different_settings(manifest.get("config", {}), to_dict(sweep.config))
    if not differing:
        return
    new = _trials_by_settings(cells)
    old = _trials_by_settings(cells_of(sweep.out, manifest))
    # no cell of before may be lost, or have fewer trials
    extends = all(new.get(settings, -1) >= trials for settings, trials in old.items())
    if extends and set(manifest["view"]["kept"]) <= set(sweep.kept):
        return
    words = "; ".join(f"{n} is {b} now and was {a}" for n, a, b in differing[:3])
    raise OutputExistsError(
        f"`out` must not hold another sweep; got {str(sweep.out)!r}, which holds "
        "points of "
        f"{manifest.get('created')} that this one has not ({words}): choose another "
        "--out, with "
        f"--reuse {str(sweep.out)!r} for what both have, or replace it with --overwrite"
    )


def _trials_by_settings(cells: np.ndarray) -> dict[bytes, int]:
    trials_of: dict[bytes, int] = {}
    for settings, trials in zip(
        cells["settings"].tolist(), cells["trials"].tolist(), strict=True
    ):
        if settings:
            # cells of equal settings are one point, of which the most trials count
            trials_of[settings] = max(trials, trials_of.get(settings, 0))
    return trials_of


def _coordinates(axis: Axis) -> list[str]:
    """Return the names of the settings that change along an axis, its own first."""
    return [axis.name, *(field.rpartition(".")[2] for field in axis.fields[1:])]


def _clear(path: pathlib.Path) -> None:
    """Remove the study that was there, its manifest first."""
    # without a manifest the rest is no study, should this be interrupted
    (path / _MANIFEST).unlink(missing_ok=True)
    for path_inside in path.iterdir():
        # a lock file that is replaced would no longer exclude those who hold the old
        # one
        if path_inside.name in (_LAYOUT_LOCK, _LOCK):
            continue
        if path_inside.is_dir() and not path_inside.is_symlink():
            shutil.rmtree(path_inside)
        else:
            path_inside.unlink()


def _check_not_in_use(path: pathlib.Path) -> None:
    """Raise if another process computes points of the folder."""
    with (path / _LOCK).open("ab") as file:
        # a length of 0 locks to the end of the file, so any claim of another conflicts
        if not locked(file, 0, 0):
            raise OutputExistsError(
                f"`out` must not be in use; got {str(path)!r}, which another process "
                "fills"
            )


def _as_store_errors(path: pathlib.Path) -> contextlib.AbstractContextManager[None]:
    """Say what a failure to write means for the store."""
    return writing(
        path,
        more="; what is complete is kept, and the same command continues from there",
    )


def _byte(key: str) -> int:
    """Return the byte of the lock file that belongs to a point."""
    # 48 bits of the key: far below the mark of `_Claims`, and hardly ever shared
    return int(key[:12], 16)


class _Claims:
    """Locks on points.

    A byte of one file each, held by this process and by one of its threads.
    Record locks work on network file systems too. They belong to a process, so threads
    are kept apart by a set. One more byte, of the process alone, says that it is at
    work here.
    """

    def __init__(self, path: pathlib.Path) -> None:
        with _as_store_errors(path.parent):
            self._file: IO[bytes] = path.open("ab")
        self._mutex = threading.Lock()
        self._own: set[int] = set()
        # beyond all points, and random: several processes may be at work here
        self.take(2**50 + int.from_bytes(os.urandom(4), "big"))

    def take(self, number: int) -> bool:
        """Return whether the point is ours now."""
        with self._mutex:
            # the set first: the system would grant this process the same byte twice
            if number in self._own or not locked(self._file, 1, number):
                return False
            self._own.add(number)
            return True

    def give(self, number: int) -> None:
        """Let a point go."""
        with self._mutex:
            self._own.discard(number)
            unlock(self._file, 1, number)

    def close(self) -> None:
        """Close the file, which lets all go."""
        self._file.close()
