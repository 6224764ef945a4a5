"""Canaries: the measured mu is what noise of a known law allows, and too little noise is found."""

import dataclasses
from statistics import NormalDist

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.attacks import CanaryScores

LAW = NormalDist()
HISTORY = np.asarray([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]], bool)
TRIALS = 1500


@pytest.fixture(scope="module")
def mechanism() -> mj.dp.RingMechanism:
    return mj.dp.ring_mechanism("skellam", 1.0, 2.0, dim=16, num_clients=3, modulus_bits=22)


def ledger_of(planned: int = 3) -> np.ndarray:
    return mj.dp.ledger(HISTORY, 1.0, 2.0, planned=planned).mu


def spread_of(trials: int, mu: float) -> float:
    """Return the standard error of the standardised difference of two means."""
    return float(np.sqrt(2 / trials + mu**2 / (4 * trials)))


def test_known_others_leave_what_the_ledger_says(mechanism: mj.dp.RingMechanism) -> None:
    """Sums of 3, 2 and 3 clients, whose noise is 3/3, 2/3 and 3/3 of what was planned."""
    audit = mj.attacks.canaries(0, mechanism)
    mu = audit.test(HISTORY).mu
    assert mu == pytest.approx(np.sqrt(2.0), rel=1e-6)
    np.testing.assert_allclose(ledger_of()[:2], [mu, np.sqrt(1.0 + 1.5 + 1.0)], rtol=1e-6)
    scores = audit.play(0, HISTORY, TRIALS)
    # the ring's rounding is far below the noise of 22 bits: what is measured is mu
    assert abs(scores.mu - mu) < 4 * spread_of(TRIALS, mu)
    lower, upper = scores.interval(mu / 2)
    assert lower < mu < upper
    # both laws are N(0, 1) but for the shift, so that rates are those of the formula
    for fpr in (0.02, 0.3):
        threshold = LAW.inv_cdf(1 - fpr)
        for measured, exact in (
            ((scores.without > threshold).mean(), fpr),
            ((scores.shifted > threshold).mean(), 1 - LAW.cdf(threshold - mu)),
        ):
            assert abs(measured - exact) < 4.5 * np.sqrt(exact * (1 - exact) / TRIALS)


def test_less_noise_than_the_ledger_counts_is_refuted(mechanism: mj.dp.RingMechanism) -> None:
    """Clients who add a quarter of the noise: the lower end passes the ledger's mu."""
    weak = dataclasses.replace(mechanism, noise=mj.dp.skellam(mechanism.noise.variance / 4))
    lower, _ = mj.attacks.canaries(0, weak).play(1, HISTORY, TRIALS).interval(np.sqrt(2.0))
    assert lower > ledger_of()[0]


def test_unknown_others_hide_more(mechanism: mj.dp.RingMechanism) -> None:
    audit = mj.attacks.canaries(1, mechanism, spread=0.4)
    noise = mechanism.noise.variance * np.maximum(HISTORY.sum(axis=1), 1)
    formula = mj.privacy.distinguishability(HISTORY, 2.0, 0.4, noise).mu[1]
    assert audit.test(HISTORY).mu == pytest.approx(formula, rel=1e-9)
    assert formula < ledger_of()[1]
    assert abs(audit.play(2, HISTORY, TRIALS).mu - formula) < 4 * spread_of(TRIALS, formula)


def test_the_interval_holds_whatever_the_scores_are() -> None:
    """It covers mu of normal scores, and of two that never meet says what their number allows."""
    rng = np.random.default_rng(5)
    for mu in (0.0, 0.7, 3.0):
        covered = 0
        for _ in range(200):
            scores = CanaryScores(rng.normal(0, 1, 400), rng.normal(mu, 1, 400))
            lower, upper = scores.interval(mu / 2)
            covered += lower <= mu <= upper
        assert covered >= 186  # at least 95 % of 200, but for chance below 1 in 1,000
    lower, upper = CanaryScores(np.zeros(50), np.ones(50)).interval(0.5)
    # 50 of 50: the chance p with p^50 = 0.0125 = (1 - 0.975) / 2, on both sides
    assert lower == pytest.approx(2 * LAW.inv_cdf(0.0125 ** (1 / 50)))
    assert upper == np.inf


def test_misuse_is_named(mechanism: mj.dp.RingMechanism) -> None:
    audit = mj.attacks.canaries
    for wrong in (lambda: audit(-1, mechanism), lambda: audit(9, mechanism).test(HISTORY)):
        with pytest.raises(ConfigurationError, match="`client` must"):
            wrong()
    with pytest.raises(ConfigurationError, match="`mechanism` must be a mechanism"):
        audit(0, mj.dp.skellam(1.0))
    with pytest.raises(ConfigurationError, match="`spread` must be positive and finite; got 0"):
        audit(0, mechanism, spread=0)
    with pytest.raises(ConfigurationError, match="`participation` must hold no weights"):
        audit(0, mechanism).test(2 * HISTORY.astype(int))
    for rows in (HISTORY & False, np.eye(4, dtype=bool)):
        with pytest.raises(ConfigurationError, match="`participation` must hold a sum of two"):
            audit(0, mechanism).play(0, rows, 3)
    with pytest.raises(ConfigurationError, match="`num_trials` must be at least 1; got 0"):
        audit(0, mechanism).play(0, HISTORY, 0)
