"""Refuse values that are passed for an array and are none: a file's name, a table."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mrsa_watch._base.errors import require


def is_table(values: Any) -> bool:
    """Return whether a value is a table of a library such as pandas, not an array."""
    return hasattr(values, "columns") and not isinstance(values, np.ndarray)


def require_array(values: Any, argument: str) -> None:
    """Raise for what NumPy would turn into an array of another meaning.

    A file's name, a table.
    """
    if isinstance(values, str | os.PathLike):
        rule = "must be an array; mrsa_jax.privacy.read_log reads a file"
        require(False, argument, rule, str(values))
    if is_table(values):
        rule = (
            "must be an array; mrsa_jax.privacy.read_log(table).participation is that "
            "of a "
            "table with rounds and clients"
        )
        require(False, argument, rule, type(values).__name__)
    rows = values if isinstance(values, list | tuple) else [values]
    hidden = sum(
        int(np.ma.count_masked(row))
        for row in rows
        if isinstance(row, np.ma.MaskedArray)
    )
    rule = "must hold no masked values: fill them in, or leave them out"
    require(hidden == 0, argument, rule, f"{hidden} masked")
