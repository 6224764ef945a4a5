"""Bits about a client's whole history of updates, where updates change from round to round.

T caps what is learnt of the unchanging part of a client's updates. As they drift, every further
round tells something new, so total bits grow with the number of participations whatever T is;
So et al. do not show this (HIDDEN, our own result). The measure is mutual information, for
Gaussian updates: the least that sums can leak, and the most, for given covariances.

Symbols: P learnt sums, p_i its column of client i, G = P P^T, D_i = diag(p_i), R the kernel
(correlation of one client's updates over the rounds), Omega the noise's covariance, s the spread,
o the entrywise product.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.arrays import host_array, needs_values
from mrsa_jax._core.device import at_once
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._coalitions import check_coalition, without
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._hidden import among, noise_root, without_members
from mrsa_jax.privacy._noise import check_noise, check_spread
from mrsa_watch._base.errors import check_number, require

_MOST_MEMORY = 1 - 1e-6
_LEAST_EIGENVALUE = 1e-7
_LEAST_RATIO = 1e-13
_MANY_BITS = 8.0  # from here on differences from 1 lose digits: these are computed anew


@needs_values
def information(
    P: Any, memory: Any = 1.0, spread: Any = 1.0, noise: Any = 0.0, *, coalition: Any = ()
) -> Float64[np.ndarray, "... clients"]:
    """Return the bits a coordinate that learnt sums tell of each client's whole history.

    Use it beside `hidden_among`, which is of updates that stay the same. Where they drift, blocks
    of T cap what is learnt of their unchanging part alone, and bits grow with every round in which
    a client takes part.

    Client i's updates are x_i in R^J with covariance s^2 R, independent of the others'. The sums
    y = sum_i D_i x_i + noise have covariance M = s^2 G o R + Omega, as D_i R D_i =
    (p_i p_i^T) o R, and M_i = s^2 (G - p_i p_i^T) o R + Omega once x_i is known. So

        I_i = I(y; x_i) = 1/2 log2(det M / det M_i) bits a coordinate.

    Closed forms: R of ones 1/2 log2(T/(T - 1)) with T `hidden_among`; R = 1 without noise the sum
    over i's rounds of 1/2 log2(k/(k - 1)), k clients in the round. Bits never fall by a further
    round. Updates that are not Gaussian, of the same covariance: no guarantee.

    **Infinite** without noise, decided by exact integers: M_i is singular iff some v != 0 has
    v^T D_j R D_j v = 0 for all j != i. Where R is positive definite that is D_j v = 0, so v lives
    on rounds in which i is alone: one such round, and only that, gives him away for ever. Rounds
    between which R is exactly 1 hold the same updates; there, i is exposed by them together
    (`first_exposure`), and with R of ones by the whole history.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a row for
            each sum that the server learnt, zero rows counting as time that passes. Leading
            axes are separate histories.
        memory: rho of R = rho^|r - r'| over rows r, a first-order process: 1, or in
            [0, 0.999999]; or R itself, `[rounds, rounds]`, symmetric and positive semidefinite
            with a diagonal of ones. For several sums a round give R, with 1 between these.
        spread: s, the standard deviation of an update about what is known of it.
        noise: Variance of the sums' noise, one for all or `[rounds]`, or their covariance
            `[rounds, rounds]`.
        coalition: Clients who tell the server their updates; their columns are left out.

    Returns:
        float64 `[..., clients]`; 0 for a client in no sum, nan for members of the coalition.

    Raises:
        ConfigurationError: If an argument is out of range or of the wrong size, or R is singular
            (but for its ones) or nearly so, by an eigenvalue below 1e-7, for sums without noise;
            if noise is so small, or of so low a rank, that a sum is known from the others.

    Examples:
        >>> information([[1, 1, 1, 1]]).round(4).tolist()  # 1/2 log2(4/3)
        [0.2075, 0.2075, 0.2075, 0.2075]
        >>> information([[1, 1, 0], [1, 1, 0], [0, 1, 1]], memory=0.0).round(4).tolist()
        [1.0, 1.5, 0.5]
        >>> information([[1, 1, 0], [1, 0, 0]], memory=0.9).round(4).tolist()
        [inf, 1.3234, 0.0]

    Edge cases: rows that others of the same time add up to are left out, by exact ranks. A
    covariance of noise of lower rank may leave infinite bits that floats show as some twenty.

    Accuracy: about 1e-16 times the condition of M with its rows scaled to ones on the diagonal,
    which is at most 2 J / (1 - rho), or sums' variance over their noise's.

    Cost: one inverse of M for all clients. With A the rounds of client i and V = (M^-1)_AA, det M_i
    / det M = det(1 - s^2 (p_i p_i^T o R)_AA V) (Sylvester): J^3 + N n^3 operations, n the most
    participations of a client, in NumPy. A client of more than 8 bits takes J^3 of its own.
    Memory: J x J, n x N and some tens of MB.

    Source:
        R = 1 without noise: Elkordy et al. 2023 (PETS). The rest is this package's.
    """
    rows = np.asarray(without(P, coalition))
    rounds, clients = rows.shape[-2:]
    members = list(check_coalition(coalition, clients))
    own_noise, own_spread = check_noise(noise, rounds), check_spread(spread)
    kernel = _kernel(memory, rounds)
    if (kernel == 1).all():
        excess = np.asarray(among(rows, noise_root(noise, spread, rows), of_rest=True), np.float64)
        with np.errstate(divide="ignore"):
            return 0.5 * np.log1p(1.0 / without_members(excess, coalition)) / math.log(2.0)
    stacked = rows.reshape(-1, rounds, clients)
    found = _bits(stacked, kernel, own_spread, own_noise).reshape(*rows.shape[:-2], clients)
    found[..., members] = np.nan
    return found


def _kernel(memory: Any, rounds: int) -> Float64[np.ndarray, "rounds rounds"]:
    """Return R as a matrix, or raise."""
    given = host_array(memory, "memory")
    if given.ndim == 0:
        rule = f"must be 1, or lie in [0, {_MOST_MEMORY}], or be a kernel [rounds, rounds]"
        rho = check_number(memory, "memory", rule, 0.0, 1.0)
        require(rho == 1.0 or rho <= _MOST_MEMORY, "memory", rule, memory)
        lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
        return np.float64(rho) ** lags
    rule = f"must be a number, or a kernel of shape [{rounds}, {rounds}]"
    good = given.shape == (rounds, rounds) and given.dtype.kind in "fiu"
    require(good, "memory", rule, f"{given.dtype}{list(given.shape)}")
    kernel = given.astype(np.float64)
    is_one = np.isfinite(kernel).all() and (np.diagonal(kernel) == 1).all()
    require(bool(is_one), "memory", "must be finite with a diagonal of ones")
    require(np.array_equal(kernel, kernel.T), "memory", "must be a symmetric kernel")
    least = float(np.linalg.eigvalsh(kernel)[0])
    require(least >= -1e-12 * rounds, "memory", "must be positive semidefinite; least eigenvalue",
            least)  # fmt: skip
    return kernel


def _bits(
    histories: np.ndarray, kernel: np.ndarray, spread: float, noise: np.ndarray | None
) -> Float64[np.ndarray, "batch clients"]:
    """Return the bits of histories, chunk by chunk."""
    count, rounds, clients = histories.shape
    noisy, covariance = np.zeros(rounds), np.zeros((rounds, rounds))
    if noise is not None:
        noisy = noise if noise.ndim == 1 else np.abs(noise).sum(axis=1)
        covariance = (np.diag(noise) if noise.ndim == 1 else noise @ noise.T) / spread**2
    is_kept, is_infinite = _decided(histories, kernel, noisy != 0)
    found = np.empty((count, clients))
    step = at_once("leverage", 8 * 6 * rounds**2)
    for start in range(0, count, step):
        part = slice(start, start + step)
        found[part] = _of_chunk(histories[part], covariance, kernel, is_kept[part])
    return np.where(is_infinite, np.inf, np.maximum(found, 0.0))


def _decided(
    histories: np.ndarray, kernel: np.ndarray, is_noisy: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows count, and who is exposed by rows of one time without noise."""
    count, rounds, clients = histories.shape
    exact = histories * ~is_noisy[:, None]
    _, first, time = np.unique(kernel == 1, axis=0, return_index=True, return_inverse=True)
    if not is_noisy.all():
        least = float(np.linalg.eigvalsh(kernel[np.ix_(first, first)])[0])
        rule = "must be positive definite where it is not 1, for sums without noise: eigenvalue"
        require(least >= _LEAST_EIGENVALUE, "memory", rule, least)
    time = time.reshape(-1)
    sizes = np.bincount(time)
    if sizes.max() == 1:
        is_in = np.asarray(exact != 0, np.bool_)
        is_alone = is_in.sum(axis=-1, keepdims=True) == 1
        return is_noisy | is_in.any(axis=-1), np.asarray((is_in & is_alone).any(axis=1))
    order = np.argsort(time, kind="stable")
    place = np.arange(rounds) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    groups = np.zeros((count, len(sizes), sizes.max(), clients), exact.dtype)
    groups[:, time[order], place] = exact[:, order]
    flat = groups.reshape(-1, *groups.shape[2:])
    is_new = np.diff(np.asarray(rank_trajectory(flat)), axis=-1, prepend=0) > 0
    exposed = np.asarray(first_exposure(flat)).reshape(count, len(sizes), clients) >= 0
    is_kept = np.empty((count, rounds), np.bool_)
    is_kept[:, order] = is_new.reshape(count, len(sizes), -1)[:, time[order], place]
    return is_noisy | is_kept, np.asarray(exposed.any(axis=1))


