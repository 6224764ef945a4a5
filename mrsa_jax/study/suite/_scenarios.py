"""Scenarios of the suite: frozen lists of settings, a file for each version.

A version never changes. A new one is a new file, and cards of the old stay valid.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from mrsa_jax.study.kinds import KINDS, Kind
from mrsa_jax.study.settings._config import SimulateConfig, TrainConfig
from mrsa_jax.study.settings._load import from_dict, parse_toml
from mrsa_jax.study.suite._others import register_others
from mrsa_watch._base.errors import check_known, require

VERSIONS = ("v1",)
"""Versions of the suite, the newest last."""
SERVERS = ("", "free", "enforced")
_OF_TRAININGS = ("data", "training")  # tables of settings
_PLACE = re.compile(r"\{(\w+)\}")
register_others()


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Settings under which each scheme is measured.

    Attributes:
        name: In cards.
        about: Description in a line.
        seeds: Number of seeds of a card, at least; they are 0, 1, 2, ...
        privacy_target: T of schemes that take one.
        server: `free` if the server chooses its sums whatever the scheme, `enforced` if
            clients in addition unmask whole blocks only; else empty.
        kinds: Number of kinds of clients whose updates are alike, or 0.
        correlation: Correlation of updates of one kind.
        accuracy: To which rounds of a training are counted; 0 if nothing is trained.
        settings: Of `simulate`, or of `train`, without scheme and seed.
    """

    name: str
    about: str
    seeds: int
    privacy_target: int
    server: str
    kinds: int
    correlation: float
    accuracy: float
    settings: Mapping[str, Any]

    @property
    def trains(self) -> bool:
        """Whether clients train a model."""
        return self.accuracy > 0

    def config(self, scheme: str, seed: int) -> SimulateConfig:
        """Return the settings of a simulation under a scheme, without its training."""
        content = {n: v for n, v in self.settings.items() if n not in _OF_TRAININGS}
        content |= {"schemes": [scheme], "seed": seed, "trials": 1}
        config: SimulateConfig = from_dict(SimulateConfig, content, "")
        return config

    def training(self, scheme: str, seed: int) -> TrainConfig:
        """Return the settings of a training under a scheme, on one device."""
        one = {"resources": {"devices": 1}}
        content = dict(self.settings) | {"scheme": scheme, "seed": seed} | one
        config: TrainConfig = from_dict(TrainConfig, content, "")
        return config

    @property
    def places(self) -> dict[str, str]:
        """The values that a scheme's parameters may follow from."""
        population = self.settings["population"]
        clients, cohort = population["num_clients"], population["cohort_size"]
        fraction = cohort / clients
        return {
            "privacy_target": str(self.privacy_target),
            "fraction": f"{fraction:g}",
            "half": f"{fraction / 2:g}",
            "more": f"{min(1.0, 1.5 * fraction):g}",
            "bins": str(clients // cohort),
            "candidates": str(min(clients, 2 * cohort)),
        }

    def written(self, scheme: str) -> str:
        """Return a scheme with its parameters: `{bins}` stands for a number of this.

        Raises:
            ConfigurationError: If it has another place in braces.
        """
        written = _PLACE.sub(lambda place: self.places.get(place[1], place[0]), scheme)
        rule = f"must have no places but {{{'}, {'.join(self.places)}}}"
        require(not {"{", "}"} & {*written}, "scheme", rule, scheme)
        return written


@dataclasses.dataclass(frozen=True)
class Constants:
    """Numbers that the figures of all scenarios share.

    Attributes:
        rounds: Numbers of rounds after which hiding is measured.
        noise_multiplier: Of each sum, for epsilon.
        delta: At which epsilon is stated.
        attack_rounds: Rounds whose sums the attribute attack solves together.
        prevalence: Of the attribute.
        attribute_noise: Standard deviation of a sum's noise in the attribute attack.
        relative_tolerance: Of floats that are recomputed.
        accuracy_tolerance: Of accuracies that are recomputed, which rounding moves.
    """

    rounds: tuple[int, ...]
    noise_multiplier: float
    delta: float
    attack_rounds: int
    prevalence: float
    attribute_noise: float
    relative_tolerance: float
    accuracy_tolerance: float


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of the suite.

    Attributes:
        name: Such as `v1`.
        digest: SHA-256 of its file, in hexadecimal digits.
        constants: Numbers that all scenarios share.
        schemes: By name, schemes of the package with places for parameters.
        scenarios: By name, in order.
    """

    name: str
    digest: str
    constants: Constants
    schemes: Mapping[str, str]
    scenarios: Mapping[str, Scenario]

    def scenarios_of(self, *, trainings: bool) -> dict[str, Scenario]:
        """Return the scenarios of a card, with those that train a model or without."""
        every = self.scenarios.items()
        return {name: one for name, one in every if trainings or not one.trains}


@functools.cache
def load_version(name: str = VERSIONS[-1]) -> Version:
    """Read a version of the suite.

    Raises:
        ConfigurationError: If there is no such version.
    """
    check_known(name, "suite", VERSIONS, "a version of the suite")
    text = (pathlib.Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    content = parse_toml(text, "suite")
    scenarios = {
        scenario: _scenario(scenario, dict(table))
        for scenario, table in content["scenarios"].items()
    }
    constants: Constants = from_dict(Constants, content["constants"], "constants.")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Version(name, digest, constants, content["schemes"], scenarios)


def _scenario(name: str, table: dict[str, Any]) -> Scenario:
    alike = table.pop("alike", {})
    first = {field: table.pop(field) for field in ("about", "seeds", "privacy_target")}
    server = check_known(table.pop("server", ""), "server", SERVERS, "a kind of server")
    kinds, correlation = alike.get("kinds", 0), alike.get("correlation", 0.0)
    return Scenario(
        name,
        server=server,
        kinds=kinds,
        correlation=correlation,
        accuracy=table.pop("accuracy", 0.0),
        settings=table,
        **first,
    )


@dataclasses.dataclass(frozen=True)
class SuiteConfig:
    """Settings of a point of the suite: a scenario, a scheme, a seed."""

    out: pathlib.Path = pathlib.Path("results/suite")
    suite: str = VERSIONS[-1]
    scenario: str = ""
    scheme: str = ""
    seed: int = 0
    content: str = ""
    """Digest of the scenario and the constants, which decide on the results."""


def _written(point: SuiteConfig) -> dict[str, Any]:
    version = load_version(point.suite)
    scenario = version.scenarios[point.scenario]
    content = [dataclasses.asdict(part) for part in (scenario, version.constants)]
    text = json.dumps(content, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"scheme": scenario.written(point.scheme), "content": digest}


def _check(config: SuiteConfig) -> None:
    scenario = load_version(config.suite).scenarios[config.scenario]
    KINDS["simulate"].check(scenario.config(config.scheme, config.seed))
    if scenario.trains:
        KINDS["train"].check(scenario.training(config.scheme, config.seed))


SUITE = Kind(
    "suite",
    SuiteConfig,
    _check,
    "suite._points",
    "suite._points",
    SuiteConfig,
    _written,
)
"""The points of the suite as a sweep sees them."""


def settings_of(suite: str, scenario: str, scheme: str, seed: int) -> SuiteConfig:
    """Return the settings of a point, with the scheme written for the scenario."""
    point = SuiteConfig(suite=suite, scenario=scenario, scheme=scheme, seed=seed)
    return dataclasses.replace(point, **_written(point))
