"""A whole participation log, or JSON Lines of any system, as a history."""

from __future__ import annotations

import array
import collections
import dataclasses
import pathlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mrsa_watch.logs import _columns, _order, _table
from mrsa_watch.logs._decide import read_table
from mrsa_watch.logs._json import load_object
from mrsa_watch.logs._jsonl import STATUSES, TORN, Key, LineParser, SumLine
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._records import Record, cell_of, is_document, records_of, rows_of
from mrsa_watch.logs._table import Column, Layout, ParticipationLog
from mrsa_watch.logs._text import lines_of, text_format, text_of

# ---- The lines in which NVFlare's log says whose contribution its aggregator took.

_MARK = b" by the aggregator at round "
_MESSAGE = re.compile(
    r"Contribution from (?P<client>.+) (?P<verdict>ACCEPTED|REJECTED) by the "
    r"aggregator "
    r"at round (?P<round>\d{1,18})\."
)
# The context of a message, before it, as versions from 2.0 on write it.
_CONTEXT = re.compile(r"\[[^\[\]]*\b(?:run|wf)=[^\[\]]*\]")
_JOB, _WORKFLOW = re.compile(r"\brun=([^,\]]+)"), re.compile(r"\bwf=([^,\]]+)")
_COUNT = re.compile(
    r"aggregating (?P<count>\d{1,18}) update\(s\) at round (?P<round>\d{1,18})"
)
_START = re.compile(r"Round (?P<round>\d{1,18}) started\.")
_NOTE = (
    "NVFlare's server sees every update by itself, unless they are encrypted, of which "
    "its log "
    "says nothing: the figures say what secure aggregation of these sums would hide. "
    "Weights are "
    "not in the log either: each contribution counts as 1."
)


