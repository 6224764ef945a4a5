"""The best test of a shift.

Its mu is the formula's, and what it attains is what mu says.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax import attacks, privacy
from mrsa_jax._core.statistics import binomial_interval

P = np.asarray([[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 0, 1]])
# of the intervals: a test of this file fails by chance once in 10,000 runs
SURE = 1 - 1e-6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"client": -1}, "`client` must be at least 0; got -1"),
        ({"client": 1.5}, "`client` must be an integer; got 1.5"),
        (
            {"shift": 0.0},
            "`shift` must be a number or a vector, finite and not 0; got 0.0",
        ),
        (
            {"shift": [0.0, 0.0]},
            "`shift` must be a number or a vector, finite and not 0",
        ),
        (
            {"shift": [1.0, math.nan]},
            "`shift` must be a number or a vector, finite and not 0",
        ),
        ({"shift": [[1.0]]}, "`shift` must be a number or a vector, finite and not 0"),
        ({"shift": "1"}, "`shift` must be a number or a vector, finite and not 0"),
        ({"spread": 0}, "`spread` must be positive and finite; got 0"),
        ({"noise": -1.0}, "`noise` must hold no negative variance; got -1.0"),
        ({"noise": [1.0, math.nan]}, "`noise` must be finite; got nan"),
        ({"kernel": np.eye(3) - 2}, "`kernel` must hold no negative variance"),
        ({"kernel": 2 - np.eye(3)}, "`kernel` must be a positive semidefinite"),
        ({"kernel": np.ones((2, 3))}, "`kernel` must be one number, or of shape"),
        (
            {"kernel": [1.0, 2.0]},
            r"`kernel` must be a matrix \[rounds, rounds\]; got \(2,\)",
        ),
    ],
)
def test_rejects_bad_settings(wrong, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        attacks.distinguish(**{"client": 0} | wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"client": 4},
            "`client` must be one of the 4 clients of `participation`; got 4",
        ),
        (
            {"client": 0, "noise": [1.0, 2.0]},
            r"`noise` must be one number, or of shape \[3\]",
        ),
        (
            {"client": 0, "kernel": np.eye(2)},
            "`kernel` must be one number, or of shape",
        ),
    ],
)
def test_rejects_what_does_not_fit_the_rounds(settings, message):
    attack = attacks.distinguish(**settings)
    view = attacks.views.AggregateView(P, np.zeros((3, 1)))
    for use in (
        attack.test,
        lambda P: attack.play(0, P, 5),
        lambda P: attack.run(None, view),
    ):
        with pytest.raises(mj.ConfigurationError, match=message):
            use(P)


def test_rejects_views_and_trials():
    attack = attacks.distinguish(0, [1.0, 1.0])
    for sums in (
        np.zeros((3, 1)),
        np.zeros((2, 2)),
        np.full((3, 2), np.nan),
        np.zeros(3),
    ):
        with pytest.raises(
            mj.ConfigurationError, match="`aggregates` must be finite, with a row"
        ):
            attack.run(None, attacks.views.AggregateView(P, sums))
    with pytest.raises(
        mj.ConfigurationError, match="`num_trials` must be at least 1; got 0"
    ):
        attack.play(0, P, 0)
    with pytest.raises(
        mj.ConfigurationError, match=r"`participation` must be \[rounds, clients\]"
    ):
        attack.test(P[None])


@pytest.mark.long
def test_its_mu_is_the_formulas():
    rng = np.random.default_rng(0)
    for noise in (0.0, 0.3, "each", "all"):
        for _ in range(12):
            history = rng.integers(-1, 3, (5, 6))
            factor = rng.normal(size=(5, 5))
            own = {"each": rng.integers(0, 2, 5) * 0.5, "all": factor @ factor.T}.get(
                noise, noise
            )
            formula = privacy.distinguishability(history, 1.5, 0.5, own).mu
            known = privacy.distinguishability(history, 1.5, None, own).mu
            for i in range(6):
                test = attacks.distinguish(i, 1.5, spread=0.5, noise=own).test(history)
                np.testing.assert_allclose(test.mu, formula[i], rtol=1e-6)
                test = attacks.distinguish(i, 1.5, spread=None, noise=own).test(history)
                np.testing.assert_allclose(test.mu, known[i], rtol=1e-6)


def test_kernels_by_their_limits():
    # alike in all rounds: as without; unlike: a test for each round, composed
    one = attacks.distinguish(0, kernel=np.ones((3, 3))).test(P)
    np.testing.assert_allclose(one.mu, attacks.distinguish(0).test(P).mu, rtol=1e-9)
    apart = attacks.distinguish(0, 2.0, kernel=np.eye(3)).test(P)
    sizes = P.sum(axis=1)[P[:, 0] == 1]
    np.testing.assert_allclose(apart.mu**2, (4 / (sizes - 1)).sum(), rtol=1e-12)


def test_a_view_is_scored_along_the_shift():
    shift = np.asarray([3.0, 4.0])
    attack = attacks.distinguish(0, shift)
    test = attack.test(P)
    rng = np.random.default_rng(1)
    sums = P @ rng.normal(size=(4, 2))
    score = attack.run(None, attacks.views.AggregateView(P, sums))
    shifted = attack.run(
        None, attacks.views.AggregateView(P, sums + np.outer(P[:, 0], shift))
    )
    np.testing.assert_allclose(shifted - score, test.mu, rtol=1e-9)
    np.testing.assert_allclose(score, test.scores(sums @ shift / 5), rtol=1e-9)
    across = attack.run(
        None, attacks.views.AggregateView(P, sums + np.outer(P[:, 0], [4.0, -3.0]))
    )
    np.testing.assert_allclose(across, score, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("kernel", [None, 0.9 * np.ones((8, 8)) + 0.1 * np.eye(8)])
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_simulated_rounds_attain_the_formula(noise, kernel):
    rng = np.random.default_rng(2)
    history, trials = rng.random((8, 12)) < 0.5, 20_000
    attack = attacks.distinguish(3, 0.8, noise=noise, kernel=kernel)
    test, (without, shifted) = attack.test(history), attack.play(7, history, trials)
    if kernel is None:
        formula = privacy.distinguishability(history, 0.8, noise=noise)
        np.testing.assert_allclose(test.mu, formula.mu[3], rtol=1e-9)
    assert 0.3 < test.mu < 5
    for rate in (0.001, 0.01, 0.1, 0.5):
        threshold = stats.norm.isf(rate)
        for scores, expected in (
            (without, rate),
            (shifted, stats.norm.sf(threshold - test.mu)),
        ):
            low, high = binomial_interval(int((scores > threshold).sum()), trials, SURE)
            assert low <= expected <= high
    for scores, mean in ((without, 0.0), (shifted, test.mu)):
        assert stats.kstest(scores - mean, "norm").pvalue > 1e-6


def test_no_other_linear_statistic_does_better():
    rng = np.random.default_rng(3)
    history = rng.integers(0, 2, (5, 7))
    attack = attacks.distinguish(2, noise=0.2)
    column, others = history[:, 2], np.delete(history, 2, axis=1)
    covariance = others @ others.T + 0.2 * np.eye(5)
    for weights in itertools.chain(rng.normal(size=(500, 5)), np.eye(5)):
        assert (weights @ column) ** 2 <= attack.test(history).mu ** 2 * (
            weights @ covariance @ weights
        ) * (1 + 1e-9)


def test_who_is_exposed_is_told_with_certainty():
    history = np.asarray([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]])
    for own in ({}, {"noise": [0.0, 0.0, 2.0]}, {"kernel": 3 * np.ones((3, 3))}):
        attack = attacks.distinguish(0, 0.1, spread=5.0, **own)
        assert attack.test(history).mu == math.inf
        without, shifted = attack.play(0, history, 1000)
        assert (without == -math.inf).all()
        assert (shifted == math.inf).all()
    # as his rounds are not told together when the others' updates change
    assert attacks.distinguish(0, kernel=np.eye(3)).test(history).mu < 1


def test_a_client_in_no_sum_has_no_figure():
    attack = attacks.distinguish(1)
    history = np.asarray([[1, 0, 1]])
    assert attack.test(history).mu == 0
    without, shifted = attack.play(0, history, 10)
    assert not without.any()
    assert not shifted.any()
    # and with the others known and no noise, all who took part are exposed
    assert attacks.distinguish(0, spread=None).test(history).mu == math.inf
