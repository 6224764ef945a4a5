"""Seeds of pads out of 256 bits of key material, for a cohort of a large population.

Stands in for the papers' key agreement and secret self seeds (s_ij, b_i): a pair's seed depends
on the two global clients alone and lasts, a self seed is fresh in every round because the
server learns it. Each is one ChaCha20 block under a nonce of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax.modular import chacha20_columns
from mrsa_jax.secagg._types import Seeds, nonce_word, padded_length
from mrsa_watch._base.errors import require

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
        >>> bool((key_material(1) == key_material(1)).all())
        True
        >>> bool((key_material(1) == key_material(2)).any())
        False
    """
    if isinstance(seed, bytes):
        payload = b"bytes\x00" + seed
    else:
        integer = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        require(
            bool(integer and seed >= 0), "seed", "must be a non-negative integer or bytes", seed
        )
        payload = b"int\x00" + int(seed).to_bytes((int(seed).bit_length() + 7) // 8, "little")
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
        members: int32[n], global client ids by slot (distinct wherever somebody is present; a
            place nobody fills may hold anything).
        round_index: Round in [0, 2**32), a number that never comes twice under one key material.
        edges: int[E, 2], pairs of slots i < j that share a seed; all pairs if None.

    Returns:
        Seeds: the pair seeds depend on the two clients only, self seeds on client and round.

    Raises:
        ConfigurationError: If the round is no integer in [0, 2**32).

    Examples:
        >>> seeds = derive_seeds(key_material(0), jnp.asarray([7, 3]), 0)
        >>> swapped = derive_seeds(key_material(0), jnp.asarray([3, 7]), 1)
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
    traced = any(isinstance(x, jax.core.Tracer) for x in (material, members, index, edges))
    if traced or isinstance(edges, jax.Array):
        return _derive(material, members, index, on_device(edges).astype(jnp.int32))
    pairs = np.asarray(edges, np.int32).reshape(-1, 2)
    count = len(pairs)
    # random graphs have a new number of edges in each round: compile for few of them
    padded = np.pad(pairs, ((0, padded_length(count) - count), (0, 0)))
    seeds = _derive(material, members, index, on_device(padded))
    return dataclasses.replace(
        seeds, pair_seed=on_device(np.asarray(seeds.pair_seed)[:count]), edges=on_device(pairs)
    )


@jax.jit
def _derive(material: Array, members: Array, round_index: Array, edges: Array) -> Seeds:
    count = members.shape[0]
    first, second = edges[:, 0], edges[:, 1]
    low = jnp.minimum(members[first], members[second]).astype(jnp.uint32)
    high = jnp.maximum(members[first], members[second]).astype(jnp.uint32)
    pairs = jnp.stack([jnp.full(low.shape, _PAIR_SEED, jnp.uint32), low, high])
    own = members.astype(jnp.uint32)
    selves = jnp.stack(
        [jnp.full(own.shape, _SELF_SEED, jnp.uint32), own, jnp.full_like(own, round_index)]
    )
    nonces = jnp.concatenate([selves, pairs], axis=1)
    total = nonces.shape[1]
    words = chacha20_columns(
        jnp.broadcast_to(material[:, None], (8, total)), jnp.zeros(total, jnp.uint32), nonces
    )
    seeds = words[:8].T
    return Seeds(members, self_seed=seeds[:count], pair_seed=seeds[count:], edges=edges)
