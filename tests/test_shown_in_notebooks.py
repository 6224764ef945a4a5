"""What a notebook shows of schemes, layouts and histories.

As typed, with a picture of cells.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

import mrsa_jax as mj

BLOCKS = np.eye(3, dtype=int).repeat(2, axis=1)
SHOWN: dict[str, tuple[Callable[[], Any], Any]] = {
    "batch_partitioning(6, 4, 2)": (
        lambda: mj.selection.batch_partitioning(6, 4, 2),
        BLOCKS,
    ),
    "uniform(3, 2)": (lambda: mj.selection.uniform(3, 2), np.eye(3)),
    "complete(3)": (lambda: mj.graphs.complete(3), 1 - np.eye(3)),
    "independent(0.1)": (lambda: mj.availability.independent(0.1), None),
    "Replay": (lambda: mj.availability.replay([[True, False, True]]), [[1, 0, 1]]),
    "segment_layout(&#x27;groups&#x27;, [2, 3], [2, 4], 7)": (
        lambda: mj.hetero.segment_layout("groups", [2, 3], [2, 4], 7),
        [[0, 0]],
    ),
    "segment_layout(&#x27;mc&#x27;, [2, 2], [2, 4], 7)": (
        lambda: mj.hetero.segment_layout("mc", [2, 2], [2, 4], 7),
        [[1, 1], [0, 0]],
    ),
}


def cells(html: str) -> np.ndarray:
    address = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address[0]))))


@pytest.mark.parametrize("title", SHOWN)
def test_a_scheme_shows_its_call_and_its_cells(title: str) -> None:
    make, wanted = SHOWN[title]
    html = make()._repr_html_()
    assert f"<strong>{title}</strong>" in html
    assert ("<img" in html) == (wanted is not None)
    if wanted is not None:
        np.testing.assert_array_equal(cells(html), wanted)


def test_lines_and_rounds_show_theirs() -> None:
    scheme = mj.selection.crossing_partitions(9, 6, 3)
    table = cells(scheme._repr_html_())
    assert table.shape == (6, 9)
    assert (table.sum(axis=1) == 3).all()
    alive = np.array([[[1, 1, 1, 0]] * 3 + [[1, 0, 1, 0]] * 2], bool)
    played = mj.selection.RoundHistory(
        alive, np.array([[1, 0, 0, 0]], bool), np.zeros(1)
    )
    assert cells(played._repr_html_()).tolist() == [[3, 1, 2, 0]]


@pytest.mark.long
def test_what_has_no_values_is_shown_without_a_picture() -> None:
    found: list[Any] = []

    def look(rate: Any) -> Any:
        found.append(mj.selection.batch_partitioning(6, 4, rate)._repr_html_())
        return rate

    jax.jit(look)(2)
    assert "<img" not in found[0]
    assert "<img" not in mj.graphs.complete(5000)._repr_html_()
