"""The accountant.

What rounds that are planned will cost each client, before they are run.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float64, Int

from mrsa_jax._core.array_types import PerClient
from mrsa_jax._core.arrays import integer_or_vector
from mrsa_jax._core.selector import Selector, block_size_of
from mrsa_jax._core.streams import Seed, as_key, fold
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import Availability, Independent
from mrsa_jax.dp._coins import Losses, is_in_reach
from mrsa_jax.dp._histories import (
    Histories,
    Progress,
    checked_histories,
    tell,
    worst_mu,
)
from mrsa_jax.dp._mechanism import RingLosses
from mrsa_jax.dp._mixtures import Bounded, Drawn, Known
from mrsa_jax.dp._privacy_losses import losses_of, why_not_drawn
from mrsa_jax.dp._spending import check_strategy
from mrsa_jax.dp._sums import SumPlan, checked_sums
from mrsa_watch._base.errors import (
    check_inside,
    check_known,
    check_number,
    check_size,
    require,
)
from mrsa_watch._base.html import finding, telling

Adversary = Literal["server", "models"]
Method = Literal["auto", "pattern_averaged", "amplified", "worst_case", "monte_carlo"]


@typing.runtime_checkable
class Loss(Protocol):
    """Privacy loss of one client, or of some with equal laws."""

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon."""

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon with which delta is kept."""

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return an interval that holds epsilon with chance 1 - error."""


@finding
class Account:
    """Costs of planned rounds to each client (built by `account`).

    Attributes:
        epsilon: float64 `[clients]`, least epsilon with which `at_delta` is kept. If
            `trials` is not 0, an estimate from them; if it is, a bound without chance.
        lower: float64 `[clients]`, the epsilon is no less; of trials: all of `lower`
            and `upper` hold together with chance `confidence`. What is bounded is the
            named method's figure; of "auto" against models what they really lose.
        upper: float64 `[clients]`, the epsilon is no more: the guarantee to be quoted.
            Few trials make it large, never wrong.
        clients: Whose.
        at_delta: delta.
        adversary: "server", who sees who takes part; "models", who sees the released
            sums only.
        method: How the figures were found, see `account`; of "auto" that of the worst
            client.
        trials: Histories that were simulated, or samples of losses; 0 where a law is
            known.
        confidence: Of the intervals; 1 without trials.
        notes: What the figures rest on, in sentences.
    """

    epsilon: PerClient
    lower: PerClient
    upper: PerClient
    clients: Int[np.ndarray, " clients"]
    at_delta: float
    adversary: Adversary
    method: Method
    trials: int
    confidence: float
    notes: tuple[str, ...]
    _losses: tuple[Loss, ...] = dataclasses.field(repr=False)
    _of: Int[np.ndarray, " clients"] = dataclasses.field(repr=False)

    def delta(self, epsilon: Any) -> PerClient:
        """Return delta at epsilon, of each client; from trials, an estimate.

        Args:
            epsilon: A number from 0, finite.

        Raises:
            ConfigurationError: If it is not.
        """
        number = check_number(epsilon, "epsilon", "must be finite and at least 0", 0.0)
        return np.array([loss.delta(number) for loss in self._losses])[self._of]

    @property
    def worst(self) -> int:
        """The client with the largest epsilon, the first of equals."""
        return int(self.clients[int(np.argmax(self.epsilon))])

    @property
    def mean(self) -> float:
        """The clients' mean epsilon."""
        return float(self.epsilon.mean())

    def _rows(self) -> list[tuple[str, str]]:
        place = int(np.argmax(self.epsilon))
        lower = self.lower[place]
        upper = self.upper[place]
        epsilon = f"largest {self.epsilon[place]:.4g}"
        if lower < upper:
            epsilon += f" (within {lower:.4g} to {upper:.4g})"
        by = "known law"
        if self.trials:
            by = f"{self.trials} trials, {self.confidence:.0%}"
        return [
            ("epsilon", f"{epsilon}, mean {self.mean:.4g}"),
            ("delta", f"{self.at_delta:g}"),
            ("against", self.adversary),
            ("method", f"{self.method} ({by})"),
        ]

    _repr_html_ = telling


