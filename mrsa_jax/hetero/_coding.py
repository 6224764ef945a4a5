"""Updates to codes and sums of codes back to updates, segment by segment.

HeteroSAg, Section II-C (Steps 3 and 5): a client quantizes segment l with the K of the block in
which it sums l; a block's sum decodes to |U| r1 + Delta_K times the ring sum; blocks of a row,
which differ in K, are added as real numbers. Symbols: [r1, r2] -> `value_range`, U -> counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float32, Int32, Key, UInt32

from mrsa_jax._errors import require
from mrsa_jax._streams import random_words
from mrsa_jax.hetero._layout import SegmentLayout, SegmentRow
from mrsa_jax.quantize import StochasticQuantizer, stochastic

__all__ = ["check_range", "combine_row", "decode", "decode_row", "encode", "encode_row"]

# Coordinates of a segment whose rounding one key draws.
_CHUNK = 65_536
ValueRange = tuple[float | int | np.floating, float | int | np.floating]


def encode(
    key: Key[Array, ""],
    updates: ArrayLike | Sequence[Any],
    layout: SegmentLayout,
    value_range: ValueRange,
    members: ArrayLike | Sequence[int] | None = None,
) -> tuple[UInt32[Array, "participants dim"], Float32[Array, " participants"]]:
    """Round each client's update to the levels of the blocks that it sums in.

    Unbiased inside the range: a value r1 + (c + f) Delta_K with 0 <= f < 1 becomes code c + 1
    with probability f, else c, where Delta_K = (r2 - r1) / (K - 1).

    Args:
        key: Randomness; a draw depends on it, the client's id, the segment and the place in it.
        updates: float32[n, d], one row for each slot; values outside the range are clipped.
        layout: Who sums which segment with whom.
        value_range: (r1, r2), r1 < r2.
        members: int[n], global client ids by slot; the slots' own numbers if None.

    Returns:
        uint32[n, d] codes, below the K of each coordinate (`SegmentLayout.levels_of`), and
        float32[n], the share of each client's values that was clipped.

    Raises:
        ConfigurationError: If shapes do not fit, a value is NaN, or the range is none.

    Examples:
        >>> from mrsa_jax.hetero import segment_layout
        >>> layout = segment_layout("sc", [2, 2], [2, 5], dim=4)
        >>> updates = jnp.tile(jnp.asarray([-1.0, 1.0, 1.0, 3.0]), (4, 1))
        >>> codes, clipped = encode(jax.random.key(0), updates, layout, (-1.0, 1.0))
        >>> codes[3].tolist(), clipped[3].item()
        ([0, 1, 1, 1], 0.25)

    Source: HeteroSAg, Section II-C, Step 3 (eq. (4) there), with r1 and r2 as levels.
    """
    bounds = check_range(value_range)
    values = check_updates(updates, layout)
    whole = not bool(jnp.isnan(values).any())
    require(whole, "updates", "must not hold NaN", "NaN")
    ids = client_ids(members, layout)
    codes, outside = [], jnp.zeros(ids.shape, jnp.int32)
    for row in layout.rows:
        part, beyond = encode_row(key, values[:, row.start : row.stop], ids, layout, row, bounds)
        codes.append(part)
        outside = outside + beyond
    share = outside.astype(jnp.float32) / jnp.float32(layout.dim)
    return jnp.concatenate(codes, axis=1), share


def decode(
    totals: Sequence[ArrayLike | Sequence[Any]],
    counts: ArrayLike | Sequence[int],
    layout: SegmentLayout,
    value_range: ValueRange,
    combine: Callable[..., Any] | None = None,
) -> Float32[Array, " dim"]:
    """Turn the blocks' ring sums into the mean update, or into what a robust rule makes of them.

    Block b of segment l stands for the sum |U_b| r1 + Delta_K total_b; the blocks of a row are
    added as real numbers and divided by the number of summed clients. Everything is computed
    about the middle of the range, so that nothing cancels.

    Args:
        totals: uint32[stop - start] for each of `layout.blocks`, in their order.
        counts: int[blocks], how many clients each sum is of: 0 to its members.
        layout: The layout of the round.
        value_range: (r1, r2).
        combine: Robust rule called with the averages float32[B, stop - start] of a row's blocks
            and their counts float32[B] as weights (0: absent); the weighted mean if None.

    Returns:
        float32[d]; zeros in segments that no client summed.

    Raises:
        ConfigurationError: If shapes do not fit or a count is impossible.

    Examples:
        >>> from mrsa_jax.hetero import segment_layout
        >>> layout = segment_layout("sc", [2, 2], [2, 5], dim=2)  # rows {0, 1} and {1, 0}
        >>> decode([[4], [0]], [4, 4], layout, (-1.0, 1.0)).tolist()
        [1.0, -1.0]

    Source: HeteroSAg, Section II-C (decoding) and eq. (3); differs from the paper in dividing by
    the clients that were summed, not by N.
    """
    bounds = check_range(value_range)
    arrays = [np.asarray(total) for total in totals]
    blocks = layout.blocks
    rule = "must hold a sum for each block of the layout"
    require(len(arrays) == len(blocks), "totals", rule, len(arrays), len(blocks))
    for array, block in zip(arrays, blocks, strict=True):
        require(array.dtype.kind in "iu", "totals", "must hold integers", array.dtype)
        shape = (block.stop - block.start,)
        require(array.shape == shape, "totals", f"must have the shape {shape}", array.shape)
        inside = bool(((array >= 0) & (array < block.modulus)).all())
        require(inside, "totals", "must be residues of their block's ring", block.modulus)
    number = np.asarray(counts)
    sizes = np.asarray([len(block.members) for block in blocks])
    proper = number.dtype.kind in "iu" and number.shape == sizes.shape
    require(proper, "counts", "must hold an integer for each block", number.shape, number.dtype)
    rule = "must lie between 0 and the members of each block"
    require(bool(((number >= 0) & (number <= sizes)).all()), "counts", rule, number.tolist())
    return jnp.concatenate([
        _decode_blocks(arrays, number, row, bounds, combine) for row in layout.rows
    ])  # fmt: skip


def _decode_blocks(
    totals: list[np.ndarray],
    counts: np.ndarray,
    row: SegmentRow,
    bounds: Array,
    combine: Callable[..., Any] | None,
) -> Array:
    own = range(row.first_block, row.first_block + len(row.plan))
    table = np.zeros((len(row.moduli), row.stop - row.start), np.uint32)
    number = np.zeros(len(row.moduli), np.int32)
    table[: len(own)] = [totals[block] for block in own]
    number[: len(own)] = counts[own.start : own.stop]
    levels = jnp.asarray(row.block_levels)
    if combine is None:
        return decode_row(jnp.asarray(table), jnp.asarray(number), levels, bounds)
    averages = block_averages(jnp.asarray(table), jnp.asarray(number), levels, bounds)
    return combine_row(combine, averages, jnp.asarray(number))


def check_range(value_range: Any) -> Float32[Array, " 2"]:
    """Return (r1, r2) as float32[2], or raise."""
    pair = isinstance(value_range, tuple | list | np.ndarray) and len(value_range) == 2
    require(pair, "value_range", "must hold two numbers, r1 < r2", value_range)
    lower, upper = map(float, value_range)
    return range_bounds(stochastic(2, value_range=(lower, upper)))


def range_bounds(quantizer: StochasticQuantizer) -> Float32[Array, " 2"]:
    """Return r1 and r2 of a quantizer."""
    return jnp.stack([quantizer.lower, quantizer.upper])


def check_updates(updates: Any, layout: SegmentLayout) -> Float32[Array, "participants dim"]:
    """Return the updates as float32[n, d], or raise."""
    values = updates if isinstance(updates, jax.Array) else np.asarray(updates)
    floating = jnp.issubdtype(values.dtype, jnp.floating)
    require(bool(floating), "updates", "must be floating point", values.dtype)
    shape = (layout.num_participants, layout.dim)
    require(values.shape == shape, "updates", f"must have the shape {shape}", values.shape)
    return jnp.asarray(values, jnp.float32)


def client_ids(members: Any, layout: SegmentLayout) -> Int32[Array, " participants"]:
    """Return global client ids by slot, or raise."""
    count = layout.num_participants
    if members is None:
        return jnp.arange(count, dtype=jnp.int32)
    ids = members if isinstance(members, jax.Array) else np.asarray(members)
    integers = bool(jnp.issubdtype(ids.dtype, jnp.integer))
    require(integers and ids.shape == (count,), "members", f"must be {count} integers", ids.shape,
            ids.dtype)  # fmt: skip
    return jnp.asarray(ids).astype(jnp.int32)


def encode_row(
    key: Array, values: Array, members: Array, layout: SegmentLayout, row: SegmentRow, bounds: Array
) -> tuple[Array, Array]:
    """Return one segment's codes uint32[n, w], and how many values of each client were clipped.

    The draws are of one length for all segments, whatever the generator makes of lengths, and one
    executable serves them all.
    """
    width = row.stop - row.start
    widest = -(-layout.dim // layout.num_segments)
    codes, outside = _encode(
        key, jnp.pad(values, ((0, 0), (0, widest - width))), members, jnp.int32(row.segment),
        jnp.asarray(row.levels), bounds, jnp.int32(width),
    )  # fmt: skip
    return codes[:, :width], outside


@jax.jit
def _encode(
    key: Key[Array, ""],
    values: Float32[Array, "n w"],
    members: Int32[Array, " n"],
    segment: Int32[Array, ""],
    levels: Int32[Array, " n"],
    bounds: Float32[Array, " 2"],
    width: Int32[Array, ""],
) -> tuple[UInt32[Array, "n w"], Int32[Array, " n"]]:
    lower, upper = bounds[0], bounds[1]
    top = (levels - jnp.int32(1)).astype(jnp.float32)[:, None]
    step = (upper - lower) / top
    is_inside = (values >= lower) & (values <= upper)
    is_real = jnp.arange(values.shape[1], dtype=jnp.int32) < width
    outside = jnp.sum(~is_inside & is_real[None, :], axis=1, dtype=jnp.int32)
    clipped = jnp.clip(jnp.where(jnp.isnan(values), lower, values), lower, upper)
    scaled = jnp.minimum((clipped - lower) / step, top)
    floor = jnp.floor(scaled)
    threshold = ((scaled - floor) * jnp.float32(2**32)).astype(jnp.uint32)
    up = _words(key, members, segment, values.shape[1]) < threshold
    return floor.astype(jnp.uint32) + up.astype(jnp.uint32), outside


def _words(key: Array, members: Array, segment: Array, width: int) -> Array:
    """Return one random word for each client and coordinate of a segment."""
    length = min(width, _CHUNK)
    chunks = jnp.arange(-(-width // length), dtype=jnp.int32)

    def own(member: Array) -> Array:
        mine = jax.random.fold_in(jax.random.fold_in(key, member), segment)
        words = jax.vmap(lambda chunk: random_words(jax.random.fold_in(mine, chunk), (length,)))(
            chunks
        )
        return words.reshape(-1)[:width]

    return jax.vmap(own)(members)


def _centred(
    totals: UInt32[Array, "blocks w"], counts: Int32[Array, " blocks"], levels: Array, bounds: Array
) -> Array:
    """Return each block's sum less its count times the middle of the range."""
    top = (levels - jnp.int32(1)).astype(jnp.uint32)
    span = (counts.astype(jnp.uint32) * top)[:, None]
    # as in `StochasticQuantizer.decode`: an exact integer difference, so nothing cancels
    offset = (totals - (span >> jnp.uint32(1))).astype(jnp.int32).astype(jnp.float32)
    odd = (span & jnp.uint32(1)).astype(jnp.float32) * jnp.float32(0.5)
    step = (bounds[1] - bounds[0]) / top.astype(jnp.float32)
    return jnp.where(counts[:, None] > 0, step[:, None] * (offset - odd), jnp.float32(0))


