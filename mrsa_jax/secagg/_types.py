"""What a round of secure sums consists of.

A static plan, the seeds of its pads, its result.
SecAgg, SecAgg+ and CCESA are plans of one block; HeteroSAg (segments l, groups g, rings
R) is a plan of many. The same plan drives the array simulation and the real protocol.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, UInt32

from mrsa_jax._core.arrays import host_array, on_device, pytree
from mrsa_jax.modular import chacha20_columns, check_modulus
from mrsa_jax.quantize.budgets import check_fits
from mrsa_jax.secagg._conditions import check_round
from mrsa_watch._base.errors import check_integer, is_integer, require


@dataclasses.dataclass(frozen=True)
class Block:
    """One secure sum of a round: some participants over some coordinates in one ring.

    Attributes:
        members: Participants (slots 0..n-1 of the round), ascending.
        start: First coordinate.
        stop: One past the last coordinate.
        modulus: R of the sum's ring.
        levels: Levels of the codes that are summed, or None for residues of no known
            range.
    """

    members: tuple[int, ...]
    start: int
    stop: int
    modulus: int
    levels: int | None = None


SegmentPlan = tuple[Block, ...]


@pytree
class Seeds:
    """The 256-bit seeds of one round's pads.

    Attributes:
        client_ids: int32[n], global ids: of a pair, the smaller id adds the pad and the
            larger one subtracts it.
        self_seed: uint32[n, 8], b_i of each participant, fresh in every round.
        pair_seed: uint32[E, 8], s_ij of each pair of slots that shares one.
        edges: int32[E, 2], those pairs i < j in lexicographic order; all n (n - 1) / 2
            of them in the complete graph.
    """

    client_ids: Array
    self_seed: Array
    pair_seed: Array
    edges: Array


def only_total(result: Any) -> Any:
    """Return the only block's sum; raises for a plan of many."""
    require(
        len(result.totals) == 1,
        "total",
        "needs a plan of one block",
        len(result.totals),
    )
    return result.totals[0]


@pytree
class RingResult:
    """What the server learns from a round, block by block.

    Attributes:
        totals: One uint32[stop - start] for each block: the sum of its present members'
            inputs mod R; zeros where the sum was withheld.
        status: int32[blocks], a `Status` for each block.
    """

    totals: tuple[Array, ...]
    status: Array

    total = property(only_total)


def complete_plan(
    num_participants: int | np.integer,
    dim: int | np.integer,
    modulus: int | np.integer,
    *,
    levels: int | np.integer | None = None,
) -> SegmentPlan:
    """Plan one sum of everybody over all coordinates, in one ring.

    Args:
        num_participants: n, at least 1.
        dim: d, at least 1.
        modulus: R (see `modular.check_modulus`).
        levels: Levels of the codes, if the plan is to check that n of them fit.

    Returns:
        A plan of one block.

    Raises:
        ConfigurationError: If an argument is out of range or the sum could wrap round.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.complete_plan(3, 10, 2**16)[0].members
        (0, 1, 2)
    """
    members = tuple(range(check_integer(num_participants, "num_participants", 1)))
    bound = None if levels is None else int(levels)
    block = Block(
        members, 0, check_integer(dim, "dim", 1), check_modulus(modulus), bound
    )
    return segment_plan([block], num_participants, dim)


def segment_plan(
    blocks: Any, num_participants: int | np.integer, dim: int | np.integer | None = None
) -> SegmentPlan:
    """Check blocks against a round's sizes and against each other.

    Args:
        blocks: `Block`s, at least one; two that share a participant may not share a
            coordinate.
        num_participants: n.
        dim: d; if None, where the last block ends, and then each participant must be in
            a block.

    Returns:
        The blocks as a static, hashable plan.

    Raises:
        ConfigurationError: If members are not ascending slots, a range is empty or
            outside [0, d), a ring is impossible or too small for its codes, or blocks
            overlap.

    Examples:
        >>> import mrsa_jax as mj
        >>> halves = [mj.secagg.Block((0, 1), 0, 5, 2**8), mj.secagg.Block((0, 1), 5, 10, 37)]
        >>> [block.modulus for block in mj.secagg.segment_plan(halves, 2, 10)]
        [256, 37]
    """
    participants = check_integer(num_participants, "num_participants", 1)
    width = _width(blocks) if dim is None else check_integer(dim, "dim", 1)
    plan = tuple(_checked(block, participants, width) for block in blocks)
    require(len(plan) > 0, "blocks", "must hold at least one block")
    for number, block in enumerate(plan):
        for other in plan[:number]:
            if block.start < other.stop and other.start < block.stop:
                apart = set(block.members).isdisjoint(other.members)
                require(
                    apart,
                    "blocks",
                    "must not cover a participant's coordinate twice",
                    other,
                    block,
                )
    missing = set(range(participants)).difference(*(block.members for block in plan))
    first = f"client {min(missing, default=0)} in none"
    require(
        dim is not None or not missing,
        "plan",
        "must put each client into a block",
        first,
    )
    return plan


