"""The figure of an item at each point of a sweep, drawn by the item's own chart.

A point keeps the data and the caption of its figure, packed; a report draws them.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax.study.publishing import _points
from mrsa_papers._config import Target
from mrsa_papers._drawing import best_figure, drawing_colours
from mrsa_watch._base.errors import writing
from mrsa_watch._base.html import counted

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from mrsa_papers.harness import Item

PARTS, LETTERS = 4, 3 * 2**15  # of a point's chart, which a store keeps as text
_MOST_FIGURES = 24  # of a page
_MOST_LETTERS = 60  # of a place, in a file's name


def packed(item: Item) -> np.ndarray:
    """Return an item's caption and data as text[PARTS]; empty where they do not fit."""
    text = json.dumps([item.caption, item.data.to_csv(index=False)])
    chart = base64.b85encode(lzma.compress(text.encode())).decode()
    if len(chart) > PARTS * LETTERS:
        chart = ""
    parts = [chart[LETTERS * part : LETTERS * (part + 1)] for part in range(PARTS)]
    return np.asarray(parts, f"<U{LETTERS}")


def unpacked(parts: np.ndarray) -> tuple[str, pd.DataFrame] | None:
    """Return the caption and the data of a point; None where they did not fit."""
    import pandas as pd

    chart = "".join(parts.tolist())
    if not chart:
        return None
    caption, table = json.loads(lzma.decompress(base64.b85decode(chart)))
    return caption, pd.read_csv(io.StringIO(table))


def figures(
    target: Target, results: xr.Dataset, folder: pathlib.Path
) -> tuple[str, str]:
    """Draw the item's figure at each completed point of a sweep.

    Args:
        target: The item.
        results: The sweep.
        folder: Where PNG, SVG, PDF and data of each figure are written.

    Returns:
        Markup of the figures, and their style.

    Raises:
        StoreError: If they cannot be written.
    """
    from mrsa_papers._driver import figure_of
    from mrsa_papers.harness import Item, save_figure

    markup: list[str] = []
    left: list[bool] = []
    for number, (place, chart) in enumerate(_charts(results), start=1):
        found = unpacked(chart)
        if found is None or len(markup) == _MOST_FIGURES:
            left.append(found is None)
            continue
        caption, data = found
        slug = re.sub(r"[^\w.]+", "-", place)[:_MOST_LETTERS].strip("-")
        item = Item(f"{target[1]}-{number:02d}-{slug}", place, (), data, caption)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # one of an earlier report must not stand for a figure that fails
            (folder / f"{item.name}.png").unlink(missing_ok=True)
            picture = save_figure(item, figure_of(target), folder)
        if picture.is_file():
            words = f"{place}. {caption}"
            markup.append(best_figure(words, picture, picture.with_suffix(".svg")))
    body = "".join((*markup, *_left(left)))
    return body, drawing_colours(body)


def _charts(results: xr.Dataset) -> Iterator[tuple[str, np.ndarray]]:
    """Go through the completed points: their place in words, and their chart."""
    axes = _points.axes_of(results)
    charts = results["chart"].transpose(*axes, "chart_part").to_numpy()
    is_done = np.asarray(results["done"].transpose(*axes))
    for place in np.argwhere(is_done).tolist():
        values = (
            results[axis].to_numpy()[index] if axis in results.coords else index
            for axis, index in zip(axes, place, strict=True)
        )
        named = zip(axes, values, strict=True)
        words = ", ".join(f"{axis.replace('_', ' ')} {value}" for axis, value in named)
        yield words, charts[tuple(place)]


def _left(are_large: list[bool]) -> Iterator[str]:
    """Say which points have no figure on the page."""
    large, more = sum(are_large), len(are_large) - sum(are_large)
    if large:
        yield (
            f"<p>{counted(large, 'point')} kept no figure: its data are too large. "
            "<code>mrsa-jax reproduce</code> draws it.</p>"
        )
    if more:
        yield f"<p>{counted(more, 'point')} more: a page shows {_MOST_FIGURES} figures.</p>"
