"""The arithmetic of robust rules: blocks compared pair by pair, never sorted, nothing overflows.

Weights are positive for blocks that are present and 0 for the others. The definitions are in
`_robust`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

__all__ = [
    "coordinate_median_of",
    "geometric_median_of",
    "krum_of",
    "trimmed_mean_of",
    "weighted_mean_of",
]

# two sums of n weights that are equal on paper differ by less than n half units in the last place
_HALF_UNIT = 2.0**-24


@jax.jit
def weighted_mean_of(
    values: Float32[Array, "blocks dim"], weights: Float32[Array, " blocks"]
) -> Float32[Array, " dim"]:
    """Return the weighted mean; 0 of nobody."""
    total = jnp.sum(weights)
    shares = weights / jnp.where(total > jnp.float32(0), total, jnp.float32(1))
    kept = jnp.where((weights > jnp.float32(0))[:, None], values, jnp.float32(0))
    return jnp.sum(shares[:, None] * kept, axis=0)


def _coordinates(values: Array, weights: Array) -> tuple[Array, Array, float]:
    """Return values and weights [blocks, dim], absent ones 0, and what rounding may amount to."""
    present = jnp.isfinite(values) & (weights > jnp.float32(0))[:, None]
    spread = jnp.where(present, weights[:, None], jnp.float32(0))
    return jnp.where(present, values, jnp.float32(0)), spread, values.shape[0] * _HALF_UNIT


@jax.jit
def coordinate_median_of(
    values: Float32[Array, "blocks dim"], weights: Float32[Array, " blocks"]
) -> Float32[Array, " dim"]:
    """Return the middle of the lower and the upper weighted median of each coordinate."""
    values, spread, rounding = _coordinates(values, weights)

    def add(row: Array, up_to: Array) -> Array:
        return up_to + jnp.where(values[row][None] <= values, spread[row][None], jnp.float32(0))

    # weight of the values up to each: nothing needs sorting, and equal values need no order
    up_to = jax.lax.fori_loop(0, values.shape[0], add, jnp.zeros_like(values))
    present = spread > jnp.float32(0)
    total = jnp.max(jnp.where(present, up_to, jnp.float32(0)), axis=0)
    twice, slack = jnp.float32(2) * up_to, total * jnp.float32(rounding)
    low = _least(values, present & (twice >= (total - slack)[None]))
    high = _least(values, present & (twice > (total + slack)[None]))
    middle = jnp.float32(0.5) * low + jnp.float32(0.5) * high
    return jnp.where(total > jnp.float32(0), jnp.where(low == high, low, middle), jnp.float32(0))


def _least(values: Array, among: Array) -> Array:
    return jnp.min(jnp.where(among, values, jnp.float32(jnp.inf)), axis=0)


@jax.jit
def trimmed_mean_of(
    values: Float32[Array, "blocks dim"],
    weights: Float32[Array, " blocks"],
    trim: Float32[Array, ""],
) -> Float32[Array, " dim"]:
    """Return the mean of each coordinate over the weight from trim W to (1 - trim) W."""
    values, spread, rounding = _coordinates(values, weights)

    def add(row: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        other, own = values[row][None], spread[row][None]
        below, same = sums
        below = below + jnp.where(other < values, own, jnp.float32(0))
        return below, same + jnp.where(other == values, own, jnp.float32(0))

    zeros = jnp.zeros_like(values)
    below, same = jax.lax.fori_loop(0, values.shape[0], add, (zeros, zeros))
    total = jnp.sum(spread, axis=0)
    first = trim * total
    # equal values share the stretch [below, below + same] of the weight by their own weights
    start, stop = jnp.maximum(below, first[None]), jnp.minimum(below + same, (total - first)[None])
    slack = total * jnp.float32(rounding)
    inside = jnp.where(stop - start > slack[None], stop - start, jnp.float32(0))
    held = spread / jnp.where(spread > jnp.float32(0), same, jnp.float32(1))
    kept = inside * held
    mass = jnp.sum(kept, axis=0)
    shares = kept / jnp.where(mass > jnp.float32(0), mass, jnp.float32(1))[None]
    return jnp.sum(shares * values, axis=0)


def _whole_blocks(values: Array, weights: Array) -> tuple[Array, Array]:
    """Return values and weights with blocks that hold anything not finite absent and 0."""
    present = jnp.isfinite(values).all(axis=1) & (weights > jnp.float32(0))
    kept = jnp.where(present[:, None], values, jnp.float32(0))
    return kept, jnp.where(present, weights, jnp.float32(0))


@jax.jit
def geometric_median_of(
    values: Float32[Array, "blocks dim"],
    weights: Float32[Array, " blocks"],
    num_iterations: Array,
    smoothing: Float32[Array, ""],
) -> Float32[Array, " dim"]:
    """Return Weiszfeld's point after so many steps from the coordinate-wise median."""
    values, weights = _whole_blocks(values, weights)
    total = jnp.sum(weights)
    weights = weights / jnp.where(total > jnp.float32(0), total, jnp.float32(1))

    def step(_: Array, point: Array) -> Array:
        distances = jnp.maximum(_norms(values, point), smoothing)
        # the nearest block has coefficient w_i: nothing overflows, and not all can vanish
        nearest = jnp.min(jnp.where(weights > jnp.float32(0), distances, jnp.float32(jnp.inf)))
        ratios = jnp.where(jnp.isfinite(distances), nearest / distances, jnp.float32(0))
        pull = weights * ratios
        force = jnp.sum(pull)
        shares = pull / jnp.where(force > jnp.float32(0), force, jnp.float32(1))
        moved = jnp.sum(shares[:, None] * values, axis=0)
        return jnp.where(force > jnp.float32(0), moved, point)

    return jax.lax.fori_loop(0, num_iterations, step, coordinate_median_of(values, weights))


