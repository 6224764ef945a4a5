"""The figures of an audit show the numbers that they are given."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from mrsa_jax.plotting import plot_audit_exposure, plot_audit_privacy

DATA = pd.DataFrame(
    {
        "round": [3, 9, 12, 40],
        "exposed_clients": [0, 0, 1, 4],
        "weak_lower": [-1, 2, 1, 1],
        "weak_upper": [-1, 3, 1, 1],
        "strong_privacy": [-1, 2, 1, 1],
    }
)


def lines(ax: plt.Axes) -> dict[str, np.ndarray]:
    return {
        str(one.get_label()): np.asarray(one.get_xydata(), float)
        for one in ax.get_lines()
    }


def test_exposed_clients_over_the_rounds_own_numbers() -> None:
    ax = plot_audit_exposure(DATA, num_clients=5)
    curve, everybody = ax.get_lines()
    np.testing.assert_array_equal(curve.get_xdata(), DATA["round"])
    np.testing.assert_array_equal(curve.get_ydata(), DATA["exposed_clients"])
    assert set(everybody.get_ydata()) == {5}
    assert ax.get_xlabel() == "round"
    assert ax.get_ylim()[1] > 5
    plt.close("all")


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], [9, 3, 12, 40]])
def test_rounds_whose_names_are_no_rising_numbers_are_counted(
    names: list[object],
) -> None:
    ax = plot_audit_exposure(DATA.assign(round=names))
    np.testing.assert_array_equal(ax.get_lines()[0].get_xdata(), [1, 2, 3, 4])
    assert ax.get_xlabel() == "rounds of the log, counted from 1"
    assert len(ax.get_lines()) == 1
    plt.close("all")


def test_privacy_is_a_band_between_its_bounds_and_the_curves_that_are_known() -> None:
    ax = plot_audit_privacy(DATA)
    shown = lines(ax)
    np.testing.assert_array_equal(shown["Weak T, at least"][:, 1], [np.nan, 2, 1, 1])
    np.testing.assert_array_equal(shown["Weak T, at most"][:, 1], [np.nan, 3, 1, 1])
    np.testing.assert_array_equal(shown["Strong T"][:, 1], [np.nan, 2, 1, 1])
    assert "Weak T" in lines(
        plot_audit_privacy(DATA.assign(weak_lower=DATA["weak_upper"]))
    )
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["Weak T, at least", "Weak T, at most", "Strong T"]
    plt.close("all")


def test_the_worst_client_is_drawn_where_it_is_known() -> None:
    shown = lines(
        plot_audit_privacy(DATA.assign(hidden_among_worst=[np.nan, 2.0, 1.4, 1.0]))
    )
    np.testing.assert_array_equal(
        shown["Worst client hidden among"][:, 1], [np.nan, 2, 1.4, 1]
    )
    plt.close("all")


def test_without_strong_privacy_and_with_a_single_round() -> None:
    one = DATA.iloc[[1]].drop(columns="strong_privacy")
    ax = plot_audit_privacy(one)
    assert "Strong T" not in lines(ax)
    # a step would be nothing
    assert plot_audit_exposure(one).get_lines()[0].get_marker() == "o"
    plt.close("all")
