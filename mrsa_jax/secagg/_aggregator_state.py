"""What averages through ring sums have in common: their state, and who survives a round."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from mrsa_jax._errors import require
from mrsa_jax._streams import Stream, fold
from mrsa_jax.availability import StepDropout
from mrsa_jax.quantize import ClipRule, Quantizer
from mrsa_jax.secagg._seeds import key_material as material_of


class AggregatorState(NamedTuple):
    """What the next round needs.

    Attributes:
        round_index: int32, rounds aggregated so far; part of every nonce.
        half_width: float32, half width of the clip range where a rule moves it, else None.
    """

    round_index: Array
    half_width: Array | None = None

    @classmethod
    def first(cls, clip_rule: ClipRule | None, quantizer: Quantizer) -> AggregatorState:
        """Return the state before the first round."""
        return cls(jnp.int32(0), None if clip_rule is None else clip_rule.init(quantizer))

    def present(self, clip_rule: ClipRule | None, quantizer: Any) -> Any:
        """Return the quantizer with the clip range of this round."""
        if clip_rule is None or self.half_width is None:
            return quantizer
        return clip_rule.apply(quantizer, self.half_width)

    def after(self, clip_rule: ClipRule | None, update: Array, is_learnt: Array) -> AggregatorState:
        """Return the state after a round."""
        width = self.half_width
        if clip_rule is not None:
            width = _advance(clip_rule, width, update, is_learnt)
        return AggregatorState(self.round_index + jnp.int32(1), width)


def survivors_by_step(
    steps: StepDropout | None, key: Key[Array, ""], survivors: Any, count: int
) -> Bool[Array, "5 participants"]:
    """Return V0 to V4 by slot: as given, or of those asked by an average's own steps."""
    require(survivors.dtype == np.bool_, "survivors", "must be bool", survivors.dtype)
    rule = f"must have one row, or V0 to V4, of {count} slots"
    require(survivors.shape in ((count,), (5, count)), "survivors", rule, survivors.shape)
    own = jnp.asarray(survivors)
    if own.ndim == 2:
        return own
    if steps is not None:
        return _sample(steps, fold(key, int(Stream.STEPS)), own)
    return jnp.broadcast_to(own, (5, count))


def key_words(key_material: Any) -> Array:
    """Return uint32[8] of key material from an integer, bytes or such words, or raise."""
    if isinstance(key_material, int | np.integer | bytes):
        return material_of(key_material)
    words = jnp.asarray(key_material)
    valid = words.dtype == jnp.uint32 and words.shape == (8,)
    require(valid, "key_material", "must be uint32[8], an integer or bytes", words.shape)
    return words


@jax.jit
def _sample(steps: StepDropout, key: Array, cohort: Array) -> Array:
    return steps.sample(key, cohort)


@jax.jit
def _advance(clip_rule: ClipRule, width: Array, update: Array, is_learnt: Array) -> Array:
    return clip_rule.advance(width, update, is_learnt)
