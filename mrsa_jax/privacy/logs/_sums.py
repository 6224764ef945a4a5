"""Which rows of a long table are of one sum, where a round's number alone does not say so.

Splitting a round's rows in parts never makes a figure look better: the parts add up to the whole,
so that the server who knows them knows it too. Merging does; nothing is merged without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mrsa_jax.privacy.logs._table import Column, Layout, in_order, places_in, text_of_cell


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

    None too where the file is not in the order of its sums: where fewer neighbours share their sum
    than their client, or not half as many as could.
    """
    starts = np.flatnonzero(np.r_[True, sums[1:] != sums[:-1]])[: len(sums)]
    _, first = np.unique(sums[starts], return_index=True)
    if len(first) == len(starts):
        return None
    alike = len(sums) - len(starts)
    of_one_client = int((clients[1:] == clients[:-1]).sum())
    is_grouped = 0 < alike >= of_one_client and 2 * alike >= len(sums) - len(first)
    again = np.setdiff1d(np.arange(len(starts)), first)
    return int(starts[again[0]]) if is_grouped else None


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
        column: In order of time; named `run:round/part` where there are runs or parts.
        runs: How many runs there are.
        returns: The first row of a sum that comes again after others, as `first_return` says.
    """

    column: Column
    runs: int
    returns: int | None


def sums_of_rows(rounds: Column, parts: Sequence[Column], clients: Column, options: Layout) -> Sums:
    """Return the sum of each row, by its round, what tells sums apart, and restarts if they do.

    A part (a job, a group) has an order of its own, whose rows may stand between others'.
    """
    order = in_order(rounds, options.round_order)
    keys = [places_in(order, rounds)]
    keys += [places_in(in_order(part, "sorted"), part) for part in parts]
    labels = joined(keys)
    own = joined(keys[1:]) if parts else np.zeros_like(labels)
    apart = np.argsort(own, kind="stable")
    runs = np.zeros_like(labels)
    returns = None
    if options.restarts == "new":
        runs[apart] = runs_of(labels[apart], clients.codes[apart], own[apart])
    elif options.restarts == "ask":
        place = first_return(labels[apart], clients.codes[apart])
        returns = None if place is None else int(apart[place])
    has_runs = bool(runs.any())
    if not parts and not has_runs:
        return Sums(Column(keys[0], [rounds.names[place] for place in order]), 1, returns)
    codes = joined([runs, labels])
    _, first = np.unique(codes, return_index=True)
    names = [
        (f"{runs[row]}:" if has_runs else "")
        + "/".join(text_of_cell(column.names[column.codes[row]]) for column in (rounds, *parts))
        for row in first
    ]
    if options.round_order == "file":
        places = np.argsort(first)
        back = np.empty_like(places)
        back[places] = np.arange(len(places))
        codes, names = back[codes], [names[place] for place in places]
    return Sums(Column(codes, names), int(runs.max()) + 1, returns)
