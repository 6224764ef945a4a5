"""Means over seeds with their intervals.

What accuracy tables and their verdicts are read from.
Runs are paired where seed i of one shares data, model and random streams with seed i of
another: their differences vary less than the accuracies do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.statistics import (
    binomial_interval,
    half_interval,
    half_interval_of_two,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Interval",
    "bands",
    "binomial_interval",
    "difference",
    "every",
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
        few: The values, where they are fewer than three: their range is shown then, as
            an interval of two is mostly wider than what is measured.
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

    def reaches(self, bound: int | float) -> bool | None:
        """Return whether it is wholly at `bound` or above; None where it cannot tell.

        Examples:
            >>> [Interval(mean, 1.0).reaches(-2.0) for mean in (0.0, -2.0, -4.0)]
            [True, None, False]
        """
        # yes, no, or open where the bound lies inside
        return True if self.low >= bound else False if self.high < bound else None

    def exceeds(self, bound: int | float) -> bool | None:
        """Return whether it is wholly above `bound`; None where it cannot tell.

        Examples:
            >>> [Interval(mean, 1.0).exceeds(0.0) for mean in (2.0, 0.5, -1.0)]
            [True, None, False]
        """
        return True if self.low > bound else False if self.high <= bound else None

    def lies_within(self, margin: int | float) -> bool | None:
        """Return whether it is wholly nearer to 0 than `margin`.

        None where it cannot tell.
        """
        # both sides: above -margin, and the negative above it too
        return every((self.reaches(-margin), (-self).reaches(-margin)))

    def plus(self, shift: int | float) -> Interval:
        """Return the interval of the values plus a number."""
        return Interval(
            self.mean + shift, self.half, tuple(value + shift for value in self.few)
        )

    def __neg__(self) -> Interval:
        return Interval(-self.mean, self.half, tuple(-value for value in self.few))

    @property
    def shown(self) -> tuple[float, float]:
        """Return the ends that a figure shows.

        The interval's, or the range of one or two.
        """
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
    """Return mean and 95 % interval of one value a seed.

    Of one seed it is infinitely wide.

    Examples:
        >>> interval([1.0, 2.0, 3.0]).mean, interval([1.0]).half
        (2.0, inf)
    """
    numbers = np.asarray(values, np.float64)
    few = tuple(numbers.tolist()) if len(numbers) < 3 else ()
    # no deviation can be estimated
    if len(numbers) < 2:
        return Interval(float(numbers.mean()), float("inf"), few)
    return Interval(float(numbers.mean()), float(half_interval(numbers)), few)


def every(answers: Iterable[bool | None]) -> bool | None:
    """Tell whether all answers are yes.

    False where one does not, else None where one cannot be told.

    Examples:
        >>> every([True, None]), every([None, False]), every([True])
        (None, False, True)
    """
    listed = list(answers)
    # one refutation decides, whatever is open besides
    return False if False in listed else None if None in listed else True


def spread(seeds: int) -> str:
    """Return in words what is shown beside a mean over so many seeds.

    Examples:
        >>> spread(5), spread(2)
        ('95 % intervals', 'the range of both seeds')
    """
    return (
        "95 % intervals"
        if seeds > 2
        else "the range of both seeds"
        if seeds == 2
        else "one seed"
    )


def bands(seeds: int) -> str:
    """Return the sentence of a caption about the bands of its curves.

    "" where there are none.

    Examples:
        >>> bands(2), bands(1)
        (' Bands: the range of both seeds.', '')
    """
    return f" Bands: {spread(seeds)}." if seeds > 1 else ""


def difference(first: Any, second: Any) -> Interval:
    """Return the paired difference in points of accuracies in [0, 1], seed by seed."""
    return interval(
        # differences seed by seed, as what seeds share cancels
        100 * (np.asarray(first, np.float64) - np.asarray(second, np.float64))
    )


def over_samples(gap: Interval, seeds: Any, parts: Any) -> Interval:
    """Return a paired difference whose interval is over seeds and test samples.

    Args:
        gap: The difference over seeds alone, in points.
        seeds: f64 [S], the difference of each seed, in points.
        parts: f64 [S, G], the same on each part of the test samples.
    """
    if len(seeds) < 2:
        return gap
    half = half_interval_of_two(seeds, np.mean(parts, axis=0))
    return dataclasses.replace(gap, half=half)


def late_by(
    frame: pd.DataFrame, curve: str, *, share: float = 0.1
) -> dict[str, pd.Series]:
    """Return each curve's late accuracies by the name that a column gives it."""
    curves = frame.groupby(curve, sort=False)
    return {str(name): late_accuracy(rows, share=share) for name, rows in curves}


def late_accuracy(frame: pd.DataFrame, *, share: float = 0.1) -> pd.Series:
    """Return each seed's accuracy.

    The mean of the tests in the last tenth (or share) of rounds.

    Args:
        frame: One curve: columns seed, round (from 1) and accuracy.
        share: Of the rounds; 1 for all tests.
    """
    late = frame[frame["round"] > (1 - share) * frame["round"].max()]
    return late.groupby("seed")["accuracy"].mean()
