"""How large a ring must be so that a sum of codes does not wrap round.

HeteroSAg: R = |S| (K - 1) + 1 for a block of |S| clients with K levels, |S| before dropout.
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax.modular._inputs import check_integer

__all__ = ["check_fits", "required_modulus_bits", "ring_size"]


def ring_size(num_levels: int | np.integer, count: int | np.integer) -> int:
    """Return the smallest R that holds every sum of `count` codes below `num_levels`.

    Args:
        num_levels: K, at least 2.
        count: Clients in the sum before dropout, at least 1.

    Returns:
        count * (K - 1) + 1.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> ring_size(12, 20)
        221

    Source:
        HeteroSAg, Section V: R = |S| (K - 1) + 1.
    """
    levels = check_integer(num_levels, "num_levels", 2)
    return check_integer(count, "count", 1) * (levels - 1) + 1


def required_modulus_bits(num_levels: int | np.integer, count: int | np.integer) -> int:
    """Return the b of the smallest ring of 2**b elements that holds the sum of `count` codes.

    Args:
        num_levels: K, at least 2.
        count: Clients in the sum, at least 1.

    Returns:
        ceil(log2(count * (K - 1) + 1)).

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> required_modulus_bits(2**16, 12), required_modulus_bits(2, 1)
        (20, 1)
    """
    return (ring_size(num_levels, count) - 1).bit_length()


def check_fits(num_levels: int | np.integer, count: int | np.integer, modulus: int) -> None:
    """Raise unless the sum of `count` codes below `num_levels` is less than `modulus`.

    Raises:
        ConfigurationError: If `count * (num_levels - 1) >= modulus`.

    Examples:
        >>> check_fits(2, 3, 4)
        >>> check_fits(2, 4, 4)
        Traceback (most recent call last):
        ...
        mrsa_jax._errors.ConfigurationError: `modulus` must exceed count * (num_levels - 1); ...
    """
    largest = ring_size(num_levels, count) - 1
    require(modulus > largest, "modulus", "must exceed count * (num_levels - 1)", modulus, largest)
