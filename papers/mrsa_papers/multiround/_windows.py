"""Windows of a training as a curious server sees them, and their least squares.

So, Ali, Guler, Jiao, Avestimehr, Appendix H.2: the sums of consecutive rounds late in a
training, eq. (33), solved for the clients' updates at its start, eq. (34). Windows of
several schemes and learning rates start from one model, so that they differ in nothing
else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import attacks, data, federated, privacy, quantize, secagg, selection
from mrsa_jax._core.streams import fold
from mrsa_jax.availability import assign_rates, independent
from mrsa_papers.harness import Values
from mrsa_papers.harness._context import RATES, Context
from mrsa_papers.multiround._training import Setting, ring_of
from mrsa_watch._base.errors import require

RANDOM = "Random"

RECOVERED = 1e-12
"""Relative squared error below which sums that did not move recover a client.

It lies between the 1e-24 of an exact solution in float64 and the 1e-8 of clients who
are all but exposed.
"""

# A range twice that of the first updates, in steps of 2^-19 of it: what rounding adds
# is far below what the updates move by, at any learning rate.
_LEVELS, _ROOM = 2**20, 2.0

# An attacker who knows that updates move, but not by how much.
_REGULARISED = attacks.least_squares_attack(noise=1.0, prior="mean")


@dataclasses.dataclass(frozen=True)
class Plan:
    """A training, the round at which its window begins, and the windows' lengths.

    Attributes:
        model: Which model.
        split: How the samples are spread.
        samples: Training samples of the paper's data set.
        batch: The paper's minibatch.
        rate: Learning rate of the training.
        decays: Whether it falls to .4 of itself twice before the window, as in
            `Setting.schedule`; within the window it stays.
        before: Rounds before the window.
        lengths: Rounds of the windows, ascending: each is the beginning of the next.
        seeds: How many trainings.
        targets: T of the schemes; 1 is random selection.
        speeds: Factors on the learning rate within the window.
        num_clients: N.
        cohort_size: K.
        dropout_rates: Spread over the clients.
        assignment: How they are spread.
    """

    model: str
    split: str
    samples: int
    batch: int
    rate: float
    decays: bool
    before: int
    lengths: tuple[int, ...]
    seeds: int
    targets: tuple[int, ...]
    speeds: tuple[float, ...] = (1.0,)
    num_clients: int = 40
    cohort_size: int = 8
    dropout_rates: tuple[float, ...] = RATES
    assignment: Literal["shuffled", "cyclic", "sorted"] = "shuffled"

    @classmethod
    def of(
        cls,
        settings: Values,
        samples: int,
        *,
        lengths: tuple[int, ...],
        targets: tuple[int, ...],
        decays: bool = False,
        speeds: tuple[float, ...] = (1.0,),
        seeds: int | None = None,
    ) -> Plan:
        """Return the plan of an item's settings, or raise where it makes no sense.

        Args:
            settings: Of the item.
            samples: Training samples of the paper's data set.
            lengths: Rounds of the windows, ascending.
            targets: T of the blocks; random selection comes first.
            decays: As in the attributes.
            speeds: As in the attributes.
            seeds: How many trainings; the setting's where None.
        """
        clients, cohort = settings.num_clients, settings.cohort_size
        rule = f"must be at most num_clients, {clients}"
        require(cohort <= clients, "cohort_size", rule, cohort)
        name = "privacy_targets"
        if "privacy_target" in vars(settings):
            name = "privacy_target"
        for target in targets:
            rule = f"must divide num_clients, {clients}, and cohort_size, {cohort}"
            divides = clients % target == 0 == cohort % target
            require(divides, name, rule, target)
        return cls(
            settings.model,
            settings.partition,
            samples,
            settings.batch_size,
            settings.learning_rate,
            decays,
            settings.rounds_before,
            lengths,
            settings.num_seeds if seeds is None else seeds,
            (1, *targets),
            speeds,
            clients,
            cohort,
            settings.dropout_rates,
            settings.assignment,
        )

    @property
    def population(self) -> str:
        """Its clients, cohort and dropout rates, in words for a caption."""
        rates = ", ".join(f"{rate:g}" for rate in self.dropout_rates)
        spread = {
            "shuffled": "shuffled over the clients by each seed",
            "cyclic": "in turn over the clients",
            "sorted": "ascending over the clients",
        }[self.assignment]
        return (
            f"{self.num_clients} clients ({self.split.replace('_', ' ')}), "
            f"{self.cohort_size} per round, dropout rates {rates} {spread}"
        )

    @property
    def setting(self) -> Setting:
        """The training before the window."""
        return Setting(
            panel="",
            model=self.model,
            split=self.split,
            rounds=self.before,
            every=self.before,
            batch=self.batch,
            samples=self.samples,
            rates=(self.rate,),
            decays=self.decays,
            num_clients=self.num_clients,
            cohort_size=self.cohort_size,
        )


class Start(NamedTuple):
    """A model late in a training, and everything that goes on from it."""

    key: Key[Array, ""]
    clients: data.ClientData
    model: Any
    trainer: federated.LocalSGD  # at the window's learning rate
    parameters: np.ndarray  # f32 [d]
    accuracy: float
    is_diverged: bool


class Window(NamedTuple):
    """The sums of a window, and the updates that they hide."""

    target: int
    speed: float
    # bool [rounds, N], rows of zeros where nothing was learnt
    participation: np.ndarray
    sums: np.ndarray  # f32 [rounds, d]
    updates: np.ndarray  # f32 [N, d], what each client would send in the first round
    parameters: np.ndarray  # f32 [d], the model then
    # by how much of its length a client's update changes, root mean square
    motion: float
    rounding: float  # by how much the first sum misses the sum of its updates, relative
    clipped: float  # largest share of a round's entries outside the quantizer's range
    is_diverged: bool
    start: np.ndarray | None = None  # f32 [d], of models: the global one

    @property
    def unattacked(self) -> np.ndarray:
        """The error for each client of guessing what everybody knows.

        No update, or the model.
        """
        size = np.square(self.updates, dtype=np.float64).sum(axis=1)
        model = self.start if self.start is not None else np.float32(0)
        lengths = np.square(self.updates - model, dtype=np.float64).sum(axis=1)
        return lengths / np.where(size > 0, size, np.nan)


def label_of(target: int) -> str:
    """Return the scheme's name.

    Examples:
        >>> label_of(1), label_of(2)
        ('Random', 'Multi-RoundSecAgg (T=2)')
    """
    return RANDOM if target == 1 else f"Multi-RoundSecAgg (T={target})"


def selector_of(n: int, k: int, target: int) -> selection.Selector:
    """Return random selection of K of N where T is 1, and else that of blocks of T."""
    is_random = target == 1
    return (
        selection.uniform(n, k)
        if is_random
        else selection.batch_partitioning(n, k, target)
    )


def whole_minibatch(clients: data.ClientData, wanted: int) -> int:
    """Return the minibatch nearest to the wanted one that divides the largest client.

    A shorter last minibatch gives its samples more weight, in each round to others:
    updates then move even where the model does not.
    """
    size = int(clients.sizes.max())
    divisors = [number for number in range(1, size + 1) if size % number == 0]
    # ties go to the smaller minibatch
    return min(divisors, key=lambda number: (abs(number - wanted), number))


def trained_start(context: Context, plan: Plan, trial: int) -> Start:
    """Train with random selection up to the window."""
    key, setting = context.key(trial), plan.setting
    clients = setting.clients(key, context.images)
    batch = whole_minibatch(clients, setting.minibatch(context.images))
    experiment = setting.experiment(context, plan.rate, batch)
    history = _history(key, plan, 1)[: plan.before]
    run = experiment.train(
        trial, history, ring_of(plan.cohort_size, experiment.dim), clients
    )
    # it has fallen twice before the window, and stays there
    factor = 0.4**2 if plan.decays else 1.0
    return Start(
        key,
        clients,
        experiment.model,
        experiment.trainer.scaled(jnp.float32(factor)),
        np.asarray(run.parameters),
        float(run.accuracy[-1]),
        run.diverged_round is not None,
    )


def _history(key: Key[Array, ""], plan: Plan, target: int) -> np.ndarray:
    """Return the participation before the window and in the longest window."""
    selector = selector_of(plan.num_clients, plan.cohort_size, target)
    rates = assign_rates(key, plan.dropout_rates, plan.num_clients, plan.assignment)
    available = independent(rates)
    return np.asarray(
        selection.rollout(key, selector, available, plan.before + plan.lengths[-1])
    )


def played_window(
    context: Context, plan: Plan, start: Start, target: int, speed: float
) -> Window:
    """Train through the longest window and keep what the server learns."""
    # another key than before the window, and the same one for all of its schemes
    key, trainer = (
        fold(start.key, plan.before),
        start.trainer.scaled(jnp.float32(speed)),
    )
    rounds = _history(start.key, plan, target)[plan.before :]

    def updates_at(parameters: np.ndarray, index: int) -> np.ndarray:
        return np.asarray(
            federated.client_updates(
                key,
                start.model,
                parameters,
                start.clients,
                trainer,
                round_index=index,
                mesh=context.mesh,
            )
        )

    # the first round with a sum
    first = int(rounds.any(axis=1).argmax())
    updates = updates_at(start.parameters, first)
    clip = _ROOM * float(np.abs(updates).max(initial=1e-12))
    training = federated.Training(
        start.model,
        start.clients,
        rounds,
        trainer,
        secagg.ring_average(
            quantize.stochastic(_LEVELS, clip),
            plan.cohort_size,
            updates.shape[1],
            fidelity="sets",
        ),
        initial_parameters=start.parameters,
        keep_aggregates=True,
    )
    seen = federated.train(key, training, mesh=context.mesh, progress=context.counted())
    learnt = np.asarray(seen.participation)
    sums = np.zeros((len(learnt), updates.shape[1]), np.float32)
    sums[learnt.any(axis=1)] = seen.aggregates
    places = np.flatnonzero(learnt.any(axis=1))
    # empty rounds divide 0 by 1
    steps = sums / np.maximum(learnt.sum(axis=1), 1)[:, None].astype(np.float32)
    changes = []
    # the last round with a sum, and the middle one
    for index in places[[-1, len(places) // 2]].tolist():
        # with which the round began
        # the server adds the mean of each sum
        model = start.parameters + steps[:index].sum(axis=0)
        changes.append(_relative(updates_at(model, index) - updates, updates))
    exact = learnt[first].astype(np.float32) @ updates
    return Window(
        target,
        speed,
        learnt,
        sums,
        updates,
        start.parameters,
        float(np.sqrt(np.mean(changes))),
        float(np.sqrt(_relative((sums[first] - exact)[None], exact[None]))),
        float(np.nanmax(seen.clipped_fraction)),
        seen.diverged_round is not None,
    )


def _relative(change: np.ndarray, whole: np.ndarray) -> float:
    """Return the mean ratio of squared lengths, without rows of zeros."""
    size = np.square(whole, dtype=np.float64).sum(axis=1)
    lengths = np.square(change, dtype=np.float64).sum(axis=1)
    return float((lengths[size > 0] / size[size > 0]).mean())


def of_models(window: Window) -> Window:
    """Return the same window for clients' models: global model plus update."""
    members = window.participation.sum(axis=1).astype(np.float32)
    sums, moving = window.sums.copy(), window.parameters.copy()
    for row, count in enumerate(members):
        if count > 0:
            step = sums[row] / count  # what the server adds to its model
            sums[row] += count * moving
            moving = moving + step
    updates = window.updates + window.parameters[None, :]
    return window._replace(sums=sums, updates=updates, start=window.parameters)


