"""The picture of a history: its cells, and what it refuses."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.plotting import plot_participation, plot_rounds


def test_cells_are_those_of_the_history_and_change_where_a_client_is_exposed() -> None:
    """By hand: the sums of {0, 1} and {0} give 0 and 1 away in the second.

    2 has a mate.
    """
    history = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [2, 1, 1, 1]])
    ax = plot_participation(history, block_size=2, title="mine")
    assert ax.images[0].get_array().tolist() == [
        [1, 1, 0, 0],
        [2, 0, 0, 0],
        [2, 2, 1, 1],
    ]
    assert [line.get_xdata()[0] for line in ax.lines] == [1.5]
    assert "The sums expose 2 of 4 clients" in ax.get_label()
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert named == ["in the sum", "in the sum, exposed"]
    plt.close("all")


def test_blocks_have_no_key_and_an_own_axis_is_used() -> None:
    _, own = plt.subplots()
    assert plot_participation(np.eye(2, dtype=bool).repeat(2, axis=1), ax=own) is own
    assert own.get_legend() is None
    assert own.images[0].get_array().max() == 1
    plt.close("all")


@pytest.mark.parametrize(
    ("history", "size", "said"),
    [
        ([[[1]]], None, "`history` must be a matrix"),
        ([[0.5, 1]], None, "`history` must hold bools or integers"),
        (
            np.zeros((4000, 2501), bool),
            None,
            r"`history` must have at most 10\*\*7 cells",
        ),
        ([[1, 1]], 0, "`block_size` must be at least 1"),
    ],
)
def test_what_is_no_history_is_refused(
    history: object, size: int | None, said: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=said):
        plot_participation(history, block_size=size)
    plt.close("all")


def test_rounds_tell_the_asked_the_lost_and_those_in_sums() -> None:
    """By hand: client 1 is lost in round 0 and its block with it; round 1 is aborted."""
    asked = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], bool)
    arrived = np.array([[1, 0, 1, 1, 0], [1, 0, 0, 0, 0]], bool)
    survivors = np.stack([asked, asked, asked, arrived, arrived], axis=1)
    sums = np.array([[0, 0, 1, 1, 0], [0] * 5], bool)
    played = mj.selection.RoundHistory(survivors, sums, np.array([0, 3], np.int32))
    ax = plot_rounds(played, block_size=2)
    assert ax.images[0].get_array().tolist() == [[2, 1, 3, 3, 0], [2, 1, 0, 0, 0]]
    assert [line.get_xdata()[0] for line in ax.lines] == [1.5, 3.5]
    assert "1 of 2 gave a sum" in ax.get_label()
    assert len(ax.get_legend().get_texts()) == 3
    with pytest.raises(mj.ConfigurationError, match="`history` must be a matrix"):
        plot_rounds(
            mj.selection.RoundHistory(survivors[None], sums[None], np.zeros((1, 2)))
        )
    plt.close("all")
