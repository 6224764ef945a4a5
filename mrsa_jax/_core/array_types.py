"""Types of arrays and numbers that many signatures share.

Clients come first; axes behind them are trials that run side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Float64, Int32, Key

Flags = Bool[Array, " clients *trials"]
Counts = Int32[Array, " clients *trials"]
TrialKeys = Key[Array, "*trials"]
PRNGKey = Key[Array, ""]
Adjacency = Bool[Array, "clients clients"]
Scalar = Float32[Array, ""]
Vector = Float32[Array, " dim"]
PerClient = Float64[np.ndarray, " clients"]
Floats = Float64[np.ndarray, "*_"]
Whole = int | np.integer
Real = float | int | np.floating
Numbers = ArrayLike | Sequence[float | int]
Integers = ArrayLike | Sequence[int]
Nested = ArrayLike | Sequence[Any]
