"""The accountant, from the mathematics.

Laws by enumeration, delta by its formula, intervals.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from scipy import integrate, stats

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, availability, selection
from mrsa_jax.dp import account, ledger, toeplitz
from mrsa_jax.dp._histories import largest_square
from mrsa_jax.dp._mixtures import Sampled

RATES = [0.1, 0.45, 0.3, 0.0, 0.2, 0.6]


def _delta(mu: np.ndarray, epsilon: float) -> np.ndarray:
    """Return delta of N(mu, 1) against N(0, 1) by its formula."""
    mu = np.maximum(mu, 1e-300)
    tail = stats.norm.cdf(-epsilon / mu - mu / 2)
    return stats.norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * tail


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Unknown:
    """A user's own scheme, of which nothing is known but how it chooses."""

    inside: Any
    depends_on_data: ClassVar[bool] = False

    @property
    def num_clients(self) -> int:
        return self.inside.num_clients

    def init(self) -> Any:
        return self.inside.init()

    def select(self, key: Any, state: Any, available: Any) -> Any:
        return self.inside.select(key, state, available)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Silent(Unknown):
    """The same, which does not say in words whether it looks at data."""

    depends_on_data: ClassVar[Any] = "no"


# ---- laws of counts


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_chance_of_uniform_blocks(size: int, wanted: int) -> None:
    """Against all sets of clients who may be available."""
    blocks = np.arange(6) // size
    expected = np.zeros(6)
    for online in itertools.product([0, 1], repeat=6):
        chance = np.prod(
            [1 - p if o else p for p, o in zip(RATES, online, strict=True)]
        )
        able = [b for b in range(6 // size) if all(np.array(online)[blocks == b])]
        if len(able) >= wanted:
            expected[np.isin(blocks, able)] += chance * wanted / len(able)
    scheme = selection.batch_partitioning(6, wanted * size, size, "uniform")
    found = scheme.chances(availability.independent(RATES).dropout_rates)
    # rates are multiples of 2^-32
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    equal = scheme.chances(np.full(6, 0.25))
    np.testing.assert_allclose(
        equal, scheme.chances(0.25 + 1e-13 * np.arange(6)), rtol=1e-9
    )
    assert selection.weighted(6, 2).chances(np.zeros(6)) is None


@pytest.mark.smoke("1-0.3")
@pytest.mark.parametrize(
    ("separation", "coin"), [(1, 0.3), (2, 0.3), (3, 0.9), (9, 0.2), (2, 1.0)]
)
def test_law_of_counts(separation: int, coin: float) -> None:
    """The mean of delta against all histories of coins, of a client who rests in between."""
    rounds, away, noise = 7, 0.25, 1.3
    masses = np.zeros(rounds + 1)
    joint = coin * (1 - away)
    for coins in itertools.product([0, 1], repeat=rounds):
        last, count = -separation, 0
        chance = 1.0
        for j, heads in enumerate(coins):
            chance *= joint if heads else 1 - joint
            if heads and j - last >= separation:
                last, count = j, count + 1
        masses[count] += chance
    scheme = selection.bernoulli(5, coin)
    if separation > 1:
        scheme = selection.minimum_separation(scheme, separation)
    found = account(scheme, availability.independent(away), rounds, noise, 1e-3)
    assert found.trials == 0
    for epsilon in (0.0, 0.5, 3.0):
        expected = masses @ _delta(np.sqrt(np.arange(rounds + 1)) / noise, epsilon)
        np.testing.assert_allclose(found.delta(epsilon), expected, rtol=1e-6)
    np.testing.assert_allclose(found.delta(found.epsilon[0]), 1e-3, rtol=1e-6)
    assert (found.lower == found.upper).all()


@pytest.mark.long
def test_blocks_count_as_clients() -> None:
    """Histories over blocks have the law of those over their clients."""
    rates = np.repeat(RATES[:4], 3)
    online = availability.independent(rates)
    for scheme in (
        selection.batch_partitioning(12, 6, 3),
        selection.minimum_separation(
            selection.batch_partitioning(12, 3, 3, "greedy"), 2
        ),
    ):
        history = np.asarray(selection.rollout_trials(1, scheme, online, 12, 4000))
        counts = history.sum(axis=1)[:, ::3]
        short = scheme.of_blocks()
        away = 1 - (1 - rates[::3]) ** 3
        folded = np.asarray(
            selection.rollout_counts(2, short, availability.independent(away), 12, 4000)
        )
        for power in (1, 2):
            a, b = counts.astype(float) ** power, folded.astype(float) ** power
            error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / 4000)
            assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 5 * error + 1e-12).all()


