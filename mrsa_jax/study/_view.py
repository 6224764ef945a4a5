"""What a sweep shows: arrays over its grid, filled from records, and kept as a zarr store.

The store is derived: it is made anew from the log whenever it is not of the present records.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.study._records import Index, Record
from mrsa_jax.study._runner import Variable

if TYPE_CHECKING:
    import xarray as xr

STORE = "results.zarr"
SCHEMA = 2
"""Of the folder of a sweep: a log of records, and the grid of their keys."""
CELL = np.dtype([("key", "S64"), ("settings", "S64"), ("trials", "<i4")])
"""What a cell of the grid shows: so many trials of the point with this key; empty: it has none."""
_MOST_CELLS, _MOST_BYTES = 4096, 2**26  # of a chunk
_IN_MEMORY = 2**28  # bytes that are read at once where a study is opened
_OWN = {
    "done": Variable((), "bool", "1", "Whether the point is complete"),
    "seconds": Variable((), "float64", "s", "Time that the point took"),
}


def variables_of(shown: Mapping[str, Any]) -> dict[str, Variable]:
    """Return the variables of a manifest's view, by the names that points have for them."""
    return {name: Variable(tuple(dims), *own) for name, dims, *own in shown["variables"]}


class View:
    """The grid of a sweep's folder and the records that fill it.

    Args:
        folder: The folder.
        manifest: Its `study.json`.
        index: Of its log, where it is read already.
    """

    def __init__(
        self, folder: pathlib.Path, manifest: dict[str, Any], index: Index | None = None
    ) -> None:
        """Read the cells."""
        self.folder = folder
        self.manifest = {name: own for name, own in manifest.items() if name != "view"}
        self.shown = manifest["view"]
        self.cells: np.ndarray = np.load(folder / self.shown["cells"])
        self.variables = variables_of(self.shown)
        self.is_whole = "trial" not in self.shown["inner"]
        self._index = index

    @property
    def index(self) -> Index:
        """The present records."""
        self._index = self._index or Index(self.folder)
        return self._index.refresh()

    def parts(self, index: Index, cell: Any) -> list[Record]:
        """Return the records of a cell, as far as there are any."""
        key, trials = cell["key"].decode(), int(cell["trials"])
        return index.parts(key, trials, self.shown["kept"], whole=self.is_whole)

    def token(self) -> str:
        """Return what tells the store that is derived from these files from all others."""
        sizes = Index(self.folder).sizes()
        return hashlib.sha256(json.dumps([self.shown, sizes]).encode()).hexdigest()

    def is_current(self) -> bool:
        """Return whether the store is of the present records."""
        try:
            attributes = json.loads((self.folder / STORE / ".zattrs").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(attributes.get("made_of") == json.dumps(self.token()))

    def write(self) -> None:
        """Put the store in its place, whole; one process at a time."""
        for one in self.folder.glob(f".{STORE}.*"):  # of one that was killed
            shutil.rmtree(one, ignore_errors=True)
        part = self.folder / f".{STORE}.partial-{os.getpid()}"
        old = self.folder / f".{STORE}.replaced-{os.getpid()}"
        try:
            self._fill(part, self.token())
            if (self.folder / STORE).exists():
                (self.folder / STORE).rename(old)
            part.rename(self.folder / STORE)
        finally:
            for one in (part, old):
                shutil.rmtree(one, ignore_errors=True)

    def opened(self) -> xr.Dataset:
        """Open the results as an xarray data set: the store's, or, where it is older, the log's."""
        import zarr

        source: Any = self.folder / STORE
        if not self.is_current():
            source = zarr.storage.MemoryStore()
            self._fill(source, self.token())
        results = open_arrays(source)
        del results.attrs["made_of"]
        # a sweep that is extended replaces the files that a lazy array would read later
        return results.load() if results.nbytes <= _IN_MEMORY else results

    def _fill(self, target: Any, token: str) -> None:
        """Write all arrays to a folder or a store of zarr."""
        import zarr  # alone: xarray takes seconds to import, and is not needed for this

        group: Any = zarr.open_group(target, mode="w", zarr_format=2)
        _add_coordinates(group, self.shown["coordinates"])
        shape = tuple(self.shown["shape"])
        inner = {
            name: tuple(self.shown["inner"][dim] for dim in variable.dims)
            for name, variable in (self.variables | _OWN).items()
        }
        chunks, blocks = _blocks(shape, _limit(inner.values()))
        arrays, axes = {}, self.shown["axes"]
        for name, variable in (self.variables | _OWN).items():
            arrays[name] = group.create_array(
                self.shown["stored"].get(name, name),
                shape=shape + inner[name],
                chunks=chunks + inner[name],
                dtype=variable.dtype,
                fill_value=variable.fill,
                attributes={  # with it: to add them later writes a file again
                    "_ARRAY_DIMENSIONS": [*axes, *variable.dims],
                    "units": variable.units,
                    "description": variable.description,
                    "fill": None if variable.fill != variable.fill else variable.fill,
                },
            )
        index = self.index
        for place in blocks:
            for name, values in self._block(index, self.cells.reshape(shape)[place], inner).items():
                arrays[name][place] = values
        told = {key: json.dumps(value) for key, value in self.manifest.items()}
        group.attrs.update(told | {"made_of": json.dumps(token)})
        zarr.consolidate_metadata(group.store, zarr_format=2)

    def _block(
        self, index: Any, cells: np.ndarray, inner: Mapping[str, tuple[int, ...]]
    ) -> dict[str, np.ndarray]:
        """Return the values of some cells."""
        variables = self.variables | _OWN
        found = {
            name: np.full((cells.size, *inner[name]), one.fill, one.dtype)
            for name, one in variables.items()
        }
        names = self.variables.keys()
        for k, cell in enumerate(cells.ravel()):
            if not cell["key"]:
                continue
            parts = self.parts(index, cell)
            if not parts or parts[-1].end < cell["trials"]:
                continue
            found["done"][k] = True
            found["seconds"][k] = sum(part.seconds for part in parts)
            start = 0
            for part in parts:
                end = min(part.end, int(cell["trials"]))
                for name, value in part.values(names).items():
                    place: list[Any] = [slice(length) for length in value.shape]
                    if self.variables[name].dims[:1] == ("trial",):
                        value = value[start - part.first : end - part.first]
                        place[0] = slice(start, end)
                    found[name][(k, *place)] = value
                start = end
        return {name: own.reshape(cells.shape + inner[name]) for name, own in found.items()}


def num_files(
    shape: tuple[int, ...], variables: Mapping[str, Variable], inner: Mapping[str, int]
) -> int:
    """Return how many files a folder has filled by one process, apart from a few of zarr's."""
    widths = [tuple(inner[dim] for dim in own.dims) for own in variables.values()]
    chunks, _ = _blocks(shape, _limit(widths))
    each = math.prod(-(-length // step) for length, step in zip(shape, chunks, strict=True))
    return len({**variables, **_OWN}) * (each + 2) + len(shape) * 3 + 8


def _limit(widths: Iterable[tuple[int, ...]]) -> int:
    """Return how many cells are in a chunk, by the lengths of what they hold."""
    widest = max(map(math.prod, widths))
    return min(_MOST_CELLS, max(1, _MOST_BYTES // (8 * widest)))


def open_arrays(source: Any) -> xr.Dataset:
    """Open a store of arrays, lazily loaded."""
    import xarray as xr

    return xr.open_zarr(
        source,
        chunks=None,  # the same with dask and without
        consolidated=False,
        zarr_format=2,
        # numbers without a value are nan, which no mean takes in
        mask_and_scale={"done": False, "label": False},
    )


def _blocks(
    shape: tuple[int, ...], limit: int
) -> tuple[tuple[int, ...], Iterator[tuple[slice, ...]]]:
    """Return the shape of chunks of at most so many cells, and where each of them lies.

    Examples:
        >>> _blocks((3, 5, 4), 8)[0]
        (1, 2, 4)
    """
    chunks = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        pieces = -(-shape[axis] // limit)
        chunks[axis] = -(-shape[axis] // pieces)
        limit //= chunks[axis]
        if pieces > 1 or limit < 2:
            break
    starts = (range(0, length, step) for length, step in zip(shape, chunks, strict=True))
    return tuple(chunks), (
        tuple(slice(a, a + step) for a, step in zip(place, chunks, strict=True))
        for place in itertools.product(*starts)
    )


def _add_coordinates(group: Any, coordinates: Iterable[Sequence[Any]]) -> None:
    """Write coordinates as xarray does; those that are not named after their axis are listed."""
    others = []
    for name, dim, values, attributes in coordinates:
        own = np.asarray(values)
        told = {**attributes, "_ARRAY_DIMENSIONS": [dim]}
        group.create_array(name, data=own, chunks=own.shape, fill_value=None, attributes=told)
        others += [name] * (name != dim)
    if others:
        group.attrs.update({"coordinates": " ".join(others)})
