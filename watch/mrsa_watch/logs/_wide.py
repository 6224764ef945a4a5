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
    Table,
    check_ignored,
    header_fault,
    is_members,
    place_of,
    plain_name,
    refuse_choices,
)
from mrsa_watch.logs._command import refuse
from mrsa_watch.logs._json import examples, short
from mrsa_watch.logs._lists import check_decimals
from mrsa_watch.logs._long import NOT_WHOLE, UNLIKE, refuse_alike
from mrsa_watch.logs._names import fault, text_of_cell
from mrsa_watch.logs._numbers import decimal_number, parse_number
from mrsa_watch.logs._order import UNORDERED, in_order, resolved
from mrsa_watch.logs._patterns import Odd, odd_columns
from mrsa_watch.logs._table import (
    Column,
    Layout,
    ParticipationLog,
    alike_names,
    check_memory,
    check_rounds,
    clean,
    distinct,
    from_matrix,
    merged,
)

_NUMBERS_OF_ROWS = ("", "index", "level_0", "unnamed_0", "__index_level_0__")
RULE = "a column for each client"


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


def wide_columns(
    header: Sequence[str], options: Layout, where: str, path: str, rule: str = RULE
) -> Wide:
    """Return the places of a wide table's columns.

    All that are not ignored are clients.

    Raises:
        ConfigurationError: If a column seems to be something else than a client, or
            comes twice.
    """
    names = [name.strip() for name in header]
    check_ignored(names, options, where)
    chosen = dataclasses.replace(options, round_column=None)
    refuse_choices(
        chosen, where, "a round and a client column for the columns that are named"
    )
    rounds, numbers = _rounds_among(names, options, where)
    left = {place for place, name in enumerate(names) if name in options.ignore_columns}
    kept = [
        place for place in range(len(names)) if place not in {rounds, *numbers, *left}
    ]
    _check_odd([names[place] for place in kept], options, where, path, rule)
    for place in kept:
        if names.index(names[place]) != place:
            fault(
                where,
                f"{rule} (--ignore-columns leaves one out)",
                f"a column {short(names[place])} again",
            )
    if not kept:
        fault(where, rule, "none that is not ignored")
    column = Column(np.arange(len(kept)), [names[place] for place in kept])
    if options.alike_names == "ask":
        for alike in alike_names(column):
            refuse_alike(
                alike.name, alike.other, f"{path}, column {alike.name!a}", path, options
            )
    codes = column.codes if options.alike_names == "different" else merged(column).codes
    first, client_of = np.unique(codes, return_inverse=True)
    return Wide(rounds, kept, [kept[i] for i in first], client_of.tolist())


def _check_odd(
    names: Sequence[str], options: Layout, where: str, path: str, rule: str
) -> None:
    """Refuse columns of what may be no client, or of identifiers that may be several."""
    odd = _odd(names, options)
    expected = f"{rule} (--ignore-columns leaves one out; --odd-names keep takes all as clients)"
    if odd.rounded:
        refuse(
            where,
            expected,
            f"{examples(odd.rounded)}, {NOT_WHOLE}; this takes each as one, "
            "which is right only if no two became one",
            path,
            dataclasses.replace(options, odd_names="keep"),
        )
    if not odd.all:
        return
    shown = ", ".join(map(short, odd.all[:8])) + (", ..." if len(odd.all) > 8 else "")
    found = f"a column{'s' if len(odd.all) > 1 else ''} {shown}, {UNLIKE}"
    if set(odd.all) >= set(names):
        fault(where, expected, found)
    refuse(
        where,
        expected,
        f"{found}; this leaves out what is none",
        path,
        _ignoring(options, odd.all),
    )


def _odd(names: Sequence[str], options: Layout) -> Odd:
    """Return names of columns that may be no clients, or that are no longer whole."""
    if options.odd_names == "keep":
        return Odd([], [], [], [])
    usual = {
        name for name in names if plain_name(name) in (*ROUND_NAMES, *CLIENT_NAMES)
    }
    odd = odd_columns(names, plain_name)
    return odd._replace(none=[*odd.none, *sorted(usual - set(odd.all))])


