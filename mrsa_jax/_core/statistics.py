"""Intervals of counted chances and of means, and how surely the best value is the best."""

from __future__ import annotations

import collections
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax._core.floats import usual_floats


@usual_floats
def memory_kernel(when: Any, memory: Any, share: Any = 1.0) -> np.ndarray:
    """Return share x memory^|r - r'|, and exactly 1 within a round.

    How updates of rounds agree.

    Examples:
        >>> memory_kernel([0, 0, 2], 0.5, 0.8).tolist()
        [[1.0, 1.0, 0.2], [1.0, 1.0, 0.2], [0.2, 0.2, 1.0]]
    """
    lags = np.abs(np.subtract.outer(when, when))
    return np.where(lags == 0, 1.0, share * memory**lags)


def half_interval(values: object, level: float = 0.95) -> Any:
    """Return half the interval of the mean of at least two values along the last axis.

    Examples:
        >>> round(float(half_interval([1.0, 2.0, 3.0])), 6)
        2.484138
    """
    from scipy import special

    sample = np.asarray(values, np.float64)
    count = sample.shape[-1]
    return special.stdtrit(count - 1, (1 + level) / 2) * (
        sample.std(axis=-1, ddof=1) / np.sqrt(count)
    )


def binomial_interval(
    count: int,
    trials: int,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a chance seen `count` times in `trials`.

    It covers the true chance with at least the stated probability, whatever that chance
    is. The ends solve P(X >= count) = (1 - level)/2 and P(X <= count) = (1 - level)/2.

    Args:
        count: In [0, trials].
        trials: At least 1.
        level: In (0, 1).

    Returns:
        The ends, in [0, 1]; exactly 0 or 1 where nothing or everything was counted.

    Examples:
        >>> lower, upper = binomial_interval(0, 10)
        >>> (
        ...     lower,
        ...     round((1 - upper) ** 10, 12),
        ... )  # nothing seen: P(X = 0) is 2.5 % at the end
        (0.0, 0.025)

    Source: Clopper and Pearson, "The use of confidence or fiducial limits" (1934).
    """
    from scipy import special

    tail, misses = (1.0 - level) / 2.0, trials - count
    # P(X >= count) is I_p(count, misses + 1), and P(X <= count) is 1 - I_p(count + 1,
    # misses)
    lower = special.betaincinv(count, misses + 1, tail) if count > 0 else 0.0
    upper = special.betainccinv(count + 1, misses, tail) if misses > 0 else 1.0
    return float(lower), float(upper)


_MOST_EXACT = 7  # repetitions, of which all 1,716 draws are gone through
_DRAWS = 4_000


class Best(NamedTuple):
    """The best of several values by its mean score.

    Attributes:
        place: Which value; the first of equals.
        share: Share of the repetitions in which this value is the best by itself.
        certainty: Share of bootstrap draws of the repetitions in which it has the best
            mean; nan of a single repetition, which cannot tell.
    """

    place: int
    share: float
    certainty: float


def best_of(scores: Any) -> Best:
    """Return which value has the highest mean score, and how surely it does.

    Args:
        scores: f64 [values, repetitions]; nan where a repetition failed, which is worse
            than any number.

    Returns:
        The best value. Its certainty is exact for up to seven repetitions, and else the
        share of 4,000 draws, always the same ones.

    Examples:
        >>> best_of([[0.5, 0.9], [0.6, 0.7]])
        Best(place=0, share=0.5, certainty=0.75)
    """
    given = np.asarray(scores, np.float64)
    # a number, as 0 times infinity is none
    values = np.where(np.isnan(given), -1e30, given)
    count = values.shape[1]
    place = int(np.argmax(values.mean(axis=1)))
    alone = float(np.mean(np.argmax(values, axis=0) == place))
    if count == 1:
        return Best(place, alone, math.nan)
    draws, weights = _draws(count)
    wins = np.argmax(values @ draws.T, axis=0) == place
    return Best(place, alone, float(wins @ weights))


def _draws(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return bootstrap draws as counts [draws, count], and the chance of each."""
    if count > _MOST_EXACT:
        generator = np.random.default_rng(0)
        drawn = generator.multinomial(count, np.full(count, 1 / count), _DRAWS)
        return drawn, np.full(_DRAWS, 1 / _DRAWS)
    rows, weights = [], []
    for places in itertools.combinations_with_replacement(range(count), count):
        times = collections.Counter(places)
        rows.append([times[place] for place in range(count)])
        orders = math.factorial(count)
        orders //= math.prod(map(math.factorial, times.values()))
        weights.append(orders / count**count)
    return np.asarray(rows), np.asarray(weights)


def half_interval_of_two(seeds: Any, parts: Any, level: float = 0.95) -> float:
    """Return half the interval of a mean that varies over seeds and over test samples.

    Both variances are added, so that what varies over both at once counts twice: the
    interval is rather too wide. Degrees of freedom by Welch and Satterthwaite.

    Args:
        seeds: f64 [S], the value of each seed, S at least 2.
        parts: f64 [G], the value on each of G equal parts of the test samples, as a
            mean over the seeds, G at least 2.
        level: In (0, 1).

    Examples:
        >>> same = [1.0, 1.0, 1.0]
        >>> values = [1.0, 2.0, 3.0]
        >>> gap = half_interval_of_two(values, same) - half_interval(values)
        >>> abs(float(gap)) < 1e-9
        True
    """
    from scipy import special

    variances, freedoms = [], []
    for values in (np.asarray(seeds, np.float64), np.asarray(parts, np.float64)):
        variances.append(values.var(ddof=1) / len(values))
        freedoms.append(len(values) - 1)
    whole = sum(variances)
    if whole == 0:
        return 0.0
    pairs = zip(variances, freedoms, strict=True)
    freedom = whole**2 / sum(each**2 / count for each, count in pairs)
    return float(special.stdtrit(freedom, (1 + level) / 2) * np.sqrt(whole))
