"""Count how often rounds of CCESA fail, by simulation of graphs and losses.

Rounds are simulated as sets (graph, survivors, thresholds) and judged by Theorems 1 and
2 of CCESA (Choi, Sohn, Han, Moon), Section 4. P_e^(r) -> `unreliable`, P_e^(p) ->
`not_private`. Where nothing would ever be counted, use `rare_failure_rates`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from mrsa_jax import graphs
from mrsa_jax._core.array_types import PRNGKey, Whole
from mrsa_jax._core.batches import within_memory
from mrsa_jax._core.mesh import checked_mesh
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax._core.streams import MAX_PAIRED, as_key, check_chances
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import StepDropout, independent_steps
from mrsa_jax.secagg.failures import _judging, _verdicts
from mrsa_jax.secagg.thresholds import Thresholds, before_graphs
from mrsa_watch._base.errors import check_chance, check_integer, require
from mrsa_watch._base.html import number, telling, told
from mrsa_watch._base.values import by_value

Progress = Callable[[int, int], Any]


@dataclasses.dataclass(frozen=True)
@by_value
class Rate:
    """Estimate a probability by counting, with an exact interval.

    Attributes:
        count: Trials in which it happened.
        trials: All trials.
        rate: Their ratio.
        lower: Lower end of the Clopper-Pearson 95 % interval; 0.0 for a count of zero.
        upper: Its upper end; 1.0 where it happened always.

    Examples:
        >>> rate = Rate.of(0, 1000)
        >>> rate.rate, rate.lower, round(rate.upper, 5)
        (0.0, 0.0, 0.00368)
    """

    count: int
    trials: int
    rate: float
    lower: float
    upper: float

    @classmethod
    def of(cls, count: int, trials: int) -> Rate:
        """Return the rate of a count."""
        lower, upper = binomial_interval(count, trials)
        return cls(count, trials, count / trials, lower, upper)


@dataclasses.dataclass(frozen=True)
@by_value
class FailureRates:
    """Hold the failures of simulated rounds; every rate is over all of them.

    `no_sum` is the outcome. `unreliable` and `not_private` are conditions of theorems,
    which also hold or fail where there is nothing to sum.

    Attributes:
        trials: Rounds simulated.
        no_sum: The round ended without a sum: too few inputs, or too few shares to
            unmask it; its status in `aggregate` is not OK.
        unreliable: The sum over V3 could not be unmasked (Theorem 1 fails). Never where
            V3 is empty, although no sum is learnt then.
        not_private: Sums of separate parts of V3 could be unmasked (Theorem 2 fails).
        failed: One or both of the theorems' conditions fail; not a rate of rounds
            without a sum.
        both: Both.
        disconnected: G_3 was disconnected; not private is a part of it.
        unmaskable: CCESA's Appendix F attack could have unmasked some client: 2 t <=
            |Adj| + 1.
        too_few: |V3| < 2, where clients refuse to unmask whatever the theorems say.
        mean_survivors: Mean of |V3|.
    """

    __repr__ = told
    _repr_html_ = telling

    trials: int
    no_sum: Rate
    unreliable: Rate
    not_private: Rate
    failed: Rate
    both: Rate
    disconnected: Rate
    unmaskable: Rate
    too_few: Rate
    mean_survivors: float

    def _rows(self) -> list[tuple[str, str]]:
        return rows_of_rates(self)


def rows_of_rates(rates: Any) -> list[tuple[str, str]]:
    """List an object's rates with their intervals, as a notebook shows them."""
    rows = [("rounds", f"{rates.trials:,}")]
    for name, rate in vars(rates).items():
        if hasattr(rate, "upper"):
            interval = f"{number(rate.lower)} to {number(rate.upper)}"
            rows.append((name.replace("_", " "), f"{number(rate.rate)} ({interval})"))
    return rows


