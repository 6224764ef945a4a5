"""Figures of attacks show their data: each image at its place with its score, curves by label."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
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
        ({"rows": [("a", np.ones((1, 2, 2, 2)))]}, "`rows` must be images .*1, 2, 2, 2"),
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


def test_curves_of_membership_stand_on_log_axes_over_the_band_of_luck() -> None:
    rates = [1e-4, 1e-3, 1e-2, 1.0]
    rows = [
        {"scheme": name, "fpr": rate, "tpr": min(1.0, factor * rate),
         "chance low": rate / 2, "chance high": min(1.0, 2 * rate)}
        for name, factor in (("plain", 5.0), ("padded", 0.5)) for rate in reversed(rates)
    ]  # fmt: skip
    ax = plotting.plot_membership_roc(pd.DataFrame(rows), ax=Figure().subplots())
    lines = {str(line.get_label()): np.asarray(line.get_xydata()) for line in ax.get_lines()}
    np.testing.assert_allclose(lines["plain"], [[1e-3, 5e-3], [1e-2, 5e-2], [1, 1]])
    np.testing.assert_allclose(lines["padded"], [[1e-2, 5e-3], [1, 0.5]])  # below 1e-3: not shown
    assert lines["chance"].tolist() == [[1e-3, 1e-3], [1, 1]]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    corners = ax.collections[0].get_paths()[0].vertices
    assert {(x, y) for x, y in np.asarray(corners).tolist()} >= {(1e-2, 5e-3), (1e-2, 2e-2)}
    bare = pd.DataFrame(rows).drop(columns=["chance low", "chance high"])
    assert not plotting.plot_membership_roc(bare, ax=Figure().subplots()).collections


def test_accuracies_stand_side_by_side_with_what_is_printed() -> None:
    rows = [
        {"scheme": name, "n_train": size, "accuracy": share, "lower": share - 0.1,
         "upper": share + 0.05, "printed": printed}
        for size, shares in ((400, (0.8, 0.5)), (200, (0.9, 0.55)))
        for name, share, printed in zip(("plain", "padded"), shares, (72.5, np.nan), strict=True)
    ]  # fmt: skip
    ax = plotting.plot_membership_accuracy(pd.DataFrame(rows), ax=Figure().subplots())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["200", "400"]
    drawn = [np.asarray(line.get_xydata()) for line in ax.get_lines()]
    for shift, shares, printed in ((-0.1, (90, 80), 72.5), (0.1, (55, 50), np.nan)):
        places = np.arange(2) + shift
        assert any(np.allclose(line, np.stack([places, shares], 1)) for line in drawn
                   if line.shape == (2, 2))  # fmt: skip
        marks = np.stack([places, np.full(2, printed)], 1)
        assert any(np.allclose(line, marks, equal_nan=True) for line in drawn
                   if line.shape == (2, 2))  # fmt: skip
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert sorted(labels) == ["padded", "plain", "printed"]


def test_areas_fall_over_the_size_of_a_sum() -> None:
    rows = [
        {"method": name, "size": size, "auc": area, "auc low": area - 0.1, "auc high": area + 0.05}
        for name in ("loss", "ratio") for size, area in ((4, 0.6), (1, 0.9), (12, 0.5))
    ]  # fmt: skip
    ax = plotting.plot_membership_auc(pd.DataFrame(rows), ax=Figure().subplots())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "4", "12"]
    drawn = [np.asarray(line.get_xydata()) for line in ax.get_lines()]
    wanted = [[1, 0.9], [4, 0.6], [12, 0.5]]
    assert sum(line.shape == (3, 2) and np.allclose(line, wanted) for line in drawn) == 2
    ends = [np.asarray(path.vertices)[:, 1] for bars in ax.collections for path in bars.get_paths()]  # type: ignore[attr-defined]
    assert any(np.allclose(end, [0.8, 0.95]) for end in ends)
