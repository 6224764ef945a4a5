"""Markov chains, cycles and traces: bad input, laws, and plain loops on the same words."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mrsa_jax import ConfigurationError
from mrsa_jax._core.streams import (
    Stream,
    as_key,
    client_words,
    fold,
    round_key,
    trial_key,
)
from mrsa_jax.availability import (
    Availability,
    cyclic,
    diurnal,
    independent,
    markov,
    replay,
)
from mrsa_jax.selection import bernoulli, rollout, rollout_trials, uniform

FALSE_FAILURE = 1e-6


def _raw(function: Callable) -> Callable:
    return inspect.unwrap(function)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: _raw(markov)(1.5, 2.0),
            r"`dropout_rate` must lie in \[0, 1\]; got 1.5",
        ),
        (
            lambda: _raw(markov)(math.nan, 2.0),
            r"`dropout_rate` must lie in \[0, 1\]; got nan",
        ),
        (
            lambda: _raw(markov)(0.5, 0.5),
            "`mean_absence` must be at least 1 round; got 0.5",
        ),
        (lambda: _raw(markov)(0.5, math.inf), "`mean_absence` must be finite; got inf"),
        (lambda: _raw(markov)(0.5, True), "`mean_absence` must be a number"),
        (lambda: _raw(markov)(0.5, "2"), "`mean_absence` must be a number"),
        (
            lambda: _raw(markov)([0.5, 0.9], 2.0),
            r"`mean_absence` must be at least p / \(1 - p\) rounds .* got 2.0 and 0.9",
        ),
        (
            lambda: _raw(markov)([0.1, 0.2], [1.0, 2.0, 3.0]),
            "`mean_absence` must be one number or as many as `dropout_rate`; got '3 "
            "numbers'",
        ),
        (
            lambda: _raw(cyclic)([0.5, 1.5]),
            r"`dropout_rates` must lie in \[0, 1\]; got 1.5",
        ),
        (lambda: _raw(cyclic)([]), "`dropout_rates` must be a number or a vector"),
        (lambda: _raw(cyclic)([0.5], 0.5), "`phase` must be an integer"),
        (lambda: _raw(cyclic)([0.5], [True]), "`phase` must be an integer"),
        (
            lambda: _raw(diurnal)(0.3, 0.4, 24),
            r"`amplitude` must lie between .* got 0.4 and 0.3",
        ),
        (
            lambda: _raw(diurnal)(0.8, 0.4, 24),
            r"`amplitude` must lie between .* got 0.4 and 0.8",
        ),
        (lambda: _raw(diurnal)(0.3, -0.1, 24), "`amplitude` must lie between"),
        (
            lambda: _raw(diurnal)(0.3, 1e-10, 24),
            "`amplitude` must be 0 or at least 2..-32",
        ),
        (lambda: _raw(diurnal)(0.3, math.nan, 24), "`amplitude` must be finite"),
        (lambda: _raw(diurnal)([0.3], 0.1, 24), "`dropout_rate` must be one number"),
        (lambda: _raw(diurnal)(0.3, 0.1, 0), "`period` must be at least 1; got 0"),
        (
            lambda: _raw(diurnal)(0.3, 0.1, 24.0),
            "`period` must be an integer; got 24.0",
        ),
        (
            lambda: _raw(replay)([0, 1]),
            r"`trace` must be .* matrix .* got 'shape \(2,\)'",
        ),
        (lambda: _raw(replay)([[0, 2]]), "`trace` must be .* got 0 and 2"),
        (lambda: _raw(replay)([[0.0, 1.0]]), "`trace` must be .* got 'dtype float64'"),
        (lambda: _raw(replay)([[0, 1], [1]]), "`trace` must be"),
        (lambda: _raw(replay)(np.zeros((0, 3), bool)), "`trace` must be"),
        (lambda: _raw(replay)([[1]], beyond="repaet"), "did you mean 'repeat'"),
        (lambda: _raw(replay)([[1]], start="randon"), "did you mean 'random'"),
        (
            lambda: _raw(replay)([[1]], beyond="absent", start="random"),
            '`start` must be "first" unless the trace repeats',
        ),
    ],
)
def test_misuse(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: markov([0.1, 0.2], 2.0),
            "`dropout_rate` must be one number or 3, one for each client",
        ),
        (
            lambda: cyclic([0.1], [0, 1]),
            "`phase` must be one number or 3, one for each client",
        ),
        (lambda: replay([[0, 1]]), "`trace` must have 3 columns, one for each client"),
    ],
)
def test_wrong_number_of_clients(
    model: Callable[[], Availability], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rollout(0, uniform(3, 1), model(), 5)


def _online(
    seed: int, model: Availability, n: int, rounds: int, trials: int
) -> np.ndarray:
    """Who is online, bool[B, J, N]: everybody available joins."""
    return np.asarray(rollout_trials(seed, bernoulli(n, 1.0), model, rounds, trials))


def _words(seed: int, n: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Words of trial 0: before the rounds [N], and in each of them [J, N]."""
    key = trial_key(as_key(seed), 0)
    first = client_words(fold(key, jnp.uint32(2**32 - 1), int(Stream.AVAILABILITY)), n)
    later = jax.vmap(lambda j: client_words(round_key(key, j, Stream.AVAILABILITY), n))(
        jnp.arange(rounds, dtype=jnp.uint32)
    )
    return np.asarray(first), np.asarray(later)


