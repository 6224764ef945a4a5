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
from mrsa_jax.quantize._lattice import LatticeQuantizer, lattice
from mrsa_jax.quantize._noise import RingNoise
from mrsa_jax.quantize._norms import shortened
from mrsa_jax.quantize._ranges import ClipRule, following_range
from mrsa_jax.quantize._stochastic import Quantizer, StochasticQuantizer, stochastic
from mrsa_jax.quantize._wrap import (
    LIKELIEST_WRAP,
    MOST_CLIENTS,
    check_wraps,
    has_left,
    lifted,
    wrap_probability,
)

__all__ = [
    "LIKELIEST_WRAP",
    "MOST_CLIENTS",
    "ClipRule",
    "LatticeQuantizer",
    "Quantizer",
    "RingNoise",
    "StochasticQuantizer",
    "budget",
    "check_fits",
    "check_weights",
    "check_wraps",
    "following_range",
    "has_left",
    "largest_levels",
    "largest_total_weight",
    "lattice",
    "lifted",
    "required_modulus_bits",
    "ring_size",
    "shortened",
    "stochastic",
    "wrap_probability",
]
