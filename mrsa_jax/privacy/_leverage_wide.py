"""Leverage where an N x N basis does not fit: logs of very many clients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mrsa_jax._device import at_once
from mrsa_jax.privacy._leverage import leverage

_MOST_CLIENTS = 1500  # an N x N basis of this size takes seconds a hundred rounds
_MOST_ROWS = 4000  # an eigendecomposition of this size takes a minute


def leverages(P: np.ndarray, rank: int, exposed: Sequence[int]) -> np.ndarray | None:
    """Return the leverage of each client, by the smaller Gram matrix and the rank.

    Returns:
        float64[N], 1.0 for the exposed clients and below for all others; None where even that
        matrix is too large.
    """
    found = np.asarray(leverage(P)) if P.shape[1] <= _MOST_CLIENTS else _by_gram(P, rank)
    if found is None:
        return None
    found = np.minimum(found, math.nextafter(1.0, 0.0))
    found[list(exposed)] = 1.0
    return found


def _by_gram(P: np.ndarray, rank: int) -> np.ndarray | None:
    rows = P.any(axis=1)
    if rows.sum() > _MOST_ROWS:
        return None
    used = P[rows]
    gram = np.zeros((len(used), len(used)))
    size = at_once("columns", 8 * len(used))
    parts = [slice(start, start + size) for start in range(0, P.shape[1], size)]
    for part in parts:
        block = used[:, part].astype(np.float64)
        gram += block @ block.T
    values, vectors = np.linalg.eigh(gram)
    basis = vectors[:, len(values) - rank :] / np.sqrt(values[len(values) - rank :])
    squares = [((basis.T @ used[:, part].astype(np.float64)) ** 2).sum(axis=0) for part in parts]
    return np.concatenate(squares)
