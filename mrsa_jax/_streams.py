"""Named random streams: which key every draw of a simulation comes from.

seed -> trial -> round -> stream -> client, each step a `fold_in` with an index or one of the
constants below. So a client's draw does not depend on how many clients there are, and a trial's
draws not on the batch that it runs in. Pads never come from here: they are ChaCha20 keystream
(`mrsa_jax.modular`).
"""

from __future__ import annotations

import enum
import numbers

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, UInt32

from mrsa_jax._errors import require

__all__ = [
    "Stream",
    "as_key",
    "client_word_pairs",
    "client_words",
    "fold",
    "round_key",
    "trial_key",
]

# The implementation is pinned: a user's JAX settings must not change what a seed means.
_IMPLEMENTATION = "threefry2x32"


class Stream(enum.IntEnum):
    """Names of the random streams of one round (values are part of what a seed means)."""

    AVAILABILITY = 1
    SELECTION = 2
    LOCAL_TRAINING = 3
    QUANTIZATION = 4
    MODEL_INIT = 5
    PARTITION = 6
    ATTACK = 7
    ASSIGNMENT = 8


def as_key(seed: int | Key[Array, ""]) -> Key[Array, ""]:
    """Return a typed JAX key for an integer seed, or the key itself.

    Args:
        seed: Integer in [0, 2**32), or a scalar typed key (`jax.random.key`).

    Returns:
        A scalar typed key.

    Raises:
        ConfigurationError: If `seed` is neither.

    Examples:
        >>> as_key(3) == as_key(as_key(3))
        Array(True, dtype=bool)
    """
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        require(seed.ndim == 0, "seed", "must be one key", f"{seed.shape} keys")
        return seed
    is_integer = isinstance(seed, numbers.Integral) and not isinstance(seed, bool)
    require(is_integer, "seed", "must be an integer or a typed JAX key", seed)
    require(0 <= int(seed) < 2**32, "seed", "must lie in [0, 2**32)", seed)
    return jax.random.key(jnp.uint32(int(seed)), impl=_IMPLEMENTATION)


def fold(key: Key[Array, ""], *path: int | Array) -> Key[Array, ""]:
    """Fold each index or `Stream` of `path` into `key`, in order."""
    for step in path:
        key = jax.random.fold_in(key, step)
    return key


def trial_key(key: Key[Array, ""], trial: int | Array) -> Key[Array, ""]:
    """Return the key of one trial."""
    return jax.random.fold_in(key, trial)


def round_key(key: Key[Array, ""], round_index: int | Array, stream: Stream) -> Key[Array, ""]:
    """Return the key of one stream of one round of a trial."""
    return fold(key, round_index, int(stream))


def client_words(key: Key[Array, ""], num_clients: int) -> UInt32[Array, " clients"]:
    """Return one uniform 32-bit word for each client; word i does not depend on `num_clients`."""
    return client_word_pairs(key, num_clients)[0]


def client_word_pairs(
    key: Key[Array, ""], num_clients: int
) -> tuple[UInt32[Array, " clients"], UInt32[Array, " clients"]]:
    """Return two independent uniform 32-bit words for each client, for the cost of one.

    The first is `client_words`'; pair i does not depend on `num_clients`.
    """
    return jax.random.bits(fold(key, 0), (num_clients,), jnp.uint32), jax.random.bits(
        fold(key, 1), (num_clients,), jnp.uint32
    )
