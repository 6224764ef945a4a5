"""Exact arithmetic: the ring of a sum, the ChaCha20 keystream, linear algebra modulo a prime."""

from mrsa_jax.modular._chacha20 import chacha20_block, chacha20_columns, keystream
from mrsa_jax.modular._linalg import (
    PRIMES,
    is_in_row_space,
    kernel_step,
    rank,
    rank_trajectory,
)
from mrsa_jax.modular._ring import (
    Ring,
    add,
    check_modulus,
    is_power_of_two,
    reduce_words,
    ring_of,
    ring_sum_over,
    subtract,
    words_per_residue,
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
    "PRIMES",
    "SHAMIR_PRIME",
    "Ring",
    "add",
    "chacha20_block",
    "chacha20_columns",
    "check_modulus",
    "is_in_row_space",
    "is_power_of_two",
    "kernel_step",
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
    "words_per_residue",
]
