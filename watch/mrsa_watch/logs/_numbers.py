"""Numbers of logs, exactly: as text, as JSON and as Python have them."""

from __future__ import annotations

import decimal
import math
import numbers
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from mrsa_watch._base.errors import is_integer

_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_RATIO = re.compile(r"\d+/[1-9]\d*", re.ASCII)
_MOST_DIGITS = 300  # of a number; what is longer is a name
# of what makes a row of weights integral: what certificates hold
_MOST_SCALE_BITS = 4300
SCALE_RULE = f"must have a common denominator below 2**{_MOST_SCALE_BITS} in each row"
_BOOLEANS = {"true": Fraction(1), "false": Fraction(0)}


def parse_decimal(text: str) -> Fraction | None:
    """Return the decimal number that a text stands for, exactly, or None."""
    text = text.strip()
    is_number = len(text) <= _MOST_DIGITS and _DECIMAL.fullmatch(text)
    return Fraction(text) if is_number else None


def parse_number(text: str) -> Fraction | None:
    """Return the number that a text stands for, or None; fractions and truths count."""
    text = text.strip()
    if len(text) <= _MOST_DIGITS and _RATIO.fullmatch(text):
        return Fraction(text)
    truth = _BOOLEANS.get(text.lower())
    return parse_decimal(text) if truth is None else truth


def is_grouped(texts: Iterable[str], mark: str) -> bool:
    """Return whether a mark may group thousands, in all numbers that have it.

    Examples:
        >>> is_grouped(["1.500", "900"], "."), is_grouped(["1.500", "0.25"], ".")
        (True, False)
    """
    having = [text for text in texts if mark in text]
    form = re.compile(rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(mark)}\d{{3}})+", re.ASCII)
    return bool(having) and all(form.fullmatch(text.strip()) for text in having)


_GAPS = re.compile(r"(?<=\d)[ '’\u00a0\u202f](?=\d{3}(?!\d))")


def decimal_number(text: str, decimal: str) -> Fraction | None:
    """Return the number of a text whose decimal mark is a "point" or a "comma".

    The other mark, spaces and apostrophes may group thousands. Of "ask", as
    `parse_number`.

    Examples:
        >>> decimal_number("1.500,25", "comma"), decimal_number("1.500", "point")
        (Fraction(6001, 4), Fraction(3, 2))
    """
    if decimal not in ("point", "comma"):
        return parse_number(text)
    mark, group = (".", ",") if decimal == "point" else (",", ".")
    whole, point, rest = _GAPS.sub("", text.strip()).partition(mark)
    if group in whole and not is_grouped([whole], group):
        return None
    return parse_number(whole.replace(group, "") + "." * len(point) + rest)


def convention_of(texts: Sequence[str], *, has_points: bool) -> str | None:
    """Return the likely decimal mark of ambiguous numbers; None for others.

    Args:
        texts: Numbers as they are written.
        has_points: Whether a point is the decimal mark for certain, as in JSON.
    """
    numbers_ = [_GAPS.sub("", text.strip()) for text in texts]
    with_comma = [text for text in numbers_ if "," in text]
    if with_comma:
        for decimal in ("point", "comma") if has_points else ("comma", "point"):
            if all(decimal_number(text, decimal) is not None for text in with_comma):
                return decimal
        return None  # no numbers at all
    if not has_points and is_grouped(numbers_, "."):
        return "comma"
    return "point" if any(_GAPS.search(text.strip()) for text in texts) else None


def common_denominator(weights: Iterable[Fraction]) -> int | None:
    """Return a common denominator; None if it is so large that it stops readers.

    Of a thousand weights of 300 digits it would have 300,000, and so would each of
    them.
    """
    scale = 1
    for weight in weights:
        scale = math.lcm(scale, weight.denominator)
        if scale.bit_length() > _MOST_SCALE_BITS:
            return None
    return scale


def exact_weight(value: Any) -> Fraction | None:
    """Return a weight written exactly: an integer, a fraction or text like "3/7".

    None of all else: of floats, which rarely are what was meant, and of what is not
    positive.

    Examples:
        >>> exact_weight("3/7"), exact_weight(2), exact_weight(0.5), exact_weight("-1")
        (Fraction(3, 7), Fraction(2, 1), None, None)
    """
    number = None
    if isinstance(value, str):
        number = parse_number(value) if value[:1].isdigit() else None
    elif is_integer(value) or isinstance(value, Fraction):
        number = exact_value(value)
    return number if number is not None and number > 0 else None


def exact_value(value: Any) -> Fraction | None:
    """Return the exact value of a Python or NumPy number.

    A float's or decimal's binary or decimal.
    None of what is no finite number, and of bools.

    Examples:
        >>> [exact_value(value) for value in (0.5, -3, True, float("nan"))]
        [Fraction(1, 2), Fraction(-3, 1), None, None]
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real | decimal.Decimal):
        return None
    number: Any = value
    try:
        above, below = (number, 1) if is_integer(value) else number.as_integer_ratio()
    except (ValueError, OverflowError):  # NaN and infinity
        return None
    return Fraction(int(above), int(below))  # NumPy's integers would overflow later