def _width(blocks: Any) -> int:
    """Return where the last of some blocks ends."""
    given = tuple(blocks) if isinstance(blocks, tuple | list) else ()
    proper = len(given) > 0 and all(isinstance(block, Block) for block in given)
    require(proper, "plan", "must be a tuple of `Block`s", blocks)
    return max(check_integer(block.stop, "stop", 1) for block in given)


def _checked(block: Block, num_participants: int, dim: int) -> Block:
    require(
        all(map(is_integer, block.members)),
        "members",
        "must hold integers",
        block.members,
    )
    members = tuple(map(int, block.members))
    ascending = all(low < high for low, high in itertools.pairwise(members))
    require(
        len(members) > 0 and ascending,
        "members",
        "must be ascending and not empty",
        members,
    )
    inside = members[0] >= 0 and members[-1] < num_participants
    require(
        inside,
        "members",
        "must lie in [0, num_participants)",
        members,
        num_participants,
    )
    start = check_integer(block.start, "start", 0)
    stop = check_integer(block.stop, "stop", 1)
    rule = "must satisfy 0 <= start < stop <= dim"
    require(start < stop <= dim, "start", rule, start, stop, dim)
    modulus = check_modulus(block.modulus)
    if block.levels is not None:
        check_fits(block.levels, len(members), modulus)
    return Block(members, start, stop, modulus, block.levels)


def edge_rows(
    first: np.ndarray, second: np.ndarray, num_participants: int
) -> np.ndarray:
    low, high = np.minimum(first, second), np.maximum(first, second)
    return (low * num_participants - low * (low + 1) // 2 + high - low - 1).astype(
        np.int32
    )


# ---- Few array shapes where sizes vary from round to round, so that little is
# compiled.

_LEAST, _STEPS = 8, 8


