"""HeteroSAg as the aggregator of a training: the state-carrying form of `aggregate`.

The arithmetic that rounds is fenced off from the rest, as in `secagg.ring_average`, so
that a trained model depends neither on the fidelity nor on which steps are one program,
to the last bit.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Integer, Key

from mrsa_jax._core.arrays import are_finite, check_thresholds, on_device
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_jax.availability import StepDropout
from mrsa_jax.hetero._coding import (
    ValueRange,
    check_parts,
    range_bounds,
    range_quantizer,
)
from mrsa_jax.hetero._layout import SegmentLayout, SegmentRows
from mrsa_jax.hetero._round import (
    Cast,
    Counted,
    SummedRound,
    cast_of,
    code_span,
    judge,
    padded_span,
    sum_span,
    update_span,
)
from mrsa_jax.hetero._row_kernels import (
    Span,
    block_noise,
    largest_change,
    mapped,
    spans_of,
)
from mrsa_jax.quantize import ClipRule, RingNoise, shortened
from mrsa_jax.secagg import GraphRule, Seeds, derive_seeds
from mrsa_jax.secagg.averages import (
    AggregateOut,
    AggregatorState,
    key_words,
    survivors_by_step,
)
from mrsa_jax.secagg.codes import uploaded
from mrsa_jax.secagg.seeds import graph_edges
from mrsa_watch._base.errors import check_number, require

_OK = np.int32(Status.OK)


@pytree
class SegmentAverage:
    """Mean of unequally quantized updates through a layout's sums.

    `segment_average` builds it.

    Attributes:
        quantizer: Holds the clip range; the levels are the layout's.
        key_material: uint32[8], from which every seed is derived.
        layout: Who sums which segment with whom (static).
        fidelity: "array" or "sets" (static).
        by_client: Whether the layout's slots are clients, not places of the cohort
            (static).
        combine: Robust rule over the blocks' averages, or None.
        byzantine: Who attacks and how, or None.
        steps: Draws who survives the steps of a round whose caller does not say, or
            None.
        threshold: int32 or int32[n], t_i; None for majorities, or those of `rule`.
        clip_rule: Moves the clip range, or None.
        noise: A `BlockNoise`, what clients add on the lattices of the blocks; or None.
        clip_norm: float32, norm to which updates are shortened; or None.
        rule: A `secagg.GraphRule`, which draws each round's graph; None for the
            complete graph.
    """

    cites = "heterosag"

    quantizer: Any
    key_material: Array
    layout: SegmentLayout = static()
    fidelity: str = static()
    by_client: bool = static(default=False)
    combine: Any = None
    byzantine: Any = None
    steps: Any = None
    threshold: Any = None
    clip_rule: Any = None
    noise: Any = None
    clip_norm: Any = None
    rule: Any = None

    @property
    def num_participants(self) -> int:
        """Return n, the slots of a round."""
        return self.layout.num_participants

    @property
    def sensitivity(self) -> float:
        """Bound how far one client's update moves all sums together, in its units.

        In the Euclidean norm, against zeros in its place: C and the steps of the
        coarsest client, as the rounding is not drawn again. Infinite without
        `clip_norm`.
        """
        if self.clip_norm is None:
            return math.inf
        return largest_change(self.layout, self.quantizer, float(self.clip_norm))

    def init(self) -> AggregatorState:
        """Return the state before the first round."""
        return AggregatorState.first(self.clip_rule, self.quantizer)

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
    ) -> tuple[AggregateOut, AggregatorState]:
        """Average one round's updates.

        Each step is one program over as many segments as go at once. Under `jit`,
        `vmap` or `scan` the bits are the same, and what is wrong with traced values
        raises nothing. Memory in addition to the updates: the codes of those segments
        ("array" under a trace: of all).

        Args:
            key: Randomness of the rounding and of the attackers.
            state: State before the round.
            updates: One update for each slot; those of clients outside V3 are not read.
                One that is not finite is not sent: its client is lost before V3.
            members: Global client ids by slot.
            survivors: V0 to V4 by slot; or one row, who was asked, whereupon `steps`
                draws who is left (nobody is lost without it).
            weights: Must be None: HeteroSAg's mean has no weights.
            assignment_key: From which the graph of `rule` is drawn; derived from `key`
                if None.

        Returns:
            The round's outcome and the state after it. Who would be alone in one of its
            sums is not summed (`secagg.admitted`). Zeros unless `Status.OK`:
            `TOO_FEW_SURVIVORS` where nobody is left, `UNRELIABLE` where a needed secret
            cannot be rebuilt.

        Raises:
            ConfigurationError: If weights are given or shapes do not fit.
        """
        rule = "must not be set: the mean of segments has none"
        require(weights is None, "weights", rule)
        values = on_device(updates)
        ids = on_device(members).astype(jnp.int32)
        shape = (self.num_participants, self.layout.dim)
        rule = f"must have the shape {shape}"
        require(values.shape == shape, "updates", rule, values.shape)
        alive = survivors_by_step(self.steps, key, survivors, self.num_participants)
        alive, failed = _uploaded(alive, values)
        # The order is part of the result: seat clients, shorten updates, quantize, add
        # noise, sum, and only then decode.
        slot_of = None
        if self.by_client:
            self._check_clients(ids, alive)
            slot_of, ids, alive, values = _seated(ids, alive, values)
        if self.clip_norm is not None:
            values = _shortened(values, self.clip_norm)
        bounds = range_bounds(state.present(self.clip_rule, self.quantizer))
        cast = cast_of(self.layout, key, ids, alive[3], bounds, self.byzantine)
        adjacency, limits = None, self.threshold
        if self.rule is not None:
            if assignment_key is None:
                assignment_key = fold(key, int(Stream.ASSIGNMENT))
            adjacency, limits = self.rule.seated(assignment_key, alive[0], ids)
        # Who is summed depends on the survivors alone, so it is known before any code
        # is; noise needs it to count the sums that wrap.
        round_ = judge(self.layout.memberships, alive, limits, adjacency)
        if self.noise is not None:
            cast = dataclasses.replace(cast, noise=self.noise, summed=round_.summed)
        update, learned, counted = _by_span(
            self, state.round_index, ids, cast, round_, values, adjacency
        )
        clipped, summed, components, total = _by_member(
            round_, counted.outside, slot_of
        )
        out = AggregateOut(
            update,
            round_.status,
            learned,
            clipped_share(clipped, cast.sent, jnp.float32(self.layout.dim)),
            summed,
            components,
            total,
            jnp.sum(counted.wrapped, dtype=jnp.int32),
            round_.counts,
            round_.block_status,
            failed,
        )
        return out, state.after(self.clip_rule, update, round_.status == _OK)

    def _check_clients(self, ids: Array, alive: Array) -> None:
        if is_traced(ids, alive):
            return
        count = self.num_participants
        asked = np.asarray(ids)[np.asarray(alive[0])].tolist()
        fits = len(set(asked) & set(range(count))) == len(asked)
        rule = f"must be clients of the layout, 0 to {count - 1}, each once"
        require(fits, "members", rule, asked)


def _by_span(
    average: SegmentAverage,
    index: Any,
    ids: Array,
    cast: Cast,
    round_: SummedRound,
    values: Array,
    adjacency: Array | None,
) -> tuple[Array, Array, Counted]:
    """Return the update, the ring sums, and the counts by segment."""
    spans = spans_of(average.layout)

    def decoded(rows: SegmentRows, totals: Any, counted: Counted) -> Any:
        update = update_span(totals, rows, cast, round_, average.combine)
        return update, totals, counted

    def plain(rows: SegmentRows, start: Any, width: int) -> Any:
        return decoded(rows, *sum_span(values, start, rows, cast, round_, width=width))

    def padded(seeds: Seeds, span: Span) -> Any:
        codes, counted = code_span(
            values, span.start, span.rows, cast, width=span.width
        )
        totals = padded_span(seeds, codes, average.layout, span, index, round_)
        return decoded(span.rows, totals, counted)

    if average.fidelity == "array":
        edges = None if adjacency is None else graph_edges(adjacency)
        seeds = derive_seeds(average.key_material, ids, index, edges)
        parts = [padded(seeds, span) for span in spans]
    # Under a trace, spans of one shape become one loop; outside, they are separate
    # calls of programs that are compiled once.
    elif is_traced(average, index, ids, cast, round_) and len(spans) > 1:
        parts = mapped(plain, spans)
    else:
        parts = [plain(*span) for span in spans]
    if len(spans) == 1:
        return parts[0]
    return _joined(parts, max(span.width for span in spans))


@functools.partial(jax.jit, static_argnames=("widest",))
def _joined(parts: list[Any], widest: int) -> tuple[Array, Array, Counted]:
    """Join the results of spans, or of loops over spans of one shape."""

    def joined(*leaves: Array, axes: int) -> Array:
        # a loop over spans has an axis before that of the segments
        return jnp.concatenate(
            [leaf.reshape(-1, *leaf.shape[leaf.ndim - axes :]) for leaf in leaves]
        )

    updates, totals, counted = zip(*parts, strict=True)
    # Spans differ in width by one coordinate: pad the ring sums to the widest.
    tables = [
        jnp.pad(table, [(0, 0)] * (table.ndim - 1) + [(0, widest - table.shape[-1])])
        for table in totals
    ]
    outside, not_finite, wrapped = zip(*counted, strict=True)
    counts = Counted(
        joined(*outside, axes=1),
        joined(*not_finite, axes=1),
        joined(*wrapped, axes=0),
    )
    return joined(*updates, axes=0), joined(*tables, axes=2), counts


@jax.jit
def _uploaded(alive: Array, values: Array) -> tuple[Array, Array]:
    return uploaded(alive, are_finite(values))


@jax.jit
def _shortened(values: Array, clip_norm: Array) -> Array:
    return jax.vmap(shortened, (0, None))(values, clip_norm)


@jax.jit
def _seated(ids: Array, alive: Array, values: Array) -> tuple[Array, ...]:
    """Seat each client of the cohort in the slot of its number (-1: nowhere)."""
    places = jnp.arange(ids.shape[0], dtype=jnp.int32)
    # Clients that were not asked are scattered beyond the last slot and dropped.
    where = jnp.where(alive[0], ids, jnp.int32(ids.shape[0]))
    slot_of = jnp.full_like(places, -1).at[where].set(places, mode="drop")
    # An empty slot reads place 0, and `is_here` masks what it reads.
    place = jnp.maximum(slot_of, 0)
    is_here = alive[:, place] & (slot_of >= 0)[None]
    return slot_of, places, is_here, values[place]


@jax.jit
def _by_member(
    round_: SummedRound, outside: Array, slot_of: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Return clipped counts, summed clients, the label of their sum and the count."""
    summed = round_.summed
    if slot_of is not None:
        # `slot_of` holds the place of each seated client; scattering by it undoes
        # `_seated`.
        places = jnp.where(slot_of >= 0, slot_of, jnp.int32(slot_of.shape[0]))
        summed = jnp.zeros_like(summed).at[places].set(summed, mode="drop")
    # Every segment's sum is over the same clients, and named by the first of them; a
    # sparse graph may reveal sums of parts of a segment too (`PlanOutcome.learned`).
    smallest = jnp.argmax(summed).astype(jnp.int32)
    components = jnp.where(summed, smallest, jnp.int32(-1))
    total = jnp.sum(summed, dtype=jnp.uint32)
    return jnp.sum(outside, axis=0, dtype=jnp.int32), summed, components, total


