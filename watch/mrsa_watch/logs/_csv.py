"""Participation logs in text.

(round, client) rows under a header, or a matrix of 0 and 1.
A row is a line: a quote that does not end on its line would swallow the rows below it,
and is a fault. Each field is kept once, as a number for what stands in it; line numbers
are found on a second look, only when something is wrong.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import itertools
import math
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mrsa_watch.logs import _columns, _table
from mrsa_watch.logs._decide import read_table, read_unnamed
from mrsa_watch.logs._lists import check_decimals
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._numbers import decimal_number, parse_number
from mrsa_watch.logs._table import Column, Layout, ParticipationLog
from mrsa_watch.logs._text import LEAST_BYTES, text_of
from mrsa_watch.logs._wide import read_wide

_DELIMITERS = ",;\t|"
_BREAK = re.compile(rb"\r\n|\n|\r")
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

    path: pathlib.Path
    number: int
    data: bytes
    delimiter: str | None

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
    text, first = _open(path, options)
    header = text.split(first)
    is_matrix = all(
        decimal_number(field, options.decimal) is not None for field in header
    )
    where = f"{path}:{text.number}"
    if options.layout == "long" and is_matrix:
        width = len(header)
        if width not in (2, 3):
            fault(
                where,
                "round, client and maybe weight where there is no header",
                f"{width} fields",
            )
        each_once = not options.where and options.restarts != "new"
        read, locate = _rows(text, width, 0, options, each_once=each_once)
        names = _columns.UNNAMED[:width]
        table = _table_of(text, names, read, locate)
        return read_unnamed(table, options)
    if (
        is_matrix
        and options.layout != "long"
        and not _is_numbered(text, header, options)
    ):
        return _read_matrix(text, options)
    is_long = (
        options.layout != "matrix" and _columns.find(header, options, where) is not None
    )
    if not is_long and (options.layout == "long" or not _has_rows(text)):
        _columns.header_fault(where, header)
    # in a matrix rows may be alike, and conditions may leave out those that are
    each_once = is_long and not options.where and options.restarts != "new"
    read, locate = _rows(text, len(header), 1, options, each_once=each_once)
    table = _table_of(text, header, read, locate)
    return read_table(table, options) if is_long else read_wide(table, options)


def _table_of(
    text: _Text,
    header: Sequence[str],
    read: Callable[[int], Column],
    locate: Callable[[int], str],
) -> _columns.Table:
    """Return a text as a table. Between commas a number cannot have one.

    Its point is decimal.
    """
    path = str(text.path)
    return _columns.Table(
        header,
        functools.cache(read),
        locate,
        path,
        f"{path}:{text.number}",
        is_text=True,
        has_points=text.delimiter == ",",
    )


def _has_rows(text: _Text) -> bool:
    """Return whether anything stands below the first line."""
    end = _BREAK.search(text.data)
    return end is not None and bool(text.data[end.end() :].strip())


def _is_numbered(text: _Text, header: list[str], options: Layout) -> bool:
    """Return whether a first line of numbers is a header.

    Of clients, above a matrix of 0 and 1.
    Of few fields it may be a round, a client and a weight instead.
    """
    names = [field.strip() for field in header]
    if options.layout != "auto" or len(names) < _FEWEST_NUMBERED:
        return False
    if not all(name.isdecimal() for name in names):
        return False
    numbers = [int(name) for name in names]
    if any(a >= b for a, b in itertools.pairwise(numbers)):
        return False
    end = _BREAK.search(text.data)
    rest = text.data[end.end() :] if end else b""
    return bool(rest) and _plain_matrix(rest, text.delimiter) is not None


def _open(path: pathlib.Path, options: Layout) -> tuple[_Text, str]:
    """Return a text and its first line that is not empty."""
    data = text_of(path, options.memory_bytes)
    blank = data[: len(data) - len(data.lstrip())]
    if len(blank) == len(data):
        fault(f"{path}:1", "a header or a row of participation", "an empty file")
    start = max(blank.rfind(b"\n"), blank.rfind(b"\r")) + 1
    number = 1 + _count_breaks(blank[:start])
    data = data[start:]
    first = next(_lines(data)).decode("utf-8", errors="replace")
    if "\0" in first or first.lstrip()[:1] in ("{", "["):
        kind = "bytes that are no text" if "\0" in first else "JSON"
        fault(
            f"{path}:{number}",
            "CSV (or Parquet, NPY, NPZ, or JSON with an object a line)",
            kind,
        )
    text = _without_comments(_Text(path, number, data, None))
    first = next(_lines(text.data)).decode("utf-8", errors="replace")
    _check_quotes(text)
    return text, first


_STATED = re.compile(r'"?sep=(.)"?', re.IGNORECASE)


def _without_comments(text: _Text) -> _Text:
    """Return a text from its header on, with its delimiter.

    Left out are a line in which a spreadsheet states the delimiter, and lines that
    begin with #, except names of columns in the last of them above numbers, as
    `numpy.savetxt` writes them.
    """
    stated, names, number, rest = None, "", text.number, text.data
    while rest:
        end = _BREAK.search(rest)
        line = (
            rest[: end.start() if end else len(rest)]
            .decode("utf-8", errors="replace")
            .strip()
        )
        mark = _STATED.fullmatch(line)
        if mark:
            stated = mark[1]
        elif line.startswith("#"):
            names = line.lstrip("#").strip()
        elif line:
            break
        rest = rest[end.end() :] if end else b""
        number += 1
    if not rest:
        fault(
            f"{text.path}:{text.number}", "a header or a row of participation", "none"
        )
    first = next(_lines(rest)).decode("utf-8", errors="replace")
    found = text._replace(
        number=number, data=rest, delimiter=stated or _delimiter(first)
    )
    fields = found.split(first)
    are_numbers = all(parse_number(field) is not None for field in fields)
    if names and are_numbers and stated is None:
        named = found._replace(delimiter=_delimiter(names))
        header = named.split(names)
        if len(header) == len(fields) and any(
            parse_number(own) is None for own in header
        ):
            lines = [(found.delimiter or " ").join(header).encode(), b"\n", rest]
            found = found._replace(number=number - 1, data=b"".join(lines))
            found = found._replace(delimiter=found.delimiter or " ")
            fields = header
    return found._replace(data=_blanked(found, len(fields)))


def _blanked(text: _Text, width: int) -> bytes:
    """Return the lines of a text, without what stands in lines of comment.

    Others keep their place.
    A line with as many fields as others is a row, whatever it begins with.
    """
    if not re.search(rb"[\r\n][ \t]*#", text.data):
        return text.data

    def kept(found: re.Match[bytes]) -> bytes:
        fields = text.split(found[0].decode("utf-8", errors="replace"))
        return found[0] if len(fields) == width and width > 1 else b""

    return re.sub(rb"(?<=[\r\n])[ \t]*#[^\r\n]*", kept, text.data)


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a text, however they end."""
    start = 0
    for end in _BREAK.finditer(data):
        yield data[start : end.start()]
        start = end.end()
    if start < len(data):
        yield data[start:]


