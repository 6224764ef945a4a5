"""Certified weak privacy on every trap family, against exhaustive search in exact integers."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import row_space_oracle as oracle
from weak_families import FAMILIES

from mrsa_jax.privacy import weak_privacy


def as_array(matrix):
    """Return an array that holds the integers exactly, whatever their size."""
    return np.array(matrix, dtype=object)


def check(matrix):
    """Hold every field of the engine's answer against the oracle's."""
    found = weak_privacy(as_array(matrix))
    expected = oracle.weak_privacy(matrix)
    assert (found.lower, found.upper) == (expected, expected), matrix
    assert found.rank == oracle.rank(matrix)
    assert found.strong == oracle.strong_privacy(matrix)
    assert found.num_groups == len(oracle.classes(matrix))
    assert found.exposed == oracle.exposed(matrix), matrix
    assert found.certified, matrix
    if expected is None:
        assert found.support == ()
        assert not any(found.witness)
        return found
    assert all(type(z) is int for z in found.witness)
    assert len(found.witness) == len(matrix)
    sums = oracle.combination(found.witness, matrix)
    assert tuple(j for j, value in enumerate(sums) if value) == found.support, matrix
    assert len(found.support) == expected
    return found


@functools.cache
def cases(name):
    return FAMILIES[name]()


@pytest.mark.smoke("by_hand")
@pytest.mark.long("circulants")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_case_is_certified_exactly(name):
    for matrix, known in cases(name):
        found = check(matrix)
        assert known is None or found.upper == known


def test_all_the_integer_types_of_one_history_agree():
    from weak_families import FANO

    for part in (FANO[:4], FANO[:6], FANO):
        expected = oracle.weak_privacy(part)
        for dtype in (bool, np.int8, np.uint32, np.int64, np.uint64, float):
            assert weak_privacy(np.array(part, dtype)).upper == expected
        assert weak_privacy(part).upper == expected
        assert weak_privacy([[3 * v for v in row] for row in part]).upper == expected