def _norms(values: Array, point: Array) -> Array:
    """Return ||values_i - point||, scaled so that squares neither overflow nor vanish."""
    apart = jnp.abs(values - point[None])
    largest = jnp.max(apart, axis=1, initial=0.0)
    usable = (largest > jnp.float32(0)) & jnp.isfinite(largest)
    scaled = apart / jnp.where(usable, largest, jnp.float32(1))[:, None]
    length = jnp.sqrt(jnp.sum(scaled * scaled, axis=1))
    return jnp.where(usable, largest * length, largest)


@jax.jit
def krum_of(
    values: Float32[Array, "blocks dim"],
    weights: Float32[Array, " blocks"],
    num_byzantine: Array,
    num_selected: Array,
) -> Float32[Array, " dim"]:
    """Return the weighted mean of the blocks of lowest score."""
    values, weights = _whole_blocks(values, weights)
    present = weights > jnp.float32(0)
    number = jnp.arange(values.shape[0], dtype=jnp.int32)
    count = jnp.sum(present, dtype=jnp.int32)
    nearest = jnp.maximum(count - num_byzantine - jnp.int32(2), jnp.int32(1))
    nearest = jnp.minimum(nearest, count - jnp.int32(1))

    def score(row: Array) -> Array:
        # one row of distances at a time: never blocks x blocks x dim
        apart = values - values[row][None]
        squares = jnp.sum(apart * apart, axis=1)
        others = present & (number != row)
        ordered = jnp.sort(jnp.where(others, squares, jnp.float32(jnp.inf)))
        return jnp.sum(jnp.where(number < nearest, ordered, jnp.float32(0)))

    place = _places(jax.lax.map(score, number), present)
    return weighted_mean_of(values, jnp.where(place < num_selected, weights, jnp.float32(0)))


def _places(scores: Array, present: Bool[Array, " blocks"]) -> Array:
    """Return each block's place by score, the earlier one of equals first, absent ones last."""
    order = jnp.lexsort((scores, ~present))
    number = jnp.arange(scores.shape[0], dtype=jnp.int32)
    return jnp.zeros_like(number).at[order].set(number)
