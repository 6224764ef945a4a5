"""Gradient disaggregation: the members of each sum, from sums and counts alone.

Every column of P (the rounds of one client) lies in the column space of Y = P X, and
holds only zeros and ones with the known number of ones in each interval. Few vectors do
both, so each client's column is searched for on its own: first by a relaxation of all
clients at once, then, for those it does not settle, by an integer program (HiGHS). Once
P is known, least squares gives the updates.

Lam, Wei, Brooks, Reddi, Mitzenmacher, "Gradient Disaggregation: Breaking Privacy in
Federated Learning by Reconstructing the User Participant Matrix" (2021). The relaxation
is this package's; the paper solves the integer program of every client with a
commercial solver.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, Key

from mrsa_jax._core.arrays import as_integers, on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.streams import as_key, fold_over
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._least_squares import least_squares
from mrsa_jax.attacks._view import check_finite_values, check_not_negative, checked_view
from mrsa_jax.attacks.views import CountView
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value

_EXACT = 1e-6  # noise below this share of the smallest signal counts as none
_BISECTIONS = 30  # of a multiplier: far finer than float32 needs
_PUSH = 0.5  # how hard the last steps drive entries to 0 and 1
_TILT = 0.02  # random slope, which parts the columns of clients with equal counts


@by_value
class Disaggregated(NamedTuple):
    """Columns and updates that disaggregation found.

    Attributes:
        participation: bool [J, N], the columns found. Clients of one `group` have them
            in an arbitrary order: nothing in the view tells these clients apart.
        group: int64 [N], clients with the same counts have the same number.
        residual: float64 [N], sine of the angle between a column and the column space;
            0 for a column that explains the sums.
        is_explained: bool [N], whether that is within the attack's tolerance; never
            where the sums span all of their J dimensions, as any column would then do.
        is_shared: bool [N], whether other clients of the group have the same column: a
            block, whose sum is all that the server can learn.
        rank: Dimension of the column space.
        estimates: float64 [N, d], the updates by least squares.
    """

    participation: np.ndarray
    group: np.ndarray
    residual: np.ndarray
    is_explained: np.ndarray
    is_shared: np.ndarray
    rank: int
    estimates: np.ndarray


@dataclasses.dataclass(frozen=True)
class Disaggregation:
    """The attack (built by `disaggregation`).

    Attributes:
        num_steps: Steps of the relaxation.
        restarts: Random slopes a client.
        tolerance: Largest residual of a column that counts as found.
        seconds: Limit of the integer program of one column; 0 does without it.
    """

    num_steps: int
    restarts: int
    tolerance: float
    seconds: float

    @needs_values
    def run(
        self,
        key: Key[Array, ""] | int,
        view: CountView,
        progress: Callable[[int, int], None] | None = None,
    ) -> Disaggregated:
        """Search each client's column of P; then estimate the updates.

        Args:
            key: JAX key or seed, for the random slopes and a random projection of the
                sums.
            view: Sums, counts and intervals.
            progress: Called with (groups of equal counts with a column, groups).

        Returns:
            The columns and the estimates.

        Raises:
            ConfigurationError: If the view is of another type, its shapes do not fit,
                sums are not finite, or a count does not fit its interval.

        Examples:
            >>> history = np.random.default_rng(0).random((30, 6)) < 0.5
            >>> updates = np.random.default_rng(1).normal(size=(6, 40))
            >>> counts = history.reshape(3, 10, 6).sum(axis=1)
            >>> view = CountView(history @ updates, counts, np.array([10, 10, 10]))
            >>> bool((disaggregation().run(0, view).participation == history).all())
            True
        """
        sums, counts, interval = _checked(checked_view(view, CountView))
        tilt_key, project_key = jax.random.split(as_key(key))
        null, is_exact, rank = _null_space(sums, counts.shape[1], project_key)
        distinct, group = np.unique(counts, axis=1, return_inverse=True)
        group = group.reshape(-1)
        problem = _Problem(null, interval, is_exact, self.tolerance)
        groups = self._columns(
            problem,
            self._relaxed(tilt_key, null, interval, distinct),
            distinct,
            np.bincount(group).tolist(),
            rank,
            progress,
        )
        columns = np.zeros((counts.shape[1], len(sums)), np.bool_)
        is_shared = np.zeros(counts.shape[1], np.bool_)
        for number, candidates in enumerate(groups):
            members = group == number
            # clients of a group take its columns in turn: nothing tells them apart
            turns = np.arange(members.sum()) % len(candidates)
            columns[members] = np.stack(candidates)[turns]
            is_shared[members] = np.bincount(turns)[turns] > 1
        residual = problem.residual(columns)
        return Disaggregated(
            participation=columns.T,
            group=group,
            residual=residual,
            is_explained=(residual <= self.tolerance) & (rank < len(sums)),
            is_shared=is_shared,
            rank=rank,
            estimates=least_squares(columns.T, sums),
        )

    def _columns(
        self,
        problem: _Problem,
        relaxed: np.ndarray,
        counts: np.ndarray,
        sizes: list[int],
        rank: int,
        progress: Callable[[int, int], None] | None,
    ) -> list[list[np.ndarray]]:
        """Return the different columns of each group of equal counts, at least one."""
        nearest = list(map(problem.nearest, relaxed, sizes))
        groups = [list(filter(problem.is_near, near)) for near in nearest]
        for number in np.argsort(sizes, kind="stable").tolist():
            # as many different columns as the rank explain all sums: the rest are
            # repeated ones
            missing = rank - sum(bool(np.any(c)) for group in groups for c in group)
            group = groups[number]
            wanted = min(sizes[number], len(group) + missing)
            problem.search(counts[:, number], group, wanted, self.seconds)
            if progress is not None:
                progress(sum(map(bool, groups)), len(groups))
        pairs = zip(groups, nearest, strict=True)
        return [group or [near[0]] for group, near in pairs]

    def _relaxed(
        self,
        key: Array,
        null: np.ndarray,
        interval: np.ndarray,
        counts: np.ndarray,
    ) -> np.ndarray:
        """Return rounded relaxations bool [groups, restarts, J]."""
        num_groups, shape = counts.shape[1], (self.restarts, null.shape[1])
        width = at_once("candidates", 4 * shape[0] * shape[1])
        space = on_device(null.T @ null, jnp.float32), on_device(interval)
        draw = jax.vmap(lambda key: jax.random.normal(key, shape, jnp.float32))
        parts = []
        for start in range(0, num_groups, width):
            some = on_device(counts[:, start : start + width].T, jnp.float32)
            numbers = jnp.arange(start, start + some.shape[0], dtype=jnp.int32)
            slopes = draw(fold_over(key, numbers))
            columns = _relax(*space, some, slopes, self.num_steps)
            parts.append(np.asarray(columns))
        return np.concatenate(parts)


def disaggregation(
    *,
    num_steps: int = 300,
    restarts: int = 4,
    tolerance: float = 0.1,
    seconds: float = 30.0,
) -> Disaggregation:
    """Return the attack that recovers the participation matrix itself.

    Args:
        num_steps: Steps of the relaxation of all clients at once.
        restarts: Random starts a client; more of them part clients with equal counts.
        tolerance: Largest sine of the angle to the column space at which a column
            counts as found, in (0, 1); with sums that change from round to round no
            column lies in it.
        seconds: Limit of the integer program for one column that the relaxation does
            not settle; 0 for the relaxation alone.

    Raises:
        ConfigurationError: If a number is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.attacks.disaggregation(restarts=8).restarts
        8
    """
    require(bool(0 < tolerance < 1), "tolerance", "must lie in (0, 1)", tolerance)
    check_not_negative(seconds=seconds)
    return Disaggregation(
        check_integer(num_steps, "num_steps", 1),
        check_integer(restarts, "restarts", 1),
        float(tolerance),
        float(seconds),
    )


def _checked(view: CountView) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sums [J, d], counts [M, N] and each round's interval [J]."""
    sums = np.asanyarray(view.aggregates)
    require(
        sums.ndim == 2 and sums.dtype.kind in "fiu",
        "aggregates",
        "must be real [rounds, d]",
        sums.shape,
    )
    name = "interval_lengths"
    lengths = np.asarray(as_integers(view.interval_lengths, name, min_ndim=1))
    is_positive = lengths.ndim == 1 and bool((lengths > 0).all())
    require(
        is_positive and int(lengths.sum()) == len(sums),
        name,
        "must be positive and add up to the rounds of `aggregates`",
        lengths.tolist(),
        f"{len(sums)} rounds",
    )
    counts = np.asarray(as_integers(view.counts, "counts")).astype(np.int64)
    require(
        counts.ndim == 2 and len(counts) == len(lengths),
        "counts",
        "must have a row for each interval and a column for each client",
        counts.shape,
    )
    require(
        bool(((counts >= 0) & (counts <= lengths[:, None])).all()),
        "counts",
        "must lie between 0 and the interval's length",
        counts.max(),
    )
    return sums, counts, np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)


