"""What blocks cost in amplification: mixtures by quadrature and by draws.

The figure shows it.
"""

from __future__ import annotations

import inspect
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import integrate, stats

import mrsa_jax as mj
from mrsa_jax.dp import amplification
from mrsa_jax.dp._amplification import block_losses


def _density(x: Any, chance: float, mean: float) -> Any:
    return (1 - chance) * stats.norm.pdf(x) + chance * stats.norm.pdf(x, mean)


@pytest.mark.long
def test_a_round_of_blocks_gives_participation_away() -> None:
    """One round, q = 0.1, noise multiplier 1, delta at epsilon = 1; by quadrature too."""
    figures = {2: "7.7e-03", 3: "1.2e-02", 4: "1.3e-02", 6: "1.3e-02"}
    for target, figure in figures.items():
        found = block_losses(0.1, target, 1.0).get_delta_for_epsilon(1.0)
        assert f"{found:.1e}" == figure

        def stick(first: int, second: int) -> float:
            def gain(x: float) -> float:
                return max(
                    _density(x, 0.1, first) - np.e * _density(x, 0.1, second), 0.0
                )

            return integrate.quad(gain, -10, 20, limit=500, epsabs=1e-11)[0]

        exact = max(stick(target, target - 1), stick(target - 1, target))
        np.testing.assert_allclose(found, exact, rtol=3e-3)
        assert found <= exact * (1 + 1e-9)  # a lower bound
        unamplified = stats.norm.cdf(-0.5) - np.e * stats.norm.cdf(-1.5)
        assert found < 0.1 * unamplified


def test_who_removes_and_who_adds_a_client_are_not_exchanged() -> None:
    """Privacy losses of a sum with the client against one without it, and the other way round."""
    target, grid = 3, np.linspace(-9.0, 13.0, 20_001)
    found = block_losses(0.1, target, 1.0)
    with_it, without = (_density(grid, 0.1, mean) for mean in (target, target - 1))
    for own, more, less in (
        (found._pmf_remove, with_it, without),
        (found._pmf_add, without, with_it),
    ):
        exact = integrate.trapezoid(np.maximum(more - np.exp(1.0) * less, 0.0), grid)
        np.testing.assert_allclose(
            own.get_delta_for_epsilon(1.0), exact, rtol=5e-3, atol=1e-7
        )


def test_losses_of_what_rounding_alone_leaves_are_small() -> None:
    """Rounds are composed cell by cell: 10^-3 each, of losses up to 20 at most."""
    assert block_losses(0.5, 2, 4.0)._pmf_remove.size < 20_000


@pytest.mark.long
def test_rounds_of_blocks_compose() -> None:
    """Against draws of five rounds, of either side."""
    chance, target, noise, rounds = 0.3, 3, 1.5, 5
    generator = np.random.default_rng(0)
    composed = block_losses(chance, target, noise).self_compose(rounds)
    for epsilon in (0.5, 2.0):
        sides = []
        for own, other in ((target, target - 1), (target - 1, target)):
            joins = generator.random((200_000, rounds)) < chance
            shown = generator.normal(size=joins.shape) + joins * own / noise
            ratios = _density(shown, chance, own / noise) / _density(
                shown, chance, other / noise
            )
            gains = np.maximum(0.0, 1 - np.exp(epsilon) / ratios.prod(axis=1))
            sides.append((gains.mean(), gains.std() / np.sqrt(len(gains))))
        delta, error = max(sides)
        assert (
            abs(composed.get_delta_for_epsilon(epsilon) - delta)
            < 5 * error + 0.005 * delta
        )


@pytest.mark.long
def test_what_blocks_cost_and_buy() -> None:
    costs = amplification(24, 6, [1, 6], 30, 3.0, dropout_rate=0.1)
    assert (costs.one_by_one[1:] < costs.blocks[1:]).all()
    assert (np.diff(costs.blocks) > 0).all()
    assert (costs.blocks < costs.server).all()
    assert costs.blocks[0] <= costs.one_by_one[0]
    np.testing.assert_allclose(costs.hidden_among, [1, 6], rtol=1e-6)
    np.testing.assert_allclose(costs.cardinality, 24 * costs.chances, rtol=1e-8)
    with pytest.raises(mj.ConfigurationError, match="`dropout_rate` must lie in"):
        inspect.unwrap(amplification)(24, 6, [1], 60, 3.0, dropout_rate=1.5)
    with pytest.raises(
        mj.ConfigurationError, match="must be a multiple of `privacy_target`"
    ):
        amplification(24, 6, [4], 60, 3.0)

    ax = mj.plotting.plot_amplification(costs)
    lines = [np.asarray(line.get_ydata(), float) for line in ax.lines]
    for line, values in zip(
        lines, (costs.server, costs.blocks, costs.one_by_one), strict=True
    ):
        assert (line == values).all()
    assert [tick.get_text() for tick in ax.get_xticklabels()][1].startswith("6 (6, ")
    assert "30 rounds" in ax.get_label()
    plt.close("all")
