"""Weak privacy and its relatives by exhaustion, in exact Python integers.

An oracle shares nothing with what it tests: no library of number theory, no arithmetic
modulo a prime, no floats. `plain_weak_privacy` follows the definition word for word;
`weak_privacy` is the same minimum found faster (equal columns collapsed, dual vectors);
the tests of this folder hold the second equal to the first. Both are for some sixteen
clients.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction


def as_rows(matrix) -> list[list[int]]:
    """Return the matrix as lists of Python integers."""
    return [[int(value) for value in row] for row in matrix]


def rank(rows) -> int:
    """Fraction-free elimination (Bareiss): the rank over the rationals."""
    rows = [list(row) for row in rows]
    found, previous = 0, 1
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        head = rows[found]
        for i in range(found + 1, len(rows)):
            row, factor = rows[i], rows[i][column]
            rows[i] = [
                (head[column] * b - factor * a) // previous
                for a, b in zip(head, row, strict=True)
            ]
        previous = head[column]
        found += 1
    return found


def plain_weak_privacy(matrix) -> int | None:
    """The definition.

    The smallest S that is the support's superset of a non-zero v of V.
    There is one iff the columns outside S have a smaller rank than all columns.
    """
    rows = as_rows(matrix)
    clients, full = len(rows[0]), rank(rows)
    for size in range(1, clients + 1):
        for support in itertools.combinations(range(clients), size):
            outside = [j for j in range(clients) if j not in support]
            if rank([[row[j] for j in outside] for row in rows]) < full:
                return size
    return None


def kernel(rows, clients: int) -> list[list[int]]:
    """Return a basis of all q with row . q = 0 for every row, in integers."""
    reduced: list[tuple[int, list[Fraction]]] = []
    for row in rows:
        vector = [Fraction(value) for value in row]
        for place, other in reduced:
            if vector[place]:
                factor = vector[place]
                vector = [a - factor * b for a, b in zip(vector, other, strict=True)]
        pivot = next((j for j, value in enumerate(vector) if value), None)
        if pivot is None:
            continue
        vector = [value / vector[pivot] for value in vector]
        for k, (place, other) in enumerate(reduced):
            if other[pivot]:
                factor = other[pivot]
                new = [a - factor * b for a, b in zip(other, vector, strict=True)]
                reduced[k] = (place, new)
        reduced.append((pivot, vector))
    pivots = {place for place, _ in reduced}
    basis = []
    for free in range(clients):
        if free in pivots:
            continue
        entry = [Fraction(int(j == free)) for j in range(clients)]
        for place, vector in reduced:
            entry[place] = -vector[free]
        scale = math.lcm(*(value.denominator for value in entry))
        basis.append([int(value * scale) for value in entry])
    return basis


def classes(rows) -> list[list[int]]:
    """Return the clients of each class of equal non-zero columns."""
    found: dict[tuple[int, ...], list[int]] = {}
    for client, column in enumerate(zip(*rows, strict=True)):
        if any(column):
            found.setdefault(column, []).append(client)
    return list(found.values())


def weak_privacy(matrix) -> int | None:
    """The fewest clients in a non-zero vector of the row space, None when the rank is 0.

    v lies in the row space iff Q v = 0 for a kernel basis Q, so S supports such a v iff
    the columns of Q in S are linearly dependent. Equal columns of the matrix carry
    equal coefficients and are taken together, their number being their weight.
    """
    rows = as_rows(matrix)
    groups = classes(rows)
    if not groups:
        return None
    weights = [len(group) for group in groups]
    basis = kernel([[row[group[0]] for group in groups] for row in rows], len(groups))
    columns = [[vector[k] for vector in basis] for k in range(len(groups))]
    order = sorted(range(len(groups)), key=weights.__getitem__)
    pairs = [(weights[k], columns[k]) for k in order]
    budget = 1
    while not _has_dependent_set(pairs, budget):
        budget += 1
    return budget


def _has_dependent_set(pairs, budget: int) -> bool:
    """Whether some linearly dependent vectors weigh at most `budget` together.

    `pairs` is sorted by weight. Each vector is taken in turn, and the later ones
    projected along it; one that has become zero depends on those taken.
    """
    if any(weight <= budget and not any(vector) for weight, vector in pairs):
        return True
    for place, (weight, vector) in enumerate(pairs):
        if 2 * weight > budget:  # at least one more of this weight is needed
            return False
        later = [pair for pair in pairs[place + 1 :] if pair[0] <= budget - weight]
        pivot = next(i for i, value in enumerate(vector) if value)
        if _has_dependent_set(_project(later, vector, pivot), budget - weight):
            return True
    return False


def _project(pairs, vector, pivot: int):
    head = vector[pivot]
    projected = []
    for weight, other in pairs:
        factor = other[pivot]
        new = [head * a - factor * b for a, b in zip(other, vector, strict=True)]
        del new[pivot]
        scale = math.gcd(*new)
        projected.append((weight, [a // scale for a in new] if scale > 1 else new))
    return projected


def strong_privacy(matrix) -> int | None:
    """Return the smallest class of equal non-zero columns."""
    return min(map(len, classes(as_rows(matrix))), default=None)


def leverages(matrix) -> list[Fraction]:
    """Return the diagonal of the projector on the row space, exactly, by Gram and Schmidt."""
    found = [Fraction(0)] * len(matrix[0])
    basis: list[tuple[list[Fraction], Fraction]] = []
    for row in as_rows(matrix):
        rest = [Fraction(value) for value in row]
        for vector, squares in basis:
            factor = sum(a * b for a, b in zip(rest, vector, strict=True)) / squares
            rest = [a - factor * b for a, b in zip(rest, vector, strict=True)]
        squares = sum(value * value for value in rest)
        if squares:
            basis.append((rest, squares))
            found = [
                h + value * value / squares
                for h, value in zip(found, rest, strict=True)
            ]
    return found


def exposed(matrix) -> tuple[int, ...]:
    """Return the clients whose unit vector adds nothing to the row space."""
    rows = as_rows(matrix)
    clients, full = len(rows[0]), rank(rows)
    units = [[int(j == client) for j in range(clients)] for client in range(clients)]
    return tuple(
        client for client in range(clients) if rank([*rows, units[client]]) == full
    )


def trajectory(matrix) -> list[tuple[int, int]]:
    """Return (rank, T) after each row, T = -1 while the rank is 0."""
    rows, found, known = as_rows(matrix), [], (0, -1)
    for j in range(len(rows)):
        now = rank(rows[: j + 1])
        if now > known[0]:  # otherwise the row space is what it was
            known = (now, weak_privacy(rows[: j + 1]))
        found.append(known)
    return found


def combination(witness, matrix) -> list[int]:
    """Return witness . matrix in Python integers."""
    return [
        sum(int(z) * int(row[j]) for z, row in zip(witness, matrix, strict=True))
        for j in range(len(matrix[0]))
    ]


def unweighted_group(matrix, coefficients=(0, 1)) -> int | None:
    """Return the fewest clients in a non-zero vector of V with all entries in `coefficients`.

    Every choice of a coefficient for each class of equal columns is tried, fewest
    clients first.
    """
    rows = as_rows(matrix)
    groups = classes(rows)
    basis = kernel([[row[group[0]] for group in groups] for row in rows], len(groups))
    tried: list[tuple[int, tuple[int, ...]]] = []
    for values in itertools.product(coefficients, repeat=len(groups)):
        size = sum(
            len(group) for group, value in zip(groups, values, strict=True) if value
        )
        if size:
            tried.append((size, values))
    for size, values in sorted(tried):
        if not any(sum(map(int.__mul__, vector, values)) for vector in basis):
            return size
    return None
