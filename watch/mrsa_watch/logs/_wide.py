"""Tables with a column for each client: 0 and 1, or weights, below a header of names.

A column of rounds (the index that a table of pandas writes before its columns) names
the rows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mrsa_watch.logs._columns import (
    CLIENT_NAMES,
    ROUND_NAMES,
    check_ignored,
    header_fault,
    is_members,
    place_of,
    plain_name,
    refuse_choices,
)
from mrsa_watch.logs._command import Layout, refuse
from mrsa_watch.logs._lists import check_decimals
from mrsa_watch.logs._long import NOT_WHOLE, UNLIKE, refuse_alike
from mrsa_watch.logs._names import examples, fault, listing, short, text_of_cell
from mrsa_watch.logs._numbers import decimal_number, parse_number
from mrsa_watch.logs._order import UNORDERED, in_order, resolved
from mrsa_watch.logs._patterns import Odd, odd_columns
from mrsa_watch.logs._table import (
    Column,
    ParticipationLog,
    Table,
    alike_names,
    check_memory,
    check_rounds,
    distinct,
    from_matrix,
    merged,
)

_NUMBERS_OF_ROWS = ("", "index", "level_0", "unnamed_0", "__index_level_0__")
RULE = "a column for each client"
_OF_ROUNDS = re.compile(
    r"(?:(?:round|rnd|r|iter|iteration|epoch|step|t|day|week|server round|"
    r"server_round)[-_ ]?)?\d+|\d{4}-\d\d-\d\d.*"
)


class Wide(NamedTuple):
    """Places of a wide table's columns.

    Attributes:
        rounds: Of the rounds, if it has one.
        clients: Of the clients.
        kept: Of the first column of each client, where others are of the same one.
        client_of: The place in `kept` of each column's client.
    """

    rounds: int | None
    clients: list[int]
    kept: list[int]
    client_of: list[int]


def wide_columns(table: Table, rule: str = RULE) -> Wide:
    """Return the places of a wide table's columns; those not ignored are clients.

    Raises:
        ConfigurationError: If a column seems to be something else than a client, or
            comes twice.
    """
    names = table.names
    options = table.options
    check_ignored(table)
    expected = "a round and a client column for the columns that are named"
    refuse_choices(
        dataclasses.replace(options, round_column=None), table.head, expected
    )
    rounds, places = _sides(table)
    clients = [names[place] for place in places]
    _check_odd(clients, table, rule)
    for place in places:
        if names.index(names[place]) != place:
            expected = f"{rule} (--ignore-columns leaves one out)"
            fault(table.head, expected, f"a column {short(names[place])} again")
    if not places:
        fault(table.head, rule, "none that is not ignored")
    column = Column(np.arange(len(places)), clients)
    if options.alike_names == "ask":
        for alike in alike_names(column):
            where = f"{table.path}, column {alike.name!a}"
            refuse_alike(alike.name, alike.other, where, table)
    elif options.alike_names == "same":
        column = merged(column)
    first, client_of = np.unique(column.codes, return_inverse=True)
    return Wide(rounds, places, [places[i] for i in first], client_of.tolist())


def _check_odd(names: Sequence[str], table: Table, rule: str) -> None:
    """Refuse columns of possible non-clients, or of identifiers of several."""
    odd = _odd(names, table.options)
    expected = (
        f"{rule} (--ignore-columns leaves one out; "
        "--odd-names keep takes all as clients)"
    )
    if odd.rounded:
        doubt = f"{examples(odd.rounded)}, {NOT_WHOLE}"
        refuse(table, table.head, expected, doubt, odd_names="keep")
    if not odd.all:
        return
    doubt = f"{_columns(odd.all)}, {UNLIKE}"
    if set(odd.all) >= set(names):
        fault(table.head, expected, doubt)
    _refuse_columns(table, odd.all, expected, doubt)


def _columns(names: Sequence[str]) -> str:
    return f"a column{'s' * (len(names) > 1)} {listing([*map(short, names)])}"


def _refuse_columns(
    table: Table, names: Sequence[str], expected: str, doubt: str
) -> NoReturn:
    """Refuse columns that may be no clients; the safe reading ignores them."""
    doubt += "; this leaves out what is none"
    ignored = (*table.options.ignore_columns, *names)
    refuse(table, table.head, expected, doubt, ignore_columns=ignored)


def _odd(names: Sequence[str], options: Layout) -> Odd:
    """Return names of columns that may be no clients, or that are no longer whole."""
    if options.odd_names == "keep":
        return Odd([], [], [], [])
    usual = {
        name for name in names if plain_name(name) in (*ROUND_NAMES, *CLIENT_NAMES)
    }
    odd = odd_columns(names, plain_name)
    return odd._replace(none=[*odd.none, *sorted(usual - set(odd.all))])


def _sides(table: Table) -> tuple[int | None, list[int]]:
    """Return the place of the rounds, if any, and places of what may be clients.

    Left out are columns that are ignored, and others that number rows.
    """
    names = table.names
    plain = {
        place: plain_name(name)
        for place, name in enumerate(names)
        if name not in table.options.ignore_columns
    }
    numbers = [place for place, name in plain.items() if name in _NUMBERS_OF_ROWS]
    named = [place for place, name in plain.items() if name in ROUND_NAMES]
    rounds = None
    if table.options.round_column is not None:
        rounds = place_of(names, table.options.round_column, table.head)
    elif named:
        rounds = min(named, key=lambda place: ROUND_NAMES.index(plain[place]))
    elif numbers:
        rounds = numbers[0]
    return rounds, [place for place in plain if place not in (rounds, *numbers)]


def named_matrix(
    array: np.ndarray,
    table: Table,
    wide: Wide,
    rounds: Column | None,
    clients: Sequence[Hashable] = (),
    where: Callable[[int, int], str] | None = None,
) -> ParticipationLog:
    """Return a matrix whose columns are the clients of a wide table.

    Args:
        array: Its entries.
        table: The table.
        wide: Places of its columns.
        rounds: Its column of rounds, if it has one.
        clients: Names of the clients, if they are others than those of the columns.
        where: Names the place of an entry, unless by its row and its column's name.
    """
    names = table.names

    def by_name(row: int, column: int) -> str:
        return f"{table.path}: row {row}, column {table.header[wide.clients[column]]!r}"

    columns = [names[place] for place in wide.kept]
    entries = _of_clients(array, wide, table.path, columns)
    log = from_matrix(entries, table, where or by_name, clients or columns)
    used = wide.clients if wide.rounds is None else [wide.rounds, *wide.clients]
    unused = [name for place, name in enumerate(names) if place not in used]
    log = dataclasses.replace(
        log,
        columns_used=tuple(names[place] for place in used),
        columns_ignored=tuple(unused),
    )
    return log if rounds is None else _with_rounds(log, rounds, table)


def _of_clients(
    array: np.ndarray, wide: Wide, path: str, names: Sequence[str]
) -> np.ndarray:
    """Return the entries of each client, of which several columns may be."""
    if len(wide.kept) == len(wide.clients):
        return array
    entries = np.zeros((len(array), len(wide.kept)), array.dtype)
    for column, client in zip(array.T, wide.client_of, strict=True):
        twice = np.flatnonzero((entries[:, client] != 0) & (column != 0))
        if twice.size:
            fault(
                f"{path}: row {twice[0]}",
                "each client once in a round",
                f"client {short(names[client])} in two columns",
            )
        entries[:, client] = np.where(column != 0, column, entries[:, client])
    return entries


def _with_rounds(
    log: ParticipationLog, rounds: Column, table: Table
) -> ParticipationLog:
    """Return the history with names for its rows, in their order."""
    labels: list[Hashable] = [rounds.names[code] for code in rounds.codes]
    column = distinct(labels)
    if len(column.names) < len(labels):
        row = next(i for i, code in enumerate(column.codes) if code != i)
        expected = "each round once in the index"
        fault(table.locate(row), expected, f"{labels[row]!r} again")
    check_rounds(column, table.locate)
    if table.options.layout == "auto" and table.options.round_column is None:
        _check_sides(column.names, log.clients, table.locate)
    how, is_ordered = resolved(column, table.options.round_order)
    order = in_order(column, how)
    scales = log.scales
    return dataclasses.replace(
        log,
        is_ordered=is_ordered,
        notes=() if is_ordered else (UNORDERED,),
        participation=log.participation[order],
        rounds=tuple(labels[i] for i in order),
        are_places=False,
        scales=None if scales is None else tuple(scales[i] for i in order),
    )


def _check_sides(
    rounds: Sequence[Any], clients: Sequence[Any], locate: Callable[[int], str]
) -> None:
    """Raise if the columns are named as rounds are, and the rows are not."""

    def are_rounds(names: Sequence[Any]) -> bool:
        texts = (text_of_cell(name).casefold() for name in names)
        return all(map(_OF_ROUNDS.fullmatch, texts))

    has_text = any(isinstance(name, str) for name in rounds)
    if are_rounds(clients) and not are_rounds(rounds) and has_text:
        fault(
            locate(0),
            "a row for each round and a column for each client (transpose the table; "
            "--layout matrix takes it as it is)",
            f"a row {rounds[0]!a:.60} and a column {clients[0]!a:.60}",
        )


def read_wide(table: Table) -> ParticipationLog:
    """Read a wide table of text.

    Raises:
        ConfigurationError: If its entries are others than 0 and 1 (or weights, if the
            layout allows them): then its header lacks a round and a client.
    """
    options = table.options
    if options.layout == "auto":
        refuse_others(table)
        kinds = _kinds(table)
        foreign = [place for place in kinds.others if not _is_binary(table, place)]
        if len(kinds.clients) < 2 or (kinds.rounds is None and foreign):
            _refuse_header(table)
    wide = wide_columns(table)
    read = map(table.column, wide.clients)
    columns = [column for column in read if column is not None]  # text is plain
    if options.layout == "matrix":
        texts = [name for column in columns for name in column.names]
        check_decimals(texts, table.head, table, has_points=table.has_points)
    values = [
        _numbers(column, f"field {place + 1}", table)
        for column, place in zip(columns, wide.clients, strict=True)
    ]
    binary = {0, 1}.issuperset(value for each in values for value in each)
    kind: Any = np.bool_ if binary else object
    shape = (len(columns[0].codes), len(columns))
    check_memory(shape, 1 if binary else 8, table)
    array = np.stack(
        [
            np.array(each, kind)[column.codes]
            for column, each in zip(columns, values, strict=True)
        ],
        axis=1,
    )

    def where(row: int, column: int) -> str:
        return f"{table.locate(row)}, field {wide.clients[column] + 1}"

    rounds = None if wide.rounds is None else table.plain(wide.rounds)
    return named_matrix(array, table, wide, rounds, where=where)


def _refuse_header(table: Table) -> NoReturn:
    """Refuse a header without a round and a client.

    A column of clients may have a list in each.
    """
    options = table.options
    plain = {name: plain_name(name) for name in table.names}
    plural = [
        name
        for name, small in plain.items()
        if is_members(small) and small not in CLIENT_NAMES
    ]
    has_rounds = options.round_column is not None or not set(ROUND_NAMES).isdisjoint(
        plain.values()
    )
    if len(plural) == 1 and has_rounds and options.client_column is None:
        expected = "a header with a round and a client column (--client-column NAME)"
        doubt = f"a column {short(plural[0])}; this takes it"
        refuse(table, table.head, expected, doubt, client_column=plural[0])
    header_fault(table.head, table.header)


class _Kinds(NamedTuple):
    """Places of the rounds, of possible clients in 0 and 1, and of others."""

    rounds: int | None
    clients: list[int]
    others: list[int]


def _kinds(table: Table) -> _Kinds:
    """Tell the columns of a matrix of 0 and 1 apart."""
    names = table.names
    rounds, places = _sides(table)
    binary = [place for place in places if _is_binary(table, place)]
    strange = set(_odd([names[place] for place in binary], table.options).all)
    clients = [place for place in binary if names[place] not in strange]
    return _Kinds(rounds, clients, [each for each in places if each not in clients])


def refuse_others(table: Table) -> None:
    """Raise if a 0-and-1 matrix with a column of rounds has other columns too."""
    if _sides(table)[0] is None:
        return  # a matrix without names for its rounds: its reader looks at the entries
    kinds = _kinds(table)
    if not kinds.others or len(kinds.clients) < 2:
        return
    names = [table.header[place].strip() for place in kinds.others]
    expected = (
        "a column of 0 and 1 for each client (--ignore-columns leaves out others; "
        "--layout matrix takes entries as weights)"
    )
    _refuse_columns(table, names, expected, _columns(names))


def _is_binary(table: Table, place: int) -> bool:
    column = table.column(place)
    return column is not None and all(
        parse_number(text_of_cell(name)) in (0, 1) for name in column.names
    )


def _numbers(column: Column, field: str, table: Table) -> list[Any]:
    """Return the numbers that a column of text has for names."""
    values = [decimal_number(name, table.options.decimal) for name in column.names]
    if None in values:
        code = values.index(None)
        row = int(np.flatnonzero(column.codes == code)[0])
        received = repr(column.names[code].strip())
        fault(f"{table.locate(row)}, {field}", "a number", received)
    return values
