"""Participation logs in text: (round, client) rows under a header, or a matrix of 0 and 1.

Rows are read at full speed by Arrow; line numbers are found on a second look, only when
something is wrong.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import pathlib
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from mrsa_jax.privacy import _log_table
from mrsa_jax.privacy._log_table import Column, Layout, ParticipationLog, fault

__all__ = ["read_csv"]

_DELIMITERS = ",;\t|"
_BLANKS = b"\xef\xbb\xbf \t\r\n"  # a byte-order mark is one


def read_csv(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a log in text; compressed by gzip too."""
    number, line = _first_line(path)
    delimiter = _delimiter(line)
    header = _split(line, delimiter)
    is_matrix = all(_log_table.parse_number(field) is not None for field in header)
    where = f"{path}:{number}"
    if options.layout == "long" and is_matrix:
        width = len(header)
        if width not in (2, 3):
            fault(where, "round, client and maybe weight where there is no header",
                  f"{width} fields")  # fmt: skip
        columns = (0, 1, 2 if width == 3 else None)
        return _read_long(path, options, delimiter, 0, width, columns)
    if options.layout == "matrix" or (options.layout == "auto" and is_matrix):
        return _read_matrix(path, options, delimiter)
    found = _log_table.find_columns(header, options, where)
    if found is None:
        _log_table.header_fault(where, header)
    return _read_long(path, options, delimiter, number, len(header), found)


def _open(path: pathlib.Path) -> Any:
    """Return the bytes of a file, unpacked if they are compressed."""
    with path.open("rb") as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if compressed else path.open("rb")


def _first_line(path: pathlib.Path) -> tuple[int, str]:
    with _open(path) as stream:
        numbered = enumerate(stream, start=1)
        lines = ((i, line) for i, line in numbered if line.strip(_BLANKS))
        number, line = next(lines, (0, b""))
    if number == 0:
        fault(f"{path}:1", "a header or a row of participation", "an empty file")
    return number, line.decode("utf-8-sig", errors="replace").strip("\r\n")


def _delimiter(line: str) -> str | None:
    """Return the delimiter of a line; None for blanks between numbers, as NumPy writes them."""
    counts = {mark: line.count(mark) for mark in _DELIMITERS}
    best = max(counts, key=lambda mark: counts[mark])
    if counts[best]:
        return best
    return None if _log_table.parse_number(line.split()[0]) is not None else " "


