"""Candidate schemes for an advice: what each keeps, and what simulated rounds show."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from mrsa_jax import availability, privacy, selection
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.round_rules import SplitPolicy
from mrsa_jax._core.selector import block_size_of, cohort_size_of
from mrsa_jax._core.statistics import half_interval
from mrsa_jax._core.streams import threshold
from mrsa_jax.selection.registry import BUILT_IN, OF_OTHERS
from mrsa_jax.study.runs._build import (
    build_online,
    expected_cardinality,
    expected_fairness,
    guaranteed_privacy,
    is_fairness_quick,
)
from mrsa_jax.study.runs._trial import learnt_sums
from mrsa_jax.study.settings._config import (
    AssignmentName,
    PopulationConfig,
    ProtocolConfig,
    Scheme,
)
from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch._base.values import by_value

_EFFORT = 0.0  # of the search for weak T, which takes longer than all else
# rounds x clients from which on blocks go as one: below, new shapes cost more
_ENTRIES = 1_000_000
_MOST_TARGETS, _FEWEST_TARGETS = 7, 3
_LARGEST_GRID = 8  # the largest crossing partitions whose sums are known exactly
_LEAST_SUM = 0.02  # of the cohort, on average
# of the numbers that were set, if T does not divide them
_LEAST_COHORT, _LEAST_CLIENTS = 0.75, 0.75

Interval = tuple[float, float]
Assigned = Literal["shuffled", "cyclic", "sorted"]
POLICIES: tuple[SplitPolicy, ...] = typing.get_args(SplitPolicy)


@dataclasses.dataclass(frozen=True)
class Setting:
    """The clients that a scheme is chosen for.

    Attributes:
        num_clients: N.
        cohort_size: K.
        dropout_rates: Probabilities to be offline when a round begins, spread evenly
            over the clients.
        loss_rate: Chance of a client that takes part to be lost before its update is
            summed.
        availability: The model of clients online, as flags write it.
        rounds: J, that are simulated.
        trials: B; 0 for closed forms alone.
        seed: Of everything random.
        memory: Of updates that drift; None for no report on them.
        share: Of an update's variance that has it.
        assigned: How rates are spread over the clients.
    """

    num_clients: int
    cohort_size: int
    dropout_rates: tuple[float, ...]
    loss_rate: float
    availability: str
    rounds: int
    trials: int
    seed: int
    memory: float | None = None
    share: float = 1.0
    assigned: AssignmentName = "shuffled"

    def population(self, num_clients: int, cohort_size: int) -> PopulationConfig:
        """Return the clients that a scheme of these sizes is over."""
        return PopulationConfig(
            num_clients=num_clients,
            cohort_size=cohort_size,
            dropout_rates=self.dropout_rates,
            availability=self.availability,
            assignment=self.assigned,
        )

    @property
    def assignment(self) -> str:
        """The assignment of rates to clients, in words; "" if all are alike."""
        clients = self.population(self.num_clients, self.cohort_size)
        return clients.assignment_words(self.seed)


@dataclasses.dataclass(frozen=True)
@by_value
class Played:
    """A scheme after the simulated rounds.

    Intervals are of the mean over trials, at 95 %.

    Attributes:
        num_trials: Of the simulation.
        cardinality: Mean clients per round, rounds without a sum counted as none.
        cardinality_interval: Its interval.
        skipped: Share of rounds without a sum.
        skipped_interval: Its interval.
        fairness_gap: F.
        fairness_interval: Its interval.
        weak_lower: Weak T is at least this in the first trial; 1 if some trial
            exposes a client; None without a sum.
        weak_upper: It is at most this there; 1 and None as above.
        strong_privacy: Strong T, the smallest of all trials; None as above.
        exposed_clients: Mean number of clients whose update the server can solve for.
        hidden_worst: Size that the worst client of all trials is hidden among; None
            as above.
        hidden_median: Size that the median client is hidden among, a mean over trials.
        hidden_interval: Its interval.
        update_hidden_worst: Size that the worst update of all trials is hidden among,
            if updates drift; None as above, without a memory, and if floats are not
            precise enough.
        lasting_hidden_worst: The same of what never changes of a client's updates; None
            as above, and where nothing or all of them lasts.
    """

    num_trials: int
    cardinality: float
    cardinality_interval: Interval
    skipped: float
    skipped_interval: Interval
    fairness_gap: float
    fairness_interval: Interval
    weak_lower: int | None
    weak_upper: int | None
    strong_privacy: int | None
    exposed_clients: float
    hidden_worst: float | None
    hidden_median: float | None
    hidden_interval: Interval | None
    update_hidden_worst: float | None = None
    lasting_hidden_worst: float | None = None


@dataclasses.dataclass(frozen=True)
@by_value
class Option:
    """A scheme with the sizes that it fits: its lasting privacy, and its cost.

    Attributes:
        scheme: As flags and files write it.
        label: As tables show it.
        num_clients: N, or the largest number below that T divides.
        cohort_size: K, or the same of it; None if any number may be asked.
        block_size: T of clients that are never parted; 1 without such blocks.
        policy: What becomes of a block that loses a member inside a round.
        weak_lower: Weak T that no history of any length falls below; 1 if nothing is
            kept.
        strong_privacy: Strong T of the same kind.
        hidden_worst: Size that every client stays hidden among; 1 as above.
        cardinality: Mean clients per round, rounds without a sum counted as none; NaN
            if unknown.
        cardinality_interval: That number twice where it is computed, else its 95 %
            interval.
        skipped: Share of rounds without a sum; NaN if unknown.
        skipped_interval: As for the cardinality.
        played: What was simulated; None if nothing was.
        is_computed: Whether the cardinality is computed, not simulated: of the one
            assignment of dropout rates to clients that the seed draws, where rates
            differ.
        expected_fairness_gap: F of eq. (6), the gap of expected shares; NaN if unknown.
        expected_fairness_error: Its standard error, 0 if it is exact.
        is_best: Whether no other option has at least as much of T, hidden among and
            cardinality, and more of one of them.
    """

    scheme: str
    label: str
    num_clients: int
    cohort_size: int | None
    block_size: int
    policy: SplitPolicy
    weak_lower: int
    strong_privacy: int
    hidden_worst: float
    cardinality: float
    cardinality_interval: Interval
    skipped: float
    skipped_interval: Interval
    played: Played | None = None
    is_computed: bool = True
    expected_fairness_gap: float = math.nan
    expected_fairness_error: float = math.nan
    is_best: bool = False


def play(
    selector: Any,
    online: Any,
    policy: SplitPolicy,
    loss_rate: float,
    block_size: int,
    setting: Setting,
) -> Played:
    """Roll a scheme out and measure it.

    Args:
        selector: Selects the cohorts.
        online: Model of the clients online.
        policy: What becomes of blocks that lose a member inside a round.
        loss_rate: Probability of a client that takes part to be lost before the sum.
        block_size: T of the blocks that the policy is about.
        setting: Number of rounds and trials, their seed, and the drift of updates.
    """
    if loss_rate == 0:
        cohorts = selection.rollout_trials(
            setting.seed, selector, online, setting.rounds, setting.trials
        )
        history = learnt_sums(cohorts)
    else:
        # no client is lost before the third step, and all of the lost in it
        lost = threshold(np.array([0.0, 0.0, loss_rate, loss_rate]))
        rounds = selection.rollout_rounds(
            setting.seed,
            selector,
            online,
            availability.IndependentSteps(on_device(lost)),
            setting.rounds,
            policy=policy,
            blocks=block_size,
            num_trials=setting.trials,
        )
        history = np.asarray(rounds.participation)
    return measure(history, block_size, setting.memory, setting.share)


def measure(
    history: np.ndarray,
    block_size: int = 1,
    memory: float | None = None,
    share: float = 1.0,
) -> Played:
    """Measure histories bool[B, J, N] after their last round.

    Of large ones, blocks that stay whole are measured as one client each.
    """
    sizes = history.sum(axis=-1).astype(np.float64)
    counts = history.sum(axis=1)
    # F of each trial: most less fewest participations, over the rounds
    gaps = (counts.max(axis=-1) - counts.min(axis=-1)) / history.shape[1]
    mean = sizes.mean(axis=-1)
    skipped = (sizes == 0).mean(axis=-1)
    clients, times = history, 1
    if history[0].size > _ENTRIES:
        first = history[..., ::block_size]
        if (history == np.repeat(first, block_size, axis=-1)).all():
            # all columns of a block are equal: leverages and supports are those of one,
            # T times
            clients, times = first, block_size
    hidden = times * np.asarray(privacy.hidden_among(clients))
    seen = hidden[np.isfinite(hidden).any(axis=-1)]
    medians = np.array([np.median(row[np.isfinite(row)]) for row in seen])
    worst = lasting = np.inf
    if memory is not None:
        drifting = np.asarray(privacy.hidden_among(clients, memory=memory, share=share))
        worst = times * float(drifting.min())
        if 0.0 < share < 1.0:
            constant = privacy.hidden_among(
                clients, memory=1.0, share=share, of="lasting"
            )
            lasting = times * float(np.min(constant))
    weak: list[int | None] = [1, 1]
    # hidden among 1 is exposure, so weak T is 1 without a search
    if not (hidden == 1.0).any():
        bounds = privacy.weak_privacy(clients[0], effort=_EFFORT)
        weak = [end and times * end for end in (bounds.lower, bounds.upper)]
    # trials without a sum have none
    strong = [T for T in map(privacy.strong_privacy, clients) if T is not None]
    return Played(
        num_trials=len(history),
        cardinality=float(mean.mean()),
        cardinality_interval=_interval(mean),
        skipped=float(skipped.mean()),
        skipped_interval=_interval(skipped, 1.0),
        fairness_gap=float(gaps.mean()),
        fairness_interval=_interval(gaps, 1.0),
        weak_lower=weak[0],
        weak_upper=weak[1],
        strong_privacy=times * int(min(strong)) if strong else None,
        exposed_clients=float((hidden == 1.0).sum(axis=-1).mean()),
        hidden_worst=float(seen.min()) if len(seen) else None,
        hidden_median=float(medians.mean()) if len(seen) else None,
        hidden_interval=_interval(medians) if len(seen) else None,
        update_hidden_worst=worst if np.isfinite(worst) else None,
        lasting_hidden_worst=lasting if np.isfinite(lasting) else None,
    )


def _interval(values: np.ndarray, most: float = np.inf) -> Interval:
    """Return the interval of a mean of values from 0 to `most`."""
    mean = float(values.mean())
    half = float(half_interval(values)) if len(values) > 1 else 0.0
    return max(mean - half, 0.0), min(mean + half, most)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A scheme with the sizes that it fits.

    Attributes:
        scheme: As flags and files name it.
        num_clients: N, or the largest number below that T divides.
        cohort_size: K, or the same of it.
    """

    scheme: Scheme
    num_clients: int
    cohort_size: int


