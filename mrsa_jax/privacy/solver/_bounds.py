"""Bounds on weak privacy after every round, for thousands of histories at once.

All array code in fixed shapes. One rank-one update of a kernel basis a round, modulo
two 31-bit primes that are drawn for the call, gives the rank and the groups that stand
alone; classes of equal columns give the weighted Singleton bound; dependent sets of up
to three dual vectors are read off keys of a random projection to three axes. Nothing is
searched.

The first functions bound T of one history by leverages that are proven from above.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once, map_tiles
from mrsa_jax._core.device import is_bound_by_memory
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.prime import (
    Field,
    batch_inverse,
    companion,
    inverse,
    kernel_step,
    multiply,
    scale,
    subtract,
    sum_residues,
)
from mrsa_jax._core.programs import quick_for_little

# A lower bound on weak T from leverages that are proven from above.
#
# For a vector v of the row space with support S, client i's leverage is at least
# v_i^2/|v|^2, and these add up to 1 over S. So S has no fewer clients than it takes,
# those with the largest leverages first, for leverages to add up to 1: at least 1 /
# (the largest). A bound in polynomial time, of a number that is NP-hard, and no search:
# it says most of many clients in few rounds.
#
# Floats compute it and a proof encloses what they may be wrong by, whatever the
# history. With G = P P^T (integers that floats hold), x any approximation of G^-1 p and
# r = p - G x,
#
#     h = p^T G^-1 p = p^T x + r^T x + r^T G^-1 r <= p^T x + |r| |x| + |r|^2 / lambda,
#
# lambda any proven lower bound of G's eigenvalues: if the Cholesky factorisation of B =
# G - s I runs to its end in floats, no eigenvalue of B lies below -g tr B with g =
# gamma/(1 - gamma) and gamma = (n + 1) u/(1 - (n + 1) u) of n rows (Higham, Accuracy
# and Stability, theorem 10.7; Rump 2006). Sums of n products err by at most gamma times
# the sum of the absolute values, whatever their order.

_UNIT = 2.0**-53
# of the bound's own roundings: far more than so many sums of positive numbers can make
_OUTWARD = 1 + 1e-9
_PART = 2**22  # float64 entries of columns at a time


def leverage_bound(rows: np.ndarray, sizes: np.ndarray) -> int:
    """Return a proven lower bound on the clients in any vector of the row space.

    1 if none is.

    Args:
        rows: Integers `[rank, groups]`, independent.
        sizes: Clients behind each column.
    """
    largest = 1 << 27 if rows.dtype == object else int(np.abs(rows).max(initial=0))
    if largest**2 * int(sizes.sum()) >= 1 << 53:
        return 1
    step = max(1, _PART // len(rows))
    parts = [slice(start, start + step) for start in range(0, rows.shape[1], step)]
    gram = np.zeros((len(rows),) * 2)
    for part in parts:  # sums of integers that stay exact
        columns = rows[:, part].astype(np.float64)
        gram += (columns * sizes[part]) @ columns.T
    least = _least_eigenvalue(gram)
    if least is None:
        return 1
    return _fewest(
        np.concatenate([_from_above(gram, rows[:, p], least) for p in parts]), sizes
    )


def leverage_seconds(rank: int, groups: int) -> float:
    """Predict the bound's time on one core.

    Products of matrices, and passes over the columns.
    """
    return 1.05e-10 * rank**2 * (3 * groups + rank) + 7e-8 * rank * groups


def _gamma(terms: int) -> float:
    return terms * _UNIT / (1 - terms * _UNIT) * _OUTWARD


def _least_eigenvalue(gram: np.ndarray) -> float | None:
    """Return a proven positive lower bound of the eigenvalues, or None."""
    shift = float(np.linalg.eigvalsh(gram)[0]) / 2
    shifted = gram - shift * np.eye(len(gram))
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return None
    gamma = _gamma(len(gram) + 1)
    error = gamma / (1 - gamma) * float(np.trace(shifted)) + _UNIT * float(
        np.abs(shifted).max()
    )
    least = (shift - 2 * error) / _OUTWARD
    return least if least > 0 else None


def _from_above(gram: np.ndarray, columns: np.ndarray, least: float) -> np.ndarray:
    """Return proven upper bounds of the leverages of some columns."""
    p = columns.astype(np.float64)
    x = np.linalg.solve(gram, p)
    gamma = _gamma(len(gram) + 2)
    rest = np.abs(p - gram @ x) + gamma * (np.abs(p) + np.abs(gram) @ np.abs(x))
    length, size = np.linalg.norm(rest, axis=0), np.linalg.norm(x, axis=0)
    main = (p * x).sum(axis=0) + gamma * np.abs(p * x).sum(axis=0)
    above = (main + (length * size + length * length / least) * _OUTWARD) * _OUTWARD
    return np.where(np.isfinite(above), np.minimum(above, 1.0), 1.0)


def _fewest(above: np.ndarray, sizes: np.ndarray) -> int:
    """Return the fewest clients whose leverages add up to 1."""
    order = np.argsort(-above)
    sums = np.cumsum(above[order] * sizes[order]) * _OUTWARD
    last = int(np.searchsorted(sums, 1.0))
    if last == len(order):  # not even all: they add up to the rank, so floats failed
        return 1
    before = float(sums[last - 1]) if last else 0.0
    missing = (1 - before) / (float(above[order[last]]) * _OUTWARD)
    # sums are rounded up, what is missing down; whole clients close it
    return int(sizes[order[:last]].sum()) + max(1, int(np.ceil(missing / _OUTWARD)))


# Weights are at most 2**26 clients; sums of four stay below 2**31.
NEVER = 1 << 28
# Up to so many groups the keys are looked at in every round, otherwise where the bound
# falls.
EVERY_ROUND = 48
_AXES = 3
_BYTES_A_PAIR = (
    64  # of classes of one history: differences and slopes modulo two primes
)


class Bounds(NamedTuple):
    """Bounds on T after every round; meaningless where the rank is 0."""

    lower: Int32[Array, "... rounds"]
    upper: Int32[Array, "... rounds"]
    rank: Int32[Array, "... rounds"]


class _Basis(NamedTuple):
    """What a round's row changes, and no other way of looking at the history does."""

    kernels: Array  # uint32 [primes, groups, groups]
    ranks: Array  # int32 [primes]
    # int32 [groups]: for each column's class, the place of one of its members
    labels: Array
    active: Array  # bool [groups]: columns that are not zero so far


