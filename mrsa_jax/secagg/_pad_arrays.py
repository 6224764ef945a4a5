"""A padded round as array programs.

Blocks of about one size go through one of them together.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from mrsa_jax._core.arrays import varying_like
from mrsa_jax._core.chacha20 import TILE, keystream_words, woven
from mrsa_jax._core.device import (
    at_once,
    chosen_form,
    is_traced,
    num_programs,
    within_memory,
)
from mrsa_jax._core.kernels import launch
from mrsa_jax._core.prime import is_power_of_two
from mrsa_jax._core.status import Status
from mrsa_jax.modular import Ring, add, ring_of, ring_sum_over, subtract
from mrsa_jax.secagg._pad_tables import (
    PAIR_PAD,
    SELF_PAD,
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
from mrsa_jax.secagg._types import Block, RingResult, SegmentPlan, padded_length

# ---- A padded round in one launch on NVIDIA GPUs (Pallas, through Triton).
#
# A program takes some clients of a block over one tile of coordinates, a keystream
# block in each
# thread. It makes each of a client's pads in registers and adds it to the client's
# input there: no
# keystream is ever in memory. The keystream of a pair is made twice, once for each end,
# which costs
# arithmetic and spares all traffic. Import inside functions only, where the form is
# "pallas".


def blocks_by_kernel(
    round_: Round,
    table: Table,
    place: Place,
    ring: Ring,
    num_blocks: int,
    out: Array | None,
    padded: bool,
) -> tuple[Array | None, Array]:
    """Pad the inputs of blocks of about one size, and sum them in parts.

    Args:
        round_: The round.
        table: The blocks' streams, each leaf with a leading axis of blocks; so the
            others.
        place: Where they lie.
        ring: Their rings.
        num_blocks: Of keystream, that cover each block's coordinates (static).
        out: uint32[n, d] to write padded inputs to; None where no row of it is kept.
        padded: Whether to write them (static).

    Returns:
        The padded inputs, if written, and uint32[blocks, parts, coordinates], whose sum
        over the parts in each block's ring is the block's total; what lies beyond a
        block's last coordinate means nothing.
    """
    num, size = table.sends.shape
    tiles, tile = -(-num_blocks // TILE), residues_of(ring.is_power) * TILE
    parts = max(1, min(size, num_programs(TILE) // (num * tiles)))
    each = -(-size // parts)
    parts = -(-size // each)
    clients, dim = round_.inputs.shape
    # clients beyond the last, who use no stream
    absent = ((0, 0), (0, parts * each - size))
    inputs = [
        jnp.asarray(round_.inputs),
        jnp.pad(jnp.asarray(place.members), absent, constant_values=clients),
        jnp.pad(table.sends.astype(jnp.int32), absent),
        jnp.stack([jnp.asarray(place.start), jnp.asarray(place.stop)], axis=1),
        _numbers(round_, place, ring),
        table.seeds,
        jnp.pad(table.heads, ((0, 0), (0, 2 * (parts * each - size))), mode="edge"),
        table.uses,
    ]
    shapes = [(num, parts, tiles * tile), (clients, dim)][: 2 if padded else 1]
    aliases = {} if out is None else {len(inputs): 1}
    inputs += [] if out is None else [out]
    kernel = functools.partial(
        _kernel, ring.is_power, each, clients, table.seeds.shape[1] - size, len(inputs)
    )
    results = [jax.ShapeDtypeStruct(shape, jnp.uint32) for shape in shapes]
    grid = tiles, parts, num
    found = launch("pads", kernel, grid, results, *inputs, input_output_aliases=aliases)
    return (found[1] if padded else None), found[0]


def _numbers(round_: Round, place: Place, ring: Ring) -> Array:
    """Return each block's words: of its nonces, and of its ring."""
    own = jnp.asarray(place.number)
    words = (own, round_.index, *(getattr(ring, name) for name in _WORDS))
    return jnp.stack(
        [jnp.broadcast_to(jnp.asarray(word), own.shape) for word in words], axis=1
    )


_WORDS = ("low_bits", "modulus", "shift", "divisor", "reciprocal")


