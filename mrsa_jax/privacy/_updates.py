"""Among how many clients the update of each round is hidden, where updates drift.

The best linear estimate of client i's update x of round r from the sums y explains the share

    h[i, r] = c^T M^-1 c,    c = D_i R e_r,    M = G o R + Omega / s^2

of its variance (`_covariances` names the symbols; D_i is the diagonal matrix of p_i). With L the
Cholesky factor of M this is |L^-1 c|^2, and the first q entries of L^-1 c are those of the first
q sums alone: what each further sum tells comes for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mrsa_jax._core.device import at_once
from mrsa_jax.privacy._covariances import (
    covariances,
    decided,
    exponents_of,
    grams_of,
    noise_of,
    participations,
)

_ROUNDING = 2.0**-53
_MOST_ERROR = 5e-7  # of a share, relative to it: six digits
_ABOVE = np.nextafter(1.0, 2.0)


class _Client(NamedTuple):
    """Some clients of one history: what each of their own rounds' updates gives away."""

    clients: slice
    places: np.ndarray  # rows `[clients, own rounds]`; what stands beside a weight of 0 is none
    is_own: np.ndarray
    shares: np.ndarray  # after each sum `[clients, sums, own rounds]`
    least: float  # the smallest share of which floats know enough digits

    def known(self, shares: np.ndarray) -> np.ndarray:
        """Return shares, nan where they are too small for floats to know them."""
        return np.where((shares > 0) & (shares < self.least), np.nan, shares)


def hidden_updates(
    histories: np.ndarray,
    kernel: np.ndarray,
    spread: float,
    noise: np.ndarray | None,
    how: str,
) -> np.ndarray:
    """Return T: the update of a round is hidden as in one sum of T clients.

    Args:
        histories: Integers `[batch, rounds, clients]`.
        kernel: R `[rounds, rounds]`; 1 between sums of one round.
        spread: s.
        noise: Variances `[rounds]`, or a root of their covariance; None is none.
        how: "last" for each client's worst update after all sums, `[batch, clients]`; "sums" for
            that after each of them, `[batch, rounds, clients]`, of updates so far; "rounds" for
            each update after all sums, of the same shape, nan where a client is in no sum of the
            round.

    Returns:
        float64; exactly 1 for those known exactly, inf for clients in no sum, nan where floats know
        fewer than six digits.
    """
    count, rounds, clients = histories.shape
    is_noisy, covariance = noise_of(noise, rounds, spread)
    is_kept, exposed = decided(histories, kernel, is_noisy)
    found = np.zeros((count, clients) if how == "last" else histories.shape)
    for own, history, kept in zip(found, histories, is_kept, strict=True):
        for part in _shares(history, kernel, covariance, kept):
            _take(own, part, how)
    if how == "last":
        is_known = exposed.any(axis=1)
    elif how == "sums":
        is_known = np.logical_or.accumulate(exposed, axis=1)
    else:
        same = kernel == 1  # sums of one round are of one update: what one tells, all tell
        found, is_known = _over_round(found, same), _over_round(exposed, same)
    with np.errstate(divide="ignore"):
        hidden = np.where(is_known, 1.0, np.maximum(1 / found, _ABOVE))
    return np.where(histories != 0, hidden, np.nan) if how == "rounds" else hidden


def _over_round(values: np.ndarray, same: np.ndarray) -> np.ndarray:
    """Return the largest value among the rows of each row's round."""
    groups, time = np.unique(same, axis=0, return_inverse=True)
    if len(groups) == len(same):
        return values
    largest = np.stack([values[:, time == k].max(axis=1) for k in range(len(groups))], axis=1)
    return np.asarray(largest[:, time])


def _take(found: np.ndarray, part: _Client, how: str) -> None:
    """Write what is said of some clients."""
    own = np.where(part.is_own, part.shares[:, -1], 0.0)
    if how == "last":
        found[part.clients] = part.known(own.max(axis=1))
    elif how == "rounds":
        for shares, at, is_own, client in zip(part.known(own), part.places, part.is_own,
                                              range(*part.clients.indices(found.shape[1])),
                                              strict=True):  # fmt: skip
            found[at[is_own], client] = shares[is_own]
    else:
        sums = np.arange(len(found))[:, None]
        is_past = part.is_own[:, None, :] & (part.places[:, None, :] <= sums)
        found[:, part.clients] = part.known(np.where(is_past, part.shares, 0.0).max(axis=2)).T


def _shares(
    history: np.ndarray, kernel: np.ndarray, covariance: np.ndarray, is_kept: np.ndarray
) -> Iterator[_Client]:
    """Yield the shares of a history's updates, a few clients at a time."""
    rounds, clients = history.shape
    rows, kept = history[None], is_kept[None]
    exponents = exponents_of(rows)
    (whole,) = covariances(grams_of(rows, exponents), exponents, covariance, kept, kernel)
    scales = 1 / np.sqrt(np.diagonal(whole))
    ratios = whole * scales[:, None] * scales
    inverse, error, least = _inverse_root(ratios)
    ((places,), (weights,)) = participations(rows, exponents, kept)
    most = places.shape[1]
    step = at_once("leverage", 8 * 4 * most * (rounds + most))
    for start in range(0, clients, step):
        at, weight = places[start : start + step], weights[start : start + step]
        own = kernel[at[:, :, None], at[:, None, :]] * (weight * scales[at])[:, :, None]
        seen = inverse[:, at].swapaxes(0, 1) @ own  # L^-1 c of each own round
        shares = np.cumsum(seen * seen, axis=1)
        if not error <= _MOST_ERROR:
            shares[:] = np.nan
        yield _Client(slice(start, start + len(at)), at, weight != 0, shares, least)


def _inverse_root(ratios: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return L^-1, what shares are wrong by relative to them, and the smallest one to be told.

    For a Cholesky factor and triangular solves (1 - e) M <= M + dM <= (1 + e) M, where e is
    (3 t (t + 1) + 8 t) u over the least eigenvalue q of the sums' correlations, t sums, u = 2^-53;
    rounding of c adds at most 4 u sqrt(t / q). Products by the inverse err alike, which tests show.
    """
    from scipy.linalg import solve_triangular

    rounds = len(ratios)
    least = float(np.linalg.eigvalsh(ratios)[0]) - rounds * _ROUNDING
    if least <= 0:  # above it the factor exists
        return np.zeros_like(ratios), np.inf, 0.0
    inverse = solve_triangular(np.linalg.cholesky(ratios), np.eye(rounds), lower=True)
    error = (3 * rounds * (rounds + 1) + 8 * rounds) * _ROUNDING / least
    return inverse, error, 4 * _ROUNDING * float(np.sqrt(rounds / least)) / _MOST_ERROR
