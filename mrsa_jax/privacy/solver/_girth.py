"""Compiled search for small dependent sets of dual vectors, at any weight.

The columns q_k of a kernel basis of P are its dual vectors: a set of groups carries a
non-zero vector of the row space exactly if their dual vectors are linearly dependent.
Sets are walked through in order, each chosen vector projected out; of the last three
vectors of a set, two are read off the third: seen from it, they lie in one direction.

The walk runs modulo the small prime `SMALL` on a random projection. Independence
survives neither a projection nor a reduction by accident, so "none found" is a proof
wherever the rank modulo the prime is the true one; what looks dependent is looked at
again modulo a second small prime and two large ones. Work is counted in nanoseconds of
a core (see `_costs`), so that what a search takes can be predicted, compared and
limited without a clock. Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mrsa_jax._core.compiled import compiled, first_nonzero, independent_rows
from mrsa_jax.privacy.solver._costs import COORDINATE, NODE, PAIR, POINT, TERM

# Two 13-bit primes, the walk's and a second opinion's: sums of two products fit 31
# bits.
SMALL, SECOND = 8191, 8179

# GAVE_UP: the work was more than was allowed.
NONE, FOUND, ANOMALY, GAVE_UP = 0, 1, 2, 3


class Vectors(NamedTuple):
    """The dual vectors that are searched, and what decides about a set of them.

    Attributes:
        small: int32 `[groups, depth]`: modulo `SMALL`, projected to `depth` axes (at
            least three; more axes than needed only cost).
        again: The same modulo `SECOND`.
        kernels: uint64 `[primes, groups, corank]`: the whole dual vectors modulo large
            primes.
        primes: uint64 `[primes]`.
        weights: int64 `[groups]`, ascending.
        inverses: int32 `[SMALL]`, of the residues.
        inverses_again: The same modulo `SECOND`.
    """

    small: np.ndarray
    again: np.ndarray
    kernels: np.ndarray
    primes: np.ndarray
    weights: np.ndarray
    inverses: np.ndarray
    inverses_again: np.ndarray


class _Room(NamedTuple):
    """Memory of one search.

    Attributes:
        plane: int32 `[2, groups]`: x/z and y/z of vectors with three axes.
        epoch: int64 `[1]`: how often a point was seen as the origin.
        stamp: int64 `[SMALL + 1]`: for which epoch a direction was met last.
        head: int32 `[SMALL + 1]`: the last point that was met in a direction.
        following: int32 `[groups]`: the point before it in the same direction, or -1.
        subset: int64 `[depth]`: the set at hand.
        rows: int32 `[depth, depth]`: its vectors.
    """

    plane: np.ndarray
    epoch: np.ndarray
    stamp: np.ndarray
    head: np.ndarray
    following: np.ndarray
    subset: np.ndarray
    rows: np.ndarray


@compiled
def assign(target, source, count):
    """Copy the first entries (a slice's assignment takes seconds to compile)."""
    for i in range(count):
        target[i] = source[i]


@compiled
def gather(source, chosen, size, others, count, work):
    """Write the chosen rows of a matrix, then some others, to the rows of `work`."""
    for i in range(size):
        assign(work[i], source[chosen[i]], source.shape[1])
    for i in range(count):
        assign(work[size + i], source[others[i]], source.shape[1])
    return work[: size + count]


@compiled
def takes(subset, size, kernels, primes, result):
    """Write a set to `result` if its dual vectors are dependent modulo all primes.

    Say whether.
    `kernels` is uint64 `[primes, groups, corank]`, `subset` its first `size` groups.
    """
    for which in range(kernels.shape[0]):
        vectors = np.empty((size, kernels.shape[2]), np.uint64)
        gather(kernels[which], subset, size, subset, 0, vectors)
        if independent_rows(vectors, primes[which]).all():
            return False
    assign(result, subset, size)
    return True


@compiled
def eliminate(work, size, prime, inverses):
    """Eliminate the first rows from all below them, modulo a small prime, in place.

    Returns False, and leaves the rest as it is, when those rows are dependent.
    """
    axes = work.shape[1]
    for i in range(size):
        pivot = first_nonzero(work[i])
        if pivot < 0:
            return False
        inverse = inverses[work[i, pivot]]
        for k in range(i + 1, work.shape[0]):
            if work[k, pivot] != 0:
                factor = prime - work[k, pivot] * inverse % prime
                for a in range(pivot, axes):
                    work[k, a] = (work[k, a] + factor * work[i, a]) % prime
    return True


@compiled
def project(source, target, start, stop, level, chosen):
    """Write the vectors `start..stop - 1` without their part along `chosen`.

    `source` and `target` are int32 `[groups, axes]`; the axis that goes is one along
    which `chosen` is not zero. Returns False when `chosen` is zero.
    """
    axes = source.shape[1] - level
    pivot = -1
    for a in range(axes - 1, -1, -1):
        if source[chosen, a] != 0:
            pivot = a
            break
    if pivot < 0:
        return False
    lead = source[chosen, pivot]
    for k in range(start, stop):
        factor = source[k, pivot]
        for a in range(axes - 1):
            b = axes - 1 if a == pivot else a
            target[k, a] = (source[k, b] * lead - factor * source[chosen, b]) % SMALL
    return True


@compiled
def _flatten(vectors, start, stop, plane, inverses):
    """Write x/z and y/z of the vectors (x, y, z) `start..stop - 1` into `plane`.

    Coordinates are mixed until no z is zero; False when a vector is zero.
    """
    for k in range(start, stop):
        if vectors[k, 0] == 0 and vectors[k, 1] == 0 and vectors[k, 2] == 0:
            return False
    a, b = 0, 0
    for attempt in range(1, 200):
        good = True
        for k in range(start, stop):
            z = (vectors[k, 2] + a * vectors[k, 0] + b * vectors[k, 1]) % SMALL
            if z == 0:
                good = False
                break
            inverse = inverses[z]
            plane[0, k] = vectors[k, 0] * inverse % SMALL
            plane[1, k] = vectors[k, 1] * inverse % SMALL
        if good:
            return True
        a = attempt * 2654435 % SMALL
        b = attempt * attempt * 40503 % SMALL
    return False


@compiled
def _first_zero(vectors, start, stop, axes):
    """Return the first of the vectors `start..stop - 1` that is zero, or -1."""
    for k in range(start, stop):
        zero = True
        for a in range(axes):
            if vectors[k, a] != 0:
                zero = False
                break
        if zero:
            return k
    return -1


@compiled
def _decides(of, room, size, result, spent):
    """Write the set at hand to `result` if it is dependent modulo the large primes.

    Say whether.
    """
    depth = room.rows.shape[0]
    spent[0] += TERM * of.kernels.shape[0] * depth * depth * of.kernels.shape[2]
    return takes(room.subset, size, of.kernels, of.primes, result)


@compiled
def _is_dependent(of, room, size, result, spent):
    """Return whether the set at hand is dependent, also modulo the large primes."""
    depth = room.rows.shape[0]
    spent[0] += TERM * depth * depth * depth
    rows = gather(of.again, room.subset, size, room.subset, 0, room.rows)
    if eliminate(rows, size, SECOND, of.inverses_again):
        return False
    return _decides(of, room, size, result, spent)


@compiled
def _on_one_point(of, room, level, far, room_left, result, spent):
    """Decide a pair of vectors in one direction, and any third with them.

    The pair is at `level` and `level + 1` of the set at hand; a third comes before
    `far`, and together with the second weighs at most `room_left`. Returns the size of
    the set found, or 0.
    """
    subset, weights = room.subset, of.weights
    first, second = subset[level], subset[level + 1]
    if _decides(of, room, level + 2, result, spent):
        return level + 2
    for k in range(first + 1, far):
        if weights[second] + weights[k] > room_left:
            break
        if k == second:
            continue
        subset[level + 2] = k
        if _is_dependent(of, room, level + 3, result, spent):
            return level + 3
    return 0


@compiled
def _on_one_line(of, room, level, start, stop, room_left, result, spent):
    """Look for three dependent vectors of `start..stop - 1` of a limited weight.

    As points of a plane they lie on one line: seen from the first, the other two lie in
    one direction. Each direction keeps a list of those met in it. Returns a set's size,
    or 0.
    """
    # Arrays are taken out of their tuples once: each time costs an atomic count of
    # references.
    weights, inverses, plane, subset = of.weights, of.inverses, room.plane, room.subset
    stamp, head, following = room.stamp, room.head, room.following
    far = stop
    for i in range(start, stop - 1):
        rest = room_left - weights[i]
        if weights[i + 1] > rest:
            break
        while weights[far - 1] > rest:
            far -= 1
        spent[0] += PAIR * (far - i - 1)
        room.epoch[0] += 1
        epoch = room.epoch[0]
        xi, yi = plane[0, i], plane[1, i]
        subset[level] = i
        for j in range(i + 1, far):
            dx = plane[0, j] - xi
            dy = plane[1, j] - yi
            if dx < 0:
                dx += SMALL
            key = SMALL
            if dx != 0:
                key = (dy + SMALL) * inverses[dx] % SMALL
            elif dy == 0:
                subset[level + 1] = j
                size = _on_one_point(of, room, level, far, rest, result, spent)
                if size > 0:
                    return size
                continue
            if stamp[key] != epoch:
                stamp[key] = epoch
                head[key] = j
                following[j] = -1
                continue
            k = head[key]
            following[j] = k
            head[key] = j
            while k >= 0:
                if weights[j] + weights[k] <= rest:
                    subset[level + 1] = k
                    subset[level + 2] = j
                    if _is_dependent(of, room, level + 3, result, spent):
                        return level + 3
                k = following[k]
    return 0


@compiled
def search(of, limit, depth, task, tasks, result, spent, budget):
    """Search for a dependent set of limited size and weight.

    Where all weights are equal, only sets of exactly `depth` groups are walked through:
    whatever smaller set is dependent lies in one of those.

    Args:
        of: `Vectors`.
        limit: Largest weight.
        depth: Largest number of groups, at least 3.
        task: This call's part of the work, of `tasks` equal parts.
        tasks: Number of parts; 1 if `depth` < 5.
        result: int64 `[depth]`: receives the set.
        spent: float64 `[1]`: the work so far in nanoseconds; this call's is added.
        budget: When more than this is spent, the search gives up.

    Returns:
        A status and the size of the set found. ANOMALY: a chosen vector vanished by
        accident modulo `SMALL`, so the search is no proof; repeat it with another
        projection.
    """
    # A walk in depth, its stack in arrays. Each level holds the vectors that may still
    # follow, without their parts along those chosen so far. Down to `last` one is
    # chosen at a time; there three are missing, and three are dependent exactly if,
    # seen from the first, the other two lie in one direction: all pairs of one
    # direction meet in a table. So a walk of depth k costs what one of depth k - 1
    # would.
    weights = of.weights
    groups = weights.shape[0]
    last = depth - 3  # vectors are chosen one by one down to here, then three at a time
    branch = min(2, last)  # vectors of this level are dealt out to the tasks
    fill = (
        groups >= depth
        and weights[0] == weights[groups - 1]
        and depth * weights[0] <= limit
    )
    stack = np.empty((last + 1, groups, depth), np.int32)
    for k in range(groups):
        assign(stack[0, k], of.small[k], depth)
    chosen = np.full(last + 1, -1, np.int64)
    used = np.zeros(last + 2, np.int64)
    ends = np.full(last + 1, groups, np.int64)  # groups from here on are too heavy
    room = _Room(
        np.zeros((2, groups), np.int32),
        np.zeros(1, np.int64),
        np.full(SMALL + 1, -1, np.int64),
        np.zeros(SMALL + 1, np.int32),
        np.zeros(groups, np.int32),
        np.zeros(depth, np.int64),
        np.empty((depth, depth), np.int32),
    )
    while ends[0] > 0 and weights[ends[0] - 1] > limit:
        ends[0] -= 1
    counter = 0
    level = 0
    begin = 0  # first group that may still be chosen at this level
    entering = True
    while True:
        start = chosen[level - 1] + 1 if level > 0 else 0
        stop = ends[level]
        if entering:
            entering = False
            if spent[0] > budget:
                return GAVE_UP, 0
            assign(room.subset, chosen, level)
            zero = _first_zero(stack[level], start, stop, depth - level)
            if zero >= 0:  # a combination of those chosen
                room.subset[level] = zero
                is_one = _decides(of, room, level + 1, result, spent)
                return (FOUND, level + 1) if is_one else (ANOMALY, 0)
            if level == last:
                if not _flatten(stack[level], start, stop, room.plane, of.inverses):
                    return ANOMALY, 0
                spent[0] += POINT * (stop - start)
                room_left = limit - used[level]
                size = _on_one_line(
                    of, room, level, start, stop, room_left, result, spent
                )
                if size > 0:
                    return FOUND, size
            else:
                begin = start
        # choose the next vector at this level, or go back
        pick = begin
        after = depth - level - 1 if fill else 1  # so many must follow it
        if level < last and pick + after < stop:
            load = used[level] + weights[pick]
            if load + weights[pick + 1] <= limit:
                begin = pick + 1
                if level + 1 == branch:
                    counter += 1
                    if counter % tasks != task:
                        continue
                while load + weights[stop - 1] > limit:
                    stop -= 1
                if not project(
                    stack[level], stack[level + 1], pick + 1, stop, level, pick
                ):
                    return ANOMALY, 0
                spent[0] += NODE + COORDINATE * (
                    (stop - pick - 1) * (depth - level - 1)
                )
                chosen[level] = pick
                used[level + 1] = load
                level += 1
                ends[level] = stop
                entering = True
                continue
        if level == 0:
            return NONE, 0
        level -= 1
        begin = chosen[level] + 1
