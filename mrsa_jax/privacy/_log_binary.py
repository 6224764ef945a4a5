"""Participation logs in Parquet, NPY and NPZ; places are rows and columns, counted from 0."""

from __future__ import annotations

import pathlib
import zipfile
from typing import Any

import numpy as np

from mrsa_jax.privacy import _log_table
from mrsa_jax.privacy._log_table import Column, Layout, ParticipationLog, fault

__all__ = ["read_npy", "read_npz", "read_parquet"]


def read_parquet(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a table with a row for each participation, or a column for each client."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        names = list(pyarrow.parquet.read_schema(path).names)
        columns = None
        if options.layout != "matrix":
            columns = _log_table.find_columns(names, options, str(path))
        if columns is None:
            return _wide_table(path, options, names)
        places = [place for place in columns if place is not None]
        table = pyarrow.parquet.read_table(path, columns=[names[place] for place in places])
    except (pa.ArrowInvalid, OSError) as error:
        fault(str(path), "a Parquet file", str(error).splitlines()[0])
    read = [_column(table.column(i)) for i in range(len(places))]
    weights = read[2] if len(read) == 3 else None

    def locate(row: int) -> str:
        return f"{path}: row {row}"

    return _log_table.assemble(read[0], read[1], weights, options, locate, str(path))


def _wide_table(path: pathlib.Path, options: Layout, names: list[str]) -> ParticipationLog:
    import pyarrow as pa
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path)
    kinds = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
    if options.layout == "long" or not all(any(is_(t) for is_ in kinds) for t in schema.types):
        _log_table.header_fault(str(path), names)
    table = pyarrow.parquet.read_table(path)
    for name, column in zip(names, table.columns, strict=True):
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            fault(f"{path}: row {row}, column {name!r}", "a number", "nothing")
    array = np.stack([column.to_numpy() for column in table.columns], axis=1)

    def where(row: int, column: int) -> str:
        return f"{path}: row {row}, column {names[column]!r}"

    return _log_table.from_matrix(array, options, where, str(path), names)


def _column(values: Any) -> Column:
    """Return an Arrow column of any type, None where it is null."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    whole = values.dictionary_encode(null_encoding="encode").combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        return Column(np.empty(0, np.int64), [])
    names = whole.dictionary.to_pylist()
    floats = [name for name in names if isinstance(name, float)]
    if floats and all(name == name and name.is_integer() for name in floats):
        names = [None if name is None else int(name) for name in names]  # integers with gaps
    # not by Arrow's own way to NumPy, which imports pandas
    return Column(np.from_dlpack(whole.indices).astype(np.int64), names)


def read_npy(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read an array; it is not loaded before its size is known."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        fault(str(path), "an array of bools or numbers", str(error).splitlines()[0])
    return _from_array(array, options, str(path))


def read_npz(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read the only array of an archive, or the named one."""
    try:
        with zipfile.ZipFile(path) as archive:
            known = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
            name = options.array or (known[0] if len(known) == 1 else None)
            if name not in known:
                fault(str(path), f"an array {name!r}" if name else "one array, or --array NAME",
                      f"arrays {', '.join(known) or 'none'}")  # fmt: skip
            with archive.open(f"{name}.npy") as stream:
                shape, dtype = _npy_header(stream)
        if len(shape) == 2:
            _log_table.check_memory(shape, dtype.itemsize, options, str(path))
        with np.load(path, allow_pickle=False) as arrays:
            array = arrays[name]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, _log_table.ConfigurationError):
            raise
        fault(str(path), "an archive of arrays", str(error).splitlines()[0])
    return _from_array(array, options, f"{path}[{name}]")


def _npy_header(stream: Any) -> tuple[Any, np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version, np.lib.format.read_array_header_2_0)
    shape, _, dtype = read(stream)
    return shape, dtype


def _from_array(array: np.ndarray, options: Layout, path: str) -> ParticipationLog:
    if options.layout != "long":

        def where(row: int, column: int) -> str:
            return f"{path}: row {row}, column {column}"

        return _log_table.from_matrix(array, options, where, path)
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        fault(path, "rows of round and client (and weight)", f"shape {array.shape}")
    columns = [_log_table.distinct(array[:, i].tolist()) for i in range(array.shape[1])]
    weights = columns[2] if len(columns) == 3 else None
    return _log_table.assemble(
        columns[0], columns[1], weights, options, lambda row: f"{path}: row {row}", path
    )
