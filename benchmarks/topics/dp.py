"""Noise in the ring: exact draws beside NumPy's and their random words.

What clients spend.
"""

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
from mrsa_jax.bench.harness import Case, Measurement, ResultsDifferError, compare

_Draw = Callable[[np.random.Generator, float, int], Any]
_FLOOR = "floor: 64 bits of Threefry-2x32 a draw; aim: 1e8 draws a second on two cores"


def _numpy_skellam(rng: np.random.Generator, variance: float, count: int) -> Any:
    """Draw by floats, as NumPy does: one Poisson count less another."""
    return rng.poisson(variance / 2, count) - rng.poisson(variance / 2, count)


def _numpy_gaussian(rng: np.random.Generator, variance: float, count: int) -> Any:
    """Draw by rejection from the discrete Laplace, in floats.

    Source: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy"
    (2020), Algorithm 3.
    """
    scale = math.floor(math.sqrt(variance)) + 1
    kept: list[Any] = []
    missing = count
    while missing > 0:
        pairs = rng.geometric(-math.expm1(-1 / scale), (2, missing + missing // 2 + 64))
        laplace = pairs[0] - pairs[1]
        distance = np.abs(laplace) - variance / scale
        accepted = laplace[
            rng.random(laplace.size) < np.exp(-(distance**2) / (2 * variance))
        ]
        kept.append(accepted[:missing])
        missing -= kept[-1].size
    return np.concatenate(kept)


_BY_NUMPY: dict[str, _Draw] = {
    "skellam": _numpy_skellam,
    "discrete_gaussian": _numpy_gaussian,
}


def _noise(kind: str, variance: float) -> dp.LatticeNoise:
    return dp.skellam(variance) if kind == "skellam" else dp.discrete_gaussian(variance)


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


def _draws(kind: str, variance: float, count: int) -> Measurement:
    noise, rng = _noise(kind, variance), np.random.default_rng(0)
    fewer = max(1, count // 16)
    return compare(
        lambda: noise.sample(as_key(1), (count,)),
        lambda: _BY_NUMPY[kind](rng, variance, fewer),
        work=count,
        peer_work=fewer,
        unit="draws",
        peer_name="NumPy, by floats",
        aim=10,
        note=_FLOOR,
        check=functools.partial(_check_variance, variance),
    )


@functools.partial(jax.jit, static_argnames="count")
def _words(key: Any, count: int) -> Any:
    x, y = block_words(key, (count,))
    return x ^ y


def _beside_words(variance: float, count: int) -> Measurement:
    noise = _noise("skellam", variance)

    def check(draws: Any, _: Any) -> None:
        _check_variance(variance, draws)

    return compare(
        lambda: noise.sample(as_key(1), (count,)),
        lambda: _words(as_key(1), count),
        work=count,
        unit="draws",
        peer_name="its random words alone",
        check=check,
    )


@functools.partial(jax.jit, static_argnames="dim")
def _round(noise: Any, keys: Any, dim: int) -> Any:
    draws = jax.vmap(lambda key: noise.sample(key, (dim,)))(keys)
    return jnp.sum(draws.astype(jnp.uint32), axis=0, dtype=jnp.uint32)


def _clients(variance: float, clients: int, dim: int) -> Measurement:
    """Sum the noise of a round's clients, each of a key of its own, in the ring."""
    noise, keys = _noise("skellam", variance), jax.random.split(as_key(2), clients)

    def check(total: Any, _: Any) -> None:
        _check_variance(clients * variance, np.asarray(total).view(np.int32))

    return compare(
        lambda: _round(noise, keys, dim),
        work=clients * dim,
        unit="draws",
        check=check,
        note=_FLOOR,
    )


# ---- accounts


_HISTORIES = "aim: 1e5 histories of 1,000 rounds at N = 120 in 30 s on two cores"
_RATES = (0.1, 0.2, 0.3, 0.4, 0.5)


def _account(target: int, rounds: int, trials: int) -> Measurement:
    """Account for blocks by least use, who share their blocks with clients of other rates."""
    rates = availability.assign_rates(0, _RATES, 120)
    scheme = (
        selection.batch_partitioning(120, 12, target),
        availability.independent(rates),
    )

    def ours() -> dp.Account:
        return dp.account(*scheme, rounds, 10.0, trials=trials)

    def check(found: dp.Account, _: Any) -> None:
        if (
            not (found.lower <= found.epsilon).all()
            or not (found.epsilon <= found.upper).all()
        ):
            raise ResultsDifferError("an estimate outside of its interval")

    return compare(
        ours, work=trials, unit="histories", check=check, repeats=1, note=_HISTORIES
    )


def _numpy_losses(
    rounds: int, rest: int, coin: float, noise: float, samples: int
) -> Any:
    """Draw losses of a client who rests, a round after the other for all samples, in NumPy."""
    rng = np.random.default_rng(0)
    age = np.full(samples, rest)
    rested, ring = np.zeros(samples), np.full((rest, samples), -np.inf)
    joins, stays = math.log(coin), math.log1p(-coin)
    for j in range(rounds):
        age = np.where((age + 1 >= rest) & (rng.random(samples) < coin), 0, age + 1)
        release = rng.normal(size=samples) + (age == 0) / noise
        ring[j % rest] = joins + rested + release / noise - 0.5 / noise**2
        rested = np.logaddexp(stays + rested, ring[(j + 1) % rest])
    return np.logaddexp.reduce(
        np.vstack([rested, np.delete(ring, rounds % rest, axis=0)]), axis=0
    )


def _numpy_bins(rounds: int, bins: int, noise: float, samples: int) -> Any:
    """Draw losses of a client in bins from all of its releases, in NumPy."""
    rng = np.random.default_rng(0)
    shifts = (np.arange(rounds)[:, None] % bins == np.arange(bins)) / noise
    release = (
        rng.normal(size=(samples, rounds)) + shifts.T[rng.integers(bins, size=samples)]
    )
    each = release @ shifts - 0.5 * np.square(shifts).sum(axis=0)
    return np.logaddexp.reduce(each, axis=1) - math.log(bins)


_REST, _COIN, _LOSS_NOISE = 10, 0.1, 5.0
_LOSS_NOTE = "aim: 10 x on two cores; floor: a normal and an exponential a round, or a normal a bin"


def _mean_losses_agree(a: Any, b: Any) -> None:
    """Raise if the means of two samples of losses are six standard errors apart."""
    error = math.sqrt(np.var(a) / len(a) + np.var(b) / len(b))
    if abs(np.mean(a, dtype=np.float64) - np.mean(b)) > 6 * error:
        raise ResultsDifferError(f"mean losses {np.mean(a)} and {np.mean(b)}")


def _our_losses(is_bins: bool, rounds: int, samples: int) -> Callable[[], Any]:
    scheme: Any = selection.minimum_separation(selection.bernoulli(2, _COIN), _REST)
    if is_bins:
        scheme = selection.balls_in_bins(2, _REST)
    online = availability.independent(0.0)
    return lambda: dp.privacy_losses(scheme, online, rounds, _LOSS_NOISE, samples)


def _losses(is_bins: bool, rounds: int, samples: int) -> Measurement:
    fewer = max(1, samples // 16)
    theirs = functools.partial(_numpy_losses, rounds, _REST, _COIN, _LOSS_NOISE, fewer)
    if is_bins:
        theirs = functools.partial(_numpy_bins, rounds, _REST, _LOSS_NOISE, fewer)
    return compare(
        _our_losses(is_bins, rounds, samples),
        theirs,
        work=samples,
        peer_work=fewer,
        unit="losses",
        check=_mean_losses_agree,
        note=_LOSS_NOTE,
        aim=10,
        peer_name="NumPy, a round at a time",
    )


def _losses_beside(is_bins: bool, rounds: int, samples: int) -> Measurement:
    """Draw losses beside jax_privacy, which takes one thread."""
    fewer = max(1, samples // (64 if is_bins else 16))
    settings = {
        "bins": is_bins,
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
            _our_losses(is_bins, rounds, samples),
            peer.run,
            work=samples,
            peer_work=fewer,
            unit="losses",
            check=check,
            note=_LOSS_NOTE,
            aim=10,
            peer_name=peer.title,
            repeats=3,
        )


def _account_cases(quick: bool) -> list[Case]:
    rounds, trials, samples = (50, 200, 2**12) if quick else (1_000, 100_000, 2**17)
    found = [
        Case(
            f"account of blocks of {target} of 120 clients: {trials:,} histories of "
            f"{rounds:,}",
            functools.partial(_account, target=target, rounds=rounds, trials=trials),
        )
        for target in (1, 3, 6)
    ]
    return [
        *found,
        *(
            Case(
                f"privacy losses, {name}: {samples:,} of {rounds:,} rounds{beside}",
                functools.partial(
                    measure, is_bins=is_bins, rounds=rounds, samples=samples
                ),
                needs,
            )
            for measure, needs, beside in (
                (_losses, None, ""),
                (_losses_beside, "jax_privacy", ", beside jax_privacy"),
            )
            for name, is_bins in (("minimum separation 10", False), ("10 bins", True))
        ),
    ]


def _ledger(rounds: int, clients: int, bands: int) -> Measurement:
    """Account for all clients, epsilon among it; 0 bands: independent noise."""
    P = np.random.default_rng(0).random((rounds, clients), np.float32) < 0.05
    roots = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1.0, max(1, bands))))])
    strategy = dp.toeplitz(roots, rounds) if bands else None
    few = slice(None, 64)

    def ours() -> tuple[np.ndarray, np.ndarray]:
        told = dp.ledger(P, 30.0, strategy=strategy)
        return told.mu, told.epsilon(1e-5)

    def check(found: tuple[np.ndarray, np.ndarray], _: Any) -> None:
        C = np.eye(rounds) if strategy is None else strategy
        expected = np.linalg.norm(C @ P[:, few], axis=0) / 30.0
        np.testing.assert_allclose(found[0][few], expected, rtol=1e-9)

    note = "aim: 10 s on two cores; floor: a pass over the history, or its product with a matrix"
    return compare(
        ours, work=clients, unit="clients", check=check, repeats=2, note=note
    )


