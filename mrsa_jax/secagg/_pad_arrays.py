"""Pad the inputs of a round and sum them by array programs.

Blocks of about one size go through one program together. XLA takes coordinates in
chunks of whole keystream blocks; each stream of a chunk is made once, and every client
gathers those that it uses. On an NVIDIA GPU a kernel (`_pad_kernel`) takes the place of
that.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from mrsa_jax._core.batches import at_once, within_memory
from mrsa_jax._core.chacha20 import keystream_words
from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.prime import is_power_of_two
from mrsa_jax._core.status import Status
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular import Ring, add, ring_of, ring_sum_over, subtract
from mrsa_jax.secagg._pad_tables import (
    Edges,
    Place,
    Round,
    Table,
    nothing,
    residues_of,
    settled,
    status_of,
    table_of,
    tallied,
)
from mrsa_jax.secagg.plans import Block, RingResult, SegmentPlan
from mrsa_jax.secagg.seeds import padded_length


def edge_places(block: Block, round_: Round) -> Any:
    """Return each edge's two places among the block's members, -1 for those outside."""
    place = np.full(round_.inputs.shape[0], -1, np.int32)
    place[list(block.members)] = np.arange(len(block.members), dtype=np.int32)
    edges = round_.seeds.edges
    if isinstance(edges, jax.core.Tracer):
        return jnp.asarray(place)[edges]
    return place[np.asarray(edges)]


def pads_by_arrays(
    round_: Round,
    edges: tuple[Edges, ...],
    plan: SegmentPlan,
    padded: bool,
) -> tuple[Array, RingResult]:
    """Pad and sum a round's blocks.

    What is not traced in the device's memory, or it is said.
    """
    round_ = round_._replace(inputs=jnp.asarray(round_.inputs))
    # a kernel keeps no keystream
    by_kernel = chosen_form(("xla", "pallas"), round_) == "pallas"
    chunk = 1 if by_kernel else at_once("keystream", 64)
    if is_traced(round_, edges):
        return _pads_of(chunk, round_, edges, plan, padded)
    participants, dim = round_.inputs.shape

    def run(chunk: int) -> tuple[Array, RingResult]:
        return jax.block_until_ready(_pads_of(chunk, round_, edges, plan, padded))

    what = f"pads of {participants:,} vectors of {dim:,} words, in blocks of keystream"
    return within_memory(run, chunk, "inputs", what)


def _pads_of(
    chunk: int,
    round_: Round,
    edges: tuple[Edges, ...],
    plan: SegmentPlan,
    padded: bool,
) -> tuple[Array, RingResult]:
    participants, dim = round_.inputs.shape
    out: Array | None = None
    covered = sum(len(block.members) * (block.stop - block.start) for block in plan)
    if padded and covered < participants * dim:
        out = jnp.zeros((participants, dim), jnp.uint32)
    totals: list[Any] = [None] * len(plan)
    statuses: list[Any] = [None] * len(plan)
    for numbers in classes_of(plan):
        blocks = [plan[number] for number in numbers]
        out, sums, status = padded_blocks(
            round_,
            _stacked([edges[number] for number in numbers]),
            _places(blocks, numbers, round_),
            rings_of(blocks),
            out,
            num_blocks=padded_length(max(_keystream_blocks(block) for block in blocks)),
            chunk=chunk,
            padded=padded,
        )
        for row, (number, block) in enumerate(zip(numbers, blocks, strict=True)):
            totals[number] = sums[row, : block.stop - block.start]
            statuses[number] = status[row]
    rows = jnp.zeros((0, dim), jnp.uint32) if out is None else out
    return rows, RingResult(tuple(totals), jnp.stack(statuses))


def rings_of(blocks: list[Block]) -> Ring:
    """Return the rings of blocks of one kind, each number stacked over them."""
    rings = [ring_of(block.modulus) for block in blocks]
    stacked: Ring = jax.tree.map(lambda *leaves: np.stack(leaves), *rings)
    return stacked


def members_of(blocks: list[Block], size: int, nobody: int) -> np.ndarray:
    """Return int32[blocks, size], the members of each and nobody behind them."""
    members = np.full((len(blocks), size), nobody, np.int32)
    for row, block in zip(members, blocks, strict=True):
        row[: len(block.members)] = block.members
    return members


def _keystream_blocks(block: Block) -> int:
    return -(-(block.stop - block.start) // residues_of(is_power_of_two(block.modulus)))


def classes_of(plan: SegmentPlan) -> list[list[int]]:
    """Group the plan's blocks by kind of ring and by about their size."""
    classes: dict[tuple[object, ...], list[int]] = {}
    for number, block in enumerate(plan):
        sizes = (
            padded_length(_keystream_blocks(block)),
            padded_length(len(block.members)),
        )
        key = (
            is_power_of_two(block.modulus),
            *((size - 1).bit_length() for size in sizes),
        )
        classes.setdefault(key, []).append(number)
    return list(classes.values())


