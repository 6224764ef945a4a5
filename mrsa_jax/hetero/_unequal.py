"""Why clients of unequal rings cannot share zero-sum pads: Example 1 and Table II.

HeteroSAg, Section II-D. Each client pads modulo its own ring and the server adds modulo the
largest: pads that sum to zero there cancel only while no client's padded value wraps round.
Symbols: D -> the largest of `moduli`; Z_i -> an entry of a tuple of pads.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mrsa_jax._checks import check_integer
from mrsa_jax._errors import require
from mrsa_jax._tracing import needs_values

_MOST = 10**7


class UnequalFailures(NamedTuple):
    """How often sums over unequal rings go wrong.

    Attributes:
        wrong: Cases whose sum is not the sum of the inputs.
        cases: All combinations of a tuple of pads and inputs.
        example: The first wrong case: pads, inputs, the server's sum and the true one; None if
            there is none.
    """

    wrong: int
    cases: int
    example: tuple[tuple[int, ...], tuple[int, ...], int, int] | None


@needs_values
def unequal_moduli_tuples(
    moduli: Sequence[int | np.integer],
) -> tuple[tuple[int, ...], ...]:
    """List the pads, one below each client's modulus, that sum to 0 modulo the largest.

    Args:
        moduli: The clients' rings, each at least 2.

    Returns:
        All such tuples, lexicographically.

    Raises:
        ConfigurationError: If a modulus is below 2, or there are more than 10^7 combinations.

    Examples:
        >>> len(unequal_moduli_tuples([2, 6, 6])), unequal_moduli_tuples([2, 2])
        (12, ((0, 0), (1, 1)))

    Source: HeteroSAg, Table II (columns (0, 0, 0) and (1, 5, 0) stand last of their halves there).
    """
    rings = [check_integer(modulus, "moduli", 2) for modulus in moduli]
    require(len(rings) > 0, "moduli", "must hold a ring for each client", rings)
    _check_size(rings, "moduli")
    every = itertools.product(*(range(ring) for ring in rings))
    return tuple(pads for pads in every if sum(pads) % max(rings) == 0)


@needs_values
def unequal_moduli_failures(
    moduli: Sequence[int | np.integer], levels: Sequence[int | np.integer]
) -> UnequalFailures:
    """Count how often padding in unequal rings distorts the sum.

    Client i sends (x_i + Z_i) mod R_i with x_i below its number of levels; the server adds what
    arrives modulo the largest ring. All pads of `unequal_moduli_tuples` and all inputs are tried.

    Args:
        moduli: R_i of each client.
        levels: How many values the input of each client takes, at least 1 and at most R_i.

    Returns:
        The counts and the first failure. Equal rings give none, and that is why HeteroSAg sums
        each block in one.

    Raises:
        ConfigurationError: If the sizes differ, a number is out of range, or there are more than
            10^7 cases.

    Examples:
        >>> unequal_moduli_failures([2, 6, 6], [2, 3, 3])[:2]
        (54, 216)
        >>> unequal_moduli_failures([6, 6, 6], [2, 3, 3]).wrong
        0

    Source: HeteroSAg, Example 1, eq. (8).
    """
    pads = unequal_moduli_tuples(moduli)
    rings = [int(modulus) for modulus in moduli]
    sizes = [check_integer(size, "levels", 1) for size in levels]
    same = len(sizes) == len(rings) and all(
        size <= ring for size, ring in zip(sizes, rings, strict=True)
    )
    require(same, "levels", "must be one for each of `moduli`, no larger than it", sizes, rings)
    _check_size([len(pads), *sizes], "levels")
    wrong, cases, example = 0, 0, None
    for own in pads:
        for inputs in itertools.product(*(range(size) for size in sizes)):
            sent = sum((x + z) % r for x, z, r in zip(inputs, own, rings, strict=True))
            got, true = sent % max(rings), sum(inputs)
            cases += 1
            if got != true:
                wrong += 1
                example = example or (own, inputs, got, true)
    return UnequalFailures(wrong, cases, example)


def _check_size(sizes: Sequence[int], argument: str) -> None:
    count = 1
    for size in sizes:
        count *= size
    require(count <= _MOST, argument, "must give at most 10^7 combinations", count)
