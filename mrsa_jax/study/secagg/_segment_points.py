"""Points of a sweep over `mrsa-jax segments`: the plan of a round, and its losses."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_jax.study.secagg._segments import (
    layout_of,
    losses_of,
    planned_round,
    segments_bytes,
    sorted_rates,
)
from mrsa_jax.study.settings._commands import SegmentsConfig
from mrsa_jax.study.settings._load import to_dict
from mrsa_jax.study.stores._runner import VARIABLES, Machine, Variable


def group_of(config: SegmentsConfig) -> Hashable:
    """Return all settings but the numbers that a compiled program takes."""
    numbers = ("seed", "step_dropout_rate", "straggler_rate", "straggler_slowdown")
    content = to_dict(config)
    return json.dumps({k: v for k, v in content.items() if k not in numbers})


def sizes(configs: Sequence[SegmentsConfig]) -> dict[str, int]:
    """Return no inner dimensions."""
    return {}


def variables(
    configs: Sequence[SegmentsConfig], kept: Collection[str]
) -> dict[str, Variable]:
    """Return the numbers of the plan and of the rounds as they happen."""
    return VARIABLES["segments_of_rounds"]


def together(config: SegmentsConfig, machine: Machine) -> int:
    """Return 1: its rounds fill the machine."""
    return 1


def memory_bytes(
    config: SegmentsConfig, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return about what the rounds in flight need."""
    return count * segments_bytes(config)


def run_points(
    configs: Sequence[SegmentsConfig],
    machine: Machine,
    kept: Collection[str],
    together: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Plan each point's round, and count its losses."""
    for config in configs:
        layout, rates = layout_of(config), sorted_rates(config)
        plan = planned_round(config, layout, rates)
        losses = losses_of(config, layout, rates)
        values = {
            "planned_level": float(Fraction(plan["privacy_level_at_least"])),
            "error_bound": plan["error_bounds"]["scheme"],
            "expansion": max(group["expansion"] for group in plan["groups"]),
            "planned_seconds": plan["round_seconds"],
            "planned_tolerance": plan["tolerated_byzantine"],
            **_as_it_happens(losses),
        }
        yield {name: np.asarray(value, np.float64) for name, value in values.items()}


def _as_it_happens(losses: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of rounds with losses; nan where no round has one."""

    def ends(name: str) -> dict[str, float]:
        rate = losses[name] or dict.fromkeys(("rate", "lower", "upper"), np.nan)
        return {f"{name}_{end}": rate[end] for end in ("rate", "lower", "upper")}

    levels = {Fraction(level): count for level, count in losses["levels"].items()}
    sums = sum(levels.values())
    mean = sum(level * count for level, count in levels.items())
    tolerated = [int(most) for most in losses["tolerated"] or ()]
    return {
        **ends("no_sum"),
        **ends("lonely"),
        **ends("below_plan"),
        "privacy_level": float(min(levels)) if sums else np.nan,
        "mean_level": float(mean / sums) if sums else np.nan,
        "tolerated_byzantine": min(tolerated, default=np.nan),
        "mean_summed": losses["mean_summed"],
        "median_seconds": losses["seconds"].get("median", np.nan),
    }
