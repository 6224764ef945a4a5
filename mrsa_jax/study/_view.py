"""What a sweep shows.

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

from mrsa_jax.study._files import replace, restore_replaced
from mrsa_jax.study._records import Index, Layout
from mrsa_jax.study._runner import Variable
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    import xarray as xr

STORE = "results.zarr"
SCHEMA = 2
"""Of the folder of a sweep: a log of records, and the grid of their keys."""
CELL = np.dtype([("key", "S64"), ("settings", "S64"), ("trials", "<i4")])
"""What a cell of the grid shows: so many trials of the point with this key.

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
    """Read what the cells of a sweep's folder show; raise if that is lost or damaged."""
    shown = manifest.get("view")
    cells = None
    if _is_whole(shown):
        assert isinstance(shown, dict)
        cells = _read_cells(folder / shown["cells"], math.prod(shown["shape"]))
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
    part = io.BytesIO()
    np.save(part, np.zeros(count, CELL))
    size = len(part.getvalue())
    try:
        with path.open("rb") as file:
            content = file.read(size + 1)
        if len(content) != size:
            return None
        cells: np.ndarray = np.load(io.BytesIO(content))
    except (OSError, ValueError, EOFError):
        return None
    return cells if cells.dtype == CELL and cells.shape == (count,) else None


