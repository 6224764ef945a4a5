"""Settings of studies and their rules.

They are frozen dataclasses that load from TOML files and show as flags.
Nothing here imports JAX, so that `mrsa-jax --help` answers at once. Names of models and
data are literals; a test holds them equal to the registry in `_build`.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import json
import math
import pathlib
import typing
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from mrsa_jax._core.flags import IS_CHANCE, Seed, Several, Size, Whole, shown
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.availability.registry import Model
from mrsa_jax.selection import Scheme
from mrsa_jax.study.settings._load import to_dict
from mrsa_jax.study.settings._tables import (
    AggregationConfig,
    ProtocolConfig,
    SegmentConfig,
    check_unset,
    validate_graph,
    validate_noise,
)
from mrsa_jax.study.settings._training_tables import (
    DataConfig,
    ResourceConfig,
    TrainingConfig,
    validate_training,
)
from mrsa_watch._base.errors import check_blind, require
from mrsa_watch._base.html import Shown

# what all of this family takes of schemes, it takes from here
parse_scheme = Scheme.parse
scheme_label = Scheme.label_of

TrackerName = Literal["json_lines"]
AssignmentName = Literal["shuffled", "cyclic", "sorted", "by_label"]

SIX_SCHEMES = ("uniform", "weighted", "partition", "batch_partitioning:6",
               "batch_partitioning:4", "batch_partitioning:3")  # fmt: skip

WEAK_PRIVACY = "weak_privacy"
"""Name by which weak T after each round is kept."""

_SOFTMAX = TrainingConfig(model="logistic")  # a demo is to take a minute

# Fields that select where results go and how they are made and shown: no part of what
# is studied.
_PRESENTATION = ("out", "json", "overwrite", "resume", "checkpoint_every", "resources",
                 "recipe_file", "track")  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriftSettings(Shown):
    """Assumed drift of the clients' updates; without a memory they never change."""

    memory: Annotated[float | None, IS_CHANCE, shown("RHO")] = None
    """Also report how many clients the worst update of any round is hidden among, if
    updates drift. RHO is the correlation of the lasting part of a client's update with
    that of the round before, such as 0.99. Rows of a log count as rounds that follow
    each other. Default: not reported.
    """
    share: Annotated[float, IS_CHANCE, shown("A")] = 1.0
    """Fraction of an update's variance that lasts, with --memory; the rest is fresh in
    each round. Below 1, the part that lasts is reported as well.
    """

    def check_drift(self) -> None:
        """Raise if a share of updates is to last without a memory."""
        is_given = self.memory is not None or self.share == 1
        require(is_given, "share", "must be used together with memory", self.share)


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
    for clients of the last label.
    """
    availability: str = "independent"
    """Which clients are online: independent, each round by itself; markov:ROUNDS,
    absences of this many rounds on average; cyclic: each client goes through the rates,
    one per round, from a different start; diurnal:AMPLITUDE:PERIOD: a wave around the
    one rate, with the clients spread over the period; replay:FILE[:random|:absent]: a
    .npy file of booleans [rounds, clients], from its first row or a random one, and
    again or not at all after its last; or your own (--plugin).
    """

    def assignment_words(self, seed: int) -> str:
        """Describe the assignment of rates to clients; "" if all clients are alike.

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
        listed = ", ".join(f"{rate:g}" for rate in rates) if len(rates) > 1 else ""
        how = _ASSIGNED[self.assignment].format(seed=seed)
        return " ".join(filter(None, (row.assigned, listed, how)))


_ASSIGNED: dict[AssignmentName, str] = {
    "shuffled": "shuffled over the clients by seed {seed}",
    "cyclic": "dealt out to the clients in turn",
    "sorted": "dealt out in the order of the clients, equal ones together",
    "by_label": "dealt out by the labels of the clients' data",
}


@dataclasses.dataclass(frozen=True)
class _Study(Shown):
    """Settings of every study."""

    seed: Seed = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/simulate")
    """Folder for the store, the figures and the report."""
    rounds: Size = 150
    """Number of rounds, J."""
    population: PopulationConfig = PopulationConfig()
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)