@jax.jit
def decode_row(
    totals: UInt32[Array, "blocks w"],
    counts: Int32[Array, " blocks"],
    levels: Int32[Array, " blocks"],
    bounds: Float32[Array, " 2"],
) -> Float32[Array, " w"]:
    """Return the mean over all summed clients of one segment; zeros if there are none."""
    number = jnp.sum(counts, dtype=jnp.int32)
    centred = jnp.sum(_centred(totals, counts, levels, bounds), axis=0)
    middle = (bounds[0] + bounds[1]) * jnp.float32(0.5)
    mean = middle + centred / jnp.maximum(number, jnp.int32(1)).astype(jnp.float32)
    return jnp.where(number > 0, mean, jnp.float32(0))


@jax.jit
def block_averages(
    totals: UInt32[Array, "blocks w"],
    counts: Int32[Array, " blocks"],
    levels: Int32[Array, " blocks"],
    bounds: Float32[Array, " 2"],
) -> Float32[Array, "blocks w"]:
    """Return the mean of each block's summed clients; zeros where there are none."""
    middle = (bounds[0] + bounds[1]) * jnp.float32(0.5)
    number = jnp.maximum(counts, jnp.int32(1)).astype(jnp.float32)[:, None]
    average = middle + _centred(totals, counts, levels, bounds) / number
    return jnp.where(counts[:, None] > 0, average, jnp.float32(0))


def combine_row(
    rule: Any, averages: Float32[Array, "blocks w"], counts: Int32[Array, " blocks"]
) -> Float32[Array, " w"]:
    """Return what a rule makes of a row's averages (their weighted mean without a rule)."""
    leaves = jax.tree.leaves(rule)
    is_function = len(leaves) == 1 and leaves[0] is rule  # no pytree: its code, not its numbers
    if not is_function:
        return _combine(rule, averages, counts)
    weights = counts.astype(jnp.float32)
    return _where_summed(jnp.asarray(rule(averages, weights)), counts)


@jax.jit
def _combine(rule: Any, averages: Array, counts: Array) -> Array:
    weights = counts.astype(jnp.float32)
    if rule is None:
        share = weights / jnp.maximum(jnp.sum(weights), jnp.float32(1))
        return jnp.sum(averages * share[:, None], axis=0)
    return _where_summed(rule(averages, weights), counts)


def _where_summed(values: Array, counts: Array) -> Array:
    return jnp.where(jnp.any(counts > 0), values, jnp.float32(0))
