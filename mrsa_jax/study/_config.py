"""Configuration of studies: frozen dataclasses that load from TOML and show as flags.

Nothing here imports JAX, so that `mrsa-jax --help` answers at once. Names of models and data are
literals; a test holds them equal to the registry in `_build`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import typing
from typing import Any, Literal

from mrsa_jax._html import Shown
from mrsa_jax.selection import Scheme
from mrsa_jax.study._load import to_dict
from mrsa_jax.study._tables import (
    AggregationConfig,
    DataConfig,
    ProtocolConfig,
    ResourceConfig,
    SegmentConfig,
    TrainingConfig,
)

# what all of this family takes of schemes, it takes from here
parse_scheme, scheme_label, with_fields = Scheme.parse, Scheme.label_of, Scheme.filled
scheme_names = Scheme.names

TrackerName = Literal["json_lines", "tensorboard", "wandb"]
AssignmentName = Literal["shuffled", "cyclic", "sorted", "by_label"]

SIX_SCHEMES = (
    "uniform",
    "weighted",
    "partition",
    "batch_partitioning:6",
    "batch_partitioning:4",
    "batch_partitioning:3",
)

_SOFTMAX = TrainingConfig(model="logistic")  # a demo is to take a minute

# Fields that say where results go, how they are made and shown, not what is studied.
_PRESENTATION = ("out", "json", "overwrite", "resume", "checkpoint_every", "resources",
                 "recipe_file", "track")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PopulationConfig(Shown):
    """Who the clients are and how often they are away."""

    num_clients: int = 120
    """Number of clients N."""
    cohort_size: int = 12
    """Clients asked in a round, K."""
    dropout_rates: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    """Chances to be offline in a round, spread evenly over the clients."""
    assignment: AssignmentName = "shuffled"
    """How the rates are spread: shuffled by the seed, cyclic, sorted (equal ones together), or
    by_label: from the first rate for clients of label 0 to the last for those of the last."""
    availability: str = "independent"
    """Who is away when: independent, each round by itself; markov:ROUNDS, for so many rounds on
    average; cyclic: each client goes through the rates, one a round, from its own on;
    diurnal:AMPLITUDE:PERIOD: a wave around the one rate, clients spread over the period;
    replay:FILE[:random|:absent]: as a .npy file of booleans [rounds, clients] has it, from its
    first row or a random one, and again or not at all after its last; or your own (--plugin)."""


@dataclasses.dataclass(frozen=True)
class DemoConfig(Shown):
    """Compare six selection schemes on real digits: what leaks, what it costs."""

    seed: int = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/demo")
    """Folder for the store, the figures and the report."""
    track: tuple[TrackerName, ...] = ()
    """Write what is known of each round into the folder tracking of --out: json_lines
    (metrics.jsonl), tensorboard (needs tensorboardX), wandb (needs wandb; offline, unless
    WANDB_MODE says otherwise)."""
    rounds: int = 150
    """Rounds of each scheme, J."""
    schemes: tuple[str, ...] = SIX_SCHEMES
    """Schemes: uniform, weighted, partition, batch_partitioning:T[:fairness],
    crossing_partitions:T[:fairness], bernoulli:CHANCE, poisson:CHANCE:CHANCE...,
    balls_in_bins:BINS, power_of_choice:CANDIDATES, minimum_separation:ROUNDS:SCHEME, or your own
    (--plugin)."""
    population: PopulationConfig = PopulationConfig()
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    training: TrainingConfig = _SOFTMAX
    aggregation: AggregationConfig = dataclasses.field(default_factory=AggregationConfig)
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

    seed: int = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/simulate")
    """Folder for the store, the figures and the report."""
    rounds: int = 200
    """Rounds of a trial, J."""
    trials: int = 50
    """Trials of each scheme."""
    schemes: tuple[str, ...] = SIX_SCHEMES
    """Schemes: uniform, weighted, partition, batch_partitioning:T[:fairness],
    crossing_partitions:T[:fairness], bernoulli:CHANCE, poisson:CHANCE:CHANCE...,
    balls_in_bins:BINS, power_of_choice:CANDIDATES, minimum_separation:ROUNDS:SCHEME, or your own
    (--plugin)."""
    population: PopulationConfig = PopulationConfig()
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)
    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out."""


@dataclasses.dataclass(frozen=True)
class TrainConfig(Shown):
    """Train one model under one scheme with secure aggregation, on real data."""

    seed: int = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/train")
    """Folder of the run: its settings from the start, checkpoints while it trains, and at the end
    store, figures and report in their place."""
    resume: bool = False
    """Continue the run that was interrupted in --out from its newest checkpoint, with the same
    settings; start where there is none, and show what is there where it is complete."""
    checkpoint_every: int = 10
    """Rounds between two checkpoints, which a kill or a power loss sets a run back to."""
    track: tuple[TrackerName, ...] = ()
    """Write what is known of each round while the training runs: json_lines (metrics.jsonl),
    tensorboard (needs tensorboardX), wandb (needs wandb; offline, unless WANDB_MODE says
    otherwise); below run.tracking in --out, and in tracking once the run is complete."""
    rounds: int = 150
    """Rounds, J."""
    scheme: str = "batch_partitioning:4"
    """Scheme: uniform, weighted, partition, batch_partitioning:T[:fairness],
    crossing_partitions:T[:fairness], bernoulli:CHANCE, poisson:CHANCE:CHANCE...,
    balls_in_bins:BINS, power_of_choice:CANDIDATES, minimum_separation:ROUNDS:SCHEME, or your own
    (--plugin)."""
    population: PopulationConfig = PopulationConfig()
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    aggregation: AggregationConfig = dataclasses.field(default_factory=AggregationConfig)
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)
    hetero: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)
    resources: ResourceConfig = dataclasses.field(default_factory=ResourceConfig)
    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out, or start an unfinished one anew."""


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
    names = {field.name for field in dataclasses.fields(config)} & {"json", "overwrite", "resume"}
    return dataclasses.replace(config, **dict.fromkeys(names, False))


def command_of(settings: type) -> str:
    """Return what provenance calls the command of a class of settings.

    Examples:
        >>> command_of(DemoConfig)
        'demo'
    """
    return settings.__name__.removesuffix("Config").removesuffix("Command").lower()


def different_settings(theirs: dict[str, Any], ours: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return where two configurations of plain values differ: dotted name, their value, ours.

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
        >>> config_hash(DemoConfig()) == config_hash(DemoConfig(out=pathlib.Path("x"), json=True))
        True
        >>> config_hash(DemoConfig()) == config_hash(DemoConfig(seed=1))
        False
    """
    return hashlib.sha256(secret_seed(config)).hexdigest()[:16]


def secret_seed(config: Any, *parts: str) -> bytes:
    """Return what the secrets of a run come from: its command, all that it studies, and `parts`.

    So two commands, schemes, thresholds or points of a sweep with one seed share no key, and the
    same settings repeat theirs.

    Examples:
        >>> one, two = (secret_seed(DemoConfig(rounds=rounds), "Random") for rounds in (8, 9))
        >>> one == two, one == secret_seed(DemoConfig(rounds=8), "Uniform")
        (False, False)
    """
    content = [type(config).__name__, studied(to_dict(config)), *parts]
    return json.dumps(content, sort_keys=True).encode()
