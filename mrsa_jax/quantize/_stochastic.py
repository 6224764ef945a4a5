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
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float32, Integer, Key, UInt32

from mrsa_jax._core.factories import also_traced, is_whole, nan_unless, unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.streams import random_words
from mrsa_jax._core.traced import is_traced
from mrsa_watch._base.errors import (
    POSITIVE,
    check_integer,
    check_known,
    check_number,
    require,
)

# ---- Conditional stochastic rounding to integers: draw again until the norm keeps its
# bound.
#
# Which draw is taken is decided by the exact sum of squares of integers, so that the
# bound holds
# for every vector, whatever floating point made of it.

LARGEST = 2**24
"""Codes must be below this by magnitude.

Their squares' parts are then exact in 32 bits.
"""
MAX_DIM = 2**24
_DRAWS = 64
_DRAW = 0x64726100  # "dra\0": of the first draw's key
_BLOCK = 256


def round_within(
    key: Key[Array, ""],
    values: Float32[Array, " dim"],
    most: UInt32[Array, ""],
    bound: UInt32[Array, " 2"],
) -> UInt32[Array, " dim"]:
    """Round each value to one of its two neighbouring integers, the norm squared within a bound.

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
    threshold = ((size - floor) * jnp.float32(2**32)).astype(jnp.uint32)
    least = floor.astype(jnp.uint32)

    def draw(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        _, _, number = state
        words = random_words(jax.random.fold_in(key, number + _DRAW), values.shape)
        rounded = jnp.minimum(least + (words < threshold).astype(jnp.uint32), most)
        return rounded, is_within(rounded, bound), number + jnp.int32(1)

    first = draw((least, jnp.zeros((), jnp.bool_), jnp.int32(0)))
    rounded, is_kept, _ = lax.while_loop(
        lambda state: ~state[1] & (state[2] < _DRAWS), draw, first
    )
    fallback = jnp.where(is_within(least, bound), least, jnp.uint32(0))
    chosen = jnp.where(is_kept, rounded, fallback)
    return jnp.where(values < 0, jnp.uint32(0) - chosen, chosen)


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
        >>> [bool(is_within(sizes, jnp.asarray(divmod(exact - less, 2**32), jnp.uint32)))
        ...  for less in (0, 1)]
        [True, False]
    """
    high, low = squared_norm(sizes)
    return (high < bound[0]) | ((high == bound[0]) & (low <= bound[1]))


@one_program
def squared_norm(sizes: UInt32[Array, " dim"]) -> tuple[Array, Array]:
    """Return the high and low word of the sum of squares (below 2**64 as 2**24 * 2**48 is 2**72).

    A size is a 2**12 + b with a, b < 2**12, hence its square a a 2**24 + 2 a b 2**12 +
    b b. Beyond 2**64 - 1 the sum is given as that.
    """
    upper, lower = sizes >> jnp.uint32(12), sizes & jnp.uint32(0xFFF)
    sums = [
        _total(product) for product in (upper * upper, upper * lower, lower * lower)
    ]
    with jax.enable_x64(True):  # no array of such words is ever made
        squares, mixed, rest = (
            (high.astype(jnp.uint64) << jnp.uint64(16)) + low.astype(jnp.uint64)
            for high, low in sums
        )
        rest = rest + ((mixed & jnp.uint64(0x7FF)) << jnp.uint64(13))
        # of 2**24 each
        high = squares + (mixed >> jnp.uint64(11)) + (rest >> jnp.uint64(24))
        low = (high << jnp.uint64(24)) | (rest & jnp.uint64(0xFFFFFF))
        is_more = high >> jnp.uint64(40) > 0
        words = (high >> jnp.uint64(8)).astype(jnp.uint32), low.astype(jnp.uint32)
    top = jnp.uint32(0xFFFFFFFF)
    return jnp.where(is_more, top, words[0]), jnp.where(is_more, top, words[1])


def _total(words: UInt32[Array, " dim"]) -> tuple[Array, Array]:
    """Return h and l with h 2**16 + l the sum of at most 2**24 words below 2**24."""
    padded = jnp.pad(words, (0, -words.shape[0] % _BLOCK))
    blocks = jnp.sum(padded.reshape(-1, _BLOCK), axis=1, dtype=jnp.uint32)
    high = jnp.sum(blocks >> jnp.uint32(16), dtype=jnp.uint32)
    return high, jnp.sum(blocks & jnp.uint32(0xFFFF), dtype=jnp.uint32)


