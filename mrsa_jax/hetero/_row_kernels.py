"""One segment as pure functions of arrays.

Codes, ring sums, and sums back to an update.
HeteroSAg, Section II-C (Steps 3 and 5). `_round` maps them over many segments at once:
levels, rings, members and counts are data, so that one program serves all segments of a
width.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float32, Int32, Key, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.streams import Stream, fold_over, joined_words
from mrsa_jax.hetero._layout import SegmentLayout, SegmentRows
from mrsa_jax.hetero._robust_kernels import present_blocks
from mrsa_jax.hetero.robust import RobustRule
from mrsa_jax.quantize import StochasticQuantizer, stochastic
from mrsa_jax.quantize.wrapping import (
    LIKELIEST_WRAP,
    MOST_CLIENTS,
    has_left,
    lifted,
    wrap_probability,
)
from mrsa_jax.secagg import Block, SegmentPlan
from mrsa_watch._base.errors import require, require_methods

# Coordinates of a segment whose rounding one key draws: part of what a seed means.
_DRAWS_OF_A_KEY = 65_536
_FEW = 24
_Totals = UInt32[Array, "blocks w"]
_Counts = Int32[Array, " blocks"]
_Bounds = Float32[Array, " 2"]


@functools.partial(jax.jit, static_argnames=("widest",))
def draw_keys(
    key: Key[Array, ""],
    members: Int32[Array, " n"],
    segments: Int32[Array, " segments"],
    widest: int,
) -> Key[Array, "segments n parts"]:
    """Return the keys of the rounding.

    For each segment, client and stretch of coordinates.
    """
    parts = jnp.arange(-(-widest // _DRAWS_OF_A_KEY), dtype=jnp.int32)
    return fold_over(fold_over(fold_over(key, members), segments), parts).swapaxes(0, 1)


def encode_row(
    keys: Key[Array, "n parts"],
    values: Float32[Array, "n w"],
    levels: Int32[Array, " n"],
    bounds: Float32[Array, " 2"],
    widest: int,
) -> tuple[UInt32[Array, "n w"], Int32[Array, " n"], Bool[Array, " n"]]:
    """Return one segment's codes, how many values of each were clipped, and whose are not finite.

    The draws are of the length of the widest segment, whatever the generator makes of
    lengths.
    """
    lower, upper = bounds[0], bounds[1]
    top = (levels - jnp.int32(1)).astype(jnp.float32)[:, None]
    step = (upper - lower) / top
    is_inside = (values >= lower) & (values <= upper)
    outside = jnp.sum(~is_inside, axis=1, dtype=jnp.int32)
    # infinite or NaN where any value is
    is_finite = jnp.isfinite(jnp.max(jnp.abs(values), axis=1))
    clipped = jnp.clip(jnp.where(jnp.isnan(values), lower, values), lower, upper)
    scaled = jnp.minimum((clipped - lower) / step, top)
    floor = jnp.floor(scaled)
    threshold = ((scaled - floor) * jnp.float32(2**32)).astype(jnp.uint32)
    words = joined_words(keys, min(widest, _DRAWS_OF_A_KEY), widest)[
        :, : values.shape[1]
    ]
    return (
        floor.astype(jnp.uint32) + (words < threshold).astype(jnp.uint32),
        outside,
        ~is_finite,
    )


def plain_row(
    codes: UInt32[Array, "n w"],
    slots: Int32[Array, "blocks members"],
    moduli: UInt32[Array, " blocks"],
    counts: Int32[Array, " blocks"],
    summed: Bool[Array, " n"],
    is_below: bool,
) -> UInt32[Array, "blocks w"]:
    """Add the residues of each block's summed members modulo its R (0: 2^32).

    `is_below`: codes alone are added, whose sums are below R, or wrap where R is 2^32.
    """
    last = jnp.int32(codes.shape[0] - 1)
    place = jnp.minimum(slots, last)
    here = (slots <= last) & summed[place] & (counts > 0)[:, None]
    values = jnp.where(here[:, :, None], codes[place], jnp.uint32(0))
    if is_below:
        return _sum_of_few(values)
    # halves of 16 bits do not overflow for fewer than 2^16 members
    low = _sum_of_few(values & jnp.uint32(0xFFFF))
    high = _sum_of_few(values >> jnp.uint32(16))
    modulus = jnp.maximum(moduli, jnp.uint32(1))[:, None]
    shifted = high % modulus
    for _ in range(16):  # unrolled: one kernel
        twice = shifted + shifted  # R is at most 2^31
        shifted = jnp.minimum(twice, twice - modulus)
    total = shifted + low % modulus
    total = jnp.minimum(total, total - modulus)
    wrapped = low + (high << jnp.uint32(16))
    return jnp.where((moduli == 0)[:, None], wrapped, total)


def _sum_of_few(values: UInt32[Array, "blocks members w"]) -> UInt32[Array, "blocks w"]:
    """Add up over members in steps so short that XLA fuses them with what makes the values."""
    blocks, members, width = values.shape
    steps = -(-members // _FEW)
    few = -(-members // steps)
    padded = jnp.pad(values, ((0, 0), (0, steps * few - members), (0, 0)))
    some = jnp.sum(padded.reshape(blocks, steps, few, width), axis=2, dtype=jnp.uint32)
    if steps == 1:
        return some[:, 0]
    # without the barrier both sums would become one, over all members
    return jnp.sum(lax.optimization_barrier(some), axis=1, dtype=jnp.uint32)


def _centred(
    totals: _Totals, counts: _Counts, levels: _Counts, bounds: _Bounds
) -> Array:
    """Return each block's sum less its count times the middle of the range."""
    top = (levels - jnp.int32(1)).astype(jnp.uint32)
    span = (counts.astype(jnp.uint32) * top)[:, None]
    # as in `StochasticQuantizer.decode`: an exact integer difference, so nothing
    # cancels
    offset = (totals - (span >> jnp.uint32(1))).astype(jnp.int32).astype(jnp.float32)
    odd = (span & jnp.uint32(1)).astype(jnp.float32) * jnp.float32(0.5)
    step = (bounds[1] - bounds[0]) / top.astype(jnp.float32)
    return jnp.where(
        counts[:, None] > 0, step[:, None] * (offset - odd), jnp.float32(0)
    )


