"""Theorem 2: the convergence rate when C of K clients are summed on average.

Source: Multi-RoundSecAgg (AAAI version), Section 5.2 and Appendix B, with
docs/errata.md. Symbols: rho `smoothness`, mu `strong_convexity`, sigma_i^2
`gradient_variance`, G `gradient_bound`, L* `minimum`, L_i* `client_minima`, E
`local_steps`, J `num_rounds`, C `cardinality`. NumPy, float64.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from mrsa_jax.selection.checks import check_sizes
from mrsa_watch._base.errors import (
    check_finite,
    check_integer,
    check_known,
    check_number,
    check_size,
    require,
)

Form = Literal["printed", "corrected"]

MOST_ROUNDS = 10**7
"""Rounds up to which `rounds_to_reach` looks for a bound."""


_ROUNDING = 1e-6  # of least losses that were measured


@dataclasses.dataclass(frozen=True)
class ConvexConstants:
    """Constants of a problem that Theorem 2 uses (Assumptions 1 to 4).

    Give them, or measure them with `QuadraticProblem.constants`.

    Attributes:
        smoothness: rho of Assumption 1, above 0.
        strong_convexity: mu of Assumption 2, above 0 and at most rho.
        gradient_variance: (1/N) sum of sigma_i^2, Assumption 3.
        gradient_bound: G of Assumption 4 (not squared).
        squared_distance: E |x(0) - x*|^2.
        minimum: L*, the least global loss, at least the mean of the L_i*.
        client_minima: L_i*, the least loss of each client, one for all or N of them.

    Raises:
        ConfigurationError: If a constant is no finite number or out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> unit = mj.federated.ConvexConstants(1.0, 1.0, 1.0, 1.0, 1.0)
        >>> unit.heterogeneity(12)
        0.0
    """

    smoothness: float
    strong_convexity: float
    gradient_variance: float
    gradient_bound: float
    squared_distance: float
    minimum: float = 0.0
    client_minima: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        """Check all constants."""
        rho = check_number(
            self.smoothness, "smoothness", "must be positive", sys.float_info.min
        )
        rule = "must be positive, and at most `smoothness`"
        least = sys.float_info.min
        check_number(self.strong_convexity, "strong_convexity", rule, least, rho)
        for name in ("gradient_variance", "gradient_bound", "squared_distance"):
            check_number(getattr(self, name), name, "must be 0 or more", 0.0)
        check_finite(self.minimum, "minimum")
        is_some = isinstance(self.client_minima, tuple) and len(self.client_minima) > 0
        rule = "must be a tuple of one number, or of one for each client"
        require(is_some, "client_minima", rule, self.client_minima)
        for least in self.client_minima:
            check_finite(least, "client_minima")
        mean = math.fsum(self.client_minima) / len(self.client_minima)
        slack = _ROUNDING * (abs(mean) + abs(self.minimum))
        rule = "must be at least the mean of `client_minima`"
        require(self.minimum >= mean - slack, "minimum", rule, self.minimum, mean)

    def heterogeneity(self, num_clients: int, form: Form = "corrected") -> float:
        """Return Gamma: L* - mean of L_i*; as printed, L* - sum of L_i*.

        Args:
            num_clients: N.
            form: "printed" or "corrected".

        Raises:
            ConfigurationError: If `client_minima` holds neither one number nor N.
        """
        # one minimum stands for all clients
        minima = self.client_minima
        rule = "must be a tuple of one number, or of one for each client"
        require(len(minima) in (1, num_clients), "client_minima", rule, len(minima))
        total = math.fsum(minima) * (num_clients if len(minima) == 1 else 1)
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
    """Bound E[L(x(J))] - L* after J rounds, skipped ones among them, by Theorem 2.

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
        cardinality: C in [0, K], e.g. `selection.expected_cardinality`.
        constants: Of the problem, given or measured (`QuadraticProblem.constants`).
        local_steps: E >= 1, local gradient steps per round (steps, not epochs).
        form: "printed" or "corrected".

    Returns:
        The bound, float64, in units of the loss.

    Raises:
        ConfigurationError: If an argument is out of range, or T does not divide N and
            K.

    Edge cases: with C = 0 no round is executed, and the corrected bound is that of the
    start. The printed Gamma can be negative, and so can the printed bound.

    Examples:
        >>> import mrsa_jax as mj
        >>> unit = mj.federated.ConvexConstants(1.0, 1.0, 1.0, 1.0, 1.0)
        >>> [round(mj.federated.convergence_bound(
        ...     120, 12, 1, 100, 1.2, unit, form=form), 4)
        ...  for form in ("printed", "corrected")]
        [0.3885, 0.4012]

    Cost: J additions.

    Source: Multi-RoundSecAgg, Theorem 2, eq. (8); corrected as in docs/errata.md, with
    t -> j + 1 in (24). Keeps (1/N) sum sigma_i^2, which is valid and weaker than the
    (1/N^2) of Li et al.
    """
    rounds = check_size(num_rounds, "num_rounds")
    sizes = check_sizes(num_clients, cohort_size, privacy_target)
    return _bound(sizes, cardinality, constants, local_steps, form)(rounds)


def rounds_to_reach(
    gap: float,
    num_clients: int,
    cohort_size: int,
    privacy_target: int,
    cardinality: float,
    constants: ConvexConstants,
    *,
    local_steps: int = 1,
    form: Form = "corrected",
) -> int:
    """Return the fewest rounds J after which Theorem 2's bound is at most a gap.

    Two schemes with their own T and C are compared at one gap: what a T costs in
    rounds.

    Args:
        gap: E[L(x(J))] - L* to guarantee, above 0, in units of the loss.
        num_clients: As of `convergence_bound`, and so are the following.
        cohort_size: K.
        privacy_target: T.
        cardinality: C in (0, K].
        constants: Of the problem.
        local_steps: E.
        form: "printed" or "corrected".

    Returns:
        J >= 1.

    Raises:
        ConfigurationError: As `convergence_bound`; or if C is 0, or 10^7 rounds do not
            suffice.

    Examples:
        >>> import mrsa_jax as mj
        >>> unit = mj.federated.ConvexConstants(1.0, 1.0, 1.0, 1.0, 1.0)
        >>> gap = mj.federated.convergence_bound(120, 12, 1, 300, 12.0, unit)
        >>> [mj.federated.rounds_to_reach(gap, 120, 12, t, c, unit)
        ...  for t, c in ((1, 12.0), (6, 8.44))]
        [300, 638]

    Cost: About 2 log2(J) bounds.

    Source: Multi-RoundSecAgg, Theorem 2 and Remark 8.
    """
    rule = "must be positive"
    most = check_number(gap, "gap", rule, sys.float_info.min)
    sizes = check_sizes(num_clients, cohort_size, privacy_target)
    bound = _bound(sizes, cardinality, constants, local_steps, form)
    require(cardinality > 0, "cardinality", "must be positive", cardinality)
    rule = f"must be reached within {MOST_ROUNDS:,} rounds"
    end = 1
    while bound(end) > most:
        require(end < MOST_ROUNDS, "gap", rule, gap)
        end = min(2 * end, MOST_ROUNDS)
    # the bound falls as rounds are added: more of them are executed
    start = end // 2  # too few, or 0
    while end - start > 1:
        middle = (start + end) // 2
        if bound(middle) > most:
            start = middle
        else:
            end = middle
    return end


def _bound(
    sizes: tuple[int, int, int],
    cardinality: Any,
    constants: ConvexConstants,
    local_steps: Any,
    form: Any,
) -> Callable[[int], float]:
    """Return the bound as a function of the number of rounds."""
    n, k, t = sizes
    check_known(form, "form", get_args(Form), "a form of the bound")
    steps = check_integer(local_steps, "local_steps", 1)
    mean = check_number(
        cardinality, "cardinality", "must lie in [0, cohort_size]", 0.0, float(k)
    )
    is_known = isinstance(constants, ConvexConstants)
    require(is_known, "constants", "must be ConvexConstants", constants)
    unit = t if form == "corrected" else 1
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
    share = mean / k

    def printed(rounds: int) -> float:
        return constants.smoothness * scale / (gamma + share * steps * rounds - 1.0)

    def corrected(rounds: int) -> float:
        # over the number of rounds that are not skipped
        executed = np.arange(rounds + 1, dtype=np.float64)
        rates = constants.smoothness * scale / (gamma + executed * steps - 1.0)
        # the mean over X, as b at the mean of X would be too small
        return float(_binomial_law(rounds, share) @ rates)

    return printed if form == "printed" else corrected


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
