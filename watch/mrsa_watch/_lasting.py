"""Among how many clients the lasting part of a client's updates is hidden.

Client i sends sqrt(a) l_i + sqrt(1 - a) e_ir in round r: l_i never changes, e_ir is
fresh. For l the sums of all e are noise. The best linear estimate of l_i explains the
share h = |L^-1 p_i|^2 of its variance, with L the Cholesky factor of M = P P^T + (1 -
a)/a D and D the diagonal of P P^T. A sum may be scaled, so each row of P has length 1
here, and D is the identity. A further sum adds a row to L^-1 and an entry to each L^-1
p_i.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

_MOST_ENTRIES = 2**26  # of L^-1, P and L^-1 P together: half a gigabyte
_MOST_ERROR = 5e-7  # of a share, relative to it: six digits
_ROUNDING = 2.0**-53


class Lasting:
    """Follows how well the lasting part of client updates is hidden, in one part.

    Args:
        share: a, of an update's variance that lasts: above 0 and below 1.

    Edge cases: not known beyond half a gigabyte of memory, and where floats know fewer
    than six digits. Each sum counts as one of another round, with other fresh parts.

    Examples:
        >>> lasting = Lasting(0.5)
        >>> lasting.add(["anna", "bob"], [1.0, 1.0])
        >>> size, client = lasting.worst()
        >>> client, round(size, 6)  # two clients, and noise of two more
        ('anna', 4.0)
    """

    def __init__(self, share: float) -> None:
        self._fresh = (1.0 - share) / share
        self.count = 0
        self._places: dict[Hashable, int] = {}
        self._rows = np.zeros((0, 0))  # P
        self._inverse = np.zeros((0, 0))  # L^-1
        self._solved = np.zeros((0, 0))  # L^-1 P

    def add(self, clients: Sequence[Hashable], weights: Sequence[float]) -> None:
        """Add a sum of some clients, of whom none has the weight 0."""
        columns = [
            self._places.setdefault(client, len(self._places)) for client in clients
        ]
        self.count += 1
        if not self._fits():
            self._rows = self._inverse = self._solved = np.zeros((0, 0))
            return
        # no sum so far has a client who is new
        new = len(self._places) - self._rows.shape[1]
        self._rows = np.pad(self._rows, ((0, 0), (0, new)))
        self._solved = np.pad(self._solved, ((0, 0), (0, new)))
        row = np.zeros(len(self._places))
        row[columns] = _unit(np.asarray(weights, np.float64))
        # the further row of L is (y, pivot), where L y = P row and y y + pivot^2 = 1 +
        # (1 - a)/a
        y = self._inverse @ (self._rows @ row)
        pivot = math.sqrt(1.0 + self._fresh - float(y @ y))
        # the further row of L^-1, by which L^-1 P grows by one row as well
        inverse = np.append(-(y @ self._inverse), 1.0) / pivot
        solved = (row - y @ self._solved) / pivot
        self._rows = np.vstack([self._rows, row])
        self._inverse = np.vstack([np.pad(self._inverse, ((0, 0), (0, 1))), inverse])
        self._solved = np.vstack([self._solved, solved])

    def worst(self) -> tuple[float | None, Hashable]:
        """Return among how many the worst hidden client is, and who it is.

        None if not known.
        """
        if not self._fits() or self._error() > _MOST_ERROR:
            return None, None
        shares = (self._solved**2).sum(axis=0)
        place = int(np.argmax(shares))
        return 1.0 / float(shares[place]), list(self._places)[place]

    def _fits(self) -> bool:
        return self.count * (self.count + 2 * len(self._places)) <= _MOST_ENTRIES

    def _error(self) -> float:
        """Return the relative error of a share, as for the update of one round.

        No eigenvalue of M over its diagonal, 1/a, lies below 1 - a.
        """
        rounds = self.count
        least = self._fresh / (1.0 + self._fresh)
        return (3 * rounds * (rounds + 1) + 8 * rounds) * _ROUNDING / least


def _unit(weights: np.ndarray) -> np.ndarray:
    """Return weights over their length, whose square may be beyond the floats."""
    relative = weights / np.abs(weights).max()
    return np.asarray(relative / np.linalg.norm(relative))
