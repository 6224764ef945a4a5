"""A long table as a history, once the user has decided on its columns.

What is not decided is refused once, with every column, and with a command that decides
it all: by names and values alone, and so that no sums are merged that may be several.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch.logs import _json
from mrsa_watch.logs._columns import Chosen, Table, chosen, plain_name, taken
from mrsa_watch.logs._command import refuse
from mrsa_watch.logs._guess import Guess, Rows, guess
from mrsa_watch.logs._json import examples, short
from mrsa_watch.logs._lists import as_numbers, check_cells, check_decimals, split_cells
from mrsa_watch.logs._long import Sums, assemble, is_constant, sums_of_rows
from mrsa_watch.logs._table import Layout, ParticipationLog

# in which they are guessed
_FLAGS = ("where", "sum_columns", "weight_column", "ignore_columns")
_MOST_TEXT = 1500  # characters of what is listed


def read_table(table: Table, options: Layout) -> ParticipationLog:
    """Return the history of a table whose header names a round and a client column.

    Raises:
        ConfigurationError: If it does not, if a column waits for a decision, or for a
            fault.
    """
    table = split_cells(table, options)
    found = chosen(table, options)
    columns, read = found.columns, found.read

    def locate(row: int) -> str:
        return table.locate(int(found.rows[row]))

    check_cells(read[columns.client], locate, table.path, options)
    undecided = _undecided(table, found, options)
    if undecided:
        _refuse(table, undecided, options)
    weights = None if columns.weight is None else read[columns.weight]
    if weights is not None:
        texts = [name for name in weights.names if isinstance(name, str)]
        check_decimals(
            texts, table.head, table.path, options, has_points=table.has_points
        )
        weights = as_numbers(weights, options)
    log = assemble(
        read[columns.round],
        read[columns.client],
        weights,
        options,
        locate,
        table.path,
        found.sums,
        found.part,
        table.header[columns.client].strip(),
    )
    names = [name.strip() for name in table.header]
    others = [name for place, name in enumerate(names) if place not in columns.used]
    return dataclasses.replace(
        log,
        columns_used=tuple(names[place] for place in columns.used),
        columns_ignored=tuple(others),
        where=options.where,
        sum_columns=options.sum_columns,
    )


def read_unnamed(table: Table, options: Layout) -> ParticipationLog:
    """Return the history of a long table without a header.

    Round, client and maybe weight.

    Raises:
        ConfigurationError: As `read_table`.
    """
    log = read_table(table, options)
    return dataclasses.replace(log, columns_used=())


def _undecided(table: Table, found: Chosen, options: Layout) -> dict[int, Guess]:
    """Return the columns that wait for a decision by their places, with a guess at each."""
    clients = found.read[found.columns.client]
    rows = Rows(_sums(found, options).column.codes, clients.codes)
    guesses = {}
    for place, name in enumerate(table.header):
        if (
            place not in found.columns.used
            and name.strip() not in options.ignore_columns
        ):
            column = table.column(place)
            column = None if column is None else taken(column, found.rows)
            own = guess(plain_name(name), column, rows)
            if place in table.apart and column is not None:
                is_one = is_constant(column.codes, rows.sums)
                own = None if is_one else Guess("sum_columns")
            if own is not None:
                guesses[place] = own
    return guesses


def _sums(found: Chosen, options: Layout) -> Sums:
    """Return the sum of each row, as far as the settings tell sums apart."""
    rounds, clients = found.read[found.columns.round], found.read[found.columns.client]
    return sums_of_rows(rounds, found.sums, clients, options, found.part)


def _refuse(table: Table, undecided: Mapping[int, Guess], options: Layout) -> None:
    told = _listing(table, undecided, with_values=True)
    if len(told) > _MOST_TEXT:
        told = _listing(table, undecided, with_values=False)[:_MOST_TEXT]
    settled = _settled(table, undecided, options)
    begins = "; rounds that begin anew" if settled.restarts != options.restarts else ""
    plural = "s" if len(undecided) > 1 else ""
    refuse(
        table.head,
        f"a decision on column{plural} {told}, which may say who was in a sum, in "
        "which sum of a round, or with which weight: --where COLUMN=TEXT keeps only "
        "such "
        "rows (COLUMN!=TEXT: all others), --sum-columns COLUMN tells a round's sums "
        "apart, "
        "--part-column COLUMN names the part of the vector that a sum is of, "
        "--weight-column COLUMN takes it as weights, --ignore-columns COLUMN takes "
        "every row as "
        "it is",
        f"none{begins}; by names and values alone this may be meant",
        table.path,
        settled,
    )


def _listing(table: Table, places: Iterable[int], *, with_values: bool) -> str:
    """Return the names of columns, and some of their values."""
    shown = []
    for place in places:
        column = table.column(place) if with_values else None
        values = "nested values" if column is None else examples(column.names)
        shown.append(short(table.header[place].strip()) + f" ({values})" * with_values)
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)


def _settled(table: Table, undecided: Mapping[int, Guess], options: Layout) -> Layout:
    """Return settings that leave nothing undecided, by one kind of guess after another."""
    found = chosen(table, options)
    while undecided:
        flag = min((own.flag for own in undecided.values()), key=_FLAGS.index)
        own = {place: one for place, one in undecided.items() if one.flag == flag}
        tried = _with(
            table, own, flag, options, is_weighted=found.columns.weight is not None
        )
        try:
            found = chosen(table, tried)
        except ConfigurationError:  # conditions that no row meets together
            tried = _with(table, own, "ignore_columns", options, is_weighted=False)
            found = chosen(table, tried)
        options = tried
        undecided = _undecided(table, found, options)
    if _sums(found, options).returns is not None:
        return dataclasses.replace(options, restarts="new")
    return options


def _with(
    table: Table,
    guesses: Mapping[int, Guess],
    flag: str,
    options: Layout,
    *,
    is_weighted: bool,
) -> Layout:
    """Return the settings with some guesses, all of one kind."""
    names = {place: table.header[place].strip() for place in guesses}
    if flag == "where":
        conditions = tuple(
            (names[place] + "!" * one.is_not, one.texts)
            for place, one in guesses.items()
        )
        return dataclasses.replace(options, where=options.where + conditions)
    if flag == "sum_columns":
        return dataclasses.replace(
            options, sum_columns=options.sum_columns + tuple(names.values())
        )
    if flag == "weight_column" and not is_weighted:
        best = min(names, key=lambda place: _json.is_count(plain_name(names[place])))
        texts = guesses[best].texts
        where = ((names[best] + "!", texts),) if texts else ()
        return dataclasses.replace(
            options, weight_column=names[best], where=options.where + where
        )
    return dataclasses.replace(
        options, ignore_columns=options.ignore_columns + tuple(names.values())
    )
