"""The command, or the call, that reads a log by given settings: what a refusal ends in."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable
from typing import NoReturn

from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch.logs._table import Layout

TABLE = "table"
"""Stands for the path of a table in memory."""
_MOST_TEXT = 3500  # characters of a command


def refuse(where: str, expected: str, found: str, path: str, options: Layout) -> NoReturn:
    """Raise the error that ends in the command which reads the log by some settings."""
    text = command(path, options)
    shown = text if len(text) <= _MOST_TEXT else "(a command too long to be shown)"
    raise ConfigurationError(f"{where}: expected {expected}; found {found}:\n  {shown}")


def command(path: str, options: Layout) -> str:
    """Return what reads a log by these settings."""
    texts = {
        name: value
        for name in ("layout", "round_column", "client_column", "weight_column", "part_column",
                     "round_order", "restarts")
        if (value := getattr(options, name)) not in (None, "auto", "sorted", "ask")
    }  # fmt: skip
    lists = {
        name: list(value) for name in ("sum_columns", "ignore_columns")
        if (value := getattr(options, name))
    }  # fmt: skip
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
        parts += [f"{flag}={shlex.quote(text)}"] if text[:1] == "-" else [flag, shlex.quote(text)]
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
