"""Among how many clients the update of each round is hidden, where updates drift.

The best linear estimate of client i's update x of round r from the sums y explains the share

    h[i, r] = c^T M^-1 c,    c = D_i R e_r,    M = G o R + Omega / s^2

of its variance (`_covariances` names the symbols; D_i is the diagonal matrix of p_i). With L the
Cholesky factor of M this is |L^-1 c|^2, and the first q entries of L^-1 c are those of the first
q sums alone: what each further sum tells comes for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float64

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.device import at_once
from mrsa_jax.privacy._covariances import (
    covariances,
    decided,
    exponents_of,
    grams_of,
    noise_of,
    participations,
)
from mrsa_jax.privacy._leverage import rounded
from mrsa_jax.privacy.solver import column_codes

_ROUNDING = 2.0**-53
_MOST_ERROR = 5e-7  # of a share, relative to it: six digits
_ABOVE = np.nextafter(1.0, 2.0)


def hidden_updates(
    histories: np.ndarray, kernel: np.ndarray, spread: float, noise: np.ndarray | None, how: str
) -> np.ndarray:
    """Return T: the update of a round is hidden as well as in a single sum of T clients.

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
        # clients of one column are hidden alike, so each column is looked at once
        _, one, owner = np.unique(column_codes(history), return_index=True, return_inverse=True)
        columns, own_found = history[:, one], np.zeros((*own.shape[:-1], len(one)))
        for part in _shares(history, columns, kernel, covariance, kept, how):
            _take(own_found, how, *part)
        own[:] = own_found[..., owner]
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


def _take(
    found: np.ndarray, how: str, clients: np.ndarray, places: np.ndarray, is_own: np.ndarray,
    shares: np.ndarray, least: float,
) -> None:  # fmt: skip
    """Write the values of some clients; nan where a share is too small for floats to know it.

    In the rows `places[clients, own rounds]` they are where `is_own`; shares are
    `[clients, own rounds]`, or after each sum `[clients, sums, own rounds]`.
    """
    if how == "sums":
        sums = np.arange(len(found))[:, None]
        is_past = is_own[:, None, :] & (places[:, None, :] <= sums)
        shares = np.where(is_past, shares, 0.0).max(axis=2)
    elif how == "last":
        shares = np.where(is_own, shares, 0.0).max(axis=1)
    told = np.where((shares > 0) & (shares < least), np.nan, shares)
    if how == "rounds":
        client, place = np.nonzero(is_own)
        found[places[client, place], clients[client]] = told[client, place]
    else:
        found[..., clients] = told.T


def _shares(
    history: np.ndarray, columns: np.ndarray, kernel: np.ndarray, covariance: np.ndarray,
    is_kept: np.ndarray, how: str,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]]:  # fmt: skip
    """Yield what `_take` takes of columns of a history, those of many rounds first."""
    rounds = len(history)
    rows, kept = history[None], is_kept[None]
    exponents = exponents_of(rows)
    (whole,) = covariances(grams_of(rows, exponents), exponents, covariance, kept, kernel)
    scales = 1 / np.sqrt(np.diagonal(whole))
    inverse, error, least = _inverse_root(whole * scales[:, None] * scales)
    lines = np.ascontiguousarray(inverse.T)
    sizes = np.count_nonzero(columns[is_kept], axis=0)
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        most = int(sizes[order[start]]) + 7
        step = at_once("leverage", 8 * 4 * most * (rounds + most))
        clients = order[start : start + step]
        start += step
        ((places,), (weights,)) = participations(columns[None, :, clients], exponents, kept)
        own = kernel[places[:, :, None], places[:, None, :]]
        own *= (weights * scales[places])[:, :, None]
        seen = lines[places].swapaxes(1, 2) @ own  # L^-1 c of each own round
        np.square(seen, out=seen)
        shares = np.cumsum(seen, axis=1) if how == "sums" else seen.sum(axis=1)
        if not error <= _MOST_ERROR:
            shares[:] = np.nan
        yield clients, places, weights != 0, shares, least


