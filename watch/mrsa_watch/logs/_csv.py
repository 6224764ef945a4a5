"""Participation logs in text: rows of round and client, or a matrix of 0 and 1.

A row is a line: a quote that does not end on its line would swallow the rows below it,
and is a fault. Each field is kept once, as a number for what stands in it; line numbers
are found on a second look, only when something is wrong.
"""

from __future__ import annotations

import array
import functools
import itertools
import math
import pathlib
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from mrsa_watch.logs import _columns, _table
from mrsa_watch.logs._command import Layout
from mrsa_watch.logs._decide import read_table, read_unnamed
from mrsa_watch.logs._lists import check_decimals
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._numbers import decimal_number, parse_number
from mrsa_watch.logs._table import Column, ParticipationLog, Table
from mrsa_watch.logs._text import LEAST_BYTES, text_of
from mrsa_watch.logs._wide import read_wide

_DELIMITERS = ",;\t|"
_BREAK = re.compile(rb"\r\n|\n|\r")
_STATED = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_MOST_LINE_BYTES = 10**6  # of a row of participation
_PIECE_BYTES = 2**20
_CODE_BYTES = 20  # that a field needs while rows are put in their order, about
_FEWEST_NUMBERED = 4  # fields


class _Text(NamedTuple):
    """A text from its first line that is not empty on.

    Attributes:
        path: Its file.
        number: That line's number.
        data: That line and all below it.
        delimiter: Between fields; None for spaces between numbers, as NumPy writes
            them.
    """

    path: str
    number: int
    data: bytes
    delimiter: str | None

    @property
    def head(self) -> str:
        """The place of the first line."""
        return f"{self.path}:{self.number}"

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and content of each line that is not empty."""
        for number, line in enumerate(_lines(self.data), start=self.number):
            if line:
                yield number, line

    def split(self, line: str) -> list[str]:
        """Return the fields of a line."""
        if self.delimiter is None:
            return line.split()
        if '"' not in line:
            return line.split(self.delimiter)
        fields = _field(self.delimiter).findall(line + self.delimiter)
        return [
            quoted.replace('""', '"') if quoted else plain for quoted, plain in fields
        ]


def read_csv(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a log in text; compressed by gzip too."""
    text = _open(path, options)
    header = text.split(_first_line(text.data))
    table = Table(
        header,
        lambda _: None,  # before the rows are read
        functools.partial(_locate, text, 1),
        text.path,
        text.head,
        options,
        is_text=True,
        has_points=text.delimiter == ",",  # between commas a number cannot have one
    )
    is_matrix = all(
        decimal_number(field, options.decimal) is not None for field in header
    )
    is_each_once = not options.where and options.restarts != "new"
    if options.layout == "long" and is_matrix:
        width = len(header)
        if width not in (2, 3):
            expected = "round, client and maybe weight where there is no header"
            fault(text.head, expected, f"{width} fields")
        table = table._replace(
            header=_columns.UNNAMED[:width], locate=functools.partial(_locate, text, 0)
        )
        return read_unnamed(_with_rows(table, text, text.data, is_each_once))
    if is_matrix and options.layout != "long" and not _is_numbered(text, table):
        return _read_matrix(text, table)
    is_long = options.layout != "matrix" and _columns.find(table) is not None
    below = _below(text.data)
    if not is_long and (options.layout == "long" or not below.strip()):
        _columns.header_fault(text.head, header)
    # in a matrix rows may be alike, and conditions may leave out those that are
    table = _with_rows(table, text, below, is_long and is_each_once)
    return read_table(table) if is_long else read_wide(table)


def _is_numbered(text: _Text, table: Table) -> bool:
    """Return whether a first line of numbers is a header of clients of a matrix.

    Of few fields it may be a round, a client and a weight instead.
    """
    names = table.names
    if table.options.layout != "auto" or len(names) < _FEWEST_NUMBERED:
        return False
    if not all(map(str.isdecimal, names)):
        return False
    if any(a >= b for a, b in itertools.pairwise(map(int, names))):
        return False
    below = _below(text.data)
    return bool(below) and _plain_matrix(below, text.delimiter) is not None


