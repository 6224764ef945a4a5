"""Figures of reproduced items show their data: lines, bands, marks, and nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from drawing import axes_of, panel
from inside import inside
from matplotlib.axes import Axes

from mrsa_papers._driver import figure_of

exposure = inside("multiround.exposure")
families = inside("multiround.table1")
leaks = inside("multiround.early_leaks")
motion = inside("multiround.motion")
privacy = inside("multiround.fig4a")
rounds = inside("multiround.fig4b")
theory = inside("multiround.fig3")


def _lines(ax: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {
        str(line.get_label()): (
            np.asarray(line.get_xdata(), float),
            np.asarray(line.get_ydata(), float),
        )
        for line in ax.get_lines()
    }


def _by_scheme(**columns: list[float]) -> pd.DataFrame:
    """Return three rounds of two schemes with the columns given for each round."""
    parts = []
    for i, scheme in enumerate(("Random", "Weighted random")):
        values = {name: np.asarray(column) + i for name, column in columns.items()}
        parts.append(pd.DataFrame({"scheme": scheme, "rounds": [1, 2, 3], **values}))
    return pd.concat(parts, ignore_index=True)


def test_proven_bounds_get_a_line_only_where_they_meet() -> None:
    ax = panel(privacy._draw_bounds, _by_scheme(lower=[4, 2, 2], upper=[4, 3, 2]))
    x, y = _lines(ax)["Random"]
    assert x.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(y, [4, np.nan, 2])
    assert len(ax.collections) == 2  # a band a scheme
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("rounds", "weak T (clients)")


def test_the_estimate_is_drawn_beside_the_bounds() -> None:
    data = _by_scheme(lower=[2, 2, 1], upper=[4, 2, 1], estimate=[4, 9, 1])
    lines = _lines(panel(privacy.draw_echelon, data))
    assert lines["Random: estimate"][1].tolist() == [4, 9, 1]
    assert lines["Weighted random: weak T at most"][1].tolist() == [5, 3, 2]


def test_a_metric_has_a_line_and_a_band() -> None:
    data = _by_scheme(mean=[0.5, 0.4, 0.3], low=[0.4, 0.3, 0.2], high=[0.6, 0.5, 0.4])
    ax = axes_of(figure_of(("multiround", "fig4b")), data)
    assert _lines(ax)["Random"][1].tolist() == [0.5, 0.4, 0.3]
    assert len(ax.collections) == 2
    assert ax.get_ylim() == (0, 0.5)
    assert ax.get_title(loc="left").startswith("Most minus least often summed client")


def test_early_leaks_are_percentages() -> None:
    ax = panel(
        leaks.draw_early_leaks, _by_scheme(leaked=[0.0, 0.25, 0.5], epoch=[6] * 3)
    )
    assert _lines(ax)["Random"][1].tolist() == [0, 25, 50]
    assert ax.get_xticks().tolist() == [0]  # multiples of N/K = 6
    late = pd.DataFrame({"scheme": "Random", "rounds": range(1, 15), "leaked": 0.0})
    late["epoch"] = 6
    assert panel(leaks.draw_early_leaks, late).get_xticks().tolist() == [0, 6, 12]


def test_cardinality_of_target_has_theory_and_simulation() -> None:
    data = pd.DataFrame(
        {"p": [0.1, 0.1, 0.5, 0.5], "T": [1, 2, 1, 2], "theorem": [4.0, 3.0, 2.0, 1.0]}
    )
    lines = _lines(
        panel(theory.draw_cardinality, data.assign(simulated=data["theorem"] + 1))
    )
    assert lines["p = 0.1"][1].tolist() == [4, 3]
    assert lines["p = 0.5"][1].tolist() == [2, 1]
    assert "simulated" in lines


@pytest.mark.smoke
def test_full_rank_is_drawn_against_rounds_minus_n() -> None:
    rows = [
        {
            "N": 4,
            "K": 2,
            "selection": kind,
            "rounds": r,
            "full_rank": (r - 2) / 4,
            "bound": 0.3,
        }
        for kind in ("iid", "K-uniform")
        for r in (3, 4, 5)
    ]
    lines = _lines(panel(theory.draw_full_rank, pd.DataFrame(rows)))
    x, y = lines["N = 4, K = 2"]
    assert (x.tolist(), y.tolist()) == ([-1, 0, 1], [0.25, 0.5, 0.75])


@pytest.mark.smoke
def test_tables_and_tradeoff_name_every_scheme() -> None:
    schemes = ["Random", "User partition", "Multi-RoundSecAgg (T=3)"]
    sizes = pd.DataFrame(
        {"scheme": schemes, "paper": [100.0, 10, 7], "ours": [100, 10, 8]}
    )
    ax = panel(families.draw_family_sizes, sizes)
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "Random",
        "User partition",
        "MRSA T=3",
    ]
    assert {"100", "10", "8"} <= {text.get_text() for text in ax.texts}
    swaps = pd.DataFrame(
        {"scheme": schemes, "sums": [9, 9, 0 + 9], "changed_sums": [9, 0, 3]}
    )
    widths = [bar.get_width() for bar in panel(theory.draw_swaps, swaps).patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(widths, [100, 0, 100 / 3])
    points = pd.DataFrame({"scheme": schemes, "T": [1, 12, 3], "C": [12.0, 1.5, 11.9]})
    ax = panel(
        rounds.draw_tradeoff, points.assign(C_low=points["C"] - 0.1, C_high=points["C"])
    )
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == schemes


def test_a_family_is_drawn_entry_by_entry() -> None:
    matrix = np.array([[1, 0], [0, 1], [1, 1]])
    rows = [
        {"row": r + 1, "client": c + 1, "member": int(matrix[r, c])}
        for r in range(3)
        for c in range(2)
    ]
    ax = panel(families.draw_family, pd.DataFrame(rows))
    np.testing.assert_array_equal(ax.images[0].get_array(), matrix)
    assert [text.get_text() for text in ax.texts] == ["1", "0", "0", "1", "1", "1"]


def _motion() -> pd.DataFrame:
    rows = [
        {
            "scheme": scheme,
            "rounds": rounds,
            "speed": speed,
            "seed": seed,
            "motion": speed * step,
            "error": error * step,
            "frozen": frozen,
        }
        for scheme, error, frozen in (
            ("Random", 4.0, 0.0),
            ("Multi-RoundSecAgg (T=4)", 0.7, 0.75),
        )
        for rounds in (40, 60)
        for speed in (0.01, 1.0)
        for seed, step in enumerate((0.5, 2.0))
    ]
    return pd.DataFrame(rows)


def test_curves_are_geometric_means_over_seeds() -> None:
    """Seeds at half and twice: their geometric mean is the number itself."""
    data = _motion()
    ax = panel(motion._draw_error, data[data["rounds"] == 40])
    lines = {str(line.get_label()): line for line in ax.get_lines()}
    np.testing.assert_allclose(
        np.asarray(lines["Random"].get_xdata(), float), [0.01, 1.0]
    )
    np.testing.assert_allclose(
        np.asarray(lines["Random"].get_ydata(), float), [4.0, 4.0]
    )
    np.testing.assert_allclose(
        np.asarray(lines["MRSA T=4"].get_ydata(), float), [0.7, 0.7]
    )
    dashed = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert [float(np.asarray(line.get_ydata())[0]) for line in dashed] == [0.75]
    by_length = panel(motion._draw_error, data[data["scheme"] == "Random"], by="rounds")
    labels = {str(line.get_label()) for line in by_length.get_lines()}
    assert {"40 rounds", "60 rounds"} <= labels


def test_exposed_and_others_are_counted() -> None:
    data = pd.DataFrame({"exposed": [True, True, False], "trained": [0.0, 1e-28, 0.5]})
    ax = panel(exposure._draw_recovered, data)
    legend = ax.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["predicted exposed: 2", "all others: 1"]
    heights = [patch.get_height() for patch in ax.patches]  # type: ignore[attr-defined]
    assert sum(heights) == 3


def test_the_exposed_have_no_predicted_error_to_show() -> None:
    data = pd.DataFrame(
        {
            "exposed": [True, False],
            "predicted": [0.0, 0.5],
            "trained": [0, 0.4],
            "drawn": [0, 0.6],
        }
    )
    lines = {
        str(line.get_label()): line
        for line in panel(exposure._draw_predicted, data).get_lines()
    }
    assert np.asarray(lines["trained updates"].get_ydata()).tolist() == [0.4]
    assert np.asarray(lines["drawn updates"].get_xdata()).tolist() == [0.5]
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("partition", "verdict"), [(0.02, "not stated"), (0.2, "reproduced")]
)
def test_a_small_gap_goes_with_accuracy_where_partition_has_a_large_one(
    partition: float, verdict: str
) -> None:
    """Of Table 3, IID: user partition has 25.73 %, 17 points below the next."""
    means = {"Random": 0.0576, "User partition": partition, "Weighted random": 0.0}
    check = rounds._accurate_if_fair(means)
    assert check.verdict == verdict
    assert "User partition 25.73 %" in check.paper
    assert ("User partition and Random" in check.note) is (verdict == "not stated")
