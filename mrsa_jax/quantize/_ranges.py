"""Where a quantizer clips: fixed, or following the last update that the server has learnt.

A range that follows uses nothing but the mean update of the last round that worked, which the
server knows anyway; it is a traced number, so a new range compiles nothing new.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from mrsa_jax.quantize._stochastic import Quantizer
from mrsa_watch._base.errors import POSITIVE, check_number, nearest, require
from mrsa_watch._base.html import brief

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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FollowingRange:
    """A range in proportion to the last learnt mean update (build it with `following_range`).

    Attributes:
        multiplier: float32 scalar.
        floor: float32 scalar, the smallest half width.
        statistic: "max" or "rms" (static).
    """

    __repr__ = brief

    multiplier: Array
    floor: Array
    statistic: str = dataclasses.field(metadata={"static": True})

    def init(self, quantizer: Any) -> Float32[Array, ""]:
        """Return half the width of the quantizer's own range: that of the first rounds."""
        return jnp.maximum((quantizer.upper - quantizer.lower) * jnp.float32(0.5), self.floor)

    def apply(self, quantizer: Any, half_width: Float32[Array, ""]) -> Quantizer:
        """Return the quantizer on [-half_width, half_width], with as many levels."""
        # `replace` would keep any Quantizer that has the two ends of a range
        moved: Quantizer = dataclasses.replace(quantizer, lower=-half_width, upper=half_width)
        return moved

    def advance(
        self,
        half_width: Float32[Array, ""],
        update: Float32[Array, " dim"],
        is_learnt: Bool[Array, ""],
    ) -> Float32[Array, ""]:
        """Return max(floor, multiplier * statistic(update)) after a round that worked.

        A round that failed, or an update that is not finite, leaves the range as it was.
        """
        size = jnp.abs(update)
        level = jnp.max(size) if self.statistic == "max" else jnp.sqrt(jnp.mean(size * size))
        wanted = jnp.maximum(self.multiplier * level, self.floor)
        return jnp.where(is_learnt & jnp.isfinite(wanted), wanted, half_width)


def following_range(
    multiplier: float | int | np.floating,
    *,
    floor: float | int | np.floating = 1e-6,
    statistic: RangeStatistic = "max",
) -> FollowingRange:
    """Build the rule that clips at a multiple of the last learnt mean update.

    The half width of the next round is max(floor, multiplier * s), s being the largest entry of
    the mean update by magnitude ("max") or its root mean square ("rms"). Until a round has
    worked, the quantizer's own range holds. A mean is smaller than what it averages, so choose
    the multiplier well above 1, and watch the clipped fraction: a range that is too narrow
    shrinks the mean from which the next range comes (with "max" never by more than the factor
    `multiplier` lets it, down to `floor`).

    Args:
        multiplier: Positive; at least 1 for "max", or the range could only shrink.
        floor: Smallest half width, positive.
        statistic: "max" or "rms".

    Returns:
        A frozen pytree; multiplier and floor are leaves.

    Raises:
        ConfigurationError: If a number is out of range or the statistic unknown.

    Examples:
        >>> from mrsa_jax.quantize import stochastic
        >>> rule = following_range(4.0, floor=0.5)
        >>> first = rule.init(stochastic(5, 2.0))
        >>> update = jnp.asarray([0.25, -1.0], jnp.float32)
        >>> wide = rule.advance(first, update, jnp.asarray(True))
        >>> float(first), float(wide), float(rule.advance(wide, 0 * update, jnp.asarray(True)))
        (2.0, 4.0, 0.5)
    """
    known = typing.get_args(RangeStatistic)
    hint = f"must be a known statistic: {nearest(str(statistic), known)}"
    require(statistic in known, "statistic", hint, statistic)
    numbers: Any = (("multiplier", multiplier), ("floor", floor))
    for name, value in numbers:
        check_number(value, name, "must be positive and finite", POSITIVE)
    enough = statistic != "max" or float(multiplier) >= 1
    require(enough, "multiplier", 'must be at least 1 for statistic "max"', multiplier)
    return FollowingRange(jnp.float32(multiplier), jnp.float32(floor), statistic)
