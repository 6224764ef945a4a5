"""Configuration of studies: frozen dataclasses that load from TOML and show as flags.

Nothing here imports JAX, so that `mrsa-jax --help` answers at once. Names of schemes, models and
data are literals; a test holds them equal to the registry in `_build`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import pathlib
import tomllib
import types
import typing
from typing import Any, Literal, TypeVar

from mrsa_jax._errors import ConfigurationError, nearest, require
from mrsa_jax.study._protocol_config import AggregationConfig, ProtocolConfig
from mrsa_jax.study._segment_config import SegmentConfig

__all__ = [
    "AggregationConfig",
    "DataConfig",
    "DemoConfig",
    "PopulationConfig",
    "ProtocolConfig",
    "Scheme",
    "SegmentConfig",
    "Settings",
    "SimulateConfig",
    "TrainConfig",
    "TrainingConfig",
    "config_hash",
    "load_config",
    "parse_scheme",
    "schemes_of",
    "to_dict",
]

SchemeName = Literal["uniform", "weighted", "partition", "batch_partitioning", "bernoulli"]
FairnessName = Literal["least_used", "uniform", "greedy"]
AssignmentName = Literal["shuffled", "cyclic", "sorted"]
PartitionName = Literal["iid", "shards", "dirichlet"]
ModelName = Literal["lenet", "mlp", "logistic"]

SIX_SCHEMES = (
    "uniform",
    "weighted",
    "partition",
    "batch_partitioning:6",
    "batch_partitioning:4",
    "batch_partitioning:3",
)

# Fields that say where results go and how they are shown, not what is studied.
_PRESENTATION = ("out", "json", "overwrite")

ConfigT = TypeVar("ConfigT")


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A selection scheme as named in a configuration.

    Attributes:
        name: Family of the scheme.
        privacy_target: T of batch partitioning; None elsewhere.
        fairness: Rule by which batch partitioning picks blocks.
        probability: Chance to join of Bernoulli selection; None elsewhere.
    """

    name: str
    privacy_target: int | None = None
    fairness: str = "least_used"
    probability: float | None = None

    @property
    def label(self) -> str:
        """The name that tables and figures show."""
        if self.name == "batch_partitioning":
            rule = "" if self.fairness == "least_used" else f", {self.fairness}"
            return f"Multi-RoundSecAgg (T={self.privacy_target}{rule})"
        if self.name == "bernoulli":
            return f"Bernoulli ({self.probability:g})"
        return {
            "uniform": "Random",
            "weighted": "Weighted random",
            "partition": "User partition",
        }[self.name]


def parse_scheme(text: str) -> Scheme:
    """Read a scheme as written in flags and files.

    The form is `name`, `batch_partitioning:T` or `batch_partitioning:T:fairness`, and
    `bernoulli:probability`.

    Raises:
        ConfigurationError: For an unknown name (naming the nearest), or a missing or bad number.

    Examples:
        >>> parse_scheme("batch_partitioning:4").label
        'Multi-RoundSecAgg (T=4)'
        >>> parse_scheme("weighted").label
        'Weighted random'
    """
    name, *rest = str(text).split(":")
    known = typing.get_args(SchemeName)
    if name not in known:
        raise ConfigurationError(
            f"`scheme` must be a known scheme; got {name!r}; {nearest(name, known)}"
        )
    if name == "batch_partitioning":
        require(
            1 <= len(rest) <= 2 and rest[0].isdigit(),
            "scheme",
            "must give a privacy target, as in 'batch_partitioning:4'",
            text,
        )
        fairness = rest[1] if len(rest) == 2 else "least_used"
        rules = typing.get_args(FairnessName)
        if fairness not in rules:
            raise ConfigurationError(
                f"`fairness` must be a known rule; got {fairness!r}; {nearest(fairness, rules)}"
            )
        return Scheme(name, privacy_target=int(rest[0]), fairness=fairness)
    if name == "bernoulli":
        return Scheme(name, probability=_bernoulli_probability(text, rest))
    require(not rest, "scheme", f"must be plain {name!r} (it has no parameter)", text)
    return Scheme(name)


def _bernoulli_probability(text: str, rest: list[str]) -> float:
    try:
        (value,) = (float(part) for part in rest)
    except ValueError:
        value = math.nan
    require(
        0 < value <= 1,
        "scheme",
        "must give a probability in (0, 1], as in 'bernoulli:0.1'",
        text,
    )
    return value


@dataclasses.dataclass(frozen=True)
class PopulationConfig:
    """Who the clients are and how often they are away."""

    num_clients: int = 120
    """Number of clients N."""
    cohort_size: int = 12
    """Clients asked in a round, K."""
    dropout_rates: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    """Chances to be offline in a round, spread evenly over the clients."""
    assignment: AssignmentName = "shuffled"
    """How the rates are spread: shuffled by the seed, cyclic, or sorted (equal ones together)."""


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What the clients train on and how it is split."""

    dataset: str = "mnist_5k"
    """mnist_5k, digits, idx (with --directory), or tfds:NAME for a prepared TensorFlow data set."""
    directory: pathlib.Path | None = None
    """Folder of the IDX files or of the prepared TensorFlow data sets."""
    partition: PartitionName = "iid"
    """iid; shards (sorted by label, so one label a client); dirichlet (by class)."""
    shards_per_client: int = 1
    """Shards a client, for --partition shards."""
    single_label: bool = True
    """Let no shard hold two labels; --no-single-label cuts equal shards, as in the papers."""
    concentration: float = 0.5
    """Dirichlet concentration, for --partition dirichlet."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a client trains and how often the model is tested."""

    model: ModelName = "lenet"
    """lenet (61,706 parameters on 28x28x1), mlp (784-200-200-10; 199,210), or logistic."""
    learning_rate: float = 0.1
    """Step size of the clients' SGD."""
    momentum: float = 0.0
    """Momentum of the clients' SGD."""
    batch_size: int = 10
    """Samples in a client's minibatch."""
    num_epochs: int = 1
    """Local epochs a round, E."""
    evaluate_every: int = 10
    """Rounds between two tests of the global model."""


