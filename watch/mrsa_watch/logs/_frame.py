"""Participation logs in Parquet, NPY and NPZ, and in tables of pandas.

(Or of a library that turns its own into them.) Places are rows and columns, counted
from 0. Long tables have a row for each client in each sum; wide ones a column for each
client and the rounds as their index, as a cross table has. Which of the two a table is
must be plain from names or entries: numbers of rounds and clients read as weights would
answer wrongly.
"""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import pathlib
import zipfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_watch._base.errors import ConfigurationError, needed, require
from mrsa_watch.logs import _columns, _table, _wide
from mrsa_watch.logs._command import TABLE, Layout
from mrsa_watch.logs._decide import read_table, read_unnamed
from mrsa_watch.logs._identity import least_shared_float
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._table import Column, ParticipationLog, Table

if TYPE_CHECKING:
    import pandas as pd


def _table_of(
    header: list[str],
    column: Callable[[int], Column | None],
    name: str,
    options: Layout,
) -> Table:
    """Return a table of which the rows are named by their numbers."""
    return Table(header, column, lambda row: f"{name}: row {row}", name, name, options)


def read_parquet(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a table with a row for each participation, or a column for each client."""
    name = str(path)
    rule = "`path` must be of another kind than Parquet"
    pa = needed("pyarrow", "parquet", rule)
    needed("pyarrow.parquet", "parquet", rule)
    kinds = pa.types
    are_texts = (
        kinds.is_string,
        kinds.is_large_string,
        kinds.is_binary,
        kinds.is_large_binary,
    )
    are_numbers = (kinds.is_boolean, kinds.is_integer, kinds.is_floating)

    with _decoding(name, "a Parquet file"):
        with pa.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            rows = file.metadata.num_rows
        texts = [
            field.name for field in schema if any(is_(field.type) for is_ in are_texts)
        ]
        # texts stay in their dictionary: a few bytes can stand for any number of long
        # ones
        file = pa.parquet.ParquetFile(path, read_dictionary=texts)
    names = list(schema.names)
    for field in names:
        if names.count(field) > 1:
            fault(name, "columns of different names", f"{field!r} twice")

    @functools.cache
    def read(place: int) -> Any:
        _table.check_memory((rows, 1), 16, table)
        with _decoding(name, "a Parquet file"):
            values = file.read(columns=[names[place]], use_threads=False).column(0)
            values.validate(full=True)
        if len(values) != rows:
            where = f"{name}, column {names[place]!r}"
            fault(where, f"{rows} rows", str(len(values)))
        return values

    @functools.cache
    def column(place: int) -> Column | None:
        if kinds.is_nested(schema.types[place]):
            return None
        values = read(place)
        with _decoding(name, "a Parquet file"):
            return _table.arrow_column(values)

    table = _table_of(names, column, name, options)
    with file:
        if options.layout != "matrix" and _columns.find(table) is not None:
            return read_table(table)
        if options.layout == "auto":
            _wide.refuse_others(table)
        wide = _wide.wide_columns(table)
        types = [schema.types[place] for place in wide.clients]
        are_plain = all(any(is_(kind) for is_ in are_numbers) for kind in types)
        if options.layout == "long" or not are_plain:
            _columns.header_fault(name, names)
        _table.check_memory((rows, len(types)), 8, table)
        columns = [read(place) for place in wide.clients]
        rounds = None if wide.rounds is None else column(wide.rounds)
    for place, values in zip(wide.clients, columns, strict=True):
        if values.null_count:
            row = values.is_null().to_pylist().index(True)
            where = f"{name}: row {row}, column {names[place]!r}"
            fault(where, "a number", "nothing")
    array = np.stack([values.to_numpy() for values in columns], axis=1)
    return _wide.named_matrix(array, table, wide, rounds)


@contextlib.contextmanager
def _decoding(name: str, expected: str) -> Iterator[None]:
    """Name the file where a decoder fails: on a broken one it may raise any error."""
    try:
        yield
    except ConfigurationError:
        raise
    except Exception as error:
        words = (str(error) or type(error).__name__).splitlines()[0]
        fault(name, expected, f"one that cannot be read ({words})")


def read_npy(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read an array; it is not loaded before its size is known."""
    name = str(path)
    with _decoding(name, "an array of bools or numbers"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    return _from_array(array, options, name, name)


def read_npz(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read the only array of an archive, or the named one."""
    file = str(path)
    with (
        _decoding(file, "an archive of arrays (a workbook is saved as CSV)"),
        zipfile.ZipFile(path) as archive,
    ):
        members = archive.namelist()
        if "[Content_Types].xml" in members or "mimetype" in members:
            received = "a workbook (save its sheet as CSV)"
            fault(file, "CSV, Parquet, NPY or NPZ", received)
        arrays = [
            name.removesuffix(".npy") for name in members if name.endswith(".npy")
        ]
        name = options.array or (arrays[0] if len(arrays) == 1 else None)
        if name not in arrays:
            expected = f"an array {name!r}" if name else "one array, or --array NAME"
            fault(file, expected, f"arrays {', '.join(arrays) or 'none'}")
        place = f"{file}[{name}]"
        with archive.open(f"{name}.npy") as stream:
            shape, dtype = _npy_header(stream)
            start = stream.tell()
        count = math.prod(shape)
        size = count * dtype.itemsize
        source = _table_of([], lambda _: None, place, options)
        _table.check_memory((count, 1), dtype.itemsize, source)
        present = archive.getinfo(f"{name}.npy").file_size - start
        if present != size:
            fault(place, f"the {size} bytes that its header says", str(present))
        with archive.open(f"{name}.npy") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
    return _from_array(array, options, place, file)


def _npy_header(stream: Any) -> tuple[Any, np.dtype]:
    form = np.lib.format
    is_first = form.read_magic(stream) == (1, 0)
    read = form.read_array_header_1_0 if is_first else form.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _from_array(
    array: np.ndarray, options: Layout, place: str, file: str
) -> ParticipationLog:
    def column(at: int) -> Column:
        below = least_shared_float(array if array.dtype.kind == "f" else None)
        values = _table.distinct(array[:, at].tolist())
        return values._replace(names=_table.whole(values.names, below))

    table = _table_of([], column, place, options)
    if options.layout != "long":
        _columns.check_unnamed(options, place)
        return _table.from_matrix(
            array, table, lambda row, at: f"{place}: row {row}, column {at}"
        )
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        fault(place, "rows of round and client (and weight)", f"shape {array.shape}")
    header = _columns.UNNAMED[: array.shape[1]]
    return read_unnamed(table._replace(header=header, path=file))


def read_frame(values: Any, options: Layout) -> ParticipationLog:
    """Read a table with a row for each participation, or a column for each client."""
    frame = _as_pandas(values)
    rule = "must not be set for a table"
    require(options.array is None, "array", rule, options.array)
    flat = _with_index(frame) if options.layout != "matrix" else frame
    table = _of_pandas(flat, options)
    if options.layout == "long" or (
        options.layout == "auto" and _columns.find(table) is not None
    ):
        return read_table(table)
    if options.layout == "auto":
        _wide.refuse_others(table)
    return _read_wide(frame, _of_pandas(frame, options))


def _of_pandas(frame: pd.DataFrame, options: Layout) -> Table:
    @functools.cache
    def column(place: int) -> Column | None:
        return _column(frame.iloc[:, place])

    return _table_of([str(name) for name in frame.columns], column, TABLE, options)


def _as_pandas(values: Any) -> pd.DataFrame:
    import pandas as pd

    if isinstance(values, pd.DataFrame):
        return values
    frame: Any = values.to_pandas() if hasattr(values, "to_pandas") else None
    rule = "must be a file, or a table that pandas can take"
    require(isinstance(frame, pd.DataFrame), "path", rule, type(values))
    return frame


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the levels of its index that have names as columns."""
    levels = frame.index.names
    named = [name for name in levels if name is not None]
    for name in named:
        if name in frame.columns or named.count(name) > 1:
            fault(TABLE, "columns and index of different names", f"{name!r} twice")
    if not named:
        return frame
    unnamed = [level for level, name in enumerate(levels) if name is None]
    if unnamed:
        frame = frame.reset_index(unnamed, drop=True)
    return frame.reset_index()


def _column(values: pd.Series) -> Column | None:
    """Return a column of a table, None for a missing value; None if nested."""
    missing = values.isna().tolist()
    plain = [
        None if is_missing else _plain(value)
        for value, is_missing in zip(values.tolist(), missing, strict=True)
    ]
    try:
        column = _table.distinct(plain)
    except TypeError:  # lists, mappings
        return None
    is_float = getattr(values.dtype, "kind", "") == "f"
    below = least_shared_float(values if is_float else None)
    categories = getattr(values.dtype, "categories", ())
    order = tuple(categories) if getattr(values.dtype, "ordered", False) else ()
    return Column(column.codes, _table.whole(column.names, below), order)


def _read_wide(frame: pd.DataFrame, table: Table) -> ParticipationLog:
    header = table.header
    rule = "a column for each client, and the rounds as the index"
    wide = _wide.wide_columns(table, rule)
    array = np.empty((len(frame), len(wide.clients)), object)
    _table.check_memory(array.shape, 8, table)
    for i, place in enumerate(wide.clients):
        column = frame.iloc[:, place]
        entries = column.tolist()
        pairs = zip(entries, column.isna().tolist(), strict=True)
        for row, (entry, is_missing) in enumerate(pairs):
            if is_missing or not isinstance(entry, numbers.Real | np.bool_):
                fault(
                    f"{table.locate(row)}, column {header[place]!r}",
                    "a number (or columns of rounds and of clients: read_log(table, "
                    "round_column=..., client_column=...))",
                    "nothing" if is_missing else repr(entry),
                )
        array[:, i] = entries
    is_binary = ((array == 0) | (array == 1)).all()
    if table.options.layout == "auto" and array.size and not is_binary:
        names = ", ".join(map(repr, header[:8]))
        fault(
            TABLE,
            "a table that can be read in one way only: read_log(table, "
            "round_column=..., client_column=...) says that its rows are of a round "
            'and a client, and read_log(table, layout="matrix") that its entries are '
            "weights",
            f"columns {names} with entries other than 0 and 1",
        )
    labels = frame.index if wide.rounds is None else frame.iloc[:, wide.rounds]
    rounds = _table.distinct(list(map(_plain, labels.tolist())))
    clients = tuple(_plain(frame.columns[place]) for place in wide.kept)
    return _wide.named_matrix(array, table, wide, rounds, clients)


def _plain(value: Any) -> Any:
    """Return a value of NumPy as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
