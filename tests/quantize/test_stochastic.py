"""Stochastic quantization against exact expectations and exact decoding in Python fractions."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.quantize import budget, stochastic
from mrsa_jax.quantize.budgets import check_fits, ring_size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"num_levels": 1, "clip": 1.0},
            r"`num_levels` must lie in \[2, 2\*\*23\]; got 1",
        ),
        (
            {"num_levels": 2**24, "clip": 1.0},
            r"`num_levels` must lie in .* got 16777216",
        ),
        (
            {"num_levels": True, "clip": 1.0},
            "`num_levels` must be an integer; got True",
        ),
        (
            {"num_levels": 4},
            "`clip` must be given, or `value_range`, not both; got None",
        ),
        ({"num_levels": 4, "clip": 1.0, "value_range": (0.0, 1.0)}, "not both"),
        (
            {"num_levels": 4, "clip": 0.0},
            r"`clip` must be positive and finite; got 0\.0",
        ),
        ({"num_levels": 4, "clip": -1.0}, "`clip` must be positive"),
        (
            {"num_levels": 4, "clip": float("nan")},
            "`clip` must be positive and finite; got nan",
        ),
        (
            {"num_levels": 4, "clip": float("inf")},
            "`clip` must be positive and finite; got inf",
        ),
        (
            {"num_levels": 4, "value_range": (1.0, 1.0)},
            "`value_range` must be finite with r1 < r2",
        ),
        (
            {"num_levels": 4, "value_range": (0.0, float("nan"))},
            "`value_range` must be finite",
        ),
    ],
)
def test_rejects_impossible_quantizers(arguments, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        stochastic(**arguments)


def test_rejects_sums_that_would_wrap():
    with pytest.raises(
        mj.ConfigurationError, match=r"`modulus` must exceed .* got 256 and 256"
    ):
        check_fits(3, 128, 256)
    check_fits(3, 127, 256)
    with pytest.raises(
        mj.ConfigurationError, match="`num_levels` must be at least 2; got 1"
    ):
        ring_size(1, 5)
    with pytest.raises(
        mj.ConfigurationError, match="`count` must be at least 1; got 0"
    ):
        budget(4, 0)


@pytest.mark.parametrize(
    ("levels", "count", "bits"),
    [(2, 1, 1), (2, 2, 2), (2, 3, 2), (2, 4, 3), (2**16, 12, 20)],
)
def test_bits_of_a_sum(levels, count, bits):
    largest = count * (levels - 1)
    assert budget(levels, count).required_bits == bits
    assert 2 ** (bits - 1) <= largest < 2**bits
    assert ring_size(levels, count) == largest + 1


def test_levels_are_kept_and_the_rest_is_clipped():
    quantizer = stochastic(5, value_range=(-1.0, 3.0))
    given = np.float32([-1.0, 0.0, 1.0, 2.0, 3.0, -7.0, 99.0, np.inf, -np.inf, np.nan])
    values = on_device(given)
    for seed in range(5):
        codes = quantizer.encode(jax.random.key(seed), values)
        assert codes.dtype == jnp.uint32
        assert codes.tolist() == [0, 1, 2, 3, 4, 0, 4, 4, 0, 0]
    assert np.asarray(quantizer.decode(codes, 1))[:5].tolist() == given[:5].tolist()
    assert float(quantizer.clipped_fraction(values)) == pytest.approx(0.5)
    # each update has its own
    rows = on_device([given, given[::-1] / 8, np.zeros(10, np.float32)])
    assert quantizer.clipped_fraction(rows).tolist() == pytest.approx([0.5, 0.4, 0.0])


@pytest.mark.long("2", "3")
@pytest.mark.parametrize("levels", [2, 3, 12, 2**16, 2**23])
def test_codes_are_neighbours_of_the_value(levels):
    quantizer = stochastic(levels, 0.7)
    values = jax.random.uniform(jax.random.key(1), (3, 500), minval=-1.0, maxval=1.0)
    codes = np.asarray(quantizer.encode(jax.random.key(2), values)).astype(np.int64)
    exact = (
        (np.clip(np.asarray(values, np.float64), -0.7, 0.7) + 0.7) / 1.4 * (levels - 1)
    )
    assert codes.min() >= 0
    assert codes.max() <= levels - 1
    assert np.all(np.abs(codes - exact) <= 1 + levels * 2.0**-21)


def test_rounding_is_unbiased():
    # 40 values x 20,000 draws; |mean - expectation| <= 5.7 standard errors each:
    # chance of a false failure 40 * 1.2e-8 < 1e-6
    quantizer, draws = stochastic(4, value_range=(0.0, 3.0)), 20_000
    values = jnp.linspace(0.0, 3.0, 40)
    keys = jax.random.split(jax.random.key(3), draws)
    codes = jax.vmap(lambda key: quantizer.encode(key, values))(keys)
    mean = np.asarray(codes, np.float64).mean(axis=0)
    fraction = np.asarray(values) % 1.0
    error = 5.7 * np.sqrt(fraction * (1 - fraction) / draws) + 1e-6
    assert np.all(np.abs(mean - np.asarray(values)) <= error)
    # neighbours in one draw are independent: variance of the sum is the sum of
    # variances
    total = np.asarray(codes, np.float64).sum(axis=1)
    variance = (fraction * (1 - fraction)).sum()
    assert abs(total.var() / variance - 1) < 5.0 * np.sqrt(2 / draws)


@pytest.mark.parametrize(
    ("levels", "count", "value_range"),
    [
        (2, 1, (-1.0, 1.0)),
        (2**16, 12, (-1.0, 1.0)),
        (2**23, 500, (-1.0, 1.0)),
        (7, 9, (0.0, 4.0)),
        (2**20, 4095, (-0.25, 2.0)),
    ],
)
def test_sums_decode_to_the_sum_of_their_values(levels, count, value_range):
    quantizer = stochastic(levels, value_range=value_range)
    top = count * (levels - 1)
    sums = sorted({0, 1, top // 3, top // 2, top // 2 + 1, top - 1, top})
    decoded = np.asarray(
        quantizer.decode(on_device(sums, jnp.uint32), count), np.float64
    )
    lower, upper = map(Fraction, value_range)
    step = (upper - lower) / (levels - 1)
    for code, value in zip(sums, decoded, strict=True):
        exact = count * lower + step * code
        middle = abs(count * (lower + upper) / 2)
        spread = abs(exact - count * (lower + upper) / 2)
        assert abs(Fraction(value) - exact) <= (spread + middle) * Fraction(1, 2**22)


def test_the_middle_of_a_symmetric_range_decodes_to_zero_exactly():
    quantizer = stochastic(2**16 + 1, 0.3)
    assert float(quantizer.decode(on_device([12 * 2**15], jnp.uint32), 12)[0]) == 0.0
    assert quantizer.decode(jnp.zeros(3, jnp.uint32), 0).tolist() == [0.0, 0.0, 0.0]


def test_numbers_are_leaves_and_compile_once():
    calls = []

    @jax.jit
    def both(quantizer, key, values):
        calls.append(1)
        return quantizer.decode(quantizer.encode(key, values), 1)

    values = jnp.linspace(-1.0, 1.0, 9)
    for levels, clip in [(3, 1.0), (2**16, 0.5), (17, 2.0)]:
        quantizer = stochastic(levels, clip)
        out = both(quantizer, jax.random.key(0), values)
        eager = quantizer.encode(jax.random.key(0), values)
        step = 2 * clip / (levels - 1)
        assert np.allclose(out, np.asarray(eager) * step - clip, atol=1e-6)
    assert len(calls) == 1
    stacked = jax.tree.map(
        lambda *x: jnp.stack(x), stochastic(3, 1.0), stochastic(5, 2.0)
    )
    codes = jax.vmap(lambda q: q.encode(jax.random.key(0), values))(stacked)
    assert np.array_equal(
        np.asarray(codes)[1], stochastic(5, 2.0).encode(jax.random.key(0), values)
    )


def test_x64_changes_nothing():
    quantizer, values = stochastic(100, 1.0), jnp.linspace(-1.0, 1.0, 33)
    codes = quantizer.encode(jax.random.key(4), values)
    decoded = quantizer.decode(codes, 1)
    with jax.enable_x64(True):
        assert np.array_equal(quantizer.encode(jax.random.key(4), values), codes)
        again = quantizer.decode(codes, 1)
        assert again.dtype == jnp.float32
        assert np.array_equal(again, decoded)
