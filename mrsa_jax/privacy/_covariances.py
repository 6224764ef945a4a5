"""Covariances of learnt sums where updates drift: which rows count, and who is in which.

Symbols: P learnt sums, p_i its column of client i, G = P P^T, R the kernel (correlation of one
client's updates over the rounds), Omega the noise's covariance, s the spread, o the entrywise
product. The sums have the covariance M = G o R + Omega / s^2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.device import at_once
from mrsa_jax._core.statistics import memory_kernel
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_watch._base.errors import POSITIVE, check_number, require

# ---- Noise of learnt sums, and the spread of the others' updates, as privacy's figures take them.
#
# Noise is given as a variance (of every sum, or of each), or as the covariance of all sums, which
# mechanisms with correlated noise have: sigma^2 (C^T C)^-1 of a matrix mechanism that releases
# C y + z.

_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)


def check_noise(
    noise: Any, rounds: int, argument: str = "noise"
) -> Float64[np.ndarray, "*_"] | None:
    """Return the noise of sums as one of three forms, or raise.

    Args:
        noise: The variance of every sum's noise, `[rounds]` variances, or a covariance
            `[rounds, rounds]`.
        rounds: Rows of the history.
        argument: Name used in messages.

    Returns:
        None where there is no noise; variances float64 `[rounds]` where it is independent (a
        diagonal covariance too); else a root F `[rounds, rounds]` with F F^T = covariance. Rows
        of F are exactly 0 for rounds without noise.

    Raises:
        ConfigurationError: If it is no number, vector or matrix of these sizes, is not finite, a
            variance is negative, or a covariance is not symmetric or not positive semidefinite
            beyond rounding.

    Examples:
        >>> check_noise(0, 3) is None, check_noise([[0.0, 0.0], [0.0, 2.0]], 2).tolist()
        (True, [0.0, 2.0])
        >>> root = check_noise([[1.0, 1.0], [1.0, 1.0]], 2)  # of rank 1
        >>> (root @ root.T).round(12).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        >>> check_noise(-1.0, 3)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `noise` must hold no negative variance; got -1.0
    """
    array = host_array(noise, argument)
    kind = "must be a variance, one for each round, or a covariance [rounds, rounds], of numbers"
    require(array.dtype.kind in "fiu", argument, kind, noise)
    shapes = ((), (rounds,), (rounds, rounds))
    rule = f"must be one number, or of shape [{rounds}] or [{rounds}, {rounds}], by the rounds"
    require(array.shape in shapes, argument, rule, f"shape {array.shape}")
    values = array.astype(np.float64)
    wrong = values[~np.isfinite(values)]
    require(wrong.size == 0, argument, "must be finite", *wrong[:1].tolist())
    variances = np.diagonal(values) if values.ndim == 2 else np.broadcast_to(values, rounds)
    least = float(variances.min())
    require(least >= 0, argument, "must hold no negative variance", least)
    if not variances.any() and not values.any():
        return None
    if values.ndim < 2 or np.array_equal(values, np.diag(variances)):
        return variances.copy()
    return _root(values, variances, argument)


def _root(covariance: np.ndarray, variances: np.ndarray, argument: str) -> np.ndarray:
    """Return F of the covariance, from the eigenvectors of the correlations.

    Correlations, so that rounds of little noise next to others of much keep their digits. What
    rounding cannot tell from a combination of rounds without noise is taken for one.
    """
    scale = np.sqrt(variances)
    is_noisy = scale > 0
    rule = "must be a symmetric covariance"
    over = np.where(is_noisy, scale, 1.0)
    ratios = covariance / over[:, None] / over[None, :]
    gap = float(np.abs(ratios - ratios.T).max())
    require(gap <= _ROUNDING * 64, argument, rule, f"entries that differ by {gap:.3g}")
    rule = "must be a positive semidefinite covariance"
    require(not ratios[~is_noisy].any(), argument, rule, "covariances of a round of variance 0")
    values, vectors = np.linalg.eigh((ratios + ratios.T) / 2)
    least = float(values.min())
    rounding = _ROUNDING * len(values)
    require(least >= -rounding, argument, rule, f"an eigenvalue of its correlations of {least:.3g}")
    return scale[:, None] * vectors * np.sqrt(np.where(values > rounding, values, 0.0))


def check_spread(spread: Any) -> float:
    """Return the standard deviation of the others' updates, or raise.

    Examples:
        >>> check_spread(0)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `spread` must be positive and finite; got 0
    """
    return check_number(spread, "spread", "must be positive and finite", POSITIVE)


MOST_MEMORY = 1 - 1e-6
_LEAST_EIGENVALUE = 1e-7


def kernel_of(memory: Any, rounds: int, share: Any = 1.0) -> Float64[np.ndarray, "rounds rounds"]:
    """Return R as a matrix, or raise; all but a share of the variance is fresh in each round."""
    kernel = _lasting(memory, rounds)
    lasting = check_number(share, "share", "must be a number from 0 to 1", 0.0, 1.0)
    is_one_round = np.eye(rounds) if np.ndim(memory) == 0 else kernel == 1
    return np.where(is_one_round, 1.0, lasting * kernel)


def _lasting(memory: Any, rounds: int) -> Float64[np.ndarray, "rounds rounds"]:
    """Return the kernel of what lasts, or raise."""
    given = host_array(memory, "memory")
    if given.ndim == 0:
        rule = f"must be 1, or lie in [0, {MOST_MEMORY}], or be a kernel [rounds, rounds]"
        rho = check_number(memory, "memory", rule, 0.0, 1.0)
        require(rho == 1.0 or rho <= MOST_MEMORY, "memory", rule, memory)
        return memory_kernel(np.arange(rounds), rho)
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


def noise_of(noise: np.ndarray | None, rounds: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Return which sums have noise, and its covariance over s^2, of `check_noise`'s noise."""
    if noise is None:
        return np.zeros(rounds, np.bool_), np.zeros((rounds, rounds))
    if noise.ndim == 1:
        return noise != 0, np.diag(noise) / spread**2
    return (noise != 0).any(axis=1), noise @ noise.T / spread**2