def _open(path: pathlib.Path, options: Layout) -> _Text:
    """Return a text from its header or its first row on."""
    data = text_of(path, options.memory_bytes)
    blank = data[: len(data) - len(data.lstrip())]
    if len(blank) == len(data):
        fault(f"{path}:1", "a header or a row of participation", "an empty file")
    start = max(blank.rfind(b"\n"), blank.rfind(b"\r")) + 1
    number = 1 + _count_breaks(blank[:start])
    text = _Text(str(path), number, data[start:], None)
    first = _first_line(text.data)
    if "\0" in first or first.lstrip()[:1] in ("{", "["):
        expected = "CSV (or Parquet, NPY, NPZ, or JSON with an object a line)"
        received = "bytes that are no text" if "\0" in first else "JSON"
        fault(text.head, expected, received)
    text = _without_comments(text)
    _check_quotes(text)
    return text


def _without_comments(text: _Text) -> _Text:
    """Return a text from its header on, with its delimiter.

    Left out are a line in which a spreadsheet states the delimiter, and lines that
    begin with #, except names of columns in the last of them above numbers, as
    `numpy.savetxt` writes them.
    """
    head = text.head
    stated = None
    names = ""
    while text.data:
        line = _first_line(text.data).strip()
        mark = _STATED.fullmatch(line)
        if mark:
            stated = mark[1]
        elif line.startswith("#"):
            names = line.lstrip("#").strip()
        elif line:
            break
        text = text._replace(number=text.number + 1, data=_below(text.data))
    if not text.data:
        fault(head, "a header or a row of participation", "none")
    first = _first_line(text.data)
    text = text._replace(delimiter=stated or _delimiter(first))
    fields = text.split(first)
    if names and stated is None and all(_is_number(field) for field in fields):
        header = text._replace(delimiter=_delimiter(names)).split(names)
        if len(header) == len(fields) and not all(map(_is_number, header)):
            delimiter = text.delimiter or " "
            data = b"".join([delimiter.join(header).encode(), b"\n", text.data])
            text = text._replace(number=text.number - 1, data=data, delimiter=delimiter)
    return text._replace(data=_blanked(text, len(fields)))


def _is_number(text: str) -> bool:
    return parse_number(text) is not None


def _blanked(text: _Text, width: int) -> bytes:
    """Return the lines of a text, without what stands in lines of comment.

    Others keep their place. A line with as many fields as others is a row, whatever it
    begins with.
    """
    if not re.search(rb"[\r\n][ \t]*#", text.data):
        return text.data

    def row_or_nothing(line: re.Match[bytes]) -> bytes:
        fields = text.split(line[0].decode("utf-8", errors="replace"))
        return line[0] if len(fields) == width and width > 1 else b""

    return re.sub(rb"(?<=[\r\n])[ \t]*#[^\r\n]*", row_or_nothing, text.data)


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a text, however they end."""
    start = 0
    for end in _BREAK.finditer(data):
        yield data[start : end.start()]
        start = end.end()
    if start < len(data):
        yield data[start:]


def _first_line(data: bytes) -> str:
    return next(_lines(data)).decode("utf-8", errors="replace")


def _below(data: bytes) -> bytes:
    """Return all lines but the first."""
    end = _BREAK.search(data)
    return data[end.end() :] if end else b""


def _count_breaks(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _delimiter(line: str) -> str | None:
    """Return a line's delimiter; None for spaces between numbers, as in NumPy."""
    mark = max(_DELIMITERS, key=line.count)
    if mark in line:
        return mark
    first = line.split(maxsplit=1)[:1]
    return None if first and _is_number(first[0]) else " "


