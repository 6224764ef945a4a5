"""Axes that items' drawing functions draw on, in the package's style."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from mrsa_papers.harness import Draw, drawn


def axes_of(draw: Draw, data: pd.DataFrame) -> Axes:
    """Return the only axes of an item's figure."""
    (ax,) = drawn(draw, data).axes
    return ax


def panel(
    draw: Callable[..., None], data: pd.DataFrame, *args: Any, **words: Any
) -> Axes:
    """Return the axes on which one panel of a figure is drawn."""
    return axes_of(
        lambda figure, rows: draw(figure.subplots(), rows, *args, **words), data
    )
