"""Exceptions of the package, and the checks that raise them for a user's mistake.

Misuse raises before any work; a failed protocol round is data (`Status`), never an
exception. Every message has the form "`argument` rule; got value". A check of a number
takes the value first, then the argument's name, then the rule in words, and returns
Python's own number. Lists and arrays have their checks in `arrays`; here nothing needs
NumPy, so that configurations are checked without.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import math
import numbers
import os
import pathlib
import sys
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
    """An argument or a setting breaks a rule; the message names both and the value."""


class _FileError(MrsaError, OSError):
    def __str__(self) -> str:
        """Return the message, before which a plain `OSError` prints a number."""
        return str(self.args[0]) if self.args else ""


class DataNotFoundError(_FileError, FileNotFoundError):
    """A data set is not where it was looked for; the message says how to get it."""


class OutputExistsError(_FileError, FileExistsError):
    """An output directory holds something that this run would have to replace."""


class StoreError(_FileError):
    """A result could not be written: a full disk, a folder without permission."""


@contextlib.contextmanager
def writing(
    path: str | os.PathLike[str], argument: str = "out", more: str = ""
) -> Iterator[None]:
    """Raise a failure to write as an error that names the argument, and the reason.

    Args:
        path: What is written, or is written into.
        argument: Name of the argument that chose it.
        more: Text to add, such as "; what is complete is kept".

    Raises:
        StoreError: Instead of an `OSError` of a file in or next to `path`, or without a
            file. One of another file is raised unchanged, unless a disk is full or
            read-only.

    Examples:
        >>> try:
        ...     with writing("x.csv", "recipe_file"):
        ...         raise OSError(errno.ENOSPC, "No space left on device")
        ... except StoreError as error:
        ...     print(error)
        `recipe_file` must have room to be written; got 'x.csv': no space is left
        on its disk
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
            f"`{argument}` must have room to be written; got {os.fspath(path)!r}: "
            f"{why}{more}"
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
        raise ConfigurationError(
            f"`{argument}` {rule}" + (f"; got {got}" if values else "")
        )


def require_methods(value: Any, argument: str, *names: str) -> None:
    """Raise `ConfigurationError` unless a value has methods of these names.

    Examples:
        >>> require_methods(5, "aggregator", "init", "aggregate")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `aggregator` must have methods init,
        aggregate; got 5
    """
    # mappings and sets have a method `update`, of another meaning
    has_all = all(callable(getattr(value, name, None)) for name in names)
    is_fine = has_all and not isinstance(value, dict | set)
    require(is_fine, argument, f"must have methods {', '.join(names)}", value)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the closest of `known` and a list, all but those of many.

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
    """Return a value as a message shows it: as in Python, cut where it is long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # too deep, or an integer of too many digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 120 else text[:117] + "..."


KNOWN = "must be known, not traced: call this outside `jit`, `vmap` and `shard_map`"
"""Rule in messages about an argument that must not be traced."""
POSITIVE = math.ulp(0.0)
"""The smallest float above 0: the `minimum` of what must be positive."""


def is_integer(value: Any) -> bool:
    """Return whether a value is one integer, Python's or NumPy's; a bool is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is one real number and no bool; shape () counts."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind is not None:
        return kind in ("f", "i", "u") and getattr(value, "ndim", 0) == 0
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_integer(
    value: Any,
    argument: str,
    minimum: int,
    maximum: int | None = None,
    *,
    rule: str | None = None,
) -> int:
    """Return `value` as a Python int after checking its kind and range.

    Args:
        value: Anything; bools, fractions and strings are rejected.
        argument: Name used in the message.
        minimum: Smallest legal value.
        maximum: Largest legal value, if there is one.
        rule: The range in words, where the bare numbers would be hard to read.

    Returns:
        The integer.

    Raises:
        ConfigurationError: If `value` is no integer or out of range.
    """
    require(is_integer(value), argument, "must be an integer", value)
    if rule is None:
        to = f"lie in [{minimum}, {maximum}]"
        rule = f"must be at least {minimum}" if maximum is None else f"must {to}"
    return check_count(value, argument, rule, minimum, maximum)


def check_count(
    value: Any,
    argument: str,
    rule: str | None = None,
    minimum: int = 1,
    maximum: int | None = None,
) -> int:
    """Return `value` as a Python int; one sentence says its kind and its range.

    Examples:
        >>> check_count(3.0, "num_classes", minimum=2)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `num_classes` must be an integer of at
        least 2; got 3.0
    """
    if rule is None:
        rule = "must be a positive integer"
        if minimum != 1:
            rule = f"must be an integer of at least {minimum}"
    most = value if maximum is None else maximum
    within = is_integer(value) and minimum <= value <= most
    require(bool(within), argument, rule, value)
    return int(value)


def check_size(value: Any, argument: str) -> int:
    """Return a positive integer that fits 32 bits, such as a number of clients."""
    size = check_integer(value, argument, 1)
    require(size < 2**31, argument, "must be below 2**31", value)
    return size


