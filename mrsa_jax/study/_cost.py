"""What privacy costs, as charts of points: strong T and hidden among, against C and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax._html import number
from mrsa_jax.plotting._chart import Chart
from mrsa_jax.plotting._points import pair_chart, shown_scale

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
    return {
        f"{y}_{x}": pair_chart(table, x, y, hue, _words(table, names, x, y))
        for x, y in _pairs(table, names)
    }


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


def _words(table: pd.DataFrame, names: Sequence[str], x: str, y: str) -> list[str]:
    """Return what is said of each point: its settings, and what was measured of it."""
    own = table[list(names)].itertuples(index=False, name=None)
    pairs = (shown_scale(name) * table[name].to_numpy(np.float64) for name in (x, y))
    return [
        ", ".join(f"{heading(n)} {value}" for n, value in zip(names, told, strict=True))
        + f": {heading(x)} {number(a)}, {heading(y)} {number(b)}"
        for told, a, b in zip(own, *pairs, strict=True)
    ]
