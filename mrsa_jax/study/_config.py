"""Settings of studies, frozen dataclasses that load from TOML and show as flags, and their rules.

Nothing here imports JAX, so that `mrsa-jax --help` answers at once. Names of models and
data are literals; a test holds them equal to the registry in `_build`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import typing
from typing import Annotated, Any, Literal

from mrsa_jax._core.flags import IS_CHANCE, Seed, Several, Size, Whole, shown
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.availability.registry import Model
from mrsa_jax.graphs.registry import Graph
from mrsa_jax.selection import Scheme
from mrsa_jax.study._load import to_dict
from mrsa_jax.study._tables import (
    AggregationConfig,
    ProtocolConfig,
    SegmentConfig,
    check_unset,
    validate_graph,
    validate_noise,
)
from mrsa_jax.study._training_tables import (
    DataConfig,
    ResourceConfig,
    TrainingConfig,
    validate_training,
)
from mrsa_watch._base.errors import check_blind, require
from mrsa_watch._base.html import Shown

# what all of this family takes of schemes, it takes from here
parse_scheme, scheme_label, with_fields = Scheme.parse, Scheme.label_of, Scheme.filled

TrackerName = Literal["json_lines", "tensorboard", "wandb"]
AssignmentName = Literal["shuffled", "cyclic", "sorted", "by_label"]

SIX_SCHEMES = ("uniform", "weighted", "partition", "batch_partitioning:6", "batch_partitioning:4",
               "batch_partitioning:3")  # fmt: skip

_SOFTMAX = TrainingConfig(model="logistic")  # a demo is to take a minute

# How clients' updates are assumed to drift, where it is not as if they never changed.
Memory = Annotated[float | None, IS_CHANCE, shown("RHO")]
Lasting = Annotated[float, IS_CHANCE, shown("A")]


def check_drift(config: Any) -> None:
    """Raise if a share of updates is to last with no memory given."""
    is_given = config.memory is not None or config.share == 1
    require(is_given, "share", "must be used together with memory", config.share)


# Fields that say where results go, how they are made and shown, not what is studied.
_PRESENTATION = ("out", "json", "overwrite", "resume", "checkpoint_every", "resources",
                 "recipe_file", "track")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PopulationConfig(Shown):
    """Number of clients and of those per round, and how often clients are offline."""

    num_clients: Several = 120
    """Number of clients N."""
    cohort_size: int = 12
    """Clients selected per round, K."""
    dropout_rates: Annotated[tuple[float, ...], IS_CHANCE] = (0.1, 0.2, 0.3, 0.4, 0.5)
    """Probabilities that a client is offline in a round, spread evenly over the
    clients."""
    assignment: AssignmentName = "shuffled"
    """How the rates are spread: shuffled by the seed, cyclic, sorted (equal ones
    together), or by_label: from the first rate for clients of label 0 to the last rate
    for clients of the last label."""
    availability: str = "independent"
    """Which clients are online: independent, each round by itself; markov:ROUNDS,
    absences of this many rounds on average; cyclic: each client goes through the rates,
    one per round, from a different start; diurnal:AMPLITUDE:PERIOD: a wave around the
    one rate, with the clients spread over the period; replay:FILE[:random|:absent]: a
    .npy file of booleans [rounds, clients], from its first row or a random one, and
    again or not at all after its last; or your own (--plugin)."""

    def assignment_words(self, seed: int) -> str:
        """Return which of many assignments the clients have.

        "" where all clients are alike.
        A figure of a population with unequal clients is of one assignment: blocks of
        clients that are offline together work more often than mixed ones.

        Examples:
            >>> import mrsa_jax as mj
            >>> mj.study.PopulationConfig(dropout_rates=(0.1, 0.5)).assignment_words(7)
            'dropout rates 0.1, 0.5 shuffled over the clients by seed 7'
            >>> mj.study.PopulationConfig(dropout_rates=(0.1, 0.1)).assignment_words(7)
            ''
        """
        row = Model.parse(self.availability).row
        rates = self.dropout_rates
        if "assignment" not in row.reads(sorted(set(rates))):
            return ""
        dealt = [row.assigned]
        if len(rates) > 1:
            dealt.append(", ".join(f"{rate:g}" for rate in rates))
        dealt.append(_ASSIGNED[self.assignment].format(seed=seed))
        return " ".join(dealt)


_ASSIGNED: dict[AssignmentName, str] = {
    "shuffled": "shuffled over the clients by seed {seed}",
    "cyclic": "dealt out to the clients in turn",
    "sorted": "dealt out in the order of the clients, equal ones together",
    "by_label": "dealt out by the labels of the clients' data",
}


@dataclasses.dataclass(frozen=True)
class DemoConfig(Shown):
    """Compare six selection schemes on real digits: what leaks, what it costs."""

    seed: Seed = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/demo")
    """Folder for the store, the figures and the report."""
    track: Annotated[tuple[TrackerName, ...], shown()] = ()
    """Write the measures of each round into the folder tracking of --out: json_lines
    (metrics.jsonl), tensorboard (needs tensorboardX), wandb (needs wandb; offline,
    unless WANDB_MODE selects otherwise). Default: not written."""
    rounds: Size = 150
    """Rounds of each scheme, J."""
    schemes: tuple[str, ...] = SIX_SCHEMES
    """Schemes: uniform, weighted, partition, batch_partitioning:T[:fairness],
    crossing_partitions:T[:fairness], bernoulli:CHANCE, poisson:CHANCE:CHANCE...,
    balls_in_bins:BINS, power_of_choice:CANDIDATES, minimum_separation:ROUNDS:SCHEME, or
    your own (--plugin)."""
    population: PopulationConfig = PopulationConfig()
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    training: TrainingConfig = _SOFTMAX
    aggregation: AggregationConfig = dataclasses.field(
        default_factory=AggregationConfig
    )
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)
    hetero: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)
    resources: ResourceConfig = dataclasses.field(default_factory=ResourceConfig)
    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out."""