def _inverse_root(ratios: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return L^-1, what shares are wrong by relative to them, and the smallest one to be reported.

    For a Cholesky factor and triangular solves (1 - e) M <= M + dM <= (1 + e) M, where e is
    (3 t (t + 1) + 8 t) u over the least eigenvalue q of the sums' correlations, t sums, u = 2^-53;
    rounding of c adds at most 4 u sqrt(t / q). Products by the inverse err alike, which tests show.
    """
    from scipy.linalg import solve_triangular

    rounds = len(ratios)
    smallest = float(np.linalg.eigvalsh(ratios)[0]) - rounds * _ROUNDING
    if smallest <= 0:  # above it the factor exists
        return np.zeros_like(ratios), np.inf, 0.0
    inverse = solve_triangular(np.linalg.cholesky(ratios), np.eye(rounds), lower=True)
    return inverse, *_errors(rounds, smallest, np)


def _errors(rounds: int, smallest: Any, library: Any) -> tuple[Any, Any]:
    """Return e, and the smallest share to be reported, by q or less."""
    error = (3 * rounds * (rounds + 1) + 8 * rounds) * _ROUNDING / smallest
    least = 4 * _ROUNDING * library.sqrt(rounds / smallest) / _MOST_ERROR
    return error, least


# ---- inside a JAX transformation: all rounds of all clients, one round after another


def traced_updates(
    histories: Array, kernel: np.ndarray | Array, spread: float, noise: np.ndarray | None, how: str
) -> Array:
    """Return `hidden_updates` of histories or of a kernel that are traced, R = 1 in no two rows.

    rounds^3 clients products, as which rounds are a client's own is not known.
    """
    is_noisy, covariance = noise_of(noise, histories.shape[1], spread)
    precision = jax.dtypes.canonicalize_dtype(np.float64)
    with jax.enable_x64(True):
        R, omega = on_device(kernel, jnp.float64), on_device(covariance, jnp.float64)
        rows = jnp.asarray(histories, jnp.float64)
        found = jax.vmap(lambda own: _traced_shares(own, R, omega, is_noisy, how))(rows)
        return rounded(found, precision, is_hidden=True)


def _traced_shares(
    P: Float64[Array, "rounds clients"], R: Array, omega: Array, is_noisy: np.ndarray, how: str
) -> Array:
    is_in, rounds = P != 0, len(P)
    is_kept = is_in.any(axis=1) | is_noisy
    whole = jnp.where(is_kept[:, None] & is_kept[None], P @ P.T * R + omega, jnp.eye(rounds))
    scales = lax.rsqrt(jnp.diagonal(whole))
    ratios = whole * scales[:, None] * scales[None]
    smallest = jnp.linalg.eigvalsh(ratios)[0] - rounds * _ROUNDING
    error, least = _errors(rounds, smallest, jnp)
    error = jnp.where(((R == 1) & ~np.eye(rounds, dtype=np.bool_)).any(), jnp.inf, error)
    root = jnp.linalg.cholesky(ratios)
    inverse = lax.linalg.triangular_solve(root, jnp.eye(rounds), left_side=True, lower=True)
    weights = P * scales[:, None]

    def one_round(worst: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        kernel, own, row = step
        seen = (inverse @ (weights * kernel[:, None])) ** 2
        shares = jnp.where(own, seen.sum(axis=0), 0.0)
        if how == "sums":
            is_past = own[None] & (jnp.arange(rounds) >= row)[:, None]
            shares = jnp.where(is_past, jnp.cumsum(seen, axis=0), 0.0)
        shares = jnp.where((shares > 0) & ((shares < least) | ~(error <= _MOST_ERROR)),
                           jnp.nan, shares)  # fmt: skip
        return jnp.maximum(worst, shares), shares

    nothing = jnp.zeros(P.shape if how == "sums" else P.shape[1:])
    worst, each = lax.scan(one_round, nothing, (R, is_in, jnp.arange(rounds)))
    exposed = is_in & (is_in.sum(axis=1, keepdims=True) == 1) & ~is_noisy[:, None]
    if how == "last":
        exposed = exposed.any(axis=0)
    elif how == "sums":
        exposed = lax.associative_scan(jnp.logical_or, exposed)
    hidden = jnp.where(exposed, 1.0, jnp.maximum(1 / (each if how == "rounds" else worst), _ABOVE))
    return jnp.where(is_in, hidden, jnp.nan) if how == "rounds" else hidden
