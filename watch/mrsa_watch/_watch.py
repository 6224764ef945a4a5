"""Watches a participation log: the leaks after each sum, in lines kept once each.

The log is the only state: a restart reads it from its first line, by the same steps,
and gets the same values to the last digit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mrsa_watch._base.errors import require, writing
from mrsa_watch._base.files import write_whole
from mrsa_watch._base.html import hidden_words
from mrsa_watch._base.locks import locked
from mrsa_watch._base.untrusted import printable
from mrsa_watch._follow import follow
from mrsa_watch._gate import Gate, GateState
from mrsa_watch._updates import Updates, WorstUpdate
from mrsa_watch.logs import LineParser, SumLine

_MOST_NAMED = 3


class Drifting(NamedTuple):
    """The leakage of updates that drift.

    Attributes:
        name: `"update"`, of one round, or `"lasting"`: the lasting part of a client's
            updates.
        worst: The worst hidden one.
        words: The sentence on it.
    """

    name: str
    worst: WorstUpdate
    words: str


@dataclasses.dataclass(frozen=True)
class Watched:
    """A learnt sum of a log, and what leaks after it.

    Attributes:
        line: The sum.
        state: What the sums so far leak.
        newly_exposed: Clients that this sum exposed.
        new_breaches: Breaches that this sum caused or changed.
        aggregation: How its system makes sums, as the log states.
        drifting: What leaks of updates, if they drift.
    """

    line: SumLine
    state: GateState
    newly_exposed: tuple[Any, ...]
    new_breaches: tuple[str, ...]
    aggregation: str
    drifting: tuple[Drifting, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; clients exposed before are only counted."""
        line = self.line
        state = self.state
        content: dict[str, Any] = {
            "run": line.run,
            "round": line.round,
            "sum": line.sum,
            "sums": state.sums,
            "clients": state.clients,
            "rank": state.rank,
            "exposed": len(state.exposed),
            "newly_exposed": list(self.newly_exposed),
            "strong": state.strong,
            "weak_lower": state.lower,
            "weak_upper": state.upper,
            "is_searched": state.is_searched,
            "hidden": _finite(state.hidden),
            "hidden_client": state.hidden_client,
            "error_bits": state.error_bits,
            "breaches": list(state.breaches),
        }
        if state.parts:
            content["part"] = line.part
            for name in ("parts", "weak_part", "hidden_part"):
                content[name] = getattr(state, name)
        for name, worst, _ in self.drifting:
            content[f"{name}_hidden"] = _finite(worst.hidden)
            content[f"{name}_client"] = worst.client
        return content

    def to_words(self) -> str:
        """Return it as a line for people."""
        line = self.line
        state = self.state
        name = f"round {line.round}" + (f" sum {line.sum}" if line.sum else "")
        name = f"run {line.run} {name}" if line.run else name
        name += "" if line.part is None else f" part {printable(line.part)}"
        weakest = f" (part {printable(state.weak_part)})" if state.parts else ""
        worst = f", part {printable(state.hidden_part)}" if state.parts else ""
        exposed = f"{len(state.exposed)} exposed"
        if self.newly_exposed:
            names = ", ".join(map(printable, self.newly_exposed[:_MOST_NAMED]))
            more = len(self.newly_exposed) - _MOST_NAMED
            exposed += f" (new: {names}{f' and {more} others' if more > 0 else ''})"
        interval = str(state.lower)
        if state.lower != state.upper:
            interval += f" to {state.upper}"
        hidden = "worst hidden not known"
        if state.hidden is not None:
            client = printable(state.hidden_client)
            size = hidden_words(state.hidden)
            hidden = f"worst hidden among {size} ({client}{worst})"
        words = [
            f"{state.clients} clients, rank {state.rank}",
            *([f"worst of {state.parts} parts"] if state.parts else []),
            exposed,
            f"strong T {state.strong}",
            f"weak T {interval}{weakest}{' (searched)' if state.is_searched else ''}",
            hidden,
            *(each.words for each in self.drifting),
            *(f"BREACH: {why}" for why in self.new_breaches),
        ]
        return f"{name}: {'; '.join(words)}"


def _finite(value: float | None) -> float | None:
    """Return a number for JSON, which has none that is infinite or NaN."""
    return value if value is not None and math.isfinite(value) else None


def _worst_words(subject: str, which: str, worst: WorstUpdate, drift: str) -> str:
    text = f"{subject}, of alike clients: {which}"
    if worst.hidden is None:
        return f"{text} not known {drift}"
    size = hidden_words(worst.hidden)
    return f"{text} hidden among {size} ({printable(worst.client)}) {drift}"


