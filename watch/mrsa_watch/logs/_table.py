"""From the rows of a log to a matrix with names, and the checks on the way.

Every reader hands its rows over as codes into lists of names; a fault is named by the
place that the reader gives for a row.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch._base.html import brief, telling
from mrsa_watch._base.values import by_value
from mrsa_watch.logs._command import Layout, Source
from mrsa_watch.logs._identity import least_shared_float, likeness, number_of
from mrsa_watch.logs._integers import integer_rows
from mrsa_watch.logs._names import fault, fault_alike, short

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,299}")


@dataclasses.dataclass(frozen=True)
@by_value
class ParticipationLog:
    """A participation history with its system's names of rounds and clients.

    Attributes:
        participation: P, bool `[rounds, clients]`, or integer weights (object for large
            ones).
        rounds: The name of each row, in order of time.
        clients: The name of each column.
        scales: By what each row was multiplied to make fractional weights integral (the
            sum that the server learnt is the row divided by it), or None if no row was.
        columns_used: The columns of the table that were read; empty where columns had
            no names.
        columns_ignored: Its other columns.
        noise: Standard deviation of the noise in each learnt sum, None for a sum
            without a value in the log; None if no sum has one.
        clip: Largest norm of an update in each sum, likewise.
        aggregation: How the sums were made, if the log states it: `"secagg+"`,
            `"plain"` (the server saw every update by itself), or other text, each once.
        notes: Further remarks on the log, in sentences: repetitions, lines cut short.
        where: Which rows were kept: columns, and the texts of which one must stand
            there (of which none may, where the column's name has a ! behind it).
        sum_columns: The columns that distinguished the sums of one round.
        parts: Of each sum the part of the vector that it is of, None where it is of the
            whole; None where no sum is of a part. Sums of different parts are of
            different unknowns and must not be stacked in one matrix: `by_part` has a
            log of each.
        is_ordered: Whether the order of the rows is known to be that of time. False
            where names of rounds do not show it, and the rows have that of the file.
        decisions: Settings that decided on doubtful names and numbers, such as
            `"alike_names=same"`.
        are_places: Whether the source named no rounds, so that `rounds` holds their
            places, from 0; whatever is printed counts them from 1 (`printed_rounds`).
    """

    __repr__ = brief
    _repr_html_ = telling

    participation: np.ndarray
    rounds: tuple[Hashable, ...]
    clients: tuple[Hashable, ...]
    scales: tuple[Fraction, ...] | None = None
    columns_used: tuple[str, ...] = ()
    columns_ignored: tuple[str, ...] = ()
    noise: tuple[float | None, ...] | None = None
    clip: tuple[float | None, ...] | None = None
    aggregation: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    sum_columns: tuple[str, ...] = ()
    parts: tuple[str | None, ...] | None = None
    is_ordered: bool = True
    decisions: tuple[str, ...] = ()
    are_places: bool = False

    @property
    def printed_rounds(self) -> tuple[Hashable, ...]:
        """The rounds as they are printed: by their names, or counted from 1."""
        return tuple(
            printed_round(name, are_places=self.are_places) for name in self.rounds
        )

    def by_part(self) -> dict[str | None, ParticipationLog]:
        """Return the sums of each part of the vector as a log, by its name.

        A sum of whole updates is learnt in every part, so its row is in each of these
        logs; what whole updates alone reveal, they reveal in every part too. Clients in
        no sum of a part are not in its log. Without parts, the log itself has the key
        None.

        Examples:
            >>> from mrsa_watch.logs import ParticipationLog
            >>> import numpy as np
            >>> sums, parts = np.eye(3, dtype=bool), ("low", None, "high")
            >>> log = ParticipationLog(sums, (1, 2, 3), ("a", "b", "c"), parts=parts)
            >>> {part: (own.rounds, own.clients) for part, own in log.by_part().items()}
            {'low': ((1, 2), ('a', 'b')), 'high': ((2, 3), ('b', 'c'))}
        """
        names = list(
            dict.fromkeys(part for part in self.parts or () if part is not None)
        )
        if not names:
            return {None: self}
        return {name: self._of(name) for name in names}

    def _of(self, name: str) -> ParticipationLog:
        parts = self.parts or ()
        rows = [j for j, part in enumerate(parts) if part in (None, name)]
        entries = self.participation[rows]
        columns = np.flatnonzero((entries != 0).any(axis=0)).tolist()
        picked: dict[str, Any] = {
            key: None if values is None else tuple(values[j] for j in rows)
            for key in ("scales", "noise", "clip", "parts")
            for values in [getattr(self, key)]
        }
        return dataclasses.replace(
            self,
            participation=entries[:, columns],
            rounds=tuple(self.rounds[j] for j in rows),
            clients=tuple(self.clients[i] for i in columns),
            **picked,
        )


def printed_round(name: Any, *, are_places: bool) -> Any:
    """Return a round as it is printed: its name, or its place counted from 1.

    Examples:
        >>> printed_round(0, are_places=True), printed_round(0, are_places=False)
        (1, 0)
    """
    return name + 1 if are_places else name


def of_part(name: str) -> str:
    """Return the ending of a round's name where its sum is of a part of the vector."""
    return f"[{name}]"


class Column(NamedTuple):
    """One column of a table: row i holds `names[codes[i]]`.

    Attributes:
        codes: The place of each row's name.
        names: The names, each once.
        order: The names in an order that the table states, as of ordered categories;
            else empty.
    """

    codes: np.ndarray
    names: list[Any]
    order: tuple[Any, ...] = ()


class Table(NamedTuple):
    """A table as its reader hands it over.

    Attributes:
        header: Names of the columns.
        column: Reads the column at a place; None where it holds no plain values.
        locate: Names the place of a row.
        path: Names the table.
        head: Names the place of its header.
        options: How to read it.
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
    options: Layout
    is_text: bool = False
    has_points: bool = False
    apart: tuple[int, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the columns without spaces around them."""
        return [name.strip() for name in self.header]

    def plain(self, place: int) -> Column:
        """Return a column that is used, which must hold plain values."""
        column = self.column(place)
        if column is None:
            name = short(self.header[place])
            fault(self.path, f"plain values in column {name}", "nested ones")
        return clean(column) if self.is_text else column


def renamed(column: Column, names: Sequence[Any]) -> Column:
    """Return a column under other names, of which equal ones become one."""
    places: dict[Any, int] = {}
    codes = [places.setdefault(name, len(places)) for name in names]
    # of the same integers: codes of large logs are of 32 bits
    return Column(np.array(codes, column.codes.dtype)[column.codes], list(places))


def clean(column: Column) -> Column:
    """Strip spaces from the names of a text column.

    Names that are all integers, written in the one usual way, become such ("007" is a
    name).
    """
    column = renamed(column, [name.strip() for name in column.names])
    if all(map(_INTEGER.fullmatch, column.names)):
        return column._replace(names=list(map(int, column.names)))
    return column


def whole(names: list[Any], below: int) -> list[Any]:
    """Return names as integers if they are floats only since some are missing.

    Those from `below` on stay floats, by which they are known: several integers share
    each.
    """
    floats = [name for name in names if isinstance(name, float)]
    if not floats or not all(name == name and name.is_integer() for name in floats):
        return names
    return [
        int(name) if isinstance(name, float) and abs(name) < below else name
        for name in names
    ]


def dense(
    row: np.ndarray,
    column: np.ndarray,
    shape: tuple[int, int],
    weights: Column,
    source: Source,
) -> np.ndarray:
    """Return the matrix of entries that are fractions.

    Of bools, int64 or objects, as they need.
    """
    values: list[Fraction] = weights.names
    binary = set(values) <= {0, 1}
    check_memory(shape, 1 if binary else 8, source)
    integral = all(value.denominator == 1 for value in values)
    small = integral and max(values) < 2**63
    kind: Any = np.bool_ if binary else np.int64 if small else object
    matrix = np.zeros(shape, kind)
    entries = list(map(int, values)) if integral else values
    matrix[row, column] = np.array(entries, kind)[weights.codes]
    return matrix


def named(
    matrix: np.ndarray, rounds: tuple[Hashable, ...], clients: tuple[Hashable, ...]
) -> ParticipationLog:
    """Return a matrix with its names; rows of fractions are scaled to integers."""
    if matrix.dtype.kind in "biu":
        return ParticipationLog(matrix, rounds, clients)
    whole, scales = integer_rows(matrix, "weights", primitive=False)
    scaled = any(scale != 1 for scale in scales)
    return ParticipationLog(whole, rounds, clients, scales if scaled else None)


def check_names(column: Column, kind: str, locate: Callable[[int], str]) -> None:
    """Raise if two names may be one.

    Who is one client and what is one round turns the verdict: 1, 01 and 1.0, or names
    that differ in marks that nobody sees, are not taken for several without the user's
    word.
    """
    alike = next(alike_names(column), None)
    if alike is not None:
        fault_alike(alike.name, alike.other, kind, locate(alike.row))


class Alike(NamedTuple):
    """A name that may be one with an earlier one, and the row in which it is first."""

    code: int
    name: Any
    earlier: int
    other: Any
    row: int


def alike_names(column: Column) -> Iterator[Alike]:
    """Yield names that resemble earlier ones, unequal, in the order of rows."""
    # different integers are never alike: the usual case takes no time
    used, first = np.unique(column.codes, return_index=True)
    if all(type(column.names[code]) is int for code in used):
        return
    order = np.argsort(first)
    seen: dict[Any, int] = {}
    # by their first rows, so that the name that came first stays
    for code, row in zip(used[order].tolist(), first[order].tolist(), strict=True):
        name = column.names[code]
        earlier = seen.setdefault(likeness(name), code)
        other = column.names[earlier]
        if earlier != code and (type(other) is not type(name) or other != name):
            yield Alike(code, name, earlier, other, row)


def merged(column: Column) -> Column:
    """Return a column in which names that are alike are the first of them."""
    codes = np.arange(len(column.names))
    for alike in alike_names(column):
        codes[alike.code] = alike.earlier
    return column._replace(codes=codes[column.codes])


def check_rounds(rounds: Column, locate: Callable[[int], str]) -> None:
    """Raise if two names may be of one round, or one is no number where most are."""
    check_names(rounds, "round", locate)
    codes, first = np.unique(rounds.codes, return_index=True)
    odd = [
        row
        for code, row in zip(codes, first, strict=True)
        if number_of(rounds.names[code]) is None
    ]
    if odd and 2 * len(odd) <= len(codes):
        row = min(odd)
        name = rounds.names[rounds.codes[row]]
        fault(
            locate(int(row)),
            "a round's number, as most rounds are (give this one a "
            "number too, or take its rows out)",
            ascii(name),
        )


def check_memory(
    shape: tuple[int, int], itemsize: int, source: Source, least: int = 0
) -> None:
    """Raise unless a matrix of this shape fits the memory that the caller allows.

    Args:
        shape: Its rows and columns.
        itemsize: Bytes of an entry.
        source: What is read.
        least: Bytes that are allowed in any case.
    """
    needed = shape[0] * shape[1] * itemsize
    allowed = max(source.options.memory_bytes, least)
    if needed > allowed:
        raise ConfigurationError(
            f"`memory_bytes` must hold the history as a matrix: {source.path} has "
            f"{shape[0]} rounds x {shape[1]} clients, {_size(needed)}; got "
            f"{_size(allowed)} (--memory-gib {math.ceil(needed / 2**30)} allows it)"
        )


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 2**27 else f"{count} bytes"


def from_matrix(
    array: np.ndarray,
    source: Source,
    where: Callable[[int, int], str],
    clients: Sequence[Hashable] = (),
) -> ParticipationLog:
    """Return a matrix of 0 and 1 (of weights if the user states it) with its names.

    Args:
        array: Anything that a file can hold.
        source: Where it is from, and how to read it.
        where: Gives the place of an entry.
        clients: Names of the columns; their numbers from 0 if there are none.
    """
    if array.ndim != 2 or array.size == 0:
        expected = "two axes, rounds and clients, and at least one entry"
        fault(source.path, expected, f"shape {array.shape}")
    dtype = array.dtype
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        # bfloat16: the upper half of a float of 32 bits
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    kind = array.dtype.kind
    if kind not in "biufO":
        fault(source.path, "bools or numbers", f"entries of type {array.dtype}")
    weighted = source.options.layout == "matrix"
    check_memory(array.shape, 8 if weighted else 1, source)
    good = np.ones(1, bool) if kind == "b" else (array == 0) | (array == 1)
    binary = bool(good.all())
    if weighted and not binary:
        good = (array >= 0) & ((array != np.inf) if kind == "f" else True)
    if not good.all():
        i, j = np.argwhere(~good)[0].tolist()
        value = array[i, j]
        fault(
            where(i, j),
            "a number of 0 or more"
            if weighted
            else "0 or 1 (a matrix of weights needs --layout matrix, rows of round and "
            "client a header or --layout long)",
            str(value) if isinstance(value, Fraction) else repr(value.item()),
        )
    if binary:
        array = array.astype(np.bool_)
    elif kind in "iu":
        array = array.astype(np.int64 if int(array.max()) < 2**63 else object)
    rounds, columns = map(range, array.shape)
    log = named(array, tuple(rounds), tuple(clients or columns))
    return dataclasses.replace(log, are_places=True)


def arrow_column(values: Any) -> Column:
    """Return an Arrow column of any plain type, None where it is null."""
    import pyarrow as pa

    is_ordered = pa.types.is_dictionary(values.type) and values.type.ordered
    below = 0
    if pa.types.is_floating(values.type):
        below = least_shared_float(np.empty(0, f"f{values.type.bit_width // 8}"))
    if pa.types.is_float16(values.type):  # which has no dictionary
        values = values.cast(pa.float32())
    if pa.types.is_dictionary(values.type):
        values = values.unify_dictionaries()
    else:
        values = values.dictionary_encode(null_encoding="encode")
    array = values.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no rows at all
        return Column(np.empty(0, np.int64), [])
    names = array.dictionary.to_pylist()
    order = tuple(names) if is_ordered else ()
    indices = array.indices
    if indices.null_count:
        indices, names = indices.fill_null(len(names)), [*names, None]
    # not by Arrow's own way to NumPy, which imports pandas
    return Column(np.from_dlpack(indices).astype(np.int64), whole(names, below), order)


def distinct(values: Sequence[Hashable]) -> Column:
    """Return a column of any hashable values."""
    places: dict[Hashable, int] = {}
    codes = np.fromiter(
        (places.setdefault(v, len(places)) for v in values), np.int64, len(values)
    )
    return Column(codes, list(places))
