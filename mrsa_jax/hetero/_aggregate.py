"""One round of HeteroSAg as a function.

Unequal quantizers, secure sums, dropouts, decoding.
HeteroSAg, Sections II-C and III. As many segments as go at once are read, coded, summed
and decoded together, so that neither all updates nor all codes need be in memory.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Key

from mrsa_jax import graphs, protocol
from mrsa_jax._core.arrays import check_thresholds, on_device
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, as_key, round_key
from mrsa_jax._core.traced import needs_values
from mrsa_jax.hetero._average import clipped_share
from mrsa_jax.hetero._coding import (
    ValueRange,
    check_parts,
    check_updates,
    checked_updates,
    range_bounds,
    range_quantizer,
)
from mrsa_jax.hetero._layout import SegmentLayout, graph_and_limits
from mrsa_jax.hetero._round import (
    Cast,
    Fidelity,
    SummedRound,
    cast_of,
    code_span,
    judge,
    padded_span,
    sum_span,
    table_of,
    update_span,
)
from mrsa_jax.hetero._row_kernels import Span, plan_of, spans_of
from mrsa_jax.hetero.robust import RobustRule
from mrsa_jax.secagg import AggregateResult, check_round, derive_seeds, key_material
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.html import finding, telling

_Updates = ArrayLike | Sequence[Any] | Callable[[int, int], ArrayLike]


@finding
class SegmentResult:
    """Outcome of one round of HeteroSAg.

    Attributes:
        update: float32[d], the mean update of the clients who were summed, or what the
            robust rule made of the blocks' averages; zeros unless `status` is OK.
        status: What became of the round.
        block_status: int32[blocks], a `Status` for each block of the layout;
            `TOO_FEW_SURVIVORS` for one of which nobody is summed.
        totals: uint32[stop - start] for each block, its ring sum; zeros unless its
            status is OK.
        counts: int32[blocks], clients in each of those sums.
        summed: bool[n], who is in the mean; nobody unless OK.
        clipped_fraction: Share of the coordinates that were clipped, of the clients who
            sent.
        result: What `protocol.run` reports on a "real" round (its privacy, transcript
            and costs); None for the others.
    """

    _repr_html_ = telling

    update: np.ndarray
    status: Status
    block_status: np.ndarray
    totals: tuple[np.ndarray, ...]
    counts: np.ndarray
    summed: np.ndarray
    clipped_fraction: float
    result: AggregateResult | None


@needs_values
def aggregate(
    seed: int | np.integer | Key[Array, ""],
    updates: _Updates,
    layout: SegmentLayout,
    value_range: ValueRange,
    *,
    survivors: ArrayLike | Sequence[Any] | None = None,
    thresholds: ArrayLike | Sequence[int] | None = None,
    adjacency: ArrayLike | Sequence[Any] | None = None,
    fidelity: Fidelity = "sets",
    combine: Callable[..., Any] | None = None,
    byzantine: Any = None,
    round_index: int | np.integer = 0,
    progress: Callable[[int, int], None] | None = None,
) -> SegmentResult:
    """Run one round of HeteroSAg.

    Who would be alone in one of its blocks is not summed (`secagg.admitted`), so that
    every segment is the mean of the same clients and no sum is an input.

    Args:
        seed: Integer or key; rounding, attacks and, except for "real", all secrets come
            from it.
        updates: float32[n, d], a row for each slot; or a function of (start, stop) that
            returns float32[n, stop - start], called for one segment after the other
            (for all that go at once, and then they are worked off). Rows of clients
            outside V3 are not read.
        layout: Who sums which segment with whom (`segment_layout`).
        value_range: (r1, r2), the clip range.
        survivors: bool[5, n], V0 to V4; or bool[n], who takes part in a round in which
            nobody is lost; everybody if None.
        thresholds: t_i, one for all or [n]; None for more than half of each
            neighbourhood, floor((|Adj(i)| + 1) / 2) + 1 and at least 2.
        adjacency: bool[n, n], who shares secrets, and pads within blocks; the complete
            graph over V0 if None.
        fidelity: "sets": the plain modular sums; "array": sums of padded inputs, with
            the pads of every pair; "real": messages and cryptography (`protocol.run`,
            whose secrets are fresh). The updates are bit-equal.
        combine: Robust rule over the averages of a segment's blocks; the mean if None.
        byzantine: Attackers, by slot.
        round_index: Round, part of every nonce and of the rounding's randomness.
        progress: Called after each segment with (segments done, segments).

    Returns:
        The outcome; a round that fails shows it in `status`.

    Raises:
        ConfigurationError: If an argument breaks a rule, or an update of V3 is not
            finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> layout = mj.hetero.segment_layout("mc", [2, 2, 2], [2, 3, 5], dim=6)
        >>> updates = np.tile(np.float32([1, -1, 1, -1, 1, -1]), (6, 1))
        >>> here = [True, True, True, False, True, True]
        >>> result = mj.hetero.aggregate(
        ...     0, updates, layout, (-1.0, 1.0), survivors=here
        ... )
        >>> result.update.tolist(), result.summed.astype(int).tolist()
        ([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], [1, 1, 0, 0, 1, 1])

    Cost: linear in n d apart from the pads of "array": a keystream of each pair of a
    block over the segment. Memory: updates and codes of the segments that go at once, a
    segment or 4 MiB of each on a CPU, at most an eighth of an accelerator's memory
    ("real": codes of all).

    Source: HeteroSAg, Sections II-C, III; differs from the paper in dividing by the
    clients that were summed, in nonces by block and round, and in what it does with a
    client left alone.
    """
    is_known = fidelity in ("sets", "array", "real")
    require(is_known, "fidelity", 'must be "sets", "array" or "real"', fidelity)
    check_parts(layout, combine)
    alive, graph, limits = _checked(layout, survivors, thresholds, adjacency)
    index = check_integer(round_index, "round_index", 0, 2**32 - 1)
    bounds = range_bounds(range_quantizer(value_range))
    count = layout.num_participants
    if byzantine is not None:
        marks = np.asarray(byzantine.is_byzantine)
        proper = marks.dtype == np.bool_ and marks.shape == (count,)
        rule = f"must mark {count} slots"
        require(proper, "byzantine", rule, marks.dtype, marks.shape)
    slots = jnp.arange(count, dtype=jnp.int32)
    # Rounding and attacks draw from the round's key, pads from separate seeds.
    key = round_key(as_key(seed), jnp.uint32(index), Stream.QUANTIZATION)
    cast = cast_of(layout, key, slots, on_device(alive[3]), bounds, byzantine)
    if not callable(updates):
        updates = checked_updates(updates, (count, layout.dim))
        if isinstance(updates, jax.Array):
            updates = updates.astype(jnp.float32)
    job = _Job(layout, updates, combine, cast, progress)
    if fidelity == "real":
        return _real(job, graph, alive, limits, index)
    round_ = SummedRound(
        *map(np.asarray, judge(layout.memberships, alive, limits, graph))
    )
    seeds = None
    # Without a summed client there is nothing to pad.
    if fidelity == "array" and round_.counts.any():
        # Little-endian words, so that a seed means the same pads on every machine.
        words = np.asarray(jax.random.key_data(as_key(seed))).astype("<u4")
        pairs = None if graph is None else graphs.edges(graph)
        material = key_material(words.tobytes())
        seeds = derive_seeds(material, slots, np.uint32(index), pairs)
    totals, parts = [], []
    for span in job.spans:
        if seeds is None:
            table = job.run(sum_span, span, round_)
        else:
            codes = job.run(code_span, span)
            table = padded_span(seeds, codes, layout, span, np.uint32(index), round_)
        # Rows have as many places as the row with most blocks; drop the padding.
        is_block = span.rows.number < len(layout.blocks)
        totals += list(np.asarray(table)[is_block])
        parts += job.update(table, span, round_)
        job.report(span)
    return job.result(round_, tuple(totals), parts)


@dataclasses.dataclass
class _Job:
    """A round whose spans of segments are worked off one after another."""

    layout: SegmentLayout
    updates: Any  # an array of the host or a device, or a function of (start, stop)
    combine: RobustRule | None
    cast: Cast
    progress: Callable[[int, int], None] | None
    clipped: Any = 0

    @functools.cached_property
    def spans(self) -> list[Span]:
        return spans_of(self.layout)

    def run(self, program: Any, span: Span, *more: Any) -> Any:
        """Run a program that codes a span, and count what it clips."""
        values = self.updates
        start = span.start
        if callable(values):
            values = self._read(span)
            start = 0
        elif isinstance(values, np.ndarray):
            stop = start + span.width * len(span.rows.segment)
            values = self._copied(values[:, start:stop])
            start = 0
        result, counted = program(
            values, start, span.rows, self.cast, *more, width=span.width
        )
        bad = np.asarray(counted.not_finite)
        if bad.any():
            # The first segment of the span with a bad value, for the message.
            number = int(bad.any(axis=1).argmax())
            slots = np.flatnonzero(bad[number]).tolist()
            first, stop = span.bounds[number]
            where = f"slots {slots[:8]}, coordinates {first} to {stop}"
            require(False, "updates", "must be finite", where)
        outside = np.asarray(counted.outside)
        self.clipped = self.clipped + outside.sum(axis=0, dtype=np.int32)
        return result

    @functools.cached_property
    def _room(self) -> np.ndarray:
        """Memory for the updates of any span, from a boundary of 64 bytes on."""
        longest = max(span.width * len(span.rows.segment) for span in self.spans)
        room = np.empty(self.layout.num_participants * longest + 16, np.float32)
        return room[-room.ctypes.data % 64 // 4 :]

    def _copied(self, values: np.ndarray) -> Array:
        """Return a span's updates on the device.

        A CPU shares the memory of `_room`, which the next span takes: `run` has waited
        for the program that reads it. New memory costs five times the copy.
        """
        copy = self._room[: values.size].reshape(values.shape)
        np.copyto(copy, values, casting="unsafe")
        return jax.device_put(copy)

    def _read(self, span: Span) -> Array:
        """Ask for the updates of each segment of a span."""
        parts = []
        for start, stop in span.bounds:
            shape = (self.layout.num_participants, stop - start)
            part = self.updates(start, stop)
            parts.append(check_updates(part, shape, "must return the shape"))
        return jnp.concatenate(parts, axis=1)

    def report(self, span: Span) -> None:
        """Report each segment of a span that is done."""
        if self.progress is not None:
            for number in span.rows.segment.tolist():
                self.progress(number + 1, self.layout.num_segments)

    def update(self, table: Any, span: Span, round_: SummedRound) -> list[np.ndarray]:
        """Return a span of the update, if the round has one."""
        if round_.status != Status.OK:
            return []
        part = update_span(table, span.rows, self.cast, round_, self.combine)
        return [np.asarray(part)]

    def result(
        self,
        round_: SummedRound,
        totals: tuple[np.ndarray, ...],
        parts: list[np.ndarray],
        result: AggregateResult | None = None,
    ) -> SegmentResult:
        dim = self.layout.dim
        clipped = on_device(self.clipped)
        return SegmentResult(
            update=np.concatenate(parts) if parts else np.zeros(dim, np.float32),
            status=Status(int(round_.status)),
            block_status=round_.block_status,
            totals=totals,
            counts=round_.counts,
            summed=round_.summed,
            clipped_fraction=float(
                clipped_share(clipped, self.cast.sent, jnp.float32(dim))
            ),
            result=result,
        )


def _real(
    job: _Job,
    graph: np.ndarray | None,
    alive: np.ndarray,
    limits: np.ndarray | None,
    index: int,
) -> SegmentResult:
    """Run the round with real messages: all codes at once."""
    layout = job.layout
    codes = []
    for span in job.spans:
        codes.append(np.asarray(job.run(code_span, span)))
        job.report(span)
    # The protocol takes no defaults: fill in the complete graph and the majorities.
    graph, limits = graph_and_limits(alive[0], graph, limits)
    inputs = np.concatenate(codes, axis=1)
    result = protocol.run(
        inputs, graph, alive, limits, plan=layout.plan, round_index=index
    )
    round_ = SummedRound.of(layout, alive, result)
    parts = []
    for span in job.spans:
        # The protocol reports totals by block of the whole layout; a span takes its
        # part.
        plan, first = plan_of(layout, span)
        totals = result.totals[first : first + len(plan)]
        table = table_of(totals, span.rows, first, round_.counts)
        parts += job.update(table, span, round_)
    return job.result(round_, tuple(result.totals), parts, result)


def _checked(
    layout: SegmentLayout, survivors: Any, thresholds: Any, adjacency: Any
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return bool[5, n], the graph or None, and int32[n] or None."""
    count = layout.num_participants
    alive = np.ones(count, bool) if survivors is None else np.asarray(survivors)
    if alive.shape == (count,):
        alive = np.tile(alive, (5, 1))
    limits = None
    if thresholds is not None:
        limits = check_thresholds(thresholds, "thresholds", count)
        limits = np.broadcast_to(limits, (count,))
    complete = ~np.eye(count, dtype=bool)
    graph = complete if adjacency is None else np.asarray(adjacency)
    rule = f"must be {count} x {count}, the slots of the layout"
    require(graph.shape == (count, count), "adjacency", rule, graph.shape)
    graph, alive, _ = check_round(graph, alive, 1)
    return alive, None if adjacency is None else graph, limits