def decode_row(
    totals: _Totals, counts: _Counts, levels: _Counts, bounds: _Bounds
) -> Float32[Array, " w"]:
    """Return the mean over all summed clients of one segment; zeros if there are none."""
    number = jnp.sum(counts, dtype=jnp.int32)
    centred = jnp.sum(_centred(totals, counts, levels, bounds), axis=0)
    middle = (bounds[0] + bounds[1]) * jnp.float32(0.5)
    mean = middle + centred / jnp.maximum(number, jnp.int32(1)).astype(jnp.float32)
    return jnp.where(number > 0, mean, jnp.float32(0))


def block_averages(
    totals: _Totals, counts: _Counts, levels: _Counts, bounds: _Bounds
) -> Float32[Array, "blocks w"]:
    """Return the mean of each block's summed clients; zeros where there are none."""
    middle = (bounds[0] + bounds[1]) * jnp.float32(0.5)
    number = jnp.maximum(counts, jnp.int32(1)).astype(jnp.float32)[:, None]
    average = middle + _centred(totals, counts, levels, bounds) / number
    return jnp.where(counts[:, None] > 0, average, jnp.float32(0))


def is_function(rule: Any) -> bool:
    """Return whether a rule is no pytree: its code, not its numbers."""
    leaves = jax.tree.leaves(rule)
    return len(leaves) == 1 and leaves[0] is rule


def combine_row(
    rule: RobustRule | None,
    averages: Float32[Array, "blocks w"],
    counts: Int32[Array, " blocks"],
) -> Float32[Array, " w"]:
    """Return what a rule makes of a row's averages (their weighted mean without a rule)."""
    weights = counts.astype(jnp.float32)
    if rule is None:
        averages, weights = present_blocks(averages, weights)
        share = weights / jnp.maximum(jnp.sum(weights), jnp.float32(1))
        return jnp.sum(averages * share[:, None], axis=0)
    return jnp.where(
        jnp.any(counts > 0), jnp.asarray(rule(averages, weights)), jnp.float32(0)
    )


# ---- Noise that clients add to their codes of a layout's sums, block by block.
#
# Blocks of different K have lattices of different steps: one law in units of updates is
# drawn on
# each. The server sees every block's sum, so that what hides a client is its block's
# noise.


@pytree
class BlockNoise:
    """A client's noise on the lattice of each K (build it with `block_noise`).

    Attributes:
        levels: int32[kinds], the different K of a layout.
        laws: The noise on the lattice of each.
    """

    levels: Any = ()
    laws: tuple[Any, ...] = ()


def block_noise(
    noise: Any, layout: SegmentLayout, quantizer: StochasticQuantizer
) -> BlockNoise:
    """Return noise on the lattices of a layout's blocks, or raise.

    Raises:
        ConfigurationError: If a block's ring is no power of two, or wraps round too
            often.
    """
    require_methods(noise, "noise", "on", "sample")
    ends = float(quantizer.lower), float(quantizer.upper)
    kinds = sorted({block.num_levels for block in layout.blocks})
    own = {kind: stochastic(kind, value_range=ends) for kind in kinds}
    seen = {
        (block.num_levels, len(block.members), block.modulus) for block in layout.blocks
    }
    for kind, count, modulus in sorted(seen):
        proper = modulus & (modulus - 1) == 0
        rule = "must have rings of 2**b elements for noise: give `segment_layout` `modulus_bits`"
        require(proper, "layout", rule, modulus)
        require(
            count <= MOST_CLIENTS,
            "layout",
            "must have at most 2**15 clients a block",
            count,
        )
        chance = wrap_probability(own[kind], noise, count, modulus)
        rule = (
            f"must leave room for noise: a coordinate of a sum of {count} clients of "
            f"{kind} levels "
            f"may wrap round with a chance of {chance:.3g} (by Chernoff's bound), not "
            "above "
            f"{LIKELIEST_WRAP} (`segment_layout`)"
        )
        require(
            chance <= LIKELIEST_WRAP, "modulus_bits", rule, modulus.bit_length() - 1
        )
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

    wrapped = jnp.sum(
        jax.vmap(wraps)(row.slots, row.block_levels, row.moduli), dtype=jnp.int32
    )
    return terms & (row.modulus_of - jnp.uint32(1))[:, None], wrapped


