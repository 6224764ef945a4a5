"""Studies that can be swept: their settings as one point has them; nothing here imports JAX."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
from typing import Any

from mrsa_jax._errors import require
from mrsa_jax.selection._checks import Fairness
from mrsa_jax.selection._registry import with_fields
from mrsa_jax.study._config import (
    SimulateConfig,
    TrainConfig,
    scheme_label,
)
from mrsa_jax.study._sweep_config import PointKind
from mrsa_jax.study._validate import validate

__all__ = ["KINDS", "fields_of", "runner_of"]


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


def fields_of(settings: Any, cls: type) -> dict[str, Any]:
    """Return those settings of a point that are fields of the command's own dataclass."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(cls)}


def _simulate(settings: _SimulatePoint) -> SimulateConfig:
    values = fields_of(settings, SimulateConfig) | {"schemes": (_scheme_text(settings),)}
    config = SimulateConfig(**values)
    validate(config)
    return config


def _train(settings: _TrainPoint) -> TrainConfig:
    config = TrainConfig(**fields_of(settings, TrainConfig) | {"scheme": _scheme_text(settings)})
    validate(config)
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


_OWN = (
    PointKind(
        "simulate",
        "mrsa_jax.study._sweep_simulate",
        _SimulatePoint,
        _simulate,
        _label,
        _schemes_axis,
    ),
    PointKind("train", "mrsa_jax.study._sweep_train", _TrainPoint, _train, _label),
)

KINDS: dict[str, PointKind] = {kind.name: kind for kind in _OWN}
"""Studies that can be swept, by the name of their command."""


def runner_of(kind: PointKind) -> Any:
    """Return what computes a kind's points, a `Runner`; this imports JAX."""
    return importlib.import_module(kind.module)
