"""Participation logs in tables of pandas (or of a library that turns its own into them).

Long tables have a row for each client in each sum; wide ones a column for each client
and the rounds as their index, as a cross table has. Which of the two a table is must be
plain from names or entries: numbers of rounds and clients read as weights would answer
wrongly.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import numbers
import pathlib
import zipfile
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_watch._base.errors import ConfigurationError, needed, require
from mrsa_watch.logs import _columns, _table, _wide
from mrsa_watch.logs._command import TABLE
from mrsa_watch.logs._decide import read_table, read_unnamed
from mrsa_watch.logs._identity import least_shared_float
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._table import Column, Layout, ParticipationLog

if TYPE_CHECKING:
    import pandas as pd


# ---- Participation logs in Parquet, NPY and NPZ; places are rows and columns, counted
# from 0.


def read_parquet(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a table with a row for each participation, or a column for each client."""
    pyarrow = needed(
        "pyarrow", "parquet", "`path` must be of another kind than Parquet"
    )
    needed("pyarrow.parquet", "parquet", "`path` must be of another kind than Parquet")
    pa = pyarrow

    with _decoding(path, "a Parquet file"):
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
        texts = [field.name for field in schema if _is_text(field.type)]
        # texts stay in their dictionary: a few bytes can stand for any number of long
        # ones
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
        if (
            options.layout != "matrix"
            and _columns.find(names, options, str(path)) is not None
        ):
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

    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(is_(kind) for is_ in tests)


@contextlib.contextmanager
def _decoding(path: pathlib.Path, expected: str) -> Iterator[None]:
    """Name the file where a decoder fails on it.

    Of a broken one it raises whatever it meets.
    """
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
    return _from_array(array, options, str(path), path)


