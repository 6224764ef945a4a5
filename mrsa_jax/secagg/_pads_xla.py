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
from mrsa_jax.modular import (
    add,
    chacha20_columns,
    is_power_of_two,
    reduce_words,
    ring_sum_over,
    subtract,
    words_per_residue,
)
from mrsa_jax.secagg._types import Block, RingResult, Seeds, SegmentPlan

__all__ = ["PAIR_PAD", "SELF_PAD", "Edges", "Round", "edge_places", "pads_by_xla", "status_of"]

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
    first: Any  # uint32, number of the plan's first block


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


@functools.partial(jax.jit, static_argnames=("plan", "padded"))
def pads_by_xla(
    round_: Round, edges: tuple[Edges, ...], plan: SegmentPlan, padded: bool
) -> tuple[Array, RingResult]:
    inputs = jnp.asarray(round_.inputs)
    out = jnp.zeros(inputs.shape if padded else (0, inputs.shape[1]), jnp.uint32)
    totals, statuses = [], []
    for number, (block, own) in enumerate(zip(plan, edges, strict=True)):
        job = _job(round_, own, block, number)
        rows, sums = lax.map(functools.partial(_padded_chunk, job, padded), _chunks(job, inputs))
        width = block.stop - block.start
        status = status_of(jnp.sum(job.sends, dtype=jnp.int32))
        total = sums.swapaxes(1, 2).reshape(-1)[:width]
        totals.append(jnp.where(status == jnp.int32(Status.OK), total, jnp.uint32(0)))
        statuses.append(status)
        if padded:
            # [chunk, word, member, column] -> [member, coordinate]
            flat = rows.transpose(2, 0, 3, 1).reshape(len(block.members), -1)
            where = np.asarray(block.members)
            out = out.at[where, block.start : block.stop].set(flat[:, :width])
    return out, RingResult(tuple(totals), jnp.stack(statuses))


class _Job(NamedTuple):
    """One block, ready to be padded: everything but the chunk."""

    block: Block
    sends: Array  # bool[members]
    self_seed: Array  # uint32[members, 8]
    edges: tuple[Array, ...]  # batches: places of who adds and who subtracts, seeds, shared
    nonces: tuple[Array, Array]  # of pair and self pads


def _job(round_: Round, edges: Edges, block: Block, number: int) -> _Job:
    members = np.asarray(block.members)
    places, seeds = jnp.asarray(edges.places), jnp.asarray(edges.seeds)
    shares = jnp.asarray(round_.shares)[members]
    shared = jnp.all(places >= jnp.int32(0), axis=1) & jnp.all(shares[places], axis=1)
    ids = jnp.asarray(round_.seeds.client_ids)[members][places]
    swap = ids[:, 0] > ids[:, 1]
    adds = jnp.where(swap, places[:, 1], places[:, 0])
    subtracts = jnp.where(swap, places[:, 0], places[:, 1])
    size = _batch(block, places.shape[0])
    batches = tuple(
        jnp.pad(leaf, ((0, -places.shape[0] % size), *((0, 0),) * (leaf.ndim - 1))).reshape(
            (-1, size, *leaf.shape[1:])
        )
        for leaf in (adds, subtracts, seeds, shared)
    )
    index = jnp.asarray(round_.index)
    block_number = jnp.asarray(round_.first) + jnp.uint32(number)
    nonces = [jnp.stack([jnp.uint32(label), block_number, index]) for label in (PAIR_PAD, SELF_PAD)]
    return _Job(
        block=block,
        sends=jnp.asarray(round_.sends)[members],
        self_seed=jnp.asarray(round_.seeds.self_seed)[members],
        edges=batches,
        nonces=(nonces[0], nonces[1]),
    )


def _columns(block: Block) -> tuple[int, int]:
    """Return how many chunks of how many keystream blocks cover a block's coordinates."""
    residues = 16 // words_per_residue(block.modulus)
    blocks = -(-(block.stop - block.start) // residues)
    widest = max(_SMALLEST_CHUNK, _CHUNK_COLUMNS // len(block.members))
    count = -(-blocks // widest)
    return count, -(-blocks // count)


def _batch(block: Block, num_edges: int) -> int:
    """Return how many pairs are padded at a time."""
    return max(1, min(num_edges, _CHUNK_COLUMNS // _columns(block)[1]))


def _chunks(job: _Job, inputs: Array) -> tuple[Array, Array]:
    """Cut inputs into chunks of keystream blocks, a block being a column.

    Transposing the inputs once spares transposing every stream.
    """
    block = job.block
    count, width = _columns(block)
    residues = 16 // words_per_residue(block.modulus)
    values = inputs[np.asarray(block.members), block.start : block.stop]
    values = jnp.where(job.sends[:, None], values, jnp.uint32(0))
    values = jnp.pad(values, ((0, 0), (0, count * width * residues - values.shape[1])))
    columns = values.reshape(len(block.members), count, width, residues).transpose(1, 3, 0, 2)
    return jnp.arange(count, dtype=jnp.uint32) * jnp.uint32(width), columns


def _padded_chunk(
    job: _Job, padded: bool, chunk: tuple[Array, UInt32[Array, "word members column"]]
) -> tuple[Array, Array]:
    """Return one chunk's padded inputs, and their sum without what the server removes.

    Pads are added up over batches of pairs: the parts of all pairs' pads that the members of a
    batch add or subtract, then into their rows.
    """
    counter, values = chunk
    modulus, width = job.block.modulus, values.shape[2]

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
    (table, removed), _ = lax.scan(batch, start, job.edges)
    rows = _whole(table, modulus)
    total = subtract(ring_sum_over(rows, modulus, axis=1), removed, modulus)
    return rows if padded else rows[:, :0], total


def _only(pads: Array, chosen: Array) -> Array:
    return jnp.where(chosen[None, :, None], pads, jnp.uint32(0))


def _halves(values: Array, modulus: int) -> Array:
    """Return what may be added up without a reduction: 2^b wraps, else halves of 16 bits."""
    if is_power_of_two(modulus):
        return values[None]
    return jnp.stack([values & jnp.uint32(0xFFFF), values >> jnp.uint32(16)])


def _whole(table: Array, modulus: int) -> Array:
    """Return the residues that sums of fewer than 2^16 halves stand for."""
    if is_power_of_two(modulus):
        return reduce_words(table[0], table[0], modulus)
    low, high = table
    word = low + (high << jnp.uint32(16))
    carry = (word < low).astype(jnp.uint32)
    return reduce_words((high >> jnp.uint32(16)) + carry, word, modulus)


def _pads(seeds: Array, nonce: Array, counter: Array, width: int, modulus: int) -> Array:
    """Return one chunk of many seeds' pads, [residues of a block, seeds, blocks]."""
    count = seeds.shape[0]
    counters = counter + jnp.arange(width, dtype=jnp.uint32)
    words = chacha20_columns(
        jnp.repeat(seeds.T, width, axis=1, total_repeat_length=count * width),
        jnp.tile(counters, count),
        jnp.broadcast_to(nonce[:, None], (3, count * width)),
    ).reshape(16, count, width)
    if words_per_residue(modulus) == 1:
        return reduce_words(words, words, modulus)
    return reduce_words(words[1::2], words[0::2], modulus)
