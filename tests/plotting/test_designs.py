"""The figure of designs shows the figures that it is given, families side by side."""

from __future__ import annotations

import inspect

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection

import mrsa_jax as mj
from mrsa_jax.design._judge import Judgement


def _judged(
    cardinality: float, weak: int, hidden: float, half: float = 0.0
) -> Judgement:
    return Judgement(
        num_clients=32,
        cohort_size=8,
        line_size=4,
        num_lines=16,
        rank=14,
        weak_lower=weak,
        weak_upper=weak,
        strong_privacy=1,
        hidden_worst=hidden,
        hidden_median=hidden,
        cardinality=cardinality,
        cardinality_interval=(cardinality - half, cardinality + half),
        fairness_gap=0.1,
        num_rounds=9,
        num_trials=2,
    )


def test_families_stand_side_by_side_the_fullest_sums_first() -> None:
    with pytest.raises(mj.ConfigurationError, match="`judgements` must hold a family"):
        inspect.unwrap(mj.plotting.plot_designs)({})
    ax = mj.plotting.plot_designs(
        {"grids": _judged(7.5, 4, 2.25), "nets": _judged(7.0, 5, 1.5, 0.5)}
    )
    assert [text.get_text() for text in ax.get_xticklabels()] == ["grids", "nets"]
    points = {
        str(line.get_label()): np.asarray(line.get_xydata(), float).tolist()
        for line in ax.lines
    }
    assert points == {
        "weak T": [[0, 4], [1, 5]],
        "hidden among (worst client)": [[0, 2.25], [1, 1.5]],
        "strong T": [[0, 1], [1, 1]],
        "mean clients per round": [[0, 7.5], [1, 7]],
    }
    overstated, intervals = (
        [np.asarray(own)[:, 1].tolist() for own in ranges.get_segments()]
        for ranges in ax.collections
        if isinstance(ranges, LineCollection)
    )
    assert overstated == [[2.25, 4], [1.5, 5]]
    assert intervals == [[7.5, 7.5], [6.5, 7.5]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(points)
    plt.close("all")