def noise_gain(participation: np.ndarray) -> np.ndarray:
    """Return the factor by which least squares amplifies each client's motion.

    Where each update changes from sum to sum by noise of a relative squared length s,
    client i's relative squared error grows by s times sum_j |S_j| G_ij^2, with G = P^+
    and |S_j| clients in sum j.

    Args:
        participation: bool [..., J, N].

    Returns:
        float64 [..., N].

    Examples:
        >>> noise_gain(np.eye(2, dtype=bool)).round(6).tolist()
        [1.0, 1.0]
    """
    attack = attacks.least_squares_attack()
    flat = participation.reshape(-1, *participation.shape[-2:])
    gains = [
        # G is [N, J], so this sums over the window's rounds
        np.square(attack.estimator(window)) @ window.sum(axis=1).astype(np.float64)
        for window in flat
    ]
    return np.stack(gains).reshape(*participation.shape[:-2], participation.shape[-1])


def rows_of(
    windows: Sequence[Window], length: int, trial: int, accuracy: float
) -> list[dict[str, Any]]:
    """Solve the first `length` rounds of windows of one training.

    Return a row for each client.
    """
    learnt = np.stack([window.participation[:length] for window in windows])
    sums = np.stack([window.sums[:length] for window in windows])
    truth = np.stack([window.updates for window in windows])
    # the sums, had nothing moved
    still = np.matmul(learnt.astype(np.float64), truth)
    columns = {
        "error": attacks.streamed_errors(learnt, sums, truth),
        "regularised": attacks.streamed_errors(
            learnt, sums, truth, attack=_REGULARISED
        ),
        "frozen": attacks.streamed_errors(learnt, still, truth),
        "predicted": attacks.predicted_error(learnt),
        "gain": noise_gain(learnt),
        "unattacked": np.stack([window.unattacked for window in windows]),
        "exposed": np.asarray(privacy.first_exposure(learnt)) >= 0,
    }
    return [
        _facts(window, length)
        | {"seed": trial, "client": client, "accuracy": accuracy}
        | {name: values[place, client].item() for name, values in columns.items()}
        for place, window in enumerate(windows)
        for client in range(learnt.shape[-1])
    ]


def _facts(window: Window, length: int) -> dict[str, Any]:
    """Describe what the clients of a window share."""
    return {
        "scheme": label_of(window.target),
        "target": window.target,
        "speed": window.speed,
        "rounds": length,
        "sums": int(window.participation[:length].any(axis=1).sum()),
        "motion": window.motion,
        "rounding": window.rounding,
        "clipped": window.clipped,
        "diverged": window.is_diverged,
    }
