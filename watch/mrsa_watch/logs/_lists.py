"""Cells of a long table that hold several clients, and weights with two conventions.

A cell `3;5` is clients 3 and 5, or one client of that name; a weight `1.500` is one and
a half, or fifteen hundred. Each is asked about, and read as the user says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mrsa_watch.logs._columns import Chosen, find
from mrsa_watch.logs._command import Layout, Source, refuse
from mrsa_watch.logs._names import examples, fault, short
from mrsa_watch.logs._numbers import convention_of, decimal_number, parse_decimal
from mrsa_watch.logs._patterns import skeleton
from mrsa_watch.logs._table import Column, Table, check_memory
from mrsa_watch.logs._text import LEAST_BYTES

_BRACKETED = re.compile(r"\[.*\]|\(.*\)|\{.*\}")
_SEPARATORS = ";|,/+& "
_ROW_BYTES = 20  # that a row needs while rows are put in their order, about


def check_cells(rows: Chosen) -> None:
    """Refuse cells that may hold several clients, unless names are kept as is."""
    options = rows.table.options
    clients = rows.clients
    if options.odd_names == "keep":
        return
    texts = [name for name in clients.names if isinstance(name, str)]
    separator = separator_of(texts)
    if separator is None:
        return
    having = [text for text in texts if separator in text or _BRACKETED.fullmatch(text)]
    row = int(np.flatnonzero(clients.codes == clients.names.index(having[0]))[0])
    where = rows.locate(row)
    expected = (
        "one client in each cell (--client-separator TEXT splits a cell into its "
        "clients, --odd-names keep takes it as one client's name)"
    )
    if options.client_separator is not None:
        fault(where, expected, f"{examples(having)} after cells were split")
    doubt = f"{examples(having)}; this splits them"
    refuse(rows.table, where, expected, doubt, client_separator=separator)


def separator_of(texts: Sequence[str]) -> str | None:
    """Return the mark between the clients of one cell; None where each has one client.

    Examples:
        >>> separator_of(["3;5", "7"]), separator_of(["[3, 5]"])
        (';', ',')
        >>> separator_of(["clinic, north"]) is None
        True
    """
    lists = [
        text for text in texts if text.startswith("[") and _BRACKETED.fullmatch(text)
    ]
    if lists:
        used = (m for m in ",;| " if any(m in text[1:-1].strip() for text in lists))
        return next(used, ",")
    names = set(texts)
    for mark in _SEPARATORS:
        cells = [split(text, mark) for text in texts if mark in text]
        if cells and _are_lists(cells, mark, names):
            return mark
    return None


def _are_lists(cells: Sequence[Sequence[str]], mark: str, names: set[str]) -> bool:
    """Return whether cells with a mark are lists, by the parts between marks."""
    parts = [part for cell in cells for part in cell]
    if len(parts) == len(cells):  # nothing on one side of the mark
        return False
    of_names = any(len(cell) > 1 and names.issuperset(cell) for cell in cells)
    if mark == "/":
        return of_names
    if all(parse_decimal(part) is not None for part in parts):
        return True
    forms = set(map(_form, parts))
    is_uniform = len(forms) == 1
    if is_uniform and "#" in next(iter(forms)):
        return True
    if mark not in ";|,":
        return False
    is_of_form = is_uniform and not forms.isdisjoint(map(_form, names))
    are_all_split = is_uniform and len(cells) == len(names) > 1
    if (is_of_form or are_all_split) and (mark != "," or "letter" in forms):
        return True
    has_lengths = len(set(map(len, cells))) > 1
    if mark != ",":
        is_again = not names.isdisjoint(parts) or len(set(parts)) < len(parts)
        return is_again or has_lengths
    # which names have too: "clinic, north" and "clinic, south"
    places: dict[str, int] = {}
    moves = any(
        places.setdefault(part, place) != place
        for cell in cells
        for place, part in enumerate(cell)
    )
    return of_names or moves or has_lengths


def _form(text: str) -> str:
    """Return the form of a name: with # for numbers, a letter, or a word."""
    if any(map(str.isdigit, text)):
        return skeleton(text)
    return "letter" if len(text) == 1 else "word" if text.isalpha() else text


