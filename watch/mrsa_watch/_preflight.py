"""The rounds and leaks to expect of a federation, computed before anyone enrols."""

from __future__ import annotations

import bisect
import dataclasses
import math
from typing import Any

import numpy as np

from mrsa_watch._base.errors import check_integer, check_number, require
from mrsa_watch._base.html import hidden_words
from mrsa_watch._base.values import by_value
from mrsa_watch._gate import Gate

_MOST_ROUNDS = 200_000
_MOST_CLIENTS = 10**7
_SURE = 0.95


@dataclasses.dataclass(frozen=True)
@by_value
class Preflight:
    """Chances of rounds, and what simulated histories of a plan leak.

    Attributes:
        quorum: Chance that enough clients are there for a round's cohort.
        success: Chance that a round that began ends with a sum.
        smallest_sum: With chance 0.95 no sum of the rounds is over fewer clients than
            this; None where no round can end with a sum.
        trials: Histories that were simulated.
        learnt: Mean number of sums in them.
        exposed: Mean number of clients whose update follows from the sums of a history.
        first_exposure: Median over histories of the first round after which a client is
            exposed; None where that is never so in half of them.
        weak_lower, weak_upper: Weak T of the worst history lies between; None without a
            sum.
        hidden: Among how many the worst client of the worst history is hidden; None
            where a history has no sum, or floats do not know it.
        breaches: Bars that do not hold.
    """

    quorum: float
    success: float
    smallest_sum: int | None
    trials: int
    learnt: float
    exposed: float
    first_exposure: int | None
    weak_lower: int | None
    weak_upper: int | None
    hidden: float | None
    breaches: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**dataclasses.asdict(self), "breaches": list(self.breaches)}

    def to_words(self) -> str:
        """Return lines for people."""
        size = "no sum"
        if self.smallest_sum is not None:
            size = f"at least {self.smallest_sum} clients"
        weak = "not known" if self.weak_lower is None else str(self.weak_lower)
        if self.weak_lower != self.weak_upper:
            weak += f" to {self.weak_upper}"
        first = "nobody, in most"
        if self.first_exposure is not None:
            first = f"round {self.first_exposure}"
        hidden = "not known" if self.hidden is None else hidden_words(self.hidden)
        lines = [
            f"enough clients for a round:  {_percent(self.quorum)}",
            f"a round ends with a sum:     {_percent(self.success)}",
            f"the smallest sum:            {size} (chance {_SURE:.0%})",
            f"of {self.trials} simulated histories, {self.learnt:.1f} sums each:",
            f"  clients exposed:           {self.exposed:.1f} in the mean; the first: "
            f"{first}",
            f"  weak T of the worst:       {weak}",
            f"  worst client hidden among: {hidden}",
            *(f"BREACH: {why}" for why in self.breaches),
        ]
        return "\n".join(lines)


