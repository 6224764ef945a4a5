"""Exact integer noise: its masses against other formulas, its tables by integers, its draws."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._errors import ConfigurationError

LAWS = {"skellam": mj.dp.skellam, "discrete_gaussian": mj.dp.discrete_gaussian}
KINDS = tuple(LAWS)
HOSTILE = (5e-324, 1e-300, 1e-6, 0.1, 0.25, 0.3, 1.0, 2.0, math.pi, 4.0, 100.0, 12345.678, 2.0**16)


def _oracle(kind: str, variance: float, last: int) -> list[Any]:
    """Return P(X = k) of 0 <= k <= last by the definitions, in 80 digits."""
    v = mpmath.mpf(variance)
    if kind == "skellam":  # two Poisson counts of mean v / 2, one k above the other
        half, enough = v / 2, last + 60 + int(4 * variance)
        log = mpmath.log(half)
        poisson = [mpmath.exp(j * log - half - mpmath.loggamma(j + 1)) for j in range(enough)]
        return [mpmath.fdot(poisson[k:], poisson[: enough - k]) for k in range(last + 1)]
    weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * v)) for k in range(last + 200)]
    total = weights[0] + 2 * mpmath.fsum(weights[1:])
    return [weight / total for weight in weights[: last + 1]]


@pytest.mark.parametrize("kind", KINDS)
def test_masses_and_tails_are_those_of_the_definitions(kind: str) -> None:
    with mpmath.workdps(80):
        for variance in (1e-6, 0.2, 1.0, math.pi, 20.0):
            noise = LAWS[kind](variance)
            exact = _oracle(kind, variance, 100)
            points = np.asarray([[0, 1, 2], [5, -1, 60]])
            want = [[float(exact[abs(k)]) for k in row] for row in points.tolist()]
            np.testing.assert_allclose(noise.mass(points), want, rtol=1e-15, atol=0)
            for bound in (0, 1.5, 9, 30):
                want = float(2 * mpmath.fsum(exact[math.floor(bound) + 1 :]))
                np.testing.assert_allclose(noise.tail(bound), want, rtol=1e-15, atol=0)
            assert noise.tail(-0.5) == 1.0


def _weights(table: Any) -> list[int]:
    """Return the weight of each magnitude that a table draws from, by integers."""
    words = np.concatenate([np.asarray(table.cuts)[None], np.asarray(table.finer)]).tolist()
    cuts = [
        sum(word << (96 - 32 * i) for i, word in enumerate(column))
        for column in zip(*words, strict=True)
    ]
    weights = list(cuts)
    for cut, other in zip(cuts, np.asarray(table.others).tolist(), strict=True):
        weights[other] += (1 << 128) - cut
    return weights


@pytest.mark.parametrize("kind", KINDS)
def test_tables_hold_the_masses_to_the_stated_distance(kind: str) -> None:
    for variance in HOSTILE:
        noise = LAWS[kind](variance)
        weights = _weights(noise.table)
        size = len(weights)
        assert size & (size - 1) == 0
        assert sum(weights) == size << 128
        small = min(variance, 20.0) == variance
        if not small:
            continue
        with mpmath.workdps(120):
            exact = _oracle(kind, variance, size - 1)
            drawn = [mpmath.mpf(weight) / (size << 128) for weight in weights]
            apart = [abs(exact[0] - drawn[0])]
            apart += [abs(2 * e - d) for e, d in zip(exact[1:], drawn[1:], strict=True)]
            assert mpmath.fsum(apart) / 2 < mpmath.mpf(2) ** -126


def test_bad_variances_and_steps_are_refused() -> None:
    for make in LAWS.values():
        for wrong in (0, 0.0, -1.0, -math.inf, math.inf, math.nan, True, 10**400):
            with pytest.raises(ConfigurationError, match="`variance` must be positive"):
                make(wrong)
        for wrong in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ConfigurationError, match="`step` must be positive"):
                make(1.0).on(wrong)
        with pytest.raises(ConfigurationError, match=r"`step` must be at least 1.53e-05"):
            make(1.0).on(1e-9)
        with pytest.raises(ConfigurationError, match="`step` must leave noise"):
            make(1.0).on(1e300)
        large = make(2.0**40)  # no matter, until it is drawn
        assert large.on(1024.0).variance == 2.0**20
        with pytest.raises(ConfigurationError, match=r"`variance` must be at most 2\*\*32"):
            large.sample(jax.random.key(0), (3,))
        assert make(np.float32(0.1)).on(0.1).variance == float(
            Fraction(float(np.float32(0.1))) / Fraction(0.1) ** 2
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_depends_on_its_key_and_place_alone(kind: str) -> None:
    noise, keys = LAWS[kind](7.0), jax.random.split(jax.random.key(5), 4)
    alone = np.stack([np.asarray(noise.sample(key, (3, 50))) for key in keys])
    assert alone.dtype == np.int32
    together = jax.jit(jax.vmap(lambda noise, key: noise.sample(key, (3, 50)), (None, 0)))
    np.testing.assert_array_equal(together(noise, keys), alone)
    np.testing.assert_array_equal(together(noise, keys[::-1]), alone[::-1])
    np.testing.assert_array_equal(noise.sample(keys[0], (100,)), alone[0].reshape(-1)[:100])
    # noises of one size share a program and stack
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), noise, LAWS[kind](1.0))
    both = jax.jit(jax.vmap(lambda noise: noise.sample(keys[0], (150,))))(stacked)
    np.testing.assert_array_equal(both[0], alone[0].reshape(-1))
    np.testing.assert_array_equal(both[1], LAWS[kind](1.0).sample(keys[0], (150,)))
    assert jax.jit(lambda noise: noise)(noise).variance == 7.0