# ---- simulated


@pytest.mark.long
def test_interval_holds_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of schemes whose law is known, simulated as if it were not, one by one and pooled."""
    online = availability.independent(0.2)
    scheme = selection.batch_partitioning(24, 6, 3, "uniform")
    truth = account(scheme, online, 40, 3.0, 1e-4)
    told = []
    found = account(
        Unknown(scheme),
        online,
        40,
        3.0,
        1e-4,
        trials=2000,
        confidence=1 - 1e-6,
        clients=[0, 23, 4],
        progress=lambda *at: told.append(at),
    )
    assert found.trials == told[-1][0] == told[-1][1] == 2000
    with monkeypatch.context() as patched:
        patched.setattr(type(scheme), "chances", lambda self, rates: None)
        few = account(scheme, online, 40, 3.0, 1e-4, trials=50, confidence=1 - 1e-6)
    for simulated in (found, few):
        assert simulated.trials > 0
        assert (simulated.lower <= truth.epsilon[0]).all()
        assert (truth.epsilon[0] <= simulated.upper).all()
    np.testing.assert_allclose(found.epsilon, truth.epsilon[0], rtol=0.05)
    assert any("trials" in note for note in found.notes)
    worst = account(scheme, online, 40, 3.0, 1e-4, method="worst_case").epsilon[0]
    assert (found.upper <= worst + 1e-9).all()

    # all blocks at once; least use makes counts more even than chance, and delta no
    # larger
    pooled = account(
        selection.batch_partitioning(24, 6, 3), online, 40, 3.0, 1e-4, trials=3000
    )
    assert len(np.unique(pooled.epsilon)) == 1
    assert pooled.upper[0] < found.upper.min()
    assert 0.9 * truth.epsilon[0] < pooled.epsilon[0] < truth.epsilon[0]


@pytest.mark.long
def test_bets_seldom_lose() -> None:
    """Rare large values, which normal approximations miss.

    The interval errs as seldom as said.
    """
    generator = np.random.default_rng(0)
    mu = np.array([0.0, 3.0])
    wrong = np.zeros(2)
    for draw in range(80):
        seen = (generator.random((200, 1)) < 0.01).astype(np.int64)
        short = Sampled.of_counts(mu, seen, 9.0)
        lower, upper = short.interval(0.004, 0.1)
        if draw < 4:  # the same, a row for each trial
            one = Sampled(mu, seen, 3.0, 9.0)
            np.testing.assert_allclose(
                one.interval(0.004, 0.1), (lower, upper), rtol=3e-6
            )
            np.testing.assert_allclose(short.delta(1.0), one.delta(1.0), rtol=1e-12)
        # of the true mean at both ends
        truth = _delta(mu[1], np.array([lower, upper])) * 0.01
        wrong += [truth[0] < 0.004 and lower > 0, truth[1] > 0.004]
    assert (wrong / 80 < 0.05 + 3 * np.sqrt(0.05 / 80)).all()


def test_no_trial_exceeds_the_cap() -> None:
    """Against all ways to share rounds among the members of a class."""
    noise, most, total = 1.5, 6, 8
    mu = np.sqrt(np.arange(most + 1.0)) / noise
    shares = [
        c for c in itertools.product(range(most + 1), repeat=3) if sum(c) <= total
    ]
    for epsilon in (0.0, 0.7, 2.0, 6.0):
        largest = _delta(mu, epsilon)[np.array(shares)].mean(axis=1).max()
        one = Sampled(
            mu, np.zeros((1, 3), np.int64), float(mu[-1]), total / 3 / noise**2
        )
        cap = one.cap(epsilon)
        assert largest <= cap * (1 + 1e-9)
        assert cap <= _delta(mu[-1:], epsilon)[0] * (1 + 1e-9)


@pytest.mark.long
def test_strategy_is_the_ledger_on_average() -> None:
    online = availability.independent(0.1)
    strategy = toeplitz([1.0, 0.6, 0.3, 0.2], 15)
    scheme = selection.minimum_separation(selection.bernoulli(6, 0.4), 2)
    found = account(scheme, online, 15, 2.0, 1e-3, strategy=strategy, trials=64, seed=3)
    history = np.asarray(selection.rollout_trials(3, scheme, online, 15, 64))
    mu = np.array([ledger(rows, 2.0, strategy=strategy).mu for rows in history])
    for epsilon in (0.0, 1.0):
        np.testing.assert_allclose(
            found.delta(epsilon), _delta(mu, epsilon).mean(axis=0), rtol=1e-6
        )
    worst = account(
        scheme, online, 15, 2.0, 1e-3, strategy=strategy, method="worst_case"
    )
    assert (found.upper <= worst.epsilon).all()


# ---- what holds for any participation


@pytest.mark.parametrize("separation", [1, 2, 3, 5])
def test_largest_square(separation: int) -> None:
    generator = np.random.default_rng(1)
    patterns = np.array(
        [
            p
            for p in itertools.product([0, 1], repeat=9)
            if all(
                b - a >= separation for a, b in itertools.pairwise(np.flatnonzero(p))
            )
        ]
    )
    for band in (1, 2, 3, 9):
        rows, columns = np.indices((9, 9))
        strategy = np.where(
            (rows >= columns) & (rows - columns < band), generator.random((9, 9)), 0.0
        )
        form = strategy.T @ strategy
        best = np.einsum("ka,ab,kb->k", patterns, form, patterns).max()
        found = largest_square(form, separation)
        assert found >= best * (1 - 1e-12)
        if band <= separation or separation == 1:
            np.testing.assert_allclose(found, best, rtol=1e-12)


def test_worst_case_is_one_gaussian() -> None:
    scheme = selection.minimum_separation(selection.uniform(20, 2), 4)
    found = account(
        scheme, availability.markov(0.1, 3.0), 30, 2.0, 1e-5, method="worst_case"
    )
    np.testing.assert_allclose(
        _delta(np.sqrt(8) / 2.0, found.epsilon[0]), 1e-5, rtol=1e-6
    )


# ---- Poisson sampling


def _mixture(q: float, noise: float, epsilon: float) -> float:
    """Return the larger delta of one round, by quadrature, of both directions."""

    def without(x: float) -> float:
        return stats.norm.pdf(x, 0, noise)

    def with_it(x: float) -> float:
        return (1 - q) * stats.norm.pdf(x, 0, noise) + q * stats.norm.pdf(x, 1, noise)

    def stick(p: Any, r: Any) -> float:
        return integrate.quad(
            lambda x: max(p(x) - np.exp(epsilon) * r(x), 0.0),
            -12,
            14,
            limit=400,
            epsabs=1e-12,
        )[0]

    return max(stick(with_it, without), stick(without, with_it))


@pytest.mark.long
def test_one_by_one_is_amplified() -> None:
    none = availability.independent(0.0)
    one = account(selection.bernoulli(9, 0.1), none, 1, 1.0, adversary="models")
    averaged = account(
        selection.bernoulli(9, 0.1), none, 1, 1.0, method="pattern_averaged"
    )
    assert one.method == "amplified"
    np.testing.assert_allclose(one.delta(1.0), _mixture(0.1, 1.0, 1.0), rtol=1e-3)
    assert f"{one.delta(1.0)[0]:.1e}" == "2.1e-04"
    assert f"{averaged.delta(1.0)[0]:.1e}" == "1.3e-02"
    np.testing.assert_allclose(
        averaged.delta(1.0)[:1], 0.1 * _delta(np.ones(1), 1.0), rtol=1e-6
    )

    for rounds, noise in ((30, 3.0), (300, 5.0)):
        coins = selection.poisson(4, [0.05, 0.5, 0.05, 0.0])
        online = availability.independent([0.0, 0.2, 0.0, 0.3])
        best = account(coins, online, rounds, noise, adversary="models")
        plain = account(coins, online, rounds, noise)
        assert (best.epsilon[:3] < 0.9 * plain.epsilon[:3]).all()
        assert (best.lower <= best.epsilon).all()
        assert best.epsilon[3] == plain.epsilon[3] == best.delta(0.0)[3] == 0.0
        assert best.epsilon[0] == best.epsilon[2] < best.epsilon[1]
        assert (plain.worst, best.worst) == (1, 1)


# ---- refusals and bad input


def _asked(scheme: Any = None, online: Any = None, **more: Any) -> Any:
    scheme = selection.bernoulli(6, 0.3) if scheme is None else scheme
    online = availability.independent(0.1) if online is None else online
    given = {"rounds": 5, "noise_multiplier": 1.0} | more
    return inspect.unwrap(account)(scheme, online, given.pop("rounds"), **given)


AMPLIFIED = {"method": "amplified", "adversary": "models"}


_refused = functools.cache(
    lambda: [
        (
            {"noise_multiplier": 0.0},
            "`noise_multiplier` must be positive and finite.*got 0.0",
        ),
        (
            {"noise_multiplier": -1.0},
            "`noise_multiplier` must be positive and finite.*got -1.0",
        ),
        (
            {"noise_multiplier": np.inf},
            "`noise_multiplier` must be positive and finite.*got inf",
        ),
        (
            {"noise_multiplier": np.nan},
            "`noise_multiplier` must be positive and finite.*got nan",
        ),
        ({"delta": 0.0}, r"`delta` must lie in \(0, 1\); got 0.0"),
        ({"delta": 1.0}, r"`delta` must lie in \(0, 1\); got 1.0"),
        ({"delta": "small"}, r"`delta` must lie in \(0, 1\); got 'small'"),
        ({"confidence": 1.0}, r"`confidence` must lie in \(0, 1\)"),
        ({"rounds": 0}, "`rounds` must be at least 1; got 0"),
        ({"trials": 0}, "`trials` must be at least 1; got 0"),
        (
            {"clients": [6]},
            "`clients` must be one or more indices of clients, from 0 to 5",
        ),
        ({"clients": [-1]}, "`clients` must be one or more indices"),
        (
            {"adversary": "sever"},
            "`adversary` must be a known adversary: did you mean 'server'",
        ),
        ({"method": "pld"}, "`method` must be a known method"),
        ({"strategy": np.eye(4)}, r"`strategy` must be a matrix of numbers \[5, 5\]"),
        (
            {"scheme": selection.power_of_choice(6, 2, 3)},
            "`selector` must not look at what clien",
        ),
        (
            {
                "scheme": selection.minimum_separation(
                    selection.power_of_choice(6, 2, 3), 2
                ),
                "method": "worst_case",
            },
            "`selector` must not look at what clien",
        ),
        (
            {"scheme": Silent(selection.uniform(6, 2))},
            "`selector` must say whether it looks at",
        ),
        (
            {
                "scheme": selection.minimum_separation(
                    Silent(selection.uniform(6, 2)), 2
                )
            },
            "`selector` must say whether it looks at",
        ),
        ({"scheme": 3}, "`selector` must have"),
        ({"online": 3}, "`availability` must have"),
        (
            {"online": availability.independent([0.1] * 5)},
            "`dropout_rate` must be one rate or 6",
        ),
        (
            {"method": "amplified"},
            "must not be 'amplified': the server sees who takes part",
        ),
        (
            AMPLIFIED | {"scheme": selection.batch_partitioning(6, 4, 2)},
            "blocks give away",
        ),
        (
            AMPLIFIED | {"scheme": selection.uniform(6, 2)},
            "do not join by their own coins",
        ),
        (
            AMPLIFIED | {"online": availability.markov(0.1, 2.0)},
            "online is not independent",
        ),
        (
            AMPLIFIED
            | {"scheme": selection.minimum_separation(selection.bernoulli(6, 0.3), 2)},
            "with a minimum separation, or bins, rounds depend on each other",
        ),
        (AMPLIFIED | {"strategy": np.eye(5)}, "with a strategy rounds do not compose"),
    ]
)


def test_refused() -> None:
    for asked, message in _refused():
        with pytest.raises(ConfigurationError, match=message):
            _asked(**asked)


def test_account_is_shown() -> None:
    found = account(selection.bernoulli(6, 0.3), availability.independent(0.1), 5, 1.0)
    assert "server" in repr(found)
    assert "<table" in found._repr_html_()
    assert found.mean == pytest.approx(found.epsilon.mean())
    with pytest.raises(
        ConfigurationError, match="`epsilon` must be finite and at least 0; got -1"
    ):
        found.delta(-1.0)
    assert mj.dp.account is account
