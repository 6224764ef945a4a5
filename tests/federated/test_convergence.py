"""Theorem 2: published values, its corrections one by one, and training on a known problem."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mrsa_jax._core.streams import (
    Stream,
    as_key,
    client_words,
    fold,
    round_key,
    trial_key,
)
from mrsa_jax.availability import independent
from mrsa_jax.federated import (
    ConvexConstants,
    convergence_bound,
    quadratic_problem,
    rounds_to_reach,
    simulate_convergence,
)
from mrsa_jax.federated._convergence import _binomial_law
from mrsa_jax.selection import (
    batch_partitioning,
    enumerate_family,
    expected_cardinality,
    rollout_trials,
    uniform,
)
from mrsa_watch._base.errors import ConfigurationError

ONES = {
    "smoothness": 1.0,
    "strong_convexity": 1.0,
    "gradient_variance": 1.0,
    "gradient_bound": 1.0,
    "squared_distance": 1.0,
}


def unit_constants(**changes: Any) -> ConvexConstants:
    return ConvexConstants(**ONES | changes)


@pytest.mark.parametrize(
    ("cardinality", "printed"),
    [(12.0, 0.0617293646), (6.0, 0.1158779301), (1.2, 0.3885318833)],
)
def test_published_sanity_values(cardinality: float, printed: float) -> None:
    value = convergence_bound(
        120, 12, 1, 100, cardinality, unit_constants(), form="printed"
    )
    assert value == pytest.approx(printed, abs=5e-11)


@pytest.mark.smoke
def test_printed_takes_jensen_the_wrong_way() -> None:
    """C = 1.2: .3885 as printed, .4012 over the binomial number of rounds (docs/errata.md)."""
    executed = np.arange(101)
    alpha_beta = 1.0 + 4.0 * 108 / (12 * 119)
    rates = (2.0 * alpha_beta + 4.0) / (8.0 + executed - 1.0)
    exact = stats.binom(100, 0.1).pmf(executed) @ rates
    assert exact == pytest.approx(0.4012, abs=5e-5)
    assert convergence_bound(120, 12, 1, 100, 1.2, unit_constants()) == pytest.approx(
        exact, rel=1e-12
    )
    # No round is skipped: both forms agree. Every round is: the start's bound remains.
    both = [
        convergence_bound(120, 12, 1, 100, 12.0, unit_constants(), form=f)
        for f in ("printed", "corrected")
    ]
    assert both[0] == both[1]
    assert convergence_bound(120, 12, 1, 100, 0.0, unit_constants()) == pytest.approx(
        rates[0], rel=1e-14
    )
    for c in (0.5, 3.0, 9.0):
        printed, right = (
            convergence_bound(120, 12, 1, 50, c, unit_constants(), form=f)
            for f in ("printed", "corrected")
        )
        assert printed < right


def test_terms_by_hand() -> None:
    """Every constant different, against the formula written out."""
    minima = np.linspace(-1.0, 0.5, 12)
    constants = ConvexConstants(
        smoothness=3.0,
        strong_convexity=0.5,
        gradient_variance=1.0,
        gradient_bound=1.5,
        squared_distance=2.5,
        minimum=0.25,
        client_minima=tuple(minima.tolist()),
    )
    steps, rounds, cardinality = 3, 40, 4.5
    gamma = max(8 * 3.0 / 0.5, steps)
    for form, heterogeneity, beta in (
        ("printed", 0.25 - minima.sum(), 4 * (12 - 6) * 9 * 1.5**2 / (6 * 11)),
        (
            "corrected",
            0.25 - minima.mean(),
            4 * 2 * (12 - 6) * 9 * 1.5**2 / (6 * (12 - 2)),
        ),
    ):
        alpha = 1.0 + 6 * 3.0 * heterogeneity + 8 * 4 * 1.5**2
        scale = 2 * (alpha + beta) / 0.25 + gamma / 2 * 2.5
        if form == "printed":
            expected = 3.0 / (gamma + 0.75 * steps * rounds - 1) * scale
        else:
            x = np.arange(rounds + 1)
            law = stats.binom(rounds, 0.75).pmf(x)
            expected = (law * 3.0 / (gamma + steps * x - 1) * scale).sum()
        value = convergence_bound(
            12, 6, 2, rounds, cardinality, constants, local_steps=steps, form=form
        )
        assert value == pytest.approx(expected, rel=1e-12)


def test_everybody_draws_without_variance() -> None:
    """K = N (also T = N): beta is 0 in both forms."""
    for t in (1, 3, 6):
        for form in ("printed", "corrected"):
            value = convergence_bound(6, 6, t, 10, 6.0, unit_constants(), form=form)
            assert value == pytest.approx((2.0 + 4.0) / 17.0, rel=1e-14)


@pytest.mark.parametrize(
    ("n", "k", "t"), [(12, 6, 1), (12, 6, 2), (12, 4, 4), (12, 3, 3)]
)
def test_variance_of_drawing_blocks(n: int, k: int, t: int) -> None:
    """Lemma (22) by enumeration.

    Values equal within blocks attain the corrected factor.
    """
    rng = np.random.default_rng(n + k + t)
    family = enumerate_family(n, k, t).astype(float) / k
    v = np.repeat(rng.normal(size=(n // t, 2)), t, axis=0)
    spread = ((v - v.mean(0)) ** 2).sum(1).mean()
    truth = ((family @ v - v.mean(0)) ** 2).sum(1).mean()
    assert truth == pytest.approx(t * (n - k) / (k * (n - t)) * spread, rel=1e-12)
    printed = (n - k) / (k * (n - 1)) * spread
    assert (truth > printed * (1 + 1e-9)) == (t > 1)
    w = rng.normal(size=(n, 2))  # in general it is an upper bound
    spread = ((w - w.mean(0)) ** 2).sum(1).mean()
    truth = ((family @ w - w.mean(0)) ** 2).sum(1).mean()
    assert truth <= t * (n - k) / (k * (n - t)) * spread * (1 + 1e-12)


def test_binomial_law_of_many_rounds() -> None:
    for trials, chance in ((1, 0.5), (10, 0.0), (10, 1.0), (2000, 1e-3), (2000, 0.97)):
        law = stats.binom(trials, chance).pmf(np.arange(trials + 1))
        assert np.allclose(_binomial_law(trials, chance), law, rtol=1e-9, atol=1e-300)


@pytest.mark.long
def test_constants_of_the_problem() -> None:
    problem = quadratic_problem(3, 6, 3, num_samples=4, curvature=(0.5, 2.0))
    start = np.array([2.0, -1.0, 0.5])
    constants = problem.constants(start)
    h = np.asarray(problem.curvatures, float)
    c = np.asarray(problem.samples, float)
    assert constants.smoothness == h.max() <= 2.0
    assert constants.strong_convexity == h.min() >= 0.5

    def loss(i: int, x: np.ndarray) -> float:
        return np.mean([h[i] @ (x - sample) ** 2 / 2 for sample in c[i]])

    def total(x: np.ndarray) -> float:
        return np.mean([loss(i, x) for i in range(6)])

    optimum = problem.optimum
    assert problem.loss(start) == pytest.approx(total(start), rel=1e-12)
    assert constants.minimum == pytest.approx(total(optimum), rel=1e-12)
    assert constants.squared_distance == pytest.approx(((start - optimum) ** 2).sum())
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert total(optimum + rng.normal(size=3) * 0.1) > constants.minimum
    for i in range(6):
        centre = c[i].mean(0)
        assert constants.client_minima[i] == pytest.approx(loss(i, centre), rel=1e-12)
    # Variance of one sample's gradient, and its norm anywhere in the box.
    gradients = h[:, None] * (start - c)
    variance = ((gradients - gradients.mean(1, keepdims=True)) ** 2).sum(2).mean()
    assert constants.gradient_variance == pytest.approx(variance, rel=1e-12)
    low, high = (
        f(np.concatenate([c.reshape(-1, 3), start[None]]), 0) for f in (np.min, np.max)
    )
    ends = zip(low.tolist(), high.tolist(), strict=True)
    points = np.concatenate(
        [rng.uniform(low, high, (500, 3)), np.array(list(itertools.product(*ends)))]
    )
    norms = ((h[:, None] * (points[:, None, None] - c)) ** 2).sum(3).mean(2)
    assert norms.max() <= constants.gradient_bound**2 * (1 + 1e-12)
    gap = float(problem.gap(jnp.asarray(start, jnp.float32)))
    assert gap == pytest.approx(total(start) - total(optimum), rel=1e-5)


def test_blocks_share_their_centres() -> None:
    problem = quadratic_problem(0, 6, 2, block_size=3, noise=0.0)
    blocks = np.asarray(problem.samples).reshape(2, 3, -1)
    assert (blocks == blocks[:, :1]).all()
    assert (blocks[0, 0] != blocks[1, 0]).all()


@pytest.mark.long
def test_training_against_a_plain_loop() -> None:
    """Two trials, E = 3, skipped rounds among them, on the same words in float64."""
    n, steps, rounds = 6, 3, 12
    problem = quadratic_problem(1, n, 2, num_samples=5)
    selector, online = batch_partitioning(n, 4, 2, "uniform"), independent(0.35)
    start = np.array([1.5, -2.0])
    history = np.asarray(rollout_trials(7, selector, online, rounds, 2))
    assert 0 < history.any(-1).sum() < 2 * rounds
    gaps = simulate_convergence(
        7, problem, selector, online, rounds, 2, local_steps=steps, initial=start
    )
    h, c = np.asarray(problem.curvatures, float), np.asarray(problem.samples, float)
    mu, gamma = h.min(), max(8 * h.max() / h.min(), steps)
    for b in range(2):
        x, done, expected = start.copy(), 0, [problem.loss(start)]
        for j in range(rounds):
            cohort = np.flatnonzero(history[b, j])
            key = round_key(trial_key(as_key(7), b), j, Stream.LOCAL_TRAINING)
            words = [np.asarray(client_words(fold(key, s), n)) for s in range(steps)]
            models = []
            for i in cohort:
                local = x.copy()
                for s in range(steps):
                    sample = c[i, words[s][i] % 5]
                    local -= 2 / (mu * (gamma + done + s)) * h[i] * (local - sample)
                models.append(local)
            if models:
                x, done = np.mean(models, axis=0), done + steps
            expected.append(problem.loss(x))
        expected = np.array(expected) - problem.loss(problem.optimum)
        assert np.allclose(gaps[b], expected, rtol=1e-4, atol=1e-6)


TRIALS = 1500


@pytest.mark.long("1", "2")
@pytest.mark.parametrize("t", [1, 2, 4])
def test_mean_gap_against_its_exact_recursion(t: int) -> None:
    """One curvature, E = 1, nobody away.

    E|x - x*|^2 follows from the variance of a round's mean.
    Centres are shared within blocks of 4, so that drawing blocks of T = 4 has seven
    times the variance of drawing clients. Tolerance: 5.7 standard errors at 75 points
    (1e-6 in all).
    """
    n, k, rounds, h = 8, 4, 25, 2.0
    problem = quadratic_problem(2, n, 2, curvature=(h, h), block_size=4, noise=0.3)
    c = np.asarray(problem.samples, float)
    centres, optimum = c.mean(1), problem.optimum
    within = ((c - centres[:, None]) ** 2).sum(2).mean(1)
    means = enumerate_family(n, k, t).astype(float) @ centres / k
    variance = ((means - optimum) ** 2).sum(1).mean() + within.mean() / k
    expected = [((problem.optimum - 1.0) ** 2).sum()]
    for j in range(rounds):
        rate = 2 / (h * (8 + j)) * h
        expected.append((1 - rate) ** 2 * expected[-1] + rate**2 * variance)
    gaps = simulate_convergence(
        t,
        problem,
        batch_partitioning(n, k, t, "uniform"),
        independent(0.0),
        rounds,
        TRIALS,
        initial=np.ones(2),
    )
    gaps = np.asarray(gaps, float)
    error = gaps.std(0) / math.sqrt(TRIALS)
    distance = np.abs(gaps.mean(0) - h / 2 * np.array(expected))
    assert (distance <= 5.7 * error + 1e-5).all()


@pytest.mark.long
@pytest.mark.parametrize(
    ("t", "rate", "steps"), [(1, 0.0, 1), (2, 0.4, 1), (4, 0.5, 1), (2, 0.3, 4)]
)
def test_bound_holds_in_simulation(t: int, rate: float, steps: int) -> None:
    """Mean loss gap after every tenth round is below the corrected bound."""
    n, k, rounds = 8, 4, 40
    problem = quadratic_problem(5, n, 2, curvature=(1.0, 2.0), block_size=t, noise=0.2)
    start = np.array([2.0, 2.0])
    gaps = simulate_convergence(
        11,
        problem,
        batch_partitioning(n, k, t, "uniform"),
        independent(rate),
        rounds,
        400,
        local_steps=steps,
        initial=start,
    )
    constants = problem.constants(start)
    cardinality = expected_cardinality(n, k, t, rate)
    mean = np.asarray(gaps, float).mean(0)
    error = np.asarray(gaps, float).std(0) / 20
    for j in range(10, rounds + 1, 10):
        bound = convergence_bound(n, k, t, j, cardinality, constants, local_steps=steps)
        assert mean[j] + 5 * error[j] <= bound
    assert mean[rounds] < mean[0] / 4  # and it does converge


@pytest.mark.long
def test_fewer_executed_rounds_are_slower() -> None:
    """The theorem's message: smaller C, slower training.

    Bound and simulation agree in order.
    """
    problem = quadratic_problem(5, 8, 2, noise=0.1, spread=0.3)
    start, finals, bounds = np.array([3.0, 3.0]), [], []
    for rate in (0.0, 0.4, 0.7):
        scheme = batch_partitioning(8, 4, 4, "uniform")
        gaps = simulate_convergence(
            1, problem, scheme, independent(rate), 30, 300, initial=start
        )
        finals.append(float(gaps[:, -1].mean()))
        c = expected_cardinality(8, 4, 4, rate)
        bounds.append(convergence_bound(8, 4, 4, 30, c, problem.constants(start)))
    assert finals == sorted(finals)
    assert bounds == sorted(bounds)


def test_new_numbers_compile_nothing_new(compilations: Any) -> None:
    arguments = (uniform(4, 2), independent(0.1), 5, 2)
    simulate_convergence(0, quadratic_problem(0, 4, 2), *arguments)
    other = quadratic_problem(1, 4, 2, curvature=(2.0, 3.0))
    with compilations() as compiled:
        simulate_convergence(
            1, other, uniform(4, 3), independent(0.3), 5, 2, initial=[1.0, 2.0]
        )
    assert compiled == []
    assert jax.tree.structure(other) == jax.tree.structure(quadratic_problem(0, 4, 2))


def as_fraction(value: Any) -> Fraction:
    return Fraction(value)  # floats are exact rationals


def rational_bound(
    sizes: tuple[int, int, int],
    rounds: int,
    cardinality: float,
    constants: ConvexConstants,
    steps: int,
    form: str,
) -> Fraction:
    """Return (8), as printed or corrected, from the paper's text in rationals."""
    n, k, t = sizes
    rho, mu, variance, g, distance = map(
        as_fraction, dataclasses.astuple(constants)[:5]
    )
    minima = list(map(as_fraction, constants.client_minima))
    minima = minima * n if len(minima) == 1 else minima
    is_printed = form == "printed"
    gamma_letter = as_fraction(constants.minimum) - sum(minima) / (
        1 if is_printed else n
    )
    alpha = variance + 6 * rho * gamma_letter + 8 * (steps - 1) ** 2 * g**2
    if n == k:
        beta = Fraction(0)
    elif is_printed:
        beta = 4 * (n - k) * steps**2 * g**2 / Fraction(k * (n - 1))
    else:
        beta = 4 * t * (n - k) * steps**2 * g**2 / Fraction(k * (n - t))
    gamma = max(8 * rho / mu, Fraction(steps))
    scale = 2 * (alpha + beta) / mu**2 + gamma / 2 * distance
    share = as_fraction(cardinality) / k

    def value(iterations: Fraction) -> Fraction:
        return rho * scale / (gamma + iterations - 1)

    if is_printed:
        return value(share * steps * rounds)
    return sum(
        math.comb(rounds, x)
        * share**x
        * (1 - share) ** (rounds - x)
        * value(Fraction(steps * x))
        for x in range(rounds + 1)
    )


