"""What privacy costs, as charts of points: strong T and hidden among, against C and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax._html import number
from mrsa_jax.plotting._chart import Chart, Line
from mrsa_jax.plotting._points import axis_label, by_hue, shown_scale

if TYPE_CHECKING:
    import pandas as pd

HEADINGS = {
    "scheme": "Scheme",
    "strong_privacy": "Strong T",
    "weak_lower": "Weak T, at least",
    "weak_upper": "Weak T, at most",
    "hidden_among_worst": "Hidden among (worst)",
    "hidden_among_median": "Hidden among (median)",
    "aggregation_cardinality": "C",
    "accuracy": "Accuracy (%)",
    "exposed_clients": "Exposed",
    "fairness_gap": "F",
    "rank": "Rank",
    "skipped_rounds": "Skipped",
    "first_exposed_round": "First exposed round",
    "first_exposed_after": "Exposed from",
    "reconstruction_error": "Attack's error",
    "seconds": "Seconds",
}
"""What the columns of points are called."""

_PAIRS = (
    ("strong_privacy", "aggregation_cardinality"),
    ("hidden_among_worst", "aggregation_cardinality"),
    ("strong_privacy", "accuracy"),
    ("aggregation_cardinality", "accuracy"),
)


def heading(name: str) -> str:
    """Return what a column is called."""
    return HEADINGS.get(name, name.replace("_", " ") + " (%)" * name.endswith("accuracy"))


def cost_charts(table: pd.DataFrame, names: Sequence[str], hue: str | None) -> dict[str, Chart]:
    """Return charts of points, by name: those of the pairs that the table has.

    Args:
        table: A row a point.
        names: Columns that say which point a row is.
        hue: Column that tells series apart, or None.
    """
    return {f"{y}_{x}": _chart(table, names, x, y, hue) for x, y in _pairs(table, names)}


def _pairs(table: pd.DataFrame, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return which quantities are drawn against which; the first two there are, without those."""

    def has(*both: str) -> bool:
        return all(name in table for name in both) and bool(_finite(table, *both).any())

    pairs = [(x, y) for x, y in _PAIRS if has(x, y)]
    if pairs or not len(table):
        return pairs
    numbers = [str(n) for n in table if table[n].dtype.kind in "iuf"]
    measured = [n for n in numbers if n not in names and n != "seconds" and has(n)]
    along = [n for n in names if n in numbers]
    free = [*along[:1], *measured]
    return [(free[0], free[1])] if len(free) > 1 and has(free[0], free[1]) else []


def _finite(table: pd.DataFrame, *names: str) -> np.ndarray:
    values = table[list(names)].to_numpy(np.float64)
    return np.asarray(np.isfinite(values).all(axis=1))


def _chart(table: pd.DataFrame, names: Sequence[str], x: str, y: str, hue: str | None) -> Chart:
    own = table.assign(_row=np.arange(len(table)))[_finite(table, x, y)]
    lines = []
    for label, rows in by_hue(own, hue):
        xs, ys = (shown_scale(n) * rows[n].to_numpy(np.float64) for n in (x, y))
        words = [
            ", ".join(f"{heading(n)} {value}" for n, value in zip(names, told, strict=True))
            + f": {heading(x)} {number(a)}, {heading(y)} {number(b)}"
            for told, a, b in zip(
                rows[list(names)].itertuples(index=False, name=None), xs, ys, strict=True
            )
        ]
        lines.append(Line(label, xs, ys, kind="marks", words=words,
                          rows=rows["_row"].tolist()))  # fmt: skip
    across, up = axis_label(x), axis_label(y)
    free = x.endswith("accuracy"), y.endswith("accuracy")
    return Chart(
        f"{up[:1].upper()}{up[1:]} against {across}", "", lines, across, up,
        x_from=None if free[0] else 0.0, y_range=() if free[1] else (0.0,), whole="",
        are_schemes=hue in ("scheme", "schemes"),
    )  # fmt: skip
