"""The figure of policies shows the numbers that it is given."""

from __future__ import annotations

import inspect

import matplotlib.pyplot as plt
import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.plotting import plot_policies
from mrsa_jax.privacy._policies import PolicyPrivacy

RNG = np.random.default_rng(0)
STRONG = RNG.integers(1, 5, (3, 4, 6))
RESULTS = PolicyPrivacy(
    policies=("ignore", "abort", "drop_block"),
    step_dropout_rates=np.array([0.0, 0.01, 0.02, 0.05]),
    strong=STRONG,
    weak_lower=STRONG,
    weak_upper=STRONG + 1,
    rounds_kept=0.2 + 0.8 * RNG.random((3, 4, 6)),
    cardinality=RNG.random((3, 4, 6)) * 8,
)


def test_an_unknown_quantity_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="`quantity` must be a known quantity"):
        inspect.unwrap(plot_policies)(RESULTS, quantity="strnog")


@pytest.mark.parametrize(
    ("quantity", "values"),
    [
        ("strong", RESULTS.strong),
        ("weak", RESULTS.weak_lower),
        ("rounds_kept", 100 * RESULTS.rounds_kept),
        ("cardinality", RESULTS.cardinality),
    ],
)
def test_curves_are_means_over_trials(quantity: str, values: np.ndarray) -> None:
    ax = plot_policies(RESULTS, quantity=quantity)  # type: ignore[arg-type]
    named = {line.get_label().split(":")[0]: line for line in ax.get_lines()}
    for i, name in enumerate(("ignore", "abort", "drop block")):
        np.testing.assert_allclose(named[name].get_ydata(), values[i].mean(axis=-1))
        np.testing.assert_allclose(named[name].get_xdata(), [0, 1, 2, 5])
    # upper bounds are drawn too
    assert len(ax.get_lines()) == (6 if quantity == "weak" else 3)
    assert ax.get_xlabel().endswith("(%)")
    plt.close(ax.figure)


def test_trials_in_which_nothing_was_learnt_are_left_out() -> None:
    strong = STRONG.copy()
    strong[0, 0] = [-1, -1, 2, 4, -1, -1]
    strong[0, 1] = -1
    results = PolicyPrivacy(**(vars(RESULTS) | {"strong": strong}))
    figure, own = plt.subplots()
    ax = plot_policies(results, ax=own)
    assert ax is own
    shown = np.asarray(ax.get_lines()[0].get_ydata())
    assert shown[0] == 3
    assert np.isnan(shown[1])
    plt.close(figure)


def test_privacy_is_not_drawn_where_hardly_any_round_has_a_sum() -> None:
    kept = np.full((3, 4, 6), 0.9)
    kept[1, 2:] = 0.05
    results = PolicyPrivacy(**(vars(RESULTS) | {"rounds_kept": kept}))
    ax = plot_policies(results)
    ignore, abort, drop = (
        np.asarray(line.get_ydata(), float) for line in ax.get_lines()
    )
    assert np.isfinite(ignore).all()
    assert np.isfinite(drop).all()
    assert np.isfinite(abort).tolist() == [True, True, False, False]
    assert ax.get_lines()[1].get_label() == "abort: too few sums beyond"
    costs = plot_policies(results, quantity="rounds_kept")
    drawn = [np.asarray(line.get_ydata(), float) for line in costs.get_lines()[:3]]
    assert np.isfinite(drawn).all()
    plt.close("all")
