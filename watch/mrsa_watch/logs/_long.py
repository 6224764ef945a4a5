"""A table with a row for each participation as a matrix, its faults named by row.

First, which rows are of one sum, if the number of the round alone does not decide.
Splitting a round's rows in parts never makes a figure look better: the parts add up to
the whole, so that the server who knows them knows it too. Merging does; nothing is
merged silently.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mrsa_watch._base.errors import require
from mrsa_watch.logs._columns import Chosen
from mrsa_watch.logs._command import Source, refuse
from mrsa_watch.logs._identity import likeness, number_of
from mrsa_watch.logs._names import MOST_PARTS, examples, fault, text_of_cell
from mrsa_watch.logs._numbers import parse_number
from mrsa_watch.logs._order import UNORDERED, in_order, places_in, resolved
from mrsa_watch.logs._patterns import Odd, is_rounded, odd_clients
from mrsa_watch.logs._table import (
    Column,
    ParticipationLog,
    alike_names,
    check_names,
    check_rounds,
    dense,
    merged,
    named,
    of_part,
)

_MISSING = ("", "nan", "NaN")
_MOST_NAME = 1000  # characters
UNLIKE = "which names none, or is unlike most names"
NOT_WHOLE = (
    "which lost digits or letters, so that it may be several clients; this takes each "
    "as one, which is right only if no two became one"
)
_KEEP = "a client in each row (--odd-names keep takes every name as a client's)"


def joined(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return one code for each combination of codes, in lexicographic order."""
    # numbers in a mixed radix, made dense after each column so that no product
    # overflows
    combined = columns[0]
    for codes in columns[1:]:
        width = int(codes.max(initial=0)) + 1
        combined = np.unique(combined * width + codes, return_inverse=True)[1]
    return combined


def is_constant(codes: np.ndarray, sums: np.ndarray) -> bool:
    """Return whether all rows of a sum have the same code, for each sum."""
    # rows of one sum side by side: the code must not change where the sum does not
    order = np.argsort(sums, kind="stable")
    changes = codes[order][1:] != codes[order][:-1]
    return not (changes & (sums[order][1:] == sums[order][:-1])).any()


def first_return(sums: np.ndarray, clients: np.ndarray) -> int | None:
    """Return the first row of a sum that comes again after others; None if none does.

    None too where the file is not in the order of its sums: where fewer neighbours
    share their sum than their client, or not half as many as could; and sums do not
    ascend either.
    """
    starts = np.flatnonzero(np.r_[True, sums[1:] != sums[:-1]])[: len(sums)]
    _, first = np.unique(sums[starts], return_index=True)
    if len(first) == len(starts):
        return None
    alike = len(sums) - len(starts)
    of_one_client = int((clients[1:] == clients[:-1]).sum())
    is_grouped = 0 < alike >= of_one_client and 2 * alike >= len(sums) - len(first)
    again = np.setdiff1d(np.arange(len(starts)), first)
    return int(starts[again[0]]) if is_grouped or _starts_anew(sums, clients) else None


def _starts_anew(sums: np.ndarray, clients: np.ndarray) -> bool:
    """Return if sums ascend except at few rows, in a file not sorted by clients."""
    falls = int((sums[1:] < sums[:-1]).sum())
    blocks = 1 + int((clients[1:] != clients[:-1]).sum())
    return 0 < 4 * falls <= len(sums) and blocks > len(np.unique(clients))


