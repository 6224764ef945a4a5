"""Every command that runs from settings, a row each: for Python, sweeps, pages and `mrsa-jax`.

Nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import typing
from collections.abc import Callable
from typing import Any

from mrsa_jax._errors import ConfigurationError, require
from mrsa_jax.selection._checks import Fairness
from mrsa_jax.selection._registry import with_fields
from mrsa_jax.study import _attack_config as attacks
from mrsa_jax.study._attack_checks import check_attack
from mrsa_jax.study._audit_config import AuditConfig, check_audit
from mrsa_jax.study._config import (
    DemoConfig,
    SimulateConfig,
    TrainConfig,
    parse_scheme,
    scheme_label,
)
from mrsa_jax.study._load import check_types
from mrsa_jax.study._secagg_config import SecaggConfig, check_secagg
from mrsa_jax.study._validate import check_study

__all__ = ["KINDS", "Kind", "checked", "kind_of", "validate"]


def _as_it_is(field: str, value: Any) -> Any:
    return None


def _itself(settings: Any) -> Any:
    return settings


def _no_axes(content: dict[str, Any]) -> dict[str, list[Any]]:
    return {}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A command: what is needed of it before anything is computed.

    Attributes:
        name: Of the command.
        config: Frozen dataclass of its settings.
        check: Raises for the first setting that breaks a rule.
        module: With its `run`, imported when it runs.
        points: Module with the functions of a `Runner`, where it can be swept.
        settings: Frozen dataclass of one point's settings, fields as in the command's files.
        resolve: The configuration for a point's settings; raises if there can be none.
        label: How a value of a field is shown on its axis; None: as it is.
        implied_axes: Takes fields out of a file's content that are axes by themselves.
    """

    name: str
    config: type
    check: Callable[[Any], None]
    module: str
    points: str | None = None
    settings: Any = None
    resolve: Callable[[Any], Any] = _itself
    label: Callable[[str, Any], Any] = _as_it_is
    implied_axes: Callable[[dict[str, Any]], dict[str, Any]] = _no_axes

    def load(self) -> Any:
        """Return the module that runs it; this imports JAX."""
        return importlib.import_module(f"{__package__}.{self.module}")

    def runner(self) -> Any:
        """Return what computes its points, a `Runner`; this imports JAX."""
        return importlib.import_module(f"{__package__}.{self.points}")


@dataclasses.dataclass(frozen=True)
class _SimulatePoint(SimulateConfig):
    """Settings of `mrsa-jax simulate` with one scheme, whose parts can be axes."""

    out: pathlib.Path = pathlib.Path("results/sweep")
    scheme: str = ""
    privacy_target: int | None = None
    fairness: Fairness | None = None


@dataclasses.dataclass(frozen=True)
class _TrainPoint(TrainConfig):
    """Settings of `mrsa-jax train`, whose scheme's parts can be axes."""

    out: pathlib.Path = pathlib.Path("results/sweep")
    privacy_target: int | None = None
    fairness: Fairness | None = None


@dataclasses.dataclass(frozen=True)
class _SecaggPoint(SecaggConfig):
    """Settings of `mrsa-jax secagg --trials N`."""

    out: pathlib.Path = pathlib.Path("results/sweep")
    trials: int | None = 1000


def _without_point(settings: Any, cls: type, **changed: Any) -> Any:
    """Return a command's configuration: those settings of a point that are its own."""
    names = (field.name for field in dataclasses.fields(cls))
    return cls(**{name: getattr(settings, name) for name in names} | changed)


def _simulate(settings: _SimulatePoint) -> SimulateConfig:
    config = _without_point(settings, SimulateConfig, schemes=(_scheme_text(settings),))
    check_study(config)
    return config


def _train(settings: _TrainPoint) -> TrainConfig:
    config = _without_point(settings, TrainConfig, scheme=_scheme_text(settings))
    check_study(config)
    return config


