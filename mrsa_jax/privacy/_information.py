"""Bits about a client's whole history of updates, where updates drift.

As updates drift, every further round tells something new, so total bits grow with the
number of participations whatever T is (each single update stays capped: `hidden_among`
with a memory); So et al. do not show this (HIDDEN, our own result). The measure is
mutual information, for Gaussian updates: the least that sums can leak, and the most,
for given covariances.

Symbols: P learnt sums, p_i its column of client i, G = P P^T, D_i = diag(p_i), R the
kernel (correlation of one client's updates over the rounds), Omega the noise's
covariance, s the spread, o the entrywise product.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.factories import nan_unless
from mrsa_jax._core.noise import check_noise, check_spread
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_jax.privacy._coalitions import check_coalition, without
from mrsa_jax.privacy._hidden import among, noise_root, without_members
from mrsa_jax.privacy._leverage import Request
from mrsa_jax.privacy._updates import (
    as_floats,
    covariances,
    decided,
    exponents_of,
    grams_of,
    is_nearly_semidefinite,
    kernel_of,
    noise_of,
    participations,
    traced_kernel,
)
from mrsa_watch._base.errors import require

_LEAST_RATIO = 1e-13
_MANY_BITS = 8.0  # from here on differences from 1 lose digits: these are computed anew


def information(
    P: Any,
    memory: Any = 1.0,
    spread: Any = 1.0,
    noise: Any = 0.0,
    *,
    coalition: Any = (),
) -> Any:
    """Return the bits per coordinate that sums reveal of each client's whole history.

    Use it together with `hidden_among`, which is about one update. If updates drift,
    total bits grow with every round in which a client takes part, but blocks of T keep
    each update among T.

    Client i's updates are x_i in R^J with covariance s^2 R, independent of the others'.
    The sums y = sum_i D_i x_i + noise have covariance M = s^2 G o R + Omega, as D_i R
    D_i = (p_i p_i^T) o R, and M_i = s^2 (G - p_i p_i^T) o R + Omega once x_i is known.
    So

        I_i = I(y; x_i) = 1/2 log2(det M / det M_i) bits per coordinate.

    Closed forms: R of ones 1/2 log2(T/(T - 1)) with T `hidden_among`; R = 1 without
    noise the sum over i's rounds of 1/2 log2(k/(k - 1)), k clients in the round. Bits
    never fall by a further round. Updates that are not Gaussian, of the same
    covariance: no guarantee.

    **Infinite** without noise, decided by exact integers: M_i is singular iff some v !=
    0 has v^T D_j R D_j v = 0 for all j != i. Where R is positive definite that is D_j v
    = 0, so v lives on rounds in which i is alone: one such round, and only that,
    exposes it permanently. Rounds between which R is exactly 1 hold the same updates;
    there, i is exposed by them together (`first_exposure`), and with R of ones by the
    whole history.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a
            row for each sum that the server learnt, zero rows counting as time that
            passes. Leading axes are separate histories.
        memory: rho of R = rho^|r - r'| over rows r, a first-order process: 1, or in
            [0, 0.999999]; or R itself, `[rounds, rounds]`, symmetric and positive
            semidefinite with a diagonal of ones. For several sums per round give R,
            with 1 between these.
        spread: s, the standard deviation of an update about what is known of it.
        noise: Variance of the sums' noise, one for all or `[rounds]`, or their
            covariance `[rounds, rounds]`.
        coalition: Clients that reveal their updates to the server; their columns are
            excluded.

    Returns:
        float64 `[..., clients]`; 0 for a client in no sum, nan for members of the
        coalition. Where memory, spread or noise are traced, a traced array of JAX's
        float type, which can be differentiated. There P must be known and noise
        positive: a program does not decide which bits are infinite, and a traced noise
        of 0 gives numbers without a meaning.

    Raises:
        ConfigurationError: If an argument is out of range or of the wrong size, or R is
            singular (apart from its ones) or nearly so, by an eigenvalue below 1e-7,
            for sums without noise; if noise is so small, or of so low a rank, that a
            sum is known from the others.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.privacy.information([[1, 1, 1, 1]]).round(4).tolist()  # 1/2 log2(4/3)
        [0.2075, 0.2075, 0.2075, 0.2075]
        >>> P = [[1, 1, 0], [1, 1, 0], [0, 1, 1]]
        >>> mj.privacy.information(P, memory=0.0).round(4).tolist()
        [1.0, 1.5, 0.5]
        >>> mj.privacy.information([[1, 1, 0], [1, 0, 0]], memory=0.9).round(4).tolist()
        [inf, 1.3234, 0.0]

    Edge cases: rows that others of the same time add up to are left out, by exact
    ranks. A covariance of noise of lower rank may leave infinite bits that floats show
    as some twenty.

    Accuracy: about 1e-16 times the condition of M with its rows scaled to ones on the
    diagonal, which is at most 2 J / (1 - rho), or sums' variance over their noise's.

    Cost: one inverse of M for all clients. With A the rounds of client i and V =
    (M^-1)_AA, det M_i / det M = det(1 - s^2 (p_i p_i^T o R)_AA V) (Sylvester): J^3 + N
    n^3 operations, n the most participations of a client, in NumPy. A client of more
    than 8 bits takes another J^3. Memory: J x J, n x N and some tens of MB.

    Source:
        R = 1 without noise: Elkordy et al. 2023 (PETS). The rest is this package's.
    """
    if is_traced(memory, spread, noise):
        return _traced(host_array(P, "P"), memory, spread, noise, coalition)
    return _of_values(P, memory, spread, noise, coalition)


@needs_values
def _of_values(
    P: Any, memory: Any, spread: Any, noise: Any, coalition: Any
) -> Float64[np.ndarray, "... clients"]:
    """Return `information` of what is known."""
    rows = np.asarray(without(P, coalition))
    rounds, clients = rows.shape[-2:]
    members = list(check_coalition(coalition, clients))
    own_noise, own_spread = check_noise(noise, rounds), check_spread(spread)
    kernel = kernel_of(memory, rounds)
    if (kernel == 1).all():
        excess = np.asarray(
            among(rows, noise_root(noise, spread, rows), Request(of_rest=True)),
            np.float64,
        )
        with np.errstate(divide="ignore"):
            return (
                0.5 * np.log1p(1.0 / without_members(excess, coalition)) / math.log(2.0)
            )
    stacked = rows.reshape(-1, rounds, clients)
    bits = _bits(stacked, kernel, own_spread, own_noise).reshape(
        *rows.shape[:-2], clients
    )
    bits[..., members] = np.nan
    return bits


def _traced(
    P: np.ndarray, memory: Any, spread: Any, noise: Any, coalition: Any
) -> Array:
    """Return the bits in a program, by the determinants of each client in turn."""
    with jax.ensure_compile_time_eval():
        rows = np.asarray(without(P, coalition))
    rounds, clients = rows.shape[-2:]
    is_zero = not is_traced(noise) and not np.all(np.asarray(noise))
    rule = "must be positive where `memory`, `spread` or `noise` are traced"
    require(not is_zero, "noise", rule, noise)
    if not is_traced(noise):
        check_noise(noise, rounds)
    if not is_traced(spread):
        spread = check_spread(spread)
    spread, noise = (jnp.asarray(value, float) for value in (spread, noise))
    kernel = traced_kernel(memory, rounds, 1.0, spread.dtype)
    covariance = noise if noise.ndim == 2 else jnp.diag(jnp.broadcast_to(noise, rounds))
    legal = (spread > 0) & jnp.isfinite(spread) & _is_covariance(covariance)

    def of_history(value: Array) -> Array:
        inverse = jnp.linalg.inv(value @ value.T * kernel + covariance / spread**2)

        def of_client(column: Array) -> Array:
            known = jnp.outer(column, column) * kernel @ inverse
            return -jnp.linalg.slogdet(jnp.eye(rounds) - known)[1] / math.log(4.0)

        return jax.lax.map(of_client, value.T)

    stacked = on_device(rows.reshape(-1, rounds, clients), spread.dtype)
    bits = jax.lax.map(of_history, stacked).reshape(*rows.shape[:-2], clients)
    bits = nan_unless(legal & jnp.isfinite(kernel).all(), bits)
    return bits.at[..., list(check_coalition(coalition, clients))].set(jnp.nan)


def _is_covariance(noise: Array) -> Array:
    """Return whether a traced matrix is one, up to what floats of 32 bits round."""
    variances = jnp.diagonal(noise)
    scale = jnp.sqrt(jnp.maximum(variances, 0.0))
    over = jnp.where(scale > 0, scale, 1.0)
    ratios = noise / over[:, None] / over[None]
    return is_nearly_semidefinite(ratios) & (variances >= 0).all()


def _bits(
    histories: np.ndarray, kernel: np.ndarray, spread: float, noise: np.ndarray | None
) -> Float64[np.ndarray, "batch clients"]:
    """Return the bits of histories, chunk by chunk."""
    count, rounds, clients = histories.shape
    is_noisy, covariance = noise_of(noise, rounds, spread)
    is_kept, exposed = decided(histories, kernel, is_noisy)
    bits = np.empty((count, clients))
    step = at_once("leverage", 8 * 6 * rounds**2)
    for start in range(0, count, step):
        part = slice(start, start + step)
        bits[part] = _of_chunk(histories[part], covariance, kernel, is_kept[part])
    return np.where(exposed.any(axis=1), np.inf, np.maximum(bits, 0.0))


def _of_chunk(
    histories: np.ndarray,
    covariance: np.ndarray,
    kernel: np.ndarray,
    is_kept: np.ndarray,
) -> np.ndarray:
    """Return the bits of some histories, those of many bits the longer way."""
    exponents = exponents_of(histories)
    grams = grams_of(histories, exponents)
    whole = covariances(grams, exponents, covariance, is_kept, kernel)
    bits = _by_own_rounds(whole, kernel, *participations(histories, exponents, is_kept))
    trials, many = np.nonzero(~(bits < _MANY_BITS))
    step = at_once("leverage", 8 * 6 * kernel.size)
    for start in range(0, len(many), step):
        some, clients = trials[start : start + step], many[start : start + step]
        others, scales = _left(histories[some], exponents[some], grams[some], clients)
        rest = covariances(others, scales, covariance, is_kept[some], kernel)
        shift = ((exponents[some] - scales) * is_kept[some]).sum(axis=1)
        bits[some, clients] = _log2_roots(whole)[some] - _log2_roots(rest) + shift
    return bits


def _left(
    histories: np.ndarray, exponents: np.ndarray, grams: np.ndarray, clients: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return G - p_i p_i^T of a client of each history, exactly, and its scales."""
    each = np.arange(len(clients))
    squares = np.diagonal(grams, axis1=1, axis2=2)
    if (
        np.log2(squares, where=squares > 0, out=0 * squares) + 2 * exponents < 53
    ).all():
        columns = as_floats(histories[each, :, clients], exponents)  # all of G is exact
        return grams - columns[:, :, None] * columns[:, None, :], exponents
    others = histories.copy()
    others[each, :, clients] = 0
    exponents = exponents_of(others)
    return grams_of(others, exponents), exponents


