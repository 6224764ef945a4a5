"""Treat floating-point errors as NumPy does by default, whatever the user set."""

from __future__ import annotations

import numpy as np

usual_floats = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
"""Decorates what computes with floats: with `np.seterr(all="raise")` it is the same."""
