"""The searches' predicted work against the work they count: no clock is involved."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mrsa_jax.privacy.solver import (
    Plan,
    Space,
    girth_work,
    lifting_work,
    light_sets,
    num_parts,
    run,
)


def generic(columns, rank, weights=None, seed=1):
    """A dense space without light vectors, columns in ascending order of weight."""
    rows = np.random.default_rng(seed).integers(-(2**20), 2**20, (rank, columns))
    return Space(
        rows, np.ones(columns, np.int64) if weights is None else np.sort(weights)
    )


def works(space, method, limit):
    """Return the work predicted for a search that finds nothing, and the work counted."""
    of = space.duals
    most = of.most_groups(limit)
    if method == "girth":
        predicted = girth_work(of.weights, limit, max(most, 3))
    else:
        predicted = lifting_work(of.weights, of.corank, limit, most, of.checks.is_even)
    outcome = run(of, Plan(method, limit, predicted / 1e9))
    assert outcome.is_proof
    return predicted, outcome.work


def brute_force_sets(weights, limit, size):
    sets = [sum(s) for s in itertools.combinations(weights.tolist(), size)]
    return sum(total <= limit for total in sets)


@pytest.mark.smoke("weights0")
@pytest.mark.parametrize(
    "weights", [[2] * 9, [1, 1, 2, 2, 2, 3, 5, 7, 30], [3, 4, 5, 6, 7, 8]]
)
def test_sets_within_a_weight_are_counted_exactly(weights) -> None:
    weights = np.array(weights)
    for limit in range(1, 25):
        counted, _ = light_sets(weights, limit, 5)
        assert counted == [brute_force_sets(weights, limit, size) for size in range(6)]


def test_heavy_weights_are_counted_from_above() -> None:
    """Where the limit is beyond the units that are told apart."""
    weights = np.sort(np.random.default_rng(2).integers(300, 2000, 20))
    counted, _ = light_sets(weights, 4000, 6)
    for size, number in enumerate(counted):
        exact = brute_force_sets(weights, 4000, size)
        assert exact <= number <= 1.2 * exact + 2


@pytest.mark.parametrize(
    ("columns", "rank", "limit"),
    [
        (200, 120, 3),
        (200, 100, 4),
        (60, 30, 5),
        (40, 20, 6),
        (30, 8, 8),
        (26, 6, 12),
        (23, 3, 18),
    ],
)
def test_a_walk_does_what_was_predicted_at_every_depth(columns, rank, limit) -> None:
    predicted, counted = works(generic(columns, rank), "girth", limit)
    assert predicted / 1.1 < counted < 1.1 * predicted


@pytest.mark.parametrize("limit", [6, 9, 12])
def test_a_walk_does_what_was_predicted_for_unequal_weights(limit) -> None:
    rng = np.random.default_rng(limit)
    weights = [
        np.repeat([1, 2, 3], [3, 10, 40]),
        rng.integers(1, 20, 50),
        rng.integers(1, 4, 40),
    ]
    for sizes in weights:
        space = generic(len(sizes), len(sizes) - 20, sizes)
        predicted, counted = works(space, "girth", limit)
        assert predicted / 1.5 < counted < 1.5 * predicted


@pytest.mark.long("24-3-18", "34-24-9")
@pytest.mark.parametrize(
    ("columns", "rank", "limit"),
    [
        (200, 100, 4),
        (60, 30, 6),
        (60, 48, 6),
        (40, 25, 8),
        (34, 24, 9),
        (34, 8, 10),
        (24, 3, 18),
    ],
)
def test_a_lifting_does_what_was_predicted(columns, rank, limit) -> None:
    """Many columns and few, codes with next to no words and with many."""
    predicted, counted = works(generic(columns, rank), "lifting", limit)
    assert predicted / 1.5 < counted < 1.5 * predicted


@pytest.mark.long
def test_no_prediction_is_too_small_for_a_float() -> None:
    """Any number of columns, of clients behind them, and any limit.

    A number or infinity.
    """
    rng = np.random.default_rng(3)
    for columns in (1, 3, 40, 700, 4096):
        for sizes in (
            np.ones(columns, np.int64),
            np.sort(rng.integers(1, 10**6, columns)),
        ):
            whole = int(sizes.sum())
            for limit in sorted(
                {1, 3, int(sizes[-1]), whole // 3, whole // 2, whole - 1, whole}
            ):
                most = int(np.searchsorted(np.cumsum(sizes), limit, side="right"))
                work = girth_work(sizes, limit, max(most, 3)) if limit else 0.0
                assert work >= 0
                for corank in {max(1, most), columns}:
                    assert lifting_work(sizes, corank, max(1, limit), most, False) >= 0
    assert girth_work(np.ones(2500, np.int64), 1200, 1200) == math.inf


@pytest.mark.long
def test_every_planned_lifting_can_number_its_halves() -> None:
    from mrsa_jax.privacy.solver import _words

    for columns in (34, 66, 300, 4096):
        ones = np.ones(columns, np.int64)
        for corank in {4, 12, 25, min(60, columns - 2), columns - 2}:
            for most in range(4, min(corank, 60) + 1, 3):
                if math.isfinite(lifting_work(ones, corank, most, most, False)):
                    assert math.comb(columns, (most + 1) // 2) <= _words.LARGEST
                    stored = math.comb(columns, most // 2)
                    parts = num_parts(columns, corank, most)
                    assert stored >> parts <= _words.MOST_LISTED


def test_a_code_with_far_more_words_than_chance_has_is_given_up(monkeypatch) -> None:
    """One odd entry a row.

    All sets of the rows' columns are words, thousands of times more.
    The search stops near what was predicted, and claims nothing.
    """
    monkeypatch.setattr("mrsa_jax.privacy.solver._search._GRACE_SECONDS", 0.01)
    rows = 2 * np.random.default_rng(4).integers(-(2**20), 2**20, (20, 36))
    rows[:, :20] = np.eye(20, dtype=np.int64)
    of = Space(rows, np.ones(36, np.int64)).duals
    work = lifting_work(of.weights, of.corank, 9, 9, of.checks.is_even)
    plan = Plan("lifting", 9, work / 1e9)
    outcome = run(of, plan)
    assert not outcome.is_proof
    assert outcome.subset is None
    assert plan.budget <= outcome.work < 1.5 * plan.budget
