"""Checks of a round's ring and inputs, the same for real messages and for arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax.modular import check_modulus
from mrsa_jax.modular._inputs import check_integer

__all__ = ["check_residues", "check_ring"]


def check_ring(modulus_bits: Any, modulus: Any) -> int:
    """Return R from exactly one of b, for 2**b, and R itself."""
    rule = "must be given, or else `modulus`, and not both"
    require((modulus_bits is None) != (modulus is None), "modulus_bits", rule, modulus_bits,
            modulus)  # fmt: skip
    if modulus is not None:
        return check_modulus(modulus)
    return 2 ** check_integer(modulus_bits, "modulus_bits", 1, 32)


def check_residues(inputs: Any, modulus: int) -> np.ndarray:
    """Return uint32[n, d] after checking shape, kind and range."""
    values = np.asarray(inputs)
    exact = np.issubdtype(values.dtype, np.integer)
    require(exact, "inputs", "must hold integers", str(values.dtype))
    require(values.ndim == 2, "inputs", "must have the shape [clients, dim]", values.shape)
    require(values.size > 0, "inputs", "must not be empty", values.shape)
    rule = f"must lie in [0, {modulus}), the ring's residues"
    inside = values.min() >= 0 and values.max() < modulus
    require(bool(inside), "inputs", rule, int(values.min()), int(values.max()))
    return values.astype(np.uint32, copy=False)
