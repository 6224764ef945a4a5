"""The rules that a study's configuration keeps, checked before any work and without JAX."""

from __future__ import annotations

from mrsa_jax._checks import check_chance, check_least, check_positive
from mrsa_jax._errors import require
from mrsa_jax._status import FEWEST_IN_A_SUM
from mrsa_jax.study._availability import parse_availability
from mrsa_jax.study._config import (
    Config,
    DemoConfig,
    PopulationConfig,
    Scheme,
    SimulateConfig,
    TrainConfig,
    schemes_of,
)
from mrsa_jax.study._protocol_config import validate_clip_rule, validate_protocol
from mrsa_jax.study._segment_config import validate_segments
from mrsa_jax.study._training_config import validate_data, validate_resources, validate_training

__all__ = ["check_study"]


def check_study(config: Config) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    require(0 <= config.seed < 2**32, "seed", "must lie in [0, 2**32)", config.seed)
    require(config.rounds >= 1, "rounds", "must be at least 1", config.rounds)
    require(config.rounds < 2**31, "rounds", "must be below 2**31", config.rounds)
    schemes = schemes_of(config)
    require(len(schemes) > 0, "schemes", "must name at least one scheme", schemes)
    labels = [scheme.label for scheme in schemes]
    require(len(set(labels)) == len(labels), "schemes", "must not repeat", labels)
    _validate_population(config.population)
    for scheme in schemes:
        scheme.check(config.population.num_clients, config.population.cohort_size)
    validate_protocol(config.protocol)
    if isinstance(config, SimulateConfig):
        require(config.trials >= 1, "trials", "must be at least 1", config.trials)
        require(config.trials < 2**31, "trials", "must be below 2**31", config.trials)
        assignment = config.population.assignment
        rule = "must be another: a simulation without data knows no labels"
        require(assignment != "by_label", "assignment", rule, assignment)
    else:
        validate_data(config.data)
        validate_training(config.training)
        validate_resources(config.resources)
        _validate_aggregation(config, schemes)
    if isinstance(config, TrainConfig):
        every = config.checkpoint_every
        require(every >= 1, "checkpoint_every", "must be at least 1", every)
        both = config.resume and config.overwrite
        require(not both, "resume", "must be left out with `overwrite`, which starts anew", True)


def _validate_population(population: PopulationConfig) -> None:
    n, k = population.num_clients, population.cohort_size
    fewest = FEWEST_IN_A_SUM
    require(n >= fewest, "num_clients", f"must be at least {fewest}", n)
    require(fewest <= k <= n, "cohort_size", f"must lie in [{fewest}, num_clients]", k, n)
    rates = population.dropout_rates
    require(len(rates) >= 1, "dropout_rates", "must hold at least one rate", rates)
    for rate in rates:
        check_chance(rate, "dropout_rates")
    _validate_availability(population)


def _validate_availability(population: PopulationConfig) -> None:
    name, _ = parse_availability(population.availability, population.dropout_rates)
    rule = "must be independent or markov with rates by label"
    alike = population.assignment != "by_label" or name in ("independent", "markov")
    require(alike, "availability", rule, population.availability)


def _validate_aggregation(config: DemoConfig | TrainConfig, schemes: tuple[Scheme, ...]) -> None:
    aggregation = config.aggregation
    check_least(aggregation, num_levels=2)
    check_positive(aggregation, "clip")
    bits = aggregation.modulus_bits
    require(1 <= bits <= 32, "modulus_bits", "must lie in [1, 32]", bits)
    validate_clip_rule(aggregation)
    population = config.population
    sizes = population.num_clients, population.cohort_size
    any_number = any(scheme.varies(*sizes) for scheme in schemes)
    validate_segments(
        config.hetero,
        population.cohort_size,
        population.num_clients,
        weighted=aggregation.weighted,
        graph=config.protocol.graph,
        policy=config.protocol.split_policy,
        varies=any_number,
    )
    if not config.hetero.is_plain:
        return  # each block has a ring of its own, which fits its sum
    most = population.num_clients if any_number else population.cohort_size
    require(
        most * (aggregation.num_levels - 1) < 2**bits,
        "modulus_bits",
        "must leave room for the largest sum, clients x (num_levels - 1)",
        bits,
        f"{most} x {aggregation.num_levels - 1}",
    )
