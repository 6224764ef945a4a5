"""Which columns of a log are read, and which must not be passed over in silence.

A row may be of a client whose update never reached the sum, or a column may hold the weights of a
weighted one: whether it does turns the verdict, so a column whose name or values say so waits for
the user's decision.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax.privacy.logs._long import assemble
from mrsa_jax.privacy.logs._numbers import parse_number
from mrsa_jax.privacy.logs._table import (
    Column,
    Layout,
    ParticipationLog,
    clean,
    fault,
    from_matrix,
)

ROUND_NAMES = ("round", "round_id", "round_idx", "round_index", "round_num", "round_number",
               "server_round", "current_round", "rnd")  # fmt: skip
CLIENT_NAMES = ("client", "client_id", "cid", "client_idx", "client_index", "user", "user_id",
                "node", "node_id", "participant", "participant_id", "device", "device_id",
                "partition_id")  # fmt: skip
WEIGHT_NAMES = ("weight", "weights")

# names that say so wherever these letters stand, as words of their own, or as the whole name
_SAYS = re.compile(
    r"status|succe|success|fail|outcome|accept|reject|dropped|dropout|complet|finish|"
    r"example|sample|weight"
    r"|(?<![a-z])(?:state|ok|okay|done|drop|drops|result|results|error|errors|err|exception|"
    r"abort(?:ed)?|cancel(?:l?ed)?|crash(?:ed)?|discard(?:ed)?|excluded?|included?|skip(?:ped)?|"
    r"aggregated|participated|responded|survived|survivor|straggler|timeout|timed_out|"
    r"disconnected|coef|coeff|coefficient|staleness|data_?size|dataset_?size|train_?size|"
    r"num_data|data_?points?)(?![a-z])"
)
_SAYS_ALONE = re.compile(
    r"(?:is_|was_|has_|client_|update_|in_)?(?:used|valid|invalid|active|alive|online|offline|"
    r"available|selected|received|submitted|reported|uploaded|late|missing|lost|sum|count|counts|"
    r"size|records|share|factor|n|n_k)"
)
_VALUE_SAYS = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:ok|okay|success(?:ful)?|succeeded|completed?|"
    r"fail(?:ed|ure|s)?|finished|done|drop(?:ped|out|s)?|error|exception|accepted|rejected|"
    r"abort(?:ed)?|cancel(?:l?ed)?|crash(?:ed)?|discarded|excluded|included|skipped|aggregated|"
    r"survived|straggler|timeout|timed|disconnected|offline|missing|lost|late|"
    r"status|examples|samples)(?![a-z])"
)
_WORD = re.compile(r"[A-Za-z]{2,}")
_FLAGS = {"", "0", "1", "0.0", "1.0", "true", "false", "t", "f", "yes", "no", "y", "n", "none",
          "nan"}  # fmt: skip


class Columns(NamedTuple):
    """Places of the columns of a long table."""

    round: int
    client: int
    weight: int | None
    where: tuple[tuple[int, tuple[str, ...]], ...]  # rows are kept that hold one of these texts


class Table(NamedTuple):
    """A long table as its reader hands it over.

    Attributes:
        header: Names of the columns.
        column: Reads the column at a place; None where it holds no plain values.
        locate: Names the place of a row.
        path: Names the table.
        head: Names the place of its header.
        is_text: Whether its columns hold text as it is written, numbers too.
    """

    header: Sequence[str]
    column: Callable[[int], Column | None]
    locate: Callable[[int], str]
    path: str
    head: str
    is_text: bool = False


def conditions(where: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return conditions on columns as pairs of a column and the texts of which one must stand.

    Args:
        where: `"column=text,text"`, several such, or a mapping of columns to a text or to texts.
    """
    found: dict[str, tuple[str, ...]] = {}
    if isinstance(where, Mapping):
        for column, texts in where.items():
            several = isinstance(texts, Iterable) and not isinstance(texts, str)
            found[str(column)] = tuple(str(text) for text in (texts if several else [texts]))
    else:
        for one in [where] if isinstance(where, str) else where:
            column, mark, texts = str(one).partition("=")
            rule = "must be COLUMN=TEXT, or COLUMN=TEXT,TEXT for one of several"
            require(bool(mark and column.strip()), "where", rule, one)
            column = column.strip()
            parts = tuple(text.strip() for text in texts.split(","))
            found[column] = found.get(column, ()) + parts
    for column, texts in found.items():
        require(bool(texts), "where", "must give each column a text", column)
    return tuple(found.items())


def names_of(columns: Any) -> tuple[str, ...]:
    """Return names of columns, of a sequence or of one text with commas."""
    parts = columns.split(",") if isinstance(columns, str) else columns
    return tuple(str(part).strip() for part in parts if str(part).strip())


