"""Images that an attack made, in a grid beside their originals, with a score under each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax.plotting._style import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIDE = 1.05  # inches of an image
_SCORE = 0.2  # of the line under it
_LETTER = 0.068  # of a letter of a score
_LABEL = 0.078  # of a letter of the rows' labels


def plot_image_grid(
    rows: Sequence[tuple[str, Any]],
    *,
    scores: Sequence[Sequence[Any] | None] | None = None,
    value_range: tuple[float, float] | None = (0.0, 1.0),
    title: str | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Draw rows of images under one another, the originals first, a score under each image.

    Args:
        rows: A label (of one line or several) and real images [n, height, width, channels] for
            each row, with one channel (drawn in grey) or three; n and sizes may differ by row.
        scores: For each row what to write under its images, numbers (three digits are shown) or
            words, or None to write nothing; None for no scores at all.
        value_range: What is drawn black and white, the same for all; images are clipped to it.
            None stretches each image by its own smallest and largest pixel.
        title: Above the grid.
        figure: Where to draw, which is made as large as the grid, in the width of `style` if
            the scores have room there; one of its own when None.

    Returns:
        The figure; a row's axes follow one another in `figure.axes`, left to right.

    Raises:
        ConfigurationError: If a row has no images, other than one or three channels or a pixel
            that is not finite, or if scores are not one for each image.

    Examples:
        >>> noise = np.random.default_rng(0).random((2, 8, 8, 1))
        >>> rows = [("original", noise), ("recovered", noise)]
        >>> figure = plot_image_grid(rows, scores=[None, ["22 dB", 18.26]])
        >>> [ax.get_xlabel() for ax in figure.axes]
        ['', '', '22 dB', '18.3']
    """
    from matplotlib.figure import Figure

    labels, images = [label for label, _ in rows], _checked_rows(rows)
    texts = _checked_scores(images, scores)
    columns = max(len(row) for row in images)
    with style():
        figure = Figure(layout="constrained") if figure is None else figure
        longest = max(len(line) for label in labels for line in label.splitlines() or [""])
        side = _side(columns, _LABEL * longest + 0.15, texts)
        height = sum(side + _SCORE * (text is not None) for text in texts)
        figure.set_size_inches(
            side * columns + _LABEL * longest + 0.15, height + 0.3 * (title is not None)
        )
        axes = figure.subplots(len(images), columns, squeeze=False)
        for line, label, row, text in zip(axes, labels, images, texts, strict=True):
            for k, ax in enumerate(line):
                if k < len(row):
                    _draw(ax, row[k], value_range, "" if text is None else text[k])
                else:
                    ax.remove()
            line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        if title is not None:
            figure.suptitle(title, fontsize=9)
    return figure


def _side(columns: int, beside: float, texts: list[list[str] | None]) -> float:
    """Return the inches of an image that fits the column, but for its score's width."""
    import matplotlib as mpl

    width = float(mpl.rcParams["figure.figsize"][0])
    longest = max((len(one) for text in texts for one in text or ()), default=0)
    return max(min(_SIDE, (width - beside) / columns), 0.3, _LETTER * longest)


def _draw(ax: Axes, image: np.ndarray, value_range: tuple[float, float] | None, text: str) -> None:
    low, high = (image.min(), image.max()) if value_range is None else value_range
    shown = np.clip((image - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    grey = shown[..., 0] if shown.shape[-1] == 1 else shown
    ax.imshow(grey, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines[:].set(visible=True, color="#999999", linewidth=0.6)
    ax.set_xlabel(text, fontsize=8, labelpad=2)


def _checked_rows(rows: Sequence[tuple[str, Any]]) -> list[np.ndarray]:
    require(len(rows) > 0, "rows", "must hold a row at least", len(rows))
    images = [np.asarray(row, np.float64) for _, row in rows]
    for row in images:
        rule = "must be images [n, height, width, 1 or 3], n at least 1"
        is_grid = row.ndim == 4 and row.shape[-1] in (1, 3) and row.size > 0
        require(is_grid, "rows", rule, row.shape)
        require(bool(np.isfinite(row).all()), "rows", "must be finite", "nan or infinity")
    return images


def _checked_scores(
    images: list[np.ndarray], scores: Sequence[Sequence[Any] | None] | None
) -> list[list[str] | None]:
    """Return what is written under each image of each row."""
    own = [None] * len(images) if scores is None else list(scores)
    require(len(own) == len(images), "scores", "must be one a row", len(own), len(images))
    texts: list[list[str] | None] = []
    for row, line in zip(images, own, strict=True):
        fits = line is None or len(line) == len(row)
        require(fits, "scores", "must be one for each image", line, len(row))
        texts.append(None if line is None else [_text(value) for value in line])
    return texts


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{float(value):.3g}"
