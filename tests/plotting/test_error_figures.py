"""Figures of least squares show the errors that they are given."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from mrsa_jax import plotting


@pytest.fixture(autouse=True)
def _close() -> object:
    yield
    plt.close("all")


def test_a_histogram_has_shares_of_clients_and_the_mean() -> None:
    """Of four clients one is far below the axes and drawn at their left end, with the others."""
    data = pd.DataFrame(
        {"scheme": ["Random"] * 4 + ["User partition"] * 2, "error": [1e-20, 0.5, 0.5, 1.0, 2, 4]}
    )
    ax = plotting.plot_error_histogram(data, least=1e-4)
    legend = ax.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["Random: mean 0.5", "User partition: mean 3"]
    shown = np.asarray(ax.patches[0].get_xy())  # type: ignore[attr-defined]
    assert shown[:, 1].max() == pytest.approx(50)  # two of four in the bin of .5
    at_left = shown[shown[:, 0] <= 1e-4 * 10**0.25 + 1e-9, 1]
    assert at_left.max() == pytest.approx(25)
    assert ax.get_xscale() == "log"


def _motion() -> pd.DataFrame:
    rows = [
        {"scheme": scheme, "rounds": rounds, "speed": speed, "seed": seed, "motion": speed * step,
         "error": error * step, "frozen": frozen}
        for scheme, error, frozen in (("Random", 4.0, 0.0), ("Multi-RoundSecAgg (T=4)", 0.7, 0.75))
        for rounds in (40, 60)
        for speed in (0.01, 1.0)
        for seed, step in enumerate((0.5, 2.0))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_curves_are_geometric_means_over_seeds() -> None:
    """Seeds at half and twice: their geometric mean is the number itself."""
    data = _motion()
    ax = plotting.plot_error_of_motion(data[data["rounds"] == 40])
    lines = {str(line.get_label()): line for line in ax.get_lines()}
    np.testing.assert_allclose(np.asarray(lines["Random"].get_xdata(), float), [0.01, 1.0])
    np.testing.assert_allclose(np.asarray(lines["Random"].get_ydata(), float), [4.0, 4.0])
    np.testing.assert_allclose(np.asarray(lines["MRSA T=4"].get_ydata(), float), [0.7, 0.7])
    dashed = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert [float(np.asarray(line.get_ydata())[0]) for line in dashed] == [0.75]
    by_length = plotting.plot_error_of_motion(data[data["scheme"] == "Random"], by="rounds")
    labels = {str(line.get_label()) for line in by_length.get_lines()}
    assert {"40 rounds", "60 rounds"} <= labels


def test_exposed_and_others_are_counted() -> None:
    data = pd.DataFrame({"exposed": [True, True, False], "trained": [0.0, 1e-28, 0.5]})
    ax = plotting.plot_recovered(data, column="trained")
    legend = ax.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["predicted exposed: 2", "all others: 1"]
    heights = [patch.get_height() for patch in ax.patches]  # type: ignore[attr-defined]
    assert sum(heights) == 3


def test_the_exposed_have_no_predicted_error_to_show() -> None:
    data = pd.DataFrame(
        {"exposed": [True, False], "predicted": [0.0, 0.5], "trained": [0, 0.4], "drawn": [0, 0.6]}
    )
    lines = {
        str(line.get_label()): line for line in plotting.plot_predicted_error(data).get_lines()
    }
    assert np.asarray(lines["trained updates"].get_ydata()).tolist() == [0.4]
    assert np.asarray(lines["drawn updates"].get_xdata()).tolist() == [0.5]
    assert len(lines) == 3
