"""What Multi-RoundSecAgg's accuracy experiments share: settings, paired trainings, learning rates.

So, Ali, Guler, Jiao, Avestimehr, Section 6, Appendices E to G. Schemes are paired: with the same
seed they have the same dropout rates, split and initial model, and draw the same minibatches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated, quantize, secagg, selection
from mrsa_jax._streams import as_key, trial_key
from mrsa_jax.availability import assign_rates, independent
from mrsa_jax.reproduce.harness._context import Context, rows_to_frame, schemes_for
from mrsa_jax.reproduce.harness._intervals import late_accuracy
from mrsa_jax.study import DataConfig, PopulationConfig, _build
from mrsa_jax.study._training_config import ModelName, PartitionName

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "GRID",
    "LATE",
    "Setting",
    "best_rates",
    "clients_of",
    "curves",
    "minibatch",
    "model_of",
    "ring_of",
    "schedule_of",
    "trial_of",
]

GRID = federated.LEARNING_RATES
"""Learning rates of which the paper takes the best for each scheme."""

LATE = 0.2
"""Share of the rounds, the last ones, over whose tests an accuracy is a mean: single rounds of
non-IID training differ by ten points."""

# 2**16 levels over 16 times the last mean update's largest entry: a step of 1/2048 of that entry,
# while no client's update is 16 times as large as the mean of 12 or 24 that pull the same way.
_LEVELS, _ROOM, _FIRST_CLIP = 2**16, 16.0, 1.0


@dataclasses.dataclass(frozen=True)
class Setting:
    """One panel of a figure: who trains what, on which split, for how long.

    Attributes:
        panel: Its name.
        model: `"lenet"`, `"cnn"` (McMahan's), `"vgg11"`, or a smaller one.
        split: `"iid"`, `"shards"` (one sorted shard each), `"shards_with_shared"` or
            `"dirichlet"` (by class, concentration .5).
        rounds: Rounds J, those that are skipped included.
        every: Rounds between two tests.
        batch: The paper's minibatch.
        samples: Training samples of the paper's data set.
        rate: Learning rate of all schemes; None to take the best of the grid for each.
        decays: Whether the rate falls to .4 of itself after 400 and after 800 of 1000 rounds.
        num_clients: N.
        cohort_size: K.
        dropouts: Which clients get which dropout rates of .1 to .5: `"shuffled"` over them, or by
            `"label"` (clients of label 0 .1, of the last label .5).
    """

    panel: str
    model: ModelName
    split: PartitionName
    rounds: int
    every: int
    batch: int
    samples: int
    rate: float | None
    decays: bool
    num_clients: int = 120
    cohort_size: int = 12
    dropouts: Literal["shuffled", "label"] = "shuffled"


def minibatch(setting: Setting, dataset: data.Dataset) -> int:
    """Return the minibatch that keeps the paper's number of local steps.

    Its own on its own data set; in proportion to the clients' samples on a smaller one.
    """
    return max(1, round(setting.batch * len(dataset.train_labels) / setting.samples))


def curves(context: Context, setting: Setting, seeds: int) -> pd.DataFrame:
    """Return test accuracy over rounds of the six schemes, a row for each test of each seed.

    Items that ask for the same setting share its trainings.
    """
    key = f"curves of {seeds} seeds: {setting}"
    if key not in context.cache:
        rates = best_rates(context, setting, seeds)
        jobs = [(scheme, trial) for scheme in rates for trial in range(seeds)]
        context.progress.stage(f"{setting.panel}: trainings", len(jobs))
        rows: list[dict[str, Any]] = []
        for done, (scheme, trial) in enumerate(jobs):
            rows += _train(context, setting, scheme, trial, rates[scheme])
            context.progress.update(done + 1, len(jobs))
        context.cache[key] = rows_to_frame(rows)
    own: pd.DataFrame = context.cache[key]
    return own


def best_rates(context: Context, setting: Setting, pilot: int) -> dict[str, float]:
    """Return each scheme's learning rate: the setting's, or the best of the grid on seed `pilot`.

    The grid is searched from its largest rate down, until a rate is worse than the best before
    it: rates far below the best learn nothing in so few rounds. Other N and K, and other dropout
    rates, take the rates found for N = 120, K = 12 and shuffled ones.
    """
    labels = list(_schemes(setting))
    if setting.rate is not None:
        return dict.fromkeys(labels, setting.rate)
    base = dataclasses.replace(
        setting, panel="", num_clients=120, cohort_size=12, dropouts="shuffled"
    )
    key = f"rates by seed {pilot}: {base}"
    if key not in context.cache:
        context.progress.stage(f"{setting.panel}: learning rates", len(labels))
        found = {}
        for done, label in enumerate(labels):

            def score(rate: float, label: str = label) -> float:
                rows = rows_to_frame(_train(context, base, label, pilot, rate))
                return -1.0 if rows["diverged"].any() else _late(rows)

            found[label] = largest_peak(GRID, score)
            context.progress.update(done + 1, len(labels))
        context.cache[key] = found
    own: dict[str, float] = context.cache[key]
    return own


def largest_peak(grid: Sequence[float], score: Callable[[float], float]) -> float:
    """Return the first value of the grid whose score is not below the next one's.

    Values that fail altogether (a negative score) are passed over.

    Examples:
        >>> largest_peak((4.0, 3.0, 2.0), lambda rate: {4.0: -1.0, 3.0: 0.5, 2.0: 0.9}[rate])
        2.0
    """
    best, best_score = grid[0], score(grid[0])
    for rate in grid[1:]:
        own = score(rate)
        if own <= best_score and best_score >= 0:
            break
        best, best_score = rate, own
    return best


def _late(rows: pd.DataFrame) -> float:
    return float(late_accuracy(rows, share=LATE).iloc[0])


def _schemes(setting: Setting) -> dict[str, selection.Selector]:
    population = PopulationConfig(num_clients=setting.num_clients, cohort_size=setting.cohort_size)
    return schemes_for(population)


def trial_of(context: Context, trial: int) -> Key[Array, ""]:
    """Return the key of a seed, 0 and up."""
    return trial_key(as_key(context.seed), trial)


def _history(
    context: Context, setting: Setting, scheme: str, trial: int, clients: data.ClientData
) -> np.ndarray:
    """Return who takes part in which round; who has which dropout rate is the seed's own."""
    key, rates = trial_of(context, trial), PopulationConfig().dropout_rates
    own = (
        data.label_dropout_rates(clients, rates)
        if setting.dropouts == "label"
        else assign_rates(key, rates, setting.num_clients)
    )
    history = selection.rollout(key, _schemes(setting)[scheme], independent(own), setting.rounds)
    return np.asarray(history)


def clients_of(context: Context, setting: Setting, trial: int) -> data.ClientData:
    """Return a seed's split."""
    dataset = context.images
    config = DataConfig(
        partition=setting.split,
        single_label=False,
        shared_size=shared_size(dataset),
        concentration=0.5,
    )
    split = _build.PARTITIONS[setting.split]
    clients = split(trial_of(context, trial), dataset, setting.num_clients, config)
    return _widened(clients) if clients.sizes.min() < clients.sizes.max() - 1 else clients


def _widened(clients: data.ClientData) -> data.ClientData:
    """Pad the largest client to a multiple of 64, so that most seeds share one program."""
    spare = -clients.indices.shape[1] % 64
    return dataclasses.replace(clients, indices=jnp.pad(clients.indices, ((0, 0), (0, spare))))


def shared_size(dataset: data.Dataset) -> int:
    """Return the shared set's size: 200 of 50,000 in proportion, equally many of each class."""
    each = 200 * len(dataset.train_labels) / 50_000 / dataset.num_classes
    return max(1, round(each)) * dataset.num_classes


def model_of(context: Context, setting: Setting) -> Any:
    """Return the setting's model for the data set's classes."""
    return _build.MODELS[setting.model](context.images.num_classes)


def ring_of(cohort_size: int, dim: int) -> secagg.RingAverage:
    """Return the secure aggregation of all these trainings: 32 bits, a range that follows."""
    return secagg.ring_average(
        quantize.stochastic(_LEVELS, _FIRST_CLIP),
        cohort_size,
        dim,
        fidelity="sets",
        clip_rule=quantize.following_range(_ROOM),
    )


def schedule_of(setting: Setting) -> federated.RateSchedule | None:
    """Return the rate's factor by round: .4 of itself after 400 and again after 800 of 1000."""
    if not setting.decays:
        return None
    return federated.decay_at([setting.rounds * share // 10 for share in (4, 8)], 0.4)


def _train(
    context: Context, setting: Setting, scheme: str, trial: int, rate: float
) -> list[dict[str, Any]]:
    """Train one scheme on one seed; return a row for each test."""
    dataset = context.images
    model = model_of(context, setting)
    dim = federated.num_parameters(model, dataset.input_shape)
    clients = clients_of(context, setting, trial)
    history = _history(context, setting, scheme, trial, clients)
    result = federated.train(
        trial_of(context, trial),
        model,
        clients,
        history,
        trainer=federated.local_sgd(model, rate, batch_size=minibatch(setting, dataset)),
        aggregator=ring_of(setting.cohort_size, dim),
        test=(dataset.test_inputs, dataset.test_labels),
        evaluate_every=setting.every,
        rate_schedule=schedule_of(setting),
        mesh=context.mesh,
    )
    jax.block_until_ready(result.parameters)
    trained = np.cumsum(history.any(axis=1))
    clipped = result.clipped_fraction[np.isfinite(result.clipped_fraction)]
    return [
        {"panel": setting.panel, "scheme": scheme, "seed": trial, "rate": rate,
         "round": int(index) + 1, "trained rounds": int(trained[index]),
         "accuracy": float(accuracy), "loss": float(loss),
         "diverged": result.diverged_round is not None,
         "most clipped": float(clipped.max(initial=0.0))}
        for index, accuracy, loss in zip(
            result.evaluated_rounds, result.accuracy, result.loss, strict=True)
    ]  # fmt: skip