def _kernel(
    is_power: bool, each: int, clients: int, pairs: int, num_inputs: int, *refs: Any
) -> None:
    """Pad `each` clients' inputs of one tile and sum them without what the server removes."""
    inputs, members, sends, bounds, numbers, seeds, heads, uses = refs[:8]
    sums, *padded = refs[num_inputs:]
    tile, part, block = (pl.program_id(axis) for axis in range(3))
    width = residues_of(is_power)
    size = width * TILE
    ring = Ring(is_power, *(numbers[block, 2 + place] for place in range(len(_WORDS))))
    first = bounds[block, 0] + tile * jnp.int32(size)
    inside = first + jnp.arange(size, dtype=jnp.int32) < bounds[block, 1]
    counters = (tile * jnp.int32(TILE) + jnp.arange(TILE, dtype=jnp.int32)).astype(
        jnp.uint32
    )

    def use(place: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        tallies, subtracted = carry
        stream, sign = (
            uses[block, place] >> jnp.int32(1),
            uses[block, place] & jnp.int32(1),
        )
        label = jnp.where(
            stream < jnp.int32(pairs), jnp.uint32(PAIR_PAD), jnp.uint32(SELF_PAD)
        )
        words = keystream_words(
            [seeds[block, stream, word] for word in range(8)],
            counters,
            (label, numbers[block, 0], numbers[block, 1]),
            (TILE,),
        )
        step = len(words) // width
        flip = jnp.uint32(0) - sign.astype(jnp.uint32)
        tallies = [
            tallied(tally, words[step * k : step * (k + 1)], flip)
            for k, tally in enumerate(tallies)
        ]
        return tallies, subtracted + sign.astype(jnp.uint32)

    def pads(row: Array) -> Array:
        start = [nothing((TILE,), is_power)] * width, jnp.uint32(0)
        begin, end = heads[block, row], heads[block, row + jnp.int32(1)]
        tallies, subtracted = lax.fori_loop(begin, end, use, start)
        # in the order of coordinates from here on
        return settled(tuple(map(woven, zip(*tallies, strict=True))), subtracted, ring)

    def client(place: Array, total: Array) -> Array:
        member = members[block, place]
        known = jnp.minimum(member, jnp.int32(clients - 1))
        here = inside & (sends[block, place] != jnp.int32(0))
        at = pl.ds(first, size)

        def row(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            found = pads(jnp.int32(2) * place + number)
            return add(carry[0], found, ring), found

        own = triton.load(inputs.at[known, at], mask=here, other=jnp.uint32(0))
        none = jnp.zeros(size, jnp.uint32)
        sent, removed = lax.fori_loop(jnp.int32(0), jnp.int32(2), row, (own, none))
        for out in padded:
            mine = inside & (member < jnp.int32(clients))
            triton.store(out.at[known, at], sent, mask=mine)
        return add(total, subtract(sent, removed, ring), ring)

    begin = part * jnp.int32(each)
    # nothing to do beyond the block's last coordinate
    end = jnp.where(first < bounds[block, 1], begin + jnp.int32(each), begin)
    total = lax.fori_loop(begin, end, client, jnp.zeros(size, jnp.uint32))
    triton.store(sums.at[block, part, pl.ds(tile * jnp.int32(size), size)], total)


# ---- A padded round as array programs: blocks of about one size go through one of them
# together.


def edge_places(block: Block, round_: Round) -> Any:
    """Return each edge's two places among the block's members, -1 for those outside."""
    place = np.full(round_.inputs.shape[0], -1, np.int32)
    place[list(block.members)] = np.arange(len(block.members), dtype=np.int32)
    edges = round_.seeds.edges
    if isinstance(edges, jax.core.Tracer):
        return jnp.asarray(place)[edges]
    return place[np.asarray(edges)]


def pads_by_arrays(
    round_: Round, edges: tuple[Edges, ...], plan: SegmentPlan, padded: bool
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
    chunk: int, round_: Round, edges: tuple[Edges, ...], plan: SegmentPlan, padded: bool
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
            jax.tree.map(
                lambda *leaves: np.stack(leaves), *(ring_of(b.modulus) for b in blocks)
            ),
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


def _keystream_blocks(block: Block) -> int:
    return -(-(block.stop - block.start) // residues_of(is_power_of_two(block.modulus)))


def classes_of(plan: SegmentPlan) -> list[list[int]]:
    """Return the numbers of the plan's blocks, those of one kind of ring and about one size."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for number, block in enumerate(plan):
        sizes = (
            padded_length(_keystream_blocks(block)),
            padded_length(len(block.members)),
        )
        key = (
            is_power_of_two(block.modulus),
            *((size - 1).bit_length() for size in sizes),
        )
        found.setdefault(key, []).append(number)
    return list(found.values())


def _places(blocks: list[Block], numbers: list[int], round_: Round) -> Place:
    size = padded_length(max(len(block.members) for block in blocks))
    members = np.full((len(blocks), size), round_.inputs.shape[0], np.int32)
    for row, block in zip(members, blocks, strict=True):
        row[: len(block.members)] = block.members
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
        jnp.where((status == jnp.int32(Status.OK))[:, None], totals, jnp.uint32(0)),
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

    found: tuple[Array | None, Array] = lax.map(
        block, (table, place, ring), batch_size=together
    )
    return found


def _put(out: Array, rows: Array, place: Place) -> Array:
    """Write blocks' rows to their places.

    What is no member's and no coordinate is dropped.
    """
    where = (
        jnp.asarray(place.start)[:, None]
        + jnp.arange(rows.shape[2], dtype=jnp.int32)[None, :]
    )
    where = jnp.where(
        where < jnp.asarray(place.stop)[:, None], where, jnp.int32(out.shape[1])
    )
    return out.at[jnp.asarray(place.members)[:, :, None], where[:, None, :]].set(
        rows, mode="drop"
    )


# ---- by XLA, where there is neither numba nor an NVIDIA GPU: coordinates go in chunks
# of whole
# keystream blocks; each stream of a chunk is made once, and every client gathers those
# that it uses

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
    values = jnp.where(here, values, jnp.uint32(0))
    nonce = (
        table.labels[:, None],
        jnp.asarray(place.number),
        jnp.asarray(round_.index),
    )
    key = tuple(table.seeds[:, word, None] for word in range(8))

    def chunk(number: Array) -> tuple[Array | None, Array]:
        first = number.astype(jnp.uint32) * jnp.uint32(width)
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

        own = lax.dynamic_slice_in_dim(values, number * jnp.int32(size), size, axis=1)
        start = varying_like((own, jnp.zeros_like(own)), own, streams)
        rows, removed = lax.fori_loop(jnp.int32(0), jnp.int32(2), row, start)
        return rows if padded else None, ring_sum_over(
            subtract(rows, removed, ring), ring
        )

    rows, sums = lax.map(chunk, jnp.arange(count, dtype=jnp.int32))
    if rows is not None:
        rows = rows.swapaxes(0, 1).reshape(rows.shape[1], count * size)
    return rows, sums.reshape(-1)


def _used(
    table: Table, streams: list[Array], odd: Array
) -> tuple[tuple[Array, ...], Array]:
    """Return the sum of the streams of each client's even row of uses (0) or odd one (1).

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
            at = begin + jnp.int32(_UNROLLED) * k + jnp.int32(j)
            use = table.uses[jnp.minimum(at, last)]
            flip = jnp.where(use & jnp.int32(1) == jnp.int32(1), ones, zero)[:, None]
            only = jnp.where(at < end, ones, zero)[:, None]
            found = [
                jnp.take(stream, use >> jnp.int32(1), axis=0) for stream in streams
            ]
            tally = tallied(tally, found, flip, only)
            subtracted = subtracted + (flip & only & jnp.uint32(1))
        return tally, subtracted

    steps = (jnp.max(end - begin) + jnp.int32(_UNROLLED - 1)) // jnp.int32(_UNROLLED)
    shape = (begin.shape[0], streams[0].shape[1])
    start = nothing(shape, len(streams) == 1), jnp.zeros((shape[0], 1), jnp.uint32)
    return lax.fori_loop(jnp.int32(0), steps, step, varying_like(start, steps, streams))
