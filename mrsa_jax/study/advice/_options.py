"""Which schemes come into question, and what each keeps for any number of rounds."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterable
from typing import Any

import numpy as np

from mrsa_jax._core.round_rules import SplitPolicy
from mrsa_jax._core.selector import block_size_of, cohort_size_of
from mrsa_jax.selection import expected_cardinality as expected_size
from mrsa_jax.selection.registry import BUILT_IN
from mrsa_jax.study._build import build_online, expected_cardinality, guaranteed_privacy
from mrsa_jax.study._config import ProtocolConfig, Scheme
from mrsa_jax.study.advice._played import Interval, Played, Setting, play
from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch._base.values import by_value

_MOST_TARGETS, _FEWEST_TARGETS = 7, 3
_LARGEST_GRID = 8  # the size of whose sums is known exactly
_LEAST_SUM = 0.02  # of the cohort, on average
# of what was asked for, where T does not divide it
_LEAST_COHORT, _LEAST_CLIENTS = 0.75, 0.75


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
    """Return random selection and what protects better, each with the sizes that it fits.

    Args:
        setting: For whom.
        want: T that is demanded, which is then among those tried.
        further: Schemes that the user names.
    """
    n, k = setting.num_clients, setting.cohort_size
    found = [Candidate(Scheme.parse("uniform"), n, k)]
    # else it differs only in how evenly all take part
    if len(set(setting.dropout_rates)) > 1:
        found.append(Candidate(Scheme.parse("weighted"), n, k))
    for t in _thinned(setting, targets(n, k, want), want):
        sizes = n - n % t, k - k % t
        plain = "partition" if t == sizes[1] else f"batch_partitioning:{t}"
        found.append(Candidate(Scheme.parse(plain), *sizes))
        if t**2 <= sizes[0] and (t <= _LARGEST_GRID or t == want):
            found.append(Candidate(Scheme.parse(f"crossing_partitions:{t}"), *sizes))
    own = [name for name in Scheme.names() if name not in BUILT_IN]
    for text in [*further, *own]:
        try:
            one = Candidate(Scheme.parse(text), n, k)
            one.scheme.check(n, k)
        except ConfigurationError:
            if text in further:
                raise
            # it has parameters, which only the user knows, or it is not for such
            # cohorts
            continue
        if one not in found:
            found.append(one)
    return found


def _thinned(setting: Setting, sizes: list[int], want: int | None) -> list[int]:
    """Return the block sizes that are of use.

    But one, those with sums often enough, and few.
    """
    rate = sum(setting.dropout_rates) / len(setting.dropout_rates)
    kept: list[int] = []
    for t in sizes:
        n, k = setting.num_clients, setting.cohort_size
        mean = (
            expected_size(n - n % t, k - k % t, t, rate) * (1 - setting.loss_rate) ** t
        )
        kept.append(t)
        if mean < _LEAST_SUM * k:  # the first that fails shows where it ends
            break
    if len(kept) > _MOST_TARGETS:
        steps = [
            i * (len(kept) - 1) / (_MOST_TARGETS - 1) for i in range(_MOST_TARGETS)
        ]
        kept = [kept[round(step)] for step in steps]
    return sorted({*kept, *(t for t in sizes if t == want)})


def targets(num_clients: int, cohort_size: int, want: int | None = None) -> list[int]:
    """Return block sizes T > 1 worth a look, ascending.

    First of all those that divide N and K.
    Where hardly any does, also those that leave few clients and little of a cohort
    over. What is demanded is among them if cohorts are so large.

    Examples:
        >>> targets(120, 12), targets(121, 11), targets(120, 12, 5)
        ([2, 3, 4, 6, 12], [2, 3, 5, 9, 10, 11], [2, 3, 4, 5, 6, 12])
    """
    n, k = num_clients, cohort_size
    common = math.gcd(n, k)
    found = {t for t in range(2, common + 1) if common % t == 0}
    if len(found) < _FEWEST_TARGETS:
        found |= {
            t
            for t in range(2, k + 1)
            if k - k % t >= _LEAST_COHORT * k and n - n % t >= _LEAST_CLIENTS * n
        }
    return sorted(found | ({want} if want is not None and 1 < want <= k else set()))


POLICIES: tuple[SplitPolicy, ...] = typing.get_args(SplitPolicy)


@dataclasses.dataclass(frozen=True)
@by_value
class Option:
    """A scheme with the sizes that it fits.

    What it keeps in any number of rounds, and its cost.

    Attributes:
        scheme: As flags and files write it.
        label: As tables show it.
        num_clients: N, or the largest number below that T divides.
        cohort_size: K, or the same of it; None if any number may be asked.
        block_size: T of clients who are never parted; 1 where there are none.
        policy: What becomes of a block that loses a member inside a round.
        weak_lower: Weak T that no history of any length falls below; 1 where nothing is
            kept.
        strong_privacy: Strong T of the same kind.
        hidden_worst: Among how many every client stays hidden; 1 as above.
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
        is_best: Whether no other option has at least as much of T, hidden among and
            cardinality, and more of one.
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
    is_best: bool = False


