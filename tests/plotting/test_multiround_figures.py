"""Figures of reproduced items show their data: lines, bands, marks, and nothing else."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from mrsa_jax import plotting


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


@pytest.fixture(autouse=True)
def _close() -> object:
    yield
    plt.close("all")


def test_proven_bounds_get_a_line_only_where_they_meet() -> None:
    ax = plotting.plot_weak_privacy(_by_scheme(lower=[4, 2, 2], upper=[4, 3, 2]))
    x, y = _lines(ax)["Random"]
    assert x.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(y, [4, np.nan, 2])
    assert len(ax.collections) == 2  # a band a scheme
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("rounds", "weak privacy T (clients)")


def test_the_estimate_is_drawn_beside_the_bounds() -> None:
    data = _by_scheme(lower=[2, 2, 1], upper=[4, 2, 1], estimate=[4, 9, 1])
    lines = _lines(plotting.plot_echelon_error(data))
    assert lines["Random: estimate"][1].tolist() == [4, 9, 1]
    assert lines["Weighted random: T at most"][1].tolist() == [5, 3, 2]


def test_a_metric_has_a_line_and_a_band() -> None:
    data = _by_scheme(mean=[0.5, 0.4, 0.3], low=[0.4, 0.3, 0.2], high=[0.6, 0.5, 0.4])
    ax = plotting.plot_metric(data, ylabel="F", title="fairness", top=0.9)
    assert _lines(ax)["Random"][1].tolist() == [0.5, 0.4, 0.3]
    assert len(ax.collections) == 2
    assert ax.get_ylim() == (0, 0.9)
    assert ax.get_title(loc="left") == "fairness"


def test_early_leaks_are_percentages() -> None:
    ax = plotting.plot_early_leaks(_by_scheme(leaked=[0.0, 0.25, 0.5]), period=2)
    assert _lines(ax)["Random"][1].tolist() == [0, 25, 50]
    assert ax.get_xticks().tolist() == [0, 2]


def test_cardinality_of_target_has_theory_and_simulation() -> None:
    data = pd.DataFrame(
        {"p": [0.1, 0.1, 0.5, 0.5], "T": [1, 2, 1, 2], "theorem": [4.0, 3.0, 2.0, 1.0]}
    )
    lines = _lines(plotting.plot_cardinality_of_target(data.assign(simulated=data["theorem"] + 1)))
    assert lines["p = 0.1"][1].tolist() == [4, 3]
    assert lines["p = 0.5"][1].tolist() == [2, 1]
    assert "simulated" in lines


def test_full_rank_is_drawn_against_rounds_minus_n() -> None:
    rows = [
        {"N": 4, "K": 2, "selection": kind, "rounds": r, "full_rank": (r - 2) / 4, "bound": 0.3}
        for kind in ("iid", "K-uniform")
        for r in (3, 4, 5)
    ]
    lines = _lines(plotting.plot_full_rank(pd.DataFrame(rows)))
    x, y = lines["N = 4, K = 2"]
    assert (x.tolist(), y.tolist()) == ([-1, 0, 1], [0.25, 0.5, 0.75])


def test_tables_and_tradeoff_name_every_scheme() -> None:
    schemes = ["Random", "User partition", "Multi-RoundSecAgg (T=3)"]
    sizes = pd.DataFrame({"scheme": schemes, "paper": [100.0, 10, 7], "ours": [100, 10, 8]})
    ax = plotting.plot_family_sizes(sizes)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["Random", "User partition", "MRSA T=3"]
    assert {"100", "10", "8"} <= {text.get_text() for text in ax.texts}
    swaps = pd.DataFrame({"scheme": schemes, "sums": [9, 9, 0 + 9], "changed_sums": [9, 0, 3]})
    widths = [bar.get_width() for bar in plotting.plot_swaps(swaps).patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(widths, [100, 0, 100 / 3])
    points = pd.DataFrame({"scheme": schemes, "T": [1, 12, 3], "C": [12.0, 1.5, 11.9]})
    ax = plotting.plot_tradeoff(points.assign(C_low=points["C"] - 0.1, C_high=points["C"]))
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
    ax = plotting.plot_family(pd.DataFrame(rows))
    np.testing.assert_array_equal(ax.images[0].get_array(), matrix)
    assert [text.get_text() for text in ax.texts] == ["1", "0", "0", "1", "1", "1"]
