"""By how much two machines may differ in a point that both have, from both sides."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from mrsa_jax.study.kinds import KINDS
from mrsa_jax.study.runs import _simulate_points, _train_points
from mrsa_jax.study.runs._measured import OF_DRIFT
from mrsa_jax.study.settings._config import SimulateConfig, TrainConfig
from mrsa_jax.study.stores._records import Record
from mrsa_jax.study.stores._runner import TRAJECTORIES
from mrsa_jax.study.sweeps._merge import _differing

TRAIN = _train_points.variables([TrainConfig()], (TRAJECTORIES,))
SIMULATE = _simulate_points.variables([SimulateConfig()], ())


class Held(Record):
    """A record of one trial with one variable, in no file."""

    own: dict[str, np.ndarray]

    def values(self, names: Any = None) -> dict[str, np.ndarray]:
        return self.own


def held(name: str, value: np.ndarray) -> Record:
    record = Held("", "", 0, 1, frozenset(), "{}", 0.0, pathlib.Path(), 0, 0)
    object.__setattr__(record, "own", {name: value})
    return record


def differs(kind: str, name: str, one: Any, other: Any) -> bool:
    variables = TRAIN if kind == "train" else SIMULATE
    shape = (1,) * len(variables[name].dims)
    a, b = (
        held(name, np.full(shape, own, variables[name].dtype)) for own in (one, other)
    )
    is_trained = getattr(KINDS[kind].runner(), "is_trained", lambda name: False)
    return bool(list(_differing(variables, (a, b), 0, 1, is_trained)))


def test_integers_are_compared_to_the_bit_in_trainings_too() -> None:
    for kind, name in (
        ("train", "diverged_round"),
        ("train", "rank"),
        ("simulate", "rank"),
    ):
        assert not differs(kind, name, 40, 40)
        assert differs(kind, name, 40, 41)


def test_a_quotient_in_single_precision_is_rounded_once() -> None:
    for own in (1 / 3, 0.5, 11.7):
        near = np.nextafter(np.float32(own), np.float32(np.inf))
        assert not differs("simulate", "aggregation_cardinality", own, near)
        assert not differs("simulate", "aggregation_cardinality", near, own)
        beyond = np.nextafter(
            np.nextafter(near, np.float32(np.inf)), np.float32(np.inf)
        )
        assert differs("simulate", "aggregation_cardinality", own, beyond)
        assert differs("train", "fairness_gap", own, beyond)


def test_double_precision_keeps_nine_digits() -> None:
    for kind in ("simulate", "train"):
        assert not differs(kind, "hidden_among_worst", 7.0, 7.0 * (1 + 5e-10))
        assert differs(kind, "hidden_among_worst", 7.0, 7.0 * (1 + 5e-9))


def test_trained_numbers_may_differ_as_machines_round_them() -> None:
    """What SSE and AVX2 gave of one training (digits, 60 rounds of the CNN) agrees."""
    seen = {
        "accuracy": (0.5333, 0.4944),
        "loss": (0.2168, 0.2298),
        "update_spread": (1.31e-3, 1.29e-3),
    }
    for name, (one, other) in seen.items():
        assert not differs("train", name, one, other), name
    assert not differs("train", "accuracy_by_evaluation", *seen["accuracy"])
    for name, one, other in (
        ("accuracy", 0.9, 0.7),
        ("loss", 0.3, 0.5),
        ("loss", 0.3, np.nan),
    ):
        assert differs("train", name, one, other), name
    assert not differs("train", "loss", np.nan, np.nan)  # both have diverged


@pytest.mark.parametrize("name", [*_train_points._END, *OF_DRIFT])
def test_what_is_trained_is_known(name: str) -> None:
    assert _train_points.is_trained(name)


def test_accounts_and_histories_of_trainings_are_not_trained() -> None:
    exact = {"epsilon_worst", "planned_epsilon", "hidden_among_worst", "fairness_gap"}
    assert not any(map(_train_points.is_trained, exact))
    assert KINDS["attack least-squares"].runner().is_trained("error")
