"""HeteroSAg as the aggregator of a training: the state-carrying form of `aggregate`.

Encode, judge, sum and decode are executables of their own, as in `secagg.ring_average`, so that a
trained model does not depend on the fidelity to the last bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Integer, Key

from mrsa_jax._errors import require
from mrsa_jax._status import Status
from mrsa_jax._streams import Stream, fold
from mrsa_jax._tracing import needs_values
from mrsa_jax.availability import StepDropout
from mrsa_jax.hetero._coding import ValueRange, check_range, range_bounds
from mrsa_jax.hetero._layout import SegmentLayout
from mrsa_jax.hetero._round import SummedRound, code_row, judge, row_totals, row_update
from mrsa_jax.quantize import ClipRule, StochasticQuantizer, stochastic
from mrsa_jax.secagg import AggregatorState, Seeds, derive_seeds
from mrsa_jax.secagg._aggregator import _key_words

__all__ = ["SegmentAverage", "SegmentOut", "segment_average"]


class SegmentOut(NamedTuple):
    """What a round gives.

    Attributes:
        update: float32[d], the mean of the quantized updates that were summed, or what the robust
            rule made of the blocks' averages; zeros unless OK.
        status: int32, a `Status`.
        learned: One uint32[B, w] for each segment: the ring sums that the server learns, a row
            for each of its blocks (zero rows beyond the last, and where none was learnt).
        clipped_fraction: float32, share of the coordinates that were clipped, of the clients who
            sent an input.
        summed: bool[n], the slots that are in every segment's sums; none unless OK.
        components: int32[n], the smallest slot that is summed for those who are, else -1.
        total_weight: uint32, the number of clients summed; 0 unless OK.
        counts: int32[blocks], clients in each block's sum; 0 where it was not learnt.
        block_status: int32[blocks].
    """

    update: Array
    status: Array
    learned: tuple[Array, ...]
    clipped_fraction: Array
    summed: Array
    components: Array
    total_weight: Array
    counts: Array
    block_status: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SegmentAverage:
    """Mean of unequally quantized updates through a layout's sums (`segment_average` builds it).

    Attributes:
        quantizer: Holds the clip range; the levels are the layout's.
        key_material: uint32[8], from which every seed is derived.
        layout: Who sums which segment with whom (static).
        fidelity: "array" or "sets" (static).
        by_client: Whether the layout's slots are clients, not places of the cohort (static).
        combine: Robust rule over the blocks' averages, or None.
        byzantine: Who attacks and how, or None.
        steps: Draws who survives the steps of a round whose caller does not say, or None.
        threshold: int32 or int32[n], t_i; None for majorities.
        clip_rule: Moves the clip range, or None.
    """

    quantizer: Any
    key_material: Array
    layout: SegmentLayout = dataclasses.field(metadata={"static": True})
    fidelity: str = dataclasses.field(metadata={"static": True})
    by_client: bool = dataclasses.field(default=False, metadata={"static": True})
    combine: Any = None
    byzantine: Any = None
    steps: Any = None
    threshold: Any = None
    clip_rule: Any = None

    @property
    def num_participants(self) -> int:
        """Return n, the slots of a round."""
        return self.layout.num_participants

    def init(self) -> AggregatorState:
        """Return the state before the first round."""
        width = None if self.clip_rule is None else self.clip_rule.init(self.quantizer)
        return AggregatorState(jnp.int32(0), width)

    @needs_values
    def aggregate(
        self,
        key: Key[Array, ""],
        state: AggregatorState,
        updates: Float32[Array, "participants dim"],
        members: Integer[Array, " participants"],
        survivors: Bool[Array, " participants"] | Bool[Array, "5 participants"],
        weights: ArrayLike | Sequence[Any] | None = None,
        *,
        assignment_key: Key[Array, ""] | None = None,
    ) -> tuple[SegmentOut, AggregatorState]:
        """Average one round's updates; call it outside `jit`.

        Args:
            key: Randomness of the rounding and of the attackers.
            state: State before the round.
            updates: One update for each slot; those of clients outside V3 are not read.
            members: Global client ids by slot.
            survivors: V0 to V4 by slot; or one row, who was asked, whereupon `steps` draws who is
                left (nobody is lost without it).
            weights: Must be None: HeteroSAg's mean has no weights.
            assignment_key: Not read: the share graph is complete.

        Returns:
            The round's outcome and the state after it. Who would be alone in one of its sums is
            not summed (`secagg.admitted`). Zeros unless `Status.OK`: `TOO_FEW_SURVIVORS` where
            nobody is left, `UNRELIABLE` where a needed secret cannot be rebuilt.

        Raises:
            ConfigurationError: If weights are given or shapes do not fit.
        """
        require(weights is None, "weights", "must be left out: the mean of segments has none")
        values, ids = jnp.asarray(updates), np.asarray(members).astype(np.int32)
        shape = (self.num_participants, self.layout.dim)
        require(values.shape == shape, "updates", f"must have the shape {shape}", values.shape)
        alive = self._alive(key, survivors)
        slot_of = None
        if self.by_client:
            slot_of = self._places(ids, alive[0])
            ids, alive = np.arange(len(ids), dtype=np.int32), _moved(alive, slot_of)
            values = _take(values, jnp.asarray(np.maximum(slot_of, 0)))
        quantizer = self.quantizer
        if self.clip_rule is not None:
            quantizer = self.clip_rule.apply(quantizer, state.half_width)
        round_ = judge(self.layout, None, alive, self._thresholds(slot_of))
        run = _Run(self, key, state.round_index, range_bounds(quantizer), ids, alive[3], round_)
        parts, learned, clipped = run.segments(values)
        update = jnp.concatenate(parts)
        width = state.half_width
        if self.clip_rule is not None:
            learnt = jnp.asarray(round_.status == Status.OK)
            width = _advance(self.clip_rule, width, update, learnt)
        out = _out(round_, update, learned, clipped, slot_of)
        return out, AggregatorState(state.round_index + jnp.int32(1), width)

    def _alive(self, key: Array, survivors: Any) -> np.ndarray:
        """Return bool[5, n]."""
        require(survivors.dtype == np.bool_, "survivors", "must be bool", survivors.dtype)
        count = self.num_participants
        rule = f"must have one row, or V0 to V4, of {count} slots"
        require(survivors.shape in ((count,), (5, count)), "survivors", rule, survivors.shape)
        if survivors.ndim == 2:
            return np.asarray(survivors)
        if self.steps is not None:
            drawn = _sample(self.steps, fold(key, int(Stream.STEPS)), jnp.asarray(survivors))
            return np.asarray(drawn)
        return np.tile(np.asarray(survivors), (5, 1))

    def _places(self, ids: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """Return int32[n], in which slot each client is; -1 for those who were not asked."""
        count, own = self.num_participants, ids[asked]
        fits = bool(((own >= 0) & (own < count)).all()) and len(set(own.tolist())) == len(own)
        rule = f"must be clients of the layout, 0 to {count - 1}, each once"
        require(fits, "members", rule, own.tolist())
        places = np.full(count, -1, np.int32)
        places[own] = np.flatnonzero(asked)
        return places

    def _thresholds(self, slot_of: np.ndarray | None) -> np.ndarray | None:
        if self.threshold is None:
            return None
        limits = np.asarray(self.threshold)
        return limits if limits.ndim == 0 else np.broadcast_to(limits, (self.num_participants,))


class _Run(NamedTuple):
    """One round, ready to go through its segments."""

    average: SegmentAverage
    key: Array
    index: Any
    bounds: Array
    ids: np.ndarray
    sent: np.ndarray
    round_: SummedRound

    def segments(self, values: Array) -> tuple[list[Array], list[Array], Array]:
        """Return each segment's update and ring sums, and the clipped share."""
        average, round_ = self.average, self.round_
        layout, members = average.layout, jnp.asarray(self.ids)
        mine = None
        if average.byzantine is not None:
            mine = jnp.asarray(average.byzantine.is_byzantine)[members] & jnp.asarray(self.sent)
        seeds = self._seeds(members)
        parts, learned, clipped = [], [], jnp.zeros(len(self.ids), jnp.int32)
        for row in layout.rows:
            own = cut(values, jnp.int32(row.start), row.stop - row.start)
            codes, outside = code_row(
                self.key, own, members, layout, row, self.bounds, average.byzantine, mine, self.sent
            )
            totals = row_totals(average.fidelity, seeds, codes, row, self.index, round_)
            part = row_update(
                self.key, totals, row, round_, self.bounds, average.combine, average.byzantine, mine
            )
            parts.append(part if round_.status == Status.OK else jnp.zeros_like(part))
            learned.append(totals)
            clipped = clipped + outside
        return parts, learned, clipped_share(clipped, jnp.asarray(self.sent), layout.dim)

    def _seeds(self, members: Array) -> Seeds | None:
        if self.average.fidelity == "sets" or not self.round_.counts.any():
            return None
        return derive_seeds(self.average.key_material, members, self.index)


