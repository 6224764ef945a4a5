"""What users pass as a participation history: a matrix, a log, or a table; the one way in."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array

from mrsa_jax._arrays import as_integers, is_table
from mrsa_jax.privacy.logs import ParticipationLog, read_log


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
