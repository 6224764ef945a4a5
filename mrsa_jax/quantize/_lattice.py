"""A quantizer on a lattice through 0, for sums that carry their own noise.

What one client adds has an exact bound in the Euclidean norm, which is what
differential privacy needs: clip, rotate at random, scale, round at random until the
integers keep the bound.
"""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Integer, UInt32

from mrsa_jax._core.array_types import PRNGKey, Real, Scalar, Vector, Whole
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.streams import as_key, fold_over, random_words
from mrsa_jax._core.traced import needs_values
from mrsa_jax.quantize._stochastic import MAX_DIM, round_within
from mrsa_watch._base.errors import check_integer, check_number, require

# Added up in pairs: the error is log2 d roundings, and the bits do not depend on what
# else is in the program.

SLACK = 2.0**-19
"""Of a norm to shorten to, kept free for the roundings of float32."""


@one_program
def norm(values: Vector) -> Scalar:
    """Return the Euclidean norm of numbers whose squares float32 holds."""
    length = 1 << (values.shape[0] - 1).bit_length()
    squares = jnp.pad(values * values, (0, length - values.shape[0]))
    # else the product may round with the sum
    squares = lax.optimization_barrier(squares)
    while length > 1:
        length //= 2
        squares = squares[:length] + squares[length:]
    return jnp.sqrt(squares[0])


def scaled_down(values: Vector, clip_norm: Scalar) -> tuple[Scalar, Vector]:
    """Return s and x / s, of which no square overflows, nor vanishes where it matters.

    What is not finite counts as 0.
    """
    finite = jnp.where(jnp.isfinite(values), values, 0)
    size = jnp.maximum(jnp.max(jnp.abs(finite)), clip_norm * 2.0**-20)
    # XLA may divide by multiplying with 1 / s, which must not be too small for float32
    near = jnp.where(size > 2.0**63, jnp.float32(2.0**-64), jnp.float32(1.0))
    return size, (finite * near) / (size * near)


def factor_within(size: Scalar, length: Scalar, clip_norm: Scalar) -> Scalar:
    """Return the factor that brings x / s of norm `length` back to size.

    S, or less if x is too long.
    """
    limit = clip_norm * (1.0 - SLACK)
    is_long = size * length > limit
    return jnp.where(is_long, limit / jnp.maximum(length, 2.0**-60), size)


@one_program
def shortened(values: Vector, clip_norm: Scalar) -> Vector:
    """Return an update of norm at most `clip_norm`, its direction kept.

    Args:
        values: float32; what is not finite counts as 0.
        clip_norm: Positive.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> mj.quantize.shortened(
        ...     jnp.asarray([0.5, float("inf")]), jnp.float32(2.0)
        ... ).tolist()
        [0.5, 0.0]
        >>> short = mj.quantize.shortened(jnp.asarray([3e38, 3e38]), jnp.float32(2.0))
        >>> 1.9999 < sum(float(value) ** 2 for value in short) ** 0.5 < 2.0
        True
    """
    size, small = scaled_down(values, clip_norm)
    factor = factor_within(size, norm(small), clip_norm)
    small, factor = lax.optimization_barrier((small, factor))
    finite = jnp.where(jnp.isfinite(values), values, 0)
    return jnp.where(factor < size, small * factor, finite)


# H D x / sqrt(d) for d a power of two: D flips signs at random, H is the Walsh-Hadamard
# matrix. Only additions and subtractions of whole vectors, so that the bits do not
# depend on what else is in the program.


def padded_length(dim: int) -> int:
    """Return the next power of two.

    Examples:
        >>> [padded_length(dim) for dim in (1, 2, 3, 1000)]
        [1, 2, 4, 1024]
    """
    return 1 << (dim - 1).bit_length()


