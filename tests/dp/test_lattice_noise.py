"""Exact integer noise.

Its masses against other formulas, its tables by integers, its draws.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.stats
from jax.sharding import Mesh, PartitionSpec

import mrsa_jax as mj
from mrsa_jax._core.streams import block_words
from mrsa_jax.dp import LatticeNoise
from mrsa_jax.dp._lattice_noise import AliasTable
from mrsa_watch._base.errors import ConfigurationError

LAWS = {"skellam": mj.dp.skellam, "discrete_gaussian": mj.dp.discrete_gaussian}
KINDS = tuple(LAWS)


def _oracle(kind: str, variance: float, last: int) -> list[Any]:
    """Return P(X = k) of 0 <= k <= last by the definitions, in 80 digits."""
    v = mpmath.mpf(variance)
    if kind == "skellam":  # two Poisson counts of mean v / 2, one k above the other
        half, enough = v / 2, last + 60 + int(4 * variance)
        log = mpmath.log(half)
        poisson = [
            mpmath.exp(j * log - half - mpmath.loggamma(j + 1)) for j in range(enough)
        ]
        return [
            mpmath.fdot(poisson[k:], poisson[: enough - k]) for k in range(last + 1)
        ]
    enough = last + 200 + int(30 * math.sqrt(variance))
    weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * v)) for k in range(enough)]
    total = weights[0] + 2 * mpmath.fsum(weights[1:])
    return [weight / total for weight in weights[: last + 1]]


def test_masses_are_those_of_the_definitions() -> None:
    for kind in KINDS:
        with mpmath.workdps(80):
            for variance in (1e-6, 0.2, 1.0, math.pi, 20.0):
                noise = LAWS[kind](variance)
                exact = _oracle(kind, variance, 100)
                points = np.asarray([[0, 1, 2], [5, -1, 60]])
                want = [[float(exact[abs(k)]) for k in row] for row in points.tolist()]
                np.testing.assert_allclose(noise.mass(points), want, rtol=1e-15, atol=0)


def _weights(table: Any) -> list[int]:
    """Return the weight of each magnitude that a table draws from, by integers."""
    size = int(table.mask) + 1
    first, others = np.asarray(table.columns)[:size].T
    words = np.concatenate([first[None], np.asarray(table.finer)[:, :size]]).tolist()
    cuts = [
        sum(word << (96 - 32 * i) for i, word in enumerate(column))
        for column in zip(*words, strict=True)
    ]
    weights = list(cuts)
    for cut, other in zip(cuts, others.tolist(), strict=True):
        weights[other] += (1 << 128) - cut
    return weights


def test_skellam_masses_have_its_variance_and_sums() -> None:
    for variance, count in ((0.3, 7), (4.0, 3), (100.0, 2)):
        last = int(30 * math.sqrt(count * variance)) + 60
        masses = LAWS["skellam"](variance).mass(np.arange(-last, last + 1))
        np.testing.assert_allclose(masses.sum(), 1.0, rtol=1e-14)
        moment = (masses * np.arange(-last, last + 1.0) ** 2).sum()
        np.testing.assert_allclose(moment, variance, rtol=1e-13)
        total = masses
        for _ in range(count - 1):
            total = np.convolve(total, masses)
        middle = total.size // 2
        points = np.arange(-20, 21)
        want = LAWS["skellam"](count * variance).mass(points)
        np.testing.assert_allclose(total[middle + points], want, rtol=1e-12)


def _weights(table: Any) -> list[int]:
    """Return the weight of each magnitude that a table draws from, by integers."""
    size = int(table.mask) + 1
    first, others = np.asarray(table.columns)[:size].T
    words = np.concatenate([first[None], np.asarray(table.finer)[:, :size]])
    cuts = [int.from_bytes(column.astype(">u4").tobytes(), "big") for column in words.T]
    weights = list(cuts)
    for cut, other in zip(cuts, others.tolist(), strict=True):
        weights[other] += (1 << 128) - cut
    return weights


@pytest.mark.long
def test_tables_hold_the_masses_to_the_stated_distance() -> None:
    """However rare.

    Each weight is the mass's floor, but for what 0 takes of the others.
    """
    for kind in KINDS:
        with mpmath.workdps(120):
            for variance in (
                5e-324,
                1e-300,
                1e-6,
                0.1,
                0.25,
                0.3,
                1.0,
                math.pi,
                16.0,
                77.7,
            ):
                weights = _weights(LAWS[kind](variance).table)
                size = len(weights)
                assert size & (size - 1) == 0
                total = size << 128
                assert sum(weights) == total
                exact = [2 * mass for mass in _oracle(kind, variance, size - 1)]
                last = max(k for k, weight in enumerate(weights) if weight)
                assert all(
                    w == int(p * total)
                    for w, p in zip(weights[1 : last + 1], exact[1:], strict=False)
                )
                moved = mpmath.mpf(weights[0]) / total - exact[0] / 2
                assert 0 <= moved < mpmath.mpf(2) ** -126


def _check_wide_table(kind: str, variance: float, step: int) -> None:
    """Compare weights with masses that come from no recurrence, in other software."""
    weights = _weights(LAWS[kind](variance).table)
    total = len(weights) << 128
    assert sum(weights) == total
    last = max(k for k, weight in enumerate(weights) if weight)
    beyond = LAWS[kind](variance).mass(np.arange(last + 1, 2 * last))
    assert 2.0 * beyond.sum() < 2.0**-126
    with mpmath.workdps(90):
        for k in range(0, last, last // step):
            mass = _wide_oracle(kind, variance, k)
            apart = mpmath.mpf(weights[k]) / total - (2 * mass if k else mass)
            assert abs(apart) < mpmath.mpf(2) ** -126


def _wide_oracle(kind: str, variance: float, k: int) -> Any:
    """Return P(X = k) up to 2**-400 by the characteristic function, or by the whole integral."""
    v = mpmath.mpf(variance)
    # the sum over j of exp(-j^2 / (2 v)) is it times 1 + small
    if kind == "discrete_gaussian":
        return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * v)) / mpmath.sqrt(
            2 * mpmath.pi * v
        )
    deviation = math.sqrt(variance)
    period = int(48 * deviation)  # what is aliased lies 34 deviations out
    angles = [
        2 * mpmath.pi * j / period
        for j in range(int(25 * period / (2 * math.pi * deviation)))
    ]
    terms = [
        mpmath.exp(-2 * v * mpmath.sin(t / 2) ** 2) * mpmath.cos(k * t) for t in angles
    ]
    return (terms[0] + 2 * mpmath.fsum(terms[1:])) / period


@pytest.mark.long
def test_wide_tables_hold_the_masses() -> None:
    for kind in KINDS:
        _check_wide_table(kind, 12345.678, 20)
        _check_wide_table(kind, 2.0**22, 5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_widest_tables_hold_the_masses(kind: str) -> None:
    _check_wide_table(kind, 2.0**32, 10)


@pytest.mark.long
def test_draws_that_the_first_words_leave_open_are_decided_by_further_ones() -> None:
    """In a table whose cuts are the words of some draws.

    The oracle compares whole integers.
    """
    size, count = 256, 4096
    keys = jax.random.split(jax.random.key(9), 2)
    blocks = [block_words(keys[0], (count,), block) for block in range(4)]
    place = np.asarray(blocks[0][0])
    words = np.stack([blocks[0][1], *(block[0] for block in blocks[1:])], axis=1)
    cuts = np.zeros((size, 4), np.uint32)
    for column in range(size):
        tied = np.flatnonzero(place % size == column)[0]
        # so many words alike, then one apart
        equal, change = 1 + column % 4, column // 4 % 3 - 1
        cuts[column, :equal] = words[tied, :equal]
        if equal < 4:
            cuts[column, equal] = int(words[tied, equal]) + change
            # no matter, once apart
            cuts[column, equal + 1 :] = 0 if change > 0 else 2**32 - 1
    others = np.random.default_rng(0).integers(0, size, size).astype(np.uint32)
    columns = np.stack([cuts[:, 0], others], axis=1)
    table = AliasTable(
        jnp.asarray(columns), jnp.asarray(cuts[:, 1:].T), jnp.uint32(size - 1)
    )
    noise = LatticeNoise("skellam", jnp.zeros(2, jnp.uint32), table)
    want = []
    for where, own in zip(place.tolist(), words.tolist(), strict=True):
        column = where % size
        is_own = own < cuts[column].tolist()  # lists compare word by word
        magnitude = column if is_own else int(others[column])
        want.append(-magnitude if where >> 31 else magnitude)
    drawn = noise.sample(keys[0], (count,))
    np.testing.assert_array_equal(drawn, want)
    first_words_alone = words[:, 0] == cuts[place % size, 0]
    assert first_words_alone.sum() >= size
    # the second has none open
    both = jax.vmap(lambda key: noise.sample(key, (count,)))(keys)
    np.testing.assert_array_equal(both[0], want)
    np.testing.assert_array_equal(both[1], noise.sample(keys[1], (count,)))


@pytest.mark.smoke
def test_bad_variances_and_steps_are_refused() -> None:
    for make in LAWS.values():
        for wrong in (0, 0.0, -1.0, -math.inf, math.inf, math.nan, True, 10**400):
            with pytest.raises(ConfigurationError, match="`variance` must be positive"):
                make(wrong)
        for wrong in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ConfigurationError, match="`step` must be positive"):
                make(1.0).on(wrong)
        with pytest.raises(
            ConfigurationError, match=r"`step` must be at least 1.53e-05"
        ):
            make(1.0).on(1e-9)
        with pytest.raises(ConfigurationError, match="`step` must leave noise"):
            make(1.0).on(1e300)
        large = make(2.0**40)  # no matter, until it is drawn
        assert large.on(1024.0).variance == 2.0**20
        with pytest.raises(
            ConfigurationError, match=r"`variance` must be at most 2\*\*32"
        ):
            large.sample(jax.random.key(0), (3,))
        assert make(np.float32(0.1)).on(0.1).variance == float(
            Fraction(float(np.float32(0.1))) / Fraction(0.1) ** 2
        )


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_depends_on_its_key_and_place_alone(kind: str) -> None:
    noise, keys = LAWS[kind](7.0), jax.random.split(jax.random.key(5), 4)
    alone = np.stack([np.asarray(noise.sample(key, (3, 50))) for key in keys])
    assert alone.dtype == np.int32
    together = jax.jit(
        jax.vmap(lambda noise, key: noise.sample(key, (3, 50)), (None, 0))
    )
    np.testing.assert_array_equal(together(noise, keys), alone)
    np.testing.assert_array_equal(together(noise, keys[::-1]), alone[::-1])
    cut, mesh = PartitionSpec("calls"), Mesh(np.array(jax.devices()[:2]), ("calls",))
    one = lambda noise, keys: noise.sample(keys[0], (3, 50))[None]  # noqa: E731
    over_devices = jax.shard_map(
        one, mesh=mesh, in_specs=(PartitionSpec(), cut), out_specs=cut
    )
    np.testing.assert_array_equal(jax.jit(over_devices)(noise, keys[:2]), alone[:2])
    np.testing.assert_array_equal(
        noise.sample(keys[0], (100,)), alone[0].reshape(-1)[:100]
    )
    # noises of one size share a program and stack
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), noise, LAWS[kind](1.0))
    both = jax.jit(jax.vmap(lambda noise: noise.sample(keys[0], (150,))))(stacked)
    np.testing.assert_array_equal(both[0], alone[0].reshape(-1))
    np.testing.assert_array_equal(both[1], LAWS[kind](1.0).sample(keys[0], (150,)))
    assert jax.jit(lambda noise: noise)(noise).variance == 7.0


def _check_draws(noise: Any, draws: Any, count: int) -> None:
    """Compare counts of values with their masses by chi-square, and those of both tails."""
    widest = 0
    while count * noise.mass(widest + 1) >= 20.0:
        widest += 1
    counts = np.zeros(2 * widest + 3, np.int64)
    for chunk in draws:
        places = np.clip(np.asarray(chunk), -widest - 1, widest + 1) + widest + 1
        counts += np.bincount(places.reshape(-1), minlength=counts.size)
    assert counts.sum() == count
    masses = noise.mass(np.arange(-widest - 1, widest + 2))
    masses[[0, -1]] = (1.0 - masses[1:-1].sum()) / 2
    off = (counts - masses * count) ** 2 / (masses * count)
    # the two tails are counts of few: their own bound, by Poisson's law
    for found in counts[[0, -1]]:
        low, high = scipy.stats.poisson.interval(1 - 1e-7, masses[0] * count)
        assert low <= found <= high
    assert scipy.stats.chi2.sf(off[1:-1].sum(), off.size - 2) > 1e-4


@pytest.mark.long
def test_draws_have_their_masses() -> None:
    for kind, variance in (
        ("skellam", 0.3),
        ("skellam", 50.0),
        ("discrete_gaussian", 0.3),
        ("discrete_gaussian", 50.0),
        ("skellam", 1e-3),
    ):
        noise = LAWS[kind](variance)
        _check_draws(noise, [noise.sample(jax.random.key(11), (10**6,))], 10**6)
    # clients' draws, of a key each, add up to the law of their sum
    share, keys = LAWS["skellam"](2.0), jax.random.split(jax.random.key(12), 5)
    total = jax.vmap(lambda key: share.sample(key, (10**6,)))(keys).sum(axis=0)
    _check_draws(LAWS["skellam"](10.0), [total], 10**6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variance", [0.5, 9.0, 2.0**16])
def test_a_hundred_million_draws_have_their_masses(kind: str, variance: float) -> None:
    noise, keys = LAWS[kind](variance), jax.random.split(jax.random.key(13), 10)
    _check_draws(noise, (noise.sample(key, (10**7,)) for key in keys), 10**8)
