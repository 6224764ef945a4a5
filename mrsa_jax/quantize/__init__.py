"""Quantizers: real updates to ring elements and back, and the ring that a sum needs."""

from mrsa_jax.quantize._budget import check_fits, required_modulus_bits, ring_size
from mrsa_jax.quantize._stochastic import Quantizer, StochasticQuantizer, stochastic

__all__ = [
    "Quantizer",
    "StochasticQuantizer",
    "check_fits",
    "required_modulus_bits",
    "ring_size",
    "stochastic",
]