def read_npz(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read the only array of an archive, or the named one."""
    with (
        _decoding(path, "an archive of arrays (a workbook is saved as CSV)"),
        zipfile.ZipFile(path) as archive,
    ):
        names = archive.namelist()
        if "[Content_Types].xml" in names or "mimetype" in names:
            fault(
                str(path),
                "CSV, Parquet, NPY or NPZ",
                "a workbook (save its sheet as CSV)",
            )
        known = [n.removesuffix(".npy") for n in names if n.endswith(".npy")]
        name = options.array or (known[0] if len(known) == 1 else None)
        if name not in known:
            fault(
                str(path),
                f"an array {name!r}" if name else "one array, or --array NAME",
                f"arrays {', '.join(known) or 'none'}",
            )
        with archive.open(f"{name}.npy") as stream:
            shape, dtype = _npy_header(stream)
            start = stream.tell()
        place = f"{path}[{name}]"
        count = math.prod(shape)
        _table.check_memory((count, 1), dtype.itemsize, options, place)
        held = archive.getinfo(f"{name}.npy").file_size - start
        if held != count * dtype.itemsize:
            fault(
                place,
                f"the {count * dtype.itemsize} bytes that its header says",
                str(held),
            )
        with archive.open(f"{name}.npy") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
    return _from_array(array, options, place, path)


def _npy_header(stream: Any) -> tuple[Any, np.dtype]:
    is_first = np.lib.format.read_magic(stream) == (1, 0)
    form = np.lib.format
    read = form.read_array_header_1_0 if is_first else form.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _from_array(
    array: np.ndarray, options: Layout, place: str, path: pathlib.Path
) -> ParticipationLog:
    if options.layout != "long":
        _columns.check_unnamed(options, place)

        def where(row: int, column: int) -> str:
            return f"{place}: row {row}, column {column}"

        return _table.from_matrix(array, options, where, place)
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        fault(place, "rows of round and client (and weight)", f"shape {array.shape}")
    below = least_shared_float(array if array.dtype.kind == "f" else None)

    def column(at: int) -> Column:
        found = _table.distinct(array[:, at].tolist())
        return found._replace(names=_table.whole(found.names, below))

    header = _columns.UNNAMED[: array.shape[1]]
    table = _columns.Table(
        header, column, lambda row: f"{place}: row {row}", str(path), place
    )
    return read_unnamed(table, options)


# ---- Participation logs in tables of pandas (or of a library that turns its own into
# them).


def read_frame(table: Any, options: Layout) -> ParticipationLog:
    """Read a table with a row for each participation, or a column for each client."""
    frame = _as_pandas(table)
    require(
        options.array is None, "array", "must not be set for a table", options.array
    )
    flat = _with_index(frame) if options.layout != "matrix" else frame
    header = [str(name) for name in flat.columns]

    @functools.cache
    def column(place: int) -> Column | None:
        return _column(flat.iloc[:, place])

    whole = _columns.Table(
        header, column, lambda row: f"{TABLE}: row {row}", TABLE, TABLE
    )
    if options.layout == "long" or (
        options.layout == "auto" and _columns.find(header, options, TABLE) is not None
    ):
        return read_table(whole, options)
    if options.layout == "auto":
        _wide.refuse_others(whole, options)
    return _read_wide(frame, options)


def _as_pandas(table: Any) -> pd.DataFrame:
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    found: Any = table.to_pandas() if hasattr(table, "to_pandas") else None
    rule = "must be a file, or a table that pandas can take"
    require(isinstance(found, pd.DataFrame), "path", rule, type(table))
    return found


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the levels of its index that have names as columns."""
    named = [name for name in frame.index.names if name is not None]
    twice = [name for name in named if name in frame.columns or named.count(name) > 1]
    if twice:
        fault(TABLE, "columns and index of different names", f"{twice[0]!r} twice")
    unnamed = [i for i, name in enumerate(frame.index.names) if name is None]
    if not named:
        return frame
    return (
        frame.reset_index(unnamed, drop=True).reset_index()
        if unnamed
        else frame.reset_index()
    )


def _column(values: pd.Series) -> Column | None:
    """Return a column of a table, None where a value is missing.

    None for nested values.
    """
    plain = [
        None if missing else value.item() if isinstance(value, np.generic) else value
        for value, missing in zip(values.tolist(), values.isna().tolist(), strict=True)
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


def _read_wide(frame: pd.DataFrame, options: Layout) -> ParticipationLog:
    header = [str(name) for name in frame.columns]
    rule = "a column for each client, and the rounds as the index"
    wide = _wide.wide_columns(header, options, TABLE, TABLE, rule)
    places = wide.clients
    array = np.empty((len(frame), len(places)), object)
    _table.check_memory(array.shape, 8, options, TABLE)
    for i, place in enumerate(places):
        column = frame.iloc[:, place]
        entries = column.tolist()
        for row, (entry, missing) in enumerate(
            zip(entries, column.isna().tolist(), strict=True)
        ):
            if missing or not isinstance(entry, numbers.Real | np.bool_):
                fault(
                    f"{TABLE}: row {row}, column {header[place]!r}",
                    "a number (or columns of rounds and of clients: read_log(table, "
                    "round_column=..., client_column=...))",
                    "nothing" if missing else repr(entry),
                )
        array[:, i] = entries
    if (
        options.layout == "auto"
        and array.size
        and not ((array == 0) | (array == 1)).all()
    ):
        shown = ", ".join(map(repr, header[:8]))
        fault(
            TABLE,
            "a table that can be read in one way only: read_log(table, "
            "round_column=..., "
            "client_column=...) says that its rows are of a round and a client, and "
            'read_log(table, layout="matrix") that its entries are weights',
            f"columns {shown} with entries other than 0 and 1",
        )
    log = _wide.named_matrix(array, options, TABLE, header, wide)
    clients = tuple(_plain(frame.columns[place]) for place in wide.kept)
    own = frame.index if wide.rounds is None else frame.iloc[:, wide.rounds]
    rounds = _table.distinct([_plain(label) for label in own.tolist()])
    log = dataclasses.replace(log, clients=clients)
    return _wide.with_rounds(log, rounds, options, lambda row: f"{TABLE}: row {row}")


def _plain(label: Any) -> Hashable:
    return label.item() if isinstance(label, np.generic) else label
