"""A table with a row for each participation as a matrix, its faults named by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_jax.privacy.logs._numbers import parse_number
from mrsa_jax.privacy.logs._table import (
    Column,
    Layout,
    ParticipationLog,
    check_names,
    check_rounds,
    decimal_of,
    dense,
    fault,
    in_order,
    named,
    places_in,
)

_MISSING = ("", "nan", "NaN")
_MOST_NAME = 1000  # characters


def assemble(
    rounds: Column,
    clients: Column,
    weights: Column | None,
    options: Layout,
    locate: Callable[[int], str],
    path: str,
) -> ParticipationLog:
    """Return the matrix of a table with a row for each participation, or name its first fault."""
    if rounds.codes.size == 0:
        fault(path, "rows of participation after the header", "none")
    if weights is None:
        weights = Column(np.zeros_like(rounds.codes), [1])
    read = [_weight(name) for name in weights.names]
    _check_rows(rounds, clients, weights, read, locate)
    check_rounds(rounds, locate)
    check_names(clients, "client", locate)
    values = [Fraction(0) if value is None else value for value in read]  # None is in no row
    order = in_order(rounds, options.round_order)
    columns = in_order(clients, "sorted")
    row, column = places_in(order, rounds), places_in(columns, clients)
    shape = (len(order), len(columns))
    _check_repeats(row, column, shape, rounds, clients, locate)
    matrix = dense(row, column, shape, Column(weights.codes, values), options, path)
    names = (tuple(rounds.names[i] for i in order), tuple(clients.names[i] for i in columns))
    return named(matrix, *names)


def _weight(name: Any) -> Fraction | None:
    """Return a weight exactly, or None if it is none."""
    if isinstance(name, str):
        value = parse_number(name)
    elif isinstance(name, float) and not math.isfinite(name):
        value = None
    else:
        value = None if name is None else Fraction(name)
    return value if value is not None and value >= 0 else None


def _check_rows(
    rounds: Column,
    clients: Column,
    weights: Column,
    values: list[Fraction | None],
    locate: Callable[[int], str],
) -> None:
    faults: list[tuple[int, str, Column]] = []
    one_line = f"a name in one line, of at most {_MOST_NAME} characters"
    bad = {name for name, value in zip(weights.names, values, strict=True) if value is None}
    columns: tuple[tuple[Column, str, Callable[[Any], bool]], ...] = (
        (rounds, "a round (a number from 0 on, or a name)", _is_round),
        (clients, "the name or number of a client", _is_name),
        (rounds, one_line, _is_one_line),
        (clients, one_line, _is_one_line),
        (weights, "a weight, a number of 0 or more", lambda name: name not in bad),
    )
    for column, expected, is_fine in columns:
        wrong = [code for code, name in enumerate(column.names) if not is_fine(name)]
        rows = np.flatnonzero(np.isin(column.codes, wrong)) if wrong else np.empty(0, int)
        if rows.size:
            faults.append((int(rows[0]), expected, column))
    if faults:
        row, expected, column = min(faults, key=lambda item: item[0])
        name = column.names[column.codes[row]]
        fault(locate(row), expected, "nothing" if name in ("", None) else repr(name))


def _is_name(name: Any) -> bool:
    return name is not None and name not in _MISSING and name == name  # NaN differs from itself


def _is_one_line(name: Any) -> bool:
    if not isinstance(name, str):
        return True
    return len(name) <= _MOST_NAME and "\n" not in name.strip() and "\r" not in name.strip()


def _is_round(name: Any) -> bool:
    if isinstance(name, float) and math.isinf(name):
        return False
    number = decimal_of(name)
    return _is_name(name) and (number is None or number >= 0)


def _check_repeats(
    row: np.ndarray,
    column: np.ndarray,
    shape: tuple[int, int],
    rounds: Column,
    clients: Column,
    locate: Callable[[int], str],
) -> None:
    place = row.astype(np.int64) * shape[1] + column
    order = np.argsort(place, kind="stable")
    again = order[1:][place[order[1:]] == place[order[:-1]]]
    if again.size == 0:
        return
    second = int(again.min())
    first = int(np.flatnonzero(place == place[second])[0])
    client, label = clients.names[clients.codes[second]], rounds.names[rounds.codes[second]]
    fault(locate(second), "each client once in a round",
          f"client {client!r} in round {label!r} again, first in {locate(first)}")  # fmt: skip
