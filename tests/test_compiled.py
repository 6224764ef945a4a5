"""Compiled loops: integers of two kinds never meet, where numba would make floats of them."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.errors import TypingError

from mrsa_jax._compiled import compiled

WIDE = np.uint64(2**63 + 1)


def _least(a, b):
    return a if a < b else b


def _product(a, b):
    return a * b


def _added(a, b):
    total = a
    total += b
    return total


def _smaller(a, b):
    return min(a, b)


def _either(a, b):
    if a:
        return a
    return b


def _chosen(a, b):
    found = a
    for _ in range(3):
        found = b
    return found + found


def _inner(a, b):
    return _within(a, b) + a


_within = compiled(_product)


def _pair(a, b):
    if a:
        return a, b
    return b, a


@pytest.mark.parametrize(
    "function", [_least, _product, _added, _smaller, _either, _chosen, _inner, _pair]
)
def test_signed_and_unsigned_never_meet(function) -> None:  # type: ignore[no-untyped-def]
    loop = compiled(function)
    for mixed in [(WIDE, 3), (3, WIDE), (WIDE, np.int32(3)), (WIDE, -1)]:
        with pytest.raises(TypingError, match="integers must be of one kind in a compiled loop"):
            loop(*mixed)
    expected = function.py_func if hasattr(function, "py_func") else function
    with np.errstate(over="ignore"):
        assert loop(WIDE, np.uint64(3)) == expected(WIDE, np.uint64(3))
    assert loop(5, -3) == expected(5, -3)


def _mean(values):
    return values.sum() / values.shape[0]


def _total(values):
    total = 0
    for value in values:
        total += value
    return total


def test_floats_that_are_meant_compile() -> None:
    assert compiled(_mean)(np.arange(5)) == 2.0
    assert compiled(_total)(np.asarray([0.5, 1.0])) == 1.5


def test_a_loop_of_residues_refuses_other_types() -> None:
    from mrsa_jax.live import _loops

    prime = 2**61 - 1
    inverse = pow(prime, -1, 2**64)
    whole = _loops.times(*(np.uint64(value) for value in (5, 7, prime, inverse)))
    assert whole == 35 * pow(2**64, -1, prime) % prime
    with pytest.raises(TypingError):
        _loops.times(np.uint64(5), 7, np.uint64(prime), np.uint64(inverse))
