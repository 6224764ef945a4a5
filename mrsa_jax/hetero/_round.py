"""One round of a layout: who is summed, what can be unmasked, and each segment's ring sums.

Shared by `aggregate` and `segment_average`. HeteroSAg, Section II-C; CCESA, Definition 3 and
Theorem 1 for what the shares that come back give away. Symbols: V0 to V4 -> rows of `survivors`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from mrsa_jax._status import Status
from mrsa_jax._streams import Stream, fold
from mrsa_jax.hetero._coding import block_averages, combine_row, decode_row, encode_row
from mrsa_jax.hetero._layout import SegmentLayout, SegmentRow
from mrsa_jax.secagg import Seeds, ring_sum

__all__ = ["Fidelity", "SummedRound", "code_row", "judge", "row_totals", "row_update"]

Fidelity = Literal["sets", "array", "real"]
# Second step of an attack's random path; a client's second step is a segment's number.
_ATTACK = 0x61747400


class SummedRound(NamedTuple):
    """Who is in a round's sums.

    Attributes:
        survivors: bool[5, n], V3 as far as it is admitted to the sums.
        status: Of the round: OK if all sums over admitted clients can be unmasked.
        block_status: int32[blocks].
        counts: int32[blocks], clients summed in each block whose status is OK.
    """

    survivors: np.ndarray
    status: Status
    block_status: np.ndarray
    counts: np.ndarray

    @property
    def summed(self) -> Bool[np.ndarray, " participants"]:
        """Return who is in the round's mean; nobody unless the status is OK."""
        return np.asarray(self.survivors[3] & (self.status == Status.OK))


def judge(
    layout: SegmentLayout,
    adjacency: Bool[np.ndarray, "n n"] | None,
    survivors: Bool[np.ndarray, "5 n"],
    thresholds: np.ndarray | None,
) -> SummedRound:
    """Decide a round (see `SegmentLayout.outcome`)."""
    found = layout.outcome(survivors, thresholds, adjacency=adjacency)
    alive = survivors.copy()
    alive[3] = found.summed
    ok = found.block_status == int(Status.OK)
    counts = [found.summed[list(block.members)].sum() for block in layout.blocks]
    return SummedRound(alive, found.status, found.block_status,
                       np.where(ok, counts, 0).astype(np.int32))  # fmt: skip


def code_row(
    key: Array,
    values: Array,
    members: Array,
    layout: SegmentLayout,
    row: SegmentRow,
    bounds: Array,
    byzantine: Any,
    mine: Array | None,
    sent: Bool[np.ndarray, " participants"],
) -> tuple[Array, Array]:
    """Return what the clients put under their pads in one segment, and how many were clipped.

    Attackers (`mine`) change their update before it is rounded, or send other residues. They see
    the rows of V3 (`sent`) and no others: what colludes goes by the honest clients' mean.
    """
    if byzantine is None or mine is None:
        return encode_row(key, values, members, layout, row, bounds)
    attack = fold(key, int(Stream.ATTACK), _ATTACK + row.segment)
    seen = jnp.asarray(np.flatnonzero(sent))
    values = _corrupt_updates(byzantine, fold(attack, 0), values, mine, seen)
    codes, outside = encode_row(key, values, members, layout, row, bounds)
    for modulus in sorted({int(modulus) for modulus in row.modulus_of}):
        theirs = mine & jnp.asarray(row.modulus_of == np.uint32(modulus))
        own = fold(attack, 1, modulus % 2**31)
        codes = _corrupt_residues(byzantine, own, codes, jnp.uint32(modulus), theirs)
    return codes, outside


@jax.jit
def _corrupt_updates(byzantine: Any, key: Array, values: Array, mine: Array, seen: Array) -> Array:
    return values.at[seen].set(byzantine.corrupt_updates(key, values[seen], mine[seen]))


@jax.jit
def _corrupt_residues(byzantine: Any, key: Array, codes: Array, modulus: Array, mine: Array) -> Any:
    return byzantine.corrupt_residues(key, codes, modulus, mine)


