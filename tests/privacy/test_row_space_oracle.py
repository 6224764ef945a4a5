"""The oracle itself.

Against the definition word for word, and answers known in closed form.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import row_space_oracle as oracle
import weak_families
from weak_families import FAMILIES


def small(limit=12):
    found = [
        matrix
        for family in FAMILIES.values()
        for matrix, _ in family()
        if len(matrix[0]) <= limit
    ]
    assert len(found) > 100
    return found


@pytest.mark.long
def test_collapsed_search_follows_the_definition():
    for matrix in small():
        assert oracle.weak_privacy(matrix) == oracle.plain_weak_privacy(matrix), matrix


@pytest.mark.smoke("graphs")
@pytest.mark.parametrize("name", FAMILIES)
def test_closed_forms(name):
    cases = FAMILIES[name]()
    known = [(matrix, t) for matrix, t in cases if t is not None]
    for matrix, t in known:
        assert oracle.weak_privacy(matrix) == t, matrix
    rank_zero = [matrix for matrix, _ in cases if not np.any(np.array(matrix, object))]
    assert all(oracle.weak_privacy(matrix) is None for matrix in rank_zero)


def test_there_are_enough_cases():
    assert sum(len(family()) for family in FAMILIES.values()) >= 300
    widths = [len(matrix[0]) for family in FAMILIES.values() for matrix, _ in family()]
    assert max(widths) <= 16


def test_rank_by_another_elimination():
    rng = random.Random(0)
    for _ in range(200):
        n, rounds = rng.randrange(1, 8), rng.randrange(1, 8)
        rows = [[rng.randrange(-2, 3) for _ in range(n)] for _ in range(rounds)]
        # tiny entries: safe in floats
        expected = np.linalg.matrix_rank(np.array(rows, float))
        assert oracle.rank(rows) == expected == n - len(oracle.kernel(rows, n))
        for vector in oracle.kernel(rows, n):
            assert any(vector)
            assert all(
                sum(a * b for a, b in zip(vector, row, strict=True)) == 0
                for row in rows
            )


def test_exposure_and_strong_privacy_of_known_cases():
    assert oracle.exposed([[1, 1, 0, 0], [0, 1, 0, 0]]) == (0, 1)
    assert oracle.exposed(weak_families.FANO) == tuple(range(7))
    assert oracle.exposed(weak_families.FANO[:6]) == ()
    assert oracle.strong_privacy([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]) == 1
    assert oracle.strong_privacy([[0, 0]]) is None


def test_unweighted_groups_of_known_cases():
    assert oracle.unweighted_group([[1, 1, 0], [0, 1, 1]]) == 2
    assert oracle.unweighted_group([[1, 2]]) is None
    assert oracle.unweighted_group([[1, -1, 0]], (-1, 0, 1)) == 2
    assert oracle.unweighted_group([[1, -1, 0]]) is None
    # twice client 0: a plain sum of one
    assert oracle.unweighted_group([[1, 1, 0], [1, 0, 1], [0, 1, 1]]) == 1
    # epoch minus epoch cancels all but two clients, with opposite signs
    rows = [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0]]
    assert oracle.unweighted_group(rows) == 3
    assert oracle.unweighted_group(rows, (-1, 0, 1)) == 2