def read_nvflare(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a server's log, `log.txt` or `log.json`.

    Accepted contributions, a sum a round.
    """
    rounds, clients, sources, lines = [], [], [], []
    # how many were summed; in which line
    counts: dict[tuple[_Source, int], tuple[int, int]] = {}
    starts: Counter[tuple[_Source, int]] = Counter()
    # whose sum was made: what follows is of another
    ended: set[tuple[_Source, int]] = set()
    rejected = 0
    for number, line in enumerate(lines_of(text_of(path, options.memory_bytes)), 1):
        told = _told(line, f"{path}:{number}")
        if told is None:
            continue
        source, message = told
        if found := _START.match(message):
            starts[source, int(found["round"])] += 1
            ended.discard((source, int(found["round"])))
        elif found := _COUNT.match(message):
            round_ = int(found["round"])
            begun = source._replace(start=max(starts[source, round_], 1))
            counts[begun, round_] = int(found["count"]), number
            ended.add((source, round_))
        elif found := _MESSAGE.match(message):
            if found["verdict"] == "REJECTED":
                rejected += 1
                continue
            rounds.append(int(found["round"]))
            key = source, rounds[-1]
            if key in ended:
                starts[key] = max(starts[key], 1) + 1
                ended.remove(key)
            clients.append(found["client"])
            sources.append(source._replace(start=max(starts[key], 1)))
            lines.append(number)
    if not rounds:
        fault(
            str(path),
            "a line 'Contribution from ... ACCEPTED by the aggregator at round ...' "
            "(only its workflow ScatterAndGather and its kin write it; others need a "
            "recorder: "
            "mrsa_watch.nvflare)",
            "none",
        )
    columns: dict[str, list[Any]] = {"round": rounds, "client": clients}
    for name in _Source._fields:  # lines without a context are of separate sums
        values = [getattr(source, name) for source in sources]
        if len(set(values)) > 1:
            columns[name] = values
    read = [_table.distinct(values) for values in columns.values()]
    read[1] = _table.clean(read[1])
    table = _columns.Table(
        list(columns),
        read.__getitem__,
        lambda row: f"{path}:{lines[row]}",
        str(path),
        str(path),
        apart=tuple(range(2, len(columns))),
    )
    log = read_table(table, options)
    notes = [*log.notes, _NOTE, *_unlike(rounds, sources, counts)]
    if rejected:
        notes.append(
            f"Contributions that were rejected, and are in no sum: {rejected}."
        )
    if len(columns) == 2:  # round and client, which are no columns of the log
        log = dataclasses.replace(log, columns_used=())
    return dataclasses.replace(log, notes=tuple(notes))


class _Source(NamedTuple):
    """What tells sums of equal numbers apart; "" where a line does not say.

    Attributes:
        job: The run of a job.
        workflow: One of those of a job.
        start: How often the round had started: a server that starts anew repeats one.
    """

    job: str
    workflow: str
    start: int = 1


def _told(line: bytes, where: str) -> tuple[_Source, str] | None:
    """Return whose message a line has, and the message, if it may be of use."""
    if not any(mark in line for mark in (_MARK, b"aggregating ", b" started.")):
        return None
    if line.startswith(b"{"):
        fields = load_object(line, where, str)
        context, text = str(fields.get("fl_ctx", "")), str(fields.get("message", ""))
    else:
        context = ""
        try:
            text = line.decode()
        except UnicodeDecodeError:
            fault(where, "UTF-8 text", repr(line[:60])[1:])
    starts = (
        text.find(mark) for mark in ("Contribution from ", "aggregating ", "Round ")
    )
    start = next((place for place in starts if place >= 0), 0)
    # not behind the start: a client may have any name
    context = "".join([context, *_CONTEXT.findall(text[:start])])
    job, workflow = (
        next(iter(form.findall(context)), "").strip() for form in (_JOB, _WORKFLOW)
    )
    return _Source(job, workflow), text[start:]


def _unlike(
    rounds: list[int],
    sources: list[_Source],
    counts: dict[tuple[_Source, int], tuple[int, int]],
) -> list[str]:
    """Return a sentence for each round of which the log counts others than it names."""
    named = collections.Counter(zip(sources, rounds, strict=True))
    unlike = [
        f"line {line}: {count} at round {key[1]}, of which {named[key]} are named"
        for key, (count, line) in counts.items()
        if named[key] != count
    ]
    more = f", and {len(unlike) - 5} more" if len(unlike) > 5 else ""
    told = "; ".join(unlike[:5])
    return (
        [f"The log counts other contributions than it names ({told}{more})."]
        if unlike
        else []
    )


# ---- A whole participation log, or JSON Lines of any system, as a history.

_MOST_LINES_TOLD = 8


def read_jsonl(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read JSON Lines.

    The participation log that this package writes, or rows of any system.
    """
    data = text_of(path, options.memory_bytes)
    read = _read_participation if _is_participation(data, path) else _read_rows
    return read(data, path, options)


def sums_of(
    path: pathlib.Path, memory_bytes: int
) -> tuple[LineParser, Iterator[SumLine]] | None:
    """Return the sums of a participation log and their parser.

    None for a log of another kind.

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
    parser = LineParser(str(path))
    return (
        (parser, parser.sums(lines_of(data))) if _is_participation(data, path) else None
    )


def _is_participation(data: bytes, path: pathlib.Path) -> bool:
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
    fields = load_object(first, f"{path}:{number}", _plain_text)
    # a record of a round of another system has none of these
    is_ours = not _OURS.isdisjoint(fields) or fields.get("status") in STATUSES
    return "format" in fields or (isinstance(fields.get("clients"), list) and is_ours)


_OURS = frozenset({"sum", "asked", "lost", "part", "extra"})


class _Sum(NamedTuple):
    """What is kept of a learnt sum.

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

    def of(self, names: Sequence[Any]) -> array.array[int]:
        return array.array("i", map(self.__getitem__, names))


def _read_participation(
    data: bytes, path: pathlib.Path, options: Layout
) -> ParticipationLog:
    _columns.check_unnamed(
        options, str(path), "a participation log, which has its own keys"
    )
    parser = LineParser(str(path))
    clients, weights = _Codes(), _Codes()
    weights.of([Fraction(1)])
    sums: list[_Sum] = []
    others: Counter[str] = Counter()
    for found in parser.sums(lines_of(data)):
        if found.status == "learnt":
            factors = None if found.weights is None else weights.of(found.weights)
            own = clients.of(found.clients)
            sums.append(_Sum(found.key, found.noise, found.clip, own, factors))
        else:
            others[found.status] += 1
    if not sums:
        counts = ", ".join(f"{count} {status}" for status, count in others.items())
        fault(str(path), "a learnt sum", f"none ({counts})" if counts else "none")
    if options.round_order != "file":  # numbers of rounds show their order
        sums.sort(key=lambda one: one.key)
    notes = tuple(_notes(parser, others))
    aggregation = tuple(dict.fromkeys(header.aggregation for header in parser.headers))
    del parser  # the lines need not be held together with the matrix
    log = _history(sums, clients, weights, options, str(path))
    if any(len(one.key) > 3 for one in sums):
        log = dataclasses.replace(log, parts=tuple(_part_of(one.key) for one in sums))
    return dataclasses.replace(
        log,
        noise=_known([one.noise for one in sums]),
        clip=_known([one.clip for one in sums]),
        aggregation=aggregation,
        notes=notes,
    )


def _history(
    sums: Sequence[_Sum], clients: _Codes, weights: _Codes, options: Layout, path: str
) -> ParticipationLog:
    sizes = [len(one.clients) for one in sums]
    codes = np.concatenate([np.frombuffer(one.clients, np.int32) for one in sums])
    people = _table.clean(Column(codes, list(clients)))
    columns = _order.in_order(people, "sorted")
    shape = (len(sums), len(columns))
    factors = [
        np.zeros(size, np.int32)
        if one.weights is None
        else np.frombuffer(one.weights, np.int32)
        for one, size in zip(sums, sizes, strict=True)
    ]
    matrix = _table.dense(
        np.repeat(np.arange(len(sums), dtype=np.int32), sizes),
        _order.places_in(columns, people),
        shape,
        Column(np.concatenate(factors), list(weights)),
        options,
        path,
    )
    return _table.named(matrix, _rounds(sums), tuple(people.names[i] for i in columns))


def _rounds(sums: Sequence[_Sum]) -> tuple[int | str, ...]:
    """Return the name of each sum.

    Its round, with the run and the sum where there are others.
    The part of the vector, if it is of one, stands behind it in brackets.
    """
    keys = [one.key for one in sums]
    has_runs, has_sums = any(key[0] for key in keys), any(key[2] for key in keys)
    has_parts = any(len(key) > 3 for key in keys)
    if not has_runs and not has_sums and not has_parts:
        return tuple(key[1] for key in keys)
    return tuple(
        (f"{run}:" if has_runs else "")
        + str(own)
        + (f"/{number}" if has_sums else "")
        + "".join(map(_table.of_part, part))
        for run, own, number, *part in keys
    )


def _part_of(key: Key) -> str | None:
    return key[3] if len(key) == 4 else None


def _known(values: list[float | None]) -> tuple[float | None, ...] | None:
    return None if all(value is None for value in values) else tuple(values)


def _notes(parser: LineParser, others: Counter[str]) -> list[str]:
    """Return what else to report, in sentences."""
    notes = []
    if others:
        counts = " and ".join(f"{count} {status}" for status, count in others.items())
        notes.append(
            f"Sums of which nothing was learnt, and which do not count: {counts}."
        )
    if parser.repeated:
        notes.append(
            f"{_lines(parser.repeated)} what earlier ones say: each sum counts once."
        )
    if parser.torn:
        cut = _lines(parser.torn, "were", "was")
        notes.append(
            f"{cut} cut short, before the recorder confirmed what stood there: not "
            "counted."
        )
    if parser.is_unfinished:
        notes.append(f"Line {parser.line + 1}, the last, has no end yet: not counted.")
    return notes


def _lines(numbers: Sequence[int], several: str = "say", one: str = "says") -> str:
    if len(numbers) == 1:
        return f"Line {numbers[0]} {one}"
    shown = ", ".join(map(str, numbers[:_MOST_LINES_TOLD]))
    more = (
        f" and {len(numbers) - _MOST_LINES_TOLD} more"
        if len(numbers) > _MOST_LINES_TOLD
        else ""
    )
    return f"Lines {shown}{more} {several}"


def _plain_text(text: str) -> str:
    return text


def _read_rows(data: bytes, path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a row a line, its keys as columns."""
    if options.layout == "matrix":
        fault(str(path), "rows of round and client in JSON", "layout matrix")
    codes: dict[str, _Codes] = {}
    read: dict[str, list[int]] = {}
    nested: dict[str, None] = {}  # a set would list them in another order each time
    places: list[str] = []

    def records() -> Iterator[Record]:
        return records_of(data, str(path), _plain_text)

    options, rows = rows_of(records, options, str(path))
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
        fault(str(path), "a record with clients", "none")

    def column(place: int) -> Column | None:
        key = header[place]
        if key in nested:
            return None
        filled = read[key] + [0] * (len(places) - len(read[key]))
        used, found = np.unique(np.array(filled, np.int64), return_inverse=True)
        names = list(codes[key])
        return Column(found, [names[code] for code in used])

    header = list(dict.fromkeys([*read, *nested]))
    table = _columns.Table(
        header,
        column,
        places.__getitem__,
        str(path),
        places[0],
        is_text=True,
        has_points=True,
    )
    return read_table(table, options)