def decided(
    histories: np.ndarray, kernel: np.ndarray, is_noisy: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows count, and who is exposed by rows of one time without noise.

    Returns:
        bool `[batch, rounds]`; and `[batch, rounds, clients]`, from which row of its time on.
    """
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
        return is_noisy | is_in.any(axis=-1), np.asarray(is_in & is_alone)
    order = np.argsort(time, kind="stable")
    place = np.arange(rounds) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    groups = np.zeros((count, len(sizes), sizes.max(), clients), exact.dtype)
    groups[:, time[order], place] = exact[:, order]
    flat = groups.reshape(-1, *groups.shape[2:])
    is_new = np.diff(np.asarray(rank_trajectory(flat)), axis=-1, prepend=0) > 0
    first = np.asarray(first_exposure(flat)).reshape(count, len(sizes), clients)
    is_kept = np.empty((count, rounds), np.bool_)
    is_kept[:, order] = is_new.reshape(count, len(sizes), -1)[:, time[order], place]
    exposed = np.empty((count, rounds, clients), np.bool_)
    own = first[:, time[order]]
    exposed[:, order] = (own >= 0) & (own <= place[:, None])
    return is_noisy | is_kept, exposed


def exponents_of(histories: np.ndarray) -> np.ndarray:
    """Return which power of two each row is divided by: nothing is rounded, nothing overflows."""
    if histories.dtype == object:
        bits = np.frompyfunc(lambda value: int(value).bit_length(), 1, 1)(histories)
        return bits.max(axis=-1).astype(np.int64)
    ends = histories.max(axis=-1), histories.min(axis=-1)
    largest = np.maximum(ends[0].astype(np.float64), -ends[1].astype(np.float64))
    return np.frexp(largest)[1].astype(np.int64)


def as_floats(entries: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return entries as floats, each divided by its power of two."""
    if entries.dtype != object:
        return np.ldexp(entries.astype(np.float64), -exponents)
    divided = np.frompyfunc(lambda value, bits: int(value) / (1 << bits), 2, 1)
    return divided(entries, exponents).astype(np.float64)


def grams_of(histories: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return G of each history, a part of the clients after another."""
    count, rounds, clients = histories.shape
    grams = np.zeros((count, rounds, rounds))
    step = at_once("columns", 8 * count * rounds)
    for start in range(0, clients, step):
        part = as_floats(histories[..., start : start + step], exponents[..., None])
        grams += part @ part.swapaxes(1, 2)
    return grams


def participations(
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
    weights[owner, at] = as_floats(histories[trial, row, client], exponents[trial, row])
    return places.reshape(count, clients, -1), weights.reshape(count, clients, -1)


def covariances(
    grams: np.ndarray, exponents: np.ndarray, covariance: np.ndarray, is_kept: np.ndarray,
    kernel: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Return the covariances of the sums over s^2; of rows that do not count, the identity."""
    scales = np.ldexp(1.0, -exponents)
    noise = covariance * scales[:, :, None] * scales[:, None, :]
    both = is_kept[:, :, None] & is_kept[:, None, :]
    return np.where(both, grams * kernel + noise, np.eye(len(kernel)))
