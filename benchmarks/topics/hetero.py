"""HeteroSAg's rounds against their pads alone, and without pads.

Without pads they are compared with a homogeneous aggregator and with lines of NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import hetero, quantize, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.prime import words_per_residue
from mrsa_jax._core.status import Status
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, Sized, compare
from mrsa_watch._base.errors import require

_GROUP_LEVELS = (2, 4, 8, 10, 12)


def _layout_of(clients: int, groups: int, dim: int) -> hetero.SegmentLayout:
    # as equal as can be
    sizes = [clients // groups + (g < clients % groups) for g in range(groups)]
    levels = [_GROUP_LEVELS[g * len(_GROUP_LEVELS) // groups] for g in range(groups)]
    return hetero.segment_layout("mc", sizes, levels, dim)


def _chunk(layout: hetero.SegmentLayout, start: int, stop: int) -> np.ndarray:
    rng = np.random.default_rng(start)
    return rng.uniform(-1, 1, (layout.num_participants, stop - start)).astype(
        np.float32
    )


def _keystream_bytes(layout: hetero.SegmentLayout) -> int:
    """Bytes of keystream of all pairs and clients of all blocks."""
    total = 0
    for block in layout.blocks:
        total += _num_streams(block) * (block.stop - block.start) * _entry_bytes(block)
    return total


def _num_streams(block: Any) -> int:
    """Return the pads of a block: one per pair of clients, and one per client."""
    return len(block.members) * (len(block.members) + 1) // 2


def _entry_bytes(block: Any) -> int:
    return 4 * words_per_residue(block.modulus)


def _pads_alone(
    layout: hetero.SegmentLayout, size: int
) -> tuple[int, Callable[[], object]]:
    """Pad and sum zeros of the layout's largest block until `size` bytes are made."""
    block = max(layout.blocks, key=lambda block: len(block.members))
    count = len(block.members)
    bytes_per_column = _num_streams(block) * _entry_bytes(block)
    width = max(1, size // bytes_per_column)
    plan = secagg.complete_plan(count, width, block.modulus)
    seeds = secagg.derive_seeds(secagg.key_material(0), np.arange(count), 0)
    inputs = np.zeros((count, width), np.uint32)
    return (
        bytes_per_column * width,
        lambda: secagg.ring_sum(seeds, inputs, plan, 0).total,
    )


def padded_round(clients: int, groups: int, dim: int) -> Measurement:
    """Compare a round with one block's pads.

    The rates of keystream are those of the same loops.
    """
    layout = _layout_of(clients, groups, dim)
    work = _keystream_bytes(layout)
    made, peer = _pads_alone(layout, min(work, 2**29))

    aggregate = functools.partial(
        hetero.aggregate, 0, functools.partial(_chunk, layout), layout, (-1.0, 1.0)
    )

    def ours() -> np.ndarray:
        result = aggregate(fidelity="array")
        if result.status != Status.OK:
            raise ResultsDifferError(f"the round ended with {result.status!r}")
        return result.update

    def check(update: np.ndarray, _: object) -> None:
        np.testing.assert_array_equal(update, aggregate().update)

    return compare(
        ours,
        peer,
        work=work,
        peer_work=made,
        check=check,
    )


def average(dim: int) -> Measurement:
    """One round of training's aggregator beside the homogeneous one."""
    layout = _layout_of(20, 5, dim)
    ours = hetero.segment_average(layout, (-1.0, 1.0), fidelity="sets")
    ring = secagg.ring_average(quantize.stochastic(12, 1.0), 20, dim, fidelity="sets")
    updates = on_device(_chunk(layout, 0, dim))
    arguments = (updates, jnp.arange(20), jnp.ones(20, bool))
    states = ours.init(), ring.init()
    return compare(
        lambda: ours.aggregate(jax.random.key(0), states[0], *arguments)[0].update,
        lambda: ring.aggregate(jax.random.key(0), states[1], *arguments)[0].update,
        work=1,
    )


def plain_round(clients: int, groups: int, dim: int) -> Measurement:
    """Compare a round without pads with the lines of NumPy that it replaces.

    Both round each value at random, add the codes of each block up and decode. The
    floor of ours is the word of Threefry-2x32 for each value.
    """
    layout = _layout_of(clients, groups, dim)
    updates = _chunk(layout, 0, dim)
    rng = np.random.default_rng(0)

    def script() -> np.ndarray:
        mean = np.zeros(dim, np.float32)
        for block in layout.blocks:
            members = list(block.members)
            values = updates[members, block.start : block.stop]
            num_steps = block.num_levels - 1
            step = np.float32(2 / num_steps)
            clipped = np.clip(values, -1, 1)
            scaled = (clipped + 1) / step
            floor = np.floor(scaled)
            is_up = rng.random(scaled.shape, np.float32) < scaled - floor
            codes = floor + is_up
            total = step * codes.sum(axis=0)
            total -= len(members)
            mean[block.start : block.stop] += total / clients
        return mean

    def check(ours: np.ndarray, theirs: np.ndarray) -> None:
        # both scatter about the mean by the error of rounding
        bound = hetero.quantization_error(updates, layout, (-1.0, 1.0))
        for mean in (ours, theirs):
            difference = mean - updates.mean(axis=0)
            error = float((difference**2).sum())
            np.testing.assert_allclose(error, bound, rtol=0.2)

    return compare(
        lambda: hetero.aggregate(0, updates, layout, (-1.0, 1.0)).update,
        script,
        work=clients * dim,
        check=check,
    )


def sized(n: int, groups: int, dim: int) -> Sized:
    """Return a round without pads of n clients in groups of nearly equal sizes."""
    require(2 <= groups <= n // 2, "groups", "must lie in [2, n / 2]", groups)
    require(dim >= groups, "dim", "must be at least the number of groups", dim)
    width = -(-dim // groups)
    # the script's arrays of a block
    block = 24 * n * width
    updates = 4 * n * dim
    return Sized(
        updates + block + 2**20,
        lambda: plain_round(n, groups, dim),
    )
