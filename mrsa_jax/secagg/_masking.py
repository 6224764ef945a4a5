"""Padded inputs and the sum the server gets from them.

Every present member of a block adds its self pad PRG(b_i), and for each other present member j
the pair's pad PRG(s_ij): plus where i < j, minus where i > j (global ids). The pair pads cancel
in the sum and the server takes the self pads off. Pads are ChaCha20 keystream (RFC 8439) with
round and block in the nonce, so none is used twice; the papers' PRG.
"""

from __future__ import annotations

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, UInt32

from mrsa_jax._errors import require
from mrsa_jax._status import Status
from mrsa_jax.modular import (
    add,
    chacha20_columns,
    reduce_words,
    ring_sum_over,
    subtract,
    words_per_residue,
)
from mrsa_jax.secagg._types import Block, RingResult, Seeds, SegmentPlan, turn_schedule

__all__ = ["Fidelity", "pad_inputs", "ring_sum"]

Fidelity = Literal["array", "sets"]

# First nonce word of a pad: pair and self streams can never meet, whatever the seeds.
_PAIR_PAD, _SELF_PAD = 1, 2
# ChaCha20 blocks computed at a time, over all streams; about 2,048 of them stay in cache.
_CHUNK_COLUMNS = 2048
_SMALLEST_CHUNK = 8


def pad_inputs(
    seeds: Seeds,
    inputs: ArrayLike,
    plan: SegmentPlan,
    round_index: ArrayLike,
    *,
    present: ArrayLike | None = None,
) -> UInt32[Array, "participants dim"]:
    """Return what each client sends: its input under all its pads.

    Args:
        seeds: Seeds of the round.
        inputs: uint32[n, d], residues of each block's ring.
        plan: Blocks of the round (static).
        round_index: Round, part of the nonce.
        present: bool[n], who answers; everybody if None. Pads are shared over the complete
            graph of a block's present members.

    Returns:
        uint32[n, d]: residues that look uniform to anyone without the seeds; zeros for the
        absent and for coordinates outside a client's blocks.

    Raises:
        ConfigurationError: If shapes disagree.

    Examples:
        >>> from mrsa_jax.secagg import complete_plan, derive_seeds, key_material
        >>> plan, seeds = complete_plan(2, 3, 2**8), derive_seeds(key_material(0), jnp.arange(2), 0)
        >>> padded = pad_inputs(seeds, jnp.zeros((2, 3), "uint32"), plan, 0)
        >>> bool((padded[0] == 0).all())
        False
    """
    inputs, present = _checked(seeds, inputs, plan, present)
    return _pad_inputs(seeds, inputs, jnp.asarray(round_index).astype(jnp.uint32), present, plan)


def ring_sum(
    seeds: Seeds,
    inputs: ArrayLike,
    plan: SegmentPlan,
    round_index: ArrayLike,
    *,
    present: ArrayLike | None = None,
    fidelity: Fidelity = "array",
) -> RingResult:
    """Sum the present members' inputs of each block, as the server would.

    Args:
        seeds: Seeds of the round (not read by "sets").
        inputs: uint32[n, d], residues of each block's ring.
        plan: Blocks of the round (static; one compilation serves all rounds).
        round_index: Round, part of the nonce.
        present: bool[n], who answers; everybody if None.
        fidelity: "array": each block is summed from its padded inputs, chunk by chunk, every
            pair's keystream made once and used with both signs, and the self pads are taken off
            again. "sets": the plain modular sum, without pads. The totals are bit-equal.

    Returns:
        The totals and a status for each block: a sum over fewer than two present members is
        withheld (`Status.TOO_FEW_SURVIVORS`, zeros), as it would be an input.

    Raises:
        ConfigurationError: If shapes disagree or the fidelity is unknown.

    Examples:
        >>> from mrsa_jax.secagg import complete_plan, derive_seeds, key_material
        >>> plan = complete_plan(3, 2, 2**8)
        >>> seeds = derive_seeds(key_material(0), jnp.asarray([4, 1, 9]), 0)
        >>> inputs = jnp.asarray([[1, 2], [10, 20], [100, 200]], jnp.uint32)
        >>> ring_sum(seeds, inputs, plan, 0).total.tolist()
        [111, 222]
        >>> here = jnp.asarray([True, False, True])
        >>> ring_sum(seeds, inputs, plan, 0, present=here).total.tolist()
        [101, 202]

    Cost: n (n + 1) / 2 keystreams of d words ("array"; twice that if R is no power of two).
    """
    require(fidelity in ("array", "sets"), "fidelity", 'must be "array" or "sets"', fidelity)
    inputs, present = _checked(seeds, inputs, plan, present)
    index = jnp.asarray(round_index).astype(jnp.uint32)
    return _ring_sum(seeds, inputs, index, present, plan, fidelity == "array")


