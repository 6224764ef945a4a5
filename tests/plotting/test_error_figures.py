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