# ---- Stochastic rounding to K levels, the quantizer of HeteroSAg (there Q_K on [r1,
# r2]).

# Levels beyond the 24 bits of a float32 could not be distinguished.
_MAX_LEVELS = 2**23


@runtime_checkable
class Quantizer(Protocol):
    """What a quantizer can do: turn updates into ring elements, and sums of them back."""

    @property
    def num_levels(self) -> Any:
        """Return the number of levels, K."""
        ...

    def encode(
        self, key: Key[Array, ""], values: Float32[Array, "*shape"]
    ) -> UInt32[Array, "*shape"]:
        """Turn values into codes in [0, num_levels)."""
        ...

    def decode(
        self, codes: UInt32[Array, "*shape"], count: int | Integer[Array, "*batch"]
    ) -> Float32[Array, "*shape"]:
        """Turn a sum of `count` codes into the sum of the values they stand for."""
        ...

    def clipped_fraction(
        self, values: Float32[Array, "... dim"]
    ) -> Float32[Array, "*batch"]:
        """Return the fraction of values that `encode` would clip, along the last axis."""
        ...


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

    def typed(self) -> list[tuple[Any, ...]]:
        """Return the call that may have made it."""
        return [(stochastic, int(self.num_levels), float(str(self.upper)))]

    @property
    def step(self) -> Float32[Array, ""]:
        """Return Delta_K = (r2 - r1) / (K - 1), the distance of neighbouring levels."""
        return (self.upper - self.lower) / (self.num_levels - jnp.int32(1)).astype(
            jnp.float32
        )

    @one_program
    def encode(
        self, key: Key[Array, ""], values: Float32[Array, "*shape"]
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
        top = (self.num_levels - jnp.int32(1)).astype(jnp.float32)
        clipped = jnp.clip(
            jnp.where(jnp.isnan(values), self.lower, values), self.lower, self.upper
        )
        scaled = jnp.minimum((clipped - self.lower) / self.step, top)
        floor = jnp.floor(scaled)
        threshold = ((scaled - floor) * jnp.float32(2**32)).astype(jnp.uint32)
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
        """Return count times the middle of the range, and by how much the sum differs from it."""
        number = jnp.asarray(count).astype(jnp.uint32)
        number = jnp.broadcast_to(number, codes.shape)
        span = number * (self.num_levels - jnp.int32(1)).astype(jnp.uint32)
        # an int32 difference is exact: |codes - span // 2| <= 2**31
        offset = (codes - (span >> jnp.uint32(1))).astype(jnp.int32).astype(jnp.float32)
        odd = (span & jnp.uint32(1)).astype(jnp.float32) * jnp.float32(0.5)
        middle = (self.lower + self.upper) * jnp.float32(0.5)
        return number.astype(jnp.float32) * middle, self.step * (offset - odd)

    @one_program
    def middle(self, count: int | Integer[Array, "*batch"]) -> UInt32[Array, "*batch"]:
        """Return the middle of the sums of `count` codes, count (K - 1) / 2 rounded down."""
        number = jnp.asarray(count).astype(jnp.uint32)
        return (
            number * (self.num_levels - jnp.int32(1)).astype(jnp.uint32)
        ) >> jnp.uint32(1)

    @one_program
    def clipped_fraction(
        self, values: Float32[Array, "... dim"]
    ) -> Float32[Array, "*batch"]:
        """Return the fraction of values outside [r1, r2] along the last axis (NaN counts)."""
        inside = (values >= self.lower) & (values <= self.upper)
        return jnp.mean(~inside, axis=-1, dtype=jnp.float32)


@also_traced
def stochastic(
    num_levels: int | np.integer | Array,
    clip: float | int | np.floating | Array | None = None,
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
    one = (clip is None) != (value_range is None)
    require(one, "clip", "must be given, or `value_range`, not both", clip, value_range)
    ends: Any = (clip, clip) if value_range is None else value_range
    require(len(ends) == 2, "value_range", "must hold two numbers", value_range)
    lower, upper = ends
    if is_traced(ends):
        lower = -lower if value_range is None else lower
    elif value_range is None:
        upper = float(clip or 0.0)
        require(
            math.isfinite(upper) and upper > 0,
            "clip",
            "must be positive and finite",
            clip,
        )
        lower = -upper
    else:
        lower, upper = map(float, value_range)
        ordered = math.isfinite(lower) and math.isfinite(upper) and lower < upper
        require(ordered, "value_range", "must be finite with r1 < r2", value_range)
    if is_traced(levels, lower, upper):  # sums of what is no quantizer are NaN
        is_range = (lower < upper) & jnp.isfinite(lower) & jnp.isfinite(upper)
        legal = is_whole(levels, 2, _MAX_LEVELS) & is_range
        lower, upper = (nan_unless(legal, end) for end in (lower, upper))
    return StochasticQuantizer(
        jnp.int32(levels), jnp.float32(lower), jnp.float32(upper)
    )


# ---- Where a quantizer clips: fixed, or following the last update that the server has
# learnt.
#
# A range that follows uses nothing but the mean update of the last round that worked,
# which the
# server knows anyway; it is a traced number, so a new range compiles nothing new.

RangeStatistic = Literal["max", "rms"]


@runtime_checkable
class ClipRule(Protocol):
    """How the clip range moves from round to round: a pytree."""

    def init(self, quantizer: Any) -> Any:
        """Return the half width of the first round's range."""
        ...

    def apply(self, quantizer: Any, half_width: Float32[Array, ""]) -> Any:
        """Return the quantizer of a round."""
        ...

    def advance(
        self,
        half_width: Float32[Array, ""],
        update: Float32[Array, " dim"],
        is_learnt: Bool[Array, ""],
    ) -> Float32[Array, ""]:
        """Return the next round's half width."""
        ...


@pytree
class FollowingRange:
    """A range in proportion to the last learnt mean update (build it with `following_range`).

    Attributes:
        multiplier: float32 scalar.
        floor: float32 scalar, the smallest half width.
        statistic: "max" or "rms" (static).
    """

    multiplier: Array
    floor: Array
    statistic: str = dataclasses.field(metadata={"static": True})

    def init(self, quantizer: Any) -> Float32[Array, ""]:
        """Return half the width of the quantizer's own range: that of the first rounds."""
        return jnp.maximum(
            (quantizer.upper - quantizer.lower) * jnp.float32(0.5), self.floor
        )

    def apply(self, quantizer: Any, half_width: Float32[Array, ""]) -> Quantizer:
        """Return the quantizer on [-half_width, half_width], with as many levels."""
        # `replace` would keep any Quantizer that has the two ends of a range
        moved: Quantizer = dataclasses.replace(
            quantizer, lower=-half_width, upper=half_width
        )
        return moved

    def advance(
        self,
        half_width: Float32[Array, ""],
        update: Float32[Array, " dim"],
        is_learnt: Bool[Array, ""],
    ) -> Float32[Array, ""]:
        """Return max(floor, multiplier * statistic(update)) after a round that worked.

        A round that failed, or an update that is not finite, leaves the range as it
        was.
        """
        size = jnp.abs(update)
        level = (
            jnp.max(size)
            if self.statistic == "max"
            else jnp.sqrt(jnp.mean(size * size))
        )
        wanted = jnp.maximum(self.multiplier * level, self.floor)
        # a sum of zeros (of clients without samples) shows no size of later updates
        is_known = is_learnt & (level > 0) & jnp.isfinite(wanted)
        return jnp.where(is_known, wanted, half_width)


def following_range(
    multiplier: float | int | np.floating,
    *,
    floor: float | int | np.floating = 1e-6,
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
    numbers: Any = (("multiplier", multiplier), ("floor", floor))
    for name, value in numbers:
        check_number(value, name, "must be positive and finite", POSITIVE)
    enough = statistic != "max" or float(multiplier) >= 1
    require(enough, "multiplier", 'must be at least 1 for statistic "max"', multiplier)
    return FollowingRange(jnp.float32(multiplier), jnp.float32(floor), statistic)
