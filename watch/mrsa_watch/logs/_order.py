"""The order of rounds: by their names, by the file, or as the user says."""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_watch.logs._identity import number_of
from mrsa_watch.logs._numbers import is_grouped
from mrsa_watch.logs._table import Column

UNORDERED = (
    "The names of the rounds do not show their order: they are in the order of the "
    "file (--round-order file confirms it, --round-order sorted takes that of their "
    "names)."
)
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64)
_DIGITS = re.compile(r"(\d+)")
# the year first, as ISO 8601 has it: all other dates can be read in two ways
_INSTANT = re.compile(
    r"(\d{4})(?:([-/.])(\d\d?)(?:\2(\d\d?)(?:[T ](\d\d):(\d\d)(?::(\d\d)"
    r"(?:[.,](\d{1,9}))?)? ?(Z|[+-]\d\d(?::?\d\d)?)?)?)?)?",
    re.ASCII,
)


def resolved(column: Column, how: str) -> tuple[str, bool]:
    """Return if rounds are "sorted" or as in the "file", and if that is known."""
    if how != "auto":
        return how, True
    return ("sorted", True) if _shows_order(column) else ("file", False)


def in_order(column: Column, how: str) -> np.ndarray:
    """Return the places of names in order of time (or of names, for clients)."""
    used, first = np.unique(column.codes, return_index=True)
    if how == "file":
        return used[np.argsort(first)]
    names = [column.names[code] for code in used]
    try:
        keys = _keys(names, column.order)
        places = sorted(range(len(used)), key=lambda place: keys[place])
    except TypeError:  # of a type without an order
        places = sorted(range(len(used)), key=lambda place: _natural(names[place]))
    return used[np.array(places, np.int64)]


def places_in(order: np.ndarray, column: Column) -> np.ndarray:
    """Return each entry's place in an order of its column's names."""
    places = np.zeros(len(column.names), np.int64)
    places[order] = np.arange(len(order))
    return places[column.codes]


def _shows_order(column: Column) -> bool:
    """Return whether names show the order of their rounds, in one way only."""
    names = [column.names[code] for code in np.unique(column.codes)]
    texts = [name for name in names if isinstance(name, str)]
    if len(names) < 2 or (column.order and set(names) <= set(column.order)):
        return True
    if is_grouped(texts, "."):  # 1.000 is above 999, or below 2
        return False
    if _are_numbers(names) or _instants(names) is not None:
        return True
    if not texts:
        return _are_comparable(names)
    return len(texts) == len(names) and _varying_numbers(texts) <= 1


def _are_numbers(names: Sequence[Any]) -> bool:
    return all(number_of(name) is not None for name in names)


def _are_comparable(names: Sequence[Any]) -> bool:
    try:
        sorted(names)
    except TypeError:  # with and without a time zone
        return False
    return len(set(map(type, names))) == 1 and all(
        isinstance(name, (*_TIMES, numbers.Real)) or hasattr(name, "start_time")
        for name in names
    )


def _varying_numbers(texts: Sequence[str]) -> int:
    """Return the count of numbers that vary in texts; 2 if texts differ otherwise."""
    parts = [_DIGITS.split(text) for text in texts]
    if len({tuple(split[::2]) for split in parts}) > 1:
        return 2
    numbers_ = list(zip(*parts, strict=True))[1::2]
    return sum(len(set(values)) > 1 for values in numbers_)


def _instants(names: Sequence[Any]) -> list[Any] | None:
    """Return names as instants, if all are dates and times with the year first."""
    instants = []
    zones = set()
    for name in names:
        form = _INSTANT.fullmatch(name.strip()) if isinstance(name, str) else None
        if form is None:
            return None
        year, _, *parts, decimals, zone = form.groups()
        numbers_ = [
            int(part or least) for part, least in zip(parts, "11000", strict=True)
        ]
        try:
            moment = datetime.datetime(int(year), *numbers_)  # type: ignore[arg-type]
        except ValueError:
            return None
        zones.add(zone is not None)
        moment -= datetime.timedelta(minutes=_minutes(zone or "Z"))
        instants.append((moment, Fraction(f"0.{decimals or 0}")))
    return instants if len(zones) < 2 else None


def _minutes(zone: str) -> int:
    """Return an offset from UTC in minutes."""
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    size = 60 * int(digits[:2]) + int(digits[2:])
    return -size if zone[0] == "-" else size


def _keys(names: Sequence[Any], order: Sequence[Any]) -> list[Any]:
    """Return by what names are sorted."""
    if order and set(names) <= set(order):
        return [order.index(name) for name in names]
    if _are_numbers(names):
        return [number_of(name) if isinstance(name, str) else name for name in names]
    instants = _instants(names)
    if instants is not None:
        return instants
    kind, *others = set(map(type, names))
    return (
        list(map(_natural, names)) if others or issubclass(kind, str) else list(names)
    )


def _natural(name: Any) -> tuple[list[Any], str]:
    """Return a key that puts round-9 before round-10."""
    parts = re.split(r"([0-9]+)", str(name))
    # digits by their count, then as text: their order as numbers, of any length
    digits = [part.lstrip("0") for part in parts[1::2]]
    keys: list[Any] = list(parts)
    keys[1::2] = [(len(part), part) for part in digits]
    return keys, str(name)
