"""Sums that carry noise in a ring.

Where residues are cut open, and how likely a sum leaves.
A residue modulo R stands for the integer in a window of R elements about the middle of
the sums of codes. Noise has no largest value, so a sum can leave the window and come
back at its other end.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Key, UInt32

from mrsa_jax._core.programs import one_program
from mrsa_jax._core.traced import needs_values
from mrsa_jax.quantize._lattice import LatticeQuantizer
from mrsa_jax.quantize._stochastic import Quantizer
from mrsa_watch._base.errors import check_integer, require, require_methods


@runtime_checkable
class RingNoise(Protocol):
    """Noise of one client on a lattice of integers.

    A frozen pytree, the same law for each.
    `mrsa_jax.dp` has the laws; what sums and decodes knows them by these methods alone.
    """

    @property
    def variance(self) -> float:
        """Return its variance, in squared units of what it is added to."""

    def on(self, step: float) -> RingNoise:
        """Return the same noise on a lattice of this step.

        Its variance over step squared.
        """

    def sample(
        self, key: Key[Array, ""], shape: tuple[int, ...]
    ) -> Int32[Array, "*shape"]:
        """Draw independent integers; nothing but the key decides them."""


LIKELIEST_WRAP = 0.05
"""Above it a ring is refused: one coordinate in twenty would be wrong by R steps."""
MOST_CLIENTS = 2**15
"""Of a sum whose wraps are counted."""


@one_program
def lifted(
    residues: UInt32[Array, "*_"],
    middle: UInt32[Array, "*_"],
    top: UInt32[Array, "*_"],
) -> UInt32[Array, "*_"]:
    """Return the integers that residues modulo R = 2**b stand for.

    As two's complement words.

    Of those congruent to a residue the one in [middle - R / 2, middle + R / 2).

    Args:
        residues: Of any shape.
        middle: Of a shape that broadcasts.
        top: R - 1.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> wrapping = mj.quantize.wrapping
        >>> words = wrapping.lifted(
        ...     jnp.asarray([1, 7, 4], jnp.uint32), jnp.uint32(0), jnp.uint32(7)
        ... )
        >>> words.astype("int32").tolist()
        [1, -1, -4]
    """
    offset = (residues - middle) & top
    return jnp.where(offset > top >> 1, offset | ~top, offset) + middle


@one_program
def has_left(
    terms: UInt32[Array, "clients dim"],
    present: Bool[Array, " clients"],
    middle: UInt32[Array, ""],
    top: UInt32[Array, ""],
) -> Bool[Array, " dim"]:
    """Flag coordinates whose true sums are outside the window about the middle.

    Args:
        terms: Two's complement words, of at most `MOST_CLIENTS` clients.
        present: Who is in the sum.
        middle: Below 2**31.
        top: R - 1.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> wrapping = mj.quantize.wrapping
        >>> terms = jnp.asarray([[3, 2, -3], [1, 1, -1]], jnp.int32).astype(jnp.uint32)
        >>> wrapping.has_left(
        ...     terms, jnp.ones(2, bool), jnp.uint32(0), jnp.uint32(7)
        ... ).tolist()
        [True, False, False]
    """
    high, low = _wide_sum(jnp.where(present[:, None], terms, 0))
    low = low - (middle & 0xFFFF).astype(jnp.int32)
    high = high - (middle >> 16).astype(jnp.int32) + (low >> 16)
    word = (high << 16) | (low & 0xFFFF)
    largest = (top >> 1).astype(jnp.int32)
    is_word = (high >= -(2**15)) & (high < 2**15)
    return ~(is_word & (word <= largest) & (word >= -1 - largest))


def _wide_sum(
    terms: UInt32[Array, "clients dim"],
) -> tuple[Int32[Array, " dim"], Int32[Array, " dim"]]:
    """Return h and l of the sum h 2**16 + l over clients, 0 <= l < 2**16.

    Words are signed.
    """
    low = jnp.sum(terms & 0xFFFF, axis=0, dtype=jnp.uint32)
    high = jnp.sum(terms.astype(jnp.int32) >> 16, axis=0, dtype=jnp.int32)
    carried, rest = low >> 16, low & 0xFFFF
    return high + carried.astype(jnp.int32), rest.astype(jnp.int32)


@needs_values
def wrap_probability(
    quantizer: Quantizer,
    noise: Any,
    count: int | np.integer,
    modulus: int,
) -> float:
    """Bound the chance that a coordinate of a noisy sum leaves the ring's window.

    Chernoff's bound on noise and signal together. Of Skellam noise of the sum's
    variance V in squared steps log E exp(t X) = V (cosh t - 1), and of a discrete
    Gaussian it is at most that. Codes count with their largest sum; those of a rotated
    lattice, where that is less, as a sum of random signs (sub-Gaussian, of variance at
    most (n C)^2 / d whatever the updates) and one step a client for its rounding. This
    holds for updates that do not depend on the rotation's signs.

    Args:
        quantizer: Of the codes.
        noise: What each client adds, in units of updates; None for none.
        count: n, clients in the sum; fewer wrap less.
        modulus: R, even.

    Returns:
        At most 1; 0.0 where no sum can leave.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> wrapping = mj.quantize.wrapping
        >>> wrapping.wrap_probability(
        ...     mj.quantize.lattice(0.5, 1.0, 4, rotate=False), None, 2, 2**8
        ... )
        0.0

    Source:
        Kairouz, Liu, Steinke (ICML 2021), Section 4 for the rotation; Hoeffding (1963)
        for sums of random signs; Canonne, Kamath, Steinke (2020) for the discrete
        Gaussian's moments.
    """
    number, ring = (
        check_integer(count, "count", 1),
        check_integer(modulus, "modulus", 2, 2**32),
    )
    step = float(quantizer.step)  # type: ignore[attr-defined]
    variance = 0.0 if noise is None else number * noise.variance / step**2
    levels = int(quantizer.num_levels)
    surest = _bound(ring / 2.0, variance, 0.0, float((number * (levels - 1) + 1) // 2))
    if not isinstance(quantizer, LatticeQuantizer) or not quantizer.is_rotated:
        return surest
    spread = (number * float(quantizer.clip_norm) / step) ** 2 / quantizer.padded_dim
    return min(surest, _bound(ring / 2.0, variance, spread, float(number)))


def _bound(reach: float, variance: float, spread: float, shift: float) -> float:
    """Bound P(|S| >= reach) for noise, a sub-Gaussian part and a bounded shift.

    `spread` is the variance of the sub-Gaussian part.
    """
    room = reach - shift
    if room <= 0:
        return 1.0
    if variance + spread == 0:
        return 0.0
    # the exponent is least where V sinh t + s t = room, below room / (V + s); any t is
    # a bound
    low, high = 0.0, min(room / (variance + spread), 700.0)
    for _ in range(60):
        rate = (low + high) / 2.0
        if variance * math.sinh(rate) + spread * rate < room:
            low = rate
        else:
            high = rate
    grown = variance * 2.0 * math.sinh(high / 2.0) ** 2  # V (cosh t - 1)
    return min(
        1.0, 2.0 * math.exp(min(grown + spread * high**2 / 2.0 - high * room, 0.0))
    )


@needs_values
def check_wraps(quantizer: Quantizer, noise: Any, count: int, bits: int) -> None:
    """Raise for a ring in which noisy sums would wrap round too often.

    Raises:
        ConfigurationError: Naming the bound on a coordinate's chance.
    """
    require_methods(noise, "noise", "on", "sample")
    require_methods(quantizer, "quantizer", "middle")
    require(
        count <= MOST_CLIENTS,
        "num_participants",
        "must be at most 2**15 with `noise`",
        count,
    )
    chance = wrap_probability(quantizer, noise, count, 2**bits)
    rule = (
        "must leave room for codes and noise: a coordinate of the sum may wrap round "
        "with a "
        f"chance of {chance:.3g} (by Chernoff's bound), not above {LIKELIEST_WRAP}"
    )
    require(chance <= LIKELIEST_WRAP, "modulus_bits", rule, bits)
