"""Points of a sweep over attacks: the rows of each attack's summary."""

from __future__ import annotations

import json
import math
import pathlib
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax.study import _attack_config as setting
from mrsa_jax.study._config import studied
from mrsa_jax.study._load import to_dict
from mrsa_jax.study._progress import Silent
from mrsa_jax.study._runner import Machine, Variable, variable
from mrsa_jax.study.attack._findings import AttackFindings
from mrsa_jax.study.attack._memory import attack_bytes
from mrsa_jax.study.attack._run import attack

__all__ = ["coordinates", "group_of", "memory_bytes", "run", "sizes", "together", "variables"]

_LABEL_LENGTH = 48


class _Summary(NamedTuple):
    """What an attack's summary holds."""

    labels: tuple[str, ...]  # columns that name a row
    rows: Callable[[Any], int]
    numbers: dict[str, str]  # other columns, with their units


def _num_histories(config: Any) -> int:
    own = config.aggregates is None and getattr(config, "run", None) is None
    return len(config.schemes) if own else 1


_SUMMARIES: dict[type, _Summary] = {
    setting.LeastSquaresConfig: _Summary(
        ("scheme",),
        _num_histories,
        {
            "sums": "rounds",
            "clients": "clients",
            "strong_T": "clients",
            "exposed": "clients",
            "predicted_error": "1",
            "mean_error": "1",
            "median_error": "1",
            "recovered": "clients",
            "change": "1",
        },
    ),
    setting.DisaggregationConfig: _Summary(
        ("scheme",),
        _num_histories,
        {
            "sums": "rounds",
            "clients": "clients",
            "rank": "1",
            "explained": "clients",
            "shared": "clients",
            "columns_right": "clients",
            "mean_error": "1",
            "recovered": "clients",
        },
    ),
    setting.GradientsConfig: _Summary(
        ("seen",),
        lambda config: len(config.seen),
        {
            "images": "images",
            "psnr_db": "dB",
            "best_psnr_db": "dB",
            "ssim": "1",
            "mse": "1",
            "distance": "1",
            "restarts": "1",
        },
    ),
    setting.ModelInversionConfig: _Summary(
        ("seen",),
        lambda config: len(config.seen),
        {
            "classes": "classes",
            "identified": "classes",
            "by_chance": "classes",
            "confidence": "1",
            "likeness": "1",
        },
    ),
    setting.MembershipConfig: _Summary(
        ("method", "seen"),
        lambda config: len(config.methods) * len(config.seen),
        {
            "accuracy": "1",
            "plus_minus": "1",
            "precision": "1",
            "recall": "1",
            "auc": "1",
            "tpr_at_0.1%": "1",
            "tpr_at_1%": "1",
        },
    ),
    setting.InconsistencyConfig: _Summary(
        ("pads",),
        lambda config: len(config.pads),
        {"clients": "clients", "error": "1", "recovered": "1"},
    ),
}


def group_of(config: setting.AttackSettings) -> Hashable:
    """Return all settings but the seed: what is a number of a program differs between attacks."""
    content = studied(to_dict(config))
    return json.dumps({name: value for name, value in content.items() if name != "seed"})


def sizes(configs: Sequence[setting.AttackSettings]) -> dict[str, int]:
    """Return the most rows of a summary."""
    return {"row": max(_SUMMARIES[type(config)].rows(config) for config in configs)}


def coordinates(configs: Sequence[setting.AttackSettings]) -> dict[str, Any]:
    """Return the rows' numbers; `label` says what each is of."""
    return {"row": np.arange(sizes(configs)["row"])}


def variables(configs: Sequence[setting.AttackSettings], trajectories: bool) -> dict[str, Variable]:
    """Return the summary's columns."""
    summary = _SUMMARIES[type(configs[0])]
    label = Variable(("row",), f"<U{_LABEL_LENGTH}", "", "1", "What the row is of")
    numbers = {
        name: variable(("row",), "float64", units, f"{name.replace('_', ' ')} of the row")
        for name, units in summary.numbers.items()
    }
    return {"label": label} | numbers


def together(config: setting.AttackSettings, machine: Machine) -> int:
    """Return 1: an attack fills the machine."""
    return 1


def memory_bytes(config: setting.AttackSettings, machine: Machine, count: int) -> int:
    """Return about what an attack needs, its programs and libraries among it."""
    return count * attack_bytes(config)


def run(
    configs: Sequence[setting.AttackSettings], machine: Machine, trajectories: bool, together: int
) -> Iterator[dict[str, np.ndarray]]:
    """Run each attack and give its summary."""
    for config in configs:
        with tempfile.TemporaryDirectory() as folder:
            found = AttackFindings(pathlib.Path(folder))
            attack(config, found, Silent())
        # one that has no summary has a single row for each thing attacked
        yield _columns(_SUMMARIES[type(config)], found.summary or found.scores)


def _columns(summary: _Summary, rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    labels = [", ".join(str(row[key]) for key in summary.labels) for row in rows]
    found = {"label": np.asarray([label[:_LABEL_LENGTH] for label in labels])}
    for name in summary.numbers:
        values = [row.get(name) for row in rows]
        found[name] = np.asarray([math.nan if v is None else float(v) for v in values])
    return found
