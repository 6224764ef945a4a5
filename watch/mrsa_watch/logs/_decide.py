"""A long table as a history, once the user has decided on its columns.

What is not decided is refused once, with every column, and with a command that decides
it all: by names and values alone, and so that no sums are merged that may be several.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch.logs._columns import Chosen, chosen, plain_name, taken
from mrsa_watch.logs._command import Layout, refuse
from mrsa_watch.logs._guess import Guess, Rows, guess
from mrsa_watch.logs._lists import as_numbers, check_cells, check_decimals, split_cells
from mrsa_watch.logs._long import assemble, is_constant, sums_of_rows
from mrsa_watch.logs._names import examples, short
from mrsa_watch.logs._table import ParticipationLog, Table
from mrsa_watch.logs._words import COUNT

# in which they are guessed
_FLAGS = ("where", "sum_columns", "weight_column", "ignore_columns")
_MOST_TEXT = 1500  # characters of what is listed


def read_table(table: Table) -> ParticipationLog:
    """Return the history of a table whose header names a round and a client column.

    Raises:
        ConfigurationError: If it does not, if a column waits for a decision, or for a
            fault.
    """
    table = split_cells(table)
    rows = chosen(table)
    check_cells(rows)
    undecided = _undecided(rows)
    if undecided:
        _refuse(rows, undecided)
    if rows.weights is not None:
        texts = [name for name in rows.weights.names if isinstance(name, str)]
        check_decimals(texts, table.head, table, has_points=table.has_points)
        rows = rows._replace(weights=as_numbers(rows.weights, table.options))
    names = table.names
    unused = [name for place, name in enumerate(names) if place not in rows.places]
    return dataclasses.replace(
        assemble(rows),
        columns_used=tuple(names[place] for place in rows.places),
        columns_ignored=tuple(unused),
        where=table.options.where,
        sum_columns=table.options.sum_columns,
    )


def read_unnamed(table: Table) -> ParticipationLog:
    """Return the history of a long table of round, client, maybe weight, no header.

    Raises:
        ConfigurationError: As `read_table`.
    """
    return dataclasses.replace(read_table(table), columns_used=())


def _undecided(rows: Chosen) -> dict[int, Guess]:
    """Return columns that wait for a decision, by place, with a guess at each."""
    table = rows.table
    of_rows = Rows(sums_of_rows(rows).column.codes, rows.clients.codes)
    guesses: dict[int, Guess | None] = {}
    for place, name in enumerate(table.names):
        if place in rows.places or name in table.options.ignore_columns:
            continue
        column = table.column(place)
        column = None if column is None else taken(column, rows.rows)
        guesses[place] = guess(plain_name(name), column, of_rows)
        if place in table.apart and column is not None:
            is_one = is_constant(column.codes, of_rows.sums)
            guesses[place] = None if is_one else Guess("sum_columns")
    return {place: each for place, each in guesses.items() if each is not None}


def _refuse(rows: Chosen, undecided: Mapping[int, Guess]) -> None:
    table = rows.table
    listed = _listed(table, undecided, with_values=True)
    if len(listed) > _MOST_TEXT:
        listed = _listed(table, undecided, with_values=False)[:_MOST_TEXT]
    decided = _decided(rows, undecided)
    begins = "; rounds that begin anew" * (decided.restarts != table.options.restarts)
    refuse(
        table._replace(options=decided),
        table.head,
        f"a decision on column{'s' * (len(undecided) > 1)} {listed}, which may say who "
        "was in a sum, in which sum of a round, or with which weight: --where "
        "COLUMN=TEXT keeps only such rows (COLUMN!=TEXT: all others), --sum-columns "
        "COLUMN tells a round's sums apart, --part-column COLUMN names the part of the "
        "vector that a sum is of, --weight-column COLUMN takes it as weights, "
        "--ignore-columns COLUMN takes every row as it is",
        f"none{begins}; by names and values alone this may be meant",
    )


def _listed(table: Table, places: Iterable[int], *, with_values: bool) -> str:
    """Return the names of columns, and some of their values."""
    texts = []
    for place in places:
        column = table.column(place) if with_values else None
        values = "nested values" if column is None else examples(column.names)
        texts.append(short(table.header[place].strip()) + f" ({values})" * with_values)
    *others, last = texts
    return " and ".join([", ".join(others), last] if others else [last])


def _decided(rows: Chosen, undecided: Mapping[int, Guess]) -> Layout:
    """Return settings that leave nothing undecided, by one guess after another."""
    table = rows.table
    while undecided:
        # conditions first: the rows and sums that they leave decide the other guesses
        flag = min((each.flag for each in undecided.values()), key=_FLAGS.index)
        guesses = {
            place: each for place, each in undecided.items() if each.flag == flag
        }
        if flag == "weight_column" and rows.weights is not None:
            flag = "ignore_columns"
        try:
            rows = chosen(_with(table, guesses, flag))
        except ConfigurationError:  # conditions that no row meets together
            rows = chosen(_with(table, guesses, "ignore_columns"))
        table = rows.table
        undecided = _undecided(rows)
    if sums_of_rows(rows).returns is not None:
        return dataclasses.replace(table.options, restarts="new")
    return table.options


def _with(table: Table, guesses: Mapping[int, Guess], flag: str) -> Table:
    """Return a table that is read with some guesses, all of one kind."""
    options = table.options
    names = {place: table.header[place].strip() for place in guesses}
    where = options.where
    if flag == "where":
        where += tuple(
            (names[place] + "!" * each.is_not, each.texts)
            for place, each in guesses.items()
        )
        decision: dict[str, Any] = {}
    elif flag == "weight_column":
        best = min(
            names, key=lambda place: bool(COUNT.search(plain_name(names[place])))
        )
        texts = guesses[best].texts
        where += ((names[best] + "!", texts),) if texts else ()
        decision = {flag: names[best]}
    else:
        decision = {flag: getattr(options, flag) + tuple(names.values())}
    return table._replace(options=dataclasses.replace(options, where=where, **decision))
