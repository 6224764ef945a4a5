"""What a figure shows, made once from data and drawn twice: on axes, and in a report.

Nothing here imports matplotlib.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

FEW = 12
"""Points of a line that are marked."""

ALL = "all points"
"""The one series of points that nothing tells apart."""


class Line(NamedTuple):
    """One line, or the points of one kind.

    Attributes:
        series: Whose it is: its colour, and what switches it.
        x: Where, float[n].
        y: How much, float[n]; nan where there is nothing.
        name: What of the series it is, beside its values; "" for the only one.
        low: Lower edge of a band around it, or None.
        high: Upper edge.
        kind: "line", "step" (a value holds until the next) or "marks" (no line).
        weight: "main", "thin" or "thick", and maybe "solid" or "dashed" whatever the series is.
        words: What is said of each mark, in place of its values.
        rows: The row of a table that each mark stands for; none when empty.
        shade: Accuracy of each mark's model in percent, which fills it in a picture, or None.
    """

    series: str
    x: Any
    y: Any
    name: str = ""
    low: Any = None
    high: Any = None
    kind: str = "line"
    weight: str = "main"
    words: Sequence[str] = ()
    rows: Sequence[int] = ()
    shade: Any = None


@dataclasses.dataclass(frozen=True)
class Chart:
    """A drawing and what it shows.

    Attributes:
        title: What it shows, in short.
        caption: How to read it.
        lines: What is drawn; what lies below comes first.
        x_label: Of the axis below.
        y_label: Of the axis at the left, with its unit.
        x_from: Least value that the axis below holds in any case, or None.
        y_range: Values that the axis at the left holds in any case.
        is_log_x: Whether the axis below is logarithmic.
        is_log_y: Whether the one at the left is.
        whole: Axes of whole numbers: "", "x", "y" or "xy".
        rules: Levels to compare with: value, words.
        empty: What is said where all values are zero.
        ticks: What stands along the axis below in place of numbers: place, words.
        are_schemes: Whether its series are schemes, whose colours are the same everywhere.
        names_lines: Whether the key of a picture names each line, not each series alone.
        marks_points: Whether a picture marks the points of short lines, as a report always does.
    """

    title: str
    caption: str
    lines: Sequence[Line]
    x_label: str = "rounds"
    y_label: str = ""
    x_from: float | None = None
    y_range: tuple[float, ...] = (0.0,)
    is_log_x: bool = False
    is_log_y: bool = False
    whole: str = "x"
    rules: Sequence[tuple[float, str]] = ()
    empty: str = ""
    ticks: Sequence[tuple[float, str]] = ()
    are_schemes: bool = True
    names_lines: bool = False
    marks_points: bool = False

    @property
    def series(self) -> tuple[str, ...]:
        """The labels of what is drawn, each once."""
        return tuple(dict.fromkeys(line.series for line in self.lines))
