"""Power-of-choice, minimum separation and Poisson sampling.

Rules on the same words, and laws.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mrsa_jax import ConfigurationError
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax._core.streams import Stream, as_key, client_words, round_key, trial_key
from mrsa_jax.availability import Independent, independent
from mrsa_jax.selection import (
    _bernoulli,
    batch_partitioning,
    bernoulli,
    minimum_separation,
    poisson,
    power_of_choice,
    rollout,
    rollout_trials,
    uniform,
)
from mrsa_jax.selection._bernoulli import SelectorState

_always = functools.cache(lambda: independent(0.0))


def _raw(function: Callable) -> Callable:
    return inspect.unwrap(function)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: _power(4, 5, 5),
            "`cohort_size` must be at most `num_clients`; got 5 and 4",
        ),
        (
            lambda: _power(4, 3, 2),
            "`num_candidates` must be at least `cohort_size`; got 2 and 3",
        ),
        (
            lambda: _power(4, 3, 5),
            "`num_candidates` must be at most `num_clients`; got 5 and 4",
        ),
        (lambda: _power(4, 3, 3.0), "`num_candidates` must be an integer; got 3.0"),
        (
            lambda: _power(4, 2, 3, initial_loss=0.0),
            r"`initial_loss` must lie in \[1e-30, 1e30\]",
        ),
        (
            lambda: _power(4, 2, 3, initial_loss=math.nan),
            "`initial_loss` must be finite; got nan",
        ),
        (
            lambda: _power(4, 2, 3, initial_loss=[1.0, 2.0]),
            "`initial_loss` must be one number or",
        ),
        (
            lambda: _power(4, 2, 3, final_loss=2.0),
            "`final_loss` must be at most `initial_loss`; ",
        ),
        (lambda: _power(4, 2, 3, decay=0.0), r"`decay` must lie in \(0, 1\]; got 0.0"),
        (lambda: _power(4, 2, 3, decay=1.1), r"`decay` must lie in \(0, 1\]; got 1.1"),
        (lambda: _power(4, 2, 3, decay=[0.5, 0.5]), "`decay` must be one number"),
        (
            lambda: _power(4, 2, 3, recovery=0.9),
            r"`recovery` must lie in \[1, 1e9\]; got 0.9",
        ),
        (
            lambda: _raw(minimum_separation)("uniform", 2),
            "`selector` must have .* got 'uniform'",
        ),
        (
            lambda: _raw(minimum_separation)(uniform(4, 2), 0),
            "`separation` must be at least 1",
        ),
        (
            lambda: _raw(minimum_separation)(uniform(4, 2), 2.0),
            "`separation` must be an integer",
        ),
        (lambda: _raw(poisson)(0, 0.5), "`num_clients` must be at least 1; got 0"),
        (lambda: _raw(poisson)(3, 1.5), r"`probability` must lie in \[0, 1\]; got 1.5"),
        (
            lambda: _raw(poisson)(3, [0.5, 0.5]),
            "`probability` must be .* '2 numbers, 3 clients'",
        ),
    ],
)
def test_misuse(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()


def _power(*sizes: object, **options: object) -> object:
    return _raw(power_of_choice)(*sizes, **options)


def _draws(seed: int, online: Independent, num_rounds: int) -> tuple[np.ndarray, ...]:
    """Availability bool[J, N] and two words for each client, uint32[J, N], of trial 0."""
    key, n = trial_key(as_key(seed), 0), online.thresholds.shape[0]

    def one(j: jax.Array) -> tuple[jax.Array, ...]:
        choice = round_key(key, j, Stream.SELECTION)
        available, _ = online.sample(round_key(key, j, Stream.AVAILABILITY), None)
        return available, client_words(choice, n, 0), client_words(choice, n, 1)

    return tuple(
        np.asarray(a) for a in jax.vmap(one)(jnp.arange(num_rounds, dtype=jnp.uint32))
    )


# ---- power-of-choice


@pytest.mark.long
def test_power_of_choice_on_the_same_words() -> None:
    """A plain loop with losses as floats: d candidates by word, the K worst of them."""
    n, k, d, rounds = 10, 3, 5, 200
    initial, final = np.linspace(1.0, 2.0, n), 0.2
    online = independent(np.full(n, 0.5))
    draws = _draws(4, online, rounds)
    scheme = power_of_choice(
        n, k, d, initial_loss=initial, final_loss=final, decay=0.7, recovery=1.1
    )
    losses, history = initial.copy(), []
    for available, first, second in zip(*draws, strict=True):
        cohort = np.zeros(n, bool)
        if available.sum() >= k:
            by_word = sorted(
                np.flatnonzero(available), key=lambda i: (first[i] >> 1, i)
            )
            ranked = sorted(
                by_word[:d], key=lambda i: (-round(losses[i], 4), second[i] >> 1)
            )
            cohort[ranked[:k]] = True
            losses = np.where(
                cohort,
                np.maximum(losses * 0.7, final),
                np.minimum(losses * 1.1, initial),
            )
        history.append(cohort)
    ours = np.asarray(rollout(4, scheme, online, rounds))
    assert 0 < (ours.sum(1) == 0).sum() < rounds / 4
    assert (ours == np.array(history)).all()


@pytest.mark.long
def test_losses_in_the_state() -> None:
    scheme = power_of_choice(
        3, 1, 3, initial_loss=[4.0, 2.0, 1.0], final_loss=0.75, decay=0.5, recovery=1.2
    )
    key, everybody = as_key(0), jnp.ones(3, bool)
    state = scheme.init()
    assert np.allclose(state.losses, [4.0, 2.0, 1.0], rtol=1e-4)
    wanted = [[2.0, 2.0, 1.0], None, None, None]
    seen = []
    select = jax.jit(scheme.select)
    for target in wanted:
        cohort, state = select(key, state, everybody)
        seen.append(int(cohort.argmax()))
        if target:
            assert np.allclose(state.losses, target, rtol=1e-4)
    assert seen[0] == 0
    assert set(seen[1:3]) == {0, 1}  # both at 2, then the other one
    # Nobody to ask: nothing changes.
    _, same = select(key, state, jnp.zeros(3, bool))
    assert (same.log_losses == state.log_losses).all()
    # The floor holds however long one client alone is trained.
    for _ in range(5):
        _, state = select(key, state, jnp.asarray([False, False, True]))
    assert np.allclose(state.losses[2], 0.75, rtol=1e-4)
    assert (np.asarray(state.losses) <= np.array([4.0, 2.0, 1.0]) * 1.0001).all()


@pytest.mark.long
def test_factors_near_one_take_effect_or_are_refused() -> None:
    """A round with a client multiplies its loss by the decay, one without by the recovery."""
    far, everybody, key = (1e-9, 0.5, 2.0, 1e9), jnp.ones(1, bool), as_key(0)
    near = [1 + sign * 10.0**-power * 3 for sign in (-1, 1) for power in range(1, 13)]
    for factor in (*far, *near, 1.000005, 1.0):
        down, up = min(factor, 1.0), max(factor, 1.0)
        if factor != 1.0 and abs(math.log(factor)) < 2.0**-24:
            name = "decay" if factor < 1 else "recovery"
            with pytest.raises(
                ConfigurationError, match=f"`{name}` must be 1 or differ from it"
            ):
                power_of_choice(1, 1, 1, decay=down, recovery=up)
            continue
        scheme = power_of_choice(1, 1, 1, final_loss=1e-30, decay=down, recovery=up)
        for moved, wanted in (
            (scheme.fall, -math.log(down)),
            (scheme.rise, math.log(up)),
        ):
            assert abs(int(moved) * 2.0**-23 - wanted) <= 2.0**-24 * 1.001
        _, state = scheme.select(key, scheme.init(), everybody)
        assert (int(state.log_losses[0]) < 0) == (factor < 1)
    # between two clients the loss of one grows while the other is trained, however
    # slowly
    scheme = power_of_choice(2, 1, 2, initial_loss=2.0, decay=0.9, recovery=1.000005)
    state, select = scheme.init(), jax.jit(scheme.select)
    first, state = select(key, state, jnp.ones(2, bool))
    before = state.log_losses[first.argmax()]
    for _ in range(1000):
        _, state = select(key, state, ~first)
    gained = int(state.log_losses[first.argmax()] - before) * 2.0**-23
    assert abs(gained - 1000 * math.log(1.000005)) < 1000 * 2.0**-24


@pytest.mark.long
def test_as_many_candidates_as_places_is_uniform() -> None:
    """d = K: cohorts are the K smallest first words, whatever the losses."""
    n, k = 10, 4
    online = independent(np.full(n, 0.45))
    scheme = power_of_choice(n, k, k, initial_loss=np.linspace(1.0, 9.0, n))
    available, first, _ = _draws(2, online, 200)
    ours = np.asarray(rollout(2, scheme, online, 200))
    for row, up, words in zip(ours, available, first, strict=True):
        ranked = sorted(np.flatnonzero(up), key=lambda i: words[i] >> 1)
        assert set(np.flatnonzero(row)) == (set(ranked[:k]) if up.sum() >= k else set())


@pytest.mark.long
def test_more_candidates_chase_losses() -> None:
    """Clients whose loss stays high are asked more often as soon as there is a choice."""
    n, k = 20, 2
    shares = []
    for d in (2, 6, 20):
        scheme = power_of_choice(
            n, k, d, initial_loss=1.0, final_loss=np.repeat([0.05, 0.8], 10), decay=0.8
        )
        history = np.asarray(rollout(0, scheme, _always(), 400))
        shares.append(history[:, 10:].sum() / history.sum())
    assert abs(shares[0] - 0.5) < 5 * math.sqrt(0.25 / 800)  # d = K is uniform
    assert min(shares[1:]) > 0.65


def test_long_runs_do_not_underflow() -> None:
    scheme = power_of_choice(2, 2, 2, final_loss=1e-30, decay=1e-9, recovery=1.0)
    state = scheme.init()
    select = jax.jit(scheme.select)
    for _ in range(6):
        _, state = select(as_key(0), state, on_device(np.ones(2, bool)))
    assert np.allclose(state.losses, 1e-30, rtol=1e-3)


# ---- minimum separation


@pytest.mark.long("uniform-sizes0-1")
@pytest.mark.parametrize("b", [1, 2, 4])
@pytest.mark.parametrize(
    ("make", "sizes"),
    [(uniform, (12, 3)), (bernoulli, (12, 0.4)), (batch_partitioning, (12, 4, 2))],
)
def test_separation_holds(make: Callable, sizes: tuple[float, ...], b: int) -> None:
    inner = make(*sizes)
    history = np.asarray(
        rollout_trials(1, minimum_separation(inner, b), independent(0.2), 60, 4)
    )
    for trial in history:
        for column in trial.T:
            assert (np.diff(np.flatnonzero(column)) >= b).all()
    gaps = [np.diff(np.flatnonzero(c)) for trial in history for c in trial.T]
    assert min(np.concatenate(gaps)) == b  # and nobody rests longer than asked to
    blocks = history.reshape(4, 60, 6, 2)
    if (
        not isinstance(inner, _bernoulli.BernoulliSelection)
        and int(inner.block_size) == 2
    ):
        assert (blocks.all(-1) == blocks.any(-1)).all()


@pytest.mark.long
def test_separation_on_the_same_words() -> None:
    """Uniform: the K smallest words among the available clients who are rested."""
    n, k, b, rounds = 10, 2, 4, 120
    online = independent(np.full(n, 0.3))
    available, _, second = _draws(8, online, rounds)
    last, history = np.full(n, -1000), np.zeros((rounds, n), bool)
    for j in range(rounds):
        free = np.flatnonzero(available[j] & (j - last >= b))
        if free.size >= k:
            chosen = sorted(free, key=lambda i: second[j, i] >> 1)[:k]
            history[j, chosen], last[chosen] = True, j
    ours = np.asarray(rollout(8, minimum_separation(uniform(n, k), b), online, rounds))
    assert 0 < (~history.any(1)).sum() < rounds
    assert (ours == history).all()


@pytest.mark.long
def test_separation_of_one_changes_nothing() -> None:
    online = independent(np.full(10, 0.3))
    for inner, rounds in ((uniform(10, 3), 120), (power_of_choice(10, 3, 6), 200)):
        ours = rollout(5, minimum_separation(inner, 1), online, rounds)
        assert (ours == rollout(5, inner, online, rounds)).all()


@pytest.mark.long
def test_too_long_rests_skip_rounds() -> None:
    """b K > N: rounds 0 and 1 of every three work for N = 10, K = 4, b = 3."""
    online = independent(np.zeros(10))
    history = rollout(0, minimum_separation(uniform(10, 4), 3), online, 120)
    assert np.asarray(history).sum(1).tolist() == [4, 4, 0] * 40


@pytest.mark.long
def test_nested_separation_is_the_larger_one() -> None:
    online = independent(np.full(10, 0.1))
    inner = minimum_separation(uniform(10, 2), 2)
    nested = rollout(0, minimum_separation(inner, 4), online, 120)
    assert (
        nested == rollout(0, minimum_separation(uniform(10, 2), 4), online, 120)
    ).all()


# ---- Poisson sampling


@pytest.mark.long
def test_poisson_with_one_chance_is_bernoulli() -> None:
    for chance in (0.0, 0.3, 1.0):
        one = rollout(3, bernoulli(7, chance), independent(0.2), 30)
        for probability in (chance, [chance] * 7, np.full(7, chance)):
            ours = rollout(3, poisson(7, probability), independent(0.2), 30)
            assert (ours == one).all()


def test_poisson_frequencies_and_independence() -> None:
    chances = np.array([0.0, 0.05, 0.3, 0.5, 0.9, 1.0])
    scheme, draws = poisson(6, chances), 40_000
    keys = jax.vmap(lambda t: trial_key(as_key(6), t))(
        np.arange(draws, dtype=np.uint32)
    )
    state = SelectorState(zeros((6, draws), np.int32))
    cohort, _ = jax.jit(scheme.select)(
        keys, state, on_device(np.ones((6, draws), bool))
    )
    cohort = np.asarray(cohort)
    low, high = (
        stats.binom.ppf(1e-7, draws, chances),
        stats.binom.isf(1e-7, draws, chances),
    )
    assert ((low <= cohort.sum(1)) & (cohort.sum(1) <= high)).all()
    pair = (cohort[2] & cohort[3]).sum()
    assert (
        stats.binom.ppf(5e-7, draws, 0.15) <= pair <= stats.binom.isf(5e-7, draws, 0.15)
    )
