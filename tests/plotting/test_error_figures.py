"""Figures of attacks on sums show the errors and rates that they are given."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mrsa_jax import plotting


@pytest.fixture(autouse=True)
def _close() -> object:
    yield
    plt.close("all")


def test_a_histogram_has_shares_of_clients_and_the_mean() -> None:
    """Of four clients one is far below the axes and drawn at their left end, with the others."""
    data = pd.DataFrame(
        {
            "scheme": ["Random"] * 4 + ["User partition"] * 2,
            "error": [1e-20, 0.5, 0.5, 1.0, 2, 4],
        }
    )
    ax = plotting.plot_error_histogram(data, least=1e-4)
    legend = ax.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["Random, mean 0.5, 25 % below 0.0001", "User partition, mean 3"]
    bins, shown = ax.get_lines()[0].get_data()
    assert np.max(shown) == pytest.approx(50)  # two of four in the bin of .5
    assert shown[0] == pytest.approx(25)
    np.testing.assert_allclose(bins[:2], [1e-4, 1e-4 * 10**0.25])
    assert np.sum(shown) == pytest.approx(100)
    assert ax.get_xscale() == "log"


def test_measured_rates_have_their_intervals_beside_the_formula_s_curve() -> None:
    data = pd.DataFrame(
        {
            "scheme": ["Random"] * 4,
            "whose": ["worst"] * 2 + ["median"] * 2,
            "mu": [np.inf] * 2 + [1.0] * 2,
            "fpr": [0.1, 0.5] * 2,
            "tpr": [1.0, 1.0, 0.4, 0.8],
            "lower": [0.99, 0.99, 0.3, 0.7],
            "upper": [1.0, 1.0, 0.5, 0.9],
        }
    )
    others = pd.concat([data.assign(others="known"), data.assign(others="gaussian")])
    for line in plotting.plot_roc(others).get_lines():  # no line runs through both
        if line.get_label() == "_coinciding":
            continue
        assert (np.diff(np.asarray(line.get_xdata(), float)) > 0).all()
    ax = plotting.plot_roc(data)
    exposed, all_found, median, some_found, chance = (
        np.asarray(line.get_xydata(), float) for line in ax.get_lines()
    )
    np.testing.assert_allclose(chance[:, 1], 100 * chance[:, 0])
    assert (exposed[:, 1] == 100).all()
    assert len(exposed) > 50
    np.testing.assert_allclose(
        median[:, 1], 100 * stats.norm.sf(stats.norm.isf(median[:, 0]) - 1), atol=1e-10
    )
    np.testing.assert_allclose(all_found, [[0.1, 100], [0.5, 100]])
    np.testing.assert_allclose(some_found, [[0.1, 40], [0.5, 80]])
    band = ax.collections[1].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [30, 90])
    assert (
        ax.get_lines()[0].get_linestyle() == ax.get_lines()[2].get_linestyle() == "--"
    )
