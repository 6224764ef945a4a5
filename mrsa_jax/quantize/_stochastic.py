"""Stochastic rounding to K levels, the quantizer of HeteroSAg (there Q_K on [r1, r2]).

Unbiased inside the range, so that the mean of many clients' codes decodes to the mean
of their updates; whatever lies outside is clipped. K -> `num_levels`, Delta_K -> the
step.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float32, Integer, UInt32

from mrsa_jax._core.array_types import PRNGKey, Real, Scalar, Vector, Whole
from mrsa_jax._core.factories import also_traced, is_whole, nan_unless, unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import Calls, pytree, static
from mrsa_jax._core.streams import random_words
from mrsa_jax._core.traced import is_traced
from mrsa_watch._base.errors import (
    POSITIVE,
    check_integer,
    check_known,
    check_number,
    require,
)

# Which draw is taken is decided by the exact sum of squares of integers, so that the
# bound holds for every vector, whatever floating point made of it.

LARGEST = 2**24
"""Codes must be below this by magnitude.

Their squares' parts are then exact in 32 bits.
"""
MAX_DIM = 2**24
_DRAWS = 64
_DRAW = 0x64726100  # "dra\0": of the first draw's key


def round_within(
    key: PRNGKey,
    values: Vector,
    most: UInt32[Array, ""],
    bound: UInt32[Array, " 2"],
) -> UInt32[Array, " dim"]:
    """Round each value to a neighbouring integer, the squared norm within a bound.

    Magnitudes are rounded: t + f with 0 <= f < 1 becomes t + 1 with chance f (a word of
    randomness each), else t. All are drawn again until the sum of squares is at most
    the bound, 64 times at the most; then towards zero; and zeros, should even that be
    too long.

    Args:
        key: JAX key; draw r is by its `fold_in` with `_DRAW` + r.
        values: float32.
        most: Largest magnitude of an integer, below `LARGEST`.
        bound: uint32[2], high and low word.

    Returns:
        Integers as two's complement words.
    """
    size = jnp.minimum(jnp.abs(values), most.astype(jnp.float32))
    floor = jnp.floor(size)
    threshold = ((size - floor) * 2.0**32).astype(jnp.uint32)
    least = floor.astype(jnp.uint32)

    def draw(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        _, _, number = state
        words = random_words(jax.random.fold_in(key, number + _DRAW), values.shape)
        rounded = jnp.minimum(least + (words < threshold).astype(jnp.uint32), most)
        return rounded, is_within(rounded, bound), number + 1

    first = draw((least, jnp.zeros((), jnp.bool_), jnp.int32(0)))
    rounded, is_kept, _ = lax.while_loop(
        lambda state: ~state[1] & (state[2] < _DRAWS), draw, first
    )
    fallback = jnp.where(is_within(least, bound), least, 0)
    chosen = jnp.where(is_kept, rounded, fallback)
    return jnp.where(values < 0, 0 - chosen, chosen)


@one_program
def is_within(
    sizes: UInt32[Array, " dim"], bound: UInt32[Array, " 2"]
) -> Bool[Array, ""]:
    """Return whether the sum of squares is at most a bound, exactly.

    Args:
        sizes: uint32 below `LARGEST`, at most `MAX_DIM` of them.
        bound: uint32[2], high and low word.

    Examples:
        >>> sizes = jnp.full(3, 2**24 - 1, jnp.uint32)
        >>> exact = 3 * (2**24 - 1) ** 2
        >>> [
        ...     bool(
        ...         is_within(
        ...             sizes, jnp.asarray(divmod(exact - less, 2**32), jnp.uint32)
        ...         )
        ...     )
        ...     for less in (0, 1)
        ... ]
        [True, False]
    """
    high, low = squared_norm(sizes)
    return (high < bound[0]) | ((high == bound[0]) & (low <= bound[1]))


@one_program
def squared_norm(sizes: UInt32[Array, " dim"]) -> tuple[Array, Array]:
    """Return the high and low word of the sum of squares; beyond 2**64 - 1, of that.

    The sum may reach 2**24 * 2**48 = 2**72, so halves of the squares are added apart.
    """
    with jax.enable_x64(True):  # no array of such words is ever made
        wide = sizes.astype(jnp.uint64)
        squares = wide * wide  # below 2**48, so that sums of halves stay below 2**48
        high = jnp.sum(squares >> 24)
        low = jnp.sum(squares & 0xFFFFFF)
        high = high + (low >> 24)
        low = (high << 24) | (low & 0xFFFFFF)
        is_more = high >> 40 > 0
        words = (high >> 8).astype(jnp.uint32), low.astype(jnp.uint32)
    top = jnp.uint32(0xFFFFFFFF)
    return jnp.where(is_more, top, words[0]), jnp.where(is_more, top, words[1])


# Levels beyond the 24 bits of a float32 could not be distinguished.
_MAX_LEVELS = 2**23


@runtime_checkable
class Quantizer(Protocol):
    """Quantizer: turns updates into ring elements, and sums of them back."""

    @property
    def num_levels(self) -> Any:
        """Return the number of levels, K."""

    def encode(
        self, key: PRNGKey, values: Float32[Array, "*shape"]
    ) -> UInt32[Array, "*shape"]:
        """Turn values into codes in [0, num_levels)."""

    def decode(
        self, codes: UInt32[Array, "*shape"], count: int | Integer[Array, "*batch"]
    ) -> Float32[Array, "*shape"]:
        """Turn a sum of `count` codes into the sum of the values they stand for."""

    def clipped_fraction(
        self, values: Float32[Array, "... dim"]
    ) -> Float32[Array, "*batch"]:
        """Return the fraction of values that `encode` clips, along the last axis."""


@pytree
class StochasticQuantizer:
    """Stochastic rounding to equidistant levels (build it with `stochastic`).

    Attributes:
        num_levels: K, int32 scalar.
        lower: r1, float32 scalar.
        upper: r2, float32 scalar.
    """

    cites = "quantizer: elkordy2022heterosag"

    num_levels: Array
    lower: Array
    upper: Array

    def typed(self) -> Calls:
        """Return the call that may have made it."""
        return [(stochastic, int(self.num_levels), float(str(self.upper)))]

    @property
    def step(self) -> Scalar:
        """Return Delta_K = (r2 - r1) / (K - 1), the distance of neighbouring levels."""
        return (self.upper - self.lower) / (self.num_levels - 1).astype(jnp.float32)

    @one_program
    def encode(
        self, key: PRNGKey, values: Float32[Array, "*shape"]
    ) -> UInt32[Array, "*shape"]:
        """Round each value up or down at random so that its expectation is kept.

        A value r1 + (l + f) Delta_K with 0 <= f < 1 becomes l + 1 with probability f,
        else l. One 32-bit word of randomness a value; f is compared to all its bits, so
        the bias is that of float32 arithmetic alone: below (K - 1) 2**-22 steps.

        Args:
            key: JAX key.
            values: float32; clipped to [r1, r2] first, NaN becomes r1.

        Returns:
            Codes in [0, K).
        """
        top = (self.num_levels - 1).astype(jnp.float32)
        numbers = jnp.where(jnp.isnan(values), self.lower, values)
        clipped = jnp.clip(numbers, self.lower, self.upper)
        scaled = jnp.minimum((clipped - self.lower) / self.step, top)
        floor = jnp.floor(scaled)
        threshold = ((scaled - floor) * 2.0**32).astype(jnp.uint32)
        up = random_words(key, values.shape) < threshold
        return floor.astype(jnp.uint32) + up.astype(jnp.uint32)

    def decode(
        self, codes: UInt32[Array, "*shape"], count: int | Integer[Array, "*batch"]
    ) -> Float32[Array, "*shape"]:
        """Return the sum of the values that a sum of `count` codes stands for.

        count * r1 + Delta_K * codes, computed about the middle of the range: 2 codes is
        compared with count (K - 1) in integers, so that nothing cancels in floating
        point. For a range symmetric about 0 the relative error is below 2**-22 whatever
        the count.

        Args:
            codes: Sum of `count` codes, at most count * (K - 1) < 2**32.
            count: How many codes were added (scalar, or a shape that broadcasts to
                `codes`).

        Returns:
            float32, zeros where `count` and `codes` are 0.
        """
        # by itself a second program: in the first one a product might round with the
        # sum
        middle, rest = self._decoded(codes, count)
        return middle + rest

    @one_program
    def _decoded(self, codes: Array, count: int | Array) -> tuple[Array, Array]:
        """Return count times the middle of the range, and the rest of the sum."""
        number = jnp.asarray(count).astype(jnp.uint32)
        number = jnp.broadcast_to(number, codes.shape)
        span = number * (self.num_levels - 1).astype(jnp.uint32)
        # an int32 difference is exact: |codes - span // 2| <= 2**31
        offset = (codes - (span >> 1)).astype(jnp.int32).astype(jnp.float32)
        odd = (span & 1).astype(jnp.float32) * 0.5
        middle = (self.lower + self.upper) * 0.5
        return number.astype(jnp.float32) * middle, self.step * (offset - odd)

    @one_program
    def middle(self, count: int | Integer[Array, "*batch"]) -> UInt32[Array, "*batch"]:
        """Return the middle of sums of `count` codes, floor(count (K - 1) / 2)."""
        number = jnp.asarray(count).astype(jnp.uint32)
        return (number * (self.num_levels - 1).astype(jnp.uint32)) >> 1

    @one_program
    def clipped_fraction(
        self, values: Float32[Array, "... dim"]
    ) -> Float32[Array, "*batch"]:
        """Return the fraction of values outside [r1, r2] along the last axis.

        NaN counts.
        """
        inside = (values >= self.lower) & (values <= self.upper)
        return jnp.mean(~inside, axis=-1, dtype=jnp.float32)


@also_traced
def stochastic(
    num_levels: Whole | Array,
    clip: Real | Array | None = None,
    *,
    value_range: tuple[float | int | Array, float | int | Array] | None = None,
) -> StochasticQuantizer:
    """Build the unbiased stochastic quantizer of K levels on [-clip, clip] or [r1, r2].

    Args:
        num_levels: K, from 2 to 2**23 (more levels than float32 tells apart).
        clip: Half width of a range symmetric about 0, positive.
        value_range: (r1, r2) with r1 < r2, instead of `clip`.

    Returns:
        A frozen pytree with `encode`, `decode` and `clipped_fraction`; its numbers are
        leaves.

    Raises:
        ConfigurationError: If K is out of range, or if not exactly one finite range is
            given.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> quantizer = mj.quantize.stochastic(5, 1.0)  # levels -1, -1/2, 0, 1/2, 1
        >>> codes = quantizer.encode(jax.random.key(0), jnp.asarray([-1.0, 0.5, 7.0]))
        >>> codes.tolist(), quantizer.decode(codes, 1).tolist()
        ([0, 3, 4], [-1.0, 0.5, 1.0])

    Source:
        HeteroSAg, Section III (Q_K; K = 1 would divide by zero) and its decoding of a
        sum, |U| r1 + Delta_K * sum.
    """
    rule = "must lie in [2, 2**23]"
    levels = unless_traced(
        check_integer, num_levels, "num_levels", 2, _MAX_LEVELS, rule=rule
    )
    require(
        (clip is None) != (value_range is None),
        "clip",
        "must be given, or `value_range`, not both",
        clip,
        value_range,
    )
    ends: Any = (clip, clip) if value_range is None else value_range
    require(len(ends) == 2, "value_range", "must hold two numbers", value_range)
    lower, upper = ends if is_traced(ends) else map(float, ends)
    if value_range is None:
        require(
            is_traced(upper) or 0 < upper < math.inf,
            "clip",
            "must be positive and finite",
            clip,
        )
        lower = -upper
    elif not is_traced(ends):
        require(
            -math.inf < lower < upper < math.inf,
            "value_range",
            "must be finite with r1 < r2",
            value_range,
        )
    if is_traced(levels, lower, upper):  # sums of what is no quantizer are NaN
        is_range = (lower < upper) & jnp.isfinite(lower) & jnp.isfinite(upper)
        legal = is_whole(levels, 2, _MAX_LEVELS) & is_range
        lower, upper = (nan_unless(legal, end) for end in (lower, upper))
    return StochasticQuantizer(
        jnp.int32(levels), jnp.float32(lower), jnp.float32(upper)
    )


# A range that follows uses nothing but the mean update of the last round that worked,
# which the server knows anyway; it is a traced number, so a new range compiles nothing
# new.

RangeStatistic = Literal["max", "rms"]


@runtime_checkable
class ClipRule(Protocol):
    """Rule by which the clip range moves from round to round: a pytree."""

    def init(self, quantizer: Any) -> Any:
        """Return the half width of the first round's range."""

    def apply(self, quantizer: Any, half_width: Scalar) -> Any:
        """Return the quantizer of a round."""

    def advance(
        self,
        half_width: Scalar,
        update: Vector,
        is_learnt: Bool[Array, ""],
    ) -> Scalar:
        """Return the next round's half width."""


