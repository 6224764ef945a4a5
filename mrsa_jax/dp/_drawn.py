"""delta and epsilon of privacy losses that were drawn, with an interval (see `_mixtures`)."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from mrsa_jax import _gaussian
from mrsa_jax.dp._mixtures import crossing, evidence, root, unseen


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Losses of releases with the client and without it.

    Attributes:
        sides: float32 `[samples]` each.
        most: mu of a Gaussian that loses no less.
    """

    sides: tuple[Float[np.ndarray, " samples"], ...]
    most: float

    def delta(self, epsilon: float) -> float:
        """Return delta of the worse side, an estimate."""
        return max(float(_gains(losses, epsilon).mean()) for losses in self.sides)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon with which that is at most delta: an estimate."""
        return root(self.delta, self._highest(delta), delta)

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return an interval that holds the pair's epsilon with chance 1 - error."""
        threshold = np.log(2.0 * len(self.sides) / error)
        ends = [self._ends(losses, delta, threshold) for losses in self.sides]
        lower, upper = np.max(ends, axis=0).tolist()
        return lower, upper

    def _ends(self, losses: np.ndarray, delta: float, threshold: float) -> tuple[float, float]:
        def above(epsilon: float) -> float:
            return evidence((delta - _gains(losses, epsilon)) / (1.0 - delta)) - threshold

        def below(epsilon: float) -> float:
            return evidence(_gains(losses, epsilon) / delta - 1.0) - threshold

        highest = self._highest(delta)
        found = root(lambda epsilon: float(_gains(losses, epsilon).mean()), highest, delta)
        lower = 0.0 if found == 0.0 or below(0.0) <= 0.0 else crossing(below, found, 0.0)
        return lower, crossing(above, found, highest)

    def trials_wanted(self, delta: float, error: float) -> int:
        """Return how many samples would leave a tenth of delta for what none has shown."""
        return unseen(1.0, delta, error / len(self.sides))

    def _highest(self, delta: float) -> float:
        return float(_gaussian.epsilon(self.most, delta))


def _gains(losses: np.ndarray, epsilon: float) -> np.ndarray:
    """Return max(0, 1 - exp(epsilon - loss)), whose mean is delta."""
    return -np.expm1(np.minimum(epsilon - losses.astype(np.float64), 0.0))
