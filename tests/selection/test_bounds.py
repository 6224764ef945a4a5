"""Theorem 3 and Appendix C.

Published values, simulations, and enumeration of all families.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax.selection import (
    enumerate_family,
    family_size,
    family_size_bound,
    full_rank_bound,
)

# By another program: (N, K) -> eq. (32) with o(1) = 0
THEOREM_3 = {
    (20, 4): 0.369022,
    (40, 8): 0.989054659,
    (60, 6): 0.760490,
    (80, 8): 0.964239,
    (120, 12): 0.999224332,
    (120, 24): 0.99999999944,
    (240, 12): 0.997835,
}


@pytest.mark.parametrize("sizes", THEOREM_3, ids=str)
def test_theorem_3(sizes: tuple[int, int]) -> None:
    digits = len(str(THEOREM_3[sizes])) - 2
    assert full_rank_bound(*sizes) == pytest.approx(
        THEOREM_3[sizes], abs=0.51 * 10.0**-digits
    )


def test_probability_at_the_edges() -> None:
    assert full_rank_bound(2, 1) == 0.0  # the formula is negative
    assert full_rank_bound(1, 1) == 1.0
    assert full_rank_bound(50, 50) == 0.0  # all rows equal
    values = [full_rank_bound(n, n // 10) for n in (60, 80, 120, 200)]
    assert values == sorted(values)


@pytest.mark.parametrize(("n", "k"), [(40, 8), (60, 6)])
def test_probability_against_simulated_histories(n: int, k: int) -> None:
    """Full rank at least as often as (32) says, within the scatter of 400 draws."""
    draws = 400
    histories = mj.selection.rollout_trials(
        5, mj.selection.bernoulli(n, k / n), mj.availability.independent(0.0), n, draws
    )
    ranks = np.linalg.matrix_rank(np.asarray(histories, np.float64))
    bound = full_rank_bound(n, k)
    assert (ranks == n).sum() >= stats.binom.ppf(1e-6, draws, bound)
    assert (ranks == n).sum() <= stats.binom.isf(1e-6, draws, min(1.0, bound + 0.08))


# ---- Appendix C


def _group_sizes(total: int, least: int) -> list[tuple[int, ...]]:
    """Non-decreasing sizes >= least that sum to at most total."""
    found: list[tuple[int, ...]] = [()]

    def extend(sizes: tuple[int, ...], low: int, left: int) -> None:
        for size in range(low, left + 1):
            found.append((*sizes, size))
            extend((*sizes, size), size, left - size)

    extend((), least, total)
    return found


def _most_cohorts(n: int, k: int, t: int) -> int:
    """Most sets of groups that hold k clients, over all groupings into groups of t or more."""
    best = 0
    for sizes in _group_sizes(n, t):
        ways = Counter({0: 1})
        for size in sizes:
            for held, count in list(ways.items()):
                ways[held + size] += count
        best = max(best, ways[k])
    return best


def test_bound_by_enumeration_of_groupings() -> None:
    """Every N <= 14, K, T: never below the truth, and attained by batch partitioning."""
    attained = 0
    for n in range(1, 15):
        for k in range(1, n + 1):
            for t in range(1, k + 1):
                truth, bound = _most_cohorts(n, k, t), family_size_bound(n, k, t)
                assert truth <= bound
                if n % t == 0 and k % t == 0:
                    assert bound == truth == family_size(n, k, t)
                    attained += 1
    assert attained == sum(
        n % t == 0 and k % t == 0
        for n in range(1, 15)
        for k in range(1, n + 1)
        for t in range(1, k + 1)
    )


@pytest.mark.parametrize(
    ("n", "k", "t"), [(5, 3, 2), (5, 2, 2), (4, 2, 2), (5, 2, 1), (4, 2, 1)]
)
def test_bound_by_enumeration_of_families(n: int, k: int, t: int) -> None:
    """All families of cohorts of K: the largest whose strong privacy is T or more."""
    rows = [row for row in itertools.product((0, 1), repeat=n) if sum(row) == k]
    best = 0
    for chosen in itertools.product((False, True), repeat=len(rows)):
        family = list(itertools.compress(rows, chosen))
        if len(family) > best:
            columns = Counter(
                column for column in zip(*family, strict=True) if any(column)
            )
            best = len(family) if min(columns.values()) >= t else best
    assert best <= family_size_bound(n, k, t)
    if n % t == 0 and k % t == 0:
        assert best == family_size_bound(n, k, t)


def test_rows_may_use_different_numbers_of_groups() -> None:
    """Groups of 2, 2 and 4.

    A row of two groups and a row of one, which (29) does not count.
    """
    family = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]], bool)
    columns = Counter(map(tuple, family.T.tolist()))
    assert min(columns.values()) >= 2
    assert len(family) <= family_size_bound(8, 4, 2) == len(enumerate_family(8, 4, 2))


def test_bound_above_half() -> None:
    """K > N/2, where the paper's step (ii) does not apply."""
    assert family_size_bound(12, 9, 3) == math.comb(4, 3)
    assert family_size_bound(12, 12, 3) == 1
    assert family_size_bound(10**6, 10**3, 10) == math.comb(10**5, 100)
