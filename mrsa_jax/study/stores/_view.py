"""Fill the arrays of a sweep's grid from records, and keep them as a zarr store.

Arrays over its grid, filled from records, and kept as a zarr store.
The store is derived: it is made anew from the log whenever it is not of the present
records.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import math
import os
import pathlib
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.study.stores._files import replace, restore_replaced
from mrsa_jax.study.stores._records import Index, Layout
from mrsa_jax.study.stores._runner import Variable
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    import xarray as xr

STORE = "results.zarr"
SCHEMA = 2
"""Of the folder of a sweep: a log of records, and the grid of their keys."""
CELL = np.dtype([("key", "S64"), ("settings", "S64"), ("trials", "<i4")])
"""A cell of the grid: so many trials of the point with this key.

Empty: it has none.
"""
_MOST_CELLS, _MOST_BYTES = 4096, 2**26  # of a chunk
_IN_MEMORY = 2**28  # bytes that are read at once where a study is opened
_FROM_LOG = 1024  # cells: reading their records takes 0.1 s, and loading zarr as long
_ARRAY = {
    "order": "C",
    "filters": None,
    "dimension_separator": ".",
    "compressor": {"id": "zlib", "level": 1},
    "zarr_format": 2,
}
_OWN = {
    "done": Variable((), "bool", "1", "Whether the point is complete"),
    "seconds": Variable((), "float64", "s", "Time that the point took"),
}


def cells_of(folder: pathlib.Path, manifest: Mapping[str, Any]) -> np.ndarray:
    """Read the cells of a sweep's folder; raise if the file is lost or damaged."""
    grid = manifest.get("view")
    cells = None
    if _is_whole(grid):
        assert isinstance(grid, dict)
        cells = _read_cells(folder / grid["cells"], math.prod(grid["shape"]))
    rule = (
        "must hold a whole sweep, or be given to the same sweep again, which mends it"
    )
    require(cells is not None, "folder", rule, str(folder))
    assert cells is not None
    return cells


def _read_cells(path: pathlib.Path, count: int) -> np.ndarray | None:
    """Return cells as they were saved.

    None unless the file holds so many, and nothing else.
    """
    # an array of this size tells how long a whole file is: a damaged header must
    # not make NumPy reserve memory for a larger one
    part = io.BytesIO()
    np.save(part, np.zeros(count, CELL))
    size = len(part.getvalue())
    try:
        with path.open("rb") as file:
            # a byte more, so that a longer file is noticed too
            content = file.read(size + 1)
        if len(content) != size:
            return None
        cells: np.ndarray = np.load(io.BytesIO(content))
    except (OSError, ValueError, EOFError):
        return None
    return cells if cells.dtype == CELL and cells.shape == (count,) else None