def cases(quick: bool) -> list[Case]:
    """Return the cases of this topic."""
    count = 2**17 if quick else 2**25
    found = [
        Case(
            f"{kind}, standard deviation {deviation:,}: {count:,} draws",
            functools.partial(
                _draws, kind=kind, variance=float(deviation**2), count=count
            ),
        )
        for kind in _BY_NUMPY
        for deviation in (2, 64, 8192)
    ]
    found.append(
        Case(
            f"Skellam, standard deviation 64: {count:,} draws beside their words",
            functools.partial(_beside_words, variance=4096.0, count=count),
        )
    )
    clients, dim = (4, 2**12) if quick else (128, 2**18)
    found.append(
        Case(
            f"Skellam noise of {clients} clients x {dim:,} coordinates, summed",
            functools.partial(_clients, variance=4096.0, clients=clients, dim=dim),
        )
    )
    rounds, clients = (100, 2_000) if quick else (1_000, 100_000)
    found += [
        Case(
            f"ledger of {clients:,} clients x {rounds:,} rounds, {name}",
            functools.partial(_ledger, rounds=rounds, clients=clients, bands=bands),
        )
        for name, bands in (
            ("noise of its own", 0),
            ("10 bands", 10),
            ("a full matrix", rounds),
        )
    ]
    return [*found, *_account_cases(quick)]
