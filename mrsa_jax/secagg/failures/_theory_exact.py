"""Failure chances without Chernoff and Hoeffding.

Exact tails, first moments, disconnection.
Where the paper bounds, these sum: the binomial tails behind Theorem 5 and Proposition
1, and the exact chance that G_3 is disconnected, which Theorem 6 bounds. Paper: CCESA,
Sections 4.2, C, F.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._core.array_types import Whole
from mrsa_jax._core.arrays import check_thresholds
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.secagg.failures._theory import (
    _log_arrivals,
    check_threshold,
    losses_by_step,
)
from mrsa_jax.secagg.failures.tails import (
    log_chance,
    log_factorials,
    log_pmf,
    log_sum,
    log_tail_above,
    log_tail_below,
    log_tails_below,
)
from mrsa_jax.secagg.thresholds import (
    Thresholds,
    check_rule,
    more_than_half,
    share_threshold,
)
from mrsa_watch._base.errors import check_chance, check_integer


def exact_reliability_union_bound(
    n: Whole,
    p: ArrayLike,
    q: ArrayLike,
    t: ArrayLike,
) -> float:
    """Return the log of n P(X < t), the sum that Theorem 5 bounds by Chernoff.

    X is binomial(n-1, p (1-q)^4): the neighbours of a client that last to the end.
    Unlike `reliability_bound` it holds for every t.

    Args:
        n: Clients, at least 2.
        p: Probability of an edge, in [0, 1].
        q: Probability to leave at one of the four steps, in [0, 1].
        t: Secret shares that rebuild a secret, a real number of at least 1.

    Returns:
        Natural logarithm, at most 0.0; -inf for zero.

    Raises:
        ConfigurationError: If an argument is out of range or no number.

    Examples:
        >>> import mrsa_jax as mj
        >>> failures = mj.secagg.failures
        >>> setting = (100, 0.6362, 0.0, 43)
        >>> failures.exact_reliability_union_bound(
        ...     *setting
        ... ) < mj.secagg.reliability_bound(*setting)
        True

    Source: CCESA, proofs of Theorems 3 and 5.
    """
    n = check_integer(n, "n", 2)
    lasts = check_chance(p, "p") * (1.0 - check_chance(q, "q")) ** 4
    return min(0.0, math.log(n) + log_tail_below(n - 1, lasts, check_threshold(t)))


def log_reliability_first_moment(
    n: Whole,
    p: ArrayLike,
    q: ArrayLike | Sequence[float],
    t: Thresholds,
) -> float:
    r"""Return the log of the expected number of clients with a lost secret.

    Only secrets that the server needs count.

    By Theorem 1, a round is unreliable if and only if there is such a client, so this
    is the sharpest union bound: for each client in V3, and for each of V2 \\ V3 with a
    neighbour in V3, the chance that fewer than t shares come back, its own included
    while it is there. The chance is a sum over the client's degrees: P(degree = k)
    times a binomial tail of the k neighbours that last to the end.

    Args:
        n: Clients, at least 2.
        p: Probability of an edge, in [0, 1].
        q: Probability to leave at a step, in [0, 1], for all four or [4] by step.
        t: Secret shares that rebuild a secret: "majority" for more than half of each
            client's neighbourhood, "remark4" for `share_threshold(n, p)`, a real number
            of at least 1, or integers [n].

    Returns:
        Natural logarithm of the expected number, above 0.0 where more than one is
        expected (so not itself a probability); -inf for zero.

    Raises:
        ConfigurationError: If an argument is out of range, no number or no rule.

    Examples:
        >>> import mrsa_jax as mj
        >>> import math
        >>> failures = mj.secagg.failures
        >>> failures.log_reliability_first_moment(
        ...     50, 0.5, 0.0, 1
        ... )  # one's own share is enough
        -inf
        >>> setting = (100, 0.6362, 0.0, 43)
        >>> failures.log_reliability_first_moment(
        ...     *setting
        ... ) < failures.exact_reliability_union_bound(*setting)
        True
        >>> q = 1 - 0.9**0.25  # of one step, 10 % in all
        >>> sparse = failures.log_reliability_first_moment(1000, 0.04, q, "majority")
        >>> f"{math.exp(sparse):.1e} lost secrets per round at p = .04"
        '5.2e-06 lost secrets per round at p = .04'

    Source: CCESA, Theorem 1 and Definition 3, by linearity of expectation; differs from
    the paper's proofs, which drop the client's own share.
    """
    n = check_integer(n, "n", 2)
    p, rates = check_chance(p, "p"), losses_by_step(q)
    law = np.arange(n), log_pmf(n - 1, p)
    if isinstance(t, str):
        chosen = check_rule(t, "t")
        limit = None if chosen == "majority" else float(share_threshold(n, p))
        return math.log(n) + log_lost_secret(law, rates, limit)
    if np.ndim(t) == 0:
        return math.log(n) + log_lost_secret(law, rates, check_threshold(t))
    limits, counts = np.unique(check_thresholds(t, "t", n), return_counts=True)
    chances = [log_lost_secret(law, rates, float(limit)) for limit in limits]
    return log_sum(np.log(counts) + np.asarray(chances))


def log_lost_secret(
    law: tuple[np.ndarray, np.ndarray], rates: np.ndarray, limit: float | None
) -> float:
    """Return the log of the chance that one client's secret is needed and lost.

    Args:
        law: Degrees int[k] of the client, and the log of each one's probability.
        rates: float64[4], the chance to leave at each step.
        limit: t, or None for more than half of the neighbourhood.
    """
    degrees, weights = law
    stays = np.cumprod(1.0 - rates)  # in V1 to V4
    t = more_than_half(degrees) if limit is None else math.ceil(limit)
    lasts = float(stays[3])
    few = log_sum(weights + log_tails_below(degrees, lasts, t + 0 * degrees))
    fewer = log_sum(weights + log_tails_below(degrees, lasts, t - 1 + 0 * degrees))
    # A client of V2 \ V3 without a neighbour in V3 is not needed; it has no share left
    # at all.
    log_missing = log_chance(1.0 - float(stays[2]))
    apart = np.where(degrees > 0, np.maximum(degrees, 1) * log_missing, 0.0)
    alone = log_sum(weights + apart)
    needed = few + math.log(-math.expm1(alone - few)) if alone < few else -math.inf
    at_input, at_end = (stays[1] * rates[2], stays[2] * rates[3])
    return log_sum(
        np.asarray(
            [
                log_chance(lasts) + fewer,
                log_chance(float(at_end)) + few,
                log_chance(float(at_input)) + needed,
            ]
        )
    )


def unmasking_bound(n: Whole, p: ArrayLike, t: ArrayLike) -> float:
    """Return the log of a bound on the chance that some client is unmasked.

    The attack is that of CCESA's Appendix F.

    A server that asks t holders for a client's self-pad seed and t others for its
    secret key learns that client's input; this needs 2 t <= |Adj| + 1. The bound is n
    P(Y >= 2t - 1), Y binomial(n-1, p), the exact tail of a degree.

    Args:
        n: Clients, at least 2.
        p: Chance of an edge, in [0, 1].
        t: Shares that rebuild a secret, a real number of at least 1.

    Returns:
        Natural logarithm, at most 0.0; -inf where no degree is high enough (2t > n).

    Raises:
        ConfigurationError: If an argument is out of range or no number.

    Examples:
        >>> import mrsa_jax as mj
        >>> import math
        >>> failures = mj.secagg.failures
        >>> n, p = 100, 0.6362
        >>> t = mj.secagg.share_threshold(n, p)
        >>> math.exp(failures.unmasking_bound(n, p, t)) < n / (
        ...     n - 1
        ... ) ** 2  # Proposition 1
        True
        >>> failures.unmasking_bound(
        ...     100, 0.5, 51
        ... )  # two majorities of 100 holders would meet
        -inf

    Source: CCESA, Section F, before Hoeffding's step. The attack is outside Theorems 1
    and 2, which hold for an honest-but-curious server.
    """
    n = check_integer(n, "n", 2)
    p = check_chance(p, "p")
    return min(
        0.0, math.log(n) + log_tail_above(n - 1, p, 2.0 * check_threshold(t) - 1.0)
    )


def log_disconnection_probability(
    n: Whole,
    p: ArrayLike,
    q: ArrayLike | Sequence[float],
) -> float:
    """Return the log of the exact chance that G_3 is disconnected.

    G_3 is the assignment graph on the clients whose masked inputs arrive; of an
    Erdős–Rényi graph it is again one. A round that is not private has a disconnected
    G_3, so this is the sharpest bound of the kind of `privacy_bound`.

    Args:
        n: Clients, at least 2. Time grows as n^2: about 0.2 s for 1,000.
        p: Chance of an edge, in [0, 1].
        q: Chance to leave at a step, in [0, 1], for all four or [4] by step.

    Returns:
        Natural logarithm, at most 0.0, to about 1e-11 relative in the chance itself;
        -inf for zero. No vertex and one vertex count as connected.

    Raises:
        ConfigurationError: If an argument is out of range or no number.

    Examples:
        >>> import mrsa_jax as mj
        >>> import math
        >>> failures = mj.secagg.failures
        >>> round(
        ...     math.exp(failures.log_disconnection_probability(3, 0.5, 0.0)), 12
        ... )  # 4 of 8
        0.5
        >>> failures.log_disconnection_probability(
        ...     50, 0.1, 0.02
        ... ) < mj.secagg.privacy_bound(50, 0.1, 0.02)
        True

    Source: Gilbert, "Random graphs" (1959), for the recurrence over the component of a
    vertex.
    """
    n = check_integer(n, "n", 2)
    p = check_chance(p, "p")
    return min(
        0.0, log_sum(_log_arrivals(n, losses_by_step(q)) + log_disconnected(n, p))
    )


def log_disconnected(n: int, p: float) -> np.ndarray:
    """Return log P(an Erdős–Rényi graph on m vertices is disconnected) for m = 0..n.

    Both directions are sums of positive terms, so neither loses digits. Connected:
    remove vertex 2; vertex 1's component of the rest has k vertices, at least one of
    them joined to vertex 2. Disconnected: vertex 1's component has k < m vertices and
    no edge to the others.
    """
    apart = np.full(n + 1, -np.inf)
    if p == 1.0:
        return apart
    if p == 0.0:
        apart[2:] = 0.0
        return apart
    factorials, missing = log_factorials(n), math.log1p(-p)
    together = np.full(n + 1, -np.inf)
    together[:2] = 0.0
    sizes = np.arange(n + 1)
    # log P(one vertex is joined to at least one of k given ones)
    joined = np.concatenate([[-np.inf], np.log(-np.expm1(sizes[1:] * missing))])
    for m in range(2, n + 1):
        k = sizes[1:m]
        crossing = k * (m - k) * missing
        ways = factorials[m - 2] - factorials[k - 1] - factorials[m - 1 - k]
        # vertex 2's side keeps m - k vertices, 2 among them; the other side must touch
        # only 2
        rest = k * (m - 1 - k) * missing
        together[m] = log_sum(ways + together[k] + together[m - k] + joined[k] + rest)
        ways = factorials[m - 1] - factorials[k - 1] - factorials[m - k]
        apart[m] = log_sum(ways + together[k] + crossing)
        if together[m] > -0.5:  # the complement is the smaller and the more exact one
            together[m] = (
                math.log1p(-math.exp(apart[m])) if apart[m] < 0.0 else together[m]
            )
    return np.minimum(apart, 0.0)


def whole_blocks_rate(
    num_blocks: Whole,
    block_size: Whole,
    threshold: Whole,
    loss_rate: ArrayLike,
    unmasking_loss_rate: ArrayLike = 0.0,
) -> float:
    """Return the probability that a round of clients who keep blocks works.

    The graph is complete.

    A block that loses a member before its input arrives is left out of the sum, and its
    members do not help to unmask it; the round works if t of the others do.

    Args:
        num_blocks: m, blocks that are asked, at least 1.
        block_size: T, at least 1.
        threshold: t, at least 1.
        loss_rate: l, the probability that a client is lost before its input arrives.
        unmasking_loss_rate: The probability that one whose input arrived is lost before
            it unmasks.

    Returns:
        sum over B of Bin(B; m, (1 - l)^T) P[Bin(T B, 1 - unmasking_loss_rate) >= t],
        over B with two clients or more: the sum over one is withheld.

    Raises:
        ConfigurationError: If a number is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> rate = mj.secagg.failures.whole_blocks_rate(3, 4, 7, 0.05, 1 - 0.98**2)
        >>> f"{rate:.4f}, and {0.95**12:.4f} if every client must stay"
        '0.8957, and 0.5404 if every client must stay'
    """
    m, size = (
        check_integer(num_blocks, "num_blocks", 1),
        check_integer(block_size, "block_size", 1),
    )
    t = check_integer(threshold, "threshold", 1)
    is_whole = (1.0 - check_chance(loss_rate, "loss_rate")) ** size
    stays = 1.0 - check_chance(unmasking_loss_rate, "unmasking_loss_rate")
    unmasked = [
        math.exp(log_tail_above(size * whole, stays, float(t)))
        if size * whole >= FEWEST_IN_A_SUM
        else 0.0
        for whole in range(m + 1)
    ]
    return float(np.exp(log_pmf(m, is_whole)) @ unmasked)
