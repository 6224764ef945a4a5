"""The lightest vector of a row space through each column.

Exact vectors, and complete searches.

The compiled walk comes first, then `Through`, which directs it.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from mrsa_jax._core.compiled import compiled, first_nonzero
from mrsa_jax.privacy.solver._candidates import program_seconds, sparse_through
from mrsa_jax.privacy.solver._costs import COORDINATE, NODE, TERM, light_sets
from mrsa_jax.privacy.solver._girth import (
    ANOMALY,
    GAVE_UP,
    NONE,
    SMALL,
    assign,
    project,
    takes,
)
from mrsa_jax.privacy.solver._ranks import (
    AUDIT_BITS,
    SECONDS_PER_PRODUCT,
    combination_on,
    kernel_of,
    residues_of,
)
from mrsa_jax.privacy.solver._search import Plan, Progress, folded
from mrsa_jax.privacy.solver._space import Vector, one_round
from mrsa_watch._base.primes import draw_primes, enough_primes, error_bits

# Compiled search for the lightest vector of the row space through each group.
#
# A set of groups carries a vector that is non-zero on all of it, and no smaller set a
# vector, exactly if their dual vectors (`_girth`) are a circuit: dependent, and no
# subset of them is. The lightest vector through a group lies on a circuit. All circuits
# up to a weight are walked through in order: each chosen vector is projected out of
# those behind it, and one that has become zero closes a set; what contains a dependent
# set is no circuit, so the walk continues without it.
#
# The walk runs modulo `SMALL` on a random projection, under which independent sets may
# become dependent, never the other way round. Each set that closes is decided modulo
# large primes: it is dependent over the rationals if it is so modulo all of them and
# their product is larger than all minors. Where it is not, and others could have joined
# it, the walk is no proof (ANOMALY). Import inside functions only (see
# `_core.compiled`).

FULL = 4


@compiled
def _close(subset, size, weight, kernels, primes, least, places, count, circuits, work):
    """Lower the bounds of the groups of a dependent set if it is a circuit.

    Returns how many sets are in `circuits` then.
    """
    is_new = False
    rest = np.empty(size, np.int64)
    for i in range(size):
        if weight >= least[subset[i]]:
            continue
        for j in range(size - 1):
            rest[j] = subset[j if j < i else j + 1]
        if takes(rest, size - 1, kernels, primes, work):  # not on the set's vector
            continue
        least[subset[i]] = weight
        places[subset[i]] = count
        is_new = True
    if is_new:
        circuits[count, :] = -1
        assign(circuits[count], subset, size)
        return count + 1
    return count


@compiled
def search(
    vectors, kernels, primes, weights, limit, least, places, circuits, spent, budget
):
    """Go through all circuits up to a weight; lower the bound of each group on them.

    Args:
        vectors: int32 `[groups, axes]`: dual vectors modulo `SMALL`, on random axes.
        kernels: uint64 `[primes, groups, corank]`: modulo large primes.
        primes: uint64 `[primes]`.
        weights: int64 `[groups]`, ascending.
        limit: Largest weight.
        least: int64 `[groups]`: known weights of vectors through each; lowered.
        places: int64 `[groups]`: receives the place in `circuits` of the one that
            lowered it.
        circuits: int64 `[sets, groups]`: receives circuits, -1 behind them.
        spent: float64 `[1]`: the work so far in nanoseconds; this call's is added.
        budget: When more than this is spent, the search gives up.

    Returns:
        A status and how many circuits were found. NONE: no group has a vector that is
        lighter than `least` and of at most the limit.
    """
    groups, axes = vectors.shape
    stack = np.empty((axes + 1, groups, axes), np.int32)
    for k in range(groups):
        assign(stack[0, k], vectors[k], axes)
    chosen = np.zeros(groups + 1, np.int64)
    work = np.zeros(groups + 1, np.int64)
    used = np.zeros(axes + 1, np.int64)
    # first group that may still be chosen at a level
    begin = np.zeros(axes + 1, np.int64)
    ends = np.full(axes + 1, groups, np.int64)  # groups from here on are too heavy
    is_zero = np.zeros((axes + 1, groups), np.bool_)
    count = 0
    level = 0
    entering = True
    while True:
        if entering:
            entering = False
            if spent[0] > budget:
                return GAVE_UP, count
            stop = ends[level]
            while stop > begin[level] and used[level] + weights[stop - 1] > limit:
                stop -= 1
            ends[level] = stop
            spent[0] += NODE + COORDINATE * (stop - begin[level]) * (axes - level)
            for k in range(begin[level], stop):
                is_zero[level, k] = first_nonzero(stack[level, k, : axes - level]) < 0
                if not is_zero[level, k]:
                    continue
                weight = used[level] + weights[k]
                chosen[level] = k
                terms = TERM * kernels.shape[0] * (level + 1) ** 2 * kernels.shape[2]
                spent[0] += terms
                if takes(chosen, level + 1, kernels, primes, work):
                    if count == circuits.shape[0]:
                        return FULL, count
                    before = count
                    count = _close(
                        chosen,
                        level + 1,
                        weight,
                        kernels,
                        primes,
                        least,
                        places,
                        count,
                        circuits,
                        work,
                    )
                    spent[0] += (count - before) * (level + 1) * terms
                elif weight + weights[0] <= limit:
                    return ANOMALY, count
        k, stop = begin[level], ends[level]
        while k < stop and is_zero[level, k]:
            k += 1
        load = used[level] + weights[k] if k < stop else limit
        if level < axes and k + 1 < stop and load + weights[k + 1] <= limit:
            begin[level] = k + 1
            spent[0] += COORDINATE * (stop - k - 1) * (axes - level)
            project(stack[level], stack[level + 1], k + 1, stop, level, k)
            chosen[level] = k
            level += 1
            used[level], begin[level], ends[level] = load, k + 1, stop
            entering = True
            continue
        if level == 0:
            return NONE, count
        level -= 1


# as many prove what they decide where their product exceeds all minors
_MOST_PRIMES = 24
_ATTEMPTS = 4
_SLOWER = 3  # a program through a column is than one of a round; measured
_SPARE_AXES = 2  # so that few independent sets look dependent
_MOST_COLUMNS = 1000


class Through:
    """Vectors through each column of a space, the lightest known, and lower bounds.

    Attributes:
        rows: Independent integer rows.
        vectors: For each column the lightest exact vector known that is not zero there.
        lower: int64 `[columns]`: no vector through the column is lighter.
        methods: For each column what its lower bound follows from.
        error_bits: None where all lower bounds are proven; otherwise k: one is wrong
            with error chance below 2**-k.
    """

    def __init__(
        self, rows: np.ndarray, weights: np.ndarray, minor_bits: float
    ) -> None:
        """Take independent rows of distinct columns, by ascending weight."""
        self.rows, self._weights, self._minor_bits = rows, weights, minor_bits
        self.vectors: list[Vector] = []
        self.lower = weights.copy()
        self.methods = ["classes"] * len(weights)
        self.error_bits: int | None = None
        self._take_rows()

    @property
    def upper(self) -> np.ndarray:
        """int64 `[columns]`: weights of the vectors."""
        return np.asarray([vector.weight for vector in self.vectors], np.int64)

    @property
    def open(self) -> np.ndarray:
        """Columns whose bounds do not meet."""
        return np.flatnonzero(self.lower < self.upper)

    def _take_rows(self) -> None:
        loads = (self.rows != 0) @ self._weights
        order = np.argsort(loads, kind="stable")
        first = order[(self.rows[order] != 0).argmax(axis=0)].tolist()
        vector_of = {
            row: one_round(self.rows, self._weights, row) for row in set(first)
        }
        self.vectors = [vector_of[row] for row in first]

    def take(self, vector: Vector) -> None:
        """Keep a vector for the columns through which it is the lightest."""
        for k in np.flatnonzero(vector.columns):
            if vector.weight < self.vectors[k].weight:
                self.vectors[k] = vector

    def raise_lower(self, bounds: np.ndarray, method: str) -> None:
        """Keep lower bounds where they are larger than those known."""
        for k in np.flatnonzero(bounds > self.lower):
            self.lower[k] = bounds[k]
            self.methods[k] = method

    def through(self, column: int, support: np.ndarray, method: str) -> Vector | None:
        """Return an exact vector on some columns that is not zero at one.

        None if there is none.
        """
        combination = combination_on(self.rows, support, self._weights, column)
        if combination is None:
            return None
        coefficients, columns = combination
        return Vector(
            int(self._weights[columns].sum()), columns, tuple(coefficients), method
        )

    def program_seconds(self) -> float:
        """Predict one column's program on one core, and its exact vector."""
        rank, columns = self.rows.shape
        exact = 4 * SECONDS_PER_PRODUCT * rank**2 * columns
        return _SLOWER * program_seconds(self.rows) + exact

    def programs(self, most: int, progress: Progress | None) -> None:
        """Look for light vectors through some open columns by L1 programs."""
        columns = self.open[:most]
        for done, k in enumerate(columns.tolist()):
            if progress is not None:
                progress(
                    "looking for light combinations: linear program", done, len(columns)
                )
            support = sparse_through(self.rows, self._weights, k)
            if (
                support is not None
                and self._weights[support].sum() < self.vectors[k].weight
            ):
                vector = self.through(k, np.flatnonzero(support), "linear program")
                if vector is not None:
                    self.take(vector)

    def best_limit(self, seconds: float) -> tuple[int, float] | None:
        """Return the largest weight worth a search of some seconds, and its cost.

        None if there is none that tells anything new.
        """
        if not len(self.open):
            return None
        step = int(np.gcd.reduce(self._weights))
        low = -(-int(self.lower[self.open].min()) // step)
        high = (int(self.upper[self.open].max()) - 1) // step
        if low > high or self._seconds(low * step) > seconds or self._duals is None:
            return None
        while low < high:
            middle = (low + high + 1) // 2
            if self._seconds(middle * step) <= seconds:
                low = middle
            else:
                high = middle - 1
        return low * step, self._seconds(low * step)

    def _seconds(self, limit: int) -> float:
        rank, columns = self.rows.shape
        most, axes = self._sizes(limit)
        sets, roomy = light_sets(self._weights, limit, most)
        if columns > _MOST_COLUMNS or math.inf in sets:
            return math.inf
        work = NODE + math.fsum(
            NODE * roomy[level]
            + 2 * COORDINATE * sets[level + 1] * max(axes - level, 1)
            for level in range(most)
        )
        primes = self._enough_primes()[0]
        return (
            1e-4 + work / 1e9 + (primes + 1) * SECONDS_PER_PRODUCT * rank**2 * columns
        )

    def _sizes(self, limit: int) -> tuple[int, int]:
        """Bound the columns of a circuit, and choose the axes for its walk."""
        rank, columns = self.rows.shape
        within = int(np.searchsorted(np.cumsum(self._weights), limit, side="right"))
        corank = columns - rank
        return max(1, min(within, corank + 1)), min(corank, within + _SPARE_AXES)

    def _enough_primes(self) -> tuple[int, int | None]:
        """Count the primes that decide, and their error bits if they are no proof."""
        all_primes = math.ceil((self._minor_bits + 1) / 30)
        if all_primes <= _MOST_PRIMES:
            return all_primes, None
        cases = len(self._weights) ** 2
        count = enough_primes(self._minor_bits, cases, AUDIT_BITS)
        return count, error_bits(self._minor_bits, count, cases)

    @functools.cached_property
    def _duals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, int | None] | None:
        """Dual vectors `[columns, corank]` modulo a small prime.

        Primes, those modulo each, bits.
        The bits are of the chance that sets are dependent modulo all primes and not of
        themselves.
        """
        rank, columns = self.rows.shape
        small = kernel_of(residues_of(self.rows, SMALL), SMALL).astype(np.int64)
        if small.shape[1] != columns - rank:
            return None
        count, chance = self._enough_primes()
        primes: list[int] = []
        kernels: list[np.ndarray] = []
        while len(primes) < count:
            (prime,) = draw_primes(1, primes)
            kernel = kernel_of(residues_of(self.rows, prime), prime)
            if kernel.shape[1] == columns - rank:
                primes.append(prime)
                kernels.append(kernel)
        return small, np.asarray(primes, np.uint64), np.stack(kernels), chance

    def search(self, limit: int, seconds: float) -> bool:
        """Go through all circuits up to a weight.

        Return whether the bounds follow from it.
        """
        assert self._duals is not None
        small, primes, kernels, chance = self._duals
        budget, axes = Plan("circuits", limit, seconds).budget, self._sizes(limit)[1]
        spent = np.zeros(1)
        attempt = 0
        while attempt < _ATTEMPTS:
            vectors = folded(small, SMALL, axes, attempt)
            least, places = self.upper, np.zeros(len(self._weights), np.int64)
            circuits = np.empty((4 * len(places), len(places)), np.int64)
            status, count = search(
                vectors,
                kernels,
                primes,
                self._weights,
                limit,
                least,
                places,
                circuits,
                spent,
                budget,
            )
            for k in np.flatnonzero(least < self.upper):
                if least[k] < self.vectors[k].weight:
                    circuit = circuits[places[k]]
                    vector = self.through(int(k), circuit[circuit >= 0], "circuits")
                    if vector is not None:
                        self.take(vector)
            if status == NONE:
                if (self.upper > least).any():  # what the primes said was not so
                    return False
                self.error_bits = chance
                self.raise_lower(np.minimum(self.upper, limit + 1), "circuits")
                return True
            if status == GAVE_UP or (status == FULL and not count):
                return False
            attempt += status == ANOMALY
        return False
