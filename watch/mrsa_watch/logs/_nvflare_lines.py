"""The contributions that NVFlare's log says its aggregator took, as a history."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections import Counter
from typing import Any, NamedTuple

from mrsa_watch.logs._command import Layout
from mrsa_watch.logs._decide import read_table
from mrsa_watch.logs._json import decoding, load_object
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._table import ParticipationLog, Table, clean, distinct
from mrsa_watch.logs._text import lines_of, text_of

_MARKS = (b" by the aggregator at round ", b"aggregating ", b" started.")
_MESSAGE = re.compile(
    r"Contribution from (?P<client>.+) (?P<verdict>ACCEPTED|REJECTED) by the "
    r"aggregator at round (?P<round>\d{1,18})\."
)
_COUNT = re.compile(
    r"aggregating (?P<count>\d{1,18}) update\(s\) at round (?P<round>\d{1,18})"
)
_START = re.compile(r"Round (?P<round>\d{1,18}) started\.")
_BEGINNINGS = ("Contribution from ", "aggregating ", "Round ")
# The context of a message, before it, as versions from 2.0 on write it.
_CONTEXT = re.compile(r"\[[^\[\]]*\b(?:run|wf)=[^\[\]]*\]")
_JOB = re.compile(r"\brun=([^,\]]+)")
_WORKFLOW = re.compile(r"\bwf=([^,\]]+)")
_NOTE = (
    "NVFlare's server sees every update by itself, unless they are encrypted, of which "
    "its log says nothing: the figures say what secure aggregation of these sums would "
    "hide. Weights are not in the log either: each contribution counts as 1."
)


class _Source(NamedTuple):
    """The origin that tells sums of equal numbers apart; "" where a line does not say.

    Attributes:
        job: The run of a job.
        workflow: One of those of a job.
        start: How often the round had started: a server that starts anew repeats one.
    """

    job: str
    workflow: str
    start: int = 1


_Sum = tuple[_Source, int]  # and its round


def read_nvflare(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read accepted contributions from a `log.txt` or `log.json`: a sum per round."""
    accepted: list[_Sum] = []
    clients: list[str] = []
    lines: list[int] = []
    # how many were summed; in which line
    counts: dict[_Sum, tuple[int, int]] = {}
    starts: Counter[_Sum] = Counter()
    # whose sum was made: what follows is of another
    ended: set[_Sum] = set()
    rejected = 0
    for number, line in enumerate(lines_of(text_of(path, options.memory_bytes)), 1):
        source, message = _read(line, f"{path}:{number}")
        match = (
            _START.match(message) or _COUNT.match(message) or _MESSAGE.match(message)
        )
        if match is None:
            continue
        round_ = int(match["round"])
        key = source, round_
        if match.re is _START:
            starts[key] += 1
            ended.discard(key)
        elif match.re is _COUNT:
            begun = source._replace(start=max(starts[key], 1))
            counts[begun, round_] = int(match["count"]), number
            ended.add(key)
        elif match["verdict"] == "REJECTED":
            rejected += 1
        else:
            if key in ended:
                starts[key] = max(starts[key], 1) + 1
                ended.remove(key)
            accepted.append((source._replace(start=max(starts[key], 1)), round_))
            clients.append(match["client"])
            lines.append(number)
    if not accepted:
        fault(
            str(path),
            "a line 'Contribution from ... ACCEPTED by the aggregator at round ...' "
            "(only its workflow ScatterAndGather and its kin write it; others need a "
            "recorder: mrsa_watch.nvflare)",
            "none",
        )
    rounds: list[Any] = [round_ for _, round_ in accepted]
    columns = {"round": distinct(rounds), "client": clean(distinct(clients))}
    for name in _Source._fields:  # lines without a context are of separate sums
        column = distinct([getattr(source, name) for source, _ in accepted])
        if len(column.names) > 1:
            columns[name] = column
    log = read_table(
        Table(
            list(columns),
            list(columns.values()).__getitem__,
            lambda row: f"{path}:{lines[row]}",
            str(path),
            str(path),
            options,
            apart=tuple(range(2, len(columns))),
        )
    )
    notes = [*log.notes, _NOTE, *_unlike(Counter(accepted), counts)]
    if rejected:
        notes.append(
            f"Contributions that were rejected, and are in no sum: {rejected}."
        )
    if len(columns) == 2:  # round and client, which are no columns of the log
        log = dataclasses.replace(log, columns_used=())
    return dataclasses.replace(log, notes=tuple(notes))


def _read(line: bytes, where: str) -> tuple[_Source, str]:
    """Return the origin of a line's message, and the message; "" if it is of no use."""
    if not any(mark in line for mark in _MARKS):
        return _Source("", ""), ""
    context = ""
    if line.startswith(b"{"):
        fields = load_object(line, where, str)
        context = str(fields.get("fl_ctx", ""))
        text = str(fields.get("message", ""))
    else:
        with decoding(where, line):
            text = line.decode()
    starts = map(text.find, _BEGINNINGS)
    start = next((place for place in starts if place >= 0), 0)
    # not behind the start: a client may have any name
    context = "".join([context, *_CONTEXT.findall(text[:start])])
    job, workflow = (
        next(iter(form.findall(context)), "").strip() for form in (_JOB, _WORKFLOW)
    )
    return _Source(job, workflow), text[start:]


def _unlike(named: Counter[_Sum], counts: dict[_Sum, tuple[int, int]]) -> list[str]:
    """Return a sentence if the log counts others in rounds than it names."""
    unlike = [
        f"line {line}: {count} at round {key[1]}, of which {named[key]} are named"
        for key, (count, line) in counts.items()
        if named[key] != count
    ]
    if not unlike:
        return []
    more = f", and {len(unlike) - 5} more" if len(unlike) > 5 else ""
    listed = "; ".join(unlike[:5])
    return [f"The log counts other contributions than it names ({listed}{more})."]