def middle_of(
    counts: Int32[Array, "*_"], levels: Int32[Array, "*_"]
) -> UInt32[Array, "*_"]:
    """Return the middle of sums of codes below K, count (K - 1) / 2 rounded down."""
    return (
        counts.astype(jnp.uint32) * (levels - jnp.int32(1)).astype(jnp.uint32)
    ) >> jnp.uint32(1)


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

    With the same dice, a coordinate's codes of x and of 0 differ by less than |x| /
    Delta_K + 1, float32's roundings by (K - 1) 2**-22 more; so the norm of the change
    is at most C plus that of the steps. A law mixed by the dice spends no more than its
    worst throw (quasi-convexity).
    """
    width = float(quantizer.upper) - float(quantizer.lower)
    tops = layout.rows.levels.astype(np.float64) - 1.0
    steps = width / tops * (1.0 + tops * 2.0**-22)
    lengths = np.asarray([stop - start for start, stop in layout.bounds], np.float64)
    return clip_norm + math.sqrt(float((lengths[:, None] * steps**2).sum(axis=0).max()))


# ---- Segments of one width side by side: how many go at once, and under a trace one
# after another.


class Span(NamedTuple):
    """Neighbouring segments of one width.

    Attributes:
        rows: Them.
        first: Number of the first one.
        start: Its first coordinate.
        width: Coordinates of each.
    """

    rows: SegmentRows
    first: int
    start: int
    width: int

    @property
    def num_segments(self) -> int:
        """Return how many they are."""
        return len(self.rows.segment)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Return (start, stop) of each segment."""
        starts = range(
            self.start, self.start + self.num_segments * self.width, self.width
        )
        return [(start, start + self.width) for start in starts]


def spans_of(layout: SegmentLayout) -> list[Span]:
    """Cut the segments into spans that are worked on at once, all of a width equally long."""
    size, rest = divmod(layout.dim, layout.num_segments)
    most = at_once("segments", 4 * layout.num_participants * (size + 1))
    spans = []
    for first, stop, width in ((0, rest, size + 1), (rest, layout.num_segments, size)):
        length = _divisor(stop - first, most)
        for own in range(first, stop, length):
            rows = SegmentRows(*(leaf[own : own + length] for leaf in layout.rows))
            spans.append(Span(rows, own, layout.bounds[own][0], width))
    return spans


def plan_of(layout: SegmentLayout, span: Span) -> tuple[SegmentPlan, int]:
    """Return a span's blocks over its own coordinates, and the number of the first."""
    first, count = int(span.rows.number.min()), len(layout.blocks)
    own = layout.blocks[
        first : int(span.rows.number[span.rows.number < count].max()) + 1
    ]
    return tuple(
        Block(
            block.members,
            block.start - span.start,
            block.stop - span.start,
            block.modulus,
            block.num_levels,
        )
        for block in own
    ), first


def _divisor(count: int, most: int) -> int:
    """Return the largest divisor that is at most so large.

    Parts of one shape to compile for.
    """
    return max((n for n in range(1, min(most, count) + 1) if count % n == 0), default=1)


def by_parts(function: Callable[..., Array], *arrays: Any) -> Array:
    """Return function of each segment, given arrays whose leading axis counts segments.

    A CPU takes them one after another: its sums over B are added up in an order that
    depends on the shape, and an update must not depend on how many segments go at once.
    """
    count = arrays[0].shape[0]
    batch = _divisor(count, at_once("averages", 4 * math.prod(arrays[0].shape[1:])))
    if batch == 1:
        return lax.map(lambda own: function(*own), arrays)
    if batch == count:
        return jax.vmap(function)(*arrays)
    return lax.map(lambda own: function(*own), arrays, batch_size=batch)


def mapped(step: Callable[..., Any], spans: list[Span]) -> list[Any]:
    """Return step(rows, start, width) of all spans, those of one shape as one loop's results.

    A leading axis counts the loop's rounds, so that many spans under a trace are few
    programs.
    """
    parts = []
    for (width, _), group in itertools.groupby(
        spans, lambda one: (one.width, one.num_segments)
    ):
        own = list(group)
        rows = SegmentRows(
            *map(np.stack, zip(*(span.rows for span in own), strict=True))
        )
        starts = np.asarray([span.start for span in own], np.int32)
        loop = jax.tree.map(jnp.asarray, (rows, starts))
        parts.append(lax.map(lambda one, width=width: step(*one, width), loop))
    return parts
