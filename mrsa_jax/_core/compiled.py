"""Compiled loops for exact searches on the CPU, where the form of loops is allowed.

XLA splits the small, branching steps of an elimination or an enumeration over threads and loses
most of its time there; such loops are compiled by numba instead. Modules of compiled loops are
imported only by the functions that use them, so that the package starts without numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrsa_jax._core.device import chosen_form


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of NumPy arrays and integers, as `mrsa_watch._base.compiled` says.

    Raises:
        ConfigurationError: If numba is not there.
    """
    chosen_form(("loops",))
    from mrsa_watch._base.compiled import compiled as by_numba

    return by_numba(function)
