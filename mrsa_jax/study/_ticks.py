"""Axes of drawings: where values lie, and the round numbers that stand beside them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_MOST_TICKS = 6


class Scale(NamedTuple):
    """An axis: what it holds, in its own units, and its ticks.

    Attributes:
        low: Its start; of a logarithmic axis the logarithm to the base 10.
        high: Its end, above `low`.
        ticks: Round values on it, rising.
        is_log: Whether it is logarithmic.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    @classmethod
    def of(
        cls,
        low: float,
        high: float,
        *,
        is_log: bool = False,
        is_whole: bool = False,
        is_tight: bool = False,
        is_padded: bool = False,
    ) -> Scale:
        """Return an axis that holds two values and all between them.

        Args:
            low: The least; above 0 on a logarithmic axis.
            high: The largest.
            is_log: Whether the axis is logarithmic.
            is_whole: Whether ticks are whole numbers only.
            is_tight: Whether it ends with the values, not with the next tick.
            is_padded: Whether marks at its ends need room.

        Examples:
            >>> Scale.of(0.0, 23.0).ticks
            (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)
            >>> Scale.of(1.0, 500.0, is_log=True).ticks
            (1.0, 10.0, 100.0, 1000.0)
            >>> Scale.of(0.0, 1.0, is_whole=True).ticks, Scale.of(0.0, 0.0).ticks
            ((0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
        """
        if is_log:
            return _log_scale(low, high, is_padded)
        if high <= low:
            half = 0.5 if abs(low) < 10**6 else abs(low) / 10
            low, high = (0.0, 1.0) if low == 0 else (low - half, low + half)
        ticks = _ticks(low, high, is_whole)
        first, last = (low, high) if is_tight else (min(low, ticks[0]), max(high, ticks[-1]))
        pad = (last - first) / 25 if is_padded else 0.0
        kept = tuple(tick for tick in ticks if first <= tick <= last)
        return cls(first - pad, last + pad, kept)

    def units(self, values: np.ndarray) -> np.ndarray:
        """Return values in the units of the axis; nan for what a logarithmic axis has not."""
        if not self.is_log:
            return values
        return np.asarray(np.log10(np.where(values > 0, values, np.nan)))

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        own = float(self.units(np.asarray(value, float)))
        return (own - self.low) / (self.high - self.low)


def _ticks(low: float, high: float, is_whole: bool) -> tuple[float, ...]:
    """Return round numbers a step apart, the first at most `low`, the last at least `high`."""
    rough = (high - low) / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (1, 2, 5, 10) if is_whole else (1, 2, 2.5, 5, 10)
    step = next(s * power for s in steps if s * power >= rough * (1 - 1e-9))
    if is_whole:
        step = max(1.0, round(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


def _log_scale(low: float, high: float, is_padded: bool) -> Scale:
    """Return a logarithmic axis: ticks at powers of ten, or at 1, 2 and 5 of few of them."""
    least, most = math.log10(low), math.log10(high)
    if most - least < 1e-9:
        least, most = least - 0.2, most + 0.2
    decades = most - least
    if decades > 2.2:
        every = math.ceil(decades / _MOST_TICKS)
        powers = range(math.floor(least), math.ceil(most) + 1, every)
        ticks = [10.0**power for power in powers]
        least, most = min(least, powers[0]), max(most, powers[-1])
    else:
        leads = (1, 2, 5) if decades > 0.9 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        powers = range(math.floor(least), math.ceil(most) + 1)
        ticks = [float(f"{lead * 10.0**power:.12g}") for power in powers for lead in leads]
    pad = (most - least) / 25 if is_padded else 0.02 * (most - least)
    kept = tuple(t for t in ticks if least - pad <= math.log10(t) <= most + pad)
    return Scale(least - pad, most + pad, kept, True)