@functools.cache
def _field(delimiter: str) -> re.Pattern[str]:
    """Return a pattern of a field, in quotes or not, and the delimiter after it."""
    mark = re.escape(delimiter)
    return re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"|([^"{mark}]*)){mark}')


def _check_quotes(text: _Text) -> None:
    """Raise unless each quote stands around a whole field of one line."""
    if b'"' not in text.data:
        return
    mark = re.escape((text.delimiter or " ").encode())
    # possessive, so that a hostile text costs no more than its length
    quoted = rb'"[^"\r\n]*+(?:""[^"\r\n]*+)*+"'
    field = rb'(?:%b|[^"\r\n%b]*+)(?:%b|\r\n|\r|\n|\Z)' % (quoted, mark, mark)
    good = re.match(rb"(?:(?!\Z)%b)*+" % field, text.data)
    end = good.end() if good else 0
    if end < len(text.data):
        number = text.number + _count_breaks(text.data[:end])
        start = max(text.data.rfind(b"\n", 0, end), text.data.rfind(b"\r", 0, end)) + 1
        fault(
            f"{text.path}:{number}",
            'quotes around whole fields that end on their line, and "" for a quote '
            "within",
            repr(_first_line(text.data[start : start + _MOST_LINE_BYTES])),
        )


def _with_rows(table: Table, text: _Text, data: bytes, is_each_once: bool) -> Table:
    """Return a table with its rows, which some of its text holds.

    Where each row may stand once and there are more of them than can differ, the rest
    is left unread: one of those that were read is there twice, and the file is refused
    for it.
    """
    if not data.strip(b"\r\n"):
        fault(text.head, "rows of participation after the header", "none")
    width = len(table.header)
    plain = _plain_matrix(data, text.delimiter)
    if plain is not None and plain.shape[1] == width >= _FEWEST_NUMBERED:

        @functools.cache
        def digits_at(place: int) -> Column:
            return Column(plain[:, place].astype(np.int64), ["0", "1"])

        return table._replace(column=digits_at)
    places: list[dict[str, int]] = [{} for _ in range(width)]
    codes = [array.array("i") for _ in range(width)]
    number = text.number + (len(data) < len(text.data))
    for piece in _pieces(text._replace(data=data, number=number)):
        fields = _plain_fields(piece, width)
        if fields is None:  # line by line, which finds what is wrong
            rows = (_fields(piece, n, line, width) for n, line in piece.lines())
            fields = list(itertools.chain.from_iterable(rows))
        for place, (code_of, column) in enumerate(zip(places, codes, strict=True)):
            texts = fields[place::width]
            for field in dict.fromkeys(texts):
                code_of.setdefault(field, len(code_of))
            column.extend(map(code_of.__getitem__, texts))
        count = len(codes[0])
        _table.check_memory((count, width), _CODE_BYTES, table, least=LEAST_BYTES)
        # more rows than combinations of values: two rows are equal
        if is_each_once and count > math.prod(map(len, places)):
            break

    @functools.cache
    def column_at(place: int) -> Column:
        return Column(np.asarray(codes[place], np.int64), list(places[place]))

    return table._replace(column=column_at)


def _pieces(text: _Text) -> Iterator[_Text]:
    """Yield a text in pieces of whole lines, so that not all of it is held twice."""
    start = 0
    number = text.number
    while start < len(text.data):
        end = _BREAK.search(text.data, start + _PIECE_BYTES)
        data = text.data[start : end.end() if end else len(text.data)]
        yield text._replace(data=data, number=number)
        start += len(data)
        number += _count_breaks(data)


