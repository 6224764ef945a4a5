"""Planned sums whose size varies: what one costs a client, and the law of sizes.

Where each client adds one share in K of the noise, a sum of n of them has n/K of its
variance and adds K / (n z^2) to mu^2. Integers' noise costs about as many times its
full sum's divergences, at each order: between `Costs.below` and `Costs.above`. Sizes of
rounds that are independent and alike have a known law, whose costs add up by a Fourier
transform; others are simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from mrsa_jax import selection
from mrsa_jax._core import gaussian as _gaussian
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.round_rules import RoundRule, check_policy
from mrsa_jax._core.selector import block_size_of, cohort_size_of
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax._core.streams import threshold_chance
from mrsa_jax.availability import IndependentSteps, StepDropout
from mrsa_jax.dp._histories import PARTS, Histories, Progress, check_noise, parts, tell
from mrsa_jax.dp._mechanism import RingLosses, RingMechanism
from mrsa_jax.dp._mixtures import Between, Known, Sampled
from mrsa_watch._base.errors import check_integer, require

_CELLS = 2**18  # of the range of what a client's sums cost together
_WIDTH = 2**4  # of them that are taken together where delta is worked out
_TINY = 1e-17  # masses below are put where mu is largest
_TABLE = 2**12  # values of mu that are distinguished among those of trials
_RARE = 60.0  # minus the logarithm of the chance that is left beyond that range


class Costs(NamedTuple):
    """What a sum of n clients costs each of them.

    The square of mu is the sum over its sums.

    Attributes:
        above: float64 `[clients + 1]`, at the most; entry 0 is 0.
        below: The same at the least: less only where noise is of integers.
        law: `delta` and `epsilon` by mu.
    """

    above: Float64[np.ndarray, " sizes"]
    below: Float64[np.ndarray, " sizes"]
    law: Any = _gaussian

    @staticmethod
    def of(
        num_clients: int,
        noise_multiplier: float | None,
        planned: int | None,
        mechanism: Any,
    ) -> Costs:
        """Return the costs of noise that is added once, of K clients' shares, or of integers."""
        sizes = np.arange(num_clients + 1, dtype=np.float64)
        if isinstance(mechanism, RingMechanism):
            law, below, above = RingLosses.of(mechanism)
            # more hides no less
            most = np.minimum(sizes.astype(np.int64), mechanism.num_clients)
            return Costs(above[most], below[most], law)
        assert noise_multiplier is not None
        found = np.ones(num_clients + 1)
        if planned is not None:
            found[1:] = planned / sizes[1:]
        found[0] = 0.0
        return Costs(found / noise_multiplier**2, found / noise_multiplier**2)


