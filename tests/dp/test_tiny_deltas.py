"""Accounts at deltas that floats do not reach, against 60 digits; and at little noise."""

import functools
import math

import mpmath
import numpy as np
import pytest

from mrsa_jax import availability, selection
from mrsa_jax.dp import _coins, account, amplification
from mrsa_jax.dp._coins import ORDERS, Losses, log_moments, step_of

ALWAYS = functools.cache(lambda: availability.independent(0.0))


def upper_tail(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def delta_of_a_round(q, z, epsilon):
    """Return delta of one round with a client's own coin, the worse of both directions."""
    q, z, ratio = mpmath.mpf(q), mpmath.mpf(z), mpmath.e**epsilon
    # where the mixture is as many times as likely as the Gaussian
    at = z**2 * mpmath.log((ratio - 1 + q) / q) + mpmath.mpf(1) / 2
    found = (1 - q - ratio) * upper_tail(at / z) + q * upper_tail((at - 1) / z)
    if 1 / ratio > 1 - q:
        at = z**2 * mpmath.log((1 / ratio - 1 + q) / q) + mpmath.mpf(1) / 2
        without, with_it = upper_tail(-at / z), upper_tail((1 - at) / z)
        found = max(found, without - ratio * ((1 - q) * without + q * with_it))
    return found


def gaussian_delta(mu, epsilon):
    mu = mpmath.mpf(mu)
    return upper_tail(epsilon / mu - mu / 2) - mpmath.e**epsilon * upper_tail(
        epsilon / mu + mu / 2
    )


def epsilon_at(delta_of, delta):
    """Return where a falling function reaches delta, by bisection with 60 digits."""
    with mpmath.workdps(60):
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        if delta_of(low) <= delta:
            return 0.0
        while delta_of(high) > delta:
            high *= 2
        for _ in range(56):
            middle = (low + high) / 2
            low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
        return float(middle)


def check_round(q, z, deltas):
    coins = selection.bernoulli(3, q)
    for delta in deltas:
        truth = epsilon_at(lambda epsilon: delta_of_a_round(q, z, epsilon), delta)
        found = account(coins, ALWAYS(), 1, z, delta, adversary="models")
        lower, upper = found.lower[0], found.upper[0]
        assert lower <= truth <= upper, (q, z, delta)
        assert upper <= account(coins, ALWAYS(), 1, z, delta).upper[0], (q, z, delta)
        assert lower == 0 or lower > 0.99 * truth - 1e-3
        with mpmath.workdps(60):
            # the scheme's coin is q to ten digits
            assert delta_of_a_round(q, z, upper) * (1 - 1e-6) <= found.delta(upper)[0]


def test_an_account_of_a_tiny_delta_holds():
    check_round(0.1, 3.0, [1e-5, 1e-12, 1e-14, 1e-18])


@pytest.mark.long("0.001-1.5", "0.01-0.8", "0.1-1.0", "0.5-5.0", "0.9-2.0")
@pytest.mark.parametrize(
    ("q", "z"), [(0.1, 1.0), (0.01, 0.8), (0.9, 2.0), (0.5, 5.0), (1e-3, 1.5)]
)
def test_accounts_hold_at_sixty_points(q, z):
    check_round(q, z, [10.0**-k for k in (2, 4, 6, 8, 10, 12, 13, 14, 15, 16, 17, 18)])


@pytest.mark.long("100-4.0", "1000-10.0", "10000-30.0", "4-1.0")
@pytest.mark.parametrize(
    ("rounds", "z"), [(4, 1.0), (100, 4.0), (1000, 10.0), (10_000, 30.0)]
)
def test_composed_accounts_hold_where_everybody_joins(rounds, z):
    mu = math.sqrt(rounds) / z
    everybody = selection.bernoulli(2, 1.0)
    for delta in (1e-5, 1e-9, 1e-11, 1e-12, 1e-13, 1e-15, 1e-18):
        truth = epsilon_at(lambda epsilon: gaussian_delta(mu, epsilon), delta)
        settings = {"adversary": "models", "method": "amplified"}
        amplified = account(everybody, ALWAYS(), rounds, z, delta, **settings)
        assert amplified.lower[0] <= truth <= amplified.upper[0], delta
        # the mean over histories is the law itself here, and the least of both is taken
        best = account(everybody, ALWAYS(), rounds, z, delta, adversary="models")
        assert best.epsilon[0] == pytest.approx(truth, rel=1e-6)
        assert best.lower[0] <= best.upper[0]


def test_averages_over_counts_hold_at_tiny_deltas():
    q, z, rounds = 0.3, 2.0, 3
    chances = [
        math.comb(rounds, k) * q**k * (1 - q) ** (rounds - k) for k in range(rounds + 1)
    ]
    for delta in (1e-5, 1e-12, 1e-18):

        def mean(epsilon):
            each = (
                p * gaussian_delta(mpmath.sqrt(k) / z, epsilon)
                for k, p in enumerate(chances)
                if k
            )
            return sum(each)

        found = account(selection.bernoulli(2, q), ALWAYS(), rounds, z, delta)
        assert found.epsilon[0] == pytest.approx(epsilon_at(mean, delta), rel=1e-9)


@pytest.mark.long
def test_the_least_of_the_bounds_that_hold_is_taken():
    # the distribution of losses ends before this delta, and a bound by histories does
    # not
    coins = selection.poisson(3, [0.01, 0.5, 0.0])
    for delta in (1e-5, 1e-15):
        settings = (coins, ALWAYS(), 50, 4.0, delta)
        found = account(*settings, adversary="models")
        each = [
            account(*settings, adversary="models", method=method)
            for method in ("amplified", "pattern_averaged")
        ]
        assert np.isfinite(found.upper).all()
        assert (found.epsilon == np.minimum(each[0].epsilon, each[1].epsilon)).all()
        assert found.delta(1.0) == pytest.approx(
            np.minimum(each[0].delta(1.0), each[1].delta(1.0))
        )
        assert (found.lower == np.minimum(each[0].lower, found.upper)).all()
        worst = int(np.argmax(found.epsilon))
        named = each[0] if found.method == "amplified" else each[1]
        assert found.epsilon[worst] == named.epsilon[worst]


@pytest.mark.long
def test_little_noise_ends_and_tells_progress():
    calls = []
    coins = selection.poisson(2, [0.1, 0.2])
    found = account(
        coins,
        ALWAYS(),
        5,
        0.1,
        adversary="models",
        method="amplified",
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(0, 2), (1, 2), (2, 2)]
    assert (found.lower <= found.upper).all()
    assert (found.lower > 0.99 * found.upper).all()
    # every grid would be too coarse: Renyi divergences alone
    least = account(selection.bernoulli(2, 0.1), ALWAYS(), 10, 1e-4, adversary="models")
    assert least.lower[0] == 0
    assert np.isfinite(least.upper[0])


@pytest.mark.long(
    "0.02-0.2",
    "0.02-0.999",
    "0.02-1.0",
    "0.02-1e-06",
    "1.0-0.999",
    "1.0-1.0",
    "1.0-1e-06",
    "50.0-0.2",
    "50.0-0.999",
    "50.0-1.0",
    "50.0-1e-06",
)
@pytest.mark.parametrize("q", [1e-6, 0.2, 0.999, 1.0])
@pytest.mark.parametrize("z", [0.02, 1.0, 50.0])
def test_moments_are_no_less_than_their_integral(q, z):
    """Between integers too, where the chord of a convex function stands for it."""
    moments = log_moments(q, z)
    with mpmath.workdps(40):
        for place in (0, 20, 49, 60, 120):
            order = mpmath.mpf(float(ORDERS[place]))

            def term(x, order=order):
                ratio = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * mpmath.mpf(z) ** 2))
                return ratio**order * mpmath.npdf(x, 0, z)

            peak = float(order)
            nodes = sorted(
                {-12 * z, 0, 0.5, 1, peak - 12 * z, peak, peak + 12 * z, 12 * z}
            )
            truth = mpmath.log(mpmath.quad(term, nodes))
            assert truth <= moments[place] * (1 + 1e-9) + 1e-12
            if float(order).is_integer():
                assert moments[place] <= truth * (1 + 1e-6) + 1e-9


def test_grids_are_as_fine_as_they_can_be():
    assert step_of(0.25, 100, 4.0) == step_of(1.0, 1, 1.0) == 1e-4
    assert 1e-4 < step_of(0.1, 100, 0.1) < 1e-2 < step_of(0.1, 10**6, 0.01)
    assert Losses.of(0.5, 1, 1e-3).above is None


@pytest.mark.long
def test_blocks_claim_no_loss_that_floats_do_not_see():
    """What blocks lose at the least is 0 out of reach, where it was infinite."""
    assert amplification(12, 6, [1, 3], 20, 2.0, 1e-5).blocks.min() > 0
    found = amplification(12, 6, [1, 3], 20, 2.0, 1e-18)
    assert found.blocks.tolist() == [0, 0]
    assert (found.one_by_one <= found.server).all()
    assert not _coins.is_in_reach(1e-18, 20)
