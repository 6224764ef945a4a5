"""A private sum in the ring.

Quantizer, noise and ring fitted to each other, and what it spends.
Symbols: z -> `noise_multiplier`, C -> `clip`, g -> the quantizer's step, k -> `window`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax import privacy
from mrsa_jax._core.array_types import Floats, Real, Whole
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.traced import needs_values
from mrsa_jax.dp._lattice_noise import (
    MAX_VARIANCE,
    LatticeNoise,
    discrete_gaussian,
    skellam,
)
from mrsa_jax.dp._laws import check_sigma, renyi_bound
from mrsa_jax.quantize import LatticeQuantizer, lattice
from mrsa_jax.quantize.wrapping import check_wraps, wrap_probability
from mrsa_watch._base.errors import (
    POSITIVE,
    check_inside,
    check_integer,
    check_known,
    check_number,
    needed,
    require,
)
from mrsa_watch._base.html import brief
from mrsa_watch._base.values import by_value

ORDERS: tuple[float, ...] = (
    # what large epsilons take
    *(round(1.0 + 0.0101 * 1.1**power, 6) for power in range(48)),
    *(half / 2.0 for half in range(4, 33)),
    *range(17, 129),
    *(round(2.0 ** (power / 4.0)) for power in range(29, 65)),
)
"""Renyi orders of `RingMechanism.epsilon`, up to 2**16."""
_LAWS = {"skellam": skellam, "discrete_gaussian": discrete_gaussian}
# A finer step would only cost bits: codes stay below 2**24, a client's noise below what
# is drawn.
_MOST_STEPS = 2.0**22


@dataclasses.dataclass(frozen=True)
class RingMechanism:
    """Work of clients before the ring that makes its sum private.

    Build it with `ring_mechanism`.

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
        """Return the largest norm of one client's part of a sum, in updates' units."""
        return self.quantizer.sensitivity

    @property
    def wrap_probability(self) -> float:
        """Return a bound on the chance that a coordinate of the sum wraps round."""
        return wrap_probability(
            self.quantizer, self.noise, self.num_clients, 2**self.modulus_bits
        )

    def rdp(self, orders: Any, survivors: Any = None) -> Floats:
        """Return a bound on the Renyi divergence that one sum spends.

        Between the sums with a client's update and with zeros in its place, its noise
        added in both. Integers decide what a client can add and what is drawn, so
        nothing is left to floating point but this number's own digits; the sampler's
        distance from the exact law, below 2**-126 a draw, adds as much to delta. What
        the ring wraps round costs nothing.

        Args:
            orders: alpha > 1, a number or several.
            survivors: How many clients' noise is in the sum and unknown to those from
                which it is kept, 0 to `num_clients`; several give their axes before the
                orders'. All if None.

        Returns:
            float64 [*survivors, *orders]; inf without noise.

        Raises:
            ConfigurationError: If a number is out of range.
        """
        alpha = np.asarray(orders, float)
        require(bool((alpha > 1).all()), "orders", "must be above 1", orders)
        most = self.num_clients
        count = np.asarray(most if survivors is None else survivors)
        inside = count.dtype.kind in "iu" and not ((count < 0) | (count > most)).any()
        require(inside, "survivors", f"must be integers in [0, {most}]", survivors)
        quantizer = self.quantizer
        bound = float(quantizer.squared_bound)
        return renyi_bound(
            self.noise.kind,
            alpha,
            l2=math.sqrt(bound),
            # On the lattice |x|_1 <= |x|_2^2, as its points are integers; and by
            # Cauchy-Schwarz.
            l1=min(bound, math.sqrt(bound * quantizer.padded_dim)),
            dim=quantizer.padded_dim,
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
        number = check_inside(delta, "delta")
        times = check_integer(rounds, "rounds", 1)
        spent = self.rdp(ORDERS, survivors).reshape(-1, len(ORDERS)).sum(axis=0) * times
        if not np.isfinite(spent).any():
            return math.inf
        rule = "epsilon of a ring mechanism needs the package dp_accounting"
        library = needed(
            "dp_accounting.rdp.rdp_privacy_accountant", "dp-accounting", rule
        )
        return float(library.compute_epsilon(ORDERS, spent, number)[0])


@needs_values
def ring_mechanism(
    kind: str,
    noise_multiplier: Real,
    clip: Real,
    *,
    dim: Whole,
    num_clients: Whole,
    modulus_bits: Whole,
    window: Real = 4.0,
    rotate: bool = True,
    key: Whole = 0,
) -> RingMechanism:
    """Fit quantizer and noise to a ring.

    The finest lattice whose sums stay in its window.
    Each client adds noise of variance (z C)^2 / n. The step g is the smallest with k
    standard deviations of a coordinate of the sum inside half the ring, k (S^2 + n (z
    C)^2 / n + n g^2 / 4)^(1/2) = g 2^(b - 1): S^2 = (n C)^2 / d with a rotation, all
    updates alike being the worst case. That is how the step is chosen, no promise: what
    holds is `wrap_probability`, a bound. Without a rotation one coordinate may hold n
    C, for which there is room in addition to k standard deviations of the noise. The
    step is not made finer than 2**-22 of C, nor than 2**-16 of a client's noise.

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
        ConfigurationError: If an argument is out of range, or the ring too small: for
            the sums (the message has the bound on a coordinate's chance to wrap round),
            or for steps of at most C.

    Examples:
        >>> import mrsa_jax as mj
        >>> own = mj.dp.ring_mechanism(
        ...     "skellam", 1.0, 0.5, dim=1000, num_clients=20, modulus_bits=18
        ... )
        >>> own.wrap_probability < 1e-3, 0.5 < own.sensitivity < 0.501
        (True, True)
        >>> round(own.epsilon(1e-5), 2), round(own.epsilon(1e-5, survivors=10), 2)
        (4.73, 7.09)

    Source:
        Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for
        federated learning with secure aggregation" (ICML 2021), Section 4; Agarwal,
        Kairouz, Liu, "The Skellam mechanism for differentially private federated
        learning" (NeurIPS 2021).
    """
    name = check_known(kind, "kind", tuple(_LAWS), "a known law")
    rule = "must be positive and finite"
    settings = {"noise_multiplier": noise_multiplier, "clip": clip, "window": window}
    times, norm, wide = (
        check_number(value, argument, rule, POSITIVE)
        for argument, value in settings.items()
    )
    count = check_integer(num_clients, "num_clients", 2)
    bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
    # Each of n clients adds 1 / n of the variance (z C)^2, so that all together reach
    # it.
    share = (times * norm) ** 2 / count
    padded = lattice(norm, norm, dim, rotate=rotate).padded_dim
    step = _step(norm, share, count, padded, 2.0 ** (bits - 1), wide, rotate)
    require(
        math.isfinite(step),
        "modulus_bits",
        "must leave room for the rounding of all clients: "
        "a coordinate of the sum may wrap round with a chance of 1",
        bits,
    )
    step = max(
        step, norm / _MOST_STEPS, math.sqrt(share / MAX_VARIANCE) * (1.0 + 2.0**-20)
    )
    check_sigma(name, math.sqrt(share) / step, "modulus_bits", bits)
    quantizer = lattice(step, norm, dim, rotate=rotate, key=key)
    noise = _LAWS[name](share)
    check_wraps(quantizer, noise, count, bits)
    rule = (
        "must leave steps of at most the clip norm: on a coarser lattice rounding adds "
        "more to "
        "what a client sends than the clip allows"
    )
    require(
        step <= norm, "modulus_bits", rule, f"{bits} bits, a step of {step:.3g}", norm
    )
    return RingMechanism(quantizer, noise, count, bits)


def _step(
    clip: float,
    share: float,
    count: int,
    dim: int,
    half: float,
    window: float,
    rotate: bool,
) -> float:
    """Return the smallest step whose sums fit, infinite if there is none."""
    if rotate:
        # Solve for g: window^2 times the variance of a coordinate (signal, noise,
        # rounding of at most g^2 / 4 per client) must not exceed (g half)^2.
        room = half**2 - window**2 * count / 4.0
        spread = window**2 * ((count * clip) ** 2 / dim + count * share)
        return math.sqrt(spread / room) if room > 0 else math.inf
    room = half - count
    reach = count * clip + window * math.sqrt(count * share)
    return reach / room if room > 0 else math.inf


# Symbols: S -> `SegmentAverage.sensitivity`, g -> the coarsest step of a layout, v ->
# variance of one client's noise, n -> the fewest survivors of the blocks that a client
# is in.


@dataclasses.dataclass(frozen=True)
class BlockMechanism:
    """The mechanism of a round of blocks, in steps of the coarsest lattice.

    A client moves one sum of each segment l, by c_l in the Euclidean norm and in units
    of updates; sum of c_l^2 <= S^2, as S bounds the whole change. The noise of that
    sum, of n_l survivors, has variance n_l v. Blocks' noise is independent, so that
    what the server sees of the client is Gaussian with mu^2 = sum of c_l^2 / (n_l v) <=
    S^2 / (n v): a convex combination, largest where all of S is in the block with the
    fewest survivors, and reached there.

    Of the integers drawn, Renyi divergences of the blocks add up. Those of n_l > n
    draws are at most those of n, as more noise hides no less. Each term of
    `renyi_bound` for n draws, summed over the blocks, is at most that of one vector of
    all d coordinates on the coarsest lattice: a sum of c_l^2 is at most S^2, of c_l
    len_l^(1/2) at most S d^(1/2) (Cauchy, Schwarz), tau grows with the step, (a_l +
    b_l)^2 adds up as norms do (Minkowski), and a client's shift has l1 <= len^(1/2) l2.

    Attributes:
        noise: One client's, on that lattice.
        sensitivity: S / g.
        num_clients: The most of a block.
        dim: d.
    """

    noise: LatticeNoise
    sensitivity: float
    num_clients: int
    dim: int

    @staticmethod
    def of(average: Any) -> BlockMechanism:
        """Return the mechanism of what `hetero.segment_average` returned, or raise.

        Raises:
            ConfigurationError: If it adds no noise, does not bound updates, or has less
                of the discrete Gaussian's than the bound on its sums is proved for.
        """
        rule = (
            "must be a `hetero.segment_average` with `noise` and `clip_norm` for sums "
            "of segments"
        )
        parts = ("layout", "noise", "clip_norm")
        legal = all(getattr(average, part, None) is not None for part in parts)
        require(legal, "mechanism", rule, average)
        levels = np.asarray(average.noise.levels)
        coarsest = int(np.argmin(levels))
        fewest = int(levels[coarsest])
        law = average.noise.laws[coarsest]
        check_sigma(law.kind, math.sqrt(law.variance), "levels", fewest)
        quantizer = average.quantizer
        step = (float(quantizer.upper) - float(quantizer.lower)) / (fewest - 1)
        most = max(len(block.members) for block in average.layout.blocks)
        # the lattice has its step in float32
        sensitivity = average.sensitivity / step * (1.0 + 2.0**-22)
        return BlockMechanism(law, sensitivity, most, average.layout.dim)

    def rdp(self, orders: Any, survivors: Any) -> Float64[np.ndarray, "sorts orders"]:
        """Bound the divergence of each order, by the fewest survivors of a block."""
        return renyi_bound(
            self.noise.kind,
            orders,
            l2=self.sensitivity,
            l1=math.sqrt(self.dim) * self.sensitivity,
            dim=self.dim,
            variance=self.noise.variance,
            count=np.asarray(survivors)[:, None],
        )


_VAST = 1e250  # stands for an infinite divergence, of which a client may have none
_LEAST = 1.01  # no orders below it: 1 / (order - 1) takes their digits


@dataclasses.dataclass(frozen=True)
@by_value
class Composed:
    """Differential privacy of sums whose noise is a ring mechanism's.

    Attributes:
        counts: `[kinds, sorts]`, of each kind of client the sums of each sort.
        kinds: int `[clients]`, -1 for colluding clients.
        divergences: float64 `[sorts, orders]` of a sum of each sort.
    """

    counts: np.ndarray
    kinds: np.ndarray
    divergences: np.ndarray

    @staticmethod
    def of(
        mechanism: RingMechanism | BlockMechanism,
        rows: np.ndarray,
        added: np.ndarray,
        members: np.ndarray,
    ) -> Composed:
        """Return it for sums of which `added` clients' noise is unknown.

        `members` collude.
        """
        unknown = np.minimum(added, mechanism.num_clients)  # more noise hides no less
        sorts = np.unique(unknown[unknown > 0])
        # Clients with the same number of sums of each sort spend the same: only
        # different rows are composed.
        each = np.stack(
            [np.count_nonzero(rows[unknown == sort], axis=0) for sort in sorts]
            or [np.zeros(rows.shape[1], np.int64)],
            axis=1,
        ).astype(np.int32)
        counts, kinds = np.unique(each, axis=0, return_inverse=True)
        kinds = kinds.reshape(-1).copy()
        kinds[members] = -1
        spent = (
            mechanism.rdp(ORDERS, sorts) if sorts.size else np.zeros((1, len(ORDERS)))
        )
        return Composed(counts, kinds, _usable(spent))

    def epsilon(self, delta: Any) -> Floats:
        """Return the least epsilon of all orders that keeps delta, of each client.

        Source: Canonne, Kamath, Steinke, "The discrete Gaussian for differential
        privacy" (2020), Proposition 12; Bun, Steinke (2016) for delta^2 above 1 -
        exp(-divergence).
        """
        level = self._asked(delta, "delta")
        order = np.asarray(ORDERS, np.float64)

        def least(spent: np.ndarray) -> np.ndarray:
            epsilons = (
                spent + np.log1p(-1 / order) - np.log(level * order) / (order - 1)
            )
            # With so little divergence, epsilon 0 already keeps delta: total variation
            # is at most sqrt(1 - exp(-D)).
            epsilons = np.where(level**2 + np.expm1(-spent) > 0, 0.0, epsilons)
            return np.maximum(epsilons.min(axis=-1), 0.0)

        return self._of_clients(level, least, np.inf)

    def delta(self, epsilon: Any) -> Floats:
        """Return the least delta of all orders at epsilon, of each client."""
        level = self._asked(epsilon, "epsilon")
        order = np.asarray(ORDERS, np.float64)

        def least(spent: np.ndarray) -> np.ndarray:
            logarithms = (order - 1) * (spent + np.log1p(-1 / order) - level) - np.log(
                order
            )
            return np.exp(np.minimum(logarithms.min(axis=-1), 0.0))

        return self._of_clients(level, least, 1.0)

    def _asked(self, value: Any, name: str) -> np.ndarray:
        """Return a checked number or array as `[..., 1, 1]`.

        It is checked as for Gaussian noise.
        """
        check = privacy.Distinguishability(np.zeros(1), 1.0, None)
        (check.epsilon if name == "delta" else check.delta)(value)
        return np.asarray(value, np.float64)[..., None, None]

    def _of_clients(self, level: np.ndarray, least: Any, most: float) -> np.ndarray:
        values = np.empty((*level.shape[:-2], len(self.counts)))
        step = at_once("columns", 4 * 8 * len(ORDERS) * max(1, level.size))
        for start in range(0, len(self.counts), step):
            some = slice(start, start + step)
            spent = self.counts[some] @ self.divergences
            values[..., some] = np.where(spent.min(axis=1) >= _VAST, most, least(spent))
            nothing = ~self.counts[some].any(axis=1)
            values[..., some][..., nothing] = 0.0
        return np.where(self.kinds < 0, np.nan, values[..., self.kinds])


@dataclasses.dataclass(frozen=True)
@by_value
class RingLosses:
    """Joint cost of a number of full sums, any real number.

    Its square root is mu.

    Attributes:
        divergences: float64 `[1, orders]` of one sum with all of its noise.
    """

    divergences: np.ndarray

    @staticmethod
    def of(mechanism: RingMechanism) -> tuple[RingLosses, np.ndarray, np.ndarray]:
        """Return losses, and costs of sums of 0, 1, ... clients' noise in full sums.

        At least and at most, over the orders; nothing of none.
        """
        order = np.asarray(ORDERS, np.float64)
        each = mechanism.rdp(order, np.arange(1, mechanism.num_clients + 1))
        ratios = (each / each[-1])[:, order > _LEAST]
        ratios = np.where(np.isfinite(ratios), ratios, _VAST)
        below = np.append(0.0, ratios.min(axis=1))
        above = np.append(0.0, ratios.max(axis=1))
        return RingLosses(_usable(each[-1:])), below, above

    def delta(self, mu: Any, epsilon: float) -> Floats:
        """Return delta at one epsilon."""
        return self._of(mu).delta(epsilon).reshape(np.shape(mu))

    def epsilon(self, mu: Any, delta: float) -> Floats:
        """Return the least epsilon with which delta is kept."""
        return self._of(mu).epsilon(delta).reshape(np.shape(mu))

    def _of(self, mu: Any) -> Composed:
        counts = np.square(np.asarray(mu, np.float64)).reshape(-1, 1)
        return Composed(counts, np.arange(len(counts)), self.divergences)


def _usable(divergences: np.ndarray) -> np.ndarray:
    return np.where(np.asarray(ORDERS) > _LEAST, np.minimum(divergences, _VAST), _VAST)
