"""Curves that coincide, drawn so that each is seen: dashes in turn, never values moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_NEAR = 0.006  # of the axis: about half a line's width
_DASH = 4.0  # widths of the line


def interleave(ax: Axes, lines: Sequence[Line2D]) -> None:
    """Draw dashes of each curve in turn wherever several of them run on one another.

    Every dash lies on its own curve: nothing is moved.

    Args:
        ax: The axes, their limits set.
        lines: Curves over the same x, drawn alike.
    """
    if len(lines) < 2:
        return
    x = np.asarray(lines[0].get_xdata(), float)
    values = np.stack([np.asarray(line.get_ydata(), float) for line in lines])
    height = ax.get_ylim()[1] - ax.get_ylim()[0]
    heights = np.log10(values) if ax.get_yscale() == "log" else values / height
    if ax.get_yscale() == "log":
        heights = heights / np.ptp(np.log10(ax.get_ylim()))
    step = lines[0].get_drawstyle() == "steps-post"
    pieces: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for first, last, groups in _runs(_groups(heights), step):
        for group in groups:
            for turn, k in enumerate(group):
                pieces.setdefault((k, turn, len(group)), []).append((first, last))
    for (k, turn, count), spans in pieces.items():
        line, path = lines[k], _path(x, values[k], spans, step)
        dashes = (-turn * _DASH % (count * _DASH), (_DASH, (count - 1) * _DASH))
        ax.plot(*path.T, color=line.get_color(), lw=line.get_linewidth(), ls=dashes,
                dash_capstyle="butt", label="_coinciding",
                zorder=line.get_zorder() + 0.1)  # fmt: skip


def staggered(ax: Axes, lines: Sequence[Line2D]) -> None:
    """Make marks hollow, and the earlier ones larger, where marks of several curves coincide.

    Args:
        ax: The axes, their limits set.
        lines: Curves with marks.
    """
    points = [line.get_transform().transform(np.asarray(line.get_xydata())) for line in lines]
    figure = ax.get_figure(root=True)
    assert figure is not None
    near = 0.5 * lines[0].get_markersize() * figure.dpi / 72 if lines else 0.0
    meet = any(
        np.isfinite(gaps := np.linalg.norm(a[:, None] - b[None], axis=-1)).any()
        and float(np.nanmin(gaps)) < near
        for i, a in enumerate(points)
        for b in points[:i]
    )
    for k, line in enumerate(lines if meet else ()):
        size = line.get_markersize() + min(1.8 * (len(lines) - 1 - k), 9.0)
        line.set(markersize=size, markerfacecolor="none")


def _groups(heights: np.ndarray) -> list[tuple[tuple[int, ...], ...]]:
    """Return which curves lie on one another at each place, those that lie alone left out."""
    if len(heights) < 2:
        return []
    order = np.argsort(heights, axis=0, kind="stable")
    found = []
    for place in range(heights.shape[1]):
        groups: list[list[int]] = []
        for k in order[:, place]:
            value = heights[k, place]
            if not np.isfinite(value):
                continue
            if groups and value - heights[groups[-1][0], place] <= _NEAR:
                groups[-1].append(int(k))
            else:
                groups.append([int(k)])
        found.append(tuple(tuple(sorted(group)) for group in groups if len(group) > 1))
    return found


def _runs(
    groups: Sequence[tuple[tuple[int, ...], ...]], step: bool
) -> list[tuple[int, int, tuple[tuple[int, ...], ...]]]:
    """Return the stretches on which the same curves coincide: first and last place, groups.

    A step runs on to the next place whatever happens there; a slope coincides if both ends do.
    """
    found, first = [], 0
    for place in range(1, len(groups) + 1):
        if place == len(groups) or groups[place] != groups[first]:
            last = min(place, len(groups) - 1) if step else place - 1
            if groups[first] and last > first:
                found.append((first, last, groups[first]))
            first = place
    return found


def _path(x: np.ndarray, y: np.ndarray, spans: Sequence[tuple[int, int]], step: bool) -> np.ndarray:
    """Return the points of a curve on some stretches, with a gap after each."""
    parts = []
    for first, last in spans:
        at, values = x[first : last + 1], y[first : last + 1]
        if step:
            at, values = np.repeat(at, 2)[1:-1], np.repeat(values[:-1], 2)
        parts += [np.column_stack([at, values]), np.full((1, 2), np.nan)]
    return np.concatenate(parts)