def is_long(header: Sequence[str], options: Layout, where: str) -> bool:
    """Return whether a header names a round and a client column."""
    return _find(header, options, where) is not None


def read_table(table: Table, options: Layout) -> ParticipationLog:
    """Return the history of a table whose header names a round and a client column.

    Raises:
        ConfigurationError: If it does not, if a column waits for a decision, or for a fault.
    """
    columns = _find(table.header, options, table.head)
    if columns is None:
        header_fault(table.head, table.header)
    names = [name.strip() for name in table.header]
    used = [place for place in columns[:3] if place is not None]
    used += [place for place, _ in columns.where if place not in used]
    others = [place for place in range(len(names)) if place not in used]
    _check_others(table, [place for place in others if names[place] not in options.ignore_columns])
    read = {place: _plain_column(table, place) for place in used}
    rows = _kept(read, columns, table)
    read = {place: _taken(column, rows) for place, column in read.items()}
    log = assemble(
        read[columns.round],
        read[columns.client],
        None if columns.weight is None else read[columns.weight],
        options,
        lambda row: table.locate(int(rows[row])),
        table.path,
    )
    return dataclasses.replace(
        log,
        columns_used=tuple(names[place] for place in used),
        columns_ignored=tuple(names[place] for place in others),
        where=options.where,
    )


def client_columns(
    header: Sequence[str], options: Layout, where: str, rule: str = "a column for each client"
) -> list[int]:
    """Return the places of a wide table's columns that are clients: all that are not ignored.

    Raises:
        ConfigurationError: If a column seems to be something else than a client, or comes twice.
    """
    names = [name.strip() for name in header]
    _check_ignored(names, options, where)
    _refuse_choices(options, where, "a round and a client column for the columns that are named")
    kept = [place for place, name in enumerate(names) if name not in options.ignore_columns]
    for place in kept:
        plain = _plain(names[place])
        known = plain in (*ROUND_NAMES, *CLIENT_NAMES) or _says(plain)
        if known or names.index(names[place]) != place:
            fault(where, f"{rule} (--ignore-columns leaves one out)",
                  f"a column {_short(names[place])}{'' if known else ' again'}")  # fmt: skip
    if not kept:
        fault(where, rule, "none that is not ignored")
    return kept


def named_matrix(
    array: np.ndarray,
    options: Layout,
    path: str,
    header: Sequence[str],
    places: Sequence[int],
    where: Callable[[int, int], str] | None = None,
) -> ParticipationLog:
    """Return a matrix whose columns, at some places of a header, are clients with names.

    `where` names the place of an entry, unless by its row and its column's name.
    """

    def by_name(row: int, column: int) -> str:
        return f"{path}: row {row}, column {header[places[column]]!r}"

    names = [name.strip() for name in header]
    log = from_matrix(array, options, where or by_name, path, [names[place] for place in places])
    return dataclasses.replace(
        log,
        columns_used=tuple(names[place] for place in places),
        columns_ignored=tuple(name for place, name in enumerate(names) if place not in places),
    )


def check_unnamed(options: Layout, where: str, kind: str = "a matrix of 0 and 1") -> None:
    """Raise if columns are chosen by name where they have none."""
    _refuse_choices(options, where, "names of columns, by which they are chosen", kind)
    if options.ignore_columns:
        fault(where, "names of columns, by which they are ignored", f"none in {kind}")


def header_fault(where: str, header: Sequence[str]) -> NoReturn:
    """Raise the error for a header without the columns that are needed."""
    fault(where, "a header with a round and a client column (such as: round,client; others are "
          "named with --round-column and --client-column) or a matrix of 0 and 1",
          listing(header))  # fmt: skip


def listing(names: Sequence[str]) -> str:
    """Return the first names of many, in quotes."""
    shown = ", ".join(_short(name.strip()) for name in names[:8])
    return shown + (f", ... ({len(names)} fields)" if len(names) > 8 else "")


def _find(header: Sequence[str], options: Layout, where: str) -> Columns | None:
    """Return the places of the columns; None if round or client is neither named nor known."""
    names = [name.strip() for name in header]
    _check_ignored(names, options, where)
    plain = ["" if name in options.ignore_columns else _plain(name) for name in names]
    found: list[int | None] = []
    wanted = ((options.round_column, ROUND_NAMES), (options.client_column, CLIENT_NAMES),
              (options.weight_column, WEIGHT_NAMES))  # fmt: skip
    for name, usual in wanted:
        if name is not None:
            found.append(_place(names, name, where))
            continue
        places = [i for i, field in enumerate(plain) if field in usual]
        if len(places) > 1:
            fault(where, f"one {usual[0]} column (name it with --{usual[0]}-column)",
                  f"columns {listing([header[i] for i in places])}")  # fmt: skip
        found.append(places[0] if places else None)
    if found[0] is None or found[1] is None:
        return None
    where_columns = tuple((_place(names, name, where), texts) for name, texts in options.where)
    return Columns(found[0], found[1], found[2], where_columns)


