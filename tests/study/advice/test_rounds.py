"""What T costs in rounds: by C in rationals, and by Theorem 2's bound written out."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax.study.advice._rounds import RoundsPrice
from mrsa_watch._base.errors import ConfigurationError

N, K = 24, 6
UNIT = (2.0, 1.0, 0.5, 1.5, 3.0, 0.25)  # rho, mu, sigma^2, G, |x(0) - x*|^2, Gamma


def advise(**settings: Any) -> dict[str, RoundsPrice]:
    found = mj.study.advise(N, K, 0.25, **{"trials": 0} | settings)
    return {price.scheme: price for price in found.prices}


def exact_cardinality(target: int, rate: Fraction) -> Fraction:
    """Return C by Theorem 1: K times P(K/T blocks or more are online)."""
    blocks, online = N // target, (1 - rate) ** target
    share = sum(
        math.comb(blocks, i) * online**i * (1 - online) ** (blocks - i)
        for i in range(K // target, blocks + 1)
    )
    return K * share


def bound(target: int, rounds: int, share: float, steps: int) -> float:
    """Return the corrected (8) from its text."""
    rho, mu, variance, g, distance, heterogeneity = UNIT
    alpha = variance + 6 * rho * heterogeneity + 8 * (steps - 1) ** 2 * g**2
    beta = 4 * target * (N - K) * steps**2 * g**2 / (K * (N - target))
    gamma = max(8 * rho / mu, steps)
    x = np.arange(rounds + 1)
    scale = 2 * (alpha + beta) / mu**2 + gamma / 2 * distance
    law = stats.binom.pmf(x, rounds, share)
    return float(law @ (rho * scale / (gamma + steps * x - 1)))


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_rounds_of_each_t(steps: int) -> None:
    prices = advise(rounds=100, convergence=UNIT, local_steps=steps)
    rate = Fraction(1, 4)  # exact in single precision, as rates are
    random = float(exact_cardinality(1, rate)) / K
    for target in (2, 3):
        price = prices[f"batch_partitioning:{target}"]
        share = float(exact_cardinality(target, rate)) / K
        assert price.by_cardinality == pytest.approx(100 * random / share, rel=1e-12)
        most = target * (N - 1) / (N - target)
        assert price.by_bound_most == pytest.approx(
            price.by_cardinality * most, rel=1e-12
        )
        gap = bound(1, 100, random, steps)
        assert price.gap == pytest.approx(gap, rel=1e-12)
        assert price.by_bound is not None
        assert bound(target, price.by_bound, share, steps) <= gap
        assert bound(target, price.by_bound - 1, share, steps) > gap
    # lines are no whole blocks: the theorem states nothing of them
    assert prices["crossing_partitions:2"].by_bound_most is None
    assert "uniform" not in prices


@pytest.mark.long
def test_the_most_is_met_if_drawing_blocks_decides() -> None:
    only_drawing = (1.0, 1.0, 0.0, 1.0, 0.0, 0.0)
    for scheme, price in advise(rounds=20_000, convergence=only_drawing).items():
        if price.by_bound_most is None:
            continue
        assert price.by_bound == pytest.approx(price.by_bound_most, rel=2e-3), scheme
    for scheme, price in advise(rounds=20_000, convergence=UNIT).items():
        if price.by_bound_most is not None:
            assert price.by_bound is not None
            assert price.by_cardinality <= price.by_bound <= price.by_bound_most, scheme


def test_the_words_give_the_chosen_scheme_and_blocks_of_its_t() -> None:
    found = mj.study.advise(N, K, 0.2, trials=0, want_privacy=2, rounds=100)
    words = " ".join(found.sentences)
    assert "batch_partitioning:2 needs about" in words
    assert "batch_partitioning:3 needs" not in words
    assert "given constants" not in words
    names = [price["scheme"] for price in found.to_dict()["prices_in_rounds"]]
    assert names == [price.scheme for price in found.prices]
    zeros = mj.study.advise(
        N, K, 0.2, trials=0, want_hidden=3.0, convergence=(1.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    )
    assert "reached by batch_partitioning:3 after 1 round." in " ".join(zeros.sentences)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_rate": 0.1},
        {"availability": "markov:3"},
        {"dropout_rate": (0.1, 0.3)},
    ],
)
def test_the_theorem_is_about_one_rate_and_no_losses(settings: dict[str, Any]) -> None:
    words = {"num_clients": N, "cohort_size": K, "dropout_rate": (0.25,)} | settings
    prices = mj.study.advise(**words, trials=0).prices
    # C of long absences is not known without a simulation
    assert (not prices) == ("availability" in settings)
    assert all(price.by_bound_most is None for price in prices)
    with pytest.raises(ConfigurationError, match="`convergence` must not be set"):
        mj.study.advise(**words, trials=0, convergence=UNIT)


@pytest.mark.parametrize(
    "values",
    [
        UNIT[:5],
        (*UNIT, 1.0),
        (0.5, 1.0, 1.0, 1.0, 1.0, 0.0),
        (1.0, 0.0, 1.0, 1.0, 1.0, 0.0),
        (1.0, 1.0, -1.0, 1.0, 1.0, 0.0),
        (1.0, 1.0, math.inf, 1.0, 1.0, 0.0),
        (math.nan, 1.0, 1.0, 1.0, 1.0, 0.0),
    ],
)
def test_other_constants_are_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ConfigurationError, match="`convergence` must"):
        advise(convergence=values)


def test_local_steps_are_those_of_the_bound() -> None:
    with pytest.raises(ConfigurationError, match="`local_steps` must be used together"):
        advise(local_steps=3)
