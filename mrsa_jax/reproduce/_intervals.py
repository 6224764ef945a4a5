"""Means over seeds with their intervals: what accuracy tables and their verdicts are read from.

Runs are paired where seed i of one shares data, model and random streams with seed i of another:
their differences vary less than the accuracies do.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Interval", "difference", "interval", "late_accuracy"]


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % interval (Student's t)."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        """Return the lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Return the upper end."""
        return self.mean + self.half

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.half:.1f}"


def interval(values: Any) -> Interval:
    """Return mean and 95 % interval of one value a seed; of one seed it is infinitely wide.

    Examples:
        >>> interval([1.0, 2.0, 3.0]).mean, interval([1.0]).half
        (2.0, inf)
    """
    from scipy import special

    own = np.asarray(values, np.float64)
    if len(own) < 2:
        return Interval(float(own.mean()), float("inf"))
    error = float(own.std(ddof=1)) / np.sqrt(len(own))
    return Interval(float(own.mean()), float(special.stdtrit(len(own) - 1, 0.975) * error))


def difference(one: Any, other: Any) -> Interval:
    """Return the paired difference in points, from accuracies in [0, 1], seed by seed."""
    return interval(100 * (np.asarray(one, np.float64) - np.asarray(other, np.float64)))


def late_accuracy(frame: pd.DataFrame, *, share: float = 0.1) -> pd.Series:
    """Return each seed's accuracy: the mean of the tests in the last tenth (or share) of rounds.

    Args:
        frame: One curve: columns seed, round (from 1) and accuracy.
        share: Of the rounds; 1 for all tests.
    """
    late = frame[frame["round"] > (1 - share) * frame["round"].max()]
    return late.groupby("seed")["accuracy"].mean()
