"""Whole numbers that sums determine: exhaustive search, closed forms, the budget."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import determined, determined_rate


def random_history(rng: np.random.Generator, rounds: int, n: int, k: int) -> np.ndarray:
    history = np.zeros((rounds, n), int)
    for row in history:
        row[rng.choice(n, k, replace=False)] = 1
    return history


def by_search(
    history: np.ndarray, sums: np.ndarray, values: range
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and largest value of each client over all solutions."""
    every = np.array(list(itertools.product(values, repeat=history.shape[1])))
    solutions = every[(every @ history.T == sums).all(axis=1)]
    return solutions.min(axis=0), solutions.max(axis=0)


def agrees_with_search(seed: int) -> bool:
    rng = np.random.default_rng(seed)
    levels = int(rng.integers(2, 5))
    n = int(rng.integers(2, 17 if levels == 2 else 8))
    history = random_history(
        rng, int(rng.integers(1, 10)), n, int(rng.integers(1, n + 1))
    )
    if seed % 3 == 0:
        history *= rng.integers(-2, 4, history.shape)
    low = int(rng.integers(-2, 3))
    values = rng.integers(low, low + levels, n)
    sums = history @ values
    found = determined(history, sums, low, low + levels - 1)
    least, largest = by_search(history, sums, range(low, low + levels))
    return bool(
        found.is_decided.all()
        and (found.lower == least).all()
        and (found.upper == largest).all()
        and (found.is_determined == (least == largest)).all()
    )


def test_it_is_what_exhaustive_search_finds() -> None:
    assert all(agrees_with_search(seed) for seed in range(20))


@pytest.mark.slow
def test_it_is_what_exhaustive_search_finds_200_times() -> None:
    assert all(agrees_with_search(seed) for seed in range(100, 300))


def test_bits_of_120_clients_are_found_in_seconds() -> None:
    """Of rare bits, 40 sums of 12 give nearly all, though linear algebra gives none."""
    rng = np.random.default_rng(1)
    history = random_history(rng, 80, 120, 12)
    bits = (rng.random(120) < 0.1).astype(int)
    start = time.process_time()
    found = determined(history, history @ bits)
    assert time.process_time() - start < 5
    assert found.is_determined.all()
    assert (found.lower == bits).all()
    early = determined(history[:40], history[:40] @ bits)
    assert early.is_determined.sum() >= 105
    assert not (mj.privacy.first_exposure(history[:40]) >= 0).any()


@pytest.mark.parametrize(
    ("size", "law", "rate"),
    [
        (4, "bits:0.5", 2 / 2**4),
        (4, "bits:0.1", 0.9**4 + 0.1**4),
        (3, "levels:5", 2 / 5**3),
        (2, [0.5, 0.25, 0.25], 0.5**2 + 0.25**2),
        (1, "bits:0.5", 1.0),
    ],
)
def test_blocks_have_a_closed_form(size: int, law: Any, rate: float) -> None:
    blocks = np.kron(np.eye(6, dtype=int), np.ones((1, size), int))
    exact = determined_rate(blocks, law)
    assert exact.is_exact
    assert exact.rate == pytest.approx(rate, abs=1e-15)


def test_the_closed_form_is_the_mean_over_all_values() -> None:
    blocks = np.kron([[1, 1], [0, 1]], np.ones((1, 2), int))
    chances = np.array([0.2, 0.5, 0.3])
    mean = 0.0
    for values in itertools.product(range(3), repeat=4):
        found = determined(blocks, blocks @ values, 0, 2)
        mean += chances[list(values)].prod() * found.is_determined.mean()
    assert determined_rate(blocks, chances).rate == pytest.approx(mean, abs=1e-12)


def test_a_simulated_rate_lies_about_the_exact_one() -> None:
    """Two blocks whose sums are known, and a client in no sum, hidden from the formula."""
    rng = np.random.default_rng(3)
    history = random_history(rng, 12, 24, 6)
    found = determined_rate(history, "bits:0.5", 10)
    assert not found.is_exact
    assert found.lower <= found.rate <= found.upper
    assert found.rate == pytest.approx(17.8 / 24, abs=0.2)
    assert found.undecided == 0


def test_without_a_budget_clients_are_undecided() -> None:
    history = [[1, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    found = determined(history, [2, 1, 1], nodes=0)
    assert not found.is_decided.any()
    assert not found.is_determined.any()
    assert determined_rate(history, "bits:0.5", 20, nodes=0).undecided > 0


def test_single_sums_are_enough_without_a_budget() -> None:
    found = determined([[1, 1, 1, 0], [0, 0, 1, 1]], [3, 2], nodes=0)
    assert found.is_determined.all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"sums": [4]}, "`sums` must be sums of values from `low` to `high`"),
        ({"sums": [1, 1]}, "`sums` must be integers, one for each row"),
        ({"sums": [0.5]}, "`sums` must be integers"),
        ({"sums": [1], "low": 2, "high": 1}, "`high` must be at least `low`"),
        ({"sums": [1], "high": 2**31}, "`high` must give sums below"),
        ({"sums": [1], "nodes": -1}, "`nodes` must"),
        ({"sums": [1], "low": 0.5}, "`low` must"),
    ],
)
def test_misuse(words: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        determined([[1, 1, 1]], **words)


def test_sums_that_no_values_have_are_refused() -> None:
    """Each sum is possible by itself; together they ask for half of a one."""
    with pytest.raises(mj.ConfigurationError, match="`sums` must be sums of values"):
        determined([[1, 1, 0], [0, 1, 1], [1, 0, 1]], [1, 1, 1])


@pytest.mark.parametrize(
    "law", ["bits:2", "bits:x", "levels:1", "coins", [0.5, 0.6], [1.0], [[0.5, 0.5]], 3]
)
def test_what_is_no_law(law: Any) -> None:
    with pytest.raises(mj.ConfigurationError, match="`law` must"):
        determined_rate([[1, 1]], law)
