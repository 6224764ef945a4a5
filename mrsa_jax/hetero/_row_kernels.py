"""One segment as pure functions of arrays: codes, noise, ring sums, and the update.

Behind them, the spans of segments that go side by side.
HeteroSAg, Section II-C (Steps 3 and 5). `_round` maps them over many segments at once:
levels, rings, members and counts are data, so that one program serves all segments of a
width.
"""

from __future__ import annotations

import dataclasses
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
from mrsa_jax._core.batches import at_once, map_tiles
from mrsa_jax._core.device import is_bound_by_memory
from mrsa_jax._core.mesh import varying_like
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
from mrsa_jax.secagg import SegmentPlan
from mrsa_watch._base.errors import require, require_methods

# Coordinates of a segment whose rounding one key draws: part of what a seed means.
_DRAWS_OF_A_KEY = 65_536
_FEW = 24
_WIDE = 1024  # coordinates that are worth a step of a loop
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
    # Client, then segment, then part: a client's draws do not depend on its slot.
    return fold_over(fold_over(fold_over(key, members), segments), parts).swapaxes(0, 1)


def encode_row(
    keys: Key[Array, "n parts"],
    values: Float32[Array, "n w"],
    levels: Int32[Array, " n"],
    bounds: Float32[Array, " 2"],
    widest: int,
) -> tuple[UInt32[Array, "n w"], Int32[Array, " n"], Bool[Array, " n"]]:
    """Code one segment; count each client's clipped values, and mark those not finite.

    The draws are of the length of the widest segment, regardless of what the generator
    makes of lengths.
    """
    lower, upper = bounds
    top = (levels - jnp.int32(1)).astype(jnp.float32)[:, None]
    step = (upper - lower) / top
    outside = _count_outside(values, bounds)
    # infinite or NaN where any value is
    is_finite = jnp.isfinite(jnp.max(jnp.abs(values), axis=1))
    clipped = jnp.clip(jnp.where(jnp.isnan(values), lower, values), lower, upper)
    # Division may round above K - 1 at the upper end of the range.
    scaled = jnp.minimum((clipped - lower) / step, top)
    floor = jnp.floor(scaled)
    # Round up if a uniform 32-bit word lies below the fraction: integers decide, so
    # that the bits agree on every device.
    threshold = ((scaled - floor) * jnp.float32(2**32)).astype(jnp.uint32)
    # All segments draw the same number of words; a shorter one drops the last.
    words = joined_words(keys, min(widest, _DRAWS_OF_A_KEY), widest)
    is_above = words[:, : values.shape[1]] < threshold
    codes = floor.astype(jnp.uint32) + is_above.astype(jnp.uint32)
    return codes, outside, ~is_finite


def _count_outside(values: Float32[Array, "n w"], bounds: _Bounds) -> Array:
    """Count each client's values outside of the range, NaN included."""

    def count(rows: Array) -> Array:
        is_inside = (rows >= bounds[0]) & (rows <= bounds[1])
        return jnp.sum(~is_inside, axis=1, dtype=jnp.int32)

    clients, width = values.shape
    if is_bound_by_memory() or width < _WIDE:
        return count(values)

    # XLA counts the rows of a matrix on a CPU four times as slowly as one by one.
    def one(client: Array, counts: Array) -> Array:
        row = lax.dynamic_slice(values, (client, jnp.int32(0)), (1, width))
        return lax.dynamic_update_slice(counts, count(row), (client,))

    start = jnp.zeros(clients, jnp.int32)
    return lax.fori_loop(jnp.int32(0), jnp.int32(clients), one, start)


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
    here = seated(summed, slots) & (counts > 0)[:, None]
    add = _added_at_once if is_bound_by_memory() else _added_in_turn
    # Codes without noise or attack add up to at most R - 1: nothing to reduce.
    if is_below:
        return add(codes, slots, here, (lambda code: code,))[0]
    # halves of 16 bits do not overflow for fewer than 2^16 members
    halves = (
        lambda code: code & jnp.uint32(0xFFFF),
        lambda code: code >> jnp.uint32(16),
    )
    low, high = add(codes, slots, here, halves)
    modulus = jnp.maximum(moduli, jnp.uint32(1))[:, None]
    # high * 2^16 modulo R by 16 doublings, as uint32 cannot hold the product.
    shifted = high % modulus
    for _ in range(16):  # unrolled: one kernel
        twice = shifted + shifted  # R is at most 2^31
        # The difference wraps to a large number where twice < R, so the minimum is the
        # residue.
        shifted = jnp.minimum(twice, twice - modulus)
    total = shifted + low % modulus
    total = jnp.minimum(total, total - modulus)
    wrapped = low + (high << jnp.uint32(16))
    return jnp.where((moduli == 0)[:, None], wrapped, total)


