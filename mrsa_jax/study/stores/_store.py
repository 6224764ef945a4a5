"""Where results go: an xarray/zarr store with provenance, written whole or not at all.

A run collects everything in a hidden folder next to its target and renames it when
complete, so an interruption never leaves a half-written study and never costs the one
that was there before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import math
import os
import pathlib
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.sources import commit
from mrsa_jax.study.settings._attributes import with_attributes
from mrsa_jax.study.settings._config import Settings, command_of, config_hash, to_dict
from mrsa_jax.study.stores import _files, _run_folder, _sources, _view
from mrsa_watch._base.errors import (
    ConfigurationError,
    OutputExistsError,
    StoreError,
    require,
    writing,
)

if TYPE_CHECKING:
    import xarray as xr

_MANIFEST = "study.json"
_STORE = "results.zarr"
_SCHEMA = 1
_version = functools.cache(metadata.version)  # it reads a file


def provenance(config: Settings, *, is_check: bool = False) -> dict[str, Any]:
    """Return the facts that repeat a study.

    Settings, their hash, versions, machine, time.
    `is_check`: as `_sources.Sources` takes it.
    """
    from mrsa_jax._core.device_words import device_name  # imports JAX

    names = ("mrsa_jax", "jax", "jaxlib", "numpy", "flax", "optax", "xarray", "zarr")
    return {
        "schema": _SCHEMA,
        "command": command_of(type(config)),
        "config_hash": config_hash(config),
        "config": to_dict(config),
        "seed": getattr(config, "seed", None),  # an audit draws nothing
        "versions": {name: _version(name) for name in names},
        "python": platform.python_version(),
        "device": device_name(),
        "commit": commit(),
        "made_by": _sources.Sources(is_check=is_check).of(config),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def check_output(config: Settings) -> pathlib.Path:
    """Return the output folder if this study may be written there.

    Call before any work.
    Free are a folder that does not exist, an empty one, and one that holds the same
    study (the same settings), which a new run replaces.

    Raises:
        OutputExistsError: If the folder holds another study and `overwrite` is not set,
            or anything that is no study at all.
        ConfigurationError: If it cannot be a folder.
        StoreError: If it may not be written.
    """
    out = config.out
    parent = out.absolute().parent
    # the nearest folder that exists decides whether a new one can be made
    while not parent.exists():
        parent = parent.parent
    if (out.exists() and not out.is_dir()) or not parent.is_dir():
        raise ConfigurationError(f"`out` must be a folder; got {str(out)!r}")
    if not os.access(parent, os.W_OK):
        raise StoreError(f"`out` must lie in a writable folder; got {str(out)!r}")
    if _run_folder.is_free(out):
        return out
    _run_folder.check_not_in_use(out)
    run, study = _run_folder.unfinished_run(out), _files.read_json(out / _MANIFEST)
    if run is None and study is None:
        raise OutputExistsError(
            f"`out` must be empty, new, or hold a study; got {str(out)!r}, which holds "
            "other files"
        )
    if run is not None:
        _run_folder.check_unfinished(config, run)
    if study is not None and not _run_folder.is_resumed(config, run):
        _check_finished(config, study)
    return out


def _check_finished(config: Settings, manifest: dict[str, Any]) -> None:
    if getattr(config, "resume", False):
        return _run_folder.check_unfinished(config, manifest)
    theirs, ours = manifest["config_hash"], config_hash(config)
    if theirs != ours and not config.overwrite:
        raise OutputExistsError(
            f"`out` must not hold another study; got {str(config.out)!r}, which holds "
            f"{manifest.get('command')} {theirs} of {manifest.get('created')} (this "
            "one is "
            f"{ours}): choose another --out, or replace it with --overwrite"
        )
    return None


def is_complete(config: Settings) -> bool:
    """Return whether the output folder holds this very study, complete."""
    manifest = _files.read_json(config.out / _MANIFEST)
    # a run of the same settings that is under way would replace it
    same = manifest is not None and manifest["config_hash"] == config_hash(config)
    return same and _run_folder.unfinished_run(config.out) is None


def changes_since(config: Settings) -> tuple[str, ...]:
    """Say what has changed since the complete study in the output folder was made."""
    manifest = _files.read_json(config.out / _MANIFEST) or {}
    return _sources.changes(manifest.get("made_by"), _sources.made_by(config))


@dataclasses.dataclass(frozen=True)
class StudyFolder:
    """A study's folder while it is being written.

    Attributes:
        path: Folder to write into.
        manifest: Provenance, written to `study.json` and into the store.
    """

    path: pathlib.Path
    manifest: dict[str, Any]

    def write_results(self, results: xr.Dataset) -> None:
        """Write the data set, provenance in its attributes, to `results.zarr`."""
        # String coordinates have a fixed width in the store, so that every zarr reader
        # opens it.
        attributes = {key: json.dumps(value) for key, value in self.manifest.items()}
        stored = results.assign_attrs(attributes)
        stored = stored.assign_coords(scheme=stored["scheme"].astype("U"))
        stored.to_zarr(self.path / _STORE, mode="w", consolidated=False, zarr_format=2)


@contextlib.contextmanager
def study_folder(config: Settings, *, is_held: bool = False) -> Iterator[StudyFolder]:
    """Give a folder to write a study into, and move it to `config.out` on success.

    `is_held`: the output folder is that of this process's own run.

    On any exception, an interrupt included, what was written is removed and
    `config.out` is left as it was; a failure to write is a `StoreError`. Folders that
    killed runs left behind are removed by the next run.
    """
    out = config.out.absolute()
    if not is_held:
        check_output(config)
    # hidden, and next to its target: a rename within one folder is atomic
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    with writing(out, more="; what was there before is kept"):
        out.parent.mkdir(parents=True, exist_ok=True)
        _files.restore_replaced(out)
        partial.mkdir()
        try:
            manifest = provenance(config, is_check=is_held)
            yield StudyFolder(partial, manifest)
            _files.write_json(partial / _MANIFEST, manifest)
            _files.replace(partial, out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def folder_if_asked(config: Any) -> Iterator[StudyFolder | None]:
    """Give a folder as `study_folder`, or None where the settings name none."""
    if config.out is None:
        yield None
        return
    with study_folder(config) as folder:
        yield folder


def open_results(path: str | os.PathLike[str]) -> xr.Dataset:
    """Open the results of a study, lazily loaded, with the provenance as attributes.

    Raises:
        ConfigurationError: If the folder holds no complete study of a known schema, or
            one of weighted sums whose figures are of sums without weights.
    """
    is_path = isinstance(path, str | os.PathLike)
    require(is_path, "path", "must be the folder of a study", path)
    folder = pathlib.Path(path)
    manifest = _files.read_json(folder / _MANIFEST)
    is_sweep = manifest is not None and manifest.get("schema") == _view.SCHEMA
    if manifest is None or not (is_sweep or (folder / _STORE).is_dir()):
        half = _run_folder.unfinished_run(folder) is not None
        hint = ", whose run is not complete: --resume continues it" if half else ""
        raise ConfigurationError(
            f"`path` must be the folder of a study; got {str(folder)!r}{hint}"
        )
    if manifest.get("schema") not in (_SCHEMA, _view.SCHEMA):
        raise ConfigurationError(
            f"`path` must hold a study of schema {_SCHEMA} or {_view.SCHEMA}; got "
            f"{manifest.get('schema')!r}"
        )
    results = (
        _view.View(folder, manifest).opened()
        if is_sweep
        else _view.open_arrays(folder / _STORE)
    )
    provenance = {name: json.loads(text) for name, text in results.attrs.items()}
    aggregation = provenance.get("config", {}).get("aggregation", {})
    is_weighted = not is_sweep and aggregation.get("weighted", False)
    rule = (
        "must be a study whose figures count the weights of its sums, and this one was "
        "made by a "
        "version that took them for equal: run its settings again"
    )
    require(not is_weighted or "weights" in results, "path", rule, str(folder))
    return with_attributes(results, provenance)


def measured_drift(folder: pathlib.Path) -> tuple[float, float]:
    """Return memory and lasting share of updates, as a study's trainings measured them.

    Of several trainings the largest of each: updates that change less are hidden among
    fewer clients.

    Raises:
        ConfigurationError: If the folder holds no study that measured them.
    """
    rule = "must be the folder of a training that measured how updates drift"
    require((folder / _STORE).is_dir(), "drift", rule, str(folder))
    results = open_results(folder)
    names = ("update_memory", "update_lasting")
    measured = [np.ravel(results[name].values) for name in names if name in results]
    require(
        bool(measured) and bool(np.isfinite(measured).any()), "drift", rule, str(folder)
    )
    # nan: trainings that could not measure it
    memory, share = (float(np.nanmax(values)) for values in measured)
    return memory, share


def measured_spread(folder: pathlib.Path) -> float:
    """Return the spread of updates, as a run measured it; nan if it did not."""
    results = open_results(folder)
    if "update_spread" not in results:
        return math.nan
    return float(np.ravel(results["update_spread"].values)[0])
