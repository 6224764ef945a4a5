"""Weak privacy after every round: in bulk by bounds, or proved.

The public face of two engines: `_bounds` (array code for thousands of histories) and
the curve (certificates for one history after the other).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.prime import PRIMES, codes, fields, host_residues, residues
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.threads import in_order
from mrsa_jax._core.traced import is_traced
from mrsa_jax.privacy._coalitions import without
from mrsa_jax.privacy._weak import (
    SECONDS_PER_EFFORT,
    Budget,
    candidates,
    check_effort,
    guess_seconds,
)
from mrsa_jax.privacy.solver import (
    CHEAP_SECONDS,
    Bounds,
    Groups,
    Progress,
    Space,
    Vector,
    bounds,
    collapse,
    one_round,
    random_projection,
    ranks_of,
)
from mrsa_watch._base.errors import check_integer, nearest, require
from mrsa_watch._base.primes import draw_primes
from mrsa_watch._base.values import by_value

# Weak privacy after every round of one history, proved backwards from the ends of
# plateaus.
#
# The row space only grows, so a light vector found after a round is there ever after,
# and a lower bound proved after a round holds for all rounds before it. T changes only
# when the rank grows: everything here is in levels, the number of independent rows so
# far.

_SETS_A_LEVEL = 24
_METHOD = np.dtype("U12")
# one takes at most a quarter of what is left, so that earlier levels get theirs
_SEARCHES = 4


@dataclasses.dataclass(frozen=True)
@by_value
class Witness:
    """A combination of rounds that a weak privacy was read off.

    Attributes:
        round: From this round on it can be formed.
        weight: Clients in it.
        support: Their sorted indices.
        coefficients: Python integers, one for each round up to `round`, checked in
            such.
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
        lower: int32 `[..., rounds]`: T is at least this after rows 0..j; -1 while
            nobody took part.
        upper: int32 `[..., rounds]`: T is at most this.
        certified: bool `[..., rounds]`: whether both are equal, the rank is proven, and
            an exact combination shows the upper bound; never set by `method="bounds"`.
            A round before anybody took part counts as certified: there is nothing to
            solve for.
        rank: int32 `[..., rounds]`.
        lower_method: What proves each lower bound, `[..., rounds]` of strings; None
            inside `jit`.
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
    """Return the curve of a history `[rounds, clients]` by searches of some seconds."""
    groups = collapse(history)
    rounds = len(history)
    if not groups.num_groups:
        nothing = np.full(rounds, -1, np.int32)
        zero = np.zeros(rounds, np.int32)
        methods = np.zeros(rounds, _METHOD)
        return WeakPrivacyTrajectory(nothing, nothing, zero == 0, zero, methods, ((),))
    budget = Budget(seconds)
    ranks = ranks_of(groups.matrix, max(budget.left, CHEAP_SECONDS), progress)
    search = _Levels(groups.matrix[ranks.kept], groups.sizes, budget, progress)
    search.run()
    levels = ranks.prefix
    lower = np.append(-1, search.lower[1:])[levels]
    upper = np.append(-1, search.upper[1:])[levels]
    # Without a proven rank only the classes of equal columns bound T from below.
    is_sure = ranks.proven | (levels == 0)
    lower = np.where(is_sure, lower, np.minimum(lower, 1))
    witnesses = []
    for vector in search.changes():
        last = int(ranks.kept[vector.last_row])
        support = groups.clients(np.flatnonzero(vector.columns))
        coefficients = vector.witness(ranks.kept, groups)[: last + 1]
        witnesses.append(
            Witness(last, vector.weight, support, coefficients, vector.method)
        )
    return WeakPrivacyTrajectory(
        lower.astype(np.int32),
        upper.astype(np.int32),
        ranks.proven & (lower == upper),
        levels.astype(np.int32),
        np.asarray(search.method, _METHOD)[levels],
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
        self,
        rows: np.ndarray,
        weights: np.ndarray,
        budget: Budget,
        progress: Progress | None,
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
        """Return the vectors that lowered the upper bound, first levels first."""
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
                self._add(one_round(self._rows[: row + 1], self._weights, row))
        for level in range(1, len(self._rows) + 1):
            space = self._space(level)
            self.lower[level] = space.strong
            _lower_from(self.upper, level, space.singleton)

    def _add(self, vector: Vector) -> bool:
        """Take a vector into account; return whether it lowers a bound."""
        first = vector.last_row + 1
        is_news = bool(vector.weight < self.upper[first])
        _lower_from(self.upper, first, vector.weight)
        self._vectors.append(vector)
        return is_news

    def _prove(self, level: int, weight: int, method: str) -> None:
        for earlier in range(level, 0, -1):
            if self.lower[earlier] < weight:
                self.lower[earlier] = weight
                self.method[earlier] = method

    def _improve(self, level: int) -> bool:
        """Narrow the interval of a level.

        Return False when the effort does not allow it.
        """
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
        """Look for light vectors at each level up to one, each with the newest row."""
        self._has_guessed = True
        for count in range(2, level + 1):
            if self.lower[count] >= self.upper[count]:
                continue
            space = self._space(count)
            cost = guess_seconds(space, _SETS_A_LEVEL, 1)
            if not self._budget.allows(cost):
                continue
            self._budget.spend(cost)
            for vector in candidates(
                space, int(self.upper[count]), _SETS_A_LEVEL, count, 1
            ):
                self._add(vector)
            if self._progress is not None:
                self._progress("looking for light combinations", count, level)

    def _confirm(self) -> None:
        """Find an exact vector wherever an upper bound rests on counting alone."""
        exact = np.full(len(self.upper), np.iinfo(np.int64).max)
        for vector in self._vectors:
            _lower_from(exact, vector.last_row + 1, vector.weight)
        for level in range(1, len(self.upper)):
            if exact[level] > self.upper[level]:
                shorter = self._space(level).singleton_vector()
                if shorter is not None:
                    self._add(shorter)
                    _lower_from(exact, shorter.last_row + 1, shorter.weight)
        # A bound without an exact vector is none.
        self.upper[1:] = exact[1:]


def _lower_from(bounds: np.ndarray, level: int, weight: int) -> None:
    bounds[level:] = np.minimum(bounds[level:], weight)


METHODS = ("certified", "bounds")
_ARRAYS = ("lower", "upper", "certified", "rank", "lower_method")
DEFAULT_MEMORY_BYTES = 1 << 29
# Residues, codes, their copies on the device and temporaries, for each entry of a
# history.
_BYTES_AN_ENTRY = 64
_ROUND_UP = 8
_NUM_PRIMES = 2  # of the bounds


def weak_privacy_trajectory(
    P: Any,
    method: Any = "certified",
    *,
    effort: Any = 1.0,
    coalition: Any = (),
    memory_bytes: Any = DEFAULT_MEMORY_BYTES,
    progress: Progress | None = None,
) -> WeakPrivacyTrajectory:
    """Return bounds on weak privacy T after every round of one or many histories.

    Choose "bounds" for thousands of histories: array code, microseconds to milliseconds
    each. The upper bound is the lightest row, the weighted Singleton bound and sets of
    up to three groups; block designs with up to four blocks a round come out tight. Two
    primes drawn for the call decide: rank and lower bound are wrong with error chance
    below 2**-30 for a 0/1 history of up to 1000 x 1000. Choose "certified" for proof:
    it searches backwards from the ends of plateaus, and narrows what bounds leave open.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a
            row for each sum that the server learnt, skipped rounds being zero rows.
        method: "certified" or "bounds".
        effort: For "certified": how much may be tried for each history, as in
            `weak_privacy`.
        coalition: As in `weak_privacy`.
        memory_bytes: For "bounds": about how much may be used besides P and the result;
            histories run in chunks that fit, one at a time at least.
        progress: Called with what is done, parts done and their number.

    Returns:
        NumPy arrays (`WeakPrivacyTrajectory`). Neither bound ever rises from one round
        to the next. With "bounds" also inside `jit`, `vmap` and `shard_map`, as JAX's
        arrays: two primes that never change then decide, and clients with equal columns
        are not taken together beforehand, so that bounds for many clients may be
        looser.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, P has fewer than two axes
            or an empty one, or `method`, `effort`, `coalition` or `memory_bytes` is not
            as above.

    Edge cases: while no client took part the rank is 0 and both bounds are -1.

    Examples:
        >>> import mrsa_jax as mj
        >>> history = [[0, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 1]]
        >>> found = mj.privacy.weak_privacy_trajectory(history)
        >>> found.upper.tolist(), found.rank.tolist(), bool(found.certified.all())
        ([-1, 2, 2, 1], [0, 1, 2, 3], True)
        >>> mj.privacy.weak_privacy_trajectory(history, method="bounds").lower.tolist()
        [-1, 2, 2, 1]

    Cost: "bounds" four products modulo p for each round and entry of a groups x groups
    basis.

    Source:
        Multi-RoundSecAgg, Remark 1 and Figure 4a. Differs from the paper: both of its
        definitions index rounds 0..t-1; entry j here is after rows 0..j, as for all
        other metrics.
    """
    history = without(P, coalition)
    is_method = isinstance(method, str) and method in METHODS
    hint = nearest(str(method), METHODS)
    require(
        is_method, "method", f"must be one of 'certified', 'bounds' ({hint})", method
    )
    seconds = SECONDS_PER_EFFORT * check_effort(effort)
    memory = check_integer(memory_bytes, "memory_bytes", 1)
    if method == "bounds" and is_traced(history):
        return _traced(on_device(history))
    array = host_array(history, "P")
    stacked = array.reshape((-1, *array.shape[-2:]))
    if method == "bounds":
        curves = _bulk(stacked, memory, progress)
    else:
        curves = _proved(stacked, seconds, progress)
    shape = array.shape[:-1]
    arrays = {name: getattr(curves, name).reshape(shape) for name in _ARRAYS}
    return dataclasses.replace(curves, **arrays)


def _traced(histories: Array) -> WeakPrivacyTrajectory:
    """Return the bounds of histories whose values only the program knows."""
    rounds, clients = histories.shape[-2:]
    stacked = histories.reshape((-1, rounds, clients))
    rows = jnp.stack([residues(stacked, prime) for prime in PRIMES], axis=1)
    weights = jnp.ones((stacked.shape[0], clients), jnp.int32)
    projection = random_projection(PRIMES, clients, seed=0)
    tile = at_once("eliminations", _BYTES_AN_ENTRY * clients * (rounds + clients))
    curves = bounds(
        rows,
        stacked.astype(jnp.int32),
        weights,
        projection,
        fields(PRIMES),
        binary=stacked.dtype == jnp.bool_,
        tile=tile,
    )
    lower, upper, rank = (values.reshape(histories.shape[:-1]) for values in curves)
    is_begun = rank > 0
    return WeakPrivacyTrajectory(
        jnp.where(is_begun, lower, -1),
        jnp.where(is_begun, upper, -1),
        jnp.zeros_like(rank, jnp.bool_),
        rank,
        None,
        (),
    )


def _proved(
    histories: np.ndarray, seconds: float, progress: Progress | None
) -> WeakPrivacyTrajectory:
    """Return the proven curves of histories, one after another."""
    curves = []
    for trial, history in enumerate(histories, 1):
        curves.append(certify(history, seconds, progress))
        if progress is not None and len(histories) > 1:
            progress("histories", trial, len(histories))
    arrays: Any = {
        name: np.stack([getattr(curve, name) for curve in curves]) for name in _ARRAYS
    }
    witnesses = tuple(curve.witnesses[0] for curve in curves)
    return WeakPrivacyTrajectory(**arrays, witnesses=witnesses)


def _bulk(
    histories: np.ndarray, memory: int, progress: Progress | None
) -> WeakPrivacyTrajectory:
    """Return the bounds of histories, those of similar width in one program."""
    trials, rounds, _ = histories.shape
    lower, upper = np.full((2, trials, rounds), -1, np.int32)
    rank = np.zeros((trials, rounds), np.int32)
    groups = [collapse(history) for history in histories]
    by_width: dict[int, list[int]] = {}
    for trial, group in enumerate(groups):
        if group.num_groups:
            width = -(-group.num_groups // _ROUND_UP) * _ROUND_UP
            by_width.setdefault(width, []).append(trial)
    jobs = [
        (width, chunk)
        for width, members in by_width.items()
        for chunk in _chunks(members, rounds, width, memory)
    ]
    primes = draw_primes(_NUM_PRIMES)
    tasks = [
        functools.partial(_bounds_of, [groups[k] for k in chunk], rounds, primes, width)
        for width, chunk in jobs
    ]
    done = 0
    for (_, chunk), curves in zip(jobs, in_order(tasks), strict=True):
        is_begun = curves.rank > 0
        lower[chunk] = np.where(is_begun, curves.lower, -1)
        upper[chunk] = np.where(is_begun, curves.upper, -1)
        rank[chunk] = curves.rank
        done += len(chunk)
        if progress is not None:
            progress("histories", done, trials)
    methods = np.where(rank > 0, "bounds", "")
    never = np.zeros_like(rank, np.bool_)
    return WeakPrivacyTrajectory(lower, upper, never, rank, methods, ())


def _chunks(
    members: list[int], rounds: int, width: int, memory: int
) -> list[list[int]]:
    """Cut trials into parts that keep all cores busy within a share of the memory."""
    cores = num_cores()
    each = _BYTES_AN_ENTRY * width * (rounds + width)
    size = max(1, min(-(-len(members) // cores), memory // cores // each))
    size = 1 << (size.bit_length() - 1)  # what runs is padded to a power of two
    return [members[i : i + size] for i in range(0, len(members), size)]


def _bounds_of(
    groups: list[Groups], rounds: int, primes: Sequence[int], width: int
) -> Bounds:
    """Return the bounds of some histories, padded to few numbers and widths."""
    size = 1 << (len(groups) - 1).bit_length()
    rows = np.zeros((size, len(primes), rounds, width), np.uint32)
    numbers = np.zeros((size, rounds, width), np.int32)
    weights = np.zeros((size, width), np.int32)
    binary = True
    for place, group in enumerate(groups):
        matrix = group.matrix
        count = group.num_groups
        for which, prime in enumerate(primes):
            rows[place, which, :, :count] = host_residues(matrix, prime, np.uint32)
        numbers[place, :, :count] = codes(matrix)
        weights[place, :count] = group.sizes
        binary &= bool(((matrix == 0) | (matrix == 1)).all())
    tile = at_once("eliminations", _BYTES_AN_ENTRY * width * (rounds + width))
    with jax.enable_x64(False):  # whatever width of numbers a caller has on
        projection = random_projection(primes, width)
        curves = bounds(
            rows, numbers, weights, projection, fields(primes), binary, tile
        )
    return Bounds(*(values[: len(groups)] for values in jax.device_get(curves)))
