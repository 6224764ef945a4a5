"""Distinguishability.

The definition in exact rationals, composition of Gaussians, closed forms.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest
import row_space_oracle as oracle
from weak_families import FAMILIES

import mrsa_jax as mj
from mrsa_jax.privacy import distinguishability


def solve(matrix, target):
    """Return a rational solution w of matrix w = target, or None where there is none."""
    rows = [
        [*map(Fraction, row), Fraction(value)]
        for row, value in zip(matrix, target, strict=True)
    ]
    width, pivots, top = len(target), [], 0
    for column in range(width):
        found = next((i for i in range(top, len(rows)) if rows[i][column]), None)
        if found is None:
            continue
        rows[top], rows[found] = rows[found], rows[top]
        rows[top] = [value / rows[top][column] for value in rows[top]]
        for i, row in enumerate(rows):
            if i != top and row[column]:
                factor = row[column]
                rows[i] = [a - factor * b for a, b in zip(row, rows[top], strict=True)]
        pivots.append(column)
        top += 1
    if any(row[width] for row in rows[top:]):
        return None
    solution = [Fraction(0)] * width
    for place, column in enumerate(pivots):
        solution[column] = rows[place][width]
    return solution


def exact_mu(matrix, client, *, shift=1, spread=1, noise=None):
    """The separation's definition.

    Shift^2 p^T M^-1 p, M the covariance of the sums without i.
    """
    rounds, others = len(matrix), [j for j in range(len(matrix[0])) if j != client]
    covariance = [
        [
            Fraction(spread) ** 2 * sum(matrix[a][j] * matrix[b][j] for j in others)
            + (Fraction(noise[a][b]) if noise else 0)
            for b in range(rounds)
        ]
        for a in range(rounds)
    ]
    column = [row[client] for row in matrix]
    weights = solve(covariance, column)
    if weights is None:
        return math.inf
    squared = (
        sum(a * b for a, b in zip(weights, column, strict=True)) * Fraction(shift) ** 2
    )
    return math.sqrt(squared)


def diagonal(values):
    return [
        [v if a == b else 0 for b in range(len(values))] for a, v in enumerate(values)
    ]


def random_matrices(count, rng):
    for _ in range(count):
        shape = tuple(int(v) for v in rng.integers(1, 7, size=2))
        if rng.random() < 0.5:
            yield rng.integers(0, 2, size=shape).tolist()
        else:
            yield rng.integers(-3, 4, size=shape).tolist()


# ---- what is refused


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shift": 0}, r"`shift` must be positive and finite; got 0"),
        ({"shift": -1.0}, r"`shift` must be positive and finite; got -1.0"),
        ({"shift": math.inf}, r"`shift` must be positive and finite; got inf"),
        ({"shift": [1.0]}, r"`shift` must be positive and finite; got"),
        ({"spread": 0.0}, r"`spread` must be positive and finite; got 0.0"),
        ({"spread": -2}, r"`spread` must be positive and finite; got -2"),
        ({"spread": "known"}, r"`spread` must be positive and finite; got 'known'"),
        ({"noise": -1.0}, r"`noise` must hold no negative variance; got -1.0"),
        (
            {"noise": -1.0, "spread": None},
            r"`noise` must hold no negative variance; got -1.0",
        ),
        ({"noise": [1.0, 2.0, 3.0]}, r"`noise` must be one number, or of shape \[2\]"),
        (
            {"noise": [[1.0, 2.0], [2.0, 1.0]], "spread": None},
            r"`noise` must be a positive semi",
        ),
        ({"coalition": [3]}, r"`coalition` must hold indices below 3"),
        ({"coalition": [3], "spread": None}, r"`coalition` must hold indices below 3"),
        (
            {"coalition": [0, 1, 2], "spread": None},
            r"`coalition` must leave a client out",
        ),
    ],
)
def test_rejects_bad_arguments(wrong, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        distinguishability([[1, 1, 0], [0, 1, 1]], **wrong)


@pytest.mark.parametrize("spread", [1.0, None])
def test_rejects_what_is_no_history(spread):
    with pytest.raises(
        mj.ConfigurationError, match=r"`P` must hold bools or integers; got \[0.5\]"
    ):
        distinguishability([[0.5, 1.0]], spread=spread)
    with pytest.raises(mj.ConfigurationError, match="`P` must be known, not traced"):
        jax.jit(lambda P: distinguishability(P, spread=spread).mu)(
            np.ones((2, 2), bool)
        )


@pytest.mark.parametrize(
    "value", [0, 1, -0.1, 1.5, math.nan, "x", None, True, [0.1, 1.0]]
)
def test_rejects_rates_that_are_none(value):
    found = distinguishability([[1, 1]])
    with pytest.raises(mj.ConfigurationError, match=r"`fpr` must lie in \(0, 1\); got"):
        found.true_positive_rate(value)
    with pytest.raises(
        mj.ConfigurationError, match=r"`delta` must lie in \(0, 1\); got"
    ):
        found.epsilon(value)


def test_rejects_epsilons_and_caps_that_are_none():
    found = distinguishability([[1, 1]])
    for value in (-1.0, math.inf, math.nan):
        with pytest.raises(
            mj.ConfigurationError, match="`epsilon` must hold numbers from 0"
        ):
            found.delta(value)
    with pytest.raises(
        mj.ConfigurationError, match="`privacy_target` must be at least 1; got 0"
    ):
        found.cap(0)
    with pytest.raises(
        mj.ConfigurationError, match="`alone` must be a number from 0; got -1"
    ):
        found.cap(2, alone=-1)


# ---- the definition, exactly


@pytest.mark.long("circulants", "designs", "graphs", "random_cohorts")
@pytest.mark.parametrize("name", FAMILIES)
def test_families_against_the_definition(name):
    small = [
        m for m, _ in FAMILIES[name]() if max(abs(v) for row in m for v in row) < 2**20
    ]
    padded = np.zeros((80, 18, 16), np.int64)  # one compiled program serves all
    for place, matrix in enumerate(small):
        padded[place, : len(matrix), : len(matrix[0])] = matrix
    found = distinguishability(padded, shift=0.5, spread=2.0).mu
    rng = np.random.default_rng(len(name))
    for place, matrix in enumerate(small):
        exposed = oracle.exposed(matrix)
        assert np.flatnonzero(np.isinf(found[place])).tolist() == list(exposed)
        clients = (
            range(len(matrix[0]))
            if len(matrix) < 7
            else rng.integers(0, len(matrix[0]), 2)
        )
        for client in clients:
            exact = exact_mu(matrix, client, shift=Fraction(1, 2), spread=2)
            np.testing.assert_allclose(found[place, client], exact, rtol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["each", "some", "covariance", "singular"])
def test_noise_against_the_definition(kind):
    rng = np.random.default_rng(1)
    # one shape, so one compiled program
    padded, own = np.zeros((6, 6), np.int64), np.eye(6)
    for matrix in random_matrices(60, rng):
        rounds, clients = len(matrix), len(matrix[0])
        if kind in ("each", "some"):
            noise = np.diag(
                rng.integers(0 if kind == "some" else 1, 4, size=rounds) / 4
            )
        else:
            width = rounds + 1 if kind == "covariance" else max(1, rounds - 1)
            factor = rng.integers(-2, 3, size=(rounds, width))
            noise = factor @ factor.T / 4
        padded[:], own[:] = 0, np.eye(6)
        padded[:rounds, :clients], own[:rounds, :rounds] = matrix, noise
        exact_noise = [[Fraction(v) for v in row] for row in noise.tolist()]
        mu = distinguishability(padded, 3, 0.5, own).mu
        known = distinguishability(padded, 3, None, own).mu
        for i in range(clients):
            exact = exact_mu(
                matrix, i, shift=3, spread=Fraction(1, 2), noise=exact_noise
            )
            np.testing.assert_allclose(
                mu[i], exact, rtol=1e-7, err_msg=f"{matrix} {noise}"
            )
            alone = [[row[i]] for row in matrix]
            exact = exact_mu(alone, 0, shift=3, noise=exact_noise)
            np.testing.assert_allclose(
                known[i], exact, rtol=1e-7, err_msg=f"{alone} {noise}"
            )


def test_the_cap_by_hand():
    found = mj.privacy.Distinguishability(np.ones(1), shift=3.0, spread=1.5)
    assert found.cap(5) == 1.0  # (3 / 1.5) / sqrt(4)
    assert found.cap(1) == math.inf
    assert found.cap(1, alone=0.5) == 0.5
    assert found.cap(4, alone=2.0) == 1.0  # 1/4 by the noise, 3/4 by three others


@pytest.mark.long
def test_one_round_and_blocks_have_closed_forms():
    for size in (2, 3, 12):
        mu = distinguishability(np.ones((1, size), bool), 0.3, 0.2).mu
        np.testing.assert_allclose(mu, 1.5 / math.sqrt(size - 1), rtol=1e-12)
    rng = np.random.default_rng(2)
    for target in (1, 2, 3, 4):
        pattern = rng.random((60, 5)) < 0.5
        blocks = np.zeros((60, 20), bool)
        blocks[:, : 5 * target] = np.repeat(pattern, target, axis=1)
        found = distinguishability(blocks, 2.0, 0.5)
        # the sums determine each block's: the cap is attained, and never exceeded
        np.testing.assert_allclose(found.mu[: 5 * target], found.cap(target), rtol=1e-9)
        noisy = distinguishability(blocks, 2.0, 0.5, noise=7.0)
        alone = distinguishability(blocks, 2.0, None, noise=7.0).mu
        for mu, own in zip(noisy.mu, alone, strict=True):
            assert mu <= noisy.cap(target, alone=own) * (1 + 1e-12)
            assert own >= mu


def test_correlated_noise_is_that_of_the_sums():
    # C y + z shows the sums with noise C^-1 z of covariance (C^T C)^-1
    rng = np.random.default_rng(3)
    lower = np.tril(rng.uniform(0.1, 1, (4, 4)))
    history = rng.integers(0, 2, (4, 6))
    noise = 0.25 * np.linalg.inv(lower.T @ lower)
    mu = distinguishability(history, spread=None, noise=noise).mu
    # of C p, whose noise is independent
    released = np.linalg.norm(lower @ history, axis=0) / 0.5
    np.testing.assert_allclose(mu, released, rtol=1e-9)


@pytest.mark.long
def test_clients_without_a_figure():
    found = distinguishability([[1, 1, 0, 1], [0, 0, 0, 1]], coalition=[1])
    assert found.mu[[0, 3]].tolist() == [math.inf, math.inf]
    assert found.mu[2] == 0
    assert math.isnan(found.mu[1])
    assert repr(found) == (
        "Distinguishability(clients: 4; shift: 1, the others Gaussian with spread 1; "
        "mu: largest "
        "inf, median inf; 2: exposed (mu is infinite); 1: in no sum: no figure (mu is "
        "0); "
        "1: in the coalition: no figure (mu is nan))"
    )
    assert "in no sum" in found._repr_html_()
    known = distinguishability([[1, 1, 0, 1]], spread=None, noise=4.0, coalition=[1])
    np.testing.assert_array_equal(known.mu, [0.5, math.nan, 0.0, 0.5])
    for figure, ends in (
        (found.true_positive_rate(0.25), [1, math.nan, 0.25, 1]),
        (found.epsilon(0.25), [math.inf, math.nan, 0, math.inf]),
        (found.delta(3.0), [1, math.nan, 0, 1]),
        (found.advantage, [1, math.nan, 0, 1]),
    ):
        np.testing.assert_array_equal(figure, ends)


def test_figures_have_the_shape_of_what_is_asked_and_of_the_clients():
    histories = np.asarray([[[1, 1, 1]], [[1, 1, 0]]])
    found = distinguishability(histories)
    assert found.mu.shape == found.advantage.shape == (2, 3)
    asked = [[0.1, 0.2, 0.3, 0.4]]
    for figure in (found.true_positive_rate, found.epsilon, found.delta):
        assert figure(0.1).shape == (2, 3)
        assert figure(asked).shape == (1, 4, 2, 3)
        np.testing.assert_array_equal(figure(asked)[0, 1], figure(0.2))
    for place in (0, 1):
        np.testing.assert_array_equal(
            found.mu[place], distinguishability(histories[place]).mu
        )


@pytest.mark.long
def test_a_coalition_is_a_history_without_its_members():
    rng = np.random.default_rng(4)
    for _ in range(10):
        history = rng.integers(0, 2, (5, 7))
        members = sorted(rng.choice(7, int(rng.integers(1, 4)), replace=False).tolist())
        others = [i for i in range(7) if i not in members]
        # of one shape, so that one compiled program serves all
        left = np.zeros_like(history)
        left[:, : len(others)] = history[:, others]
        for noise in (0.0, 0.5):
            mu = distinguishability(history, noise=noise, coalition=members).mu
            rest = distinguishability(left, noise=noise).mu[: len(others)]
            np.testing.assert_allclose(mu[others], rest, rtol=1e-9)
            assert np.isnan(mu[members]).all()


@pytest.mark.long
def test_more_noise_spread_and_fewer_rounds_hide_no_less():
    rng = np.random.default_rng(5)
    history = rng.integers(0, 2, (8, 6))
    for first, second in itertools.pairwise(
        [
            distinguishability(history, spread=None, noise=0.1),
            distinguishability(history, noise=0.1, spread=0.01),
            distinguishability(history, noise=0.1),
            distinguishability(history, noise=0.2),
            distinguishability(history[:5], noise=0.2),
            distinguishability(history[:5], noise=0.2, spread=2.0),
        ]
    ):
        assert (second.mu <= first.mu * (1 + 1e-12)).all()


# ---- what mu stands for


@pytest.mark.long
def test_figures_of_mu_are_consistent():
    mu = np.concatenate([10.0 ** np.arange(-6, 3.5, 0.5), [0.0]])
    found = mj.privacy.Distinguishability(mu, 1.0, 1.0)
    for delta in (1e-300, 1e-12, 1e-5, 0.3, 0.999):
        epsilon = found.epsilon(delta)
        is_open = found.advantage > delta
        assert (epsilon[~is_open] == 0).all()
        attained = found.delta(epsilon)[np.arange(len(mu)), np.arange(len(mu))]
        np.testing.assert_allclose(attained[is_open], delta, rtol=1e-10)
    # (epsilon, delta) bounds every test: TPR <= e^epsilon FPR + delta, attained by the
    # best one
    rates = 10.0 ** -np.arange(0.25, 9, 0.25)
    power = found.true_positive_rate(rates)
    for epsilon in (0.0, 0.1, 1.0, 5.0):
        most = (power - math.exp(epsilon) * rates[:, None]).max(axis=0)
        assert (most <= found.delta(epsilon) + 1e-12).all()
    dense = np.linspace(1e-6, 1 - 1e-6, 4001)
    for value in (0.5, 1.0, 2.0):
        one = mj.privacy.Distinguishability(np.asarray([value]), 1.0, 1.0)
        gap = one.true_positive_rate(dense)[:, 0] - math.e * dense
        np.testing.assert_allclose(gap.max(), one.delta(1.0)[0], atol=1e-6)
