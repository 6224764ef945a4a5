"""Segments of one width side by side: how many go at once, and under a trace one after another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from mrsa_jax._core.device import at_once
from mrsa_jax.hetero._layout import SegmentLayout, SegmentRows
from mrsa_jax.secagg import Block, SegmentPlan


class Span(NamedTuple):
    """Neighbouring segments of one width.

    Attributes:
        rows: Them.
        first: Number of the first one.
        start: Its first coordinate.
        width: Coordinates of each.
    """

    rows: SegmentRows
    first: int
    start: int
    width: int

    @property
    def num_segments(self) -> int:
        """Return how many they are."""
        return len(self.rows.segment)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Return (start, stop) of each segment."""
        starts = range(self.start, self.start + self.num_segments * self.width, self.width)
        return [(start, start + self.width) for start in starts]


def spans_of(layout: SegmentLayout) -> list[Span]:
    """Cut the segments into spans that are worked on at once, all of a width equally long."""
    size, rest = divmod(layout.dim, layout.num_segments)
    most = at_once("segments", 4 * layout.num_participants * (size + 1))
    spans = []
    for first, stop, width in ((0, rest, size + 1), (rest, layout.num_segments, size)):
        length = _divisor(stop - first, most)
        for own in range(first, stop, length):
            rows = SegmentRows(*(leaf[own : own + length] for leaf in layout.rows))
            spans.append(Span(rows, own, layout.bounds[own][0], width))
    return spans


def plan_of(layout: SegmentLayout, span: Span) -> tuple[SegmentPlan, int]:
    """Return a span's blocks over its own coordinates, and the number of the first."""
    first, count = int(span.rows.number.min()), len(layout.blocks)
    own = layout.blocks[first : int(span.rows.number[span.rows.number < count].max()) + 1]
    return tuple(
        Block(block.members, block.start - span.start, block.stop - span.start, block.modulus,
              block.num_levels)
        for block in own
    ), first  # fmt: skip


def _divisor(count: int, most: int) -> int:
    """Return the largest divisor that is at most so large: parts of one shape to compile for."""
    return max((n for n in range(1, min(most, count) + 1) if count % n == 0), default=1)


def by_parts(function: Callable[..., Array], *arrays: Any) -> Array:
    """Return function of each segment, given arrays whose leading axis counts segments.

    A CPU takes them one after another: its sums over B are added up in an order that depends on
    the shape, and an update must not depend on how many segments go at once.
    """
    count = arrays[0].shape[0]
    batch = _divisor(count, at_once("averages", 4 * math.prod(arrays[0].shape[1:])))
    if batch == 1:
        return lax.map(lambda own: function(*own), arrays)
    if batch == count:
        return jax.vmap(function)(*arrays)
    return lax.map(lambda own: function(*own), arrays, batch_size=batch)


def mapped(step: Callable[..., Any], spans: list[Span]) -> list[Any]:
    """Return step(rows, start, width) of all spans, those of one shape as one loop's results.

    A leading axis counts the loop's rounds, so that many spans under a trace are few programs.
    """
    parts = []
    for (width, _), group in itertools.groupby(spans, lambda one: (one.width, one.num_segments)):
        own = list(group)
        rows = SegmentRows(*map(np.stack, zip(*(span.rows for span in own), strict=True)))
        starts = np.asarray([span.start for span in own], np.int32)
        loop = jax.tree.map(jnp.asarray, (rows, starts))
        parts.append(lax.map(lambda one, width=width: step(*one, width), loop))
    return parts
