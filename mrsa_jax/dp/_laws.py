"""Masses of symmetric laws on the integers, in intervals that hold the exact numbers.

A variance is the exact number that its float64 is. Everything here runs on the host, in `flint`'s
interval arithmetic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Kind = Literal["skellam", "discrete_gaussian"]
_PRECISION = 320
_WIDE = 2.0**16  # variance from which tails are integrals: sums would have thousands of terms


class _Law(NamedTuple):
    """One law, of variance v.

    Attributes:
        masses: The exact P(X = k) of first <= k <= last, first at least 0.
        exponent: Natural log of a bound on P(X >= k), k > 0.
        cumulant: log E exp(s X), by complex intervals, for the wide v of `_wide_tail`.
        saddle: Where the derivative of cumulant(s) - s k is 0; the root of its second one there.
    """

    masses: Callable[[float, int, int], list[Any]]
    exponent: Callable[[float, float], float]
    cumulant: Callable[[Any, Any], Any]
    saddle: Callable[[float, float], tuple[float, float]]


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
        return _LAWS[kind].masses(variance, first, last)


def reach(kind: Kind, variance: float, bits: float) -> int:
    """Return a point K with P(|X| > K) < 2**-bits, about the smallest, by Chernoff's bound."""
    least = -(bits + 2.0) * math.log(2.0)
    low, high = 0, 1
    while _LAWS[kind].exponent(variance, float(high)) > least:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _LAWS[kind].exponent(variance, float(middle)) > least:
            low = middle
        else:
            high = middle
    return high


def tail(kind: Kind, variance: float, bound: int) -> float:
    """Return P(|X| > bound) for bound >= 0, to float64's digits."""
    import flint

    bits = -_LAWS[kind].exponent(variance, bound + 1.0) / math.log(2.0)
    if bits > 1100.0:  # below all floats
        return 0.0
    way = _wide_tail if variance >= _WIDE else _summed_tail
    # the exponent is a difference of numbers as large as the variance
    with flint.ctx.workprec(_PRECISION + max(0, math.frexp(variance)[1])):
        return 2.0 * float(way(kind, variance, bound))


def _summed_tail(kind: Kind, variance: float, bound: int) -> Any:
    """Return P(X > bound), all terms of it that count."""
    import flint

    bits = -_LAWS[kind].exponent(variance, bound + 1.0) / math.log(2.0)
    (near,) = masses(kind, variance, bound + 1, bound + 1)
    # by Chernoff's bound the terms left out are below 2**-60 of the first
    while not bool(flint.arb(2) ** -flint.arb(bits + 10.0) < near):
        bits += 20.0
    last = max(bound + 1, reach(kind, variance, bits + 70.0))
    return sum(masses(kind, variance, bound + 1, last), flint.arb(0))


def _wide_tail(kind: Kind, variance: float, bound: int) -> Any:
    """Return P(X > bound) as an integral across the saddle point, whatever the variance.

    P(X >= k) is the integral of exp(cumulant(s) - s k) / (1 - exp(-s)) along a line to the right
    of 0, over 2 pi i. By the trapezoidal rule with steps of 1/16 of the width: the pole at 0 is a
    width away or more, so the error is below exp(-2 pi 16) of the whole, and what lies beyond 16
    widths below exp(-128).

    Source:
        L. N. Trefethen, J. A. C. Weideman, "The exponentially convergent trapezoidal rule" (2014).
    """
    import flint

    saddle, curvature = _LAWS[kind].saddle(variance, bound + 1.0)
    v, k = flint.arb(variance), flint.arb(bound) + 1
    start, turn = flint.arb(max(saddle, 1.0 / curvature)), flint.arb(1.0 / (16.0 * curvature))
    points = [flint.acb(start, turn * n) for n in range(16 * 16)]
    values = [(_LAWS[kind].cumulant(v, s) - s * k).exp() / (1 - (-s).exp()) for s in points]
    total = values[0].real + 2 * sum((value.real for value in values[1:]), flint.arb(0))
    return total * turn / (2 * flint.arb.pi())


def _skellam_masses(variance: float, first: int, last: int) -> list[Any]:
    """P(X = k) = exp(-v) I_k(v), downwards by I_(k-1) = I_(k+1) + (2 k / v) I_k: only sums."""
    import flint

    v = flint.arb(variance)
    scale = (-v).exp()
    above, here = (v.bessel_i(flint.arb(k)) * scale for k in (last + 1, last))
    found = [here]
    factor = 2 / v
    for k in range(last, first, -1):
        above, here = here, above + factor * k * here
        found.append(here)
    return found[::-1]


def _skellam_exponent(variance: float, k: float) -> float:
    # the minimum over s of v (cosh s - 1) - s k; k^2 / (root + v) is root - v without cancelling
    root = math.hypot(variance, k)
    return k * (k / (root + variance)) - k * math.asinh(k / variance)


def _skellam_cumulant(v: Any, s: Any) -> Any:
    return 2 * v * (s / 2).sinh() ** 2


def _skellam_saddle(variance: float, k: float) -> tuple[float, float]:
    return math.asinh(k / variance), math.sqrt(math.hypot(variance, k))


def _gaussian_masses(variance: float, first: int, last: int) -> list[Any]:
    """P(X = k) = q^(k^2) / sum over j of q^(j^2), q = exp(-1 / (2 v))."""
    import flint

    rate = -1 / (2 * flint.arb(variance))
    here = (rate * first * first).exp() / _theta(variance)
    turn, square = (rate * (2 * first + 1)).exp(), (2 * rate).exp()
    found = [here]
    for _ in range(first, last):
        here = here * turn
        turn = turn * square
        found.append(here)
    return found


def _gaussian_exponent(variance: float, k: float) -> float:
    return -k * (k / (2.0 * variance))


def _gaussian_cumulant(v: Any, s: Any) -> Any:
    # other terms of Poisson's formula are below exp(-v) of this one where it is used
    return v * s * s / 2


def _gaussian_saddle(variance: float, k: float) -> tuple[float, float]:
    return k / variance, math.sqrt(variance)


@functools.lru_cache(maxsize=64)
def _theta(variance: float) -> Any:
    """Return the sum over all integers j of exp(-j^2 / (2 v)).

    For v > 1/4 by Poisson's formula, sqrt(2 pi v) times the sum of exp(-2 pi^2 v j^2): about the
    same few terms decide whatever the variance.
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


_LAWS: dict[Kind, _Law] = {
    "skellam": _Law(_skellam_masses, _skellam_exponent, _skellam_cumulant, _skellam_saddle),
    "discrete_gaussian": _Law(
        _gaussian_masses, _gaussian_exponent, _gaussian_cumulant, _gaussian_saddle
    ),
}
