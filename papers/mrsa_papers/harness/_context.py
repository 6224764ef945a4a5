"""State shared by the items of one run: seed, size, progress, and the population.

Multi-RoundSecAgg, Section 6: N = 120, K = 12, dropout rates .1 to .5 shuffled over the
clients (the paper does not say how they are assigned), six schemes.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated, study
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.availability import Availability, independent
from mrsa_jax.selection import Selector
from mrsa_jax.study import Progress
from mrsa_jax.study._progress import Silent
from mrsa_jax.study.runs import _build
from mrsa_jax.study.settings._config import AssignmentName
from mrsa_jax.study.settings._parts import KINDS, load_data
from mrsa_papers.harness._trainings import Trainings
from mrsa_watch._base.errors import ConfigurationError, check_count, nearest, require

if TYPE_CHECKING:
    import pandas as pd


RATES = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Dropout rates of the paper's clients."""

TARGETS = (6, 4, 3)
"""T of the paper's three schemes with blocks."""


@runtime_checkable
class Rounds(Protocol):
    """Receives how many rounds are trained, if a `Progress` has these methods."""

    def expect(self, rounds: int) -> None:
        """Take the number of rounds that an item will train, more or less."""
        ...

    def trained(self, rounds: int, *, is_first: bool) -> None:
        """Take rounds that were trained; the first of a training compile, too."""
        ...


class CheckedError(Exception):
    """The settings of an item make sense, and nothing else was asked for."""


_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class Context:
    """Shared settings of the items.

    Attributes:
        seed: Seed of everything random.
        fast: Whether to run at the fast size.
        progress: Receives how far it is.
        dataset: What is trained on.
        directory: Folder of the data set, where it needs one.
        trainings: Where trainings are kept until their items are written, or None.
        only_checks: Whether items check their settings, and are not made.

    Raises:
        ConfigurationError: For an unknown data set (naming the nearest), or a seed out
            of range.

    Examples:
        >>> Context(fast=True).seed
        0
    """

    seed: int = 0
    fast: bool = False
    progress: Progress = dataclasses.field(default_factory=Silent)
    dataset: str = "mnist_5k"
    directory: str | os.PathLike[str] | None = None
    trainings: Trainings | None = None
    only_checks: bool = False

    def __post_init__(self) -> None:
        check_count(self.seed, "seed", "must be an integer in [0, 2**32)", 0, 2**32 - 1)
        name = self.dataset.partition(":")[0]
        registered = KINDS["dataset"].rows
        if name in registered:
            rule = "must not be set with a data set of your own, which has none"
            require(self.directory is None, "directory", rule, str(self.directory))
        elif self.dataset not in data.SOURCES and name != "tfds":
            choice = nearest(self.dataset, (*data.SOURCES, *registered, "tfds:NAME"))
            raise ConfigurationError(
                f"`dataset` must be a known data set; got {self.dataset!r}; {choice}"
            )

    def online(
        self,
        num_clients: int = 120,
        dropout_rates: tuple[float, ...] = RATES,
        assignment: AssignmentName = "shuffled",
    ) -> Availability:
        """Return the availability of clients, by default the paper's.

        Independent dropouts; the seed shuffles the rates over the clients.
        """
        population = study.PopulationConfig(
            num_clients=num_clients, dropout_rates=dropout_rates, assignment=assignment
        )
        return independent(_build.build_rates(self.seed, population))

    @functools.cached_property
    def images(self) -> data.Dataset:
        """The data set asked for, or the five thousand digits that are always here."""
        return load_data(self.dataset, self.seed, self.directory)

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices over which clients are spread; None for a single device."""
        return _build.build_mesh(study.ResourceConfig())

    @functools.cached_property
    def cache(self) -> dict[Any, Any]:
        """Results that several items need (`once`)."""
        return {}

    def once(self, key: Any, make: Callable[[], _Result]) -> _Result:
        """Return the value of a key, which is made at most once per run."""
        if key not in self.cache:
            self.cache[key] = make()
        result: _Result = self.cache[key]
        return result

    def key(self, trial: int) -> Key[Array, ""]:
        """Return the key of a trial, 0 and up: of all that is paired by it."""
        return trial_key(as_key(self.seed), trial)

    def begin(self) -> None:
        """End the checks of an item's settings: each maker calls this before any work.

        Raises:
            CheckedError: If nothing is to be made.
        """
        if self.only_checks:
            raise CheckedError

    def expect(self, rounds: int) -> None:
        """Say how many rounds the item will train, more or less."""
        if isinstance(self.progress, Rounds):
            self.progress.expect(rounds)

    def counted(
        self, progress: Callable[[int, int], None] | None = None
    ) -> Callable[[int, int], None]:
        """Return a training's `progress` that counts its rounds as well."""
        before = 0

        def tell(done: int, total: int) -> None:
            nonlocal before
            if isinstance(self.progress, Rounds):
                self.progress.trained(done - before, is_first=before == 0)
            before = done
            if progress is not None:
                progress(done, total)

        return tell

    def steps(self, stage: str, jobs: Iterable[_Job]) -> Iterator[_Job]:
        """Go through the jobs of a stage, saying after each how many are done."""
        every = list(jobs)
        self.progress.stage(stage, len(every))
        for done, job in enumerate(every, start=1):
            yield job
            self.progress.update(done, len(every))