@dataclasses.dataclass(frozen=True)
class DemoConfig:
    """Compare six selection schemes on real digits: what leaks, what it costs in accuracy."""

    seed: int = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/demo")
    """Folder for the store, the figures and the report."""
    rounds: int = 150
    """Rounds of each scheme, J."""
    schemes: tuple[str, ...] = SIX_SCHEMES
    """Schemes, as NAME, batch_partitioning:T[:fairness] or bernoulli:PROBABILITY."""
    population: PopulationConfig = PopulationConfig()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()
    aggregation: AggregationConfig = dataclasses.field(default_factory=AggregationConfig)
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)
    hetero: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)
    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out."""


@dataclasses.dataclass(frozen=True)
class SimulateConfig:
    """Study selection alone, without training: many trials of each scheme."""

    seed: int = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/simulate")
    """Folder for the store, the figures and the report."""
    rounds: int = 200
    """Rounds of a trial, J."""
    trials: int = 50
    """Trials of each scheme."""
    schemes: tuple[str, ...] = SIX_SCHEMES
    """Schemes, as NAME, batch_partitioning:T[:fairness] or bernoulli:PROBABILITY."""
    population: PopulationConfig = PopulationConfig()
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)
    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out."""


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Train one model under one selection scheme with secure aggregation, on real data."""

    seed: int = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/train")
    """Folder for the store, the figures and the report."""
    rounds: int = 150
    """Rounds, J."""
    scheme: str = "batch_partitioning:4"
    """Scheme, as NAME, batch_partitioning:T[:fairness] or bernoulli:PROBABILITY."""
    population: PopulationConfig = PopulationConfig()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()
    aggregation: AggregationConfig = dataclasses.field(default_factory=AggregationConfig)
    protocol: ProtocolConfig = dataclasses.field(default_factory=ProtocolConfig)
    hetero: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)
    json: bool = False
    """Print the results as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in --out."""


Config = DemoConfig | SimulateConfig | TrainConfig


@typing.runtime_checkable
class Settings(typing.Protocol):
    """What the store needs of a frozen dataclass of settings, a study's or another command's."""

    @property
    def seed(self) -> int:
        """Seed of everything random."""
        ...

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


def to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration as plain JSON and TOML values; None fields are left out.

    Examples:
        >>> to_dict(DemoConfig())["population"]["num_clients"]
        120
    """
    result: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            result[field.name] = to_dict(value)
        elif isinstance(value, pathlib.Path):
            result[field.name] = str(value)
        elif isinstance(value, tuple):
            result[field.name] = list(value)
        elif value is not None:
            result[field.name] = value
    return result


def config_hash(config: Settings) -> str:
    """Return 16 hex digits that name what is studied, whatever folder it is written to.

    Examples:
        >>> config_hash(DemoConfig()) == config_hash(DemoConfig(out=pathlib.Path("x"), json=True))
        True
        >>> config_hash(DemoConfig()) == config_hash(DemoConfig(seed=1))
        False
    """
    content = {k: v for k, v in to_dict(config).items() if k not in _PRESENTATION}
    text = json.dumps([type(config).__name__, content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_config(cls: type[ConfigT], path: str | pathlib.Path) -> ConfigT:
    """Read a configuration from a TOML file; fields that it leaves out keep their defaults.

    Args:
        cls: `DemoConfig`, `SimulateConfig` or `TrainConfig`.
        path: The file.

    Raises:
        ConfigurationError: If the file is missing or no TOML, names an unknown field (with its
            path and the nearest known one), or gives a value of the wrong type.
    """
    path = pathlib.Path(path)
    require(path.is_file(), "config", "must be an existing TOML file", str(path))
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"`config` must be valid TOML; {path}: {error}") from error
    return _from_dict(cls, content, "")


def _from_dict(cls: type[ConfigT], content: dict[str, Any], where: str) -> ConfigT:
    hints = typing.get_type_hints(cls)
    values = {}
    for name, value in content.items():
        dotted = f"{where}{name}"
        if name not in hints:
            raise ConfigurationError(f"`{dotted}` is not a field; {nearest(name, hints)}")
        values[name] = _convert(hints[name], value, dotted)
    return cls(**values)


def _convert(hint: Any, value: Any, dotted: str) -> Any:
    if dataclasses.is_dataclass(hint):
        require(isinstance(value, dict), dotted, "must be a table", value)
        return _from_dict(typing.cast(type, hint), value, f"{dotted}.")
    origin = typing.get_origin(hint)
    if origin is types.UnionType or origin is typing.Union:
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _convert(inner[0], value, dotted)
    if origin is Literal:
        known = typing.get_args(hint)
        if value not in known:
            raise ConfigurationError(
                f"`{dotted}` must be a known name; got {value!r}; {nearest(value, known)}"
            )
        return value
    if origin is tuple:
        require(isinstance(value, list), dotted, "must be a list", value)
        inner_hint = typing.get_args(hint)[0]
        return tuple(_convert(inner_hint, item, f"{dotted}[{i}]") for i, item in enumerate(value))
    if hint is pathlib.Path:
        require(isinstance(value, str), dotted, "must be a path in quotes", value)
        return pathlib.Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    require(type(value) is hint, dotted, f"must be of type {hint.__name__}", value)
    return value