def _null_space(
    sums: np.ndarray,
    num_clients: int,
    key: Array,
) -> tuple[np.ndarray, bool, int]:
    """Return an orthonormal basis [J - r, J] of the complement of the column space.

    Also whether the sums have no noise to speak of, and the rank r: where the singular
    values fall the most, at most the number of clients.
    """
    num_rounds = len(sums)
    # the columns of P lie in the span of the first r left singular vectors
    left, values, _ = np.linalg.svd(_narrowed(sums, key))
    values = np.concatenate([values, np.zeros(num_rounds - len(values))])
    most = min(num_clients, num_rounds)
    limits = np.finfo(np.float64)
    floor = limits.eps * max(float(values[0]), limits.tiny)
    after = np.maximum(np.append(values[1:], 0.0), floor)[:most]
    falls = values[:most] / after
    if most == num_rounds:
        # a full space is the answer only where nothing falls before its end
        is_early = falls[:-1].max(initial=0.0) > 1 / _EXACT
        falls[-1] = 0.0 if is_early else np.inf
    rank = int(np.argmax(falls)) + 1
    return left[:, rank:].T, bool(falls[rank - 1] > 1 / _EXACT), rank


def _narrowed(sums: np.ndarray, key: Array) -> np.ndarray:
    """Return the sums as float64 [J, d], or projected to fewer columns at random."""
    num_rounds, dim = sums.shape
    # a random projection to J columns or more keeps the column space
    narrow = 4 * num_rounds
    width = at_once("pieces", 8 * max(num_rounds, narrow))
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    out = np.zeros((num_rounds, narrow if dim > 2 * narrow else dim))
    for start in range(0, dim, width):
        piece = np.asarray(sums[:, start : start + width], np.float64)
        check_finite_values(aggregates=piece)
        if out.shape[1] == dim:
            out[:, start : start + width] = piece
        else:
            out += piece @ generator.normal(size=(piece.shape[1], narrow))
    return out


