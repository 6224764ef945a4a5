"""Size of a ring in which a sum of codes does not wrap round.

HeteroSAg: R = |S| (K - 1) + 1 for a block of |S| clients with K levels, |S| before
dropout. Where each client multiplies its codes by an integer weight w_i, |S| becomes
the sum of the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._core.array_types import Nested, Whole
from mrsa_jax._core.arrays import host_array
from mrsa_watch._base.errors import check_integer, require

_LARGEST_WEIGHT = 2**32 - 1  # of a ring of 32 bits
_Weights = Whole | Nested


@dataclasses.dataclass(frozen=True)
class RingBudget:
    """Contents and headroom of a ring (build it with `budget`).

    All numbers are Python integers, so nothing here can overflow.

    Attributes:
        num_levels: K.
        count: Clients in the sum before dropout.
        total_weight: The largest sum of their weights; `count` without weights.
        modulus: R.
    """

    num_levels: int
    count: int
    total_weight: int
    modulus: int

    @property
    def largest_sum(self) -> int:
        """Return the largest sum of weighted codes, total_weight * (K - 1)."""
        return self.total_weight * (self.num_levels - 1)

    @property
    def required_bits(self) -> int:
        """Return the b of the smallest ring of 2**b elements that holds every sum."""
        return self.largest_sum.bit_length()

    @property
    def headroom(self) -> int:
        """Count the further units of weight that fit, at K levels."""
        return (self.modulus - 1 - self.largest_sum) // (self.num_levels - 1)

    @property
    def largest_levels(self) -> int:
        """Return the largest K whose sums still fit this ring."""
        return (self.modulus - 1) // self.total_weight + 1

    def __str__(self) -> str:
        """Say in one line what is summed, what it needs and what is left."""
        return (
            f"{self.count} clients, weights of at most {self.total_weight} together, "
            f"{self.num_levels} levels: sums to {self.largest_sum} need "
            f"{self.required_bits} bits; "
            f"a ring of {self.modulus} leaves room for {self.headroom} more units of "
            "weight, or "
            f"for {self.largest_levels} levels"
        )


def largest_total_weight(count: Whole, max_weight: _Weights) -> int:
    """Return the largest sum of the weights of `count` clients.

    Args:
        count: Clients in the sum before dropout, at least 1.
        max_weight: The most that one client's integer weight can be, at least 1; or the
            weights of all clients (at least `count`), of which the `count` largest are
            added.

    Returns:
        A Python integer, at least 1.

    Raises:
        ConfigurationError: If a weight is no integer, negative, or all are 0.

    Examples:
        >>> import mrsa_jax as mj
        >>> budgets = mj.quantize.budgets
        >>> (
        ...     budgets.largest_total_weight(2, 10),
        ...     budgets.largest_total_weight(2, [3, 10, 4]),
        ... )
        (20, 14)
    """
    number = check_integer(count, "count", 1)
    if isinstance(max_weight, bool | Whole | np.bool_):
        return number * check_integer(max_weight, "max_weight", 1)
    weights = check_weights(max_weight, "max_weight")
    require(
        len(weights) >= number,
        "max_weight",
        "must hold `count` weights or more",
        len(weights),
        number,
    )
    total = sum(sorted(map(int, weights))[-number:])
    require(total >= 1, "max_weight", "must hold a weight above 0", total)
    return total


def check_weights(
    weights: ArrayLike | Sequence[int | float] | Sequence[Any],
    argument: str = "weights",
    largest: int = _LARGEST_WEIGHT,
) -> np.ndarray:
    """Return integer weights as uint32[N], or raise.

    Args:
        weights: Integers in [0, largest]; a client of weight 0 adds nothing to a sum.
        argument: Name for messages.
        largest: The most a weight may be, below 2**32.

    Raises:
        ConfigurationError: If the weights are no integers, out of range, or not one
            axis.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.quantize.budgets.check_weights([3, 0, 5]).tolist()
        [3, 0, 5]
    """
    array = host_array(weights, "weights")
    require(
        array.dtype.kind in "iu", argument, "must be integers", f"dtype {array.dtype}"
    )
    require(
        array.ndim == 1 and array.size > 0,
        argument,
        "must be one weight a client",
        array.shape,
    )
    low, high = int(array.min()), int(array.max())
    require(
        low >= 0 and high <= largest, argument, f"must lie in [0, {largest}]", low, high
    )
    return array.astype(np.uint32)


def budget(
    num_levels: Whole,
    count: Whole,
    max_weight: _Weights = 1,
    *,
    modulus_bits: Whole | None = None,
) -> RingBudget:
    """Say what a ring must hold.

    Levels, cohort and weights to bits, headroom and most levels.

    Args:
        num_levels: K, at least 2.
        count: Clients in the sum before dropout, at least 1.
        max_weight: Largest weight, or all clients' weights (`largest_total_weight`).
        modulus_bits: b of the ring, 1 to 32; the smallest that holds every sum if None.

    Returns:
        The budget, whose text explains it.

    Raises:
        ConfigurationError: If an argument is out of range, or a sum could wrap round.

    Examples:
        >>> import mrsa_jax as mj
        >>> print(
        ...     mj.quantize.budget(2**16, 12, modulus_bits=32)
        ... )  # doctest: +NORMALIZE_WHITESPACE
        12 clients, weights of at most 12 together, 65536 levels: sums to 786420 need
        20 bits; a ring of 4294967296 leaves room for 65525 more units of weight, or
        for 357913942 levels
        >>> mj.quantize.budget(2**10, 2, [5, 9, 7]).required_bits == (
        ...     16 * (2**10 - 1)
        ... ).bit_length()
        True
    """
    levels = check_integer(num_levels, "num_levels", 2)
    total = largest_total_weight(count, max_weight)
    needed = (total * (levels - 1)).bit_length()
    bits = check_integer(
        needed if modulus_bits is None else modulus_bits, "modulus_bits", 1, 32
    )
    _check_sum(levels, total, 2**bits)
    return RingBudget(levels, int(count), total, 2**bits)


def ring_size(num_levels: Whole, count: Whole, max_weight: _Weights = 1) -> int:
    """Return the smallest R that holds every weighted sum of `count` codes.

    Codes are below `num_levels`.

    Args:
        num_levels: K, at least 2.
        count: Clients in the sum before dropout, at least 1.
        max_weight: Largest weight, or all clients' weights (`largest_total_weight`).

    Returns:
        (sum of the `count` largest weights) * (K - 1) + 1.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> budgets = mj.quantize.budgets
        >>> (
        ...     budgets.ring_size(12, 20),
        ...     budgets.ring_size(12, 20, 3),
        ...     budgets.ring_size(12, 2, [1, 2, 3]),
        ... )
        (221, 661, 56)

    Source:
        HeteroSAg, Section V: R = |S| (K - 1) + 1.
    """
    levels = check_integer(num_levels, "num_levels", 2)
    return largest_total_weight(count, max_weight) * (levels - 1) + 1


def largest_levels(modulus: Whole, count: Whole, max_weight: _Weights = 1) -> int:
    """Return the most levels whose weighted sums fit a ring of `modulus` elements.

    Args:
        modulus: R, at least 2.
        count: Clients in the sum before dropout, at least 1.
        max_weight: Largest weight, or all clients' weights (`largest_total_weight`).

    Returns:
        floor((R - 1) / total weight) + 1, at least 2.

    Raises:
        ConfigurationError: If an argument is out of range, or not even two levels fit.

    Examples:
        >>> import mrsa_jax as mj
        >>> budgets = mj.quantize.budgets
        >>> (
        ...     budgets.largest_levels(221, 20),
        ...     budgets.ring_size(budgets.largest_levels(2**16, 7, 9), 7, 9) <= 2**16,
        ... )
        (12, True)
    """
    ring = check_integer(modulus, "modulus", 2)
    total = largest_total_weight(count, max_weight)
    require(
        ring > total, "modulus", "must exceed the largest sum of weights", ring, total
    )
    return (ring - 1) // total + 1


def check_fits(
    num_levels: Whole,
    count: Whole,
    modulus: int,
    max_weight: _Weights = 1,
) -> None:
    """Raise unless every weighted sum of `count` codes is less than `modulus`.

    Codes are below `num_levels`.

    Raises:
        ConfigurationError: If `total weight * (num_levels - 1) >= modulus`.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.quantize.budgets.check_fits(2, 3, 4)
        >>> mj.quantize.budgets.check_fits(2, 4, 4)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `modulus` must exceed count * (num_levels - 1); ...
        >>> mj.quantize.budgets.check_fits(2, 2, 4, 3)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `modulus` must exceed total weight * ...
    """
    levels = check_integer(num_levels, "num_levels", 2)
    total = largest_total_weight(count, max_weight)
    _check_sum(
        levels, total, int(modulus), "count" if total == count else "total weight"
    )


def _check_sum(
    levels: int,
    total: int,
    modulus: int,
    factor: str = "total weight",
) -> None:
    largest = total * (levels - 1)
    require(
        modulus > largest,
        "modulus",
        f"must exceed {factor} * (num_levels - 1)",
        modulus,
        largest,
    )
