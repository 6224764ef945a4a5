"""Names of rounds and clients: their text, the number that one is, and two that look alike."""

from __future__ import annotations

import math
import unicodedata
from fractions import Fraction
from typing import Any, NoReturn

from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch.logs._numbers import parse_decimal

MOST_NAME = 1000  # characters
_MOST_SHOWN = 200  # characters of what was found


def fault(where: str, expected: str, found: str) -> NoReturn:
    """Raise the error that names what is wrong in a file, and where."""
    if len(found) > _MOST_SHOWN:
        found = found[: _MOST_SHOWN - 3] + "..."
    raise ConfigurationError(f"{where}: expected {expected}; found {found}")


def text_of_cell(value: Any) -> str:
    """Return a value as text; whole floats as integers, nothing as an empty text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()


def decimal_of(name: Any) -> Fraction | None:
    """Return the number that a name of a round or client is, or None."""
    if isinstance(name, str):
        return parse_decimal(name)
    is_number = isinstance(name, int) or (isinstance(name, float) and math.isfinite(name))
    return Fraction(name) if is_number else None


def check_alike(name: Any, other: Any, kind: str, where: str) -> None:
    """Raise if a name is another than one that it is like."""
    if type(other) is not type(name) or other != name:
        fault(where, f"one way to write a {kind} (write both alike if they are one {kind}, and if "
              "they are two with names that nobody takes for one)",
              f"{name!a} and {other!a}")  # fmt: skip


def likeness(name: Any) -> Any:
    """Return what two names share that a reader may take for one."""
    if not isinstance(name, str):
        number = decimal_of(name)
        return name if number is None else number
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
    if not name.isprintable():
        name = "".join(mark for mark in name if mark.isprintable() or mark.isspace())
    number = decimal_of(name)
    return " ".join(name.split()) if number is None else number


def is_name(name: str) -> bool:
    """Return whether a name is one line of whole characters."""
    good = 0 < len(name) <= MOST_NAME and name == name.strip() and len(name.splitlines()) == 1
    return good and not any("\ud800" <= mark <= "\udfff" for mark in name)


MOST_PARTS = 256
"""Parts of the vector in one log: each is judged by itself."""


class PartNames:
    """The parts of the vector in a log so far, by what a reader may take for one.

    Who passes off one part as two has its sums judged apart, which hides what they leak.
    """

    def __init__(self) -> None:
        self._known: dict[Any, str] = {}
        self._fresh: Any = None

    def check(self, part: str | None, where: str) -> str | None:
        """Return a part that is new; raise for one that may be another, or one too many."""
        if part is None:
            return None
        if not (isinstance(part, str) and is_name(part)):
            fault(where, f"a name in one line, of at most {MOST_NAME} characters, as the part of "
                  "the vector (nothing for whole updates)", ascii(part)[:80])  # fmt: skip
        other = self._known.get(likeness(part))
        if other is not None:
            check_alike(part, other, "part", where)
            return None
        if len(self._known) == MOST_PARTS:
            fault(where, f"sums of at most {MOST_PARTS} parts of the vector (coordinates that the "
                  "same clients train are one part)", f"{ascii(part)[:80]}, one more")  # fmt: skip
        return part

    def add(self, fresh: str | None) -> None:
        """Keep a part that is new, if one is."""
        self._fresh = None if fresh is None else likeness(fresh)
        if fresh is not None:
            self._known[self._fresh] = fresh

    def forget(self) -> None:
        """Take back the last that was kept, if it was new."""
        self._known.pop(self._fresh, None)
