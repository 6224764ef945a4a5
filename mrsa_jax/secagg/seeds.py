"""Derive the seeds of a round's pads, and number its pairs."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, UInt32

from mrsa_jax import graphs
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular import chacha20_columns
from mrsa_watch._base.errors import is_integer, require

# Stands in for the papers' key agreement and secret self seeds (s_ij, b_i): a pair's
# seed depends on the two global clients alone and lasts, a self seed is fresh in every
# round because the server learns it. Each is one ChaCha20 block under a separate nonce.
_TAG = b"mrsa_jax secagg key material v1\x00"
# First nonce word of a derivation: what the output is for.
_PAIR_SEED = 1
_SELF_SEED = 2
# Few array shapes where sizes vary from round to round, so that little is compiled.
_LEAST_LENGTH = 8
_LENGTHS_PER_DOUBLING = 8


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


def edge_rows(
    first: np.ndarray,
    second: np.ndarray,
    num_participants: int,
) -> np.ndarray:
    """Return the rows of pairs in the lexicographic list of all pairs."""
    low = np.minimum(first, second)
    high = np.maximum(first, second)
    # the pairs that begin with a smaller slot come first: n - 1 - i of each i < low
    before = low * num_participants - low * (low + 1) // 2
    return (before + high - low - 1).astype(np.int32)


def padded_length(count: int) -> int:
    """Round a length up to one of eight per doubling, from 8 on.

    Examples:
        >>> [padded_length(count) for count in (0, 8, 9, 17, 100, 1000)]
        [8, 8, 9, 18, 104, 1024]
    """
    power = 1 << max(count - 1, 0).bit_length()
    step = max(1, power // (2 * _LENGTHS_PER_DOUBLING))
    return max(_LEAST_LENGTH, -(-count // step) * step)


def nonce_word(value: Any, name: str) -> Any:
    """Return a number of a round or a block as its word in nonces, or raise.

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
        require(
            is_integer(seed) and int(seed) >= 0,
            "seed",
            "must be a non-negative integer or bytes",
            seed,
        )
        number = int(seed)
        length = (number.bit_length() + 7) // 8
        payload = b"int\x00" + number.to_bytes(length, "little")
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
        >>> seeds = mj.secagg.derive_seeds(
        ...     mj.secagg.key_material(0), jnp.asarray([7, 3]), 0
        ... )
        >>> swapped = mj.secagg.derive_seeds(
        ...     mj.secagg.key_material(0), jnp.asarray([3, 7]), 1
        ... )
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
    if isinstance(edges, jax.Array) or is_traced(material, members, index):
        return _derive(material, members, index, on_device(edges).astype(jnp.int32))
    pairs = np.asarray(edges, np.int32).reshape(-1, 2)
    return seeds_of_pairs(material, members, index, pairs)


def graph_edges(adjacency: Array) -> Array | np.ndarray:
    """Return a round's edges as `derive_seeds` takes them.

    Of a traced graph their number is no shape: every pair, and for each that is no edge
    the first slot twice, which makes no pad.
    """
    if not is_traced(adjacency):
        return graphs.edges(adjacency)
    upper = np.triu_indices(adjacency.shape[0], 1)
    pairs = np.stack(upper, axis=1).astype(np.int32)
    return jnp.where(adjacency[upper][:, None], pairs, pairs[:, :1])


def seeds_of_pairs(
    material: Array,
    members: Array,
    round_index: Array,
    pairs: np.ndarray,
) -> Seeds:
    """Derive the seeds of a round whose pairs are known, int32[E, 2]."""
    count = len(pairs)
    # random graphs have a new number of edges in each round: compile for few of them
    padded = np.pad(pairs, ((0, padded_length(count) - count), (0, 0)))
    seeds = _derive(material, members, round_index, on_device(padded))
    pair_seed = on_device(np.asarray(seeds.pair_seed)[:count])
    return dataclasses.replace(seeds, pair_seed=pair_seed, edges=on_device(pairs))


@jax.jit
def _derive(material: Array, members: Array, round_index: Array, edges: Array) -> Seeds:
    count = members.shape[0]
    ids = members.astype(jnp.uint32)
    ends = ids[edges]
    lower = ends.min(axis=1)
    pairs = jnp.stack([jnp.full_like(lower, _PAIR_SEED), lower, ends.max(axis=1)])
    kind = jnp.full_like(ids, _SELF_SEED)
    selves = jnp.stack([kind, ids, jnp.full_like(ids, round_index)])
    # one program makes all seeds: first the self seeds, then those of the pairs
    nonces = jnp.concatenate([selves, pairs], axis=1)
    total = nonces.shape[1]
    keys = jnp.broadcast_to(material[:, None], (8, total))
    words = chacha20_columns(keys, jnp.zeros(total, jnp.uint32), nonces)
    seeds = words[:8].T
    return Seeds(members, self_seed=seeds[:count], pair_seed=seeds[count:], edges=edges)
