"""Closed forms on selection of Multi-RoundSecAgg: Theorem 3 and Appendix C."""

from __future__ import annotations

import math
import sys

from mrsa_jax.selection.checks import check_sizes
from mrsa_watch._base.errors import check_number, check_size, require


def full_rank_bound(
    num_clients: int, cohort_size: int, *, decay: float | None = None
) -> float:
    """Bound the probability that N rounds of random selection reveal every update.

    That is, that the N x N participation matrix is invertible, if updates do not change
    meanwhile. Without `decay` each client takes part in each round by itself with
    probability t = K/N: 1 - 2 N (1 - t)^N - N (N - 1) (t^2 + (1 - t)^2)^N, eq. (32)
    with o(1) = 0 (Jain, Sah, Sawhney 2020). Its terms are the probabilities of a row or
    column of zeros, and of two equal ones. It is asymptotic, but within one standard
    error of simulations for the paper's sizes (docs/errata.md). With `decay` K clients
    are drawn uniformly: 1 - 2 exp(-c' N), eq. (31).

    Args:
        num_clients: N.
        cohort_size: K, on average without `decay`.
        decay: c' > 0 of (31), for which the paper states no value: it depends on K/N,
            and follows from the rate of singular matrices at one N.

    Returns:
        The bound in [0, 1]; 0 if the formula is negative and states nothing.

    Raises:
        ConfigurationError: If a size is no positive integer, K > N, or `decay` is not
            positive.

    Examples:
        >>> import mrsa_jax as mj
        >>> round(mj.selection.full_rank_bound(120, 12), 5)
        0.99922
        >>> mj.selection.full_rank_bound(20, 4, decay=0.05) < 0.3
        True

    Source: Multi-RoundSecAgg, Theorem 3.
    """
    n, k, _ = check_sizes(num_clients, cohort_size)
    if decay is not None:
        rule = "must be positive"
        rate = check_number(decay, "decay", rule, sys.float_info.min)
        return max(0.0, 1.0 - 2.0 * math.exp(-rate * n))
    t = k / n
    # by logarithms: powers of numbers near 1 keep their digits
    zero = 0.0 if t == 1 else 2.0 * n * math.exp(n * math.log1p(-t))
    equal = n * (n - 1) * math.exp(n * math.log(t * t + (1.0 - t) ** 2))
    return max(0.0, 1.0 - zero - equal)


def family_size_bound(num_clients: int, cohort_size: int, privacy_target: int) -> int:
    """Bound the number of distinct cohorts of K that any scheme with privacy T can use.

    Privacy T means that the distinct non-zero columns of the family's matrix occur T
    times or more: D <= N/T groups of clients who only move together. A cohort is a set
    of s groups that hold K clients; K >= s T, and the D - s others hold at most N - K
    >= (D - s) T. Cohorts have equal weight, so none contains another, and by the
    inequality of Lubell, Yamamoto and Meshalkin there are at most max over s of C(D,
    s). With T dividing K and N this is C(N/T, K/T), the family of `batch_partitioning`:
    no scheme offers more choice.

    Args:
        num_clients: N.
        cohort_size: K, from T to N.
        privacy_target: T, which need not divide N or K.

    Returns:
        A Python integer of any size.

    Raises:
        ConfigurationError: If a size is no positive integer, or not T <= K <= N.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.family_size_bound(120, 12, 3)
        91390
        >>> mj.selection.family_size_bound(10, 5, 2)
        6

    Source: Multi-RoundSecAgg, Appendix C. Its (29) counts only cohorts of E groups
    each; rows may use different numbers of groups, hence the inequality
    (docs/errata.md). Its step (ii) requires E <= D/2; counting the groups outside the
    cohort too makes the bound hold for every K.
    """
    n, k, _ = check_sizes(num_clients, cohort_size)
    t = check_size(privacy_target, "privacy_target")
    require(t <= k, "privacy_target", "must be at most `cohort_size`", t, k)
    if n % t == 0 and k % t == 0:
        return math.comb(n // t, k // t)
    # most groups within a cohort, and most outside
    inside, outside = k // t, (n - k) // t
    sizes = ((chosen, min(outside, n // t - chosen)) for chosen in range(1, inside + 1))
    return max(math.comb(chosen + others, chosen) for chosen, others in sizes)
