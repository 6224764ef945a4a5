"""Whether two pictures show the same, but for how letters are hinted and smoothed."""

from __future__ import annotations

import base64
import io
import pathlib
import re

import numpy as np
from PIL import Image
from scipy import ndimage

MOST = 25  # pixels that may differ; a mark that has moved is more than twice as many
# a pixel may be anything that there is in the other picture, within two pixels of it
_NEAR = 5
_TONES = 90  # ... and lighter or darker by so much, of 255: edges of letters
_POINTS = 1.2  # by which a place of an SVG may be another: widths of letters move axes

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_UNTOLD = re.compile(r"(?s)<metadata>.*?</metadata>|(?<=[\"#])\w+[0-9a-f]{10}(?=[\")])")
_INSIDE = re.compile(r"data:image/png;base64,([\w+/=\s]+)")


def differing(drawn: pathlib.Path, stored: pathlib.Path) -> int:
    """Count pixels of either picture that the other does not have near by.

    A line of another colour, one more or one less, or one that has moved by some three
    pixels counts; a letter that is hinted otherwise does not. Another size is all of
    them. Of SVG, other words or shapes are all of them, and a place that has moved is
    as many as a mark.
    """
    if stored.suffix == ".svg":
        return _moved(
            drawn.read_text(encoding="utf-8"), stored.read_text(encoding="utf-8")
        )
    return _unlike_pixels(*(Image.open(path) for path in (drawn, stored)))


def _unlike_pixels(*images: Image.Image) -> int:
    one, other = (np.asarray(image.convert("RGB"), int) for image in images)
    if one.shape != other.shape:
        return max(one.size, other.size)
    return int((_unlike(one, other) | _unlike(other, one)).sum())


def _unlike(picture: np.ndarray, other: np.ndarray) -> np.ndarray:
    lowest = ndimage.minimum_filter(other, (_NEAR, _NEAR, 1))
    highest = ndimage.maximum_filter(other, (_NEAR, _NEAR, 1))
    return ((picture < lowest - _TONES) | (picture > highest + _TONES)).any(axis=-1)


def _moved(*texts: str) -> int:
    inside = [
        [base64.b64decode(own) for own in _INSIDE.findall(text)] for text in texts
    ]
    one, other = (_UNTOLD.sub("", _INSIDE.sub("", text)) for text in texts)
    if _NUMBER.split(one) != _NUMBER.split(other) or len(inside[0]) != len(inside[1]):
        return max(map(len, texts))
    images = (
        map(Image.open, map(io.BytesIO, pair)) for pair in zip(*inside, strict=True)
    )
    places = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    far = sum(abs(float(own) - float(its)) > _POINTS for own, its in places)
    return 3 * MOST * far + sum(_unlike_pixels(*pair) for pair in images)