@pytree
class FollowingRange:
    """Range in proportion to the last learnt mean (build it with `following_range`).

    Attributes:
        multiplier: float32 scalar.
        floor: float32 scalar, the smallest half width.
        statistic: "max" or "rms" (static).
    """

    multiplier: Array
    floor: Array
    statistic: str = static()

    def init(self, quantizer: Any) -> Scalar:
        """Return half the width of the quantizer's own range, for the first rounds."""
        return jnp.maximum((quantizer.upper - quantizer.lower) * 0.5, self.floor)

    def apply(self, quantizer: Any, half_width: Scalar) -> Quantizer:
        """Return the quantizer on [-half_width, half_width], with as many levels."""
        return dataclasses.replace(quantizer, lower=-half_width, upper=half_width)

    def advance(
        self,
        half_width: Scalar,
        update: Vector,
        is_learnt: Bool[Array, ""],
    ) -> Scalar:
        """Return max(floor, multiplier * statistic(update)) after a round that worked.

        A round that failed, or an update that is not finite, leaves the range as it
        was.
        """
        if self.statistic == "max":
            level = jnp.max(jnp.abs(update))
        else:
            level = jnp.sqrt(jnp.mean(update * update))
        wanted = jnp.maximum(self.multiplier * level, self.floor)
        # a sum of zeros (of clients without samples) shows no size of later updates
        is_known = is_learnt & (level > 0) & jnp.isfinite(wanted)
        return jnp.where(is_known, wanted, half_width)


