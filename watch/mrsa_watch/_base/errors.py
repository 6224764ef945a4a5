"""Exceptions of the package and the one helper that raises them for a user's mistake.

Misuse raises before any work; a failed protocol round is data (`Status`), never an exception.
Every message has the form "`argument` rule; got value".
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

_MOST_LISTED = 30
_NOT_WRITTEN = {
    errno.ENOSPC: "no space is left on its disk",
    errno.EDQUOT: "its quota is used up",
    errno.EROFS: "it is read-only",
    errno.EFBIG: "a file is larger than is allowed",
}


class MrsaError(Exception):
    """Base of every exception that this package raises on purpose."""


class ConfigurationError(MrsaError, ValueError):
    """An argument or a setting breaks a rule; the message names argument, rule and value."""


class _FileError(MrsaError, OSError):
    def __str__(self) -> str:
        """Return the message (an `OSError` of other arguments prints a number before it)."""
        return str(self.args[0]) if self.args else ""


class DataNotFoundError(_FileError, FileNotFoundError):
    """A data set is not where it was looked for; the message says where and how to get it."""


class OutputExistsError(_FileError, FileExistsError):
    """An output directory holds something that this run would have to replace."""


class StoreError(_FileError):
    """A result could not be written: a full disk, a folder without permission."""


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], argument: str = "out", more: str = "") -> Iterator[None]:
    """Say of a failure to write which argument it is of, and why.

    Args:
        path: What is written, or is written into.
        argument: Name of the argument that chose it.
        more: What else is to be said, such as "; what is complete is kept".

    Raises:
        StoreError: In place of an `OSError` of a file in or beside `path`, or of none that is
            named. One of another file is left as it is, but where a disk is full or read-only.

    Examples:
        >>> try:
        ...     with writing("x.csv", "recipe_file"):
        ...         raise OSError(errno.ENOSPC, "No space left on device")
        ... except StoreError as error:
        ...     print(error)
        `recipe_file` must have room to be written; got 'x.csv': no space is left on its disk
    """
    try:
        yield
    except MrsaError:
        raise
    except OSError as error:
        beside = pathlib.Path(path).absolute().parent
        named = error.filename if isinstance(error.filename, str) else path
        is_other = beside not in pathlib.Path(named).absolute().parents
        if is_other and error.errno not in _NOT_WRITTEN:
            raise
        why = _NOT_WRITTEN.get(error.errno or 0, str(error))
        raise StoreError(
            f"`{argument}` must have room to be written; got {os.fspath(path)!r}: {why}{more}"
        ) from error


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
        mrsa_jax.ConfigurationError: `cohort_size` must be at most `N`; got 5 and 4
    """
    if not condition:
        got = " and ".join(shortened(value) for value in values)
        raise ConfigurationError(f"`{argument}` {rule}" + (f"; got {got}" if values else ""))


def require_methods(value: Any, argument: str, *names: str) -> None:
    """Raise `ConfigurationError` unless a value has methods of these names.

    Examples:
        >>> require_methods(5, "aggregator", "init", "aggregate")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `aggregator` must have methods init, aggregate; got 5
    """
    # mappings and sets have a method `update`, of another meaning
    has_all = all(callable(getattr(value, name, None)) for name in names)
    is_one = has_all and not isinstance(value, dict | set)
    require(is_one, argument, f"must have methods {', '.join(names)}", value)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the closest of `known` and lists them, all but those of many.

    Examples:
        >>> nearest("unifrom", ["uniform", "weighted"])
        "did you mean 'uniform'? (known: uniform, weighted)"
    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    listing = f"known: {', '.join(known[:_MOST_LISTED])}"
    if len(known) > _MOST_LISTED:
        listing += f" and {len(known) - _MOST_LISTED} more"
    return f"did you mean '{close[0]}'? ({listing})" if close else listing


def shortened(value: Any) -> str:
    """Return a value as a message shows it: what Python writes of it, cut where it is long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # too deep, or an integer of too many digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 120 else text[:117] + "..."
