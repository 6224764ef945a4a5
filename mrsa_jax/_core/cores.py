"""Count the cores that this process may use, before JAX is imported."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