def _secagg(settings: _SecaggPoint) -> SecaggConfig:
    config = _without_point(settings, SecaggConfig)
    require(config.trials is not None, "trials", "must be given: a sweep counts failures")
    check_secagg(config)
    return config


def _scheme_text(point: _SimulatePoint | _TrainPoint) -> str:
    """Return a scheme as files write it, with the parameters that are fields apart."""
    apart = {"privacy_target": point.privacy_target, "fairness": point.fairness}
    return with_fields(point.scheme, apart)


def _label(field: str, value: Any) -> Any:
    """Return a scheme's label; None for other fields."""
    return scheme_label(value) if field == "scheme" else None


def _schemes_axis(content: dict[str, Any]) -> dict[str, Any]:
    """Take `schemes` for an axis, as the command's own files have it."""
    if "scheme" in content:
        require("schemes" not in content, "schemes", "must be left out beside `scheme`")
        return {}
    return {"scheme": content.pop("schemes", list(SimulateConfig().schemes))}


def _attack(settings: attacks.AttackSettings) -> attacks.AttackSettings:
    check_attack(settings)
    return settings


def _schemes_label(field: str, value: Any) -> Any:
    """Return the labels of schemes; None for other fields."""
    if field != "schemes":
        return None
    try:
        return ", ".join(parse_scheme(text).label for text in value)
    except ConfigurationError:
        return None


_ATTACKS = {
    "least-squares": attacks.LeastSquaresConfig,
    "disaggregation": attacks.DisaggregationConfig,
    "gradients": attacks.GradientsConfig,
    "model-inversion": attacks.ModelInversionConfig,
    "membership": attacks.MembershipConfig,
    "inconsistency": attacks.InconsistencyConfig,
}

_ROWS = (
    Kind("demo", DemoConfig, check_study, "_study"),
    Kind(
        "simulate",
        SimulateConfig,
        check_study,
        "_study",
        "_simulate_points",
        _SimulatePoint,
        _simulate,
        _label,
        _schemes_axis,
    ),
    Kind("train", TrainConfig, check_study, "_study", "_train_points", _TrainPoint, _train, _label),
    Kind(
        "secagg",
        SecaggConfig,
        check_secagg,
        "secagg._run",
        "secagg._points",
        _SecaggPoint,
        _secagg,
    ),
    Kind("audit", AuditConfig, check_audit, "audit._run"),
    *(
        Kind(
            f"attack {name}",
            config,
            check_attack,
            "attack._run",
            "attack._points",
            config,
            _attack,
            _schemes_label,
        )
        for name, config in _ATTACKS.items()
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ROWS}
"""All commands that run from settings, by name."""


def kind_of(config: Any) -> Kind:
    """Return the row of a configuration.

    Raises:
        ConfigurationError: If it is of no command.
    """
    found = next((kind for kind in _ROWS if isinstance(config, kind.config)), None)
    names = ", ".join(kind.config.__name__ for kind in _ROWS)
    require(found is not None, "config", f"must be one of {names}", config)
    assert found is not None
    return found


def validate(config: Any) -> None:
    """Check a configuration as a whole, before any work and without JAX.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.

    Examples:
        >>> validate(DemoConfig())
        >>> validate(DemoConfig(rounds=0))
        Traceback (most recent call last):
        ...
        mrsa_jax._errors.ConfigurationError: `rounds` must be at least 1; got 0
    """
    checked(config)


def checked(config: Any) -> Any:
    """Return a configuration that keeps all rules, with paths for what may be text; or raise."""
    kind = kind_of(config)
    check_types(config)
    paths = {
        name: pathlib.Path(getattr(config, name))
        for name, hint in typing.get_type_hints(kind.config).items()
        if pathlib.Path in (hint, *typing.get_args(hint)) and getattr(config, name) is not None
    }
    config = dataclasses.replace(config, **paths)
    kind.check(config)
    return config