class _Columns(NamedTuple):
    """What bounds need to know of a basis."""

    ranks: Array  # int32 [primes]
    labels: Array  # int32 [groups]
    active: Array  # bool [groups]
    projected: Array  # uint32 [primes, axes, groups]: of the dual vectors


class _Cheap(NamedTuple):
    """What a round tells without a look at sets of classes; int32 each."""

    upper: Array  # lightest vector among the row, counting and groups that stand alone
    strong: Array  # strong privacy
    four: Array  # weight of the four lightest classes


class _Known(NamedTuple):
    upper: Array  # int32: lightest vector known
    grew: Array  # bool: whether the last row raised the rank
    floor: Array  # int32: lower bound found since the rank last grew, 0 if none
    four: Array  # int32: weight of the four lightest classes


# Asks for the lightest set of up to three classes and a lower bound, where it is due.
_Look = Callable[[Array], tuple[Array, Array]]
_NO_SETS = np.int32(NEVER), np.int32(0)


@quick_for_little(lambda rows, *_: rows.size, static_argnames=("binary", "tile"))
def bounds(
    rows: UInt32[Array, "trials primes rounds groups"],
    codes: Int32[Array, "trials rounds groups"],
    weights: Int32[Array, "trials groups"],
    projection: UInt32[Array, "primes axes groups"],
    of: Field,
    binary: bool,
    tile: int = 1,
) -> Bounds:
    """Return the bounds of histories whose equal columns are already taken together.

    Args:
        rows: The histories' residues modulo both primes of `of`.
        codes: Numbers that are equal exactly where the entries are, 0 for 0.
        weights: Clients behind each column, 0 for padding.
        projection: Random residues.
        of: The fields, stacked.
        binary: Whether all entries are 0 or 1.
        tile: Histories that go at once. One at a time leaves out what a round does not
            need.
    """

    def one(history: tuple[Array, Array, Array]) -> Bounds:
        if is_bound_by_memory():
            return _rounds_at_once(*history, projection, of, binary, tile)
        return _round_by_round(*history, projection, of, binary)

    return map_tiles(one, (rows, codes, weights), tile)