def seated(
    chosen: Bool[Array, " n"], slots: Int32[Array, "blocks members"]
) -> Bool[Array, "blocks members"]:
    """Mark the chosen clients among the slots of blocks; padding is none."""
    return (slots < chosen.shape[0]) & _of_slots(chosen, slots)


def _of_slots(values: Array, slots: Array) -> Array:
    """Read the values of slots, of padding those of the last client."""
    return values[jnp.minimum(slots, jnp.int32(values.shape[0] - 1))]


def _added_in_turn(
    codes: UInt32[Array, "n w"],
    slots: Int32[Array, "blocks members"],
    here: Bool[Array, "blocks members"],
    parts: tuple[Callable[[Array], Array], ...],
) -> list[UInt32[Array, "blocks w"]]:
    """Add each part of the codes up over members, client by client.

    A CPU reads each code once and keeps the sums of a segment in its cache: a fifth of
    the time of `_added_at_once`.
    """
    count, width = codes.shape
    seats = seats_of(slots, here, count)
    # under `shard_map` the sums vary as the codes do
    zeros = jnp.zeros((slots.shape[0], width), jnp.uint32)
    start = [varying_like(zeros, codes, here) for _ in parts]
    return add_in_turn(start, codes, seats, parts)


class Seats(NamedTuple):
    """The block of each client in a segment.

    Attributes:
        block: int32[n], its number.
        is_here: bool[n], whether the client is summed.
    """

    block: Array
    is_here: Array


def seats_of(
    slots: Int32[Array, "blocks members"],
    here: Bool[Array, "blocks members"],
    count: int,
) -> Seats:
    """Return the block of each of `count` clients."""
    numbers = jnp.arange(slots.shape[0], dtype=jnp.int32)[:, None]
    # of padding the slot is `count`, which is dropped
    return Seats(
        jnp.zeros(count, jnp.int32).at[slots].set(numbers, mode="drop"),
        jnp.zeros(count, jnp.bool_).at[slots].set(here, mode="drop"),
    )


def add_in_turn(
    sums: list[UInt32[Array, "blocks w"]],
    codes: UInt32[Array, "n w"],
    seats: Seats,
    parts: tuple[Callable[[Array], Array], ...],
) -> list[UInt32[Array, "blocks w"]]:
    """Add each part of clients' codes to the sums of their blocks."""
    count, width = codes.shape

    def add(client: Array, sums: list[Array]) -> list[Array]:
        block = seats.block[client], jnp.int32(0)
        row = lax.dynamic_slice(codes, (client, jnp.int32(0)), (1, width))
        row = jnp.where(seats.is_here[client], row, jnp.uint32(0))
        return [
            lax.dynamic_update_slice(
                total, lax.dynamic_slice(total, block, (1, width)) + part(row), block
            )
            for total, part in zip(sums, parts, strict=True)
        ]

    return lax.fori_loop(jnp.int32(0), jnp.int32(count), add, sums)


def _added_at_once(
    codes: UInt32[Array, "n w"],
    slots: Int32[Array, "blocks members"],
    here: Bool[Array, "blocks members"],
    parts: tuple[Callable[[Array], Array], ...],
) -> list[UInt32[Array, "blocks w"]]:
    """Do the same in steps that XLA fuses with the codes' computation."""
    values = jnp.where(here[:, :, None], _of_slots(codes, slots), jnp.uint32(0))
    return [_sum_of_few(part(values)) for part in parts]


def _sum_of_few(values: UInt32[Array, "blocks members w"]) -> UInt32[Array, "blocks w"]:
    """Add up over members in steps that XLA fuses with the values' computation."""
    blocks, members, width = values.shape
    # `_FEW` members at most per step, and equally many in each, to pad least.
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
    # `span >> 1` drops the half of an odd span, which is subtracted here.
    odd = (span & jnp.uint32(1)).astype(jnp.float32) * jnp.float32(0.5)
    step = (bounds[1] - bounds[0]) / top.astype(jnp.float32)
    return jnp.where(
        counts[:, None] > 0, step[:, None] * (offset - odd), jnp.float32(0)
    )