@functools.partial(jax.jit, static_argnames=("num_steps",))
def _relax(
    projector: Float32[Array, "rounds rounds"],
    interval: Int32[Array, " rounds"],
    counts: Float32[Array, "groups intervals"],
    slopes: Float32[Array, "groups restarts rounds"],
    num_steps: int,
) -> Bool[Array, "groups restarts rounds"]:
    """Descend to columns near the column space, drive them to 0 and 1, and round them.

    Each step goes from the column part of the way to its projection on the column
    space, and back to the entries in [0, 1] with the right count in each interval.
    """

    def descend(count: Array, slope: Array) -> Array:
        start = _capped(jnp.full(interval.shape, 0.5, jnp.float32), count, interval)

        def step(index: Array, column: Array) -> Array:
            done = index.astype(jnp.float32)
            push = jnp.float32(_PUSH) * done / jnp.float32(num_steps)
            moved = column - projector @ column + push * (column - jnp.float32(0.5))
            return _capped(moved + jnp.float32(_TILT) * slope, count, interval)

        return _rounded(jax.lax.fori_loop(0, num_steps, step, start), count, interval)

    return jax.vmap(jax.vmap(descend, (None, 0)))(counts, slopes)


def _capped(values: Array, count: Array, interval: Array) -> Array:
    """Bisect for the nearest entries in [0, 1] with the right sum in each interval."""
    num_intervals = count.shape[0]
    # all entries are 1 at the low end, all are 0 at the high one
    low = jax.ops.segment_min(values, interval, num_intervals) - jnp.float32(1)
    high = jax.ops.segment_max(values, interval, num_intervals)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / jnp.float32(2)
        held = jnp.clip(values - middle[interval], jnp.float32(0), jnp.float32(1))
        is_more = jax.ops.segment_sum(held, interval, num_intervals) > count
        return jnp.where(is_more, middle, low), jnp.where(is_more, high, middle)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
    return jnp.clip(values - high[interval], jnp.float32(0), jnp.float32(1))


