"""Weak privacy after every round of one history, proved backwards from the ends of plateaus.

The row space only grows, so a light vector found after a round is there ever after, and a lower
bound proved after a round holds for all rounds before it. T changes only when the rank
grows: everything here is in levels, the number of independent rows so far.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from jaxtyping import Array

from mrsa_jax._core.arrays import pytree
from mrsa_jax.privacy._weak import Budget, candidates, guess_seconds
from mrsa_jax.privacy.solver import (
    CHEAP_SECONDS,
    Groups,
    Progress,
    Ranks,
    Space,
    Vector,
    collapse,
    ranks_of,
)

_SETS_A_LEVEL = 24
_METHOD = np.dtype("U12")
_SEARCHES = 4  # one takes at most a quarter of what is left, so that earlier levels get theirs


@dataclasses.dataclass(frozen=True)
class Witness:
    """A combination of rounds that a weak privacy was read off.

    Attributes:
        round: From this round on it can be formed.
        weight: Clients in it.
        support: Their sorted indices.
        coefficients: Python integers, one for each round up to `round`, checked in such.
        method: Where it was found.
    """

    round: int
    weight: int
    support: tuple[int, ...]
    coefficients: tuple[int, ...]
    method: str


@pytree
class WeakPrivacyTrajectory:
    """Weak privacy T after each round; leading axes are separate histories.

    A pytree; what comes out of a program holds JAX's arrays and names no methods.

    Attributes:
        lower: int32 `[..., rounds]`: T is at least this after rows 0..j; -1 while nobody took
            part.
        upper: int32 `[..., rounds]`: T is at most this.
        certified: bool `[..., rounds]`: whether both are equal, the rank is proven, and an exact
            combination shows the upper bound; never set by `method="bounds"`. A round before
            anybody took part counts as certified: there is nothing to solve for.
        rank: int32 `[..., rounds]`.
        lower_method: What proves each lower bound, `[..., rounds]` of strings; None inside `jit`.
        witnesses: For each history, in order, the exact combinations that lowered the
            upper bound; empty with `method="bounds"`.
    """

    lower: np.ndarray | Array
    upper: np.ndarray | Array
    certified: np.ndarray | Array
    rank: np.ndarray | Array
    lower_method: np.ndarray | None
    witnesses: tuple[tuple[Witness, ...], ...]


def certify(
    history: np.ndarray, seconds: float, progress: Progress | None
) -> WeakPrivacyTrajectory:
    """Return the curve of a history `[rounds, clients]`, all searches taking about `seconds`."""
    groups = collapse(history)
    rounds = len(history)
    if not groups.num_groups:
        nothing, zero = np.full(rounds, -1, np.int32), np.zeros(rounds, np.int32)
        methods = np.zeros(rounds, _METHOD)
        return WeakPrivacyTrajectory(nothing, nothing, zero == 0, zero, methods, ((),))
    budget = Budget(seconds)
    ranks = ranks_of(groups.matrix, max(budget.left, CHEAP_SECONDS), progress)
    search = _Levels(groups.matrix[ranks.kept], groups.sizes, budget, progress)
    search.run()
    return _by_round(search, groups, ranks)


def _by_round(search: _Levels, groups: Groups, ranks: Ranks) -> WeakPrivacyTrajectory:
    levels, proven, kept = ranks.prefix, ranks.proven, ranks.kept
    lower = np.concatenate([[-1], search.lower[1:]])[levels]
    upper = np.concatenate([[-1], search.upper[1:]])[levels]
    # Without a proven rank only the classes of equal columns bound T from below.
    lower = np.where(proven | (levels == 0), lower, np.minimum(lower, 1))
    witnesses = []
    for vector in search.changes():
        last = int(kept[vector.last_row])
        witnesses.append(
            Witness(
                last,
                vector.weight,
                groups.clients(np.flatnonzero(vector.columns)),
                vector.witness(kept, groups)[: last + 1],
                vector.method,
            )
        )
    methods = np.asarray([search.method[level] for level in levels], _METHOD)
    return WeakPrivacyTrajectory(
        lower.astype(np.int32),
        upper.astype(np.int32),
        proven & (lower == upper),
        levels.astype(np.int32),
        methods,
        (tuple(witnesses),),
    )


class _Levels:
    """Bounds on T for every number of independent rows, level 0 standing for none.

    Attributes:
        lower: int64 `[rank + 1]`.
        upper: int64 `[rank + 1]`.
        method: What proves each lower bound.
    """

    def __init__(
        self, rows: np.ndarray, weights: np.ndarray, budget: Budget, progress: Progress | None
    ) -> None:
        self._rows = rows
        self._weights = weights
        self._budget = budget
        self._progress = progress
        self._vectors: list[Vector] = []
        self._has_guessed = False
        self._paid: set[int] = set()  # levels whose dual vectors are counted
        count = len(rows)
        self.lower = np.ones(count + 1, np.int64)
        self.upper = np.full(count + 1, int(weights.sum()), np.int64)
        self.method = ["classes"] * (count + 1)

    def run(self) -> None:
        """Prove what the effort allows, from the last level down to the first."""
        self._start()
        level = len(self._rows)
        while level >= 1:
            if self.lower[level] >= self.upper[level] or not self._improve(level):
                level -= 1
        self._confirm()

    def changes(self) -> list[Vector]:
        """Return the vectors that the upper bound was lowered by, first levels first."""
        best: list[Vector] = []
        for vector in sorted(self._vectors, key=lambda v: (v.last_row, v.weight)):
            if not best or vector.weight < best[-1].weight:
                best.append(vector)
        return best

    @functools.lru_cache(maxsize=4)  # noqa: B019  (lives as long as one history's search)
    def _space(self, level: int) -> Space:
        return Space(self._rows[:level], self._weights)

    def _start(self) -> None:
        loads = (self._rows != 0) @ self._weights
        for row in range(len(self._rows)):
            if loads[row] < self.upper[row + 1] or row == 0:
                coefficients = tuple(int(j == row) for j in range(row + 1))
                self._add(Vector(int(loads[row]), self._rows[row] != 0, coefficients, "one round"))
        for level in range(1, len(self._rows) + 1):
            space = self._space(level)
            self.lower[level] = space.strong
            self.upper[level:] = np.minimum(self.upper[level:], space.singleton)

    def _add(self, vector: Vector) -> bool:
        """Take a vector into account; return whether it lowers a bound."""
        first = vector.last_row + 1
        is_news = bool(vector.weight < self.upper[first])
        self.upper[first:] = np.minimum(self.upper[first:], vector.weight)
        self._vectors.append(vector)
        return is_news

    def _prove(self, level: int, weight: int, method: str) -> None:
        for earlier in range(level, 0, -1):
            if self.lower[earlier] < weight:
                self.lower[earlier] = weight
                self.method[earlier] = method

    def _improve(self, level: int) -> bool:
        """Narrow the interval of a level; return False when the effort does not allow it."""
        space = self._space(level)
        if level not in self._paid:
            if not self._budget.allows(space.duals_seconds):
                return False
            self._budget.spend(space.duals_seconds)
            self._paid.add(level)
        limits = int(self.lower[level]), int(self.upper[level]) - 1
        chosen = space.best_plan(*limits, CHEAP_SECONDS)
        if chosen is None:
            if not self._has_guessed:
                self._guess(level)
                return True
            chosen = space.best_plan(*limits, self._budget.left / _SEARCHES)
            if chosen is None:
                return False
        self._budget.spend(chosen.seconds)
        is_proof, vector = space.search(chosen, self._progress)
        if is_proof:
            self._prove(level, chosen.limit + 1, chosen.method)
            return True
        return vector is not None and self._add(vector)

    def _guess(self, level: int) -> None:
        """Look for light vectors at every level up to this one, each with the newest row."""
        self._has_guessed = True
        for count in range(2, level + 1):
            if self.lower[count] >= self.upper[count]:
                continue
            space = self._space(count)
            cost = guess_seconds(space, _SETS_A_LEVEL, 1)
            if not self._budget.allows(cost):
                continue
            self._budget.spend(cost)
            for vector in candidates(space, int(self.upper[count]), _SETS_A_LEVEL, count, 1):
                self._add(vector)
            if self._progress is not None:
                self._progress("looking for light combinations", count, level)

    def _confirm(self) -> None:
        """Find an exact vector wherever an upper bound rests on counting dimensions alone."""
        shown = np.full(len(self.upper), np.iinfo(np.int64).max)
        for vector in self._vectors:
            first = vector.last_row + 1
            shown[first:] = np.minimum(shown[first:], vector.weight)
        for level in range(1, len(self.upper)):
            if shown[level] > self.upper[level]:
                shorter = self._space(level).singleton_vector()
                if shorter is not None:
                    self._add(shorter)
                    first = shorter.last_row + 1
                    shown[first:] = np.minimum(shown[first:], shorter.weight)
        # A bound without an exact vector is none.
        self.upper[1:] = shown[1:]
