"""Which columns of a log are read, and which must not be ignored silently.

A column may state which sum of a round a row belongs to, that its client's update never
reached the sum, or its weight. Each changes the verdict, so the user must decide on a
column that is not used, unless it is known to state none of these. There is one
refusal, and it ends in a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mrsa_watch._base.errors import require
from mrsa_watch._base.values import words_of
from mrsa_watch.logs._command import Layout, parted
from mrsa_watch.logs._names import examples, fault, listing, short, text_of_cell
from mrsa_watch.logs._numbers import parse_number
from mrsa_watch.logs._table import Column, Table

# the first of several that are there is taken, and the others are columns like any
# other
ROUND_NAMES = words_of("""
    round round_id round_idx round_index round_num round_number server_round current_round
    fl_round global_round comm_round communication_round rnd central_iteration iteration
    """)
CLIENT_NAMES = words_of("""
    client client_id cid client_idx client_index client_name user user_id node node_id
    participant participant_id party party_id site site_name site_id collaborator
    collaborator_name device device_id partition_id
    """)
WEIGHT_NAMES = ("weight", "weights")
UNNAMED = ("round", "client", "weight")
"""Names of the columns of a long table without a header, in this order."""
_WHO = (
    r"(?:clients?|cids?|users?|nodes?|participants?|part(?:y|ies)|sites?|devices?|"
    r"collaborators?)"
)
_MEMBERS = re.compile(
    rf"(?:(?:aggregated|participating|participated|contributing|completed|responding|responded|"
    rf"successful|surviving|reporting|received|included|accepted|trained|fit|all|round)_)?{_WHO}"
    r"(?:_(?:ids?|names?|list))?|participating|contributors|responders|survivors|members"
)
_SOURCE = re.compile(r"^(?:params|tags|metrics)_(?=.)")  # before MLflow's names


class Columns(NamedTuple):
    """Places of the columns of a long table.

    Attributes:
        round: Of the round.
        client: Of the client.
        weight: Of the weight, if there is one.
        conditions: Of each condition, in the order of the settings.
        sums: Of those that tell the sums of one round apart.
        part: Of the part of the vector that a sum is of, if there is one.
    """

    round: int
    client: int
    weight: int | None
    conditions: tuple[int, ...]
    sums: tuple[int, ...]
    part: int | None

    @property
    def used(self) -> list[int]:
        """Return the places of all columns that are read, each once."""
        chosen = (self.round, self.client, self.weight, self.part)
        used = [place for place in chosen if place is not None]
        return list(dict.fromkeys([*used, *self.conditions, *self.sums]))


def conditions(where: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return conditions on columns: pairs of a column and the texts to accept.

    Args:
        where: `"column=text,text"`, several such, or a mapping of columns to a text or
            to texts; `"column!=text,text"`, or a column's name with a ! behind it, for
            all other texts.
    """
    texts_of: dict[str, tuple[str, ...]] = {}
    if isinstance(where, Mapping):
        for column, values in where.items():
            several = isinstance(values, Iterable) and not isinstance(values, str)
            texts = map(str, values if several else [values])
            texts_of[str(column)] = tuple(texts)
    else:
        rule = (
            "must be COLUMN=TEXT, COLUMN=TEXT,TEXT for one of several, or "
            "COLUMN!=TEXT for all others"
        )
        for condition in [where] if isinstance(where, str) else where:
            column, mark, text = str(condition).partition("=")
            require(bool(mark and column.strip(" !")), "where", rule, condition)
            column = column.strip()
            texts_of[column] = texts_of.get(column, ()) + parted(text)
    for column, listed in texts_of.items():
        require(bool(listed), "where", "must give each column a text", column)
    return tuple(texts_of.items())


def names_of(columns: Any) -> tuple[str, ...]:
    """Return names of columns, of a sequence or of one comma-separated text."""
    parts = parted(columns) if isinstance(columns, str) else columns
    return tuple(str(part).strip() for part in parts if str(part).strip())


def check_unnamed(
    options: Layout, where: str, kind: str = "a matrix of 0 and 1"
) -> None:
    """Raise if columns are chosen by name where they have none."""
    refuse_choices(options, where, "names of columns, by which they are chosen", kind)
    if options.ignore_columns:
        fault(where, "names of columns, by which they are ignored", f"none in {kind}")


def header_fault(where: str, header: Sequence[str]) -> NoReturn:
    """Raise the error for a header without the columns that are needed."""
    fault(
        where,
        "a header with a round and a client column (such as: round,client; others are "
        "named with --round-column and --client-column) or a matrix of 0 and 1",
        _fields(header),
    )


def _fields(names: Sequence[str]) -> str:
    """Return the first names of many, in quotes."""
    return listing([short(name.strip()) for name in names], f" ({len(names)} fields)")


def _chosen_names(options: Layout, where: Iterable[str]) -> list[str]:
    """Return the columns that the settings name, among them those of conditions."""
    single = (
        options.round_column,
        options.client_column,
        options.weight_column,
        options.part_column,
    )
    names = [name for name in single if name is not None]
    return [*names, *where, *options.sum_columns]


