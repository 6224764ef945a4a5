"""Least-squares reconstruction of single clients' updates from the sums of many rounds.

The server knows P (who was in which sum) and the sums Y = P X + Z; where X hardly moves between
rounds, X is nearly the solution of a linear system.
Source: Multi-RoundSecAgg (So et al., AAAI version), appendix, eq. (33) to (35), Fig. 9.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax import modular
from mrsa_jax._errors import require
from mrsa_jax.modular._inputs import as_integers

__all__ = ["AggregateView", "least_squares", "reconstruction_error"]

_COLUMNS_AT_ONCE = 1 << 16


@dataclasses.dataclass(frozen=True, eq=False)
class AggregateView:
    """All that an honest but curious server sees: who took part, and the sums.

    Attributes:
        participation: bool or integer weights [J, N], one row for each sum that was learnt.
        aggregates: float [J, d], the sums P @ X.
    """

    participation: np.ndarray
    aggregates: np.ndarray


def least_squares(participation: Any, aggregates: Any) -> Float64[np.ndarray, "clients dim"]:
    """Estimate every client's update from the sums, as the least-squares solution of least norm.

    X_hat = P^+ Y. Where P has full column rank this is eq. (34), and it is exact if the updates
    did not change between the sums. Clients who only ever move together have equal columns in P;
    the solution of least norm gives each of a block of T the block's estimated sum / T, which the
    paper names as the server's best. A client who never took part gets zeros.

    The rank is computed exactly (modulo primes), not read off the singular values; the solution
    itself is float64. Cost: one singular value decomposition of the J x distinct-columns matrix,
    then J N d multiplications in pieces along d.

    Args:
        participation: bool or integer weights [J, N], one row for each sum that was learnt (a
            zero row, a skipped round, says nothing and does no harm).
        aggregates: Real [J, d], plain sums P @ X (not means), finite.

    Returns:
        float64 [N, d].

    Raises:
        ConfigurationError: If weights are fractions, shapes do not fit or a sum is not finite.

    Examples:
        >>> history = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
        >>> updates = np.array([[1.0], [3.0], [5.0], [5.0]])
        >>> least_squares(history, history @ updates).round(6).ravel().tolist()
        [2.0, 2.0, 5.0, 5.0]

    Source: Multi-RoundSecAgg, eq. (34). Differs from the paper in using the pseudo-inverse also
    where P has full column rank (the same solution), since random histories are singular at times.
    """
    weights = _checked_participation(participation)
    sums = np.asarray(aggregates)
    require(
        sums.ndim == 2 and sums.shape[0] == weights.shape[0],
        "aggregates",
        "must have one row for each row of `participation`",
        sums.shape,
        weights.shape,
    )
    require(
        np.issubdtype(sums.dtype, np.number) and not np.issubdtype(sums.dtype, np.complexfloating),
        "aggregates",
        "must be real numbers",
        f"dtype {sums.dtype}",
    )
    require(bool(np.isfinite(sums).all()), "aggregates", "must be finite", "nan or infinity")
    inverse = _pseudo_inverse(weights)
    estimates = np.empty((weights.shape[1], sums.shape[1]), np.float64)
    for start in range(0, sums.shape[1], _COLUMNS_AT_ONCE):
        piece = slice(start, start + _COLUMNS_AT_ONCE)
        estimates[:, piece] = inverse @ sums[:, piece].astype(np.float64)
    return estimates


def reconstruction_error(true_updates: Any, estimates: Any) -> Float64[np.ndarray, " clients"]:
    """Return each client's relative squared error, ||x_i - x_hat_i||^2 / ||x_i||^2.

    0 is a perfect reconstruction. A client who never took part has the estimate 0 and so the
    error 1; an estimate of the block's mean in place of one of T unrelated updates of equal norm
    has the error 1 - 1/T on average.

    Args:
        true_updates: Real [N, d].
        estimates: Real [N, d].

    Returns:
        float64 [N]; nan for a client whose true update is zero (there is nothing to scale by).

    Raises:
        ConfigurationError: If the shapes differ.

    Examples:
        >>> reconstruction_error([[3.0, 4.0], [1.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]]).tolist()
        [0.0, 1.0]

    Source: Multi-RoundSecAgg, eq. (35).
    """
    truth = np.asarray(true_updates, np.float64)
    guess = np.asarray(estimates, np.float64)
    require(
        truth.ndim == 2 and truth.shape == guess.shape,
        "estimates",
        "must have the shape of `true_updates`, clients x dimensions",
        guess.shape,
        truth.shape,
    )
    squared_error = np.square(truth - guess).sum(axis=1)
    squared_norm = np.square(truth).sum(axis=1)
    is_scaled = squared_norm > 0
    errors = np.full(len(truth), np.nan)
    np.divide(squared_error, squared_norm, out=errors, where=is_scaled)
    return errors


def _checked_participation(participation: Any) -> np.ndarray:
    weights = np.asarray(as_integers(participation, "participation", min_ndim=1))
    require(
        weights.ndim == 2,
        "participation",
        "must have a row for each sum and a column for each client",
        weights.shape,
    )
    return weights.astype(np.int64)


def _pseudo_inverse(weights: np.ndarray) -> np.ndarray:
    """Return P^+ [N, J], cutting the singular values at the exact rank.

    Equal columns are merged first: with multiplicity m, scaling the merged column by sqrt(m)
    keeps the solution of least norm, which it then shares out equally.
    """
    columns, of_client, counts = np.unique(weights, axis=1, return_inverse=True, return_counts=True)
    of_client = of_client.reshape(-1)
    rank = int(modular.rank(columns))
    if rank == 0:
        return np.zeros((weights.shape[1], weights.shape[0]))
    scale = np.sqrt(counts.astype(np.float64))
    left, values, right = np.linalg.svd(columns * scale[None, :], full_matrices=False)
    inverse = (right[:rank].T / values[:rank]) @ left[:, :rank].T
    return (inverse / scale[:, None])[of_client]