def split(text: str, mark: str) -> list[str]:
    """Return the parts of a cell without brackets and quotes of Python and JSON."""
    text = text.strip()
    if _BRACKETED.fullmatch(text):
        text = text[1:-1]
    parts = text.split() if mark == " " else text.split(mark)
    stripped = [part.strip() for part in parts]
    if stripped and not stripped[-1]:  # a mark behind the last
        stripped.pop()
    return [
        part[1:-1]
        if len(part) > 1 and part[0] == part[-1] and part[0] in "'\""
        else part
        for part in stripped
    ]


def split_cells(table: Table) -> Table:
    """Return a long table with a row for each client of a cell.

    Columns whose cells hold as many parts as those of the clients are split alike;
    others hold for each of a cell's clients.
    """
    mark = table.options.client_separator
    columns = find(table)
    if mark is None or columns is None:
        return table
    clients = table.plain(columns.client)
    counts = _lengths(_cells(clients, mark))[clients.codes]
    if (counts == 0).any():
        where = table.locate(int(np.flatnonzero(counts == 0)[0]))
        fault(where, "the name or number of a client", "nothing")
    shape = (int(counts.sum()), len(table.header))
    check_memory(shape, _ROW_BYTES, table, least=LEAST_BYTES)
    rows = np.repeat(np.arange(len(counts)), counts)
    are_several = counts.max(initial=0) > 1

    def column(place: int) -> Column | None:
        whole = table.column(place)
        if whole is None:
            return None
        cells = _cells(whole, mark)
        is_alike = np.array_equal(_lengths(cells)[whole.codes], counts)
        if place == columns.client or (is_alike and are_several):
            # the parts of all cells, each once, and where those of a cell are
            places: dict[Any, int] = {}
            codes = [
                [places.setdefault(part, len(places)) for part in cell]
                for cell in cells
            ]
            parts = itertools.chain.from_iterable(codes[code] for code in whole.codes)
            return Column(np.fromiter(parts, np.int64), [*places])
        if place == columns.weight and are_several:
            name = short(table.header[place])
            expected = f"as many weights in column {name} as clients in each cell"
            fault(table.path, expected, examples(whole.names))
        return whole._replace(codes=whole.codes[rows])

    return table._replace(
        column=column, locate=lambda row: table.locate(int(rows[row]))
    )


def _cells(column: Column, mark: str) -> list[list[Any]]:
    """Return the parts of each name."""
    return [
        split(name, mark) if isinstance(name, str) else [name] for name in column.names
    ]


def _lengths(cells: Sequence[Sequence[Any]]) -> np.ndarray:
    return np.array([len(cell) for cell in cells], np.int64)


def check_decimals(
    texts: Sequence[str], where: str, source: Source, *, has_points: bool
) -> None:
    """Refuse numbers that differ by decimal mark, unless the user has chosen one.

    Args:
        texts: Numbers as they are written.
        where: Their place.
        source: The log.
        has_points: Whether a point is the decimal mark for certain.
    """
    if source.options.decimal != "ask":
        return
    likely = convention_of(texts, has_points=has_points)
    if likely is None:
        return
    marked = [text for text in texts if "," in text or "." in text] or texts
    refuse(
        source,
        where,
        "numbers that can be read in one way only (--decimal comma: 1.500 is fifteen "
        "hundred and 1,5 one and a half; --decimal point: 1,500 is fifteen hundred and "
        "1.5 one and a half)",
        f"{examples(marked)}; this may be meant",
        decimal=likely,
    )


def as_numbers(column: Column, options: Layout) -> Column:
    """Return a column with numbers instead of the texts that stand for them."""
    if options.decimal == "ask":
        return column
    names = []
    for name in column.names:
        value = decimal_number(name, options.decimal) if isinstance(name, str) else None
        names.append(name if value is None else value)
    return column._replace(names=names)
