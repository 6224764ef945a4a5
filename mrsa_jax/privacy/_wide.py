"""Exposure and leverage where an N x N basis does not fit: logs of very many clients.

Equal columns are no obstacle to exactness: clients that are not exposed in the end can be
replaced by few random integer combinations of their columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._leverage import leverage

__all__ = ["first_rounds", "leverages"]

_MOST_CLIENTS = 1500  # an N x N basis of this size takes seconds a hundred rounds
_MOST_ROWS = 4000  # an eigendecomposition of this size takes a minute
_CHUNK = 4096


def first_rounds(P: np.ndarray, exposed: tuple[int, ...]) -> list[int]:
    """Return the row from which on each of the exposed clients is exposed.

    With A the columns of all others, e_i is in the row space of rows 0..j exactly if z A = 0 and
    z P = e_i for some z on those rows. Only the column space of A matters, which A R spans for a
    random integer matrix R of as many columns as A has rows, except by a coincidence of the size
    of rows / 2^20. Rows that repeat an earlier one are left out.
    """
    if not exposed:
        return []
    rows = _first_of_each(P)
    small = P[rows]
    if P.shape[1] > _MOST_CLIENTS and P.dtype != object:
        others = np.setdiff1d(np.arange(P.shape[1]), exposed)
        mixed = _mix(small, others, min(len(rows), len(others)))
        small = np.concatenate([small[:, list(exposed)].astype(np.int64), mixed], axis=1)
        exposed = tuple(range(len(exposed)))
    found = np.asarray(first_exposure(small))[list(exposed)]
    return [int(rows[j]) if j >= 0 else -1 for j in found]


def _first_of_each(P: np.ndarray) -> np.ndarray:
    """Return the first occurrence of each different row, in order."""
    seen: dict[Any, int] = {}
    for j, row in enumerate(P):
        seen.setdefault(tuple(row) if P.dtype == object else row.tobytes(), j)
    return np.array(list(seen.values()))


def _mix(P: np.ndarray, columns: np.ndarray, count: int) -> np.ndarray:
    """Return P[:, columns] @ R for a random R, exactly: products and sums stay below 2^53."""
    rng = np.random.default_rng(0)
    largest = max(int(np.abs(P).max()), 1) if P.dtype != np.bool_ else 1
    bound = max(2, min(2**20, 2**52 // (largest * max(len(columns), 1))))
    total = np.zeros((len(P), count))
    for start in range(0, len(columns), _CHUNK):
        part = P[:, columns[start : start + _CHUNK]].astype(np.float64)
        total += part @ rng.integers(0, bound, (part.shape[1], count)).astype(np.float64)
    return total.astype(np.int64)


def leverages(P: np.ndarray, rank: int) -> np.ndarray | None:
    """Return the leverage of each client, by the smaller Gram matrix and the proven rank.

    Returns:
        float64[N]; None where even that matrix is too large.
    """
    rows = P.any(axis=1)
    if P.shape[1] <= _MOST_CLIENTS:
        return np.asarray(leverage(P))
    if rows.sum() > _MOST_ROWS:
        return None
    used = P[rows]
    gram = np.zeros((len(used), len(used)))
    parts = [slice(start, start + _CHUNK) for start in range(0, P.shape[1], _CHUNK)]
    for part in parts:
        block = used[:, part].astype(np.float64)
        gram += block @ block.T
    values, vectors = np.linalg.eigh(gram)
    basis = vectors[:, len(values) - rank :] / np.sqrt(values[len(values) - rank :])
    squares = [((basis.T @ used[:, part].astype(np.float64)) ** 2).sum(axis=0) for part in parts]
    return np.minimum(np.concatenate(squares), 1.0)