def _out(
    round_: SummedRound,
    update: Array,
    learned: list[Array],
    clipped: Array,
    slot_of: np.ndarray | None,
) -> SegmentOut:
    summed = round_.summed
    if slot_of is not None:
        by_slot = np.zeros_like(summed)
        by_slot[slot_of[slot_of >= 0]] = summed[slot_of >= 0]
        summed = by_slot
    smallest = int(summed.argmax())
    return SegmentOut(
        update=update,
        status=jnp.int32(int(round_.status)),
        learned=tuple(learned),
        clipped_fraction=clipped,
        summed=jnp.asarray(summed),
        components=jnp.asarray(np.where(summed, smallest, -1).astype(np.int32)),
        total_weight=jnp.uint32(int(summed.sum())),
        counts=jnp.asarray(round_.counts),
        block_status=jnp.asarray(round_.block_status),
    )


def cut(values: Array, start: Array, width: int) -> Array:
    """Return the coordinates of one segment; one executable for each of the two widths."""
    return _cut(values, start, width)


_cut = jax.jit(
    lambda values, start, width: jax.lax.dynamic_slice_in_dim(values, start, width, axis=1),
    static_argnames=("width",),
)


@jax.jit
def _take(values: Array, rows: Array) -> Array:
    return values[rows]


