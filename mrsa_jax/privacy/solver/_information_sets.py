"""Compiled upper bounds: light combinations of a random echelon form's rows.

Information-set decoding: in a reduced echelon form with respect to a random order of the columns,
single rows, and pairs of rows at the ratio that cancels most, are vectors of the row space with
many zeros. All modulo the 13-bit prime `SMALL`: what looks light is confirmed in exact
integers by the caller. Import inside functions only (see `mrsa_jax._compiled`).
"""

from __future__ import annotations

import numpy as np

from mrsa_jax._compiled import compiled
from mrsa_jax._elimination import bring_up
from mrsa_jax.privacy.solver._girth import SMALL


@compiled
def _echelon(work, order, inverses):
    """Reduce residues int32 `[rows, columns]` in place; return the rank and pivot columns."""
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
def light_vector(residues, weights, orders, inverses, below, found):
    """Search for a vector lighter than a bound among rows and pairs of rows of echelon forms.

    Args:
        residues: int32 `[rank, columns]`: independent rows modulo `SMALL`.
        weights: int64 `[columns]`.
        orders: int64 `[attempts, columns]`: an order of the columns for each form.
        inverses: int32 `[SMALL]`.
        below: Only vectors lighter than this are wanted.
        found: bool `[columns]`: receives the lightest vector's support.

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
        own = np.zeros(rows, np.int64)
        for i in range(rows):
            own[i] = weights[pivots[i]]
            for j in free:
                if work[i, j] != 0:
                    own[i] += weights[j]
            if own[i] < best:
                best = own[i]
                for j in range(columns):
                    found[j] = work[i, j] != 0
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
                        found[j] = value != 0
    return best
