"""Cells of a long table that hold several clients, and weights with two conventions.

A cell `3;5` is clients 3 and 5, or one client of that name; a weight `1.500` is one and
a half, or fifteen hundred. Each is asked about, and read as the user says.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mrsa_watch.logs._columns import Table, find, plain_column
from mrsa_watch.logs._command import refuse
from mrsa_watch.logs._json import examples, short
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._numbers import convention_of, decimal_number, parse_decimal
from mrsa_watch.logs._patterns import skeleton
from mrsa_watch.logs._table import Column, Layout, check_memory
from mrsa_watch.logs._text import LEAST_BYTES

# ---- Several clients in one cell.

_BRACKETED = re.compile(r"\[.*\]|\(.*\)|\{.*\}")
_SEPARATORS = ";|,/+& "
_ROW_BYTES = 20  # that a row needs while rows are put in their order, about


def check_cells(
    clients: Column, locate: Callable[[int], str], path: str, options: Layout
) -> None:
    """Refuse cells that may hold several clients each, unless names are kept as they are."""
    if options.odd_names == "keep":
        return
    texts = [name for name in clients.names if isinstance(name, str)]
    separator = separator_of(texts)
    if separator is None:
        return
    having = [text for text in texts if separator in text or _BRACKETED.fullmatch(text)]
    row = int(np.flatnonzero(clients.codes == clients.names.index(having[0]))[0])
    expected = (
        "one client in each cell (--client-separator TEXT splits a cell into its "
        "clients, "
        "--odd-names keep takes it as one client's name)"
    )
    if options.client_separator is not None:
        fault(locate(row), expected, f"{examples(having)} after cells were split")
    refuse(
        locate(row),
        expected,
        f"{examples(having)}; this splits them",
        path,
        dataclasses.replace(options, client_separator=separator),
    )


def separator_of(texts: Sequence[str]) -> str | None:
    """Return what stands between the clients of one cell.

    None where each holds one client.

    Examples:
        >>> separator_of(["3;5", "7"]), separator_of(["[3, 5]"]), separator_of(["clinic, north"])
        (';', ',', None)
    """
    lists = [
        text for text in texts if text.startswith("[") and _BRACKETED.fullmatch(text)
    ]
    if lists:
        marks = [
            mark for mark in ",;| " if any(mark in text[1:-1].strip() for text in lists)
        ]
        return marks[0] if marks else ","
    names = set(texts)
    for mark in _SEPARATORS:
        cells = [split(text, mark) for text in texts if mark in text]
        if cells and _are_lists(cells, mark, names):
            return mark
    return None


def _are_lists(cells: Sequence[Sequence[str]], mark: str, names: set[str]) -> bool:
    """Return whether cells that hold a mark are lists of clients, by the parts between marks."""
    parts = [part for cell in cells for part in cell]
    if len(parts) == len(cells):  # nothing on one side of the mark
        return False
    of_names = any(len(cell) > 1 and names.issuperset(cell) for cell in cells)
    if mark == "/":
        return of_names
    if all(parse_decimal(part) is not None for part in parts):
        return True
    forms = set(map(_form, parts))
    if len(forms) == 1 and "#" in next(iter(forms)):
        return True
    if mark not in ";|,":
        return False
    is_of_form = len(forms) == 1 and not forms.isdisjoint(map(_form, names))
    if is_of_form and (mark != "," or "letter" in forms):
        return True
    if (
        len(forms) == 1
        and len(cells) == len(names) > 1
        and (mark != "," or "letter" in forms)
    ):
        return True
    places: dict[str, int] = {}
    moves = any(
        places.setdefault(part, place) != place
        for cell in cells
        for place, part in enumerate(cell)
    )
    lengths = {len(cell) for cell in cells}
    if mark == ",":  # which names have too: "clinic, north" and "clinic, south"
        return of_names or moves or len(lengths) > 1
    return (
        not names.isdisjoint(parts) or len(set(parts)) < len(parts) or len(lengths) > 1
    )


def _form(text: str) -> str:
    """Return the form of a name: with # for numbers, a letter, or a word."""
    if any(map(str.isdigit, text)):
        return skeleton(text)
    return "letter" if len(text) == 1 else "word" if text.isalpha() else text


def split(text: str, mark: str) -> list[str]:
    """Return the parts of a cell, without the brackets and quotes of lists of Python and JSON."""
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


def split_cells(table: Table, options: Layout) -> Table:
    """Return a long table with a row for each client of a cell.

    Columns whose cells hold as many parts as those of the clients are split alike;
    others hold for each of a cell's clients.
    """
    mark = options.client_separator
    columns = find(table.header, options, table.head)
    if mark is None or columns is None:
        return table
    whole = plain_column(table, columns.client)
    cells = _cells(whole.names, mark)
    counts = np.array([len(cell) for cell in cells], np.int64)[whole.codes]
    if (counts == 0).any():
        where = table.locate(int(np.flatnonzero(counts == 0)[0]))
        fault(where, "the name or number of a client", "nothing")
    most = dataclasses.replace(
        options, memory_bytes=max(options.memory_bytes, LEAST_BYTES)
    )
    check_memory((int(counts.sum()), len(table.header)), _ROW_BYTES, most, table.path)
    rows = np.repeat(np.arange(len(counts)), counts)

    def column(place: int) -> Column | None:
        found = table.column(place)
        if found is None:
            return None
        parts = _cells(found.names, mark)
        is_alike = np.array_equal(
            np.array([*map(len, parts)], np.int64)[found.codes], counts
        )
        if place != columns.client and not (is_alike and counts.max() > 1):
            if place == columns.weight and counts.max() > 1:
                fault(
                    table.path,
                    f"as many weights in column {short(table.header[place])} as "
                    "clients in each cell",
                    examples(found.names),
                )
            return found._replace(codes=found.codes[rows])
        places: dict[Any, int] = {}
        own = [
            [places.setdefault(part, len(places)) for part in cell] for cell in parts
        ]
        codes = [own[code] for code in found.codes]
        return Column(
            np.fromiter((code for cell in codes for code in cell), np.int64), [*places]
        )

    return table._replace(
        column=column, locate=lambda row: table.locate(int(rows[row]))
    )


def _cells(names: Sequence[Any], mark: str) -> list[list[Any]]:
    return [split(name, mark) if isinstance(name, str) else [name] for name in names]


# ---- Weights with two conventions.


def check_decimals(
    texts: Sequence[str], where: str, path: str, options: Layout, *, has_points: bool
) -> None:
    """Refuse numbers that are others by another decimal mark, unless the user has said which.

    Args:
        texts: Numbers as they are written.
        where: Their place.
        path: Names the log.
        options: How to read it.
        has_points: Whether a point is the decimal mark for certain.
    """
    if options.decimal != "ask":
        return
    likely = convention_of(texts, has_points=has_points)
    if likely is None:
        return
    shown = [text for text in texts if "," in text or "." in text] or texts
    refuse(
        where,
        "numbers that can be read in one way only (--decimal comma: 1.500 is fifteen "
        "hundred and 1,5 one and a half; --decimal point: 1,500 is fifteen hundred and "
        "1.5 one "
        "and a half)",
        f"{examples(shown)}; this may be meant",
        path,
        dataclasses.replace(options, decimal=likely),
    )


def as_numbers(column: Column, options: Layout) -> Column:
    """Return a column whose texts are the numbers that they stand for, where they are any."""
    if options.decimal == "ask":
        return column
    names = []
    for name in column.names:
        value = decimal_number(name, options.decimal) if isinstance(name, str) else None
        names.append(name if value is None else value)
    return column._replace(names=names)
