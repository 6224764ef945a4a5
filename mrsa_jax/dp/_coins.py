"""Clients who each join by a separate coin, against those who do not see who took part.

Then a round without client i has the law N(y, s^2), and with it the mixture of N(y,
s^2) and N(y + x, s^2) by its coin, for any y: the others' coins do not depend on it.
Rounds compose, so `dp_accounting`'s privacy loss distribution of the sampled Gaussian
is that of the whole training.

**What floats reach.** The library composes by a Fourier transform in float64, and
counts 1e-15 as lost whatever it is asked: delta errs by `rounding_of` the rounds. It is
taken off, and a delta that is not well above it has no distribution at all. There the
Renyi divergences bound epsilon, which are sums of positive terms and hold for every
delta: with P the mixture, Q = N(0, z^2),

    log E_Q (P/Q)^a = log sum_k C(a, k) (1-q)^(a-k) q^k exp(k (k-1) / (2 z^2))

for integers a, convex in a, so that between two integers the chord is no less. The
other direction is no larger.

Sources: Mironov, Talwar, Zhang, "Renyi differential privacy of the sampled Gaussian
mechanism" (2019), for the sum and both directions; Canonne, Kamath, Steinke, "The
discrete Gaussian for differential privacy" (2020), Proposition 12, for epsilon from it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_watch._base.errors import needed

# of privacy losses, which are rounded up to multiples of it, or down: the finest
_STEP = 1e-4
_COARSEST = 1.0  # what needs more is left to the Renyi divergences
# of all rounds and of one: some seconds on a core
_MOST_CELLS, _MOST_OF_ONE = 2**21, 2**18
_FAR = 10.0  # standard deviations to which noise is followed
_SURELY = 10.0  # a delta below this many times its rounding is out of reach
# Schemes round their coins to multiples of 2^-32: bounds hold of the coin that was
# asked for, too.
_HALF_A_WORD = 2.0**-33
# dp_accounting bounds what all rounds lose by exponential moments of limited orders
_OF_ONE, _DEVIATIONS = 4.5, 18.0

_INTEGERS = np.unique(
    np.concatenate([np.arange(1, 65), np.rint(2 ** np.arange(6, 16.1, 0.25))])
)
ORDERS = np.concatenate(
    [np.arange(1.02, 2.0, 0.02), np.arange(2.0, 16.0, 0.1), _INTEGERS[15:]]
)
"""Of the Renyi divergences."""


def privacy_loss_distribution() -> Any:
    """Return dp_accounting's module of that name, which an extra brings."""
    rule = "distributions of privacy losses need the package dp_accounting"
    return needed("dp_accounting.pld.privacy_loss_distribution", "dp-accounting", rule)


def rounding_of(rounds: int) -> float:
    """Bound the rounding error of delta of a composed distribution.

    Some tens of times the error that was seen.

    Against Gaussians, whose delta is known: 1e-15 after one round and 2e-13 after
    10,000.
    """
    return 4e-15 + 1e-15 * rounds


def is_in_reach(delta: float, rounds: int) -> bool:
    """Return whether floats tell such a delta from rounding."""
    return delta >= _SURELY * rounding_of(rounds)


def least_epsilon(losses: Any, delta: float, rounds: int) -> float:
    """Return an epsilon that is not above that of losses which are rounded down.

    Args:
        losses: An optimistic `PrivacyLossDistribution` of all rounds.
        delta: At which it is.
        rounds: That were composed.

    Returns:
        0 where delta is out of floats' reach.
    """
    if not is_in_reach(delta, rounds):
        return 0.0
    return float(losses.get_epsilon_for_delta(delta + rounding_of(rounds)))


def log_moments(coin: float, noise_multiplier: float) -> Float64[np.ndarray, " orders"]:
    """Return bounds of log E_Q (P/Q)^a of one round at `ORDERS`.

    Examples:
        >>> moments = log_moments(1.0, 2.0)  # of a plain Gaussian: a (a - 1) / (2 z^2)
        >>> (moments / (ORDERS - 1))[-1] * 2 * 2.0**2 / ORDERS[-1] - 1 < 1e-11
        np.True_
    """
    from scipy.special import gammaln, logsumexp

    with np.errstate(divide="ignore"):
        away, joins = np.log1p(-coin), np.log(coin)
    moments = [0.0]
    for order in _INTEGERS[1:]:
        k = np.arange(order + 1)
        ways = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        # 0 times a logarithm of 0 is nothing
        stays = np.where(k < order, (order - k) * away, 0.0) if coin < 1 else 0.0 * k
        terms = ways + stays + k * joins + k * (k - 1) / (2 * noise_multiplier**2)
        moments.append(float(logsumexp(terms) if coin < 1 else terms[-1]))
    # A little more than computed, for the rounding of float64; order 1 has moment 0
    # exactly.
    rounded = np.array(moments) * (1 + 1e-12) + 1e-13 * (_INTEGERS > 1)
    # The log moment is convex in the order, so a chord is an upper bound.
    return np.interp(ORDERS, _INTEGERS, rounded)


