"""Watches a participation log: what it leaks after each sum, as lines that are kept once each.

The log is all the state there is: whoever starts again reads it from its first line, by the same
steps, and comes to the same figures to the last digit.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from mrsa_watch._base.errors import require, writing
from mrsa_watch._base.locks import locked
from mrsa_watch._follow import follow
from mrsa_watch._gate import Gate, GateState
from mrsa_watch.logs import LineParser, SumLine


@dataclasses.dataclass(frozen=True)
class Watched:
    """A learnt sum of a log, and what leaks after it.

    Attributes:
        line: The sum.
        state: What the sums so far leak.
        newly_exposed: Clients whom this sum exposed.
        new_breaches: Breaches that were not there before it, or not so.
        aggregation: How its system says that it sums.
    """

    line: SumLine
    state: GateState
    newly_exposed: tuple[Any, ...]
    new_breaches: tuple[str, ...]
    aggregation: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON; clients who were exposed before are only counted."""
        line, state = self.line, self.state
        return {
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
            "hidden": state.hidden,
            "hidden_client": state.hidden_client,
            "error_bits": state.error_bits,
            "breaches": list(state.breaches),
        }


def watch(path: pathlib.Path, gate: Gate, poll_seconds: float | None) -> Iterator[Watched]:
    """Yield what leaks after each learnt sum of a log, from its first line on.

    Args:
        path: A participation log in JSON Lines; waited for if it is not there yet.
        gate: Takes the sums; new.
        poll_seconds: How often to look for more; None ends with the last complete line.

    Raises:
        ConfigurationError: If a line is not of the format, or the file did not only grow.
    """
    parser = LineParser(str(path))
    for found in parser.sums(_lines(path, poll_seconds)):
        if found.status != "learnt":
            continue
        before = gate.state
        state = gate.add(found.clients, found.weights)
        yield Watched(
            found,
            state,
            state.exposed[len(before.exposed) :],
            tuple(why for why in state.breaches if why not in before.breaches),
            parser.headers[-1].aggregation,
        )


class Kept:
    """Lines of a file that has one for each sum, however often it was begun anew; a context.

    Lines that are there already must be the same; a torn last one is taken away. Another process
    that keeps lines in the file is an error at once.

    Args:
        path: The file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        require(path.parent.is_dir(), "out", "must lie in an existing folder", str(path))
        self._path = path
        with writing(path):
            self._file = path.open("a+b", buffering=0)
        is_ours = locked(self._file)
        if not is_ours:
            self._file.close()
        require(is_ours, "out", "must be no other watch's", str(path))
        self._file.seek(0)
        lines = self._file.read().split(b"\n")
        self._before, torn = lines[:-1], lines[-1]
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
        line = json.dumps(content).encode()
        if self._count < len(self._before):
            same = self._before[self._count] == line
            rule = ("must be a file of this log, with these bars and this effort (line "
                    f"{self._count + 1} is of another)")  # fmt: skip
            require(same, "out", rule, str(self._path))
            self._count += 1
            return False
        with writing(self._path, more="; its complete lines are kept"):
            left = line + b"\n"
            while left:
                left = left[self._file.write(left) :]
        self._count += 1
        return True


def _lines(path: pathlib.Path, poll_seconds: float | None) -> Iterator[bytes]:
    """Follow a file after a look at its kind, and another one where it came only now."""
    _check_kind(path, must_be_there=poll_seconds is None)
    for number, line in enumerate(follow(path, poll_seconds=poll_seconds)):
        if not number:
            _check_kind(path)
        yield line


def _check_kind(path: pathlib.Path, *, must_be_there: bool = False) -> None:
    """Raise for a file of another kind, which may never have a line that is whole."""
    is_there = path.is_file()
    there = is_there or not (must_be_there or path.exists())
    require(there, "file", "must be a participation log", str(path))
    if is_there:
        with path.open("rb") as stream:
            first = stream.read(1)
        rule = "must be a participation log in JSON Lines; mrsa-jax audit reads other kinds"
        require(first in (b"", b"{"), "file", rule, str(path))
