"""A cache on disk for data sets that are slow to read.

One .npz a set, written whole or not at all.
Each file carries a digest and remembers what it was made from (folder, names, sizes and
times of the files); when that has changed, or a bit of the file, it is made again.
Plain .npz: compressing 47 MB of digits took 20 s, against 0.2 s without.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mrsa_jax._core.sealed import Arrays, read_sealed, write_sealed
from mrsa_watch._base.errors import require

_VERSION = 3  # of the files' content: another version is made again
_ABOUT = "about"
# a part file as old as this belongs to a process that was killed
_STALE_SECONDS = 3600.0


def cache_directory() -> pathlib.Path:
    """Return the folder of cached data sets.

    `MRSA_JAX_CACHE`, or the platform's place for them.
    """
    chosen = os.environ.get("MRSA_JAX_CACHE")
    if chosen:
        return pathlib.Path(chosen).expanduser()
    home = pathlib.Path.home()
    if os.environ.get("XDG_CACHE_HOME"):
        base = pathlib.Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        base = pathlib.Path(os.environ["LOCALAPPDATA"])
    else:
        base = home / ".cache"
    return base / "mrsa_jax" / "data"


def cached(
    name: str,
    source: pathlib.Path,
    files: Iterable[pathlib.Path],
    read: Callable[[], Arrays],
) -> Arrays:
    """Return the arrays that `read` makes of a source's files, or their cached copy.

    A folder that cannot be written is no error: the arrays are then read each time.

    Args:
        name: Of the data set; letters, digits, "-" and "_" of it name the file.
        source: Folder of the files; sets of one name from two folders are kept apart.
        files: What the arrays are made from; their sizes and times are the key.
        read: Reads them, slowly.

    Returns:
        Arrays by name.
    """
    about: dict[str, Any] = {
        "version": _VERSION,
        "name": name,
        "source": str(source.resolve()),
        "files": [
            [path.name, path.stat().st_size, path.stat().st_mtime_ns]
            for path in sorted(files)
        ],
    }
    path = _path(name, about["source"])
    kept_before = _read(path)
    # A changed size or time of any file makes the copy stale.
    if kept_before is not None and kept_before[0] == about:
        return kept_before[1]
    arrays = read()
    with contextlib.suppress(OSError):
        _write(path, about, arrays)
    return arrays


def cached_paths(name: str) -> list[pathlib.Path]:
    """Return the cached files of a data set from any source, newest first."""
    paths = cache_directory().glob(f"{_stem(name)}-{'[0-9a-f]' * 12}.npz")
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def read_cached(
    name: str, folders: Sequence[pathlib.Path] | None = None
) -> Arrays | None:
    """Return the cached arrays of a set, without its source; a warning names it.

    So a cache that was copied to another machine serves there without the prepared set.
    Where the source is still there but has changed, the file does not count.

    Args:
        name: Of the data set.
        folders: Its source must be one of these or lie in one; any if None.

    Returns:
        Arrays by name, or None if there is no valid copy.

    Raises:
        ConfigurationError: If valid copies of several sources differ; names them.
    """
    allowed = None if folders is None else [folder.resolve() for folder in folders]
    copies: dict[str, Arrays] = {}
    for path in cached_paths(name):
        about, arrays = _read(path) or ({}, {})
        if about.get("name") != name or _has_changed(about):
            continue
        source = pathlib.Path(about["source"])
        if allowed is None or {source, *source.parents}.intersection(allowed):
            same = (at for at, other in copies.items() if _are_equal(other, arrays))
            copies.setdefault(next(same, about["source"]), arrays)
    # the set as `load` names it
    label = name.removeprefix("tfds-")
    rule = (
        f"must name one of the folders that differing copies of {label!r} were read "
        f"from: {', '.join(sorted(copies))}"
    )
    require(len(copies) <= 1, "directory", rule)
    for source_name, arrays in copies.items():
        warnings.warn(
            f"data set {label!r} is the cached copy of what was read from "
            f"{source_name}",
            RuntimeWarning,
            stacklevel=2,
        )
        return arrays
    return None


def _are_equal(first: Arrays, second: Arrays) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(array, second[name]) for name, array in first.items()
    )


def source_of(path: pathlib.Path) -> str:
    """Return the folder that a cached file was read from; empty for a broken file."""
    about, _ = _read(path) or ({}, {})
    return str(about.get("source", ""))


def _has_changed(about: dict[str, Any]) -> bool:
    for name, size, time_ns in about["files"]:
        path = pathlib.Path(about["source"]) / name
        # A source that was removed is no change: the cached copy stays usable.
        if path.is_file() and [path.stat().st_size, path.stat().st_mtime_ns] != [
            size,
            time_ns,
        ]:
            return True
    return False


def _read(path: pathlib.Path) -> tuple[dict[str, Any], Arrays] | None:
    """Read a cached file, or None if no valid one exists."""
    arrays = read_sealed(path, path.name)
    if arrays is None:
        return None
    about = json.loads(str(arrays.pop(_ABOUT)))
    return (about, arrays) if about["version"] == _VERSION else None


def _write(path: pathlib.Path, about: dict[str, Any], arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f"{path.stem}.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > _STALE_SECONDS:
                stale.unlink()
    write_sealed(path, path.name, {_ABOUT: np.asarray(json.dumps(about)), **arrays})


def _stem(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)


def _path(name: str, source: str) -> pathlib.Path:
    """Return the file of a set: one for each folder that it is read from."""
    digest = hashlib.sha256(f"{name}\n{source}".encode()).hexdigest()[:12]
    return cache_directory() / f"{_stem(name)}-{digest}.npz"
