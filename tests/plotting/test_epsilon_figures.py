"""Figures of differential privacy show the numbers they are given."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.legend import Legend

from mrsa_jax import ConfigurationError, plotting

SCHEMES = ["Random", "Multi-RoundSecAgg (T=3)"]


@pytest.fixture
def results() -> xr.Dataset:
    rng = np.random.default_rng(0)
    dims = ("scheme", "evaluation")
    mean = np.cumsum(rng.uniform(0.1, 1.0, (2, 4)), axis=1)
    variables = {
        "accuracy": (dims, rng.uniform(0.1, 0.9, (2, 4))),
        "epsilon_mean": (dims, mean),
        "epsilon_worst": (dims, 1.5 * mean),
    }
    return xr.Dataset(variables, coords={"scheme": SCHEMES, "evaluation": [2, 4, 6, 8]})


def test_epsilon_over_rounds_and_accuracy_against_it(results: xr.Dataset) -> None:
    figures = ("epsilon", "accuracy_epsilon")
    spent, learnt = (plotting.plot_study(results, name) for name in figures)
    for k, label in enumerate(SCHEMES):
        own = results.isel(scheme=k)
        worst, mean = spent.get_lines()[2 * k : 2 * k + 2]
        np.testing.assert_allclose(mean.get_ydata(), own["epsilon_mean"])
        np.testing.assert_allclose(worst.get_ydata(), own["epsilon_worst"])
        np.testing.assert_array_equal(mean.get_xdata(), [2, 4, 6, 8])
        thick, thin = learnt.get_lines()[2 * k : 2 * k + 2]
        for line, name in ((thick, "epsilon_worst"), (thin, "epsilon_mean")):
            np.testing.assert_allclose(line.get_xdata(), own[name])
            np.testing.assert_allclose(line.get_ydata(), 100 * own["accuracy"])
        for line in (mean, worst, thick, thin):
            assert line.get_color() == plotting.scheme_colour(label)
        assert worst.get_label() == thick.get_label() == label
        assert worst.get_lw() == thick.get_lw() > thin.get_lw() == mean.get_lw()
    (key,) = [part for part in spent.get_children() if isinstance(part, Legend)]
    meanings = {
        text.get_text(): line
        for text, line in zip(key.texts, key.get_lines(), strict=True)
    }
    assert meanings["worst client"].get_lw() > meanings["mean client"].get_lw()
    assert spent.get_legend() is None  # names stand at the curves
    plt.close("all")


def test_points_of_one_noise_are_pooled_and_those_without_are_levels() -> None:
    table = pd.DataFrame(
        [
            {
                "scheme": "Random",
                "noise_multiplier": noise,
                "accuracy": accuracy,
                "epsilon_worst": epsilon,
                "epsilon_mean": epsilon / 2,
            }
            for noise, accuracy, epsilon in (
                (2.0, 0.5, 1.0),
                (2.0, 0.7, 3.0),
                (1.0, 0.8, 10.0),
                (0.0, 0.9, np.inf),
                (0.5, np.nan, 20.0),
            )
        ]
    )
    ax = plotting.plot_accuracy_epsilon(table)
    worst, mean, level = ax.get_lines()[:3]
    np.testing.assert_allclose(worst.get_xdata(), [2, 10])
    np.testing.assert_allclose(worst.get_ydata(), [60, 80])
    np.testing.assert_allclose(mean.get_xdata(), [1, 5])
    assert set(level.get_ydata()) == {90}
    assert (worst.get_label(), level.get_label()) == ("Random", "_Random, no noise")
    band = ax.collections[0].get_paths()[0].vertices
    assert {(2.0, 50.0), (2.0, 70.0), (10.0, 80.0)} == {
        tuple(corner) for corner in band.round(9)
    }
    assert ax.get_xscale() == "log"
    one = plotting.plot_accuracy_epsilon(
        table.drop(columns="noise_multiplier"), hue=None
    )
    np.testing.assert_allclose(one.get_lines()[0].get_xdata(), [1, 3, 10])
    noisy = table[table["noise_multiplier"] > 0]
    # and no warning
    assert plotting.plot_accuracy_epsilon(noisy, hue=None).get_legend() is None
    for wrong, message in (
        (
            table.drop(columns="epsilon_mean"),
            "`table` must have the columns .*; got .*epsilon_m",
        ),
        (
            table[table["noise_multiplier"] == 0],
            "`table` must have a point with noise and an acc",
        ),
    ):
        with pytest.raises(ConfigurationError, match=message):
            plotting.plot_accuracy_epsilon(wrong)
    plt.close("all")
