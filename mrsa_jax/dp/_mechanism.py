"""A private sum in the ring: quantizer, noise and ring fitted to each other, and what it spends.

Symbols: z -> `noise_multiplier`, C -> `clip`, g -> the quantizer's step, k -> `window`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.arrays import needs_values
from mrsa_jax.dp._lattice_noise import MAX_VARIANCE, LatticeNoise, discrete_gaussian, skellam
from mrsa_jax.dp._laws import check_sigma, renyi_bound
from mrsa_jax.quantize import LatticeQuantizer, lattice
from mrsa_jax.quantize.wrapping import check_wraps, wrap_probability
from mrsa_watch._base.errors import POSITIVE, check_integer, check_known, check_number, require
from mrsa_watch._base.extras import needed
from mrsa_watch._base.html import brief

ORDERS: tuple[float, ...] = (
    *(round(1.0 + 0.0101 * 1.1**power, 6) for power in range(48)),  # what large epsilons take
    *(half / 2.0 for half in range(4, 33)),
    *range(17, 129),
    *(round(2.0 ** (power / 4.0)) for power in range(29, 65)),
)
"""Renyi orders of `RingMechanism.epsilon`, up to 2**16."""
_LAWS = {"skellam": skellam, "discrete_gaussian": discrete_gaussian}
# A finer step would only cost bits: codes stay below 2**24, a client's noise below what is drawn.
_MOST_STEPS = 2.0**22


@dataclasses.dataclass(frozen=True)
class RingMechanism:
    """What clients do before the ring so that its sum is private (build it with `ring_mechanism`).

    Give `quantizer`, `noise` and `modulus_bits` to `secagg.ring_average`.

    Attributes:
        quantizer: The lattice.
        noise: What one client adds, in units of updates.
        num_clients: n, whose noise is planned in each sum.
        modulus_bits: b of the ring of 2**b elements.
    """

    __repr__ = brief

    quantizer: LatticeQuantizer
    noise: LatticeNoise
    num_clients: int
    modulus_bits: int

    @property
    def step(self) -> float:
        """Return the distance of lattice points, in units of updates."""
        return float(self.quantizer.step)

    @property
    def sensitivity(self) -> float:
        """Return the largest norm of what one client adds to a sum, in units of updates."""
        return self.quantizer.sensitivity

    @property
    def wrap_probability(self) -> float:
        """Return a bound on the chance that a coordinate of the sum wraps round."""
        return wrap_probability(self.quantizer, self.noise, self.num_clients, 2**self.modulus_bits)

    def rdp(self, orders: Any, survivors: Any = None) -> Float64[np.ndarray, "*_"]:
        """Return a bound on the Renyi divergence that one sum spends.

        Between the sums with a client's update and with zeros in its place, its noise added in
        both. Integers decide what a client can add and what is drawn, so nothing is left to
        floating point but this number's own digits; the sampler's distance from the exact law,
        below 2**-126 a draw, adds as much to delta. What the ring wraps round costs nothing.

        Args:
            orders: alpha > 1, a number or several.
            survivors: How many clients' noise is in the sum and unknown to whom it is kept from,
                0 to `num_clients`; several give their axes before the orders'. All if None.

        Returns:
            float64 [*survivors, *orders]; inf without noise.

        Raises:
            ConfigurationError: If a number is out of range.
        """
        alpha = np.asarray(orders, float)
        require(bool((alpha > 1).all()), "orders", "must be above 1", orders)
        count = np.asarray(self.num_clients if survivors is None else survivors)
        integers = count.dtype.kind in "iu"
        inside = integers and bool(((count >= 0) & (count <= self.num_clients)).all())
        rule = f"must be integers in [0, {self.num_clients}]"
        require(inside, "survivors", rule, survivors)
        own, bound = self.quantizer, float(self.quantizer.squared_bound)
        return renyi_bound(
            self.noise.kind,
            alpha,
            l2=math.sqrt(bound),
            l1=min(bound, math.sqrt(bound * own.padded_dim)),
            dim=own.padded_dim,
            variance=self.noise.variance / self.step**2,
            count=count.reshape(count.shape + (1,) * alpha.ndim),
        )

    def epsilon(self, delta: Any, rounds: Any = 1, survivors: Any = None) -> float:
        """Return epsilon at delta after some sums with the same client in all of them.

        By `dp_accounting`'s conversion from Renyi divergences, at orders up to 2**16.

        Args:
            delta: In (0, 1).
            rounds: Sums, if each has the same survivors.
            survivors: As in `rdp`; int[R] for R sums, each taken `rounds` times.

        Returns:
            epsilon, inf where a sum has no noise.

        Raises:
            ConfigurationError: If a number is out of range.
        """
        number = check_number(delta, "delta", "must lie in (0, 1)", POSITIVE, 1.0)
        require(number < 1.0, "delta", "must lie in (0, 1)", delta)
        times = check_integer(rounds, "rounds", 1)
        spent = self.rdp(ORDERS, survivors).reshape(-1, len(ORDERS)).sum(axis=0) * times
        if not np.isfinite(spent).any():
            return math.inf
        rule = "epsilon of a ring mechanism needs the package dp_accounting"
        library = needed("dp_accounting.rdp.rdp_privacy_accountant", "dp-accounting", rule)
        return float(library.compute_epsilon(ORDERS, spent, number)[0])


@needs_values
def ring_mechanism(
    kind: str,
    noise_multiplier: float | int | np.floating,
    clip: float | int | np.floating,
    *,
    dim: int | np.integer,
    num_clients: int | np.integer,
    modulus_bits: int | np.integer,
    window: float | int | np.floating = 4.0,
    rotate: bool = True,
    key: int | np.integer = 0,
) -> RingMechanism:
    """Fit quantizer and noise to a ring: the finest lattice whose sums stay in its window.

    Each client adds noise of variance (z C)^2 / n. The step g is the smallest with k standard
    deviations of a coordinate of the sum inside half the ring,
    k (S^2 + n (z C)^2 / n + n g^2 / 4)^(1/2) = g 2^(b - 1): S^2 = (n C)^2 / d with a rotation, all
    updates alike being the worst case. That is how the step is chosen, no promise: what holds is
    `wrap_probability`, a bound. Without a rotation one coordinate may hold n C, for which there is
    room beside k standard deviations of the noise. The step is not made finer than 2**-22 of C,
    nor than 2**-16 of a client's noise.

    Args:
        kind: "skellam" or "discrete_gaussian".
        noise_multiplier: z, standard deviation of the sum's noise in units of C.
        clip: C, norm to which updates are shortened.
        dim: d, length of an update.
        num_clients: n, clients in a sum.
        modulus_bits: b of the ring of 2**b elements, 1 to 32.
        window: k.
        rotate: Whether updates are rotated at random.
        key: Seed of the rotation.

    Returns:
        The mechanism, with `.rdp(orders, survivors)` and `.epsilon(delta, rounds)`.

    Raises:
        ConfigurationError: If an argument is out of range, or the ring too small: for the sums
            (the message has the bound on a coordinate's chance to wrap round), or for steps of at
            most C.

    Examples:
        >>> own = ring_mechanism("skellam", 1.0, 0.5, dim=1000, num_clients=20, modulus_bits=18)
        >>> own.wrap_probability < 1e-3, 0.5 < own.sensitivity < 0.501
        (True, True)
        >>> round(own.epsilon(1e-5), 2), round(own.epsilon(1e-5, survivors=10), 2)
        (4.73, 7.09)

    Source:
        Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for federated learning
        with secure aggregation" (ICML 2021), Section 4; Agarwal, Kairouz, Liu, "The Skellam
        mechanism for differentially private federated learning" (NeurIPS 2021).
    """
    name = check_known(kind, "kind", tuple(_LAWS), "a known law")
    rule = "must be positive and finite"
    times = check_number(noise_multiplier, "noise_multiplier", rule, POSITIVE)
    norm, wide = (
        check_number(value, argument, rule, POSITIVE)
        for argument, value in (("clip", clip), ("window", window))
    )
    count = check_integer(num_clients, "num_clients", 2)
    bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
    share = (times * norm) ** 2 / count
    padded = lattice(norm, norm, dim, rotate=rotate).padded_dim
    step = _step(norm, share, count, padded, 2.0 ** (bits - 1), wide, rotate)
    require(math.isfinite(step), "modulus_bits", "must leave room for the rounding of all clients: "
            "a coordinate of the sum may wrap round with a chance of 1", bits)  # fmt: skip
    step = max(step, norm / _MOST_STEPS, math.sqrt(share / MAX_VARIANCE) * (1.0 + 2.0**-20))
    check_sigma(name, math.sqrt(share) / step, "modulus_bits", bits)
    quantizer = lattice(step, norm, dim, rotate=rotate, key=key)
    noise = _LAWS[name](share)
    check_wraps(quantizer, noise, count, bits)
    rule = ("must leave steps of at most the clip norm: on a coarser lattice rounding adds more to "
            "what a client sends than the clip allows")  # fmt: skip
    require(step <= norm, "modulus_bits", rule, f"{bits} bits, a step of {step:.3g}", norm)
    return RingMechanism(quantizer, noise, count, bits)


def _step(
    clip: float, share: float, count: int, dim: int, half: float, window: float, rotate: bool
) -> float:
    """Return the smallest step whose sums fit, infinite if there is none."""
    if rotate:
        left = half**2 - window**2 * count / 4.0
        spread = window**2 * ((count * clip) ** 2 / dim + count * share)
        return math.sqrt(spread / left) if left > 0 else math.inf

    left = half - count
    return (count * clip + window * math.sqrt(count * share)) / left if left > 0 else math.inf