def _split(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    return next(csv.reader([line], delimiter=delimiter))


def _records(path: pathlib.Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not empty and the number of its first line."""
    with _open(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(text, delimiter=delimiter)
        line = 1
        for record in reader:
            if record:
                yield line, record
            line = reader.line_num + 1


def _read_long(
    path: pathlib.Path,
    options: Layout,
    delimiter: str | None,
    skip: int,
    width: int,
    columns: tuple[int, int, int | None],
) -> ParticipationLog:
    import pyarrow as pa
    import pyarrow.csv

    delimiter = delimiter or " "
    kind = pa.dictionary(pa.int32(), pa.string())
    wanted = [str(place) for place in columns if place is not None]
    try:
        with _open(path) as stream:
            table = pyarrow.csv.read_csv(
                stream,
                pa.csv.ReadOptions(skip_rows=skip, column_names=[str(i) for i in range(width)]),
                pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                pa.csv.ConvertOptions(
                    include_columns=wanted, column_types=dict.fromkeys(wanted, kind)
                ),
            )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            fault(f"{path}:{skip + 1}", "rows of participation after the header", "none")
        _raise_first_fault(path, delimiter, width, error)
    if table.num_rows == 0:
        fault(f"{path}:{skip}", "rows of participation after the header", "none")
    read = [_log_table.clean(_column(table.column(name))) for name in wanted]
    locate = functools.partial(_locate, path, delimiter, 0 if skip == 0 else 1)
    weights = _column(table.column(wanted[2])) if len(wanted) == 3 else None
    return _log_table.assemble(read[0], read[1], weights, options, locate, str(path))


def _column(values: Any) -> Column:
    import pyarrow as pa

    whole = values.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no rows at all
        return Column(np.empty(0, np.int64), [])
    # not by Arrow's own way to NumPy, which imports pandas
    return Column(np.from_dlpack(whole.indices).astype(np.int64), whole.dictionary.to_pylist())


def _locate(path: pathlib.Path, delimiter: str, header_rows: int, row: int) -> str:
    """Return file and line of a row of participation."""
    for i, (line, _) in enumerate(_records(path, delimiter)):
        if i == row + header_rows:
            return f"{path}:{line}"
    return str(path)


def _raise_first_fault(
    path: pathlib.Path, delimiter: str, width: int, error: Exception
) -> NoReturn:
    """Find the first row that is not of the file's width, or no text."""
    for line, record in _records(path, delimiter):
        if any("\udc80" <= mark <= "\udcff" for field in record for mark in field):
            fault(f"{path}:{line}", "UTF-8 text", repr(record)[:60])
        if len(record) != width:
            shown = delimiter.join(record)
            fault(f"{path}:{line}", f"{width} fields", f"{len(record)}: {shown[:60]!r}")
    fault(str(path), "a table of text", str(error))


def _read_matrix(path: pathlib.Path, options: Layout, delimiter: str | None) -> ParticipationLog:
    with _open(path) as stream:
        data = stream.read()
    plain = _plain_matrix(data, delimiter)
    if plain is not None:
        return _log_table.from_matrix(plain, options, lambda i, j: f"{path}:{i + 1}", str(path))
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    lines, rows, clients = [], [], None
    tokens = _Tokens()
    width, first = 0, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        fields = _split(line, delimiter)
        if not width:
            width, first = len(fields), number
            if any(_log_table.parse_number(field) is None for field in fields):
                clients = [field.strip() for field in fields]
                continue
        if len(fields) != width:
            fault(f"{path}:{number}", f"{width} fields as in line {first}", str(len(fields)))
        rows.append(tokens.row(fields, f"{path}:{number}"))
        lines.append(number)
        _log_table.check_memory((len(rows), width), 1, options, str(path))
    if not rows:
        fault(str(path), "rows of participation after the header", "none")

    def where(row: int, column: int) -> str:
        return f"{path}:{lines[row]}, field {column + 1}"

    return _log_table.from_matrix(np.stack(rows), options, where, str(path), clients)


def _plain_matrix(data: bytes, delimiter: str | None) -> np.ndarray | None:
    """Return the matrix of a text that holds single digits 0 and 1 alone, or None."""
    if not data.endswith(b"\n"):
        data += b"\n"
    stride = data.index(b"\n") + 1
    if len(data) % stride:
        return None
    width = stride - (2 if data[stride - 2 : stride] == b"\r\n" else 1)
    table = np.frombuffer(data, np.uint8).reshape(-1, stride)
    digits, marks, ends = table[:, :width:2], table[:, 1:width:2], table[:, width:]
    mark = ord(delimiter or " ")
    if width % 2 == 0 or (ends != ends[0]).any() or (marks != mark).any():
        return None
    ones = digits == ord("1")
    return ones if (ones | (digits == ord("0"))).all() else None


class _Tokens:
    """Entries of a matrix as they are written, each understood once."""

    def __init__(self) -> None:
        self._values: dict[str, Fraction] = {}
        self._binary: dict[str, bool] = {}

    def row(self, fields: list[str], where: str) -> np.ndarray:
        """Return a row: bools where all entries are 0 or 1, else fractions."""
        for field in set(fields) - self._values.keys():
            value = _log_table.parse_number(field)
            if value is None:
                place = fields.index(field) + 1
                fault(f"{where}, field {place}", "a number", repr(field.strip()))
            self._values[field] = value
            if value in (0, 1):
                self._binary[field] = value == 1
        if self._binary.keys() >= set(fields):
            return np.fromiter(map(self._binary.__getitem__, fields), np.bool_, len(fields))
        return np.array([self._values[field] for field in fields], dtype=object)