def decode_row(
    totals: _Totals, counts: _Counts, levels: _Counts, bounds: _Bounds
) -> Float32[Array, " w"]:
    """Return the mean of one segment over all summed clients; zeros without any."""
    # Each block is scaled by its own step before the sum: their K differ.
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
    """Return whether a rule is a plain function, no pytree of numbers."""
    leaves = jax.tree.leaves(rule)
    return len(leaves) == 1 and leaves[0] is rule


def combine_row(
    rule: RobustRule | None,
    averages: Float32[Array, "blocks w"],
    counts: Int32[Array, " blocks"],
) -> Float32[Array, " w"]:
    """Combine a row's averages by a rule, or to their weighted mean without one."""
    weights = counts.astype(jnp.float32)
    if rule is None:
        averages, weights = present_blocks(averages, weights)
        share = weights / jnp.maximum(jnp.sum(weights), jnp.float32(1))
        return jnp.sum(averages * share[:, None], axis=0)
    combined = jnp.asarray(rule(averages, weights))
    return jnp.where(jnp.any(counts > 0), combined, jnp.float32(0))


@pytree
class BlockNoise:
    """A client's noise on the lattice of each K (build it with `block_noise`).

    Blocks of different K have lattices of different steps: one law in units of updates
    is drawn on each. The server sees every block's sum, so that the noise of its block
    alone hides a client.

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
    lattices = {
        levels: stochastic(levels, value_range=ends)
        for levels in sorted({block.num_levels for block in layout.blocks})
    }
    kinds = {
        (block.num_levels, len(block.members), block.modulus) for block in layout.blocks
    }
    for levels, count, modulus in sorted(kinds):
        # The mask of `noisy_row` is the remainder for powers of two only.
        bits = modulus.bit_length() - 1
        rule = (
            "must have rings of 2**b elements for noise: give `segment_layout` "
            "`modulus_bits`"
        )
        require(modulus == 2**bits, "layout", rule, modulus)
        rule = "must have at most 2**15 clients a block"
        require(count <= MOST_CLIENTS, "layout", rule, count)
        chance = wrap_probability(lattices[levels], noise, count, modulus)
        rule = (
            f"must leave room for noise: a coordinate of a sum of {count} clients of "
            f"{levels} levels may wrap round with a chance of {chance:.3g} (by "
            f"Chernoff's bound), not above {LIKELIEST_WRAP} (`segment_layout`)"
        )
        require(chance <= LIKELIEST_WRAP, "modulus_bits", rule, bits)
    laws = tuple(noise.on(float(lattice.step)) for lattice in lattices.values())
    return BlockNoise(on_device(list(lattices), jnp.int32), laws)


def noisy_row(
    codes: UInt32[Array, "n w"],
    keys: Key[Array, "n parts"],
    row: SegmentRows,
    noise: BlockNoise,
    summed: Bool[Array, " n"],
) -> tuple[UInt32[Array, "n w"], Int32[Array, ""]]:
    """Add each client's noise to one segment's codes, and count the sums that wrap.

    Args:
        codes: Of the rounding.
        keys: Of the rounding; the noise has a separate stream of the first.
        row: The segment.
        noise: As from `block_noise`.
        summed: The clients in the sums.
    """
    streams = jax.vmap(lambda key: jax.random.fold_in(key, int(Stream.NOISE)))(
        keys[:, 0]
    )
    drawn = jnp.zeros(codes.shape, jnp.int32)
    for levels, law in zip(noise.levels, noise.laws, strict=True):
        sample = jax.vmap(lambda key, law=law: law.sample(key, codes.shape[1:]))
        # Every law is drawn for all clients and chosen by K: levels are data, not
        # shape.
        drawn = jnp.where((row.levels == levels)[:, None], sample(streams), drawn)
    # Negative noise wraps modulo 2^32, of which every ring here is a divisor.
    terms = codes + drawn.astype(jnp.uint32)

    def count_wraps(slots: Array, present: Array, levels: Array, top: Array) -> Array:
        middle = middle_of(jnp.sum(present, dtype=jnp.int32), levels)
        is_outside = has_left(_of_slots(terms, slots), present, middle, top)
        return jnp.sum(is_outside, dtype=jnp.int32)

    wraps = jax.vmap(count_wraps)(
        row.slots,
        seated(summed, row.slots),
        row.block_levels,
        row.moduli - jnp.uint32(1),
    )
    # R = 2^b: R - 1 is the mask of b bits; for R = 2^32 it is 0 - 1, all bits.
    residues = terms & (row.modulus_of - jnp.uint32(1))[:, None]
    return residues, jnp.sum(wraps, dtype=jnp.int32)


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
    """Lift noisy ring sums to their integers, as two's complement words."""
    middle = middle_of(counts, jnp.asarray(rows.block_levels))[:, :, None]
    top = (jnp.asarray(rows.moduli) - jnp.uint32(1))[:, :, None]
    return lifted(totals, middle, top)


