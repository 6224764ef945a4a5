"""Figures of attacks show their data.

Each image at its place with its score, curves by label.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import mrsa_jax as mj
from mrsa_jax import plotting

GREY = np.linspace(0, 1, 2 * 3 * 4).reshape(2, 3, 4, 1)
COLOUR = np.linspace(-1, 2, 5 * 2 * 2 * 3).reshape(5, 2, 2, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"rows": []}, "`rows` must hold a row"),
        ({"rows": [("a", GREY[0])]}, "`rows` must be images .*3, 4, 1"),
        (
            {"rows": [("a", np.ones((1, 2, 2, 2)))]},
            "`rows` must be images .*1, 2, 2, 2",
        ),
        ({"rows": [("a", GREY[:0])]}, "`rows` must be images .*0, 3, 4, 1"),
        ({"rows": [("a", GREY * np.nan)]}, "`rows` must be finite"),
        ({"scores": [None]}, "`scores` must be one a row; got 1 and 2"),
        ({"scores": [None, [1.0]]}, "`scores` must be one for each image"),
    ],
)
def test_misuse_of_the_grid(words: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"rows": [("a", GREY), ("b", COLOUR)]} | words
    with pytest.raises(mj.ConfigurationError, match=message):
        inspect.unwrap(plotting.plot_image_grid)(given.pop("rows"), **given)


def test_each_image_stands_at_its_place_with_its_score() -> None:
    rows = [("originals", GREY), ("one\nclient", COLOUR)]
    scores = [None, ["22 dB", 1.23456, 3, float("inf"), ""]]
    figure = plotting.plot_image_grid(rows, scores=scores, title="Inverted")
    assert len(figure.axes) == 2 + 5
    for ax, image in zip(figure.axes, [*GREY, *COLOUR], strict=True):
        shown = np.asarray(ax.images[0].get_array())
        # grey is drawn as it is, colours from -1 to 2 are clipped to [0, 1]
        wanted = image[..., 0] if image.shape[-1] == 1 else np.clip(image, 0, 1)
        np.testing.assert_allclose(shown, wanted)
        assert ax.images[0].get_clim() == (0, 1)
    texts = [ax.get_xlabel() for ax in figure.axes]
    assert texts == ["", "", "22 dB", "1.23", "3", "inf", ""]
    assert [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()] == [
        "originals",
        "one\nclient",
    ]
    assert figure._suptitle.get_text() == "Inverted"  # type: ignore[attr-defined]


def test_a_given_figure_is_drawn_on_and_images_can_be_stretched() -> None:
    figure = Figure()
    flat = np.full((1, 2, 2, 1), 7.0)
    rows = [("stretched", COLOUR), ("flat", flat)]
    assert plotting.plot_image_grid(rows, value_range=None, figure=figure) is figure
    for ax in figure.axes[:5]:
        shown = np.asarray(ax.images[0].get_array())
        assert (shown.min(), shown.max()) == (0, 1)
    assert np.asarray(figure.axes[5].images[0].get_array()).tolist() == [[0, 0], [0, 0]]
