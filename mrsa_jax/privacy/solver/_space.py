"""The row space of a history's first rounds: what is known of its lightest vectors.

`Space` is searched; `Sieve` decides single groups and pairs without a search.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets

import numpy as np

from mrsa_jax.privacy.solver import _search
from mrsa_jax.privacy.solver._ranks import (
    AUDIT_BITS,
    SECONDS_PER_PRODUCT,
    Groups,
    collapse,
    combination_on,
    independent_rows,
    kernel_of,
    product,
    reduced_echelon,
    residues_of,
    solve_each,
    solve_on,
    support_of,
)
from mrsa_watch._base.errors import MrsaError
from mrsa_watch._base.primes import draw_primes, enough_primes, error_bits


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

    def witness(self, basis: np.ndarray, groups: Groups) -> tuple[int, ...]:
        """Return a coefficient for each row of a history, checked in Python integers.

        Args:
            basis: The history's rows that the space was made of.
            groups: The history, whose groups the columns are.

        Raises:
            MrsaError: If the combination is not zero somewhere else than the vector
                says.
        """
        whole = [0] * len(groups.matrix)
        for j, z in zip(basis, self.coefficients, strict=False):
            whole[j] = int(z)
        on = support_of(whole, groups.matrix)
        if not (on == self.columns).all() or groups.sizes[on].sum() != self.weight:
            raise MrsaError(
                "a combination of the sums is not what it was found as, so nothing may "
                "rest on it: "
                "this is a fault of mrsa-jax; please report the history"
            )
        return tuple(whole)


def one_round(rows: np.ndarray, weights: np.ndarray, row: int) -> Vector:
    """Return one of some rows."""
    on, unit = rows[row] != 0, tuple(int(j == row) for j in range(len(rows)))
    return Vector(int(weights[on].sum()), on, unit, "one round")


class Space:
    """Independent integer rows, their equal columns taken together.

    Attributes:
        rows: Integers `[rank, columns]`.
        weights: int64 `[columns]`: clients behind each column.
    """

    def __init__(self, rows: np.ndarray, weights: np.ndarray) -> None:
        self.rows, self.weights = rows, weights

    @functools.cached_property
    def groups(self) -> Groups:
        """The columns taken together, made when needed; its members are columns."""
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
        """The weighted Singleton bound: the corank + 1 lightest groups."""
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
        return one_round(self.rows, self.weights, int(loads.argmin()))

    def combination(self, coefficients: dict[int, int], method: str) -> Vector | None:
        """Return a combination of a few rows, given by their coefficients.

        None if it is zero.
        """
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
        combination = combination_on(self.groups.matrix, groups, self.groups.sizes)
        if combination is None:
            return None
        coefficients, support = combination
        columns = np.zeros(self.rows.shape[1], np.bool_)
        for k in np.flatnonzero(support):
            columns[self.groups.members[k]] = True
        return Vector(
            int(self.groups.sizes[support].sum()), columns, tuple(coefficients), method
        )

    def plan(self, limit: int) -> _search.Plan | None:
        """Plan a search of weights up to `limit`; None if there is no way."""
        if limit < self.strong:
            return _search.Plan("classes", limit, 0.0)
        return None if self.duals is None else _search.plan(self.duals, limit)

    def best_plan(self, least: int, limit: int, seconds: float) -> _search.Plan | None:
        """Return the plan for the largest weight that takes at most some seconds.

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
        """Run a plan; return whether it is a proof, and a vector if there is one."""
        if chosen.method == "classes":
            return True, None
        assert self.duals is not None
        outcome = _search.run(self.duals, chosen, progress)
        if outcome.subset is None:
            return outcome.is_proof, None
        return False, self.vector(outcome.subset, outcome.method)


# Light vectors of one or two groups, and clients who stand alone, from a basis of
# columns.
#
# With B a basis of columns, row i of X = B^-1 A says which other columns move with
# column i: none, and the column stands alone: its unit vector lies in the space; one,
# or a multiple of another row, and two columns form a light vector. Only the products
# of X with a few random vectors are ever computed, modulo primes drawn for the call.
# Modulo a prime that keeps the rank, a column that does not stand alone does not over
# the rationals either.

_AXES = 3
_MOST_PAIRS = 16
# Exact coefficients: for each unknown, bit of the largest minor, and column that is
# solved for.
_SECONDS_PER_LIFT = 1.3e-13