def _of_chunk(
    histories: np.ndarray, covariance: np.ndarray, kernel: np.ndarray, is_kept: np.ndarray
) -> np.ndarray:
    """Return the bits of some histories, those of many bits the longer way."""
    exponents = _exponents(histories)
    grams = _grams(histories, exponents)
    whole = _covariances(grams, exponents, covariance, is_kept, kernel)
    found = _by_own_rounds(whole, kernel, *_participations(histories, exponents, is_kept))
    trials, many = np.nonzero(~(found < _MANY_BITS))
    step = at_once("leverage", 8 * 6 * kernel.size)
    for start in range(0, len(many), step):
        own, clients = trials[start : start + step], many[start : start + step]
        left, scales = _left(histories[own], exponents[own], grams[own], clients)
        rest = _covariances(left, scales, covariance, is_kept[own], kernel)
        shift = ((exponents[own] - scales) * is_kept[own]).sum(axis=1)
        found[own, clients] = _log2_roots(whole)[own] - _log2_roots(rest) + shift
    return found


def _left(
    histories: np.ndarray, exponents: np.ndarray, grams: np.ndarray, clients: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return G - p_i p_i^T of a client of each history to the last digit, and its scales."""
    each = np.arange(len(clients))
    squares = np.diagonal(grams, axis1=1, axis2=2)
    if (np.log2(squares, where=squares > 0, out=0 * squares) + 2 * exponents < 53).all():
        columns = _floats(histories[each, :, clients], exponents)  # all of G is exact
        return grams - columns[:, :, None] * columns[:, None, :], exponents
    others = histories.copy()
    others[each, :, clients] = 0
    exponents = _exponents(others)
    return _grams(others, exponents), exponents


def _exponents(histories: np.ndarray) -> np.ndarray:
    """Return which power of two each row is divided by: nothing is rounded, nothing overflows."""
    if histories.dtype == object:
        bits = np.frompyfunc(lambda value: int(value).bit_length(), 1, 1)(histories)
        return bits.max(axis=-1).astype(np.int64)
    ends = histories.max(axis=-1), histories.min(axis=-1)
    largest = np.maximum(ends[0].astype(np.float64), -ends[1].astype(np.float64))
    return np.frexp(largest)[1].astype(np.int64)


def _floats(entries: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return entries as floats, each divided by its power of two."""
    if entries.dtype != object:
        return np.ldexp(entries.astype(np.float64), -exponents)
    divided = np.frompyfunc(lambda value, bits: int(value) / (1 << bits), 2, 1)
    return divided(entries, exponents).astype(np.float64)


def _grams(histories: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return G of each history, a part of the clients after another."""
    count, rounds, clients = histories.shape
    grams = np.zeros((count, rounds, rounds))
    step = at_once("columns", 8 * count * rounds)
    for start in range(0, clients, step):
        part = _floats(histories[..., start : start + step], exponents[..., None])
        grams += part @ part.swapaxes(1, 2)
    return grams


def _participations(
    histories: np.ndarray, exponents: np.ndarray, is_kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each client in which rows it is, and with which weight; 0 where it is in fewer."""
    count, rounds, clients = histories.shape
    is_in = (histories != 0) & is_kept[..., None]
    trial, client, row = np.nonzero(is_in.swapaxes(1, 2))
    owner = trial * clients + client
    sizes = np.bincount(owner, minlength=count * clients)
    most = min(rounds, -(-max(1, int(sizes.max())) // 8) * 8)  # few sizes, as each is compiled
    at = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.zeros((count * clients, most), np.int32)
    weights = np.zeros((count * clients, most))
    places[owner, at] = row
    weights[owner, at] = _floats(histories[trial, row, client], exponents[trial, row])
    return places.reshape(count, clients, -1), weights.reshape(count, clients, -1)


def _covariances(
    grams: np.ndarray, exponents: np.ndarray, covariance: np.ndarray, is_kept: np.ndarray,
    kernel: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Return the covariances of the sums over s^2; of rows that do not count, the identity."""
    scales = np.ldexp(1.0, -exponents)
    noise = covariance * scales[:, :, None] * scales[:, None, :]
    both = is_kept[:, :, None] & is_kept[:, None, :]
    return np.where(both, grams * kernel + noise, np.eye(len(kernel)))


def _log2_roots(matrices: np.ndarray) -> np.ndarray:
    """Return log2 of the root of each determinant, whatever the scales of the rows."""
    scales = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    with np.errstate(divide="ignore", invalid="ignore"):
        _, logs = np.linalg.slogdet(matrices / scales[:, :, None] / scales[:, None, :])
        return np.asarray(logs / math.log(4.0) + np.log2(scales).sum(axis=1))


def _by_own_rounds(
    whole: np.ndarray, kernel: np.ndarray, places: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return 1/2 log2(det M / det M_i) from the inverse of M, by the rounds that clients are in."""
    scales = 1 / np.sqrt(np.diagonal(whole, axis1=1, axis2=2))
    ratios = whole * scales[:, :, None] * scales[:, None, :]
    least = float(np.linalg.eigvalsh(ratios).min())
    rule = "must leave no sum known from the others: least eigenvalue of the sums' correlations"
    require(least > _LEAST_RATIO, "noise", rule, least)
    inverse = np.linalg.inv(ratios)
    count, clients, most = places.shape
    found = np.empty((count, clients))
    step = at_once("leverage", 8 * 6 * most**2)
    for trial, start in itertools.product(range(count), range(0, clients, step)):
        at = places[trial, start : start + step]
        own = weights[trial, start : start + step] * scales[trial][at]
        pairs = at[:, :, None], at[:, None, :]
        change = kernel[pairs] * own[:, :, None] * own[:, None, :]
        signs, logs = np.linalg.slogdet(np.eye(most) - change @ inverse[trial][pairs])
        found[trial, start : start + step] = np.where(signs > 0, logs / -math.log(4.0), np.nan)
    return found