def _rounds_among(
    names: Sequence[str], options: Layout, where: str
) -> tuple[int | None, list[int]]:
    """Return the place of the rounds, if any, and places of other columns that number rows."""
    plain = {
        place: plain_name(name)
        for place, name in enumerate(names)
        if name not in options.ignore_columns
    }
    numbers = [place for place, name in plain.items() if name in _NUMBERS_OF_ROWS]
    named = [place for place, name in plain.items() if name in ROUND_NAMES]
    if options.round_column is not None:
        return place_of(names, options.round_column, where), numbers
    if named:
        return min(named, key=lambda place: ROUND_NAMES.index(plain[place])), numbers
    return (numbers[0], numbers[1:]) if numbers else (None, [])


def _ignoring(options: Layout, names: Sequence[str]) -> Layout:
    return dataclasses.replace(
        options, ignore_columns=(*options.ignore_columns, *names)
    )


def named_matrix(
    array: np.ndarray,
    options: Layout,
    path: str,
    header: Sequence[str],
    wide: Wide,
    where: Callable[[int, int], str] | None = None,
) -> ParticipationLog:
    """Return a matrix whose columns are the clients of a wide table.

    `where` names the place of an entry, unless by its row and its column's name.
    """

    def by_name(row: int, column: int) -> str:
        return f"{path}: row {row}, column {header[places[column]]!r}"

    names, places = [name.strip() for name in header], wide.clients
    kept = [names[place] for place in wide.kept]
    log = from_matrix(
        _of_clients(array, wide, path, kept), options, where or by_name, path, kept
    )
    used = places if wide.rounds is None else [wide.rounds, *places]
    return dataclasses.replace(
        log,
        columns_used=tuple(names[place] for place in used),
        columns_ignored=tuple(
            name for place, name in enumerate(names) if place not in used
        ),
    )


def _of_clients(
    array: np.ndarray, wide: Wide, path: str, names: Sequence[str]
) -> np.ndarray:
    """Return the entries of each client, of which several columns may be."""
    if len(wide.kept) == len(wide.clients):
        return array
    merged_array = np.zeros((len(array), len(wide.kept)), array.dtype)
    for column, client in zip(array.T, wide.client_of, strict=True):
        twice = np.flatnonzero((merged_array[:, client] != 0) & (column != 0))
        if twice.size:
            fault(
                f"{path}: row {twice[0]}",
                "each client once in a round",
                f"client {short(names[client])} in two columns",
            )
        merged_array[:, client] = np.where(column != 0, column, merged_array[:, client])
    return merged_array


def with_rounds(
    log: ParticipationLog, rounds: Column, options: Layout, locate: Callable[[int], str]
) -> ParticipationLog:
    """Return the history with names for its rows, in their order."""
    labels: list[Hashable] = [rounds.names[code] for code in rounds.codes]
    own = distinct(labels)
    if len(own.names) < len(labels):
        row = next(i for i, code in enumerate(own.codes) if code != i)
        fault(locate(row), "each round once in the index", f"{labels[row]!r} again")
    check_rounds(own, locate)
    if options.layout == "auto" and options.round_column is None:
        _check_sides(own.names, log.clients, locate)
    how, is_ordered = resolved(own, options.round_order)
    order = in_order(own, how)
    return dataclasses.replace(
        log,
        is_ordered=is_ordered,
        notes=() if is_ordered else (UNORDERED,),
        participation=log.participation[order],
        rounds=tuple(labels[i] for i in order),
        are_places=False,
        scales=None if log.scales is None else tuple(log.scales[i] for i in order),
    )


_OF_ROUNDS = re.compile(
    r"(?:(?:round|rnd|r|iter|iteration|epoch|step|t|day|week|server "
    r"round|server_round)[-_ ]?)?"
    r"\d+|\d{4}-\d\d-\d\d.*"
)


def _check_sides(
    rounds: Sequence[Any], clients: Sequence[Any], locate: Callable[[int], str]
) -> None:
    """Raise if the columns are named as rounds are, and the rows are not."""

    def are_rounds(names: Sequence[Any]) -> bool:
        return all(
            _OF_ROUNDS.fullmatch(text_of_cell(name).casefold()) for name in names
        )

    if (
        are_rounds(clients)
        and not are_rounds(rounds)
        and any(isinstance(r, str) for r in rounds)
    ):
        fault(
            locate(0),
            "a row for each round and a column for each client (transpose the table; "
            "--layout matrix takes it as it is)",
            f"a row {rounds[0]!a:.60} and a column {clients[0]!a:.60}",
        )