def _checked(
    seeds: Seeds, inputs: ArrayLike, plan: SegmentPlan, present: ArrayLike | None
) -> tuple[Array, Array]:
    values = jnp.asarray(inputs)
    require(values.dtype == jnp.uint32, "inputs", "must be uint32", values.dtype)
    require(values.ndim == 2, "inputs", "must have the shape [participants, dim]", values.shape)
    participants, dim = values.shape
    members = seeds.client_ids.shape
    require(members == (participants,), "seeds", "must match `inputs`", members, values.shape)
    last = max(block.members[-1] for block in plan)
    stop = max(block.stop for block in plan)
    fits = last < participants and stop <= dim
    require(fits, "plan", "must fit the shape of `inputs`", (last + 1, stop), values.shape)
    here = jnp.ones(participants, jnp.bool_) if present is None else jnp.asarray(present)
    require(here.dtype == jnp.bool_, "present", "must be bool", here.dtype)
    require(here.shape == (participants,), "present", "must match `inputs`", here.shape)
    return values, here


@functools.partial(jax.jit, static_argnames=("plan",))
def _pad_inputs(
    seeds: Seeds, inputs: Array, round_index: Array, present: Array, plan: SegmentPlan
) -> Array:
    padded = jnp.zeros_like(inputs)
    for number, block in enumerate(plan):
        job = _job(seeds, inputs, round_index, present, block, number)
        chunks = lax.map(lambda args, job=job: _padded_chunk(job, *args)[0], job.chunks)
        # [chunk, word, member, column] -> [member, coordinate]
        rows = chunks.transpose(2, 0, 3, 1).reshape(len(block.members), -1)
        width = block.stop - block.start
        where = np.asarray(block.members)
        padded = padded.at[where, block.start : block.stop].set(rows[:, :width])
    return padded


@functools.partial(jax.jit, static_argnames=("plan", "padded"))
def _ring_sum(
    seeds: Seeds,
    inputs: Array,
    round_index: Array,
    present: Array,
    plan: SegmentPlan,
    padded: bool,
) -> RingResult:
    totals, statuses = [], []
    for number, block in enumerate(plan):
        job = _job(seeds, inputs, round_index, present, block, number)
        if padded:
            chunks = lax.map(lambda args, job=job: _server_chunk(job, *args), job.chunks)
            total = chunks.swapaxes(1, 2).reshape(-1)[: block.stop - block.start]
        else:
            rows = inputs[np.asarray(block.members), block.start : block.stop]
            rows = jnp.where(job.present[:, None], rows, jnp.uint32(0))
            total = ring_sum_over(rows, block.modulus)
        enough = jnp.sum(job.present, dtype=jnp.int32) >= jnp.int32(2)
        totals.append(jnp.where(enough, total, jnp.uint32(0)))
        statuses.append(
            jnp.where(enough, jnp.int32(Status.OK), jnp.int32(Status.TOO_FEW_SURVIVORS))
        )
    return RingResult(tuple(totals), jnp.stack(statuses))


class _Job(NamedTuple):
    """One block, ready to be padded: everything but the chunk."""

    self_seed: Array  # uint32[members, 8]
    shifts: tuple[Array, ...]  # of whole turns: distance, seeds and signs of its pairs
    half: tuple[Array, Array]  # seeds and signs of the pairs half a turn apart
    present: Array  # bool[members]
    nonces: tuple[Array, Array]  # of pair and self pads
    modulus: int
    chunks: tuple[Array, Array]  # first block counter, inputs [chunk, word, member, column]