@dataclasses.dataclass(frozen=True)
class Alone:
    """Groups whose unit vector is in the space.

    Attributes:
        groups: Sorted.
        last_rows: For each, the last of the space's rows that its combination uses:
            from it on the group stands alone.
        vectors: For each, its exact combination; empty where that was too expensive.
        error_bits: None where groups and last rows are proven; otherwise k: one of them
            is wrong with error chance below 2**-k.
    """

    groups: tuple[int, ...]
    last_rows: tuple[int, ...]
    vectors: tuple[Vector, ...]
    error_bits: int | None


class Sieve:
    """Which groups stand alone, and which two form a light vector.

    Attributes:
        suspects: Sorted groups that stand alone modulo all primes; nobody else does.
    """

    def __init__(self, groups: Groups, rows: np.ndarray, minor_bits: float) -> None:
        self._groups, self._rows, self._minor_bits = groups, rows, minor_bits
        self._rng = np.random.default_rng(secrets.randbits(128))
        self._primes: list[int] = []
        self._images: list[np.ndarray] = []
        self._factors: list[np.ndarray] = []
        self._cases = 2 * groups.num_groups  # who is alone, and from which row on
        self._wanted = enough_primes(minor_bits, self._cases, AUDIT_BITS)
        self._basis = np.arange(0)
        # with as many columns as rows all of them stand alone, and one image has it all
        is_whole = len(rows) == groups.num_groups
        while len(self._primes) < (1 if is_whole else self._wanted):
            (prime,) = draw_primes(1, self._primes)
            if len(self._basis) < len(rows):
                self._basis = self._column_basis(prime)
            self._add_image(prime)
        zero = np.all([(image == 0).all(axis=1) for image in self._images], axis=0)
        self.suspects = sorted(int(k) for k in self._basis[zero])

    @property
    def sizes(self) -> np.ndarray:
        """int64 `[groups]`: clients in each group."""
        return self._groups.sizes

    @property
    def single_seconds(self) -> float:
        """Predicted seconds of one core that one exact vector takes."""
        return self._exact_seconds(1)

    def _exact_seconds(self, count: int) -> float:
        """Solutions have as many bits as the minors, found a word at a time."""
        rank = len(self._rows)
        lifted = count * (rank * max(self._minor_bits, rank)) ** 2 * _SECONDS_PER_LIFT
        return lifted + SECONDS_PER_PRODUCT * rank**3

    def _column_basis(self, prime: int) -> np.ndarray:
        """Return as many independent columns as independent rows, modulo a prime.

        A random part of the columns spans most of the space; a column that the rest
        needs is not orthogonal to what annihilates that part.
        """
        rank, columns = self._rows.shape
        part = self._rng.permutation(columns)[: 2 * rank]
        vectors = residues_of(self._rows[:, part], prime).T
        chosen = part[independent_rows(vectors, prime)]
        if len(chosen) == rank:
            return chosen
        annihilators = kernel_of(vectors, prime).astype(np.int64)
        _, more = reduced_echelon(product(self._rows.T, annihilators, prime).T, prime)
        return np.concatenate([chosen, more])

    def _add_image(self, prime: int) -> None:
        """Keep X times random vectors `[rank, axes]`, if the prime keeps the rank."""
        rank, columns = self._rows.shape
        if len(self._basis) < rank:
            return
        factors = self._rng.integers(1, prime, (columns, _AXES))
        factors[self._basis] = 0
        right = product(self._rows, factors, prime)
        system = np.concatenate(
            [residues_of(self._rows[:, self._basis], prime), right], axis=1
        )
        form, pivots = reduced_echelon(system, prime)
        if (pivots == np.arange(rank)).all():
            self._primes.append(prime)
            self._factors.append(factors)
            self._images.append(form[:, rank:].astype(np.int64))

    def alone(self, wanted: list[int], seconds: float) -> Alone:
        """Find which of some groups stand alone, and from which row on.

        In exact integers where that is predicted to take at most `seconds` of a core.
        """
        suspects = np.intersect1d(self.suspects, wanted)
        if not len(suspects):
            return Alone((), (), (), None)
        places = [int(np.flatnonzero(self._basis == k)[0]) for k in suspects]
        if self._exact_seconds(len(suspects)) <= seconds:
            return self._exactly(suspects, places)
        more = draw_primes(self._wanted - len(self._primes), self._primes)
        every = [self._last_rows(places, prime) for prime in (*self._primes, *more)]
        rows_of_primes = [rows for rows in every if rows is not None]
        last = np.max(rows_of_primes, axis=0)
        chance = error_bits(self._minor_bits, len(rows_of_primes), self._cases)
        return Alone(tuple(suspects.tolist()), tuple(last.tolist()), (), chance)

    def _exactly(self, suspects: np.ndarray, places: list[int]) -> Alone:
        solved = solve_each(self._rows, self._basis, places)
        assert solved is not None  # the columns are independent modulo a prime
        exact = []
        for k, coefficients in zip(suspects.tolist(), solved, strict=True):
            support = support_of(coefficients, self._rows)
            if np.flatnonzero(support).tolist() == [k]:
                weight = int(self._groups.sizes[k])
                exact.append(
                    (k, Vector(weight, support, tuple(coefficients), "column basis"))
                )
        return Alone(
            tuple(k for k, _ in exact),
            tuple(vector.last_row for _, vector in exact),
            tuple(vector for _, vector in exact),
            None,
        )

    def _last_rows(self, places: list[int], prime: int) -> np.ndarray | None:
        """Return the last row that each combination uses, modulo a prime.

        None if the prime loses the rank.
        """
        rank = len(self._rows)
        unit = np.zeros((rank, len(places)), np.uint64)
        unit[places, np.arange(len(places))] = 1
        square = residues_of(self._rows[:, self._basis], prime).T
        form, pivots = reduced_echelon(np.concatenate([square, unit], axis=1), prime)
        if (pivots != np.arange(rank)).any():
            return None
        return rank - 1 - (form[:, rank:] != 0)[::-1].argmax(axis=0)

    def lightest_single(self) -> Vector | None:
        """Return an exact vector on the lightest group that stands alone."""
        for k in self.suspects:
            vector = self._exact(self._basis, k)
            if vector is not None and vector.weight == self._groups.sizes[k]:
                return vector
        return None

    def _exact(self, basis: np.ndarray, k: int) -> Vector | None:
        solved = solve_on(self._rows, np.concatenate([basis[basis != k], [k]]))
        if solved is None:
            return None
        coefficients, support = solved
        weight = int(self._groups.sizes[support].sum())
        return Vector(weight, support, tuple(coefficients), "column basis")

    def lightest_pair(self) -> tuple[int, Vector | None]:
        """Bound the weight of pairs of groups, and return an exact one that meets it.

        The bound is more than the weight of all groups when no two dual vectors are
        parallel.
        """
        sizes = self._groups.sizes
        pairs = sorted((int(sizes[i] + sizes[j]), i, j) for i, j in self._parallel())
        if not pairs:
            return int(sizes.sum()) + 1, None
        for weight, i, j in pairs[:_MOST_PAIRS]:
            if weight > pairs[0][0]:
                break
            vector = self._pair(i, j)
            if vector is not None and vector.weight <= weight:
                return pairs[0][0], vector
        return pairs[0][0], None

    def _pair(self, i: int, j: int) -> Vector | None:
        basis = self._basis
        if j in basis:
            i, j = j, i
        if i not in basis:
            return None
        if j in basis:
            # Another column takes j's place; then i's row has j alone.
            others = np.setdiff1d(np.arange(self._rows.shape[1]), basis)
            for k in others[:_MOST_PAIRS]:
                vector = self._exact(np.where(basis == j, k, basis), i)
                if (
                    vector is not None
                    and vector.weight <= self._groups.sizes[[i, j]].sum()
                ):
                    return vector
            return None
        return self._exact(basis, i)

    def _parallel(self) -> list[tuple[int, int]]:
        """Return pairs of groups with parallel images, one at least in the basis.

        Free columns have independent unit vectors for dual vectors, images of the
        factors.
        """
        prime, image, factors = self._primes[0], self._images[0], self._factors[0]
        free = np.setdiff1d(np.arange(self._rows.shape[1]), self._basis)
        owners = np.concatenate([self._basis, free])
        vectors = np.concatenate([(prime - image) % prime, factors[free]])
        is_nonzero = (vectors != 0).any(axis=1)
        owners, vectors = owners[is_nonzero], vectors[is_nonzero]
        scale = np.asarray(
            [pow(int(z), -1, prime) if z else 0 for z in vectors[:, 2]], np.int64
        )
        keys = vectors[:, 0] * scale % prime * (1 << 31) + vectors[:, 1] * scale % prime
        order = np.lexsort((self._groups.sizes[owners], keys))
        same = np.flatnonzero(keys[order][1:] == keys[order][:-1])
        return [(int(owners[order[t]]), int(owners[order[t + 1]])) for t in same]
