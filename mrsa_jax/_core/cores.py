"""How many of the machine's cores there are to use; needed before JAX may be imported."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
