"""Rational rows as integer rows, exactly.

A server that learns weighted sums (FedAvg by sample counts, updates discounted by
staleness) has a history P of weights. Scaling a row leaves the row space alone, and
with it every question of Multi-RoundSecAgg's privacy, so each row may be multiplied
until it is integral.
"""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_watch._base.errors import require
from mrsa_watch._base.tables import require_array
from mrsa_watch.logs._numbers import SCALE_RULE, common_denominator

_RULE = "must hold finite real numbers"
_INT64 = 2**63 - 1


def integer_rows(
    weights: Any, argument: str, *, primitive: bool = True
) -> tuple[np.ndarray, tuple[Fraction, ...]]:
    """Return integer rows and the positive factor by which each row was multiplied.

    Args:
        weights: As for `integer_weights`.
        argument: Name used in messages.
        primitive: Whether to take common factors out of integer rows too.

    Returns:
        Row j as an integer row, factor j times row j of `weights`; and the factors.
    """
    array = _as_numbers(weights, argument)
    if array.dtype.kind in "biu":
        return _integral_rows(array, primitive)
    values, codes = _distinct(array, argument)
    rows = []
    factors = []
    for row in codes:
        used, places = np.unique(row, return_inverse=True)
        fractions = [values[code] for code in used]
        scale = common_denominator(fractions) or 0
        require(scale > 0, argument, SCALE_RULE)
        whole = [int(value * scale) for value in fractions]
        # 0 in a row of zeros
        common = (math.gcd(*whole) if primitive else 1) or 1
        factors.append(Fraction(scale, common))
        integers = [value // common for value in whole]
        rows.append(np.array(integers, dtype=object)[places])
    return fit_integers(np.stack(rows)), tuple(factors)


def fit_integers(array: np.ndarray) -> np.ndarray:
    """Return an array of Python integers as int64 if all of them fit, else as it is."""
    largest = max((abs(value) for value in array.flat), default=0)
    return array.astype(np.int64) if largest <= _INT64 else array


def _integral_rows(
    array: np.ndarray, primitive: bool
) -> tuple[np.ndarray, tuple[Fraction, ...]]:
    small = array.dtype.kind == "b" or (
        int(array.min()) >= -_INT64 and int(array.max()) <= _INT64
    )
    array = array.astype(np.int64 if small else object)
    if not primitive:
        return array, (Fraction(1),) * len(array)
    common = np.maximum(np.gcd.reduce(array, axis=1), 1)
    divided = array // common[:, None]
    factors = tuple(Fraction(1, int(value)) for value in common)
    return (divided if small else fit_integers(divided)), factors


def _as_numbers(weights: Any, argument: str) -> np.ndarray:
    """Return a matrix of bools, integers, floats or (object) rational numbers."""
    require_array(weights, argument)
    try:
        array = np.asarray(weights)
    except ValueError:
        array = np.empty(0)
    rule = "must have two axes, rounds and clients"
    require(array.ndim == 2, argument, rule, array.shape)
    require(array.size > 0, argument, "must not be empty", array.shape)
    if array.dtype.kind == "V" and array.dtype.type is not np.void:
        array = array.astype(np.float64)  # bfloat16 and its like
    require(array.dtype.kind in "biufO", argument, _RULE, array.dtype)
    return array


def _distinct(array: np.ndarray, argument: str) -> tuple[list[Fraction], np.ndarray]:
    """Return the different values as fractions, and each entry's place among them."""
    if array.dtype.kind == "f":
        finite = np.isfinite(array)
        require(bool(finite.all()), argument, _RULE, *array[~finite][:1].tolist())
        floats, codes = np.unique(array, return_inverse=True)
        values = [Fraction(*value.as_integer_ratio()) for value in floats]
        return values, codes.reshape(array.shape)
    places: dict[Fraction, int] = {}
    fractions = (_fraction(value, argument) for value in array.flat)
    numbers_ = (places.setdefault(value, len(places)) for value in fractions)
    codes = np.fromiter(numbers_, np.int64, array.size)
    return list(places), codes.reshape(array.shape)


def _fraction(value: Any, argument: str) -> Fraction:
    """Return the fraction that any real number is."""
    is_real = isinstance(value, numbers.Real | np.bool_)
    require(is_real or hasattr(value, "as_integer_ratio"), argument, _RULE, value)
    if isinstance(value, np.bool_ | np.integer):
        return Fraction(int(value))
    try:
        return Fraction(*value.as_integer_ratio())
    except (ValueError, OverflowError):  # NaN and infinity
        require(False, argument, _RULE, value)
        raise
