"""What averages through ring sums have in common: their state, and who survives a round."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from mrsa_jax._errors import require
from mrsa_jax._streams import Stream, fold
from mrsa_jax.availability import StepDropout
from mrsa_jax.quantize import ClipRule, Quantizer
from mrsa_jax.secagg._seeds import key_material as material_of

__all__ = [
    "AggregatorState",
    "first_state",
    "key_words",
    "next_state",
    "present_quantizer",
    "survivors_by_step",
]


class AggregatorState(NamedTuple):
    """What the next round needs.

    Attributes:
        round_index: int32, rounds aggregated so far; part of every nonce.
        half_width: float32, half width of the clip range where a rule moves it, else None.
    """

    round_index: Array
    half_width: Array | None = None


@runtime_checkable
class _Average(Protocol):
    """An aggregator whose clip range may move, and whose steps may lose clients."""

    @property
    def num_participants(self) -> int: ...
    @property
    def quantizer(self) -> Quantizer: ...
    @property
    def steps(self) -> StepDropout | None: ...
    @property
    def clip_rule(self) -> ClipRule | None: ...


def first_state(average: _Average) -> AggregatorState:
    """Return the state before the first round."""
    rule = average.clip_rule
    return AggregatorState(jnp.int32(0), None if rule is None else rule.init(average.quantizer))


def present_quantizer(average: _Average, state: AggregatorState) -> Any:
    """Return the quantizer with the clip range of this round."""
    if average.clip_rule is None or state.half_width is None:
        return average.quantizer
    return average.clip_rule.apply(average.quantizer, state.half_width)


def next_state(
    average: _Average, state: AggregatorState, update: Array, is_learnt: Array
) -> AggregatorState:
    """Return the state after a round."""
    width = state.half_width
    if average.clip_rule is not None:
        width = _advance(average.clip_rule, width, update, is_learnt)
    return AggregatorState(state.round_index + jnp.int32(1), width)


def survivors_by_step(
    average: _Average, key: Key[Array, ""], survivors: Any
) -> Bool[Array, "5 participants"]:
    """Return V0 to V4 by slot: as given, or of those asked by the average's own steps."""
    require(survivors.dtype == np.bool_, "survivors", "must be bool", survivors.dtype)
    count = average.num_participants
    rule = f"must have one row, or V0 to V4, of {count} slots"
    require(survivors.shape in ((count,), (5, count)), "survivors", rule, survivors.shape)
    own = jnp.asarray(survivors)
    if own.ndim == 2:
        return own
    if average.steps is not None:
        return _sample(average.steps, fold(key, int(Stream.STEPS)), own)
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
