"""Figures of CCESA's items show their data: lines, marks, and which are left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from drawing import panel
from inside import inside
from matplotlib.axes import Axes

costs = inside("ccesa.table1")
membership = inside("ccesa.table3")
theory = inside("ccesa.fig3")
thresholds = inside("ccesa.tableg2")
times = inside("ccesa.table2")


def _lines(ax: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {
        str(line.get_label()): (
            np.asarray(line.get_xdata(), float).tolist(),
            np.asarray(line.get_ydata(), float).tolist(),
        )
        for line in ax.get_lines()
    }


@pytest.mark.smoke
def test_bounds_get_a_line_a_rate_and_the_papers_limit() -> None:
    rows = [
        {"q_total": total, "n": n, "bound": bound, "log10": value - n / 100 - total}
        | {"limit": {"P_r, t rounded up": -2.0, "P_p": -40.0}.get(bound)}
        for total in (0.0, 0.1)
        for n in (200, 100)
        for bound, value in (
            ("P_r, t rounded up", -1.0),
            ("P_r, real t", -2.0),
            ("P_p", -40.0),
        )
    ]
    data = pd.DataFrame(rows)
    ax = panel(theory._draw_bound, data, ("P_r, t rounded up", "P_r, real t"))
    lines = _lines(ax)
    assert lines["$q_{total}$ = 0"] == ([100, 200], [-2, -3])
    assert lines["$q_{total}$ = 0.1"] == ([100, 200], [-2.1, -3.1])
    assert len([line for line in ax.get_lines() if len(line.get_xdata()) == 2]) == 5  # type: ignore[arg-type]
    assert [text.get_text() for text in ax.texts] == ["the paper's limit, $10^{-2}$"]
    assert len(panel(theory._draw_bound, data, ("P_p",)).get_lines()) == 2 + 1
    # at other settings the paper has no limit
    data = data.assign(limit=np.nan)
    assert len(panel(theory._draw_bound, data, ("P_p",)).get_lines()) == 2


def test_printed_probabilities_that_differ_are_ringed() -> None:
    data = pd.DataFrame(
        {
            "q_total": [0.0, 0.0],
            "n": [100, 200],
            "ours": [0.6362, 0.4843],
            "printed": [0.636, 0.485],
        }
    )
    lines = _lines(panel(thresholds.draw_probabilities, data))
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
    ax = panel(thresholds.draw_thresholds, data)
    widths = [bar.get_width() for bar in ax.patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(widths, [0.6, 0.75])
    assert _lines(ax)["holders left after dropouts, mean"][0] == [0.9, 1.0]
    assert [text.get_text() for text in ax.texts] == ["t = 6", "t = 15"]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["Table 2: n = 11, $q_{total}$ = 0.1", "Figure B.1: n = 41"]


def test_impossible_attacks_are_left_out() -> None:
    data = pd.DataFrame(
        {
            "q_total": [0.1, 0.1],
            "n": [100, 200],
            "exact": [0.0, 1e-4],
            "bound": [1e-2, 5e-3],
        }
    )
    lines = _lines(panel(theory.draw_unmasking, data))
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
    ax = panel(costs._draw_quantity, data)
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
    lines = _lines(panel(times._draw_step, pd.DataFrame(rows)))
    assert set(lines) == {
        f"{scheme}, {kind}"
        for scheme in ("SecAgg", "CCESA")
        for kind in ("published", "real")
    }
    assert lines["SecAgg, real"][1] == lines["CCESA, real"][1] == [100.5, 300.5]
    assert max(lines["SecAgg, real"][0][:1]) < min(lines["CCESA, real"][0][:1])


@pytest.mark.smoke
def test_bandwidth_is_shown_as_counted_and_as_sent() -> None:
    data = pd.DataFrame(
        {"n": [100, 200], "ratio": [0.638, 0.486], "wire_ratio": [0.639, 0.487]}
    )
    ax = panel(costs.draw_bandwidths, data)
    lines = _lines(ax)
    assert lines["the paper's count, B_CCESA / B_SA"][1] == [0.638, 0.486]
    assert lines["bytes really sent"][1] == [0.639, 0.487]
    assert [text.get_text() for text in ax.texts] == ["0.638"]


def test_curves_of_membership_stand_on_log_axes_over_the_band_of_luck() -> None:
    rates = [1e-4, 1e-3, 1e-2, 1.0]
    rows = [
        {
            "scheme": name,
            "fpr": rate,
            "tpr": min(1.0, factor * rate),
            "chance low": rate / 2,
            "chance high": min(1.0, 2 * rate),
        }
        for name, factor in (("plain", 5.0), ("padded", 0.5))
        for rate in reversed(rates)
    ]
    ax = panel(membership._draw_roc, pd.DataFrame(rows))
    lines = {
        str(line.get_label()): np.asarray(line.get_xydata()) for line in ax.get_lines()
    }
    np.testing.assert_allclose(lines["plain"], [[1e-3, 5e-3], [1e-2, 5e-2], [1, 1]])
    # below 1e-3: not shown
    np.testing.assert_allclose(lines["padded"], [[1e-2, 5e-3], [1, 0.5]])
    assert lines["chance"].tolist() == [[1e-3, 1e-3], [1, 1]]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    corners = ax.collections[0].get_paths()[0].vertices
    assert {(x, y) for x, y in np.asarray(corners).tolist()} >= {
        (1e-2, 5e-3),
        (1e-2, 2e-2),
    }
    bare = pd.DataFrame(rows).drop(columns=["chance low", "chance high"])
    assert not panel(membership._draw_roc, bare).collections


def test_accuracies_stand_side_by_side_with_what_is_printed() -> None:
    rows = [
        {
            "scheme": name,
            "n_train": size,
            "accuracy": share,
            "lower": share - 0.1,
            "upper": share + 0.05,
            "printed": printed,
        }
        for size, shares in ((400, (0.8, 0.5)), (200, (0.9, 0.55)))
        for name, share, printed in zip(
            ("plain", "padded"), shares, (72.5, np.nan), strict=True
        )
    ]
    ax = panel(membership._draw_accuracy, pd.DataFrame(rows))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["200", "400"]
    drawn = [np.asarray(line.get_xydata()) for line in ax.get_lines()]
    for shift, shares, printed in ((-0.1, (90, 80), 72.5), (0.1, (55, 50), np.nan)):
        places = np.arange(2) + shift
        assert any(
            np.allclose(line, np.stack([places, shares], 1))
            for line in drawn
            if line.shape == (2, 2)
        )
        marks = np.stack([places, np.full(2, printed)], 1)
        assert any(
            np.allclose(line, marks, equal_nan=True)
            for line in drawn
            if line.shape == (2, 2)
        )
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert sorted(labels) == ["padded", "plain", "printed"]


def test_areas_fall_over_the_size_of_a_sum() -> None:
    rows = [
        {
            "method": name,
            "size": size,
            "auc": area,
            "auc low": area - 0.1,
            "auc high": area + 0.05,
        }
        for name in ("loss", "ratio")
        for size, area in ((4, 0.6), (1, 0.9), (12, 0.5))
    ]
    ax = panel(membership._draw_areas, pd.DataFrame(rows))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "4", "12"]
    drawn = [np.asarray(line.get_xydata()) for line in ax.get_lines()]
    wanted = [[1, 0.9], [4, 0.6], [12, 0.5]]
    assert (
        sum(line.shape == (3, 2) and np.allclose(line, wanted) for line in drawn) == 2
    )
    ends = [
        np.asarray(path.vertices)[:, 1]
        for bars in ax.collections
        for path in bars.get_paths()
    ]  # type: ignore[attr-defined]
    assert any(np.allclose(end, [0.8, 0.95]) for end in ends)
