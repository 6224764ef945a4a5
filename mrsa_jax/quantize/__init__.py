"""Quantizers: real updates to ring elements and back, and the ring that a sum needs."""

from mrsa_jax.quantize._budget import (
    budget,
    check_fits,
    check_weights,
    largest_levels,
    largest_total_weight,
    required_modulus_bits,
    ring_size,
)
from mrsa_jax.quantize._noise import RingNoise
from mrsa_jax.quantize._ranges import ClipRule, following_range
from mrsa_jax.quantize._stochastic import Quantizer, StochasticQuantizer, stochastic

__all__ = [
    "ClipRule",
    "Quantizer",
    "RingNoise",
    "StochasticQuantizer",
    "budget",
    "check_fits",
    "check_weights",
    "following_range",
    "largest_levels",
    "largest_total_weight",
    "required_modulus_bits",
    "ring_size",
    "stochastic",
]
