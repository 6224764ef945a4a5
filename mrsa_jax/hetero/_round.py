"""One round of a layout: its verdict, what clients send, the sums, and the update.

Shared by `aggregate` and `segment_average`: each step of a round is one program over
all segments of a `Span`. HeteroSAg, Section II-C; CCESA, Definition 3 and
Theorem 1 for what the shares that come back give away. Symbols: V0 to V4 -> rows of
`survivors`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float32, Int32, Key, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.device import is_bound_by_memory
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax._core.traced import is_traced
from mrsa_jax.hetero._layout import SegmentLayout, SegmentRows
from mrsa_jax.hetero._row_kernels import (
    Seats,
    Span,
    add_in_turn,
    block_averages,
    by_parts,
    combine_row,
    decode_row,
    draw_keys,
    encode_row,
    is_function,
    noisy_row,
    plain_row,
    plan_of,
    seated,
    seats_of,
    totals_about,
)
from mrsa_jax.hetero.robust import RobustRule
from mrsa_jax.secagg import AggregateResult, PlanOutcome, Seeds, ring_sum
from mrsa_jax.secagg.thresholds import more_than_half

Fidelity = Literal["sets", "array", "real"]
# Second step of an attack's random path; a client's second step is a segment's number.
_ATTACK = 0x61747400
_OK = np.int32(Status.OK)


class SummedRound(NamedTuple):
    """The verdict on a round: its status, and the clients in its sums.

    Attributes:
        survivors: bool[5, n], V3 as far as it is admitted to the sums.
        status: int32, of the round: OK if all sums over admitted clients can be
            unmasked.
        block_status: int32[blocks].
        counts: int32[blocks], clients summed in each block whose status is OK.
    """

    survivors: Any
    status: Any
    block_status: Any
    counts: Any

    @property
    def summed(self) -> Any:
        """Return the clients in the round's mean; none unless the status is OK."""
        return self.survivors[3] & (self.status == _OK)

    @classmethod
    def of(
        cls,
        layout: SegmentLayout,
        survivors: np.ndarray,
        outcome: PlanOutcome | AggregateResult,
    ) -> SummedRound:
        """Read the verdict from the outcome of the layout's plan."""
        alive = survivors.copy()
        alive[3] = outcome.summed
        status = np.asarray(outcome.block_status, np.int32)
        counts = (layout.memberships & outcome.summed).sum(axis=1, dtype=np.int32)
        # A withheld sum has no clients, whatever the round has.
        counts[status != _OK] = 0
        return cls(alive, np.int32(outcome.status), status, counts)


@pytree
class Cast:
    """Values common to the segments of a round: range, keys, senders, attackers.

    Attributes:
        bounds: float32[2], r1 and r2.
        draws: Keys [segments, n, parts] of the rounding (`draw_keys`); None to decode
            only.
        sent: bool[n], V3.
        key: Of the attacks; None without attackers.
        byzantine: A `Byzantine`, or None.
        attackers: bool[n], those of them who send; None without attackers.
        widest: Coordinates of the widest segment (static).
        noise: A `BlockNoise` that clients add; None without noise.
        summed: bool[n], the clients in the sums; None without noise.
    """

    bounds: Array
    draws: Any = None
    sent: Any = None
    key: Any = None
    byzantine: Any = None
    attackers: Any = None
    widest: int = static(default=0)
    noise: Any = None
    summed: Any = None


