"""Prepare the tables that array forms of a padded round work from.

A block's streams, and the clients that add them. A stream is the keystream of one seed.
Of each client's streams those come first that another sender cancels, then those that
the server removes: its self pad, and its pairs' pads with clients of V2 whose inputs
did not arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from mrsa_jax._core.prime import multiply_wide
from mrsa_jax._core.status import FEWEST_IN_A_SUM, Status
from mrsa_jax.modular import Ring, reduce_words, subtract
from mrsa_jax.secagg.seeds import Seeds

# First nonce word of a pad: pair and self streams can never meet, whatever the seeds.
PAIR_PAD, SELF_PAD = 1, 2


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

    # int32[E, 2], places among the block's members; -1 where there is no pair
    places: Any
    seeds: Any  # uint32[E, 8]


class Place(NamedTuple):
    """Where in the inputs a block lies, and its number."""

    members: Any  # int32[m], n beyond the last
    start: Any  # int32
    stop: Any  # int32
    number: Any  # uint32, part of its nonces


class Table(NamedTuple):
    """One block's streams and uses of them.

    Row 2i of the uses is what client i adds that another sender cancels, row 2i + 1
    what it adds that the server removes: `uses[heads[row]:heads[row + 1]]`.
    """

    sends: Array  # bool[m]
    seeds: Array  # uint32[streams, 8]
    labels: Array  # uint32[streams]
    heads: Array  # int32[2m + 1]
    uses: Array  # int32[uses], twice the stream, plus 1 where it is subtracted


def status_of(count: Array) -> Array:
    enough = count >= FEWEST_IN_A_SUM
    return jnp.where(enough, jnp.int32(Status.OK), jnp.int32(Status.TOO_FEW_SURVIVORS))


def table_of(round_: Round, edges: Edges, place: Place) -> Table:
    """Sort a block's uses of streams by client."""
    clients = round_.inputs.shape[0]
    is_member = jnp.asarray(place.members) < clients
    members = jnp.minimum(jnp.asarray(place.members), clients - 1)
    shares = jnp.asarray(round_.shares)[members] & is_member
    sends = jnp.asarray(round_.sends)[members] & is_member
    places, pair_seeds = jnp.asarray(edges.places), jnp.asarray(edges.seeds)
    size, pairs = members.shape[0], places.shape[0]
    # where edges are traced, those that are absent are pairs of a client with itself
    is_pair = jnp.all(places >= 0, axis=1) & (places[:, 0] != places[:, 1])
    shared = is_pair & jnp.all(shares[places], axis=1)
    ids = jnp.asarray(round_.seeds.client_ids)[members][places]
    # each pair is used twice, by either end; unused ones sort to the last row
    rows, uses = [], []
    for me in (0, 1):
        senders, other = places[:, me], places[:, 1 - me]
        is_lost = (~sends[other]).astype(jnp.int32)
        used = shared & sends[senders]
        rows.append(jnp.where(used, 2 * senders + is_lost, 2 * size))
        is_larger = (ids[:, me] > ids[:, 1 - me]).astype(jnp.int32)
        uses.append(2 * jnp.arange(pairs, dtype=jnp.int32) + is_larger)
    slots = jnp.arange(size, dtype=jnp.int32)
    rows.append(jnp.where(sends, 2 * slots + 1, 2 * size))
    uses.append(2 * (slots + pairs))
    # uses of a row now stand together: `heads` are where the rows begin
    keys, values = lax.sort((jnp.concatenate(rows), jnp.concatenate(uses)), num_keys=1)
    # unrolled: one program of gathers instead of a loop
    every = jnp.arange(2 * size + 1, dtype=jnp.int32)
    heads = jnp.searchsorted(keys, every, method="scan_unrolled")
    labels = jnp.where(
        jnp.arange(pairs + size) < pairs, jnp.uint32(PAIR_PAD), jnp.uint32(SELF_PAD)
    )
    seeds = jnp.concatenate([pair_seeds, jnp.asarray(round_.seeds.self_seed)[members]])
    return Table(sends, seeds, labels, heads.astype(jnp.int32), values)


def residues_of(is_power: bool) -> int:
    """Return the number of residues in a block of keystream."""
    return 16 if is_power else 8


def nothing(shape: tuple[int, ...], is_power: bool) -> tuple[Array, ...]:
    """Return an empty sum of pads.

    Words that wrap for 2^b, else three words of 96 bits.
    """
    return (jnp.zeros(shape, jnp.uint32),) * (1 if is_power else 3)


def tallied(
    tally: tuple[Array, ...],
    words: Sequence[Array],
    flip: Array,
    only: Array | None = None,
) -> tuple[Array, ...]:
    """Add pads to a sum, or subtract them where `flip` is all ones and not zero.

    For R that is no power of two -x is added as 2^64 - 1 - x; `settled` takes off the
    rest.

    Args:
        tally: As from `nothing`.
        words: Words of 2^b, else low and high words of 64 bits.
        flip: As said.
        only: All ones, or zero where there is no pad; None for all ones.
    """
    shape = words[0].shape
    turned = [word ^ jnp.broadcast_to(flip, shape) for word in words]
    if len(tally) == 1:
        turned = [turned[0] - jnp.broadcast_to(flip, shape)]
    if only is not None:
        turned = [word & jnp.broadcast_to(only, shape) for word in turned]
    low = tally[0] + turned[0]
    if len(tally) == 1:
        return (low,)
    # an unsigned sum that is smaller than a summand has overflowed
    carried = (low < turned[0]).astype(jnp.uint32)
    middle = tally[1] + turned[1]
    over = (middle < turned[1]).astype(jnp.uint32)
    whole = middle + carried
    return low, whole, tally[2] + over + (whole < carried).astype(jnp.uint32)


def settled(tally: tuple[Array, ...], subtracted: Array, ring: Ring) -> Array:
    """Return the residues that a sum of fewer than 2^32 pads stands for.

    Args:
        tally: As from `tallied`.
        subtracted: How many of the pads were subtracted.
        ring: R.
    """
    if len(tally) == 1:
        return tally[0] & ring.low_bits
    low, middle, high = tally
    residues = reduce_words(reduce_words(high, middle, ring), low, ring)
    ones = jnp.uint32(2**32 - 1)
    each = jnp.broadcast_to(reduce_words(ones, ones, ring), subtracted.shape)
    # each subtraction added 2^64 - 1 too much
    excess = reduce_words(*multiply_wide(subtracted, each), ring)
    return subtract(residues, jnp.broadcast_to(excess, residues.shape), ring)