@dataclasses.dataclass(frozen=True, eq=False)
class SumPlan:
    """Sums that cohorts are to give.

    Attributes:
        histories: Whom the server asks.
        costs: Of a sum, by its size.
        steps: Who survives a round's steps; None: every cohort is a sum.
        rule: A policy for blocks that lose a member, or what is learnt from a round.
    """

    histories: Histories
    costs: Costs
    steps: Any
    rule: Any

    @property
    def fixed_size(self) -> int | None:
        """Clients of each sum, where all have the same number."""
        size = cohort_size_of(self.histories.selector)
        return size if self.steps is None or self.rule == "abort" else None

    @property
    def least(self) -> int:
        """Clients of the smallest sum that there can be, or a bound below it."""
        if self.fixed_size is not None:
            return self.fixed_size
        if self.steps is None or not isinstance(self.rule, str):
            return 1
        own = block_size_of(self.histories.selector) if self.rule == "drop_block" else 1
        return max(own, FEWEST_IN_A_SUM)

    @property
    def most(self) -> float:
        """The largest square of mu of any history."""
        return self.histories.most * float(self.costs.above[self.least :].max())

    # ---- laws

    def masses(self, client: int) -> Float64[np.ndarray, " sizes"] | None:
        """Return the chances that a client is in a round's sum, by the clients in it.

        None where rounds are not independent and alike, or sizes have no law that is
        known.
        """
        law, chances = self.histories, _survival(self.steps)
        if law.coins is None or law.separation > 1 or chances is None:
            return None
        if not isinstance(self.rule, str):
            return None
        size, block = cohort_size_of(law.selector), block_size_of(law.selector)
        found = np.zeros(law.selector.num_clients + 1)
        if size is not None:
            # what is kept or lost as a whole
            unit = {"ignore": 1, "abort": size, "drop_block": block}[self.rule]
            if size % unit:
                return None
            own = float(law.coins[client]) * _of_units(size // unit, unit, *chances)
            found[unit : size + 1 : unit] = own
        elif block == 1 and getattr(law.selector, "joins_alone", False):
            included = law.coins * chances[0]
            lost = 1.0 - (law.coins if self.rule == "abort" else included)
            found[1:] = included[client] * _others(included, lost, client)
            found[1:] *= _answered(np.arange(1, len(found)), chances[1])
        else:
            return None
        if self.steps is not None:
            found[:FEWEST_IN_A_SUM] = 0.0
        return found

    def known(self, client: int) -> Known | Between | None:
        """Return what a client loses, where its sums have a known law."""
        masses = self.masses(client)
        if masses is None:
            return None
        sizes = np.flatnonzero(masses)
        if sizes.size == 0:
            return Known(np.zeros(1), np.ones(1), self.costs.law)
        above, below = (
            self._known(own[sizes], masses[sizes], up)
            for own, up in ((self.costs.above, True), (self.costs.below, False))
        )
        return Between(above, below)

    def _known(self, costs: np.ndarray, masses: np.ndarray, up: bool) -> Known:
        from scipy import stats

        values, of = np.unique(costs, return_inverse=True)
        masses, rounds = np.bincount(of, masses), self.histories.rounds
        if len(values) == 1:
            counts = stats.binom.pmf(np.arange(rounds + 1), rounds, masses[0])
            return Known.of_counts(counts, values[0] ** -0.5, self.costs.law)
        squares, found = _together(values, masses, rounds, up)
        return Known(np.sqrt(squares), found, self.costs.law)

    # ---- simulated

    @property
    def alike(self) -> np.ndarray:
        """Numbers of clients, equal for those whose sums have the same law."""
        law = self.histories
        if _survival(self.steps) is None or not isinstance(self.rule, str):
            return np.arange(law.selector.num_clients)
        if law.coins is not None:
            return np.asarray(np.unique(law.coins, return_inverse=True)[1])
        units = law.units
        size = block_size_of(law.selector) if units is not law else 1
        return units.alike[np.arange(law.selector.num_clients) // size]

    def _floor(self, delta: float) -> tuple[int, float]:
        """Return a size, and the chance that some round's sum is smaller.

        A hundredth of delta.
        Where cohorts have K clients, who are lost independently of all that was before.
        """
        from scipy import stats

        size, chances = cohort_size_of(self.histories.selector), _survival(self.steps)
        if size is None or chances is None or not isinstance(self.rule, str):
            return self.least, 0.0
        block = (
            block_size_of(self.histories.selector) if self.rule == "drop_block" else 1
        )
        kept = np.arange(size // block + 1)
        below = self.histories.rounds * stats.binom.cdf(
            kept, len(kept) - 1, chances[0] ** block
        )
        few = int(np.count_nonzero(below <= delta / 100))
        if few * block <= self.least:
            return self.least, 0.0
        return few * block, float(below[few - 1])

    def sampled(
        self, seed: Any, trials: int, delta: float, progress: Progress | None
    ) -> Callable[[np.ndarray], Between]:
        """Simulate what clients' sums cost; return what gives those of some clients."""
        law, clients = self.histories, self.histories.selector.num_clients
        floor, rare = self._floor(delta)
        above = self.costs.above[np.maximum(np.arange(clients + 1), floor)]
        above[0] = 0.0
        squares = np.empty((2, trials, clients))
        step = min(at_once("columns", 32 * law.rounds * clients), -(-trials // PARTS))
        for first, number in parts(trials, step):
            sizes = self._sizes(seed, first, number)
            for own, costs in zip(squares, (above, self.costs.below), strict=True):
                own[first : first + number] = costs[sizes].sum(axis=1)
            tell(progress, first + number, trials)
        most = law.most * np.array([above.max(), self.costs.below[self.least :].max()])
        # a round's sum costs its members together at most so much
        together = law.rounds * float((np.arange(clients + 1) * above).max())

        def of(some: np.ndarray) -> Between:
            budget = together / len(some) if isinstance(self.rule, str) else np.inf
            tables = (
                _table(squares[0][:, some], True),
                _table(squares[1][:, some], False),
            )
            return Between(
                *(
                    Sampled(
                        np.sqrt(values),
                        places,
                        float(np.sqrt(top + step)),
                        min(budget, float(top)) + step,
                        law=self.costs.law,
                        rare=left,
                    )
                    for (values, places, step), top, left in zip(
                        tables, most, (rare, 0.0), strict=True
                    )
                )
            )

        return of

    def _sizes(self, seed: Any, first: int, number: int) -> np.ndarray:
        """Return of how many clients each one's sum of a round was, 0 where it was in none."""
        law = self.histories
        if self.steps is None:
            scheme = law.selector, law.availability, law.rounds
            rows = np.asarray(
                selection.rollout_trials(seed, *scheme, number, first=first)
            )
            return np.where(rows, rows.sum(axis=-1, keepdims=True), 0)
        policy = {"policy": self.rule, "blocks": block_size_of(law.selector)}
        rounds = selection.rollout_rounds(
            seed,
            law.selector,
            law.availability,
            self.steps,
            law.rounds,
            num_trials=number,
            first=first,
            **(policy if isinstance(self.rule, str) else {"rule": self.rule}),
        )
        rows = np.asarray(rounds.participation)
        if rounds.components is None:
            return np.where(rows, rows.sum(axis=-1, keepdims=True), 0)
        labels = np.asarray(rounds.components).reshape(-1, rows.shape[-1])
        places = labels + rows.shape[-1] * np.arange(len(labels))[:, None]
        counts = np.bincount(places[labels >= 0], minlength=labels.size)
        return np.where(labels >= 0, counts[np.maximum(places, 0)], 0).reshape(
            rows.shape
        )


def checked_sums(
    law: Histories, noise: Any, planned: Any, steps: Any, rule: Any, mechanism: Any
) -> tuple[float, SumPlan | None]:
    """Return the noise multiplier of sums that are alike.

    What is known of others, or None.

    Raises:
        ConfigurationError: If an argument of `account` is wrong.
    """
    if isinstance(rule, str):
        check_policy(rule, "rule")
    else:
        require(
            isinstance(rule, RoundRule),
            "rule",
            "must be a policy or a `RoundRule`",
            rule,
        )
    good = steps is None or isinstance(steps, StepDropout)
    require(
        good,
        "steps",
        "must be a `StepDropout`, e.g. `availability.independent_steps(0.1)`",
        steps,
    )
    text = "must not be set without `steps`: nothing is lost inside rounds"
    require(steps is not None or rule == "ignore", "rule", text, rule)
    count = law.selector.num_clients
    if mechanism is not None:
        for name, value in (("noise_multiplier", noise), ("planned", planned)):
            text = "must not be set with a mechanism, which has its own"
            require(value is None, name, text, value)
        text = "must be what `dp.ring_mechanism` returns: of segments `ledger` tells afterwards"
        require(isinstance(mechanism, RingMechanism), "mechanism", text, mechanism)
        return 1.0, SumPlan(law, Costs.of(count, None, None, mechanism), steps, rule)
    scale = check_noise(noise)
    share = None if planned is None else check_integer(planned, "planned", 1)
    size = cohort_size_of(law.selector)
    if steps is None and (share is None or size is not None):
        return scale * np.sqrt((size or 1) / (share or size or 1)), None
    return scale, SumPlan(law, Costs.of(count, scale, share, None), steps, rule)


def _table(squares: np.ndarray, up: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Return values, which of them each entry has, and by how much one may be too large.

    Of many they are rounded to a grid, up or down.
    """
    values, places = np.unique(squares, return_inverse=True)
    if len(values) <= _TABLE:
        return values, places.reshape(squares.shape), 0.0
    step = float(values[-1] - values[0]) / _TABLE
    places = (np.ceil if up else np.floor)((squares - values[0]) / step).astype(
        np.int64
    )
    return values[0] + step * np.arange(places.max() + 1), places, step


def _survival(steps: Any) -> tuple[float, float] | None:
    """Return the chances to be in V3, and of those in it in V4; None if clients differ."""
    if steps is None:
        return 1.0, 1.0
    if not isinstance(steps, IndependentSteps) or steps.thresholds.ndim > 1:
        return None
    left = 1.0 - threshold_chance(np.asarray(steps.thresholds))
    return float(left[2]), float(left[3] / left[2]) if left[2] > 0 else 0.0


def _answered(sizes: np.ndarray, answers: float) -> np.ndarray:
    """Return the chances that enough of this many clients answer."""
    from scipy import stats

    # without a step nobody is lost, and one alone counts as `rollout` counts it
    return np.ones(len(sizes)) if answers == 1.0 else stats.binom.sf(1, sizes, answers)


def _of_units(count: int, unit: int, survives: float, answers: float) -> np.ndarray:
    """Return the chances of 1, 2, ... of K clients' units in a sum with a given one, learnt.

    A unit of T clients is in it as a whole or not at all. Too few have answered where
    of all, those of units that were lost among them, at most one has: a polynomial's
    coefficients tell.
    """
    from scipy import special

    kept = np.arange(1, count + 1, dtype=np.float64)
    lost = count - kept
    whole = survives**unit
    none, one = (
        special.binom(unit, k) * answers**k * (1 - answers) ** (unit - k) * whole
        for k in (0, 1)
    )
    joint = survives * answers
    bare, some = (
        special.binom(unit, k) * joint**k * (1 - joint) ** (unit - k) - own
        for k, own in ((0, none), (1, one))
    )
    bare, some = max(bare, 0.0), max(some, 0.0)
    few = none**kept * bare**lost + kept * one * none ** (kept - 1) * bare**lost
    few += lost * none**kept * some * bare ** np.maximum(lost - 1, 0)
    few = few if answers < 1.0 else np.zeros(count)
    ways = special.binom(count - 1, kept - 1)
    return ways * np.maximum(whole**kept * (1 - whole) ** lost - few, 0.0)


def _others(included: np.ndarray, lost: np.ndarray, client: int) -> np.ndarray:
    """Return the chances that 0, 1, ... others are in a sum."""
    found = np.ones(1)
    for place in range(len(included)):
        if place != client:
            found = np.convolve(found, [lost[place], included[place]])
    return found


def _together(
    costs: np.ndarray, masses: np.ndarray, rounds: int, up: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return values, and chances, of the sum of J independent costs, each one of these or none.

    Each is rounded to a grid, up or down. What may be beyond the grid, and the
    transform's rounding errors, are added to the largest value that there can be, or
    taken from it: a mean of what grows with the sum is then no smaller than the true
    one, or no larger.
    """
    most = rounds * float(costs.max())
    rates = np.geomspace(1e-3, 500.0, 200) / costs.max()

    def beyond(values: np.ndarray) -> np.ndarray:
        """Return a logarithm that, less rate x limit, bounds the chance to be beyond a limit."""
        with np.errstate(over="ignore"):
            return np.asarray(
                rounds * np.log1p(np.expm1(rates[:, None] * values) @ masses)
            )

    limit = min(most, float(((beyond(costs) + _RARE) / rates).min()))
    limit *= 1.0 + 2.0 * rounds / _CELLS
    step = limit / (_CELLS - 1)
    places = (np.ceil if up else np.floor)(costs / step)
    law = np.bincount(places.astype(np.int64), masses, minlength=_CELLS)
    law[0] += max(0.0, 1.0 - float(masses.sum()))
    spectrum = np.fft.rfft(law)
    found = np.maximum(np.fft.irfft(spectrum**rounds, _CELLS), 0.0)
    left = 0.0  # of what is beyond the grid
    if rounds * places.max() >= _CELLS:
        left = float(
            np.exp(np.minimum(beyond(places * step) - rates * limit, 0.0).min())
        )
    digits = 4.0 * np.finfo(np.float64).eps * np.log2(_CELLS) * rounds
    rest = np.abs(spectrum) ** (2 * (rounds - 1))
    slack = left + digits * float(np.sqrt(_CELLS * rest.mean()))
    cells = np.arange(_CELLS)
    groups = np.bincount(-(-cells // _WIDTH) if up else cells // _WIDTH, found)
    kept = np.flatnonzero(groups > _TINY)
    slack += float(groups.sum() - groups[kept].sum())
    values = np.minimum(step * _WIDTH * kept, most)
    return np.append(values, most), np.append(groups[kept], slack if up else -slack)