@dataclasses.dataclass(frozen=True)
class _Output(Shown):
    """Wishes of one call; the fields of a class's first base come last."""

    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out."""


@dataclasses.dataclass(frozen=True)
class _Trials(_Study):
    """Settings of studies that simulate many trials."""

    trials: Size = 50
    """Trials of each scheme."""
    values: Annotated[str | None, shown("VALUES")] = None
    """Also report how many clients' values the sums determine, if values are whole
    numbers that never change: bits:P (1 with probability P) or levels:L (uniform over
    0 to L-1). Values are drawn for the first 3 trials, and each integer program may
    take 100 branches. Default: not reported.
    """


@dataclasses.dataclass(frozen=True)
class _Schemes(_Study):
    """Settings of studies of several schemes."""

    schemes: tuple[str, ...] = SIX_SCHEMES
    """Schemes: uniform, weighted, partition, batch_partitioning:T[:fairness],
    crossing_partitions:T[:fairness], bernoulli:CHANCE, poisson:CHANCE:CHANCE...,
    balls_in_bins:BINS, power_of_choice:CANDIDATES, minimum_separation:ROUNDS:SCHEME, or
    your own (--plugin).
    """


@dataclasses.dataclass(frozen=True)
class _Training(_Study):
    """Settings of studies that train."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    aggregation: AggregationConfig = dataclasses.field(
        default_factory=AggregationConfig
    )
    hetero: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)
    resources: ResourceConfig = dataclasses.field(default_factory=ResourceConfig)
    track: Annotated[tuple[TrackerName, ...], shown()] = ()
    """Write the measures of each round while the training runs: json_lines, to
    metrics.jsonl in the folder tracking of --out (run.tracking until a run is
    complete). Default: not written.
    """


@dataclasses.dataclass(frozen=True)
class DemoConfig(_Output, _Training, _Schemes):
    """Compare six selection schemes on real digits: what leaks, what it costs."""

    out: pathlib.Path = pathlib.Path("results/demo")
    training: TrainingConfig = _SOFTMAX


@dataclasses.dataclass(frozen=True)
class SimulateConfig(_Output, DriftSettings, _Schemes, _Trials):
    """Study client selection alone, without training: many trials of each scheme."""

    rounds: Size = 200
    keep: Annotated[tuple[str, ...], shown("WEAK")] = ()
    """Also report weak T after each round of each trial: weak_privacy, its bounds; or
    weak_privacy:certified[:EFFORT], with proofs, which may take 90 seconds times EFFORT
    (0.01 by default) per trial. Default: not reported.
    """


@dataclasses.dataclass(frozen=True)
class _Resumed(_Training):
    """Settings of a training that can be resumed, of one scheme."""

    scheme: str = "batch_partitioning:4"
    """Scheme: uniform, weighted, partition, batch_partitioning:T[:fairness],
    crossing_partitions:T[:fairness], bernoulli:CHANCE, poisson:CHANCE:CHANCE...,
    balls_in_bins:BINS, power_of_choice:CANDIDATES, minimum_separation:ROUNDS:SCHEME, or
    your own (--plugin).
    """
    resume: bool = False
    """Continue the interrupted run in --out from its newest checkpoint, with the same
    settings. Without a run it starts one, and of a complete run it shows the results.
    """
    checkpoint_every: Whole = 10
    """Rounds between two checkpoints: an interruption loses at most this many rounds.
    """


@dataclasses.dataclass(frozen=True)
class TrainConfig(_Output, _Resumed):
    """Train one model under one scheme with secure aggregation, on real data."""

    out: pathlib.Path = pathlib.Path("results/train")
    """Folder of the run: its settings, checkpoints while it trains, and at the end
    results, figures and report.
    """
    overwrite: bool = False
    """Replace another study in --out, or start an unfinished one again."""


Config = DemoConfig | SimulateConfig | TrainConfig


@typing.runtime_checkable
class Settings(typing.Protocol):
    """Settings as the store needs them, of a study or another command."""

    @property
    def out(self) -> pathlib.Path:
        """Folder that the results go to."""
        ...

    @property
    def overwrite(self) -> bool:
        """Whether to replace other results in that folder."""
        ...


class WeakPrivacy(typing.NamedTuple):
    """A wish for weak T after each round.

    Attributes:
        method: Of `privacy.weak_privacy_trajectory`.
        effort: Allowed for each history.
    """

    method: Literal["bounds", "certified"]
    effort: float = 0.01