def random_settings(count: int) -> Iterator[tuple[Any, ...]]:
    rng = np.random.default_rng(56)
    for number in range(count):
        t = int(rng.integers(1, 5))
        k = t * int(rng.integers(1, 4))
        n = k + t * int(rng.integers(0, 5))
        mu = float(rng.uniform(0.1, 2.0))
        is_each = number % 2 == 0
        minima = rng.normal(size=n if is_each else 1)
        constants = ConvexConstants(
            mu * float(rng.uniform(1.0, 8.0)),
            mu,
            *rng.uniform(0.0, 3.0, 3).tolist(),
            minimum=float(minima.mean() + rng.uniform(0.0, 1.0)),
            client_minima=tuple(minima.tolist()),
        )
        steps = (1, 3, 8, int(rng.integers(1, 40)))[number % 4]
        cardinality = float(rng.uniform(0.0, k)) if number % 5 else float(k)
        yield (n, k, t), int(rng.integers(1, 60)), cardinality, constants, steps


def test_both_forms_at_80_random_settings_in_rationals() -> None:
    for sizes, rounds, cardinality, constants, steps in random_settings(80):
        for form in ("printed", "corrected"):
            exact = rational_bound(sizes, rounds, cardinality, constants, steps, form)
            value = convergence_bound(
                *sizes, rounds, cardinality, constants, local_steps=steps, form=form
            )
            assert value == pytest.approx(float(exact), rel=1e-11, abs=1e-12)