def schemes_for(
    num_clients: int = 120,
    cohort_size: int = 12,
    privacy_targets: Iterable[int] = TARGETS,
) -> dict[str, Selector]:
    """Return selectors for a population by label, by default the paper's six."""
    blocks = [f"batch_partitioning:{target}" for target in privacy_targets]
    words = ("uniform", "weighted", "partition", *blocks)
    schemes = [study.parse_scheme(text) for text in words]
    return {scheme.label: scheme.build(num_clients, cohort_size) for scheme in schemes}


def targets_of(schemes: Mapping[str, Selector]) -> dict[str, int]:
    """Return the T that each scheme aims at: 1 where there are no blocks."""
    return {
        label: _build.guaranteed_privacy(selector)
        for label, selector in schemes.items()
    }


def rows_to_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame."""
    import pandas as pd

    return pd.DataFrame(list(rows))


# Trainings are paired: with the same seed they start from the same model and draw the
# same minibatches, so that differences between them vary less than accuracies do.

Split = Callable[[Key[Array, ""], data.Dataset], data.ClientData]
"""Spreads a data set over the clients, from a seed's key."""


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """Trainings of one model on the context's data.

    They differ in participation and in how the updates are summed.

    Attributes:
        context: Seed and data set, whose test samples are the same for all seeds.
        model: A flax module.
        split: Who holds which samples.
        trainer: Local training.
        every: Rounds between two tests.
        schedule: The learning rate's factor by round, or None.
        mesh: Devices over which a round's clients are spread, or None.
    """

    context: Context
    model: Any
    split: Split
    trainer: federated.LocalSGD
    every: int
    schedule: federated.RateSchedule | None = None
    mesh: jax.sharding.Mesh | None = None

    @functools.cached_property
    def dim(self) -> int:
        """The model's number of parameters."""
        return federated.num_parameters(self.model, self.context.images.input_shape)

    def clients(self, seed: int) -> data.ClientData:
        """Return the clients of a seed, 0 and up."""
        return self.split(self.context.key(seed), self.context.images)

    def check(self) -> None:
        """Raise unless samples suffice for all clients, and images for the model."""
        self.clients(0)
        _ = self.dim

    def parts_of_test(self, num_parts: int) -> data.ClientData:
        """Return the test samples in equal random parts, for intervals over them.

        Fewer than a part may be left over. Of fewer samples than parts, each is a part
        and the other parts are empty.
        """
        images = self.context.images
        count = len(images.test_labels)
        size = max(1, count // num_parts)
        # the same parts for all seeds; sets may be sorted by class
        order = np.random.default_rng(0).permutation(count)[: num_parts * size]
        indices = np.zeros((num_parts, size), np.int32)
        indices.flat[: len(order)] = order
        sizes = np.zeros(num_parts, np.int32)
        sizes[: len(order) // size] = size
        inputs, labels = map(jax.device_put, (images.test_inputs, images.test_labels))
        return data.ClientData(
            inputs,
            labels,
            jax.device_put(indices),
            jax.device_put(sizes),
            images.num_classes,
        )

    def first_updates(self, seed: int) -> np.ndarray:
        """Return every client's update from the initial model, f32 [N, d]."""
        key, shape = self.context.key(seed), self.context.images.input_shape
        start = federated.initial_parameters(key, self.model, shape)
        clients = self.clients(seed)
        updates = federated.client_updates(
            key, self.model, start, clients, self.trainer
        )
        return np.asarray(updates)

    def train(
        self,
        seed: int,
        history: Any,
        aggregator: Any,
        clients: data.ClientData | None = None,
    ) -> federated.TrainingResult:
        """Train on a seed: `train_seeds` of one."""
        dealt = self.clients(seed) if clients is None else clients
        return self.train_seeds([seed], [history], aggregator, [dealt])[0]

    def _parts(self, trainings: Sequence[federated.Training]) -> Iterator[Any]:
        """Go through all that the results of trainings depend on but their keys."""
        images = self.context.images
        yield (repr(self.model), self.every, images.test_inputs, images.test_labels)
        for training in trainings:
            dealt, rounds = training.client_data, len(training.history.cohorts)
            yield (dealt.inputs, dealt.labels, dealt.indices, dealt.sizes)
            yield (training.history, training.trainer, training.aggregator)
            if training.client_test is not None:
                yield training.client_test.sizes
            # a schedule is a function: its values are what counts
            if self.schedule is not None:
                yield np.asarray([self.schedule(index) for index in range(rounds)])

    def train_seeds(
        self,
        seeds: Sequence[int],
        histories: Sequence[Any],
        aggregator: Any,
        clients: Sequence[data.ClientData],
        progress: Callable[[int, int], None] | None = None,
        client_test: data.ClientData | None = None,
    ) -> list[federated.TrainingResult]:
        """Train on several seeds, as many side by side as fill the device.

        Args:
            seeds: Which ones.
            histories: Who takes part on each, bool [J, N], or the rounds of a
                `selection.RoundHistory`.
            aggregator: Secure aggregation.
            clients: Of each seed.
            progress: Called with the rounds that are trained, and with those to train.
            client_test: Samples to test on in addition, in parts.
        """
        images = self.context.images
        # they share the model's program, so that many fill the device at once
        trainings = [
            federated.Training(
                self.model,
                dealt,
                history,
                self.trainer,
                aggregator,
                rate_schedule=self.schedule,
                test=(images.test_inputs, images.test_labels),
                evaluate_every=self.every,
                client_test=client_test,
            )
            for dealt, history in zip(clients, histories, strict=True)
        ]
        keys = [self.context.key(seed) for seed in seeds]
        kept = self.context.trainings
        results = federated.train_many(
            keys,
            trainings,
            mesh=self.mesh,
            progress=self.context.counted(progress),
            checkpoints=None
            if kept is None
            else kept.of(keys, *self._parts(trainings)),
        )
        jax.block_until_ready([result.parameters for result in results])
        return results


def model_of(name: str, dataset: data.Dataset) -> Any:
    """Return a flax module for a data set by its name, as `train --model` takes it.

    Raises:
        ConfigurationError: For an unknown name (naming the nearest).
    """
    return _build.build("model", name, dataset.num_classes)


def tests_of(result: federated.TrainingResult) -> Iterator[tuple[int, float, float]]:
    """Go through a training's tests: rounds done, accuracy, loss."""
    tests = zip(result.evaluated_rounds, result.accuracy, result.loss, strict=True)
    return ((int(index) + 1, float(right), float(loss)) for index, right, loss in tests)
