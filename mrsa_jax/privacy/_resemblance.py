"""Among how many clients an update is hidden from a server who knows them apart.

Clients are not alike: one has more data and longer updates, two hospitals resemble each
other. With C the covariance of clients' updates (variances on the diagonal) and R the
correlation of what lasts over the rounds, the best linear estimate of client i's update
of round r explains the share

    h[i, r] = c^T M^-1 c / C_ii,
    M = a (P C P^T) o R + (1 - a) (P D P^T) o S + Omega,
    c = a (P C e_i) o (R e_r) + (1 - a) C_ii (P e_i) o (S e_r),

with D the diagonal of C, a the share that lasts, S 1 for sums of one round and 0 else,
Omega the noise's covariance. C = I is the case of clients that are alike.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from mrsa_jax.privacy._updates import (
    MOST_ERROR,
    decided,
    exponents_of,
    factor_of,
    noise_of,
)

_ABOVE = np.nextafter(1.0, 2.0)


def hidden_with_covariance(
    histories: np.ndarray,
    covariance: np.ndarray,
    kernel: np.ndarray,
    same: np.ndarray,
    share: float,
    spread: float,
    noise: np.ndarray | None,
    how: str,
    *,
    is_lasting: bool,
) -> np.ndarray:
    """Return 1/h of each client's worst update, or of each update.

    Args:
        histories: Integers [batch, rounds, clients].
        covariance: C, in squares of the spread.
        kernel: R [rounds, rounds].
        same: bool [rounds, rounds], S: which sums are of one round.
        share: a.
        spread: s.
        noise: As `check_noise` returns it.
        how: "last" for the worst own round of each client, [batch, clients]; "rounds"
            for each of them, [batch, rounds, clients], NaN elsewhere.
        is_lasting: Whether what lasts of the update is meant.

    Returns:
        float64; exactly 1 for updates that sums without noise expose, inf for clients
        in no sum, NaN where floats know fewer than six digits.
    """
    rounds = histories.shape[1]
    update = np.where(same, 1.0, share * kernel)
    is_noisy, omega = noise_of(noise, rounds, spread)
    is_kept, exposed = decided(histories, update, is_noisy)
    figures = [
        _of_history(history, kept, covariance, kernel, same, share, omega, is_lasting)
        for history, kept in zip(histories, is_kept, strict=True)
    ]
    shares = np.stack(figures)
    with np.errstate(divide="ignore", invalid="ignore"):
        hidden = np.maximum(1 / shares, _ABOVE)
    hidden = np.where(np.isnan(shares), np.nan, hidden)
    if not (is_lasting and share < 1):
        hidden = np.where(_known_by_round(exposed, update == 1), 1.0, hidden)
    is_in = histories != 0
    if how == "rounds":
        return np.where(is_in, hidden, np.nan)
    return np.where(is_in, hidden, np.inf).min(axis=1)


def _known_by_round(exposed: np.ndarray, same: np.ndarray) -> np.ndarray:
    """Tell for each row whether sums of the same update expose the client."""
    return np.asarray(np.einsum("rs,bsc->brc", same, exposed) > 0)


def _of_history(
    history: np.ndarray,
    is_kept: np.ndarray,
    covariance: np.ndarray,
    kernel: np.ndarray,
    same: np.ndarray,
    share: float,
    omega: np.ndarray,
    is_lasting: bool,
) -> Float64[np.ndarray, "rounds clients"]:
    """Return h of each client's update of each row."""
    rounds, clients = history.shape
    variances = np.diagonal(covariance)
    divisors = np.ldexp(1.0, -exponents_of(history[None])[0])
    rows = np.asarray(history, np.float64) * divisors[:, None]
    seen = rows @ covariance  # P C
    whole = share * (seen @ rows.T) * kernel
    whole += (1 - share) * ((rows * variances) @ rows.T) * same
    whole += omega * divisors[:, None] * divisors
    both = is_kept[:, None] & is_kept
    whole = np.where(both, whole, np.eye(rounds))
    inverse, scales, error = factor_of(whole)
    figures = np.full((rounds, clients), np.nan)
    if not error <= MOST_ERROR:
        return figures
    inverse = inverse * (scales * is_kept)
    fresh = 0.0 if is_lasting else 1 - share
    variance = share * variances if is_lasting else variances
    # rows of one round estimate the same update, so each round is looked at once
    _, first, owner = np.unique(same, axis=0, return_index=True, return_inverse=True)
    by_round = np.empty((len(first), clients))
    for place, row in enumerate(first):
        c = share * seen * kernel[:, row, None]
        c += fresh * (rows * variances) * same[:, row, None]
        by_round[place] = np.square(inverse @ c).sum(axis=0) / variance
    figures[:] = by_round[owner.reshape(-1)]
    return figures
