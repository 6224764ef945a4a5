"""Checks of the noise of learnt sums, and of the spread of the others' updates.

Noise is given as a variance (of every sum, or of each), or as the covariance of all
sums, which mechanisms with correlated noise have: sigma^2 (C^T C)^-1 of a matrix
mechanism that releases C y + z.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.matrices import covariance_root, smallest_variance
from mrsa_watch._base.errors import POSITIVE, check_number, require

_MOST_SPREADS = 1e153  # its square is a float


def check_noise(
    noise: object,
    rounds: int,
    argument: str = "noise",
) -> Float64[np.ndarray, "*_"] | None:
    """Return the noise of sums as one of three forms, or raise.

    Args:
        noise: The variance of every sum's noise, `[rounds]` variances, or a covariance
            `[rounds, rounds]`.
        rounds: Rows of the history.
        argument: Name used in messages.

    Returns:
        None where there is no noise; variances float64 `[rounds]` where it is
        independent (a diagonal covariance too); else a root F `[rounds, rounds]` with F
        F^T = covariance. Rows of F are exactly 0 for rounds without noise.

    Raises:
        ConfigurationError: If it is no number, vector or matrix of these sizes, is not
            finite, a variance is negative, or a covariance is not symmetric or not
            positive semidefinite to within 1e-9.

    Examples:
        >>> check_noise(0, 3) is None, check_noise([[0.0, 0.0], [0.0, 2.0]], 2).tolist()
        (True, [0.0, 2.0])
        >>> root = check_noise([[1.0, 1.0], [1.0, 1.0]], 2)  # of rank 1
        >>> (root @ root.T).round(12).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        >>> check_noise(-1.0, 3)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `noise` must hold no negative variance; got -1.0
    """
    array = host_array(noise, argument)
    kind = (
        "must be a variance, one for each round, or a covariance [rounds, rounds], "
        "of numbers"
    )
    require(array.dtype.kind in "fiu", argument, kind, noise)
    shapes = ((), (rounds,), (rounds, rounds))
    rule = (
        f"must be one number, or of shape [{rounds}] or [{rounds}, {rounds}], by the "
        "rounds"
    )
    require(array.shape in shapes, argument, rule, f"shape {array.shape}")
    values = array.astype(np.float64)
    wrong = values[~np.isfinite(values)]
    require(wrong.size == 0, argument, "must be finite", *wrong[:1].tolist())
    variances = (
        np.diagonal(values) if values.ndim == 2 else np.broadcast_to(values, rounds)
    )
    least = smallest_variance(array) if values.ndim == 2 else float(variances.min())
    require(least >= 0, argument, "must hold no negative variance", least)
    if not variances.any() and not values.any():
        return None
    if values.ndim < 2 or np.array_equal(values, np.diag(variances)):
        return variances.copy()
    return covariance_root(array, argument)


def check_spread(spread: object) -> float:
    """Return the standard deviation of the others' updates, or raise.

    Examples:
        >>> check_spread(0)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `spread` must be positive and finite; got 0
    """
    return check_number(spread, "spread", "must be positive and finite", POSITIVE)


def check_in_spreads(noise: np.ndarray, spread: float) -> None:
    """Raise for noise whose variance in spreads, or its inverse, floats cannot hold.

    Args:
        noise: Variances, or a root of a covariance, of `check_noise`.
        spread: Of `check_spread`.

    Examples:
        >>> check_in_spreads(np.array([1.0]), 1e-200)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `noise` must have a standard deviation of at mos...
    """
    deviations = np.sqrt(noise) if noise.ndim == 1 else np.linalg.norm(noise, axis=1)
    largest = float(deviations.max(initial=0.0))
    rule = (
        f"must have a standard deviation of at most {_MOST_SPREADS:g} times the spread"
    )
    require(largest <= _MOST_SPREADS * spread, "noise", rule, largest, spread)
