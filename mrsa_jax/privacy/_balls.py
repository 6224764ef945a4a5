"""Among how many clients each is hidden, where floats do not know it: integers and enclosures.

The Gram matrix of the rows is exact, and what follows from it is computed with balls of as many
bits as nine digits need: a midpoint and a proven bound of what it is wrong by (Arb, in
python-flint). `work` bounds what it costs: a history too large is left open.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from mrsa_jax.modular import rank_trajectory

MOST_WORK = 3 * 10**6  # as `work` counts: some seconds on a core
_BITS = (192, 512, 2048)
_RADIUS = 1e-13  # of the figures, relative to them
_NOTHING = 1e-30


def work(rounds: int, clients: int, *, has_noise: bool) -> int:
    """Return what `excess` costs at most: rows x rows x (rows + columns)."""
    rank = rounds if has_noise else min(rounds, clients)
    return rank**2 * (rank + clients)


def excess(
    history: np.ndarray, variances: np.ndarray | None, *, last_only: bool
) -> np.ndarray | None:
    """Return T - 1 of each client after each round, T among how many it is hidden.

    Args:
        history: Integers `[rounds, clients]`.
        variances: Of the noise over the spread's square, `[rounds]`.
        last_only: Whether only after the last round.

    Returns:
        float64 `[rounds, clients]`, or `[1, clients]`: right to nine digits and more, inf for those
        in no sum; 0 for the exposed, and who is not told from them. None if balls do not tell.
    """
    is_noisy = np.zeros(len(history), np.bool_) if variances is None else variances > 0
    quiet = np.asarray(history * ~is_noisy[:, None])
    is_new = is_noisy | (np.diff(np.asarray(rank_trajectory(quiet)), prepend=0) > 0)
    rows = [[int(value) for value in row] for row in history[is_new]]
    columns: dict[tuple[int, ...], int] = {}
    own = np.array([columns.setdefault(each, len(columns)) for each in zip(*rows, strict=True)])
    rank = len(rows)
    if not rank:
        return np.full((1 if last_only else len(history), history.shape[1]), np.inf)
    noise = [0.0] * rank if variances is None else variances[is_new].tolist()
    distinct = [list(each) for each in zip(*columns, strict=True)]
    for bits in _BITS:
        found = _enclosed(rows, distinct, noise, bits, last_only)
        if found is not None:
            levels = np.cumsum(is_new)[-1:] if last_only else np.cumsum(is_new)
            found = np.concatenate([np.full((1, len(columns)), np.inf), found])
            return np.asarray(found[1:] if last_only else found[levels])[:, own]
    return None


def _enclosed(
    rows: list[list[int]], columns: list[list[int]], noise: list[float], bits: int, last_only: bool
) -> np.ndarray | None:
    """Return T - 1 `[rank, columns]`, or only the last row; None where balls are too wide."""
    import flint

    with flint.ctx.workprec(bits):
        whole = flint.fmpz_mat(rows)
        gram = flint.arb_mat(whole * whole.transpose()).tolist()
        for k, variance in enumerate(noise):
            gram[k][k] += flint.arb(variance)
        inverse = _inverse_of_factor(gram)
        if inverse is None:
            return None
        units = (flint.arb_mat(inverse) * flint.arb_mat(flint.fmpz_mat(columns))).tolist()
        found = []
        for column in zip(*units, strict=True):
            own = [_excess_of(h) for h in itertools.accumulate(q * q for q in column)]
            found.append(own[-1:] if last_only else own)
        if any(None in own for own in found):
            return None
        return np.array(found, np.float64).T


def _excess_of(share: Any) -> float | None:
    """Return (1 - h)/h of a ball h; 0 for one that reaches 1 and is not told from it."""
    if share == 0:
        return float("inf")
    if not share > 0:
        return None
    value = (1 - share) / share
    if value > 0 and value.rad() <= _RADIUS * value:
        return float(value)
    return 0.0 if abs(value) < _NOTHING else None


def _inverse_of_factor(gram: list[list[Any]]) -> list[list[Any]] | None:
    """Return the inverse of the lower Cholesky factor; None where no pivot is surely positive."""
    lower: list[list[Any]] = []
    inverse: list[list[Any]] = []
    for k, row in enumerate(gram):
        own: list[Any] = []
        for j in range(k):
            rest = row[j] - sum((a * b for a, b in zip(own, lower[j], strict=False)), row[j] * 0)
            own.append(rest / lower[j][j])
        square = row[k] - sum((a * a for a in own), row[k] * 0)
        if not square > 0:
            return None
        own.append(square.sqrt())
        lower.append(own)
        line = [
            -sum((own[i] * inverse[i][j] for i in range(j, k)), row[k] * 0) / own[k]
            for j in range(k)
        ]
        inverse.append([*line, 1 / own[k], *[row[k] * 0] * (len(gram) - k - 1)])
    return inverse