@needs_values
def failure_rates(
    seed: int | PRNGKey,
    n: Whole,
    p: ArrayLike,
    q: ArrayLike | list[object] | tuple[object, ...],
    t: Thresholds,
    num_trials: Whole,
    *,
    chunk_size: Whole | None = None,
    progress: Progress | None = None,
    mesh: Mesh | None = None,
    first: Whole = 0,
) -> FailureRates:
    """Count how often a round of CCESA(n, p) ends without a sum, and why.

    Rounds are simulated: each trial draws a new Erdős–Rényi graph and new losses.
    Nothing is counted where the chance is far below 1 / `num_trials`: see
    `rare_failure_rates` and the bounds of Theorems 5 and 6.

    Args:
        seed: Integer or typed key. Trial b uses the graph and the losses of round 0 of
            trial b.
        n: Clients, at least 2.
        p: Chance of an edge, in [0, 1]; 1 is SecAgg.
        q: Chance to leave at one of the four steps, in [0, 1], for everybody or [n].
        t: Shares that rebuild a secret: "majority" for more than half of each client's
            neighbourhood, "remark4" for `share_threshold(n, p)`, an integer of at least
            1, or int[n].
        num_trials: Rounds, at least 1.
        chunk_size: Rounds held at once; by default megabytes of them, or what fills an
            accelerator, and half if its memory does not hold that. Results do not
            depend on it.
        progress: Called as `progress(done, num_trials)` after each chunk.
        mesh: Devices of one axis that the rounds are dealt out to; the counts are the
            same.
        first: Number of the first trial: counts of ranges that follow each other add
            up.

    Returns:
        Rates with Clopper-Pearson 95 % intervals. New values of p, q and t compile
        nothing new.

    Raises:
        ConfigurationError: If an argument is out of range or of the wrong kind.

    Cost: n^2 per round; at n = 100 about 25 microseconds of a CPU core, most of them
    for the random words of the 4,950 pairs.

    Examples:
        >>> import mrsa_jax as mj
        >>> rates = mj.secagg.failure_rates(0, n=12, p=0.5, q=0.02, t=3, num_trials=400)
        >>> rates.not_private.count <= rates.disconnected.count <= rates.trials
        True
        >>> nobody_stays = mj.secagg.failure_rates(
        ...     0, n=12, p=0.5, q=1, t=3, num_trials=400
        ... )
        >>> nobody_stays.no_sum.rate, nobody_stays.unreliable.rate
        (1.0, 0.0)
        >>> rates == mj.secagg.failure_rates(0, 12, 0.5, 0.02, 3, 400, chunk_size=150)
        True

    Source: CCESA, Section 4.3 (independent losses with one rate q, one threshold t).
    """
    n = check_integer(n, "n", 2)
    require(n <= MAX_PAIRED, "n", f"must be at most {MAX_PAIRED}", n)
    graph = graphs.erdos_renyi(n, check_chance(p, "p"))
    losses = check_chances(q, "q")
    require(
        losses.shape in ((), (n,)),
        "q",
        f"must be one rate or {n}, one for each client",
        f"shape {losses.shape}",
    )
    before_graphs(t, "t", graph)
    return failure_rates_of(
        seed,
        graph,
        independent_steps(losses),
        t,
        num_trials,
        chunk_size=chunk_size,
        progress=progress,
        mesh=mesh,
        first=first,
    )