def _drifting(updates: Updates | None, line: SumLine) -> list[Drifting]:
    """Return the leakage of updates after one more sum."""
    if updates is None:
        return []
    name = (line.run, line.round)
    update = updates.add(name, line.clients, line.weights, line.part)
    words = _worst_words(
        "the update of one round", "worst update", update, updates.words
    )
    drifting = [Drifting("update", update, words)]
    lasting = updates.lasting()
    if lasting is not None:
        words = _worst_words(
            "what lasts of updates", "worst client", lasting, updates.lasting_words
        )
        drifting.append(Drifting("lasting", lasting, words))
    return drifting


def watch(
    path: pathlib.Path,
    gate: Gate,
    poll_seconds: float | None,
    updates: Updates | None = None,
    least_hidden: float | None = None,
) -> Iterator[Watched]:
    """Yield the leakage after each learnt sum of a log, from its first line on.

    Args:
        path: A participation log in JSON Lines; waited for if it is not there yet.
        gate: Takes the sums; new.
        poll_seconds: How often to look for more; None ends with the last complete line.
        updates: Follows the updates of each round, where they drift; new.
        least_hidden: Bar on these and on what lasts of them; what is not known is below
            it.

    Raises:
        ConfigurationError: If a line is not of the format, or the file did not only
            grow.
    """
    parser = LineParser(str(path))
    reported: set[str] = set()  # breaches by updates that drift
    for line in parser.sums(_lines(path, poll_seconds)):
        if line.status != "learnt":
            continue
        before = gate.state
        state = gate.add(line.clients, line.weights, line.part)
        new = [why for why in state.breaches if why not in before.breaches]
        drifting = _drifting(updates, line)
        for name, worst, words in drifting if state.clients else ():
            if least_hidden is None or (worst.hidden or 0.0) >= least_hidden:
                continue
            why = f"{words}, below {least_hidden:g}"
            state = dataclasses.replace(state, breaches=(*state.breaches, why))
            new += [why] * (name not in reported)
            reported.add(name)
        yield Watched(
            line,
            state,
            state.exposed[len(before.exposed) :],
            tuple(new),
            parser.headers[-1].aggregation,
            tuple(drifting),
        )


# of the text format that Prometheus reads (OpenMetrics)
_HELP = {
    "sums": "sums that the server learnt",
    "clients": "clients in any of them",
    "rank": "independent sums",
    "exposed_clients": "clients whose update follows from the sums",
    "weak_t_lower": "weak T is at least this",
    "weak_t_upper": "weak T is at most this",
    "strong_t": "clients in the smallest set that always moves together",
    "hidden_among": "size of a single sum that would hide the worst client equally "
    "well; absent if not known",
    "last_round": "round of the last sum",
    "breaches": "requirements that do not hold, or are not known to",
    "update_hidden_among": "size of a single sum that would hide the worst update of "
    "one round equally well, if clients are alike and updates drift as set; absent if "
    "not known",
    "lasting_hidden_among": "size of a single sum that would hide what lasts of the "
    "worst client's updates equally well, if clients are alike and the share set never "
    "changes; absent if not known",
    "parts": "parts of the vector, of which the worst is reported; "
    "absent without parts",
}


def to_metrics(watched: Watched, log: str) -> str:
    """Return the figures after a sum as gauges, each with the log as its label.

    Args:
        watched: What the sums so far leak.
        log: Names the log.

    Examples:
        >>> from mrsa_watch import Gate
        >>> gate = Gate(fail_below=4)
        >>> _ = gate.add(["anna", "bob", "cleo"])
        >>> import mrsa_watch.logs as logs
        >>> rest = None, None, {}, None, None, 2
        >>> line = logs.SumLine(0, 7, 0, "learnt", ("anna",), *rest)
        >>> watched = Watched(line, gate.state, (), gate.state.breaches, "secagg")
        >>> print(to_metrics(watched, "log.jsonl").splitlines()[-5])
        mrsa_watch_last_round{log="log.jsonl"} 7
    """
    state = watched.state
    values: dict[str, float | None] = {
        "sums": state.sums,
        "clients": state.clients,
        "rank": state.rank,
        "exposed_clients": len(state.exposed),
        "weak_t_lower": state.lower,
        "weak_t_upper": state.upper,
        "strong_t": state.strong,
        "hidden_among": state.hidden,
        "last_round": watched.line.round,
        "breaches": len(state.breaches),
    }
    for name, worst, _ in watched.drifting:
        values[f"{name}_hidden_among"] = worst.hidden
    values["parts"] = state.parts or None
    label = log.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines = []
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            full = f"mrsa_watch_{name}"
            lines.append(f"# HELP {full} {_HELP[name]}")
            lines.append(f"# TYPE {full} gauge")
            lines.append(f'{full}{{log="{label}"}} {value}')
    return "\n".join([*lines, "# EOF", ""])


