"""Light vectors of a row space found by guessing well: upper bounds of weak privacy.

Three sources miss different ones: sums and differences of few rounds, linear programs
that make a round's remainder sparse, and information sets. Each gives supports; whether
they carry a vector of the row space is decided elsewhere in exact integers.

The compiled search of information sets comes first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mrsa_jax._core.compiled import bring_up, compiled
from mrsa_jax._core.prime import inverses
from mrsa_jax.privacy.solver._girth import SMALL

# Compiled upper bounds: light combinations of a random echelon form's rows.
#
# Information-set decoding: in a reduced echelon form with respect to a random order of
# the columns, single rows, and pairs of rows at the ratio that cancels most, are
# vectors of the row space with many zeros. All modulo the 13-bit prime `SMALL`: what
# looks light is confirmed in exact integers by the caller. Import inside functions only
# (see `_core.compiled`).


@compiled
def _echelon(work, order, inverses):
    """Reduce residues int32 `[rows, columns]` in place.

    Return the rank and pivot columns.
    """
    count, columns = work.shape
    pivots = np.zeros(count, np.int64)
    rank = 0
    for place in range(columns):
        if rank == count:
            break
        column = order[place]
        if not bring_up(work, rank, column):
            continue
        inverse = inverses[work[rank, column]]
        for j in range(columns):
            work[rank, j] = work[rank, j] * inverse % SMALL
        for i in range(count):
            factor = work[i, column]
            if i != rank and factor != 0:
                other = SMALL - factor
                for j in range(columns):
                    work[i, j] = (work[i, j] + other * work[rank, j]) % SMALL
        pivots[rank] = column
        rank += 1
    return rank, pivots


@compiled
def light_vector(residues, weights, orders, inverses, below, support):
    """Search for a light vector among rows and pairs of rows of echelon forms.

    Args:
        residues: int32 `[rank, columns]`: independent rows modulo `SMALL`.
        weights: int64 `[columns]`.
        orders: int64 `[attempts, columns]`: an order of the columns for each form.
        inverses: int32 `[SMALL]`.
        below: Only vectors lighter than this are wanted.
        support: bool `[columns]`: receives the lightest vector's support.

    Returns:
        Its weight, or `below` if there is none.
    """
    columns = residues.shape[1]
    best = below
    seen = np.zeros(SMALL, np.int64)
    for attempt in range(orders.shape[0]):
        work = residues.copy()
        rows, pivots = _echelon(work, orders[attempt], inverses)
        is_pivot = np.zeros(columns, np.bool_)
        for i in range(rows):
            is_pivot[pivots[i]] = True
        free = np.flatnonzero(~is_pivot)
        loads = np.zeros(rows, np.int64)
        for i in range(rows):
            loads[i] = weights[pivots[i]]
            for j in free:
                if work[i, j] != 0:
                    loads[i] += weights[j]
            if loads[i] < best:
                best = loads[i]
                for j in range(columns):
                    support[j] = work[i, j] != 0
        inverted = np.zeros((rows, free.shape[0]), np.int32)
        for i in range(rows):
            for k in range(free.shape[0]):
                inverted[i, k] = inverses[work[i, free[k]]]
        for i in range(rows):
            for other in range(i):
                base = weights[pivots[i]] + weights[pivots[other]]
                if base >= best:
                    continue
                union = base
                most = 0
                ratio = 0
                for k in range(free.shape[0]):
                    a, b = work[i, free[k]], inverted[other, k]
                    if a != 0 or b != 0:
                        weight = weights[free[k]]
                        union += weight
                        if a != 0 and b != 0:
                            key = a * b % SMALL
                            seen[key] += weight
                            if seen[key] > most:
                                most = seen[key]
                                ratio = key
                for k in range(free.shape[0]):
                    seen[work[i, free[k]] * inverted[other, k] % SMALL] = 0
                if union - most < best:
                    best = union - most
                    for j in range(columns):
                        value = (work[i, j] - ratio * work[other, j]) % SMALL
                        support[j] = value != 0
    return best


_MOST_ROWS = 400  # pairs of pairs of rounds need the cube of it
_KEPT = 8
_ATTEMPTS_A_CALL = 8
_PRODUCTS_A_CALL = 10**8  # so that it can be watched and interrupted


def few_rounds(matrix: np.ndarray, weights: np.ndarray) -> Iterator[dict[int, int]]:
    """Return light differences x_t - x_a and x_t + x_a - x_b - x_c of the last round t.

    Each as the coefficients of its rounds.

    Squared lengths come from one Gram matrix; they bound the number of non-zeros of an
    integer vector from above, so the shortest are the ones worth building.
    """
    if len(matrix) < 2 or matrix.dtype == object:
        return
    offset = max(0, len(matrix) - _MOST_ROWS)
    rows = matrix[offset:].astype(np.float64)
    gram = (rows * weights) @ rows.T
    last = len(rows) - 1
    norms = np.diag(gram)
    pairs = norms[last] + norms[:last] - 2 * gram[last, :last]
    for a in np.argsort(pairs, kind="stable")[:_KEPT]:
        yield {len(matrix) - 1: 1, offset + int(a): -1}
    if last < 3:
        return
    b, c = np.triu_indices(last, 1)
    for a in range(last):
        lengths = (
            norms[last]
            + norms[a]
            + 2 * gram[last, a]
            + norms[b]
            + norms[c]
            + 2 * gram[b, c]
            - 2 * (gram[last, b] + gram[last, c] + gram[a, b] + gram[a, c])
        )
        lengths[(b == a) | (c == a)] = np.inf
        k = int(lengths.argmin())
        if lengths[k] < 2 * norms[last]:
            plus = {len(matrix) - 1: 1, offset + a: 1}
            yield plus | {offset + int(b[k]): -1, offset + int(c[k]): -1}


def program_seconds(matrix: np.ndarray) -> float:
    """Predict how long an L1 program takes on one core.

    Measured, within a factor of two.
    """
    rounds, columns = matrix.shape
    return 2e-3 + 1e-5 * columns + 5.5e-8 * rounds * np.count_nonzero(matrix)


def sparse_remainder(
    matrix: np.ndarray, weights: np.ndarray, row: int
) -> np.ndarray | None:
    """Return a sparse support of round `row` plus others, by an L1 program.

    The lightest vector of a coset by weighted absolute values is often the one with the
    fewest non-zeros; its small entries are taken for zeros.
    """
    if matrix.dtype == object:
        return None
    others = np.delete(matrix, row, axis=0).astype(np.float64)
    target = matrix[row].astype(np.float64)
    return _sparsest(others, target, weights, None) if len(others) else target != 0


def sparse_through(
    matrix: np.ndarray, weights: np.ndarray, column: int
) -> np.ndarray | None:
    """Return a sparse support of a combination that is 1 at a column."""
    if matrix.dtype == object:
        return None
    return _sparsest(
        matrix.astype(np.float64), np.zeros(matrix.shape[1]), weights, column
    )


def _sparsest(
    others: np.ndarray, target: np.ndarray, weights: np.ndarray, through: int | None
) -> np.ndarray | None:
    """Return the support of the shortest `target` plus combination.

    It is 1 at a column if one is passed. None if the program has no solution.
    """
    from scipy import optimize, sparse

    count, columns = others.shape
    scale = np.maximum(1.0, np.abs(others).max(axis=1, keepdims=True))
    identity = sparse.identity(columns, format="csc")
    equations = sparse.hstack(
        [sparse.csc_matrix((others / scale).T), identity, -identity]
    )
    costs = np.concatenate([np.zeros(count), weights, weights]).astype(np.float64)
    bounds: list[tuple[int | None, int | None]]
    bounds = [(None, None)] * count + [(0, None)] * (2 * columns)
    if through is not None:
        bounds[count + through], bounds[count + columns + through] = (0, 0), (1, 1)
    solved = optimize.linprog(
        costs, A_eq=equations, b_eq=-target, bounds=bounds, method="highs"
    )
    if solved.status != 0:
        return None
    remainder = solved.x[count : count + columns] + solved.x[count + columns :]
    support: np.ndarray = remainder > 1e-7
    return support


def information_sets(
    matrix: np.ndarray, weights: np.ndarray, below: int, attempts: int, seed: int
) -> Iterator[np.ndarray | None]:
    """Yield supports by random echelon forms, each lighter than the one before.

    And None after every few forms that found nothing.
    """
    residues = (matrix % SMALL).astype(np.int32)
    rng = np.random.default_rng([40_111, seed, len(matrix)])
    support = np.zeros(matrix.shape[1], np.bool_)
    a_call = max(
        1, min(_ATTEMPTS_A_CALL, _PRODUCTS_A_CALL // (len(matrix) * matrix.size))
    )
    while attempts > 0:
        count = min(attempts, a_call)
        orders = np.stack([rng.permutation(matrix.shape[1]) for _ in range(count)])
        weight = light_vector(
            residues, weights, orders, inverses(SMALL), below, support
        )
        yield support.copy() if weight < below else None
        below = min(below, weight)
        attempts -= count
