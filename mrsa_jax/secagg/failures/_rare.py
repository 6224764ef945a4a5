"""Failure rates too small to count: 1e-40 in ten thousand rounds.

CCESA (Choi, Sohn, Han, Moon) claims P_e^(p) below 1e-40, which no simulation can meet
by counting. Here rounds are drawn given one failure and weighted back exactly
(`_planted`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Key

from mrsa_jax import graphs
from mrsa_jax._core.batches import at_once, within_memory
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax._core.streams import as_key, fold
from mrsa_jax._core.traced import needs_values
from mrsa_jax.secagg.failures import _verdicts
from mrsa_jax.secagg.failures._judging import default_chunk
from mrsa_jax.secagg.failures._monte_carlo import (
    limits_of,
    rounds_with,
    rows_of_rates,
)
from mrsa_jax.secagg.failures._planted import (
    Planted,
    isolated_cuts,
    judge_planted,
    lost_secrets,
    plant_cuts,
    plant_lost_secrets,
)
from mrsa_jax.secagg.failures._theory import losses_by_step
from mrsa_jax.secagg.failures._theory_exact import log_disconnection_probability
from mrsa_jax.secagg.failures.tails import log_chance, log_sum
from mrsa_jax.secagg.thresholds import Thresholds
from mrsa_watch._base.errors import check_chance, check_integer, require
from mrsa_watch._base.html import telling, told
from mrsa_watch._base.values import by_value

_PLANTED_BYTES = 2**6  # of a client's words and numbers, while its round is planted
_PRIVACY, _RELIABILITY = 1, 2


@dataclasses.dataclass(frozen=True)
@by_value
class RareRate:
    """A chance as an exact factor times a counted share, in natural logarithms.

    Attributes:
        log_factor: Log of the exact factor.
        count: Rounds that counted.
        trials: Rounds that they are a share of; 0 if none was drawn of the right kind.
        log_rate: Log of the estimate, unbiased; NaN for no trials, -inf for a count of
            zero.
        log_lower: Log of the lower end of the 95 % interval: the factor times the
            Clopper-Pearson interval of the share.
        log_upper: Log of its upper end.

    Examples:
        >>> import mrsa_jax as mj
        >>> import math
        >>> rate = mj.secagg.failures.RareRate.of(math.log(1e-40), 90, 100)
        >>> round(rate.log_rate / math.log(10), 3), rate.rate < rate.upper
        (-40.046, True)
    """

    log_factor: float
    count: int
    trials: int
    log_rate: float
    log_lower: float
    log_upper: float

    @property
    def rate(self) -> float:
        """The estimate; 0.0 where a float cannot hold it."""
        return math.exp(self.log_rate)

    @property
    def lower(self) -> float:
        """The lower end of the interval."""
        return math.exp(self.log_lower)

    @property
    def upper(self) -> float:
        """The upper end of the interval, at most 1."""
        return math.exp(self.log_upper)

    @classmethod
    def of(cls, log_factor: float, count: int, trials: int) -> RareRate:
        """Return a factor times a share; no trials leave the share between 0 and 1."""
        if log_factor == -math.inf:
            return cls(log_factor, count, trials, *[-math.inf] * 3)
        lower, upper = binomial_interval(count, trials) if trials else (0.0, 1.0)
        share = count / trials if trials else math.nan
        return cls(
            log_factor,
            count,
            trials,
            log_factor + log_chance(share),
            log_factor + log_chance(lower),
            min(0.0, log_factor + log_chance(upper)),
        )


@dataclasses.dataclass(frozen=True)
@by_value
class RareFailureRates:
    """Chances of the failures of a round, however small.

    Attributes:
        trials: Rounds drawn for each of the two.
        unreliable: The sum over V3 cannot be unmasked. The factor is the expected
            number of clients with too few shares, the share that of rounds whose
            planted one is the first.
        not_private: Sums of separate parts of V3 can be unmasked. The factor is the
            exact chance that G_3 is disconnected, the share taken over rounds drawn
            given that.
        log_disconnected: Log of that factor, `log_disconnection_probability`.
        log_cuts: Log of the expected number of cuts of G_3 without an edge, which
            bounds it.
    """

    __repr__ = told
    _repr_html_ = telling

    trials: int
    unreliable: RareRate
    not_private: RareRate
    log_disconnected: float
    log_cuts: float

    def _rows(self) -> list[tuple[str, str]]:
        return rows_of_rates(self)


@needs_values
def rare_failure_rates(
    seed: int | Key[Array, ""],
    n: int | np.integer,
    p: ArrayLike,
    q: ArrayLike | Sequence[float],
    t: Thresholds,
    num_trials: int | np.integer,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> RareFailureRates:
    """Estimate the chances that a round of CCESA(n, p) is unreliable or not private.

    They may be as small as they like: choose it where `failure_rates` counts nothing;
    both estimate the same chances.

    Not private: rounds are drawn given that G_3 is disconnected. A cut of V3 is chosen
    in proportion to its chance to have no edge, the rest of the round is drawn given
    that, and kept if the cut parts the first client's component from the rest, which
    makes every disconnected round equally favoured. The share that is not private times
    the exact chance of disconnection is the estimate. Unreliable: a client is chosen in
    proportion to the chance that its shares are too few, the rest is drawn given that,
    and counts if the client's secret is needed and no client before it fails too; times
    the expected number of such clients. Both shares are near 1 where failures are rare,
    so a few thousand rounds give two digits of 1e-40 as of 1e-400. Where failures are
    common (p near 0), few rounds are kept: count instead.

    Args:
        seed: Integer or typed key.
        n: Clients, at least 2.
        p: Chance of an edge, in [0, 1].
        q: Chance to leave at a step, in [0, 1], for all four or [4] by step; the same
            for every client.
        t: As for `failure_rates`.
        num_trials: Rounds drawn for each of the two, at least 1.
        progress: Called as `progress(done, 2 * num_trials)` after each chunk.

    Returns:
        Estimates in natural logarithms with 95 % intervals, exact up to the 2^-32 to
        which chances on random words are rounded.

    Raises:
        ConfigurationError: If an argument is out of range or of the wrong kind.

    Cost: as `failure_rates`, and n^2 / 2 numbers of memory, 3 n more for each different
    t.

    Examples:
        >>> import mrsa_jax as mj
        >>> import math
        >>> rates = mj.secagg.rare_failure_rates(
        ...     0, n=40, p=0.9, q=0.01, t=21, num_trials=200
        ... )
        >>> bound = mj.secagg.privacy_bound(40, 0.9, 0.01)
        >>> rates.not_private.log_upper <= bound < math.log(1e-30)
        True

    Source: Karp and Luby, "Monte-Carlo algorithms for enumeration and reliability
    problems" (1983), over the unions that the proofs of CCESA's Theorems 5 and 6 bound.
    """
    n = check_integer(n, "n", 2)
    p, rates = check_chance(p, "p"), losses_by_step(q)
    key = as_key(seed)
    trials = check_integer(num_trials, "num_trials", 1, 2**32 - 1)
    require(
        progress is None or callable(progress), "progress", "must be callable", progress
    )
    graph = graphs.erdos_renyi(n, p)
    limits = limits_of(t, "t", graph)
    chunk = min(at_once("planted", _PLANTED_BYTES * n), default_chunk(n))
    cuts = isolated_cuts(n, p, rates)
    lost = lost_secrets(n, p, rates, limits)

    def bytes_seen(
        log_weights: np.ndarray,
        table: Any,
        plant: Callable[..., Planted],
        stream: int,
        done: int,
    ) -> np.ndarray:
        """Count how often each byte came up; zeros if no listed failure is possible."""
        its_key = fold(key, stream)

        def counted(chunk: int) -> np.ndarray:
            counts = np.zeros(256, np.int64)
            for first in range(0, trials, chunk):
                count = min(chunk, trials - first)
                if log_weights.max() > -math.inf:
                    rounds = plant(its_key, first, chunk, table, rates)
                    judged = judge_planted(graph, rounds, limits, its_key, first, count)
                    counts += np.bincount(judged, minlength=256)
                if progress is not None:
                    progress(done + first + count, 2 * trials)
            return counts

        return within_memory(counted, chunk, "n", f"judging rounds of {n:,} clients")

    by_cut = bytes_seen(cuts, cuts, plant_cuts, _PRIVACY, 0)
    by_client = bytes_seen(
        lost.log_weights, lost, plant_lost_secrets, _RELIABILITY, trials
    )
    # rounds in which the planted failure is the first one of its kind
    first_cuts = np.where(np.arange(256) & _verdicts.PLANTED_FIRST, by_cut, 0)
    exposed = rounds_with(first_cuts, _verdicts.NOT_PRIVATE)
    first_lost = rounds_with(by_client, _verdicts.PLANTED_FIRST)
    log_disconnected = log_disconnection_probability(n, p, rates)
    return RareFailureRates(
        trials=trials,
        unreliable=RareRate.of(log_sum(lost.log_weights.ravel()), first_lost, trials),
        not_private=RareRate.of(log_disconnected, exposed, int(first_cuts.sum())),
        log_disconnected=log_disconnected,
        log_cuts=log_sum(cuts.ravel()),
    )