def test_rounds_are_the_fewest_by_search() -> None:
    for sizes, rounds, cardinality, constants, steps in random_settings(12):
        if cardinality < 0.1:
            continue
        words = {"local_steps": steps}
        bounds = [
            convergence_bound(*sizes, j, cardinality, constants, **words)
            for j in range(1, rounds + 1)
        ]
        assert all(np.diff(bounds) <= 1e-12 * np.abs(bounds[1:]))
        for gap in (bounds[-1] * 1.0001, (bounds[0] + bounds[-1]) / 2):
            if gap <= 0:
                continue
            found = rounds_to_reach(gap, *sizes, cardinality, constants, **words)
            assert found == 1 + next(j for j, b in enumerate(bounds) if b <= gap)


def test_rounds_by_the_printed_form_are_inversely_as_c() -> None:
    unit = unit_constants(squared_distance=2.0)
    for c in (12.0, 6.0, 1.5):
        gap = convergence_bound(120, 12, 1, 1200, 12.0, unit, form="printed")
        found = rounds_to_reach(gap * (1 + 1e-12), 120, 12, 6, c, unit, form="printed")
        assert found == round(1200 * 12.0 / c)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_rounds": 0}, "num_rounds"),
        ({"cardinality": 4.5}, "cardinality"),
        ({"cardinality": math.nan}, "cardinality"),
        ({"local_steps": 0}, "local_steps"),
        ({"privacy_target": 3}, "multiple"),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "num_clients": 8,
        "cohort_size": 4,
        "privacy_target": 2,
        "num_rounds": 5,
        "cardinality": 2.0,
        "constants": unit_constants(),
    }
    with pytest.raises(ConfigurationError, match=message):
        convergence_bound(**good | changes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("smoothness", 0.0),
        ("strong_convexity", 2.0),
        ("strong_convexity", 0.0),
        ("gradient_variance", -1.0),
        ("gradient_bound", math.inf),
        ("squared_distance", math.nan),
        ("minimum", math.nan),
        ("minimum", -0.1),  # a least mean is no less than the mean of the least
        ("client_minima", ()),
        ("client_minima", (0.0, math.nan)),
    ],
)
def test_wrong_constants_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"`{name}` must"):
        ConvexConstants(**ONES | {name: value})


def test_what_no_round_reaches_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="`cardinality` must be positive"):
        rounds_to_reach(0.1, 8, 4, 2, 0.0, unit_constants())
    with pytest.raises(ConfigurationError, match="within 10,000,000 rounds"):
        rounds_to_reach(1e-9, 8, 4, 2, 4.0, unit_constants(), form="printed")
    two = unit_constants(client_minima=(0.0, -1.0))
    with pytest.raises(ConfigurationError, match="`client_minima` must"):
        convergence_bound(8, 4, 2, 5, 2.0, two)
