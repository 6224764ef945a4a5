"""Clip ranges that follow the last learnt update."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.quantize import ClipRule, following_range, stochastic


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"multiplier": 0.5},
            '`multiplier` must be at least 1 for statistic "max"; got 0.5',
        ),
        (
            {"multiplier": float("nan")},
            "`multiplier` must be positive and finite; got nan",
        ),
        ({"multiplier": True}, "`multiplier` must be positive and finite; got True"),
        (
            {"multiplier": 2.0, "floor": 0.0},
            "`floor` must be positive and finite; got 0.0",
        ),
    ],
)
def test_rules_that_make_no_sense(arguments, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        following_range(**arguments)


def test_an_unknown_statistic_names_the_nearest() -> None:
    # the annotation is a literal: go round the run-time check to reach the message
    function = following_range
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    with pytest.raises(ConfigurationError, match="did you mean 'rms'"):
        function(2.0, statistic="rns")


@pytest.mark.parametrize("statistic", ["max", "rms"])
def test_the_range_follows_what_was_learnt(statistic) -> None:
    rule = following_range(3.0, floor=0.25, statistic=statistic)
    assert isinstance(rule, ClipRule)
    width = rule.init(stochastic(17, value_range=(-1.0, 2.0)))
    assert float(width) == 1.5
    assert float(rule.init(stochastic(17, 0.125))) == 0.25  # never below the floor
    advance = jax.jit(rule.advance)
    rng = np.random.default_rng(0)
    for learnt in (True, False, True):
        update = rng.normal(size=11).astype(np.float32)
        wide = update.astype(np.float64)
        level = np.abs(wide).max() if statistic == "max" else np.sqrt((wide**2).mean())
        after = advance(width, update, np.bool_(learnt))
        wanted = max(3.0 * level, 0.25) if learnt else float(width)
        np.testing.assert_allclose(float(after), wanted, rtol=1e-6)
        width = after
    still = advance(width, np.full(11, np.nan, np.float32), np.bool_(True))
    assert float(still) == float(width)
    small = np.full(11, 1e-3, np.float32)
    assert float(advance(width, small, np.bool_(True))) == 0.25
    # of clients without samples: it would clip the next rounds to the floor
    assert float(advance(width, np.zeros(11, np.float32), np.bool_(True))) == float(
        width
    )


def test_a_new_range_compiles_nothing_new() -> None:
    quantizer = stochastic(257, 1.0)

    @jax.jit
    def encode(rule, width, values):
        return rule.apply(quantizer, width).encode(jax.random.key(0), values)

    values = jnp.linspace(-4.0, 4.0, 9, dtype=jnp.float32)
    for width in (0.5, 2.0, 8.0):
        codes = encode(following_range(width + 1), jnp.float32(width), values)
        inside = np.asarray(stochastic(257, width).encode(jax.random.key(0), values))
        assert np.array_equal(codes, inside)
    assert encode._cache_size() == 1
