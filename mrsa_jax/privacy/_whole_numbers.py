"""Values that are whole numbers of a known range: which of them the sums determine.

Secure aggregation sums integers. Statistics, votes and counts do not change between
rounds and lie in a public range, so a server asks more than linear algebra can: which
integer vectors x in [low, high]^N have P x = y? A client on whose value all of them
agree is *determined*, whether or not it is exposed over the reals.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Bool

from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.statistics import half_interval
from mrsa_jax._core.streams import Stream, as_key, host_generator
from mrsa_jax._core.traced import needs_values
from mrsa_jax.modular import rank
from mrsa_jax.privacy._coalitions import as_history
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value

_MOST_SUM = 2**31
"""Sums from here on are too large for the tolerances of a solver in floats."""

_NODES = 10_000
_MOST_LEVELS = 2**16


@dataclasses.dataclass(frozen=True)
@by_value
class Determined:
    """The values of each client that agree with all sums, as `determined` finds them.

    Attributes:
        lower: int64 [clients], the least value in a solution that was found.
        upper: int64 [clients], the largest one.
        is_decided: bool [clients], whether no solution lies outside of these values. A
            solver in floats (HiGHS) decides that; the solutions themselves are checked
            in integers. Where it is false, the budget ran out, and more values may
            agree with the sums.
    """

    lower: np.ndarray
    upper: np.ndarray
    is_decided: np.ndarray

    @property
    def is_determined(self) -> Bool[np.ndarray, " clients"]:
        """Whether the sums leave the client a single value."""
        return self.is_decided & (self.lower == self.upper)


@needs_values
def determined(
    P: Any, sums: Any, low: Any = 0, high: Any = 1, *, nodes: Any = _NODES
) -> Determined:
    """Find the values of each client that agree with sums of whole numbers.

    Two integer programs per client at most: is there a solution with a smaller value
    than those that were found, and one with a larger? Each solution counts for all
    clients, so few programs are needed where little is determined.

    Args:
        P: Participation matrix, bools or integer weights, [rounds, clients]; the values
            are the same in all rounds.
        sums: Integers [rounds], the sums of these weights and the clients' values.
        low: Least value of a client.
        high: Largest value of a client.
        nodes: Branches that a program may take, at least 0. With 0 no program is
            solved, and every client is undecided unless propagation decides it.

    Raises:
        ConfigurationError: If an argument is of another type, shape or range, if no
            values in the range have these sums, or if sums of values may reach 2^31.

    Examples:
        >>> import mrsa_jax as mj
        >>> P = [[1, 1, 1, 0], [0, 0, 1, 1]]
        >>> mj.privacy.determined(P, [3, 1]).is_determined.tolist()  # 1 + 1 + 1, then 0
        [True, True, True, True]
        >>> found = mj.privacy.determined(P, [2, 1])
        >>> found.lower.tolist(), found.upper.tolist()
        ([0, 0, 0, 0], [1, 1, 1, 1])

    Cost: an integer program of N variables takes 1 to 100 ms for some hundred clients.

    Source: Kleinberg, Papadimitriou, Raghavan 2000 (auditing sums of bits is
    coNP-hard); Dinur and Nissim 2003. Multi-RoundSecAgg considers real values only.
    """
    history = as_history(P)
    weights = np.asarray(history, np.int64)
    rounds = len(weights)
    ends = (
        check_integer(low, "low", -_MOST_SUM),
        check_integer(high, "high", -_MOST_SUM),
    )
    require(ends[0] <= ends[1], "high", "must be at least `low`", *ends)
    limit = check_integer(nodes, "nodes", 0)
    totals = host_array(sums, "sums")
    is_list = totals.shape == (rounds,) and totals.dtype.kind in "iub"
    rule = "must be integers, one for each row of P"
    require(is_list, "sums", rule, totals.tolist())
    largest = int(np.abs(weights).sum(axis=1).max()) * max(map(abs, ends))
    rule = f"must give sums below {_MOST_SUM:,} with these weights"
    require(largest < _MOST_SUM, "high", rule, *ends)
    search = _Search(weights, totals.astype(np.int64), *ends, limit)
    return search.run()


@dataclasses.dataclass(frozen=True)
@by_value
class DeterminedRate:
    """The mean share of clients whose value sums determine, over values from a law.

    `determined_rate` returns it.

    Attributes:
        rate: Mean share of all clients.
        lower: Lower end of its 95 % interval over simulated values; `rate` if exact.
        upper: Its upper end.
        undecided: Mean share of clients on whom the budget ran out, not in `rate`.
        is_exact: Whether it follows from a closed form, without simulation.
    """

    rate: float
    lower: float
    upper: float
    undecided: float
    is_exact: bool


@needs_values
def determined_rate(
    P: Any, law: Any, num_trials: Any = 30, *, seed: Any = 0, nodes: Any = _NODES
) -> DeterminedRate:
    """Return the mean share of clients whose whole-number value a history determines.

    Where the sums of all blocks (clients with equal columns) follow from the history, a
    client of a block of T is determined if and only if all its mates have the least
    value, or all the largest: the chance is p^T + r^T, with p and r the chances of both
    ends, and no simulation is needed. Otherwise values are drawn and `determined`
    counts.

    Args:
        P: Participation matrix, as for `determined`.
        law: The law of each client's value: `"bits:0.1"` (1 with this chance),
            `"levels:4"` (uniform over 0 to 3), or the chances of 0, 1, 2, ...
        num_trials: Draws of all values.
        seed: Seed of the draws.
        nodes: As for `determined`.

    Raises:
        ConfigurationError: As `determined`, or if the law is none.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> blocks = np.kron(np.eye(3, dtype=int), np.ones((1, 4), int))
        >>> mj.privacy.determined_rate(blocks, "bits:0.5").rate  # 2 / 2^4
        0.125
    """
    chances = law_of_values(law)
    draws = check_integer(num_trials, "num_trials", 2)
    history = np.asarray(as_history(P))
    exact = _rate_of_blocks(history, chances)
    if exact is not None:
        return DeterminedRate(exact, exact, exact, 0.0, is_exact=True)
    rng = host_generator(as_key(seed), int(Stream.ATTACK))
    shares = []
    undecided = []
    for _ in range(draws):
        values = rng.choice(len(chances), size=history.shape[1], p=chances)
        found = determined(history, history @ values, 0, len(chances) - 1, nodes=nodes)
        shares.append(found.is_determined.mean())
        undecided.append((~found.is_decided).mean())
    mean, half = float(np.mean(shares)), float(half_interval(np.asarray(shares)))
    lower, upper = max(mean - half, 0.0), min(mean + half, 1.0)
    return DeterminedRate(mean, lower, upper, float(np.mean(undecided)), is_exact=False)


def law_of_values(law: Any) -> np.ndarray:
    """Return the chances of the values 0, 1, 2, ... of a law.

    Examples:
        >>> law_of_values("bits:0.1").tolist(), law_of_values("levels:4").tolist()
        ([0.9, 0.1], [0.25, 0.25, 0.25, 0.25])
    """
    if isinstance(law, str):
        name, _, text = law.partition(":")
        rule = "must be `bits:P` with P from 0 to 1, `levels:L` with L >= 2, or chances"
        if name == "levels" and text.isdecimal() and 2 <= int(text) <= _MOST_LEVELS:
            return np.full(int(text), 1 / int(text))
        try:
            chance = float(text) if name == "bits" else math.nan
        except ValueError:
            chance = math.nan
        require(0 <= chance <= 1, "law", rule, law)
        return np.array([1 - chance, chance])
    chances = np.asarray(host_array(law, "law"), np.float64)
    is_law = chances.ndim == 1 and 2 <= len(chances) <= _MOST_LEVELS
    is_law = is_law and bool((chances >= 0).all() and abs(chances.sum() - 1) < 1e-9)
    require(is_law, "law", "must be chances of 0, 1, 2, ... with sum 1", law)
    return chances / chances.sum()


def _rate_of_blocks(history: np.ndarray, chances: np.ndarray) -> float | None:
    """Return the rate of a history that gives the sums of all its blocks, else None."""
    columns, sizes = np.unique(history, axis=1, return_counts=True)
    is_used = columns.any(axis=0)
    blocks = columns[:, is_used]
    if not blocks.size or int(rank(blocks)) < blocks.shape[1]:
        return None
    ends = float(chances[0]), float(chances[-1])
    rates = [
        1.0 if size == 1 else ends[0] ** int(size) + ends[1] ** int(size)
        for size in sizes[is_used]
    ]
    return float(np.dot(sizes[is_used], rates) / history.shape[1])


class _Search:
    """The solutions found so far, and the program that asks for others."""

    def __init__(
        self, weights: np.ndarray, totals: np.ndarray, low: int, high: int, nodes: int
    ) -> None:
        self.weights = weights
        self.totals = totals
        self.nodes = nodes
        clients = weights.shape[1]
        # values that single sums leave, which hold of every solution
        self.low = np.full(clients, low, np.int64)
        self.high = np.full(clients, high, np.int64)
        self.lower = np.full(clients, high + 1, np.int64)
        self.upper = np.full(clients, low - 1, np.int64)

    def run(self) -> Determined:
        """Ask for smaller and larger values until there are none."""
        self._propagate()
        is_decided = self.low == self.high
        if self.nodes == 0:
            return Determined(self.low, self.high, is_decided)
        first = self._solve(self.low, self.high)
        require(first is not False, "sums", _NO_SOLUTION, self.totals.tolist())
        if first is None:
            return Determined(self.low, self.high, is_decided)
        is_decided = np.ones(len(self.low), np.bool_)
        for client in range(len(self.low)):
            for is_up in (False, True):
                is_decided[client] &= self._widen(client, is_up)
            if is_decided[client]:
                # later programs need not look beyond what is known of this client
                self.low[client] = self.lower[client]
                self.high[client] = self.upper[client]
                self._propagate()
        return Determined(self.lower, self.upper, is_decided)

    def _propagate(self) -> None:
        """Narrow the ranges by what each sum leaves to one client."""
        weights, is_new = self.weights, True
        positive, negative = np.maximum(weights, 0), np.minimum(weights, 0)
        while is_new:
            least = positive * self.low + negative * self.high
            most = positive * self.high + negative * self.low
            # w_i x_i lies between the sum less the most, and less the least, of all others
            above = self.totals[:, None] - (most.sum(axis=1, keepdims=True) - most)
            below = self.totals[:, None] - (least.sum(axis=1, keepdims=True) - least)
            ends = np.where(weights > 0, (above, below), (below, above))
            safe = np.where(weights == 0, 1, weights)
            smallest = np.where(weights == 0, self.low, -(-ends[0] // safe)).max(axis=0)
            largest = np.where(weights == 0, self.high, ends[1] // safe).min(axis=0)
            low, high = np.maximum(self.low, smallest), np.minimum(self.high, largest)
            is_possible = bool((low <= high).all())
            require(is_possible, "sums", _NO_SOLUTION, self.totals.tolist())
            is_new = bool((low > self.low).any() or (high < self.high).any())
            self.low, self.high = low, high

    def _widen(self, client: int, is_up: bool) -> bool:
        """Find the client's largest value in a solution, or its least.

        False where the budget ran out before that was known.
        """
        while True:
            low, high = self.low.copy(), self.high.copy()
            if is_up:
                low[client] = self.upper[client] + 1
            else:
                high[client] = self.lower[client] - 1
            if low[client] > high[client]:
                return True
            answer = self._solve(low, high, client if is_up else None)
            if answer is None:
                return False
            if answer is False:
                return True

    def _solve(
        self, low: np.ndarray, high: np.ndarray, raised: int | None = None
    ) -> bool | None:
        """Search a solution in a box, and take note of its values.

        True if there is one, False if there is none, None if the budget ran out or the
        solver's answer is no solution in integers.
        """
        from scipy import optimize

        # a solution far from those known widens many clients at once
        middle = (self.lower + self.upper) / 2
        away = np.where(middle > (self.low + self.high) / 2, 1.0, -1.0)
        answer = optimize.milp(
            away,
            constraints=optimize.LinearConstraint(
                self.weights, self.totals, self.totals
            ),
            integrality=np.ones(len(low)),
            bounds=optimize.Bounds(low, high),
            options={"node_limit": self.nodes, "mip_rel_gap": np.inf},
        )
        if answer.status == 2:
            return False
        if answer.x is None:
            return None
        values = np.rint(answer.x).astype(np.int64)
        is_right = bool(
            (values >= low).all()
            and (values <= high).all()
            and (self.weights @ values == self.totals).all()
        )
        if not is_right:
            return None
        self.lower = np.minimum(self.lower, values)
        self.upper = np.maximum(self.upper, values)
        return True


_NO_SOLUTION = "must be sums of values from `low` to `high`"
