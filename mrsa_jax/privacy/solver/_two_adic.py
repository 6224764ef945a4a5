"""The row space's lattice modulo 4: its parity checks, by elimination over the 2-adic integers."""

from __future__ import annotations

import dataclasses

import numpy as np

_ALL = np.uint64(2**64 - 1)


@dataclasses.dataclass(frozen=True)
class Checks:
    """Parity checks modulo 4 of the saturated lattice L of a row space.

    Attributes:
        digits: uint8 `[corank, columns]` in 0..3: v lies in L modulo 4 exactly if all checks
            vanish modulo 4.
        is_even: Whether every vector of L has an even number of odd entries.
    """

    digits: np.ndarray
    is_even: bool


def parity_checks(matrix: np.ndarray) -> Checks | None:
    """Return the checks of the integer vectors in the row space of independent integer rows.

    Rows are eliminated modulo 2**64, always with an entry that has the fewest factors 2, so that
    every quotient is a 2-adic integer and nothing but the last digits of a row is lost: row i,
    divided by its pivot's factors 2, is known modulo 2**64 over those factors. The form's
    leading ones then span the saturated lattice, whatever powers of 2 divided the minors.

    Returns:
        None when fewer than two digits are left.
    """
    rows, columns = matrix.shape
    work = (matrix % (1 << 64)).astype(np.uint64) if matrix.dtype == object else matrix.astype(
        np.int64).view(np.uint64).copy()  # fmt: skip
    free = np.ones(columns, np.bool_)
    pivots = np.zeros(rows, np.int64)
    for i in range(rows):
        candidates = np.where(free, work[i:] & (~work[i:] + np.uint64(1)), np.uint64(0))
        lowest = np.where(candidates == 0, _ALL, candidates)
        place, column = divmod(int(lowest.argmin()), columns)
        power = int(lowest[place, column])
        if power >= 1 << 62:
            return None
        digits = power.bit_length() - 1
        work[[i, i + place]] = work[[i + place, i]]
        inverse = np.uint64(pow(int(work[i, column]) >> digits, -1, 1 << 64))
        factors = (work[i + 1 :, column] >> np.uint64(digits)) * inverse
        work[i + 1 :] -= factors[:, None] * work[i]
        # Divided by a power of two the row keeps its value only if that divides every entry.
        work[i] = (work[i] >> np.uint64(digits)) * inverse
        free[column] = False
        pivots[i] = column
    for i in range(rows - 1, 0, -1):
        work[:i] -= work[:i, pivots[i], None] * work[i]
    rest = np.flatnonzero(free)
    checks = np.zeros((len(rest), columns), np.uint8)
    checks[np.arange(len(rest)), rest] = 1
    checks[:, pivots] = (-work[:, rest] & np.uint64(3)).T.astype(np.uint8)
    odd = (work[:, rest] & np.uint64(1)).sum(axis=1) + 1
    return Checks(checks, bool((odd % 2 == 0).all()))
