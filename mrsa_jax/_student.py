"""Intervals of means over few runs, from Student's t."""

from __future__ import annotations

from typing import Any

import numpy as np


def half_interval(values: Any, level: float = 0.95) -> Any:
    """Return half the interval of the mean of at least two values along the last axis.

    Examples:
        >>> round(float(half_interval([1.0, 2.0, 3.0])), 6)
        2.484138
    """
    from scipy import special

    own = np.asarray(values, np.float64)
    count = own.shape[-1]
    return special.stdtrit(count - 1, (1 + level) / 2) * (own.std(axis=-1, ddof=1) / np.sqrt(count))
