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
from mrsa_watch._base.errors import check_number, require

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
