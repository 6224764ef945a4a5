"""Leverage: the share of each client's update that the learnt sums explain.

The best linear estimate of client i's update x_i from the sums P x, all updates having the same
variance, leaves 1 - h_i of its variance unexplained; h_i is the squared length of unit vector
e_i's projection on the row space V of the participation matrix P (weak privacy T = 1 of
Multi-RoundSecAgg, Remark 1, means h_i = 1).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Float64

from mrsa_jax._checks import check_number
from mrsa_jax._device import at_once, is_traced, map_tiles
from mrsa_jax._errors import require
from mrsa_jax._tracing import varying_like
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._history import as_history

_BYTES_AN_ENTRY = 8
_LEAST_NOISE, _MOST_NOISE = 1e-9, 1e9


def leverage(P: Any, *, noise: Any = 0.0) -> Float[np.ndarray | Array, "... clients"]:
    """Return how much of each client's update the server can explain, from 0 to 1.

    Use it beside weak privacy T, which counts clients but not how well they are hidden: a
    combination of T clients may be all but one client's update. Unlike T it is cheap for any
    size, and it says whom a history leaks.

    With p_i the i-th column of P, h_i = p_i^T (P P^T)^+ p_i is the squared length of the
    projection of e_i on the row space of P. Its sum over clients is the rank, so its mean is
    rank / N for every scheme; h_i <= 1/m for a client in a class of m equal columns, so blocks
    of T cap everybody at 1/T.

    With `noise` sigma > 0 the updates are not the same in every round: client i sends x_i plus
    fresh noise of sigma times its standard deviation, and
    h_i = p_i^T (P P^T + sigma^2 D)^-1 p_i, where D is diagonal with the rows' sums of squares (K
    for a sum of K clients). Then nobody is ever explained completely.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a row for
            each sum that the server learnt, skipped rounds being zero rows. Leading axes are
            separate histories.
        noise: sigma, relative to the standard deviation of an update: 0, or in [1e-9, 1e9].

    Returns:
        float64 `[..., clients]`: without noise exactly 1.0 for the clients that are exposed
        (`first_exposure`) and strictly below 1 for all others, 0 for those who never took part.
        Inside `jit`, `vmap` or `shard_map` an array of JAX's, computed in float64 and rounded to
        float32 unless 64-bit types are on; ranks and exposures are then those of two primes that
        never change.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, P has fewer than two axes or an
            empty one, or `noise` is negative, NaN or out of range.

    Examples:
        >>> leverage([[1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]]).round(6).tolist()
        [0.5, 0.5, 1.0, 0.0]
        >>> leverage([[1, 1]], noise=1.0).tolist()  # 1 / (2 + 2)
        [0.25, 0.25]

    Edge cases: a client's weights and a row's scale do not matter without noise; neither does a
    row's scale with noise. Rows that depend on earlier ones are told apart by exact ranks,
    never by a tolerance. A new row at relative distance delta from the span of the earlier
    ones costs accuracy: about 1e-16 / delta.

    Cost: four products of a row with a basis a round, min(J, N) x N, and the exact ranks.

    Source:
        The linear estimator behind Section 6 of Multi-RoundSecAgg (least squares); leverage is
        this package's, the paper has no graded measure.
    """
    return _leverages(P, noise, last_only=True)


def leverage_trajectory(
    P: Any, *, noise: Any = 0.0
) -> Float[np.ndarray | Array, "... rounds clients"]:
    """Return each client's leverage after every round.

    It never falls: a further sum only adds to what is known.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; leading
            axes are separate histories.
        noise: sigma, as for `leverage`.

    Returns:
        float64 `[..., rounds, clients]`: entry j after rows 0..j; the last one is `leverage(P)`.
        Without noise exactly 1.0 from the round `first_exposure` on. Inside `jit` as `leverage`.

    Raises:
        ConfigurationError: As `leverage`.

    Examples:
        >>> leverage_trajectory([[1, 1, 0], [1, 1, 1]]).round(6).tolist()
        [[0.5, 0.5, 0.0], [0.5, 0.5, 1.0]]

    Cost: that of `leverage`; trials run in chunks, so memory beyond the result is bounded.
    """
    return _leverages(P, noise, last_only=False)


def _leverages(P: Any, noise: Any, *, last_only: bool) -> np.ndarray | Array:
    array = as_history(P)
    sigma = _check_noise(noise)
    rounds, clients = array.shape[-2:]
    kept = (clients,) if last_only else (rounds, clients)
    if is_traced(array):
        traced = jnp.asarray(array).reshape(-1, rounds, clients)
        precision = jax.dtypes.canonicalize_dtype(np.float64)
        shares = _chunk(traced, sigma, last_only, precision)
        return jnp.asarray(shares).reshape(*array.shape[:-2], *kept)
    stacked = np.asarray(array).reshape(-1, rounds, clients)
    found = np.empty((len(stacked), *kept), np.float64)
    step = min(at_once("leverage", _BYTES_AN_ENTRY * rounds * clients), len(stacked))
    for start in range(0, len(stacked), step):
        part = stacked[start : start + step]
        # a shorter last chunk is filled up, so that one program serves all
        whole = np.concatenate([part, np.zeros((step - len(part), rounds, clients), part.dtype)])
        shares = _chunk(whole, sigma, last_only, np.dtype(np.float64))
        found[start : start + len(part)] = np.asarray(shares)[: len(part)]
    return found.reshape(*array.shape[:-2], *kept)


def _check_noise(noise: Any) -> float:
    rule = f"must be 0 or lie in [{_LEAST_NOISE:g}, {_MOST_NOISE:g}]"
    sigma = check_number(noise, "noise", rule, 0.0, _MOST_NOISE, kind="must be a number")
    require(sigma == 0.0 or sigma >= _LEAST_NOISE, "noise", rule, noise)
    return sigma


def _chunk(
    histories: np.ndarray | Array, sigma: float, last_only: bool, precision: np.dtype[Any]
) -> Array:
    _, rounds, clients = histories.shape
    tile = at_once("eliminations", 4 * _BYTES_AN_ENTRY * rounds * clients)
    first = is_new = None
    if not sigma:
        is_new = jnp.diff(rank_trajectory(histories), axis=-1, prepend=jnp.int32(0)) > 0
        first = first_exposure(histories)
    with jax.enable_x64(True):
        rows = _as_floats(histories)
        found = _shares(rows, is_new, np.float64(sigma), last_only, tile)
        found = jnp.minimum(found.astype(precision), np.nextafter(precision.type(1), np.float32(0)))
        return found if first is None else _decide(found, first, last_only)


def _decide(found: Array, first: Array, last_only: bool) -> Array:
    """Set exactly 1 where a client is exposed; everybody else stays below."""
    if last_only:
        return jnp.where(first >= 0, 1.0, found)
    rounds = jnp.arange(found.shape[1], dtype=jnp.int32)[None, :, None]
    first = first[:, None]
    return jnp.where((first >= 0) & (first <= rounds), 1.0, found)


def _as_floats(histories: np.ndarray | Array) -> np.ndarray | Array:
    """Return float64 rows; those beyond a machine word are scaled, which changes nothing."""
    if isinstance(histories, jax.Array) or histories.dtype != object:
        return histories.astype(np.float64)
    flat = histories.reshape(-1, histories.shape[-1])
    rows = []
    for row in flat:
        width = max(int(value).bit_length() for value in row)
        scale = 1 << max(0, width - 60)
        rows.append([int(value) / scale for value in row])
    return np.asarray(rows, np.float64).reshape(histories.shape)


@jax.jit(static_argnames=("last_only", "tile"))
def _shares(
    rows: Float64[Array, "batch rounds clients"],
    is_new: Bool[Array, "batch rounds"] | None,
    sigma: Float64[Array, ""],
    last_only: bool,
    tile: int,
) -> Float64[Array, "batch *kept clients"]:
    """Return the leverages; without `is_new`, of updates with noise."""

    def one(history: tuple[Array, Array | None]) -> Array:
        own, is_new = history
        if is_new is None:
            return _noisy_history(own, sigma, last_only)
        return _plain_history(own, is_new, last_only)

    return map_tiles(one, (rows, is_new), tile)


def _plain_history(rows: Array, is_new: Array, last_only: bool) -> Array:
    """Grow an orthonormal basis of the row space by Gram and Schmidt, each row twice.

    h is the sum of the basis vectors' squares.
    """
    rounds, clients = rows.shape
    # One row more than the rank can reach: rounds that bring nothing new write there.
    basis = jnp.zeros((min(rounds, clients) + 1, clients), jnp.float64)

    def one_round(carry: tuple[Array, Array, Array], step: tuple[Array, Array]) -> Any:
        basis, size, found = carry
        row, new = step
        rest = row - (basis @ row) @ basis
        rest = rest - (basis @ rest) @ basis
        length = jnp.sqrt(jnp.sum(rest * rest))
        used = new & (length > jnp.float64(0))
        unit = jnp.where(used, rest / jnp.where(used, length, jnp.float64(1)), jnp.float64(0))
        basis = lax.dynamic_update_slice(basis, unit[None], (size, jnp.int32(0)))
        found = found + unit * unit
        return (basis, size + used.astype(jnp.int32), found), None if last_only else found

    start = varying_like((basis, jnp.int32(0), jnp.zeros(clients, jnp.float64)), rows, is_new)
    (_, _, last), every = lax.scan(one_round, start, (rows, is_new))
    return last if last_only else every


def _noisy_history(rows: Array, sigma: Array, last_only: bool) -> Array:
    """Update R = (I + P^T (sigma^2 D)^-1 P)^-1, of which h is 1 - the diagonal, row by row.

    R is I less u u^T for a vector u of each round: it is kept as these where they are fewer than
    the clients.
    """
    rounds, clients = rows.shape
    is_wide = rounds < clients
    zero = jnp.float64(0)

    def one_round(carry: tuple[Array, Array], step: tuple[Array, Array]) -> Any:
        (kept, found), (index, row) = carry, step
        squares = jnp.sum(row * row)
        rest = row - (kept @ row) @ kept if is_wide else kept @ row
        # R's eigenvalues lie in [0, 1], so x^T R x >= |R x|^2, which rounding must not break.
        explained = jnp.maximum(jnp.sum(row * rest), jnp.sum(rest * rest))
        total = explained + sigma * sigma * squares
        unit = jnp.where(squares > zero, rest / jnp.sqrt(jnp.maximum(total, squares * 1e-30)), zero)
        kept = kept.at[index].set(unit) if is_wide else kept - unit[:, None] * unit[None, :]
        found = jnp.minimum(found + unit * unit, jnp.float64(math.nextafter(1.0, 0.0)))
        return (kept, found), None if last_only else found

    first = jnp.zeros(rows.shape, jnp.float64) if is_wide else jnp.eye(clients, dtype=jnp.float64)
    start = varying_like((first, jnp.zeros(clients, jnp.float64)), rows)
    steps = (jnp.arange(rounds, dtype=jnp.int32), rows)
    (_, last), every = lax.scan(one_round, start, steps)
    return last if last_only else every
