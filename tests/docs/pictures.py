"""Whether two pictures show the same, but for how letters are hinted and smoothed."""

from __future__ import annotations

import pathlib

import numpy as np
from PIL import Image
from scipy import ndimage

MOST = 25  # pixels that may differ; a mark that has moved is more than twice as many
_NEAR = 5  # a pixel may be anything that there is in the other picture, within two pixels of it
_TONES = 90  # ... and lighter or darker by so much, of 255: edges of letters


def differing(drawn: pathlib.Path, stored: pathlib.Path) -> int:
    """Count pixels of either picture that the other does not have near by.

    A line of another colour, one more or one less, or one that has moved by some three pixels
    counts; a letter that is hinted otherwise does not. Another size is all of them.
    """
    one, other = (np.asarray(Image.open(path).convert("RGB"), int) for path in (drawn, stored))
    if one.shape != other.shape:
        return max(one.size, other.size)
    return int((_unlike(one, other) | _unlike(other, one)).sum())


def _unlike(picture: np.ndarray, other: np.ndarray) -> np.ndarray:
    lowest = ndimage.minimum_filter(other, (_NEAR, _NEAR, 1))
    highest = ndimage.maximum_filter(other, (_NEAR, _NEAR, 1))
    return ((picture < lowest - _TONES) | (picture > highest + _TONES)).any(axis=-1)
