"""Padding and summing one round by XLA: on accelerators, under `jit`, and without numba.

Coordinates go in chunks, pairs in batches, so that neither n x n x d nor all keystreams exist at
once; what a batch's pads add to their members' rows is scattered into them.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt32

from mrsa_jax._status import Status
from mrsa_jax._tracing import varying_like
from mrsa_jax.modular import (
    Ring,
    add,
    chacha20_columns,
    reduce_words,
    ring_of,
    ring_sum_over,
    subtract,
    words_per_residue,
)
from mrsa_jax.secagg._shapes import padded_length
from mrsa_jax.secagg._types import Block, RingResult, Seeds, SegmentPlan

__all__ = [
    "PAIR_PAD",
    "SELF_PAD",
    "Edges",
    "Round",
    "edge_places",
    "padded_block",
    "pads_by_xla",
    "status_of",
]

# First nonce word of a pad: pair and self streams can never meet, whatever the seeds.
PAIR_PAD, SELF_PAD = 1, 2
# ChaCha20 blocks that XLA computes at a time, over all streams.
_CHUNK_COLUMNS = 2048
_SMALLEST_CHUNK = 8


class Round(NamedTuple):
    """A checked round."""

    seeds: Seeds
    inputs: Any  # uint32[n, d]
    shares: Any  # bool[n], V2: whose neighbours add a pad for it
    sends: Any  # bool[n], V3: whose padded input arrives
    index: Any  # uint32, the round
    first: Any  # uint32, number of the plan's first block (of the block, once one is chosen)


class Edges(NamedTuple):
    """Pairs of a block that may share pads."""

    places: Any  # int32[E, 2], places among the block's members; -1 where there is no pair
    seeds: Any  # uint32[E, 8]


def edge_places(block: Block, round_: Round) -> Any:
    """Return each edge's two places among the block's members, -1 for those outside."""
    place = np.full(round_.inputs.shape[0], -1, np.int32)
    place[list(block.members)] = np.arange(len(block.members), dtype=np.int32)
    edges = round_.seeds.edges
    if isinstance(edges, jax.core.Tracer):
        return jnp.asarray(place)[edges]
    return place[np.asarray(edges)]


def status_of(count: Array) -> Array:
    enough = count >= jnp.int32(2)
    return jnp.where(enough, jnp.int32(Status.OK), jnp.int32(Status.TOO_FEW_SURVIVORS))


def pads_by_xla(
    round_: Round, edges: tuple[Edges, ...], plan: SegmentPlan, padded: bool
) -> tuple[Array, RingResult]:
    """Pad and sum block by block; blocks of about one size share one program."""
    inputs = jnp.asarray(round_.inputs)
    out = jnp.zeros(inputs.shape if padded else (0, inputs.shape[1]), jnp.uint32)
    totals, statuses = [], []
    for number, (block, own) in enumerate(zip(plan, edges, strict=True)):
        place = _place(block, inputs.shape[0])
        index = jnp.asarray(round_.first) + jnp.uint32(number)
        rows, total, status = padded_block(
            round_._replace(inputs=inputs, first=index), own, place, ring_of(block.modulus),
            columns=_columns(block, len(place.members)), padded=padded,
        )  # fmt: skip
        totals.append(total[: block.stop - block.start])
        statuses.append(status)
        if padded:
            out = _put(out, rows, place)
    return out, RingResult(tuple(totals), jnp.stack(statuses))


class _Place(NamedTuple):
    """Where in the inputs a block lies."""

    members: Any  # int32[m], n beyond the last
    start: Any  # int32
    stop: Any  # int32


def _place(block: Block, participants: int) -> _Place:
    members = np.full(padded_length(len(block.members)), participants, np.int32)
    members[: len(block.members)] = block.members
    return _Place(members, np.int32(block.start), np.int32(block.stop))


@functools.partial(jax.jit, static_argnames=("columns", "padded"))
def padded_block(
    round_: Round, edges: Edges, place: _Place, ring: Ring, *, columns: tuple[int, int],
    padded: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return a block's padded inputs [members, coordinates], its total and its status."""
    job = _job(round_, edges, place, ring, columns[1])
    chunks = _chunks(job, round_.inputs, place, columns)
    rows, sums = lax.map(functools.partial(_padded_chunk, job, padded), chunks)
    status = status_of(jnp.sum(job.sends, dtype=jnp.int32))
    total = sums.swapaxes(1, 2).reshape(-1)
    total = jnp.where(status == jnp.int32(Status.OK), total, jnp.uint32(0))
    # [chunk, word, member, column] -> [member, coordinate]
    return rows.transpose(2, 0, 3, 1).reshape(rows.shape[2], total.shape[0]), total, status