@jax.jit
def clipped_share(clipped: Array, sent: Array, dim: Array) -> Array:
    """Return the share of the senders' coordinates that were clipped."""
    # Without the barrier XLA may turn the division by a constant into a product, which
    # rounds otherwise.
    clipped, dim = lax.optimization_barrier((clipped, dim))
    fractions = jnp.where(sent, clipped.astype(jnp.float32) / dim, jnp.float32(0))
    count = jnp.sum(sent, dtype=jnp.float32)
    return jnp.sum(fractions) / jnp.maximum(count, jnp.float32(1))


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
    noise: RingNoise | None = None,
    clip_norm: float | int | np.floating | None = None,
    rule: GraphRule | None = None,
) -> SegmentAverage:
    """Build the aggregator that averages updates quantized by HeteroSAg.

    Use it where clients' bandwidths differ; `secagg.ring_average` quantizes all alike.
    Shares travel along the complete graph or that of `rule`, pads along its edges inside
    blocks.

    Args:
        layout: Who sums which segment with whom (`segment_layout`), over the slots of a
            round.
        value_range: (r1, r2), the clip range.
        key_material: Seed (integer or bytes) or uint32[8] of key material;
            reproducible, hence no secret.
        fidelity: "array" computes the sums from padded inputs, "sets" without pads; the
            results are bit-equal.
        combine: Robust rule over the averages of a segment's blocks, weighted by their
            clients; the mean over all clients if None.
        byzantine: Attackers, e.g. `sign_flip(is_byzantine, 1.0)`, by global client id.
        steps: Who survives the protocol's steps, where the caller does not say, e.g.
            `availability.independent_steps(0.01)`.
        threshold: t, one for all or [n] by slot; None for more than half of those
            asked.
        clip_rule: How the clip range moves, e.g. `quantize.following_range(4.0)`.
        by_client: Whether the layout's slots are the clients 0 to n - 1 themselves, so
            that who is asked does not change who is in which group; else they are the
            places of a cohort.
        noise: What each client adds to its codes, in units of updates and drawn on the
            lattice of each block, e.g. `dp.skellam(1e-4)`; the layout's rings must have
            room (`segment_layout(..., modulus_bits=20)`). The server sees each block's
            sum: what hides a client is the noise of its block, not that of the whole
            mean. Not with `clip_rule`.
        clip_norm: C: shortens each update to this norm before it is quantized;
            attackers change theirs afterwards. `SegmentAverage.sensitivity` is what it
            then is at most.
        rule: Draws the graph of each round, and has its thresholds, e.g.
            `secagg.graph_rule(graphs.harary(n, 6), N)`; the complete graph if None.
            Where the graph of a block is disconnected, the server also learns sums over
            its components.

    Returns:
        A frozen pytree with `init` and `aggregate`, a `secagg.Aggregator`.

    Raises:
        ConfigurationError: If an argument is out of range or unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> average = mj.hetero.segment_average(
        ...     mj.hetero.segment_layout("sc", [2, 2], [2, 3], dim=2), (-1.0, 1.0)
        ... )
        >>> updates = jnp.asarray([[1.0, -1.0]] * 3 + [[-1.0, 1.0]])
        >>> key, members, asked = jax.random.key(0), jnp.arange(4), jnp.ones(4, bool)
        >>> out, _ = average.aggregate(key, average.init(), updates, members, asked)
        >>> out.update.tolist(), int(out.total_weight)
        ([0.5, -0.5], 4)

    Source: HeteroSAg, Sections II-C and III; V-A for `combine`.
    """
    check_parts(layout, combine)
    is_known = fidelity in ("array", "sets")
    require(is_known, "fidelity", 'must be "array" or "sets"', fidelity)
    quantizer = range_quantizer(value_range)
    if rule is not None:
        _check_rule(rule, layout, threshold)
    limits, norm, drawn = None, None, None
    if threshold is not None:
        limits = on_device(
            check_thresholds(threshold, "threshold", layout.num_participants)
        )
    if clip_norm is not None:
        words = "must lie in [2**-60, 2**60]"
        norm = jnp.float32(
            check_number(clip_norm, "clip_norm", words, 2.0**-60, 2.0**60)
        )
        ends = float(quantizer.lower), float(quantizer.upper)
        words = "must hold 0 with `clip_norm`"
        require(ends[0] <= 0 <= ends[1], "value_range", words, *ends)
    if noise is not None:
        words = (
            "must not be set with `noise`: a range that follows updates bounds nobody's"
        )
        require(clip_rule is None, "clip_rule", words)
        drawn = block_noise(noise, layout, quantizer)
    return SegmentAverage(
        quantizer,
        key_words(key_material),
        layout,
        fidelity,
        bool(by_client),
        combine,
        byzantine,
        steps,
        limits,
        clip_rule,
        drawn,
        norm,
        rule,
    )


def _check_rule(rule: GraphRule, layout: SegmentLayout, threshold: Any) -> None:
    """Refuse a rule of other slots, or of blocks, which segments would part."""
    slots, count = rule.num_participants, layout.num_participants
    require(slots == count, "rule", "must be over the layout's slots", slots, count)
    words = 'must have the policy "ignore" and not keep blocks: segments part them'
    is_free = rule.policy == "ignore" and not rule.keeps_blocks
    require(is_free, "rule", words, rule.policy)
    words = "must not be set with `rule`, which has thresholds"
    require(threshold is None, "threshold", words, threshold)