def _is_whole(shown: Any) -> bool:
    """Return whether a manifest's words about a grid are all there, and fit together."""
    try:
        lengths = shown["inner"] | dict(zip(shown["axes"], shown["shape"], strict=True))
        texts = [
            shown["cells"],
            *shown["axes"],
            *shown["kept"],
            *shown["stored"].values(),
        ]
        good = all(type(length) is int and length >= 0 for length in lengths.values())
        good = good and pathlib.PurePath(shown["cells"]).name == shown["cells"]
        for name, dim, values, facts in shown["coordinates"]:
            good = good and len(values) == lengths[dim] and isinstance(facts, dict)
            texts.append(name)
        for name, dims, dtype, units, description in shown["variables"]:
            good = (
                good
                and np.dtype(dtype).kind in "fibU"
                and set(dims) <= {*shown["inner"]}
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
        self.told = {k: json.dumps(own) for k, own in manifest.items() if k != "view"}
        self.shown = manifest["view"]
        self.variables = {
            n: Variable(tuple(dims), *own) for n, dims, *own in self.shown["variables"]
        }
        self.layout = Layout(self.variables, self.shown["inner"])
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
        """Return what tells the store that is derived from these files from all others."""
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
        own = {
            name: xr.Variable([dim], np.asarray(values), facts, fastpath=True)
            for name, dim, values, facts in self.shown["coordinates"]
        }
        return xr.Dataset(data, own, self.told | self._losses())

    def _losses(self) -> dict[str, str]:
        """Return what the log has lost, as the results' attributes say it."""
        losses = self.index.losses()
        return {"damaged": json.dumps(losses)} if losses else {}

    def _from_store(self) -> xr.Dataset:
        """Open the store, or what it would be, lazily loaded."""
        import zarr

        source: Any = self.folder / STORE
        if not self.is_current():
            made = zarr.core.buffer.cpu.Buffer.from_bytes
            source = zarr.storage.MemoryStore(
                {n: made(own) for n, own in self._files()}
            )
        results = open_arrays(source)
        del results.attrs["made_of"]
        return results

    def _stored(self, name: str) -> str:
        """Return what a variable is called here.

        An axis may have the name that points use.
        """
        return str(self.shown["stored"].get(name, name))

    def _files(self) -> Iterator[tuple[str, bytes]]:
        """Go through the files of the store: their names, and what is in them.

        zarr takes eight times as long (48 ms for 90 cells, not 6), and 0.1 s to be
        imported.
        """
        token = self.token()
        self.index.refresh()
        told: dict[str, Any] = {".zgroup": {"zarr_format": 2}}
        arrays: list[Any] = []
        for name, dim, values, facts in self.shown["coordinates"]:
            own = np.asarray(values)
            arrays.append((name, [dim], facts, own.dtype, own.shape, own.shape, None))
            yield f"{name}/0", zlib.compress(own.tobytes(), 1)
        for name, variable in self._all.items():
            inner, fill = self._inner[name], variable.fill
            dims, dtype = (
                [*self.shown["axes"], *variable.dims],
                np.dtype(variable.dtype),
            )
            sizes = (
                self._shape + inner,
                self._chunks + inner,
                "NaN" if fill != fill else fill,
            )
            arrays.append((self._stored(name), dims, variable.facts, dtype, *sizes))
        for name, dims, facts, dtype, shape, chunks, fill in arrays:
            array = {
                "shape": shape,
                "chunks": chunks,
                "dtype": dtype.str,
                "fill_value": fill,
            }
            told[f"{name}/.zarray"] = {**_ARRAY, **array}
            told[f"{name}/.zattrs"] = {**facts, "_ARRAY_DIMENSIONS": dims}
        for place in self._places:
            numbers = [
                str(own.start // step)
                for own, step in zip(place, self._chunks, strict=True)
            ]
            for name, values in self._block(
                self.cells.reshape(self._shape)[place]
            ).items():
                whole = self._chunks + self._inner[name]
                chunk = np.full(whole, self._all[name].fill, values.dtype)
                empty = chunk.tobytes()
                chunk[tuple(map(slice, values.shape))] = values
                content = chunk.tobytes()
                if content != empty:  # else zarr has no file either
                    at = ".".join([*numbers, *"0" * len(self._inner[name])])
                    yield f"{self._stored(name)}/{at}", zlib.compress(content, 1)
        # those that are not named after their axis are listed
        others = [name for name, dim, *_ in self.shown["coordinates"] if name != dim]
        listed = {"coordinates": " ".join(others)} if others else {}
        told[".zattrs"] = (
            self.told | listed | self._losses() | {"made_of": json.dumps(token)}
        )
        told[".zmetadata"] = {"metadata": dict(told), "zarr_consolidated_format": 1}
        for name, content in told.items():
            yield name, json.dumps(content).encode()

    def _block(self, cells: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of some cells."""
        points, point_of = np.unique(cells, return_inverse=True)
        found = {
            name: np.full((points.size, *self._inner[name]), one.fill, one.dtype)
            for name, one in self._all.items()
        }
        names = self.variables.keys()
        for k, cell in enumerate(points):
            key, trials = cell["key"].decode(), int(cell["trials"])
            kept = self.shown["kept"]
            parts = self.index.parts(
                key, trials, kept, whole=self.is_whole, layout=self.layout
            )
            if not parts or parts[-1].end < trials:
                continue
            found["done"][k] = True
            found["seconds"][k] = sum(part.seconds for part in parts)
            start = 0
            for part in parts:
                end = min(part.end, trials)
                for name, value in part.values(names).items():
                    place: list[Any] = [slice(length) for length in value.shape]
                    if self.variables[name].dims[:1] == ("trial",):
                        value = value[start - part.first : end - part.first]
                        place[0] = slice(start, end)
                    found[name][(k, *place)] = value
                start = end
        return {name: own[point_of.reshape(cells.shape)] for name, own in found.items()}


def num_files(
    shape: tuple[int, ...], variables: Mapping[str, Variable], inner: Mapping[str, int]
) -> int:
    """Return how many files a folder has filled by one process, apart from a few of zarr's."""
    widths = [tuple(inner[dim] for dim in own.dims) for own in variables.values()]
    _, places = _blocks(shape, _limit(widths))
    return len({**variables, **_OWN}) * (len(places) + 2) + len(shape) * 3 + 8


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
) -> tuple[tuple[int, ...], list[tuple[slice, ...]]]:
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
    starts = (
        range(0, length, step) for length, step in zip(shape, chunks, strict=True)
    )
    return tuple(chunks), [
        tuple(slice(a, a + step) for a, step in zip(place, chunks, strict=True))
        for place in itertools.product(*starts)
    ]
