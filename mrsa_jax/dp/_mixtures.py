"""Mean delta over histories, its epsilon, and intervals from trials.

Whoever sees who takes part sees, in a history with mu, a shift by mu of a Gaussian;
histories have the same law with the client's updates and without, so what it tells
apart is the mean of delta_mu(epsilon) over them, exactly. Whoever sees less tells less
apart.

Of simulated histories the mean is enclosed by betting (Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", 2024). With X in [0, c] of
mean m, the mean over some fixed stakes s in [0, 1] of prod_b (1 + s (delta - X_b) /
(c - delta)) has expectation at most 1 where m >= delta, so it exceeds 1/a with chance
at most a (Markov). An epsilon is left out of the interval where it does; so the
interval holds the true one with the stated chance, for any number of trials and without
any approximation. For m <= delta the same with (X_b - delta) / delta.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Integer

from mrsa_jax._core import gaussian as _gaussian
from mrsa_watch._base.values import by_value

_STAKES = 0.5 ** np.arange(0.0, 14.0, 1.5)
_FACTORS = 16  # that are multiplied before a logarithm is taken
_LARGE = 1e18  # whose power of 16 a float holds
_FOLDED = 1e-40  # chances below are put where mu is largest
_LOOKED_UP = 2**15  # values that stay in cache
_TOLERANCE = 1e-6  # of an interval's ends


@by_value
class Known(NamedTuple):
    """mu of one client over histories, of known law.

    Attributes:
        mu: Its values, the largest last.
        masses: Their chances.
        law: `delta` and `epsilon` by mu: those of a Gaussian, or of integers' noise.
    """

    mu: Float64[np.ndarray, " values"]
    masses: Float64[np.ndarray, " values"]
    law: Any = _gaussian.Gaussian

    @staticmethod
    def of_counts(
        masses: np.ndarray, noise_multiplier: float, law: Any = _gaussian.Gaussian
    ) -> Known:
        """Return the law of a client who is in m rounds with chance `masses[m]`."""
        counts = masses > _FOLDED
        counts[-1] = True
        mu = np.sqrt(np.flatnonzero(counts)) / noise_multiplier
        chances = masses[counts]
        # The rare counts are moved to the largest mu, where delta is largest: an upper
        # bound.
        chances[-1] += masses[~counts].sum()
        return Known(mu, chances, law)

    def delta(self, epsilon: float) -> float:
        """Return the mean of delta over histories."""
        return float(self.law.delta(self.mu, epsilon) @ self.masses)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon with which the mean is at most delta."""
        return root(self.delta, float(self.law.epsilon(self.mu[-1], delta)), delta)

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return that epsilon twice."""
        del error
        return (self.epsilon(delta),) * 2


@dataclasses.dataclass(frozen=True)
@by_value
class Sampled:
    """Simulated mu of clients with equal laws, several in each trial.

    Attributes:
        mu: Its values.
        places: Integer `[trials, members]`, which of them each has.
        most: No history gives more.
        budget: A trial's values of mu^2 have at most this mean over the members.
        times: float64 `[trials]`, of how many trials each row is; of one each if None.
        law: As in `Known`.
        rare: Chance of histories whose mu may be larger than its value here.
    """

    mu: Float64[np.ndarray, " values"]
    places: Integer[np.ndarray, "trials members"]
    most: float
    budget: float
    times: Float64[np.ndarray, " trials"] | None = None
    law: Any = _gaussian.Gaussian
    rare: float = 0.0

    @staticmethod
    def of_counts(mu: np.ndarray, counts: np.ndarray, budget: float) -> Sampled:
        """Return the sample of clients who are in `counts` rounds.

        The last of mu is the largest.
        Of a single client it is a row for each count that occurs.
        """
        most = float(mu[-1])
        least = counts.min()
        if counts.shape[1] > 1:
            return Sampled(mu[least : counts.max() + 1], counts - least, most, budget)
        times = np.bincount(counts[:, 0], minlength=len(mu))
        seen = np.flatnonzero(times)
        places = np.arange(len(seen))[:, None]
        return Sampled(mu[seen], places, most, budget, times[seen].astype(np.float64))

    @functools.cached_property
    def masses(self) -> Float64[np.ndarray, " values"]:
        """Frequency of each value of mu, over all trials and members."""
        members = self.places.shape[1]
        times = None if self.times is None else np.repeat(self.times, members)
        counts = np.bincount(self.places.ravel(), times, minlength=len(self.mu))
        return counts / counts.sum()

    def delta(self, epsilon: float) -> float:
        """Return the mean of delta over trials and members."""
        return float(self.law.delta(self.mu, epsilon) @ self.masses) + self.rare

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon whose mean is at most delta: an estimate."""
        return root(self.delta, self._highest(delta), delta)

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return an interval for epsilon of the true mean, with chance 1 - error."""
        bets = _Bets(self._means, self.cap, delta, self.rare, self.times)
        ends = self.epsilon(delta), self._highest(delta)
        return bets.interval(*ends, np.log(2.0 / error))

    def trials_wanted(self, delta: float, error: float) -> int:
        """Count the trials that would leave a tenth of delta for unseen histories."""
        return unseen(self.cap(self.epsilon(delta)), delta, error)

    def cap(self, epsilon: float) -> float:
        """Return a number that no trial's mean of delta exceeds.

        For any slope, delta_mu <= slope mu^2 + (the largest difference), and the mean
        of mu^2 is at most the budget.
        """
        grid = self.most * np.sqrt(np.linspace(0.0, 1.0, 257))
        # delta grows with mu: on each piece it is at most its value at the piece's
        # right end
        values, squares = self.law.delta(grid[1:], epsilon), np.square(grid[:-1])
        slopes = values[-1] / self.most**2 * np.append(0.0, 2.0 ** np.arange(-6.0, 7.0))
        # delta(mu) <= slope * mu^2 + over on every piece; the mean of mu^2 over members
        # is at most the budget, so the mean of delta is at most slope * budget + over.
        over = (values - slopes[:, None] * squares).max(axis=1)
        bounds = slopes * self.budget + np.maximum(over, 0.0)
        return float(min(values[-1], bounds.min()))

    def _highest(self, delta: float) -> float:
        return float(self.law.epsilon(self.most, delta - self.rare))

    def _means(self, epsilon: float) -> np.ndarray:
        """Return each trial's mean of delta over its members."""
        table = self.law.delta(self.mu, epsilon)
        means = np.empty(len(self.places))
        step = max(1, _LOOKED_UP // self.places.shape[1])
        for start in range(0, len(means), step):
            rows = slice(start, start + step)
            np.mean(table[self.places[rows]], axis=1, out=means[rows])
        return means


class Bounded(NamedTuple):
    """A loss that other losses bound.

    Attributes:
        above: It is none of these's more: the least of them is the figure quoted.
        below: What is lost at the least.
    """

    above: tuple[Any, ...]
    below: Any

    def delta(self, epsilon: float) -> float:
        """Return delta, no smaller than it is."""
        return min(loss.delta(epsilon) for loss in self.above)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon with which that is at most delta."""
        return min(loss.epsilon(delta) for loss in self.above)

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return the lower end of one interval and the least upper end of others."""
        upper = min(loss.interval(delta, error)[1] for loss in self.above)
        return self.below.interval(delta, error)[0], upper


def unseen(cap: float, delta: float, error: float) -> int:
    """Count the trials without a gain that rule out a tenth of delta, of [0, cap]."""
    threshold = np.log(2.0 / error) + np.log(len(_STAKES))
    return int(np.ceil(10.0 * threshold * cap / delta))


def evidence(gains: np.ndarray, times: np.ndarray | None = None) -> float:
    """Return the logarithm of the wealth of bets on gains, a mean over the stakes.

    Args:
        gains: At least -1.
        times: How often each comes; once if None.
    """
    wealth = np.empty(len(_STAKES))
    if times is not None:
        with np.errstate(divide="ignore"):
            wealth = np.log1p(_STAKES[:, None] * gains) @ times
        return _mean_of(wealth)
    factors = _FACTORS if gains.max() < _LARGE else 1
    padded = np.zeros(-(-len(gains) // factors) * factors)
    # A gain of 0 multiplies the wealth by 1: padding changes nothing.
    padded[: len(gains)] = gains
    rows = padded.reshape(factors, -1)
    with np.errstate(divide="ignore"):
        for place, stake in enumerate(_STAKES):
            wealth[place] = np.log(np.prod(1.0 + stake * rows, axis=0)).sum()
    return _mean_of(wealth)


def _mean_of(wealth: np.ndarray) -> float:
    most = wealth.max()
    if not np.isfinite(most):
        return -np.inf
    # Relative to the largest, so that no exponential overflows.
    return float(most + np.log(np.exp(wealth - most).mean()))


def root(mean: Callable[[float], float], highest: float, delta: float) -> float:
    """Find the point at which a falling mean reaches delta.

    From 0 to where it is certainly below.
    """
    from scipy.optimize import brentq

    if highest == 0.0 or mean(0.0) <= delta:
        return 0.0
    tiny = np.finfo(np.float64).tiny

    def excess(epsilon: float) -> float:
        # In logarithms: delta falls over many orders of magnitude.
        return float(np.log(max(mean(epsilon), tiny) / delta))

    if excess(highest) >= 0.0:  # except for rounding, it is below
        return highest
    return float(brentq(excess, 0.0, highest, xtol=1e-12, rtol=1e-12))


class _Bets(NamedTuple):
    """Bets on whether the mean of delta is above its bound, or below.

    Attributes:
        means: Of each trial, a mean of delta at an epsilon.
        cap: A number that none of them exceeds at an epsilon.
        delta: The bound.
        rare: Chance of histories that the means leave out.
        times: How often each trial comes; once if None.
    """

    means: Callable[[float], np.ndarray]
    cap: Callable[[float], float]
    delta: float
    rare: float = 0.0
    times: np.ndarray | None = None

    def interval(
        self, estimate: float, highest: float, threshold: float
    ) -> tuple[float, float]:
        """Return from where to where neither bet has won more than a threshold."""

        def above(epsilon: float) -> float:
            cap = self.cap(epsilon)
            bound = self.delta - self.rare
            if cap <= bound:
                return np.inf
            gains = (bound - self.means(epsilon)) / (cap - bound)
            return evidence(gains, self.times) - threshold

        def below(epsilon: float) -> float:
            gains = self.means(epsilon) / self.delta - 1.0
            return evidence(gains, self.times) - threshold

        lower = 0.0
        if estimate > 0.0 and below(0.0) > 0.0:
            lower = crossing(below, estimate, 0.0)
        return lower, crossing(above, estimate, highest)


def crossing(excess: Callable[[float], float], inside: float, outside: float) -> float:
    """Return the outer end of a short stretch in which a function becomes positive."""
    while abs(outside - inside) > _TOLERANCE * max(1.0, abs(inside)):
        middle = 0.5 * (inside + outside)
        if excess(middle) > 0.0:
            outside = middle
        else:
            inside = middle
    return outside


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Losses of releases with the client and without it.

    Attributes:
        sides: float32 `[samples]` each.
        most: mu of a Gaussian that loses no less.
    """

    sides: tuple[Float[np.ndarray, " samples"], ...]
    most: float

    def delta(self, epsilon: float) -> float:
        """Return delta of the worse side, an estimate."""
        return max(_mean_gain(losses)(epsilon) for losses in self.sides)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon with which that is at most delta: an estimate."""
        return root(self.delta, self._highest(delta), delta)

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return an interval that holds the pair's epsilon with chance 1 - error."""
        threshold = np.log(2.0 * len(self.sides) / error)
        highest = self._highest(delta)
        ends = []
        for losses in self.sides:
            gains = functools.partial(_gains, losses)
            bets = _Bets(gains, lambda _: 1.0, delta)
            estimate = root(_mean_gain(losses), highest, delta)
            ends.append(bets.interval(estimate, highest, threshold))
        lower, upper = np.max(ends, axis=0).tolist()
        return lower, upper

    def trials_wanted(self, delta: float, error: float) -> int:
        """Count the samples that would leave a tenth of delta for unseen losses."""
        return unseen(1.0, delta, error / len(self.sides))

    def _highest(self, delta: float) -> float:
        return float(_gaussian.epsilon(self.most, delta))


def _gains(losses: np.ndarray, epsilon: float) -> np.ndarray:
    """Return max(0, 1 - exp(epsilon - loss)), whose mean is delta."""
    return -np.expm1(np.minimum(epsilon - losses.astype(np.float64), 0.0))


def _mean_gain(losses: np.ndarray) -> Callable[[float], float]:
    """Return delta by epsilon, as these losses estimate it."""
    return lambda epsilon: float(_gains(losses, epsilon).mean())
