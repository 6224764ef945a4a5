"""Compiled loops over coalitions.

Who is exposed by sums, and who by corrupt neighbours.
The sums. Let B be a basis of columns of P, so that the row space V has the basis (I |
X), with a row of X for each column of B and a column for each free one, F. A vector u
of the kernel is any choice y on F, and -X y on B. Client i is exposed to a coalition A
(e_i lies in V up to entries on A) exactly if every u that is zero on A is zero at i.
One random such u decides this for all clients at once, except with a chance of 1/p
each: y is zero on A's free columns and solves X y = 0 on A's rows of X only, a system
of about a r/N rows and c (1 - a/N) columns for a members, rank r and corank c.

Import inside functions only (see `_core.compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.compiled import compiled, echelon, lowered, negative_inverse

_ODD, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


@compiled
def _solution(rows, values, prime):
    """Change some entries of `values` so that all rows are orthogonal to it.

    Return their rank.

    Args:
        rows: uint32 `[rows, columns]`, residues.
        values: uint32 `[columns]`: a solution is as here where it may be.
        prime: uint64.
    """
    grew, form, pivots, units = echelon(rows, prime)
    rank, negative = grew.sum(), negative_inverse(prime)
    for k in range(rank):
        values[pivots[k]] = np.uint32(0)
    # a row is zero at the pivots of those before it
    for k in range(rank - 1, -1, -1):
        rest = lowered(
            (prime - _product(form[k], values, prime)) * units[k], prime, negative
        )
        values[pivots[k]] = lowered(np.uint64(rest), prime, negative)
    return rank


@compiled
def _product(left, right, prime):
    """Return the scalar product of residues."""
    square = prime * prime
    total = np.uint64(0)
    for j in range(right.size):
        total += np.uint64(left[j]) * np.uint64(right[j])
        total = min(total, total - square)
    return total % prime


@compiled
def exposed_by_sums(spaces, basis, free, primes, random, members, exposed):
    """Write who is exposed by the sums to each of some coalitions.

    Primes modulo which A's part of the system has not the largest rank do not count;
    all others must agree. Then nobody who is exposed is missed unless all primes err.

    Args:
        spaces: uint32 `[primes, rank, corank]`: X modulo each prime.
        basis: int64 `[rank]`, the columns of P that X's rows stand for.
        free: int64 `[corank]`, those that its columns stand for.
        primes: uint64 `[primes]`.
        random: uint32 `[primes, corank]`, not zero.
        members: bool `[coalitions, clients]`.
        exposed: bool `[coalitions, clients]`, all false.
    """
    rank, corank = spaces.shape[1:]
    rows, kept = (
        np.empty((rank, corank), np.uint32),
        np.empty((rank, corank), np.uint32),
    )
    every, places = np.empty(corank, np.uint32), np.empty(corank, np.int64)
    shown = np.empty(rank + corank, np.bool_)
    for a in range(members.shape[0]):
        own = members[a]
        count = 0
        for f in range(corank):
            if not own[free[f]]:
                places[count] = f
                count += 1
        values, best = every[:count], -1
        for which in range(primes.shape[0]):
            prime, space = primes[which], spaces[which]
            inside = 0
            outside = 0
            for b in range(rank):
                target = rows[inside] if own[basis[b]] else kept[outside]
                for j in range(count):
                    target[j] = space[b, places[j]]
                if own[basis[b]]:
                    inside += 1
                else:
                    outside += 1
            for j in range(count):
                values[j] = random[which, places[j]]
            found = _solution(rows[:inside, :count], values, prime)
            if found < best:
                continue
            if found > best:
                best = found
                shown[:] = True
            outside = 0
            for b in range(rank):
                if not own[basis[b]]:
                    if shown[b] and _product(kept[outside], values, prime) != np.uint64(
                        0
                    ):
                        shown[b] = False
                    outside += 1
            for j in range(count):
                if values[j] != np.uint32(0):
                    shown[rank + places[j]] = False
        for b in range(rank):
            exposed[a, basis[b]] = shown[b] and not own[basis[b]]
        for f in range(corank):
            exposed[a, free[f]] = shown[rank + f] and not own[free[f]]


@compiled
def _next_word(state):
    """Return the next state of SplitMix64, and its word."""
    state += _ODD
    word = (state ^ (state >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return state, word ^ (word >> np.uint64(31))


@compiled
def exposed_by_neighbours(starts, clients, degree, threshold, seeds, members, exposed):
    """Write whom in some round so many corrupt neighbours as the threshold know the secrets of.

    Each round joins its clients by a Harary graph: on a ring of randomly placed clients
    those at most degree // 2 apart, for an odd degree and an even number also those
    opposite.

    Args:
        starts: int64 `[rounds + 1]`: where the clients of each round begin.
        clients: int64: of all rounds.
        degree: Of the graph; complete where a round has not more clients.
        threshold: Shares that are enough.
        seeds: uint64 `[coalitions]`: of the places, for each coalition.
        members: bool `[coalitions, clients]`.
        exposed: bool `[coalitions, clients]`: true where it is found so.
    """
    ring = np.empty(members.shape[1], np.int64)
    for a in range(members.shape[0]):
        own = members[a]
        state = seeds[a]
        for j in range(starts.shape[0] - 1):
            size = starts[j + 1] - starts[j]
            corrupt = 0
            for i in range(size):
                ring[i] = clients[starts[j] + i]
                corrupt += own[ring[i]]
            for i in range(size - 1, 0, -1):
                state, word = _next_word(state)
                other = np.int64(
                    (word >> np.uint64(32)) * np.uint64(i + 1) >> np.uint64(32)
                )
                kept = ring[i]
                ring[i] = ring[other]
                ring[other] = kept
            if corrupt < threshold:
                continue
            near = min(degree, size - 1) // 2
            opposite = degree % 2 == 1 and size % 2 == 0 and degree < size
            whole = degree >= size - 1
            for i in range(size):
                if own[ring[i]] or exposed[a, ring[i]]:
                    continue
                known = corrupt if whole else 0
                if not whole:
                    for d in range(1, near + 1):
                        known += own[ring[(i + d) % size]]
                        known += own[ring[(i - d) % size]]
                    if opposite:
                        known += own[ring[(i + size // 2) % size]]
                if known >= threshold:
                    exposed[a, ring[i]] = True