def _count_breaks(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _delimiter(line: str) -> str | None:
    """Return the delimiter of a line.

    None for spaces between numbers, as NumPy writes them.
    """
    counts = {mark: line.count(mark) for mark in _DELIMITERS}
    best = max(counts, key=lambda mark: counts[mark])
    if counts[best]:
        return best
    first = line.split(maxsplit=1)[:1]
    return None if first and parse_number(first[0]) is not None else " "


@functools.cache
def _field(delimiter: str) -> re.Pattern[str]:
    """Return what matches a field and the delimiter after it.

    In quotes, or without any.
    """
    mark = re.escape(delimiter)
    return re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"|([^"{mark}]*)){mark}')


def _check_quotes(text: _Text) -> None:
    """Raise unless each quote stands around a whole field of one line."""
    if b'"' not in text.data:
        return
    mark = re.escape((text.delimiter or " ").encode())
    quoted = rb'"[^"\r\n]*+(?:""[^"\r\n]*+)*+"'
    field = rb'(?:%b|[^"\r\n%b]*+)(?:%b|\r\n|\r|\n|\Z)' % (quoted, mark, mark)
    found = re.match(rb"(?:(?!\Z)%b)*+" % field, text.data)
    end = found.end() if found else 0
    if end < len(text.data):
        number = text.number + _count_breaks(text.data[:end])
        start = max(text.data.rfind(b"\n", 0, end), text.data.rfind(b"\r", 0, end)) + 1
        line = next(_lines(text.data[start : start + _MOST_LINE_BYTES]))
        fault(
            f"{text.path}:{number}",
            'quotes around whole fields that end on their line, and "" '
            "for a quote within",
            repr(line.decode("utf-8", errors="replace")),
        )


def _rows(
    text: _Text, width: int, head: int, options: Layout, *, each_once: bool
) -> tuple[Callable[[int], Column], Any]:
    """Return the columns of the rows below `head` lines, and what names the place of a row.

    Where each row may stand once and there are more of them than can differ, the rest
    is left unread: one of those that were read is there twice, and the file is refused
    for it.
    """
    end = _BREAK.search(text.data) if head else None
    data = text.data if not head else text.data[end.end() :] if end else b""
    if not data.strip(b"\r\n"):
        where = f"{text.path}:{text.number}"
        fault(where, "rows of participation after the header", "none")
    locate = functools.partial(_locate, text, head)
    plain = _plain_matrix(data, text.delimiter)
    if plain is not None and plain.shape[1] == width >= _FEWEST_NUMBERED:
        return lambda place: Column(
            plain[:, place].astype(np.int64), ["0", "1"]
        ), locate
    places: list[dict[str, int]] = [{} for _ in range(width)]
    codes = [array.array("i") for _ in range(width)]
    for piece in _pieces(text._replace(data=data, number=text.number + bool(head))):
        fields = _plain_fields(piece, width)
        if fields is None:  # line by line, which finds what is wrong
            rows = (
                _fields(piece, number, line, width) for number, line in piece.lines()
            )
            fields = list(itertools.chain.from_iterable(rows))
        for place, (known, own) in enumerate(zip(places, codes, strict=True)):
            column = fields[place::width]
            for field in dict.fromkeys(column):
                known.setdefault(field, len(known))
            own.extend(map(known.__getitem__, column))
        count = len(codes[0])
        most = dataclasses.replace(
            options, memory_bytes=max(options.memory_bytes, LEAST_BYTES)
        )
        _table.check_memory((count, width), _CODE_BYTES, most, str(text.path))
        if each_once and count > math.prod(len(known) for known in places):
            break
    return lambda place: Column(
        np.asarray(codes[place], np.int64), list(places[place])
    ), locate