def following_range(
    multiplier: Real,
    *,
    floor: Real = 1e-6,
    statistic: RangeStatistic = "max",
) -> FollowingRange:
    """Build the rule that clips at a multiple of the last learnt mean update.

    The half width of the next round is max(floor, multiplier * s), s being the largest
    entry of the mean update by magnitude ("max") or its root mean square ("rms"). Until
    a round has worked, the quantizer's own range holds, and a mean of zeros changes no
    range. A mean is smaller than what it averages, so choose the multiplier well above
    1, and watch the clipped fraction: a range that is too narrow shrinks the mean from
    which the next range comes (with "max" never by more than the factor `multiplier`
    lets it, down to `floor`).

    Args:
        multiplier: Positive; at least 1 for "max", or the range could only shrink.
        floor: Smallest half width, positive.
        statistic: "max" or "rms".

    Returns:
        A frozen pytree; multiplier and floor are leaves.

    Raises:
        ConfigurationError: If a number is out of range or the statistic unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> rule = mj.quantize.following_range(4.0, floor=0.5)
        >>> first = rule.init(mj.quantize.stochastic(5, 2.0))
        >>> update = jnp.asarray([0.25, -1.0], jnp.float32)
        >>> wide = rule.advance(first, update, jnp.asarray(True))
        >>> narrow = rule.advance(wide, update / 100, jnp.asarray(True))
        >>> float(first), float(wide), float(narrow)
        (2.0, 4.0, 0.5)
    """
    check_known(
        statistic, "statistic", typing.get_args(RangeStatistic), "a known statistic"
    )
    rule = "must be positive and finite"
    times = check_number(multiplier, "multiplier", rule, POSITIVE)
    least = check_number(floor, "floor", rule, POSITIVE)
    require(
        statistic != "max" or times >= 1,
        "multiplier",
        'must be at least 1 for statistic "max"',
        multiplier,
    )
    return FollowingRange(jnp.float32(times), jnp.float32(least), statistic)