def _moved(alive: np.ndarray, slot_of: np.ndarray) -> np.ndarray:
    return alive[:, np.maximum(slot_of, 0)] & (slot_of >= 0)


def clipped_share(clipped: Array, sent: Array, dim: int) -> Array:
    """Return the share of the senders' coordinates that were clipped."""
    return _share(clipped, sent, jnp.float32(dim))


@jax.jit
def _share(clipped: Array, sent: Array, dim: Array) -> Array:
    fractions = jnp.where(sent, clipped.astype(jnp.float32) / dim, jnp.float32(0))
    return jnp.sum(fractions) / jnp.maximum(jnp.sum(sent, dtype=jnp.float32), jnp.float32(1))


@jax.jit
def _sample(steps: StepDropout, key: Array, cohort: Array) -> Array:
    return steps.sample(key, cohort)


@jax.jit
def _advance(clip_rule: ClipRule, width: Array, update: Array, is_learnt: Array) -> Array:
    return clip_rule.advance(width, update, is_learnt)


@needs_values
def segment_average(
    layout: SegmentLayout,
    value_range: ValueRange,
    *,
    key_material: int | np.integer | bytes | ArrayLike = 0,
    fidelity: Literal["array", "sets"] = "array",
    combine: Callable[..., Any] | None = None,
    byzantine: Any = None,
    steps: StepDropout | None = None,
    threshold: ArrayLike | Sequence[int] | None = None,
    clip_rule: ClipRule | None = None,
    by_client: bool = False,
) -> SegmentAverage:
    """Build the aggregator that averages updates quantized by HeteroSAg.

    Use it where clients' bandwidths differ; `secagg.ring_average` quantizes all alike. The share
    graph is complete, pads are shared inside blocks.

    Args:
        layout: Who sums which segment with whom (`segment_layout`), over the slots of a round.
        value_range: (r1, r2), the clip range.
        key_material: Seed (integer or bytes) or uint32[8] of key material; reproducible, hence
            no secret.
        fidelity: "array" computes the sums from padded inputs, "sets" without pads; the results
            are bit-equal.
        combine: Robust rule over the averages of a segment's blocks, weighted by their clients;
            the mean over all clients if None.
        byzantine: Attackers, e.g. `sign_flip(is_byzantine, 1.0)`, by global client id.
        steps: Who survives the protocol's steps, where the caller does not say, e.g.
            `availability.independent_steps(0.01)`.
        threshold: t, one for all or [n] by slot; None for more than half of those asked.
        clip_rule: How the clip range moves, e.g. `quantize.following_range(4.0)`.
        by_client: Whether the layout's slots are the clients 0 to n - 1 themselves, so that who
            is asked does not change who is in which group; else they are the places of a cohort.

    Returns:
        A frozen pytree with `init` and `aggregate`, a `secagg.Aggregator`.

    Raises:
        ConfigurationError: If an argument is out of range or unknown.

    Examples:
        >>> from mrsa_jax.hetero import segment_layout
        >>> average = segment_average(segment_layout("sc", [2, 2], [2, 3], dim=2), (-1.0, 1.0))
        >>> updates = jnp.asarray([[1.0, -1.0]] * 3 + [[-1.0, 1.0]])
        >>> out, _ = average.aggregate(
        ...     jax.random.key(0), average.init(), updates, jnp.arange(4), jnp.ones(4, bool))
        >>> out.update.tolist(), int(out.total_weight)
        ([0.5, -0.5], 4)

    Source: HeteroSAg, Sections II-C and III; V-A for `combine`.
    """
    is_layout = isinstance(layout, SegmentLayout)
    require(is_layout, "layout", "must be a `SegmentLayout`, e.g. of `segment_layout`", layout)
    require(fidelity in ("array", "sets"), "fidelity", 'must be "array" or "sets"', fidelity)
    rule = "must be callable on block averages and their weights"
    require(combine is None or callable(combine), "combine", rule, combine)
    lower, upper = np.asarray(check_range(value_range)).tolist()
    quantizer: StochasticQuantizer = stochastic(2, value_range=(lower, upper))
    limits = None if threshold is None else check_thresholds(threshold, layout, "threshold")
    return SegmentAverage(
        quantizer, _key_words(key_material), layout, fidelity, bool(by_client), combine, byzantine,
        steps, None if limits is None else jnp.asarray(limits), clip_rule,
    )  # fmt: skip


def check_thresholds(thresholds: Any, layout: SegmentLayout, argument: str) -> np.ndarray:
    """Return int32[] or int32[n], at least 1, or raise."""
    limits = np.asarray(thresholds)
    require(limits.dtype.kind in "iu", argument, "must be an integer", limits.dtype)
    count = layout.num_participants
    fits = limits.shape in ((), (count,))
    require(fits, argument, f"must be one number or {count}, one a slot", limits.shape)
    low, high = int(limits.min()), int(limits.max())
    require(low >= 1 and high < 2**31, argument, "must lie in [1, 2**31)", low, high)
    return limits.astype(np.int32)
