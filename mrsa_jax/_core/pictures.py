"""Small pictures of cells.

Who is in which sum, who shares pads with whom, who moves together.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from mrsa_watch._base.html import telling

COLOURS = ("#F2F2F2", "#0072B2", "#D55E00", "#56B4E9", "#009E73", "#CC79A7")
# of a picture; of its screen pixels, where a cell has several
_MOST_CELLS, _WIDTH = 10**6, 240


def png_address(cells: np.ndarray, colours: Sequence[str]) -> str:
    """Return a picture of uint8 cells, a pixel each, as an address that holds it."""
    from PIL import Image

    png, image = io.BytesIO(), Image.fromarray(cells, "P")
    image.putpalette(bytes.fromhex("".join(colour[1:] for colour in colours)))
    image.save(png, "PNG")
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"


def with_picture(value: Any) -> str:
    """Show a value as `telling` does, with a picture of its `_cells()` below.

    For `_repr_html_ = with_picture` in the class; `_cells` returns small integers, 0
    for nothing.
    """
    try:
        cells = np.asarray(value._cells() if hasattr(value, "_cells") else ())
    except Exception:  # traced, of many trials, given away: what is shown must not fail
        cells = np.zeros(0)
    if cells.ndim != 2 or not 0 < cells.size <= _MOST_CELLS:
        return telling(value)
    kinds = np.where(
        cells > 0, (cells.astype(np.int64) - 1) % (len(COLOURS) - 1) + 1, 0
    )
    rows, columns = (size * max(1, _WIDTH // max(cells.shape)) for size in cells.shape)
    style = f"image-rendering:pixelated;width:{columns}px;height:{rows}px;margin:.4em 0"
    address = png_address(kinds.astype(np.uint8), COLOURS)
    alternative = value._cells.__doc__
    picture = f'<img alt="{alternative}" style="{style}" src="{address}">'
    return f"{telling(value)}{picture}"
