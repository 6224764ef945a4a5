"""What HeteroSAg's two experiments share: data, paired trainings, intervals over seeds.

Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated Learning",
Section VI-C. Schemes are paired: with the same seed they start from the same model and draw the
same minibatches, so that differences between them vary less than accuracies do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated, hetero
from mrsa_jax._streams import as_key, trial_key
from mrsa_jax.reproduce.harness._context import Context
from mrsa_jax.reproduce.harness._intervals import Interval, difference

__all__ = [
    "GROUP_SIZE",
    "LEVELS",
    "NUM_CLIENTS",
    "Interval",
    "Paired",
    "difference",
    "homogeneous",
    "one_class_each",
    "ordered",
    "scheme_layout",
    "symmetric_range",
]

NUM_CLIENTS = 20
GROUP_SIZE = 4
LEVELS = (2, 4, 8, 10, 12)
_BATCH, _RATE = 50, 0.01


def scheme_layout(scheme: str, dim: int) -> hetero.SegmentLayout:
    """Return the paper's layout: five groups of four, K = (2, 4, 8, 10, 12)."""
    return hetero.segment_layout(scheme, [GROUP_SIZE] * len(LEVELS), LEVELS, dim)


def homogeneous(num_levels: int, dim: int) -> hetero.SegmentLayout:
    """Return the layout in which everybody sums the whole update with the same quantizer."""
    return hetero.segment_layout("groups", [NUM_CLIENTS], [num_levels], dim)


def one_class_each(seed: Key[Array, ""], dataset: data.Dataset) -> data.ClientData:
    """Deal shards of one class; clients by ascending class, two of each where they are ten."""
    clients = data.shards(seed, dataset, NUM_CLIENTS, single_label=True)
    classes = data.class_counts(clients).argmax(axis=1)
    return ordered(clients, np.argsort(classes, kind="stable"))


def ordered(clients: data.ClientData, order: np.ndarray) -> data.ClientData:
    """Return the clients in another order: groups are cut from them in order."""
    chosen = jnp.asarray(order, jnp.int32)
    return dataclasses.replace(
        clients, indices=clients.indices[chosen], sizes=clients.sizes[chosen]
    )


@dataclasses.dataclass(eq=False)
class Paired:
    """Trainings that differ in their aggregator alone.

    Attributes:
        context: Seed, size, data.
        model: A flax module.
        split: Spreads a data set over the clients, from a key.
        rounds: Rounds t.
        every: Rounds between two tests.
    """

    context: Context
    model: Any
    split: Callable[[Key[Array, ""], data.Dataset], data.ClientData]
    rounds: int
    every: int

    def trial(self, trial: int) -> Key[Array, ""]:
        """Return the key of a seed, 0 and up."""
        return trial_key(as_key(self.context.seed), trial)

    @functools.cached_property
    def trainer(self) -> federated.LocalSGD:
        """Return one local epoch in batches of 50 at the fixed rate .01."""
        return federated.local_sgd(self.model, _RATE, batch_size=_BATCH)

    @functools.cached_property
    def dataset(self) -> data.Dataset:
        """Return the data set, with the same test samples for all seeds."""
        return self.context.images

    def clients(self, trial: int) -> data.ClientData:
        """Return the clients of a seed."""
        return self.split(self.trial(trial), self.dataset)

    @functools.cached_property
    def dim(self) -> int:
        """Return the model's number of parameters."""
        return federated.num_parameters(self.model, self.dataset.input_shape)

    def first_updates(self, trial: int) -> np.ndarray:
        """Return every client's update from the initial model: the pilot."""
        key, shape = self.trial(trial), self.dataset.input_shape
        start = federated.initial_parameters(key, self.model, shape)
        clients = self.clients(trial)
        updates = federated.client_updates(key, self.model, start, clients, self.trainer)
        return np.asarray(updates)

    def run(
        self,
        trial: int,
        aggregator: Any,
        *,
        clients: data.ClientData | None = None,
        rounds: int | None = None,
    ) -> federated.TrainingResult:
        """Train with everybody in every round."""
        number = self.rounds if rounds is None else rounds
        result = federated.train(
            self.trial(trial),
            self.model,
            self.clients(trial) if clients is None else clients,
            np.ones((number, NUM_CLIENTS), np.bool_),
            trainer=self.trainer,
            aggregator=aggregator,
            test=(self.dataset.test_inputs, self.dataset.test_labels),
            evaluate_every=self.every,
        )
        jax.block_until_ready(result.parameters)
        return result


def symmetric_range(updates: np.ndarray) -> float:
    """Return r of the clip range [-r, r]: the pilot's largest entry, rounded up to two digits.

    The paper assumes that all entries fall in its range and does not say which range that is:
    this is the smallest symmetric one of which that is true at the start.
    """
    largest = float(np.abs(updates).max())
    unit = 10.0 ** (np.floor(np.log10(largest)) - 1)
    return float(np.round(np.ceil(largest / unit - 1e-9) * unit, 12))
