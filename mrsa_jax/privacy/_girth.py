"""Compiled search for small dependent sets of dual vectors, at any weight.

The columns q_k of a kernel basis of P are its dual vectors: a set of groups carries a non-zero
vector of the row space exactly if their dual vectors are linearly dependent. Sets are walked
through in order, each chosen vector projected out; of the last three vectors of a set, two
are read off the third: seen from it, they lie in one direction.

The walk runs modulo the small prime `SMALL` on a random projection. Independence survives
neither a projection nor a reduction by accident, so "none found" is a proof wherever the
rank modulo the prime is the true one; what looks dependent is looked at again modulo two large
primes. Import inside functions only (see `modular._compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax.modular._compiled import compiled
from mrsa_jax.modular._elimination import rank_of

# Two 13-bit primes, the walk's and a second opinion's: sums of two products fit 31 bits.
SMALL, SECOND = 8191, 8179

NONE, FOUND, ANOMALY = 0, 1, 2


@compiled
def assign(target, source, count):
    """Copy the first entries (a slice's assignment takes seconds to compile)."""
    for i in range(count):
        target[i] = source[i]


@compiled
def is_dependent(subset, size, kernels, primes):
    """Return whether the dual vectors of a set are dependent modulo all primes.

    `kernels` is uint64 `[primes, groups, corank]`, `subset` its first `size` groups.
    """
    for which in range(kernels.shape[0]):
        vectors = np.empty((size, kernels.shape[2]), np.uint64)
        for i in range(size):
            for a in range(kernels.shape[2]):
                vectors[i, a] = kernels[which, subset[i], a]
        if rank_of(vectors, primes[which]) == size:
            return False
    return True


def _arithmetic(prime):
    """Return `project` and `flatten` for one prime, which the compiler then knows."""

    def project(source, target, start, groups, level, chosen):
        """Write to `target` the vectors from `start` on without their part along `chosen`.

        `source` and `target` are int32 `[groups, axes]`; the axis that goes is one along which
        `chosen` is not zero. Returns False when `chosen` is zero.
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
        for k in range(start, groups):
            factor = source[k, pivot]
            for a in range(axes - 1):
                b = axes - 1 if a == pivot else a
                target[k, a] = (source[k, b] * lead - factor * source[chosen, b]) % prime
        return True

    def flatten(vectors, start, groups, plane, inverses):
        """Write x/z and y/z of the vectors (x, y, z) from `start` on into `plane`.

        Coordinates are mixed until no z is zero; False when a vector is zero.
        """
        for k in range(start, groups):
            if vectors[k, 0] == 0 and vectors[k, 1] == 0 and vectors[k, 2] == 0:
                return False
        a, b = 0, 0
        for attempt in range(1, 200):
            good = True
            for k in range(start, groups):
                z = (vectors[k, 2] + a * vectors[k, 0] + b * vectors[k, 1]) % prime
                if z == 0:
                    good = False
                    break
                inverse = inverses[z]
                plane[0, k] = vectors[k, 0] * inverse % prime
                plane[1, k] = vectors[k, 1] * inverse % prime
            if good:
                return True
            a = attempt * 2654435 % prime
            b = attempt * attempt * 40503 % prime
        return False

    return compiled(project), compiled(flatten)


_project, _flatten = _arithmetic(SMALL)
_project_again, _flatten_again = _arithmetic(SECOND)


@compiled
def _in_line(plane, i, j, k):
    """Return whether three points of a plane modulo `SECOND` lie on one line."""
    ax, ay = plane[0, j] - plane[0, i], plane[1, j] - plane[1, i]
    bx, by = plane[0, k] - plane[0, i], plane[1, k] - plane[1, i]
    return (ax * by - ay * bx) % SECOND == 0


@compiled
def search(
    vectors,
    again,
    kernels,
    primes,
    weights,
    inverses,
    inverses_again,
    limit,
    depth,
    task,
    tasks,
    found,
):
    """Search for a dependent set of at most `depth` groups and total weight at most `limit`.

    Args:
        vectors: int32 `[groups, depth]`: the dual vectors modulo `SMALL`, projected to `depth`
            axes (at least three; more axes than needed only cost).
        again: The same modulo `SECOND`.
        kernels: uint64 `[primes, groups, corank]`: the whole dual vectors modulo large primes.
        primes: uint64 `[primes]`.
        weights: int64 `[groups]`, ascending.
        inverses: int32 `[SMALL]`, of the residues.
        inverses_again: The same modulo `SECOND`.
        limit: Largest weight.
        depth: Largest number of groups, at least 3.
        task: This call's part of the work, of `tasks` equal parts.
        tasks: Number of parts; 1 if `depth` < 5.
        found: int64 `[depth]`: receives the set.

    Returns:
        A status and the size of the set found. ANOMALY: a chosen vector vanished by accident
        modulo `SMALL`, so the search is no proof; repeat it with another projection.
    """
    groups = weights.shape[0]
    last = depth - 3  # vectors are chosen one by one down to here, then three at a time
    stack = np.zeros((last + 1, groups, depth), np.int32)
    for k in range(groups):
        for a in range(depth):
            stack[0, k, a] = vectors[k, a]
    stack_again = np.zeros((last + 1, groups, depth), np.int32)
    for k in range(groups):
        for a in range(depth):
            stack_again[0, k, a] = again[k, a]
    chosen = np.full(last + 1, -1, np.int64)
    used = np.zeros(last + 2, np.int64)
    plane = np.zeros((2, groups), np.int32)
    plane_again = np.zeros((2, groups), np.int32)
    stamp = np.full(SMALL + 1, -1, np.int64)
    head = np.zeros(SMALL + 1, np.int32)
    following = np.zeros(groups, np.int32)
    subset = np.zeros(depth, np.int64)
    epoch = 0
    counter = 0
    level = 0
    begin = 0  # first group that may still be chosen at this level
    entering = True
    while True:
        start = chosen[level - 1] + 1 if level > 0 else 0
        if entering:
            entering = False
            skip = level == min(2, last) and tasks > 1
            if skip:
                counter += 1
            if not (skip and counter % tasks != task):
                # A vector that is zero here is a combination of those chosen.
                for k in range(start, groups):
                    if used[level] + weights[k] > limit:
                        break
                    zero = True
                    for a in range(depth - level):
                        if stack[level, k, a] != 0:
                            zero = False
                            break
                    if zero:
                        for i in range(level):
                            subset[i] = chosen[i]
                        subset[level] = k
                        if is_dependent(subset, level + 1, kernels, primes):
                            assign(found, subset, level + 1)
                            return FOUND, level + 1
                        return ANOMALY, 0
                if level == last:
                    stop = start
                    while stop < groups and used[level] + weights[stop] <= limit:
                        stop += 1
                    if not _flatten(stack[level], start, stop, plane, inverses):
                        return ANOMALY, 0
                    opinion = _flatten_again(
                        stack_again[level], start, stop, plane_again, inverses_again
                    )
                    for i in range(start, groups - 1):
                        if used[level] + weights[i] + weights[i + 1] > limit:
                            break
                        epoch += 1
                        room = limit - used[level] - weights[i]
                        xi, yi = plane[0, i], plane[1, i]
                        for j in range(i + 1, groups):
                            if weights[j] > room:
                                break
                            dx = plane[0, j] - xi
                            dy = plane[1, j] - yi
                            if dx < 0:
                                dx += SMALL
                            if dx == 0:
                                if dy == 0:
                                    # i and j in one direction: a pair, and any third with them
                                    for t in range(level):
                                        subset[t] = chosen[t]
                                    subset[level] = i
                                    subset[level + 1] = j
                                    if is_dependent(subset, level + 2, kernels, primes):
                                        assign(found, subset, level + 2)
                                        return FOUND, level + 2
                                    for k in range(i + 1, groups):
                                        if weights[j] + weights[k] > room:
                                            break
                                        if k == j:
                                            continue
                                        subset[level + 2] = k
                                        if is_dependent(subset, level + 3, kernels, primes):
                                            assign(found, subset, level + 3)
                                            return FOUND, level + 3
                                    continue
                                key = SMALL
                            else:
                                key = (dy + SMALL) * inverses[dx] % SMALL
                            if stamp[key] != epoch:
                                stamp[key] = epoch
                                head[key] = j
                                following[j] = -1
                                continue
                            k = head[key]
                            following[j] = k
                            head[key] = j
                            while k >= 0:
                                likely = not opinion or _in_line(plane_again, i, j, k)
                                if likely and weights[j] + weights[k] <= room:
                                    for t in range(level):
                                        subset[t] = chosen[t]
                                    subset[level] = i
                                    subset[level + 1] = k
                                    subset[level + 2] = j
                                    if is_dependent(subset, level + 3, kernels, primes):
                                        assign(found, subset, level + 3)
                                        return FOUND, level + 3
                                k = following[k]
                elif level < last:
                    begin = start
            else:
                begin = groups  # another task's branch
        # choose the next vector at this level, or go back
        went = False
        if level < last:
            pick = begin
            if pick + 1 < groups and used[level] + weights[pick] + weights[pick + 1] <= limit:
                chosen[level] = pick
                used[level + 1] = used[level] + weights[pick]
                if not _project(stack[level], stack[level + 1], pick + 1, groups, level, pick):
                    return ANOMALY, 0
                if not _project_again(
                    stack_again[level], stack_again[level + 1], pick + 1, groups, level, pick
                ):
                    return ANOMALY, 0
                level += 1
                entering = True
                begin = pick + 1
                went = True
        if not went:
            if level == 0:
                return NONE, 0
            level -= 1
            begin = chosen[level] + 1
