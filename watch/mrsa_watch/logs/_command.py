"""The command, or the call, that reads a log by given settings: what a refusal ends in."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from mrsa_watch._base.errors import ConfigurationError, MrsaError
from mrsa_watch.logs._table import Layout

TABLE = "table"
"""Stands for the path of a table in memory."""
_MOST_TEXT = 3500  # characters of a command
_MOST_MORE = 1000  # characters of what else is in doubt
_MOST_DECISIONS = 12
_TEXTS = (
    "format",
    "layout",
    "array",
    "round_column",
    "client_column",
    "weight_column",
    "part_column",
    "round_order",
    "restarts",
    "alike_names",
    "odd_names",
    "decimal",
    "client_separator",
)
_LISTS = ("sum_columns", "ignore_columns")
_BY_DEFAULT = (None, "auto", "ask")


class Refusal(ConfigurationError):
    """A log waits for a decision: what is in doubt, and the settings that settle it.

    Attributes:
        told: What is in doubt, in one sentence.
        path: The log.
        options: Settings of the safe reading.
    """

    def __init__(self, told: str, path: str, options: Layout) -> None:
        super().__init__(_ending_in(told, path, options))
        self.told, self.path, self.options = told, path, options


def refuse(
    where: str, expected: str, found: str, path: str, options: Layout
) -> NoReturn:
    """Raise the error that ends in the command which reads the log by some settings."""
    raise Refusal(f"{where}: expected {expected}; found {found}", path, options)


def settled(first: Refusal, read: Callable[[Layout], Any]) -> ConfigurationError:
    """Return the one error whose command settles all that is in doubt.

    Args:
        first: What was in doubt first.
        read: Reads the log by some settings.
    """
    options, others = first.options, list[str]()
    for _ in range(_MOST_DECISIONS):
        try:
            read(options)
        except Refusal as more:
            if more.options == options:
                break
            options = more.options
            others.append(more.told)
        except MrsaError:  # a fault, which no setting settles
            break
        else:
            break
    more_told = "; also ".join(["", *others])
    if len(more_told) > _MOST_MORE:
        more_told = more_told[: _MOST_MORE - 3] + "..."
    return ConfigurationError(_ending_in(first.told + more_told, first.path, options))


def _ending_in(told: str, path: str, options: Layout) -> str:
    text = command(path, options)
    shown = text if len(text) <= _MOST_TEXT else "(a command too long to be shown)"
    return f"{told}:\n  {shown}"


def command(path: str, options: Layout) -> str:
    """Return what reads a log by these settings."""
    texts = {
        name: value
        for name in _TEXTS
        if (value := getattr(options, name)) not in _BY_DEFAULT
    }
    lists = {name: list(value) for name in _LISTS if (value := getattr(options, name))}
    if path == TABLE:
        where = {name: list(one) for name, one in options.where}
        told = {**texts, **({"where": where} if where else {}), **lists}
        words = "".join(f", {name}={value!r}" for name, value in told.items())
        return f"read_log({TABLE}{words})"
    flags = [*texts.items()]
    flags += [("where", f"{name}={with_commas(one)}") for name, one in options.where]
    flags += [(name, with_commas(value)) for name, value in lists.items()]
    parts = [shlex.quote(f"./{path}" if path.startswith("-") else path)]
    for name, text in flags:
        flag = f"--{name.replace('_', '-')}"
        parts += (
            [f"{flag}={shlex.quote(text)}"]
            if text[:1] == "-"
            else [flag, shlex.quote(text)]
        )
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
