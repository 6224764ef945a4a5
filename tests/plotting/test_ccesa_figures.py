"""Figures of CCESA's items show their data: lines, marks, and which are left out."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from mrsa_jax import plotting


def _lines(ax: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {
        str(line.get_label()): (
            np.asarray(line.get_xdata(), float).tolist(),
            np.asarray(line.get_ydata(), float).tolist(),
        )
        for line in ax.get_lines()
    }


@pytest.fixture(autouse=True)
def _close() -> object:
    yield
    plt.close("all")


def test_bounds_get_a_line_a_rate_and_the_papers_limit() -> None:
    rows = [
        {"q_total": total, "n": n, "bound": bound, "log10": value - n / 100 - total}
        for total in (0.0, 0.1)
        for n in (200, 100)
        for bound, value in (("P_r, t rounded up", -1.0), ("P_r, real t", -2.0), ("P_p", -40.0))
    ]
    data = pd.DataFrame(rows)
    ax = plotting.plot_failure_bounds(data, ("P_r, t rounded up", "P_r, real t"), limit=-2)
    lines = _lines(ax)
    assert lines["$q_{total}$ = 0"] == ([100, 200], [-2, -3])
    assert lines["$q_{total}$ = 0.1"] == ([100, 200], [-2.1, -3.1])
    assert len([line for line in ax.get_lines() if len(line.get_xdata()) == 2]) == 5  # type: ignore[arg-type]
    assert [text.get_text() for text in ax.texts] == ["the paper's limit, $10^{-2}$"]
    assert len(plotting.plot_failure_bounds(data, ("P_p",)).get_lines()) == 2


def test_printed_probabilities_that_differ_are_ringed() -> None:
    data = pd.DataFrame(
        {
            "q_total": [0.0, 0.0],
            "n": [100, 200],
            "ours": [0.6362, 0.4843],
            "printed": [0.636, 0.485],
        }
    )
    lines = _lines(plotting.plot_connection_probability(data))
    assert lines["$q_{total}$ = 0"][1] == [0.6362, 0.4843]
    assert lines["printed in Table G.2"][1] == [0.636, 0.485]
    assert lines["third digit differs"] == ([200], [0.485])


def test_thresholds_are_shares_of_the_holders() -> None:
    data = pd.DataFrame(
        {
            "where": ["Table 2", "Figure B.1"],
            "n": [11, 41],
            "q_total": [0.1, np.nan],
            "p": [0.9, 0.475],
            "t": [6, 15],
            "holders left": [9.0, 20.0],
            "half of holders": [5.0, 10.0],
        }
    )
    ax = plotting.plot_share_thresholds(data)
    widths = [bar.get_width() for bar in ax.patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(widths, [0.6, 0.75])
    assert _lines(ax)["holders left after dropouts, mean"][0] == [0.9, 1.0]
    assert [text.get_text() for text in ax.texts] == ["t = 6", "t = 15"]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["Table 2: n = 11, $q_{total}$ = 0.1", "Figure B.1: n = 41"]


def test_impossible_attacks_are_left_out() -> None:
    data = pd.DataFrame(
        {"q_total": [0.1, 0.1], "n": [100, 200], "exact": [0.0, 1e-4], "bound": [1e-2, 5e-3]}
    )
    lines = _lines(plotting.plot_unmasking(data))
    np.testing.assert_array_equal(lines["exact, $q_{total}$ = 0.1"][1], [np.nan, 1e-4])
    assert lines["Proposition 1, n/(n-1)²"][1] == [1e-2, 5e-3]


def test_growth_names_claim_and_exponent() -> None:
    data = pd.DataFrame(
        {
            "scheme": ["CCESA", "CCESA", "SecAgg", "SecAgg"],
            "n": [100, 200, 100, 200],
            "value": [1.0, 2.0, 3.0, 12.0],
            "claim": ["n log n", "n log n", "n^2", "n^2"],
            "exponent": [1.01, 1.01, 0.99, 0.99],
        }
    )
    ax = plotting.plot_growth(data)
    lines = _lines(ax)
    assert lines["CCESA: (n log n)^1.01"] == ([100, 200], [1, 2])
    assert lines["SecAgg: (n^2)^0.99"] == ([100, 200], [3, 12])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_times_stand_side_by_side_and_missing_ones_are_left_out() -> None:
    rows = [
        {
            "scheme": scheme,
            "n": n,
            "q_total": 0.1,
            "published_ms": 100.0 * n,
            "real_ms": n + 0.5,
            "arrays_ms": np.nan,
        }
        for scheme in ("SecAgg", "CCESA")
        for n in (100, 300)
    ]
    lines = _lines(plotting.plot_running_times(pd.DataFrame(rows)))
    assert set(lines) == {
        f"{scheme}, {kind}" for scheme in ("SecAgg", "CCESA") for kind in ("published", "real")
    }
    assert lines["SecAgg, real"][1] == lines["CCESA, real"][1] == [100.5, 300.5]
    assert max(lines["SecAgg, real"][0][:1]) < min(lines["CCESA, real"][0][:1])


def test_bandwidth_is_shown_as_counted_and_as_sent() -> None:
    data = pd.DataFrame({"n": [100, 200], "ratio": [0.638, 0.486], "wire_ratio": [0.639, 0.487]})
    ax = plotting.plot_bandwidth_ratio(data)
    lines = _lines(ax)
    assert lines["the paper's count, B_CCESA / B_SA"][1] == [0.638, 0.486]
    assert lines["bytes really sent"][1] == [0.639, 0.487]
    assert [text.get_text() for text in ax.texts] == ["0.638"]
