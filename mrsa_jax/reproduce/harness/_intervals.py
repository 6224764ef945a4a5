"""Means over seeds with their intervals: what accuracy tables and their verdicts are read from.

Runs are paired where seed i of one shares data, model and random streams with seed i of another:
their differences vary less than the accuracies do.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._binomial import binomial_interval
from mrsa_jax._student import half_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Interval",
    "bands",
    "binomial_interval",
    "difference",
    "interval",
    "late_accuracy",
    "late_by",
    "spread",
]


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % interval (Student's t).

    Attributes:
        mean: The mean.
        half: Half the interval's width; infinite of one seed.
        few: The values, where they are fewer than three: their range is shown then, as an interval
            of two is mostly wider than what is measured.
    """

    mean: float
    half: float
    few: tuple[float, ...] = dataclasses.field(default=(), compare=False)

    @property
    def low(self) -> float:
        """Return the lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Return the upper end."""
        return self.mean + self.half

    @property
    def shown(self) -> tuple[float, float]:
        """Return the ends that a figure shows: the interval's, or the range of one or two."""
        return (min(self.few), max(self.few)) if self.few else (self.low, self.high)

    def __str__(self) -> str:
        return self.text()

    def text(self, spec: str = ".1f") -> str:
        """Return mean and interval in words, or the range of one or two seeds.

        Examples:
            >>> interval([1.0, 2.0, 3.0]).text(), interval([3.0, 2.0]).text("+.1f")
            ('2.0 ± 2.5', '+2.0 to +3.0')
        """
        if not self.few:
            return f"{self.mean:{spec}} ± {self.half:{spec.lstrip('+')}}"
        ends = dict.fromkeys(f"{end:{spec}}" for end in self.shown)
        return " to ".join(ends)


def interval(values: Any) -> Interval:
    """Return mean and 95 % interval of one value a seed; of one seed it is infinitely wide.

    Examples:
        >>> interval([1.0, 2.0, 3.0]).mean, interval([1.0]).half
        (2.0, inf)
    """
    own = np.asarray(values, np.float64)
    few = tuple(own.tolist()) if len(own) < 3 else ()
    if len(own) < 2:
        return Interval(float(own.mean()), float("inf"), few)
    return Interval(float(own.mean()), float(half_interval(own)), few)


def spread(seeds: int) -> str:
    """Return in words what is shown beside a mean over so many seeds.

    Examples:
        >>> spread(5), spread(2)
        ('95 % intervals', 'the range of both seeds')
    """
    return (
        "95 % intervals" if seeds > 2 else "the range of both seeds" if seeds == 2 else "one seed"
    )


def bands(seeds: int) -> str:
    """Return the sentence of a caption about the bands of its curves; "" where there are none.

    Examples:
        >>> bands(2), bands(1)
        (' Bands: the range of both seeds.', '')
    """
    return f" Bands: {spread(seeds)}." if seeds > 1 else ""


def difference(one: Any, other: Any) -> Interval:
    """Return the paired difference in points, from accuracies in [0, 1], seed by seed."""
    return interval(100 * (np.asarray(one, np.float64) - np.asarray(other, np.float64)))


def late_by(frame: pd.DataFrame, curve: str, *, share: float = 0.1) -> dict[str, pd.Series]:
    """Return each curve's late accuracies by the name that a column gives it."""
    curves = frame.groupby(curve, sort=False)
    return {str(name): late_accuracy(rows, share=share) for name, rows in curves}


def late_accuracy(frame: pd.DataFrame, *, share: float = 0.1) -> pd.Series:
    """Return each seed's accuracy: the mean of the tests in the last tenth (or share) of rounds.

    Args:
        frame: One curve: columns seed, round (from 1) and accuracy.
        share: Of the rounds; 1 for all tests.
    """
    late = frame[frame["round"] > (1 - share) * frame["round"].max()]
    return late.groupby("seed")["accuracy"].mean()