@dataclasses.dataclass(frozen=True)
class SimulateConfig(Shown):
    """Study client selection alone, without training: many trials of each scheme."""

    seed: Seed = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/simulate")
    """Folder for the store, the figures and the report."""
    rounds: Size = 200
    """Rounds of a trial, J."""
    trials: Size = 50
    """Trials of each scheme."""
    schemes: tuple[str, ...] = SIX_SCHEMES
    """Schemes: uniform, weighted, partition, batch_partitioning:T[:fairness],
    crossing_partitions:T[:fairness], bernoulli:CHANCE, poisson:CHANCE:CHANCE...,
    balls_in_bins:BINS, power_of_choice:CANDIDATES, minimum_separation:ROUNDS:SCHEME, or
    your own (--plugin)."""
    memory: Memory = None
    """Also report how many clients the worst update of any round is hidden among, if
    updates drift. RHO is the correlation of the lasting part of a client's update with
    that of the round before, such as 0.99. Default: not reported."""
    share: Lasting = 1.0
    """Fraction of an update's variance that lasts, with --memory; the rest is fresh in
    each round."""
    population: PopulationConfig = PopulationConfig()
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)
    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out."""


@dataclasses.dataclass(frozen=True)
class TrainConfig(Shown):
    """Train one model under one scheme with secure aggregation, on real data."""

    seed: Seed = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/train")
    """Folder of the run: its settings, checkpoints while it trains, and at the end
    results, figures and report."""
    resume: bool = False
    """Continue the interrupted run in --out from its newest checkpoint, with the same
    settings. Without a run it starts one, and of a complete run it shows the results.
    """
    checkpoint_every: Whole = 10
    """Rounds between two checkpoints: an interruption loses at most this many rounds.
    """
    track: Annotated[tuple[TrackerName, ...], shown()] = ()
    """Write the measures of each round while the training runs: json_lines
    (metrics.jsonl), tensorboard (needs tensorboardX), wandb (needs wandb; offline,
    unless WANDB_MODE selects otherwise). They are in run.tracking of --out, and in
    tracking once the run is complete. Default: not written."""
    rounds: Size = 150
    """Number of rounds, J."""
    scheme: str = "batch_partitioning:4"
    """Scheme: uniform, weighted, partition, batch_partitioning:T[:fairness],
    crossing_partitions:T[:fairness], bernoulli:CHANCE, poisson:CHANCE:CHANCE...,
    balls_in_bins:BINS, power_of_choice:CANDIDATES, minimum_separation:ROUNDS:SCHEME, or
    your own (--plugin)."""
    population: PopulationConfig = PopulationConfig()
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    aggregation: AggregationConfig = dataclasses.field(
        default_factory=AggregationConfig
    )
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)
    hetero: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)
    resources: ResourceConfig = dataclasses.field(default_factory=ResourceConfig)
    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out, or start an unfinished one again."""


Config = DemoConfig | SimulateConfig | TrainConfig


@typing.runtime_checkable
class Settings(typing.Protocol):
    """What the store needs of a frozen dataclass of settings, a study's or another command's."""

    @property
    def out(self) -> pathlib.Path:
        """Folder that the results go to."""
        ...

    @property
    def overwrite(self) -> bool:
        """Whether to replace other results in that folder."""
        ...


def schemes_of(config: Config) -> tuple[Scheme, ...]:
    """Return the parsed schemes of a configuration, in order."""
    texts = (config.scheme,) if isinstance(config, TrainConfig) else config.schemes
    return tuple(parse_scheme(text) for text in texts)


