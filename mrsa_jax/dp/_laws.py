"""Masses of symmetric laws on the integers, in intervals that hold the exact numbers.

A variance is the exact number that its float64 is. Everything here runs on the host, in
`flint`'s interval arithmetic.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from mrsa_jax._core.array_types import Floats
from mrsa_watch._base.errors import require

Kind = Literal["skellam", "discrete_gaussian"]
_PRECISION = 320


def masses(kind: Kind, variance: float, first: int, last: int) -> list[Any]:
    """Return intervals of P(X = k) for 0 <= first <= k <= last, about 90 digits each.

    Args:
        kind: The law.
        variance: Positive and finite.
        first: The first point.
        last: The last.

    Examples:
        >>> one, two = masses("skellam", 1.0, 0, 1)
        >>> round(float(one), 12), round(float(two), 12)
        (0.465759607594, 0.20791041535)
    """
    import flint

    with flint.ctx.workprec(_PRECISION):
        return _MASSES[kind](variance, first, last)


def reach(kind: Kind, variance: float, bits: float) -> int:
    """Return a point K with P(|X| > K) < 2**-bits.

    About the smallest, by Chernoff's bound.
    """
    least = -(bits + 2.0) * math.log(2.0)
    high = 1
    while _EXPONENTS[kind](variance, float(high)) > least:
        high *= 2
    points = range(high // 2, high)
    return points.start + bisect.bisect_left(
        points, -least, key=lambda k: -_EXPONENTS[kind](variance, float(k))
    )


def _skellam_masses(variance: float, first: int, last: int) -> list[Any]:
    """P(X = k) = exp(-v) I_k(v), downwards by I_(k-1) = I_(k+1) + (2 k / v) I_k.

    Only sums.
    """
    import flint

    v = flint.arb(variance)
    scale = (-v).exp()
    above, here = (v.bessel_i(flint.arb(k)) * scale for k in (last + 1, last))
    values = [here]
    factor = 2 / v
    for k in range(last, first, -1):
        above, here = here, above + factor * k * here
        values.append(here)
    return values[::-1]


def _skellam_exponent(variance: float, k: float) -> float:
    # the minimum over s of v (cosh s - 1) - s k; k^2 / (root + v) is root - v without
    # cancelling
    root = math.hypot(variance, k)
    return k * (k / (root + variance)) - k * math.asinh(k / variance)


def _gaussian_masses(variance: float, first: int, last: int) -> list[Any]:
    """P(X = k) = q^(k^2) / sum over j of q^(j^2), q = exp(-1 / (2 v))."""
    import flint

    rate = -1 / (2 * flint.arb(variance))
    here = (rate * first * first).exp() / _theta(variance)
    turn, square = (rate * (2 * first + 1)).exp(), (2 * rate).exp()
    values = [here]
    for _ in range(first, last):
        here = here * turn
        turn = turn * square
        values.append(here)
    return values


@functools.lru_cache(maxsize=64)
def _theta(variance: float) -> Any:
    """Return the sum over all integers j of exp(-j^2 / (2 v)).

    For v > 1/4 by Poisson's formula, sqrt(2 pi v) times the sum of exp(-2 pi^2 v j^2):
    about the same few terms decide whatever the variance.
    """
    import flint

    with flint.ctx.workprec(_PRECISION):
        v = flint.arb(variance)
        is_wide = variance > 0.25
        rate = 2 * flint.arb.pi() ** 2 * v if is_wide else 1 / (2 * v)
        terms = [(-rate * j * j).exp() for j in range(1, 20)]
        # terms fall faster than a geometric series of ratio 1/2
        total = 1 + 2 * sum(terms, flint.arb(0)) + terms[-1] * flint.arb(0, 2)
        return (2 * flint.arb.pi() * v).sqrt() * total if is_wide else total


_MASSES: dict[Kind, Callable[[float, int, int], list[Any]]] = {
    "skellam": _skellam_masses,
    "discrete_gaussian": _gaussian_masses,
}
# natural logarithms of bounds on P(X >= k), k > 0
_EXPONENTS: dict[Kind, Callable[[float, float], float]] = {
    "skellam": _skellam_exponent,
    "discrete_gaussian": lambda v, k: -k * (k / (2.0 * v)),
}

# of one client's discrete Gaussian, in steps: below it the bound on sums is not proved
_LEAST_SIGMA = 0.5


def check_sigma(kind: str, sigma: float, argument: str, value: Any) -> None:
    """Raise for noise of a client, in steps, too small for a bound on sums."""
    rule = (
        f"must leave a client's noise {_LEAST_SIGMA} steps or more, for a bound on sums"
    )
    require(kind == "skellam" or sigma >= _LEAST_SIGMA, argument, rule, value, sigma)


def renyi_bound(
    kind: Kind,
    orders: Any,
    *,
    l2: float,
    l1: float,
    dim: int,
    variance: float,
    count: Any,
) -> Floats:
    """Bound the divergence of each order for sums of `count` clients' noise.

    Args:
        kind: "skellam" or "discrete_gaussian".
        orders: alpha > 1, any shape. The papers' Skellam bound is proved for integers:
            an order in between takes the next, whose divergence is no smaller, or
            `_skellam_between`.
        l2: Euclidean norm of the shift, in steps.
        l1: Sum of magnitudes of the shift; at most l2**2, and sqrt(dim) l2.
        dim: Coordinates.
        variance: Of one client's noise, in squared steps.
        count: Clients whose noise is in the sum, numbers that broadcast against
            `orders`.

    Returns:
        float64; inf where nobody's noise is there.

    Source:
        Agarwal, Kairouz, Liu (NeurIPS 2021), Corollary 3.6: alpha l2^2 / (2 mu) +
        min{((2 alpha - 1) l2^2 + 6 l1) / (4 mu^2), 3 l1 / (2 mu)}. Kairouz, Liu,
        Steinke (ICML 2021), Theorem 1 and Proposition 14 for sums of discrete
        Gaussians, of sigma at least 1/2.
    """
    alpha, number = np.broadcast_arrays(
        np.asarray(orders, float), np.asarray(count, float)
    )
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
    """Bound the divergence at any order above 1.

    C (alpha l2^2 + m / (4 (alpha - 1))) / 2.
    m is how many coordinates shift, none of which counts where alpha is an integer; c =
    -log(1 - 1 / mu - 5 / (2 mu^2)). Of one coordinate, by whom p(k) = exp(-mu) I_k(mu)
    moves s:

    1. V = -log p has second differences of at most c. With r_k = I_(k+1) / I_k their
       exponential is 1 / (r_k^2 + 2 k r_k / mu). Let t = k + 1/2 >= 1/2, rho^2 = mu^2 +
       t^2, and w = t + (rho^2 + D)^(1/2) with D = t + t^2 / rho + 5/2. Then r_k >= mu /
       w: it is near mu = 0, and cannot cross, as r' = 1 - 2 t r / mu - r^2 while the
       derivative of mu / w is less than that of it (for v = w - t that is D / v + mu^2
       t^2 / (2 v rho^3) < 5/2, which is below 2.17). As w^2 = 2 t w + mu^2 + D and w >=
       rho + t, the exponential is at most w^2 / (w^2 - w - D), where (w + D) / w^2 <= 1
       / rho + 5 / (2 w^2) <= 1 / mu + 5 / (2 mu^2).
    2. V(k) - c k^2 / 2 is concave, and is made so between integers by straight lines.
       x - s lies between x and x - alpha s, so (alpha - 1) V(x) + V(x - alpha s) -
       alpha V(x - s) is at most the parabola's, c alpha (alpha - 1) s^2 / 2.
    3. So the divergence's moment, the sum of p(x - s)^alpha p(x)^(1 - alpha), is at
       most exp(that) times the sum of exp(-V(x - alpha s)), which is, a being the part
       of alpha s beyond an integer, exp(c a (1 - a) / 2) times a sum of p(k)^(1 - a)
       p(k + 1)^a <= 1 (Hoelder).
    """
    inverse = 1.0 / mu
    share = inverse + 2.5 * inverse**2
    # with less noise than that the papers' is better
    curvature = np.where(share <= 0.5, -np.log1p(-np.minimum(share, 0.5)), np.inf)
    between = np.where(
        alpha == np.floor(alpha), 0.0, min(dim, l1) / (4.0 * (alpha - 1.0))
    )
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


def departures(variance: float, count: Any) -> Floats:
    """Return tau, by which sums of discrete Gaussians depart from one Gaussian.

    One of the sum's variance.

    10 times the sum over k = 1, ..., n - 1 of exp(-2 pi^2 sigma^2 k / (k + 1)).

    Examples:
        >>> departures(1.0, [0, 1, 2, 3]).round(9).tolist()
        [0.0, 0.0, 0.000517232, 0.000536503]
    """
    number = np.asarray(count, np.int64)
    k = np.arange(1, max(int(number.max(initial=1)), 1))
    terms = np.exp(-2.0 * math.pi**2 * variance * k / (k + 1.0))
    sums = np.concatenate([[0.0, 0.0], np.cumsum(terms)])
    return np.asarray(10.0 * sums[np.maximum(number, 0)])
