"""What a point is found by, and golden points whose results may change only with its number."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from mrsa_jax.study import sweeps
from mrsa_jax.study._kinds import KINDS
from mrsa_jax.study.sweeps import Machine, _keys, parse_sweep
from mrsa_jax.study.sweeps._engine import computed
from mrsa_jax.study.sweeps._keys import Identities

GOLDEN = pathlib.Path(__file__).with_name("golden_points.json")
SIMULATE = KINDS["simulate"]


def key_of(kind: str = "simulate", **settings: Any) -> str:
    own = KINDS[kind]
    config = own.resolve(dataclasses.replace(own.settings(), **settings))
    return Identities(own).of(config).key


def test_what_is_shown_or_asked_for_is_no_part_of_a_key() -> None:
    known = key_of(scheme="uniform")
    assert len(known) == 64
    same = {"out": pathlib.Path("x"), "json": True, "overwrite": True, "trials": 7}
    for name, value in same.items():
        assert key_of(scheme="uniform", **{name: value}) == known, name
    others = {"rounds": 199, "seed": 1, "memory": 0.5, "scheme": "weighted"}
    keys = {key_of(**{"scheme": "uniform"} | {name: value}) for name, value in others.items()}
    assert len(keys | {known}) == 5


def test_equal_numbers_give_one_key() -> None:
    keys = set()
    for rate in (0.0, -0.0):
        own = dataclasses.replace(SIMULATE.settings().population, dropout_rates=(rate, 1.0))
        keys.add(key_of(scheme="uniform", population=own))
    assert len(keys) == 1
    assert _keys._digest({"a": [1.0, 0.1]}) == _keys._digest({"a": [1, 0.1]})
    assert _keys._digest({"a": 1e17}) == _keys._digest({"a": 10**17})


def test_none_where_it_is_not_usual_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _keys._less({}, {"a": 1}) == {"a": None}
    assert _keys._less({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}) == {
        "b": {"d": 3}
    }
    known = key_of(scheme="uniform")
    monkeypatch.setitem(_keys.COMPUTES_ALIKE, "simulate", ("a change",))
    assert key_of(scheme="uniform") != known


STUDIES = {
    "simulate": """
rounds = 14
trials = 3
keep = ["first_exposure", "skipped"]
[population]
num_clients = 12
cohort_size = 4
[grid]
scheme = ["uniform", "weighted", "partition", "batch_partitioning:2", "bernoulli:0.3"]
population.dropout_rates = [0.1, 0.4]
""",
    "losses": """
rounds = 9
trials = 2
[population]
num_clients = 12
cohort_size = 6
[protocol]
step_dropout_rate = 0.1
[grid]
scheme = ["uniform", "batch_partitioning:3"]
""",
    "secagg": """
command = "secagg"
trials = 200
num_clients = 10
graph = "erdos_renyi"
connection_probability = 0.6
[grid]
step_dropout_rate = [0.02, 0.1]
""",
    "train": """
command = "train"
rounds = 3
[population]
num_clients = 8
cohort_size = 4
[data]
dataset = "digits"
[training]
model = "logistic"
[grid]
scheme = ["uniform", "batch_partitioning:2"]
""",
}


def found(text: str) -> dict[str, Any]:
    """Compute points; by key what they have."""
    plan = sweeps.plan_sweep(parse_sweep(text), Machine(devices=1))
    return {
        plan.identities[number].key: {name: own.tolist() for name, own in values.items()}
        for task in plan.tasks()
        for number, values in zip(task.numbers, computed(plan, task), strict=True)
    }


@pytest.mark.parametrize("name", STUDIES)
def test_golden_points(name: str) -> None:
    """If this fails, a result has changed: say so in `COMPUTES_ALIKE`, then make the file anew.

    It is made by running this file.
    """
    golden = json.loads(GOLDEN.read_text())
    assert golden["changes"] == {kind: len(own) for kind, own in _keys.COMPUTES_ALIKE.items()}
    known, now = golden["points"][name], found(STUDIES[name])
    assert known.keys() == now.keys()
    exact = 1e-4 if name == "train" else 1e-9  # trainings differ between machines
    for key, values in known.items():
        assert values.keys() == now[key].keys()
        for one, value in values.items():
            value = np.asarray(np.nan if value is None else value, np.float64)
            own = np.asarray(now[key][one], np.float64)
            np.testing.assert_allclose(own, value, rtol=exact, atol=0, err_msg=one)


if __name__ == "__main__":
    GOLDEN.write_text(
        json.dumps(
            {
                "changes": {kind: len(own) for kind, own in _keys.COMPUTES_ALIKE.items()},
                "points": {name: found(text) for name, text in STUDIES.items()},
            }
        )
        + "\n"
    )
