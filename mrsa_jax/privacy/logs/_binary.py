"""Participation logs in Parquet, NPY and NPZ; places are rows and columns, counted from 0."""

from __future__ import annotations

import contextlib
import functools
import math
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from mrsa_jax._errors import ConfigurationError
from mrsa_jax.privacy.logs import _columns, _table, _wide
from mrsa_jax.privacy.logs._decide import read_table
from mrsa_jax.privacy.logs._long import assemble
from mrsa_jax.privacy.logs._table import Column, Layout, ParticipationLog, fault


def read_parquet(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a table with a row for each participation, or a column for each client."""
    import pyarrow as pa
    import pyarrow.parquet

    with _decoding(path, "a Parquet file"):
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
        texts = [field.name for field in schema if _is_text(field.type)]
        # texts stay in their dictionary: a few bytes can stand for any number of long ones
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
    names = list(schema.names)
    for name in names:
        if names.count(name) > 1:
            fault(str(path), "columns of different names", f"{name!r} twice")

    @functools.cache
    def read(place: int) -> Any:
        _table.check_memory((rows, 1), 16, options, str(path))
        with _decoding(path, "a Parquet file"):
            values = file.read(columns=[names[place]], use_threads=False).column(0)
            values.validate(full=True)
        if len(values) != rows:
            fault(f"{path}, column {names[place]!r}", f"{rows} rows", str(len(values)))
        return values

    @functools.cache
    def column(place: int) -> Column | None:
        if pa.types.is_nested(schema.types[place]):
            return None
        values = read(place)
        with _decoding(path, "a Parquet file"):
            return _table.arrow_column(values)

    with file:
        table = _columns.Table(
            names, column, lambda row: f"{path}: row {row}", str(path), str(path)
        )
        if options.layout != "matrix" and _columns.find(names, options, str(path)) is not None:
            return read_table(table, options)
        if options.layout == "auto":
            _wide.refuse_others(table, options)
        wide = _wide.wide_columns(names, options, str(path), str(path))
        places = wide.clients
        kinds = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
        plain = all(any(is_(schema.types[i]) for is_ in kinds) for i in places)
        if options.layout == "long" or not plain:
            _columns.header_fault(str(path), names)
        _table.check_memory((rows, len(places)), 8, options, str(path))
        columns = [read(place) for place in places]
        rounds = None if wide.rounds is None else column(wide.rounds)
    for place, values in zip(places, columns, strict=True):
        if values.null_count:
            row = values.is_null().to_pylist().index(True)
            fault(f"{path}: row {row}, column {names[place]!r}", "a number", "nothing")
    array = np.stack([values.to_numpy() for values in columns], axis=1)
    log = _wide.named_matrix(array, options, str(path), names, wide)
    if rounds is None:
        return log
    return _wide.with_rounds(log, rounds, options, lambda row: f"{path}: row {row}")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
             pa.types.is_large_binary)  # fmt: skip
    return any(is_(kind) for is_ in tests)


@contextlib.contextmanager
def _decoding(path: pathlib.Path, expected: str) -> Iterator[None]:
    """Name the file where a decoder fails on it: of a broken one it raises whatever it meets."""
    try:
        yield
    except ConfigurationError:
        raise
    except Exception as error:
        words = (str(error) or type(error).__name__).splitlines()[0]
        fault(str(path), expected, f"one that cannot be read ({words})")


def read_npy(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read an array; it is not loaded before its size is known."""
    with _decoding(path, "an array of bools or numbers"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    return _from_array(array, options, str(path))


def read_npz(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read the only array of an archive, or the named one."""
    with (
        _decoding(path, "an archive of arrays (a workbook is saved as CSV)"),
        zipfile.ZipFile(path) as archive,
    ):
        names = archive.namelist()
        if "[Content_Types].xml" in names or "mimetype" in names:
            fault(str(path), "CSV, Parquet, NPY or NPZ", "a workbook (save its sheet as CSV)")
        known = [n.removesuffix(".npy") for n in names if n.endswith(".npy")]
        name = options.array or (known[0] if len(known) == 1 else None)
        if name not in known:
            fault(str(path), f"an array {name!r}" if name else "one array, or --array NAME",
                  f"arrays {', '.join(known) or 'none'}")  # fmt: skip
        with archive.open(f"{name}.npy") as stream:
            shape, dtype = _npy_header(stream)
            start = stream.tell()
        place = f"{path}[{name}]"
        count = math.prod(shape)
        _table.check_memory((count, 1), dtype.itemsize, options, place)
        held = archive.getinfo(f"{name}.npy").file_size - start
        if held != count * dtype.itemsize:
            fault(place, f"the {count * dtype.itemsize} bytes that its header says", str(held))
        with archive.open(f"{name}.npy") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
    return _from_array(array, options, place)


def _npy_header(stream: Any) -> tuple[Any, np.dtype]:
    is_first = np.lib.format.read_magic(stream) == (1, 0)
    form = np.lib.format
    read = form.read_array_header_1_0 if is_first else form.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _from_array(array: np.ndarray, options: Layout, path: str) -> ParticipationLog:
    _columns.check_unnamed(options, path)
    if options.layout != "long":

        def where(row: int, column: int) -> str:
            return f"{path}: row {row}, column {column}"

        return _table.from_matrix(array, options, where, path)
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        fault(path, "rows of round and client (and weight)", f"shape {array.shape}")
    columns = [_table.distinct(array[:, i].tolist()) for i in range(array.shape[1])]
    weights = columns[2] if len(columns) == 3 else None
    return assemble(
        columns[0], columns[1], weights, options, lambda row: f"{path}: row {row}", path
    )
