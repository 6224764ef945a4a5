"""Faults in logs, values as messages show them, and names of the vector's parts."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NoReturn

from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch.logs._identity import MOST_NAME, AlikeError, Names, is_name

_MOST_SHOWN = 200  # characters of what was found


def fault(where: str, expected: str, received: str) -> NoReturn:
    """Raise the error that names what is wrong in a file, and where."""
    if len(received) > _MOST_SHOWN:
        received = received[: _MOST_SHOWN - 3] + "..."
    raise ConfigurationError(f"{where}: expected {expected}; found {received}")


def text_of_cell(value: Any) -> str:
    """Return a value as text; whole floats as integers, nothing as an empty text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, Fraction):
        return str(value)
    return ascii(value if not isinstance(value, str) else value[:100])


def listing(texts: Sequence[str], more: str = "") -> str:
    """Return the first eight of some texts, and that there are more."""
    return ", ".join(texts[:8]) + (f", ...{more}" if len(texts) > 8 else "")


def examples(values: Sequence[object]) -> str:
    """Return the first of some values, in quotes."""
    first = [short(text_of_cell(value)) for value in values[:4]]
    return ", ".join(first + ["..."] * (len(values) > 4)) or "no values"


def short(text: str) -> str:
    """Return a text in quotes, of bounded length."""
    quoted = repr(text)
    return quoted if len(quoted) <= 60 else quoted[:56] + "...'"


def fault_alike(name: Any, other: Any, kind: str, where: str) -> NoReturn:
    """Raise the error for two names that may be one."""
    fault(
        where,
        f"one way to write a {kind} (write both alike if they are one {kind}, and if "
        "they are two with names that nobody takes for one)",
        f"{name!a} and {other!a}",
    )


MOST_PARTS = 256
"""Parts of the vector in one log: each is judged by itself."""


class PartNames:
    """The parts of the vector in a log so far.

    One part under two names has its sums judged apart, which hides what they reveal
    together.
    """

    def __init__(self) -> None:
        self._names = Names()
        self._fresh: dict[Any, str] = {}

    def check(self, part: str | None, where: str) -> str | None:
        """Return a new part; raise if it may be another, or is one too many."""
        if part is None:
            return None
        text = ascii(part)[:80]
        if not (isinstance(part, str) and is_name(part)):
            fault(
                where,
                f"a name in one line, of at most {MOST_NAME} characters, as the part "
                "of the vector (nothing for whole updates)",
                text,
            )
        try:
            new = self._names.new([part])
        except AlikeError as error:
            fault_alike(error.name, error.other, "part", where)
        if new and len(self._names) == MOST_PARTS:
            fault(
                where,
                f"sums of at most {MOST_PARTS} parts of the vector (coordinates that "
                "the same clients train are one part)",
                f"{text}, one more",
            )
        return part if new else None

    def add(self, fresh: str | None) -> None:
        """Keep a part that is new, if one is."""
        self._fresh = {} if fresh is None else self._names.new([fresh])
        self._names.add(self._fresh)

    def forget(self) -> None:
        """Take back the last that was kept, if it was new."""
        self._names.forget(self._fresh)
