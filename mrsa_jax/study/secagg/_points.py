"""Points of a sweep over failures of secure aggregation: rates with intervals, beside bounds."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from mrsa_jax.study._load import to_dict
from mrsa_jax.study._runner import Machine, Variable
from mrsa_jax.study._secagg_config import SecaggConfig
from mrsa_jax.study.secagg._failures import BOUNDS, RATES, check_risk, counted, log10_bounds
from mrsa_jax.study.secagg._memory import secagg_bytes
from mrsa_jax.study.secagg._setting import Setting

_TRACED = ("seed", "connection_probability", "step_dropout_rate", "threshold")


def group_of(config: SecaggConfig) -> Hashable:
    """Return the settings that decide which program runs; the others are its numbers."""
    check_risk(Setting.of(config))
    content = {name: v for name, v in to_dict(config).items() if name not in _TRACED}
    return json.dumps(content, sort_keys=True)


def sizes(configs: Sequence[SecaggConfig]) -> dict[str, int]:
    """Return no inner dimensions."""
    return {}


def variables(configs: Sequence[SecaggConfig], kept: Collection[str]) -> dict[str, Variable]:
    """Return the rates with their 95 % intervals, the graph's numbers, and the bounds."""
    found: dict[str, Variable] = {}
    for name, text in RATES.items():
        found[f"{name}_count"] = Variable((), "int64", "rounds", f"Rounds that are {text}")
        for part, what in (("rate", "Share"), ("lower", "Lower end"), ("upper", "Upper end")):
            words = f"{what} of rounds that are {text}"
            found[f"{name}_{part}"] = Variable((), "float64", "1", words)
    words = "Clients whose padded input arrives, on average"
    found["mean_survivors"] = Variable((), "float64", "clients", words)
    found["threshold_used"] = Variable((), "int32", "shares", "Shares that rebuild a secret")
    words = "Chance of an edge; none for regular graphs"
    found["edge_chance"] = Variable((), "float64", "1", words)
    for name in BOUNDS:
        words = "log10 of a bound of CCESA or ours; -inf for zero, none for other graphs"
        found[f"log10_{name}"] = Variable((), "float64", "1", words)
    return found


def together(config: SecaggConfig, machine: Machine) -> int:
    """Return 1: its rounds fill the machine."""
    return 1


def memory_bytes(config: SecaggConfig, machine: Machine, count: int) -> int:
    """Return about what the graphs of the rounds in flight need."""
    return count * secagg_bytes(config)


def run(
    configs: Sequence[SecaggConfig], machine: Machine, kept: Collection[str], together: int
) -> Iterator[dict[str, np.ndarray]]:
    """Count the failures of each point."""
    for config in configs:
        setting = Setting.of(config)
        rates = counted(setting)
        found: dict[str, Any] = {
            "mean_survivors": rates.mean_survivors,
            "threshold_used": setting.threshold,
            "edge_chance": np.nan if setting.chance is None else setting.chance,
        }
        for name in RATES:
            rate = getattr(rates, name)
            for part in ("count", "rate", "lower", "upper"):
                found[f"{name}_{part}"] = getattr(rate, part)
        found |= {f"log10_{name}": value for name, value in log10_bounds(setting).items()}
        yield {name: np.asarray(value) for name, value in found.items()}