def _pieces(text: _Text) -> Iterator[_Text]:
    """Yield a text in pieces of whole lines, so that not all of it is held twice."""
    start, number = 0, text.number
    while start < len(text.data):
        end = _BREAK.search(text.data, start + _PIECE_BYTES)
        data = text.data[start : end.end() if end else len(text.data)]
        yield text._replace(data=data, number=number)
        start, number = start + len(data), number + _count_breaks(data)


def _plain_fields(text: _Text, width: int) -> list[str] | None:
    """Return all fields, row after row, of a text without quotes that is as it should be."""
    data = text.data.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
    mark = text.delimiter
    if mark is None or b'"' in data or b"\r" in data:
        return None
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    marks = np.searchsorted(np.flatnonzero(letters == ord(mark)), ends)
    lengths = np.diff(ends, prepend=-1)
    if (
        np.diff(marks, prepend=0) != width - 1
    ).any() or lengths.max() > _MOST_LINE_BYTES:
        return None
    if lengths.min() == 1:  # an empty line
        return None
    try:
        return data[:-1].decode().replace("\n", mark).split(mark)
    except UnicodeDecodeError:
        return None


def _fields(text: _Text, number: int, line: bytes, width: int) -> list[str]:
    """Return the fields of a row, of which there are so many."""
    where = f"{text.path}:{number}"
    if len(line) > _MOST_LINE_BYTES:
        fault(
            where, f"a line of at most {_MOST_LINE_BYTES} bytes", f"{len(line)} bytes"
        )
    try:
        fields = text.split(line.decode())
    except UnicodeDecodeError:
        fault(where, "UTF-8 text", repr(line)[1:61])
    if len(fields) != width:
        fault(where, f"{width} fields", f"{len(fields)}: {line.decode()[:60]!r}")
    return fields


def _locate(text: _Text, head: int, row: int) -> str:
    """Return file and line of a row of participation."""
    for place, (number, _) in enumerate(text.lines()):
        if place == row + head:
            return f"{text.path}:{number}"
    return str(text.path)


def _read_matrix(text: _Text, options: Layout) -> ParticipationLog:
    path = text.path
    plain = _plain_matrix(text.data, text.delimiter)
    if plain is not None:
        _columns.check_unnamed(options, str(path))
        first = text.number
        return _table.from_matrix(
            plain, options, lambda i, j: f"{path}:{i + first}", str(path)
        )
    lines, rows = [], []
    tokens = _Tokens(options.decimal)
    width = 0
    for number, line in text.lines():
        if not line.strip():
            continue
        fields = text.split(line.decode("utf-8", errors="replace"))
        width = width or len(fields)
        if len(fields) != width:
            expected = f"{width} fields as in line {text.number}"
            fault(f"{path}:{number}", expected, str(len(fields)))
        rows.append(tokens.row(fields, f"{path}:{number}"))
        lines.append(number)
        _table.check_memory((len(rows), width), 1, options, str(path))

    def where(row: int, column: int) -> str:
        return f"{path}:{lines[row]}, field {column + 1}"

    _columns.check_unnamed(options, str(path))
    if options.layout == "matrix":
        has_points = text.delimiter == ","
        place = f"{path}:{text.number}"
        check_decimals(tokens.texts, place, str(path), options, has_points=has_points)
    return _table.from_matrix(np.stack(rows), options, where, str(path))


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

    def __init__(self, decimal: str) -> None:
        self._decimal = decimal
        self._values: dict[str, Fraction] = {}
        self._binary: dict[str, bool] = {}

    @property
    def texts(self) -> list[str]:
        """Return the entries as they are written, each once."""
        return list(self._values)

    def row(self, fields: list[str], where: str) -> np.ndarray:
        """Return a row: bools where all entries are 0 or 1, else fractions."""
        for field in (own for own in dict.fromkeys(fields) if own not in self._values):
            value = decimal_number(field, self._decimal)
            if value is None:
                place = fields.index(field) + 1
                fault(f"{where}, field {place}", "a number", repr(field.strip()))
            self._values[field] = value
            if value in (0, 1):
                self._binary[field] = value == 1
        if self._binary.keys() >= set(fields):
            return np.fromiter(
                map(self._binary.__getitem__, fields), np.bool_, len(fields)
            )
        return np.array([self._values[field] for field in fields], dtype=object)
