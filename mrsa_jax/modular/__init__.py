"""Exact arithmetic: the ring of a sum, the ChaCha20 keystream, linear algebra modulo a prime."""

from mrsa_jax.modular._chacha20 import chacha20_block, chacha20_columns, keystream
from mrsa_jax.modular._linalg import is_in_row_space, rank, rank_trajectory
from mrsa_jax.modular._ring import (
    Ring,
    add,
    check_modulus,
    reduce_words,
    ring_of,
    ring_sum_over,
    subtract,
)
from mrsa_jax.modular._shamir import (
    LIMBS,
    MOST_POINTS,
    SHAMIR_PRIME,
    limbs_of,
    recover_secrets,
    share_secrets,
    words_of_limbs,
)

__all__ = [
    "LIMBS",
    "MOST_POINTS",
    "SHAMIR_PRIME",
    "Ring",
    "add",
    "chacha20_block",
    "chacha20_columns",
    "check_modulus",
    "is_in_row_space",
    "keystream",
    "limbs_of",
    "rank",
    "rank_trajectory",
    "recover_secrets",
    "reduce_words",
    "ring_of",
    "ring_sum_over",
    "share_secrets",
    "subtract",
    "words_of_limbs",
]