class Kept:
    """Lines of a file with one per sum, however often it was begun; a context.

    Lines that are there already must be the same; a torn last one is taken away.
    Another process that keeps lines in the file is an error at once.

    Args:
        path: The file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        rule = "must lie in an existing folder"
        require(path.parent.is_dir(), "out", rule, str(path))
        self._path = path
        with writing(path):
            self._file = path.open("a+b", buffering=0)
        is_ours = locked(self._file)
        if not is_ours:
            self._file.close()
        require(is_ours, "out", "must be no other watch's", str(path))
        self._file.seek(0)
        *lines, torn = self._file.read().split(b"\n")
        self._before = lines
        with writing(path):
            self._file.truncate(os.fstat(self._file.fileno()).st_size - len(torn))
        self._count = 0

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, content: dict[str, Any]) -> bool:
        """Keep the next line; return whether it was not there already.

        Raises:
            ConfigurationError: If another is in its place.
            StoreError: If it could not be written.
        """
        line = json.dumps(content, allow_nan=False).encode()
        # the log was read from its first line again, so the same lines come again
        if self._count < len(self._before):
            same = self._before[self._count] == line
            rule = (
                "must be a file of this log, with these bars and this effort (line "
                f"{self._count + 1} is of another)"
            )
            require(same, "out", rule, str(self._path))
            self._count += 1
            return False
        with writing(self._path, more="; its complete lines are kept"):
            rest = line + b"\n"
            while rest:
                rest = rest[self._file.write(rest) :]
        return True


def _lines(path: pathlib.Path, poll_seconds: float | None) -> Iterator[bytes]:
    """Follow a file after a look at its kind, and one more if it came only later."""
    _check_kind(path, must_be_there=poll_seconds is None)
    for number, line in enumerate(follow(path, poll_seconds=poll_seconds)):
        if not number:
            _check_kind(path)
        yield line


def _check_kind(path: pathlib.Path, *, must_be_there: bool = False) -> None:
    """Raise for a file of another kind, which may never have a line that is whole."""
    is_file = path.is_file()
    is_fine = is_file or not (must_be_there or path.exists())
    rule = "must be a participation log"
    require(is_fine, "file", rule, str(path))
    if is_file:
        with path.open("rb") as stream:
            first = stream.read(1)
        rule += " in JSON Lines; mrsa-jax audit reads other kinds"
        require(first in (b"", b"{"), "file", rule, str(path))


def print_sums(
    file: pathlib.Path,
    gate: Gate,
    *,
    poll_seconds: float | None,
    updates: Updates | None = None,
    least_hidden: float | None = None,
    out: pathlib.Path | None = None,
    metrics: pathlib.Path | None = None,
    keep_going: bool = False,
    as_json: bool = False,
    warn: Callable[[str], None],
    goes_on: Callable[[], bool] = lambda: True,
) -> bool:
    """Print a line per learnt sum of a log; return if a requirement did not hold.

    Args:
        file: The log.
        gate: With the requirements; new.
        poll_seconds: How often to look for more; None ends with the file.
        updates: As for `watch`.
        least_hidden: As for `watch`.
        out: Keeps one line of JSON per sum, each once even after restarts.
        metrics: Holds the figures after the last sum, in Prometheus's text format.
        keep_going: Whether to continue after a breach.
        as_json: Whether to print JSON instead of words.
        warn: Receives warnings that are not lines.
        goes_on: Asked after each line.
    """
    is_below = False
    is_plain = False
    with contextlib.ExitStack() as stack:
        lines = None if out is None else stack.enter_context(Kept(out))
        for watched in watch(file, gate, poll_seconds, updates, least_hidden):
            content = watched.to_dict()
            is_new = lines is None or lines.put(content)
            if watched.aggregation == "plain" and not is_plain:
                is_plain = True
                warn(
                    "in this log the server saw every update by itself (aggregation: "
                    "plain); what follows is what the sums alone would leak"
                )
            if is_new:
                text = json.dumps(content) if as_json else watched.to_words()
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
            if metrics is not None:
                write_whole(metrics, to_metrics(watched, str(file)), "metrics")
            is_below = is_below or bool(watched.state.breaches)
            if (is_below and not keep_going) or not goes_on():
                break
    return is_below