# ---- Markov


@pytest.mark.long
def test_chains_on_the_same_words() -> None:
    p, m = np.array([0.1, 0.5, 0.75, 0.0, 1.0]), np.array([3.0, 2.0, 8.0, 5.0, 2.0])
    first, later = _words(3, 5, 80)
    leave = np.array([0.1 / 0.9 / 3, 0.5, 3 / 8, 0.0, 1.0])
    back = np.array([1 / 3, 0.5, 1 / 8, 0.2, 0.0])
    state, expected = first / 2**32 >= p, []
    for words in later / 2**32:
        state = np.where(state, words >= leave, words < back)
        expected.append(state)
    ours = _online(3, markov(p, m), 5, 80, 1)[0]
    assert (ours == np.array(expected)).all()
    assert ours[:, 3].all()
    assert not ours[:, 4].any()


@functools.cache
def _some_words() -> tuple[list[jax.Array], np.ndarray]:
    """Keys of rounds, and the chances that the words of five clients stand for."""
    keys = [as_key(j) for j in range(24)]
    words = jax.jit(lambda key: client_words(key, 5))
    return keys, np.array([words(key) for key in keys]) / 2**32


def test_a_chain_follows_its_words() -> None:
    p, m = np.array([0.1, 0.5, 0.75, 0.0, 1.0]), np.array([3.0, 2.0, 8.0, 5.0, 2.0])
    leave = np.array([0.1 / 0.9 / 3, 0.5, 3 / 8, 0.0, 1.0])
    back = np.array([1 / 3, 0.5, 1 / 8, 0.2, 0.0])
    keys, words = _some_words()
    model = markov(p, m)
    state, expected = model.init(keys[0]), words[0] >= p
    assert (np.asarray(state) == expected).all()
    for key, own in zip(keys, words, strict=True):
        online, state = model.sample(key, state)
        expected = np.where(expected, own >= leave, own < back)
        assert (np.asarray(online) == expected).all()


@pytest.mark.long
def test_chains_are_stationary_from_the_first_round() -> None:
    """Binomial counts over trials in rounds 0, 1 and 9, for short and long absences."""
    p = np.array([0.1, 0.3, 0.6, 0.9])
    m = np.array([1.5, 10.0, 40.0, 9.0])  # the last: leaves as soon as it is online
    trials = 20_000
    online = _online(0, markov(p, m), 4, 10, trials)
    tail = FALSE_FAILURE / 24
    low, high = (
        stats.binom.ppf(tail, trials, 1 - p),
        stats.binom.isf(tail, trials, 1 - p),
    )
    for j in (0, 1, 9):
        counts = online[:, j].sum(0)
        assert ((low <= counts) & (counts <= high)).all()
    assert not (online[:, 1:, 3] & online[:, :-1, 3]).any()


@pytest.mark.long
def test_absences_last_as_long_as_asked() -> None:
    """Every offline round is left with chance 1/m, whatever came before.

    Geometric absences.
    """
    p, m = np.array([0.2, 0.5, 0.5]), np.array([1.25, 4.0, 20.0])
    online = _online(1, markov(p, m), 3, 500, 100)
    for i in range(3):
        away = ~online[:, :-1, i]
        long = away[:, 1:] & away[:, :-1]  # away for two rounds at least
        for where, after in ((away, online[:, 1:, i]), (long, online[:, 2:, i])):
            returns, total = (where & after).sum(), where.sum()
            tail = FALSE_FAILURE / 12
            assert stats.binom.ppf(tail, total, 1 / m[i]) <= returns
            assert returns <= stats.binom.isf(tail, total, 1 / m[i])


@pytest.mark.long
def test_correlation_of_rounds() -> None:
    """(1 - 1/m - p/((1-p) m))^d at distance d, from 40,000 trials (5.5 standard errors)."""
    p, m, trials = 0.4, 6.0, 40_000
    online = _online(2, markov(p, m), 1, 8, trials)[:, :, 0].astype(float)
    factor = 1 - 1 / m - p / ((1 - p) * m)
    for d in (1, 3, 7):
        deviation = (online[:, 0] - (1 - p)) * (online[:, d] - (1 - p)) / (p * (1 - p))
        error = deviation.std() / math.sqrt(trials)
        assert abs(deviation.mean() - factor**d) < 5.5 * error


