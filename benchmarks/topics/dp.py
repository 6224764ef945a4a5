"""Noise in the ring: exact draws beside NumPy's and their random words; accounts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rivals import Peer
from mrsa_jax import availability, dp, selection
from mrsa_jax._core.streams import as_key, block_words
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, compare


def _numpy_skellam(rng: np.random.Generator, variance: float, count: int) -> Any:
    """Draw by floats, as NumPy does: one Poisson count less another."""
    return rng.poisson(variance / 2, count) - rng.poisson(variance / 2, count)


def _numpy_gaussian(rng: np.random.Generator, variance: float, count: int) -> Any:
    """Draw by rejection from the discrete Laplace, in floats.

    Source: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy"
    (2020), Algorithm 3.
    """
    # of the discrete Laplace from which draws are accepted
    scale = math.floor(math.sqrt(variance)) + 1
    parts: list[Any] = []
    missing = count
    while missing > 0:
        # more than are missing, as some will be rejected
        pairs = rng.geometric(-math.expm1(-1 / scale), (2, missing + missing // 2 + 64))
        laplace = pairs[0] - pairs[1]
        distance = np.abs(laplace) - variance / scale
        # in proportion to the Gaussian's density over that of the Laplace
        accepted = laplace[
            rng.random(laplace.size) < np.exp(-(distance**2) / (2 * variance))
        ]
        parts.append(accepted[:missing])
        missing -= parts[-1].size
    return np.concatenate(parts)


_LAWS = {
    "skellam": (dp.skellam, _numpy_skellam),
    "discrete_gaussian": (dp.discrete_gaussian, _numpy_gaussian),
}


def _check_variance(variance: float, *all_draws: Any) -> None:
    """Raise if a sample's mean square is seven standard errors from the variance."""
    for draws in all_draws:
        values = np.asarray(draws).astype(np.float64).reshape(-1)
        # both laws have a fourth moment of at most 3 v^2 + v
        error = math.sqrt((2 * variance**2 + variance) / values.size)
        if abs(np.mean(values**2) - variance) > 7 * error:
            raise ResultsDifferError(
                f"mean square {np.mean(values**2)} of variance {variance}"
            )


