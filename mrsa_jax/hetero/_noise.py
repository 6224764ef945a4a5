"""Noise that clients add to their codes of a layout's sums, block by block.

Blocks of different K have lattices of different steps: one law in units of updates is drawn on
each. The server sees every block's sum, so that what hides a client is its block's noise.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Key, UInt32

from mrsa_jax._core.arrays import on_device, pytree
from mrsa_jax._core.streams import Stream
from mrsa_jax.hetero._layout import SegmentLayout, SegmentRows
from mrsa_jax.quantize import StochasticQuantizer, stochastic
from mrsa_jax.quantize.wrapping import (
    LIKELIEST_WRAP,
    MOST_CLIENTS,
    has_left,
    lifted,
    wrap_probability,
)
from mrsa_watch._base.errors import require, require_methods


@pytree
class BlockNoise:
    """A client's noise on the lattice of each K (build it with `block_noise`).

    Attributes:
        levels: int32[kinds], the different K of a layout.
        laws: The noise on the lattice of each.
    """

    levels: Any = ()
    laws: tuple[Any, ...] = ()


def block_noise(noise: Any, layout: SegmentLayout, quantizer: StochasticQuantizer) -> BlockNoise:
    """Return noise on the lattices of a layout's blocks, or raise.

    Raises:
        ConfigurationError: If a block's ring is no power of two, or wraps round too often.
    """
    require_methods(noise, "noise", "on", "sample")
    ends = float(quantizer.lower), float(quantizer.upper)
    kinds = sorted({block.num_levels for block in layout.blocks})
    own = {kind: stochastic(kind, value_range=ends) for kind in kinds}
    seen = {(block.num_levels, len(block.members), block.modulus) for block in layout.blocks}
    for kind, count, modulus in sorted(seen):
        proper = modulus & (modulus - 1) == 0
        rule = "must have rings of 2**b elements for noise: give `segment_layout` `modulus_bits`"
        require(proper, "layout", rule, modulus)
        require(count <= MOST_CLIENTS, "layout", "must have at most 2**15 clients a block", count)
        chance = wrap_probability(own[kind], noise, count, modulus)
        rule = (
            f"must leave room for noise: a coordinate of a sum of {count} clients of {kind} levels "
            f"may wrap round with a chance of {chance:.3g} (by Chernoff's bound), not above "
            f"{LIKELIEST_WRAP} (`segment_layout`)"
        )
        require(chance <= LIKELIEST_WRAP, "modulus_bits", rule, modulus.bit_length() - 1)
    laws = tuple(noise.on(float(own[kind].step)) for kind in kinds)
    return BlockNoise(on_device(kinds, jnp.int32), laws)


def noisy_row(
    codes: UInt32[Array, "n w"],
    keys: Key[Array, "n parts"],
    row: SegmentRows,
    noise: BlockNoise,
    summed: Bool[Array, " n"],
) -> tuple[UInt32[Array, "n w"], Int32[Array, ""]]:
    """Return one segment's residues with each client's noise, and how many sums wrap round.

    Args:
        codes: Of the rounding.
        keys: Of the rounding; the noise has a separate stream of the first.
        row: The segment.
        noise: As from `block_noise`.
        summed: Who is in the sums.
    """
    own = jax.vmap(lambda key: jax.random.fold_in(key, int(Stream.NOISE)))(keys[:, 0])
    drawn = jnp.zeros(codes.shape, jnp.int32)
    for number, law in enumerate(noise.laws):
        of_kind = jax.vmap(lambda key, law=law: law.sample(key, codes.shape[1:]))(own)
        drawn = jnp.where((row.levels == noise.levels[number])[:, None], of_kind, drawn)
    terms = codes + drawn.astype(jnp.uint32)
    last = jnp.int32(codes.shape[0] - 1)

    def wraps(slots: Array, levels: Array, modulus: Array) -> Array:
        place = jnp.minimum(slots, last)
        present = (slots <= last) & summed[place]
        middle = middle_of(jnp.sum(present, dtype=jnp.int32), levels)
        left = has_left(terms[place], present, middle, modulus - jnp.uint32(1))
        return jnp.sum(left, dtype=jnp.int32)

    wrapped = jnp.sum(jax.vmap(wraps)(row.slots, row.block_levels, row.moduli), dtype=jnp.int32)
    return terms & (row.modulus_of - jnp.uint32(1))[:, None], wrapped


def middle_of(counts: Int32[Array, "*_"], levels: Int32[Array, "*_"]) -> UInt32[Array, "*_"]:
    """Return the middle of sums of codes below K, count (K - 1) / 2 rounded down."""
    return (counts.astype(jnp.uint32) * (levels - jnp.int32(1)).astype(jnp.uint32)) >> jnp.uint32(1)


def totals_about(
    totals: UInt32[Array, "segments blocks w"],
    counts: Int32[Array, "segments blocks"],
    rows: SegmentRows,
) -> UInt32[Array, "segments blocks w"]:
    """Return the integers that noisy ring sums stand for, as two's complement words."""
    middle = middle_of(counts, jnp.asarray(rows.block_levels))[:, :, None]
    top = (jnp.asarray(rows.moduli) - jnp.uint32(1))[:, :, None]
    return lifted(totals, middle, top)


def largest_change(
    layout: SegmentLayout, quantizer: StochasticQuantizer, clip_norm: float
) -> float:
    """Return a bound on how far one client's update moves the sums, against zeros in its place.

    With the same dice, a coordinate's codes of x and of 0 differ by less than |x| / Delta_K + 1,
    float32's roundings by (K - 1) 2**-22 more; so the norm of the change is at most C plus that of
    the steps. A law mixed by the dice spends no more than its worst throw (quasi-convexity).
    """
    width = float(quantizer.upper) - float(quantizer.lower)
    tops = layout.rows.levels.astype(np.float64) - 1.0
    steps = width / tops * (1.0 + tops * 2.0**-22)
    lengths = np.asarray([stop - start for start, stop in layout.bounds], np.float64)
    return clip_norm + math.sqrt(float((lengths[:, None] * steps**2).sum(axis=0).max()))