def test_short_absences_are_independent_rounds() -> None:
    """m = 1/(1 - p).

    An online and an offline client are away next with the same chance.
    """
    model = markov([0.2, 0.5], [1.25, 2.0])
    assert np.allclose(
        np.asarray(model.leave, float), np.asarray(model.away, float), rtol=1e-8
    )
    assert np.allclose(2.0**32 - np.asarray(model.back, float), model.away, rtol=1e-8)


# ---- cycles


@pytest.mark.long
def test_cycles_on_the_same_words() -> None:
    rates, phase = np.array([0.0, 0.9, 0.4, 1.0]), np.array([0, 1, -1, 6])
    _, later = _words(5, 4, 50)
    places = (np.arange(50)[:, None] + phase) % 4
    expected = later / 2**32 >= rates[places]
    assert (_online(5, cyclic(rates, phase), 4, 50, 1)[0] == expected).all()


def test_a_cycle_follows_its_words() -> None:
    rates, phase = np.array([0.0, 0.9, 0.4, 1.0]), np.array([0, 1, -1, 6, 2])
    keys, words = _some_words()
    model = cyclic(rates, phase)
    state = model.init(keys[0])
    for j, (key, own) in enumerate(zip(keys, words, strict=True)):
        online, state = model.sample(key, state)
        assert (np.asarray(online) == (own >= rates[(j + phase) % 4])).all()


def test_a_day_by_hand() -> None:
    """p + a cos(2 pi j / 4) is p + a, p, p - a and p again."""
    chances = np.asarray(diurnal(0.5, 0.25, 4).thresholds) / 2**32
    np.testing.assert_allclose(chances, [0.75, 0.5, 0.25, 0.5], atol=2**-32)


@pytest.mark.long
def test_cosine() -> None:
    """Frequencies at each place of the cycle, over trials.

    Away most at the cycle's start.
    """
    p, a, period, trials = 0.5, 0.4, 5, 20_000
    phase = np.array([0, 2])
    online = _online(0, diurnal(p, a, period, phase), 2, 7, trials)
    places = (np.arange(7)[:, None] + phase) % period
    chances = 1 - (p + a * np.cos(2 * np.pi * places / period))
    tail = FALSE_FAILURE / 28
    low, high = (
        stats.binom.ppf(tail, trials, chances),
        stats.binom.isf(tail, trials, chances),
    )
    assert ((low <= online.sum(0)) & (online.sum(0) <= high)).all()
    extreme = diurnal(0.5, 0.5, 2)
    assert _online(0, extreme, 3, 4, 2).tolist() == [[[False] * 3, [True] * 3] * 2] * 2


@pytest.mark.long
def test_a_flat_cycle_is_independent() -> None:
    flat = _online(9, independent(0.3), 3, 20, 2)
    for model in (diurnal(0.3, 0.0, 4, [0, 1, 2]), cyclic([0.3] * 4), cyclic(0.3, 5)):
        assert (_online(9, model, 3, 20, 2) == flat).all()


# ---- traces

TRACE = np.random.default_rng(0).random((5, 6)) < 0.5


@pytest.mark.parametrize("beyond", ["repeat", "absent"])
def test_a_trace_row_by_row(beyond: Any) -> None:
    model, key = replay(TRACE, beyond=beyond), as_key(0)
    state = model.init(key)
    for j in range(12):
        row, state = model.sample(key, state)
        assert (np.asarray(row) == (TRACE[j % 5] & (beyond == "repeat" or j < 5))).all()


@pytest.mark.long
def test_traces_repeat_or_end() -> None:
    again = _online(0, replay(TRACE), 6, 13, 2)
    assert (again == TRACE[np.arange(13) % 5]).all()
    ends = _online(0, replay(TRACE.astype(int), beyond="absent"), 6, 13, 2)
    assert (ends[:, :5] == TRACE).all()
    assert not ends[:, 5:].any()
    one = _online(0, replay([[True, False]]), 2, 3, 1)
    assert one.tolist() == [[[True, False]] * 3]


def test_random_starts_are_rows_whatever_the_number_of_clients() -> None:
    first = jax.jit(jax.vmap(replay(np.ones((7, 1), bool), start="random").init))
    keys = jax.random.split(as_key(5), 60)
    assert set(np.asarray(first(keys)).tolist()) == set(range(7))


def test_random_starts_are_uniform_rows() -> None:
    trace = np.eye(5, dtype=bool)
    online = _online(0, replay(trace, start="random"), 5, 7, 4000)
    starts = online[:, 0].argmax(1)
    for j in range(7):
        assert (online[:, j].argmax(1) == (starts + j) % 5).all()
    counts = np.bincount(starts, minlength=5)
    assert ((counts - 800) ** 2 / 800).sum() < stats.chi2.isf(FALSE_FAILURE, 4)


@pytest.mark.long
def test_models_of_many_clients_are_linear_in_memory() -> None:
    n = 200_000
    for model in (markov(0.3, 5.0), diurnal(0.3, 0.2, 24, np.arange(n) % 24)):
        history = rollout(0, bernoulli(n, 0.5), model, 3)
        assert abs(float(history.mean()) - 0.35) < 0.1
