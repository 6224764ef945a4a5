"""Lines: what may be summed, whom it hides, how often it can be, against enumeration."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from fractions import Fraction
from math import comb
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.availability import independent
from mrsa_jax.selection import (
    batch_partitioning,
    crossing_partitions,
    from_lines,
    minimum_separation,
    rollout_metrics,
    rollout_trials,
)
from mrsa_jax.selection._bernoulli import SelectorState


def _raw(function: Callable[..., Any]) -> Callable[..., Any]:
    return inspect.unwrap(function)


def grids(n: int, t: int) -> list[list[list[frozenset[int]]]]:
    """Return the classes of lines of each grid, and of each block of what is left."""
    found = []
    for g in range(n // t**2):
        cells = np.arange(g * t * t, (g + 1) * t * t).reshape(t, t)
        found.append(
            [[frozenset(line) for line in way.tolist()] for way in (cells, cells.T)]
        )
    left = range(n // t**2 * t**2, n, t)
    return found + [[[frozenset(range(first, first + t))]] for first in left]


def cohorts(
    family: list[list[list[frozenset[int]]]], wanted: int
) -> set[frozenset[int]]:
    """Return all unions of `wanted` lines, of one class in each component."""
    found = set()
    for ways in itertools.product(*family):
        lines = [line for way in ways for line in way]
        found |= {
            frozenset().union(*some) for some in itertools.combinations(lines, wanted)
        }
    return found


def rows(sets: Any, n: int) -> np.ndarray:
    return np.array([[int(i in one) for i in range(n)] for one in sets])


def rank(matrix: np.ndarray) -> int:
    """Return the rank by elimination over the rationals."""
    left, found = [[Fraction(int(v)) for v in row] for row in matrix], 0
    for column in range(matrix.shape[1]):
        pivot = next((r for r in range(found, len(left)) if left[r][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        for r in range(found + 1, len(left)):
            factor = left[r][column] / left[found][column]
            if factor:
                left[r] = [
                    a - factor * b for a, b in zip(left[r], left[found], strict=True)
                ]
        found += 1
    return found


def least_support(matrix: np.ndarray) -> int:
    """Return the fewest clients of a non-zero combination of rows, by all sets of clients."""
    n, own = matrix.shape[1], rank(matrix)
    for size in range(1, n + 1):
        for some in itertools.combinations(range(n), size):
            others = [i for i in range(n) if i not in some]
            # a combination vanishes on all the others
            if rank(matrix[:, others]) < own:
                return size
    raise AssertionError


TRIANGLE = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: _raw(crossing_partitions)(16, 8, 0),
            "`privacy_target` must be at least 1; got 0",
        ),
        (
            lambda: _raw(crossing_partitions)(32, 6, 4),
            "`cohort_size` must be a multiple",
        ),
        (
            lambda: _raw(crossing_partitions)(18, 8, 4),
            "`num_clients` must be a multiple",
        ),
        (
            lambda: _raw(crossing_partitions)(12, 8, 4),
            "at least `privacy_target` squared; got 12",
        ),
        (
            lambda: _raw(crossing_partitions)(16, 8, 4, "fair"),
            "`fairness` must be a known mode",
        ),
        (
            lambda: _raw(from_lines)([[1, 1, 0], [0, 0, 1]], 2),
            "lines of one size.*got 1 and 2",
        ),
        (
            lambda: _raw(from_lines)([[0, 0]], 2),
            "lines of one size, at least 1; got 0 and 0",
        ),
        (
            lambda: _raw(from_lines)([[1, 1, 0, 0]], 2),
            "must hold every client; missing; got 2",
        ),
        (lambda: _raw(from_lines)([[1, 2]], 2), "`lines` must be a boolean"),
        (lambda: _raw(from_lines)([[0.5, 1]], 2), "`lines` must be a boolean"),
        (
            lambda: _raw(from_lines)(TRIANGLE, 3),
            "multiple of the clients of a line; got 3 and 2",
        ),
        (
            lambda: _raw(from_lines)(TRIANGLE, 4),
            "must be at most what disjoint lines hold.* 4 and",
        ),
        (lambda: _raw(from_lines)(TRIANGLE, 0), "`cohort_size` must be at least 1"),
        (
            lambda: _raw(from_lines)(TRIANGLE, 2, classes=[0, 1]),
            "one for each line; got 2 and 3",
        ),
        (
            lambda: _raw(from_lines)(TRIANGLE, 2, classes=[0, 0, 1]),
            "lines of which none cross",
        ),
        (
            lambda: _raw(from_lines)(TRIANGLE, 2, classes=[0, 1, -1]),
            "`classes` must be at least 0",
        ),
        (
            lambda: _raw(from_lines)(TRIANGLE, 2, fairness="fair"),
            "`fairness` must be a known",
        ),
    ],
)
def test_misuse(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


@pytest.mark.long("16-8-4")
@pytest.mark.parametrize(
    ("n", "k", "t"), [(4, 2, 2), (8, 4, 2), (9, 3, 3), (12, 6, 3), (16, 8, 4)]
)
def test_weak_privacy_is_t_whatever_is_summed(n: int, k: int, t: int) -> None:
    """By all cohorts and sets of clients.

    Several grids, rows of one with columns of another.
    """
    allowed = rows(cohorts(grids(n, t), k // t), n)
    lines = rows([line for ways in grids(n, t) for way in ways for line in way], n)
    # all histories are in the span
    assert rank(np.vstack([allowed, lines])) == rank(lines)
    assert least_support(lines) == t
    assert mj.privacy.weak_privacy(lines).lower == t
    assert mj.privacy.weak_privacy(lines).certified

    assert least_support(allowed) >= t
    assert mj.privacy.strong_privacy(lines) == (t if n == t else 1)


def test_one_sum_over_both_directions_of_a_grid_exposes_who_is_where_they_cross() -> (
    None
):
    (rows_, columns), *_ = grids(9, 3)
    mixed = rows([*rows_, *columns, rows_[1] | columns[2]], 9)
    assert least_support(mixed) == 1
    assert mj.privacy.weak_privacy(mixed).exposed == (5,)  # of row 1, column 2
    history = rows([*rows_, *columns], 9)
    assert mj.privacy.weak_privacy(history).exposed == ()


FAMILIES: dict[str, Any] = {
    "crossing": (lambda f: crossing_partitions(12, 6, 2, f), grids(12, 2), 3),
    "with a block": (lambda f: crossing_partitions(12, 6, 3, f), grids(12, 3), 2),
    "blocks": (
        lambda f: from_lines(np.kron(np.eye(6, dtype=int), [1, 1]), 6, fairness=f),
        [[[frozenset((i, i + 1))]] for i in range(0, 12, 2)],
        3,
    ),
    # windows of three on a circle of nine: classes are the three ways to cut it
    "windows": (
        lambda f: from_lines(
            np.concatenate(
                [np.roll(np.eye(3, dtype=int).repeat(3, 1), r, 1) for r in range(3)]
            ),
            6,
            fairness=f,
        ),
        [
            [
                [frozenset((i + j) % 9 for j in range(3)) for i in range(r, 9, 3)]
                for r in range(3)
            ]
        ],
        2,
    ),
    # a component of two crossing lines of given classes beside blocks that share one of
    # them
    "irregular": (
        lambda f: from_lines(
            [
                [1, 1, 0, 0, 0, 0, 0],
                [0, 1, 1, 0, 0, 0, 0],
                [0, 0, 0, 1, 1, 0, 0],
                [0, 0, 0, 0, 0, 1, 1],
                [0, 0, 0, 1, 0, 1, 0],
            ],
            4,
            classes=[5, 7, 5, 5, 1],
            fairness=f,
        ),
        [[[{0, 1}], [{1, 2}]], [[{3, 4}, {5, 6}], [{3, 5}]]],
        2,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_every_cohort_is_possible_and_none_only_where_none_is(name: str) -> None:
    """Against all cohorts, under random availability and counts; least use is kept."""
    make, family, wanted = FAMILIES[name]
    every, trials = sorted(map(sorted, cohorts(family, wanted))), 400
    selector = make("least_used")
    n = selector.num_clients
    lines = rows(
        {frozenset(line) for ways in family for way in ways for line in way}, n
    )
    possible, rng = rows(every, n), np.random.default_rng(5)
    available = rng.random((n, trials)) < rng.choice([0.5, 0.8, 0.95], trials)
    counts = rng.integers(0, 4, (n, trials), dtype=np.int32)
    keys = jax.vmap(lambda t: trial_key(as_key(3), t))(
        jnp.arange(trials, dtype=jnp.uint32)
    )
    select = jax.jit(lambda s, *a: s.select(*a)[0])
    for fairness in ("least_used", "uniform", "greedy"):
        one = make(fairness)
        found = np.asarray(
            select(one, keys, SelectorState(jnp.asarray(counts)), available)
        )
        seen = set()
        for b in range(trials):
            fits = possible[(possible <= available[:, b]).all(axis=1)]
            cohort = found[:, b]
            assert cohort.any() == bool(len(fits))
            if not len(fits):
                continue
            assert (fits == cohort).all(axis=1).any()
            seen.add(cohort.tobytes())
            # it holds the least used line of any possible cohort
            if fairness != "uniform":
                held = lines[(fits[:, None] >= lines).all(axis=2).any(axis=0)]
                uses = held @ counts[:, b]
                assert (
                    uses.min()
                    == (held[(held <= cohort).all(axis=1)] @ counts[:, b]).min()
                )
        assert fairness != "uniform" or len(seen) > 0.8 * len(every)


@pytest.mark.long
def test_everybody_online_means_every_line_alike() -> None:
    """One line a round: 8 lines of a 4 x 4 grid, each with the same chance."""
    trials = 4000
    found = np.asarray(
        rollout_trials(
            1, crossing_partitions(16, 4, 4, "uniform"), independent(0.0), 1, trials
        )
    )[:, 0]
    _, counts = np.unique(found, axis=0, return_counts=True)
    assert len(counts) == 8
    for count in counts:
        low, high = binomial_interval(int(count), trials, 1 - 1e-7)
        assert low <= 1 / 8 <= high


@pytest.mark.long
def test_least_use_is_fair_and_greedy_fairer() -> None:
    online, gaps = independent(0.1), {}
    for fairness in ("uniform", "least_used", "greedy"):
        selector = crossing_partitions(32, 8, 4, fairness)
        gaps[fairness] = float(
            rollout_metrics(0, selector, online, 600, 2).fairness_gap[:, -1].max()
        )
    assert gaps["greedy"] < gaps["least_used"] < gaps["uniform"]
    assert gaps["greedy"] < 0.01


def _closed_form(n: int, k: int, t: int, p: float) -> float:
    """Return K times the chance of enough lines.

    Inclusion and exclusion over rows and columns.
    """
    law, q = np.zeros(t + 1), Fraction(1 - p).limit_denominator(1000)
    for a, b in itertools.product(range(t + 1), repeat=2):
        exactly = sum(
            (-1) ** (i + j)
            * comb(t - a, i)
            * comb(t - b, j)
            * q ** ((a + i) * t + (b + j) * t - (a + i) * (b + j))
            for i in range(t - a + 1)
            for j in range(t - b + 1)
        )
        law[max(a, b)] += comb(t, a) * comb(t, b) * exactly
    total = np.ones(1)
    for _ in range(n // t**2):
        total = np.convolve(total, law)
    return k * float(total[k // t :].sum())


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "k", "t", "p", "blocks", "crossing"),
    [(112, 12, 4, 0.5, 3.10, 6.79), (108, 12, 6, 0.3, 7.73, 10.45)],
)
def test_sums_are_less_rare_than_those_of_blocks(
    n: int, k: int, t: int, p: float, blocks: float, crossing: float
) -> None:
    """The numbers were counted in 20,000 draws.

    Within five standard errors of K or none.
    """
    rates = np.full(n, p)
    selector = crossing_partitions(n, k, t, "uniform")
    mean, deviation = selector.cardinality(rates)
    assert mean == pytest.approx(_closed_form(n, k, t, p), rel=1e-12)
    assert abs(mean - crossing) < 5 * deviation / 20_000**0.5
    of_blocks, deviation = batch_partitioning(n, k, t).cardinality(rates)
    assert abs(of_blocks - blocks) < 5 * deviation / 20_000**0.5
    drawn = rollout_metrics(2, selector, independent(p), 50, 40)
    learnt = int((~np.asarray(drawn.skipped)).sum())
    low, high = binomial_interval(learnt, 2000, 1 - 1e-7)
    assert k * low <= mean <= k * high


@pytest.mark.smoke("windows")
@pytest.mark.parametrize("name", FAMILIES)
def test_expected_cardinality_by_all_availabilities(name: str) -> None:
    make, family, wanted = FAMILIES[name]
    selector = make("uniform")
    n = selector.num_clients
    online = np.linspace(0.35, 0.97, n)
    possible = rows(cohorts(family, wanted), n)
    patterns = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    chances = np.where(patterns, online, 1 - online).prod(axis=1)
    works = np.array([(possible <= pattern).all(axis=1).any() for pattern in patterns])
    mean, deviation = selector.cardinality(1 - online)
    k, chance = int(selector.cohort_size), chances[works].sum()
    assert mean == pytest.approx(k * chance, rel=1e-12)
    assert deviation == pytest.approx(k * np.sqrt(chance * (1 - chance)), rel=1e-9)
    # too many lines
    assert np.isnan(crossing_partitions(81, 9, 9).cardinality(np.zeros(81))).all()


@pytest.mark.long
def test_how_well_hidden_is_known_in_closed_form() -> None:
    for t in (2, 3, 4, 7):
        lines = rows([line for way in grids(t * t, t)[0] for line in way], t * t)
        projector = np.linalg.pinv(lines.astype(float)) @ lines
        np.testing.assert_allclose(
            1 / np.diag(projector), t * t / (2 * t - 1), rtol=1e-12
        )
    history = rollout_trials(0, crossing_partitions(9, 3, 3), independent(0.0), 60, 1)[
        0
    ]
    hidden = mj.privacy.hidden_among(history)
    np.testing.assert_allclose(hidden, 9 / 5, rtol=1e-9)


@pytest.mark.long
def test_the_weak_privacy_that_lasts_is_stated() -> None:
    """Rounds left, N - rank, never come: the rank is at most that of all lines."""
    crossing = crossing_partitions(18, 3, 3)
    assert int(crossing.privacy_target) == 3
    assert int(minimum_separation(crossing, 2).privacy_target) == 3
    # nobody has proven anything
    assert int(from_lines(TRIANGLE, 2).privacy_target) == 1
    population = mj.study.PopulationConfig(18, 3, dropout_rates=(0.0,))
    config = mj.study.SimulateConfig(
        rounds=30, trials=1, schemes=("crossing_partitions:3",), population=population
    )
    results = mj.study.run(config)
    assert results["guaranteed_privacy"].values.tolist() == [3]
    assert not [
        words for words in results.mrsa.sentences() if "so many more rounds" in words
    ]
    assert float(results["expected_cardinality"][0]) == 3.0


def test_no_line_parts_neighbours_who_are_in_the_same() -> None:
    assert int(crossing_partitions(32, 8, 4).block_size) == 1
    pairs = np.repeat(
        rows([line for way in grids(9, 3)[0] for line in way], 9), 2, axis=1
    )
    assert int(from_lines(pairs, 6).block_size) == 2
    assert int(FAMILIES["blocks"][0]("uniform").block_size) == 2
