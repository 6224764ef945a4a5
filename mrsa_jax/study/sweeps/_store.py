"""The store of a sweep: laid out whole at the start, each point written in its own chunks.

A point's `done` flag is written last, so a kill leaves no half point that counts; a digest of its
files is beside it, and a point that is damaged is computed again. Beside it too is what made the
point: versions, code and files, so that none is kept that would not be made so again. Points are
claimed by locks on single bytes of one file, which the system takes back however a process ends:
several processes share a store and never do a point twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from mrsa_jax.study import _store
from mrsa_jax.study._config import config_hash, different_settings, to_dict
from mrsa_jax.study._run_folder import changes, read_json, write_json
from mrsa_jax.study._runner import Variable
from mrsa_jax.study.sweeps._axes import Axis, Sweep
from mrsa_jax.study.sweeps._chunks import CellArray
from mrsa_watch._base.errors import (
    ConfigurationError,
    OutputExistsError,
    StoreError,
    require,
    writing,
)
from mrsa_watch._base.locks import locked, unlock

_MANIFEST = "study.json"
_SOURCE = "study.toml"
_STORE = "results.zarr"
_DIGESTS = "digests"
_LOCK = "points.lock"
_LAYOUT_LOCK = "layout.lock"
_MADE_BY = "made_by"
_IMPOSSIBLE = ("they are impossible now",)


def check_sweep_output(sweep: Sweep) -> None:
    """Check that a sweep may be written, or gone on with, in its folder.

    Raises:
        OutputExistsError: If it holds something else and `overwrite` is not set.
        ConfigurationError: If it cannot be a folder, or holds another schema.
        StoreError: If it may not be written.
    """
    config = sweep.config
    manifest = read_json(sweep.out / _MANIFEST)
    if manifest is not None and manifest.get("command") == "sweep" and not sweep.overwrite:
        theirs, ours = manifest["config_hash"], config_hash(config)
        if manifest.get("schema") != _store._SCHEMA:
            raise ConfigurationError(
                f"`out` must hold a store of schema {_store._SCHEMA}; got "
                f"{manifest.get('schema')!r} in {str(sweep.out)!r}"
            )
        if theirs != ours:
            differing = different_settings(manifest.get("config", {}), to_dict(config))
            shown = "; ".join(f"{n} is {b} now and was {a}" for n, a, b in differing[:3])
            raise OutputExistsError(
                f"`out` must not hold another sweep; got {str(sweep.out)!r}, which holds {theirs} "
                f"of {manifest.get('created')} (this one is {ours}: {shown}): choose another "
                "--out, or replace it with --overwrite"
            )
        if not os.access(sweep.out, os.W_OK):
            raise StoreError(f"`out` must be a writable folder; got {str(sweep.out)!r}")
        return
    there = [name for name in (_LAYOUT_LOCK, _MANIFEST, "run.json") if (sweep.out / name).exists()]
    if there != [_LAYOUT_LOCK]:  # else laid out when it was killed: nothing of worth is there
        _store.check_output(config)


class SweepStore:
    """An open store of a sweep.

    Args:
        sweep: What it holds.
    """

    def __init__(self, sweep: Sweep) -> None:
        """Open the store in the sweep's folder; it must be there."""
        self.sweep = sweep
        self.path = sweep.out.absolute()
        self._arrays: dict[str, CellArray] = {}
        self._claims = _Claims(self.path / _LOCK)
        self._has_digests = (self.path / _DIGESTS).is_dir()

    @classmethod
    def create(
        cls, sweep: Sweep, variables: Mapping[str, Variable], inner: Mapping[str, int]
    ) -> SweepStore:
        """Lay the store out, or open the one that is there.

        Args:
            sweep: What is studied.
            variables: What each point has.
            inner: Lengths of the dimensions within a point.
        """
        path = sweep.out.absolute()
        with _as_store_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            with (path / _LAYOUT_LOCK).open("ab") as file:
                locked(file, waits=True)
                check_sweep_output(sweep)
                is_there = read_json(path / _MANIFEST) is not None
                if not is_there or sweep.overwrite:
                    _check_not_in_use(path)
                    _clear(path)
                    _lay_out(sweep, path, variables, inner)
                _check_variables(sweep, path, variables)
            return cls(sweep)

    def done(self) -> np.ndarray:
        """Return which points are complete, a bool for each cell."""
        with _as_store_errors(self.path):
            return self._array("done").present()

    def is_done(self, index: tuple[int, ...]) -> bool:
        """Return whether a point is complete."""
        return self._array("done").has(index)

    def write(
        self,
        index: tuple[int, ...],
        values: Mapping[str, Any],
        seconds: float,
        made_by: Mapping[str, str],
    ) -> None:
        """Write a point, its flag last.

        Args:
            index: Its place.
            values: By variable.
            seconds: That it took.
            made_by: As `study._run_folder.made_by` returns it.

        Raises:
            StoreError: If the disk is full or not writable; the store stays sound.
        """
        with _as_store_errors(self.path):
            named = {_stored_name(self.sweep, name): value for name, value in values.items()}
            named |= {"seconds": seconds, "done": True}  # the flag last
            contents = {name: self._array(name).encoded(value) for name, value in named.items()}
            for name, content in contents.items():
                if name == "done":
                    (self.path / _DIGESTS).mkdir(exist_ok=True)  # which version 0.1 did not have
                    sealed = contents | {_MADE_BY: _as_bytes(made_by)}
                    digests = {one: _digest(index, one, own) for one, own in sealed.items()}
                    text = json.dumps({_MADE_BY: made_by, "digests": digests})
                    self._digests(index).write_text(text, encoding="ascii")
                self._array(name).put(index, content)

    def drop_damaged(self) -> list[tuple[int, ...]]:
        """Return the points whose files are not as they were written; they are no longer done.

        A point that another process holds is left to it, and a store of an earlier version, which
        kept no digests, is taken as it is.
        """
        found = []
        with _as_store_errors(self.path):
            for at in np.argwhere(self.done()) if self._has_digests else ():
                index = tuple(map(int, at))
                if self._is_sound(index):
                    continue
                number = int(np.ravel_multi_index(index, self.sweep.shape))
                if self._claims.take(number):
                    if not self._is_sound(index):  # unless it has just been written
                        self._array("done").put(index, b"")
                        found.append(index)
                    self._claims.give(number)
        return found

    def _is_sound(self, index: tuple[int, ...]) -> bool:
        digests, made_by = self._record(index)
        try:
            return "done" in digests and all(
                _digest(index, name, self._content(index, name, made_by)) == digest
                for name, digest in digests.items()
            )
        except (OSError, ValueError, TypeError):
            return False

    def _content(self, index: tuple[int, ...], name: str, made_by: Any) -> bytes:
        return _as_bytes(made_by) if name == _MADE_BY else self._array(name).stored(index)

    def _record(self, index: tuple[int, ...]) -> tuple[dict[str, Any], Any]:
        """Return the digests of a point, and what made it: None where that was not kept."""
        try:
            content = json.loads(self._digests(index).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return {}, None
        if not isinstance(content, dict):
            return {}, None
        digests = content.get("digests", content)  # plain in stores of version 1.0
        return (digests, content.get(_MADE_BY)) if isinstance(digests, dict) else ({}, None)

    def changed(self, index: tuple[int, ...], made_by: Mapping[str, str] | None) -> tuple[str, ...]:
        """Say what has changed since a complete point was made; None: that it cannot be made."""
        theirs = self._record(index)[1]
        return _IMPOSSIBLE if made_by is None else changes(theirs, made_by)

    def drop(self, index: tuple[int, ...], made_by: Mapping[str, str] | None) -> None:
        """Forget a point that something else has made, unless another process has it.

        What its arrays hold goes too: it may be impossible now, and not be written again.
        """
        number = int(np.ravel_multi_index(index, self.sweep.shape))
        with _as_store_errors(self.path):
            if not self._claims.take(number):
                return
            if self.is_done(index) and self.changed(index, made_by):
                for name in ("done", *sorted(self._record(index)[0])):
                    if name != _MADE_BY:
                        self._array(name).put(index, b"")
            self._claims.give(number)

    def _digests(self, index: tuple[int, ...]) -> pathlib.Path:
        return self.path / _DIGESTS / ".".join(map(str, index))

    def _array(self, name: str) -> CellArray:
        if name not in self._arrays:
            folder = self.path / _STORE / name
            self._arrays[name] = CellArray(folder, len(self.sweep.axes))
        return self._arrays[name]

    @contextlib.contextmanager
    def claim(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Hold points that nobody else computes; give those that are held and not done yet."""
        with _as_store_errors(self.path):
            held = [number for number in numbers if self._claims.take(number)]
        try:
            # one that another has finished in between must not be done again
            shape = self.sweep.shape
            yield [n for n in held if not self.is_done(tuple(map(int, np.unravel_index(n, shape))))]
        finally:
            for number in held:
                self._claims.give(number)

    def close(self) -> None:
        """Let go of the lock file."""
        self._claims.close()


def _lay_out(
    sweep: Sweep, path: pathlib.Path, variables: Mapping[str, Variable], inner: Mapping[str, int]
) -> None:
    """Create all arrays; the manifest, which makes the folder a study, comes last."""
    import zarr  # alone: xarray takes seconds to import, and is not needed before the results are

    manifest = _store.provenance(sweep.config)
    del manifest[_MADE_BY]  # each point has its own
    manifest |= {
        "swept": sweep.kind.name,
        "axes": [{"name": axis.name, "fields": list(axis.fields)} for axis in sweep.axes],
    }
    # which round a test is of differs between points
    used = {dim for variable in variables.values() for dim in variable.dims} - {"evaluation"}
    coords: dict[str, Any] = {k: (k, np.arange(n), {}) for k, n in inner.items() if k in used}
    for axis in sweep.axes:
        for name, (field, labels) in zip(
            _coordinates(axis), sweep.labels(axis).items(), strict=True
        ):
            coords[name] = (axis.name, labels, {"field": field})
    group: Any = zarr.open_group(path / _STORE, mode="w", zarr_format=2)
    group.attrs.update({key: json.dumps(value) for key, value in manifest.items()})
    _add_coordinates(group, coords)
    own = {
        "done": Variable((), "bool", "1", "Whether the point is complete"),
        "seconds": Variable((), "float64", "s", "Time that the point took"),
    }
    for name, variable in {**variables, **own}.items():
        shape = tuple(inner[dim] for dim in variable.dims)
        dims = [axis.name for axis in sweep.axes] + list(variable.dims)
        array = group.create_array(
            _stored_name(sweep, name),
            shape=sweep.shape + shape,
            chunks=(1,) * len(sweep.shape) + shape,
            dtype=variable.dtype,
            fill_value=variable.fill,
        )
        array.attrs.update(
            {
                "_ARRAY_DIMENSIONS": dims,
                "units": variable.units,
                "description": variable.description,
                "fill": None if variable.fill != variable.fill else variable.fill,
            }
        )
    (path / _DIGESTS).mkdir(exist_ok=True)
    if sweep.source:
        (path / _SOURCE).write_text(sweep.source, encoding="utf-8")
    write_json(path / _MANIFEST, manifest)


def _check_variables(sweep: Sweep, path: pathlib.Path, variables: Mapping[str, Variable]) -> None:
    """Raise if the store was laid out by a version that knew fewer variables."""
    names = [_stored_name(sweep, name) for name in variables]
    missing = [name for name in names if not (path / _STORE / name).is_dir()]
    rule = "must hold a sweep of this version, or be replaced with --overwrite; it lacks"
    require(not missing, "out", f"{rule} {', '.join(missing)}", str(path))


def _as_bytes(made_by: Any) -> bytes:
    return json.dumps(made_by, sort_keys=True).encode()


def _digest(index: tuple[int, ...], name: str, content: bytes) -> str:
    return hashlib.sha256(f"{index} {name}\n".encode() + content).hexdigest()


def _coordinates(axis: Axis) -> list[str]:
    """Return the names of the settings that change along an axis, the axis' own first."""
    return [axis.name, *(field.rpartition(".")[2] for field in axis.fields[1:])]


def _stored_name(sweep: Sweep, name: str) -> str:
    """Return a variable's name in the store, where an axis may have its name already."""
    is_taken = any(name in _coordinates(axis) for axis in sweep.axes)
    return f"{name}_found" if is_taken else name


def _add_coordinates(group: Any, coords: Mapping[str, tuple[str, Any, dict[str, Any]]]) -> None:
    """Write coordinates as xarray does; those that are not named after their axis are listed."""
    for name, (dim, values, attributes) in coords.items():
        own = np.asarray(values)
        array = group.create_array(name, data=own, chunks=own.shape, fill_value=None)
        array.attrs.update({**attributes, "_ARRAY_DIMENSIONS": [dim]})
    others = [name for name, (dim, _, _) in coords.items() if name != dim]
    if others:
        group.attrs.update({"coordinates": " ".join(others)})


def _clear(path: pathlib.Path) -> None:
    """Remove the study that was there, its manifest first."""
    (path / _MANIFEST).unlink(missing_ok=True)
    for one in path.iterdir():
        if one.name in (_LAYOUT_LOCK, _LOCK):
            continue
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def _check_not_in_use(path: pathlib.Path) -> None:
    """Raise if another process computes points of the store that is to be replaced."""
    with (path / _LOCK).open("ab") as file:
        if not locked(file, 0, 0):
            raise OutputExistsError(
                f"`out` must not be in use; got {str(path)!r}, which another process fills"
            )


def _as_store_errors(path: pathlib.Path) -> contextlib.AbstractContextManager[None]:
    """Say what a failure to write means for the store."""
    return writing(path, more="; what is complete is kept, and the same command goes on from there")


class _Claims:
    """Locks on points: a byte of one file each, held by this process and by one of its threads.

    Record locks work on network file systems too. They belong to a process, so threads are kept
    apart by a set.
    """

    def __init__(self, path: pathlib.Path) -> None:
        with _as_store_errors(path.parent):
            self._file: IO[bytes] = path.open("ab")
        self._mutex = threading.Lock()
        self._own: set[int] = set()

    def take(self, number: int) -> bool:
        """Return whether the point is ours now."""
        with self._mutex:
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
