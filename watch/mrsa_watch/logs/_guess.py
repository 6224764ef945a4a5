"""Columns that nobody used: those that wait for the user's word, and a guess at it.

Merged sums always look safer than they are, so that a column is passed over only where
it cannot tell sums, rows or weights apart: where it is constant in each sum, or holds
what is known to vary freely (times, hosts, metrics, other names of the clients, numbers
of rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mrsa_watch.logs import _words
from mrsa_watch.logs._long import is_constant, joined
from mrsa_watch.logs._names import text_of_cell
from mrsa_watch.logs._numbers import decimal_number
from mrsa_watch.logs._table import Column, renamed

_PARTS_OF_ONE = 1e-6  # from 1, of weights that are normalised


class Guess(NamedTuple):
    """The probable meaning of a column.

    Attributes:
        flag: By which it is used: where, sum_columns, weight_column or ignore_columns.
        texts: Of a condition on it.
        is_not: Whether the condition leaves these texts out.
    """

    flag: str
    texts: tuple[str, ...] = ()
    is_not: bool = False


class Rows(NamedTuple):
    """The rows that are kept: their sums, if distinguished, and their clients."""

    sums: np.ndarray
    clients: np.ndarray


def guess(plain: str, column: Column | None, rows: Rows) -> Guess | None:
    """Return a meaning of a column that is not used; None if it may be passed over."""
    if column is None:  # nested values
        return Guess("ignore_columns")
    if _words.NUMBER_OF_ROW.fullmatch(plain) and _ascends(column):
        return None
    column = renamed(column, list(map(text_of_cell, column.names)))
    if is_constant(column.codes, rows.sums):
        return _of_sums(plain, column)
    strange = _words.strange_texts(plain, column.names)
    if strange is not None:
        if _words.measures(plain) and _comes_in_groups(column.codes, rows.sums):
            return Guess("sum_columns")
        marked = np.isin(column.codes, [column.names.index(text) for text in strange])
        if is_constant(marked, rows.sums):
            return None
        return Guess("where", tuple(strange), is_not=True)
    if _words.says_alias(plain) and _is_alias(column.codes, rows.clients):
        return None
    return _of_rows(plain, column, rows)


def _of_sums(plain: str, column: Column) -> Guess | None:
    """Return the guess at a column constant per sum: some may not have been made."""
    texts = column.names
    good = _words.good_texts(plain, texts)
    if good is not None and _is_flag_of_what_else(plain, texts):
        return Guess("ignore_columns")  # a sum too many never makes others look safer
    if good is not None and (_words.values_say(texts) or _words.says(plain)):
        return Guess("where", tuple(good))
    is_denied = bool(texts) and all(map(_words.denies, texts))
    return Guess("ignore_columns") if is_denied else None


def _is_flag_of_what_else(plain: str, texts: Sequence[str]) -> bool:
    """Return whether values are yes and no, and the name does not say to what."""
    is_said = _words.says(plain) or _words.LOSS.search(plain)
    return _words.are_yes_and_no(texts) and not is_said


def _of_rows(plain: str, column: Column, rows: Rows) -> Guess:
    """Return the guess at a column that varies within a sum."""
    if _words.NEITHER.search(plain):
        return Guess("ignore_columns")
    numbers = [_number(text) for text in column.names]
    values = np.array([np.nan if value is None else value for value in numbers])
    are_weights = bool((values >= 0).all())
    nothing = tuple(filter(_words.is_nothing, column.names))
    # nothing but missing values is no number, and none is negative
    may_weigh = np.nanmin(values, initial=0) >= 0 and np.isnan(values).sum() == len(
        nothing
    )
    if _words.WEIGHT.search(plain) and may_weigh and len(nothing) < len(values):
        return Guess("weight_column", nothing, is_not=True)
    is_fraction = any(value is not None and not value.is_integer() for value in numbers)
    if are_weights and is_fraction and _are_normalised(values[column.codes], rows):
        return Guess("weight_column")
    says_sum = _words.SUM.search(plain) and not _words.says(plain)
    good = None
    if not (says_sum and are_weights):
        good = _words.good_texts(plain, column.names)
    if good is not None and _is_flag_of_what_else(plain, column.names):
        return Guess("sum_columns")  # from which all sums follow that may be meant
    if good is not None:
        return Guess("where", tuple(good))
    split = joined([rows.sums, column.codes])
    repeats = len(np.unique(split)) < len(split)
    is_each_alone = len(column.names) == len(column.codes)
    if (repeats or says_sum) and not is_each_alone and not is_fraction:
        return Guess("sum_columns")
    return Guess("ignore_columns")


def _number(text: str) -> float | None:
    """Return a number, by one of the two conventions for its decimal mark."""
    value = _words.parse_float(text)
    if value is not None or not any(map(str.isdigit, text)):
        return value
    for decimal in ("point", "comma"):
        exact = decimal_number(text, decimal)
        if exact is not None:
            return float(exact)
    return None


def _are_normalised(values: np.ndarray, rows: Rows) -> bool:
    """Return whether the values of each sum add up to 1."""
    totals = np.bincount(np.unique(rows.sums, return_inverse=True)[1], values)
    return bool((np.abs(totals - 1) < _PARTS_OF_ONE).all())


def _comes_in_groups(codes: np.ndarray, sums: np.ndarray) -> bool:
    """Return whether values in larger sums are of two rows or more, as times are."""
    _, first, counts = np.unique(
        joined([sums, codes]), return_index=True, return_counts=True
    )
    of_sum = np.unique(sums, return_inverse=True)[1][first]
    several = np.bincount(of_sum) > 1
    alone = np.zeros(len(several), np.bool_)
    alone[of_sum[counts == 1]] = True
    return bool((several & ~alone).any())


def _is_alias(codes: np.ndarray, clients: np.ndarray) -> bool:
    """Return whether two columns name the same things."""
    # as many pairs as names on either side: each name has one partner
    both = joined([codes, clients])
    return len({len(np.unique(each)) for each in (codes, clients, both)}) == 1


def _ascends(column: Column) -> bool:
    """Return whether a column holds integers that ascend from row to row."""
    numbers = [_words.parse_float(text_of_cell(name)) for name in column.names]
    if not numbers or any(value is None or not value.is_integer() for value in numbers):
        return False
    values = np.array(numbers, float)[column.codes]
    return bool((np.diff(values) > 0).all())