def _round_by_round(
    rows: Array,
    codes: Array,
    weights: Array,
    projection: Array,
    of: Field,
    binary: bool,
) -> Bounds:
    """Follow one history; sets of classes are looked at in few rounds."""
    rounds, groups = rows.shape[1:]
    # A round's sets are looked at in the next one; after the last comes one of nobody.
    rows, codes = (
        jnp.pad(a, [(0, 0)] * (a.ndim - 2) + [(0, 1), (0, 0)]) for a in (rows, codes)
    )
    start = varying_like((_first(rows), _nothing()), rows, codes, weights)

    def one_round(
        before: tuple[_Basis, _Known], step: tuple[Array, Array, Array]
    ) -> tuple[tuple[_Basis, _Known], tuple[Array, ...]]:
        basis, known = before
        row, own_codes, is_over = step
        after, grew = _advance(basis, row, own_codes, of, binary)
        cheap = _cheap(
            after.ranks, after.labels, after.active, _alone(after), own_codes, weights
        )

        def look(is_due: Array) -> tuple[Array, Array]:
            return lax.cond(
                is_due & jnp.any(basis.active),
                lambda: _dependent_sets(_columns(basis, projection, of), weights, of),
                lambda: varying_like(_NO_SETS, basis, weights),
            )

        known, found = _learn(known, cheap, grew, is_over, groups, look)
        return (after, known), (jnp.max(after.ranks), cheap.strong, *found)

    steps = rows.swapaxes(0, 1), codes, jnp.arange(rounds + 1) == rounds
    _, (rank, strong, *found) = lax.scan(one_round, start, steps)
    return _both_ways(rank[:-1], strong[:-1], *found)


