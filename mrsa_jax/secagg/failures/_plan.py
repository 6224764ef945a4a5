"""Plan one round: the sparsest graph, and its rule for t, that keep two targets.

A round may end without a sum, and it may leak; both chances are sums of exact tails.
Compared are CCESA's p* with Remark 4's t and the finder of SecAgg+ (Bell et al.).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._core.array_types import Whole
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.graphs import secagg_plus_parameters
from mrsa_jax.secagg._round_costs import RoundCosts, expected_costs
from mrsa_jax.secagg.costs import (
    LatencyModel,
    latency_model,
    round_latency,
)
from mrsa_jax.secagg.failures._theory import (
    _log_arrivals,
    connection_probability,
    losses_by_step,
)
from mrsa_jax.secagg.failures._theory_exact import (
    log_disconnection_probability,
    log_lost_secret,
    unmasking_bound,
)
from mrsa_jax.secagg.failures.tails import log_chance, log_pmf, log_sum, log_tail_above
from mrsa_jax.secagg.thresholds import more_than_half, share_threshold
from mrsa_watch._base.errors import (
    POSITIVE,
    ConfigurationError,
    check_integer,
    check_number,
    require,
)
from mrsa_watch._base.html import telling, told
from mrsa_watch._base.values import by_value

_BELOW = 1.0 - 2.0**-53  # the largest chance below 1
_AT_LEAST_1 = "must be at least 1 and finite"
_GRID = 10**5  # p is a multiple of its inverse
_MOST_CLIENTS = 2**14  # the exact chance of disconnection takes n^2 steps


@dataclasses.dataclass(frozen=True)
@by_value
class PlannedRound:
    """A graph with its threshold: what a round of it risks, and what it costs.

    Attributes:
        name: Where it comes from.
        graph: Name as `--graph` takes it.
        number: p of erdos_renyi, k of harary; None of other graphs.
        threshold: t, or "majority".
        mean_degree: Mean neighbours of a client.
        log_no_sum: Log of a bound on the chance that a round ends without a sum: the
            expected number of lost secrets plus the chance of fewer than two inputs.
        log_not_private: Log of a bound on the chance that sums of parts are learnt: the
            exact chance that G_3 is disconnected for erdos_renyi, a union over pairs of
            gaps for harary and over_blocks.
        log_unmaskable: Log of a bound on the chance that the attack in CCESA's Appendix
            F could unmask a client; -inf if it cannot.
        keeps: Whether both targets are kept; the second covers the last two chances.
        client_bytes: Bytes that a client sends and receives in a round without losses.
        keystream_words: 32-bit words of keystream that a client makes.
        seconds: Of the round, by the latency model; the server waits for stragglers,
            each step until the deadline.
        losses: The chance to leave at each step, late clients included.
    """

    name: str
    graph: str
    number: float | int | None
    threshold: int | str
    mean_degree: float
    log_no_sum: float
    log_not_private: float
    log_unmaskable: float
    keeps: bool
    client_bytes: float
    keystream_words: float
    seconds: float
    losses: tuple[float, ...]

    @property
    def log_leak(self) -> float:
        """Log of the bound that the second target is compared with."""
        both = float(np.logaddexp(self.log_not_private, self.log_unmaskable))
        return min(0.0, both)


@dataclasses.dataclass(frozen=True)
@by_value
class RoundPlan:
    """Designs for one round: those that keep both targets first, the cheapest first.

    Attributes:
        num_clients: n.
        losses: The chance to leave at each of the four steps, without late clients.
        no_sum: Target for rounds without a sum.
        leak: Target for rounds that leak.
        rounds: The designs.
    """

    __repr__ = told
    _repr_html_ = telling

    num_clients: int
    losses: tuple[float, ...]
    no_sum: float
    leak: float
    rounds: tuple[PlannedRound, ...]

    @property
    def best(self) -> PlannedRound | None:
        """The design with the fewest bytes that keeps both; None if there is none."""
        kept = [planned for planned in self.rounds if planned.keeps]
        return min(kept, key=lambda planned: planned.client_bytes, default=None)

    def _rows(self) -> list[tuple[str, str]]:
        return [
            (
                planned.name,
                f"{planned.graph} {planned.number or ''}, t = {planned.threshold}, "
                f"{planned.client_bytes:,.0f} bytes",
            )
            for planned in self.rounds
        ]


def plan(
    n: Whole,
    q: ArrayLike | Sequence[float],
    *,
    no_sum: float = 1e-6,
    leak: float = 1e-12,
    dim: Whole = 10_000,
    modulus_bits: Whole = 16,
    model: LatencyModel | None = None,
    block_size: Whole | None = None,
    straggler_rate: float = 0.0,
    straggler_slowdown: float = 10.0,
    deadline: float | None = None,
) -> RoundPlan:
    """Find the sparsest graphs, and rules for t, whose rounds keep two targets.

    Independent edges with "majority" and with one t for all, and Harary graphs of
    clients and of blocks with "majority"; compared with CCESA's p* and Remark 4's t,
    with the degree and t of `graphs.secagg_plus_parameters` (no corrupt clients, a
    server that may lie, and losses that are exceeded with a chance of `no_sum` at
    most), and with the complete graph.

    Args:
        n: Clients, in [3, 16384].
        q: Chance to leave at a step, in [0, 1], for all four or [4] by step.
        no_sum: Target in (0, 1) for the chance that a round ends without a sum.
        leak: Target in (0, 1) for the chance that a round is not private (Theorem 2),
            or that the attack in CCESA's Appendix F could unmask a client.
        dim: Residues of each input, for the costs.
        modulus_bits: b of the ring of 2**b, for the costs.
        model: Rates of links and computers; `costs.latency_model()` if None.
        block_size: T, which must divide n: also plan `graphs.over_blocks` of T clients
            each over a Harary graph of the blocks. No such design if None.
        straggler_rate: Chance in [0, 1) that a client is a straggler in a round.
        straggler_slowdown: Factor, at least 1, by which a straggler computes and sends
            more slowly.
        deadline: Seconds that the server waits at each step. A client that needs longer
            is lost at that step. No limit if None.

    Returns:
        The designs. p is a multiple of 10^-5. Costs are those of a round without
        losses, with t at the mean degree. Losses are independent: of clients lost
        together (a network that fails), nothing follows.

    Raises:
        ConfigurationError: If an argument is out of range.

    Edge cases: a design that no density makes good is left out of `rounds`, as is p*
    where the paper has none (a total loss of one half, or p* above 1). With a deadline,
    denser graphs take longer and lose more; a design is left out if no density takes
    the seconds that its losses go with.

    Cost: n^2; a second at n = 1,000, a minute at n = 10,000.

    Examples:
        >>> import mrsa_jax as mj
        >>> plan = mj.secagg.plan(200, 1 - 0.9**0.25)
        >>> least, paper = (
        ...     next(r for r in plan.rounds if r.name == name)
        ...     for name in ("least p, majority", "CCESA's p*")
        ... )
        >>> least.number, least.keeps, paper.number, paper.keeps
        (0.19474, True, 0.6053, False)

    Source: CCESA, Theorems 1 and 2, Remarks 1 and 4; Bell et al. for SecAgg+.
    """
    n = check_integer(n, "n", 3, _MOST_CLIENTS)
    rates = losses_by_step(q)
    rule = "must lie in (0, 1)"
    log_no_sum, log_leak = (
        math.log(check_number(value, name, rule, 1e-300, 1 - 2**-53))
        for value, name in ((no_sum, "no_sum"), (leak, "leak"))
    )
    late = _Late(
        check_number(
            straggler_rate, "straggler_rate", "must lie in [0, 1)", 0.0, _BELOW
        ),
        check_number(straggler_slowdown, "straggler_slowdown", _AT_LEAST_1, 1.0),
        None
        if deadline is None
        else check_number(
            deadline, "deadline", "must be positive and finite", POSITIVE
        ),
    )
    rule = "must not be set without `straggler_rate`"
    require(
        late.rate > 0.0 or late.slowdown == 10.0,
        "straggler_slowdown",
        rule,
        late.slowdown,
    )
    size = 1 if block_size is None else check_integer(block_size, "block_size", 2, n)
    require(n % size == 0, "block_size", "must divide `n`", size, n)
    planner = _Planner(n, rates, log_no_sum, log_leak, dim, modulus_bits, model, late)
    makers: tuple[Callable[[_Planner], PlannedRound | None], ...] = (
        lambda at: at.sparsest("least p, majority", at.majority),
        lambda at: at.sparsest("least p, one t", at.one_t),
        lambda at: at.least_degree("least degree, majority"),
        lambda at: at.least_degree("blocks, majority", size) if size > 1 else None,
        _Planner.of_paper,
        _Planner.of_secagg_plus,
        lambda at: at.regular("complete graph (SecAgg)", n - 1, "majority"),
    )
    designs = map(planner.settled, makers)
    rounds = [design for design in designs if design is not None]
    rounds.sort(key=lambda planned: (not planned.keeps, planned.client_bytes))
    return RoundPlan(n, tuple(rates.tolist()), no_sum, leak, tuple(rounds))


def _lost(rates: np.ndarray) -> float:
    """Return the chance to leave at one of some steps."""
    with np.errstate(divide="ignore"):  # log 0 of a rate of 1
        return float(-np.expm1(np.log1p(-rates).sum()))


class _Late(NamedTuple):
    """Stragglers, and the seconds of a step after which a client is lost."""

    rate: float = 0.0
    slowdown: float = 1.0
    deadline: float | None = None


_NEVER_LATE = _Late()


@dataclasses.dataclass(frozen=True)
class _Planner:
    """Targets in logarithms, and the sizes that costs depend on."""

    n: int
    rates: np.ndarray
    no_sum: float
    leak: float
    dim: Whole
    modulus_bits: Whole
    model: LatencyModel | None
    late: _Late = _NEVER_LATE

    def settled(
        self, make: Callable[[_Planner], PlannedRound | None]
    ) -> PlannedRound | None:
        """Return the design at those losses that its own seconds bring about."""
        planner = self
        for _ in range(2 * len(self.rates)):
            design = make(planner)
            if design is None:
                return None
            losses = self.with_late(self.costs(design.mean_degree, design.threshold))
            if losses == design.losses:
                return design
            planner = dataclasses.replace(self, rates=np.asarray(losses))
        return None

    def costs(self, degree: float, threshold: int | str) -> RoundCosts:
        """Return the costs of a round without losses, with t at the mean degree."""
        t = threshold
        if isinstance(t, str):
            t = int(more_than_half(np.asarray(round(degree))))
        size = (self.dim, 2 ** check_integer(self.modulus_bits, "modulus_bits", 1, 32))
        return expected_costs(self.n, degree, t, *size)

    def client_seconds(self, costs: RoundCosts) -> tuple[np.ndarray, float]:
        """Return a client's seconds at each step, and those of a round trip."""
        model = self.model or latency_model()
        nothing = jax.tree.map(jnp.zeros_like, model.server_seconds)
        alone = dataclasses.replace(
            model,
            server_bytes_per_second=jnp.float32(np.inf),
            round_trip_seconds=jnp.float32(0),
            server_seconds=nothing,
        )
        waits = round_latency(costs, alone).astype(np.float64)
        return waits, float(model.round_trip_seconds)

    def with_late(self, costs: RoundCosts) -> tuple[float, ...]:
        """Return the losses of a round with these costs, late clients included."""
        rate, slowdown, deadline = self.late
        losses = self.rates.tolist()
        if deadline is None:
            return tuple(losses)
        waits, trip = self.client_seconds(costs)
        has_stragglers = rate > 0.0
        for step, wait in enumerate(waits.tolist()):
            if wait + trip > deadline:
                losses[step] = 1.0
            elif has_stragglers and slowdown * wait + trip > deadline:
                losses[step] = 1.0 - (1.0 - losses[step]) * (1.0 - rate)
                has_stragglers = False
        return tuple(losses)

    def seconds(self, costs: RoundCosts) -> float:
        """Return a round's seconds, the server waiting for stragglers."""
        rate, slowdown, deadline = self.late
        steps = round_latency(costs, self.model or latency_model()).astype(np.float64)
        if rate == 0.0:
            return float(steps.sum())
        waits, trip = self.client_seconds(costs)
        slow = slowdown * waits + trip
        limit = math.inf if deadline is None else deadline
        for step in np.flatnonzero(slow > limit)[:1]:
            # after it no straggler is left
            slow[step + 1 :] = waits[step + 1 :] + trip
        return float((steps - waits - trip + np.minimum(slow, limit)).sum())

    @property
    def lost_at_input(self) -> float:
        """The chance that an input does not arrive."""
        return _lost(self.rates[:3])

    def ends(self, law: tuple[np.ndarray, np.ndarray], threshold: int | str) -> float:
        """Log of a bound on the chance of no sum."""
        limit = None if isinstance(threshold, str) else float(threshold)
        lost = math.log(self.n) + log_lost_secret(law, self.rates, limit)
        too_few = log_sum(_log_arrivals(self.n, self.rates)[:FEWEST_IN_A_SUM])
        return min(0.0, float(np.logaddexp(lost, too_few)))

    def majority(self, p: float) -> tuple[int | str, float]:
        """Rule for t at a density, and the log of its unmasking chance."""
        del p
        return "majority", -math.inf

    def one_t(self, p: float) -> tuple[int | str, float]:
        """Return the least t whose unmasking chance is half of the leak at most."""
        low, high = 1, self.n
        while low < high:
            t = (low + high) // 2
            kept = unmasking_bound(self.n, p, t) <= self.leak - math.log(2.0)
            low, high = (low, t) if kept else (t + 1, high)
        return low, unmasking_bound(self.n, p, low)

    def sparsest(
        self, name: str, rule: Callable[[float], tuple[int | str, float]]
    ) -> PlannedRound | None:
        """Return the least p at which a rule keeps both targets."""
        n, arrives = self.n, 1.0 - self.lost_at_input

        def fits(step: int) -> bool:
            p = step / _GRID
            threshold, unmaskable = rule(p)
            # clients of V3 without a neighbour in V3, nearly all of what disconnects
            alone = math.log(n) + log_chance(arrives)
            alone += (n - 1) * log_chance(1.0 - p * arrives)
            law = np.arange(n), log_pmf(n - 1, p)
            return (
                self.ends(law, threshold) <= self.no_sum
                and float(np.logaddexp(alone, unmaskable)) <= self.leak
            )

        low, high = 1, _GRID
        while low < high:
            step = (low + high) // 2
            low, high = (low, step) if fits(step) else (step + 1, high)
        while low <= _GRID:
            planned = self.random(name, low / _GRID, rule(low / _GRID)[0])
            if planned.keeps:
                return planned
            if not fits(low):  # p = 1
                return None
            low += 1
        return None

    def random(self, name: str, p: float, threshold: int | str) -> PlannedRound:
        """Return a design with independent edges."""
        n = self.n
        law = np.arange(n), log_pmf(n - 1, p)
        unmaskable = -math.inf
        if not isinstance(threshold, str):
            unmaskable = unmasking_bound(n, p, threshold)
        risks = (
            self.ends(law, threshold),
            log_disconnection_probability(n, p, self.rates),
            unmaskable,
        )
        return self._design(name, ("erdos_renyi", p), threshold, (n - 1) * p, risks)

    def regular(
        self, name: str, degree: int, threshold: int | str, size: int = 1
    ) -> PlannedRound:
        """Return a design in which every block of `size` clients has k neighbours."""
        neighbours = (degree + 1) * size - 1  # of a client
        law = np.asarray([neighbours]), np.zeros(1)
        is_complete = neighbours == self.n - 1
        limit = int(more_than_half(np.asarray(neighbours)))
        is_safe = isinstance(threshold, str) or threshold >= limit
        risks = (
            self.ends(law, threshold),
            -math.inf if is_complete else self.log_two_gaps(degree, size),
            -math.inf if is_safe else 0.0,
        )
        graph: tuple[str, int | None] = ("harary", degree)
        if size > 1:
            graph = (f"over_blocks:{size}:{degree}", None)
        if is_complete:
            graph = ("complete", None)
        return self._design(name, graph, threshold, float(neighbours), risks)

    def log_two_gaps(self, degree: int, size: int = 1) -> float:
        """Log of a bound on the chance that V3 of a Harary graph is disconnected.

        The circle must have two runs of floor(k / 2) blocks or more of which no input
        arrived, each behind a block of which one did: expected pairs of such runs.
        """
        blocks, run = self.n // size, degree // 2
        pairs = blocks * (blocks - 1) / 2
        log_empty = size * log_chance(self.lost_at_input)
        behind = float(np.log(-np.expm1(log_empty))) if log_empty < 0.0 else -math.inf
        log_gap = behind + (run * log_empty if run else 0.0)
        return min(0.0, math.log(pairs) + 2.0 * log_gap)

    def least_degree(self, name: str, size: int = 1) -> PlannedRound | None:
        """Return the least even degree of a Harary graph that keeps both targets."""
        low, high = 1, (self.n // size - 1) // 2  # half of the degree
        if high < low:
            return None
        while low < high:
            half = (low + high) // 2
            kept = self.regular(name, 2 * half, "majority", size).keeps
            low, high = (low, half) if kept else (half + 1, high)
        planned = self.regular(name, 2 * low, "majority", size)
        return planned if planned.keeps else None

    def of_paper(self) -> PlannedRound | None:
        """Return CCESA's p* with Remark 4's t."""
        total = _lost(self.rates)
        p = connection_probability(self.n, total) if total < 0.5 else math.inf
        if p > 1.0:
            return None
        p = round(p, 4)
        return self.random("CCESA's p*", p, share_threshold(self.n, p))

    def of_secagg_plus(self) -> PlannedRound | None:
        """Return the degree and the t that the finder of SecAgg+ gives.

        It takes a fraction of the clients as lost, so its degree is not that of
        independent losses.
        """
        total = _lost(self.rates)
        bits = [math.ceil(-log / math.log(2.0)) for log in (self.leak, self.no_sum)]
        n = self.n
        lost = next(
            d for d in range(n + 1) if log_tail_above(n, total, d + 1.0) <= self.no_sum
        )
        try:
            found = secagg_plus_parameters(
                n, 0.0, Fraction(lost, n), *bits, lying_server=True
            )
        except ConfigurationError:
            return None
        return self.regular("SecAgg+'s finder", found.degree, found.threshold)

    def _design(
        self,
        name: str,
        graph: tuple[str, float | int | None],
        threshold: int | str,
        degree: float,
        risks: tuple[float, float, float],
    ) -> PlannedRound:
        costs = self.costs(degree, threshold)
        leak = float(np.logaddexp(*risks[1:]))
        return PlannedRound(
            name,
            *graph,
            threshold,
            degree,
            *risks,
            risks[0] <= self.no_sum and leak <= self.leak,
            float((costs.bytes_up + costs.bytes_down)[:, 0].sum()),
            float(np.asarray(costs.client.prg_words)[:, 0].sum()),
            self.seconds(costs),
            tuple(self.rates.tolist()),
        )
