"""Points of a sweep over attacks: the rows of each attack's summary."""

from __future__ import annotations

import json
import math
import pathlib
import tempfile
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mrsa_jax.study._attack_rows import AttackSettings
from mrsa_jax.study._config import studied
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._kinds import attack_of
from mrsa_jax.study._load import to_dict
from mrsa_jax.study._progress import Silent
from mrsa_jax.study._runner import Machine, Variable

_LABEL_LENGTH = 48
# columns of a summary that name a row
_LABELS = ("scheme", "updates", "whose", "method", "seen", "pads")


def _num_rows(config: Any) -> int:
    """Return how many things an attack is about: those of its settings that are lists of them."""
    if getattr(config, "aggregates", None) is not None or getattr(config, "run", None) is not None:
        return 1
    listed = ("schemes", "others", "clients", "methods", "seen", "pads")
    return math.prod(len(getattr(config, name)) for name in listed if hasattr(config, name))


def group_of(config: AttackSettings) -> Hashable:
    """Return all settings but the seed: what is a number of a program differs between attacks."""
    content = studied(to_dict(config))
    return json.dumps({name: value for name, value in content.items() if name != "seed"})


def sizes(configs: Sequence[AttackSettings]) -> dict[str, int]:
    """Return the most rows of a summary."""
    return {"row": max(map(_num_rows, configs))}


def variables(configs: Sequence[AttackSettings], kept: Collection[str]) -> dict[str, Variable]:
    """Return the summary's columns."""
    label = Variable(("row",), f"<U{_LABEL_LENGTH}", "1", "What the row is of")
    numbers = {
        name: Variable(("row",), "float64", units, f"{name.replace('_', ' ')} of the row")
        for name, units in attack_of(configs[0]).units.items()
    }
    return {"label": label} | numbers


def is_trained(name: str) -> bool:
    """Return True: what an attack finds follows from trained numbers, or from sums as rounded."""
    return True


def together(config: AttackSettings, machine: Machine) -> int:
    """Return 1: an attack fills the machine."""
    return 1


def memory_bytes(
    config: AttackSettings, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return about what an attack needs, its programs and libraries among it."""
    return count * attack_of(config).memory_bytes(config)


def run(
    configs: Sequence[AttackSettings], machine: Machine, kept: Collection[str], together: int
) -> Iterator[dict[str, np.ndarray]]:
    """Run each attack and give its summary."""
    for config in configs:
        with tempfile.TemporaryDirectory() as folder:
            found = AttackFindings(pathlib.Path(folder))
            attack_of(config).run(config, found, Silent())
        # one that has no summary has a single row for each thing attacked
        yield _columns(attack_of(config).units, found.summary or found.scores)


def _columns(names: Iterable[str], rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    labels = [", ".join(str(row[key]) for key in _LABELS if key in row) for row in rows]
    found = {"label": np.asarray([label[:_LABEL_LENGTH] for label in labels])}
    for name in names:
        values = [row.get(name) for row in rows]
        found[name] = np.asarray([math.nan if v is None else float(v) for v in values])
    return found
