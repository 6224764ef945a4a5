"""Matrices of short convolutions with few products (Toom-Cook, in Winograd's transposed form).

`outputs` values of a filter of `taps` weights cost outputs + taps - 1 products instead of
outputs x taps. Source: Winograd 1980, "Arithmetic Complexity of Computations"; Lavin and Gray
2016, "Fast Algorithms for Convolutional Neural Networks", eq. (5) to (7).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

# zero, then pairs of opposite sign: small numbers keep the rounding small
_POINTS = tuple(
    Fraction(*pair) for pair in ((0, 1), (1, 1), (-1, 1), (2, 1), (-2, 1), (1, 2), (-1, 2))
)

Matrix = list[list[Fraction]]


class ToomCook(NamedTuple):
    """y = output @ ((kernel @ g) * (data @ d)) with y_i = sum_k g_k d_{i+k}; all float64."""

    output: np.ndarray  # [outputs, products]
    kernel: np.ndarray  # [products, taps]
    data: np.ndarray  # [products, products]


@functools.cache
def toom_cook(outputs: int, taps: int) -> ToomCook:
    """Return the matrices for a number of outputs and of taps.

    Made of exact fractions; a factor of two moves between the kernel's and the data's row of each
    product, so that both are of about one size and rounding stays small.

    Args:
        outputs: Outputs of one application, at least 1.
        taps: Weights of the filter, at least 1; outputs + taps is at most 9.

    Examples:
        >>> short = toom_cook(2, 3)
        >>> g, d = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0, 5.0])
        >>> short.output @ ((short.kernel @ g) * (short.data @ d))
        array([ 7., 19.])
    """
    points = _POINTS[: outputs + taps - 2]
    norms = [math.prod(a - b for b in points if b != a) for a in points]
    one, zero = Fraction(1), Fraction(0)
    output = [[a**i for a in points] + [one if i == outputs - 1 else zero] for i in range(outputs)]
    kernel = [[a**k / norm for k in range(taps)] for a, norm in zip(points, norms, strict=True)] + [
        [zero] * (taps - 1) + [one]
    ]
    data = [[*_with_roots([b for b in points if b != a]), zero] for a in points]
    data.append(_with_roots(list(points)))
    for weights, values in zip(kernel, data, strict=True):
        ratio = max(map(abs, values)) / max(map(abs, weights))
        scale = Fraction(2) ** round(math.log2(ratio) / 2)
        weights[:] = [scale * weight for weight in weights]
        values[:] = [value / scale for value in values]
    return ToomCook(*(_array(matrix) for matrix in (output, kernel, data)))


def _with_roots(roots: list[Fraction]) -> list[Fraction]:
    """Return the coefficients of the monic polynomial with these roots, lowest first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [-root * value for value in coefficients] + [Fraction(0)]
        coefficients = [a + b for a, b in zip(shifted, scaled, strict=True)]
    return coefficients


def _array(matrix: Matrix) -> np.ndarray:
    return np.array([[float(value) for value in row] for row in matrix])
