"""Least squares: exact where the history is solvable, block means where blocks move together."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mrsa_jax as mj


@pytest.mark.parametrize(
    ("participation", "aggregates", "message"),
    [
        (np.full((2, 3), 0.5), np.ones((2, 4)), "`participation` must hold bools or integers"),
        (np.ones(3, bool), np.ones((1, 4)), "`participation` must have a row for each sum"),
        (np.ones((2, 0), bool), np.ones((2, 4)), "`participation` must not be empty"),
        (np.ones((2, 3), bool), np.ones((3, 4)), "`aggregates` must have one row"),
        (np.ones((2, 3), bool), np.ones(2), "`aggregates` must have one row"),
        (np.ones((1, 3), bool), np.full((1, 2), np.nan), "`aggregates` must be finite"),
        (np.ones((1, 3), bool), np.full((1, 2), 1j), "`aggregates` must be real"),
    ],
)
def test_misuse(participation: np.ndarray, aggregates: np.ndarray, message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        mj.attacks.least_squares(participation, aggregates)


def test_errors_need_equal_shapes() -> None:
    with pytest.raises(mj.ConfigurationError, match="`estimates` must have the shape"):
        mj.attacks.reconstruction_error(np.ones((2, 3)), np.ones((3, 3)))


def test_three_pairs_solve_three_clients() -> None:
    history = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    updates = np.array([[1.0, -2.0], [3.0, 0.5], [-5.0, 4.0]])
    sums = np.array([[4.0, -1.5], [-2.0, 4.5], [-4.0, 2.0]])  # by hand
    for weights in (history, history.astype(np.int8), history.astype(np.float64)):
        np.testing.assert_allclose(mj.attacks.least_squares(weights, sums), updates, atol=1e-12)


def test_full_column_rank_is_exact_and_zero_rows_do_no_harm() -> None:
    generator = np.random.default_rng(0)
    history = generator.random((60, 20)) < 0.3
    history[[5, 17]] = False
    assert np.linalg.matrix_rank(history) == 20
    updates = generator.normal(size=(20, 7))
    estimates = mj.attacks.least_squares(history, history @ updates)
    np.testing.assert_allclose(estimates, updates, atol=1e-9)
    assert mj.attacks.reconstruction_error(updates, estimates).max() < 1e-18


@pytest.mark.parametrize("block", [2, 3, 4])
def test_blocks_that_move_together_get_their_mean(block: int) -> None:
    # 6 blocks; all pairs of blocks take part: the block sums are solvable, the clients are not
    pairs = [(i, j) for i in range(6) for j in range(i)]
    blocks = np.zeros((len(pairs), 6), bool)
    for row, pair in zip(blocks, pairs, strict=True):
        row[list(pair)] = True
    history = np.repeat(blocks, block, axis=1)
    updates = np.random.default_rng(1).normal(size=(6 * block, 5))
    estimates = mj.attacks.least_squares(history, history.astype(int) @ updates)
    means = updates.reshape(6, block, 5).mean(axis=1)
    np.testing.assert_allclose(estimates, np.repeat(means, block, axis=0), atol=1e-10)
    # orthogonal updates of equal norm: ||x - mean||^2 = 1 - 1/T
    updates = np.eye(6 * block)
    estimates = mj.attacks.least_squares(history, history.astype(int) @ updates)
    errors = mj.attacks.reconstruction_error(updates, estimates)
    np.testing.assert_allclose(errors, 1 - 1 / block, atol=1e-10)


def test_who_never_took_part_has_error_one() -> None:
    history = np.array([[1, 0, 0], [1, 1, 0]], bool)
    updates = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    estimates = mj.attacks.least_squares(history, history @ updates)
    np.testing.assert_allclose(estimates[:2], updates[:2], atol=1e-12)
    np.testing.assert_array_equal(estimates[2], [0.0, 0.0])
    np.testing.assert_allclose(
        mj.attacks.reconstruction_error(updates, estimates), [0.0, 0.0, 1.0], atol=1e-12
    )
    nothing = mj.attacks.least_squares(np.zeros((2, 3), bool), np.zeros((2, 4)))
    np.testing.assert_array_equal(nothing, np.zeros((3, 4)))


def test_error_of_a_zero_update_is_nan() -> None:
    assert np.isnan(mj.attacks.reconstruction_error(np.zeros((1, 2)), np.ones((1, 2)))).all()


def test_deficient_integer_weights_with_noisy_sums() -> None:
    # P = A B has rank 60 by construction; inverting one of its other singular values, which are
    # rounding noise, would blow the noise of the sums up.
    generator = np.random.default_rng(4)
    left, right = generator.integers(0, 4, (150, 60)), generator.integers(0, 4, (60, 100))
    weights = left @ right
    truth = generator.normal(size=(100, 3))
    sums = weights @ truth + generator.normal(size=(150, 3))
    # full-rank factors: P^+ = B^T (B B^T)^-1 (A^T A)^-1 A^T
    inner = np.linalg.solve(left.T @ left, left.T @ sums)
    expected = right.T @ np.linalg.solve(right @ right.T, inner)
    estimates = mj.attacks.least_squares(weights, sums)
    np.testing.assert_allclose(estimates, expected, atol=1e-8)


def _exact_minimum_norm(history: list[list[int]], sums: list[int]) -> list[Fraction]:
    """P^T (P P^T)^-1 y in rationals, for P of full row rank."""
    size = len(history)
    gram = [
        [Fraction(sum(a * b for a, b in zip(r, s, strict=True))) for s in history] for r in history
    ]
    system = [[*row, Fraction(value)] for row, value in zip(gram, sums, strict=True)]
    for column in range(size):
        pivot = next(r for r in range(column, size) if system[r][column] != 0)
        system[column], system[pivot] = system[pivot], system[column]
        system[column] = [value / system[column][column] for value in system[column]]
        for r in range(size):
            if r != column:
                factor = system[r][column]
                system[r] = [a - factor * b for a, b in zip(system[r], system[column], strict=True)]
    multipliers = [row[-1] for row in system]
    columns = len(history[0])
    return [
        sum((history[r][c] * multipliers[r] for r in range(size)), Fraction(0))
        for c in range(columns)
    ]


@given(st.integers(0, 2**32 - 1))
def test_least_norm_against_rationals(seed: int) -> None:
    generator = np.random.default_rng(seed)
    history = np.concatenate([np.eye(3, dtype=int), generator.integers(0, 3, (3, 4))], axis=1)
    history = history[:, generator.permutation(7)]  # full row rank, repeated columns likely
    sums = generator.integers(-9, 10, 3)
    expected = _exact_minimum_norm(history.tolist(), sums.tolist())
    estimates = mj.attacks.least_squares(history, sums[:, None])[:, 0]
    np.testing.assert_allclose(estimates, [float(value) for value in expected], atol=1e-10)


def test_many_columns_equal_few() -> None:
    history = np.random.default_rng(2).random((9, 6)) < 0.5
    sums = np.random.default_rng(3).normal(size=(9, 70_000)).astype(np.float32)
    whole = mj.attacks.least_squares(history, sums)
    part = mj.attacks.least_squares(history, sums[:, 65_530:65_545])
    np.testing.assert_allclose(whole[:, 65_530:65_545], part, atol=1e-12)
