"""The upper word of a product, one formula for arrays and for compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


def high_word(a: Any, b: Any) -> Any:
    """Return the upper 64 bits of the products of words."""
    # long multiplication by halves: no partial sum exceeds 64 bits
    a0, a1, b0, b1 = a & LOW, a >> HALF, b & LOW, b >> HALF
    middle = a1 * b0 + ((a0 * b0) >> HALF)
    other = a0 * b1 + (middle & LOW)
    return a1 * b1 + (middle >> HALF) + (other >> HALF)
