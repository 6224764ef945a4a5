"""Images as cells of a table, from which a figure of images can be drawn again."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float


def image_as_cells(image: Any) -> dict[str, str]:
    """Return an image as two cells: its shape, and its pixels in [0, 1] as 0 to 255.

    Examples:
        >>> image_as_cells(np.array([[[0.0], [1.0]]]))
        {'shape': '1x2x1', 'pixels': '0 255'}
    """
    values = np.asarray(image, np.float64)
    levels = np.rint(255 * np.clip(values, 0, 1)).astype(int)
    return {
        "shape": "x".join(map(str, values.shape)),
        "pixels": " ".join(map(str, levels.ravel())),
    }


def image_from_text(
    shape: str, pixels: str
) -> Float[np.ndarray, "height width channels"]:
    """Return the image that two cells hold, its pixels in [0, 1].

    Examples:
        >>> image_from_text("1x2x1", "0 255").tolist()
        [[[0.0], [1.0]]]
    """
    values = np.asarray(pixels.split(), np.float64) / 255
    return values.reshape([int(side) for side in shape.split("x")])


def stretched(image: Any) -> np.ndarray:
    """Return an image with its smallest pixel at 0 and its largest at 1."""
    values = np.asarray(image, np.float64)
    values = values - values.min()
    return values / max(float(values.max()), 1e-12)
