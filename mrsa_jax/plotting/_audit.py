"""Figures of an audit: who is exposed by when, and the bounds of privacy over the rounds of a log.

All take columns with a value for each round, as `mrsa-jax audit --out` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._axes import draw
from mrsa_jax.plotting._chart import Chart, Line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

EXPOSED = "Exposed clients"
WEAK, STRONG, HIDDEN = "Weak T", "Strong T", "Worst client hidden among"
_PRIVACY_WORDS = (
    "Weak T after each round: the fewest clients in any combination of the sums so far, between "
    "its bounds (before the last round with error chance below 2^-30); 1 means that somebody is "
    "exposed. Strong T: the fewest clients whom no combination tells apart. Hidden among: as in a "
    "sum of how many clients the worst hidden client is."
)
_EXPOSED_WORDS = (
    "Clients whose own update could be solved for after each round: a combination of the sums so "
    "far is theirs alone."
)


def exposure_chart(data: Mapping[Any, Any], num_clients: int | None = None) -> Chart:
    """Return who is exposed by when; all clients of the log are a level, where they are known."""
    rounds, label = _rounds(data)
    line = Line(EXPOSED, rounds, np.asarray(data["exposed_clients"], float), kind="step")
    rules = () if num_clients is None else ((float(num_clients), "all clients of the log"),)
    return Chart(
        EXPOSED, _EXPOSED_WORDS, [line], label, "exposed clients", whole="xy",
        y_range=(0.0, *(level for level, _ in rules)), rules=rules, empty="nobody is exposed",
        are_schemes=False,
    )  # fmt: skip


def privacy_chart(data: Mapping[Any, Any]) -> Chart:
    """Return weak T after each round, and strong T and hidden among where they are known."""
    rounds, label = _rounds(data)
    lower, upper = (_above_zero(data[name]) for name in ("weak_lower", "weak_upper"))
    lines = [Line(WEAK, rounds, upper, kind="step")]
    if (lower < upper).any():
        lines = [
            Line(WEAK, rounds, lower, "at least", lower, upper, "step"),
            Line(WEAK, rounds, upper, "at most", kind="step"),
        ]
    for series, name in ((STRONG, "strong_privacy"), (HIDDEN, "hidden_among_worst")):
        own = _above_zero(data[name]) if name in data else np.zeros(0)
        if np.isfinite(own).any():
            lines.append(Line(series, rounds, own, kind="step"))
    return Chart(
        "Weak T, strong T, and among how many the worst client is hidden", _PRIVACY_WORDS, lines,
        label, "clients", rules=((1.0, "1: somebody is exposed"),), are_schemes=False,
        names_lines=True,
    )  # fmt: skip


def plot_audit_exposure(
    data: pd.DataFrame, *, num_clients: int | None = None, ax: Axes | None = None
) -> Axes:
    """Plot how many clients' own updates could be solved for after each round of a log.

    Args:
        data: Columns round and exposed_clients. Rounds without numbers are counted from 1.
        num_clients: All of them, drawn as a line.
        ax: Where to draw; a figure of its own when None.
    """
    return draw(exposure_chart(data.to_dict("list"), num_clients), ax=ax)


def plot_audit_privacy(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot weak T after each round of a log, and strong T and hidden among where they are known.

    Weak T lies in the band between its bounds, where these differ.

    Args:
        data: Columns round, weak_lower, weak_upper and maybe strong_privacy and
            hidden_among_worst; below 1 is left out.
            Rounds without numbers are counted from 1.
        ax: Where to draw; a figure of its own when None.
    """
    return draw(privacy_chart(data.to_dict("list")), ax=ax)


def _rounds(data: Mapping[Any, Any]) -> tuple[np.ndarray, str]:
    """Return where the rounds stand on the axis: at their numbers, if these rise."""
    try:
        numbers = np.asarray(data["round"], float)
    except ValueError:
        numbers = np.zeros(0)
    if numbers.size and np.isfinite(numbers).all() and (np.diff(numbers) > 0).all():
        return numbers, "round"
    return np.arange(1.0, len(data["round"]) + 1), "rounds of the log, counted from 1"


def _above_zero(values: Any) -> np.ndarray:
    known = np.asarray(values, float)
    return np.where(known > 0, known, np.nan)
