"""Sizes in refusals are in the unit that they name."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from mrsa_jax._core.memory import bytes_in_words
from mrsa_watch.logs._table import _size

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
NUMBERS = [
    1,
    1000,
    *(2**power + more for power in range(10, 62, 3) for more in (-1, 0, 2**power // 3)),
]


@pytest.mark.parametrize("words_of", [_size, bytes_in_words])
def test_a_size_is_read_back(words_of) -> None:
    for number in NUMBERS:
        size, unit = re.fullmatch(r"([\d.e+,]+) (\w+)", words_of(number)).groups()
        found = Fraction(size.replace(",", "")) * UNITS[unit]
        assert abs(found / number - 1) < Fraction(1, 100), (number, size, unit)
    assert {words_of(number).split()[1] for number in NUMBERS} >= {"GiB"}