def read_wide(table: Table, options: Layout) -> ParticipationLog:
    """Read a wide table of text.

    Raises:
        ConfigurationError: If its entries are others than 0 and 1 (or weights, if the
            layout allows them): then its header lacks a round and a client.
    """
    if options.layout == "auto":
        refuse_others(table, options)
        rounds, clients, odd = _kinds(table, options)
        foreign = [place for place in odd if not _is_binary(table, place)]
        if len(clients) < 2 or (rounds is None and foreign):
            _refuse_header(table, options)
    wide = wide_columns(table.header, options, table.head, table.path)
    if options.layout == "matrix":
        read = [table.column(place) for place in wide.clients]
        texts = [name for one in read if one is not None for name in one.names]
        check_decimals(
            texts, table.head, table.path, options, has_points=table.has_points
        )
    columns = [_entries(table, place, options) for place in wide.clients]
    binary = {value for one in columns for value in one.names} <= {0, 1}
    kind: Any = np.bool_ if binary else object
    size = 1 if binary else 8
    check_memory((len(columns[0].codes), len(columns)), size, options, table.path)
    array = np.stack([np.array(one.names, kind)[one.codes] for one in columns], axis=1)

    def where(row: int, column: int) -> str:
        return f"{table.locate(row)}, field {wide.clients[column] + 1}"

    log = named_matrix(array, options, table.path, table.header, wide, where)
    if wide.rounds is None:
        return log
    rounds_ = table.column(wide.rounds)
    assert rounds_ is not None  # text is plain
    return with_rounds(log, clean(rounds_), options, table.locate)


def _refuse_header(table: Table, options: Layout) -> NoReturn:
    """Refuse a header without a round and a client.

    A column of clients may have a list in each.
    """
    plain = {name.strip(): plain_name(name) for name in table.header}
    plural = [
        name
        for name, own in plain.items()
        if is_members(own) and own not in CLIENT_NAMES
    ]
    has_rounds = options.round_column is not None or any(
        own in ROUND_NAMES for own in plain.values()
    )
    if len(plural) == 1 and has_rounds and options.client_column is None:
        refuse(
            table.head,
            "a header with a round and a client column (--client-column NAME)",
            f"a column {short(plural[0])}; this takes it",
            table.path,
            dataclasses.replace(options, client_column=plural[0]),
        )
    header_fault(table.head, table.header)


def _kinds(table: Table, options: Layout) -> tuple[int | None, list[int], list[int]]:
    """Return the places of the rounds, of columns of 0 and 1 that may be clients, and of others."""
    names = [name.strip() for name in table.header]
    rounds, numbers = _rounds_among(names, options, table.head)
    others = [
        place
        for place, name in enumerate(names)
        if place not in (rounds, *numbers) and name not in options.ignore_columns
    ]
    binary = [place for place in others if _is_binary(table, place)]
    strange = set(_odd([names[place] for place in binary], options).all)
    clients = [place for place in binary if names[place] not in strange]
    return rounds, clients, [place for place in others if place not in clients]


def refuse_others(table: Table, options: Layout) -> None:
    """Raise if a matrix of 0 and 1 with a column of rounds has columns of something else too."""
    if (
        _rounds_among([name.strip() for name in table.header], options, table.head)[0]
        is None
    ):
        return  # a matrix without names for its rounds: its reader looks at the entries
    _, clients, odd = _kinds(table, options)
    if not odd or len(clients) < 2:
        return
    names = [table.header[place].strip() for place in odd]
    shown = ", ".join(map(short, names[:8])) + (", ..." if len(names) > 8 else "")
    refuse(
        table.head,
        "a column of 0 and 1 for each client (--ignore-columns leaves out others; "
        "--layout matrix takes entries as weights)",
        f"a column{'s' if len(names) > 1 else ''} {shown}; this leaves out what is none",
        table.path,
        _ignoring(options, names),
    )


def _is_binary(table: Table, place: int) -> bool:
    column = table.column(place)
    return column is not None and all(
        parse_number(text_of_cell(name)) in (0, 1) for name in column.names
    )


def _entries(table: Table, place: int, options: Layout) -> Column:
    """Return a column as numbers."""
    column = table.column(place)
    assert column is not None  # text is plain
    values = [decimal_number(name, options.decimal) for name in column.names]
    if None in values:
        code = values.index(None)
        row = int(np.flatnonzero(column.codes == code)[0])
        fault(
            f"{table.locate(row)}, field {place + 1}",
            "a number",
            repr(column.names[code].strip()),
        )
    return Column(column.codes, values)