def candidates(
    setting: Setting, want: int | None, further: Iterable[str]
) -> list[Candidate]:
    """Return random selection and more private schemes, with the sizes that they fit.

    Args:
        setting: The clients.
        want: T that is required, which is then among those tried.
        further: Schemes that the user names.
    """
    n, k = setting.num_clients, setting.cohort_size

    def candidate(text: str, block_size: int = 1) -> Candidate:
        scheme = Scheme.parse(text)
        return Candidate(scheme, n - n % block_size, k - k % block_size)

    found = [candidate("uniform")]
    # else it differs only in how evenly all take part
    if len(set(setting.dropout_rates)) > 1:
        found.append(candidate("weighted"))
    for t in _thinned(setting, targets(n, k, want), want):
        # a single block per cohort: partition is the same and simpler
        is_one = t == k - k % t
        found.append(candidate("partition" if is_one else f"batch_partitioning:{t}", t))
        # a grid of t by t clients must fit
        if t**2 <= n - n % t and (t <= _LARGEST_GRID or t == want):
            found.append(candidate(f"crossing_partitions:{t}", t))
    # the suite registers rules of other systems, which are not the user's
    registered = [
        name
        for name in Scheme.names()
        if name not in BUILT_IN and name not in OF_OTHERS
    ]
    for text in [*further, *registered]:
        try:
            extra = candidate(text)
            extra.scheme.check(n, k)
        except ConfigurationError:
            if text in further:
                raise
            # it has parameters, which only the user knows, or is not for such cohorts
            continue
        # a user may name a scheme that is tried anyway
        if extra not in found:
            found.append(extra)
    return found