def draws(kind: str, deviation: int, count: int) -> Measurement:
    """Time exact draws beside NumPy's by floats."""
    variance = float(deviation**2)
    rng = np.random.default_rng(0)
    build, by_numpy = _LAWS[kind]
    noise = build(variance)
    fewer = max(1, count // 16)
    return compare(
        lambda: noise.sample(as_key(1), (count,)),
        lambda: by_numpy(rng, variance, fewer),
        work=count,
        peer_work=fewer,
        check=functools.partial(_check_variance, variance),
    )


@functools.partial(jax.jit, static_argnames="count")
def _words(key: Any, count: int) -> Any:
    x, y = block_words(key, (count,))
    # both words enter the result, so that neither is optimized away
    return x ^ y


def beside_words(deviation: int, count: int) -> Measurement:
    """Time Skellam's draws beside their random words."""
    variance = float(deviation**2)
    noise = dp.skellam(variance)
    return compare(
        lambda: noise.sample(as_key(1), (count,)),
        lambda: _words(as_key(1), count),
        work=count,
        check=lambda sample, _: _check_variance(variance, sample),
    )


@functools.partial(jax.jit, static_argnames="dim")
def _round(noise: Any, keys: Any, dim: int) -> Any:
    draws = jax.vmap(lambda key: noise.sample(key, (dim,)))(keys)
    return jnp.sum(draws.astype(jnp.uint32), axis=0, dtype=jnp.uint32)


def summed(clients: int, dim: int) -> Measurement:
    """Sum the noise of a round's clients in the ring, each of a separate key."""
    variance = 4096.0
    noise = dp.skellam(variance)
    keys = jax.random.split(as_key(2), clients)

    def check(total: Any, _: Any) -> None:
        # variances add up; words of the ring are signed numbers modulo 2**32
        _check_variance(clients * variance, np.asarray(total).view(np.int32))

    return compare(lambda: _round(noise, keys, dim), work=clients * dim, check=check)


_RATES = (0.1, 0.2, 0.3, 0.4, 0.5)


def account(target: int, rounds: int, trials: int) -> Measurement:
    """Account for blocks by least use that clients of other rates share."""
    rates = availability.assign_rates(0, _RATES, 120)
    online = availability.independent(rates)
    selector = selection.batch_partitioning(120, 12, target)

    def check(ours: dp.Account, _: Any) -> None:
        is_inside = (ours.lower <= ours.epsilon) & (ours.epsilon <= ours.upper)
        if not is_inside.all():
            raise ResultsDifferError("an estimate outside of its interval")

    return compare(
        lambda: dp.account(selector, online, rounds, 10.0, trials=trials),
        work=trials,
        check=check,
    )


def _numpy_losses(
    rounds: int, rest: int, coin: float, noise: float, samples: int
) -> Any:
    """Draw losses of a client who rests in NumPy, round by round for all samples."""
    rng = np.random.default_rng(0)
    # rounds since the last participation; a client who is rested may join
    age = np.full(samples, rest)
    rested, ring = np.zeros(samples), np.full((rest, samples), -np.inf)
    joins, stays = math.log(coin), math.log1p(-coin)
    for j in range(rounds):
        age = np.where((age + 1 >= rest) & (rng.random(samples) < coin), 0, age + 1)
        release = rng.normal(size=samples) + (age == 0) / noise
        # likelihood of having joined in this round, kept until the client is rested
        ring[j % rest] = joins + rested + release / noise - 0.5 / noise**2
        rested = np.logaddexp(stays + rested, ring[(j + 1) % rest])
    return np.logaddexp.reduce(
        np.vstack([rested, np.delete(ring, rounds % rest, axis=0)]), axis=0
    )


def _numpy_bins(rounds: int, bins: int, noise: float, samples: int) -> Any:
    """Draw losses of a client in bins from all of its releases, in NumPy."""
    rng = np.random.default_rng(0)
    # a client takes part in one round of each cycle of bins
    shifts = (np.arange(rounds)[:, None] % bins == np.arange(bins)) / noise
    release = (
        rng.normal(size=(samples, rounds)) + shifts.T[rng.integers(bins, size=samples)]
    )
    # log likelihood of each bin over that of no participation
    each = release @ shifts - 0.5 * np.square(shifts).sum(axis=0)
    return np.logaddexp.reduce(each, axis=1) - math.log(bins)


_REST, _COIN, _LOSS_NOISE = 10, 0.1, 5.0
_BINS = "10 bins"


def _mean_losses_agree(a: Any, b: Any) -> None:
    """Raise if the means of two samples of losses are six standard errors apart."""
    error = math.sqrt(np.var(a) / len(a) + np.var(b) / len(b))
    if abs(np.mean(a, dtype=np.float64) - np.mean(b)) > 6 * error:
        raise ResultsDifferError(f"mean losses {np.mean(a)} and {np.mean(b)}")


def _our_losses(law: str, rounds: int, samples: int) -> Callable[[], Any]:
    scheme: Any = selection.minimum_separation(selection.bernoulli(2, _COIN), _REST)
    if law == _BINS:
        scheme = selection.balls_in_bins(2, _REST)
    online = availability.independent(0.0)
    return lambda: dp.privacy_losses(scheme, online, rounds, _LOSS_NOISE, samples)


def losses(law: str, rounds: int, samples: int) -> Measurement:
    """Time draws of losses beside NumPy."""
    fewer = max(1, samples // 16)
    theirs = functools.partial(_numpy_losses, rounds, _REST, _COIN, _LOSS_NOISE, fewer)
    if law == _BINS:
        theirs = functools.partial(_numpy_bins, rounds, _REST, _LOSS_NOISE, fewer)
    return compare(
        _our_losses(law, rounds, samples),
        theirs,
        work=samples,
        peer_work=fewer,
        check=_mean_losses_agree,
    )


def losses_beside(law: str, rounds: int, samples: int) -> Measurement:
    """Draw losses beside jax_privacy, which takes one thread."""
    fewer = max(1, samples // (64 if law == _BINS else 16))
    settings = {
        "bins": law == _BINS,
        "rounds": rounds,
        "separation": _REST,
        "coin": _COIN,
        "noise": _LOSS_NOISE,
        "samples": fewer,
    }
    with Peer("jax_privacy", {"settings": settings}, threads=1) as peer:

        def check(ours: Any, _: Any) -> None:
            _mean_losses_agree(ours, peer.saved("losses"))

        return compare(
            _our_losses(law, rounds, samples),
            peer.run,
            work=samples,
            peer_work=fewer,
            check=check,
            peer_name=peer.title,
        )


def ledger(rounds: int, clients: int, bands: int) -> Measurement:
    """Account for all clients, epsilon among it; 0 bands: independent noise."""
    P = np.random.default_rng(0).random((rounds, clients), np.float32) < 0.05
    # coefficients of (1 - x)**-0.5: the square root of the matrix of prefix sums
    roots = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1.0, max(1, bands))))])
    strategy = dp.toeplitz(roots, rounds) if bands else None
    # the full product for some clients is the reference
    few = slice(None, 64)

    def ours() -> np.ndarray:
        losses = dp.ledger(P, 30.0, strategy=strategy)
        losses.epsilon(1e-5)
        return losses.mu

    def check(mu: np.ndarray, _: Any) -> None:
        C = np.eye(rounds) if strategy is None else strategy
        expected = np.linalg.norm(C @ P[:, few], axis=0) / 30.0
        np.testing.assert_allclose(mu[few], expected, rtol=1e-9)

    return compare(ours, work=clients, check=check)
