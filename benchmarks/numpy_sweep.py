"""A user's own script instead of a sweep: NumPy alone, all trials of a point at once.

It does what a competent user would write: ranks and leverages from the eigenvalues of
the smaller Gram matrix, the first exposed round by bisection, with a tolerance. In a
checkout `python -m benchmarks.numpy_sweep POINTS`, where POINTS is a JSON object of the
arguments of `points`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from mrsa_jax.bench.selection import NumPySelection

_NEAR = 1e-6  # a leverage of this much less than 1 counts as exposure


def _leverages(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ranks of histories float64[B, J, N], and each client's leverage [B, N]."""
    # eigenvalues of the smaller Gram matrix are the squared singular values
    is_wide = rows.shape[1] < rows.shape[2]
    turned = rows.swapaxes(1, 2)
    values, vectors = np.linalg.eigh(rows @ turned if is_wide else turned @ rows)
    is_kept = values > 1e-8 * np.maximum(values[:, -1:], 1)
    if not is_wide:
        return is_kept.sum(axis=1), np.einsum("bnk,bk->bn", vectors**2, is_kept)
    roots = np.where(is_kept, 1 / np.sqrt(np.where(is_kept, values, 1)), 0)
    scaled = vectors * roots[:, None]
    return is_kept.sum(axis=1), ((turned @ scaled) ** 2).sum(axis=2)


def analysed(history: np.ndarray) -> dict[str, np.ndarray]:
    """Analyse histories bool[B, J, N] as a sweep does."""
    counts, rounds = history.sum(axis=1), history.shape[1]
    strong = []
    for trial in history:
        columns = np.packbits(trial[:, trial.any(axis=0)], axis=0)
        sizes = np.unique(columns, axis=1, return_counts=True)[1]
        strong.append(min(sizes, default=-1))
    rows = history.astype(np.float64)
    rank, leverage = _leverages(rows)
    with np.errstate(divide="ignore"):
        hidden = np.where(counts > 0, 1 / leverage, np.nan)
    hidden[~counts.any(axis=1)] = np.inf  # no client took part
    is_exposed = (leverage > 1 - _NEAR).any(axis=1)
    low, high = np.full(len(rows), -1), np.where(is_exposed, rounds - 1, -1)
    # bisection: exposure, once there, never ends
    while (wide := np.flatnonzero(high - low > 1)).size:
        middle = (low[wide] + high[wide]) // 2
        until = rows[wide] * (np.arange(rounds) <= middle[:, None])[..., None]
        is_before = (_leverages(until)[1] > 1 - _NEAR).any(axis=1)
        high[wide] = np.where(is_before, middle, high[wide])
        low[wide] = np.where(is_before, low[wide], middle)
    return {
        "strong_privacy": np.array(strong),
        "rank": rank,
        "exposed_clients": (leverage > 1 - _NEAR).sum(axis=1),
        "first_exposed_round": high,
        "hidden_among_worst": np.nanmin(hidden, axis=1),
        "hidden_among_median": np.nanmedian(hidden, axis=1),
        "skipped_rounds": (~history.any(axis=2)).sum(axis=1),
        "fairness_gap": (counts.max(axis=1) - counts.min(axis=1)) / rounds,
        "aggregation_cardinality": counts.sum(axis=1) / rounds,
    }


def points(
    selectors: list[dict[str, Any]], rates: list[float], trials: int, rounds: int
) -> list[dict[str, np.ndarray]]:
    """Return the figures of every selector at every dropout rate."""
    peers = [NumPySelection(**each) for each in selectors]
    return [
        analysed(peer.rollouts(np.full(peer.clients, rate), trials, rounds))
        for peer in peers
        for rate in rates
    ]


if __name__ == "__main__":
    done = len(points(**json.loads(sys.argv[1])))
    print(json.dumps({"done": done, "jax": "jax" in sys.modules}))
