"""Which columns of a log are read, and which must not be ignored silently.

A column may state which sum of a round a row belongs to, that its client's update never
reached the sum, or its weight. Each changes the verdict, so the user must decide on a
column that is not used, unless it is known to state none of these. There is one
refusal, and it ends in a command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mrsa_watch._base.errors import require
from mrsa_watch.logs._command import parted
from mrsa_watch.logs._json import examples, short
from mrsa_watch.logs._names import fault, text_of_cell
from mrsa_watch.logs._numbers import parse_number
from mrsa_watch.logs._table import Column, Layout, clean

# the first of several that are there is taken, and the others are columns like any
# other
ROUND_NAMES = ("round", "round_id", "round_idx", "round_index", "round_num", "round_number",
               "server_round", "current_round", "fl_round", "global_round", "comm_round",
               "communication_round", "rnd", "central_iteration", "iteration")  # fmt: skip
CLIENT_NAMES = ("client", "client_id", "cid", "client_idx", "client_index", "client_name", "user",
                "user_id", "node", "node_id", "participant", "participant_id", "party", "party_id",
                "site", "site_name", "site_id", "collaborator", "collaborator_name", "device",
                "device_id", "partition_id")  # fmt: skip
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
INDEX_NAMES = ("", "index", "unnamed_0", "__index_level_0__", *ROUND_NAMES)
_SOURCE = re.compile(r"^(?:params|tags|metrics)_(?=.)")  # before MLflow's names


class Condition(NamedTuple):
    """Rows are kept that hold one of some texts in the column at a place, or none of them."""

    place: int
    texts: tuple[str, ...]
    is_not: bool


class Columns(NamedTuple):
    """Places of the columns of a long table."""

    round: int
    client: int
    weight: int | None
    where: tuple[Condition, ...]
    sums: tuple[int, ...]  # tell the sums of one round apart
    part: int | None = None  # of the vector, of which a sum is

    @property
    def used(self) -> list[int]:
        """Return the places of all columns that are read, each once."""
        chosen = (self.round, self.client, self.weight, self.part)
        used = [place for place in chosen if place is not None]
        return list(
            dict.fromkeys([*used, *(one.place for one in self.where), *self.sums])
        )


class Table(NamedTuple):
    """A long table as its reader hands it over.

    Attributes:
        header: Names of the columns.
        column: Reads the column at a place; None where it holds no plain values.
        locate: Names the place of a row.
        path: Names the table.
        head: Names the place of its header.
        is_text: Whether its columns hold text as it is written, numbers too.
        has_points: Whether the point is the decimal mark of its numbers for certain.
        apart: Places of columns that tell the sums of a round apart, if they differ
            within one.
    """

    header: Sequence[str]
    column: Callable[[int], Column | None]
    locate: Callable[[int], str]
    path: str
    head: str
    is_text: bool = False
    has_points: bool = False
    apart: tuple[int, ...] = ()


def conditions(where: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return conditions on columns as pairs of a column and the texts of which one must stand.

    Args:
        where: `"column=text,text"`, several such, or a mapping of columns to a text or
            to texts; `"column!=text,text"`, or a column's name with a ! behind it, for
            all other texts.
    """
    found: dict[str, tuple[str, ...]] = {}
    if isinstance(where, Mapping):
        for column, texts in where.items():
            several = isinstance(texts, Iterable) and not isinstance(texts, str)
            found[str(column)] = tuple(
                str(text) for text in (texts if several else [texts])
            )
    else:
        for one in [where] if isinstance(where, str) else where:
            column, mark, texts = str(one).partition("=")
            rule = (
                "must be COLUMN=TEXT, COLUMN=TEXT,TEXT for one of several, or "
                "COLUMN!=TEXT for "
                "all others"
            )
            require(bool(mark and column.strip(" !")), "where", rule, one)
            column = column.strip()
            found[column] = found.get(column, ()) + parted(texts)
    for column, texts in found.items():
        require(bool(texts), "where", "must give each column a text", column)
    return tuple(found.items())


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
        listing(header),
    )


def listing(names: Sequence[str]) -> str:
    """Return the first names of many, in quotes."""
    shown = ", ".join(short(name.strip()) for name in names[:8])
    return shown + (f", ... ({len(names)} fields)" if len(names) > 8 else "")


