"""The floating-point estimate of weak privacy that the published notebooks use.

It is kept to show where it goes wrong. Source: the notebooks that accompany
Multi-RoundSecAgg; it is the smallest row weight of a reduced row echelon form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int32

from mrsa_jax._core.arrays import as_integers
from mrsa_watch._base.errors import require

_ZERO = 1e-12  # entries no larger count as zero, as in a reduction without scaling


def echelon_estimate(P: Any) -> Int32[np.ndarray, " rounds"]:
    """Estimate weak privacy after each round from a float echelon form: do not use it.

    Every row of a reduced row echelon form is a combination of the sums, so its weight
    would be an upper bound of T if the arithmetic were exact. It is far above T once
    the rows fill up, can rise from round to round, which T never does, and says nothing
    from below. `mrsa_jax.privacy.weak_privacy_trajectory` gives bounds that are proven.

    Args:
        P: Participation matrix, bools or integer weights, `[rounds, clients]`.

    Returns:
        int32[J]: entry j after rows 0..j; -1 while no client took part.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or P has not two axes or
            an empty one.

    Examples:
        >>> echelon_estimate([[0, 0, 0], [1, 1, 0], [0, 1, 1]]).tolist()
        [-1, 2, 2]

    Cost: rank * N float64 operations a round.

    Source: Multi-RoundSecAgg's published notebooks, in our own words (docs/errata.md).
    """
    array = np.asarray(as_integers(P, "P"))
    require(array.ndim == 2, "P", "must have two axes", array.shape)
    basis = np.zeros((0, array.shape[1]))
    pivots: list[int] = []
    estimates = np.full(len(array), -1, np.int32)
    for j, row in enumerate(array.astype(np.float64)):
        basis = _reduce(basis, pivots, row)
        if pivots:
            # the lightest row of the basis: an upper bound on weak T, no more
            estimates[j] = (np.abs(basis) > _ZERO).sum(axis=1).min()
    return estimates


def _reduce(basis: np.ndarray, pivots: list[int], row: np.ndarray) -> np.ndarray:
    """Return the reduced echelon form of the basis and one more row.

    `pivots` grows with it.
    """
    # pivot columns are unit vectors, so one product clears them
    row = row - row[pivots] @ basis
    # exactly zero, which rounding may have missed
    row[pivots] = 0.0
    if np.abs(row).max() <= _ZERO:
        return basis
    # the first entry that is not zero becomes 1
    lead = int(np.argmax(np.abs(row) > _ZERO))
    row = row / row[lead]
    # the new column is cleared above
    basis = basis - np.outer(basis[:, lead], row)
    basis[:, lead] = 0.0
    pivots.append(lead)
    return np.vstack([basis, row])
