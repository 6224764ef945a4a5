"""The arithmetic of robust rules.

Blocks compared pair by pair, never sorted, nothing overflows.
Weights are positive for blocks that are present, whose values are all finite. Absent
blocks are 0 and weigh 0. The largest weight is in [1, 2). The definitions are in
`robust`. A distance, or its square, is a pair (x, e) for x 2**e: between values of
float32 it may be outside of float32 itself.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

_Values = Float32[Array, "blocks dim"]
_Weights = Float32[Array, " blocks"]
_Combined = Float32[Array, " dim"]
# two sums of n weights that are equal on paper differ by less than n half units in the
# last place
_HALF_UNIT = 2.0**-24


def present_blocks(values: _Values, weights: _Weights) -> tuple[Array, Array]:
    """Return values and weights, both 0 where a block is absent.

    It is absent if its weight is not positive and finite, or if one of its values is
    not finite.
    """
    is_weighed = (weights > jnp.float32(0)) & jnp.isfinite(weights)
    is_present = is_weighed & jnp.isfinite(values).all(axis=1)
    present = jnp.where(is_present[:, None], values, jnp.float32(0))
    return present, jnp.where(is_present, weights, jnp.float32(0))


@jax.jit
def weighted_mean_of(values: _Values, weights: _Weights) -> _Combined:
    """Return the weighted mean; 0 of nobody."""
    total = jnp.sum(weights)
    shares = weights / jnp.where(total > jnp.float32(0), total, jnp.float32(1))
    return _mean(values, jnp.broadcast_to(shares[:, None], values.shape))


def _mean(values: Array, shares: Array) -> Array:
    """Add up shares [blocks, dim] of values, within the values' range."""
    taken = shares > jnp.float32(0)
    mean = jnp.sum(shares * jnp.where(taken, values, jnp.float32(0)), axis=0)
    # A mean lies between its values; rounding, or overflow of the sum, may leave them.
    within = jnp.clip(mean, _least(values, taken), -_least(-values, taken))
    return jnp.where(taken.any(axis=0), within, jnp.float32(0))


def _coordinates(values: Array, weights: Array) -> tuple[Array, Array, float]:
    """Return values and weights [blocks, dim], and what rounding may amount to."""
    spread = jnp.broadcast_to(weights[:, None], values.shape)
    return values, spread, values.shape[0] * _HALF_UNIT


@jax.jit
def coordinate_median_of(values: _Values, weights: _Weights) -> _Combined:
    """Return the middle of both weighted medians of each coordinate."""
    values, spread, rounding = _coordinates(values, weights)

    def add(row: Array, up_to: Array) -> Array:
        return up_to + jnp.where(
            values[row][None] <= values, spread[row][None], jnp.float32(0)
        )

    # weight of the values up to each: nothing needs sorting, and equal values need no
    # order
    up_to = jax.lax.fori_loop(0, values.shape[0], add, jnp.zeros_like(values))
    present = spread > jnp.float32(0)
    # The total as this loop added it up, not `jnp.sum`: both sides of the comparisons
    # below then round alike.
    total = jnp.max(jnp.where(present, up_to, jnp.float32(0)), axis=0)
    return _middle(values, up_to, total, total * jnp.float32(rounding), present)


def _middle(
    values: Array, up_to: Array, total: Array, slack: Array, present: Array
) -> Array:
    """Return the median, given the weight of the values up to each; 0 of nobody."""
    twice = jnp.float32(2) * up_to
    # The lower median has at least half of the weight up to it, the upper one more than
    # half. They differ only if the half is hit exactly, within the slack.
    low = _least(values, present & (twice >= (total - slack)[None]))
    high = _least(values, present & (twice > (total + slack)[None]))
    # halves of the least numbers vanish: keep the middle between its ends
    middle = jnp.clip(jnp.float32(0.5) * low + jnp.float32(0.5) * high, low, high)
    return jnp.where(total > jnp.float32(0), middle, jnp.float32(0))


def _least(values: Array, among: Array) -> Array:
    return jnp.min(jnp.where(among, values, jnp.float32(jnp.inf)), axis=0)