class _Plan(NamedTuple):
    """Question to a method.

    `sums` where their noise or their losses make them differ.
    """

    histories: Histories
    sums: SumPlan | None
    noise_multiplier: float
    delta: float
    strategy: Float64[np.ndarray, "rounds rounds"] | None
    adversary: Adversary
    trials: int
    seed: Any
    progress: Progress | None


class _Found(NamedTuple):
    """Losses, of which each client has one, the number of trials, and notes."""

    losses: tuple[Loss, ...]
    of: np.ndarray
    trials: int
    notes: tuple[str, ...]


@needs_values
def account(
    selector: Selector,
    availability: Availability,
    rounds: int,
    noise_multiplier: float | None = None,
    delta: float = 1e-5,
    *,
    planned: Any = None,
    steps: Any = None,
    rule: Any = "ignore",
    mechanism: Any = None,
    adversary: Adversary = "server",
    method: Method = "auto",
    strategy: Any = None,
    clients: Any = None,
    trials: int = 10_000,
    confidence: float = 0.95,
    seed: Seed = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Account:
    """Return the epsilon that planned rounds cost each client, with its interval.

    The guarantee is of a client's contributions, each of length at most the clip, being
    in the sums or replaced by zeros, against one who knows all else and may choose it.
    `ledger` says afterwards what was really spent: the account is the mean of its delta
    over the histories that there can be, if both are asked of the same noise. Where
    clients add it, that takes `planned`, or `mechanism`: a sum of fewer than planned
    has less.

    Args:
        selector: Whom the server asks. It must not look at data.
        availability: Who is online; independent of data, too.
        rounds: J >= 1.
        noise_multiplier: Standard deviation of the noise of each sum, in units of the
            clip.
        delta: In (0, 1).
        planned: K, where clients add the noise, as for `ledger`: each survivor adds 1/K
            of the planned variance. None: it is added once to each sum, whoever is in
            it.
        steps: Who survives the protocol's steps, e.g.
            `availability.independent_steps(0.05)`: sums are those of
            `selection.rollout_rounds`. None: nobody is lost inside a round, and each
            cohort is a sum, one of a single client too, as in `selection.rollout`.
        rule: What is learnt of a round with losses: a policy for blocks that lose a
            member (`selection.learnt_sums`, at threshold 2), or a rule, such as
            `secagg.graph_rule`.
        mechanism: What `ring_mechanism` returned, instead of `noise_multiplier` and
            `planned`: the mean of what `ledger(mechanism=)` proves for each history,
            rounding included.
        adversary: "server" sees who takes part, besides the sums: no sampling amplifies
            privacy against it. "models" sees the released sums, or their means over a
            fixed number, and nothing of their members, not even how many.
        method: "pattern_averaged": the mean of delta over participation histories,
            which is exact for the server and an upper bound for models. Laws of counts
            are used where they are known, by a formula: coins and uniform choice of
            available blocks where availability is independent, coins with a minimum
            separation. Others are simulated. "amplified": `dp_accounting`'s privacy
            loss distribution of Poisson sampling, against models, where clients join
            one by one by their own coins. "worst_case": the largest mu of any
            participation that the schedule allows, one Gaussian. "monte_carlo":
            `privacy_losses` of the exact pair, where it can be drawn; against models.
            "auto": for each client the least of the first two that hold. Only the first
            and the third hold of shared noise and of losses: how large a sum's noise
            is, and that it is missing, tell how many took part.
        strategy: C, as for `ledger`; None: each sum has independent noise.
        clients: Indices of those that are asked about; all if None.
        trials: Histories to simulate, if their law is not known; samples of either side
            to draw.
        confidence: Chance with which all of the intervals hold, in (0, 1).
        seed: Of the simulation, an integer or typed key.
        progress: Called as `progress(done, total)` from time to time: of trials, or of
            clients with different coins.

    Returns:
        The account. Of "amplified", a delta below some 1e-13 (more with many rounds) is
        out of floats' reach: the upper end is then by Renyi divergences, and the lower
        end 0. With trials the upper end must allow for histories that none of them has
        shown, so it stays far above the estimate until there are many times 1/delta
        trials: a note says how many. Clients with equal laws are taken together, which
        helps it.

    Raises:
        ConfigurationError: If noise is not positive and finite, delta or the confidence
            not in (0, 1), a size no positive integer, the scheme looks at data, or
            "amplified" is asked for where it does not hold: against the server, of
            blocks, of cohorts of fixed size, of availability that rounds or clients
            share, with a minimum separation or a strategy, of shared noise or losses;
            if a strategy is of sums whose noise varies.

    Examples:
        >>> import mrsa_jax as mj
        >>> online = mj.availability.independent(0.1)
        >>> blocks = mj.selection.batch_partitioning(24, 6, 3, "uniform")
        >>> mj.dp.account(blocks, online, 100, noise_multiplier=4.0)
        Account(epsilon: largest 6.09, mean 6.09; delta: 1e-05; against: server; method:
        pattern_averaged (known law); Exact for who sees who takes part.; The law of
        counts is known: nothing is simulated.)
        >>> steps = mj.availability.independent_steps(0.05)
        >>> lossy = mj.dp.account(blocks, online, 100, 4.0, planned=6, steps=steps)
        >>> lossy.epsilon[0].round(1).item()  # less noise in fewer sums
        6.2
        >>> coins = mj.selection.bernoulli(24, 0.25)
        >>> alone = mj.dp.account(coins, online, 100, 4.0, adversary="models")
        >>> alone.method, alone.epsilon[0].round(2).item()
        ('amplified', 2.39)

    Cost: "amplified" takes some seconds for each different coin: little noise makes the
    grid of losses coarser. A law of counts takes J evaluations of delta for each step
    of a root, and for each different client; one of sums up to 16384, and transforms of
    2^18 numbers; a simulation its rounds' choices, and 2 bytes for each trial and
    client, of sums 16; with a strategy also a product of the strategy's Gram matrix
    with each history, and 16 bytes.

    Source: Dong, Roth, Su, "Gaussian differential privacy" (2022); the mean by joint
    convexity of the hockey-stick divergence. The interval: see `_mixtures`.
    """
    bound = checked_histories(selector, availability, rounds)
    scale, sums = checked_sums(bound, noise_multiplier, planned, steps, rule, mechanism)
    wanted = check_inside(delta, "delta")
    level = check_inside(confidence, "confidence")
    check_known(adversary, "adversary", typing.get_args(Adversary), "a known adversary")
    check_known(method, "method", typing.get_args(Method), "a known method")
    matrix = None if strategy is None else check_strategy(strategy, bound.rounds)
    legal = matrix is None or sums is None
    require(legal, "strategy", f"must not be set {_VARY}", "a strategy")
    some = _check_clients(clients, bound.selector.num_clients)
    legal = progress is None or callable(progress)
    require(legal, "progress", "must be callable", progress)
    plan = _Plan(
        bound,
        sums,
        scale,
        wanted,
        matrix,
        adversary,
        check_size(trials, "trials"),
        as_key(seed),
        progress,
    )
    reason = _why_not(method, plan)
    legal = not reason or method not in ("amplified", "monte_carlo")
    require(legal, "method", f"must not be {method!r}: {reason}")
    if method == "auto":
        method, found = _least(plan, some, reason)
    else:
        found = _METHODS[method](plan, some)
    # all intervals hold together: each fails with its share
    error = (1.0 - level) / len(found.losses)
    rows = [
        (loss.epsilon(wanted), *loss.interval(wanted, error)) for loss in found.losses
    ]
    epsilon, lower, upper = np.array(rows).T[:, found.of]
    assert not (lower > upper * (1 + 1e-9)).any(), (
        "an interval whose ends are exchanged"
    )
    return Account(
        epsilon,
        np.minimum(lower, upper),  # except for rounding it is
        upper,
        some,
        wanted,
        adversary,
        method,
        found.trials,
        level if found.trials else 1.0,
        found.notes + _note_of_trials(found, wanted, error),
        found.losses,
        found.of,
    )


def _note_of_trials(found: _Found, delta: float, error: float) -> tuple[str, ...]:
    if not found.trials:
        return ()
    bounds = [
        bound for loss in found.losses for bound in getattr(loss, "above", [loss])
    ]
    wanted = max(bound.trials_wanted(delta, error) for bound in bounds)
    text = (
        f"With {wanted:,} trials what none of them has shown would take up a tenth of "
        "delta "
        f"in the upper ends; there are {found.trials:,}."
    )
    return () if wanted <= found.trials else (text,)


def _pattern_averaged(plan: _Plan, some: np.ndarray) -> _Found:
    exact = "Exact for who sees who takes part."
    if plan.adversary == "models":
        exact = (
            "An upper bound, by joint convexity: "
            "this adversary sees less than is allowed for."
        )
    law = plan.histories
    if plan.sums is not None:
        return _of_sums(plan, plan.sums, some, exact)
    if law.coins is not None and plan.strategy is None:
        _, first, of = _classes(law.coins[some])
        scale = plan.noise_multiplier
        laws = tuple(law.known(int(client), scale) for client in some[first])
        text = "The law of counts is known: nothing is simulated."
        return _Found(laws, of, 0, (exact, text))
    units = law.units
    size = block_size_of(law.selector) if units is not law else 1
    alike = units.alike
    settings = plan.seed, plan.trials, plan.noise_multiplier, plan.progress
    matrix = plan.strategy
    drawn = (
        units.sampled(*settings)
        if matrix is None
        else units.sampled_with(matrix, *settings)
    )
    classes, _, of = _classes(alike[some // size])
    losses = tuple(drawn(np.flatnonzero(alike == number)) for number in classes)
    return _Found(losses, of, plan.trials, (exact,))


def _classes(alike: np.ndarray) -> Any:
    """Return distinct values, the first place of each, and the value of every entry."""
    return np.unique(alike, return_index=True, return_inverse=True)


def _of_sums(plan: _Plan, sums: SumPlan, some: np.ndarray, exact: str) -> _Found:
    """Average over histories of sums that differ in noise, or are lost."""
    notes: tuple[str, ...] = (exact,)
    if isinstance(sums.costs.law, RingLosses):
        notes += (
            "Of the mechanism's integers: its Renyi bounds, as `ledger(mechanism=)` "
            "has it.",
        )
    alike = sums.alike
    classes, first, of = _classes(alike[some])
    laws = [sums.known(int(client)) for client in some[first]]
    losses = tuple(law for law in laws if law is not None)
    if len(losses) == len(laws):
        notes += ("The law of sums is known: nothing is simulated.",)
        return _Found(losses, of, 0, notes)
    drawn = sums.sampled(plan.seed, plan.trials, plan.delta, plan.progress)
    losses = tuple(drawn(np.flatnonzero(alike == number)) for number in classes)
    return _Found(losses, of, plan.trials, notes)


def _amplified(plan: _Plan, some: np.ndarray) -> _Found:
    law = plan.histories
    assert law.coins is not None
    coins, _, of = _classes(law.coins[some])
    losses: list[Loss] = []
    is_reached = True
    tell(plan.progress, 0, len(coins))
    for coin in coins.tolist():
        loss: Loss = _NOTHING
        if coin > 0:
            loss = Losses.of(coin, law.rounds, plan.noise_multiplier)
            is_reached &= loss.below is not None
            is_reached &= is_in_reach(plan.delta, law.rounds)
        losses.append(loss)
        tell(plan.progress, len(losses), len(coins))
    notes = ["Void against the server, and where a round's size is known."]
    if not is_reached:
        notes.append(
            "Floats do not reach this delta: the upper end comes from Renyi "
            "divergences, and the lower end is 0."
        )
    return _Found(tuple(losses), of, 0, tuple(notes))


def _least(plan: _Plan, some: np.ndarray, reason: str) -> tuple[Method, _Found]:
    """Return the less of two bounds for each client, and the worst client's method.

    The mean over histories alone where `reason` is against amplification.
    """
    averaged = _pattern_averaged(plan, some)
    if reason:
        return "pattern_averaged", averaged
    amplified = _amplified(plan, some)
    both = np.stack([amplified.of, averaged.of], axis=1)
    pairs, of = np.unique(both, axis=0, return_inverse=True)
    losses = []
    for i, j in pairs.tolist():
        exact = amplified.losses[i]  # up to rounding, so that its lower end holds
        losses.append(Bounded((exact, averaged.losses[j]), exact))
    worst = max(losses, key=lambda loss: loss.epsilon(plan.delta))
    first, second = (loss.epsilon(plan.delta) for loss in worst.above)
    is_amplified = first <= second
    notes = amplified.notes if is_amplified else (*averaged.notes, *amplified.notes)
    method: Method = "amplified" if is_amplified else "pattern_averaged"
    return method, _Found(tuple(losses), of.reshape(-1), 0, notes)


def _largest_mu(plan: _Plan) -> float:
    """Return mu of the worst participation that the schedule allows."""
    law = plan.histories
    if plan.sums is not None:
        return float(np.sqrt(plan.sums.most))
    if plan.strategy is None:
        return float(np.sqrt(law.most)) / plan.noise_multiplier
    return worst_mu(plan.strategy, law.separation, plan.noise_multiplier)


def _worst_case(plan: _Plan, some: np.ndarray) -> _Found:
    law = plan.histories
    loss = Known(np.array([_largest_mu(plan)]), np.ones(1))
    if plan.sums is not None:
        loss = loss._replace(law=plan.sums.costs.law)
    text = f"No client is in more than {law.most} of {law.rounds} rounds."
    return _Found((loss,), np.zeros(len(some), np.int64), 0, (text,))


def _monte_carlo(plan: _Plan, some: np.ndarray) -> _Found:
    law = plan.histories
    alone = np.zeros(law.selector.num_clients) if law.coins is None else law.coins
    _, first, of = _classes(alone[some])
    most = _largest_mu(plan)
    losses = []
    for place, client in enumerate(some[first].tolist()):
        sides = tuple(
            losses_of(
                law,
                client,
                plan.noise_multiplier,
                plan.strategy,
                plan.trials,
                fold(plan.seed, place, int(is_with)),
                with_it=is_with,
            )
            for is_with in (True, False)
        )
        losses.append(Drawn(sides, most))
        tell(plan.progress, (place + 1) * plan.trials, len(first) * plan.trials)
    return _Found(tuple(losses), of, plan.trials, ("Void against the server.",))


_NOTHING = Known(np.zeros(1), np.ones(1))
_METHODS: Mapping[Method, Callable[[_Plan, np.ndarray], _Found]] = {
    "pattern_averaged": _pattern_averaged,
    "amplified": _amplified,
    "worst_case": _worst_case,
    "monte_carlo": _monte_carlo,
}


_SEEN = "the server sees who takes part, so that sampling hides nothing from it"
_VARY = "if sums differ in their noise or are lost (`planned`, `steps`, `mechanism`)"
_VARIES = (
    "where each client adds its share of the noise, or leaves inside a round "
    "(`planned`, `steps`, "
    "`mechanism`), noise and missing sums tell how many took part, and so who did; "
    "omit `method`"
)


def _why_not(method: Method, plan: _Plan) -> str:
    """Return why the losses of this adversary cannot be drawn, or amplified.

    Nothing where they can: drawn by "monte_carlo", amplified by any other method.
    """
    law = plan.histories
    if plan.adversary == "server":
        return _SEEN
    if plan.sums is not None:
        return _VARIES
    if method == "monte_carlo":
        return why_not_drawn(law, plan.strategy)
    if block_size_of(law.selector) > 1:
        return (
            "blocks give away who takes part: "
            "the others of a block may send what tells it"
        )
    if not getattr(law.selector, "joins_alone", False):
        return (
            "clients do not join by their own coins: "
            "a client's place is otherwise another's"
        )
    if not isinstance(law.availability, Independent):
        return "who is online is not independent over clients and rounds"
    if law.separation > 1 or law.coins is None:
        return "with a minimum separation, or bins, rounds depend on each other"
    if plan.strategy is not None:
        return "with a strategy rounds do not compose one by one"
    return ""


def _check_clients(clients: Any, count: int) -> np.ndarray:
    if clients is None:
        return np.arange(count)
    some = np.atleast_1d(integer_or_vector(clients, "clients"))
    rule = f"must be one or more indices of clients, from 0 to {count - 1}"
    inside = some.size > 0 and some.min() >= 0 and some.max() < count
    require(bool(inside), "clients", rule, clients)
    return some