def _thinned(setting: Setting, sizes: list[int], want: int | None) -> list[int]:
    """Return a few block sizes: those with sums often enough, and the next one."""
    n, k = setting.num_clients, setting.cohort_size
    rate = sum(setting.dropout_rates) / len(setting.dropout_rates)
    useful: list[int] = []
    for t in sizes:
        # by the mean rate, as a rough guide: the options are evaluated exactly
        mean = selection.expected_cardinality(n - n % t, k - k % t, t, rate)
        useful.append(t)
        # the first that fails shows where the useful ones end
        if mean * (1 - setting.loss_rate) ** t < _LEAST_SUM * k:
            break
    if len(useful) > _MOST_TARGETS:
        places = np.linspace(0, len(useful) - 1, _MOST_TARGETS)
        useful = [useful[round(place)] for place in places]
    return sorted({*useful, *(t for t in sizes if t == want)})


def targets(num_clients: int, cohort_size: int, want: int | None = None) -> list[int]:
    """Return block sizes T > 1 worth a look, ascending: those that divide N and K.

    If hardly any does, also those that leave few clients and little of a cohort over.
    A required T is among them if cohorts are that large.

    Examples:
        >>> targets(120, 12), targets(121, 11), targets(120, 12, 5)
        ([2, 3, 4, 6, 12], [2, 3, 5, 9, 10, 11], [2, 3, 4, 5, 6, 12])
    """
    n, k = num_clients, cohort_size
    common = math.gcd(n, k)
    sizes = {t for t in range(2, common + 1) if common % t == 0}
    if len(sizes) < _FEWEST_TARGETS:
        sizes |= {
            t
            for t in range(2, k + 1)
            if k - k % t >= _LEAST_COHORT * k and n - n % t >= _LEAST_CLIENTS * n
        }
    return sorted(sizes | ({want} if want is not None and 1 < want <= k else set()))


