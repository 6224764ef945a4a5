"""Share the contract and the state of averages through ring sums."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Integer, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax.availability import StepDropout
from mrsa_jax.quantize import ClipRule, Quantizer
from mrsa_jax.secagg.seeds import key_material as material_of
from mrsa_watch._base.errors import require
from mrsa_watch._base.values import by_value


@by_value
class AggregatorState(NamedTuple):
    """Keep the state that the next round needs.

    Attributes:
        round_index: int32, rounds aggregated so far; part of every nonce.
        half_width: float32, half width of the clip range where a rule moves it, else
            None.
    """

    round_index: Array
    half_width: Array | None = None

    @classmethod
    def first(cls, clip_rule: ClipRule | None, quantizer: Quantizer) -> AggregatorState:
        """Return the state before the first round."""
        return cls(
            jnp.int32(0), None if clip_rule is None else clip_rule.init(quantizer)
        )

    def present(self, clip_rule: ClipRule | None, quantizer: object) -> Any:
        """Return the quantizer with the clip range of this round."""
        if clip_rule is None or self.half_width is None:
            return quantizer
        return clip_rule.apply(quantizer, self.half_width)

    def after(
        self,
        clip_rule: ClipRule | None,
        update: Array,
        is_learnt: Array,
    ) -> AggregatorState:
        """Return the state after a round."""
        width = self.half_width
        if clip_rule is not None:
            width = _advance(clip_rule, width, update, is_learnt)
        return AggregatorState(self.round_index + 1, width)


@by_value
class AggregateOut(NamedTuple):
    """Hold the outcome of a round.

    Attributes:
        update: float32[d], (weighted) mean of the quantized updates that were summed,
            or what a robust rule made of the blocks' averages; zeros unless OK.
        status: int32, a `Status`.
        learned: uint32[d], the ring total that the server learns; zeros unless OK. Of a
            rotated lattice, d is its `padded_dim`. Of sums of segments uint32[segments,
            B, w], w the widest segment's length: a row for each block of a segment
            (zero rows beyond the last, and where none was learnt; zeros beyond a
            segment's own length).
        clipped_fraction: float32, share of the coordinates that were clipped, of the
            clients who sent an input.
        summed: bool[n], the slots that are in the sum, or in every segment's; none
            unless OK.
        components: int32[n], for each slot the smallest slot of the learnt sum that it
            is in, -1 for none: more than one number where the graph became
            disconnected, in failed rounds
                too.
        total_weight: uint32, the sum of the weights, learnt in the same secure sum; the
            number of clients where there are none; 0 unless OK.
        wrapped: int32, coordinates whose true sum is outside the ring's window, so that
            the total stands for another one: by noise alone, and known to the
            simulation only.
        counts: int32[blocks], of sums of segments: clients in each block's sum; 0 where
            it was not learnt.
        block_status: int32[blocks], of sums of segments.
        failed_uploads: bool[n], the slots whose update was not finite: nothing of it is
            in a sum.
    """

    update: Array
    status: Array
    learned: Array
    clipped_fraction: Array
    summed: Array
    components: Array
    total_weight: Array
    wrapped: Any = np.int32(0)
    counts: Any = None
    block_status: Any = None
    failed_uploads: Any = None


@runtime_checkable
class Aggregator(Protocol):
    """Make one update of a round's updates: a pytree with a state.

    `aggregate` may take two more: `weights`, one integer a slot, and `assignment_key`,
    from which the round's graph is drawn. `federated.train` passes them only where it
    has them.

    One that JAX can trace runs on accelerators inside programs of many rounds; any
    other (work on the host, real messages, no pytree) is called once a round. What is
    traced receives no weights beyond its budget: a `checked_weights` method is asked
    before.

    One whose outcome has `failed_uploads` leaves updates that are not finite out of its
    sums, as an `AggregateOut` shows; under any other a training ends at the first such
    update.
    """

    def init(self) -> AggregatorState:
        """Return the state before the first round."""
        ...

    def aggregate(
        self,
        key: Key[Array, ""],
        state: AggregatorState,
        updates: Float32[Array, "participants dim"],
        members: Integer[Array, " participants"],
        survivors: Bool[Array, " participants"] | Bool[Array, "5 participants"],
    ) -> tuple[AggregateOut, AggregatorState]:
        """Aggregate one round."""
        ...


def survivors_by_step(
    steps: StepDropout | None,
    key: Key[Array, ""],
    survivors: Any,
    count: int,
) -> Bool[Array, "5 participants"]:
    """Return V0 to V4 by slot: as passed, or drawn by an average's own steps."""
    require(survivors.dtype == np.bool_, "survivors", "must be bool", survivors.dtype)
    require(
        survivors.shape in ((count,), (5, count)),
        "survivors",
        f"must have one row, or V0 to V4, of {count} slots",
        survivors.shape,
    )
    cohort = on_device(survivors)
    if cohort.ndim == 2:
        return cohort
    if steps is not None:
        return _sample(steps, fold(key, int(Stream.STEPS)), cohort)
    return jnp.broadcast_to(cohort, (5, count))


def key_words(key_material: object) -> Array:
    """Return uint32[8] of key material from an integer, bytes or such words."""
    if isinstance(key_material, int | np.integer | bytes):
        return material_of(key_material)
    words = on_device(key_material)
    require(
        words.dtype == jnp.uint32 and words.shape == (8,),
        "key_material",
        "must be uint32[8], an integer or bytes",
        words.shape,
    )
    return words


@jax.jit
def _sample(steps: StepDropout, key: Array, cohort: Array) -> Array:
    return steps.sample(key, cohort)


@jax.jit
def _advance(
    clip_rule: ClipRule,
    width: Array,
    update: Array,
    is_learnt: Array,
) -> Array:
    return clip_rule.advance(width, update, is_learnt)