def _places(blocks: list[Block], numbers: list[int], round_: Round) -> Place:
    size = padded_length(max(len(block.members) for block in blocks))
    members = members_of(blocks, size, round_.inputs.shape[0])
    starts, stops = np.asarray([(b.start, b.stop) for b in blocks], np.int32).T
    first = jnp.asarray(round_.first)
    return Place(members, starts, stops, first + jnp.asarray(numbers, jnp.uint32))


def _stacked(edges: list[Edges]) -> Edges:
    """Return blocks' pairs side by side, none beyond a block's last."""
    count = max(each.places.shape[0] for each in edges)
    is_host = all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(edges))
    lib: Any = np if is_host else jnp
    places, seeds = [], []
    for each in edges:
        # places of -1 name nobody, so that their seeds are never used
        more = ((0, count - each.places.shape[0]), (0, 0))
        places.append(lib.pad(each.places, more, constant_values=-1))
        seeds.append(lib.pad(each.seeds, more))
    return Edges(lib.stack(places), lib.stack(seeds))


@functools.partial(
    jax.jit, static_argnames=("num_blocks", "chunk", "padded"), donate_argnames=("out",)
)
def padded_blocks(
    round_: Round,
    edges: Edges,
    place: Place,
    ring: Ring,
    out: Array | None,
    *,
    num_blocks: int,
    chunk: int,
    padded: bool,
) -> tuple[Array | None, Array, Array]:
    """Pad and sum blocks of one kind of ring that `num_blocks` of keystream cover.

    Args:
        round_: The round.
        edges: Their pairs, with a leading axis of blocks; so `place` and `ring`.
        place: Where they lie.
        ring: Their rings.
        out: uint32[n, d], padded inputs of the round's other blocks; None if there are
            none.
        num_blocks: Static.
        chunk: Blocks of keystream in memory at once, of all streams together (static).
        padded: Whether padded inputs are kept (static).

    Returns:
        The padded inputs or None, uint32[blocks, coordinates] totals and int32[blocks]
        statuses.
    """
    # `_pad_loops` is the same sum on a CPU; here one kernel makes, adds and forgets the
    # keystream on a GPU, and XLA makes it in chunks everywhere else
    table = jax.vmap(table_of, (None, 0, 0))(round_, edges, place)
    if chosen_form(("xla", "pallas"), round_) == "pallas":
        from mrsa_jax.secagg._pad_kernel import blocks_by_kernel

        out, sums = blocks_by_kernel(
            round_, table, place, ring, num_blocks, out, padded
        )
        totals = jax.vmap(ring_sum_over)(sums, ring)
    else:
        rows, totals = _blocks_by_xla(
            round_, table, place, ring, num_blocks, chunk, padded
        )
        if rows is not None:
            shape = round_.inputs.shape
            out = _put(
                jnp.zeros(shape, jnp.uint32) if out is None else out, rows, place
            )
    status = status_of(jnp.sum(table.sends, axis=1, dtype=jnp.int32))
    return (
        out,
        jnp.where((status == jnp.int32(Status.OK))[:, None], totals, 0),
        status,
    )


