"""Least squares.

Exact where the history is solvable, block means where blocks move together.
"""

from __future__ import annotations

import inspect
import pathlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import mrsa_jax as mj
from mrsa_jax._core import batches as _batches


@pytest.mark.parametrize(
    ("participation", "aggregates", "message"),
    [
        (
            np.full((2, 3), 0.5),
            np.ones((2, 4)),
            "`participation` must hold bools or integers",
        ),
        (
            np.ones(3, bool),
            np.ones((1, 4)),
            "`participation` must have a row for each sum",
        ),
        (np.ones((2, 0), bool), np.ones((2, 4)), "`participation` must not be empty"),
        (np.ones((2, 3), bool), np.ones((3, 4)), "`aggregates` must have one row"),
        (np.ones((2, 3), bool), np.ones(2), "`aggregates` must have one row"),
        (np.ones((1, 3), bool), np.full((1, 2), np.nan), "`aggregates` must be finite"),
        (np.ones((1, 3), bool), np.full((1, 2), 1j), "`aggregates` must be real"),
    ],
)
def test_misuse(
    participation: np.ndarray, aggregates: np.ndarray, message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        mj.attacks.least_squares(participation, aggregates)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ridge": -1.0}, "`ridge` must be a finite number from 0; got -1"),
        ({"noise": float("nan")}, "`noise` must be a finite number from 0; got nan"),
        (
            {"ridge": 1.0, "noise": 1.0},
            "`noise` must be 0 with a `ridge`; got 1.0 and 1.0",
        ),
        ({"prior": "median"}, "`prior` must be one of .*; got 'median'"),
    ],
)
def test_misuse_of_variants(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        inspect.unwrap(mj.attacks.least_squares_attack)(**settings)


def test_misuse_of_views_and_outputs() -> None:
    history, sums = np.eye(3, dtype=bool), np.ones((3, 2))
    with pytest.raises(
        mj.ConfigurationError, match="`out` must be a writeable float64 array"
    ):
        mj.attacks.least_squares(history, sums, out=np.empty((3, 3)))
    with pytest.raises(
        mj.ConfigurationError, match="`true_updates` must have a row for each"
    ):
        mj.attacks.streamed_errors(history, sums, np.ones((2, 2)))
    other: Any = mj.attacks.views.CountView(sums, np.ones((1, 3), int), np.array([3]))
    with pytest.raises(
        mj.ConfigurationError, match="AggregateView; got CountView, which lacks p"
    ):
        inspect.unwrap(mj.attacks.LeastSquares.run)(
            mj.attacks.least_squares_attack(), None, other
        )


@pytest.mark.smoke
def test_errors_need_equal_shapes() -> None:
    with pytest.raises(mj.ConfigurationError, match="`estimates` must have the shape"):
        mj.attacks.reconstruction_error(np.ones((2, 3)), np.ones((3, 3)))


def test_three_pairs_solve_three_clients() -> None:
    history = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    updates = np.array([[1.0, -2.0], [3.0, 0.5], [-5.0, 4.0]])
    sums = np.array([[4.0, -1.5], [-2.0, 4.5], [-4.0, 2.0]])  # by hand
    for weights in (history, history.astype(np.int8), history.astype(np.float64)):
        np.testing.assert_allclose(
            mj.attacks.least_squares(weights, sums), updates, atol=1e-12
        )


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
    # 6 blocks; all pairs of blocks take part: the block sums are solvable, the clients
    # are not
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
    assert np.isnan(
        mj.attacks.reconstruction_error(np.zeros((1, 2)), np.ones((1, 2)))
    ).all()


def test_deficient_integer_weights_with_noisy_sums() -> None:
    # P = A B has rank 60 by construction; inverting one of its other singular values,
    # which are rounding noise, would blow the noise of the sums up.
    generator = np.random.default_rng(4)
    left, right = (
        generator.integers(0, 4, (150, 60)),
        generator.integers(0, 4, (60, 100)),
    )
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
        [Fraction(sum(a * b for a, b in zip(r, s, strict=True))) for s in history]
        for r in history
    ]
    system = [[*row, Fraction(value)] for row, value in zip(gram, sums, strict=True)]
    for column in range(size):
        pivot = next(r for r in range(column, size) if system[r][column] != 0)
        system[column], system[pivot] = system[pivot], system[column]
        system[column] = [value / system[column][column] for value in system[column]]
        for r in range(size):
            if r != column:
                factor = system[r][column]
                system[r] = [
                    a - factor * b
                    for a, b in zip(system[r], system[column], strict=True)
                ]
    multipliers = [row[-1] for row in system]
    columns = len(history[0])
    return [
        sum((history[r][c] * multipliers[r] for r in range(size)), Fraction(0))
        for c in range(columns)
    ]


