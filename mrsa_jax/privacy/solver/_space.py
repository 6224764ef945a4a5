"""The row space of a history's first rounds: what is known of its lightest vectors."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from mrsa_jax.privacy.solver import _search
from mrsa_jax.privacy.solver._ranks import (
    SECONDS_PER_PRODUCT,
    Groups,
    collapse,
    combination_on,
    support_of,
)
from mrsa_watch._base.errors import MrsaError


@dataclasses.dataclass(frozen=True)
class Vector:
    """A vector of the row space, exact.

    Attributes:
        weight: Number of clients in its support.
        columns: bool, its support on the columns that the space was made from.
        coefficients: Python integers, of the space's rows.
        method: Where it was found.
    """

    weight: int
    columns: np.ndarray
    coefficients: tuple[int, ...]
    method: str

    @property
    def last_row(self) -> int:
        """Index of the last row that it uses."""
        return max(j for j, z in enumerate(self.coefficients) if z)

    def witness(self, kept: np.ndarray, groups: Groups) -> tuple[int, ...]:
        """Return a coefficient for each row of a history, after a check in Python integers.

        Args:
            kept: The history's rows that the space was made of.
            groups: The history, whose groups the columns are.

        Raises:
            MrsaError: If the combination is not zero somewhere else than the vector says.
        """
        whole = [0] * len(groups.matrix)
        for j, z in zip(kept, self.coefficients, strict=False):
            whole[j] = int(z)
        on = support_of(whole, groups.matrix)
        if not (on == self.columns).all() or groups.sizes[on].sum() != self.weight:
            raise MrsaError(
                "a combination of the sums is not what it was found as, so nothing may rest on it: "
                "this is a fault of mrsa-jax; please report the history"
            )
        return tuple(whole)


class Space:
    """Independent integer rows, their equal columns taken together.

    Attributes:
        rows: Integers `[rank, columns]`.
        weights: int64 `[columns]`: clients behind each column.
    """

    def __init__(self, rows: np.ndarray, weights: np.ndarray) -> None:
        self.rows = rows
        self.weights = weights

    @functools.cached_property
    def groups(self) -> Groups:
        """The columns taken together, once they are asked for; its members are columns."""
        return collapse(self.rows, self.weights)

    @property
    def rank(self) -> int:
        """Dimension of the space."""
        return len(self.rows)

    @property
    def corank(self) -> int:
        """Groups less the rank."""
        return self.groups.num_groups - self.rank

    @property
    def strong(self) -> int:
        """The lightest group: strong privacy, and a lower bound."""
        return int(self.groups.sizes[0])

    @property
    def singleton(self) -> int:
        """The weighted Singleton bound: the corank + 1 lightest groups carry a vector."""
        return int(self.groups.sizes[: self.corank + 1].sum())

    @property
    def duals_seconds(self) -> float:
        """Predicted seconds of one core that its dual vectors take."""
        return 5 * SECONDS_PER_PRODUCT * self.rank**2 * self.groups.num_groups

    @functools.cached_property
    def duals(self) -> _search.Duals | None:
        """Its dual vectors, once they are asked for."""
        return _search.duals(self.groups.matrix, self.groups.sizes)

    def lightest_row(self) -> Vector:
        """Return the row with the fewest clients."""
        loads = (self.rows != 0) @ self.weights
        row = int(loads.argmin())
        coefficients = tuple(int(j == row) for j in range(self.rank))
        return Vector(int(loads[row]), self.rows[row] != 0, coefficients, "one round")

    def combination(self, coefficients: dict[int, int], method: str) -> Vector | None:
        """Return a combination of a few rows, given by their coefficients; None if it is zero."""
        total = sum(z * self.rows[j].astype(object) for j, z in coefficients.items())
        columns = np.asarray(total != 0, np.bool_)
        if not columns.any():
            return None
        whole = tuple(coefficients.get(j, 0) for j in range(self.rank))
        return Vector(int(self.weights[columns].sum()), columns, whole, method)

    def singleton_vector(self) -> Vector | None:
        """Return a vector on the corank + 1 lightest groups."""
        return self.vector(range(self.corank + 1), "singleton")

    def vector(self, groups: object, method: str) -> Vector | None:
        """Return an exact vector supported on some of these groups, if there is one."""
        found = combination_on(self.groups.matrix, groups, self.groups.sizes)
        if found is None:
            return None
        coefficients, support = found
        columns = np.zeros(self.rows.shape[1], np.bool_)
        for k in np.flatnonzero(support):
            columns[self.groups.members[k]] = True
        weight = int(self.groups.sizes[support].sum())
        return Vector(weight, columns, tuple(coefficients), method)

    def plan(self, limit: int) -> _search.Plan | None:
        """Return how weights up to `limit` would be searched; None if there is no way."""
        if limit < self.strong:
            return _search.Plan("classes", limit, 0.0)
        return None if self.duals is None else _search.plan(self.duals, limit)

    def best_plan(self, least: int, limit: int, seconds: float) -> _search.Plan | None:
        """Return the plan for the largest weight up to `limit` that takes at most so long.

        None if there is none of at least `least`.
        """
        for weight in range(limit, max(least, self.strong) - 1, -1):
            chosen = self.plan(weight)
            if chosen is not None and chosen.seconds <= seconds:
                return chosen
        return None

    def search(
        self, chosen: _search.Plan, progress: _search.Progress | None
    ) -> tuple[bool, Vector | None]:
        """Run a plan; return whether it proved that there is nothing, and what it found."""
        if chosen.method == "classes":
            return True, None
        assert self.duals is not None
        outcome = _search.run(self.duals, chosen, progress)
        if outcome.subset is None:
            return outcome.is_proof, None
        return False, self.vector(outcome.subset, outcome.method)