def preflight(
    num_clients: int,
    cohort_size: int,
    threshold: int | None = None,
    *,
    num_rounds: int,
    loss: float | int = 0.0,
    away: float | int = 0.0,
    block_size: int = 1,
    trials: int = 5,
    seed: int = 0,
    fail_below: int | None = None,
    fail_below_hidden: float | int | None = None,
    fail_below_chance: float | int | None = None,
) -> Preflight:
    """Compute the rounds to expect of a plan by their chances, and the leaks of sums.

    Clients are away and are lost independently. Each round asks a cohort drawn
    uniformly among those who are there, block by block; a block that loses a member is
    left out as a whole.

    Args:
        num_clients: N, enrolled.
        cohort_size: K, asked in a round; N and K are multiples of `block_size`.
        threshold: Fewest clients whose updates must arrive for the sum to be learnt; 2
            by default.
        num_rounds: Rounds that are planned; at most 200,000 in all trials together.
        loss: Chance that a client who was asked is lost before its update arrives.
        away: Chance that a client is not there when a round begins.
        block_size: T clients who only move together, as Multi-RoundSecAgg's batches; 1
            selects clients one by one.
        trials: Histories to simulate.
        seed: Of the simulations, a non-negative integer.
        fail_below: Bar on weak T in every simulated history.
        fail_below_hidden: Bar on among how many the worst client is hidden in any of
            them.
        fail_below_chance: Bar on the chance that a round has a quorum and ends with a
            sum.

    Raises:
        ConfigurationError: If a number breaks its rule.

    Edge cases: without a sum nothing leaks, so bars on leakage hold.

    Examples:
        >>> plan = preflight(12, 6, 4, num_rounds=20, loss=0.1, away=0.05, block_size=3)
        >>> round(plan.success, 3), plan.smallest_sum, plan.weak_lower, plan.exposed
        (0.531, 6, 3, 0.0)

    Source: Multi-RoundSecAgg, Section 4 (batches); chances are binomial tails.
    """
    size = check_integer(block_size, "block_size", 1)
    total = check_integer(num_clients, "num_clients", 1)
    cohort = check_integer(cohort_size, "cohort_size", 1)
    fewest = check_integer(2 if threshold is None else threshold, "threshold", 1)
    rule = "must be at most `num_clients`"
    require(cohort <= total, "cohort_size", rule, cohort, total)
    rule = "must be at most `cohort_size`"
    require(fewest <= cohort, "threshold", rule, fewest, cohort)
    rule = f"must be a multiple of `block_size` {size}"
    for name, value in (("num_clients", total), ("cohort_size", cohort)):
        require(value % size == 0, name, rule, value)
    rounds = check_integer(num_rounds, "num_rounds", 1)
    count = check_integer(trials, "trials", 1)
    rule = f"must be at most {_MOST_ROUNDS} in all trials together (a minute or so)"
    require(rounds * count <= _MOST_ROUNDS, "num_rounds", rule, rounds)
    rule = f"must be at most {_MOST_CLIENTS}"
    require(total <= _MOST_CLIENTS, "num_clients", rule, total)
    start = check_integer(seed, "seed", 0)
    rule = "must lie in [0, 1]"
    loss = check_number(loss, "loss", rule, 0.0, 1.0)
    away = check_number(away, "away", rule, 0.0, 1.0)
    check_number(fail_below_chance or 0.0, "fail_below_chance", rule, 0.0, 1.0)
    Gate(fail_below, fail_below_hidden)  # checks the bars
    stays = (1 - loss) ** size
    comes = (1 - away) ** size
    # a block counts as one client in what follows; numbers of clients are its multiples
    blocks = total // size
    cohort_blocks = cohort // size
    needed = -(-fewest // size)
    quorum = _tail(blocks, comes, cohort_blocks)
    success = _tail(cohort_blocks, stays, needed)
    smallest = None
    # chances fall as sums grow: the first size that is not sure is one too many
    if success > 0:
        unsure = bisect.bisect_left(
            range(needed + 1, cohort_blocks + 1),
            True,
            key=lambda k: (_tail(cohort_blocks, stays, k) / success) ** rounds < _SURE,
        )
        smallest = size * (needed + unsure)
    plan = (blocks, cohort_blocks, needed, comes, stays, rounds)
    histories = [
        _history(np.random.default_rng((start, k)), *plan) for k in range(count)
    ]
    states = [gate.state for gate, _ in histories]
    # no client of a larger block is exposed
    firsts = sorted(
        math.inf if size > 1 or first is None else first for _, first in histories
    )
    middle = firsts[(count - 1) // 2]
    exposed = 0 if size > 1 else sum(len(state.exposed) for state in states)
    lowers = [state.lower for state in states if state.lower is not None]
    uppers = [state.upper for state in states if state.upper is not None]
    hidden = [state.hidden for state in states if state.hidden is not None]
    report = Preflight(
        quorum=quorum,
        success=success,
        smallest_sum=smallest,
        trials=count,
        learnt=sum(state.sums for state in states) / count,
        exposed=exposed / count,
        first_exposure=None if math.isinf(middle) else int(middle),
        weak_lower=size * min(lowers) if lowers else None,
        weak_upper=size * min(uppers) if uppers else None,
        hidden=size * min(hidden) if len(hidden) == count else None,
    )
    bars = (fail_below, fail_below_hidden, fail_below_chance)
    return dataclasses.replace(report, breaches=tuple(_breaches(report, *bars)))


def _tail(count: int, chance: float, least: int) -> float:
    """Return the chance of at least so many of `count` independent events."""
    if least <= 0 or chance >= 1:
        return float(least <= count)
    if least > count or chance <= 0:
        return 0.0

    def term(k: int) -> float:
        """Return the chance of exactly k, by logarithms of factorials."""
        ways = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        return math.exp(ways + k * math.log(chance) + (count - k) * math.log1p(-chance))

    return min(1.0, math.fsum(map(term, range(least, count + 1))))


def _history(
    rng: np.random.Generator,
    blocks: int,
    cohort_blocks: int,
    needed: int,
    comes: float,
    stays: float,
    rounds: int,
) -> tuple[Gate, int | None]:
    """Return a gate that took a history's block sums, and its first exposing round."""
    gate = Gate()
    first = None
    for number in range(1, rounds + 1):
        here = np.flatnonzero(rng.random(blocks) < comes)
        if len(here) < cohort_blocks:
            continue
        chosen = rng.choice(here, cohort_blocks, replace=False)
        survivors = chosen[rng.random(cohort_blocks) < stays]
        if len(survivors) < needed:
            continue
        state = gate.add(survivors.tolist())
        if first is None and state.exposed:
            first = number
    return gate, first


def _breaches(
    report: Preflight,
    weak: int | None,
    hidden: float | int | None,
    chance: float | int | None,
) -> list[str]:
    breaches = []
    works = report.quorum * report.success
    where = "in a simulated history, below"
    if weak is not None and report.weak_lower is not None and report.weak_lower < weak:
        breaches.append(f"weak T is {report.weak_lower} {where} {weak}")
    if hidden is not None and report.learnt:
        if report.hidden is None:
            breaches.append("among how many the worst client is hidden is not known")
        elif report.hidden < hidden:
            words = hidden_words(report.hidden)
            breaches.append(f"a client is hidden among {words} {where} {hidden}")
    if chance is not None and works < chance:
        breaches.append(f"a round works with chance {works:.4f}, below {chance}")
    return breaches


def _percent(chance: float) -> str:
    """Return a chance in percent, never rounded up to certainty or down to nothing."""
    if chance in (0.0, 1.0):
        return f"{chance:.0%}"
    return f"{min(max(100 * chance, 0.01), 99.99):.2f} %"
