"""Checks of numbers that users give: each returns Python's own number, or raises naming it.

The value comes first, then the argument's name, then the rule in words. Lists and arrays have
their checks in `arrays`; here nothing needs NumPy, so that configurations are checked without.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Iterable
from typing import Any

from mrsa_watch._base.errors import nearest, require

KNOWN = "must be known, not traced: call this outside `jit`, `vmap` and `shard_map`"
"""What is said of an argument that must not be traced."""
POSITIVE = math.ulp(0.0)
"""The smallest float above 0: the `minimum` of what must be positive."""


def is_integer(value: Any) -> bool:
    """Return whether a value is one integer, Python's or NumPy's; a bool is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is one real number, an array of shape () included; a bool is none."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind is not None:
        return kind in ("f", "i", "u") and getattr(value, "ndim", 0) == 0
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_integer(
    value: Any, argument: str, minimum: int, maximum: int | None = None, *, rule: str | None = None
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
        mrsa_jax.ConfigurationError: `num_classes` must be an integer of at least 2; got 3.0
    """
    if rule is None:
        own = f"an integer of at least {minimum}"
        rule = "must be a positive integer" if minimum == 1 else f"must be {own}"
    within = is_integer(value) and minimum <= value and (maximum is None or value <= maximum)
    require(bool(within), argument, rule, value)
    return int(value)


def check_size(value: Any, argument: str) -> int:
    """Return a positive integer that 32 bits hold, such as a number of clients or rounds."""
    size = check_integer(value, argument, 1)
    require(size < 2**31, argument, "must be below 2**31", value)
    return size


def check_known(value: Any, argument: str, known: Iterable[str], kind: str) -> str:
    """Return one of some names, or raise naming the nearest.

    Examples:
        >>> check_known("mena", "statistic", ("mean", "median"), "a known statistic")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `statistic` must be a known statistic: did you mean ...
    """
    names = tuple(known)
    rule = f"must be {kind}: {nearest(str(value), names)}"
    require(isinstance(value, str) and value in names, argument, rule, value)
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
        kind: What is said of a value that is no number; `rule` if None.

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
    return check_number(value, argument, "must lie in [0, 1]", 0.0, 1.0, kind="must be a number")


def check_blind(depends_on_data: Any, argument: str, *received: Any) -> None:
    """Raise unless a scheme says that it does not look at data: else no epsilon describes it.

    The epsilons of sums with noise take who is in them for given. Where clients' data decide
    that, who takes part tells of the data by itself, without any noise.

    Args:
        depends_on_data: What the scheme says; anything but a bool says nothing.
        argument: Its name.
        received: The scheme as it was written.

    Examples:
        >>> check_blind(False, "scheme", "uniform")
        >>> check_blind(True, "scheme", "power_of_choice:12")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `scheme` must not look at what clients have learnt...
    """
    said = isinstance(depends_on_data, bool)
    rule = (
        "must say whether it looks at what clients have learnt, or else noise in the sums has no "
        "epsilon: put `depends_on_data: typing.ClassVar[bool] = False`, or True, into its class"
    )
    require(said, argument, rule, *received)
    rule = (
        "must not look at what clients have learnt: then who takes part depends on their data, and "
        "no epsilon of noise in the sums holds"
    )
    require(not depends_on_data, argument, rule, *received)
