"""The figure of designs shows the figures that it is given, a row a family."""

from __future__ import annotations

import inspect

import matplotlib.pyplot as plt
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.design import Judgement


def _judged(cardinality: float, weak: int, hidden: float, half: float = 0.0) -> Judgement:
    return Judgement(
        num_clients=32, cohort_size=8, line_size=4, num_lines=16, rank=14, weak_lower=weak,
        weak_upper=weak, strong_privacy=1, hidden_worst=hidden, hidden_median=hidden,
        cardinality=cardinality, cardinality_interval=(cardinality - half, cardinality + half),
        fairness_gap=0.1, num_rounds=9, num_trials=2,
    )  # fmt: skip


def test_a_row_a_family_the_fullest_sums_on_top() -> None:
    with pytest.raises(mj.ConfigurationError, match="`judgements` must hold a family"):
        inspect.unwrap(mj.plotting.plot_designs)({})
    ax = mj.plotting.plot_designs(
        {"grids": _judged(7.5, 4, 2.25), "nets": _judged(7.0, 5, 1.5, 0.5)}
    )
    assert [text.get_text() for text in ax.get_yticklabels()] == ["nets", "grids"]
    points = {(str(line.get_marker()), float(line.get_markersize())): [] for line in ax.lines}
    for line in ax.lines:
        points[str(line.get_marker()), float(line.get_markersize())].append(
            np.asarray(line.get_xydata(), float).tolist()
        )
    assert points["None", 6.0] == [[[1.5, 0], [5, 0]], [[2.25, 1], [4, 1]]]  # what T overstates
    assert points["o", 11.0] == [[[5, 0]], [[4, 1]]]
    assert points["o", 6.0] == [[[1.5, 0]], [[2.25, 1]]]
    assert points["|", 15.0] == [[[1, 0]], [[1, 1]]]
    written = [text.get_text() for text in ax.texts]
    assert "7 (6.5 to 7.5)" in written
    assert "7.5" in written
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "what weak T overstates", "weak T", "hidden among (worst client)", "strong T",
    ]  # fmt: skip
    plt.close("all")
