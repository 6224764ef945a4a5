"""Shared parts of Multi-RoundSecAgg's accuracy experiments.

Settings, paired trainings, learning rates.
So, Ali, Guler, Jiao, Avestimehr, Section 6, Appendices E to G. Schemes are paired: with
the same seed they have the same dropout rates, split and initial model, and draw the
same minibatches.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated, quantize, secagg, selection
from mrsa_jax._core.statistics import Best, best_of
from mrsa_jax.availability import assign_rates, independent
from mrsa_papers.harness._context import (
    RATES,
    TARGETS,
    Context,
    Experiment,
    rows_to_frame,
    schemes_for,
    targets_of,
    tests_of,
)
from mrsa_papers.harness._intervals import late_accuracy

if TYPE_CHECKING:
    import pandas as pd

LATE = 0.2
"""Share of the rounds, the last ones, over whose tests an accuracy is a mean.

Single rounds of
non-IID training differ by ten points.
"""

# 2**16 levels over 16 times the last mean update's largest entry: a step of 1/2048 of
# that entry, while no client's update is 16 times as large as the mean of 12 or 24 that
# pull the same way.
_LEVELS, _ROOM, _FIRST_CLIP = 2**16, 16.0, 1.0


@dataclasses.dataclass(frozen=True)
class Setting:
    """One panel of a figure: who trains what, on which split, for how long.

    Attributes:
        panel: Its name.
        model: A model of `federated`: `"lenet"`, `"cnn"` (McMahan's), `"vgg11"`, or a
            smaller one.
        split: `"iid"`, `"shards"` (one sorted shard each), `"shards_with_shared"` or
            `"dirichlet"` (by class, concentration .5).
        rounds: Rounds J, those that are skipped included.
        every: Rounds between two tests.
        batch: The paper's minibatch.
        samples: Training samples of the paper's data set.
        rates: Learning rates, falling, of which each scheme takes the best.
        decays: Whether the rate falls, as in `schedule`.
        num_clients: N.
        cohort_size: K.
        dropouts: Which clients get which dropout rates: `"shuffled"` over them, or by
            `"label"` (clients of label 0 the first, of the last label the last).
        targets: T of the blocks.
        dropout_rates: Spread over the clients.
        searched: N and K at which the best learning rate is searched.
    """

    panel: str
    model: str
    split: str
    rounds: int
    every: int
    batch: int
    samples: int
    rates: tuple[float, ...]
    decays: bool
    num_clients: int = 120
    cohort_size: int = 12
    dropouts: Literal["shuffled", "label"] = "shuffled"
    targets: tuple[int, ...] = TARGETS
    dropout_rates: tuple[float, ...] = RATES
    searched: tuple[int, int] = (120, 12)

    @property
    def schemes(self) -> dict[str, selection.Selector]:
        """Its selectors by label."""
        return schemes_for(self.num_clients, self.cohort_size, self.targets)

    @property
    def rounds_with_a_sum(self) -> float:
        """Rounds of all schemes that are not skipped, expected, for one shuffle."""
        n, k = self.num_clients, self.cohort_size
        rates = assign_rates(0, self.dropout_rates, n)
        return sum(
            self.rounds * selection.expected_cardinality(n, k, target, rates) / k
            for target in targets_of(self.schemes).values()
        )

    def minibatch(self, dataset: data.Dataset) -> int:
        """Return the minibatch that keeps the paper's number of local steps.

        Its own on its own data set; in proportion to the clients' samples on a smaller
        one.
        """
        return max(1, round(self.batch * len(dataset.train_labels) / self.samples))

    @property
    def schedule(self) -> federated.RateSchedule | None:
        """The rate's factor by round.

        .4 of itself after 400 rounds and again after 800, or after 40 % and 80 % of
        fewer than 1000.
        """
        if not self.decays:
            return None
        rounds = min(self.rounds, 1000)
        return federated.decay_at([rounds * share // 10 for share in (4, 8)], 0.4)

    def clients(self, key: Key[Array, ""], dataset: data.Dataset) -> data.ClientData:
        """Spread a data set over the clients."""
        shared = functools.partial(
            data.shards_with_shared, shared_size=shared_size(dataset)
        )
        splits: dict[str, Callable[..., data.ClientData]] = {
            "iid": data.iid,
            "shards": data.shards,
            "dirichlet": data.dirichlet_by_class,
            "shards_with_shared": shared,
        }
        clients = splits[self.split](key, dataset, self.num_clients)
        if clients.sizes.min() >= clients.sizes.max() - 1:
            return clients
        # the largest client is padded to a multiple of 64: most seeds share one program
        spare = -clients.indices.shape[1] % 64
        return dataclasses.replace(
            clients, indices=jnp.pad(clients.indices, ((0, 0), (0, spare)))
        )

    def history(
        self,
        key: Key[Array, ""],
        selector: selection.Selector,
        clients: data.ClientData,
    ) -> np.ndarray:
        """Return the participation history of a trial.

        Who has which dropout rate is the seed's own.
        """
        chosen = (
            data.label_dropout_rates(clients, self.dropout_rates)
            if self.dropouts == "label"
            else assign_rates(key, self.dropout_rates, self.num_clients)
        )
        return np.asarray(
            selection.rollout(key, selector, independent(chosen), self.rounds)
        )

    def experiment(
        self, context: Context, rate: float, batch: int | None = None
    ) -> Experiment:
        """Return the training at a learning rate and a minibatch size."""
        model = getattr(federated, self.model)(context.images.num_classes)
        size = self.minibatch(context.images) if batch is None else batch
        trainer = federated.local_sgd(model, rate, batch_size=size)
        return Experiment(
            context,
            model,
            self.clients,
            trainer,
            self.every,
            self.schedule,
            context.mesh,
        )


class Curves(NamedTuple):
    """Trainings of the six schemes of a panel.

    Attributes:
        frame: Test accuracy over rounds, one row per test and seed.
        parts: By scheme f64 [seeds, G], late accuracies on G equal parts of the test
            samples.
    """

    frame: pd.DataFrame
    parts: dict[str, np.ndarray]


def curves(context: Context, setting: Setting, seeds: int) -> Curves:
    """Return the trainings of the six schemes.

    Items that ask for the same setting share its trainings.
    """

    def made() -> Curves:
        rates = best_rates(context, setting, seeds)
        whole = seeds * len(rates)
        context.progress.stage(f"{setting.panel}: trainings", whole)
        rows: list[dict[str, Any]] = []
        parts: dict[str, np.ndarray] = {}
        for before, (scheme, picked) in enumerate(rates.items()):

            def tell(done: int, all_rounds: int, before: int = before) -> None:
                context.progress.update(
                    seeds * before + seeds * done // all_rounds, whole
                )

            trained = _train(context, setting, scheme, range(seeds), picked.rate, tell)
            own, late = taken_apart(trained)
            parts |= {scheme: late} if late is not None else {}
            rows += [row | {"certainty of the rate": picked.certainty} for row in own]
        return Curves(rows_to_frame(rows), parts)

    return context.once(("curves", seeds, setting), made)


def taken_apart(
    rows: Iterable[dict[str, Any]],
) -> tuple[list[dict[str, Any]], np.ndarray | None]:
    """Return rows without what they hold of parts of the test samples, and that.

    Late accuracies f64 [seeds, G]; None where rows hold none.
    """
    kept = list(rows)
    tests = [row.pop("by part", None) for row in kept]
    if not kept or tests[0] is None:
        return kept, None
    last = max(row["round"] for row in kept)
    late: dict[int, list[np.ndarray]] = {}
    for row, by_part in zip(kept, tests, strict=True):
        if row["round"] > (1 - LATE) * last:
            late.setdefault(row["seed"], []).append(by_part)
    return kept, np.stack([np.mean(each, axis=0) for each in late.values()])


def rounds_to_train(settings: Sequence[Setting], seeds: int) -> int:
    """Return about how many rounds some panels train, the search of rates included.

    Skipped rounds train nothing. A search ends at the first fall, mostly after three
    rates.
    """
    whole = sum(seeds * each.rounds_with_a_sum for each in settings)
    searches = {
        each.split: min(3, len(each.rates)) * each.rounds_with_a_sum
        for each in settings
        if len(each.rates) > 1
    }
    return round(whole + sum(searches.values()))


class Picked(NamedTuple):
    """A scheme's learning rate.

    Attributes:
        rate: The learning rate.
        certainty: Share of bootstrap draws of the pilot's test samples in which it is
            the best; nan where it was not picked.
    """

    rate: float
    certainty: float = math.nan


def best_rates(context: Context, setting: Setting, pilot: int) -> dict[str, Picked]:
    """Return each scheme's learning rate.

    The only one of the setting's, or the best of them on seed `pilot`.
    They are searched from the largest down, until a rate is worse than the best before
    it: rates far below the best learn nothing in so few rounds. Other N and K take the
    rates found at `Setting.searched`, and other assignments those of shuffled ones.
    """
    labels = list(setting.schemes)
    if len(setting.rates) == 1:
        return dict.fromkeys(labels, Picked(setting.rates[0]))
    # one search serves all panels of a split
    clients, cohort = setting.searched
    base = dataclasses.replace(
        setting, panel="", num_clients=clients, cohort_size=cohort, dropouts="shuffled"
    )

    def score(label: str, rate: float) -> Any:
        own, late = taken_apart(_train(context, base, label, [pilot], rate))
        rows = rows_to_frame(own)
        if rows["diverged"].any():
            return [math.nan]
        return late_accuracy(rows, share=LATE).to_numpy() if late is None else late[0]

    def made() -> dict[str, Picked]:
        steps = context.steps(f"{setting.panel}: learning rates", labels)
        return {
            step: first_peak(setting.rates, functools.partial(score, step))
            for step in steps
        }

    return context.once(("rates", pilot, base), made)


def first_peak(grid: Sequence[float], score: Callable[[float], Any]) -> Picked:
    """Return the best of a grid's values down to the first that is worse than before.

    Args:
        grid: Values.
        score: Scores of a value, one for each repetition; nan for one that fails.

    Examples:
        >>> scores = {4.0: [float("nan")], 3.0: [0.5], 2.0: [0.9]}
        >>> first_peak((4.0, 3.0, 2.0), scores.__getitem__).rate
        2.0
    """
    # each value costs a training, so the search ends at the first fall
    found: list[np.ndarray] = []
    best = Best(0, 1.0, math.nan)
    for place, value in enumerate(grid):
        found.append(np.atleast_1d(np.asarray(score(value), np.float64)))
        width = max(map(len, found))
        # one that failed has as many repetitions as the others
        table = [np.broadcast_to(each, width) for each in found]
        best = best_of(table)
        if best.place < place and not np.isnan(found[best.place]).any():
            break
    return Picked(grid[best.place], best.certainty)


def shared_size(dataset: data.Dataset) -> int:
    """Return the shared set's size.

    200 of 50,000 in proportion, equally many of each class.
    """
    # in the paper's proportion, but at least one sample of each class
    # samples of a class
    each = 200 * len(dataset.train_labels) / 50_000 / dataset.num_classes
    return max(1, round(each)) * dataset.num_classes


def ring_of(cohort_size: int, dim: int) -> secagg.RingAverage:
    """Return the secure aggregation of all these trainings.

    32 bits, a range that follows.
    """
    return secagg.ring_average(
        quantize.stochastic(_LEVELS, _FIRST_CLIP),
        cohort_size,
        dim,
        fidelity="sets",
        clip_rule=quantize.following_range(_ROOM),
    )


def _train(
    context: Context,
    setting: Setting,
    scheme: str,
    trials: Sequence[int],
    rate: float,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Train one scheme on some seeds; yield a row for each test."""
    experiment = setting.experiment(context, rate)
    clients = [experiment.clients(trial) for trial in trials]
    selector = setting.schemes[scheme]
    histories = [
        setting.history(context.key(trial), selector, dealt)
        for trial, dealt in zip(trials, clients, strict=True)
    ]
    ring = ring_of(setting.cohort_size, experiment.dim)
    parts = experiment.parts_of_test(setting.num_clients)
    results = experiment.train_seeds(
        trials, histories, ring, clients, progress, client_test=parts
    )
    for trial, history, result in zip(trials, histories, results, strict=True):
        # rounds that were not skipped, up to each round
        trained = np.cumsum(history.any(axis=1))
        clipped = result.clipped_fraction[np.isfinite(result.clipped_fraction)]
        assert result.client_accuracy is not None  # as it is tested by part
        tests = zip(tests_of(result), result.client_accuracy, strict=True)
        for (done, accuracy, loss), by_part in tests:
            yield {
                "panel": setting.panel,
                "scheme": scheme,
                "seed": trial,
                "rate": rate,
                "round": done,
                "trained rounds": int(trained[done - 1]),
                "accuracy": accuracy,
                "loss": loss,
                "diverged": result.diverged_round is not None,
                "most clipped": float(clipped.max(initial=0.0)),
                "by part": by_part[: int((np.asarray(parts.sizes) > 0).sum())],
            }