def sign_words(seed: int, length: int) -> UInt32[Array, " words"]:
    """Return the random bits of a vector's signs, 32 a word."""
    return random_words(as_key(seed), (-(-length // 32),))


def rotate(values: Vector, words: UInt32[Array, " words"]) -> Float32[Array, " padded"]:
    """Return H D x of values padded with zeros.

    The rotation, times the root of its length.
    """
    length = padded_length(values.shape[0])
    return hadamard(
        jnp.pad(values, (0, length - values.shape[0])) * _signs(words, length)
    )


def rotate_back(
    values: Float32[Array, " padded"],
    words: UInt32[Array, " words"],
    dim: int,
) -> Vector:
    """Return the first coordinates of D H y: what undoes `rotate`, times its length."""
    return (hadamard(values) * _signs(words, values.shape[0]))[:dim]


def _signs(words: Array, length: int) -> Float32[Array, " padded"]:
    shifts = jnp.arange(32, dtype=jnp.uint32)
    bits = (words[:, None] >> shifts[None]) & 1
    return 1 - 2 * bits.reshape(-1)[:length].astype(jnp.float32)


@one_program
def hadamard(values: Float32[Array, " padded"]) -> Float32[Array, " padded"]:
    """Return H x by the fast transform, two of its steps in one pass.

    Measured on two cores (12 vectors of 2**20) as fast as products by Kronecker
    factors, whose sums would depend on the shape.

    Args:
        values: float32 of a power of two.

    Examples:
        >>> hadamard(jnp.asarray([1.0, 2.0, 3.0, 4.0], jnp.float32)).tolist()
        [10.0, -2.0, -4.0, 0.0]
    """
    length = values.shape[0]
    done, remaining = 1, length
    while remaining > 1:
        size = min(4, remaining)
        parts = list(jnp.moveaxis(values.reshape(done, size, remaining // size), 1, 0))
        for near in (1, 2)[: int(math.log2(size))]:
            low = [place for place in range(size) if not place & near]
            sums = {place: parts[place] + parts[place | near] for place in low}
            rest = {place | near: parts[place] - parts[place | near] for place in low}
            parts = [(sums | rest)[place] for place in range(size)]
        # else XLA would fuse all passes and compute each sum again wherever it is read
        values = lax.optimization_barrier(jnp.stack(parts, axis=1).reshape(length))
        done, remaining = done * size, remaining // size
    return values


_REJECTION = math.exp(-0.5)
# Lattice steps in a clip norm: beyond, float32 would have no fraction to round by.
_MAX_STEPS = 2**23
_TINY, _HUGE = 2.0**-60, 2.0**60


@pytree
class LatticeQuantizer:
    """Rounding to multiples of a step, of bounded norm (build it with `lattice`).

    Attributes:
        step: float32 scalar, the distance of neighbouring points along a coordinate.
        clip_norm: float32 scalar, C: longer updates are shortened to it.
        bound: uint32[2], high and low word of the largest squared norm of a client's
            integers.
        num_levels: int32 scalar, how many different codes there can be: of magnitudes
            up to C / step + 1 whose square is within the bound.
        signs: uint32[words], the rotation's signs as bits; none without a rotation.
        dim: Length of an update (static).
        is_rotated: Whether updates are rotated (static).
    """

    cites = "quantizer: kairouz2021distributed"

    step: Array
    clip_norm: Array
    bound: Array
    num_levels: Array
    signs: Array
    dim: int = static()
    is_rotated: bool = static()

    @property
    def padded_dim(self) -> int:
        """Return the length of the codes: with a rotation the next power of two."""
        return padded_length(self.dim) if self.is_rotated else self.dim

    @property
    def squared_bound(self) -> int:
        """Return the largest squared norm that a client's integers can have."""
        high, low = np.asarray(self.bound).tolist()
        return high * 2**32 + low

    @property
    def sensitivity(self) -> float:
        """Return the largest Euclidean norm of one client's part, in updates' units."""
        root = math.sqrt(self.squared_bound)
        return math.nextafter(
            math.nextafter(root, math.inf) * float(self.step), math.inf
        )

    @property
    def sensitivity_l1(self) -> float:
        """Return a bound on its sum of magnitudes: min(sqrt(d) L2, L2**2 / step)."""
        length = min(
            self.squared_bound, math.isqrt(self.squared_bound * self.padded_dim) + 1
        )
        return math.nextafter(length * float(self.step), math.inf)

    @one_program
    def encode(
        self, key: PRNGKey, values: Float32[Array, "*batch dim"]
    ) -> UInt32[Array, "*batch padded"]:
        """Clip, rotate, scale and round one update.

        Args:
            key: JAX key of this client's rounding.
            values: float32[dim]; what is not finite counts as 0. Of several updates
                (leading axes) each has its own key.

        Returns:
            Integers as two's complement words, of a squared norm of at most
            `squared_bound` whatever the values are; zeros for zeros.
        """
        require(
            values.shape[-1:] == (self.dim,),
            "values",
            f"must have a last axis of {self.dim}",
            values.shape,
        )
        if values.ndim == 1:
            most = (self.num_levels >> 1).astype(jnp.uint32)
            return round_within(key, self.scaled(values), most, self.bound)
        rows = values.reshape(-1, self.dim)
        keys = fold_over(key, jnp.arange(rows.shape[0], dtype=jnp.int32))
        return jax.vmap(self.encode)(keys, rows).reshape(
            *values.shape[:-1], self.padded_dim
        )

    @one_program
    def scaled(self, values: Vector) -> Float32[Array, " padded"]:
        """Return an update clipped and rotated, in steps of the lattice."""
        size, small = scaled_down(values, self.clip_norm)
        factor = factor_within(size, norm(small), self.clip_norm)
        spread = jnp.float32(1.0)
        if self.is_rotated:
            small = rotate(small, self.signs)
            spread = jnp.float32(1.0 / math.sqrt(self.padded_dim))
        small, factor = lax.optimization_barrier((small, factor * spread / self.step))
        return small * factor

    @one_program
    def decode(
        self, codes: UInt32[Array, "*batch padded"], count: int | Integer[Array, "*_"]
    ) -> Float32[Array, "*batch dim"]:
        """Return the sum of updates that a sum of codes stands for.

        Args:
            codes: Two's complement words; leading axes are apart.
            count: How many codes were added; the lattice goes through 0, so that it is
                not read.

        Returns:
            float32[dim].
        """
        del count
        values = lax.bitcast_convert_type(codes, jnp.int32).astype(jnp.float32)
        if not self.is_rotated:
            return values * self.step
        rows = values.reshape(-1, self.padded_dim)
        back = jax.vmap(lambda row: rotate_back(row, self.signs, self.dim))(rows)
        back = back.reshape(*values.shape[:-1], self.dim)
        return back * (self.step * jnp.float32(1.0 / self.padded_dim**0.5))

    @one_program
    def middle(self, count: int | Integer[Array, "*batch"]) -> UInt32[Array, "*batch"]:
        """Return the middle of the sums of `count` codes: 0."""
        return jnp.zeros_like(jnp.asarray(count), jnp.uint32)

    @one_program
    def clipped_fraction(
        self, values: Float32[Array, "... dim"]
    ) -> Float32[Array, "*batch"]:
        """Return 1 where an update is longer than C, else its share of infinities."""
        flat = values.reshape(-1, self.dim)

        def one(own: Array) -> Array:
            size, small = scaled_down(own, self.clip_norm)
            share = jnp.mean(~jnp.isfinite(own), dtype=jnp.float32)
            return jnp.where(size * norm(small) > self.clip_norm, 1.0, share)

        return jax.vmap(one)(flat).reshape(values.shape[:-1])


@needs_values
def lattice(
    step: Real,
    clip_norm: Real,
    dim: Whole,
    *,
    rotate: bool = True,
    key: Whole = 0,
    rejection: Real = _REJECTION,
) -> LatticeQuantizer:
    """Build the quantizer whose codes of one update have an exact bound in norm.

    An update is shortened to the clip norm C, rotated (signs at random, then Hadamard's
    matrix, padded with zeros to a power of two: every coordinate gets about the same
    share), divided by the step g and rounded up or down at random, again until the
    integers' squared norm is at most Delta^2 / g^2. A rounding passes with a chance of
    at least 1 - `rejection`, in practice nearly always; after 64 in vain (below
    `rejection`**64) all is rounded towards zero. Drawing again makes the mean of the
    codes differ from the update by very little, none of it in the bound.

    Args:
        step: g, the lattice's step, in units of updates.
        clip_norm: C, at most 2**23 steps.
        dim: d, length of an update; at most 2**24 once padded.
        rotate: Whether to rotate. Without it a single coordinate may hold all of C,
            which a ring must have room for.
        key: Seed of the rotation's signs: public, the same for all clients and the
            server.
        rejection: beta in [0, 1): 0 never draws again and bounds by (C + g sqrt(d))^2.

    Returns:
        A frozen pytree with `encode`, `decode`, `.padded_dim`, `.sensitivity` (Delta)
        and `.sensitivity_l1`.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> own = mj.quantize.lattice(0.25, 1.0, 3, rotate=False)
        >>> codes = own.encode(
        ...     jax.random.key(0), jnp.asarray([0.5, -0.25, float("nan")])
        ... )
        >>> codes.astype("int32").tolist(), own.decode(codes, 1).tolist()
        ([2, -1, 0], [0.5, -0.25, 0.0])
        >>> own.sensitivity > own.clip_norm, own.squared_bound
        (Array(True, dtype=bool), 21)

    Source:
        Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for
        federated learning with secure aggregation" (ICML 2021): conditional randomized
        rounding and Delta_2 = min{C^2 + g^2 d/4 + sqrt(2 log(1/beta)) g (C + g
        sqrt(d)/2), (C + g sqrt(d))^2}^(1/2).
    """
    size = check_integer(dim, "dim", 1)
    require(
        isinstance(rotate, bool | np.bool_), "rotate", "must be True or False", rotate
    )
    padded = padded_length(size) if rotate else size
    require(
        padded <= MAX_DIM,
        "dim",
        "must be at most 2**24, padded to a power of two for the rotation",
        dim,
    )
    rule = "must lie in [2**-60, 2**60]"
    width, clip = (
        np.float32(check_number(value, name, rule, _TINY, _HUGE))
        for name, value in (("step", step), ("clip_norm", clip_norm))
    )
    steps = Fraction(float(clip)) / Fraction(float(width))
    require(
        steps <= _MAX_STEPS,
        "clip_norm",
        "must be at most 2**23 steps: float32 has no finer fractions",
        clip_norm,
        step,
    )
    beta = check_number(
        rejection, "rejection", "must lie in [0, 1)", 0.0, math.nextafter(1.0, 0.0)
    )
    bound = largest_squared_norm(float(steps), padded, beta)
    words = sign_words(check_integer(key, "key", 0, 2**32 - 1), padded if rotate else 0)
    return LatticeQuantizer(
        jnp.float32(width),
        jnp.float32(clip),
        jnp.asarray(divmod(bound, 2**32), jnp.uint32),
        jnp.int32(2 * min(math.isqrt(bound), math.floor(steps) + 1) + 1),
        words,
        size,
        bool(rotate),
    )


def largest_squared_norm(length: float, dim: int, rejection: float) -> int:
    """Bound the squared norm of the integers that a vector is rounded to.

    The sum of squares exceeds its mean, at most length^2 + d/4, by sqrt(2 log(1/beta))
    (length + sqrt(d)/2) with a chance of at most beta: Hoeffding's inequality, as the
    square of coordinate i takes one of two values 2 floor(x_i) + 1 apart.

    Args:
        length: In steps.
        dim: d, of the rounded vector.
        rejection: beta.

    Examples:
        >>> largest_squared_norm(4.0, 3, 0.0), largest_squared_norm(4.0, 3, 0.5)
        (32, 22)
    """
    surest = (length + math.sqrt(dim)) ** 2
    if rejection == 0:
        return math.floor(surest)
    above = math.sqrt(-2.0 * math.log(rejection)) * (length + math.sqrt(dim) / 2.0)
    return math.floor(min(length**2 + dim / 4.0 + above, surest))
