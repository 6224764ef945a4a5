"""Exceptions of the package and the one helper that raises them for a user's mistake.

Misuse raises before any work; a failed protocol round is data (`Status`), never an exception.
Every message has the form "`argument` rule; got value".
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "ConfigurationError",
    "DataNotFoundError",
    "MrsaError",
    "OutputExistsError",
    "nearest",
    "require",
]


class MrsaError(Exception):
    """Base of every exception that this package raises on purpose."""


class ConfigurationError(MrsaError, ValueError):
    """An argument or a setting breaks a rule; the message names argument, rule and value."""


class DataNotFoundError(MrsaError, FileNotFoundError):
    """A data set is not where it was looked for; the message says where and how to get it."""

    def __str__(self) -> str:
        """Return the message (an `OSError` with one argument prints as it is)."""
        return str(self.args[0]) if self.args else ""


class OutputExistsError(MrsaError, FileExistsError):
    """An output directory holds something that this run would have to replace."""

    def __str__(self) -> str:
        """Return the message."""
        return str(self.args[0]) if self.args else ""


def require(condition: bool, argument: str, rule: str, *values: Any) -> None:
    """Raise `ConfigurationError` unless `condition` holds.

    Args:
        condition: A Python truth value (never a tracer).
        argument: Name of the offending argument, as the user wrote it.
        rule: What it must be, starting with "must".
        *values: What was received; several are joined by "and".

    Raises:
        ConfigurationError: If `condition` is false.

    Examples:
        >>> require(5 <= 4, "cohort_size", "must be at most `N`", 5, 4)
        Traceback (most recent call last):
        ...
        mrsa_jax._errors.ConfigurationError: `cohort_size` must be at most `N`; got 5 and 4
    """
    if not condition:
        got = " and ".join(_shorten(value) for value in values)
        raise ConfigurationError(f"`{argument}` {rule}" + (f"; got {got}" if values else ""))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the closest of `known` and lists them all.

    Examples:
        >>> nearest("unifrom", ["uniform", "weighted"])
        "did you mean 'uniform'? (known: uniform, weighted)"
    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    listing = f"known: {', '.join(known)}"
    return f"did you mean '{close[0]}'? ({listing})" if close else listing


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
