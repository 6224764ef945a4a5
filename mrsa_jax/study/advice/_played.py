"""What simulated rounds leave of a scheme.

Its sums, and what they reveal about clients.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from mrsa_jax import availability, privacy, selection
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.round_rules import SplitPolicy
from mrsa_jax._core.statistics import half_interval
from mrsa_jax._core.streams import threshold
from mrsa_jax.study._config import PopulationConfig
from mrsa_jax.study._trial import learnt_sums
from mrsa_watch._base.values import by_value

_EFFORT = 0.0  # of the search for weak T, which takes longer than all else
# rounds x clients from which on blocks go as one: below, new shapes cost more
_ENTRIES = 1_000_000

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Setting:
    """The clients that a scheme is chosen for.

    Attributes:
        num_clients: N.
        cohort_size: K.
        dropout_rates: Chances to be away when a round begins, spread evenly over the
            clients.
        loss_rate: Chance of a client that takes part to be lost before its update is
            summed.
        availability: Who is away when, as flags write it.
        rounds: J, that are simulated.
        trials: B; 0 for closed forms alone.
        seed: Of everything random.
        memory: Of updates that drift; None says nothing of them.
        share: Of an update's variance that has it.
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

    def population(self, num_clients: int, cohort_size: int) -> PopulationConfig:
        """Return the clients that a scheme of these sizes is over."""
        return PopulationConfig(
            num_clients=num_clients,
            cohort_size=cohort_size,
            dropout_rates=self.dropout_rates,
            availability=self.availability,
        )

    @property
    def assignment(self) -> str:
        """Which of many assignments the clients have, in words; "" where all are alike."""
        return self.population(self.num_clients, self.cohort_size).assignment_words(
            self.seed
        )


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
        weak_lower: Weak T is at least this in the first trial; 1 where some trial
            exposes anybody; None without a sum.
        weak_upper: It is at most this there; 1 and None as above.
        strong_privacy: Strong T, the smallest of all trials; None as above.
        exposed_clients: Mean number of clients whose update the server can solve for.
        hidden_worst: Among how many the worst hidden client of all trials is hidden;
            None as above.
        hidden_median: Among how many the median client is hidden, a mean over trials.
        hidden_interval: Its interval.
        update_hidden_worst: Among how many the worst update of all trials is hidden, if
            updates drift; None as above, without a memory, and where floats do not know
            it.
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
        selector: Whom the server asks.
        online: Who is there.
        policy: What becomes of blocks that lose a member inside a round.
        loss_rate: Chance of a client that takes part to be lost before the sum.
        block_size: T of the blocks that the policy is about.
        setting: How many rounds and trials, of which seed, and how updates drift.
    """
    if loss_rate == 0:
        sizes = setting.rounds, setting.trials
        history = learnt_sums(
            selection.rollout_trials(setting.seed, selector, online, *sizes)
        )
    else:
        # nobody is lost before the third step, and all of the lost in it
        lost = threshold(np.array([0.0, 0.0, loss_rate, loss_rate]))
        steps = availability.IndependentSteps(on_device(lost))
        history = np.asarray(
            selection.rollout_rounds(
                setting.seed,
                selector,
                online,
                steps,
                setting.rounds,
                policy=policy,
                blocks=block_size,
                num_trials=setting.trials,
            ).participation
        )
    return measure(history, block_size, setting.memory, setting.share)


def measure(
    history: np.ndarray,
    block_size: int = 1,
    memory: float | None = None,
    share: float = 1.0,
) -> Played:
    """Measure histories bool[B, J, N] after their last round.

    Blocks that stay whole go as one.
    """
    sizes = history.sum(axis=-1).astype(np.float64)
    counts = history.sum(axis=1)
    gaps = (counts.max(axis=-1) - counts.min(axis=-1)) / history.shape[1]
    mean, skipped = sizes.mean(axis=-1), (sizes == 0).mean(axis=-1)
    clients, times = history, 1
    if history[0].size > _ENTRIES:
        first = history[..., ::block_size]
        if (history == np.repeat(first, block_size, axis=-1)).all():
            # all columns of a block are alike: leverages and supports are those of one,
            # T times
            clients, times = first, block_size
    hidden = times * np.asarray(privacy.hidden_among(clients))
    seen = hidden[np.isfinite(hidden).any(axis=-1)]
    worst = np.inf
    if memory is not None:
        drifting = np.asarray(privacy.hidden_among(clients, memory=memory, share=share))
        worst = times * float(drifting.min())
    medians = np.array([np.median(own[np.isfinite(own)]) for own in seen])
    weak = (1, 1) if (hidden == 1.0).any() else _weak(clients[0], times)
    strong = [
        found for one in clients if (found := privacy.strong_privacy(one)) is not None
    ]
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
        strong_privacy=times * min(strong) if strong else None,
        exposed_clients=float((hidden == 1.0).sum(axis=-1).mean()),
        hidden_worst=float(seen.min()) if len(seen) else None,
        hidden_median=float(medians.mean()) if len(seen) else None,
        hidden_interval=_interval(medians) if len(seen) else None,
        update_hidden_worst=worst if np.isfinite(worst) else None,
    )


def _weak(history: np.ndarray, times: int) -> tuple[int | None, int | None]:
    """Return bounds of weak T of blocks of this size, each counted as one client."""
    found = privacy.weak_privacy(history, effort=_EFFORT)
    if found.lower is None or found.upper is None:
        return None, None
    return times * found.lower, times * found.upper


def _interval(values: np.ndarray, most: float = np.inf) -> Interval:
    """Return the interval of a mean of what lies from 0 to `most`."""
    mean = float(values.mean())
    half = float(half_interval(values)) if len(values) > 1 else 0.0
    return max(mean - half, 0.0), min(mean + half, most)
