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
from mrsa_jax.dp._mixtures import Bounded, Known, Sampled
from mrsa_watch._base.errors import check_integer, require

_CELLS = 2**18  # of the range of what a client's sums cost together
_WIDTH = 2**4  # of them that are taken together where delta is worked out
_TINY = 1e-17  # masses below are put where mu is largest
_TABLE = 2**12  # values of mu that are distinguished among those of trials
_RARE = 60.0  # minus the logarithm of the chance that is left beyond that range


class Costs(NamedTuple):
    """Costs of a sum of n clients to each of them.

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
        """Return costs of noise added once, of K clients' shares, or of integers."""
        sizes = np.arange(num_clients + 1, dtype=np.float64)
        if isinstance(mechanism, RingMechanism):
            law, below, above = RingLosses.of(mechanism)
            # more hides no less
            most = np.minimum(sizes.astype(np.int64), mechanism.num_clients)
            return Costs(above[most], below[most], law)
        assert noise_multiplier is not None
        shares = np.ones(num_clients + 1)
        if planned is not None:
            shares[1:] = planned / sizes[1:]
        shares[0] = 0.0
        return Costs(shares / noise_multiplier**2, shares / noise_multiplier**2)


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
        unit = (
            block_size_of(self.histories.selector) if self.rule == "drop_block" else 1
        )
        return max(unit, FEWEST_IN_A_SUM)

    @property
    def most(self) -> float:
        """The largest square of mu of any history."""
        return self.histories.most * float(self.costs.above[self.least :].max())

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
        masses = np.zeros(law.selector.num_clients + 1)
        if size is not None:
            # what is kept or lost as a whole
            unit = {"ignore": 1, "abort": size, "drop_block": block}[self.rule]
            if size % unit:
                return None
            by_units = float(law.coins[client]) * _of_units(
                size // unit, unit, *chances
            )
            masses[unit : size + 1 : unit] = by_units
        elif block == 1 and getattr(law.selector, "joins_alone", False):
            included = law.coins * chances[0]
            lost = 1.0 - (law.coins if self.rule == "abort" else included)
            masses[1:] = included[client] * _others(included, lost, client)
            masses[1:] *= _answered(np.arange(1, len(masses)), chances[1])
        else:
            return None
        if self.steps is not None:
            masses[:FEWEST_IN_A_SUM] = 0.0
        return masses

    def known(self, client: int) -> Known | Bounded | None:
        """Return a client's loss, where its sums have a known law."""
        masses = self.masses(client)
        if masses is None:
            return None
        sizes = np.flatnonzero(masses)
        if sizes.size == 0:
            return Known(np.zeros(1), np.ones(1), self.costs.law)
        chances = masses[sizes]
        above = self._known(self.costs.above[sizes], chances, True)
        return Bounded((above,), self._known(self.costs.below[sizes], chances, False))

    def _known(self, costs: np.ndarray, masses: np.ndarray, up: bool) -> Known:
        from scipy import stats

        values, of = np.unique(costs, return_inverse=True)
        masses = np.bincount(of, masses)
        rounds = self.histories.rounds
        if len(values) == 1:
            counts = stats.binom.pmf(np.arange(rounds + 1), rounds, masses[0])
            return Known.of_counts(counts, values[0] ** -0.5, self.costs.law)
        squares, chances = _together(values, masses, rounds, up)
        return Known(np.sqrt(squares), chances, self.costs.law)

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
        units = np.arange(size // block + 1)
        below = self.histories.rounds * stats.binom.cdf(
            units, len(units) - 1, chances[0] ** block
        )
        few = int(np.count_nonzero(below <= delta / 100))
        if few * block <= self.least:
            return self.least, 0.0
        return few * block, float(below[few - 1])

    def sampled(
        self, seed: Any, trials: int, delta: float, progress: Progress | None
    ) -> Callable[[np.ndarray], Bounded]:
        """Simulate what clients' sums cost; return what gives those of some clients."""
        law = self.histories
        count = law.selector.num_clients
        floor, rare = self._floor(delta)
        above = self.costs.above[np.maximum(np.arange(count + 1), floor)]
        above[0] = 0.0
        below = self.costs.below
        most = np.empty((trials, count))
        least = np.empty((trials, count))
        step = min(at_once("columns", 32 * law.rounds * count), -(-trials // PARTS))
        for first, number in parts(trials, step):
            sizes = self._sizes(seed, first, number)
            most[first : first + number] = above[sizes].sum(axis=1)
            least[first : first + number] = below[sizes].sum(axis=1)
            tell(progress, first + number, trials)
        # a round's sum costs its members together at most so much
        together = law.rounds * float((np.arange(count + 1) * above).max())

        def sample(squares: np.ndarray, largest: float, budget: float, up: bool) -> Any:
            values, places, step = _table(squares, up)
            mu = float(np.sqrt(law.most * largest + step))
            budget = min(budget, law.most * largest) + step
            chance = rare if up else 0.0
            return Sampled(
                np.sqrt(values), places, mu, budget, law=self.costs.law, rare=chance
            )

        def of(clients: np.ndarray) -> Bounded:
            budget = together / len(clients) if isinstance(self.rule, str) else np.inf
            upper = sample(most[:, clients], float(above.max()), budget, True)
            largest = float(below[self.least :].max())
            return Bounded((upper,), sample(least[:, clients], largest, budget, False))

        return of

    def _sizes(self, seed: Any, first: int, number: int) -> np.ndarray:
        """Return the size of each client's sum of a round, 0 where it was in none."""
        law = self.histories
        scheme = law.selector, law.availability
        components: Any = None
        rows: Any
        if self.steps is None:
            rows = selection.rollout_trials(
                seed, *scheme, law.rounds, number, first=first
            )
        else:
            rule: dict[str, Any] = {"rule": self.rule}
            if isinstance(self.rule, str):
                rule = {"policy": self.rule, "blocks": block_size_of(law.selector)}
            history = selection.rollout_rounds(
                seed,
                *scheme,
                self.steps,
                law.rounds,
                num_trials=number,
                first=first,
                **rule,
            )
            rows = history.participation
            components = history.components
        rows = np.asarray(rows)
        if components is None:
            return np.where(rows, rows.sum(axis=-1, keepdims=True), 0)
        labels = np.asarray(components).reshape(-1, rows.shape[-1])
        # the same label in another round is another sum
        places = labels + rows.shape[-1] * np.arange(len(labels))[:, None]
        counts = np.bincount(places[labels >= 0], minlength=labels.size)
        sizes = np.where(labels >= 0, counts[np.maximum(places, 0)], 0)
        return sizes.reshape(rows.shape)


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
        text = "must be a policy or a `RoundRule`"
        require(isinstance(rule, RoundRule), "rule", text, rule)
    if steps is not None:
        text = "must be a `StepDropout`, e.g. `availability.independent_steps(0.1)`"
        require(isinstance(steps, StepDropout), "steps", text, steps)
    text = "must not be set without `steps`: nothing is lost inside rounds"
    require(steps is not None or rule == "ignore", "rule", text, rule)
    count = law.selector.num_clients
    if mechanism is not None:
        for name, value in (("noise_multiplier", noise), ("planned", planned)):
            text = "must not be set with a mechanism, which has its own"
            require(value is None, name, text, value)
        text = (
            "must be what `dp.ring_mechanism` returns: "
            "of segments `ledger` tells afterwards"
        )
        require(isinstance(mechanism, RingMechanism), "mechanism", text, mechanism)
        return 1.0, SumPlan(law, Costs.of(count, None, None, mechanism), steps, rule)
    scale = check_noise(noise)
    share = None if planned is None else check_integer(planned, "planned", 1)
    size = cohort_size_of(law.selector)
    if steps is None and (share is None or size is not None):
        return scale * np.sqrt((size or 1) / (share or size or 1)), None
    return scale, SumPlan(law, Costs.of(count, scale, share, None), steps, rule)


def _table(squares: np.ndarray, up: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Return values, the value of each entry, and the most that one may be too large.

    Of many they are rounded to a grid, up or down.
    """
    values, places = np.unique(squares, return_inverse=True)
    if len(values) <= _TABLE:
        return values, places.reshape(squares.shape), 0.0
    step = float(values[-1] - values[0]) / _TABLE
    cells = (squares - values[0]) / step
    places = (np.ceil if up else np.floor)(cells).astype(np.int64)
    return values[0] + step * np.arange(places.max() + 1), places, step


def _survival(steps: Any) -> tuple[float, float] | None:
    """Return the chances to be in V3, and from there in V4.

    None if clients differ.
    """
    if steps is None:
        return 1.0, 1.0
    if not isinstance(steps, IndependentSteps) or steps.thresholds.ndim > 1:
        return None
    present = 1.0 - threshold_chance(np.asarray(steps.thresholds))
    return float(present[2]), float(present[3] / present[2]) if present[2] > 0 else 0.0


def _answered(sizes: np.ndarray, answers: float) -> np.ndarray:
    """Return the chances that enough of this many clients answer."""
    from scipy import stats

    # without a step nobody is lost, and one alone counts as `rollout` counts it
    return np.ones(len(sizes)) if answers == 1.0 else stats.binom.sf(1, sizes, answers)


def _of_units(count: int, unit: int, survives: float, answers: float) -> np.ndarray:
    """Return chances of 1, 2, ... of K clients' units in a learnt sum with a given one.

    A unit of T clients is in it as a whole or not at all. Too few have answered where
    of all, those of units that were lost among them, at most one has: a polynomial's
    coefficients tell.
    """
    from scipy import special

    included = np.arange(1, count + 1, dtype=np.float64)
    lost = count - included
    whole = survives**unit

    def law(chance: float) -> np.ndarray:
        """Return the chances that none, and that one, of a unit's clients does."""
        return np.array(
            [
                special.binom(unit, k) * chance**k * (1 - chance) ** (unit - k)
                for k in (0, 1)
            ]
        )

    # of a unit that is in the sum, and of one that is lost
    none, single = law(answers) * whole
    bare, some = np.maximum(law(survives * answers) - (none, single), 0.0)
    few = np.zeros(count)
    if answers < 1.0:
        few = (
            none**included * bare**lost
            + included * single * none ** (included - 1) * bare**lost
        )
        few += lost * none**included * some * bare ** np.maximum(lost - 1, 0)
    ways = special.binom(count - 1, included - 1)
    return ways * np.maximum(whole**included * (1 - whole) ** lost - few, 0.0)


def _others(included: np.ndarray, lost: np.ndarray, client: int) -> np.ndarray:
    """Return the chances that 0, 1, ... others are in a sum."""
    chances = np.ones(1)
    for place in range(len(included)):
        if place != client:
            chances = np.convolve(chances, [lost[place], included[place]])
    return chances


def _together(
    costs: np.ndarray, masses: np.ndarray, rounds: int, up: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return values and chances of a sum of J independent costs.

    Each cost is one of these or none.

    Each is rounded to a grid, up or down. What may be beyond the grid, and the
    transform's rounding errors, are added to the largest value that there can be, or
    taken from it: a mean of what grows with the sum is then no smaller than the true
    one, or no larger.
    """
    most = rounds * float(costs.max())
    rates = np.geomspace(1e-3, 500.0, 200) / costs.max()

    def beyond(values: np.ndarray) -> np.ndarray:
        """Bound the chance to be beyond a limit, as a logarithm less rate x limit."""
        with np.errstate(over="ignore"):
            return rounds * np.log1p(np.expm1(rates[:, None] * values) @ masses)

    limit = min(most, float(((beyond(costs) + _RARE) / rates).min()))
    limit *= 1.0 + 2.0 * rounds / _CELLS
    step = limit / (_CELLS - 1)
    places = (np.ceil if up else np.floor)(costs / step)
    law = np.bincount(places.astype(np.int64), masses, minlength=_CELLS)
    law[0] += max(0.0, 1.0 - float(masses.sum()))
    spectrum = np.fft.rfft(law)
    chances = np.maximum(np.fft.irfft(spectrum**rounds, _CELLS), 0.0)
    digits = 4.0 * np.finfo(np.float64).eps * np.log2(_CELLS) * rounds
    rest = np.abs(spectrum) ** (2 * (rounds - 1))
    slack = digits * float(np.sqrt(_CELLS * rest.mean()))
    if rounds * places.max() >= _CELLS:  # some sums are beyond the grid
        exponents = np.minimum(beyond(places * step) - rates * limit, 0.0)
        slack += float(np.exp(exponents.min()))
    cells = np.arange(_CELLS)
    groups = np.bincount(-(-cells // _WIDTH) if up else cells // _WIDTH, chances)
    large = np.flatnonzero(groups > _TINY)
    slack += float(groups.sum() - groups[large].sum())
    values = np.minimum(step * _WIDTH * large, most)
    return np.append(values, most), np.append(groups[large], slack if up else -slack)
