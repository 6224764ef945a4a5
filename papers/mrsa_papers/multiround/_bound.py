"""Theorem 2: the convergence rate when C of K clients are summed on average.

Source: Multi-RoundSecAgg (AAAI version), Section 5.2 and Appendix B, with
docs/errata.md. Symbols: rho `smoothness`, mu `strong_convexity`, sigma_i^2
`gradient_variance`, G `gradient_bound`, L* `minimum`, L_i* `client_minima`, E
`local_steps`, J `num_rounds`, C `cardinality`. NumPy, float64.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np

Form = Literal["printed", "corrected"]


@dataclasses.dataclass(frozen=True)
class ConvexConstants:
    """Constants of a problem that Theorem 2 uses (Assumptions 1 to 4).

    Attributes:
        smoothness: rho of Assumption 1.
        strong_convexity: mu of Assumption 2.
        gradient_variance: (1/N) sum of sigma_i^2, Assumption 3.
        gradient_bound: G of Assumption 4 (not squared).
        squared_distance: E |x(0) - x*|^2.
        minimum: L*, the least global loss.
        client_minima: L_i*, the least loss of each client, one for all or N of them.
    """

    smoothness: float
    strong_convexity: float
    gradient_variance: float
    gradient_bound: float
    squared_distance: float
    minimum: float = 0.0
    client_minima: tuple[float, ...] = (0.0,)

    def heterogeneity(self, num_clients: int, form: Form = "corrected") -> float:
        """Return Gamma: L* - mean of L_i*; as printed, L* - sum of L_i*."""
        # one minimum stands for all clients
        minima = np.broadcast_to(np.asarray(self.client_minima), (num_clients,))
        total = math.fsum(minima.tolist())
        return self.minimum - (total if form == "printed" else total / num_clients)


def convergence_bound(
    num_clients: int,
    cohort_size: int,
    privacy_target: int,
    num_rounds: int,
    cardinality: float,
    constants: ConvexConstants,
    *,
    local_steps: int = 1,
    form: Form = "corrected",
) -> float:
    """Return Theorem 2's bound on E[L(x(J))] - L* after J rounds, with skipped ones.

    For federated averaging on strongly convex losses, equal dropout rates, uniform
    choice among the available cohorts (`fairness="uniform"`), the mean of K local
    models as the next model, and step sizes 2 / (mu (gamma + j)) at the j-th executed
    local step:

        b(I) = rho / (gamma + I - 1) (2 (alpha + beta) / mu^2 + gamma/2 |x(0) - x*|^2),
        alpha = (1/N) sum sigma_i^2 + 6 rho Gamma + 8 (E - 1)^2 G^2, gamma = max(8
        rho/mu, E).

    "printed" is b(E J C/K) with beta = 4 (N - K) E^2 G^2 / (K (N - 1)) and
    Gamma = L* - sum L_i*. "corrected" is a valid bound: the mean of b(E X) over the
    number X ~ Binomial(J, C/K) of rounds that are executed (b is convex, so its value
    at the mean is too small); beta = 4 T (N - K) E^2 G^2 / (K (N - T)), the variance of
    drawing blocks and not single clients; and Gamma = L* - (1/N) sum L_i*.

    Args:
        num_clients: N, a multiple of T.
        cohort_size: K, a multiple of T.
        privacy_target: T (the printed form does not use it).
        num_rounds: J >= 1.
        cardinality: C in [0, K], e.g. `expected_cardinality`.
        constants: Of the problem (`QuadraticProblem.constants`).
        local_steps: E >= 1, local gradient steps a round (steps, not epochs).
        form: "printed" or "corrected".

    Returns:
        The bound, float64.

    Examples:
        >>> unit = ConvexConstants(1.0, 1.0, 1.0, 1.0, 1.0)
        >>> [round(convergence_bound(120, 12, 1, 100, 1.2, unit, form=form), 4)
        ...  for form in ("printed", "corrected")]
        [0.3885, 0.4012]

    Source: Multi-RoundSecAgg, Theorem 2, eq. (8); corrected as in docs/errata.md, with
    t -> j + 1 in (24). Keeps (1/N) sum sigma_i^2, which is valid and weaker than the
    (1/N^2) of Li et al.
    """
    n, k, steps = num_clients, cohort_size, local_steps
    unit = privacy_target if form == "corrected" else 1
    # the variance of a cohort's mean over that of one client's, for values equal within
    # blocks
    drawing = 0.0 if n == k else unit * (n - k) / (k * (n - unit))
    beta = 4.0 * drawing * (steps * constants.gradient_bound) ** 2
    alpha = (
        constants.gradient_variance
        + 6.0 * constants.smoothness * constants.heterogeneity(n, form)
        + 8.0 * ((steps - 1) * constants.gradient_bound) ** 2
    )
    mu = constants.strong_convexity
    gamma = max(8.0 * constants.smoothness / mu, float(steps))
    scale = 2.0 * (alpha + beta) / mu**2 + gamma / 2.0 * constants.squared_distance
    share = min(float(cardinality) / k, 1.0)
    if form == "printed":
        return constants.smoothness * scale / (gamma + share * steps * num_rounds - 1.0)
    # over the number of rounds that are not skipped
    executed = np.arange(num_rounds + 1, dtype=np.float64)
    rates = constants.smoothness * scale / (gamma + executed * steps - 1.0)
    # the mean over X, as b at the mean of X would be too small
    return float(_binomial_law(num_rounds, share) @ rates)


def _binomial_law(trials: int, chance: float) -> np.ndarray:
    """Return P(X = x) for x = 0..trials, from logarithms, normalised."""
    if chance in (0.0, 1.0):
        law = np.zeros(trials + 1)
        law[trials if chance == 1.0 else 0] = 1.0
        return law
    # ratios of neighbouring terms, (n - x)/(x + 1) p/(1 - p)
    odds = math.log(chance) - math.log1p(-chance)
    steps = np.log(np.arange(trials, 0.0, -1.0) / np.arange(1.0, trials + 1.0)) + odds
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    # the largest term is 1, so that none overflows
    law = np.exp(logs - logs.max())
    return law / law.sum()
