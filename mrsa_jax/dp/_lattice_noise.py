"""Noise on the integers, drawn exactly: Skellam and the discrete Gaussian.

The law that is drawn is that of a table of integer weights. It differs from the exact one by a
total variation distance below 2**-126 a draw (`_weights` has the proof), so a mechanism of d
coordinates and R rounds whose exact noise is (epsilon, delta) private is, as drawn from ideal
words, (epsilon, delta + (1 + exp(epsilon)) d R 2**-126) private.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float64, Int32, Key

from mrsa_jax._arrays import on_device
from mrsa_jax._checks import KNOWN, POSITIVE, check_number
from mrsa_jax._device import is_traced
from mrsa_jax._errors import require
from mrsa_jax._html import brief
from mrsa_jax._tracing import needs_values
from mrsa_jax.dp._alias import CUT_BITS, AliasTable, alias_table, draw
from mrsa_jax.dp._laws import Kind, masses, reach, tail

MAX_VARIANCE = 2.0**32
"""Of what is drawn: a standard deviation of 2**16 steps, a table of 2**20 columns."""
_LEAST_SIZE = 2**8
_TAIL_BITS = CUT_BITS + 1.0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LatticeNoise:
    """Noise of one client on the integers (build it with `skellam` or `discrete_gaussian`).

    Attributes:
        kind: "skellam" or "discrete_gaussian".
        words: uint32[2], the bits of the variance as a float64, the higher first: exact whatever
            width JAX's numbers have.
        table: What is drawn from; None where the variance is above 2**32.
    """

    cites = "noise in the ring: kairouz2021distributed agarwal2021skellam dong2022gaussian"
    __repr__ = brief

    kind: Kind = dataclasses.field(metadata={"static": True})
    words: Array
    table: AliasTable | None

    @property
    def variance(self) -> float:
        """Return the variance (the discrete Gaussian's parameter), in squared steps."""
        require(not is_traced(self.words), "noise", KNOWN, self.words)
        return float(np.asarray(self.words).astype(">u4").view(">f8")[0])

    def on(self, step: float | int | np.number) -> LatticeNoise:
        """Return the same noise on the lattice of a step: of variance / step**2.

        Args:
            step: Distance of neighbouring lattice points, positive.

        Returns:
            The noise whose variance is the float64 nearest to that quotient.

        Raises:
            ConfigurationError: If the step is not positive and finite, or so small that the
                noise's standard deviation would pass 2**16 steps.

        Examples:
            >>> skellam(4.0).on(0.5).variance
            16.0
        """
        width = check_number(step, "step", "must be positive", POSITIVE)
        exact = Fraction(self.variance) / Fraction(width) ** 2
        least = math.sqrt(self.variance / MAX_VARIANCE)
        rule = f"must be at least {least:.3g}: the noise is drawn up to 2**16 steps"
        require(exact <= MAX_VARIANCE, "step", rule, step)
        require(float(exact) > 0.0, "step", "must leave noise of a positive variance", step)
        return _noise(self.kind, float(exact))

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Int32[Array, "*_"]:
        """Draw independent integers by integer arithmetic alone.

        Entry i (in order of rows) depends on the key and on i, not on the shape: 64 bits of
        Threefry decide it, and 96 further ones where these do not.

        Args:
            key: One key.
            shape: Of the draws.

        Raises:
            ConfigurationError: If the variance is above 2**32.

        Examples:
            >>> draws = skellam(4.0).sample(jax.random.key(1), (6,))
            >>> bool((draws[:3] == skellam(4.0).sample(jax.random.key(1), (3,))).all())
            True
        """
        rule = "must be at most 2**32 where it is drawn: use a larger step (a smaller scale)"
        require(self.table is not None, "variance", rule, self.words)
        return draw(self.table, key, tuple(shape))

    def mass(self, k: Any) -> Float64[np.ndarray, "*_"]:
        """Return P(X = k) to float64's digits.

        Args:
            k: Integers of any shape.

        Examples:
            >>> discrete_gaussian(0.5).mass([0, 1, -1]).round(6).tolist()
            [0.564131, 0.207532, 0.207532]
        """
        points = np.asarray(k)
        require(points.dtype.kind in "iu", "k", "must hold integers", k)
        unique, places = np.unique(np.abs(points.astype(np.int64)), return_inverse=True)
        found = np.zeros(unique.shape, np.float64)
        for run in np.split(np.arange(unique.size), np.flatnonzero(np.diff(unique) > 64) + 1):
            if run.size:
                first, last = int(unique[run[0]]), int(unique[run[-1]])
                here = masses(self.kind, self.variance, first, last)
                found[run] = [float(here[value - first]) for value in unique[run].tolist()]
        return np.asarray(found[places]).reshape(points.shape)

    def tail(self, bound: Any) -> float:
        """Return P(|X| > bound) to float64's digits.

        Args:
            bound: A number; below 0 everything is beyond it.

        Examples:
            >>> round(skellam(4.0).tail(6), 9)
            0.001967791
        """
        floor = math.floor(check_number(bound, "bound"))
        return 1.0 if floor < 0 else tail(self.kind, self.variance, floor)


@needs_values
def skellam(variance: float | int | np.number) -> LatticeNoise:
    """Return Skellam noise: the difference of two Poisson counts of mean variance / 2.

    A sum of n draws is Skellam noise of n times the variance, exactly.

    Args:
        variance: In squared units of what the noise is added to, positive; `LatticeNoise.on`
            brings it to a lattice of another step than 1.

    Raises:
        ConfigurationError: If the variance is not positive and finite.

    Examples:
        >>> noise = skellam(4.0)
        >>> noise.kind, noise.variance, noise.sample(jax.random.key(0), (2, 3)).shape
        ('skellam', 4.0, (2, 3))

    Source:
        N. Agarwal, P. Kairouz, Z. Liu, "The Skellam mechanism for differentially private federated
        learning" (2021).
    """
    return _noise("skellam", check_number(variance, "variance", "must be positive", POSITIVE))


@needs_values
def discrete_gaussian(variance: float | int | np.number) -> LatticeNoise:
    """Return discrete Gaussian noise: masses in proportion to exp(-k^2 / (2 variance)).

    Args:
        variance: The parameter sigma^2, positive; the variance of the law itself is below it, by
            less than 1e-6 of it from 1 on.

    Raises:
        ConfigurationError: If the variance is not positive and finite.

    Source:
        C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy" (2020).
    """
    number = check_number(variance, "variance", "must be positive", POSITIVE)
    return _noise("discrete_gaussian", number)


def _noise(kind: Kind, variance: float) -> LatticeNoise:
    words = on_device(np.asarray([variance], ">f8").view(">u4").astype(np.uint32))
    return LatticeNoise(kind, words, _table(kind, variance) if variance <= MAX_VARIANCE else None)


@functools.lru_cache(maxsize=32)
def _table(kind: Kind, variance: float) -> AliasTable:
    """Return the table, with room for 2**8, 2**12, 2**16 or 2**20 columns."""
    weights = _weights(kind, variance)
    length = len(weights).bit_length() - 1
    return alias_table(weights, 1 << -(-length // 4) * 4)


def _weights(kind: Kind, variance: float) -> list[int]:
    """Return the weights of the magnitudes 0, 1, ..., their sum 2**(m + 128) for 2**m of them.

    Weight k > 0 is the floor of P(|X| = k) 2**(m + 128), up to a point K < 2**m beyond which
    P(|X| > K) < 2**-129; what the floors leave goes to 0. So the law of the weights has more mass
    than the exact one at 0 alone, and the total variation distance is what was moved there, less
    than 2**m 2**-(m + 128) + 2**-129 < 2**-126.
    """
    import flint

    last = reach(kind, variance, _TAIL_BITS)
    found = masses(kind, variance, 0, last)
    size = max(_LEAST_SIZE, 1 << last.bit_length())
    shift = size.bit_length() - 1 + CUT_BITS
    with flint.ctx.workprec(1024):
        rest = 1 - found[0] - 2 * sum(found[1:], flint.arb(0))
        assert bool(rest < flint.arb(2) ** flint.arb(-_TAIL_BITS))
        unit = flint.arb(2) ** (shift + 1)
        scaled = (mass * unit for mass in found[1:])
        floors = [0 if bool(one < 1) else int(one.floor().unique_fmpz()) for one in scaled]
    weights = [0, *floors] + [0] * (size - last - 1)
    weights[0] = (1 << shift) - sum(weights)
    return weights