def _log2_roots(matrices: np.ndarray) -> np.ndarray:
    """Return log2 of the root of each determinant, whatever the scales of the rows."""
    scales = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    with np.errstate(divide="ignore", invalid="ignore"):
        _, logs = np.linalg.slogdet(matrices / scales[:, :, None] / scales[:, None, :])
        return np.asarray(logs / math.log(4.0) + np.log2(scales).sum(axis=1))


def _by_own_rounds(
    whole: np.ndarray, kernel: np.ndarray, places: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return 1/2 log2(det M / det M_i) by the rounds that clients are in."""
    scales = 1 / np.sqrt(np.diagonal(whole, axis1=1, axis2=2))
    ratios = whole * scales[:, :, None] * scales[:, None, :]
    least = float(np.linalg.eigvalsh(ratios).min())
    rule = (
        "must leave no sum known from the others: least eigenvalue of the sums' "
        "correlations"
    )
    require(least > _LEAST_RATIO, "noise", rule, least)
    inverse = np.linalg.inv(ratios)
    count, clients, most = places.shape
    bits = np.empty((count, clients))
    step = at_once("leverage", 8 * 6 * most**2)
    for trial, start in itertools.product(range(count), range(0, clients, step)):
        at = places[trial, start : start + step]
        lines = weights[trial, start : start + step] * scales[trial][at]
        pairs = at[:, :, None], at[:, None, :]
        change = kernel[pairs] * lines[:, :, None] * lines[:, None, :]
        signs, logs = np.linalg.slogdet(np.eye(most) - change @ inverse[trial][pairs])
        bits[trial, start : start + step] = np.where(
            signs > 0, logs / -math.log(4.0), np.nan
        )
    return bits
