"""The rules that a study's configuration keeps, checked before any work and without JAX."""

from __future__ import annotations

from typing import Any

from mrsa_jax._checks import (
    POSITIVE,
    check_blind,
    check_chance,
    check_least,
    check_number,
    check_positive,
    check_size,
)
from mrsa_jax._errors import require
from mrsa_jax._status import FEWEST_IN_A_SUM
from mrsa_jax.availability._registry import ROWS, parse_availability
from mrsa_jax.graphs._registry import Graph
from mrsa_jax.study._config import (
    Config,
    DemoConfig,
    PopulationConfig,
    Scheme,
    SimulateConfig,
    TrainConfig,
    schemes_of,
)
from mrsa_jax.study._tables import SegmentConfig, validate_graph, validate_noise, validate_training


def check_study(config: Config) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    check_seed(config)
    check_size(config.rounds, "rounds")
    schemes = schemes_of(config)
    require(len(schemes) > 0, "schemes", "must name at least one scheme", schemes)
    labels = [scheme.label for scheme in schemes]
    require(len(set(labels)) == len(labels), "schemes", "must not repeat", labels)
    _validate_population(config.population)
    for scheme in schemes:
        scheme.check(config.population.num_clients, config.population.cohort_size)
    check_chance(config.protocol.step_dropout_rate, "step_dropout_rate")
    validate_graph(config.protocol)
    check_least(config.protocol, threshold=1)
    if isinstance(config, SimulateConfig):
        check_size(config.trials, "trials")
        assignment = config.population.assignment
        rule = "must be another: a simulation without data knows no labels"
        require(assignment != "by_label", "assignment", rule, assignment)
    else:
        check_least(config.data, shards_per_client=1, shared_size=1)
        check_positive(config.data, "concentration")
        validate_training(config.training)
        check_positive(config.resources, "memory_gib")
        check_least(config.resources, devices=1)
        _validate_aggregation(config, schemes)
    if isinstance(config, TrainConfig):
        check_least(config, checkpoint_every=1)
        both = config.resume and config.overwrite
        require(not both, "resume", "must be left out with `overwrite`, which starts anew", True)


def check_seed(config: Any) -> None:
    """Check the seed of everything random."""
    require(0 <= config.seed < 2**32, "seed", "must lie in [0, 2**32)", config.seed)


def check_sizes(population: Any) -> None:
    """Check how many clients there are and are asked, and that they have rates."""
    n, k, fewest = population.num_clients, population.cohort_size, FEWEST_IN_A_SUM
    check_least(population, num_clients=fewest)
    require(fewest <= k <= n, "cohort_size", f"must lie in [{fewest}, num_clients]", k, n)
    rates = population.dropout_rates
    require(len(rates) >= 1, "dropout_rates", "must hold at least one rate", rates)


def _validate_population(population: PopulationConfig) -> None:
    check_sizes(population)
    for rate in population.dropout_rates:
        check_chance(rate, "dropout_rates")
    name, _ = parse_availability(population.availability, population.dropout_rates)
    rule = "must be independent or markov with rates by label"
    alike = population.assignment != "by_label" or ROWS[name].is_by_client
    require(alike, "availability", rule, population.availability)


def _validate_aggregation(config: DemoConfig | TrainConfig, schemes: tuple[Scheme, ...]) -> None:
    aggregation = config.aggregation
    check_least(aggregation, num_levels=2)
    check_positive(aggregation, "clip", "clip_multiplier", "clip_floor")
    bits = aggregation.modulus_bits
    require(1 <= bits <= 32, "modulus_bits", "must lie in [1, 32]", bits)
    fits = aggregation.clip_rule != "last_max" or aggregation.clip_multiplier >= 1
    rule = "must be at least 1 for last_max"
    require(fits, "clip_multiplier", rule, aggregation.clip_multiplier)
    population = config.population
    sizes = population.num_clients, population.cohort_size
    any_number = any(scheme.varies(*sizes) for scheme in schemes)
    validate_noise(aggregation, varies=any_number, segments=config.hetero.segments)
    if aggregation.is_noisy:
        for scheme in schemes:
            check_blind(scheme.depends_on_data(*sizes), "scheme", scheme.written)
        rule = "must be another with noise: who takes part would tell of clients' labels"
        require(population.assignment != "by_label", "assignment", rule, population.assignment)
    _validate_segments(config, any_number)
    if not config.hetero.is_plain or aggregation.clip_norm is not None:
        return  # each block has a ring of its own, and a lattice's step follows from its ring
    most = population.num_clients if any_number else population.cohort_size
    require(
        most * (aggregation.num_levels - 1) < 2**bits,
        "modulus_bits",
        "must leave room for the largest sum, clients x (num_levels - 1)",
        bits,
        f"{most} x {aggregation.num_levels - 1}",
    )