@given(st.integers(0, 2**32 - 1))
def test_least_norm_against_rationals(seed: int) -> None:
    generator = np.random.default_rng(seed)
    history = np.concatenate(
        [np.eye(3, dtype=int), generator.integers(0, 3, (3, 4))], axis=1
    )
    # full row rank, repeated columns likely
    history = history[:, generator.permutation(7)]
    sums = generator.integers(-9, 10, 3)
    expected = _exact_minimum_norm(history.tolist(), sums.tolist())
    estimates = mj.attacks.least_squares(history, sums[:, None])[:, 0]
    np.testing.assert_allclose(
        estimates, [float(value) for value in expected], atol=1e-10
    )


def test_many_columns_equal_few() -> None:
    history = np.random.default_rng(2).random((9, 6)) < 0.5
    sums = np.random.default_rng(3).normal(size=(9, 70_000)).astype(np.float32)
    whole = mj.attacks.least_squares(history, sums)
    part = mj.attacks.least_squares(history, sums[:, 65_530:65_545])
    np.testing.assert_allclose(whole[:, 65_530:65_545], part, atol=1e-12)


def _history(seed: int = 5, shape: tuple[int, ...] = (12, 8)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, shape)


def test_variants_by_their_formulas() -> None:
    history = _history()
    history[3] = 0
    sums = np.random.default_rng(6).normal(size=(12, 4))
    ridge = mj.attacks.least_squares_attack(ridge=0.7)
    expected = np.linalg.solve(history.T @ history + 0.7 * np.eye(8), history.T @ sums)
    np.testing.assert_allclose(ridge.estimates(history, sums), expected, atol=1e-10)
    rows = history.any(axis=1)
    seen = history[rows]
    spread = seen @ seen.T + 0.3**2 * np.diag(np.square(seen).sum(axis=1))
    noise = mj.attacks.least_squares_attack(noise=0.3)
    expected = seen.T @ np.linalg.solve(spread, sums[rows])
    np.testing.assert_allclose(noise.estimates(history, sums), expected, atol=1e-10)


def test_the_mean_prior_fills_in_what_the_sums_do_not_tell() -> None:
    # the third and fourth never took part
    history = np.array([[1, 1, 0, 0], [1, 0, 0, 0]])
    updates = np.array([[2.0], [4.0], [9.0], [9.0]])
    attack = mj.attacks.least_squares_attack(prior="mean")
    got = attack.estimates(history, history @ updates)
    mean = (2 + 4 + 2) / 3  # over participations
    np.testing.assert_allclose(got.ravel(), [2, 4, mean, mean], atol=1e-12)
    nobody = attack.estimates(np.zeros((2, 3), int), np.ones((2, 1)))
    np.testing.assert_array_equal(nobody, np.zeros((3, 1)))


def test_leading_axes_are_separate_histories_and_windows_of_one() -> None:
    history, sums = _history(7, (9, 4)), np.random.default_rng(8).normal(size=(9, 3))
    starts = (0, 2, 4)
    parts = np.stack([history[start : start + 5] for start in starts])
    together = mj.attacks.least_squares(
        parts, np.stack([sums[start : start + 5] for start in starts])
    )
    for window, start in enumerate(starts):
        alone = mj.attacks.least_squares(
            history[start : start + 5], sums[start : start + 5]
        )
        np.testing.assert_array_equal(together[window], alone)


