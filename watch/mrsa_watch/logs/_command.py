"""Settings that read a log, and the command or call with them that ends a refusal."""

from __future__ import annotations

import csv
import dataclasses
import io
import shlex
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol, runtime_checkable

from mrsa_watch._base.errors import ConfigurationError, MrsaError

TABLE = "table"
"""Stands for the path of a table in memory."""
_MOST_TEXT = 3500  # characters of a command
_MOST_MORE = 1000  # characters of what else is in doubt
_MOST_DECISIONS = 12


@dataclasses.dataclass(frozen=True)
class Layout:
    """Settings that read a log: arguments of `read_log`, in the order of a command."""

    format: str
    layout: str
    array: str | None
    round_column: str | None
    client_column: str | None
    weight_column: str | None
    part_column: str | None
    round_order: str
    restarts: str
    alike_names: str
    odd_names: str
    decimal: str
    client_separator: str | None
    where: tuple[tuple[str, tuple[str, ...]], ...]
    sum_columns: tuple[str, ...]
    ignore_columns: tuple[str, ...]
    memory_bytes: int


@runtime_checkable
class Source(Protocol):
    """A log that is read: its name in messages, and how to read it."""

    @property
    def path(self) -> str: ...

    @property
    def options(self) -> Layout: ...


class Refusal(ConfigurationError):
    """A log waits for a decision: what is in doubt, and the settings that settle it.

    Attributes:
        doubt: What is in doubt, in one sentence.
        path: The log.
        options: Settings of the safe reading.
    """

    def __init__(self, doubt: str, path: str, options: Layout) -> None:
        super().__init__(_ending_in(doubt, path, options))
        self.doubt = doubt
        self.path = path
        self.options = options


def refuse(
    source: Source, where: str, expected: str, received: str, /, **decisions: Any
) -> NoReturn:
    """Raise an error that ends in the command to read the log by these decisions."""
    options = dataclasses.replace(source.options, **decisions)
    doubt = f"{where}: expected {expected}; found {received}"
    raise Refusal(doubt, source.path, options)


def settled(first: Refusal, read: Callable[[Layout], Any]) -> ConfigurationError:
    """Return the one error whose command settles all that is in doubt.

    Args:
        first: What was in doubt first.
        read: Reads the log by some settings.
    """
    options = first.options
    others = [""]
    # each refusal brings the settings of all before it, so that the last command
    # settles all
    for _ in range(_MOST_DECISIONS):
        try:
            read(options)
        except Refusal as more:
            if more.options == options:
                break
            options = more.options
            others.append(more.doubt)
        except MrsaError:  # a fault, which no setting settles
            break
        else:
            break
    doubts = "; also ".join(others)
    if len(doubts) > _MOST_MORE:
        doubts = doubts[: _MOST_MORE - 3] + "..."
    return ConfigurationError(_ending_in(first.doubt + doubts, first.path, options))


def _ending_in(doubt: str, path: str, options: Layout) -> str:
    text = command(path, options)
    ending = text if len(text) <= _MOST_TEXT else "(a command too long to be shown)"
    return f"{doubt}:\n  {ending}"


def command(path: str, options: Layout) -> str:
    """Return the command or call that reads a log by these settings."""
    settings = vars(options)
    texts = {
        name: value
        for name, value in settings.items()
        if isinstance(value, str) and value not in ("auto", "ask")
    }
    lists = {
        name: list(settings[name])
        for name in ("sum_columns", "ignore_columns")
        if settings[name]
    }
    where = {name: list(values) for name, values in options.where}
    if path == TABLE:
        arguments = {**texts, **({"where": where} if where else {}), **lists}
        words = "".join(f", {name}={value!r}" for name, value in arguments.items())
        return f"read_log({TABLE}{words})"
    flags = [*texts.items()]
    flags += [
        ("where", f"{name}={with_commas(values)}") for name, values in options.where
    ]
    flags += [(name, with_commas(values)) for name, values in lists.items()]
    parts = [shlex.quote(f"./{path}" if path.startswith("-") else path)]
    for name, text in flags:
        flag = f"--{name.replace('_', '-')}"
        value = shlex.quote(text)
        # a value that begins with a dash would be taken for another flag
        parts += [f"{flag}={value}"] if text[:1] == "-" else [flag, value]
    return f"mrsa-jax audit {' '.join(parts)}"


def with_commas(texts: Iterable[str]) -> str:
    """Return texts as a comma-separated list, those that contain a comma in quotes."""
    texts = list(texts)
    if texts == [""]:
        return ""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow(texts)
    return stream.getvalue()


def parted(text: str) -> tuple[str, ...]:
    """Return the texts between commas; those in quotes may hold commas."""
    rows = list(csv.reader([text], skipinitialspace=True))
    return tuple(part.strip() for part in rows[0]) if rows and rows[0] else ("",)