# --- segments -----------------------------------------------------------------------------------


def _validate_segments(config: DemoConfig | TrainConfig, varies: bool) -> None:
    """Check groups and segments; `varies`: whether a scheme asks any number of clients."""
    own, population = config.hetero, config.population
    if own.is_plain:
        return _validate_plain(own)
    _validate_groups(own, population.cohort_size)
    _validate_rules(own, population.num_clients)
    rule = "must be none where cohorts differ in size (bernoulli)"
    require(not varies, "segments", rule, own.segments)
    weighted, protocol = config.aggregation.weighted, config.protocol
    rule = "must be none with noise: whose attackers add it, or tell it, no account knows"
    is_noisy = config.aggregation.is_noisy
    require(not is_noisy or own.attack == "none", "attack", rule, own.attack)
    rule = "must be left out with segments: their mean has no weights"
    require(not weighted, "weighted", rule, weighted)
    graph, policy = protocol.graph, protocol.split_policy
    is_complete = Graph.parse(graph).row.is_complete
    require(is_complete, "graph", "must be complete with segments", graph)
    return require(policy == "ignore", "split_policy", "must be ignore with segments", policy)


def _validate_plain(config: SegmentConfig) -> None:
    needs = "must be left out without --segments sc, mc, hc or groups"
    for name in ("subgroups", "hybrid_threshold", "combine", "attack", "num_byzantine"):
        value = getattr(config, name)
        require(value == getattr(SegmentConfig(), name), name, needs, value)


def _validate_groups(config: SegmentConfig, cohort_size: int) -> None:
    levels, cuts = config.group_levels, config.subgroups
    chained = config.segments != "groups"
    least = 2 if chained else 1
    require(len(levels) >= least, "group_levels", f"must hold {least} or more", levels)
    for level in levels:
        require(2 <= level <= 2**23, "group_levels", "must lie in [2, 2**23]", level)
    ascending = list(levels) == sorted(levels)
    require(ascending, "group_levels", "must not descend from slower to faster groups", levels)
    fits = not cuts or (len(cuts) == len(levels) and min(cuts) >= 1)
    rule = "must be one number, at least 1, for each of `group_levels`"
    require(fits, "subgroups", rule, cuts, levels)
    threshold, columns = config.hybrid_threshold, config.num_columns
    rule = "must be given for hc, and for no other scheme"
    given = threshold is not None
    require(given == (config.segments == "hc"), "hybrid_threshold", rule, config.segments)
    good = threshold is None or 1 <= threshold < columns
    require(good, "hybrid_threshold", f"must lie in [1, {columns - 1}]", threshold)
    smallest = config.smallest_column(cohort_size)
    require(
        smallest >= FEWEST_IN_A_SUM or config.allow_small_groups,
        "group_levels",
        "must leave two clients of a cohort or more in each group or subgroup, or a sum is one "
        "client's update (a larger --cohort-size, fewer groups, or --allow-small-groups)",
        f"{smallest} of {cohort_size} in the smallest of {columns}",
    )
    require(smallest >= 1, "group_levels", "must not be more than the cohort's clients", columns)
    rates = config.client_rates
    require(len(rates) >= 1, "client_rates", "must hold at least one rate", rates)
    for rate in rates:
        check_number(rate, "client_rates", "must be positive", POSITIVE)


def _validate_rules(config: SegmentConfig, num_clients: int) -> None:
    good = 0 <= config.trim < 0.5
    require(good, "trim", "must lie in [0, 0.5)", config.trim)
    attackers, attacked = config.num_byzantine, config.attack != "none"
    rule = "must be at least 1 with an attack, and 0 without"
    require((attackers >= 1) == attacked, "num_byzantine", rule, attackers, config.attack)
    rule = f"must be fewer than the {num_clients} clients"
    require(attackers < num_clients, "num_byzantine", rule, attackers)
