"""Weighted participation: rational weights as integer rows, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array

from mrsa_jax._core.arrays import as_integers, needs_values
from mrsa_watch._base.tables import is_table
from mrsa_watch.logs import ParticipationLog, integer_rows, read_log

# ---- What users pass as a participation history: a matrix, a log, or a table; the one way in.


def as_log(P: Any) -> ParticipationLog | None:
    """Return a log, or a table as the log that `read_log` makes of it; None for an array."""
    if isinstance(P, ParticipationLog):
        return P
    return read_log(P) if is_table(P) else None


def as_history(P: Any) -> np.ndarray | Array:
    """Return a history of any kind as an exact array; of a log or a table, its participation.

    Raises:
        ConfigurationError: If there are fewer than two axes, an empty one, a fraction or a NaN; if
            P names a file, or is a table that can be read in two ways.
    """
    log = as_log(P)
    return as_integers(P if log is None else log.participation, "P")


# ---- Weighted participation: rational weights as integer rows, exactly.


@needs_values
def integer_weights(weights: Any) -> np.ndarray:
    """Return integer rows that span what rational weights span, exactly.

    Use it before `weak_privacy`, `strong_privacy` or `first_exposure` where sums are weighted.
    Row j is the smallest integral multiple of row j of the weights: zero weights stay zero,
    nothing is rounded. A float stands for the fraction that it holds in binary, so 0.5**s is
    exact but 1/3 is not a third: where the rule is rational, as 1/(1+s), pass
    `fractions.Fraction`.

    What weights change, compared with the same history of zeros and ones:

    - a positive factor for each round (the mean instead of the sum): nothing;
    - a positive factor for each client, the same in all rounds (sample counts): neither rank nor
      weak privacy, exposed clients or supports of witnesses, whose coefficients alone differ. A
      client's column is scaled, and strong privacy counts equal columns, so that its classes
      split: it becomes the smallest class of clients who share both column and factor;
    - factors that vary from round to round (staleness): everything, in general downwards.

    Args:
        weights: `[rounds, clients]` of fractions, integers, floats or bools, NumPy, JAX or
            nested lists.

    Returns:
        The rows as int64, or as Python integers (object array) where they do not fit.

    Raises:
        ConfigurationError: If an entry is NaN, infinite or no number, or there are not two axes.

    Examples:
        >>> integer_weights([[0.5, 0.25, 0.0], [600, 600, 1200]]).tolist()
        [[2, 1, 0], [1, 1, 2]]
        >>> from fractions import Fraction
        >>> staleness = [0, 1, 2]
        >>> integer_weights([[Fraction(1, 1 + s) for s in staleness]]).tolist()
        [[6, 3, 2]]

    Source: Multi-RoundSecAgg, Remark 1, asks for the row space of P only.
    """
    if is_table(weights):
        weights = read_log(weights, layout="matrix").participation
    return integer_rows(weights, "weights")[0]