def studied(content: dict[str, Any]) -> dict[str, Any]:
    """Return of a configuration as plain values what is studied, whatever shows or speeds it."""
    return {name: value for name, value in content.items() if name not in _PRESENTATION}


def without_wishes(config: Any) -> Any:
    """Return a configuration without what one call asked of its output, as it is kept in files."""
    names = {field.name for field in dataclasses.fields(config)} & {
        "json",
        "overwrite",
        "resume",
    }
    return dataclasses.replace(config, **dict.fromkeys(names, False))


def command_of(settings: type) -> str:
    """Return what provenance calls the command of a class of settings.

    Examples:
        >>> command_of(DemoConfig)
        'demo'
    """
    return settings.__name__.removesuffix("Config").removesuffix("Command").lower()


def different_settings(
    theirs: dict[str, Any], ours: dict[str, Any]
) -> list[tuple[str, str, str]]:
    """Return where two configurations of plain values differ.

    Dotted name, their value, ours.

    Examples:
        >>> a, b = to_dict(DemoConfig()), to_dict(DemoConfig(seed=1, json=True))
        >>> different_settings(a, b)
        [('seed', '0', '1')]
    """
    first, second = _flat(studied(theirs)), _flat(studied(ours))
    names = [*first, *(name for name in second if name not in first)]
    pairs = [(name, str(first.get(name)), str(second.get(name))) for name in names]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _flat(content: dict[str, Any], where: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            result |= _flat(value, f"{where}{name}.")
        else:
            result[f"{where}{name}"] = value
    return result


def config_hash(config: Settings) -> str:
    """Return 16 hex digits that name what is studied, whatever folder it is written to.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pathlib
        >>> mj.study.config_hash(mj.study.DemoConfig()) == mj.study.config_hash(
        ...     mj.study.DemoConfig(out=pathlib.Path("x"), json=True)
        ... )
        True
        >>> mj.study.config_hash(mj.study.DemoConfig()) == mj.study.config_hash(
        ...     mj.study.DemoConfig(seed=1)
        ... )
        False
    """
    return hashlib.sha256(secret_seed(config)).hexdigest()[:16]


def secret_seed(config: Any, *parts: str) -> bytes:
    """Return what the secrets of a run come from.

    Its command, all that it studies, and `parts`.
    So two commands, schemes, thresholds or points of a sweep with one seed share no
    key, and the same settings repeat theirs.

    Examples:
        >>> one, two = (secret_seed(DemoConfig(rounds=rounds), "Random") for rounds in (8, 9))
        >>> one == two, one == secret_seed(DemoConfig(rounds=8), "Uniform")
        (False, False)
    """
    content = [type(config).__name__, studied(to_dict(config)), *parts]
    return json.dumps(content, sort_keys=True).encode()


def check_study(config: Config) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    schemes = schemes_of(config)
    require(len(schemes) > 0, "schemes", "must name at least one scheme", schemes)
    labels = [scheme.label for scheme in schemes]
    require(
        len(set(labels)) == len(labels),
        "schemes",
        "must not contain duplicates",
        labels,
    )
    _validate_population(config.population)
    for scheme in schemes:
        scheme.check(config.population.num_clients, config.population.cohort_size)
    validate_graph(config.protocol)
    if isinstance(config, SimulateConfig):
        assignment = config.population.assignment
        rule = "must be another: a simulation without data knows no labels"
        require(assignment != "by_label", "assignment", rule, assignment)
        check_drift(config)
    else:
        validate_training(config.training)
        _validate_aggregation(config, schemes)
    if isinstance(config, TrainConfig):
        both = config.resume and config.overwrite
        require(
            not both,
            "resume",
            "must not be set with `overwrite`, which starts anew",
            True,
        )


def check_sizes(population: Any) -> None:
    """Check how many clients there are and are asked, and that they have rates."""
    n, k, fewest = population.num_clients, population.cohort_size, FEWEST_IN_A_SUM
    require(
        fewest <= k <= n, "cohort_size", f"must lie in [{fewest}, num_clients]", k, n
    )
    rates = population.dropout_rates
    require(len(rates) >= 1, "dropout_rates", "must hold at least one rate", rates)


def _validate_population(population: PopulationConfig) -> None:
    check_sizes(population)
    model = Model.parse(population.availability, population.dropout_rates)
    rule = "must be independent or markov with rates by label"
    alike = population.assignment != "by_label" or model.row.is_by_client
    require(alike, "availability", rule, population.availability)


def _validate_aggregation(
    config: DemoConfig | TrainConfig, schemes: tuple[Scheme, ...]
) -> None:
    aggregation = config.aggregation
    fits = aggregation.clip_rule != "last_max" or aggregation.clip_multiplier >= 1
    rule = "must be at least 1 for last_max"
    require(fits, "clip_multiplier", rule, aggregation.clip_multiplier)
    population = config.population
    sizes = population.num_clients, population.cohort_size
    own = aggregation.quantizer
    rule = "must not be set with segments, whose groups have --group-levels"
    require(own is None or config.hetero.is_plain, "quantizer", rule, own)
    any_number = any(scheme.varies(*sizes) for scheme in schemes)
    validate_noise(aggregation, varies=any_number, segments=config.hetero.segments)
    if aggregation.is_noisy:
        for scheme in schemes:
            check_blind(scheme.depends_on_data(*sizes), "scheme", scheme.written)
        rule = "must be another with noise: participation would reveal clients' labels"
        require(
            population.assignment != "by_label",
            "assignment",
            rule,
            population.assignment,
        )
    _validate_segments(config, any_number)
    if not config.hetero.is_plain or aggregation.clip_norm is not None:
        # each block has a separate ring, and a lattice's step follows from its ring
        return
    most = population.num_clients if any_number else population.cohort_size
    largest, bits = aggregation.num_levels - 1, aggregation.modulus_bits
    rule = "must leave room for the largest sum, clients x (num_levels - 1)"
    require(most * largest < 2**bits, "modulus_bits", rule, bits, f"{most} x {largest}")


# ---- segments


def _validate_segments(config: DemoConfig | TrainConfig, varies: bool) -> None:
    """Check groups and segments; `varies`: whether a scheme asks any number of clients."""
    own, population = config.hetero, config.population
    if own.is_plain:
        needs = "must not be set without --segments sc, mc, hc or groups"
        return check_unset(
            own,
            needs,
            "subgroups",
            "hybrid_threshold",
            "combine",
            "attack",
            "num_byzantine",
        )
    _validate_groups(own, population.cohort_size)
    _validate_rules(own, population.num_clients)
    rule = "must be none where cohorts differ in size (bernoulli)"
    require(not varies, "segments", rule, own.segments)
    weighted, protocol = config.aggregation.weighted, config.protocol
    rule = (
        "must be none with noise: whose attackers add it, or tell it, no account knows"
    )
    is_noisy = config.aggregation.is_noisy
    require(not is_noisy or own.attack == "none", "attack", rule, own.attack)
    rule = "must not be set with segments: their mean has no weights"
    require(not weighted, "weighted", rule, weighted)
    graph, policy = protocol.graph, protocol.split_policy
    is_complete = Graph.parse(graph).row.is_complete
    require(is_complete, "graph", "must be complete with segments", graph)
    rule, own_blocks = "must not be set with segments", protocol.whole_blocks
    require(not own_blocks, "whole_blocks", rule, own_blocks)
    return require(
        policy == "ignore", "split_policy", "must be ignore with segments", policy
    )


def _validate_groups(config: SegmentConfig, cohort_size: int) -> None:
    levels, cuts = config.group_levels, config.subgroups
    chained = config.segments != "groups"
    least = 2 if chained else 1
    require(len(levels) >= least, "group_levels", f"must hold {least} or more", levels)
    ascending = list(levels) == sorted(levels)
    require(
        ascending,
        "group_levels",
        "must not descend from slower to faster groups",
        levels,
    )
    fits = not cuts or (len(cuts) == len(levels) and min(cuts) >= 1)
    rule = "must be one number, at least 1, for each of `group_levels`"
    require(fits, "subgroups", rule, cuts, levels)
    threshold, columns = config.hybrid_threshold, config.num_columns
    rule = "must be given for hc, and for no other scheme"
    given = threshold is not None
    require(
        given == (config.segments == "hc"), "hybrid_threshold", rule, config.segments
    )
    good = threshold is None or 1 <= threshold < columns
    require(good, "hybrid_threshold", f"must lie in [1, {columns - 1}]", threshold)
    smallest = config.smallest_column(cohort_size)
    require(
        smallest >= FEWEST_IN_A_SUM or config.allow_small_groups,
        "group_levels",
        "must leave two clients of a cohort or more in each group or subgroup, or a "
        "sum is one "
        "client's update (a larger --cohort-size, fewer groups, or "
        "--allow-small-groups)",
        f"{smallest} of {cohort_size} in the smallest of {columns}",
    )
    require(
        smallest >= 1,
        "group_levels",
        "must not be more than the cohort's clients",
        columns,
    )
    rates = config.client_rates
    require(len(rates) >= 1, "client_rates", "must hold at least one rate", rates)


def _validate_rules(config: SegmentConfig, num_clients: int) -> None:
    attackers, attacked = config.num_byzantine, config.attack != "none"
    rule = "must be at least 1 with an attack, and 0 without"
    require(
        (attackers >= 1) == attacked, "num_byzantine", rule, attackers, config.attack
    )
    rule = f"must be fewer than the {num_clients} clients"
    require(attackers < num_clients, "num_byzantine", rule, attackers)