def largest_change(
    layout: SegmentLayout, quantizer: StochasticQuantizer, clip_norm: float
) -> float:
    """Bound how far one client's update moves the sums, compared with zeros.

    With the same dice, a coordinate's codes of x and of 0 differ by less than |x| /
    Delta_K + 1, float32's roundings by (K - 1) 2**-22 more; so the norm of the change
    is at most C plus that of the steps. A law mixed by the dice spends no more than its
    worst throw (quasi-convexity).
    """
    width = float(quantizer.upper) - float(quantizer.lower)
    tops = layout.rows.levels.astype(np.float64) - 1.0
    # A little more than a step, for the float32 rounding of the kernel's division.
    steps = width / tops * (1.0 + tops * 2.0**-22)
    lengths = np.asarray([stop - start for start, stop in layout.bounds], np.float64)
    # Rounding moves each coordinate by less than one step of its segment; the worst
    # client has the coarsest steps.
    return clip_norm + math.sqrt(float((lengths[:, None] * steps**2).sum(axis=0).max()))


class Span(NamedTuple):
    """Neighbouring segments of one width.

    Attributes:
        rows: The segments.
        start: Their first coordinate.
        width: Coordinates of each.
    """

    rows: SegmentRows
    start: int
    width: int

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Return (start, stop) of each segment."""
        count = len(self.rows.segment) + 1
        ends = [self.start + number * self.width for number in range(count)]
        return list(itertools.pairwise(ends))


def spans_of(layout: SegmentLayout) -> list[Span]:
    """Cut the segments into spans that are worked on at once, equally long by width."""
    size, rest = divmod(layout.dim, layout.num_segments)
    most = at_once("segments", 4 * layout.num_participants * (size + 1))
    spans = []
    # The `rest` longer segments come first; a span never mixes widths.
    for first, stop, width in ((0, rest, size + 1), (rest, layout.num_segments, size)):
        length = _divisor(stop - first, most)
        for number in range(first, stop, length):
            part = slice(number, number + length)
            rows = SegmentRows(*(leaf[part] for leaf in layout.rows))
            spans.append(Span(rows, layout.bounds[number][0], width))
    return spans


def plan_of(layout: SegmentLayout, span: Span) -> tuple[SegmentPlan, int]:
    """Return a span's blocks over its own coordinates, and the number of the first."""
    numbers = span.rows.number
    # Padding has the largest number of all, so it does not disturb the minimum.
    first = int(numbers.min())
    stop = int(numbers[numbers < len(layout.plan)].max()) + 1
    plan = tuple(
        dataclasses.replace(
            block, start=block.start - span.start, stop=block.stop - span.start
        )
        for block in layout.plan[first:stop]
    )
    return plan, first


def _divisor(count: int, most: int) -> int:
    """Return the largest divisor up to a bound: parts are then of one shape."""
    return max((n for n in range(1, min(most, count) + 1) if count % n == 0), default=1)


def by_parts(function: Callable[..., Array], *arrays: Any) -> Any:
    """Map a function over segments, which the leading axis of each array counts.

    A CPU takes them one after another: its sums over B are added up in an order that
    depends on the shape, and an update must not depend on how many segments go at once.
    """
    count = arrays[0].shape[0]
    batch = _divisor(count, at_once("averages", 4 * math.prod(arrays[0].shape[1:])))
    return map_tiles(lambda row: function(*row), arrays, batch)


def mapped(step: Callable[..., Any], spans: list[Span]) -> list[Any]:
    """Run step(rows, start, width) on all spans, in one loop for those of one shape.

    In the results a leading axis counts the loop's rounds, so that many spans under a
    trace are few programs.
    """
    parts = []
    for (width, _), group in itertools.groupby(
        spans, lambda span: (span.width, len(span.rows.segment))
    ):
        alike = [(span.rows, np.int32(span.start)) for span in group]
        loop = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alike)
        parts.append(lax.map(lambda part, width=width: step(*part, width), loop))
    return parts
