"""Drawn privacy losses against mixtures written out, quadrature and the accountant's bounds."""

from __future__ import annotations

import functools
import inspect
import itertools
from typing import Any

import numpy as np
import pytest
from scipy import special

from mrsa_jax import ConfigurationError, availability, selection, use_form
from mrsa_jax.dp import account, privacy_losses, toeplitz
from mrsa_jax.dp._histories import checked_histories
from mrsa_jax.dp._privacy_losses import Rests

_always = functools.cache(lambda: availability.independent(0.0))
SAMPLES = 20_000


def _patterns(
    rounds: int, coin: float, separation: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return every participation of a client that rests, and its chance."""
    found: dict[tuple[int, ...], float] = {}
    for coins in itertools.product([0, 1], repeat=rounds):
        last, own = -separation, []
        for j, heads in enumerate(coins):
            own.append(int(heads and j - last >= separation))
            last = j if own[-1] else last
        chance = np.prod([coin if heads else 1 - coin for heads in coins])
        found[tuple(own)] = found.get(tuple(own), 0.0) + chance
    return np.array(list(found)), np.array(list(found.values()))


def _written_out(
    patterns: np.ndarray,
    chances: np.ndarray,
    strategy: np.ndarray,
    noise: float,
    side: str,
) -> np.ndarray:
    """Draw losses by the definition.

    The density of a mixture over that of one Gaussian.
    """
    generator = np.random.default_rng(5)
    shifts = patterns @ strategy.T / noise
    release = generator.normal(size=(SAMPLES, len(strategy)))
    if side == "with":
        release += shifts[
            generator.choice(len(chances), SAMPLES, p=chances / chances.sum())
        ]
    each = release @ shifts.T - 0.5 * np.square(shifts).sum(axis=1)
    losses = special.logsumexp(each, axis=1, b=chances)
    return losses if side == "with" else -losses


def _delta(losses: np.ndarray, epsilon: float) -> tuple[float, float]:
    """Return delta at epsilon and its standard error."""
    gains = np.maximum(0.0, -np.expm1(epsilon - losses.astype(np.float64)))
    return float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))


_coins = functools.cache(
    lambda: selection.minimum_separation(selection.bernoulli(3, 0.5), 3)
)
_cases = functools.cache(
    lambda: [
        (selection.bernoulli(3, 0.3), 5, 0.3, 1, None),
        (_coins(), 8, 0.5, 3, None),
        (_coins(), 8, 0.5, 3, [1.0, 0.7]),
        (_coins(), 7, 0.5, 3, [1.0, 0.7, 0.4]),
        (
            selection.minimum_separation(selection.bernoulli(3, 1.0), 4),
            6,
            1.0,
            4,
            [1.0, 0.5],
        ),
        (selection.minimum_separation(selection.bernoulli(3, 0.5), 9), 4, 0.5, 9, None),
    ]
)


@pytest.mark.long
@pytest.mark.parametrize("side", ["with", "without"])
def test_coins(side: str) -> None:
    for scheme, rounds, coin, separation, coefficients in _cases():
        strategy = None if coefficients is None else toeplitz(coefficients, rounds)
        found = privacy_losses(
            scheme, _always(), rounds, 0.8, SAMPLES, side=side, strategy=strategy
        )
        patterns, chances = _patterns(rounds, coin, separation)
        matrix = np.eye(rounds) if strategy is None else strategy
        _compare(found, _written_out(patterns, chances, matrix, 0.8, side))


@pytest.mark.long
@pytest.mark.parametrize("side", ["with", "without"])
def test_bins(side: str) -> None:
    for bins, coefficients in ((3, None), (3, [1.0, 0.6, 0.3, 0.1]), (9, None)):
        strategy = None if coefficients is None else toeplitz(coefficients, 7)
        found = privacy_losses(
            selection.balls_in_bins(4, bins),
            _always(),
            7,
            0.8,
            SAMPLES,
            side=side,
            strategy=strategy,
        )
        patterns = (np.arange(7) % bins == np.arange(bins)[:, None]).astype(int)
        matrix = np.eye(7) if strategy is None else strategy
        _compare(
            found, _written_out(patterns, np.full(bins, 1 / bins), matrix, 0.8, side)
        )
    # bins of each epoch: 3 x 3 x 3 participations in 7 rounds, the last epoch one round
    # long
    fresh = selection.balls_in_bins(4, 3, fresh=True)
    found = privacy_losses(fresh, _always(), 7, 0.8, SAMPLES, side=side)
    draws = np.array(list(itertools.product(range(3), repeat=3)))
    patterns = (draws[:, :, None] == np.arange(3)).reshape(27, 9)[:, :7].astype(int)
    _compare(found, _written_out(patterns, np.full(27, 1 / 27), np.eye(7), 0.8, side))


@pytest.mark.long
def test_fresh_bins_lose_less() -> None:
    """The exact epsilon of two epochs of two bins, by quadrature over the likelihoods' law."""
    grid = np.linspace(-9, 10, 761)
    weights = np.exp(-0.5 * grid**2) / np.sqrt(2 * np.pi) * (grid[1] - grid[0])
    # with over without
    ratio = np.add.outer(np.exp(grid - 0.5), np.exp(grid - 0.5)).ravel() / 2
    mass = np.outer(weights, weights).ravel()
    # losses of an epoch, to their nearest cell
    cells = np.rint(np.log(ratio) / 0.005).astype(int)
    low = cells.min()
    without, with_it = (np.bincount(cells - low, own) for own in (mass, mass * ratio))
    loss = 0.005 * (2 * low + np.arange(2 * len(without) - 1))
    found = {}
    for is_fresh in (True, False):
        scheme = selection.balls_in_bins(4, 2, fresh=is_fresh)
        found[is_fresh] = account(
            scheme,
            _always(),
            4,
            1.0,
            1e-2,
            adversary="models",
            clients=[0],
            method="monte_carlo",
            trials=8000,
            confidence=1 - 1e-6,
        )
    for end, sign in ((found[True].lower[0], 1), (found[True].upper[0], -1)):
        sides = (
            np.maximum(0, -np.expm1(end - sign_of * loss)) @ np.convolve(own, own)
            for own, sign_of in ((with_it, 1), (without, -1))
        )
        assert sign * (max(sides) - 1e-2) > -1e-4
    assert found[True].epsilon[0] < found[False].epsilon[0]
    server = [
        account(
            selection.balls_in_bins(4, 2, fresh=is_fresh),
            _always(),
            4,
            1.0,
            1e-2,
            clients=[0],
            trials=20,
        )
        for is_fresh in (True, False)
    ]
    assert server[0].epsilon[0] == server[1].epsilon[0]  # twice in four rounds


@pytest.mark.long
def test_arrays_draw_what_loops_do() -> None:
    """Losses of loops are of sums in float32's range, those of arrays of their logarithms."""
    near = selection.minimum_separation(selection.bernoulli(3, 0.9), 3)
    # the noise of 0.4 is just inside of what the loops' range holds, with losses up to
    # some 150
    for scheme, noise, strategy in (
        (near, 0.4, None),
        (_coins(), 2.0, toeplitz([1, 0.7, 0.4], 30)),
    ):
        own = (scheme, _always(), 30, noise, 5000)
        law = checked_histories(scheme, _always(), 30)
        assert law.coins is not None
        rests = Rests.of(30, 3, law.coins[0], noise, strategy)
        assert not rests.needs_logarithms
        assert Rests.of(30, 3, law.coins[0], noise / 2, strategy).needs_logarithms == (
            noise < 1
        )
        for side in ("with", "without"):
            by_form = []
            for form in ("loops", "xla"):
                with use_form(form):
                    by_form.append(privacy_losses(*own, side=side, strategy=strategy))
            np.testing.assert_allclose(*by_form, rtol=2e-6, atol=1e-5)


def _compare(found: np.ndarray, expected: np.ndarray) -> None:
    """Five standard errors, for the mean, the spread and delta; E[exp(-loss)] is 1."""
    for power in (1, 2):
        a, b = found.astype(np.float64) ** power, expected**power
        error = np.sqrt((a.var() + b.var()) / SAMPLES)
        # a certain participation: one Gaussian
        assert abs(a.mean() - b.mean()) < 5 * error + 1e-5
    for epsilon in (0.0, 0.5, 2.0):
        (a, error_a), (b, error_b) = _delta(found, epsilon), _delta(expected, epsilon)
        assert abs(a - b) < 5 * np.hypot(error_a, error_b) + 1e-6
    assert len(np.unique(found)) > 0.99 * SAMPLES


def test_likelihoods_have_mean_one() -> None:
    """E[exp(-loss)] = 1 on both sides.

    The recursion is a density, over many rounds too.
    """
    for scheme, strategy in (
        (
            selection.minimum_separation(selection.bernoulli(3, 0.2), 5),
            toeplitz([1, 0.5], 300),
        ),
        (selection.poisson(3, [0.1, 0.5, 0.9]), None),
    ):
        for side in ("with", "without"):
            losses = privacy_losses(
                scheme,
                _always(),
                300,
                12.0,
                SAMPLES,
                side=side,
                strategy=strategy,
                client=1,
            ).astype(np.float64)
            ratios = np.exp(-losses)
            assert abs(ratios.mean() - 1) < 5 * ratios.std() / np.sqrt(SAMPLES)


@pytest.mark.long
def test_no_bound_is_below_the_pair() -> None:
    """The accountant's figures are never below what the exact pair loses."""
    online = availability.independent(0.25)
    cases: list[tuple[Any, Any, Any]] = [
        (selection.bernoulli(4, 0.2), online, None),
        (selection.minimum_separation(selection.bernoulli(4, 0.3), 4), online, None),
        (
            selection.minimum_separation(selection.bernoulli(4, 0.3), 4),
            online,
            toeplitz([1, 0.5, 0.2], 60),
        ),
        (selection.balls_in_bins(4, 6), _always(), None),
        (selection.balls_in_bins(4, 6), _always(), toeplitz([1, 0.5, 0.2], 60)),
    ]
    for scheme, who, strategy in cases:
        bounds = [
            account(
                scheme,
                who,
                60,
                3.0,
                1e-3,
                adversary="models",
                strategy=strategy,
                method=method,
                trials=500,
            )
            for method in ("auto", "pattern_averaged", "worst_case")
        ]
        drawn = account(
            scheme,
            who,
            60,
            3.0,
            1e-3,
            adversary="models",
            strategy=strategy,
            method="monte_carlo",
            trials=SAMPLES,
        )
        for epsilon in (0.5, 1.5):
            for side in ("with", "without"):
                losses = privacy_losses(
                    scheme, who, 60, 3.0, SAMPLES, side=side, strategy=strategy, seed=1
                )
                delta, error = _delta(losses, epsilon)
                for bound in bounds:
                    assert delta - 5 * error <= bound.delta(epsilon)[0] * (1 + 1e-9)
        assert drawn.lower[0] <= drawn.epsilon[0] <= drawn.upper[0]
        for bound in bounds:
            assert drawn.lower[0] <= bound.upper[0]
        # averaging over patterns gives away who takes part: strictly more, and no more
        # than all
        assert drawn.epsilon[0] < 0.9 * bounds[1].epsilon[0]
        assert bounds[1].epsilon[0] <= bounds[2].epsilon[0] * (1 + 1e-9)


@pytest.mark.long
def test_drawn_interval_holds_poisson() -> None:
    """The known epsilon of Poisson sampling, at two numbers of samples, one of them too few."""
    scheme = selection.bernoulli(4, 0.2)
    known = account(scheme, _always(), 20, 1.5, 1e-2, adversary="models")
    for trials in (200, SAMPLES):
        found = account(
            scheme,
            _always(),
            20,
            1.5,
            1e-2,
            adversary="models",
            method="monte_carlo",
            trials=trials,
            confidence=1 - 1e-6,
        )
        assert (found.lower <= known.epsilon).all()
        assert (known.lower <= found.upper).all()
        assert (found.trials, len(found.notes)) == (trials, 2 if trials == 200 else 1)
    np.testing.assert_allclose(found.epsilon, known.epsilon, rtol=0.1)


def test_samples_do_not_depend_on_how_many() -> None:
    few, many = (
        privacy_losses(_coins(), _always(), 8, 1.0, count) for count in (100, 5000)
    )
    assert (few == many[:100]).all()
    assert not np.isin(many[2048:], many[:2048]).any()


_refused = functools.cache(
    lambda: [
        (
            {"selector": selection.uniform(4, 2)},
            "clients must join by their own coins, or bins",
        ),
        (
            {"selector": selection.batch_partitioning(4, 2, 2, "uniform")},
            "by their own coins",
        ),
        ({"availability": availability.markov(0.1, 2.0)}, "be online independently"),
        (
            {
                "selector": selection.balls_in_bins(4, 2),
                "availability": availability.independent(0.1),
            },
            "with bins everybody must always be online",
        ),
        (
            {
                "selector": selection.balls_in_bins(4, 2, fresh=True),
                "strategy": np.eye(8),
            },
            "with a strategy bins must be drawn once",
        ),
        ({"strategy": toeplitz([1, -0.5], 8)}, "must have no negative entry"),
        (
            {"strategy": toeplitz([1, 0.5, 0.2, 0.1], 8)},
            "must not be wider than the minimum sep",
        ),
        ({"side": "both"}, "`side` must be a known side"),
        ({"samples": 0}, "`samples` must be at least 1"),
        ({"client": 3}, r"`client` must lie in \[0, 2\]; got 3"),
        ({"noise_multiplier": 0.0}, "`noise_multiplier` must be positive and finite"),
    ]
)


@pytest.mark.parametrize("is_bins", [False, True])
def test_hardly_any_noise_shows_each_participation(is_bins: bool) -> None:
    """Whoever sees exact sums gains 1 / (2 z^2) by each round of the client."""
    scheme = selection.balls_in_bins(3, 3) if is_bins else _coins()
    for z in (1e-12, 1e-9):
        losses = privacy_losses(scheme, _always(), 9, z, 200)
        rounds = np.asarray(losses, np.float64) * 2 * z**2
        np.testing.assert_allclose(rounds, np.rint(rounds), atol=1e-3)
        assert rounds.max() >= 1
    for z in (1e-16, 1e-30, 1e-39):
        with pytest.raises(ConfigurationError, match=r"must be at least 9e-14 for"):
            privacy_losses(scheme, _always(), 9, z, 200)


def test_refused() -> None:
    for asked, message in _refused():
        given = {
            "selector": _coins(),
            "availability": _always(),
            "rounds": 8,
            "noise_multiplier": 1.0,
            "samples": 10,
        } | asked
        with pytest.raises(ConfigurationError, match=message):
            inspect.unwrap(privacy_losses)(**given)
    with pytest.raises(
        ConfigurationError, match="must not be 'monte_carlo': the server sees"
    ):
        account(_coins(), _always(), 8, 1.0, method="monte_carlo")
    with pytest.raises(
        ConfigurationError, match="must not be 'monte_carlo': clients must join"
    ):
        account(
            selection.uniform(4, 2),
            _always(),
            8,
            1.0,
            method="monte_carlo",
            adversary="models",
        )
