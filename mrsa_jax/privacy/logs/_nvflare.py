"""The lines in which NVFlare's log says whose contribution its aggregator took."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re
from typing import Any

from mrsa_jax.privacy.logs import _columns, _table
from mrsa_jax.privacy.logs._decide import read_table
from mrsa_jax.privacy.logs._json import load_object
from mrsa_jax.privacy.logs._table import Layout, ParticipationLog, fault
from mrsa_jax.privacy.logs._text import lines_of, text_of

_MARK = b" by the aggregator at round "
_MESSAGE = re.compile(
    r"Contribution from (?P<client>.+) (?P<verdict>ACCEPTED|REJECTED) by the aggregator "
    r"at round (?P<round>\d{1,18})\."
)
_JOB = re.compile(r"\brun=([^,\]]+)")
_COUNT = re.compile(r"aggregating (?P<count>\d{1,18}) update\(s\) at round (?P<round>\d{1,18})")
_NOTE = (
    "NVFlare's server sees every update by itself, unless they are encrypted, of which its log "
    "says nothing: the figures say what secure aggregation of these sums would hide. Weights are "
    "not in the log either: each contribution counts as 1."
)


def read_nvflare(path: pathlib.Path, options: Layout) -> ParticipationLog:
    """Read a server's log, `log.txt` or `log.json`: accepted contributions, a sum a round."""
    rounds, clients, jobs, lines = [], [], [], []
    counts: dict[int, tuple[int, int]] = {}  # by round: how many were aggregated, says which line
    rejected = 0
    job = ""
    for number, line in enumerate(lines_of(text_of(path, options.memory_bytes)), 1):
        told = _told(line, f"{path}:{number}")
        if told is None:
            continue
        context, message = told
        job = next(iter(_JOB.findall(context)), job)
        if found := _COUNT.search(message):
            counts[int(found["round"])] = int(found["count"]), number
        elif found := _MESSAGE.search(message):
            if found["verdict"] == "REJECTED":
                rejected += 1
                continue
            rounds.append(int(found["round"]))
            clients.append(found["client"])
            jobs.append(job)
            lines.append(number)
    if not rounds:
        fault(str(path), "a line 'Contribution from ... ACCEPTED by the aggregator at round ...' "
              "(only its workflow ScatterAndGather and its kin write it; others need a recorder: "
              "mrsa_jax.live.nvflare)", "none")  # fmt: skip
    columns: dict[str, list[Any]] = {"round": rounds, "client": clients}
    if len(set(jobs)) > 1:
        columns["job"] = jobs
    read = [_table.distinct(values) for values in columns.values()]
    read[1] = _table.clean(read[1])
    table = _columns.Table(
        list(columns), read.__getitem__, lambda row: f"{path}:{lines[row]}", str(path), str(path)
    )
    log = read_table(table, options)
    notes = [*log.notes, _NOTE, *_unlike(rounds, counts)]
    if rejected:
        notes.append(f"Contributions that were rejected, and are in no sum: {rejected}.")
    if len(columns) == 2:  # round and client, which are no columns of the log
        log = dataclasses.replace(log, columns_used=())
    return dataclasses.replace(log, notes=tuple(notes))


def _told(line: bytes, where: str) -> tuple[str, str] | None:
    """Return what a line says before and in its message, if it may be of use."""
    if _MARK not in line and b"aggregating " not in line:
        return None
    if line.startswith(b"{"):
        fields = load_object(line, where, str)
        return str(fields.get("fl_ctx", "")), str(fields.get("message", ""))
    try:
        text = line.decode()
    except UnicodeDecodeError:
        fault(where, "UTF-8 text", repr(line[:60])[1:])
    context, _, message = text.rpartition("] - ")
    return context, message


def _unlike(rounds: list[int], counts: dict[int, tuple[int, int]]) -> list[str]:
    """Return a sentence for each round of which the log counts others than it names."""
    named = collections.Counter(rounds)
    unlike = [
        f"line {line}: {count} at round {own}, of which {named[own]} are named"
        for own, (count, line) in counts.items()
        if named[own] != count
    ]
    more = f", and {len(unlike) - 5} more" if len(unlike) > 5 else ""
    told = "; ".join(unlike[:5])
    return [f"The log counts other contributions than it names ({told}{more})."] if unlike else []
