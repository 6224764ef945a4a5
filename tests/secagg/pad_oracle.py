"""What a round gives away, by linear algebra over the unknowns of its pads.

The eavesdropper holds linear equations: of each client in V_3 its padded input

    theta_i + B_i + sum over j in Adj(i) n V_2 of (+ S_ij for i < j, - S_ij for i > j),

of each client i of V_3 with t_i shares of b_i returned, the value of B_i, and of each
client of V_2 - V_3 with t_i shares of its secret key returned, the values of all its
S_ij. A sum of inputs is given away iff it lies in the span of what is held. Nothing
here knows of components.

`given_away` follows that word for word in exact rationals. `given_away_in_bulk` is the
same for many rounds at once: as every theta_i stands in one equation only, a sum over T
can only come from adding up T's padded inputs, and is given away iff no unknown pad is
left in that.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np


def subsets(n: int) -> np.ndarray:
    """int64[2^n, n] of 0 and 1: all sets of n clients; row m has the bits of m."""
    return np.arange(2**n)[:, None] >> np.arange(n) & 1


def shares_back(graph, alive, i: int, own: bool = True) -> int:
    """Shares of i's secret that V_4 returns.

    From its neighbours and, with `own`, from itself.
    """
    holders = [j for j in range(len(graph)) if graph[i][j] or (own and j == i)]
    return sum(bool(alive[4][j]) for j in holders)


def given_away(graph, alive, thresholds, *, own: bool = True) -> set[frozenset[int]]:
    """The non-empty sets of V_3 whose sums can be computed, by rank."""
    n = len(graph)
    second = [i for i in range(n) if alive[2][i]]
    third = [i for i in second if alive[3][i]]
    pairs = [(i, j) for i, j in itertools.combinations(second, 2) if graph[i][j]]
    unknowns = (
        [("theta", i) for i in third]
        + [("b", i) for i in third]
        + [("s", *pair) for pair in pairs]
    )
    at = {name: position for position, name in enumerate(unknowns)}

    def vector(terms: dict) -> list[Fraction]:
        row = [Fraction(0)] * len(unknowns)
        for name, value in terms.items():
            row[at[name]] += value
        return row

    held = []
    for i in third:
        terms = {("theta", i): 1, ("b", i): 1}
        for a, b in pairs:
            if i in (a, b):
                terms["s", a, b] = 1 if i == a else -1
        held.append(vector(terms))
    for i in second:
        if shares_back(graph, alive, i, own) < thresholds[i]:
            continue
        if i in third:
            held.append(vector({("b", i): 1}))
        else:
            held.extend(vector({("s", *pair): 1}) for pair in pairs if i in pair)
    full = rank(held)
    found = set()
    for size in range(1, len(third) + 1):
        for chosen in itertools.combinations(third, size):
            if rank([*held, vector({("theta", i): 1 for i in chosen})]) == full:
                found.add(frozenset(chosen))
    return found


def rank(rows) -> int:
    """Rank over the rationals."""
    rows = [list(row) for row in rows]
    found = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(found, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        head = rows[found]
        for r in range(found + 1, len(rows)):
            factor = rows[r][column] / head[column]
            if factor:
                rows[r] = [a - factor * b for a, b in zip(rows[r], head, strict=True)]
        found += 1
    return found


def given_away_in_bulk(graphs, alive, thresholds) -> np.ndarray:
    """bool[B, 2^n].

    Of each round and each set (`subsets`), whether its sum can be computed.
    The empty set always can; sets that reach outside V_3 never can.
    """
    n = graphs.shape[-1]
    held = (graphs | np.eye(n, dtype=bool)) & alive[:, 4, None, :]
    known = held.sum(-1) >= thresholds
    third, lost = alive[:, 3], alive[:, 2] & ~alive[:, 3]
    chosen = subsets(n)
    left = (chosen[None] * (third & ~known)[:, None, :]).any(-1)
    for i, j in itertools.combinations(range(n), 2):
        used = graphs[:, i, j] & alive[:, 2, i] & alive[:, 2, j]
        known_pad = (lost[:, i] & known[:, i]) | (lost[:, j] & known[:, j])
        sign = (
            chosen[None, :, i] * third[:, None, i]
            - chosen[None, :, j] * third[:, None, j]
        )
        left |= (used & ~known_pad)[:, None] & (sign != 0)
    outside = (chosen[None] & ~third[:, None, :]).any(-1)
    return ~left & ~outside


def patterns(n: int) -> np.ndarray:
    """bool[6^n, 5, n]: every way to leave.

    A client's number is how many of the sets it is in.
    """
    last = np.stack(np.meshgrid(*[np.arange(6)] * n, indexing="ij"), -1).reshape(-1, n)
    return last[:, None, :] > np.arange(5)[None, :, None]


def all_graphs(n: int) -> np.ndarray:
    """bool[2^(n (n - 1) / 2), n, n]: every graph on n labelled clients."""
    pairs = list(itertools.combinations(range(n), 2))
    bits = subsets(len(pairs)).astype(bool)
    graphs = np.zeros((len(bits), n, n), bool)
    for column, (i, j) in enumerate(pairs):
        graphs[:, i, j] = graphs[:, j, i] = bits[:, column]
    return graphs


def random_rounds(rng, n: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Graphs, survivors and thresholds of many rounds, of all densities and rates of loss."""
    density = rng.random((count, 1, 1)) ** 2
    upper = np.triu(rng.random((count, n, n)) < density, 1)
    stay = 1 - 0.5 * rng.random((count, 1, 1)) ** 2
    alive = np.logical_and.accumulate(rng.random((count, 5, n)) < stay, axis=1)
    top = rng.integers(1, n + 2, (count, 1))
    thresholds = np.minimum(rng.integers(1, n + 3, (count, n)), top)
    return upper | np.swapaxes(upper, 1, 2), alive, thresholds.astype(np.int32)


