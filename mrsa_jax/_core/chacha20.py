"""The twenty rounds of ChaCha20 (RFC 8439) on sixteen words that stand apart.

Sixteen arrays of any one shape, a block in each element: a diagonal round is then a
renaming, and nothing is moved. Array programs and kernels both run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from mrsa_jax._core.mesh import varying_like

# "expand 32-byte k" as four little-endian words
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def keystream_words(
    key: Sequence[Array],
    counter: Array,
    nonce: Sequence[Array],
    shape: tuple[int, ...],
) -> list[Array]:
    """Return the sixteen words of blocks of keystream, each of `shape`.

    Args:
        key: Eight words, of any shapes that broadcast.
        counter: Counters of the blocks.
        nonce: Three words.
        shape: Of the blocks.
    """
    constants = [jnp.uint32(word) for word in _CONSTANTS]
    words = [
        jnp.broadcast_to(word, shape) for word in (*constants, *key, counter, *nonce)
    ]
    start = varying_like(words, words)
    # a loop: written out, the rounds take XLA half a minute to compile
    end = lax.fori_loop(0, 10, lambda _, words: _double_round(words), tuple(start))
    return [after + before for after, before in zip(end, start, strict=True)]


def _double_round(words: tuple[Array, ...]) -> tuple[Array, ...]:
    state = list(words)
    for places in (*_COLUMNS, *_DIAGONALS):
        quarter = _quarter_round(*(state[place] for place in places))
        for place, word in zip(places, quarter, strict=True):
            state[place] = word
    return tuple(state)


def _quarter_round(
    a: Array,
    b: Array,
    c: Array,
    d: Array,
) -> tuple[Array, Array, Array, Array]:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


def _rotate(words: Array, bits: int) -> Array:
    return (words << bits) | (words >> (32 - bits))