def weak_wish(kept: Iterable[str]) -> WeakPrivacy | None:
    """Return the one wish for weak T among names of what to keep; None without one.

    Raises:
        ConfigurationError: If a wish is malformed, or there are two.

    Examples:
        >>> weak_wish(["skipped", "weak_privacy"])
        WeakPrivacy(method='bounds', effort=0.01)
        >>> weak_wish(["weak_privacy:certified:0.5"]).effort
        0.5
    """
    wishes = [name for name in kept if name.partition(":")[0] == WEAK_PRIVACY]
    if not wishes:
        return None
    rule = (
        "must name weak_privacy once, as weak_privacy or as "
        "weak_privacy:certified[:EFFORT] with an effort of 0 or more"
    )
    require(len(wishes) == 1, "keep", rule, wishes)
    _, *words = wishes[0].split(":")
    if not words:
        return WeakPrivacy("bounds")
    require(words[0] == "certified" and len(words) <= 2, "keep", rule, wishes[0])
    if len(words) == 1:
        return WeakPrivacy("certified")
    try:
        effort = float(words[1])
    except ValueError:
        effort = math.nan
    require(math.isfinite(effort) and effort >= 0, "keep", rule, wishes[0])
    return WeakPrivacy("certified", effort)


def schemes_of(config: Config) -> tuple[Scheme, ...]:
    """Return the parsed schemes of a configuration, in order."""
    texts = (config.scheme,) if isinstance(config, TrainConfig) else config.schemes
    return tuple(parse_scheme(text) for text in texts)


def studied(content: dict[str, Any]) -> dict[str, Any]:
    """Drop the fields of a configuration that only show or speed what is studied."""
    return {name: value for name, value in content.items() if name not in _PRESENTATION}


def without_wishes(config: Any) -> Any:
    """Drop the wishes of one call on its output, which files do not keep."""
    names = {field.name for field in dataclasses.fields(config)}
    wishes = names & {"json", "overwrite", "resume"}
    return dataclasses.replace(config, **dict.fromkeys(wishes, False))


def command_of(settings: type) -> str:
    """Return the name that provenance gives to the command of a class of settings.

    Examples:
        >>> command_of(DemoConfig)
        'demo'
    """
    return settings.__name__.removesuffix("Config").removesuffix("Command").lower()


def different_settings(
    theirs: dict[str, Any], ours: dict[str, Any]
) -> list[tuple[str, str, str]]:
    """Return the differences of two configurations of plain values.

    Each is a dotted name, their value and ours.

    Examples:
        >>> a, b = to_dict(DemoConfig()), to_dict(DemoConfig(seed=1, json=True))
        >>> different_settings(a, b)
        [('seed', '0', '1')]
    """
    first, second = _flat(studied(theirs)), _flat(studied(ours))
    rows = [
        (name, str(first.get(name)), str(second.get(name))) for name in first | second
    ]
    return [row for row in rows if row[1] != row[2]]


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of all tables by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        dotted = f"{prefix}{name}"
        flat |= (
            _flat(value, f"{dotted}.") if isinstance(value, dict) else {dotted: value}
        )
    return flat


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
    """Return the seed of a run's secrets: command, settings studied, and `parts`.

    So two commands, schemes, thresholds or points of a sweep with one seed share no
    key, and the same settings repeat theirs.

    Examples:
        >>> seed = secret_seed(DemoConfig(rounds=8), "Random")
        >>> seed == secret_seed(DemoConfig(rounds=9), "Random")
        False
        >>> seed == secret_seed(DemoConfig(rounds=8), "Uniform")
        False
    """
    content = [type(config).__name__, studied(to_dict(config)), *parts]
    return json.dumps(content, sort_keys=True).encode()


def check_study(config: Config) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    schemes = schemes_of(config)
    require(len(schemes) > 0, "schemes", "must name at least one scheme", schemes)
    labels = [scheme.label for scheme in schemes]
    is_unique = len(set(labels)) == len(labels)
    require(is_unique, "schemes", "must not contain duplicates", labels)
    population = config.population
    check_sizes(population)
    model = Model.parse(population.availability, population.dropout_rates)
    by_label = population.assignment == "by_label"
    rule = "must be independent or markov with rates by label"
    alike = not by_label or model.row.is_by_client
    require(alike, "availability", rule, population.availability)
    for scheme in schemes:
        scheme.check(population.num_clients, population.cohort_size)
    validate_graph(config.protocol)
    if isinstance(config, SimulateConfig):
        rule = "must be another: a simulation without data knows no labels"
        require(not by_label, "assignment", rule, population.assignment)
        config.check_drift()
        weak_wish(config.keep)
        others = [n for n in config.keep if n.partition(":")[0] != WEAK_PRIVACY]
        rule = "must name weak_privacy alone: a study keeps all else without a wish"
        require(not others, "keep", rule, others)
        if config.values is not None:
            _check_law(config.values)
    else:
        validate_training(config.training)
        _validate_aggregation(config, schemes)
    if isinstance(config, TrainConfig):
        both = config.resume and config.overwrite
        rule = "must not be set with `overwrite`, which starts anew"
        require(not both, "resume", rule, True)


