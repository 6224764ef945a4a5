"""A lower bound on weak T from leverages that are proven from above.

For a vector v of the row space with support S, client i's leverage is at least v_i^2/|v|^2, and
these add up to 1 over S. So S has no fewer clients than it takes, those with the largest leverages
first, for leverages to add up to 1: at least 1 / (the largest). A bound in polynomial time, of a
number that is NP-hard, and no search: it says most of many clients in few rounds.

Floats compute it and a proof encloses what they may be wrong by, whatever the history. With
G = P P^T (integers that floats hold), x any approximation of G^-1 p and r = p - G x,

    h = p^T G^-1 p = p^T x + r^T x + r^T G^-1 r <= p^T x + |r| |x| + |r|^2 / lambda,

lambda any proven lower bound of G's eigenvalues: if the Cholesky factorisation of B = G - s I runs
to its end in floats, no eigenvalue of B lies below -g tr B with g = gamma/(1 - gamma) and
gamma = (n + 1) u/(1 - (n + 1) u) of n rows (Higham, Accuracy and Stability, theorem 10.7; Rump
2006). Sums of n products err by at most gamma times the sum of the absolute values, whatever their
order.
"""

from __future__ import annotations

import numpy as np

_UNIT = 2.0**-53
# of the bound's own roundings: far more than so many sums of positive numbers can make
_OUTWARD = 1 + 1e-9
_PART = 2**22  # float64 entries of columns at a time


def leverage_bound(rows: np.ndarray, sizes: np.ndarray) -> int:
    """Return a proven lower bound on the clients in any vector of the row space; 1 if none is.

    Args:
        rows: Integers `[rank, groups]`, independent.
        sizes: Clients behind each column.
    """
    largest = 1 << 27 if rows.dtype == object else int(np.abs(rows).max(initial=0))
    if largest**2 * int(sizes.sum()) >= 1 << 53:
        return 1
    parts = [
        slice(start, start + max(1, _PART // len(rows)))
        for start in range(0, rows.shape[1], max(1, _PART // len(rows)))
    ]
    gram = np.zeros((len(rows),) * 2)
    for part in parts:  # sums of integers that stay exact
        own = rows[:, part].astype(np.float64)
        gram += (own * sizes[part]) @ own.T
    least = _least_eigenvalue(gram)
    if least is None:
        return 1
    return _fewest(np.concatenate([_from_above(gram, rows[:, p], least) for p in parts]), sizes)


def leverage_seconds(rank: int, groups: int) -> float:
    """Predict the bound's time on one core: products of matrices, and passes over the columns."""
    return 1.05e-10 * rank**2 * (3 * groups + rank) + 7e-8 * rank * groups


def _gamma(terms: int) -> float:
    return terms * _UNIT / (1 - terms * _UNIT) * _OUTWARD


def _least_eigenvalue(gram: np.ndarray) -> float | None:
    """Return a proven positive lower bound of the eigenvalues, None if floats give none."""
    shift = float(np.linalg.eigvalsh(gram)[0]) / 2
    shifted = gram - shift * np.eye(len(gram))
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return None
    gamma = _gamma(len(gram) + 1)
    error = gamma / (1 - gamma) * float(np.trace(shifted)) + _UNIT * float(np.abs(shifted).max())
    least = (shift - 2 * error) / _OUTWARD
    return least if least > 0 else None


def _from_above(gram: np.ndarray, columns: np.ndarray, least: float) -> np.ndarray:
    """Return proven upper bounds of the leverages of some columns."""
    p = columns.astype(np.float64)
    x = np.linalg.solve(gram, p)
    gamma = _gamma(len(gram) + 2)
    rest = np.abs(p - gram @ x) + gamma * (np.abs(p) + np.abs(gram) @ np.abs(x))
    length, own = np.linalg.norm(rest, axis=0), np.linalg.norm(x, axis=0)
    main = (p * x).sum(axis=0) + gamma * np.abs(p * x).sum(axis=0)
    above = (main + (length * own + length * length / least) * _OUTWARD) * _OUTWARD
    return np.where(np.isfinite(above), np.minimum(above, 1.0), 1.0)


def _fewest(above: np.ndarray, sizes: np.ndarray) -> int:
    """Return how many clients it takes at least for their leverages to add up to 1."""
    order = np.argsort(-above)
    sums = np.cumsum(above[order] * sizes[order]) * _OUTWARD
    last = int(np.searchsorted(sums, 1.0))
    if last == len(order):  # not even all: they add up to the rank, so floats failed
        return 1
    before = float(sums[last - 1]) if last else 0.0
    missing = (1 - before) / (float(above[order[last]]) * _OUTWARD)
    # sums are rounded up, what is missing down; whole clients close it
    return int(sizes[order[:last]].sum()) + max(1, int(np.ceil(missing / _OUTWARD)))
