"""The registry: the one place that turns names of a configuration into schemes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from mrsa_jax import availability, data, federated, quantize, secagg, selection
from mrsa_jax._errors import require
from mrsa_jax._streams import Stream, as_key, fold
from mrsa_jax.study._config import (
    AggregationConfig,
    DataConfig,
    FidelityName,
    PopulationConfig,
    Scheme,
    TrainingConfig,
)

__all__ = [
    "MODELS",
    "PARTITIONS",
    "SELECTORS",
    "build_aggregator",
    "build_availability",
    "build_clients",
    "build_model",
    "build_rates",
    "build_selector",
    "build_trainer",
    "expected_cardinality",
]


def _batch_partitioning(scheme: Scheme, n: int, k: int) -> selection.Selector:
    fairness: Any = scheme.fairness  # a literal, checked when the scheme was parsed
    return selection.batch_partitioning(n, k, _target(scheme, k), fairness=fairness)


def _bernoulli(scheme: Scheme, n: int, k: int) -> selection.Selector:
    del k
    require(scheme.probability is not None, "probability", "must be given", scheme)
    return selection.bernoulli(n, float(scheme.probability or 0.0))


SELECTORS: dict[str, Callable[[Scheme, int, int], selection.Selector]] = {
    "uniform": lambda scheme, n, k: selection.uniform(n, k),
    "weighted": lambda scheme, n, k: selection.weighted(n, k),
    "partition": lambda scheme, n, k: selection.partition(n, k),
    "batch_partitioning": _batch_partitioning,
    "bernoulli": _bernoulli,
}
"""Selection schemes by the name that configurations use."""

MODELS: dict[str, Callable[[int], Any]] = {
    "lenet": federated.lenet,
    "mlp": federated.mlp,
    "logistic": federated.logistic,
}
"""Models by name; each takes the number of classes."""

PARTITIONS: dict[str, Callable[..., data.ClientData]] = {
    "iid": lambda key, dataset, n, config: data.iid(key, dataset, n),
    "shards": lambda key, dataset, n, config: data.shards(
        key,
        dataset,
        n,
        shards_per_client=config.shards_per_client,
        single_label=config.single_label,
    ),
    "dirichlet": lambda key, dataset, n, config: data.dirichlet_by_class(
        key, dataset, n, concentration=config.concentration
    ),
}
"""Splits of a data set over clients by name."""


def _target(scheme: Scheme, cohort_size: int) -> int:
    """Return T: its own for batch partitioning, K for user partition, else 1."""
    if scheme.privacy_target is not None:
        return scheme.privacy_target
    return cohort_size if scheme.name == "partition" else 1


def build_selector(scheme: Scheme, population: PopulationConfig) -> selection.Selector:
    """Return the selector of a scheme over a population."""
    return SELECTORS[scheme.name](scheme, population.num_clients, population.cohort_size)


def build_rates(seed: int, population: PopulationConfig) -> np.ndarray:
    """Return each client's dropout rate, float32[N], as the configuration assigns them."""
    rates = availability.assign_rates(
        fold(as_key(seed), int(Stream.ASSIGNMENT)),
        population.dropout_rates,
        population.num_clients,
        how=population.assignment,
    )
    return np.asarray(rates)


def build_availability(rates: np.ndarray) -> availability.Availability:
    """Return the availability model of independent dropouts."""
    return availability.independent(rates)


def expected_cardinality(
    scheme: Scheme, population: PopulationConfig, rates: np.ndarray
) -> tuple[float, float]:
    """Return the expected size of a round's sum and its standard deviation over rounds.

    A scheme with a fixed cohort size sums K clients or none, so one round's size is K times a
    Bernoulli variable; Bernoulli selection asks a Poisson-binomial number of clients, and a sum
    of one is withheld.
    """
    n, k = population.num_clients, population.cohort_size
    if scheme.probability is not None:
        return _bernoulli_moments((1.0 - rates.astype(np.float64)) * scheme.probability)
    mean = selection.expected_cardinality(n, k, _target(scheme, k), rates.astype(np.float64))
    share = min(max(mean / k, 0.0), 1.0)
    return mean, float(k * np.sqrt(share * (1 - share)))


def _bernoulli_moments(chances: np.ndarray) -> tuple[float, float]:
    """Return mean and deviation of a Poisson-binomial number that counts as 0 where it is 1."""
    certain = chances == 1
    others = 1 - chances[~certain]
    nobody = float(others.prod())
    if certain.sum() == 0:
        one = nobody * float((chances / others).sum())
    else:
        one = nobody if certain.sum() == 1 else 0.0
    mean = float(chances.sum())
    square = float((chances * (1 - chances)).sum()) + mean**2 - one
    return mean - one, float(np.sqrt(max(square - (mean - one) ** 2, 0.0)))


def build_clients(
    seed: int, config: DataConfig, num_clients: int
) -> tuple[data.Dataset, data.ClientData]:
    """Load the data set and split it over the clients."""
    dataset = data.load(config.dataset, directory=config.directory, seed=seed)
    key = fold(as_key(seed), int(Stream.PARTITION))
    return dataset, PARTITIONS[config.partition](key, dataset, num_clients, config)


def build_model(config: TrainingConfig, dataset: data.Dataset) -> Any:
    """Return the flax module that a configuration names."""
    return MODELS[config.model](dataset.num_classes)


def build_trainer(config: TrainingConfig, model: Any) -> Any:
    """Return the clients' local trainer."""
    return federated.local_sgd(
        model,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        batch_size=config.batch_size,
        num_epochs=config.num_epochs,
    )


def build_aggregator(
    seed: int, config: AggregationConfig, num_participants: int, dim: int
) -> secagg.Aggregator:
    """Return the aggregator: quantize, pad, sum in the ring, decode."""
    quantizer = quantize.stochastic(config.num_levels, value_range=(-config.clip, config.clip))
    return secagg.ring_average(
        quantizer,
        num_participants,
        dim,
        modulus_bits=config.modulus_bits,
        fidelity=config.fidelity,
        key_material=secagg.key_material(seed),
    )


def with_fidelity(config: AggregationConfig, fidelity: FidelityName) -> AggregationConfig:
    """Return the same aggregation at another fidelity."""
    return dataclasses.replace(config, fidelity=fidelity)
