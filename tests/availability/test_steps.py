"""Who survives a round's steps.

Bad rates, the extremes, nesting, frequencies, independence.
"""

from __future__ import annotations

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mrsa_jax import ConfigurationError, availability
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.availability import independent_steps


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (1.01, r"`step_dropout_rate` must lie in \[0, 1\]; got 1.01"),
        ([0.1, -0.2], r"`step_dropout_rate` must lie in \[0, 1\]; got -0.2"),
        (math.nan, r"`step_dropout_rate` must lie in \[0, 1\]; got nan"),
        (
            True,
            "`step_dropout_rate` must be a number or one number per client; got True",
        ),
        ([], "`step_dropout_rate` must be a number or a vector"),
        ("0.1", "`step_dropout_rate` must be a number or one number per client"),
    ],
)
def test_rates_that_make_no_sense(rate: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(independent_steps)(rate)


def test_wrong_number_of_rates() -> None:
    with pytest.raises(
        ConfigurationError, match="`step_dropout_rate` must be one rate or 3"
    ):
        independent_steps([0.1, 0.2]).sample(as_key(0), on_device(np.ones(3, np.bool_)))


def test_zero_keeps_everybody_and_one_nobody() -> None:
    model = independent_steps([0.0, 1.0, 0.0])
    survivors = model.sample(as_key(3), jnp.asarray([True, True, False]))
    assert survivors.tolist() == [[True, True, False]] + [[True, False, False]] * 4
    assert independent_steps(1.0).thresholds.tolist() == [2**32 - 1] * 4


def test_it_is_a_step_dropout_and_survivors_are_nested() -> None:
    model = independent_steps(0.3)
    assert isinstance(model, availability.StepDropout)
    cohort = on_device(np.arange(200) % 3 != 0)
    survivors = np.asarray(model.sample(as_key(0), cohort))
    assert survivors.shape == (5, 200)
    assert survivors.dtype == np.bool_
    assert (survivors[0] == np.asarray(cohort)).all()
    assert not (survivors[1:] & ~survivors[:-1]).any()
    assert survivors[4].sum() < survivors[1].sum() < survivors[0].sum()


def _chance_left(rate: float, step: int) -> float:
    """Walk through the steps one by one."""
    still = 1.0
    for _ in range(step):
        still -= still * rate
    return 1.0 - still


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_steps_are_left_as_often_as_they_should(rate: float) -> None:
    """False failure 1e-6 over all comparisons, from the exact binomial law."""
    trials, clients = 400, 500
    keys = jax.vmap(lambda t: trial_key(as_key(7), t))(
        np.arange(trials, dtype=np.uint32)
    )
    cohort = on_device(np.ones((clients, trials), np.bool_))
    survivors = np.asarray(independent_steps(rate).sample(keys, cohort))
    assert survivors.shape == (5, clients, trials)
    for step in range(1, 5):
        left = int((~survivors[step]).sum())
        law = stats.binom(clients * trials, _chance_left(rate, step))
        assert law.ppf(1e-6 / 24) <= left <= law.isf(1e-6 / 24)


@pytest.mark.long
def test_draws_do_not_depend_on_the_number_of_clients_or_trials() -> None:
    model = independent_steps(0.4)
    many = model.sample(as_key(5), jnp.ones(50, jnp.bool_))
    few = model.sample(as_key(5), jnp.ones(20, jnp.bool_))
    assert (many[:, :20] == few).all()
    keys = jax.vmap(lambda t: trial_key(as_key(5), t))(jnp.arange(3, dtype=jnp.uint32))
    together = model.sample(keys, jnp.ones((20, 3), jnp.bool_))
    for b in range(3):
        assert (
            together[..., b] == model.sample(keys[b], jnp.ones(20, jnp.bool_))
        ).all()
    mapped = jax.vmap(
        lambda key: model.sample(key, jnp.ones(20, jnp.bool_)), out_axes=-1
    )(keys)
    assert (mapped == together).all()


def test_new_rates_compile_nothing_and_stack() -> None:
    sample = jax.jit(lambda model, key, cohort: model.sample(key, cohort))
    cohort = on_device(np.ones(12, np.bool_))
    first = sample(independent_steps(0.1), as_key(1), cohort)
    compiled = sample._cache_size()
    second = sample(independent_steps(0.6), as_key(1), cohort)
    assert sample._cache_size() == compiled
    stacked = jax.tree.map(
        lambda *leaves: jnp.stack(leaves),
        independent_steps(0.1),
        independent_steps(0.6),
    )
    both = jax.vmap(lambda model: model.sample(as_key(1), cohort))(stacked)
    assert np.array_equal(both, [first, second])
    # whoever leaves at a low rate leaves at a high one
    assert not (np.asarray(second) & ~np.asarray(first)).any()
    with jax.enable_x64(True):
        assert np.array_equal(independent_steps(0.6).sample(as_key(1), cohort), second)
