"""Quantizers: real updates to ring elements and back, and the ring that a sum needs."""

from mrsa_jax.quantize._budget import (
    RingBudget,
    budget,
    check_fits,
    check_weights,
    largest_levels,
    largest_total_weight,
    required_modulus_bits,
    ring_size,
)
from mrsa_jax.quantize._ranges import ClipRule, FollowingRange, RangeStatistic, following_range
from mrsa_jax.quantize._stochastic import Quantizer, StochasticQuantizer, stochastic

__all__ = [
    "ClipRule",
    "FollowingRange",
    "Quantizer",
    "RangeStatistic",
    "RingBudget",
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
