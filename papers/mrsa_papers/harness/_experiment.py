"""One harness for all that trains: who trains what, on which split, and how it is tested.

Trainings are paired: with the same seed they start from the same model and draw the same
minibatches, so that differences between them vary less than accuracies do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated
from mrsa_papers.harness._context import Context

Split = Callable[[Key[Array, ""], data.Dataset], data.ClientData]
"""Spreads a data set over the clients, from a seed's key."""


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """Trainings of one model on the context's data, which differ in who takes part and sums how.

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

    def first_updates(self, seed: int) -> np.ndarray:
        """Return every client's update from the initial model, f32 [N, d]."""
        key, shape = self.context.key(seed), self.context.images.input_shape
        start = federated.initial_parameters(key, self.model, shape)
        clients = self.clients(seed)
        updates = federated.client_updates(key, self.model, start, clients, self.trainer)
        return np.asarray(updates)

    def train(
        self, seed: int, history: Any, aggregator: Any, clients: data.ClientData | None = None
    ) -> federated.TrainingResult:
        """Train on a seed: `train_seeds` of one."""
        own = self.clients(seed) if clients is None else clients
        return self.train_seeds([seed], [history], aggregator, [own])[0]

    def train_seeds(
        self,
        seeds: Sequence[int],
        histories: Sequence[Any],
        aggregator: Any,
        clients: Sequence[data.ClientData],
        progress: Callable[[int, int], None] | None = None,
    ) -> list[federated.TrainingResult]:
        """Train on several seeds, as many side by side as fill the device.

        Args:
            seeds: Which ones.
            histories: Who takes part on each, bool [J, N], or the rounds of a
                `selection.RoundHistory`.
            aggregator: Secure aggregation.
            clients: Of each seed.
            progress: Called with the rounds that are trained, and with those to train.
        """
        images = self.context.images
        trainings = [
            federated.Training(
                self.model, own, history, self.trainer, aggregator, rate_schedule=self.schedule,
                test=(images.test_inputs, images.test_labels), evaluate_every=self.every,
            )
            for own, history in zip(clients, histories, strict=True)
        ]  # fmt: skip
        results = federated.train_many(
            [self.context.key(seed) for seed in seeds], trainings,
            mesh=self.mesh, progress=progress,
        )  # fmt: skip
        jax.block_until_ready([result.parameters for result in results])
        return results


def tests_of(result: federated.TrainingResult) -> Iterator[tuple[int, float, float]]:
    """Go through a training's tests: rounds done, accuracy, loss."""
    tests = zip(result.evaluated_rounds, result.accuracy, result.loss, strict=True)
    return ((int(index) + 1, float(right), float(loss)) for index, right, loss in tests)
