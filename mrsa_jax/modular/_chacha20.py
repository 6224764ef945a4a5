"""The ChaCha20 block function and keystream as uint32 array operations (RFC 8439).

Pads and seeds of the secure sums come from here, never from `jax.random`. Blocks stand side by
side in the last axis, so that every step of the cipher is one vector operation.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Integer, UInt32

from mrsa_jax._errors import require
from mrsa_jax._tracing import varying_like

__all__ = ["chacha20_block", "chacha20_columns", "keystream"]

# "expand 32-byte k" as four little-endian words
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
# Blocks computed at a time: 4 rows x 1024 x 4 bytes = 16 KiB for each of four state arrays.
_CHUNK = 1024


@jax.jit
def chacha20_columns(
    key: UInt32[Array, "8 blocks"],
    counter: UInt32[Array, " blocks"],
    nonce: UInt32[Array, "3 blocks"],
) -> UInt32[Array, "16 blocks"]:
    """Compute many ChaCha20 blocks at once, one in each column.

    The fast form below every other function here: no transposition, any mixture of keys,
    counters and nonces. Word w of the block in column c is `out[w, c]`.

    Args:
        key: 256-bit keys as little-endian words.
        counter: Block counters.
        nonce: 96-bit nonces as little-endian words.

    Returns:
        Keystream words.

    Examples:
        >>> key, nonce = jnp.ones((8, 2), "uint32"), jnp.zeros((3, 2), "uint32")
        >>> both = chacha20_columns(key, jnp.asarray([5, 6], "uint32"), nonce)
        >>> bool((both[:, 1] == chacha20_block(key[:, 1], 6, nonce[:, 1])).all())
        True

    Source:
        RFC 8439, section 2.3.
    """
    blocks = counter.shape[0]
    constants = jnp.asarray(_CONSTANTS, jnp.uint32)
    start = (
        jnp.broadcast_to(constants[:, None], (4, blocks)),
        key[:4],
        key[4:],
        jnp.concatenate([counter[None, :], nonce]),
    )
    start = varying_like(start, key, counter, nonce)
    end = lax.fori_loop(0, 10, lambda _, rows: _double_round(rows), start)
    return jnp.concatenate([after + before for after, before in zip(end, start, strict=True)])


def chacha20_block(
    key: UInt32[Array, " 8"],
    counter: int | Integer[Array, ""],
    nonce: UInt32[Array, " 3"],
) -> UInt32[Array, " 16"]:
    """Compute one ChaCha20 block.

    Args:
        key: 256-bit key as eight little-endian words.
        counter: Block counter, in [0, 2**32).
        nonce: 96-bit nonce as three little-endian words.

    Returns:
        The 16 words of the block; their little-endian bytes are RFC 8439's keystream.

    Examples:
        >>> block = chacha20_block(jnp.zeros(8, "uint32"), 0, jnp.zeros(3, "uint32"))
        >>> hex(int(block[0]))  # bytes 76 b8 e0 ad, RFC 8439 appendix A.1, vector 1
        '0xade0b876'

    Source:
        RFC 8439, section 2.3.
    """
    return chacha20_columns(key[:, None], _word(counter)[None], nonce[:, None])[:, 0]


def keystream(
    key: UInt32[Array, " 8"],
    nonce: UInt32[Array, " 3"],
    num_words: int,
    initial_counter: int | Integer[Array, ""] = 0,
) -> UInt32[Array, " num_words"]:
    """Return the first words of one key's and nonce's keystream.

    Args:
        key: 256-bit key as eight little-endian words.
        nonce: 96-bit nonce as three little-endian words.
        num_words: How many 32-bit words (static), at least 0.
        initial_counter: Counter of the first block; it may not pass 2**32.

    Returns:
        Words whose little-endian bytes are the keystream.

    Raises:
        ConfigurationError: If `num_words` is negative or more than one counter range holds.

    Examples:
        >>> key, nonce = jnp.arange(8, dtype="uint32"), jnp.zeros(3, "uint32")
        >>> a, b = keystream(key, nonce, 40), keystream(key, nonce, 24, initial_counter=1)
        >>> bool((a[16:] == b).all())
        True

    Source:
        RFC 8439, section 2.4.
    """
    require(0 <= num_words <= 2**36, "num_words", "must lie in [0, 2**36]", num_words)
    return _keystream(key, nonce, _word(initial_counter), num_words)


@functools.partial(jax.jit, static_argnames=("num_words",))
def _keystream(key: Array, nonce: Array, start: Array, num_words: int) -> Array:
    blocks = -(-num_words // 16)

    def columns(first: Array, width: int) -> Array:
        counter = first + jnp.arange(width, dtype=jnp.uint32)
        keys = jnp.broadcast_to(key[:, None], (8, width))
        nonces = jnp.broadcast_to(nonce[:, None], (3, width))
        return chacha20_columns(keys, counter, nonces).T.reshape(-1)

    if blocks <= 2 * _CHUNK:
        return columns(start, blocks)[:num_words]
    chunks = -(-blocks // _CHUNK)
    firsts = start + jnp.arange(chunks, dtype=jnp.uint32) * jnp.uint32(_CHUNK)
    return lax.map(lambda first: columns(first, _CHUNK), firsts).reshape(-1)[:num_words]


def _word(value: int | Array) -> Array:
    if isinstance(value, jax.Array):
        return value.astype(jnp.uint32)
    require(0 <= value < 2**32, "counter", "must lie in [0, 2**32)", value)
    return jnp.uint32(value)


def _rotate(words: Array, bits: int) -> Array:
    return (words << jnp.uint32(bits)) | (words >> jnp.uint32(32 - bits))


def _quarter_round(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array, Array, Array]:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


def _double_round(rows: tuple[Array, ...]) -> tuple[Array, ...]:
    """One column round and one diagonal round; a row holds words 4r..4r+3 of every block."""
    a, b, c, d = _quarter_round(*rows)
    b, c, d = jnp.roll(b, -1, 0), jnp.roll(c, -2, 0), jnp.roll(d, -3, 0)
    a, b, c, d = _quarter_round(a, b, c, d)
    return a, jnp.roll(b, 1, 0), jnp.roll(c, 2, 0), jnp.roll(d, 3, 0)
