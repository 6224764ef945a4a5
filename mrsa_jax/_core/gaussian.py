"""Telling N(0, 1) from N(mu, 1): the best test, and the privacy that it stands for.

What is distinguished by a Gaussian of unit variance, shifted by mu, is mu-Gaussian
differentially private (Dong, Roth, Su, "Gaussian differential privacy", 2022), and no
test does better than the threshold on it (Neyman and Pearson). With x = eps/mu - mu/2
and y = eps/mu + mu/2, delta(eps) = Phi(-x) - e^eps Phi(-y), and as (y^2 - x^2)/2 = eps
it is phi(x) (m(x) - m(y)), m being Mills' ratio Phi(-t)/phi(t): nothing overflows, and
the difference is an integral where mu is small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.floats import usual_floats

# below it the difference of Mills' ratios is their derivative, integrated
_SMALL = 1e-2
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
_LOG_ROOT_2_PI = 0.5 * np.log(2.0 * np.pi)


@usual_floats
def true_positive_rate(mu: object, fpr: object) -> Float64[np.ndarray, "*_"]:
    """Return the best test's rate of detection at this rate of false alarms.

    Examples:
        >>> (
        ...     float(true_positive_rate(0.0, 0.25)),
        ...     float(true_positive_rate(np.inf, 0.25)),
        ... )
        (0.25, 1.0)
    """
    from scipy import special

    return np.asarray(special.ndtr(special.ndtri(fpr) + mu), np.float64)


@usual_floats
def advantage(mu: object) -> Float64[np.ndarray, "*_"]:
    """Return the largest gain over guessing, 2 Phi(mu/2) - 1 = delta(0)."""
    from scipy import special

    return np.asarray(
        special.erf(np.asarray(mu, np.float64) / np.sqrt(8.0)), np.float64
    )


@usual_floats
def delta(mu: object, epsilon: object) -> Float64[np.ndarray, "*_"]:
    """Return delta at epsilon from 0 on, of arrays that broadcast.

    Examples:
        >>> float(delta(1.0, 0.0) - advantage(1.0)), float(delta(1.0, 1.0).round(6))
        (0.0, 0.126937)
    """
    shift, target = np.broadcast_arrays(
        np.asarray(mu, np.float64), np.asarray(epsilon, np.float64)
    )
    usual = (shift > 0) & np.isfinite(shift)
    with np.errstate(over="ignore"):
        result = np.exp(_log_delta(target, np.where(usual, shift, 1.0)))
    result = np.where(usual, result, np.where(shift > 0, 1.0, shift))
    return np.asarray(
        np.where(usual & (target == 0), advantage(shift), result), np.float64
    )


def _log_delta(epsilon: Any, mu: Any) -> np.ndarray:
    from scipy import special

    x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    log_density = -0.5 * x * x - _LOG_ROOT_2_PI
    right = np.maximum(x, 0.0)  # only used where x is no less
    middle, half = epsilon / mu, np.minimum(mu, _SMALL) / 2
    nodes = middle[..., None] + half[..., None] * _NODES
    falls = 1.0 - nodes * _mills(nodes)  # minus the derivative of Mills' ratio
    small = half * (falls @ _WEIGHTS)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.log(special.ndtr(-x) - np.exp(log_density) * _mills(y))
        ratio = np.where(mu < _SMALL, small, _mills(right) - _mills(y))
        away = log_density + np.log(ratio)
    return np.asarray(np.where((x < 0) & (mu >= _SMALL), below, away))


def _mills(at: object) -> np.ndarray:
    from scipy import special

    return np.asarray(np.sqrt(np.pi / 2) * special.erfcx(at / np.sqrt(2.0)))


@usual_floats
def epsilon(mu: object, delta: object) -> Float64[np.ndarray, "*_"]:
    """Return the least epsilon >= 0 with delta(epsilon) <= delta.

    The root of log delta lies between 0 and mu (z + mu/2), z = sqrt(2 log(1/delta)), as
    delta(eps) < Phi(-x) <= exp(-x^2/2); it is found to the last digits.

    Examples:
        >>> found = epsilon([0.0, 1.0, np.inf], 1e-5)
        >>> found.round(4).tolist()
        [0.0, 4.3772, inf]
    """
    from scipy.optimize import elementwise

    shift, target = np.broadcast_arrays(
        np.asarray(mu, np.float64), np.asarray(delta, np.float64)
    )
    with np.errstate(over="ignore"):
        highest = shift * (np.sqrt(-2.0 * np.log(target)) + shift / 2)
    is_open = (advantage(shift) > target) & np.isfinite(highest)
    result = np.where(
        np.isnan(shift), np.nan, np.where(np.isfinite(highest), 0.0, np.inf)
    )
    if is_open.any():
        # many clients have the same mu, all of a block among them
        triples = np.stack(
            [shift[is_open], np.log(target[is_open]), highest[is_open]], axis=1
        )
        each, places = np.unique(triples, axis=0, return_inverse=True)
        shifts, wanted, top = each.T

        def above(at: np.ndarray, mu: np.ndarray, log_delta: np.ndarray) -> np.ndarray:
            return _log_delta(at, mu) - log_delta

        roots = elementwise.find_root(
            above, (np.zeros(len(each)), top), args=(shifts, wanted)
        )
        result[is_open] = roots.x[places.ravel()]
    return np.asarray(result, np.float64)


class Gaussian:
    """`delta` and `epsilon` as one law.

    Unlike a module, a class can be pickled and copied.
    """

    delta = staticmethod(delta)
    epsilon = staticmethod(epsilon)