def _check_law(law: str) -> None:
    """Check the law of clients' values without NumPy."""
    name, _, text = law.partition(":")
    rule = "must be bits:P with P from 0 to 1, or levels:L with L from 2 to 65536"
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    is_bits = name == "bits" and 0 <= number <= 1
    is_levels = name == "levels" and text.isdecimal() and 2 <= number <= 2**16
    require(is_bits or is_levels, "values", rule, law)


def check_sizes(population: Any) -> None:
    """Check the numbers of clients and of those per round, and that they have rates."""
    n, k, fewest = population.num_clients, population.cohort_size, FEWEST_IN_A_SUM
    rule = f"must lie in [{fewest}, num_clients]"
    require(fewest <= k <= n, "cohort_size", rule, k, n)
    rates = population.dropout_rates
    require(len(rates) >= 1, "dropout_rates", "must hold at least one rate", rates)


def _validate_aggregation(
    config: DemoConfig | TrainConfig, schemes: tuple[Scheme, ...]
) -> None:
    aggregation, population = config.aggregation, config.population
    fits = aggregation.clip_rule != "last_max" or aggregation.clip_multiplier >= 1
    rule = "must be at least 1 for last_max"
    require(fits, "clip_multiplier", rule, aggregation.clip_multiplier)
    sizes = population.num_clients, population.cohort_size
    quantizer = aggregation.quantizer
    rule = "must not be set with segments, whose groups have --group-levels"
    is_free = quantizer is None or config.hetero.is_plain
    require(is_free, "quantizer", rule, quantizer)
    varies = any(scheme.varies(*sizes) for scheme in schemes)
    validate_noise(aggregation, varies=varies, segments=config.hetero.segments)
    if aggregation.is_noisy:
        for scheme in schemes:
            check_blind(scheme.depends_on_data(*sizes), "scheme", scheme.written)
        rule = "must be another with noise: participation would reveal clients' labels"
        assignment = population.assignment
        require(assignment != "by_label", "assignment", rule, assignment)
    _validate_segments(config, varies)
    if not config.hetero.is_plain or aggregation.clip_norm is not None:
        # each block has a separate ring, and a lattice's step follows from its ring
        return
    most = population.num_clients if varies else population.cohort_size
    largest, bits = aggregation.num_levels - 1, aggregation.modulus_bits
    rule = "must leave room for the largest sum, clients x (num_levels - 1)"
    require(most * largest < 2**bits, "modulus_bits", rule, bits, f"{most} x {largest}")


def _validate_segments(config: DemoConfig | TrainConfig, varies: bool) -> None:
    """Check groups and segments; `varies`: whether cohorts differ in size."""
    segments, aggregation = config.hetero, config.aggregation
    if segments.is_plain:
        rule = "must not be set without --segments sc, mc, hc or groups"
        names = (
            "subgroups",
            "hybrid_threshold",
            "combine",
            "attack",
            "num_byzantine",
            "group_sizes",
            "rate_boundaries",
            "byzantine_clients",
            "attack_strength",
            "weigh_sums",
            "trim",
        )
        check_unset(segments, rule, *names)
        return
    validate_groups(segments, config.population.cohort_size)
    validate_attack(segments, config.population.num_clients)
    attack = segments.attack
    rule = "must be none where cohorts differ in size (bernoulli)"
    require(not varies, "segments", rule, segments.segments)
    rule = (
        "must be none with noise: whose attackers add it, or tell it, no account knows"
    )
    require(attack == "none" or not aggregation.is_noisy, "attack", rule, attack)
    rule = "must not be set with segments: their mean has no weights"
    require(not aggregation.weighted, "weighted", rule, aggregation.weighted)
    policy = config.protocol.split_policy
    check_unset(config.protocol, "must not be set with segments", "whole_blocks")
    rule = "must be ignore with segments"
    require(policy == "ignore", "split_policy", rule, policy)