def _rounds_at_once(
    rows: Array,
    codes: Array,
    weights: Array,
    projection: Array,
    of: Field,
    binary: bool,
    tile: int,
) -> Bounds:
    """Follow one history where few large programs beat many small ones.

    Only the basis goes from round to round. All rounds' classes and sets are looked at
    side by side, in every round, and what `_round_by_round` would not have looked at is
    left out afterwards. `tile` histories share the memory of the looks.
    """
    rounds, groups = rows.shape[1:]

    def one_round(
        before: _Basis, step: tuple[Array, Array]
    ) -> tuple[_Basis, tuple[Array, Array, _Columns]]:
        after, grew = _advance(before, *step, of, binary)
        return after, (grew, _alone(after), _columns(after, projection, of))

    start = varying_like(_first(rows), rows, codes)
    _, (grew, alone, columns) = lax.scan(one_round, start, (rows.swapaxes(0, 1), codes))
    ranks, labels, active, _ = columns
    cheap = jax.vmap(_cheap, in_axes=(0,) * 5 + (None,))(
        ranks, labels, active, alone, codes, weights
    )

    def sets_of(columns: _Columns) -> tuple[Array, Array]:
        light, floor = _dependent_sets(columns, weights, of)
        is_any = jnp.any(columns.active)
        never, nothing = _NO_SETS
        return jnp.where(is_any, light, never), jnp.where(is_any, floor, nothing)

    looked = at_once("eliminations", _BYTES_A_PAIR * groups * groups)
    sets = map_tiles(sets_of, columns, max(1, looked // tile))
    # what a round learns of the one before: the first nothing, and after the last one
    # comes one of nobody
    sets = tuple(
        jnp.concatenate([jnp.full(1, fill), found])
        for fill, found in zip(_NO_SETS, sets, strict=True)
    )
    cheap = jax.tree.map(lambda values: jnp.append(values, jnp.int32(NEVER)), cheap)
    steps = cheap, jnp.append(grew, False), jnp.arange(rounds + 1) == rounds, sets

    def learn(
        known: _Known, step: tuple[_Cheap, Array, Array, tuple[Array, Array]]
    ) -> tuple[_Known, tuple[Array, ...]]:
        cheap, grew, is_over, sets = step

        def look(is_due: Array) -> tuple[Array, Array]:
            light, floor = (
                jnp.where(is_due, found, fill)
                for found, fill in zip(sets, _NO_SETS, strict=True)
            )
            return light, floor

        return _learn(known, cheap, grew, is_over, groups, look)

    known = varying_like(_nothing(), rows, codes, weights)
    _, found = lax.scan(learn, known, steps)
    return _both_ways(jnp.max(ranks, axis=1), cheap.strong[:-1], *found)


def _nothing() -> _Known:
    """Return what is known before the first round."""
    never = jnp.int32(NEVER)
    return _Known(never, jnp.bool_(False), jnp.int32(0), never)


def _first(rows: Array) -> _Basis:
    """Return the basis before the first row."""
    primes, _, groups = rows.shape
    return _Basis(
        jnp.broadcast_to(jnp.eye(groups, dtype=jnp.uint32), (primes, groups, groups)),
        jnp.zeros(primes, jnp.int32),
        jnp.zeros(groups, jnp.int32),
        jnp.zeros(groups, jnp.bool_),
    )


def _advance(
    basis: _Basis, row: Array, codes: Array, of: Field, binary: bool
) -> tuple[_Basis, Array]:
    """Add a row; return whether the rank has grown, too."""
    kernels, grew = jax.vmap(functools.partial(kernel_step, binary=binary))(
        basis.kernels, row, of
    )
    after = _Basis(
        kernels,
        basis.ranks + grew.astype(jnp.int32),
        _split(basis.labels, codes, binary),
        basis.active | (codes != 0),
    )
    return after, jnp.any(grew)


def _alone(basis: _Basis) -> Array:
    """Return which groups are known by themselves."""
    return jnp.all(basis.kernels == 0, axis=(0, 1)) & basis.active


def _columns(basis: _Basis, projection: Array, of: Field) -> _Columns:
    """Return what bounds need to know, dual vectors projected to few axes."""

    def along(kernel: Array, factor: Array, of: Field) -> Array:
        products = scale(kernel, factor[:, None], companion(factor, of)[:, None], of)
        return sum_residues(products, of, axis=0)

    along_axes = jax.vmap(along, in_axes=(None, 0, None))
    projected = jax.vmap(along_axes)(basis.kernels, projection, of)
    return _Columns(basis.ranks, basis.labels, basis.active, projected)


def _cheap(
    ranks: Array,
    labels: Array,
    active: Array,
    alone: Array,
    codes: Array,
    weights: Array,
) -> _Cheap:
    """Bound T by a row, by counting classes and by groups that stand alone."""
    heavy, number = _classes(labels, active, weights)
    load = jnp.sum(jnp.where(codes != 0, weights, 0), dtype=jnp.int32)
    ordered = jnp.sort(heavy)
    sums = jnp.cumsum(jnp.where(ordered < NEVER, ordered, 0))
    rank = jnp.max(ranks)
    above = [
        jnp.where(load > 0, load, NEVER),
        jnp.where(rank > 0, sums[jnp.maximum(number - rank, 0)], NEVER),
        jnp.min(jnp.where(alone, heavy[labels], NEVER)),
    ]
    four = sums[min(3, sums.shape[0] - 1)]
    return _Cheap(jnp.min(jnp.stack(above)), jnp.min(heavy), four)


def _learn(
    before: _Known,
    cheap: _Cheap,
    grew: Array,
    is_over: Array,
    groups: int,
    look: _Look,
) -> tuple[_Known, tuple[Array, Array, Array]]:
    """Take a round into account.

    Args:
        before: What is known before it.
        cheap: What it tells by itself.
        grew: Whether it raises the rank.
        is_over: Whether it is the one of nobody, after the last.
        groups: Number of columns.
        look: Looks at the sets of the round before.

    Returns:
        What is known after it; the upper bound, and the two numbers of the look.
    """
    upper = jnp.minimum(before.upper, cheap.upper)
    # Any round of a small problem, or a plateau that ends here below what four classes
    # weigh: longer ones end with no more to learn from sets of three.
    ends = (upper < before.upper) & (upper <= before.four)
    is_due = is_over | (before.grew if groups <= EVERY_ROUND else ends)
    light, floor = look(is_due)
    floor = jnp.where(is_due, floor, jnp.where(before.grew, 0, before.floor))
    # A light set of the round before is one now.
    upper = jnp.minimum(upper, light)
    return _Known(upper, grew, floor, cheap.four), (upper, light, floor)


def _both_ways(
    rank: Array, strong: Array, upper: Array, light: Array, floor: Array
) -> Bounds:
    """Let upper bounds hold from a round on and lower ones up to it.

    The last three are of one round more: the one of nobody.
    """
    upper = lax.cummin(jnp.minimum(upper[:-1], light[1:]))
    lower = lax.cummax(jnp.maximum(strong, floor[1:]), reverse=True)
    return Bounds(jnp.minimum(lower, upper), upper, rank)


def _split(labels: Array, codes: Array, binary: bool) -> Array:
    """Label the classes of equal pairs (label, code) by the place of a member."""
    groups = labels.shape[0]
    places = jnp.arange(groups, dtype=jnp.int32)
    if binary:  # a class becomes two at most: one keeps its label
        leaves = codes != codes[labels]
        first = jnp.where(leaves, places, groups)
        new = jnp.full_like(labels, groups).at[labels].min(first)
        return jnp.where(leaves, new[labels], labels)
    same = (labels[:, None] == labels[None, :]) & (codes[:, None] == codes[None, :])
    return jnp.min(jnp.where(same, places[None, :], groups), axis=1)


def _classes(labels: Array, active: Array, weights: Array) -> tuple[Array, Array]:
    """Return the weight of the class labelled k, NEVER if none is active.

    And their number.
    """
    groups = labels.shape[0]
    sizes = jnp.zeros(groups, jnp.int32).at[labels].add(jnp.where(active, weights, 0))
    used = sizes > 0
    return jnp.where(used, sizes, NEVER), jnp.sum(used, dtype=jnp.int32)


def _dependent_sets(
    columns: _Columns, weights: Array, of: Field
) -> tuple[Array, Array]:
    """Weigh all dependent sets of one, two or three classes' dual vectors.

    Sets that are independent after projection are independent: a lower bound needs no
    more. A set counts as dependent if it is so modulo both primes. If a coordinate is
    zero by accident, or the primes disagree on a rank or a pair, nothing is claimed.
    """
    ranks, labels, active, projected = columns
    heavy, _ = _classes(labels, active, weights)
    used = heavy < NEVER
    points, zero, strange = jax.vmap(_points, in_axes=(0, None, 0))(
        projected, labels, of
    )
    alone = jnp.all(zero, axis=0)
    is_seen = used & ~alone
    single = jnp.min(jnp.where(used & alone, heavy, NEVER))
    delta = jax.vmap(_differences)(points, of)  # [primes, 2, groups, groups]
    level = delta == 0
    close = level[:, 0] & level[:, 1]
    both = (
        is_seen[:, None]
        & is_seen[None, :]
        & ~jnp.eye(is_seen.shape[0], dtype=jnp.bool_)
    )
    pair_weights = jnp.minimum(heavy[:, None] + heavy[None, :], NEVER)
    two = jnp.min(jnp.where(both & close[0] & close[1], pair_weights, NEVER))
    three = _lightest_line(delta, level[:, 0], both & ~close[0], heavy, of)
    unsure = (
        jnp.any(strange & is_seen[None, :])
        | jnp.any(zero[0] != zero[1])
        | jnp.any((close[0] != close[1]) & both)
        | (ranks[0] != ranks[1])
    )
    four = jnp.sort(jnp.append(heavy, jnp.full(4, NEVER, jnp.int32)))[:4]
    four = jnp.minimum(jnp.sum(jnp.minimum(four, NEVER // 2)), NEVER)
    light = jnp.minimum(jnp.minimum(single, two), three)
    return (
        jnp.where(unsure, NEVER, light),
        jnp.where(unsure, 0, jnp.minimum(light, four)),
    )


def _points(projected: Array, labels: Array, of: Field) -> tuple[Array, Array, Array]:
    """Return each class's projected dual vector as a point x/z, y/z of the plane.

    A class's dual vector is the sum of its columns'. Also returns which vectors are
    zero, and which are not but have no z.
    """
    member = labels[None, :] == jnp.arange(labels.shape[0], dtype=jnp.int32)[:, None]
    sums = [
        sum_residues(jnp.where(member, values[None, :], 0), of) for values in projected
    ]
    zero = (sums[0] == 0) & (sums[1] == 0) & (sums[2] == 0)
    over = inverse(sums[2], of)
    points = jnp.stack([multiply(sums[0], over, of), multiply(sums[1], over, of)])
    return points, zero, ~zero & (sums[2] == 0)


def _differences(points: Array, of: Field) -> Array:
    shape = (2, points.shape[1], points.shape[1])
    ends = jnp.broadcast_to(points[:, None, :], shape)
    return subtract(ends, jnp.broadcast_to(points[:, :, None], shape), of)


def _lightest_line(
    delta: Array, upright: Array, both: Array, heavy: Array, fields_of: Field
) -> Array:
    """Return the smallest weight of three points in a line, by their slopes."""

    def slopes_of(difference: Array, of: Field) -> Array:
        return multiply(difference[1], batch_inverse(difference[0], of), of)

    slopes = jax.vmap(slopes_of)(delta, fields_of)
    slopes = jnp.where(upright, fields_of.prime[:, None, None], slopes)
    places = jnp.arange(heavy.shape[0], dtype=jnp.int32)

    def with_third(third: tuple[Array, Array, Array]) -> Array:
        place, seen, weight = third
        same = (slopes[0] == seen[0][:, None]) & (slopes[1] == seen[1][:, None])
        return jnp.where(same & (places != place)[None, :], weight[:, None], NEVER)

    # Every third point, not every second: a sort takes a CPU longer, up to a thousand
    # groups. Both ends are points that are shown, or the weight is never reached.
    weights = jnp.where(both, heavy[None, :], NEVER)
    thirds = places, jnp.moveaxis(slopes, 2, 0), weights.T
    if is_bound_by_memory():
        lightest = jnp.min(jax.vmap(with_third)(thirds), axis=0)
    else:
        start = jnp.full_like(weights, NEVER)
        lightest, _ = lax.scan(
            lambda least, third: (jnp.minimum(least, with_third(third)), None),
            start,
            thirds,
        )
    lines = jnp.min(weights + lightest, axis=1) + jnp.minimum(heavy, NEVER)
    return jnp.minimum(jnp.min(lines), NEVER)


def random_projection(
    primes: Sequence[int], groups: int, seed: int | None = None
) -> UInt32[Array, "primes axes groups"]:
    """Return residues for `bounds`, drawn as the primes are, or from a seed."""
    rng = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
    values = [rng.integers(1, prime, (_AXES, groups)) for prime in primes]
    return on_device(np.stack(values), jnp.uint32)
