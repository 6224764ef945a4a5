"""Small participation matrices on which weak privacy goes wrong when it is computed carelessly.

Each family is a list of cases (matrix, T); T is None where no closed form is known and
the oracle alone decides. Entries are Python integers.
"""

from __future__ import annotations

import itertools
import random

Matrix = list[list[int]]

PETERSEN = (
    [(i, (i + 1) % 5) for i in range(5)]
    + [(i, i + 5) for i in range(5)]
    + [(5 + i, 5 + (i + 2) % 5) for i in range(5)]
)


def complete(n):
    return list(itertools.combinations(range(n), 2))


def cycle(n):
    return [(i, (i + 1) % n) for i in range(n)]


def bipartite(a, b):
    return [(i, a + j) for i in range(a) for j in range(b)]


def incidence(edges, *, oriented=False) -> Matrix:
    """Return a row for each vertex, a column for each edge.

    Oriented, the row space is the cut space and T the smallest cut; otherwise T is the
    fewest edges whose removal makes one more connected component bipartite.
    """
    vertices = 1 + max(map(max, edges))
    second = -1 if oriented else 1
    return [
        [1 if v == edge[0] else second if v == edge[1] else 0 for edge in edges]
        for v in range(vertices)
    ]


def circulant(n, ones) -> Matrix:
    return [[int((j - i) % n in ones) for j in range(n)] for i in range(n)]


