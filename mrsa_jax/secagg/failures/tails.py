"""Compute binomial tails in log space, without scipy.

Rates of 1e-40 are ordinary here, so tails are natural logarithms.
"""

from __future__ import annotations

import math

import numpy as np

from mrsa_jax._core.floats import usual_floats


def log_factorials(largest: int) -> np.ndarray:
    """Return log(i!) for i = 0..largest as float64."""
    return np.asarray([math.lgamma(i + 1.0) for i in range(largest + 1)], np.float64)


def log_binomials(n: int) -> np.ndarray:
    """Return log C(n, k) for k = 0..n as float64."""
    factorials = log_factorials(n)
    return factorials[n] - factorials - factorials[::-1]


def log_chance(chance: float) -> float:
    """Return log(chance): -inf of 0, nan of nan."""
    return (
        math.log(chance) if chance > 0.0 else (-math.inf if chance == 0.0 else math.nan)
    )


@usual_floats
def log_sum(terms: np.ndarray) -> float:
    """Return log(sum(exp(terms))); -inf for no terms."""
    if terms.size == 0:
        return -math.inf
    largest = float(terms.max())
    if math.isinf(largest):
        return largest
    return largest + math.log(float(np.exp(terms - largest).sum()))


def log_pmf(n: int, chance: float, missed: float | None = None) -> np.ndarray:
    """Return log P(X = k), X binomial with n trials, for k = 0..n.

    Args:
        n: Trials, at least 0.
        chance: Of one trial.
        missed: 1 - `chance`, where it is known more exactly than the subtraction gives
            it.
    """
    missed = 1.0 - chance if missed is None else missed
    hits = np.arange(n + 1, dtype=np.float64)
    return log_binomials(n) + _times(hits, chance) + _times(hits[::-1], missed)


def _times(counts: np.ndarray, chance: float) -> np.ndarray:
    """Return counts * log(chance), 0 where the count is 0."""
    return (
        counts * math.log(chance)
        if chance > 0.0
        else np.where(counts > 0.0, -np.inf, 0.0)
    )


def log_tail_below(n: int, chance: float, limit: float) -> float:
    """Return log P(X < limit) for a binomial X; `limit` may be any real number."""
    terms = max(0, min(n + 1, math.ceil(limit)))
    return min(0.0, log_sum(log_pmf(n, chance)[:terms]))


def log_tail_above(n: int, chance: float, limit: float) -> float:
    """Return log P(X >= limit) for a binomial X; `limit` may be any real number."""
    terms = max(0, min(n + 1, math.ceil(limit)))
    return min(0.0, log_sum(log_pmf(n, chance)[terms:]))


_NEGLIGIBLE = 1e-20  # of a sum, the term at which it ends


def log_tails_below(sizes: np.ndarray, chance: float, limits: np.ndarray) -> np.ndarray:
    """Return log P(X < limit) of each binomial X, `log_tail_below` of many.

    Args:
        sizes: int[k], trials of each X.
        chance: Of one trial.
        limits: int[k].

    Returns:
        float64[k]. Terms are summed from the largest one downwards and upwards, so that
        a tail of 1e-400 has as many digits as one of 1e-4.
    """
    most = np.minimum(limits - 1, sizes)
    if chance in (0.0, 1.0):
        return np.where(most >= sizes * chance, 0.0, -np.inf)
    odds = chance / (1.0 - chance)
    # the largest term: the mode, or the last of those that are summed
    start = np.clip(((sizes + 1) * chance).astype(np.int64), 0, np.maximum(most, 0))
    factorials = log_factorials(int(sizes.max(initial=0)))
    logs = factorials[sizes] - factorials[start] - factorials[sizes - start]
    logs += start * math.log(chance) + (sizes - start) * math.log1p(-chance)
    total = np.ones(len(sizes))
    for step, bound in ((-1, np.zeros_like(start)), (1, most)):
        term, hits = np.ones(len(sizes)), start.copy()
        while True:
            going = (hits * step < bound * step) & (term > _NEGLIGIBLE * total)
            if not going.any():
                break
            higher = np.where(step > 0, hits + 1, hits)
            ratio = (sizes - higher + 1) / np.maximum(higher, 1) * odds
            term = np.where(going, term * (ratio if step > 0 else 1.0 / ratio), 0.0)
            total += term
            hits += step
    return np.where(most < 0, -np.inf, np.minimum(0.0, logs + np.log(total)))
