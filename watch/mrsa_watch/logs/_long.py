"""A table with a row for each participation as a matrix, its faults named by row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mrsa_watch._base.errors import require
from mrsa_watch.logs._command import refuse
from mrsa_watch.logs._identity import likeness, number_of
from mrsa_watch.logs._json import examples
from mrsa_watch.logs._names import MOST_PARTS, fault, text_of_cell
from mrsa_watch.logs._numbers import parse_number
from mrsa_watch.logs._order import UNORDERED, in_order, places_in, resolved
from mrsa_watch.logs._patterns import Odd, is_rounded, odd_clients
from mrsa_watch.logs._table import (
    Column,
    Layout,
    ParticipationLog,
    alike_names,
    check_names,
    check_rounds,
    dense,
    merged,
    named,
    of_part,
)

# ---- Which rows of a long table are of one sum, if the number of the round alone does
# not decide.
#
# Splitting a round's rows in parts never makes a figure look better: the parts add up
# to the whole,
# so that the server who knows them knows it too. Merging does; nothing is merged
# silently.


def joined(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return one code for each combination of codes, in lexicographic order."""
    found = columns[0]
    for codes in columns[1:]:
        width = int(codes.max(initial=0)) + 1
        found = np.unique(found * width + codes, return_inverse=True)[1]
    return found


def is_constant(codes: np.ndarray, sums: np.ndarray) -> bool:
    """Return whether all rows of a sum have the same code, for each sum."""
    order = np.argsort(sums, kind="stable")
    own, codes = sums[order], codes[order]
    return not ((own[1:] == own[:-1]) & (codes[1:] != codes[:-1])).any()


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
    """Return whether sums ascend except at few rows, in a file that is not sorted by clients."""
    falls = int((sums[1:] < sums[:-1]).sum())
    blocks = 1 + int((clients[1:] != clients[:-1]).sum())
    return 0 < 4 * falls <= len(sums) and blocks > len(np.unique(clients))


