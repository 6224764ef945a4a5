"""Independent dropouts: bad rates, the extremes, frequencies, and who gets which rate."""

from __future__ import annotations

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mrsa_jax import ConfigurationError
from mrsa_jax._core import streams as _chance
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.availability import assign_rates, independent


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (1.01, r"`dropout_rate` must lie in \[0, 1\]; got 1.01"),
        ([0.1, -0.2], r"`dropout_rate` must lie in \[0, 1\]; got -0.2"),
        (math.nan, r"`dropout_rate` must lie in \[0, 1\]; got nan"),
        ([0.1, math.nan], r"`dropout_rate` must lie in \[0, 1\]; got nan"),
        (True, "`dropout_rate` must be a number or one number per client; got True"),
        ("0.1", "`dropout_rate` must be a number or one number per client; got '0.1'"),
        (None, "`dropout_rate` must be a number or one number per client; got None"),
        ([], r"`dropout_rate` must be a number or a vector .*; got 'shape \(0,\)'"),
        (
            [[0.1]],
            r"`dropout_rate` must be a number or a vector .*; got 'shape \(1, 1\)'",
        ),
        ([0.1, "a"], "`dropout_rate` must hold real numbers"),
        ([True, False], "`dropout_rate` must hold real numbers"),
        ([[0.1], [0.1, 0.2]], "`dropout_rate` must hold real numbers"),
    ],
)
def test_rates_that_make_no_sense(rate: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(independent)(rate)


def test_wrong_number_of_rates() -> None:
    with pytest.raises(
        ConfigurationError, match="`dropout_rate` must be one rate or 4"
    ):
        independent([0.1, 0.2]).for_clients(4)
    with pytest.raises(ConfigurationError, match="`for_clients` spreads a single one"):
        independent(0.1).sample(as_key(0), None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.1], 4, "rnadom"), "`how` must be a known way; got 'rnadom'"),
        (([0.1], 4, "sortd"), "did you mean 'sorted'"),
        (([0.1], 0, "cyclic"), "`num_clients` must be at least 1; got 0"),
        (([0.1], 2.0, "cyclic"), "`num_clients` must be at least 1; got 2.0"),
        (([0.1, 7.0], 2, "cyclic"), r"`rates` must lie in \[0, 1\]; got 7.0"),
        (([], 2, "cyclic"), "`rates` must be"),
    ],
)
def test_assignments_that_make_no_sense(arguments: tuple, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(assign_rates)(0, *arguments)


def test_zero_and_one_are_exact() -> None:
    model = independent([0.0, 1.0, 0.0, 1.0])
    keys = jax.vmap(lambda t: trial_key(as_key(0), t))(np.arange(5000, dtype=np.uint32))
    online, _ = model.sample(keys, None)
    assert online.shape == (4, 5000)
    assert (np.asarray(online) == [[True], [False], [True], [False]]).all()


@pytest.mark.smoke
def test_thresholds_are_exact_multiples() -> None:
    words = on_device([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], jnp.uint32)

    def happens(chance: float) -> list[bool]:
        return _chance.happens(
            words, on_device(_chance.threshold(np.asarray(chance)))
        ).tolist()

    assert happens(0.0) == [False] * 6
    assert happens(2.0**-32) == [True] + [False] * 5
    assert happens(0.5) == [True] * 3 + [False] * 3
    assert happens(1 - 2.0**-31) == [True] * 4 + [False] * 2
    assert happens(1.0) == [True] * 6
    chances = np.array([0.0, 0.25, 0.5, 1.0])
    assert (_chance.threshold_chance(_chance.threshold(chances)) == chances).all()


def test_a_chance_between_never_and_always_is_neither() -> None:
    least = np.array([5e-324, 1e-300, 1e-12, 2.0**-33, 2.0**-32])
    assert (_chance.threshold(least) == 1).all()
    assert (
        _chance.threshold(1 - np.array([2.0**-53, 1e-12, 2.0**-32])) == 2**32 - 2
    ).all()
    words = jnp.asarray([0, 2**32 - 1], jnp.uint32)
    for chance in (1e-12, 1 - 1e-12):
        limits = jnp.asarray(_chance.threshold(np.asarray(chance)))
        assert _chance.happens(words, limits).tolist() == [True, False]
    rates = assign_rates(0, [1e-60, 1e-20, 1 - 1e-12, 0.0, 1.0], 5, how="sorted")
    assert [0.0 < rate < 1.0 for rate in rates] == [True, True, True, False, False]
    assert rates[3:].tolist() == [0.0, 1.0]


def test_one_rate_serves_any_number_of_clients() -> None:
    one = independent(0.3)
    for n in (1, 5, 9):
        online, _ = one.for_clients(n).sample(as_key(3), None)
        all_given, _ = independent([0.3] * n).sample(as_key(3), None)
        assert np.array_equal(online, all_given)
    many = independent(np.full(9, 0.3, np.float32)).sample(as_key(3), None)[0]
    assert np.array_equal(
        np.asarray(many)[:5], one.for_clients(5).sample(as_key(3), None)[0]
    )


def test_frequencies() -> None:
    rates = np.array([0.02, 0.1, 0.5, 0.9, 0.999])
    keys = jax.vmap(lambda t: trial_key(as_key(8), t))(
        np.arange(40_000, dtype=np.uint32)
    )
    online, _ = independent(rates).sample(keys, None)
    away = (~np.asarray(online)).sum(1)
    tail = 1e-6 / 10
    low, high = (
        stats.binom.ppf(tail, 40_000, rates),
        stats.binom.isf(tail, 40_000, rates),
    )
    assert ((low <= away) & (away <= high)).all()


def test_assignments() -> None:
    rates = [0.1, 0.2, 0.3]
    assert (
        assign_rates(0, rates, 7, how="cyclic").tolist()
        == np.float32([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1]).tolist()
    )
    assert (
        assign_rates(0, rates, 7, how="sorted").tolist()
        == np.float32([0.1, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3]).tolist()
    )
    shuffled = [assign_rates(seed, rates, 120) for seed in (0, 0, 1)]
    assert (shuffled[0] == shuffled[1]).all()
    assert (shuffled[0] != shuffled[2]).any()
    for spread in shuffled:
        values, counts = np.unique(spread, return_counts=True)
        assert values.tolist() == np.float32(rates).tolist()
        assert counts.tolist() == [40, 40, 40]
        assert (np.diff(spread) < 0).any()


def test_shuffles_are_uniform() -> None:
    """The two clients of rate 1 among four: six equally likely places."""
    draws = [
        tuple(np.flatnonzero(assign_rates(s, [0.0, 1.0], 4)).tolist())
        for s in range(300)
    ]
    _, counts = np.unique(draws, axis=0, return_counts=True)
    assert len(counts) == 6
    assert ((counts - 50) ** 2 / 50).sum() < stats.chi2.isf(1e-6, 5)
