"""The gap of clients' expected shares of the rounds, F of eq. (6).

One history's gap (`fairness_gap`) adds its noise to it: 1,000 rounds of random
selection at the paper's sizes show .13, where the expected shares are .0576 apart.
Source: Multi-RoundSecAgg (AAAI version), Section 3.2.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mrsa_jax._core.selector import check_selector
from mrsa_jax._core.statistics import half_interval
from mrsa_jax._core.streams import Seed
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import Availability, independent
from mrsa_jax.selection._many import rollout_counts
from mrsa_jax.selection._metrics import block_chances
from mrsa_jax.selection._rounds import Selector
from mrsa_watch._base.errors import check_size, require
from mrsa_watch._base.values import by_value

_FEWEST_TRIALS = 4  # two in each half, whose spread gives an error


@dataclasses.dataclass(frozen=True)
@by_value
class ExpectedGap:
    """The gap of clients' expected shares of the rounds, exact or estimated.

    Attributes:
        value: F of eq. (6), in [0, 1].
        standard_error: Of an estimate, at most; 0 if exact.
        lower: F is at least this, with 97.5 % confidence; `value` if exact.
        upper: F is at most this, with 97.5 % confidence; `value` if exact.
        is_exact: Whether it is computed (in float64) and not simulated.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    is_exact: bool

    def __str__(self) -> str:
        """Return the value and whether it is exact."""
        if self.is_exact:
            return f"{self.value:.4f} (exact)"
        ends = f"95 % interval {self.lower:.4f} to {self.upper:.4f}"
        return f"{self.value:.4f} ± {self.standard_error:.1g} (estimated, {ends})"


@needs_values
def expected_fairness_gap(
    selector: Selector,
    availability: Availability,
    *,
    seed: Seed = 0,
    num_rounds: int = 4096,
    num_trials: int = 64,
) -> ExpectedGap:
    """Return F of eq. (6): how far apart the clients' expected shares of rounds are.

    It is exact where clients are offline independently, and the selector knows its
    shares: random selection, batch partitioning with the rule "uniform" (lambda = 0),
    blocks of equal rates under any rule (0 by symmetry), Bernoulli sampling. Anything
    else is simulated. The first quarter of each trial is dropped. One half of the
    trials picks the clients with the largest and the smallest mean, and the other half
    measures the difference of these two; `value` is the mean over both ways, and 0 if
    that is negative. Such a difference is unbiased for two clients, so never too large
    on average; the difference of the extremes of all means is never too small on
    average. `lower` is `value` less the half of its 95 % interval, `upper` that
    difference plus the halves of its two means. Both are about these rounds: where
    the least used come first, shares may settle slowly (at the paper's sizes, T = 6 and
    cyclic rates, the gap is .013 for J = 1,500 and .008 for 16,384).

    Args:
        selector: Selects the cohorts of N clients.
        availability: Model of the clients online.
        seed: Integer or key of a simulation.
        num_rounds: J >= 4, of each trial of a simulation.
        num_trials: B >= 4, trials of a simulation.

    Returns:
        The gap, and whether it is exact.

    Raises:
        ConfigurationError: If a size is too small, or the selector or the model is
            invalid or over other clients.

    Examples:
        >>> import mrsa_jax as mj
        >>> rates = mj.availability.assign_rates(0, [0.1, 0.2, 0.3, 0.4, 0.5], 120)
        >>> online = mj.availability.independent(rates)
        >>> print(mj.selection.expected_fairness_gap(
        ...     mj.selection.uniform(120, 12), online
        ... ))
        0.0576 (exact)

    Cost: exact values take O(M^2) for M blocks; a simulation J · B · M draws, about a
    third of a second by default for 120 clients.

    Source: Multi-RoundSecAgg (AAAI version), eq. (6); the closed form for unequal
    rates and the estimate are this package's.
    """
    scheme = check_selector(selector)
    rounds = check_size(num_rounds, "num_rounds")
    trials = check_size(num_trials, "num_trials")
    rule = f"must be at least {_FEWEST_TRIALS}"
    require(rounds >= _FEWEST_TRIALS, "num_rounds", rule, rounds)
    require(trials >= _FEWEST_TRIALS, "num_trials", rule, trials)
    count = scheme.num_clients
    model = availability.for_clients(count)
    rates = getattr(model, "dropout_rates", None)
    if rates is not None:
        rates = np.broadcast_to(np.asarray(rates, np.float64), (count,))
        gap = exact_gap(scheme, rates)
        if gap is not None:
            return ExpectedGap(gap, 0.0, gap, gap, is_exact=True)
        if hasattr(scheme, "of_blocks"):
            # clients of a block have its share, and blocks are far fewer
            blocks = scheme.of_blocks()
            chances = block_chances(rates, count // blocks.num_clients)
            scheme, model = blocks, independent(1.0 - chances)
    dropped = rounds // 4
    counts, before = (
        np.asarray(rollout_counts(seed, scheme, model, length, trials), np.int64)
        for length in (rounds, dropped)
    )
    return _estimate((counts - before) / (rounds - dropped))


def exact_gap(selector: Selector, dropout_rates: np.ndarray) -> float | None:
    """Return the gap of expected shares, or None if it can only be simulated.

    Args:
        selector: Selects the cohorts of N clients.
        dropout_rates: float64[N], of clients that are offline independently.
    """
    share_gap = getattr(selector, "share_gap", None)
    if share_gap is not None:
        gap: float | None = share_gap(dropout_rates)
        return gap
    chances = getattr(selector, "chances", None)
    shares = None if chances is None else chances(dropout_rates)
    return None if shares is None else float(np.ptp(shares))


def _estimate(shares: np.ndarray) -> ExpectedGap:
    """Return the gap by shares [B, M] of independent trials."""
    half = len(shares) // 2
    halves = shares[:half], shares[half:]
    values, errors, reaches = [], [], []
    for picking, measuring in (halves, halves[::-1]):
        means = picking.mean(axis=0)
        gaps = measuring[:, means.argmax()] - measuring[:, means.argmin()]
        values.append(gaps.mean())
        errors.append(gaps.std(ddof=1) / np.sqrt(len(gaps)))
        reaches.append(half_interval(gaps))
    # the ways are not independent: the mean of their errors bounds that of the mean
    value, error = float(np.mean(values)), float(np.mean(errors))
    means = shares.mean(axis=0)
    # two means may err in opposite directions
    noisiest = shares[:, shares.std(axis=0).argmax()]
    widest = 2 * float(half_interval(noisiest))
    return ExpectedGap(
        value=max(value, 0.0),
        standard_error=error,
        lower=max(value - float(np.mean(reaches)), 0.0),
        upper=min(float(np.ptp(means)) + widest, 1.0),
        is_exact=False,
    )