def runs_of(sums: np.ndarray, clients: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return the run of each row: one more where a sum, or a client in it, comes again.

    Rows of different parts are counted apart, and stand one part after the other.
    """
    runs: list[int] = []
    run = 0
    last_label = last_part = -1
    labels: set[int] = set()  # of the run so far
    members: set[int] = set()  # of the sum so far
    rows = zip(sums.tolist(), clients.tolist(), parts.tolist(), strict=True)
    for label, client, part in rows:
        again = label in labels if label != last_label else client in members
        if again or part != last_part:
            run = run + 1 if part == last_part else 0
            labels.clear()
        if again or label != last_label:
            members.clear()
        labels.add(label)
        members.add(client)
        runs.append(run)
        last_label = label
        last_part = part
    return np.array(runs, np.int64)


class Sums(NamedTuple):
    """The sum of each row.

    Attributes:
        column: In order of time; named `run:round/sum` if the log has runs or several
            sums, with the part of the vector after it in brackets if it has parts.
        is_ordered: Whether the order of the rounds is known.
        runs: Number of runs.
        returns: The first row of a sum that comes again after others, as `first_return`
            says.
        parts: Of which part of the vector each sum is, None for the whole; None without
            parts.
    """

    column: Column
    is_ordered: bool
    runs: int = 1
    returns: int | None = None
    parts: tuple[str | None, ...] | None = None


def sums_of_rows(rows: Chosen) -> Sums:
    """Return the sum of each row, by round, distinguishing columns and restarts.

    Each of several sums (a job, a group, a part of the vector) has a separate order,
    whose rows may be between those of others.
    """
    rounds = rows.rounds
    clients = rows.clients.codes
    options = rows.table.options
    how, is_ordered = resolved(rounds, options.round_order)
    order = in_order(rounds, how)
    separating = [*rows.sums, *([] if rows.part is None else [rows.part])]
    keys = [places_in(order, rounds)]
    keys += [places_in(in_order(each, "sorted"), each) for each in separating]
    labels = joined(keys)
    series = joined(keys[1:]) if separating else np.zeros_like(labels)
    # rows in the order of the file, those of one series after those of another
    apart = np.argsort(series, kind="stable")
    runs = np.zeros_like(labels)
    returns = None
    if options.restarts == "new":
        runs[apart] = runs_of(labels[apart], clients[apart], series[apart])
    elif options.restarts == "ask":
        place = first_return(labels[apart], clients[apart])
        returns = None if place is None else int(apart[place])
    has_runs = bool(runs.any())
    if not separating and not has_runs:
        names = [rounds.names[place] for place in order]
        return Sums(Column(keys[0], names), is_ordered, returns=returns)
    codes = joined([runs, labels])
    _, first = np.unique(codes, return_index=True)
    names = []
    parts: list[str | None] = []
    for row in first:
        run = f"{runs[row]}:" if has_runs else ""
        columns = (rounds, *rows.sums)
        texts = [text_of_cell(each.names[each.codes[row]]) for each in columns]
        name = run + "/".join(texts)
        part = None if rows.part is None else rows.part.names[rows.part.codes[row]]
        if _is_name(part):
            part = text_of_cell(part)
            name += of_part(part)
            parts.append(part)
        else:
            parts.append(None)
        names.append(name)
    if how == "file":
        # sums by their first rows; `back` is the inverse of that permutation
        places = np.argsort(first)
        back = np.empty_like(places)
        back[places] = np.arange(len(places))
        codes = back[codes]
        names = [names[place] for place in places]
        parts = [parts[place] for place in places]
    has_parts = any(part is not None for part in parts)
    return Sums(
        Column(codes, names),
        is_ordered,
        int(runs.max()) + 1,
        returns,
        tuple(parts) if has_parts else None,
    )


def assemble(rows: Chosen) -> ParticipationLog:
    """Return the matrix of a table with a row per participation, or its first fault."""
    table = rows.table
    if rows.rounds.codes.size == 0:
        fault(table.path, "rows of participation after the header", "none")
    factors = rows.weights or Column(np.zeros_like(rows.rounds.codes), [1])
    weights = [_weight(name) for name in factors.names]
    _check_rows(rows, factors, weights)
    check_rounds(rows.rounds, rows.locate)
    _check_rounded(rows)
    if table.options.alike_names == "ask":
        for alike in alike_names(rows.clients):
            refuse_alike(alike.name, alike.other, rows.locate(alike.row), table)
    _check_odd(rows)
    if table.options.alike_names == "same":
        rows = rows._replace(clients=merged(rows.clients))
    clients = rows.clients
    if rows.part is not None:
        _check_parts(rows.part, rows.locate)
    sums = sums_of_rows(rows)
    names = sums.column.names
    if rows.part is not None and len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        expected = "rounds and parts whose names together differ"
        fault(table.path, expected, f"{name!r} twice")
    if sums.returns is not None:
        _refuse_return(rows, sums.column, sums.returns)
    columns = in_order(clients, "sorted")
    row = sums.column.codes
    column = places_in(columns, clients)
    shape = (len(names), len(columns))
    _check_repeats(row, column, rows, sums.column)
    # a weight that is none is in no row
    values = [Fraction(0) if value is None else value for value in weights]
    matrix = dense(row, column, shape, Column(factors.codes, values), table)
    log = named(matrix, tuple(names), tuple(clients.names[i] for i in columns))
    notes = [] if sums.is_ordered else [UNORDERED]
    if sums.runs > 1:
        notes.append(
            f"The numbers of rounds begin anew: read as {sums.runs} runs, by the "
            "order of the rows."
        )
    return dataclasses.replace(
        log, parts=sums.parts, notes=tuple(notes), is_ordered=sums.is_ordered
    )


def _check_rounded(rows: Chosen) -> None:
    """Raise for rounds that lost digits: several of them may have become one."""
    names = rows.rounds.names
    for code, row in zip(*np.unique(rows.rounds.codes, return_index=True), strict=True):
        if is_rounded(names[code]):
            fault(
                rows.locate(int(row)),
                "rounds with all their digits (write them as text, or as "
                "integers): one that lost some may be several",
                f"{names[code]!a}",
            )


def refuse_alike(name: Any, other: Any, where: str, source: Source) -> NoReturn:
    """Refuse two names that may be one client's."""
    refuse(
        source,
        where,
        "one way to write a client (--alike-names same: names that differ so are of "
        "one client, the first of them; --alike-names different: of several)",
        f"{name!a} and {other!a}",
        alike_names="same",
    )


def _check_odd(rows: Chosen) -> None:
    """Refuse rows of what may be no client, or of identifiers that may be several.

    Of names that are one client's, one that is like most suffices; and all are left out
    together.
    """
    table = rows.table
    clients = rows.clients
    if table.options.odd_names == "keep":
        return
    used, first = np.unique(clients.codes, return_index=True)
    row_of = {
        clients.names[code]: int(row) for code, row in zip(used, first, strict=True)
    }
    odd = odd_clients(list(row_of))
    if table.options.alike_names == "same":
        odd = _of_whole_groups(odd, list(row_of))
    if not odd.all:
        return
    where = rows.locate(min(row_of[name] for name in odd.all))
    if odd.rounded:
        doubt = f"{examples(odd.rounded)}, {NOT_WHOLE}"
        refuse(table, where, _KEEP, doubt, odd_names="keep")
    doubt = f"{examples(odd.all)}, {UNLIKE}"
    if len(odd.all) == len(row_of):
        fault(where, _KEEP, doubt)
    doubt += "; this leaves their rows out"
    if odd.unlike or any(_is_rare(name, rows) for name in odd.missing):
        doubt += ", which is right only if none of them is another name of a client"
    # one more condition: rows with none of these texts in the clients' column
    conditions = dict(table.options.where)
    key = f"{rows.client_name}!"
    texts = map(text_of_cell, odd.all)
    conditions[key] = (*conditions.get(key, ()), *texts)
    refuse(table, where, _KEEP, doubt, where=tuple(conditions.items()))


def _of_whole_groups(odd: Odd, names: Sequence[Any]) -> Odd:
    """Return names of which all that are alike are odd."""
    fine = {likeness(name) for name in set(names).difference(odd.all)}
    return Odd(*([name for name in kind if likeness(name) not in fine] for kind in odd))


def _is_rare(name: Any, rows: Chosen) -> bool:
    """Return whether a mark of nothing is in few rounds, like a missing value."""
    code = rows.clients.names.index(name)
    rounds = rows.rounds.codes
    count = len(np.unique(rounds[rows.clients.codes == code]))
    return count < 2 or 2 * count < len(np.unique(rounds))


def _check_parts(part: Column, locate: Callable[[int], str]) -> None:
    """Raise for a part of the vector without a name, too like another, or too many."""
    first = dict(zip(*np.unique(part.codes, return_index=True), strict=True))
    names = {code: part.names[code] for code in first if _is_name(part.names[code])}
    for code, name in names.items():
        if not _is_one_line(name):
            where = locate(int(first[code]))
            fault(where, "a part's name in one line", repr(name)[:80])
    rule = (
        f"must name at most {MOST_PARTS} parts of the vector (coordinates that the "
        "same clients train are one part)"
    )
    require(len(names) <= MOST_PARTS, "part_column", rule, len(names))
    rows = np.flatnonzero(np.isin(part.codes, list(names)))
    of_parts = Column(part.codes[rows], part.names)
    check_names(of_parts, "part", lambda row: locate(int(rows[row])))


def _refuse_return(rows: Chosen, sums: Column, row: int) -> NoReturn:
    """Refuse a round that resumes after others, in a file in order of rounds."""
    refuse(
        rows.table,
        rows.locate(row),
        f"the rows of round {sums.names[sums.codes[row]]!r} next to each other, as "
        "others' are (--restarts new: its number is used again, by another sum; "
        "--restarts same: it is the same sum)",
        "it again after others; this reads another sum there, so that no figure is too "
        "good",
        restarts="new",
    )


def _weight(name: Any) -> Fraction | None:
    """Return a weight exactly, or None if it is none."""
    if isinstance(name, str):
        value = parse_number(name)
    elif name is None or (isinstance(name, float) and not math.isfinite(name)):
        return None
    else:
        value = Fraction(name)
    return value if value is not None and value >= 0 else None


def _check_rows(
    rows: Chosen, factors: Column, weights: Sequence[Fraction | None]
) -> None:
    """Raise for the first row with a round, a client or a weight that is none."""
    bad = {
        name
        for name, value in zip(factors.names, weights, strict=True)
        if value is None
    }
    one_line = f"a name in one line, of at most {_MOST_NAME} characters"
    rules: tuple[tuple[Column, str, Callable[[Any], bool]], ...] = (
        (rows.rounds, "a round (a number from 0 on, or a name)", _is_round),
        (rows.clients, "the name or number of a client", _is_name),
        (rows.rounds, one_line, _is_one_line),
        (rows.clients, one_line, _is_one_line),
        (factors, "a weight, a number of 0 or more", lambda name: name not in bad),
    )
    faults: list[tuple[int, str, Any]] = []
    for column, expected, is_fine in rules:
        wrong = [code for code, name in enumerate(column.names) if not is_fine(name)]
        places = np.flatnonzero(np.isin(column.codes, wrong))
        if places.size:
            row = int(places[0])
            faults.append((row, expected, column.names[column.codes[row]]))
    if faults:
        row, expected, name = min(faults, key=lambda each: each[0])
        received = "nothing" if name in ("", None) else repr(name)
        fault(rows.locate(row), expected, received)


def _is_name(name: Any) -> bool:
    # NaN differs from itself
    return name is not None and name not in _MISSING and name == name


def _is_one_line(name: Any) -> bool:
    if not isinstance(name, str):
        return True
    return len(name) <= _MOST_NAME and {"\n", "\r"}.isdisjoint(name.strip())


def _is_round(name: Any) -> bool:
    if isinstance(name, float) and math.isinf(name):
        return False
    number = number_of(name)
    return _is_name(name) and (number is None or number >= 0)


def _check_repeats(
    row: np.ndarray, column: np.ndarray, rows: Chosen, sums: Column
) -> None:
    """Raise for a client that is twice in a sum."""
    # one number for each pair of sum and client: an equal neighbour in sorted order is
    # a repetition
    place = row.astype(np.int64) * len(rows.clients.names) + column
    order = np.argsort(place, kind="stable")
    again = order[1:][place[order[1:]] == place[order[:-1]]]
    if again.size == 0:
        return
    second = int(again.min())
    first = int(np.flatnonzero(place == place[second])[0])
    client = rows.clients.names[rows.clients.codes[second]]
    label = sums.names[sums.codes[second]]
    locate = rows.locate
    fault(
        locate(second),
        "each client once in a round (--sum-columns COLUMN tells its sums apart, "
        "--restarts new where it begins anew; "
        "of a row that is there twice one must go)",
        f"client {client!r} in round {label!r} again, first in {locate(first)}",
    )
