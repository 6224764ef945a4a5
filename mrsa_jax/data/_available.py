"""Which data sets are on this machine, where, and what the others need. Reads no data."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Literal

from mrsa_jax.data import _sources
from mrsa_jax.data._cache import cached_paths

State = Literal["installed", "prepared", "cached", "missing", "name a directory"]

_CONTENT = {
    "mnist_5k": "5,000 digits 28x28x1, 10 classes",
    "digits": "1,797 digits 8x8x1, 10 classes",
    "mnist": "60,000 + 10,000 digits 28x28x1, 10 classes",
    "fashion_mnist": "60,000 + 10,000 clothes 28x28x1, 10 classes",
    "cifar10": "50,000 + 10,000 photographs 32x32x3, 10 classes",
    "cifar100": "50,000 + 10,000 photographs 32x32x3, 100 classes",
    "olivetti": "400 faces 64x64x1, 40 people",
    "idx": "four IDX files: MNIST, Fashion-MNIST and others",
    "cifar": "binary files of CIFAR-10 or CIFAR-100",
}


@dataclasses.dataclass(frozen=True)
class SourceStatus:
    """Where one data set is.

    Attributes:
        name: As `load` takes it.
        state: `"installed"` (inside a package), `"prepared"`, `"cached"` (its source is gone),
            `"missing"`, or `"name a directory"` for files that only the user knows of.
        content: Samples, shape and classes in words.
        where: Folder or file, or None.
        num_bytes: Bytes there, or None.
        how: What to do to have it; empty when it is here.
    """

    name: str
    state: State
    content: str
    where: str | None = None
    num_bytes: int | None = None
    how: str = ""

    @property
    def is_here(self) -> bool:
        """Whether `load(name)` works as it is."""
        return self.state in ("installed", "prepared", "cached")


def available(directory: str | os.PathLike[str] | None = None) -> tuple[SourceStatus, ...]:
    """Report for each known data set whether it is on this machine.

    Args:
        directory: Data folder of tensorflow-datasets; its default if None.

    Returns:
        One status for each set that `load` knows by name.

    Examples:
        >>> import mrsa_jax as mj
        >>> [status.name for status in mj.data.available()] == list(mj.data.SOURCES)
        True
    """
    own = {name: f"load({name!r}, directory=DIR)" for name in ("idx", "cifar")}
    return (
        *(_here(name, "installed", _sources.packaged(name)) for name in _sources.PACKAGED),
        *(_prepared(name, directory) for name in _sources.PREPARED),
        *(SourceStatus(name, "name a directory", _CONTENT[name], how=how)
          for name, how in own.items()),
        _olivetti(),
    )  # fmt: skip


def _prepared(name: str, directory: str | os.PathLike[str] | None) -> SourceStatus:
    folder = _sources.prepared_folder(name, directory)
    if folder is not None:
        return _here(name, "prepared", folder)
    if directory is None:
        for path in cached_paths(f"tfds-{name}"):
            return _here(name, "cached", path)
        if name == "fashion_mnist" and _sources.FASHION_DIRECTORY.is_dir():
            return _here(name, "installed", _sources.FASHION_DIRECTORY)
    where = str(_sources.tfds_directory(directory) / name)
    how = f"mrsa-jax data prepare {name}"
    return SourceStatus(name, "missing", _CONTENT[name], where, how=how)


def _olivetti() -> SourceStatus:
    path = _sources.olivetti_file(None)
    if path.is_file():
        return _here("olivetti", "prepared", path)
    for cached in cached_paths("olivetti"):
        return _here("olivetti", "cached", cached)
    how = "in Python: sklearn.datasets.fetch_olivetti_faces()"
    return SourceStatus("olivetti", "missing", _CONTENT["olivetti"], str(path), how=how)


def _here(name: str, state: State, where: pathlib.Path) -> SourceStatus:
    files = [where] if where.is_file() else [path for path in where.rglob("*") if path.is_file()]
    num_bytes = sum(path.stat().st_size for path in files)
    return SourceStatus(name, state, _CONTENT[name], str(where), num_bytes)
