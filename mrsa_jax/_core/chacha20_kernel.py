"""Make ChaCha20 keystream in one launch on NVIDIA GPUs (Pallas, through Triton).

A block in each thread; the state stays in registers. Import inside functions only,
where the form is "pallas".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from mrsa_jax._core.chacha20 import keystream_words
from mrsa_jax._core.kernels import launch

TILE = 128
"""Blocks of a program: one for each thread of four warps."""


def columns_by_kernel(key: Array, counter: Array, nonce: Array) -> Array:
    """Make uint32[16, blocks] of keys [8, blocks] and nonces [3, blocks]."""
    blocks = counter.shape[0]
    if blocks == 0:
        return jnp.zeros((16, 0), jnp.uint32)

    def kernel(keys: Any, counters: Any, nonces: Any, out: Any) -> None:
        first = pl.program_id(0) * jnp.int32(TILE)
        here = first + jnp.arange(TILE, dtype=jnp.int32) < jnp.int32(blocks)
        at = pl.ds(first, TILE)

        def load(ref: Any) -> Array:
            return triton.load(ref, mask=here, other=jnp.uint32(0))

        words = keystream_words(
            [load(keys.at[jnp.int32(k), at]) for k in range(8)],
            load(counters.at[at]),
            [load(nonces.at[jnp.int32(k), at]) for k in range(3)],
            (TILE,),
        )
        for place, word in enumerate(words):
            triton.store(out.at[jnp.int32(place), at], word, mask=here)

    words = jax.ShapeDtypeStruct((16, blocks), jnp.uint32)
    return launch(
        "chacha20", kernel, (-(-blocks // TILE),), [words], key, counter, nonce
    )[0]


def woven(words: Sequence[Array]) -> Array:
    """Order words [TILE] of 2^k blocks as the stream does, block by block.

    Pairs are joined in registers, so that the result is stored without gaps.
    """
    parts = list(words)
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [jnp.stack([parts[i], parts[i + half]], axis=-1) for i in range(half)]
    return parts[0].reshape(-1)