def _is_whole(grid: Any) -> bool:
    """Return whether a manifest describes a grid fully and consistently."""
    try:
        lengths = grid["inner"] | dict(zip(grid["axes"], grid["shape"], strict=True))
        texts = [
            grid["cells"],
            *grid["axes"],
            *grid["kept"],
            *grid["stored"].values(),
        ]
        good = all(type(length) is int and length >= 0 for length in lengths.values())
        # a bare name: a manifest must not point outside of its folder
        good = good and pathlib.PurePath(grid["cells"]).name == grid["cells"]
        for name, dim, values, facts in grid["coordinates"]:
            good = good and len(values) == lengths[dim] and isinstance(facts, dict)
            texts.append(name)
        for name, dims, dtype, units, description in grid["variables"]:
            good = (
                good
                and np.dtype(dtype).kind in "fibU"
                and set(dims) <= {*grid["inner"]}
            )
            texts += [name, units, description]
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return good and all(isinstance(text, str) for text in texts)


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
        self.cells = cells_of(folder, manifest)
        # attributes of a data set are texts, hence JSON
        self.told = {
            k: json.dumps(value) for k, value in manifest.items() if k != "view"
        }
        self.shown = manifest["view"]
        self.variables = {
            n: Variable(tuple(dims), *value)
            for n, dims, *value in self.shown["variables"]
        }
        self.layout = Layout(self.variables, self.shown["inner"])
        # results of all trials together have no axis of trials
        self.is_whole = "trial" not in self.shown["inner"]
        self.index = index or Index(folder)
        self._shape = tuple(self.shown["shape"])
        self._all = self.variables | _OWN
        self._inner = {
            name: tuple(self.shown["inner"][dim] for dim in variable.dims)
            for name, variable in self._all.items()
        }
        self._chunks, self._places = _blocks(self._shape, _limit(self._inner.values()))

    def token(self) -> str:
        """Return a digest that only the store derived from these files has."""
        sizes = Index(self.folder).sizes()
        return hashlib.sha256(
            json.dumps([_ARRAY, self.shown, sizes]).encode()
        ).hexdigest()

    def is_current(self) -> bool:
        """Return whether the store is of the present records."""
        try:
            attributes = json.loads(
                (self.folder / STORE / ".zattrs").read_text(encoding="utf-8")
            )
            return bool(attributes["made_of"] == json.dumps(self.token()))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False

    def write(self) -> None:
        """Put the store in its place, whole; one process at a time."""
        # a writer that was killed between two renames left the old store aside
        restore_replaced(self.folder / STORE)
        part = self.folder / f".{STORE}.partial-{os.getpid()}"
        try:
            for name, content in self._files():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            replace(part, self.folder / STORE)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def opened(self) -> xr.Dataset:
        """Open the results as an xarray data set.

        From the log, or from the store if it has many.
        Those that fit the memory are loaded: a sweep that is extended replaces the
        store's files.
        """
        import xarray as xr

        # 8 bytes for each number, as the widest types have
        size = 8 * math.prod(self._shape) * sum(map(math.prod, self._inner.values()))
        if size > _IN_MEMORY:
            return self._from_store()
        if self.cells.size > _FROM_LOG and self.is_current():
            # it is damaged: zarr and codecs raise their own
            with contextlib.suppress(Exception):
                results = self._from_store().load()
                if self.is_current():  # else it was replaced while it was read
                    return results
        self.index.refresh()
        data = {}
        for name, values in self._block(self.cells.reshape(self._shape)).items():
            variable, encoding = self._all[name], {}
            if values.dtype.kind in "if":
                encoding = {"dtype": values.dtype, "_FillValue": variable.fill}
            if values.dtype.kind == "i":  # without a value nan, which no mean takes in
                # as xarray reads them
                dtype = np.float32 if values.itemsize <= 2 else np.float64
                values = np.where(values == variable.fill, np.nan, values).astype(dtype)
            facts = (
                [*self.shown["axes"], *variable.dims],
                values,
                variable.facts,
                encoding,
            )
            # else it loads dask
            data[self._stored(name)] = xr.Variable(*facts, fastpath=True)
        coordinates = {
            name: xr.Variable([dim], np.asarray(values), facts, fastpath=True)
            for name, dim, values, facts in self.shown["coordinates"]
        }
        return xr.Dataset(data, coordinates, self.told | self._losses())

    def _losses(self) -> dict[str, str]:
        """Return the losses of the log, as an attribute of the results."""
        losses = self.index.losses()
        return {"damaged": json.dumps(losses)} if losses else {}

    def _from_store(self) -> xr.Dataset:
        """Open the store, or what it would be, lazily loaded."""
        import zarr

        source: Any = self.folder / STORE
        if not self.is_current():
            made = zarr.core.buffer.cpu.Buffer.from_bytes
            source = zarr.storage.MemoryStore(
                {n: made(content) for n, content in self._files()}
            )
        results = open_arrays(source)
        del results.attrs["made_of"]
        return results

    def _stored(self, name: str) -> str:
        """Return the name of a variable in the store.

        An axis may have the name that points use.
        """
        return str(self.shown["stored"].get(name, name))

    def _files(self) -> Iterator[tuple[str, bytes]]:
        """Go through the files of the store: their names, and what is in them.

        zarr takes eight times as long (48 ms for 90 cells, not 6), and 0.1 s to be
        imported.
        """
        # taken before the records are read: later ones make the store out of date
        token = self.token()
        self.index.refresh()
        metadata: dict[str, Any] = {".zgroup": {"zarr_format": 2}}
        for name, dim, values, facts in self.shown["coordinates"]:
            array = np.asarray(values)
            sizes: dict[str, Any] = {
                "shape": array.shape,
                "chunks": array.shape,
                "fill_value": None,
            }
            metadata |= _described(name, [dim], facts, array.dtype, sizes)
            yield f"{name}/0", zlib.compress(array.tobytes(), 1)
        for name, variable in self._all.items():
            inner = self._inner[name]
            fill = variable.fill
            sizes = {
                "shape": self._shape + inner,
                "chunks": self._chunks + inner,
                # nan alone differs from itself, and JSON has no nan
                "fill_value": "NaN" if fill != fill else fill,
            }
            dims = [*self.shown["axes"], *variable.dims]
            dtype = np.dtype(variable.dtype)
            metadata |= _described(
                self._stored(name), dims, variable.facts, dtype, sizes
            )
        # a chunk holds some cells with all that is in them: its number on each axis of
        # the grid comes first in its name, and 0 on each axis within a point
        grid = self.cells.reshape(self._shape)
        for place in self._places:
            numbers = [
                part.start // step
                for part, step in zip(place, self._chunks, strict=True)
            ]
            for name, values in self._block(grid[place]).items():
                inner = self._inner[name]
                chunk = np.full(
                    self._chunks + inner, self._all[name].fill, values.dtype
                )
                empty = chunk.tobytes()
                # the last chunk on an axis may reach over the grid's end
                chunk[tuple(map(slice, values.shape))] = values
                content = chunk.tobytes()
                if content != empty:  # else zarr has no file either
                    at = ".".join(map(str, [*numbers, *[0] * len(inner)]))
                    yield f"{self._stored(name)}/{at}", zlib.compress(content, 1)
        attributes = self.told | self._losses() | {"made_of": json.dumps(token)}
        # coordinates that are not named after their axis are listed
        others = [name for name, dim, *_ in self.shown["coordinates"] if name != dim]
        if others:
            attributes["coordinates"] = " ".join(others)
        metadata[".zattrs"] = attributes
        metadata[".zmetadata"] = {
            "metadata": dict(metadata),
            "zarr_consolidated_format": 1,
        }
        for name, content in metadata.items():
            yield name, json.dumps(content).encode()

    def _block(self, cells: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of some cells."""
        # equal cells show one point, which is read once
        points, point_of = np.unique(cells, return_inverse=True)
        values = {
            name: np.full(
                (points.size, *self._inner[name]), variable.fill, variable.dtype
            )
            for name, variable in self._all.items()
        }
        names = self.variables.keys()
        for k, cell in enumerate(points):
            trials = int(cell["trials"])
            parts = self.index.parts(
                cell["key"].decode(),
                trials,
                self.shown["kept"],
                whole=self.is_whole,
                layout=self.layout,
            )
            if not parts or parts[-1].end < trials:
                continue
            values["done"][k] = True
            values["seconds"][k] = sum(part.seconds for part in parts)
            # records may overlap: each gives the trials that those before it lack
            start = 0
            for part in parts:
                end = min(part.end, trials)
                for name, value in part.values(names).items():
                    place: list[Any] = [slice(length) for length in value.shape]
                    if self.variables[name].dims[:1] == ("trial",):
                        value = value[start - part.first : end - part.first]
                        place[0] = slice(start, end)
                    values[name][(k, *place)] = value
                start = end
        return {
            name: own[point_of.reshape(cells.shape)] for name, own in values.items()
        }


def _described(
    name: str, dims: list[str], facts: Any, dtype: np.dtype[Any], sizes: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the two files of metadata that zarr has of an array."""
    return {
        f"{name}/.zarray": {**_ARRAY, **sizes, "dtype": dtype.str},
        f"{name}/.zattrs": {**facts, "_ARRAY_DIMENSIONS": dims},
    }


def num_files(
    shape: tuple[int, ...], variables: Mapping[str, Variable], inner: Mapping[str, int]
) -> int:
    """Estimate the number of files in a folder that one process has filled."""
    widths = [
        tuple(inner[dim] for dim in variable.dims) for variable in variables.values()
    ]
    _, places = _blocks(shape, _limit(widths))
    return len({**variables, **_OWN}) * (len(places) + 2) + len(shape) * 3 + 8


def _limit(widths: Iterable[tuple[int, ...]]) -> int:
    """Return the number of cells in a chunk, by the sizes of their contents."""
    # a chunk holds whole cells: the largest array within one decides their number
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
) -> tuple[tuple[int, ...], list[tuple[slice, ...]]]:
    """Return the shape of chunks of at most so many cells, and where each of them lies.

    Examples:
        >>> _blocks((3, 5, 4), 8)[0]
        (1, 2, 4)
    """
    # fill chunks from the last axis on; where an axis is cut, those before it have
    # chunks of one, so that a chunk is one run of cells
    chunks = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        # rounded up twice: the fewest pieces, of about one size
        pieces = -(-shape[axis] // limit)
        chunks[axis] = -(-shape[axis] // pieces)
        # cells that are left for the axes before this one
        limit //= chunks[axis]
        if pieces > 1 or limit < 2:
            break
    starts = (
        range(0, length, step) for length, step in zip(shape, chunks, strict=True)
    )
    return tuple(chunks), [
        tuple(slice(a, a + step) for a, step in zip(place, chunks, strict=True))
        for place in itertools.product(*starts)
    ]