@needs_values
def failure_rates_of(
    seed: int | PRNGKey,
    graph: graphs.GraphModel,
    steps: StepDropout,
    thresholds: Thresholds,
    num_trials: Whole,
    *,
    chunk_size: Whole | None = None,
    progress: Progress | None = None,
    mesh: Mesh | None = None,
    first: Whole = 0,
) -> FailureRates:
    """Count how often a round over any graph, with any losses, ends without a sum.

    Args:
        seed: Integer or typed key.
        graph: How a round's graph is drawn, e.g. `mrsa_jax.graphs.harary(100, 20)`.
        steps: Who survives the steps, e.g.
            `mrsa_jax.availability.independent_steps(0.02)`.
        thresholds: "majority" or "remark4" (as `graph_rule`), an integer of at least 1
            for all, or int[n].
        num_trials: Rounds, at least 1.
        chunk_size: Rounds held at once. Results do not depend on it.
        progress: Called as `progress(done, num_trials)` after each chunk.
        mesh: As for `failure_rates`.
        first: As for `failure_rates`.

    Returns:
        As `failure_rates`, which is the case of an Erdős–Rényi graph with independent
        losses.

    Raises:
        ConfigurationError: If an argument is out of range or of the wrong kind.

    Examples:
        >>> import mrsa_jax as mj
        >>> ring, losses = (
        ...     mj.graphs.harary(8, 2),
        ...     mj.availability.independent_steps(0.0),
        ... )
        >>> mj.secagg.failure_rates_of(
        ...     0, ring, losses, 3, num_trials=5
        ... ).unreliable.count
        0

    Source: CCESA, Theorems 1 and 2, for the graphs of Bell et al. (SecAgg+) as for its
    own.
    """
    require(
        isinstance(graph, graphs.GraphModel),
        "graph",
        "must be a graph model, with `sample` and `num_clients`",
        graph,
    )
    require(
        isinstance(steps, StepDropout), "steps", "must be a step dropout model", steps
    )
    limits = limits_of(thresholds, "thresholds", graph)
    rates = getattr(steps, "thresholds", None)
    shape = () if rates is None else tuple(rates.shape[1:])
    require(
        shape in ((), (graph.num_clients,)),
        "steps",
        f"must be for the graph's {graph.num_clients} clients",
        f"{shape} rates",
    )
    over = checked_mesh(mesh)
    devices = 1 if over is None else over.size
    key = as_key(seed)
    trials = check_integer(num_trials, "num_trials", 1, 2**32 - 1)
    begin = check_integer(first, "first", 0, 2**32 - 1 - trials)
    chunk = devices * _judging.default_chunk(graph.num_clients)
    if chunk_size is not None:
        chunk = -(-check_integer(chunk_size, "chunk_size", 1) // devices) * devices
    require(
        progress is None or callable(progress), "progress", "must be callable", progress
    )

    def counted(chunk: int) -> FailureRates:
        bytes_seen = np.zeros(256, np.int64)
        survivors = 0
        too_few = 0
        for done in range(0, trials, chunk):
            count = min(chunk, trials - done)
            # chunks of one size: another would be compiled anew
            whole = -(-chunk // devices) * devices
            judged = _judging.judge_trials(
                graph, steps, limits, key, begin + done, count, whole, over
            )
            bytes_seen += np.bincount(judged.bytes, minlength=256)
            survivors += int(judged.num_summed.sum(dtype=np.int64))
            too_few += int((judged.num_summed < FEWEST_IN_A_SUM).sum())
            if progress is not None:
                progress(done + count, trials)
        return _summary(bytes_seen, trials, survivors, too_few)

    what = f"judging rounds of {graph.num_clients:,} clients"
    return within_memory(counted, chunk, "chunk_size", what)


def limits_of(
    value: object, argument: str, graph: graphs.GraphModel
) -> np.ndarray | None:
    """Return thresholds as int32[n], None for majorities; or raise."""
    limits = before_graphs(value, argument, graph)
    if limits is None:
        return None
    return np.broadcast_to(limits, (graph.num_clients,)).copy()


def _summary(
    bytes_seen: np.ndarray,
    trials: int,
    survivors: int,
    too_few: int,
) -> FailureRates:
    def rate(flag: int) -> Rate:
        return Rate.of(rounds_with(bytes_seen, flag), trials)

    either = rounds_with(bytes_seen, _verdicts.UNRELIABLE | _verdicts.NOT_PRIVATE)
    unreliable = rate(_verdicts.UNRELIABLE)
    not_private = rate(_verdicts.NOT_PRIVATE)
    both = unreliable.count + not_private.count - either
    return FailureRates(
        trials=trials,
        no_sum=rate(_verdicts.NO_SUM),
        unreliable=unreliable,
        not_private=not_private,
        failed=Rate.of(either, trials),
        both=Rate.of(both, trials),
        disconnected=rate(_verdicts.DISCONNECTED),
        unmaskable=rate(_verdicts.UNMASKABLE),
        too_few=Rate.of(too_few, trials),
        mean_survivors=survivors / trials,
    )


def rounds_with(bytes_seen: np.ndarray, flags: int) -> int:
    """Count the rounds whose byte has at least one of some flags."""
    return int(bytes_seen[np.arange(256) & flags > 0].sum())