def _plain_fields(text: _Text, width: int) -> list[str] | None:
    """Return all fields, row after row, of a regular text without quotes."""
    data = text.data.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
    mark = text.delimiter
    if mark is None or b'"' in data or b"\r" in data:
        return None
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    # how many delimiters stand before the end of each line
    marks = np.searchsorted(np.flatnonzero(letters == ord(mark)), ends)
    lengths = np.diff(ends, prepend=-1)
    has_width = (np.diff(marks, prepend=0) == width - 1).all()
    # the shortest line is not empty
    if not has_width or lengths.min() == 1 or lengths.max() > _MOST_LINE_BYTES:
        return None
    try:
        return data[:-1].decode().replace("\n", mark).split(mark)
    except UnicodeDecodeError:
        return None


def _fields(text: _Text, number: int, line: bytes, width: int) -> list[str]:
    """Return the fields of a row, which must be so many."""
    where = f"{text.path}:{number}"
    if len(line) > _MOST_LINE_BYTES:
        expected = f"a line of at most {_MOST_LINE_BYTES} bytes"
        fault(where, expected, f"{len(line)} bytes")
    try:
        fields = text.split(line.decode())
    except UnicodeDecodeError:
        fault(where, "UTF-8 text", repr(line)[1:61])
    if len(fields) != width:
        fault(where, f"{width} fields", f"{len(fields)}: {line.decode()[:60]!r}")
    return fields


def _locate(text: _Text, skipped: int, row: int) -> str:
    """Return file and line of a row of participation, after lines that are none."""
    for place, (number, _) in enumerate(text.lines()):
        if place == row + skipped:
            return f"{text.path}:{number}"
    return text.path


def _read_matrix(text: _Text, table: Table) -> ParticipationLog:
    path = text.path
    plain = _plain_matrix(text.data, text.delimiter)
    if plain is not None:
        _columns.check_unnamed(table.options, path)
        return _table.from_matrix(
            plain, table, lambda row, _: f"{path}:{row + text.number}"
        )
    places: list[str] = []
    rows = []
    values: dict[str, Fraction | bool] = {}  # of each entry as it is written
    width = 0
    for number, line in text.lines():
        if not line.strip():
            continue
        place = f"{path}:{number}"
        fields = text.split(line.decode("utf-8", errors="replace"))
        width = width or len(fields)
        if len(fields) != width:
            expected = f"{width} fields as in line {text.number}"
            fault(place, expected, str(len(fields)))
        for field in dict.fromkeys(fields):
            if field not in values:
                value = decimal_number(field, table.options.decimal)
                if value is None:
                    where = f"{place}, field {fields.index(field) + 1}"
                    fault(where, "a number", repr(field.strip()))
                values[field] = value == 1 if value in (0, 1) else value
        entries = [values[field] for field in fields]
        is_binary = set(map(type, entries)) == {bool}
        rows.append(np.array(entries, np.bool_ if is_binary else object))
        places.append(place)
        _table.check_memory((len(rows), width), 1, table)
    _columns.check_unnamed(table.options, path)
    if table.options.layout == "matrix":
        check_decimals(list(values), text.head, table, has_points=table.has_points)
    return _table.from_matrix(
        np.stack(rows), table, lambda row, column: f"{places[row]}, field {column + 1}"
    )


def _plain_matrix(data: bytes, delimiter: str | None) -> np.ndarray | None:
    """Return the matrix of a text that holds single digits 0 and 1 alone, or None."""
    if not data.endswith(b"\n"):
        data += b"\n"
    # lines of one length: a digit, then a delimiter and a digit for each further one
    stride = data.index(b"\n") + 1
    if len(data) % stride:
        return None
    width = stride - (2 if data[stride - 2 : stride] == b"\r\n" else 1)
    # digits stand at even places of a line, delimiters at odd ones
    table = np.frombuffer(data, np.uint8).reshape(-1, stride)
    digits = table[:, :width:2]
    marks = table[:, 1:width:2]
    ends = table[:, width:]
    mark = ord(delimiter or " ")
    if width % 2 == 0 or (ends != ends[0]).any() or (marks != mark).any():
        return None
    ones = digits == ord("1")
    return ones if (ones | (digits == ord("0"))).all() else None
