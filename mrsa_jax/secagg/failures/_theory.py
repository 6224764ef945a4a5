"""Compute connection probability, share threshold and failure bounds of CCESA.

Paper: CCESA (Choi, Sohn, Han, Moon), Sections 4.3 and F. Plain Python and NumPy in
float64 and in log space: bounds are natural logarithms, since 1e-40 is ordinary and
1e-400 has no float. n -> `n`, p -> `p`, q of one step -> `q`, q_total = 1 - (1-q)^4 ->
`total_dropout_rate`, t -> `t`.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, xlog1py, xlogy
from jax.typing import ArrayLike
from jaxtyping import Array

from mrsa_jax._core.array_types import Whole
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.factories import is_chance, nan_unless
from mrsa_jax._core.streams import check_chances
from mrsa_jax._core.traced import is_traced
from mrsa_jax.secagg.failures.tails import (
    log_binomials,
    log_factorials,
    log_pmf,
    log_sum,
)
from mrsa_watch._base.errors import check_chance, check_integer, check_number, require

_MOST_CLIENTS = 2**16


def connection_probability(n: Whole, total_dropout_rate: ArrayLike) -> float:
    """Return p*, above which CCESA(n, p) is reliable and private.

    Both hold asymptotically almost surely.

    The larger of `reliable_connection_threshold` and `private_connection_threshold`;
    for n >= 100 always the former. It falls with n like 3 sqrt(log n / n). Use it as
    the chance of an edge where it is at most 1; `share_threshold` gives the t that goes
    with it.

    Args:
        n: Clients, at least 3 (at 2 the formula is 0, which connects nobody).
        total_dropout_rate: q_total = 1 - (1 - q)^4 in [0, 0.5), the chance to leave in
            one of the four steps.

    Returns:
        p*, even when it is above 1: then no Erdős–Rényi graph meets the conditions. It
        is at most 1 from n = 29 on (q_total = 0), 31 (.01), 40 (.05), 55 (.1), 117
        (.2), 321 (.3), 1659 (.4).

    Raises:
        ConfigurationError: If n is below 3 or no integer, or the rate outside [0, 0.5):
            at one half and above, the condition of Theorem 3 has no solution.

    Examples:
        >>> import mrsa_jax as mj
        >>> (
        ...     round(mj.secagg.connection_probability(1000, 0.1), 4),
        ...     round(mj.secagg.connection_probability(40, 0.1), 3),
        ... )
        (0.3106, 1.117)

    Source: CCESA, Remark 1, eq. (5), logarithms natural. Of the 40 entries of Table G.2
    five differ from it in the third digit (docs/errata.md).
    """
    n = check_integer(n, "n", 3)
    total = check_chance(total_dropout_rate, "total_dropout_rate")
    require(total < 0.5, "total_dropout_rate", "must be below 0.5", total_dropout_rate)
    lasts = 1.0 - total
    return max(_private_threshold(n, lasts**0.75), _reliable_threshold(n, lasts))


def reliable_connection_threshold(n: Whole, q: ArrayLike) -> float:
    """Return the p above which CCESA(n, p) is reliable asymptotically almost surely.

    With t of Remark 4: (3 sqrt((n-1) log(n-1)) - 1) / ((n-1) (2 (1-q)^4 - 1)).

    Args:
        n: Clients, at least 3.
        q: Chance to leave at one step, with (1-q)^4 above one half.

    Returns:
        The threshold, even when above 1.

    Raises:
        ConfigurationError: If n is below 3, q outside [0, 1], or (1-q)^4 at most one
            half.

    Examples:
        >>> import mrsa_jax as mj
        >>> round(mj.secagg.failures.reliable_connection_threshold(100, 0.0), 4)
        0.6362

    Source: CCESA, Theorem 3. Its proof uses t - 1 instead of t (docs/errata.md); the
    printed form is kept, since Table G.2 and Table 2 are made with it.
    """
    n = check_integer(n, "n", 3)
    lasts = (1.0 - check_chance(q, "q")) ** 4
    require(lasts > 0.5, "q", "must be such that (1 - q)**4 is above 0.5", q)
    return _reliable_threshold(n, lasts)


def private_connection_threshold(n: Whole, q: ArrayLike) -> float:
    """Return the p above which CCESA(n, p) is private asymptotically almost surely.

    log(M) / M with M = ceil(n (1-q)^3 - sqrt(n log n)), nearly the fewest clients whose
    masked inputs arrive: above it, an Erdős–Rényi graph on them is connected.

    Args:
        n: Clients, at least 3.
        q: Chance to leave at one step, in [0, 1].

    Returns:
        The threshold; `math.inf` where M is below 1, so that the theorem says nothing.

    Raises:
        ConfigurationError: If n is below 3 or q outside [0, 1].

    Examples:
        >>> import mrsa_jax as mj
        >>> import math
        >>> failures = mj.secagg.failures
        >>> threshold = failures.private_connection_threshold(
        ...     100, 0.0
        ... )  # M = ceil(100 - 21.46)
        >>> threshold == math.log(79) / 79
        True

    Source: CCESA, Theorem 4 (logarithms natural).
    """
    n = check_integer(n, "n", 3)
    return _private_threshold(n, (1.0 - check_chance(q, "q")) ** 3)


def _reliable_threshold(n: int, lasts: float) -> float:
    """Theorem 3 with `kept` = (1-q)^4."""
    return (3.0 * math.sqrt((n - 1) * math.log(n - 1)) - 1.0) / (
        (n - 1) * (2.0 * lasts - 1.0)
    )


def _private_threshold(n: int, arrives: float) -> float:
    """Theorem 4 with `kept` = (1-q)^3."""
    fewest = math.ceil(n * arrives - math.sqrt(n * math.log(n)))
    return math.log(fewest) / fewest if fewest >= 1 else math.inf


def reliability_bound(
    n: Whole,
    p: ArrayLike,
    q: ArrayLike,
    t: ArrayLike,
) -> Any:
    """Return the log of Theorem 5's bound on the chance that a round is unreliable.

    n exp(-(n-1) D), D the Kullback-Leibler divergence of ((t-1)/(n-1), p (1-q)^4).
    `exact_reliability_union_bound` has the same argument without Chernoff's step, about
    a decade lower; `log_reliability_first_moment` also counts a client's own share.

    Args:
        n: Clients, at least 2.
        p: Chance of an edge, in [0, 1].
        q: Chance to leave at one of the four steps, in [0, 1].
        t: Shares that rebuild a secret, a real number of at least 1.

    Returns:
        Natural logarithm of the bound, at most 0.0; 0.0 where (t-1)/(n-1) > p (1-q)^4,
        since Chernoff's bound says nothing there; -inf for a bound of zero. Of traced
        p, q or t, a traced number, which can be differentiated.

    Raises:
        ConfigurationError: If an argument is out of range or no number.

    Examples:
        >>> import mrsa_jax as mj
        >>> import math
        >>> bound = mj.secagg.reliability_bound(100, 0.6362, 0.0, 42.66)  # Remark 4's t
        >>> round(math.exp(bound), 4)
        0.0079
        >>> mj.secagg.reliability_bound(100, 0.3, 0.026, 51)  # outside the domain
        0.0

    Source: CCESA, Theorem 5. Differs from the paper in its domain: "for arbitrary t" is
    wrong, and the formula can lie below the truth there (n = 100, p = .3, q_total = .1,
    t = 51: formula 4.7e-4, truth nearly 1; docs/errata.md).
    """
    n = check_integer(n, "n", 2)
    if is_traced(p, q, t):
        p, q, t = (jnp.asarray(number, float) for number in (p, q, t))
        legal = is_chance(p) & is_chance(q) & (t >= 1) & jnp.isfinite(t)
        lasts = p * (1.0 - q) ** 4
        part = (t - 1.0) / (n - 1)
        entropy = xlogy(part, part) + xlog1py(1.0 - part, -part)
        gap = entropy - xlogy(part, lasts) - xlog1py(1.0 - part, -lasts)
        bound = jnp.where(
            part > lasts, 0.0, jnp.minimum(0.0, math.log(n) - (n - 1) * gap)
        )
        return nan_unless(legal, bound)
    mean = check_chance(p, "p") * (1.0 - check_chance(q, "q")) ** 4
    share = (check_threshold(t) - 1.0) / (n - 1)
    return (
        0.0
        if share > mean
        else min(0.0, math.log(n) - (n - 1) * _divergence(share, mean))
    )


def _divergence(x: float, y: float) -> float:
    """Return D_KL of two Bernoulli chances, x <= y, in nats."""
    first = x * math.log(x / y) if x > 0.0 else 0.0
    if x >= 1.0:
        return first
    return (
        first + (1.0 - x) * (math.log1p(-x) - math.log1p(-y)) if y < 1.0 else math.inf
    )


def check_threshold(t: object, argument: str = "t") -> float:
    """Return a real threshold of at least 1 as a float, or raise naming `argument`."""
    rule = "must be finite and at least 1"
    return check_number(t, argument, rule, minimum=1.0, kind="must be a number")


def privacy_bound(n: Whole, p: ArrayLike, q: ArrayLike) -> Any:
    """Return the log of Theorem 6's bound on the chance that a round is not private.

    sum over m of P(m clients' masked inputs arrive) min(1, b_m), where b_m sums over
    cuts the chance that no edge crosses: b_m = sum_{k=1}^{m/2} C(m, k) (1-p)^(k (m-k)).
    `log_disconnection_probability` has the exact chance that this bounds.

    Args:
        n: Clients, at least 2. Time and not memory grows as n^2: 0.1 s for 2,000.
        p: Chance of an edge, in [0, 1].
        q: Chance to leave at one step, in [0, 1].

    Returns:
        Natural logarithm of the bound, at most 0.0; -inf where it is zero (p = 1, or q
        = 1). Of traced p or q, a traced number, which can be differentiated; then n is
        at most 4096, as memory grows with n^2.

    Raises:
        ConfigurationError: If an argument is out of range or no number.

    Examples:
        >>> import mrsa_jax as mj
        >>> import math
        >>> round(
        ...     mj.secagg.privacy_bound(
        ...         100, mj.secagg.connection_probability(100, 0.0), 0.0
        ...     )
        ...     / math.log(10),
        ...     2,
        ... )
        -41.48

    Source: CCESA, Theorem 6. Differs from the paper in min(1, b_m): the proofs need b_m
    <= 1, which fails for small m (m = 2, p = .25: 1.5; docs/errata.md).
    """
    n = check_integer(n, "n", 2)
    require(
        n <= _MOST_CLIENTS,
        "n",
        f"must be at most {_MOST_CLIENTS}, whose cuts are summed",
        n,
    )
    if is_traced(p, q):
        return _privacy_bound_traced(n, p, q)
    p = check_chance(p, "p")
    arrive = _log_arrivals(n, check_chance(q, "q"))
    if p == 1.0:
        return -math.inf
    factorials = log_factorials(n)
    cuts = np.asarray([_log_cuts(m, math.log1p(-p), factorials) for m in range(n + 1)])
    return min(0.0, log_sum(arrive + np.minimum(cuts, 0.0)))


def _privacy_bound_traced(n: int, p: object, q: object) -> Array:
    """Return Theorem 6's bound in a program, all cuts at once."""
    require(
        n <= 2**12,
        "n",
        "must be at most 4096 where p or q are traced: cuts take memory",
        n,
    )
    factorials = log_factorials(n)
    p, q = jnp.asarray(p, float), jnp.asarray(q, float)
    legal, arrives = is_chance(p) & is_chance(q), (1.0 - q) ** 3
    m, k = np.arange(2, n + 1)[:, None], np.arange(1, n // 2 + 1)
    is_cut = k <= m // 2
    sides = np.where(is_cut, m - k, 0)
    ways = on_device(factorials[m] - factorials[k] - factorials[sides], p.dtype)
    edges = on_device(k * sides, p.dtype)
    # [m, k]: cuts of m clients into k and m - k, half of the table empty
    cuts = logsumexp(ways + edges * jnp.log1p(-p), axis=1, where=is_cut)
    hits = on_device(m[:, 0], p.dtype)
    arrive = (
        on_device(log_binomials(n)[2:], p.dtype)
        + xlogy(hits, arrives)
        + xlog1py(n - hits, -arrives)
    )
    return nan_unless(
        legal, jnp.minimum(0.0, logsumexp(arrive + jnp.minimum(cuts, 0.0)))
    )


def _log_arrivals(n: int, q: float | np.ndarray) -> np.ndarray:
    """Return log P(|V3| = m) for m = 0..n; q is one rate, or four by step."""
    first, second, third = np.broadcast_to(q, (4,))[:3].tolist()
    stays = (1.0 - first) * (1.0 - second)
    # 1 - (1 - q)^3, added up so that a small q does not cancel
    missed = first + (1.0 - first) * second + stays * third
    return log_pmf(n, stays * (1.0 - third), missed)


def losses_by_step(q: object) -> np.ndarray:
    """Return the four chances to leave at a step, of one for all steps or of four."""
    rates = check_chances(q, "q")
    rule = "must be one rate, or four: one for each step"
    require(rates.shape in ((), (4,)), "q", rule, f"shape {rates.shape}")
    return np.broadcast_to(rates, (4,))


def _log_cuts(m: int, log_missing: float, factorials: np.ndarray) -> float:
    """Return log b_m, the expected number of cuts without an edge.

    Even splits count twice.
    """
    sides = np.arange(1, m // 2 + 1)
    ways = factorials[m] - factorials[sides] - factorials[m - sides]
    return log_sum(ways + (sides * (m - sides)).astype(np.float64) * log_missing)
