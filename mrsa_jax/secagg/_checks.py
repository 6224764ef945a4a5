"""Checks of a round's plan and inputs, the same for real messages and for arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax._arrays import host_array
from mrsa_jax._checks import check_integer
from mrsa_jax._errors import require
from mrsa_jax.modular import check_modulus
from mrsa_jax.secagg._types import Block, SegmentPlan, complete_plan, segment_plan

__all__ = ["check_inputs", "check_plan", "check_residues", "check_ring", "nonce_word"]


def check_inputs(
    inputs: Any, num_clients: int, modulus_bits: Any, modulus: Any, plan: Any
) -> tuple[np.ndarray, SegmentPlan]:
    """Return uint32[n, d] and the checked plan; d is where the plan's last block ends."""
    if plan is None:
        ring = check_ring(modulus_bits, modulus)
        values = check_residues(inputs, ring)
        _check_rows(values, num_clients)
        return values, complete_plan(num_clients, values.shape[1], ring)
    rule = "must be given without `modulus_bits` and `modulus`: each block has its own ring"
    alone = modulus_bits is None and modulus is None
    require(alone, "plan", rule, modulus_bits, modulus)
    values = _integers(inputs)
    _check_rows(values, num_clients)
    checked = check_plan(plan, num_clients)
    width = max(block.stop for block in checked)
    fits = values.shape[1] >= width
    require(fits, "inputs", "must have a column for each coordinate", values.shape[1], width)
    for number, block in enumerate(checked):
        part = values[list(block.members), block.start : block.stop]
        _check_range(part, block.modulus, f" of block {number}")
    return values[:, :width].astype(np.uint32, copy=False), checked


def nonce_word(value: Any, name: str) -> Any:
    """Return a number of a round or a block as its word in nonces, or raise for one of 2**32 on.

    Arrays of JAX of up to 32 bits, and traced ones, are words by themselves.
    """
    is_traced = isinstance(value, jax.core.Tracer)
    if is_traced or (isinstance(value, jax.Array) and value.dtype.itemsize <= 4):
        return value.astype(jnp.uint32)
    values = np.asarray(value)
    rule = "must be an integer in [0, 2**32)"
    require(values.dtype.kind in "iu", name, rule, value)
    require(bool(((values >= 0) & (values < 2**32)).all()), name, rule, value)
    return values.astype(np.uint32)


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
    values = _integers(inputs)
    _check_range(values, modulus, "")
    return values.astype(np.uint32, copy=False)


def check_plan(plan: Any, num_clients: int) -> SegmentPlan:
    """Return a plan whose blocks together hold all clients; d is where its last block ends."""
    blocks = tuple(plan) if isinstance(plan, tuple | list) else ()
    proper = len(blocks) > 0 and all(isinstance(block, Block) for block in blocks)
    require(proper, "plan", "must be a tuple of `Block`s", plan)
    checked = segment_plan(blocks, num_clients, max(int(block.stop) for block in blocks))
    missing = set(range(num_clients)).difference(*(block.members for block in checked))
    rule = "must put each client into a block"
    require(not missing, "plan", rule, f"client {min(missing, default=0)} in none")
    return checked


def _integers(inputs: Any) -> np.ndarray:
    values = host_array(inputs, "inputs")
    exact = np.issubdtype(values.dtype, np.integer)
    require(exact, "inputs", "must hold integers", str(values.dtype))
    require(values.ndim == 2, "inputs", "must have the shape [clients, dim]", values.shape)
    require(values.size > 0, "inputs", "must not be empty", values.shape)
    return values


def _check_range(values: np.ndarray, modulus: int, where: str) -> None:
    rule = f"must lie in [0, {modulus}), the ring's residues{where}"
    inside = values.min() >= 0 and values.max() < modulus
    require(bool(inside), "inputs", rule, int(values.min()), int(values.max()))


def _check_rows(values: np.ndarray, num_clients: int) -> None:
    rule = "must have a row for each client"
    require(len(values) == num_clients, "inputs", rule, len(values), num_clients)