def _job(
    seeds: Seeds, inputs: Array, round_index: Array, present: Array, block: Block, number: int
) -> _Job:
    members = jnp.asarray(block.members, jnp.int32)
    here = present[members]
    segment = jnp.uint32(number)
    turns, half = turn_schedule(block, inputs.shape[0])
    signs = _signs(seeds.client_ids[members], here)
    whole = np.arange(len(block.members))
    distances = np.arange(1, len(turns) + 1)
    partners = (whole[None, :] + distances[:, None]) % len(whole)
    halves = whole[: len(half)]
    return _Job(
        self_seed=seeds.self_seed[members],
        shifts=(
            jnp.asarray(distances, jnp.int32),
            seeds.pair_seed[turns],
            signs[whole[None, :], partners],
        ),
        half=(seeds.pair_seed[half], signs[halves, halves + len(half)]),
        present=here,
        nonces=(
            jnp.stack([jnp.uint32(_PAIR_PAD), segment, round_index]),
            jnp.stack([jnp.uint32(_SELF_PAD), segment, round_index]),
        ),
        modulus=block.modulus,
        chunks=_chunks(inputs[members, block.start : block.stop], block.modulus),
    )


def _signs(ids: Array, present: Array) -> Array:
    """Return int32[members, members]: 1 where the row adds the pair's pad, -1, 0 for no pad."""
    order = jnp.where(ids[:, None] < ids[None, :], jnp.int32(1), jnp.int32(-1))
    return jnp.where(present[:, None] & present[None, :], order, jnp.int32(0))


def _chunks(values: Array, modulus: int) -> tuple[Array, Array]:
    """Cut inputs into chunks of keystream blocks, a block being a column.

    Transposing the inputs once spares transposing every stream.
    """
    members, dim = values.shape
    residues = 16 // words_per_residue(modulus)
    blocks = -(-dim // residues)
    count = -(-blocks // max(_SMALLEST_CHUNK, _CHUNK_COLUMNS // members))
    width = -(-blocks // count)
    values = jnp.pad(values, ((0, 0), (0, count * width * residues - dim)))
    columns = values.reshape(members, count, width, residues).transpose(1, 3, 0, 2)
    return jnp.arange(count, dtype=jnp.uint32) * jnp.uint32(width), columns


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


def _signed(values: Array, pads: Array, signs: Array, modulus: int) -> Array:
    """Return values + signs * pads in the ring, signs int32[seeds] in {-1, 0, 1}."""
    signs = signs[None, :, None]
    plus = jnp.where(signs == jnp.int32(1), pads, jnp.uint32(0))
    minus = jnp.where(signs == jnp.int32(-1), pads, jnp.uint32(0))
    return subtract(add(values, plus, modulus), minus, modulus)


def _padded_chunk(
    job: _Job, counter: Array, values: UInt32[Array, "word members column"]
) -> tuple[Array, Array]:
    """Return the padded inputs of one chunk, and the sum of the present members' self pads.

    The complete graph is walked in turns: at distance s every member i meets member i + s (mod
    n), so that a turn is one array operation; for even n, half a turn pairs everybody once.
    """
    (_, members, width), modulus = values.shape, job.modulus

    def turn(padded: Array, step: tuple[Array, ...]) -> tuple[Array, None]:
        distance, seeds, signs = step
        pads = _pads(seeds, job.nonces[0], counter, width, modulus)
        padded = _signed(padded, pads, signs, modulus)
        start = jnp.int32(members) - distance
        met = lax.dynamic_slice_in_dim(jnp.concatenate([pads, pads], 1), start, members, 1)
        opposite = -lax.dynamic_slice_in_dim(jnp.concatenate([signs, signs]), start, members)
        return _signed(padded, met, opposite, modulus), None

    padded = jnp.where(job.present[None, :, None], values, jnp.uint32(0))
    padded, _ = lax.scan(turn, padded, job.shifts)
    if members % 2 == 0:
        seeds, signs = job.half
        pads = _pads(seeds, job.nonces[0], counter, width, modulus)
        both, signs = jnp.concatenate([pads, pads], 1), jnp.concatenate([signs, -signs])
        padded = _signed(padded, both, signs, modulus)
    own = _pads(job.self_seed, job.nonces[1], counter, width, modulus)
    own = jnp.where(job.present[None, :, None], own, jnp.uint32(0))
    return add(padded, own, modulus), ring_sum_over(own, modulus, axis=1)


def _server_chunk(job: _Job, counter: Array, values: Array) -> Array:
    """Sum one chunk of padded inputs and take the self pads off, [word, column]."""
    padded, removed = _padded_chunk(job, counter, values)
    return subtract(ring_sum_over(padded, job.modulus, axis=1), removed, job.modulus)
