"""Binomial tails and exact binomial intervals in log space, without scipy.

Rates of 1e-40 and counts of 0 or all in 10^9 are ordinary here, so tails are natural logarithms
and intervals are found by bisection on the tail itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = [
    "binomial_interval",
    "log_binomials",
    "log_factorials",
    "log_pmf",
    "log_sum",
    "log_tail_above",
    "log_tail_below",
]


def log_factorials(largest: int) -> np.ndarray:
    """Return log(i!) for i = 0..largest as float64."""
    return np.asarray([math.lgamma(i + 1.0) for i in range(largest + 1)], np.float64)


def log_binomials(n: int) -> np.ndarray:
    """Return log C(n, k) for k = 0..n as float64."""
    factorials = log_factorials(n)
    return factorials[n] - factorials - factorials[::-1]


def log_sum(terms: np.ndarray) -> float:
    """Return log(sum(exp(terms))); -inf for no terms."""
    if terms.size == 0:
        return -math.inf
    largest = float(terms.max())
    if math.isinf(largest):
        return largest
    return largest + math.log(float(np.exp(terms - largest).sum()))


def log_pmf(n: int, chance: float, missed: float | None = None) -> np.ndarray:
    """Return log P(X = k), X binomial with n trials, for k = 0..n.

    Args:
        n: Trials, at least 0.
        chance: Of one trial.
        missed: 1 - `chance`, where it is known more exactly than the subtraction gives it.
    """
    missed = 1.0 - chance if missed is None else missed
    hits = np.arange(n + 1, dtype=np.float64)
    return log_binomials(n) + _times(hits, chance) + _times(hits[::-1], missed)


def _times(counts: np.ndarray, chance: float) -> np.ndarray:
    """Return counts * log(chance), 0 where the count is 0."""
    if chance > 0.0:
        return counts * math.log(chance)
    return np.where(counts > 0.0, -np.inf, 0.0)


def log_tail_below(n: int, chance: float, limit: float) -> float:
    """Return log P(X < limit) for a binomial X; `limit` may be any real number."""
    terms = max(0, min(n + 1, math.ceil(limit)))
    return min(0.0, log_sum(log_pmf(n, chance)[:terms]))


def log_tail_above(n: int, chance: float, limit: float) -> float:
    """Return log P(X >= limit) for a binomial X; `limit` may be any real number."""
    terms = max(0, min(n + 1, math.ceil(limit)))
    return min(0.0, log_sum(log_pmf(n, chance)[terms:]))


def binomial_interval(count: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a chance seen `count` times in `trials`.

    It covers the true chance with at least the stated probability, whatever that chance is.
    The ends solve P(X >= count) = (1 - level)/2 and P(X <= count) = (1 - level)/2.

    Args:
        count: In [0, trials].
        trials: At least 1.
        level: In (0, 1).

    Returns:
        The ends, in [0, 1]; exactly 0 or 1 where nothing or everything was counted.

    Examples:
        >>> lower, upper = binomial_interval(0, 10)
        >>> lower, round((1 - upper) ** 10, 12)  # nothing seen: P(X = 0) is 2.5 % at the end
        (0.0, 0.025)

    Source: Clopper and Pearson, "The use of confidence or fiducial limits" (1934).
    """
    target = math.log((1.0 - level) / 2.0)
    misses = trials - count
    lower, upper = 0.0, 1.0
    if count > 0:  # P(X >= count) is I_p(count, misses + 1), which grows with p
        lower = _solve(lambda p: _log_beta(count, misses + 1, p, 1.0 - p) - target)
    if misses > 0:  # P(X <= count) is I_{1-p}(misses, count + 1), which falls with p
        upper = _solve(lambda p: target - _log_beta(misses, count + 1, 1.0 - p, p))
    return lower, upper


def _solve(growing: Callable[[float], float]) -> float:
    """Return the root in (0, 1) of a growing function, by bisection until floats run out."""
    low, high = 0.0, 1.0
    while True:
        # Geometric steps reach tiny roots as quickly as others.
        middle = math.sqrt(low * high) if 0.0 < low < high / 4.0 else 0.5 * (low + high)
        if middle in (low, high):
            return middle
        low, high = (low, middle) if growing(middle) > 0.0 else (middle, high)


def _log_beta(a: int, b: int, x: float, rest: float) -> float:
    """Return the log of the regularised incomplete beta I_x(a, b), where `rest` is 1 - x."""
    if x <= 0.0 or rest <= 0.0:
        return -math.inf if x <= 0.0 else 0.0
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * _log(x, rest) + b * _log(rest, x)
    if x * (a + b + 2.0) > a + 1.0:  # the other tail's fraction converges
        other = math.exp(min(0.0, front - math.log(b) + math.log(_fraction(b, a, rest))))
        return math.log1p(-other) if other < 1.0 else -math.inf
    return min(0.0, front - math.log(a) + math.log(_fraction(a, b, x)))


def _log(x: float, rest: float) -> float:
    return math.log(x) if x < 0.5 else math.log1p(-rest)


def _fraction(a: int, b: int, x: float) -> float:
    """Return the continued fraction of the incomplete beta (DLMF 8.17.22) by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 1_000_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
