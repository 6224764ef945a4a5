"""Clients who each join by a coin of their own, against those who do not see who took part.

Then a round without client i has the law N(y, s^2), and with it the mixture of N(y, s^2) and
N(y + x, s^2) by its coin, whatever y is: the others' coins say nothing of it. Rounds compose, so
`dp_accounting`'s privacy loss distribution of the sampled Gaussian is that of the whole training.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from mrsa_jax._extras import needed

_STEP = 1e-4  # of privacy losses, which are rounded up to multiples of it, or down


def privacy_loss_distribution() -> Any:
    """Return dp_accounting's module of that name, which an extra brings."""
    rule = "distributions of privacy losses need the package dp_accounting"
    return needed("dp_accounting.pld.privacy_loss_distribution", "dp-accounting", rule)


@dataclasses.dataclass(frozen=True)
class Losses:
    """Privacy losses of one client's rounds, rounded so that epsilon is never too small.

    Attributes:
        above: `PrivacyLossDistribution`, rounded up.
        below: The same, rounded down.
    """

    above: Any
    below: Any

    @staticmethod
    def of(coin: float, rounds: int, noise_multiplier: float) -> Losses:
        """Return those of a client who joins each of J rounds with this chance, above 0."""
        library = privacy_loss_distribution()

        def composed(is_above: bool) -> Any:
            one = library.from_gaussian_mechanism(
                noise_multiplier,
                value_discretization_interval=_STEP,
                pessimistic_estimate=is_above,
                use_connect_dots=is_above,
                sampling_prob=coin,
            )
            return one.self_compose(rounds)

        return Losses(composed(is_above=True), composed(is_above=False))

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, rounded up."""
        return float(self.above.get_delta_for_epsilon(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon with which delta is kept, rounded up."""
        return float(self.above.get_epsilon_for_delta(delta))

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return that epsilon rounded down, and rounded up."""
        del error
        return float(self.below.get_epsilon_for_delta(delta)), self.epsilon(delta)