def row_totals(
    fidelity: str,
    seeds: Seeds | None,
    codes: UInt32[Array, "n w"],
    row: SegmentRow,
    round_index: Any,
    round_: SummedRound,
) -> UInt32[Array, "blocks w"]:
    """Return the ring sums of one segment's blocks; zeros where a sum is withheld."""
    counts = counts_of(round_, row)
    if seeds is None or fidelity == "sets":
        here = jnp.asarray(round_.survivors[3])
        slots, moduli = jnp.asarray(row.slots), jnp.asarray(row.moduli)
        return _plain_row(codes, slots, here, moduli, jnp.asarray(counts))
    sums = ring_sum(
        seeds, codes, row.plan, round_index, survivors=round_.survivors, fidelity="array",
        first_block=row.first_block,
    )  # fmt: skip
    table = np.zeros((len(row.moduli), row.stop - row.start), np.uint32)
    table[: len(row.plan)] = [np.asarray(total) for total in sums.totals]
    table[counts == 0] = 0
    return jnp.asarray(table)


def counts_of(round_: SummedRound, row: SegmentRow) -> Int32[np.ndarray, " blocks"]:
    """Return how many clients each block of a row sums, zeros beyond the last."""
    counts = np.zeros(len(row.moduli), np.int32)
    own = round_.counts[row.first_block : row.first_block + len(row.plan)]
    counts[: len(own)] = own
    return counts


@jax.jit
def _plain_row(
    codes: UInt32[Array, "n w"],
    slots: Int32[Array, "blocks members"],
    summed: Bool[Array, " n"],
    moduli: UInt32[Array, " blocks"],
    counts: Int32[Array, " blocks"],
) -> UInt32[Array, "blocks w"]:
    """Add the residues of each block's summed members modulo its R (0: 2^32)."""
    last = jnp.int32(codes.shape[0] - 1)
    place = jnp.minimum(slots, last)
    here = (slots <= last) & summed[place] & (counts > 0)[:, None]
    values = jnp.where(here[:, :, None], codes[place], jnp.uint32(0))
    # halves of 16 bits do not overflow for fewer than 2^16 members
    low = jnp.sum(values & jnp.uint32(0xFFFF), axis=1, dtype=jnp.uint32)
    high = jnp.sum(values >> jnp.uint32(16), axis=1, dtype=jnp.uint32)
    modulus = jnp.maximum(moduli, jnp.uint32(1))[:, None]

    def double(_: Any, residue: Array) -> Array:
        twice = residue + residue  # R is at most 2^31
        return jnp.minimum(twice, twice - modulus)

    shifted = lax.fori_loop(0, 16, double, high % modulus)
    total = shifted + low % modulus
    total = jnp.minimum(total, total - modulus)
    wrapped = low + (high << jnp.uint32(16))
    return jnp.where((moduli == 0)[:, None], wrapped, total)


def row_update(
    key: Array,
    totals: UInt32[Array, "blocks w"],
    row: SegmentRow,
    round_: SummedRound,
    bounds: Array,
    combine: Any,
    byzantine: Any,
    mine: Array | None,
) -> Array:
    """Return one segment of the update: the plain mean, or a rule over the blocks' averages."""
    counts, levels = jnp.asarray(counts_of(round_, row)), jnp.asarray(row.block_levels)
    if combine is None and byzantine is None:
        return decode_row(totals, counts, levels, bounds)
    averages = block_averages(totals, counts, levels, bounds)
    if byzantine is not None and mine is not None:
        attack = fold(key, int(Stream.ATTACK), _ATTACK + row.segment, 2)
        touching = mine & jnp.asarray(round_.survivors[3])
        averages = _corrupt_averages(
            byzantine, attack, averages, jnp.asarray(row.slots), touching, counts
        )
    return combine_row(combine, averages, counts)


@jax.jit
def _corrupt_averages(
    byzantine: Any, key: Array, averages: Array, slots: Array, mine: Array, counts: Array
) -> Array:
    last = jnp.int32(mine.shape[0] - 1)
    touched = jnp.any((slots <= last) & mine[jnp.minimum(slots, last)], axis=1) & (counts > 0)
    keys = jax.vmap(lambda block: jax.random.fold_in(key, block))(
        jnp.arange(averages.shape[0], dtype=jnp.int32)
    )
    return jnp.asarray(jax.vmap(byzantine.corrupt_average)(keys, averages, touched))
