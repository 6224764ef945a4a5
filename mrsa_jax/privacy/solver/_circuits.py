"""Compiled search for the lightest vector of the row space through each group.

A set of groups carries a vector that is non-zero on all of it, and no smaller set a vector, exactly
if their dual vectors (`_girth`) are a circuit: dependent, and no subset of them is. The lightest
vector through a group lies on a circuit. All circuits up to a weight are walked through in order:
each chosen vector is projected out of those behind it, and one that has become zero closes a set;
what contains a dependent set is no circuit, so the walk goes on without it.

The walk runs modulo `SMALL` on a random projection, under which independent sets may become
dependent, never the other way round. Each set that closes is decided modulo large primes: it is
dependent over the rationals if it is so modulo all of them and their product is larger than all
minors. Where it is not, and others could have joined it, the walk is no proof (ANOMALY). Import
inside functions only (see `mrsa_jax._compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._compiled import compiled
from mrsa_jax._elimination import first_nonzero
from mrsa_jax.privacy.solver._costs import COORDINATE, NODE, TERM
from mrsa_jax.privacy.solver._girth import ANOMALY, GAVE_UP, NONE, SMALL, assign, takes

FULL = 4


@compiled
def _project_out(source, target, start, stop, axes, chosen):
    """Write to `target` the vectors `start..stop - 1` without their part along `chosen`."""
    pivot = 0
    while source[chosen, pivot] == 0:
        pivot += 1
    lead = source[chosen, pivot]
    for k in range(start, stop):
        factor = source[k, pivot]
        for a in range(axes - 1):
            b = axes - 1 if a == pivot else a
            target[k, a] = (source[k, b] * lead - factor * source[chosen, b]) % SMALL


@compiled
def _close(subset, size, weight, kernels, primes, least, places, count, found, work):
    """Lower the bounds of the groups of a dependent set if it is a circuit.

    Returns how many sets are in `found` then.
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
        found[count, :] = -1
        assign(found[count], subset, size)
        return count + 1
    return count


@compiled
def search(vectors, kernels, primes, weights, limit, least, places, found, spent, budget):
    """Go through all circuits up to a weight; lower the bound of each group on them.

    Args:
        vectors: int32 `[groups, axes]`: dual vectors modulo `SMALL`, on random axes.
        kernels: uint64 `[primes, groups, corank]`: modulo large primes.
        primes: uint64 `[primes]`.
        weights: int64 `[groups]`, ascending.
        limit: Largest weight.
        least: int64 `[groups]`: known weights of vectors through each; lowered.
        places: int64 `[groups]`: receives where in `found` the circuit is that lowered it.
        found: int64 `[sets, groups]`: receives circuits, -1 behind them.
        spent: float64 `[1]`: the work so far in nanoseconds; this call's is added.
        budget: When more than this is spent, the search gives up.

    Returns:
        A status and how many circuits were found. NONE: no group has a vector that is lighter than
        `least` and of at most the limit.
    """
    groups, axes = vectors.shape
    stack = np.empty((axes + 1, groups, axes), np.int32)
    stack[0] = vectors
    chosen = np.zeros(groups + 1, np.int64)
    work = np.zeros(groups + 1, np.int64)
    used = np.zeros(axes + 1, np.int64)
    begin = np.zeros(axes + 1, np.int64)  # first group that may still be chosen at a level
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
                    if count == found.shape[0]:
                        return FULL, count
                    before = count
                    count = _close(
                        chosen, level + 1, weight, kernels, primes, least, places, count, found,
                        work,
                    )  # fmt: skip
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
            _project_out(stack[level], stack[level + 1], k + 1, stop, axes - level, k)
            chosen[level] = k
            level += 1
            used[level], begin[level], ends[level] = load, k + 1, stop
            entering = True
            continue
        if level == 0:
            return NONE, count
        level -= 1