def transposed(matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def widened(matrix, sizes) -> Matrix:
    """Return the matrix with column k repeated `sizes[k]` times."""
    return [
        [v for v, size in zip(row, sizes, strict=True) for _ in range(size)]
        for row in matrix
    ]


def prefixes(matrix, start=1):
    return [matrix[:j] for j in range(start, len(matrix) + 1)]


FANO = circulant(7, {0, 1, 3})  # rank 7 over the rationals, 4 modulo 2


def sylvester(n, values=(1, -1)) -> Matrix:
    return [[values[bin(i & j).count("1") % 2] for j in range(n)] for i in range(n)]


def fibonacci_hessenberg(n) -> Matrix:
    """Return 0/1 rows of determinant 1 whose inverse has the Fibonacci number F_n in it."""
    return [
        [int(j == i + 1 or (j <= i and (i - j) % 2 == 0)) for j in range(n)]
        for i in range(n)
    ]


def graphs():
    cases = [(incidence(cycle(n)), 1 if n % 2 else 2) for n in range(3, 15)]
    cases += [(incidence(cycle(n), oriented=True), 2) for n in range(3, 15)]
    cases += [(incidence(complete(n)), t) for n, t in [(3, 1), (4, 2), (5, 4), (6, 5)]]
    cases += [(incidence(complete(n), oriented=True), n - 1) for n in range(3, 7)]
    cases += [(incidence(PETERSEN, oriented=way), 3) for way in (False, True)]
    grids = [(a, b) for a in range(1, 5) for b in range(a, 9) if a * b <= 16]
    cases += [(incidence(bipartite(a, b)), min(a, b)) for a, b in grids]
    # clients are vertices, rounds edges: a connected graph exposes all iff it has an
    # odd cycle
    cases += [
        (transposed(incidence(cycle(n))), 1 if n % 2 else 2) for n in range(3, 15)
    ]
    return cases


def designs():
    cases = [
        (FANO, 1),
        (sylvester(8), 1),
        (sylvester(16), 1),
        (sylvester(8, (1, 0)), 1),
    ]
    cases += [(part, None) for part in prefixes(FANO)]
    cases += [
        (part, None) for n in (8, 16) for part in prefixes(sylvester(n, (1, 0)))[::2]
    ]
    cases += [(part, None) for part in prefixes(sylvester(8))]
    return cases


def circulants():
    """Ranks fall modulo 2 or 3 (K = 2, 3, 4, 6) and sometimes over the rationals too."""
    shapes = [
        (n, set(range(k)))
        for n in (5, 6, 7, 8, 9, 10, 12, 14)
        for k in (2, 3, 4, 6)
        if k < n
    ]
    shapes += [(13, {0, 1, 3, 9}), (15, {0, 1, 2, 4, 5, 8, 10}), (11, {1, 3, 4, 5, 9})]
    shapes += [(8, {0, 1, 4, 5}), (12, {0, 4, 8, 1}), (12, {0, 1, 3, 6})]
    square = [(circulant(n, ones), None) for n, ones in shapes]
    return square + [(matrix[: len(matrix) // 2], None) for matrix, _ in square]


def by_hand():
    """Histories of which T is plain."""
    n = 9
    nested = [[int(j <= i) for j in range(n)] for i in range(n)]
    full = [[1] * n]
    rest = full + [[int(j != i) for j in range(n)] for i in range(3)]
    hessenberg = fibonacci_hessenberg(12)
    return [
        ([[1, 1, 0], [0, 1, 1], [1, 0, 1]], 1),  # three users, every pair once
        ([[1, 1, 1], [1, 1, 0]], 1),  # three users: one leaves
        ([[1, 1, 0], [0, 1, 1]], 2),
        ([[0, 0, 0]], None),
        ([[0]], None),
        ([[1]], 1),
        ([[5]], 1),
        ([[1, 1, 1, 1]], 4),
        # a skipped and a repeated round
        ([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], 4),
        ([[0, 0, 0, 0], [0, 1, 1, 1]], 3),
        (nested, 1),
        (nested[2::3], 3),
        (nested[3::2], 2),
        (full, n),
        (rest, 1),
        (hessenberg, 1),
        (hessenberg[:8], None),
        (hessenberg[:11], None),
        # two blocks a round on a cycle of blocks of two: strong privacy 2, weak 4 while
        # the blocks' graph is bipartite
        (widened(transposed(incidence(cycle(6))), [2] * 6), 4),
        (widened(transposed(incidence(cycle(8))), [2] * 8), 4),
        (widened(transposed(incidence(cycle(7))), [2] * 7), 2),
        (widened(transposed(incidence([(0, 1), (1, 2), (0, 3)])), [2] * 4), 4),
        # groups of unequal sizes: the smallest class alone, or two that always come
        # together
        (widened([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [5, 2, 4]), 2),
        (widened([[1, 1, 0], [0, 1, 1]], [1, 7, 2]), 3),
        (widened([[1, 1, 0], [0, 1, 1]], [4, 1, 4]), 5),
        (widened(incidence(cycle(6)), [1, 3, 2, 3, 4, 1]), 2),
        (widened(incidence(complete(4), oriented=True), [1, 2, 3, 1, 2, 3]), 4),
        (widened([[1, 2, 3]], [2, 3, 4]), 9),
    ]


def random_cohorts():
    rng = random.Random(1)
    cases = []
    for n, k, count in [
        (8, 3, 8),
        (10, 4, 8),
        (12, 3, 8),
        (12, 5, 8),
        (14, 4, 6),
        (16, 4, 6),
    ]:
        for _ in range(count):
            rounds = rng.randrange(1, n + 3)
            rows = [[0] * n for _ in range(rounds)]
            for row in rows:
                for j in rng.sample(range(n), k) if rng.random() > 0.15 else ():
                    row[j] = 1
            cases.append((rows, None))
    return cases


def blocks():
    """Blocks of two or three, of equal or unequal sizes, among them one that never takes part."""
    rng = random.Random(2)
    cases = []
    for _ in range(36):
        count = rng.randrange(3, 7)
        sizes = (
            [rng.randrange(1, 4) for _ in range(count)]
            if rng.random() < 0.6
            else [2] * count
        )
        rows = [
            [int(j in chosen) for j in range(count)]
            for chosen in (
                rng.sample(range(count), 2) for _ in range(rng.randrange(1, 8))
            )
        ]
        cases.append((widened(rows, sizes), None))
    return cases


def weighted_integers():
    """Rows of any integers: negative ones, and ones that no machine word holds."""
    rng = random.Random(3)
    cases = []
    for index in range(36):
        n, rounds = rng.randrange(2, 9), rng.randrange(1, 8)
        rows = [[rng.randrange(-3, 4) for _ in range(n)] for _ in range(rounds)]
        if rounds > 2 and index % 2:  # a row that depends on others
            rows[-1] = [2 * a - 3 * b for a, b in zip(rows[0], rows[1], strict=True)]
        if index % 3 == 0:
            scale = 2 ** rng.randrange(62, 90) + 1
            rows = [[value * scale for value in row] for row in rows]
        if index % 4 == 0:
            rows[0] = [value + 2**64 + 13 for value in rows[0]]
        cases.append((rows, None))
    p, q = 1_199_999_993, 1_199_999_963
    cases += [
        ([[1, p, q]], 3),
        ([[1, 1, p * q], [0, 1, 1]], 2),
        ([[p, 0], [0, q]], 1),
        ([[1, 1], [1, 1 + p]], 1),  # rank 1 modulo p
        ([[1, 1], [1, 1 + p * q]], 1),  # and modulo q
        ([[1, 1, 1], [1, 1 + p * q, 2]], 2),
        ([[2**63 - 1, -(2**63)]], 2),
    ]
    return cases


def relatives():
    """Rows repeated, scaled, shuffled and summed.

    The row space is that of the family's root.
    """
    rng = random.Random(4)
    cases = []
    for root, known in [
        (FANO[:5], None),
        (incidence(PETERSEN), 3),
        (incidence(bipartite(3, 4)), 3),
    ]:
        for _ in range(6):
            rows = [list(row) for row in root]
            for _ in range(3):
                a, b = rng.choice(rows), rng.choice(rows)
                x, y = rng.choice([-2, 1, 3]), rng.choice([-1, 1, 2])
                rows.append([x * u + y * v for u, v in zip(a, b, strict=True)])
            rows.append([0] * len(rows[0]))
            rng.shuffle(rows)
            cases.append((rows, known))
    return cases


FAMILIES = {
    "graphs": graphs,
    "designs": designs,
    "circulants": circulants,
    "by_hand": by_hand,
    "random_cohorts": random_cohorts,
    "blocks": blocks,
    "weighted_integers": weighted_integers,
    "relatives": relatives,
}
