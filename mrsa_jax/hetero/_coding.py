"""Updates to codes and sums of codes back to updates.

HeteroSAg, Section II-C (Steps 3 and 5): a client quantizes segment l with the K of the
block in which it sums l; a block's sum decodes to |U| r1 + Delta_K times the ring sum;
blocks of a row, which differ in K, are added as real numbers. Symbols: [r1, r2] ->
`value_range`, U -> counts.
"""

from __future__ import annotations

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
from mrsa_jax.hetero._round import Cast, SummedRound, code_span, table_of, update_span
from mrsa_jax.hetero._row_kernels import BlockNoise, block_noise, draw_keys, spans_of
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
        >>> codes, clipped = mj.hetero.encode(jax.random.key(0), updates, layout, (-1.0, 1.0))
        >>> codes[3].tolist(), clipped[3].item()
        ([0, 1, 1, 1], 0.25)

    Source: HeteroSAg, Section II-C, Step 3 (eq. (4) there), with r1 and r2 as levels.
    """
    bounds = check_range(value_range)
    values = check_updates(updates, layout)
    whole = is_traced(values) or not bool(np.isnan(np.asarray(values)).any())
    require(whole, "updates", "must not hold NaN", "NaN")
    spans = spans_of(layout)
    widest = max(span.width for span in spans)
    draws = draw_keys(key, client_ids(members, layout), layout.rows.segment, widest)
    everybody = np.ones(layout.num_participants, np.bool_)
    own = None
    if noise is not None:
        lower, upper = map(float, value_range)
        own = block_noise(noise, layout, stochastic(2, value_range=(lower, upper)))
    cast = Cast(bounds, draws, everybody, widest=widest, noise=own, summed=everybody)
    codes, counted = zip(
        *(
            code_span(values, span.start, span.rows, cast, width=span.width)
            for span in spans
        ),
        strict=True,
    )
    return jnp.concatenate(codes, axis=1), _share(
        tuple(own.outside for own in counted), layout.dim
    )


@functools.partial(jax.jit, static_argnames=("dim",))
def _share(outside: tuple[Array, ...], dim: int) -> Array:
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
    """Turn the blocks' ring sums into the mean update, or into what a robust rule makes of them.

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
        >>> layout = mj.hetero.segment_layout("sc", [2, 2], [2, 5], dim=2)  # rows {0, 1} and {1, 0}
        >>> mj.hetero.decode([[4], [0]], [4, 4], layout, (-1.0, 1.0)).tolist()
        [1.0, -1.0]

    Source: HeteroSAg, Section II-C (decoding) and eq. (3); differs from the paper in
    dividing by the clients that were summed, not by N.
    """
    bounds = check_range(value_range)
    arrays = _checked_totals(totals, layout)
    number = _checked_counts(counts, layout)
    alive = jnp.zeros((5, layout.num_participants), jnp.bool_)
    round_ = SummedRound(alive, np.int32(Status.OK), None, number)
    cast = Cast(bounds, noise=BlockNoise() if has_noise else None)
    parts = []
    for span in spans_of(layout):
        first = int(span.rows.number.min())
        size = int((span.rows.number < len(arrays)).sum())
        table = table_of(arrays[first : first + size], span.rows, first, number)
        parts.append(update_span(table, span.rows, cast, round_, combine))
    update = jnp.concatenate(parts)
    if is_traced(totals, counts):
        return nan_unless(_are_sums(totals, counts, layout), update)
    return update


def _are_sums(totals: Any, counts: Any, layout: SegmentLayout) -> Array:
    """Return whether traced sums are residues of their rings, of as many as there can be."""
    sizes = np.asarray([len(block.members) for block in layout.blocks])
    number = jnp.asarray(counts)
    legal = ((number >= 0) & (number <= on_device(sizes, number.dtype))).all()
    for total, block in zip(totals, layout.blocks, strict=True):
        given = jnp.asarray(total)
        most = min(block.modulus - 1, int(jnp.iinfo(given.dtype).max))
        legal &= ((given >= 0) & (given <= most)).all()
    return legal


def _checked_totals(totals: Any, layout: SegmentLayout) -> list[Any]:
    """Return uint32[stop - start] of each block, residues of its ring, or raise."""
    arrays = [total if is_traced(total) else np.asarray(total) for total in totals]
    blocks = layout.blocks
    rule = "must hold a sum for each block of the layout"
    require(len(arrays) == len(blocks), "totals", rule, len(arrays), len(blocks))
    for array, block in zip(arrays, blocks, strict=True):
        integers = bool(jnp.issubdtype(array.dtype, jnp.integer))
        require(integers, "totals", "must hold integers", array.dtype)
        shape = (block.stop - block.start,)
        require(
            array.shape == shape, "totals", f"must have the shape {shape}", array.shape
        )
        inside = is_traced(array) or bool(
            ((array >= 0) & (array < block.modulus)).all()
        )
        require(
            inside, "totals", "must be residues of their block's ring", block.modulus
        )
    return [array.astype(np.uint32) for array in arrays]


def _checked_counts(counts: Any, layout: SegmentLayout) -> Any:
    """Return int32[blocks], or raise."""
    number = counts if is_traced(counts) else np.asarray(counts)
    sizes = np.asarray([len(block.members) for block in layout.blocks])
    integers = bool(jnp.issubdtype(number.dtype, jnp.integer))
    proper = integers and number.shape == sizes.shape
    require(
        proper,
        "counts",
        "must hold an integer for each block",
        number.shape,
        number.dtype,
    )
    rule = "must lie between 0 and the members of each block"
    if not is_traced(number):
        require(
            bool(((number >= 0) & (number <= sizes)).all()),
            "counts",
            rule,
            number.tolist(),
        )
    return number.astype(np.int32)


def check_parts(layout: Any, combine: Any) -> None:
    """Raise for what is no layout or no rule."""
    is_layout = isinstance(layout, SegmentLayout)
    require(
        is_layout,
        "layout",
        "must be a `SegmentLayout`, e.g. of `segment_layout`",
        layout,
    )
    rule = "must be callable on block averages and their weights"
    require(combine is None or callable(combine), "combine", rule, combine)


def check_range(value_range: Any) -> Float32[Array, " 2"]:
    """Return (r1, r2) as float32[2], or raise."""
    pair = isinstance(value_range, tuple | list | np.ndarray) and len(value_range) == 2
    require(pair, "value_range", "must hold two numbers, r1 < r2", value_range)
    lower, upper = map(float, value_range)
    return range_bounds(stochastic(2, value_range=(lower, upper)))


def range_bounds(quantizer: StochasticQuantizer) -> Float32[Array, " 2"]:
    """Return r1 and r2 of a quantizer."""
    return jnp.stack([quantizer.lower, quantizer.upper])


def check_updates(
    updates: Any, layout: SegmentLayout
) -> Float32[Array, "participants dim"]:
    """Return the updates as float32[n, d], or raise."""
    values = updates if isinstance(updates, jax.Array) else np.asarray(updates)
    floating = jnp.issubdtype(values.dtype, jnp.floating)
    require(bool(floating), "updates", "must be floating point", values.dtype)
    shape = (layout.num_participants, layout.dim)
    require(
        values.shape == shape, "updates", f"must have the shape {shape}", values.shape
    )
    return on_device(values, jnp.float32)


def client_ids(members: Any, layout: SegmentLayout) -> Int32[Array, " participants"]:
    """Return global client ids by slot, or raise."""
    count = layout.num_participants
    if members is None:
        return jnp.arange(count, dtype=jnp.int32)
    ids = members if isinstance(members, jax.Array) else np.asarray(members)
    integers = bool(jnp.issubdtype(ids.dtype, jnp.integer))
    require(
        integers and ids.shape == (count,),
        "members",
        f"must be {count} integers",
        ids.shape,
        ids.dtype,
    )
    return on_device(ids).astype(jnp.int32)