def check_known(value: Any, argument: str, known: Iterable[str], kind: str) -> str:
    """Return one of some names, or raise naming the nearest.

    Examples:
        >>> check_known("mena", "statistic", ("mean", "median"), "a known statistic")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `statistic` must be a known statistic:
        did you mean ...
    """
    names = tuple(known)
    # to look for the nearest takes longer
    if not (isinstance(value, str) and value in names):
        require(False, argument, f"must be {kind}: {nearest(str(value), names)}", value)
    return str(value)


def check_number(
    value: Any,
    argument: str,
    rule: str = "must be a finite number",
    minimum: float = -sys.float_info.max,
    maximum: float = sys.float_info.max,
    *,
    kind: str | None = None,
) -> float:
    """Return one real number as a Python float after checking its kind and range.

    Args:
        value: Anything; bools, strings, NaN and arrays with axes are rejected.
        argument: Name used in the message.
        rule: The range in words.
        minimum: Smallest legal value.
        maximum: Largest legal value.
        kind: Rule in the message about a value that is not a number; `rule` if None.

    Returns:
        The number.

    Raises:
        ConfigurationError: If `value` is no number, out of range, or traced.
    """
    require(is_number(value), argument, kind or rule, value)
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    except TypeError:  # of a tracer
        require(False, argument, KNOWN, value)
        raise
    require(minimum <= number <= maximum, argument, rule, value)
    return number


def check_finite(value: Any, argument: str) -> float:
    """Return one finite number; two sentences say its kind and its range."""
    return check_number(value, argument, "must be finite", kind="must be a number")


def check_chance(value: Any, argument: str) -> float:
    """Return a chance as a Python float.

    Examples:
        >>> check_chance(1, "p")
        1.0
    """
    return check_number(
        value, argument, "must lie in [0, 1]", 0.0, 1.0, kind="must be a number"
    )


def check_inside(value: Any, argument: str) -> float:
    """Return a number in (0, 1), such as delta, as a Python float."""
    below_one = math.nextafter(1.0, 0.0)
    return check_number(value, argument, "must lie in (0, 1)", POSITIVE, below_one)


def check_blind(depends_on_data: Any, argument: str, *received: Any) -> None:
    """Raise unless a scheme declares that it uses no data: else it has no epsilon.

    The epsilons of sums with noise assume that their members are public. If clients'
    data decide which clients take part, the participation itself reveals something
    about the data, without any noise.

    Args:
        depends_on_data: What the scheme declares; anything except a bool declares
            nothing.
        argument: Its name.
        received: The scheme as it was written.

    Examples:
        >>> check_blind(False, "scheme", "uniform")
        >>> check_blind(True, "scheme", "power_of_choice:12")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `scheme` must not look at what clients
        have learnt...
    """
    rule = (
        "must say whether it looks at what clients have learnt, or else noise in the "
        "sums has no epsilon: put `depends_on_data: typing.ClassVar[bool] = False`, or "
        "True, into its class"
    )
    require(isinstance(depends_on_data, bool), argument, rule, *received)
    rule = (
        "must not look at what clients have learnt: then who takes part depends on "
        "their data, and no epsilon of noise in the sums holds"
    )
    require(not depends_on_data, argument, rule, *received)


# A hint to install names the requirement, never this package: a requirement is
# installed in the same way with a wheel, with a clone, and if no registry has the
# package's name.

_TFDS = "tensorflow-datasets>=4.9.10 importlib_resources>=6"
EXTRAS = {
    "bench": "threadpoolctl>=3.5",
    "cuda12": "jax[cuda12]>=0.10.2,<0.13",
    "cuda13": "jax[cuda13]>=0.10.2,<0.13",
    "dask": "distributed>=2025.1",
    "dp-accounting": "dp-accounting>=0.6",
    "explore": "anywidget>=0.9 traitlets>=5",
    "export": "flatbuffers>=25.1",
    "flower": "flwr>=1.38,<1.43",
    "jax-privacy": "jax-privacy>=2.0",
    "nvflare": "nvflare>=2.9,<2.10",
    "parquet": "pyarrow>=20",
    "scikit-learn": "scikit-learn>=1.8",
    "signed": "cryptography>=45",
    "tfds": _TFDS,
    "tfds-prepare": f"tensorflow-cpu>=2.21 {_TFDS}",
}
"""The requirements of each extra, as `pyproject.toml` has them.

A test holds them equal.
"""


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra to the environment that runs.

    Args:
        extra: A name of `EXTRAS`.

    Examples:
        >>> how_to_install("dask")
        "pip install 'distributed>=2025.1'"
    """
    return " ".join(["pip install", *(f"'{each}'" for each in EXTRAS[extra].split())])


def needed(
    module: str, extra: str, rule: str, kind: type[MrsaError] = ConfigurationError
) -> Any:
    """Import a module that an extra brings.

    Args:
        module: Its full name.
        extra: A name of `EXTRAS`.
        rule: What is not possible without it; begins the message.
        kind: Of the error where it cannot be imported.

    Examples:
        >>> needed("nowhere", "dask", "`workers` must not be set if dask is missing")
        Traceback (most recent call last):
            ...
        mrsa_jax.ConfigurationError: `workers` must not be set if dask is missing (No
        module named 'nowhere'): pip install 'distributed>=2025.1'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise kind(f"{rule} ({error}): {how_to_install(extra)}") from error
