"""What bounds clients' updates in norm and adds noise to them, as a study's settings have it."""

from __future__ import annotations

import math
from typing import Any

from mrsa_jax import dp, quantize
from mrsa_jax._errors import require
from mrsa_jax.study._protocol_config import AggregationConfig

_FINEST = 2**22  # steps of a lattice in the clip norm, where the ring has room for more


def build_mechanism(config: AggregationConfig, cohort_size: int, dim: int) -> dp.RingMechanism:
    """Return lattice and noise of a study whose clients add noise.

    Raises:
        ConfigurationError: If the ring has no room for the noise.
    """
    return dp.ring_mechanism(
        config.noise,
        config.noise_multiplier,
        float(config.clip_norm or 0.0),
        dim=dim,
        num_clients=cohort_size,
        modulus_bits=config.modulus_bits,
    )


def code_dim(config: AggregationConfig, is_segmented: bool, dim: int) -> int:
    """Return how many coordinates a client sends: a lattice turns updates, and pads them."""
    if config.clip_norm is None or is_segmented:
        return dim
    return quantize.lattice(1.0, 1.0, dim).padded_dim


def build_noise(config: AggregationConfig, cohort_size: int, step: float) -> Any:
    """Return what a client adds to the lattices of blocks, in units of updates; None for none.

    Raises:
        ConfigurationError: If the coarsest lattice, of this step, is too coarse for its law.
    """
    if not config.is_noisy:
        return None
    deviation = config.noise_multiplier * float(config.clip_norm or 0.0) / math.sqrt(cohort_size)
    if config.noise == "skellam":
        return dp.skellam(deviation**2)
    rule = "must leave a client's discrete Gaussian half a step or more, for a bound on sums"
    require(deviation >= step / 2, "group_levels", rule, f"{deviation / step:.3g} of a step")
    return dp.discrete_gaussian(deviation**2)


def build_bounded(config: AggregationConfig, cohort_size: int, dim: int) -> tuple[Any, Any]:
    """Return the quantizer of updates of bounded norm, and each client's noise, None for none.

    Raises:
        ConfigurationError: If the ring has no room for a cohort's sum.
    """
    if config.is_noisy:
        mechanism = build_mechanism(config, cohort_size, dim)
        return mechanism.quantizer, mechanism.noise
    return _lattice(float(config.clip_norm or 0.0), config.modulus_bits, cohort_size, dim), None


def _lattice(clip_norm: float, bits: int, cohort_size: int, dim: int) -> Any:
    """Return the finest lattice on which a cohort's sum cannot leave the ring."""
    most = (2 ** (bits - 1) - 1) // cohort_size  # of one client's code
    padded = 1 << (dim - 1).bit_length()
    steps = min(_FINEST, most - math.ceil(math.sqrt(padded) / 2) - 2)
    rule = "must leave room for a cohort's sum on a lattice that updates are rounded to"
    require(steps >= 1, "modulus_bits", rule, bits, f"{cohort_size} clients, {dim} entries")
    return quantize.lattice(clip_norm / steps, clip_norm, dim)