class Judge:
    """Builds selectors and judges them; those of one scheme are built once."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._built: dict[Candidate, tuple[Any, Any]] = {}
        self._online: dict[int, Any] = {}

    def built(self, one: Candidate) -> tuple[Any, Any]:
        """Return the selector of a candidate, and who is online among its clients."""
        if one not in self._built:
            own, n = self.setting, one.num_clients
            if n not in self._online:
                population = own.population(n, one.cohort_size)
                self._online[n], _ = build_online(own.seed, population)
            self._built[one] = one.scheme.build(n, one.cohort_size), self._online[n]
        return self._built[one]

    def best_policy(self, one: Candidate) -> SplitPolicy:
        """Return the policy that keeps what a scheme promises, at the least cost."""
        selector, _ = self.built(one)
        if _block(selector) > 1:
            return "drop_block"
        return "abort" if guaranteed_privacy(selector) > 1 else "ignore"

    def option(
        self, one: Candidate, policy: SplitPolicy, loss_rate: float | None = None
    ) -> Option:
        """Return what is known of a candidate without simulation."""
        loss = self.setting.loss_rate if loss_rate is None else loss_rate
        selector, online = self.built(one)
        block, k = _block(selector), cohort_size_of(selector)
        protocol = ProtocolConfig(step_dropout_rate=loss, split_policy=policy)
        kept = guaranteed_privacy(selector, protocol)
        whole = block if kept > 1 else 1
        rates = getattr(online.for_clients(one.num_clients), "dropout_rates", None)
        known = None if rates is None else np.broadcast_to(rates, (one.num_clients,))
        mean, _ = expected_cardinality(selector, known)
        # of any number of clients that may be asked only the rounds tell
        empty = np.nan
        if k is not None:
            size, empty = after_losses(k, block, policy, loss)
            begins = mean / k
            mean, empty = begins * size, 1.0 - begins * (1.0 - empty)
        elif loss > 0:
            mean = np.nan
        return Option(
            one.scheme.written,
            one.scheme.label,
            one.num_clients,
            k,
            block,
            policy,
            kept,
            whole,
            _hidden_for_ever(selector, whole) if kept > 1 else 1.0,
            mean,
            (mean, mean),
            empty,
            (empty, empty),
            is_computed=not math.isnan(mean),
        )

    def played(
        self, one: Candidate, option: Option, loss_rate: float | None = None
    ) -> Option:
        """Return an option with the results of its simulation."""
        own = self.setting
        selector, online = self.built(one)
        found = play(
            selector,
            online,
            option.policy,
            own.loss_rate if loss_rate is None else loss_rate,
            option.block_size,
            own,
        )
        changes: dict[str, Any] = {"played": found}
        for name in ("cardinality", "skipped"):
            if np.isnan(getattr(option, name)):
                changes[name] = getattr(found, name)
                changes[f"{name}_interval"] = getattr(found, f"{name}_interval")
        return dataclasses.replace(option, **changes)


def _block(selector: Any) -> int:
    """Return T of the blocks that are never parted.

    All clients where all are asked together.
    """
    is_everybody = cohort_size_of(selector) == selector.num_clients
    return int(selector.num_clients) if is_everybody else block_size_of(selector)


def after_losses(
    cohort_size: int, block_size: int, policy: SplitPolicy, loss_rate: float
) -> tuple[float, float]:
    """Return the mean size of the sum of a round that began, and the chance that there is none.

    K clients in blocks of T take part, and each is lost with chance l before its update
    is summed. `"abort"` needs all K: the chance is (1 - l)^K. `"drop_block"` sums each
    of the K/T blocks with chance (1 - l)^T. `"ignore"` sums whoever is left, except a
    sum of one, which is withheld.

    Examples:
        >>> [round(after_losses(12, 4, policy, 0.2)[0], 3) for policy in POLICIES]
        [9.6, 0.825, 4.915]
    """
    k, t, stays = cohort_size, block_size, 1.0 - loss_rate
    if policy == "abort":
        return k * stays**k, 1.0 - stays**k
    if policy == "drop_block" and t > 1:
        return k * stays**t, (1.0 - stays**t) ** (k // t)
    alone = k * stays * loss_rate ** (k - 1)
    return k * stays - alone, loss_rate**k + alone


def _hidden_for_ever(selector: Any, block_size: int) -> float:
    """Return among how many every client stays hidden, whatever disjoint lines are ever summed.

    The span of all lines that a selector may sum holds every history. Components do not
    affect each other, and equal ones are looked at once.
    """
    members = getattr(selector, "members", None)
    if members is None:
        return float(block_size)
    every = np.asarray(members)
    found, size = float("inf"), every.shape[1]
    known: set[Any] = set()
    for own in every.reshape(selector.shape[0], -1, size):
        clients, places = np.unique(
            own[own[:, 0] < selector.num_clients], return_inverse=True
        )
        table = np.zeros((places.size // size, clients.size), np.bool_)
        np.put_along_axis(table, places.reshape(-1, size), values=True, axis=1)
        key = table.shape, table.tobytes()
        if key not in known:
            known.add(key)
            lines = table.astype(np.float64)
            leverages = (np.linalg.pinv(lines) * lines.T).sum(axis=1)
            found = min(found, float(1 / leverages.max()))
    return found
