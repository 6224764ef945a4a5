"""Recompute points of stored cards here, and print the fields that differ as JSON.

A program of its own, as libraries read some settings when they start. It prints a list
of differences, and how many points agreed.
"""

from __future__ import annotations

import json
import pathlib
import sys

from mrsa_jax._core.floats import usual_floats
from mrsa_jax.study.suite import _verify, load_version, read_card

CARDS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks/results/suite/v1"


@usual_floats
def differences(schemes: list[str], seed: int) -> dict[str, object]:
    """Recompute one seed of every scenario of some cards."""
    found, count = [], 0
    for scheme in schemes:
        card = read_card(CARDS / f"{scheme}.json")
        version = load_version(card["suite"])
        for name, entry in card["scenarios"].items():
            if "problem" not in entry:
                found += map(str, _verify._recomputed(card, version, name, seed))
                count += 1
    return {"differences": found, "points": count}


if __name__ == "__main__":
    json.dump(differences(sys.argv[2:], int(sys.argv[1])), sys.stdout)