@jax.jit
def trimmed_mean_of(
    values: _Values, weights: _Weights, trim: Float32[Array, ""]
) -> _Combined:
    """Return the mean of each coordinate over the middle 1 - 2 trim of the weight."""
    values, spread, rounding = _coordinates(values, weights)

    def add(row: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        other, spread_here = values[row][None], spread[row][None]
        below, same = sums
        below = below + jnp.where(other < values, spread_here, jnp.float32(0))
        return below, same + jnp.where(other == values, spread_here, jnp.float32(0))

    zeros = jnp.zeros_like(values)
    below, same = jax.lax.fori_loop(0, values.shape[0], add, (zeros, zeros))
    total = jnp.sum(spread, axis=0)
    first = trim * total
    # equal values share the stretch [below, below + same] of the weight by their own
    # weights
    start, stop = (
        jnp.maximum(below, first[None]),
        jnp.minimum(below + same, (total - first)[None]),
    )
    slack = total * jnp.float32(rounding)
    # Stretches no longer than the rounding count as outside of the kept middle.
    inside = jnp.where(stop - start > slack[None], stop - start, jnp.float32(0))
    held = spread / jnp.where(spread > jnp.float32(0), same, jnp.float32(1))
    weight = inside * held
    mass = jnp.sum(weight, axis=0)
    shares = weight / jnp.where(mass > jnp.float32(0), mass, jnp.float32(1))[None]
    # so little is left by a trim of nearly half that it is all rounding: the limit is
    # the median
    middle = _middle(values, below + same, total, slack, spread > jnp.float32(0))
    return jnp.where(mass > jnp.float32(0), _mean(values, shares), middle)


@jax.jit
def geometric_median_of(
    values: _Values,
    weights: _Weights,
    num_iterations: Array,
    smoothing: Float32[Array, ""],
) -> _Combined:
    """Return Weiszfeld's point after so many steps from the coordinate-wise median."""
    total = jnp.sum(weights)
    weights = weights / jnp.where(total > jnp.float32(0), total, jnp.float32(1))
    # what is far below the rounding of the total would only make `force` vanish
    weights = jnp.where(weights < jnp.float32(2.0**-60), jnp.float32(0), weights)
    least = _exponent(smoothing)

    def step(_: Array, point: Array) -> Array:
        apart, power = _apart(values, point)
        length = jnp.sqrt(jnp.sum(apart * apart, axis=1))
        reach = _times_power(length, power) / smoothing
        # along (v_i - y) / length, and so no block pulls harder for being far
        pull = weights * jnp.minimum(reach, jnp.float32(1))
        pull = pull / jnp.where(length > jnp.float32(0), length, jnp.float32(1))
        is_close = reach < jnp.float32(1)
        length = jnp.where(is_close, _times_power(smoothing, -least), length)
        power = jnp.where(is_close, least, power)
        order = power.astype(jnp.float32) + jnp.log2(length)
        near = jnp.argmin(
            jnp.where(weights > jnp.float32(0), order, jnp.float32(jnp.inf))
        )
        # the nearest block has coefficient w_i: nothing overflows, and not all can
        # vanish
        force = jnp.sum(
            weights * _times_power(length[near] / length, power[near] - power)
        )
        move = jnp.sum(pull[:, None] * apart, axis=0) * (length[near] / force)
        # A step may leave float32 on the way although its end does not: then add
        # quarters.
        moved = point + _times_power(move, power[near])
        quarter = jnp.float32(0.25) * point + _times_power(move, power[near] - 2)
        moved = jnp.where(jnp.isfinite(moved), moved, jnp.float32(4) * quarter)
        # The geometric median lies in the box of the values.
        return jnp.where(force > jnp.float32(0), jnp.clip(moved, low, high), point)

    present = jnp.broadcast_to((weights > jnp.float32(0))[:, None], values.shape)
    low, high = _least(values, present), -_least(-values, present)
    return jax.lax.fori_loop(
        0, num_iterations, step, coordinate_median_of(values, weights)
    )


def _apart(values: Array, point: Array) -> tuple[Array, Array]:
    """Return values_i - point as rows x_i 2**e_i, their largest entry near 1 or 0."""
    largest = jnp.max(jnp.abs(values - point[None]), axis=1, initial=0.0)
    # a difference outside of float32: that of quarters is not
    is_beyond = jnp.isinf(largest)
    part = jnp.where(is_beyond, jnp.float32(0.25), jnp.float32(1))[:, None]
    power = jnp.clip(_exponent(largest), -126, 126)
    apart = (part * values - part * point[None]) * _power(-power)[:, None]
    return apart, power + jnp.where(is_beyond, 2, 0)


@jax.jit
def unit_weights(weights: Float32[Array, " blocks"]) -> Float32[Array, " blocks"]:
    """Scale weights by the power of 2 that takes the largest into [1, 2)."""
    return _times_power(weights, -_exponent(jnp.max(weights)))


def _exponent(numbers: Array) -> Array:
    """Return floor(log2 x) of positive x, -127 of 0."""
    # The exponent field of float32; positive numbers have no sign bit to mask.
    return (jax.lax.bitcast_convert_type(numbers, jnp.int32) >> 23) - 127


def _times_power(numbers: Array, power: Array) -> Array:
    """Return x 2**e exactly, in two steps.

    2**e may lie beyond float32 where x 2**e does not.

    Infinite above float32, 0 below it.
    """
    power = jnp.clip(power, -252, 254)
    # One factor of 2^e may be outside of float32 where the product is not.
    half = power // 2
    return numbers * _power(half) * _power(power - half)


def _power(exponent: Array) -> Array:
    """Return 2**e for e in [-126, 127]."""
    return jax.lax.bitcast_convert_type((exponent + 127) << 23, jnp.float32)


@jax.jit
def krum_of(
    values: _Values, weights: _Weights, num_byzantine: Array, num_selected: Array
) -> _Combined:
    """Return the weighted mean of the blocks of lowest score."""
    present = weights > jnp.float32(0)
    number = jnp.arange(values.shape[0], dtype=jnp.int32)
    count = jnp.sum(present, dtype=jnp.int32)
    nearest = jnp.maximum(count - num_byzantine - jnp.int32(2), jnp.int32(1))
    # Krum sums the n - f - 2 nearest distances, at least one and at most all others.
    nearest = jnp.minimum(nearest, count - jnp.int32(1))

    def score(row: Array) -> tuple[Array, Array]:
        # one row of distances at a time: never blocks x blocks x dim
        apart, power = _apart(values, values[row])
        squares, power = _leading(jnp.sum(apart * apart, axis=1), 2 * power)
        place = _places(squares, power, present & (number != row))
        taken = place < nearest
        # Add squares relative to the largest exponent taken, so that none overflows.
        top = jnp.max(jnp.where(taken, power, jnp.iinfo(jnp.int32).min))
        scaled = _times_power(squares, power - top)
        return _leading(jnp.sum(jnp.where(taken, scaled, jnp.float32(0))), top)

    scores, powers = jax.lax.map(score, number)
    place = _places(scores, powers, present)
    # of the blocks that are present, num_byzantine may be bad
    selected = jnp.minimum(
        num_selected, jnp.maximum(count - num_byzantine, jnp.int32(1))
    )
    return weighted_mean_of(
        values, jnp.where(place < selected, weights, jnp.float32(0))
    )


def _leading(numbers: Array, power: Array) -> tuple[Array, Array]:
    """Return x 2**e with x in [1, 2), or 0 and an exponent below all others."""
    exponents = _exponent(numbers)
    lowest = jnp.int32(-(2**20))
    return _times_power(numbers, -exponents), jnp.where(
        numbers > jnp.float32(0), power + exponents, lowest
    )


def _places(numbers: Array, power: Array, present: Bool[Array, " blocks"]) -> Array:
    """Rank the blocks by x 2**e, earlier ones first among equals, absent ones last."""
    # The last key is the first criterion: presence, exponent, then mantissa.
    order = jnp.lexsort((numbers, power, ~present))
    number = jnp.arange(numbers.shape[0], dtype=jnp.int32)
    return jnp.zeros_like(number).at[order].set(number)