def find(table: Table) -> Columns | None:
    """Return the columns' places; None if round or client is not named nor known."""
    names = table.names
    options = table.options
    check_ignored(table)
    reserved = {
        *options.ignore_columns,
        *options.sum_columns,
        options.round_column,
        options.client_column,
        options.part_column,
    }
    free: dict[str, int] = {}
    for place, name in enumerate(names):
        if name not in reserved:
            free.setdefault(plain_name(name), place)

    def find_one(name: str | None, usual: Sequence[str] = ()) -> int | None:
        if name is None:
            usual_name = next((plain for plain in usual if plain in free), None)
            if usual_name is None:
                return None
            name = names[free[usual_name]]
        return place_of(names, name, table.head)

    rounds = find_one(options.round_column, ROUND_NAMES)
    clients = find_one(options.client_column, CLIENT_NAMES)
    weights = find_one(options.weight_column, WEIGHT_NAMES)
    if rounds is None or clients is None:
        return None
    filtered = [name.removesuffix("!") for name, _ in options.where]
    return Columns(
        rounds,
        clients,
        weights,
        tuple(place_of(names, name, table.head) for name in filtered),
        tuple(place_of(names, name, table.head) for name in options.sum_columns),
        find_one(options.part_column),
    )


def place_of(names: Sequence[str], name: str, where: str) -> int:
    """Return the place of the one column of a name."""
    places = [place for place, field in enumerate(names) if field == name.strip()]
    if len(places) != 1:
        fault(where, f"one column {short(name)}", f"columns {_fields(names)}")
    return places[0]


def check_ignored(table: Table) -> None:
    """Raise if a column to ignore is not there, or is used."""
    options = table.options
    filtered = (name.removesuffix("!") for name, _ in options.where)
    used = _chosen_names(options, filtered)
    names = table.names
    for name in options.ignore_columns:
        if name not in names:
            expected = f"a column {short(name)} to ignore"
            fault(table.head, expected, f"columns {_fields(names)}")
        if name in used:
            fault(table.head, f"a column {short(name)} either used or ignored", "both")


def refuse_choices(
    options: Layout, where: str, expected: str, kind: str = "a matrix of 0 and 1"
) -> None:
    """Raise if columns are chosen of what has none to choose from."""
    names = _chosen_names(options, (name for name, _ in options.where))
    if names:
        fault(where, expected, f"{kind}, and {_fields(names)} asked for")


def plain_name(name: str) -> str:
    """Return a name in small letters, its words joined by underscores."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return _SOURCE.sub("", re.sub(r"[\s.\-/:]+", "_", words.lower()), count=1)


def is_members(plain: str) -> bool:
    """Return whether a name in small letters is of the client or clients in a sum."""
    return plain in CLIENT_NAMES or _MEMBERS.fullmatch(plain) is not None


class Chosen(NamedTuple):
    """The columns of a long table that are used, at the rows that meet every condition.

    Attributes:
        table: The table.
        places: Places of all columns that are used.
        rows: The places of the rows.
        rounds: The round of each.
        clients: Its client.
        client_name: Name of the column of the clients.
        weights: Its weight; None if all are 1.
        sums: What tells the sums of one round apart.
        part: The part of the vector that its sum is of; None if all are of the whole.
    """

    table: Table
    places: list[int]
    rows: np.ndarray
    rounds: Column
    clients: Column
    client_name: str
    weights: Column | None
    sums: list[Column]
    part: Column | None

    def locate(self, row: int) -> str:
        """Name the place of one of these rows."""
        return self.table.locate(int(self.rows[row]))


def chosen(table: Table) -> Chosen:
    """Return the rows and columns of a table that the settings choose.

    Raises:
        ConfigurationError: If its header names no round or client, or no row meets a
            condition.
    """
    columns = find(table)
    if columns is None:
        header_fault(table.head, table.header)
    used = columns.used
    read = {place: table.plain(place) for place in used}
    rows = _meeting(read, columns, table)

    def column(place: int) -> Column:
        return taken(read[place], rows)

    return Chosen(
        table,
        used,
        rows,
        column(columns.round),
        column(columns.client),
        table.names[columns.client],
        None if columns.weight is None else column(columns.weight),
        list(map(column, columns.sums)),
        None if columns.part is None else column(columns.part),
    )


def _meeting(read: Mapping[int, Column], columns: Columns, table: Table) -> np.ndarray:
    """Return the rows that meet every condition."""
    keep = np.ones(len(read[columns.round].codes), np.bool_)
    for place, (column, texts) in zip(
        columns.conditions, table.options.where, strict=True
    ):
        names = read[place].names
        is_not = column.endswith("!")
        wanted = {text.strip() for text in texts}
        good = [code for code, name in enumerate(names) if _meets(name, wanted)]
        keep &= np.isin(read[place].codes, good, invert=is_not)
        if len(keep) and not keep.any():
            expected = "others than " * is_not + " or ".join(map(short, texts))
            where = f"in column {short(table.names[place])}"
            fault(table.path, f"rows with {expected} {where}", examples(names))
    return np.flatnonzero(keep)


def taken(column: Column, rows: np.ndarray) -> Column:
    """Return some rows of a column, with the names that occur in them."""
    if len(rows) == len(column.codes):
        return column
    used, codes = np.unique(column.codes[rows], return_inverse=True)
    return Column(codes, [column.names[code] for code in used])


def _meets(name: Any, wanted: set[str]) -> bool:
    if isinstance(name, bool):
        return str(name).lower() in {text.lower() for text in wanted}
    # NaN, which differs from itself, is met by its text alone
    is_number = isinstance(name, int | float) and name == name
    same = is_number and any(parse_number(text) == name for text in wanted)
    return same or text_of_cell(name) in wanted
