"""Renyi divergences between a sum of integer noise and the same sum shifted by a client's integers.

Bounds, in steps of the lattice: Delta_2 and Delta_1 -> `l2` and `l1`, the norms of the shift; mu ->
the variance of the sum's noise; tau -> `departure`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax.dp._laws import Kind

LEAST_SIGMA = 0.5
"""Of one client's discrete Gaussian, in steps: below it the bound on sums is not proved."""


def renyi_bound(
    kind: Kind, orders: Any, *, l2: float, l1: float, dim: int, variance: float, count: Any
) -> Float64[np.ndarray, "*_"]:
    """Return a bound on the divergence of each order for sums of `count` clients' noise.

    Args:
        kind: "skellam" or "discrete_gaussian".
        orders: alpha > 1, any shape. The papers' Skellam bound is proved for integers: an order in
            between takes the next, whose divergence is no smaller, or `_skellam_between`.
        l2: Euclidean norm of the shift, in steps.
        l1: Sum of magnitudes of the shift; at most l2**2, and sqrt(dim) l2.
        dim: Coordinates.
        variance: Of one client's noise, in squared steps.
        count: Clients whose noise is in the sum, numbers that broadcast against `orders`.

    Returns:
        float64; inf where nobody's noise is there.

    Source:
        Agarwal, Kairouz, Liu (NeurIPS 2021), Corollary 3.6: alpha l2^2 / (2 mu) + min{((2 alpha -
        1) l2^2 + 6 l1) / (4 mu^2), 3 l1 / (2 mu)}. Kairouz, Liu, Steinke (ICML 2021), Theorem 1
        and Proposition 14 for sums of discrete Gaussians, of sigma at least 1/2.
    """
    alpha, number = np.broadcast_arrays(np.asarray(orders, float), np.asarray(count, float))
    some = np.maximum(number, 1.0)
    if kind == "skellam":
        mu = some * variance
        whole = _skellam(np.ceil(alpha), l2, l1, mu)
        bound = np.minimum(whole, _skellam_between(alpha, l2, l1, dim, mu))
    else:
        bound = _discrete_gaussian(alpha, l2, l1, dim, variance, some)
    return np.where(number >= 1.0, bound, np.inf)


def _skellam(alpha: Any, l2: float, l1: float, mu: Any) -> np.ndarray:
    inverse = 1.0 / mu
    far = ((2.0 * alpha - 1.0) * l2**2 + 6.0 * l1) * inverse**2 / 4.0
    near = 1.5 * l1 * inverse
    return np.asarray(alpha * l2**2 * inverse / 2.0 + np.minimum(far, near))


def _skellam_between(alpha: Any, l2: float, l1: float, dim: int, mu: Any) -> np.ndarray:
    """Bound the divergence at any order above 1: c (alpha l2^2 + m / (4 (alpha - 1))) / 2.

    m is how many coordinates shift, none of which counts where alpha is an integer; c = -log(1 -
    1 / mu - 5 / (2 mu^2)). Of one coordinate, by whom p(k) = exp(-mu) I_k(mu) moves s:

    1. V = -log p has second differences of at most c. With r_k = I_(k+1) / I_k their exponential
       is 1 / (r_k^2 + 2 k r_k / mu). Let t = k + 1/2 >= 1/2, rho^2 = mu^2 + t^2, and w = t + (rho^2
       + D)^(1/2) with D = t + t^2 / rho + 5/2. Then r_k >= mu / w: it is near mu = 0, and cannot
       cross, as r' = 1 - 2 t r / mu - r^2 while the derivative of mu / w is less than that of it
       (for v = w - t that is D / v + mu^2 t^2 / (2 v rho^3) < 5/2, which is below 2.17). As w^2 =
       2 t w + mu^2 + D and w >= rho + t, the exponential is at most w^2 / (w^2 - w - D), where
       (w + D) / w^2 <= 1 / rho + 5 / (2 w^2) <= 1 / mu + 5 / (2 mu^2).
    2. V(k) - c k^2 / 2 is concave, and is made so between integers by straight lines. x - s lies
       between x and x - alpha s, so (alpha - 1) V(x) + V(x - alpha s) - alpha V(x - s) is at most
       the parabola's, c alpha (alpha - 1) s^2 / 2.
    3. So the divergence's moment, the sum of p(x - s)^alpha p(x)^(1 - alpha), is at most exp(that)
       times the sum of exp(-V(x - alpha s)), which is, a being the part of alpha s beyond an
       integer, exp(c a (1 - a) / 2) times a sum of p(k)^(1 - a) p(k + 1)^a <= 1 (Hoelder).
    """
    inverse = 1.0 / mu
    share = inverse + 2.5 * inverse**2
    # with less noise than that the papers' is better
    curvature = np.where(share <= 0.5, -np.log1p(-np.minimum(share, 0.5)), np.inf)
    between = np.where(alpha == np.floor(alpha), 0.0, min(dim, l1) / (4.0 * (alpha - 1.0)))
    return np.asarray(curvature / 2.0 * (alpha * l2**2 + between))


def _discrete_gaussian(
    alpha: Any, l2: float, l1: float, dim: int, variance: float, count: Any
) -> np.ndarray:
    tau = departures(variance, count)
    scale = 1.0 / np.sqrt(count * variance)
    square = (l2 * scale) ** 2
    # Theorem 1's two, then what Proposition 14 has beyond them
    bounds = [
        alpha / 2.0 * (square + tau * dim / 2.0),
        alpha / 2.0 * (l2 * scale + tau * math.sqrt(dim)) ** 2,
        alpha / 2.0 * square + tau * dim,
        alpha / 2.0 * (square + 2.0 * l1 * scale * tau + tau**2 * dim),
    ]
    return np.asarray(np.minimum.reduce(bounds))


def departures(variance: float, count: Any) -> Float64[np.ndarray, "*_"]:
    """Return tau: how far sums of discrete Gaussians are from one of the sum's variance.

    10 times the sum over k = 1, ..., n - 1 of exp(-2 pi^2 sigma^2 k / (k + 1)).

    Examples:
        >>> departures(1.0, [0, 1, 2, 3]).round(9).tolist()
        [0.0, 0.0, 0.000517232, 0.000536503]
    """
    number = np.asarray(count, np.int64)
    largest = max(int(number.max(initial=1)), 1)
    k = np.arange(1, largest)
    terms = np.exp(-2.0 * math.pi**2 * variance * k / (k + 1.0))
    sums = np.concatenate([[0.0, 0.0], np.cumsum(terms)])
    return np.asarray(10.0 * sums[np.maximum(number, 0)])
