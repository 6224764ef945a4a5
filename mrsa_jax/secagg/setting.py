"""Check the arguments of a round, the same for real messages and for arrays."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax._core.arrays import host_array
from mrsa_jax.modular import check_modulus
from mrsa_jax.secagg._conditions import check_round
from mrsa_jax.secagg.plans import Block, SegmentPlan, segment_plan
from mrsa_watch._base.errors import check_integer, require


class RoundSetting(NamedTuple):
    """A checked round: graph, survivors, thresholds, inputs and plan.

    Attributes:
        graph: bool[n, n].
        survivors: bool[5, n], V0 to V4.
        thresholds: int32[n].
        inputs: uint32[n, d].
        plan: Blocks of the round.
        number: Of the round.
    """

    graph: np.ndarray
    survivors: np.ndarray
    thresholds: np.ndarray
    inputs: np.ndarray
    plan: SegmentPlan
    number: int

    @property
    def digest(self) -> bytes:
        """32 bytes that stand for the graph, the thresholds and the blocks.

        Mixed into what a round's secrets come from, so that one seed gives other
        secrets where they would be shared or used in another way.
        """
        blocks = [
            (block.members, block.start, block.stop, block.modulus)
            for block in self.plan
        ]
        edges = np.packbits(np.triu(self.graph)).tobytes()
        text = repr((len(self.graph), self.thresholds.tolist(), blocks)).encode()
        return hashlib.sha256(hashlib.sha256(text).digest() + edges).digest()


def check_setting(
    inputs: Any,
    adjacency: Any,
    survivors: Any,
    thresholds: Any,
    modulus_bits: Any,
    modulus: Any,
    plan: Any,
    round_index: Any,
) -> RoundSetting:
    """Check the arguments of a round."""
    graph, alive, limits = check_round(adjacency, survivors, thresholds)
    values, blocks = _check_inputs(inputs, len(graph), modulus_bits, modulus, plan)
    number = check_integer(round_index, "round_index", 0, 2**32 - 1)
    return RoundSetting(graph, alive, limits, values, blocks, number)


def _check_inputs(
    inputs: object,
    num_clients: int,
    modulus_bits: object,
    modulus: object,
    plan: object,
) -> tuple[np.ndarray, SegmentPlan]:
    """Return uint32[n, d] and the checked plan; d is where its last block ends."""
    values = host_array(inputs, "inputs")
    exact = np.issubdtype(values.dtype, np.integer)
    require(exact, "inputs", "must hold integers", str(values.dtype))
    require(
        values.ndim == 2,
        "inputs",
        "must have the shape [clients, dim]",
        values.shape,
    )
    require(values.size > 0, "inputs", "must not be empty", values.shape)
    require(
        len(values) == num_clients,
        "inputs",
        "must have a row for each client",
        len(values),
        num_clients,
    )
    if plan is None:
        ring = _check_ring(modulus_bits, modulus)
        _check_range(values, ring, "")
        block = Block(tuple(range(num_clients)), 0, values.shape[1], ring)
        return values.astype(np.uint32, copy=False), (block,)
    rule = "must be given without `modulus_bits` and `modulus`"
    rule += ": each block has its own ring"
    require(
        modulus_bits is None and modulus is None,
        "plan",
        rule,
        modulus_bits,
        modulus,
    )
    checked = segment_plan(plan, num_clients)
    width = max(block.stop for block in checked)
    require(
        values.shape[1] >= width,
        "inputs",
        "must have a column for each coordinate",
        values.shape[1],
        width,
    )
    for number, block in enumerate(checked):
        part = values[list(block.members), block.start : block.stop]
        _check_range(part, block.modulus, f" of block {number}")
    return values[:, :width].astype(np.uint32, copy=False), checked


def _check_ring(modulus_bits: object, modulus: object) -> int:
    """Return R from exactly one of b, for 2**b, and R itself."""
    require(
        (modulus_bits is None) != (modulus is None),
        "modulus_bits",
        "must be given, or else `modulus`, and not both",
        modulus_bits,
        modulus,
    )
    if modulus is not None:
        return check_modulus(modulus)
    return 2 ** check_integer(modulus_bits, "modulus_bits", 1, 32)


def _check_range(values: np.ndarray, modulus: int, where: str) -> None:
    inside = values.min() >= 0 and values.max() < modulus
    require(
        bool(inside),
        "inputs",
        f"must lie in [0, {modulus}), the ring's residues{where}",
        int(values.min()),
        int(values.max()),
    )