@one_program
def _rounded(values: Array, count: Array, interval: Array) -> Array:
    """Return ones at each interval's largest entries, as many as its count."""
    # by interval, in each the largest first
    order = jnp.lexsort((-values, interval))
    lengths = jax.ops.segment_sum(jnp.ones_like(interval), interval, count.shape[0])
    # where each interval begins in that order
    first = jnp.cumsum(lengths) - lengths
    place = jnp.arange(len(values), dtype=jnp.int32) - first[interval[order]]
    is_one = place < count.astype(jnp.int32)[interval[order]]
    return jnp.zeros(values.shape, bool).at[order].set(is_one)


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """The column space and the intervals, which all clients share."""

    null: np.ndarray
    interval: np.ndarray
    is_exact: bool
    tolerance: float

    def residual(self, columns: np.ndarray) -> np.ndarray:
        """Return for each column [..., J] the sine of its angle to the column space."""
        entries = columns.astype(np.float64)
        size = np.linalg.norm(entries, axis=-1)
        off = np.linalg.norm(entries @ self.null.T, axis=-1)
        # an empty column lies in every space
        return np.divide(off, size, out=np.zeros_like(off), where=size > 0)

    def is_near(self, column: np.ndarray) -> bool:
        """Say whether a column explains the sums."""
        most = 10 * _EXACT if self.is_exact else self.tolerance
        return bool(self.residual(column) <= most)

    def nearest(self, relaxed: np.ndarray, wanted: int) -> np.ndarray:
        """Return up to `wanted` different columns of a group, the nearest first."""
        improved = np.unique(np.stack(list(map(self._improved, relaxed))), axis=0)
        return improved[np.argsort(self.residual(improved), kind="stable")][:wanted]

    def search(
        self,
        counts: np.ndarray,
        columns: list[np.ndarray],
        wanted: int,
        seconds: float,
    ) -> None:
        """Add columns of these counts to a list until it holds as many as wanted."""
        while len(columns) < wanted and seconds > 0 and len(self.null) > 0:
            column = self._program(counts, columns, seconds)
            if column is None or not self.is_near(column):
                return
            columns.append(column)

    def _improved(self, column: np.ndarray) -> np.ndarray:
        """Swap a one and a zero of an interval while that brings the column nearer."""
        inner = self.null.T @ self.null
        sizes = np.diagonal(inner)
        same = self.interval[:, None] == self.interval[None, :]
        column = column.copy()
        for _ in range(len(column)):
            # of the squared distance c^T inner c, for every pair that could be swapped
            pull = inner @ column.astype(np.float64)
            change = 2 * (pull[None, :] - pull[:, None])
            change = change + sizes[:, None] + sizes[None, :] - 2 * inner
            change[~(same & column[:, None] & ~column[None, :])] = np.inf
            leaves, enters = np.unravel_index(int(np.argmin(change)), change.shape)
            if not change[leaves, enters] < -1e-12:
                break
            column[leaves], column[enters] = False, True
        return column

    def _program(
        self,
        counts: np.ndarray,
        known: list[np.ndarray],
        seconds: float,
    ) -> np.ndarray | None:
        """Solve an integer program for a column other than those known, None if none.

        Without noise any column in the column space will do; with noise the one of
        least absolute distance from it.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        num_off, num_rounds = self.null.shape
        of_interval = self.interval[None, :] == np.arange(len(counts))[:, None]
        spare = 0 if self.is_exact else num_off

        def widened(matrix: np.ndarray) -> np.ndarray:
            return np.hstack([matrix, np.zeros((len(matrix), spare))])

        constraints = [LinearConstraint(widened(of_interval), counts, counts)]
        if known:  # a column differs from each of them in an entry at least
            signs = np.where(np.stack(known), -1.0, 1.0)
            least = 1.0 - np.sum(known, axis=1)
            constraints.append(LinearConstraint(widened(signs), least, np.inf))
        if self.is_exact:
            constraints.append(LinearConstraint(self.null, -_EXACT, _EXACT))
        else:  # each spare variable is at least the distance in one direction
            both = np.kron([[1.0], [-1.0]], self.null)
            both = np.hstack([both, np.tile(-np.eye(num_off), (2, 1))])
            constraints.append(LinearConstraint(both, -np.inf, 0.0))
        is_spare = np.arange(num_rounds + spare) >= num_rounds
        result = milp(
            is_spare.astype(float),
            constraints=constraints,
            integrality=~is_spare,
            bounds=Bounds(0.0, np.where(is_spare, np.inf, 1.0)),
            options={"time_limit": seconds},
        )
        return None if result.x is None else result.x[:num_rounds] > 0.5
