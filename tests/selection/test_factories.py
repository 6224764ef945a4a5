"""Schemes built of traced numbers, and printed as they were typed."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import ALWAYS, as_key, threshold

N, J = 12, 4
choose, online = mj.selection, mj.availability


def _history(t: Any, p: Any, seed: Any) -> Any:
    away = online.independent(p)
    return choose.rollout(seed, choose.batch_partitioning(N, 6, t), away, num_rounds=J)


def test_targets_rates_and_seeds_are_mapped_in_one_program() -> None:
    """The README's promise, by bits.

    Rates are multiples of 2^-24 and so exact in float32.
    """
    targets, rates, seeds = (
        [1, 2, 3, 6],
        [0.0, 0.25, 0.125, 2.0**-24],
        [0, 1, 7, 2**32 - 1],
    )
    arrays = (np.int32(targets), np.float32(rates), np.uint32(seeds))
    mapped = jax.jit(jax.vmap(_history))(*map(on_device, arrays))
    alone = [_history(*own) for own in zip(targets, rates, seeds, strict=True)]
    np.testing.assert_array_equal(mapped, np.stack(alone))
    assert np.asarray(mapped).any(axis=(1, 2)).all()


def _cohorts(selector: Any) -> Any:
    return choose.rollout(0, selector, online.independent(0.25), num_rounds=3)


@pytest.mark.parametrize(
    ("factory", "size"),
    [
        (lambda k, t: choose.uniform(N, k), lambda k, t: k),
        (lambda k, t: choose.weighted(N, k), lambda k, t: k),
        (lambda k, t: choose.partition(N, k), lambda k, t: k if N % k == 0 else 0),
        (
            lambda k, t: choose.batch_partitioning(N, k, t),
            lambda k, t: k if t > 0 and k % t == 0 and N % t == 0 else 0,
        ),
        (
            lambda k, t: choose.power_of_choice(N, k, t),
            lambda k, t: k if k <= t <= N else 0,
        ),
    ],
)
def test_nonsense_asks_nobody(
    factory: Callable[..., Any], size: Callable[..., int]
) -> None:
    """No cohort is smaller than asked for, but empty.

    Of legal numbers some are not empty.
    """
    pairs = [
        (k, t) for k in (-1, 0, 1, 4, 5, 6, 13) for t in (-1, 0, 1, 2, 5, 6, 12, 13)
    ]
    ks, ts = np.int32(pairs).T
    found = jax.jit(jax.vmap(lambda k, t: _cohorts(factory(k, t))))(ks, ts)
    sizes = np.asarray(found).sum(-1)
    legal = [size(k, t) if 1 <= k <= N else 0 for k, t in pairs]
    assert ((sizes == 0) | (sizes == np.asarray(legal)[:, None])).all()
    assert sizes.max() == 6
    assert (sizes[np.asarray(legal) == 1] == 1).any()


@pytest.mark.parametrize(
    "model",
    [
        online.independent,
        lambda p: online.markov(p, 2.0),
        lambda p: online.markov(0.5, 4 * p),
        lambda p: online.cyclic(jnp.stack([p, p])),
        lambda p: online.diurnal(0.5, p, 3),
    ],
)
def test_nobody_is_online_at_a_rate_that_is_none(model: Callable[..., Any]) -> None:
    def available(p: Any) -> Any:
        return choose.rollout(0, choose.bernoulli(N, 1.0), model(p), num_rounds=3)

    rates = on_device(np.float32([-0.1, np.nan, -np.inf, 0.375]))
    found = np.asarray(jax.jit(jax.vmap(available))(rates))
    assert not found[:3].any()
    assert found[3].any()


def test_other_numbers_that_make_no_sense() -> None:
    def drawn(own: Any) -> Any:
        joined = mj.graphs.harary(7, (own * 20).astype(jnp.int32)).sample(
            jax.random.key(0)
        )
        by_chance = mj.graphs.erdos_renyi(7, own).sample(jax.random.key(0))
        lost = ~online.independent_steps(own).sample(
            jax.random.key(0), jnp.ones(7, bool)
        )[4]
        coder = mj.quantize.stochastic((own * 20).astype(jnp.int32), own)
        mean = coder.decode(coder.encode(jax.random.key(0), jnp.zeros(3)), 1)
        return joined.any(), by_chance.any(), lost.all(), jnp.isnan(mean).all()

    rates = on_device(np.float32([-0.5, np.nan, 1.5, 0.2]))
    found = np.stack(jax.jit(jax.vmap(drawn))(rates)).T.tolist()
    assert found[0] == found[1] == [False, False, True, True]
    assert found[2][:3] == [False, False, True]  # 30 neighbours of 7, a chance of 1.5
    assert found[3] == [True, True, False, False]


def test_known_numbers_beside_traced_ones_are_checked() -> None:
    def built(t: Any) -> Any:
        return choose.batch_partitioning(N, 0, t).block_size

    with pytest.raises(mj.ConfigurationError, match="`cohort_size` must be at least 1"):
        jax.make_jaxpr(built)(jnp.int32(2))
    with pytest.raises(
        mj.ConfigurationError, match="`clip` must be positive and finite"
    ):
        jax.make_jaxpr(lambda k: mj.quantize.stochastic(k, -1.0).lower)(jnp.int32(2))
    with pytest.raises(mj.ConfigurationError, match="`separation` must be one number"):
        jax.make_jaxpr(
            lambda b: choose.minimum_separation(choose.uniform(N, 2), b).separation
        )(jnp.ones(2, jnp.int32))
    with pytest.raises(mj.ConfigurationError, match="`seed` must be one integer"):
        jax.make_jaxpr(inspect.unwrap(as_key))(jnp.float32(1))


def test_known_scalars_of_jax_are_numbers() -> None:
    """So that what runs under `jit` can be run without, to look at it."""
    two = jnp.int32(2)
    assert (
        repr(choose.batch_partitioning(N, jnp.int32(6), two))
        == "batch_partitioning(12, 6, 2)"
    )
    assert repr(choose.partition(N, two)) == "partition(12, 2)"
    assert repr(mj.graphs.harary(N, two)) == "harary(12, 2)"
    assert repr(choose.balls_in_bins(N, two)) == "balls_in_bins(12, 2)"


def test_traced_thresholds_are_those_of_known_chances() -> None:
    """Float32 holds 24 bits.

    All chances that it can say get the threshold nearest to them.
    """
    beyond = np.nextafter(np.float32(1), np.float32(2))
    chances = np.float32([0, 1, 0.5, 1e-12, 2.0**-32, 1 / 3, 1 - 2.0**-24, beyond])
    found = np.asarray(jax.jit(threshold)(chances))
    known = threshold(np.float64(chances[:-1]))
    np.testing.assert_array_equal(found[:-1], known)
    assert found[-1] == 0
    assert known[1] == ALWAYS > known[-1] > 0


def test_the_mean_sum_of_a_round_is_differentiable() -> None:
    """With b = (1 - p)^T, d/db P(Bin(m, b) >= k) = m P(Bin(m - 1, b) = k - 1)."""
    n, k, t, p = 24, 12, 3, 0.2
    m, blocks, b = n // t, k // t, (1 - p) ** t
    value, slope = jax.value_and_grad(
        lambda own: choose.expected_cardinality(n, k, t, own)
    )(p)
    by_hand = k * m * stats.binom.pmf(blocks - 1, m - 1, b) * -t * (1 - p) ** (t - 1)
    assert value == pytest.approx(choose.expected_cardinality(n, k, t, p), rel=1e-6)
    assert slope == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize(
    "typed",
    [
        "uniform(12, 4)",
        "weighted(12, 4)",
        "partition(12, 4)",
        "batch_partitioning(120, 12, 4)",
        "batch_partitioning(24, 12, 2, 'greedy')",
        "minimum_separation(uniform(12, 4), 3)",
        "bernoulli(9, 0.3)",
        "poisson(3, [0.1, 0.25, 1.0])",
        "power_of_choice(12, 3, 6)",
        "balls_in_bins(12, 5)",
        "independent(0.1)",
        "independent([0.3, 1e-05])",
        "markov(0.3, 4.5)",
        "cyclic([0.1, 0.2], 1)",
        "harary(8, 4)",
        "erdos_renyi(6, 0.123456789)",
        "over_blocks(random_regular(6, 3), 2)",
        "stochastic(16, 0.1)",
    ],
)
def test_a_scheme_prints_as_it_was_typed(typed: str) -> None:
    rooms = (choose, online, mj.graphs, mj.quantize)
    names = {name: getattr(room, name) for room in rooms for name in room.__all__}
    assert repr(eval(typed, names)) == typed


def test_what_no_call_makes_prints_field_by_field() -> None:
    """Many rates, a scheme over trials, traced numbers, a cohort that no factory allows."""
    many = online.independent(np.linspace(0, 1, 7))
    assert repr(many) == "Independent(thresholds=uint32[7] in [0, 4.29497e+09])"
    selector = choose.uniform(12, 4)
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), selector)
    assert repr(several).startswith("BlockSelection(block_size=int32[2]")
    odd = dataclasses.replace(selector, blocks_per_cohort=jnp.int32(13))
    assert repr(odd).startswith("BlockSelection(block_size=1, blocks_per_cohort=13")
    seen = []
    jax.make_jaxpr(lambda k: seen.append(repr(choose.uniform(12, k))) or k)(4)
    assert seen[0].startswith("BlockSelection(")
