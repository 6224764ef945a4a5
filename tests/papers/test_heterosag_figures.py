"""HeteroSAg's figures: each draws what its data say, from frames made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
from drawing import panel
from inside import inside
from matplotlib.collections import PolyCollection

from mrsa_papers.harness import draw_seed_curves

errors = inside("heterosag.error_bounds")
matrices = inside("heterosag.matrices")
privacy = inside("heterosag.theorem1")
survivors = inside("heterosag.theorem4")


def test_a_matrix_is_drawn_cell_by_cell_and_lost_rows_are_framed() -> None:
    cells = [(0, 0, "0", 0), (0, 1, "0", 0), (1, 0, "*", -1), (1, 1, "*", -1)]
    data = pd.DataFrame(cells, columns=["segment", "group", "label", "block"])
    data["print"] = ["equal", "equal", "an entry is lost", "an entry is lost"]
    ax = panel(matrices._draw_matrix, data)
    assert [text.get_text() for text in ax.texts] == ["0", "0", "*", "*"]
    assert len(ax.patches) == 4 + 1


def test_wrong_sums_are_counted_in_the_title() -> None:
    data = pd.DataFrame(
        {
            "Z_1": [0, 0, 1, 1],
            "Z_2": [0, 0, 5, 5],
            "Z_3": [0, 0, 0, 0],
            "codes": ["000", "100"] * 2,
            "is wrong": [False, False, False, True],
        }
    )
    ax = panel(matrices.draw_examples, data)
    assert ax.get_title(loc="left") == "Wrong sums (orange): 1 of 4"
    assert np.asarray(ax.images[0].get_array()).tolist() == [[0, 0], [0, 1]]


def test_levels_show_claims_and_truth() -> None:
    data = pd.DataFrame(
        {
            "G": [5, 6],
            "T": [np.nan] * 2,
            "claimed": [0.8, 2 / 3],
            "true": [0.8, 0.5],
            "holds": [True, False],
        }
    )
    ax = panel(privacy._draw_levels_of, data)
    assert {line.get_label() for line in ax.lines} == {
        "claimed",
        "true, as claimed",
        "true, not as claimed",
    }
    ax = panel(privacy._draw_levels_of, data.assign(T=[2.0, 3.0]))
    assert [text.get_text() for text in ax.texts] == ["0.50"]
    renamed = data.rename(columns={"G": "Z"})
    assert (
        panel(privacy._draw_levels_of, renamed).get_xlabel() == "number of subgroups Z"
    )


def test_numbers_are_drawn_as_given() -> None:
    rows = [("SC", "halfway", 1.0, 1.0, 0.9), ("SC", "uniform", 1.0, 0.6, 0.6)]
    table = pd.DataFrame(
        rows, columns=["scheme", "updates", "bound", "exact", "simulated"]
    )
    assert panel(errors.draw_errors, table).patches[0].get_height() == 1.0
    expansion = pd.DataFrame(
        {"K": [2, 2], "summed": [2, 4], "factor": [2.0, 3.0], "real bits": [1.58, 2.32]}
    )
    marks = panel(errors.draw_expansion, expansion).lines[1]
    assert marks.get_ydata().tolist() == [2.0, 3.0]
    survival = pd.DataFrame(
        {
            "n": [4, 4],
            "p": [0.5, 0.1],
            "Z": [1, 1],
            "formula": [0.69, 0.99],
            "simulated": [0.7, 1.0],
        }
    )
    assert panel(survivors.draw_survival, survival).lines[0].get_ydata().tolist() == [
        0.99,
        0.69,
    ]
    tolerated = pd.DataFrame(
        {"G": [4, 5], "paper": [0.0, 0.25], "exact": [0, 1], "trimmed": [0, 0]}
    )
    drawn = panel(survivors.draw_attackers, tolerated).lines
    assert drawn[0].get_ydata().tolist() == [0, 1]
    assert drawn[1].get_ydata().tolist() == [0, 0]
    counts = pd.DataFrame(
        {"varied": ["N"] * 2, "at": [1, 2], "count": ["a"] * 2, "value": [3, 4]}
    )
    assert panel(errors._draw_counts, counts).lines[0].get_ydata().tolist() == [3, 4]


def test_curves_are_means_over_seeds_with_their_interval() -> None:
    """By hand: .1, .2, .3 at round 0 are 20 %, with t(2) = 4.3027 errors of 10/sqrt 3."""
    rows = [
        {"run": "a", "seed": s, "round": r, "accuracy": 0.1 * (s + 1) + 0.1 * r}
        for s in range(3)
        for r in (0, 1)
    ]
    ax = panel(draw_seed_curves, pd.DataFrame(rows), curve="run")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [20, 30])
    (band,) = (c for c in ax.collections if isinstance(c, PolyCollection))
    heights = band.get_paths()[0].vertices[:, 1]
    half = 4.302653 * 10 / 3**0.5
    np.testing.assert_allclose(
        [heights.min(), heights.max()], [20 - half, 30 + half], rtol=1e-5
    )
    two = pd.DataFrame([row for row in rows if row["seed"] < 2])
    (band,) = panel(draw_seed_curves, two, curve="run").collections
    heights = band.get_paths()[0].vertices[:, 1]  # of two seeds the range
    np.testing.assert_allclose([heights.min(), heights.max()], [10, 30])
    one = two[two["seed"] == 0]
    assert not panel(draw_seed_curves, one, curve="run").collections
