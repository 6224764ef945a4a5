"""Updates to codes and sums of codes back to updates.

HeteroSAg, Section II-C (Steps 3 and 5): a client quantizes segment l with the K of the
block in which it sums l; a block's sum decodes to |U| r1 + Delta_K times the ring sum;
blocks of a row, which differ in K, are added as real numbers. Symbols: [r1, r2] ->
`value_range`, U -> counts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float32, Int32, Key, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.factories import nan_unless
from mrsa_jax._core.status import Status
from mrsa_jax._core.traced import is_traced
from mrsa_jax.hetero._layout import SegmentLayout
from mrsa_jax.hetero._round import (
    Cast,
    SummedRound,
    cast_of,
    code_span,
    table_of,
    update_span,
)
from mrsa_jax.hetero._row_kernels import BlockNoise, block_noise, plan_of, spans_of
from mrsa_jax.quantize import RingNoise, StochasticQuantizer, stochastic
from mrsa_watch._base.errors import require

ValueRange = tuple[float | int | np.floating, float | int | np.floating]


def encode(
    key: Key[Array, ""],
    updates: ArrayLike | Sequence[Any],
    layout: SegmentLayout,
    value_range: ValueRange,
    members: ArrayLike | Sequence[int] | None = None,
    noise: RingNoise | None = None,
) -> tuple[UInt32[Array, "participants dim"], Float32[Array, " participants"]]:
    """Round each client's update to the levels of the matrix blocks that it sums in.

    Unbiased inside the range: a value r1 + (c + f) Delta_K with 0 <= f < 1 becomes code
    c + 1 with probability f, else c, where Delta_K = (r2 - r1) / (K - 1).

    Args:
        key: Randomness; a draw depends on it, the client's id, the segment and the
            place in it.
        updates: float32[n, d], one row for each slot; values outside the range are
            clipped.
        layout: The groups that sum each segment together (`segment_layout`).
        value_range: (r1, r2), r1 < r2.
        members: int[n], global client ids by slot; the slots' own numbers if None.
        noise: Noise of each client, as in `segment_average`; the layout needs room for
            it.

    Returns:
        uint32[n, d] codes, below the K of each coordinate (`SegmentLayout.levels_of`),
        with noise residues of its ring, to which clients add their pads; and
        float32[n], the fraction of each client's values that was clipped. Under `jit`
        or `vmap` a NaN counts as clipped to r1, as in `quantize.stochastic`.

    Raises:
        ConfigurationError: If shapes do not fit, a value is NaN, or the range is none.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> layout = mj.hetero.segment_layout("sc", [2, 2], [2, 5], dim=4)
        >>> updates = jnp.tile(jnp.asarray([-1.0, 1.0, 1.0, 3.0]), (4, 1))
        >>> key = jax.random.key(0)
        >>> codes, clipped = mj.hetero.encode(key, updates, layout, (-1.0, 1.0))
        >>> codes[3].tolist(), clipped[3].item()
        ([0, 1, 1, 1], 0.25)

    Source: HeteroSAg, Section II-C, Step 3 (eq. (4) there), with r1 and r2 as levels.
    """
    quantizer = range_quantizer(value_range)
    values = check_updates(updates, (layout.num_participants, layout.dim))
    whole = is_traced(values) or not bool(np.isnan(np.asarray(values)).any())
    require(whole, "updates", "must not hold NaN", "NaN")
    ids = client_ids(members, layout)
    everybody = on_device(np.ones(layout.num_participants, np.bool_))
    # As in a round in which every client sends.
    cast = cast_of(layout, key, ids, everybody, range_bounds(quantizer))
    if noise is not None:
        drawn = block_noise(noise, layout, quantizer)
        cast = dataclasses.replace(cast, noise=drawn, summed=everybody)
    codes, outside = [], []
    for span in spans_of(layout):
        code, counted = code_span(values, span.start, span.rows, cast, width=span.width)
        codes.append(code)
        outside.append(counted.outside)
    return jnp.concatenate(codes, axis=1), _share(outside, layout.dim)


@functools.partial(jax.jit, static_argnames=("dim",))
def _share(outside: list[Array], dim: int) -> Array:
    total = jnp.sum(jnp.concatenate(outside), axis=0, dtype=jnp.int32)
    return total.astype(jnp.float32) / jnp.float32(dim)


def decode(
    totals: Sequence[ArrayLike | Sequence[Any]],
    counts: ArrayLike | Sequence[int],
    layout: SegmentLayout,
    value_range: ValueRange,
    combine: Callable[..., Any] | None = None,
    *,
    has_noise: bool = False,
) -> Float32[Array, " dim"]:
    """Turn the blocks' ring sums into the mean update, or a robust rule's update.

    Block b of segment l stands for the sum |U_b| r1 + Delta_K total_b; the blocks of a
    row are added as real numbers and divided by the number of summed clients.
    Everything is computed about the middle of the range, so that nothing cancels.

    Args:
        totals: uint32[stop - start] for each of `layout.blocks`, in their order.
        counts: int[blocks], how many clients each sum is of: 0 to its members.
        layout: The layout of the round.
        value_range: (r1, r2).
        combine: Robust rule called with the averages float32[B, stop - start] of a
            row's blocks and their counts float32[B] as weights (0: absent); the
            weighted mean if None.
        has_noise: Whether clients added noise: a total then stands for an integer about
            the middle of the sums of codes.

    Returns:
        float32[d]; zeros in segments that no client summed.

    Raises:
        ConfigurationError: If shapes do not fit or a count is impossible; of traced
            values, only shapes and types are known.

    Examples:
        >>> import mrsa_jax as mj
        >>> layout = mj.hetero.segment_layout("sc", [2, 2], [2, 5], dim=2)
        >>> layout.matrix
        ((0, 0), (0, 0))
        >>> mj.hetero.decode([[4], [0]], [4, 4], layout, (-1.0, 1.0)).tolist()
        [1.0, -1.0]

    Source: HeteroSAg, Section II-C (decoding) and eq. (3); differs from the paper in
    dividing by the clients that were summed, not by N.
    """
    bounds = range_bounds(range_quantizer(value_range))
    blocks = layout.blocks
    arrays: list[Any] = [
        total if is_traced(total) else np.asarray(total) for total in totals
    ]
    rule = "must hold a sum for each block of the layout"
    require(len(arrays) == len(blocks), "totals", rule, len(arrays), len(blocks))
    is_legal = True
    rule = "must be residues of their block's ring"
    for array, block in zip(arrays, blocks, strict=True):
        is_integer = bool(jnp.issubdtype(array.dtype, jnp.integer))
        require(is_integer, "totals", "must hold integers", array.dtype)
        shape = (block.stop - block.start,)
        fits = array.shape == shape
        require(fits, "totals", f"must have the shape {shape}", array.shape)
        # The comparison is made in the array's own dtype, which may not hold R - 1.
        most = min(block.modulus - 1, int(jnp.iinfo(array.dtype).max))
        is_legal &= _lie_below(array, most, "totals", rule, block.modulus)
    number: Any = counts if is_traced(counts) else np.asarray(counts)
    sizes = np.asarray([len(block.members) for block in blocks])
    is_integer = bool(jnp.issubdtype(number.dtype, jnp.integer))
    proper = is_integer and number.shape == sizes.shape
    rule = "must hold an integer for each block"
    require(proper, "counts", rule, number.shape, number.dtype)
    rule = "must lie between 0 and the members of each block"
    is_legal &= _lie_below(number, sizes.astype(number.dtype), "counts", rule, number)
    words = [array.astype(np.uint32) for array in arrays]
    number = number.astype(np.int32)
    # Decoding reads the counts alone; without attackers no survivor is looked at.
    alive = jnp.zeros((5, layout.num_participants), jnp.bool_)
    round_ = SummedRound(alive, np.int32(Status.OK), None, number)
    # An empty `BlockNoise` draws nothing; it only has sums lifted about their middle.
    cast = Cast(bounds, noise=BlockNoise() if has_noise else None)
    parts = []
    for span in spans_of(layout):
        plan, first = plan_of(layout, span)
        # `totals` are listed by block; a span wants them as [segments, blocks, w].
        table = table_of(words[first : first + len(plan)], span.rows, first, number)
        parts.append(update_span(table, span.rows, cast, round_, combine))
    update = jnp.concatenate(parts)
    return nan_unless(is_legal, update) if is_traced(is_legal) else update


def _lie_below(array: Any, most: Any, argument: str, rule: str, received: Any) -> Any:
    """Return whether integers lie in [0, most], or raise where they are known."""
    inside = ((array >= 0) & (array <= most)).all()
    if not is_traced(inside):
        require(bool(inside), argument, rule, np.asarray(received).tolist())
    return inside


def check_parts(layout: Any, combine: Any) -> None:
    """Raise unless a layout is one, and a rule is callable or None."""
    rule = "must be a `SegmentLayout`, e.g. of `segment_layout`"
    require(isinstance(layout, SegmentLayout), "layout", rule, layout)
    rule = "must be callable on block averages and their weights"
    require(combine is None or callable(combine), "combine", rule, combine)


def range_quantizer(value_range: Any) -> StochasticQuantizer:
    """Return a quantizer of the range (r1, r2), or raise."""
    is_pair = (
        isinstance(value_range, tuple | list | np.ndarray) and len(value_range) == 2
    )
    require(is_pair, "value_range", "must hold two numbers, r1 < r2", value_range)
    lower, upper = map(float, value_range)
    return stochastic(2, value_range=(lower, upper))


def range_bounds(quantizer: StochasticQuantizer) -> Float32[Array, " 2"]:
    """Return r1 and r2 of a quantizer."""
    return jnp.stack([quantizer.lower, quantizer.upper])


def check_updates(
    updates: Any, shape: tuple[int, int], rule: str = "must have the shape"
) -> Float32[Array, "participants dim"]:
    """Return updates as float32 of a shape on the device, or raise."""
    return on_device(checked_updates(updates, shape, rule), jnp.float32)


def checked_updates(
    updates: Any, shape: tuple[int, int], rule: str = "must have the shape"
) -> Any:
    """Return updates of a shape where they are, on the host or a device, or raise."""
    values = updates if isinstance(updates, jax.Array) else np.asarray(updates)
    is_floating = bool(jnp.issubdtype(values.dtype, jnp.floating))
    require(is_floating, "updates", "must be floating point", values.dtype)
    require(values.shape == shape, "updates", f"{rule} {shape}", values.shape)
    return values


def client_ids(members: Any, layout: SegmentLayout) -> Int32[Array, " participants"]:
    """Return global client ids by slot, or raise."""
    count = layout.num_participants
    if members is None:
        return jnp.arange(count, dtype=jnp.int32)
    ids = members if isinstance(members, jax.Array) else np.asarray(members)
    proper = bool(jnp.issubdtype(ids.dtype, jnp.integer)) and ids.shape == (count,)
    require(proper, "members", f"must be {count} integers", ids.shape, ids.dtype)
    return on_device(ids).astype(jnp.int32)