def cast_of(
    layout: SegmentLayout,
    key: Key[Array, ""],
    ids: Int32[Array, " n"],
    sent: Bool[Array, " n"],
    bounds: Float32[Array, " 2"],
    byzantine: Any = None,
) -> Cast:
    """Draw the keys of a round's rounding, and mark its attackers."""
    # The longest segment decides how many keys each segment has: their draws are then
    # of one shape, in whichever span a segment is coded.
    widest = -(-layout.dim // layout.num_segments)
    draws = draw_keys(key, ids, layout.rows.segment, widest)
    if byzantine is None:
        return Cast(bounds, draws, sent, widest=widest)
    attackers = _attackers_of(on_device(byzantine.is_byzantine), ids, sent)
    return Cast(bounds, draws, sent, key, byzantine, attackers, widest)


@jax.jit
def _attackers_of(is_byzantine: Array, ids: Array, sent: Array) -> Array:
    return is_byzantine[ids] & sent


@jax.jit
def judge(
    inside: Bool[Array, "blocks n"],
    survivors: Bool[Array, "5 n"],
    thresholds: Any,
    adjacency: Bool[Array, "n n"] | None = None,
) -> SummedRound:
    """Decide a round, as `SegmentLayout.outcome` would, by arrays.

    Without a graph it is the complete one on V0: of the shares of a client in V0 as
    many are in a set as V0 has clients there. The messages' own rule is in
    `protocol/_server`.
    """
    # V0 to V4: asked, sent keys, sent shares, sent the padded input, answered at the
    # end.
    members, joined, shared, sent, answered = survivors

    def holders(here: Array) -> Array:
        """Count the holders in a set of each client's shares: V0, or itself alone."""
        if adjacency is not None:
            near = jnp.sum(adjacency & here[None], axis=1, dtype=jnp.int32)
            return near + here.astype(jnp.int32)
        return jnp.where(
            members, jnp.sum(members & here, dtype=jnp.int32), here.astype(jnp.int32)
        )

    if thresholds is None:
        # everybody that holds shares, less the client itself
        thresholds = more_than_half(holders(jnp.ones_like(members)) - 1)
    # A client sends only if enough clients hold its shares, unless too few had joined
    # already: then no one can ever rebuild its secrets (`heeded` of `secagg.lists`).
    sent = sent & ((holders(shared) >= thresholds) | (holders(joined) < thresholds))
    # each client who leaves a block may leave another alone
    summed = lax.while_loop(
        lambda senders: jnp.any(_lonely(inside, senders)),
        lambda senders: senders & ~_lonely(inside, senders),
        sent,
    )
    # Only clients who see that the sum is large enough give back their shares.
    answered = answered & summed & (holders(summed) >= thresholds)
    is_held = holders(answered) < thresholds  # whose pads stay on
    counts = jnp.sum(inside & summed[None], axis=1, dtype=jnp.int32)
    # A block stays padded if a self pad of a client in it, or the pair pads of one who
    # shared and was lost, cannot be rebuilt.
    lost = shared & ~summed & is_held
    if adjacency is None:
        is_padded = summed & is_held | lost
        is_shut = jnp.any(inside & is_padded[None], axis=1)
    else:
        # only neighbours in the block have pads with a lost client
        losses = (inside & lost[None]).astype(jnp.float32)
        beside = losses @ adjacency.astype(jnp.float32)
        is_padded = is_held[None] | (beside > 0)
        is_shut = jnp.any(inside & summed[None] & is_padded, axis=1)
    too_few = jnp.int32(Status.TOO_FEW_SURVIVORS)
    unreliable = jnp.int32(Status.UNRELIABLE)
    # The order matters: a block without clients has no sum to unmask, even if it is
    # shut.
    statuses = jnp.where(is_shut, unreliable, _OK)
    statuses = jnp.where(counts > 0, statuses, too_few)
    status = jnp.where(jnp.any(statuses == unreliable), unreliable, _OK)
    status = jnp.where(jnp.any(summed), status, too_few)
    counts = jnp.where(statuses == _OK, counts, jnp.int32(0))
    return SummedRound(survivors.at[3].set(summed), status, statuses, counts)


def _lonely(inside: Array, senders: Array) -> Array:
    """Return the senders who are alone in a block."""
    is_alone = jnp.sum(inside & senders[None], axis=1, dtype=jnp.int32) == 1
    return senders & jnp.any(inside & is_alone[:, None], axis=0)


class Counted(NamedTuple):
    """Counts taken while a span is coded.

    Attributes:
        outside: int32[segments, n], values that were clipped.
        not_finite: bool[segments, n].
        wrapped: int32[segments], coordinates of sums that noise takes out of the ring's
            window.
    """

    outside: Any
    not_finite: Any
    wrapped: Any


@functools.partial(jax.jit, static_argnames=("width",))
def code_span(
    values: Float32[Array, "n dim"],
    start: Any,
    rows: SegmentRows,
    cast: Cast,
    *,
    width: int,
) -> tuple[UInt32[Array, "n span"], Counted]:
    """Code a span's coordinates, from `start` on, as clients put them under their pads.

    Rows outside V3 count as zeros.
    """
    codes, counted = _coded(values, start, rows, cast, width)
    # From [segments, n, w] to one row of coordinates per client.
    return codes.swapaxes(0, 1).reshape(values.shape[0], -1), counted


def _coded(
    values: Array, start: Any, rows: SegmentRows, cast: Cast, width: int
) -> tuple[Array, Counted]:
    # Each segment is a row: its clients' coordinates, coded by its groups' levels,
    # attacked and made noisy where asked. `code_span` gives the codes, which pads or
    # messages then carry; `_fused_sums` adds them up at once. Both are this function,
    # so that their bits agree.
    #
    # As when compiled apart: what makes the updates, or takes the mean, may round as it
    # likes.
    values, bounds = lax.optimization_barrier((values, cast.bounds))
    count = rows.segment.shape[0]
    # A span's segments are neighbours of one width: a slice cut into `count` equal
    # rows.
    part = lax.dynamic_slice_in_dim(values, start, count * width, axis=1)
    # Updates that are not sent may hold NaN and must not reach the counts or the codes.
    part = jnp.where(cast.sent[:, None], part, jnp.float32(0))
    by_segment = part.reshape(-1, count, width).swapaxes(0, 1)
    code = functools.partial(_code_row, cast=cast, bounds=bounds)
    return jax.vmap(code)(by_segment, rows)


def _code_row(
    values: Array, row: SegmentRows, cast: Cast, bounds: Array
) -> tuple[Array, Counted]:
    """Code one segment.

    Attackers change their update before it is rounded, or their residues.
    They see the rows of V3 and no others: what colludes goes by the honest clients'
    mean. Rows that are not there pass as attackers' own, and what becomes of them is
    not read.
    """
    byzantine = cast.byzantine
    keys = cast.draws[row.segment]
    if byzantine is not None:
        attack = fold(cast.key, int(Stream.ATTACK), _ATTACK + row.segment)
        # Colluding attackers imitate the honest senders only, so all others are marked.
        unread = cast.attackers | ~cast.sent
        values = byzantine.corrupt_updates(fold(attack, 0), values, unread)
    codes, outside, not_finite = encode_row(
        keys, values, row.levels, bounds, cast.widest
    )
    wrapped = jnp.int32(0)
    if cast.noise is not None:
        codes, wrapped = noisy_row(codes, keys, row, cast.noise, cast.summed)
    counted = Counted(outside, not_finite, wrapped)
    if byzantine is None:
        return codes, counted

    def strike(codes: Array, ring: Array) -> tuple[Array, None]:
        # One draw per ring: residues are uniform modulo R, and R differs within a row.
        key = fold(attack, 1, ring & jnp.uint32(2**31 - 1))
        attackers = cast.attackers & (row.modulus_of == ring)
        return byzantine.corrupt_residues(key, codes, ring, attackers), None

    return lax.scan(strike, codes, row.rings)[0], counted


def _counts_of(rows: SegmentRows, counts: Any) -> Int32[Array, "segments blocks"]:
    """Count the clients that each block of the rows sums, zeros beyond the last."""
    # Padding blocks have the number one beyond the last, where a 0 is appended.
    return jnp.append(on_device(counts), jnp.int32(0))[rows.number]


def sum_span(
    values: Float32[Array, "n dim"],
    start: Any,
    rows: SegmentRows,
    cast: Cast,
    round_: SummedRound,
    *,
    width: int,
) -> tuple[Array, Counted]:
    """Sum codes without pads: uint32[segments, B, w], zeros for a withheld sum.

    An accelerator need not write the codes to memory. A CPU that codes and sums apart
    is as fast or, where blocks are few and long, 1.7 times as fast (20 clients in one
    segment of two groups). If a segment's codes do not fit into its cache, it takes a
    third of the time to code and sum some clients after the others.
    """
    if is_bound_by_memory():
        return _fused_sums(values, start, rows, cast, round_, width=width)
    tile = at_once("coded", 4 * width)
    if _is_below(cast) and len(rows.segment) == 1 and tile < len(values):
        return _tiled_sums(values, start, rows, cast, round_, width=width, tile=tile)
    codes, counted = code_span(values, start, rows, cast, width=width)
    return _plain_sums(codes, rows, _is_below(cast), round_), counted


def _is_below(cast: Cast) -> bool:
    """Return whether codes alone are summed."""
    return cast.byzantine is None and cast.noise is None


@functools.partial(jax.jit, static_argnames=("width",))
def _fused_sums(
    values: Array,
    start: Any,
    rows: SegmentRows,
    cast: Cast,
    round_: SummedRound,
    *,
    width: int,
) -> tuple[Array, Counted]:
    """Code and sum in one program, so that no code need ever be in memory."""
    codes, counted = _coded(values, start, rows, cast, width)
    return _totals(codes, rows, _is_below(cast), round_), counted


@functools.partial(jax.jit, static_argnames=("width", "tile"))
def _tiled_sums(
    values: Array,
    start: Any,
    rows: SegmentRows,
    cast: Cast,
    round_: SummedRound,
    *,
    width: int,
    tile: int,
) -> tuple[Array, Counted]:
    """Code and sum one segment, `tile` clients after the others."""
    clients = values.shape[0]
    slots = rows.slots[0]
    is_summed = _counts_of(rows, round_.counts)[0] > 0
    here = seated(on_device(round_.survivors[3]), slots) & is_summed[:, None]
    seats = seats_of(slots, here, clients)

    def step(number: Array, so_far: tuple[Array, Array, Array]) -> Any:
        # the last tile reaches back to clients that are done
        first = jnp.minimum(number * tile, jnp.int32(clients - tile))
        is_new = first + lax.iota(jnp.int32, tile) >= number * tile

        def of_tile(array: Any, axis: int = 0) -> Array:
            return lax.dynamic_slice_in_dim(on_device(array), first, tile, axis)

        senders = dataclasses.replace(
            cast, draws=of_tile(cast.draws, 1), sent=of_tile(cast.sent)
        )
        tile_rows = rows._replace(
            levels=of_tile(rows.levels, 1), modulus_of=of_tile(rows.modulus_of, 1)
        )
        codes, counted = _coded(of_tile(values), start, tile_rows, senders, width)
        sums, outside, not_finite = so_far
        tile_seats = Seats(of_tile(seats.block), of_tile(seats.is_here) & is_new)
        (sums,) = add_in_turn([sums], codes[0], tile_seats, (lambda code: code,))
        return (
            sums,
            lax.dynamic_update_slice(outside, counted.outside[0], (first,)),
            lax.dynamic_update_slice(not_finite, counted.not_finite[0], (first,)),
        )

    nothing = (
        jnp.zeros((len(slots), width), jnp.uint32),
        jnp.zeros(clients, jnp.int32),
        jnp.zeros(clients, jnp.bool_),
    )
    ends = lax.fori_loop(
        jnp.int32(0),
        jnp.int32(-(-clients // tile)),
        step,
        varying_like(nothing, values, cast, here),
    )
    sums, outside, not_finite = (part[None] for part in ends)
    return sums, Counted(outside, not_finite, jnp.zeros(1, jnp.int32))


@functools.partial(jax.jit, static_argnames=("is_below",))
def _plain_sums(
    codes: Array, rows: SegmentRows, is_below: bool, round_: SummedRound
) -> Array:
    # The inverse of the layout of `code_span`.
    by_segment = codes.reshape(codes.shape[0], rows.segment.shape[0], -1)
    return _totals(by_segment.swapaxes(0, 1), rows, is_below, round_)


def _totals(
    codes: Array, rows: SegmentRows, is_below: bool, round_: SummedRound
) -> Array:
    counts = _counts_of(rows, round_.counts)
    summed = on_device(round_.survivors[3])
    plain = functools.partial(plain_row, summed=summed, is_below=is_below)
    return by_parts(plain, codes, rows.slots, rows.moduli, counts)


def padded_span(
    seeds: Seeds,
    codes: UInt32[Array, "n span"],
    layout: SegmentLayout,
    span: Span,
    index: Any,
    round_: SummedRound,
) -> UInt32[Array, "segments blocks w"]:
    """Return the ring sums of a span's blocks from padded inputs.

    Zeros where one is withheld.
    """
    plan, first = plan_of(layout, span)
    sums = ring_sum(
        seeds,
        codes,
        plan,
        index,
        survivors=round_.survivors,
        fidelity="array",
        first_block=first,
    )
    return table_of(sums.totals, span.rows, first, round_.counts)


def table_of(totals: Any, rows: SegmentRows, first: int, counts: Any) -> Array:
    """Return uint32[segments, B, w] of blocks' totals, from the block `first` on.

    Zeros where no block is, or nobody is summed.
    """
    # Padding blocks read the row of zeros behind the last total.
    place = np.minimum(rows.number - first, len(totals))
    library: Any = jnp if is_traced(totals, counts) else np
    table = library.stack([*totals, library.zeros_like(totals[0])])[place]
    # beyond the last block nobody is summed
    is_summed = library.append(counts, np.int32(0))[rows.number] > 0
    return on_device(library.where(is_summed[:, :, None], table, np.uint32(0)))


def update_span(
    totals: UInt32[Array, "segments blocks w"],
    rows: SegmentRows,
    cast: Cast,
    round_: SummedRound,
    combine: RobustRule | None,
) -> Float32[Array, " span"]:
    """Return a span of the update: the plain mean, or a rule over the blocks' averages.

    Zeros unless the round's status is OK. A rule that is a function is called for each
    segment.
    """
    # A plain Python function may do work that cannot be traced: it runs outside of jit.
    if combine is None or not is_function(combine):
        return _updates(totals, rows, cast, round_, combine)
    averages, counts = _averages(totals, rows, cast, round_)
    parts = [combine_row(combine, *row) for row in zip(averages, counts, strict=True)]
    return jnp.where(round_.status == _OK, jnp.concatenate(parts), jnp.float32(0))


@jax.jit
def _updates(
    totals: Array,
    rows: SegmentRows,
    cast: Cast,
    round_: SummedRound,
    combine: RobustRule | None,
) -> Array:
    if combine is None and cast.byzantine is None:
        totals, counts, bounds = _integers(totals, rows, cast, round_)
        decode = functools.partial(decode_row, bounds=bounds)
        parts = by_parts(decode, totals, counts, rows.block_levels)
    else:
        averages, counts = _averages(totals, rows, cast, round_)
        combined = functools.partial(combine_row, combine)
        parts = by_parts(combined, averages, counts)
    parts = jnp.where(round_.status == _OK, parts, jnp.float32(0))
    # The barrier keeps what uses the update from being fused into its rounding.
    return lax.optimization_barrier(parts.reshape(-1))


def _integers(
    totals: Array, rows: SegmentRows, cast: Cast, round_: SummedRound
) -> tuple[Array, Array, Array]:
    """Return the integers that ring sums stand for, their counts, and the range."""
    totals, bounds = lax.optimization_barrier((totals, cast.bounds))
    counts = _counts_of(rows, round_.counts)
    if cast.noise is not None:
        totals = totals_about(totals, counts, rows)
    return totals, counts, bounds


@jax.jit
def _averages(
    totals: Array, rows: SegmentRows, cast: Cast, round_: SummedRound
) -> tuple[Array, Array]:
    """Return the averages of blocks that a rule sees, and their counts."""
    totals, counts, bounds = _integers(totals, rows, cast, round_)
    average = jax.vmap(block_averages, in_axes=(0, 0, 0, None))
    averages = average(totals, counts, rows.block_levels, bounds)
    if cast.byzantine is not None:
        touching = cast.attackers & round_.survivors[3]
        strike = functools.partial(_corrupt_averages, cast, touching)
        averages = jax.vmap(strike)(averages, rows, counts)
    return lax.optimization_barrier((averages, counts))


def _corrupt_averages(
    cast: Cast, attackers: Array, averages: Array, row: SegmentRows, counts: Array
) -> Array:
    """Let attackers change the averages of the blocks of a row that they are in."""
    attack = fold(cast.key, int(Stream.ATTACK), _ATTACK + row.segment, 2)
    # A block that sums nobody has no average to change.
    is_touched = seated(attackers, row.slots).any(axis=1) & (counts > 0)
    numbers = jnp.arange(averages.shape[0], dtype=jnp.int32)
    keys = jax.vmap(lambda block: jax.random.fold_in(attack, block))(numbers)
    corrupted = jax.vmap(cast.byzantine.corrupt_average)(keys, averages, is_touched)
    return on_device(corrupted)
