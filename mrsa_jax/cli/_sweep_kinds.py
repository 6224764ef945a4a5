"""All commands that `mrsa-jax sweep` takes: studies, failures of rounds, attacks; no JAX here."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from mrsa_jax._errors import ConfigurationError, require
from mrsa_jax.cli._attack import ATTACKS
from mrsa_jax.cli._attack_checks import validate
from mrsa_jax.cli._secagg import SecaggConfig, check_secagg
from mrsa_jax.study._config import parse_scheme
from mrsa_jax.study._sweep_config import PointKind
from mrsa_jax.study._sweep_kinds import KINDS, fields_of

__all__ = ["ALL_KINDS"]


@dataclasses.dataclass(frozen=True)
class _SecaggPoint(SecaggConfig):
    """Settings of `mrsa-jax secagg --trials N`."""

    out: pathlib.Path = pathlib.Path("results/sweep")
    trials: int | None = 1000


def _secagg(settings: _SecaggPoint) -> SecaggConfig:
    config = SecaggConfig(**fields_of(settings, SecaggConfig))
    require(config.trials is not None, "trials", "must be given: a sweep counts failures")
    check_secagg(config)
    return config


def _attack(settings: Any) -> Any:
    validate(settings)
    return settings


def _label(field: str, value: Any) -> Any:
    """Return the labels of schemes; None for other fields."""
    if field != "schemes":
        return None
    try:
        return ", ".join(parse_scheme(text).label for text in value)
    except ConfigurationError:
        return None


_OWN = (
    PointKind("secagg", "mrsa_jax.cli._sweep_secagg", _SecaggPoint, _secagg),
    *(
        PointKind(f"attack {name}", "mrsa_jax.cli._sweep_attacks", attack.config, _attack, _label)
        for name, attack in ATTACKS.items()
    ),
)

ALL_KINDS: dict[str, PointKind] = KINDS | {kind.name: kind for kind in _OWN}
"""What can be swept, by the name of its command."""