def runs_of(sums: np.ndarray, clients: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return the run of each row: one more where a sum, or a client in it, comes again.

    Rows of different parts are counted apart, and stand one part after the other.
    """
    runs, run, last, part = np.zeros(len(sums), np.int64), 0, -1, -1
    seen: set[int] = set()
    members: set[int] = set()
    rows = zip(sums.tolist(), clients.tolist(), parts.tolist(), strict=True)
    for row, (label, client, own) in enumerate(rows):
        again = label in seen if label != last else client in members
        if again or own != part:
            run = run + 1 if own == part else 0
            seen.clear()
        if again or label != last:
            members.clear()
        seen.add(label)
        members.add(client)
        runs[row], last, part = run, label, own
    return runs


class Sums(NamedTuple):
    """The sum of each row.

    Attributes:
        column: In order of time; named `run:round/sum` if the log has runs or several
            sums, with the part of the vector after it in brackets if it has parts.
        runs: Number of runs.
        returns: The first row of a sum that comes again after others, as `first_return`
            says.
        parts: Of which part of the vector each sum is, None for the whole; None without
            parts.
        is_ordered: Whether the order of the rounds is known.
    """

    column: Column
    runs: int
    returns: int | None
    parts: tuple[str | None, ...] | None = None
    is_ordered: bool = True


def sums_of_rows(
    rounds: Column,
    sums: Sequence[Column],
    clients: Column,
    options: Layout,
    part: Column | None = None,
) -> Sums:
    """Return the sum of each row, by its round, what distinguishes sums, and restarts if they do.

    Each of several sums (a job, a group, a part of the vector) has a separate order,
    whose rows may be between those of others.
    """
    how, is_ordered = resolved(rounds, options.round_order)
    order = in_order(rounds, how)
    apart_by = [*sums, *([] if part is None else [part])]
    keys = [places_in(order, rounds)]
    keys += [places_in(in_order(each, "sorted"), each) for each in apart_by]
    labels = joined(keys)
    own = joined(keys[1:]) if apart_by else np.zeros_like(labels)
    apart = np.argsort(own, kind="stable")
    runs = np.zeros_like(labels)
    returns = None
    if options.restarts == "new":
        runs[apart] = runs_of(labels[apart], clients.codes[apart], own[apart])
    elif options.restarts == "ask":
        place = first_return(labels[apart], clients.codes[apart])
        returns = None if place is None else int(apart[place])
    has_runs = bool(runs.any())
    if not apart_by and not has_runs:
        names = [rounds.names[place] for place in order]
        return Sums(Column(keys[0], names), 1, returns, None, is_ordered)
    codes = joined([runs, labels])
    _, first = np.unique(codes, return_index=True)
    names = [
        (f"{runs[row]}:" if has_runs else "")
        + "/".join(
            text_of_cell(column.names[column.codes[row]]) for column in (rounds, *sums)
        )
        for row in first
    ]
    parts: list[str | None] | None = None
    if part is not None:
        told = [text_of_cell(name) if _is_name(name) else None for name in part.names]
        parts = [told[part.codes[row]] for row in first]
        names = [
            name + ("" if own_part is None else of_part(own_part))
            for name, own_part in zip(names, parts, strict=True)
        ]
    if how == "file":
        places = np.argsort(first)
        back = np.empty_like(places)
        back[places] = np.arange(len(places))
        codes, names = back[codes], [names[place] for place in places]
        parts = None if parts is None else [parts[place] for place in places]
    is_of_parts = any(own_part is not None for own_part in parts or ())
    kept = tuple(parts) if parts is not None and is_of_parts else None
    return Sums(Column(codes, names), int(runs.max()) + 1, returns, kept, is_ordered)


# ---- A table with a row for each participation as a matrix, its faults named by row.

_MISSING = ("", "nan", "NaN")
_MOST_NAME = 1000  # characters


def assemble(
    rounds: Column,
    clients: Column,
    weights: Column | None,
    options: Layout,
    locate: Callable[[int], str],
    path: str,
    sums_by: Sequence[Column] = (),
    part: Column | None = None,
    client_column: str = "client",
) -> ParticipationLog:
    """Return the matrix of a table with a row for each participation, or name its first fault.

    Args:
        rounds: The round of each row.
        clients: Its client.
        weights: Its weight; 1 if None.
        options: How to read the table.
        locate: Names the place of a row.
        path: Names the table.
        sums_by: What tells several sums of one round apart.
        part: Of which part of the vector each row's sum is, if it is not of the whole.
        client_column: Name of the column of the clients.
    """
    if rounds.codes.size == 0:
        fault(path, "rows of participation after the header", "none")
    if weights is None:
        weights = Column(np.zeros_like(rounds.codes), [1])
    read = [_weight(name) for name in weights.names]
    _check_rows(rounds, clients, weights, read, locate)
    check_rounds(rounds, locate)
    _check_rounded(rounds, locate)
    _check_alike(clients, options, locate, path)
    _check_odd(clients, rounds, client_column, options, locate, path)
    if options.alike_names == "same":
        clients = merged(clients)
    # None is in no row
    values = [Fraction(0) if value is None else value for value in read]
    if part is not None:
        _check_parts(part, locate)
    found = sums_of_rows(rounds, sums_by, clients, options, part)
    sums = found.column
    if part is not None and len(set(sums.names)) < len(sums.names):
        name = next(name for name in sums.names if sums.names.count(name) > 1)
        fault(path, "rounds and parts whose names together differ", f"{name!r} twice")
    if found.returns is not None:
        _refuse_return(
            sums.names[sums.codes[found.returns]], locate(found.returns), path, options
        )
    columns = in_order(clients, "sorted")
    row, column = sums.codes, places_in(columns, clients)
    shape = (len(sums.names), len(columns))
    _check_repeats(row, column, shape, sums, clients, locate)
    matrix = dense(row, column, shape, Column(weights.codes, values), options, path)
    log = named(matrix, tuple(sums.names), tuple(clients.names[i] for i in columns))
    notes = [] if found.is_ordered else [UNORDERED]
    if found.runs > 1:
        notes.append(
            f"The numbers of rounds begin anew: read as {found.runs} runs, by the "
            "order of the "
            "rows."
        )
    return dataclasses.replace(
        log, parts=found.parts, notes=tuple(notes), is_ordered=found.is_ordered
    )


def _check_rounded(rounds: Column, locate: Callable[[int], str]) -> None:
    """Raise for rounds that lost digits: several of them may have become one."""
    for code, row in zip(*np.unique(rounds.codes, return_index=True), strict=True):
        if is_rounded(rounds.names[code]):
            fault(
                locate(int(row)),
                "rounds with all their digits (write them as text, or as "
                "integers): one that lost some may be several",
                f"{rounds.names[code]!a}",
            )


def _check_alike(
    clients: Column, options: Layout, locate: Callable[[int], str], path: str
) -> None:
    """Refuse two names that may be one client's."""
    if options.alike_names != "ask":
        return
    alike = next(alike_names(clients), None)
    if alike is not None:
        refuse_alike(alike.name, alike.other, locate(alike.row), path, options)


def refuse_alike(
    name: Any, other: Any, where: str, path: str, options: Layout
) -> NoReturn:
    """Refuse two names that may be one client's."""
    refuse(
        where,
        "one way to write a client (--alike-names same: names that differ so are of "
        "one "
        "client, the first of them; --alike-names different: of several)",
        f"{name!a} and {other!a}",
        path,
        dataclasses.replace(options, alike_names="same"),
    )


_KEEP = "a client in each row (--odd-names keep takes every name as a client's)"


def _check_odd(
    clients: Column,
    rounds: Column,
    name: str,
    options: Layout,
    locate: Callable[[int], str],
    path: str,
) -> None:
    """Refuse rows of what may be no client, or of identifiers that may be several.

    Of names that are one client's, one that is like most suffices; and all are left out
    together.
    """
    if options.odd_names == "keep":
        return
    used, first = np.unique(clients.codes, return_index=True)
    rows = {
        clients.names[code]: int(row) for code, row in zip(used, first, strict=True)
    }
    odd = odd_clients(list(rows))
    if options.alike_names == "same":
        odd = _of_whole_groups(odd, clients)
    if not odd.all:
        return
    where = locate(min(rows[own] for own in odd.all))
    if odd.rounded:
        refuse(
            where,
            _KEEP,
            f"{examples(odd.rounded)}, {NOT_WHOLE}; this takes each as one, which "
            "is right only if no two became one",
            path,
            dataclasses.replace(options, odd_names="keep"),
        )
    found = f"{examples(odd.all)}, {UNLIKE}"
    if len(odd.all) == len(rows):
        fault(where, _KEEP, found)
    rare = [own for own in odd.missing if _is_rare(own, clients, rounds)]
    found += "; this leaves their rows out"
    if odd.unlike or rare:
        found += ", which is right only if none of them is another name of a client"
    texts = [text_of_cell(own) for own in odd.all]
    refuse(where, _KEEP, found, path, without_rows(options, name, texts))


def _of_whole_groups(odd: Odd, clients: Column) -> Odd:
    """Return names of which all that are alike are odd."""
    groups: dict[Any, list[Any]] = {}
    for code in np.unique(clients.codes).tolist():
        groups.setdefault(likeness(clients.names[code]), []).append(clients.names[code])
    known = set(odd.all)
    kept = {
        name for group in groups.values() if known.issuperset(group) for name in group
    }
    return Odd(*([name for name in own if name in kept] for own in odd))


def _is_rare(name: Any, clients: Column, rounds: Column) -> bool:
    """Return whether a mark of nothing is in few rounds, as a value that is missing is."""
    own = np.unique(rounds.codes[clients.codes == clients.names.index(name)])
    return len(own) < 2 or 2 * len(own) < len(np.unique(rounds.codes))


UNLIKE = "which names none, or is unlike most names"
NOT_WHOLE = "which lost digits or letters, so that it may be several clients"


def without_rows(options: Layout, column: str, texts: Sequence[str]) -> Layout:
    """Return settings that leave out rows with some texts in a column."""
    key = f"{column}!"
    where = dict(options.where)
    where[key] = (*where.get(key, ()), *texts)
    return dataclasses.replace(options, where=tuple(where.items()))


def _check_parts(part: Column, locate: Callable[[int], str]) -> None:
    """Raise for a part of the vector that is no name, or may be another's, or for too many."""
    first = dict(zip(*np.unique(part.codes, return_index=True), strict=True))
    names = {code: part.names[code] for code in first if _is_name(part.names[code])}
    for code, name in names.items():
        if not _is_one_line(name):
            fault(
                locate(int(first[code])), "a part's name in one line", repr(name)[:80]
            )
    require(
        len(names) <= MOST_PARTS,
        "part_column",
        f"must name at most {MOST_PARTS} parts of the "
        "vector (coordinates that the same clients train are one part)",
        len(names),
    )
    rows = np.flatnonzero(np.isin(part.codes, list(names)))
    check_names(
        Column(part.codes[rows], part.names), "part", lambda row: locate(int(rows[row]))
    )


def _refuse_return(name: Any, where: str, path: str, options: Layout) -> NoReturn:
    """Refuse a round that continues after others, in a file in the order of its rounds."""
    refuse(
        where,
        f"the rows of round {name!r} next to each other, as others' are (--restarts "
        "new: "
        "its number is used again, by another sum; --restarts same: it is the same sum)",
        "it again after others; this reads another sum there, so that no figure is too "
        "good",
        path,
        dataclasses.replace(options, restarts="new"),
    )


def _weight(name: Any) -> Fraction | None:
    """Return a weight exactly, or None if it is none."""
    if isinstance(name, str):
        value = parse_number(name)
    elif isinstance(name, float) and not math.isfinite(name):
        value = None
    else:
        value = None if name is None else Fraction(name)
    return value if value is not None and value >= 0 else None


def _check_rows(
    rounds: Column,
    clients: Column,
    weights: Column,
    values: list[Fraction | None],
    locate: Callable[[int], str],
) -> None:
    faults: list[tuple[int, str, Column]] = []
    one_line = f"a name in one line, of at most {_MOST_NAME} characters"
    bad = {
        name for name, value in zip(weights.names, values, strict=True) if value is None
    }
    columns: tuple[tuple[Column, str, Callable[[Any], bool]], ...] = (
        (rounds, "a round (a number from 0 on, or a name)", _is_round),
        (clients, "the name or number of a client", _is_name),
        (rounds, one_line, _is_one_line),
        (clients, one_line, _is_one_line),
        (weights, "a weight, a number of 0 or more", lambda name: name not in bad),
    )
    for column, expected, is_fine in columns:
        wrong = [code for code, name in enumerate(column.names) if not is_fine(name)]
        rows = (
            np.flatnonzero(np.isin(column.codes, wrong)) if wrong else np.empty(0, int)
        )
        if rows.size:
            faults.append((int(rows[0]), expected, column))
    if faults:
        row, expected, column = min(faults, key=lambda item: item[0])
        name = column.names[column.codes[row]]
        fault(locate(row), expected, "nothing" if name in ("", None) else repr(name))


def _is_name(name: Any) -> bool:
    # NaN differs from itself
    return name is not None and name not in _MISSING and name == name


def _is_one_line(name: Any) -> bool:
    if not isinstance(name, str):
        return True
    return (
        len(name) <= _MOST_NAME
        and "\n" not in name.strip()
        and "\r" not in name.strip()
    )


def _is_round(name: Any) -> bool:
    if isinstance(name, float) and math.isinf(name):
        return False
    number = number_of(name)
    return _is_name(name) and (number is None or number >= 0)


def _check_repeats(
    row: np.ndarray,
    column: np.ndarray,
    shape: tuple[int, int],
    rounds: Column,
    clients: Column,
    locate: Callable[[int], str],
) -> None:
    place = row.astype(np.int64) * shape[1] + column
    order = np.argsort(place, kind="stable")
    again = order[1:][place[order[1:]] == place[order[:-1]]]
    if again.size == 0:
        return
    second = int(again.min())
    first = int(np.flatnonzero(place == place[second])[0])
    client, label = (
        clients.names[clients.codes[second]],
        rounds.names[rounds.codes[second]],
    )
    fault(
        locate(second),
        "each client once in a round (--sum-columns COLUMN tells its sums apart, "
        "--restarts new where it begins anew; of a row that is there twice one must go)",
        f"client {client!r} in round {label!r} again, first in {locate(first)}",
    )
