"""Loops that numba compiles where it is installed, and Python runs where it is not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of NumPy arrays and integers by numba, as `compiled.compiled` says.

    Without numba it runs as it stands: far slower, the same numbers to the bit.
    """
    try:
        from mrsa_watch._base.compiled import compiled as by_numba
    except ImportError:
        return _interpreted(function)
    return by_numba(function)


def _interpreted(function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    def run(*given: Any) -> Any:
        with np.errstate(over="ignore"):  # words wrap on purpose, as in compiled loops
            return function(*given)

    return run
