"""ChaCha20 blocks and keystream as uint32 array operations (RFC 8439).

Pads and seeds of the secure sums come from here, never from `jax.random`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer, UInt32

from mrsa_jax._core.chacha20 import keystream_words
from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.programs import one_program
from mrsa_watch._base.errors import require


@jax.jit
@one_program
def chacha20_columns(
    key: UInt32[Array, "8 blocks"],
    counter: UInt32[Array, " blocks"],
    nonce: UInt32[Array, "3 blocks"],
) -> UInt32[Array, "16 blocks"]:
    """Compute many ChaCha20 blocks at once, one in each column.

    The fast form below every other function here: no transposition, any mixture of
    keys, counters and nonces. Word w of the block in column c is `out[w, c]`.

    Args:
        key: 256-bit keys as little-endian words.
        counter: Block counters.
        nonce: 96-bit nonces as little-endian words.

    Returns:
        Keystream words.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> key, nonce = jnp.zeros((8, 2), "uint32"), jnp.zeros((3, 2), "uint32")
        >>> both = mj.modular.chacha20_columns(
        ...     key, jnp.asarray([0, 1], "uint32"), nonce
        ... )
        >>> hex(int(both[0, 0]))  # bytes 76 b8 e0 ad, RFC 8439 appendix A.1, vector 1
        '0xade0b876'

    Source:
        RFC 8439, section 2.3.
    """
    # the same cipher three times: XLA below, `_core.chacha20_kernel`, loops
    # in `_core.chacha20_loops` beyond 2^31 - 1 words a kernel's 32-bit places would not
    # do
    if counter.shape[0] < 2**27 and chosen_form(("xla", "pallas"), key) == "pallas":
        from mrsa_jax._core.chacha20_kernel import columns_by_kernel

        return columns_by_kernel(key, counter, nonce)
    return jnp.stack(
        keystream_words(
            tuple(key),
            counter,
            tuple(nonce),
            counter.shape,
        )
    )


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
        ConfigurationError: If `num_words` is negative or more than one counter range
            holds.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> key, nonce = jnp.arange(8, dtype="uint32"), jnp.zeros(3, "uint32")
        >>> a, b = (
        ...     mj.modular.keystream(key, nonce, 40),
        ...     mj.modular.keystream(key, nonce, 24, initial_counter=1),
        ... )
        >>> bool((a[16:] == b).all())
        True

    Source:
        RFC 8439, section 2.4.
    """
    require(
        0 <= num_words <= 2**36,
        "num_words",
        "must lie in [0, 2**36]",
        num_words,
    )
    return _keystream(key, nonce, _word(initial_counter), num_words)


@functools.partial(jax.jit, static_argnames=("num_words",))
def _keystream(
    key: Array,
    nonce: Array,
    start: Array,
    num_words: int,
) -> Array:
    blocks = -(-num_words // 16)
    keys, nonces = (
        jnp.broadcast_to(words[:, None], (len(words), blocks)) for words in (key, nonce)
    )
    counters = start + jnp.arange(blocks, dtype=jnp.uint32)
    return chacha20_columns(keys, counters, nonces).T.reshape(-1)[:num_words]


def _word(value: int | Array) -> Array:
    if isinstance(value, jax.Array):
        return value.astype(jnp.uint32)
    require(
        0 <= value < 2**32,
        "counter",
        "must lie in [0, 2**32)",
        value,
    )
    return jnp.uint32(value)
