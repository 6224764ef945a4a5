"""The largest mu of any participation that keeps a separation: what holds without any law."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

_ROWS = 256  # whose best partners are sought side by side


def most_counts(rounds: int, separation: int) -> int:
    """Return in how many of J rounds one client can be, b or more of them apart."""
    return -(-rounds // separation)


def largest_square(form: Float64[np.ndarray, "rounds rounds"], separation: int) -> float:
    """Return p^T F p at the most over participations with separation b, or a bound above it.

    Exact where F's entries beyond its diagonal are 0 for rounds b or more apart, and for b = 1:
    then p^T F p is a sum over the rounds of p. Else each round is given the best partners that it
    can have by itself, so that the sum is no less.

    Args:
        form: F, symmetric, no entry negative: |C^T C| of a strategy.
        separation: b >= 1.
    """
    rounds = len(form)
    gains = np.diagonal(form).copy()
    for start in range(0, rounds, _ROWS):
        rows = np.arange(start, min(start + _ROWS, rounds))
        values = form[rows].copy()
        near = np.abs(rows[:, None] - np.arange(rounds)) < separation
        values[near] = 0.0
        gains[rows] += _best(values, separation)
    return float(_best(gains[None], separation)[0])


def _best(values: np.ndarray, separation: int) -> np.ndarray:
    """Return the largest sum of each row's entries at places b or more apart."""
    count, rounds = values.shape
    best = np.zeros((rounds + 1, count))
    for place in range(rounds):
        before = best[max(0, place + 1 - separation)]
        best[place + 1] = np.maximum(best[place], values[:, place] + before)
    return np.asarray(best[-1])
