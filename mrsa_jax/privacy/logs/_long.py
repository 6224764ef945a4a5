"""A table with a row for each participation as a matrix, its faults named by row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from mrsa_jax.privacy.logs._command import refuse
from mrsa_jax.privacy.logs._numbers import parse_number
from mrsa_jax.privacy.logs._sums import sums_of_rows
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
    parts: Sequence[Column] = (),
) -> ParticipationLog:
    """Return the matrix of a table with a row for each participation, or name its first fault.

    Args:
        rounds: The round of each row.
        clients: Its client.
        weights: Its weight; 1 if None.
        options: How to read the table.
        locate: Names the place of a row.
        path: Names the table.
        parts: What tells several sums of one round apart.
    """
    if rounds.codes.size == 0:
        fault(path, "rows of participation after the header", "none")
    if weights is None:
        weights = Column(np.zeros_like(rounds.codes), [1])
    read = [_weight(name) for name in weights.names]
    _check_rows(rounds, clients, weights, read, locate)
    check_rounds(rounds, locate)
    check_names(clients, "client", locate)
    values = [Fraction(0) if value is None else value for value in read]  # None is in no row
    found = sums_of_rows(rounds, parts, clients, options)
    sums = found.column
    if found.returns is not None:
        _refuse_return(sums.names[sums.codes[found.returns]], locate(found.returns), path, options)
    columns = in_order(clients, "sorted")
    row, column = sums.codes, places_in(columns, clients)
    shape = (len(sums.names), len(columns))
    _check_repeats(row, column, shape, sums, clients, locate)
    matrix = dense(row, column, shape, Column(weights.codes, values), options, path)
    log = named(matrix, tuple(sums.names), tuple(clients.names[i] for i in columns))
    if found.runs == 1:
        return log
    note = f"The numbers of rounds begin anew: read as {found.runs} runs, by the order of the rows."
    return dataclasses.replace(log, notes=(note,))


def _refuse_return(name: Any, where: str, path: str, options: Layout) -> NoReturn:
    """Refuse a round that goes on after others have come, in a file in order of its rounds."""
    refuse(where, f"the rows of round {name!r} next to each other, as others' are (--restarts new: "
           "its number is used anew, by another sum; --restarts same: it is the same sum)",
           "it again after others; this reads another sum there, so that no figure is too good",
           path, dataclasses.replace(options, restarts="new"))  # fmt: skip


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
    fault(locate(second), "each client once in a round (--sum-columns COLUMN tells its sums apart, "
          "--restarts new where it begins anew; of a row that is there twice one must go)",
          f"client {client!r} in round {label!r} again, first in {locate(first)}")  # fmt: skip
