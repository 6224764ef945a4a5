"""Padded inputs and the sum the server gets from them.

Every client of V2 shares a pad PRG(s_ij) with each neighbour: of the clients whose
inputs arrive (V3), i adds it where i < j and subtracts it where i > j (global ids), and
adds its self pad PRG(b_i). The server sums what arrives and takes off the self pads,
and the pairs' pads with clients of V2 whose inputs did not arrive. Pads are ChaCha20
keystream (RFC 8439) with round and block in the nonce, so none is used twice.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once, map_tiles
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.prime import is_power_of_two, words_per_residue
from mrsa_jax._core.status import FEWEST_IN_A_SUM, Status
from mrsa_jax._core.threads import start_over_cores
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular import Ring, ring_sum_over
from mrsa_jax.secagg._pad_arrays import (
    classes_of,
    edge_places,
    members_of,
    pads_by_arrays,
    rings_of,
)
from mrsa_jax.secagg._pad_tables import PAIR_PAD, SELF_PAD, Edges, Round, status_of
from mrsa_jax.secagg.plans import Block, RingResult, SegmentPlan
from mrsa_jax.secagg.seeds import Seeds, edge_rows, nonce_word, padded_length
from mrsa_watch._base.errors import require

Fidelity = Literal["array", "sets"]


def pad_inputs(
    seeds: Seeds,
    inputs: ArrayLike,
    plan: SegmentPlan,
    round_index: ArrayLike,
    *,
    present: ArrayLike | None = None,
    survivors: ArrayLike | None = None,
) -> UInt32[Array, "participants dim"]:
    """Pad the inputs of all clients, as they send them.

    Args:
        seeds: Seeds of the round; their edges say who shares pads.
        inputs: uint32[n, d], residues of each block's ring.
        plan: Blocks of the round (static).
        round_index: Round, part of the nonce.
        present: bool[n], who answers, where nobody is lost once pads are shared;
            everybody if None.
        survivors: bool[5, n], V0 to V4, instead of `present`: pads are shared with all
            neighbours in V2, and V3 sends.

    Returns:
        uint32[n, d]: residues that look uniform to anyone without the seeds; zeros for
        the absent and for coordinates outside a client's blocks.

    Raises:
        ConfigurationError: If shapes disagree.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> plan, seeds = (
        ...     mj.secagg.complete_plan(2, 3, 2**8),
        ...     mj.secagg.derive_seeds(mj.secagg.key_material(0), jnp.arange(2), 0),
        ... )
        >>> padded = mj.secagg.pad_inputs(seeds, jnp.zeros((2, 3), "uint32"), plan, 0)
        >>> bool((padded[0] == 0).all())
        False

    Source: CCESA, eq. (3); with the complete graph Bonawitz et al. (2017), eq. (1)
    there.
    """
    round_ = checked_round(seeds, inputs, plan, round_index, present, survivors)
    return padded_and_sum(round_, plan)[0]


def ring_sum(
    seeds: Seeds,
    inputs: ArrayLike,
    plan: SegmentPlan,
    round_index: ArrayLike,
    *,
    present: ArrayLike | None = None,
    survivors: ArrayLike | None = None,
    fidelity: Fidelity = "array",
    first_block: ArrayLike = 0,
) -> RingResult:
    """Sum the present members' inputs of each block.

    The result is that of a server who recovers every secret.

    Args:
        seeds: Seeds of the round; their edges say who shares pads (not read by "sets").
        inputs: uint32[n, d], residues of each block's ring.
        plan: Blocks of the round (static).
        round_index: Round, part of the nonce.
        present: bool[n], who answers, where nobody is lost once pads are shared;
            everybody if None.
        survivors: bool[5, n], V0 to V4, instead of `present`: pads are shared within
            V2, the sum is over V3, and the pads that V3 shares with the rest of V2 are
            removed again.
        fidelity: "array": each block is summed from its padded inputs, chunk by chunk,
            every pair's keystream made once and used with both signs, and what the
            server removes is taken off again. "sets": the plain modular sum, without
            pads. The totals are bit-equal.
        first_block: Number of the plan's first block, part of its nonces: where a long
            plan runs in parts, each part continues where the last one ended, so that
            the pads are those of the whole and none comes twice.

    Returns:
        The totals and a status for each block: a sum over fewer than two present
        members is withheld (`Status.TOO_FEW_SURVIVORS`, zeros), as it would be an
        input.

    Raises:
        ConfigurationError: If shapes disagree or the fidelity is unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> plan = mj.secagg.complete_plan(3, 2, 2**8)
        >>> seeds = mj.secagg.derive_seeds(
        ...     mj.secagg.key_material(0), jnp.asarray([4, 1, 9]), 0
        ... )
        >>> inputs = jnp.asarray([[1, 2], [10, 20], [100, 200]], jnp.uint32)
        >>> mj.secagg.ring_sum(seeds, inputs, plan, 0).total.tolist()
        [111, 222]
        >>> here = jnp.asarray([True, False, True])
        >>> mj.secagg.ring_sum(seeds, inputs, plan, 0, present=here).total.tolist()
        [101, 202]

    Cost: a keystream of d words for each client and edge ("array"; twice that if R is
    no power of two); on NVIDIA GPUs, where one kernel does it and keeps none of it, at
    both ends of each edge. On the CPU compiled loops do it where numba is installed,
    elsewhere and under `jit` XLA; the bits are the same.

    Source: CCESA, eq. (4).
    """
    require(
        fidelity in ("array", "sets"), "fidelity", 'must be "array" or "sets"', fidelity
    )
    round_ = checked_round(seeds, inputs, plan, round_index, present, survivors)
    if fidelity == "sets":
        return plain_sums(round_.inputs, round_.sends, plan)
    round_ = round_._replace(first=nonce_word(first_block, "first_block"))
    return padded_and_sum(round_, plan, padded=False)[1]


def padded_and_sum(
    round_: Round,
    plan: SegmentPlan,
    *,
    padded: bool = True,
) -> tuple[Array, RingResult]:
    """Return padded inputs (no rows unless `padded`) and sums, from one set of pads."""
    # The same bits in every form. `_pad_loops` makes each keystream in cache and adds
    # it to both of its ends at once; `_pad_arrays` does so in chunks of memory, or by a
    # kernel. What is traced cannot look at who is there, so it works with all edges and
    # masks.
    if chosen_form(("loops", "xla", "pallas"), round_) == "loops":
        return _compiled(round_, plan, padded)
    if not is_traced(round_):
        return _arrays(round_, plan, padded)
    everything = tuple(
        Edges(edge_places(block, round_), round_.seeds.pair_seed) for block in plan
    )
    return pads_by_arrays(round_, everything, plan, padded)


def checked_round(
    seeds: Seeds,
    inputs: ArrayLike,
    plan: SegmentPlan,
    round_index: ArrayLike,
    present: ArrayLike | None = None,
    survivors: ArrayLike | None = None,
) -> Round:
    """Return a round after checking that its parts fit."""
    values = _array(inputs)
    require(values.dtype == np.uint32, "inputs", "must be uint32", values.dtype)
    rule = "must have the shape [participants, dim]"
    require(values.ndim == 2, "inputs", rule, values.shape)
    participants, dim = values.shape
    ids = seeds.client_ids.shape
    require(
        ids == (participants,),
        "seeds",
        "must match `inputs`",
        ids,
        values.shape,
    )
    rows = seeds.pair_seed.shape[0]
    edges = seeds.edges.shape[0]
    require(rows == edges, "seeds", "must have a pair seed for each edge", rows, edges)
    needed = (
        max(block.members[-1] for block in plan) + 1,
        max(block.stop for block in plan),
    )
    require(
        needed[0] <= participants and needed[1] <= dim,
        "plan",
        "must fit the shape of `inputs`",
        needed,
        values.shape,
    )
    require(
        present is None or survivors is None,
        "present",
        "must not be set if `survivors` is given",
    )
    if survivors is not None:
        shape = (5, participants)
        rule = f"must have the shape {shape}"
        steps = _checked_flags(survivors, "survivors", shape, rule)
        shares = steps[2]
        sends = steps[3]
    else:
        everybody = np.ones(participants, np.bool_) if present is None else present
        rule = "must match `inputs`"
        shares = sends = _checked_flags(everybody, "present", (participants,), rule)
    number = nonce_word(round_index, "round_index")
    return Round(seeds, values, shares, sends, number, np.uint32(0))


def _checked_flags(
    flags: object,
    argument: str,
    shape: tuple[int, ...],
    rule: str,
) -> Any:
    array = _array(flags)
    require(array.dtype == np.bool_, argument, "must be bool", array.dtype)
    require(array.shape == shape, argument, rule, array.shape)
    return array


def _array(values: object) -> Any:
    """Return an array of JAX as it is, anything else as one of NumPy."""
    return values if isinstance(values, jax.Array) else np.asarray(values)


@functools.partial(jax.jit, static_argnames=("plan",))
def plain_sums(inputs: Array, sends: Array, plan: SegmentPlan) -> RingResult:
    """Sum without pads, blocks of one kind of ring and about one size at once."""
    totals: list[Any] = [None] * len(plan)
    statuses: list[Any] = [None] * len(plan)
    for numbers in classes_of(plan):
        blocks = [plan[number] for number in numbers]
        size = max(len(block.members) for block in blocks)
        width = max(block.stop - block.start for block in blocks)
        # a shorter block at the end of the inputs reads what lies before it, too
        starts = [min(block.start, inputs.shape[1] - width) for block in blocks]
        sum_block = functools.partial(
            _plain_sum, on_device(inputs), on_device(sends), width
        )
        members = members_of(blocks, size, -1)
        items = (members, np.asarray(starts, np.int32), rings_of(blocks))
        sums, status = map_tiles(
            sum_block, items, at_once("segments", 4 * size * width)
        )
        for at, (number, block) in enumerate(zip(numbers, blocks, strict=True)):
            first = block.start - starts[at]
            totals[number] = sums[at, first : first + block.stop - block.start]
            statuses[number] = status[at]
    return RingResult(tuple(totals), jnp.stack(statuses))


def _plain_sum(
    inputs: Array,
    sends: Array,
    width: int,
    item: tuple[Array, Array, Ring],
) -> tuple[Array, Array]:
    """Sum the inputs of some members who send, from a coordinate on.

    Of none if they are few.
    """
    members, start, ring = item
    here = sends[members] & (members >= 0)

    def row_of(member: Array) -> Array:
        return lax.dynamic_slice(inputs, (member, start), (1, width))[0]

    rows = jax.vmap(row_of)(jnp.maximum(members, 0))
    total = ring_sum_over(jnp.where(here[:, None], rows, 0), ring)
    status = status_of(jnp.sum(here, dtype=jnp.int32))
    return jnp.where(status == jnp.int32(Status.OK), total, 0), status


def _all_pairs(size: int) -> np.ndarray:
    """Return the pairs of places of a complete block."""
    return np.stack(np.triu_indices(size, 1), axis=1).astype(np.int32)


_few_pairs = functools.lru_cache(maxsize=64)(_all_pairs)
"""The same for a small block, which every round needs again: never written to."""
_FEW = 128


class _Pairs:
    """Index a round's pairs, so that those of a block are found without a search."""

    def __init__(self, round_: Round) -> None:
        self.shares, self.sends = np.asarray(round_.shares), np.asarray(round_.sends)
        self.ids = np.asarray(round_.seeds.client_ids)
        self.edges = np.asarray(round_.seeds.edges)
        self.seeds = np.asarray(round_.seeds.pair_seed)
        count = len(self.ids)
        self.is_complete = len(self.edges) == count * (count - 1) // 2
        self.codes = self.edges[:, 0].astype(np.int64) * count + self.edges[:, 1]
        self.is_sorted = bool((self.codes[1:] > self.codes[:-1]).all())

    def inside(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Find the pairs within a block: their rows, and places among its members."""
        members = np.asarray(block.members, np.int64)
        size, count = len(members), len(self.ids)
        if not self.is_sorted or size * (size - 1) // 2 > len(self.edges):
            place = np.full(count, -1, np.int32)
            place[members] = np.arange(size, dtype=np.int32)
            places = place[self.edges]
            rows = np.flatnonzero((places >= 0).all(axis=1))
            return rows, places[rows]
        places = _few_pairs(size) if size <= _FEW else _all_pairs(size)
        codes = members[places[:, 0]] * count + members[places[:, 1]]
        if self.is_complete:  # sorted and all of them: the row follows from the pair
            return edge_rows(
                members[places[:, 0]], members[places[:, 1]], count
            ), places
        rows = np.searchsorted(self.codes, codes)
        is_pair = self.codes[np.minimum(rows, len(self.codes) - 1)] == codes
        return rows[is_pair], places[is_pair]

    def used(self, block: Block) -> Edges:
        """Return the pairs within V2 of which one sends.

        Who adds first, then who subtracts.
        """
        rows, places = self.inside(block)
        ends = np.asarray(block.members)[places]
        used = self.shares[ends].all(axis=1) & self.sends[ends].any(axis=1)
        rows, places, ids = rows[used], places[used], self.ids[ends[used]]
        # the smaller global id adds the pad, the larger subtracts it
        ordered = np.where((ids[:, 0] > ids[:, 1])[:, None], places[:, ::-1], places)
        return Edges(np.ascontiguousarray(ordered, np.int32), self.seeds[rows])


def _compiled(
    round_: Round,
    plan: SegmentPlan,
    padded: bool,
) -> tuple[Array, RingResult]:
    from mrsa_jax._core.chacha20_loops import TILE
    from mrsa_jax.secagg._pad_loops import pad_tiles

    inputs = np.ascontiguousarray(round_.inputs)
    sends = np.asarray(round_.sends)
    self_seed = np.asarray(round_.seeds.self_seed)
    out = np.zeros(inputs.shape if padded else (0, inputs.shape[1]), np.uint32)
    pairs = _Pairs(round_)
    totals = []
    statuses = []
    running: list[Any] = []
    first = int(round_.first)
    index = round_.index
    for number, block in enumerate(plan, first):
        members = np.asarray(block.members, np.int32)
        here = sends[members]
        total = np.zeros(block.stop - block.start, np.uint32)
        enough = here.sum() >= FEWEST_IN_A_SUM
        if padded or enough:
            edges = pairs.used(block)
            nonces = [[PAIR_PAD, number, index], [SELF_PAD, number, index]]
            is_power = is_power_of_two(block.modulus)
            pad = functools.partial(
                pad_tiles,
                inputs,
                block.start,
                block.stop,
                members,
                here,
                edges.places,
                edges.seeds,
                np.ascontiguousarray(self_seed[members]),
                np.asarray(nonces, np.uint32),
                () if is_power else (np.uint64(block.modulus << 32),),
                np.uint32(block.modulus - 1 if is_power else 2**32 - 1),
                out,
                total,
            )
            tiles = -(-len(total) * words_per_residue(block.modulus) // TILE)
            # more parts than cores: a core that is kept waiting holds up one part, not
            # half of the work
            parts = min(4 * num_cores(), tiles)
            bounds = np.linspace(0, tiles, parts + 1).astype(int).tolist()
            running += start_over_cores(pad, bounds[:-1], bounds[1:])
        totals.append(total)
        statuses.append(Status.OK if enough else Status.TOO_FEW_SURVIVORS)
    for job in running:
        job.result()
    for total, status in zip(totals, statuses, strict=True):
        if status != Status.OK:
            total[:] = 0
    # nothing else holds these arrays, so the device may share their memory
    *sums, status, sent = jax.device_put((*totals, np.asarray(statuses, np.int32), out))
    return sent, RingResult(tuple(sums), status)


def _arrays(round_: Round, plan: SegmentPlan, padded: bool) -> tuple[Array, RingResult]:
    """Pass only the pairs within each block, in shapes of which there are few."""
    chosen, pairs = [], _Pairs(round_)
    for block in plan:
        rows, places = pairs.inside(block)
        pad = ((0, padded_length(len(rows)) - len(rows)), (0, 0))
        places = np.pad(places, pad, constant_values=-1)
        chosen.append(Edges(places, np.pad(pairs.seeds[rows], pad)))
    # the seeds' own edge list may have any length: it must not become a shape to
    # compile for
    edges, pair_seed = jnp.zeros((0, 2), jnp.int32), jnp.zeros((0, 8), jnp.uint32)
    bare = dataclasses.replace(round_.seeds, edges=edges, pair_seed=pair_seed)
    return pads_by_arrays(round_._replace(seeds=bare), tuple(chosen), plan, padded)