def validate_attack(config: SegmentConfig, num_clients: int) -> None:
    """Check which clients are Byzantine, what they do, and the rule against them.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.
    """
    attack, named = config.attack, config.byzantine_clients
    rule = "must not be set with byzantine_clients, which names them"
    require(not named or config.num_byzantine == 0, "num_byzantine", rule, named)
    is_good = len(set(named)) == len(named)
    is_good = is_good and all(0 <= client < num_clients for client in named)
    rule = f"must be different clients from 0 to {num_clients - 1}"
    require(is_good, "byzantine_clients", rule, named)
    attackers = len(config.attackers)
    argument = "byzantine_clients" if named else "num_byzantine"
    rule = "must be at least 1 with an attack, and 0 without"
    agrees = (attackers >= 1) == (attack != "none")
    require(agrees, argument, rule, attackers, attack)
    rule = f"must be fewer than the {num_clients} clients"
    require(attackers < num_clients, argument, rule, attackers)
    is_used = attack not in ("none", "wrong_pads")
    rule = "must not be set without an attack that has a strength"
    is_right = config.attack_strength is None or is_used
    require(is_right, "attack_strength", rule, config.attack_strength, attack)
    if config.combine != "trimmed":
        check_unset(config, "must not be set unless --combine is trimmed", "trim")
    is_used = config.combine in ("median", "trimmed", "geometric")
    rule = "must not be set unless --combine is median, trimmed or geometric"
    require(config.weigh_sums or is_used, "weigh_sums", rule, config.combine)


def validate_groups(config: SegmentConfig, cohort_size: int) -> None:
    """Check a cohort's groups: their levels, sizes, subgroups and rates.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.
    """
    levels, cuts, columns = config.group_levels, config.subgroups, config.num_columns
    least = 1 if config.segments == "groups" else 2
    require(len(levels) >= least, "group_levels", f"must hold {least} or more", levels)
    rule = "must not descend from slower to faster groups"
    require(list(levels) == sorted(levels), "group_levels", rule, levels)
    rule = "must be one number, at least 1, for each of `group_levels`"
    sizes = config.group_sizes
    fits = not sizes or (len(sizes) == len(levels) and min(sizes) >= 1)
    require(fits, "group_sizes", rule, sizes, levels)
    rule = "must add up to the clients of a cohort"
    fits = not sizes or sum(sizes) == cohort_size
    require(fits, "group_sizes", rule, sum(sizes), cohort_size)
    rates = config.client_rates
    require(len(rates) >= 1, "client_rates", "must hold at least one rate", rates)
    _check_boundaries(config)
    rule = "must be one number, at least 1, for each of `group_levels`"
    fits = not cuts or (len(cuts) == len(levels) and min(cuts) >= 1)
    require(fits, "subgroups", rule, cuts, levels)
    threshold = config.hybrid_threshold
    rule = "must be given for hc, and for no other scheme"
    agrees = (threshold is not None) == (config.segments == "hc")
    require(agrees, "hybrid_threshold", rule, config.segments)
    rule = f"must lie in [1, {columns - 1}]"
    fits = threshold is None or 1 <= threshold < columns
    require(fits, "hybrid_threshold", rule, threshold)
    smallest = config.smallest_column(cohort_size)
    rule = (
        "must leave two clients of a cohort or more in each group or subgroup, or a "
        "sum is one client's update (a larger cohort, fewer groups, or "
        "--allow-small-groups)"
    )
    size = f"{smallest} of {cohort_size} in the smallest of {columns}"
    fits = smallest >= FEWEST_IN_A_SUM or config.allow_small_groups
    require(fits, "group_levels", rule, size)
    rule = "must not be more than the cohort's clients"
    require(smallest >= 1, "group_levels", rule, columns)


def _check_boundaries(config: SegmentConfig) -> None:
    """Check the upload rates at which groups end."""
    ends, rates = config.rate_boundaries, config.client_rates
    if not ends:
        return
    require(
        not config.group_sizes,
        "rate_boundaries",
        "must not be set with group_sizes",
        ends,
    )
    rule = "must ascend, one fewer than `group_levels`"
    fits = len(ends) == len(config.group_levels) - 1 and sorted(set(ends)) == list(ends)
    require(fits, "rate_boundaries", rule, ends, config.group_levels)
    places = {bisect.bisect_right(ends, rate) for rate in rates}
    rule = "must leave one of `client_rates` or more to each group"
    require(
        len(places) == len(config.group_levels), "rate_boundaries", rule, ends, rates
    )
