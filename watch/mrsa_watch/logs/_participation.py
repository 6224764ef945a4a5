"""A whole participation log, or JSON Lines of any system, as a history."""

from __future__ import annotations

import array
import dataclasses
import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mrsa_watch.logs import _columns, _order, _table
from mrsa_watch.logs._command import Layout
from mrsa_watch.logs._decide import read_table
from mrsa_watch.logs._json import load_object
from mrsa_watch.logs._jsonl import STATUSES, TORN, Key, LineParser, SumLine
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._records import Record, cell_of, is_document, records_of, rows_of
from mrsa_watch.logs._table import Column, ParticipationLog, Table
from mrsa_watch.logs._text import lines_of, text_format, text_of

_MOST_LINES = 8  # that a note lists


def read_jsonl(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read JSON Lines.

    The participation log that this package writes, or rows of any system.
    """
    data = text_of(path, options.memory_bytes)
    read = _read_participation if _is_participation(data, str(path)) else _read_rows
    return read(_Document(str(path), options, data))


def sums_of(
    path: pathlib.Path, memory_bytes: int
) -> tuple[LineParser, Iterator[SumLine]] | None:
    """Return a participation log's sums and parser; None for another kind of log.

    Args:
        path: The file.
        memory_bytes: Most that its text may need, or 256 MiB if that is more.

    Raises:
        ConfigurationError: As `read_log`, also while the sums are taken.
        DataNotFoundError: If there is no such file.
    """
    if text_format(path) != "jsonl":
        return None
    data = text_of(path, memory_bytes)
    if not _is_participation(data, str(path)):
        return None
    parser = LineParser(str(path))
    return parser, parser.sums(lines_of(data))


class _Document(NamedTuple):
    """A text in JSON, and how to read it."""

    path: str
    options: Layout
    data: bytes


def _is_participation(data: bytes, path: str) -> bool:
    lines = (
        (number, line)
        for number, line in enumerate(lines_of(data), 1)
        if line.strip() and not line.rstrip(b"\r\n").endswith(TORN)
    )
    number, first = next(lines, (1, b""))
    if not first:
        fault(f"{path}:1", "JSON, an object a line", "an empty file")
    if is_document(data):
        return False
    fields = load_object(first, f"{path}:{number}", str)
    # a record of a round of another system has none of these
    is_ours = not _OURS.isdisjoint(fields) or fields.get("status") in STATUSES
    return "format" in fields or (isinstance(fields.get("clients"), list) and is_ours)


_OURS = frozenset({"sum", "asked", "lost", "part", "extra"})


class _Sum(NamedTuple):
    """The details that are kept of a learnt sum.

    Some 200 bytes, and one machine word or two per client.
    """

    key: Key
    noise: float | None
    clip: float | None
    clients: array.array[int]  # codes
    weights: array.array[int] | None  # codes; None where all are 1


class _Codes(dict[Any, int]):
    """Names and their codes."""

    def __missing__(self, name: Any) -> int:
        self[name] = len(self)
        return self[name]

    def encode(self, names: Sequence[Any]) -> array.array[int]:
        """Return the codes of names, new ones too."""
        return array.array("i", map(self.__getitem__, names))


def _read_participation(document: _Document) -> ParticipationLog:
    path = document.path
    options = document.options
    kind = "a participation log, which has its own keys"
    _columns.check_unnamed(options, path, kind)
    parser = LineParser(path)
    clients = _Codes()
    weights = _Codes({Fraction(1): 0})
    sums: list[_Sum] = []
    others: Counter[str] = Counter()
    for line in parser.sums(lines_of(document.data)):
        if line.status == "learnt":
            factors = None if line.weights is None else weights.encode(line.weights)
            members = clients.encode(line.clients)
            sums.append(_Sum(line.key, line.noise, line.clip, members, factors))
        else:
            others[line.status] += 1
    if not sums:
        counts = ", ".join(f"{count} {status}" for status, count in others.items())
        fault(path, "a learnt sum", f"none ({counts})" if counts else "none")
    if options.round_order != "file":  # numbers of rounds show their order
        sums.sort(key=lambda each: each.key)
    notes = tuple(_notes(parser, others))
    aggregation = tuple(dict.fromkeys(header.aggregation for header in parser.headers))
    del parser  # the lines need not be held together with the matrix
    parts = [next(iter(each.key[3:]), None) for each in sums]
    return dataclasses.replace(
        _history(sums, clients, weights, document),
        noise=_unless_none([each.noise for each in sums]),
        clip=_unless_none([each.clip for each in sums]),
        parts=_unless_none(parts),
        aggregation=aggregation,
        notes=notes,
    )


def _history(
    sums: Sequence[_Sum], clients: _Codes, weights: _Codes, document: _Document
) -> ParticipationLog:
    sizes = [len(each.clients) for each in sums]
    # codes of all sums end to end, `sizes` of them for each row
    codes = np.concatenate([np.frombuffer(each.clients, np.int32) for each in sums])
    people = _table.clean(Column(codes, list(clients)))
    columns = _order.in_order(people, "sorted")
    factors = [
        np.zeros(size, np.int32)
        if each.weights is None
        else np.frombuffer(each.weights, np.int32)
        for each, size in zip(sums, sizes, strict=True)
    ]
    matrix = _table.dense(
        np.repeat(np.arange(len(sums), dtype=np.int32), sizes),
        _order.places_in(columns, people),
        (len(sums), len(columns)),
        Column(np.concatenate(factors), list(weights)),
        document,
    )
    return _table.named(matrix, _rounds(sums), tuple(people.names[i] for i in columns))


def _rounds(sums: Sequence[_Sum]) -> tuple[int | str, ...]:
    """Return the name of each sum: its round, with run and sum if there are others.

    The part of the vector, if it is of one, stands behind it in brackets.
    """
    keys = [each.key for each in sums]
    has_runs = any(key[0] for key in keys)
    has_sums = any(key[2] for key in keys)
    if not has_runs and not has_sums and max(map(len, keys)) == 3:
        return tuple(key[1] for key in keys)
    return tuple(
        (f"{run}:" if has_runs else "")
        + str(round_)
        + (f"/{number}" if has_sums else "")
        + "".join(map(_table.of_part, part))
        for run, round_, number, *part in keys
    )


def _unless_none(values: list[Any]) -> tuple[Any, ...] | None:
    """Return values; None if all of them are none."""
    return None if all(value is None for value in values) else tuple(values)


def _notes(parser: LineParser, others: Counter[str]) -> list[str]:
    """Return further remarks to report, in sentences."""
    notes = []
    if others:
        counts = " and ".join(f"{count} {status}" for status, count in others.items())
        notes.append(
            f"Sums of which nothing was learnt, and which do not count: {counts}."
        )
    if parser.repeated:
        again = _lines(parser.repeated, "say", "says")
        notes.append(f"{again} what earlier ones say: each sum counts once.")
    if parser.torn:
        cut = _lines(parser.torn, "were", "was")
        notes.append(
            f"{cut} cut short, before the recorder confirmed what stood there: not "
            "counted."
        )
    if parser.is_unfinished:
        notes.append(f"Line {parser.line + 1}, the last, has no end yet: not counted.")
    return notes


def _lines(numbers: Sequence[int], several: str, single: str) -> str:
    if len(numbers) == 1:
        return f"Line {numbers[0]} {single}"
    listed = ", ".join(map(str, numbers[:_MOST_LINES]))
    more = len(numbers) - _MOST_LINES
    return f"Lines {listed}{f' and {more} more' if more > 0 else ''} {several}"


def _read_rows(document: _Document) -> ParticipationLog:
    """Read a row a line, its keys as columns."""
    path = document.path
    if document.options.layout == "matrix":
        fault(path, "rows of round and client in JSON", "layout matrix")
    codes: dict[str, _Codes] = {}
    read: dict[str, list[int]] = {}
    nested: dict[str, None] = {}  # a set would list them in another order each time
    places: list[str] = []

    def records() -> Iterator[Record]:
        return records_of(document.data, path, str)

    options, rows = rows_of(records, document)
    for place, fields in rows:
        for key, value in fields.items():
            if isinstance(value, dict | list):
                nested[key] = None
                continue
            if key not in read:
                codes[key] = _Codes({"": 0})
                read[key] = []
            read[key] += [0] * (len(places) - len(read[key]))  # rows without this key
            read[key].append(codes[key][cell_of(value)])
        places.append(place)
    if not places:
        fault(path, "a record with clients", "none")
    header = list(dict.fromkeys([*read, *nested]))

    def column_at(place: int) -> Column | None:
        key = header[place]
        if key in nested:
            return None
        filled = read[key] + [0] * (len(places) - len(read[key]))
        used, places_of = np.unique(np.array(filled, np.int64), return_inverse=True)
        names = list(codes[key])
        return Column(places_of, [names[code] for code in used])

    return read_table(
        Table(
            header,
            column_at,
            places.__getitem__,
            path,
            places[0],
            options,
            is_text=True,
            has_points=True,
        )
    )