def find(header: Sequence[str], options: Layout, where: str) -> Columns | None:
    """Return the places of the columns.

    None if round or client is neither named nor known.
    """
    names = [name.strip() for name in header]
    check_ignored(names, options, where)
    free = {
        plain_name(name): place
        for place, name in reversed(list(enumerate(names)))
        if name
        not in (
            *options.ignore_columns,
            *options.sum_columns,
            options.round_column,
            options.client_column,
            options.part_column,
        )
    }
    found: list[int | None] = []
    wanted = (
        (options.round_column, ROUND_NAMES),
        (options.client_column, CLIENT_NAMES),
        (options.weight_column, WEIGHT_NAMES),
    )
    for name, usual in wanted:
        if name is not None:
            found.append(place_of(names, name, where))
        else:
            place = next((free[one] for one in usual if one in free), None)
            found.append(
                None if place is None else place_of(names, names[place], where)
            )
    if found[0] is None or found[1] is None:
        return None
    conditions = tuple(
        Condition(
            place_of(names, name.removesuffix("!"), where), texts, name.endswith("!")
        )
        for name, texts in options.where
    )
    sums = tuple(place_of(names, name, where) for name in options.sum_columns)
    part = (
        None
        if options.part_column is None
        else place_of(names, options.part_column, where)
    )
    return Columns(found[0], found[1], found[2], conditions, sums, part)


def place_of(names: Sequence[str], name: str, where: str) -> int:
    """Return the place of the one column of a name."""
    places = [i for i, field in enumerate(names) if field == name.strip()]
    if len(places) != 1:
        fault(where, f"one column {short(name)}", f"columns {listing(names)}")
    return places[0]


def check_ignored(names: Sequence[str], options: Layout, where: str) -> None:
    """Raise if a column to ignore is not there, or is used."""
    for name in options.ignore_columns:
        if name not in names:
            fault(
                where, f"a column {short(name)} to ignore", f"columns {listing(names)}"
            )
        used = (
            options.round_column,
            options.client_column,
            options.weight_column,
            options.part_column,
            *options.sum_columns,
            *(column.removesuffix("!") for column, _ in options.where),
        )
        if name in used:
            fault(where, f"a column {short(name)} either used or ignored", "both")


def refuse_choices(
    options: Layout, where: str, expected: str, kind: str = "a matrix of 0 and 1"
) -> None:
    """Raise if columns are chosen of what has none to choose from."""
    chosen = [
        name
        for name in (
            options.round_column,
            options.client_column,
            options.weight_column,
            options.part_column,
        )
        if name is not None
    ]
    chosen += [name for name, _ in options.where] + list(options.sum_columns)
    if chosen:
        fault(where, expected, f"{kind}, and {listing(chosen)} asked for")


def plain_name(name: str) -> str:
    """Return a name in small letters, its words joined by underscores."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return _SOURCE.sub("", re.sub(r"[\s.\-/:]+", "_", words.lower()), count=1)


def is_members(plain: str) -> bool:
    """Return whether a name in small letters is of the clients in a sum, one or several."""
    return plain in CLIENT_NAMES or _MEMBERS.fullmatch(plain) is not None


class Chosen(NamedTuple):
    """The columns of a long table that are used, at the rows that meet every condition.

    Attributes:
        columns: Their places.
        read: Each of them, by its place.
        rows: The places of the rows.
    """

    columns: Columns
    read: Mapping[int, Column]
    rows: np.ndarray

    @property
    def sums(self) -> list[Column]:
        """Return the columns that tell the sums of one round apart."""
        return [self.read[place] for place in self.columns.sums]

    @property
    def part(self) -> Column | None:
        """Return the column of the part of the vector of which each row's sum is."""
        return None if self.columns.part is None else self.read[self.columns.part]


def chosen(table: Table, options: Layout) -> Chosen:
    """Return what the settings choose of a table.

    Raises:
        ConfigurationError: If its header names no round or client, or no row meets a
            condition.
    """
    columns = find(table.header, options, table.head)
    if columns is None:
        header_fault(table.head, table.header)
    read = {place: plain_column(table, place) for place in columns.used}
    rows = _kept(read, columns, table)
    return Chosen(
        columns, {place: taken(column, rows) for place, column in read.items()}, rows
    )


def plain_column(table: Table, place: int) -> Column:
    """Return a column that is used, which must hold plain values."""
    column = table.column(place)
    if column is None:
        fault(
            table.path,
            f"plain values in column {short(table.header[place])}",
            "nested ones",
        )
    return clean(column) if table.is_text else column


def _kept(read: Mapping[int, Column], columns: Columns, table: Table) -> np.ndarray:
    """Return the rows that meet every condition."""
    keep = np.ones(len(read[columns.round].codes), np.bool_)
    for place, texts, is_not in columns.where:
        names = read[place].names
        wanted = {text.strip() for text in texts}
        good = [i for i, name in enumerate(names) if _meets(name, wanted)]
        keep &= np.isin(read[place].codes, good, invert=is_not)
        if len(keep) and not keep.any():
            expected = "others than " * is_not + " or ".join(
                short(text) for text in texts
            )
            name = short(table.header[place].strip())
            fault(table.path, f"rows with {expected} in column {name}", examples(names))
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
    is_number = isinstance(name, int | float) and name == name
    same = is_number and any(parse_number(text) == name for text in wanted)
    return same or text_of_cell(name) in wanted