def test_files_are_read_and_written_in_pieces(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 7 columns
    monkeypatch.setitem(_batches._WORK, "estimates", _batches._Work(8 * 12 * 7, 1))
    history = _history()
    updates = np.random.default_rng(9).normal(size=(8, 40)).astype(np.float32)
    sums = np.memmap(tmp_path / "sums", np.float32, "w+", shape=(12, 40))
    sums[:] = history @ updates
    out = np.memmap(tmp_path / "estimates", np.float64, "w+", shape=(8, 40))
    mj.attacks.least_squares(history, sums, out=out)
    inverse = np.linalg.pinv(history)
    np.testing.assert_allclose(out, inverse @ sums, atol=1e-9)
    errors = mj.attacks.streamed_errors(history, sums, updates)
    np.testing.assert_allclose(
        errors, mj.attacks.reconstruction_error(updates, out), atol=1e-12
    )
    sums[3, 33] = np.inf
    with pytest.raises(mj.ConfigurationError, match="`aggregates` must be finite"):
        mj.attacks.least_squares(history, sums)


@pytest.mark.long("0", "1")
@pytest.mark.parametrize("seed", range(5))
def test_frozen_models_fall_as_the_privacy_engine_predicts(seed: int) -> None:
    """Orthonormal updates: nobody's resembles another's, so each error is 1 - leverage."""
    history = np.random.default_rng(seed).random((10, 12)) < 0.25
    updates = np.linalg.qr(np.random.default_rng(seed + 50).normal(size=(30, 12)))[0].T
    estimates = mj.attacks.least_squares(history, history.astype(int) @ updates)
    errors = mj.attacks.reconstruction_error(updates, estimates)
    np.testing.assert_allclose(errors, mj.attacks.predicted_error(history), atol=1e-12)
    exposed = np.asarray(mj.privacy.first_exposure(history)) >= 0
    assert exposed.any()
    assert not exposed.all()
    assert errors[exposed].max() < 1e-24
    assert (mj.attacks.predicted_error(history)[exposed] == 0).all()
    assert errors[~exposed].min() > 1e-3


@pytest.mark.long
def test_predicted_error_of_updates_that_change() -> None:
    """Of a linear estimate A of x from P x + z, by hand.

    Bias^2 + variance, x and z white.
    """
    history, noise = _history(11), 0.4
    attack = mj.attacks.least_squares_attack(noise=noise)
    estimator = attack.estimator(history)
    bias = np.square(np.eye(8) - estimator @ history).sum(axis=1)
    variance = np.square(estimator) @ (noise**2 * np.square(history).sum(axis=1))
    expected = mj.attacks.predicted_error(history, noise=noise)
    np.testing.assert_allclose(bias + variance, expected, atol=1e-10)


def test_the_last_update_of_those_that_drift_is_estimated_as_well_as_can_be() -> None:
    """Error of the estimator as a matrix, against the share that the best one explains."""
    P = (np.random.default_rng(8).random((7, 6)) < 0.4).astype(np.int64)
    P[3] = P[:, 5] = 0  # a skipped round; somebody in no sum
    lags = np.abs(np.subtract.outer(np.arange(7), np.arange(7)))
    R = np.where(lags == 0, 1.0, 0.75 * 0.5**lags)
    E = mj.attacks.least_squares_attack(memory=0.5, share=0.75).estimator(P)
    covariance = P @ P.T * R
    last = [max(np.flatnonzero(P[:, i]), default=0) for i in range(6)]
    known = np.asarray([P[:, i] * R[last[i]] for i in range(6)])
    errors = (
        1 - 2 * (E * known).sum(axis=1) + np.einsum("ij,jk,ik->i", E, covariance, E)
    )
    predicted = mj.attacks.predicted_error(P, memory=0.5, share=0.75)
    np.testing.assert_allclose(errors, predicted, rtol=1e-9)
    assert errors[5] == 1
    assert (errors[:5] < 1).all()
    for k in range(20):  # no other matrix does better
        other = E + 0.01 * np.random.default_rng(k).normal(size=E.shape) * P.any(axis=1)
        wrong = (
            1
            - 2 * (other * known).sum(axis=1)
            + np.einsum("ij,jk,ik->i", other, covariance, other)
        )
        assert (wrong >= errors - 1e-12).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": 1.0}, "`memory` must lie in"),
        (
            {"memory": 0.5, "noise": 0.1},
            "`memory` must stand without `ridge` and `noise`",
        ),
        ({"share": 2.0}, "`share` must be a number from 0 to 1"),
    ],
)
def test_settings_of_a_drift_are_checked(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        mj.attacks.least_squares_attack(**settings)


def _random_covariance(rng: np.random.Generator, clients: int) -> np.ndarray:
    factors = rng.normal(size=(clients, clients + 2))
    return np.asarray(factors @ factors.T / (clients + 2))


@pytest.mark.parametrize("memory", [None, 0.8])
def test_a_server_that_knows_the_covariance_estimates_best(
    memory: float | None,
) -> None:
    """Conditional mean of Gaussian updates given the sums, from their joint covariance."""
    rng = np.random.default_rng(3)
    rounds, clients, share = 6, 5, 1.0 if memory is None else 0.6
    P = rng.integers(0, 3, (rounds, clients))
    P[:, 0] |= 1
    P[4] = P[1]  # a cohort that comes twice
    C = _random_covariance(rng, clients)
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    lasting = np.ones((rounds, rounds)) if memory is None else memory**lags
    # covariance of all updates, [rounds, clients, rounds, clients]
    updates = share * np.einsum("rs,ij->risj", lasting, C)
    updates += (1 - share) * np.einsum(
        "rs,ij->risj", np.eye(rounds), np.diag(np.diagonal(C))
    )
    sums = np.einsum("ri,risj,sj->rs", P, updates, P)
    attack = mj.attacks.least_squares_attack(memory=memory, share=share, covariance=C)
    E = attack.estimator(P)
    hidden = mj.privacy.hidden_among(
        P,
        memory=1.0 if memory is None else memory,
        share=share,
        covariance=C,
        each_round=True,
    )
    for client in range(clients):
        last = int(np.flatnonzero(P[:, client]).max())
        joint = np.einsum("sj,sj->s", updates[last, client], P)
        expected = joint @ np.linalg.pinv(sums, rcond=1e-10, hermitian=True)
        np.testing.assert_allclose(E[client], expected, atol=1e-8)
        error = 1 - 2 * E[client] @ joint / C[client, client]
        error += E[client] @ sums @ E[client] / C[client, client]
        assert 1 - error == pytest.approx(1 / hidden[last, client], abs=1e-8)


def test_clients_that_are_alike_are_the_covariance_of_one() -> None:
    P = _history()
    for settings in ({}, {"memory": 0.9, "share": 0.5}):
        alike = mj.attacks.least_squares_attack(**settings).estimator(P)
        same = mj.attacks.least_squares_attack(**settings, covariance=2 * np.eye(8))
        # of sums that agree: rounds that say the same twice may be weighed otherwise
        np.testing.assert_allclose(same.estimator(P) @ P, alike @ P, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"covariance": np.eye(3), "noise": 1.0}, "must stand without `ridge`"),
        ({"covariance": [[1.0, 2.0], [2.0, 1.0]]}, "positive semidefinite"),
        ({"covariance": [1.0, 2.0]}, "must be numbers of shape"),
    ],
)
def test_rejects_a_covariance_that_is_none(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        mj.attacks.least_squares_attack(**settings)


def test_rejects_the_covariance_of_other_clients() -> None:
    attack = mj.attacks.least_squares_attack(covariance=np.eye(3))
    with pytest.raises(mj.ConfigurationError, match="`covariance` must be numbers of"):
        attack.estimator(np.ones((2, 4), int))