def padded_length(count: int) -> int:
    """Return the next of the lengths of which there are eight to each doubling, from 8 on.

    Examples:
        >>> [padded_length(count) for count in (0, 8, 9, 17, 100, 1000)]
        [8, 8, 9, 18, 104, 1024]
    """
    step = max(1, (1 << max(count - 1, 0).bit_length()) // (2 * _STEPS))
    return max(_LEAST, -(-count // step) * step)


# ---- Checks of a round's arguments, the same for real messages and for arrays.


class RoundSetting(NamedTuple):
    """A checked round: who shares with whom, who is there, what is summed.

    Attributes:
        graph: bool[n, n].
        survivors: bool[5, n], V0 to V4.
        thresholds: int32[n].
        inputs: uint32[n, d].
        plan: Blocks of the round.
        number: Of the round.
    """

    graph: np.ndarray
    survivors: np.ndarray
    thresholds: np.ndarray
    inputs: np.ndarray
    plan: SegmentPlan
    number: int

    @property
    def digest(self) -> bytes:
        """32 bytes that tell apart who shares with whom, at which thresholds, in which blocks.

        Mixed into what a round's secrets come from, so that one seed gives other
        secrets where they would be shared or used in another way.
        """
        blocks = [
            (block.members, block.start, block.stop, block.modulus)
            for block in self.plan
        ]
        edges = np.packbits(np.triu(self.graph)).tobytes()
        text = repr((len(self.graph), self.thresholds.tolist(), blocks)).encode()
        return hashlib.sha256(hashlib.sha256(text).digest() + edges).digest()


def check_setting(
    inputs: Any,
    adjacency: Any,
    survivors: Any,
    thresholds: Any,
    modulus_bits: Any,
    modulus: Any,
    plan: Any,
    round_index: Any,
) -> RoundSetting:
    """Return what a round is given, or raise."""
    graph, alive, limits = check_round(adjacency, survivors, thresholds)
    values, blocks = _check_inputs(inputs, len(graph), modulus_bits, modulus, plan)
    number = check_integer(round_index, "round_index", 0, 2**32 - 1)
    return RoundSetting(graph, alive, limits, values, blocks, number)


def _check_inputs(
    inputs: Any, num_clients: int, modulus_bits: Any, modulus: Any, plan: Any
) -> tuple[np.ndarray, SegmentPlan]:
    """Return uint32[n, d] and the checked plan; d is where the plan's last block ends."""
    values = host_array(inputs, "inputs")
    exact = np.issubdtype(values.dtype, np.integer)
    require(exact, "inputs", "must hold integers", str(values.dtype))
    require(
        values.ndim == 2, "inputs", "must have the shape [clients, dim]", values.shape
    )
    require(values.size > 0, "inputs", "must not be empty", values.shape)
    rule = "must have a row for each client"
    require(len(values) == num_clients, "inputs", rule, len(values), num_clients)
    if plan is None:
        ring = _check_ring(modulus_bits, modulus)
        _check_range(values, ring, "")
        values = values.astype(np.uint32, copy=False)
        return values, complete_plan(num_clients, values.shape[1], ring)
    rule = "must be given without `modulus_bits` and `modulus`: each block has its own ring"
    require(
        modulus_bits is None and modulus is None, "plan", rule, modulus_bits, modulus
    )
    checked = segment_plan(plan, num_clients)
    width = max(block.stop for block in checked)
    fits = values.shape[1] >= width
    require(
        fits, "inputs", "must have a column for each coordinate", values.shape[1], width
    )
    for number, block in enumerate(checked):
        part = values[list(block.members), block.start : block.stop]
        _check_range(part, block.modulus, f" of block {number}")
    return values[:, :width].astype(np.uint32, copy=False), checked


def nonce_word(value: Any, name: str) -> Any:
    """Return a number of a round or a block as its word in nonces, or raise for one of 2**32 on.

    Arrays of JAX of up to 32 bits, and traced ones, are words by themselves.
    """
    is_traced = isinstance(value, jax.core.Tracer)
    if is_traced or (isinstance(value, jax.Array) and value.dtype.itemsize <= 4):
        return value.astype(jnp.uint32)
    values = np.asarray(value)
    rule = "must be an integer in [0, 2**32)"
    require(values.dtype.kind in "iu", name, rule, value)
    require(bool(((values >= 0) & (values < 2**32)).all()), name, rule, value)
    return values.astype(np.uint32)


def _check_ring(modulus_bits: Any, modulus: Any) -> int:
    """Return R from exactly one of b, for 2**b, and R itself."""
    rule = "must be given, or else `modulus`, and not both"
    require(
        (modulus_bits is None) != (modulus is None),
        "modulus_bits",
        rule,
        modulus_bits,
        modulus,
    )
    if modulus is not None:
        return check_modulus(modulus)
    return 2 ** check_integer(modulus_bits, "modulus_bits", 1, 32)


def _check_range(values: np.ndarray, modulus: int, where: str) -> None:
    rule = f"must lie in [0, {modulus}), the ring's residues{where}"
    inside = values.min() >= 0 and values.max() < modulus
    require(bool(inside), "inputs", rule, int(values.min()), int(values.max()))


# ---- Seeds of pads out of 256 bits of key material, for a cohort of a large
# population.
#
# Stands in for the papers' key agreement and secret self seeds (s_ij, b_i): a pair's
# seed depends
# on the two global clients alone and lasts, a self seed is fresh in every round because
# the
# server learns it. Each is one ChaCha20 block under a separate nonce.

_TAG = b"mrsa_jax secagg key material v1\x00"
# First nonce word of a derivation: what the output is for.
_PAIR_SEED, _SELF_SEED = 1, 2


def key_material(seed: int | np.integer | bytes) -> UInt32[Array, " 8"]:
    """Turn a seed into 256 bits of key material.

    For reproducible simulation only: whoever knows the seed knows every pad.

    Args:
        seed: Non-negative integer of any size, or bytes.

    Returns:
        SHA-256 of a domain tag, the kind of seed and the seed, as little-endian words.

    Raises:
        ConfigurationError: If `seed` is neither.

    Examples:
        >>> import mrsa_jax as mj
        >>> bool((mj.secagg.key_material(1) == mj.secagg.key_material(1)).all())
        True
        >>> bool((mj.secagg.key_material(1) == mj.secagg.key_material(2)).any())
        False
    """
    if isinstance(seed, bytes):
        payload = b"bytes\x00" + seed
    else:
        integer = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        rule = "must be a non-negative integer or bytes"
        require(bool(integer and seed >= 0), "seed", rule, seed)
        payload = b"int\x00" + int(seed).to_bytes(
            (int(seed).bit_length() + 7) // 8, "little"
        )
    digest = hashlib.sha256(_TAG + payload).digest()
    return on_device(np.frombuffer(digest, dtype="<u4").astype(np.uint32))


def derive_seeds(
    key_material: ArrayLike,
    members: ArrayLike,
    round_index: ArrayLike,
    edges: ArrayLike | None = None,
) -> Seeds:
    """Derive the seeds of one round for the clients in its slots.

    Args:
        key_material: uint32[8], see `key_material`.
        members: int32[n], global client ids by slot (distinct wherever somebody is
            present; a place nobody fills may hold anything).
        round_index: Round in [0, 2**32), a number that never comes twice under one key
            material.
        edges: int[E, 2], pairs of slots i < j that share a seed; all pairs if None.

    Returns:
        Seeds: the pair seeds depend on the two clients only, self seeds on client and
        round.

    Raises:
        ConfigurationError: If the round is no integer in [0, 2**32).

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> seeds = mj.secagg.derive_seeds(mj.secagg.key_material(0), jnp.asarray([7, 3]), 0)
        >>> swapped = mj.secagg.derive_seeds(mj.secagg.key_material(0), jnp.asarray([3, 7]), 1)
        >>> bool((seeds.pair_seed == swapped.pair_seed).all())
        True
        >>> bool((seeds.self_seed[0] == swapped.self_seed[1]).any())
        False

    Cost: one ChaCha20 block for each client and pair.
    """
    members = on_device(members).astype(jnp.int32)
    if edges is None:
        edges = np.stack(np.triu_indices(members.shape[0], 1), axis=1)
    material = on_device(key_material, jnp.uint32)
    index = on_device(nonce_word(round_index, "round_index"))
    traced = any(
        isinstance(x, jax.core.Tracer) for x in (material, members, index, edges)
    )
    if traced or isinstance(edges, jax.Array):
        return _derive(material, members, index, on_device(edges).astype(jnp.int32))
    pairs = np.asarray(edges, np.int32).reshape(-1, 2)
    count = len(pairs)
    # random graphs have a new number of edges in each round: compile for few of them
    padded = np.pad(pairs, ((0, padded_length(count) - count), (0, 0)))
    seeds = _derive(material, members, index, on_device(padded))
    own = on_device(np.asarray(seeds.pair_seed)[:count])
    return dataclasses.replace(seeds, pair_seed=own, edges=on_device(pairs))


@jax.jit
def _derive(material: Array, members: Array, round_index: Array, edges: Array) -> Seeds:
    count = members.shape[0]
    first, second = edges[:, 0], edges[:, 1]
    low = jnp.minimum(members[first], members[second]).astype(jnp.uint32)
    high = jnp.maximum(members[first], members[second]).astype(jnp.uint32)
    pairs = jnp.stack([jnp.full(low.shape, _PAIR_SEED, jnp.uint32), low, high])
    own = members.astype(jnp.uint32)
    kind = jnp.full(own.shape, _SELF_SEED, jnp.uint32)
    selves = jnp.stack([kind, own, jnp.full_like(own, round_index)])
    nonces = jnp.concatenate([selves, pairs], axis=1)
    total = nonces.shape[1]
    keys = jnp.broadcast_to(material[:, None], (8, total))
    words = chacha20_columns(keys, jnp.zeros(total, jnp.uint32), nonces)
    seeds = words[:8].T
    return Seeds(members, self_seed=seeds[:count], pair_seed=seeds[count:], edges=edges)