def _place(names: Sequence[str], name: str, where: str) -> int:
    places = [i for i, field in enumerate(names) if field == name.strip()]
    if len(places) != 1:
        fault(where, f"one column {_short(name)}", f"columns {listing(names)}")
    return places[0]


def _check_ignored(names: Sequence[str], options: Layout, where: str) -> None:
    for name in options.ignore_columns:
        if name not in names:
            fault(where, f"a column {_short(name)} to ignore", f"columns {listing(names)}")
        used = (options.round_column, options.client_column, options.weight_column,
                *(column for column, _ in options.where))  # fmt: skip
        if name in used:
            fault(where, f"a column {_short(name)} either used or ignored", "both")


def _refuse_choices(
    options: Layout, where: str, expected: str, kind: str = "a matrix of 0 and 1"
) -> None:
    chosen = [name for name in (options.round_column, options.client_column, options.weight_column)
              if name is not None]  # fmt: skip
    chosen += [name for name, _ in options.where]
    if chosen:
        fault(where, expected, f"{kind}, and {listing(chosen)} asked for")


def _plain(name: str) -> str:
    """Return a name in small letters, its words joined by underscores."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\s.\-/]+", "_", parted.lower())


def _says(plain: str) -> bool:
    return bool(_SAYS.search(plain) or _SAYS_ALONE.fullmatch(plain))


def _check_others(table: Table, places: Sequence[int]) -> None:
    """Raise if a column that is not used may say who was in a sum, or with which weight."""
    undecided = []
    for place in places:
        name = table.header[place].strip()
        column = table.column(place)
        if column is None:
            undecided.append((name, "nested values"))
        elif _says(_plain(name)) or _values_say(column.names):
            undecided.append((name, _examples(column.names)))
    if not undecided:
        return
    shown = " and ".join(f"{_short(name)} ({values})" for name, values in undecided[:4])
    more = f" and {len(undecided) - 4} more" if len(undecided) > 4 else ""
    plural = "s" if len(undecided) > 1 else ""
    names = ",".join(name for name, _ in undecided)
    fault(table.head, f"a decision on column{plural} {shown}{more}, which may say who was in a sum "
          "or with which weight: --where COLUMN=TEXT keeps only such rows, --weight-column COLUMN "
          f"takes it as weights, --ignore-columns {_short(names)} takes every row as it is",
          "none")  # fmt: skip


def _values_say(values: Sequence[Any]) -> bool:
    texts = {_text(value).lower() for value in values[: len(_FLAGS) + 1]}
    if len(values) <= len(_FLAGS) and texts <= _FLAGS and len(texts) > 1:
        return True
    written = "\n".join(value for value in values if isinstance(value, str))
    return any(_VALUE_SAYS.search(word) for word in set(_WORD.findall(written)))


def _examples(values: Sequence[Any]) -> str:
    shown = ", ".join(_short(_text(value)) for value in values[:4]) or "no values"
    return shown + (", ..." if len(values) > 4 else "")


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else shown[:56] + "...'"


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()


def _plain_column(table: Table, place: int) -> Column:
    column = table.column(place)
    if column is None:
        fault(table.path, f"plain values in column {_short(table.header[place])}", "nested ones")
    return clean(column) if table.is_text else column


def _kept(read: Mapping[int, Column], columns: Columns, table: Table) -> np.ndarray:
    """Return the rows that meet every condition."""
    keep = np.ones(len(read[columns.round].codes), np.bool_)
    for place, texts in columns.where:
        names = read[place].names
        wanted = {text.strip() for text in texts}
        good = [i for i, name in enumerate(names) if _meets(name, wanted)]
        keep &= np.isin(read[place].codes, good)
        if len(keep) and not keep.any():
            expected = " or ".join(_short(text) for text in texts)
            name = _short(table.header[place].strip())
            fault(table.path, f"rows with {expected} in column {name}", _examples(names))
    return np.flatnonzero(keep)


def _taken(column: Column, rows: np.ndarray) -> Column:
    """Return some rows of a column, with the names that occur in them."""
    if len(rows) == len(column.codes):
        return column
    used, codes = np.unique(column.codes[rows], return_inverse=True)
    return Column(codes, [column.names[code] for code in used])


def _meets(name: Any, wanted: set[str]) -> bool:
    if isinstance(name, bool):
        return str(name).lower() in {text.lower() for text in wanted}
    if isinstance(name, int | float) and name == name:
        return any(parse_number(text) == name for text in wanted)
    return _text(name) in wanted
