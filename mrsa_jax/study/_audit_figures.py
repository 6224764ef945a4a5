"""The charts of an audit, from the table that it leaves: privacy over the rounds of a log."""

from __future__ import annotations

import csv
import pathlib

import numpy as np

from mrsa_jax.plotting._chart import Chart, Line

PRIVACY = "weak_privacy"
"""The chart that an audit's page opens with."""

EXPOSED = "Exposed clients"
_WEAK, _STRONG, _HIDDEN = "Weak T", "Strong T", "Worst client hidden among"
QUESTIONS = {
    _WEAK: "weak T",
    _STRONG: "strong T",
    _HIDDEN: "worst client hidden",
    EXPOSED: "exposed clients",
}
"""The line of an audit's summary that each curve belongs to."""

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


def audit_charts(path: pathlib.Path) -> dict[str, Chart]:
    """Return the charts of an audit by name; none without the table of its rounds.

    Args:
        path: The table, `rounds.csv` in its folder.

    Raises:
        OSError: If it cannot be read.
    """
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = [name for name in (rows[0] if rows else {}) if name != "round"]
    columns = {name: np.array([_number(row.get(name)) for row in rows]) for name in names}
    if not {"exposed_clients", "weak_lower", "weak_upper"} <= set(columns):
        return {}
    rounds, label = _rounds([str(row.get("round")) for row in rows])
    exposed = Line(EXPOSED, rounds, columns["exposed_clients"], kind="step")
    return {
        PRIVACY: Chart(
            "Weak T, strong T, and among how many the worst client is hidden", _PRIVACY_WORDS,
            _privacy(rounds, columns), label, "clients",
            rules=((1.0, "1: somebody is exposed"),),
        ),
        "exposed_clients": Chart(
            EXPOSED, _EXPOSED_WORDS, [exposed], label, "clients", whole="xy",
            empty="nobody is exposed",
        ),
    }  # fmt: skip


def _privacy(rounds: np.ndarray, columns: dict[str, np.ndarray]) -> list[Line]:
    lower, upper = (_above_zero(columns[name]) for name in ("weak_lower", "weak_upper"))
    lines = []
    if (lower < upper).any():
        lines.append(Line(_WEAK, rounds, lower, "at least", lower, upper, "step"))
        lines.append(Line(_WEAK, rounds, upper, "at most", kind="step"))
    else:
        lines.append(Line(_WEAK, rounds, upper, kind="step"))
    for label, name in ((_STRONG, "strong_privacy"), (_HIDDEN, "hidden_among_worst")):
        own = _above_zero(columns.get(name, np.full(len(rounds), np.nan)))
        if np.isfinite(own).any():
            lines.append(Line(label, rounds, own, kind="step"))
    return lines


def _rounds(names: list[str]) -> tuple[np.ndarray, str]:
    """Return where the rounds stand on the axis: at their numbers, if these rise."""
    numbers = np.array([_number(name) for name in names])
    if np.isfinite(numbers).all() and (np.diff(numbers) > 0).all():
        return numbers, "round"
    return np.arange(1.0, len(names) + 1), "rounds of the log, counted from 1"


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _above_zero(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)