def step_of(coin: float, rounds: int, noise_multiplier: float) -> float:
    """Return the step of a grid of losses that bounds time and memory.

    Examples:
        >>> step_of(0.1, 100, 4.0), step_of(0.1, 100, 0.1) > 1e-4
        (0.0001, True)
    """
    scale = 2 * noise_multiplier**2
    with np.errstate(divide="ignore"):
        away, joins = np.log1p(-coin), np.log(coin)

    def loss(release: Any) -> Any:
        return np.logaddexp(away, joins + (2 * release - 1) / scale)

    far = _FAR * noise_multiplier
    width = float(loss(1 + far) - loss(-far))
    normal = np.linspace(-_FAR, _FAR, 401)
    density = np.exp(-(normal**2) / 2)
    weights = np.concatenate([(1 - coin) * density, coin * density]) / density.sum()
    losses = loss(
        np.concatenate([noise_multiplier * normal, 1 + noise_multiplier * normal])
    )
    deviation = math.sqrt(weights @ (losses - weights @ losses) ** 2)
    every = min(
        rounds * width, _OF_ONE * width + _DEVIATIONS * deviation * math.sqrt(rounds)
    )
    return max(_STEP, every / _MOST_CELLS, width / _MOST_OF_ONE)


@dataclasses.dataclass(frozen=True, eq=False)
class Losses:
    """Privacy losses of one client's rounds.

    They are rounded so that epsilon is never too small.

    Attributes:
        above: `PrivacyLossDistribution`, rounded up; None where its grid would be too
            coarse.
        below: The same, rounded down.
        moments: Of all rounds, at `ORDERS`: `log_moments` times the rounds.
        rounds: J.
    """

    above: Any
    below: Any
    moments: Float64[np.ndarray, " orders"]
    rounds: int

    @staticmethod
    @functools.lru_cache(maxsize=4)  # T leaves one client's coin as it is
    def of(coin: float, rounds: int, noise_multiplier: float) -> Losses:
        """Return the losses of a client who joins each of J rounds by a coin.

        Its chance is above 0.
        """
        library = privacy_loss_distribution()
        # who joins more often loses no less
        more = min(coin + _HALF_A_WORD, 1.0)
        # Never below half of the coin: the lower bound must not reach 0 for tiny coins.
        less = coin if coin == 1 else max(coin - _HALF_A_WORD, coin / 2)
        moments = rounds * log_moments(more, noise_multiplier)
        step = step_of(more, rounds, noise_multiplier)
        if not step <= _COARSEST:
            return Losses(None, None, moments, rounds)

        def composed(is_above: bool) -> Any:
            return library.from_gaussian_mechanism(
                noise_multiplier,
                value_discretization_interval=step,
                pessimistic_estimate=is_above,
                use_connect_dots=is_above,
                sampling_prob=more if is_above else less,
            ).self_compose(rounds)

        return Losses(
            composed(is_above=True), composed(is_above=False), moments, rounds
        )

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, rounded up."""
        orders = ORDERS - 1
        logarithms = self.moments - orders * epsilon + orders * np.log1p(-1 / ORDERS)
        by_moments = float(np.exp(np.minimum(logarithms - np.log(ORDERS), 0.0)).min())
        if self.above is None:
            return by_moments
        composed = float(self.above.get_delta_for_epsilon(epsilon)) + rounding_of(
            self.rounds
        )
        return min(by_moments, composed)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon with which delta is kept, rounded up."""
        orders = ORDERS - 1
        spent = (self.moments - math.log(delta) - np.log(ORDERS)) / orders + np.log1p(
            -1 / ORDERS
        )
        by_moments = max(0.0, float(spent.min()))
        if self.above is None or not is_in_reach(delta, self.rounds):
            return by_moments
        reduced = delta - rounding_of(self.rounds)
        return min(by_moments, float(self.above.get_epsilon_for_delta(reduced)))

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return that epsilon rounded down, 0 out of floats' reach, and rounded up."""
        del error
        upper = self.epsilon(delta)
        if self.below is None:
            return 0.0, upper
        return least_epsilon(self.below, delta, self.rounds), upper