@jax.jit
def _put(out: Array, rows: Array, place: _Place) -> Array:
    """Write a block's rows to its place; what is no member's and no coordinate is dropped."""
    where = jnp.asarray(place.start) + jnp.arange(rows.shape[1], dtype=jnp.int32)
    where = jnp.where(where < place.stop, where, jnp.int32(out.shape[1]))
    return out.at[jnp.asarray(place.members)[:, None], where[None, :]].set(rows, mode="drop")


class _Job(NamedTuple):
    """One block, ready to be padded: everything but the chunk."""

    ring: Ring
    sends: Array  # bool[members]
    self_seed: Array  # uint32[members, 8]
    edges: tuple[Array, ...]  # batches: places of who adds and who subtracts, seeds, shared
    nonces: tuple[Array, Array]  # of pair and self pads


def _job(round_: Round, edges: Edges, place: _Place, ring: Ring, width: int) -> _Job:
    clients = round_.inputs.shape[0]
    is_member = jnp.asarray(place.members) < jnp.int32(clients)
    members = jnp.minimum(jnp.asarray(place.members), jnp.int32(clients - 1))
    places, seeds = jnp.asarray(edges.places), jnp.asarray(edges.seeds)
    shares = jnp.asarray(round_.shares)[members] & is_member
    shared = jnp.all(places >= jnp.int32(0), axis=1) & jnp.all(shares[places], axis=1)
    ids = jnp.asarray(round_.seeds.client_ids)[members][places]
    swap = ids[:, 0] > ids[:, 1]
    adds = jnp.where(swap, places[:, 1], places[:, 0])
    subtracts = jnp.where(swap, places[:, 0], places[:, 1])
    size = max(1, min(places.shape[0], _CHUNK_COLUMNS // width))  # pairs padded at a time
    batches = tuple(
        jnp.pad(leaf, ((0, -places.shape[0] % size), *((0, 0),) * (leaf.ndim - 1))).reshape(
            (-1, size, *leaf.shape[1:])
        )
        for leaf in (adds, subtracts, seeds, shared)
    )
    index, number = jnp.asarray(round_.index), jnp.asarray(round_.first)
    nonces = [jnp.stack([jnp.uint32(label), number, index]) for label in (PAIR_PAD, SELF_PAD)]
    return _Job(
        ring=ring,
        sends=jnp.asarray(round_.sends)[members] & is_member,
        self_seed=jnp.asarray(round_.seeds.self_seed)[members],
        edges=batches,
        nonces=(nonces[0], nonces[1]),
    )


def _columns(block: Block, num_members: int) -> tuple[int, int]:
    """Return how many chunks of how many keystream blocks cover a block's coordinates."""
    residues = 16 // words_per_residue(block.modulus)
    blocks = padded_length(-(-(block.stop - block.start) // residues))
    widest = max(_SMALLEST_CHUNK, _CHUNK_COLUMNS // num_members)
    count = -(-blocks // widest)
    return count, -(-blocks // count)


def _chunks(
    job: _Job, inputs: Array, place: _Place, columns: tuple[int, int]
) -> tuple[Array, Array]:
    """Cut inputs into chunks of keystream blocks, a block being a column.

    Transposing the inputs once spares transposing every stream.
    """
    count, width = columns
    residues = 16 if job.ring.is_power else 8
    where = jnp.asarray(place.start) + jnp.arange(count * width * residues, dtype=jnp.int32)
    rows = jnp.take(inputs, jnp.asarray(place.members), axis=0, mode="clip")
    values = jnp.take(rows, where, axis=1, mode="clip")
    inside = job.sends[:, None] & (where < place.stop)[None, :]
    values = jnp.where(inside, values, jnp.uint32(0))
    shaped = values.reshape(values.shape[0], count, width, residues).transpose(1, 3, 0, 2)
    return jnp.arange(count, dtype=jnp.uint32) * jnp.uint32(width), shaped


def _padded_chunk(
    job: _Job, padded: bool, chunk: tuple[Array, UInt32[Array, "word members column"]]
) -> tuple[Array, Array]:
    """Return one chunk's padded inputs, and their sum without what the server removes.

    Pads are added up over batches of pairs: the parts of all pairs' pads that the members of a
    batch add or subtract, then into their rows.
    """
    counter, values = chunk
    modulus, width = job.ring, values.shape[2]

    def batch(carry: tuple[Array, Array], pairs: tuple[Array, ...]) -> tuple[Any, None]:
        table, removed = carry
        adds, subtracts, seeds, shared = pairs
        pads = _pads(seeds, job.nonces[0], counter, width, modulus)
        plus = _only(pads, shared & job.sends[adds])
        minus = subtract(jnp.uint32(0), _only(pads, shared & job.sends[subtracts]), modulus)
        table = table.at[:, :, adds].add(_halves(plus, modulus))
        table = table.at[:, :, subtracts].add(_halves(minus, modulus))
        # of a pair that both sent this is 0; else it is for the server to remove
        left = ring_sum_over(add(plus, minus, modulus), modulus, axis=1)
        return (table, add(removed, left, modulus)), None

    own = _only(_pads(job.self_seed, job.nonces[1], counter, width, modulus), job.sends)
    removed = ring_sum_over(own, modulus, axis=1)
    start = (_halves(add(values, own, modulus), modulus), removed)
    (table, removed), _ = lax.scan(batch, varying_like(start, job), job.edges)
    rows = _whole(table, modulus)
    total = subtract(ring_sum_over(rows, modulus, axis=1), removed, modulus)
    return rows if padded else rows[:, :0], total


def _only(pads: Array, chosen: Array) -> Array:
    return jnp.where(chosen[None, :, None], pads, jnp.uint32(0))


def _halves(values: Array, ring: Ring) -> Array:
    """Return what may be added up without a reduction: 2^b wraps, else halves of 16 bits."""
    if ring.is_power:
        return values[None]
    return jnp.stack([values & jnp.uint32(0xFFFF), values >> jnp.uint32(16)])


def _whole(table: Array, ring: Ring) -> Array:
    """Return the residues that sums of fewer than 2^16 halves stand for."""
    if ring.is_power:
        return reduce_words(table[0], table[0], ring)
    low, high = table
    word = low + (high << jnp.uint32(16))
    carry = (word < low).astype(jnp.uint32)
    return reduce_words((high >> jnp.uint32(16)) + carry, word, ring)


def _pads(seeds: Array, nonce: Array, counter: Array, width: int, ring: Ring) -> Array:
    """Return one chunk of many seeds' pads, [residues of a block, seeds, blocks]."""
    count = seeds.shape[0]
    counters = counter + jnp.arange(width, dtype=jnp.uint32)
    words = chacha20_columns(
        jnp.repeat(seeds.T, width, axis=1, total_repeat_length=count * width),
        jnp.tile(counters, count),
        jnp.broadcast_to(nonce[:, None], (3, count * width)),
    ).reshape(16, count, width)
    if ring.is_power:
        return reduce_words(words, words, ring)
    return reduce_words(words[1::2], words[0::2], ring)
