"""Exact intervals of chances that were counted, and how what drifts is correlated."""

from __future__ import annotations

from typing import Any

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