def next_divisor(num_clients: int, cohort_size: int, least: int) -> int | None:
    """Return the least common divisor of N and K from a T on, or None.

    Examples:
        >>> [next_divisor(120, 12, least) for least in (5, 6, 13)]
        [6, 6, None]
    """
    common = math.gcd(num_clients, cohort_size)
    divisors = (t for t in range(least, common + 1) if common % t == 0)
    return next(divisors, None)


class Judge:
    """Builds selectors and evaluates them; those of one scheme are built once."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.built = functools.cache(self._build)
        self._online = functools.cache(self._build_online)

    def _build(self, candidate: Candidate) -> tuple[Any, Any]:
        """Return the selector of a candidate, and the model of its clients online."""
        n, k = candidate.num_clients, candidate.cohort_size
        return candidate.scheme.build(n, k), self._online(n)

    def _build_online(self, num_clients: int) -> Any:
        population = self.setting.population(num_clients, self.setting.cohort_size)
        return build_online(self.setting.seed, population)[0]

    def best_policy(self, candidate: Candidate) -> SplitPolicy:
        """Return the policy that keeps the promise of a scheme at the least cost."""
        selector, _ = self.built(candidate)
        if _block(selector) > 1:
            return "drop_block"
        return "abort" if guaranteed_privacy(selector) > 1 else "ignore"

    def option(
        self, candidate: Candidate, policy: SplitPolicy, loss_rate: float
    ) -> Option:
        """Return the figures of a candidate that need no simulation."""
        selector, online = self.built(candidate)
        n = candidate.num_clients
        block = _block(selector)
        k = cohort_size_of(selector)
        protocol = ProtocolConfig(step_dropout_rate=loss_rate, split_policy=policy)
        weak = guaranteed_privacy(selector, protocol)
        whole = block if weak > 1 else 1
        rates = getattr(online.for_clients(n), "dropout_rates", None)
        if rates is not None:
            # one rate may stand for all clients
            rates = np.broadcast_to(rates, (n,))
        mean, _ = expected_cardinality(selector, rates)
        gap = None
        if rates is not None and loss_rate == 0 and k is not None and k > 1:
            share_gap = getattr(selector, "share_gap", lambda _: None)
            gap = share_gap(rates.astype(np.float64))
        # if any number of clients may be asked, only the rounds show empty ones
        empty = np.nan
        if k is not None:
            size, empty = after_losses(k, block, policy, loss_rate)
            # the chance that a round begins, as sums are of K clients or of none
            begins = mean / k
            mean = begins * size
            empty = 1.0 - begins * (1.0 - empty)
        elif loss_rate > 0:
            mean = np.nan
        return Option(
            scheme=candidate.scheme.written,
            label=candidate.scheme.label,
            num_clients=n,
            cohort_size=k,
            block_size=block,
            policy=policy,
            weak_lower=weak,
            strong_privacy=whole,
            hidden_worst=_always_hidden(selector, whole) if weak > 1 else 1.0,
            cardinality=mean,
            cardinality_interval=(mean, mean),
            skipped=empty,
            skipped_interval=(empty, empty),
            is_computed=not math.isnan(mean),
            expected_fairness_gap=math.nan if gap is None else gap,
            expected_fairness_error=math.nan if gap is None else 0.0,
        )

    def played(self, candidate: Candidate, option: Option, loss_rate: float) -> Option:
        """Return an option with the results of its simulation."""
        played = play(
            *self.built(candidate),
            option.policy,
            loss_rate,
            option.block_size,
            self.setting,
        )
        changes: dict[str, Any] = {"played": played}
        selector, online = self.built(candidate)
        if math.isnan(option.expected_fairness_gap) and loss_rate == 0:
            model = online.for_clients(candidate.num_clients)
            if is_fairness_quick(selector, model):
                gap, error = expected_fairness(selector, model, self.setting.seed)
                changes["expected_fairness_gap"] = gap
                changes["expected_fairness_error"] = error
        for name in ("cardinality", "skipped"):
            if np.isnan(getattr(option, name)):
                changes[name] = getattr(played, name)
                changes[f"{name}_interval"] = getattr(played, f"{name}_interval")
        return dataclasses.replace(option, **changes)


def _block(selector: Any) -> int:
    """Return T of the blocks that are never parted, N if all are asked together."""
    is_everybody = cohort_size_of(selector) == selector.num_clients
    return int(selector.num_clients) if is_everybody else block_size_of(selector)


def after_losses(
    cohort_size: int, block_size: int, policy: SplitPolicy, loss_rate: float
) -> tuple[float, float]:
    """Return the mean size of the sum of a round that began, and the chance of no sum.

    K clients in blocks of T take part, and each is lost with chance l before its update
    is summed. `"abort"` needs all K: the chance is (1 - l)^K. `"drop_block"` sums each
    of the K/T blocks with chance (1 - l)^T. `"ignore"` sums the remaining clients,
    except a sum of one, which is withheld.

    Examples:
        >>> [round(after_losses(12, 4, policy, 0.2)[0], 3) for policy in POLICIES]
        [9.6, 0.825, 4.915]
    """
    k, t, stays = cohort_size, block_size, 1.0 - loss_rate
    if policy == "abort":
        return k * stays**k, 1.0 - stays**k
    if policy == "drop_block" and t > 1:
        return k * stays**t, (1.0 - stays**t) ** (k // t)
    # exactly one survivor, any of the k: a sum of one is withheld
    alone = k * stays * loss_rate ** (k - 1)
    return k * stays - alone, loss_rate**k + alone


def _always_hidden(selector: Any, block_size: int) -> float:
    """Return the size that every client stays hidden among, in any number of rounds.

    The span of all lines that a selector may sum holds every history. Components do not
    affect each other, and equal ones are analysed once.
    """
    members = getattr(selector, "members", None)
    if members is None:
        return float(block_size)
    lines = np.asarray(members)
    size = lines.shape[1]
    distinct = {}
    for rows in lines.reshape(selector.shape[0], -1, size):
        # clients of a component get numbers from 0, so that equal components are found
        clients, places = np.unique(
            rows[rows[:, 0] < selector.num_clients], return_inverse=True
        )
        table = np.zeros((places.size // size, clients.size), np.bool_)
        np.put_along_axis(table, places.reshape(-1, size), values=True, axis=1)
        distinct[table.shape, table.tobytes()] = table.astype(np.float64)
    # the leverage of a client is its diagonal entry of pinv(A) A
    largest = max(
        (np.linalg.pinv(table) * table.T).sum(axis=1).max()
        for table in distinct.values()
    )
    return float(1 / largest)