def _blocks_by_xla(
    round_: Round,
    table: Table,
    place: Place,
    ring: Ring,
    num_blocks: int,
    chunk: int,
    padded: bool,
) -> tuple[Array | None, Array]:
    num, streams = table.labels.shape
    together = max(1, min(num, chunk // streams))
    width = max(1, min(num_blocks, chunk // (streams * together)))
    count = -(-num_blocks // width)
    chunks = count, -(-num_blocks // count)

    def block(job: tuple[Table, Place, Ring]) -> tuple[Array | None, Array]:
        return _block_by_xla(round_, *job, chunks, padded)

    results: tuple[Array | None, Array] = lax.map(
        block, (table, place, ring), batch_size=together
    )
    return results


def _put(out: Array, rows: Array, place: Place) -> Array:
    """Write blocks' rows to their places.

    What is no member's and no coordinate is dropped.
    """
    where = (
        jnp.asarray(place.start)[:, None]
        + jnp.arange(rows.shape[2], dtype=jnp.int32)[None, :]
    )
    where = jnp.where(where < jnp.asarray(place.stop)[:, None], where, out.shape[1])
    return out.at[jnp.asarray(place.members)[:, :, None], where[:, None, :]].set(
        rows, mode="drop"
    )


_UNROLLED = 4  # streams that a client gathers in one step


def _block_by_xla(
    round_: Round,
    table: Table,
    place: Place,
    ring: Ring,
    chunks: tuple[int, int],
    padded: bool,
) -> tuple[Array | None, Array]:
    """Return a block's padded inputs [members, coordinates], if wanted, and its sum.

    Args:
        round_: The round.
        table: The block's streams.
        place: Where it lies.
        ring: Its ring.
        chunks: How many chunks of how many keystream blocks (static).
        padded: Whether padded inputs are wanted (static).
    """
    count, width = chunks
    size = width * residues_of(ring.is_power)
    where = jnp.asarray(place.start) + jnp.arange(count * size, dtype=jnp.int32)
    values = jnp.take(
        jnp.asarray(round_.inputs), jnp.asarray(place.members), axis=0, mode="clip"
    )
    values = jnp.take(values, where, axis=1, mode="clip")
    here = table.sends[:, None] & (where < place.stop)[None, :]
    values = jnp.where(here, values, 0)
    nonce = (
        table.labels[:, None],
        jnp.asarray(place.number),
        jnp.asarray(round_.index),
    )
    key = tuple(table.seeds[:, word, None] for word in range(8))

    def chunk(number: Array) -> tuple[Array | None, Array]:
        first = number.astype(jnp.uint32) * width
        counters = first + jnp.arange(width, dtype=jnp.uint32)
        words = keystream_words(
            key, counters[None, :], nonce, (table.seeds.shape[0], width)
        )
        step = 1 if ring.is_power else 2
        streams = [
            jnp.stack(words[k::step], axis=2).reshape(-1, size) for k in range(step)
        ]

        def row(odd: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            pads = settled(*_used(table, streams, odd), ring)
            return add(carry[0], pads, ring), pads

        part = lax.dynamic_slice_in_dim(values, number * size, size, axis=1)
        start = varying_like((part, jnp.zeros_like(part)), part, streams)
        rows, removed = lax.fori_loop(jnp.int32(0), jnp.int32(2), row, start)
        return rows if padded else None, ring_sum_over(
            subtract(rows, removed, ring), ring
        )

    rows, sums = lax.map(chunk, jnp.arange(count, dtype=jnp.int32))
    if rows is not None:
        rows = rows.swapaxes(0, 1).reshape(rows.shape[1], count * size)
    return rows, sums.reshape(-1)


def _used(
    table: Table,
    streams: list[Array],
    odd: Array,
) -> tuple[tuple[Array, ...], Array]:
    """Sum the streams of each client's even row of uses (0) or odd one (1).

    With it comes how many of them are subtracted, [members, 1].
    """
    begin, end = (
        part.reshape(-1, 2)[:, odd] for part in (table.heads[:-1], table.heads[1:])
    )
    last = jnp.int32(table.uses.shape[0] - 1)
    ones, zero = jnp.uint32(2**32 - 1), jnp.uint32(0)

    def step(
        k: Array, carry: tuple[tuple[Array, ...], Array]
    ) -> tuple[tuple[Array, ...], Array]:
        tally, subtracted = carry
        for j in range(_UNROLLED):
            at = begin + _UNROLLED * k + j
            use = table.uses[jnp.minimum(at, last)]
            flip = jnp.where(use & 1 == 1, ones, zero)[:, None]
            only = jnp.where(at < end, ones, zero)[:, None]
            pads = [jnp.take(stream, use >> 1, axis=0) for stream in streams]
            tally = tallied(tally, pads, flip, only)
            subtracted = subtracted + (flip & only & 1)
        return tally, subtracted

    steps = (jnp.max(end - begin) + _UNROLLED - 1) // _UNROLLED
    shape = (begin.shape[0], streams[0].shape[1])
    start = nothing(shape, len(streams) == 1), jnp.zeros((shape[0], 1), jnp.uint32)
    return lax.fori_loop(jnp.int32(0), steps, step, varying_like(start, steps, streams))