# ---- plans of many blocks


def without_loners(plan, sends) -> set[int]:
    """The largest set of senders of whom no block (its members, as a set) holds exactly one."""
    senders = [i for i in range(len(sends)) if sends[i]]
    for size in range(len(senders), 0, -1):
        for chosen in itertools.combinations(senders, size):
            if all(len(members & set(chosen)) != 1 for members in plan):
                return set(chosen)
    return set()


def without_refusals(graph, alive, thresholds, plan) -> np.ndarray:
    """V_0 to V_4 of those who refuse no list below their threshold, from an honest server.

    In V_2 a client wants t_i of its holders, if it ever had so many; among those summed
    always.
    """
    n = len(graph)
    here = [{i for i in range(n) if row[i]} for row in alive]
    near = [{i} | {j for j in range(n) if graph[i][j]} for i in range(n)]
    for i in here[3].copy():
        if len(near[i] & here[2]) < thresholds[i] <= len(near[i] & here[1]):
            here[3].remove(i)
    summed = without_loners(plan, [i in here[3] for i in range(n)])
    here[4] = {i for i in here[4] & summed if len(near[i] & summed) >= thresholds[i]}
    return np.asarray([[i in members for i in range(n)] for members in here])


def given_away_by_blocks(graph, alive, thresholds, plan) -> tuple[list, list]:
    """What is known of the inputs in a round over many blocks, all equations taken together.

    The unknowns: for each client of V_3 and each of its blocks (a set of members) an
    input and a self pad, for each pair of neighbours in V_2 and each block that both
    are in a pair pad. Held: every padded input of V_3, the self pads in all blocks of
    those summed whose b_i came back, the pair pads in all blocks of the others in V_2
    whose key came back; those summed answer.

    Returns:
        The inputs (client, block), and a basis of the combinations of them that can be
        computed.
    """
    n = len(graph)
    second = [i for i in range(n) if alive[2][i]]
    third = [i for i in second if alive[3][i]]
    summed = without_loners(plan, alive[3])
    answers = [i for i in summed if alive[4][i]]
    pads = [
        ("b", i, k) for k, members in enumerate(plan) for i in third if i in members
    ]
    pads += [
        ("s", (i, j), k)
        for k, members in enumerate(plan)
        for i, j in itertools.combinations(second, 2)
        if graph[i][j] and i in members and j in members
    ]
    inputs = [(i, k) for _, i, k in pads[: sum(kind == "b" for kind, _, _ in pads)]]
    at = {name: position for position, name in enumerate([*pads, *inputs])}

    def vector(terms: dict) -> list[Fraction]:
        row = [Fraction(0)] * len(at)
        for name, value in terms.items():
            row[at[name]] += value
        return row

    held = []
    for i, k in inputs:
        terms = {(i, k): 1, ("b", i, k): 1}
        for kind, pair, block in pads:
            if kind == "s" and block == k and i in pair:
                terms[kind, pair, block] = 1 if i == pair[0] else -1
        held.append(vector(terms))
    for i in second:
        if sum(j in answers for j in range(n) if graph[i][j] or j == i) < thresholds[i]:
            continue
        for kind, who, k in pads:
            if (
                (kind == "b" and who == i)
                if i in summed
                else (kind == "s" and i in who)
            ):
                held.append(vector({(kind, who, k): 1}))
    return inputs, [
        row[len(pads) :] for row in echelon(held) if not any(row[: len(pads)])
    ]


def echelon(rows) -> list[list[Fraction]]:
    """The non-zero rows of an echelon form."""
    rows, found = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(found, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        head = rows[found]
        for r in range(found + 1, len(rows)):
            factor = rows[r][column] / head[column]
            if factor:
                rows[r] = [a - factor * b for a, b in zip(rows[r], head, strict=True)]
        found += 1
    return rows[:found]
