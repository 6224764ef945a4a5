"""Closed form of hidden among in a block of clients with weights."""

from __future__ import annotations

import sys
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.arrays import host_array, integer_or_vector
from mrsa_jax._core.traced import needs_values
from mrsa_watch._base.errors import require


@needs_values
def hidden_in_blocks(
    weights: Any, blocks: Any = None
) -> Float64[np.ndarray, " clients"]:
    """Return the size that each client of whole blocks stays hidden among, by weights.

    Clients of a block take part together or not at all, each with a fixed weight m in
    every sum, such as its number of samples. Then sums reveal at most the sum of m x
    over the block, of which client i has the fraction m_i^2 / (sum of m^2) of the
    variance. So client i is hidden among (sum of m^2) / m_i^2: T with equal weights,
    more for light clients and fewer for heavy ones. `hidden_among` of a history gives
    the same once a block has been summed alone, or sums separate all blocks, and
    never less before.

    Args:
        weights: [clients], whole numbers, rationals or floats; only ratios within a
            block matter.
        blocks: The block of each client, integers [clients]; None for one block of all
            clients.

    Returns:
        float64[clients], at least 1; 1 for a client alone in its block, and inf for
        weight 0, as of clients in no sum. Computed in rationals and rounded once.

    Raises:
        ConfigurationError: If weights are no list of finite numbers, or blocks not as
            many integers.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.privacy.hidden_in_blocks([1, 1, 1]).tolist()
        [3.0, 3.0, 3.0]
        >>> # a client with most of the samples hides behind few
        >>> mj.privacy.hidden_in_blocks([100, 10, 10, 5], [0, 0, 1, 1]).tolist()
        [1.01, 101.0, 1.25, 5.0]

    Source: this package's (docs/hidden_among.md).
    """
    array = host_array(weights, "weights")
    rule = "must be a list of finite numbers, one per client"
    good = array.ndim == 1 and array.size > 0 and array.dtype.kind in "bfiuO"
    require(good, "weights", rule, f"{array.dtype} of shape {array.shape}")
    good = all(isinstance(weight, Rational | float) for weight in array.tolist())
    good = good and (array.dtype.kind == "O" or bool(np.isfinite(array).all()))
    require(good, "weights", rule, weights)
    names = np.zeros(array.size, np.int64)
    if blocks is not None:
        names = integer_or_vector(blocks, "blocks")
        rule = "must be one integer for each client"
        require(names.shape == array.shape, "blocks", rule, f"shape {names.shape}")
    # rationals, because squares of floats may overflow, or vanish
    squares = [Fraction(weight) ** 2 for weight in array.tolist()]
    _, block = np.unique(names, return_inverse=True)
    totals: dict[int, Fraction] = {}
    for place, square in zip(block.tolist(), squares, strict=True):
        totals[place] = totals.get(place, Fraction(0)) + square
    sizes = [
        _float(totals[place] / square) if square else np.inf
        for place, square in zip(block.tolist(), squares, strict=True)
    ]
    return np.array(sizes, np.float64)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:  # a client that is in sums is hidden among finitely many
        return sys.float_info.max
