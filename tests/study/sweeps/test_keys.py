"""What a point is found by, and golden points whose results may change only with its number."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, get_args

import jax
import numpy as np
import pytest

from mrsa_jax.data import Dataset
from mrsa_jax.study import sweeps
from mrsa_jax.study.kinds import KINDS
from mrsa_jax.study.runs import _build
from mrsa_jax.study.runs._build import build_clients, build_online, clip_rule
from mrsa_jax.study.settings._config import PopulationConfig
from mrsa_jax.study.settings._tables import AggregationConfig, ClipRuleName
from mrsa_jax.study.settings._training_tables import (
    PARTITIONS,
    DataConfig,
    TrainingConfig,
)
from mrsa_jax.study.stores import _sources
from mrsa_jax.study.stores._view import CELL
from mrsa_jax.study.sweeps import Machine, _keys, parse_sweep
from mrsa_jax.study.sweeps._axes import Axis
from mrsa_jax.study.sweeps._engine import computed
from mrsa_jax.study.sweeps._keys import UNREAD, Identities, as_read

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
    keys = {
        key_of(**{"scheme": "uniform"} | {name: value})
        for name, value in others.items()
    }
    assert len(keys | {known}) == 5


def test_equal_numbers_give_one_key() -> None:
    keys = set()
    for rate in (0.0, -0.0):
        own = dataclasses.replace(
            SIMULATE.settings().population, dropout_rates=(rate, 1.0)
        )
        keys.add(key_of(scheme="uniform", population=own))
    assert len(keys) == 1
    assert _keys._digest({"a": [1.0, 0.1]}) == _keys._digest({"a": [1, 0.1]})
    assert _keys._digest({"a": 1e17}) == _keys._digest({"a": 10**17})


def test_none_where_it_is_not_usual_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _keys._less({}, {"a": 1}) == {"a": None}
    assert _keys._less(
        {"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}
    ) == {"b": {"d": 3}}
    known = key_of(scheme="uniform")
    monkeypatch.setitem(_keys.COMPUTES_ALIKE, "simulate", ("a change",))
    assert key_of(scheme="uniform") != known


CHANGED = {
    "shards_per_client": 3,
    "single_label": False,
    "shared_size": 40,
    "balanced": False,
    "concentration": 5.0,
}


@pytest.mark.parametrize("partition", list(PARTITIONS))
def test_partitions_read_what_is_said_and_nothing_else(
    partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def split(own: DataConfig) -> list[Any]:
        _, clients = build_clients(0, own, 5)
        return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(clients)]

    labels, images = np.arange(600) % 7 % 5, np.zeros((600, 1, 1, 1), np.float32)
    both = images, labels.astype(np.int32)
    toy = Dataset("toy", *both, *both, 5)
    monkeypatch.setattr(_build, "load_data", lambda *given: toy)
    plain = DataConfig(partition=partition, shared_size=20)
    unread = set(UNREAD[DataConfig](plain))
    for name, value in CHANGED.items():
        own = dataclasses.replace(plain, **{name: value})
        assert (split(own) == split(plain)) == (name in unread), name
        assert (as_read(own) == as_read(plain)) == (name in unread), name


@pytest.mark.parametrize("rates", [(0.3,), (0.1, 0.4)])
@pytest.mark.parametrize(
    "model", ["independent", "markov:3", "cyclic", "diurnal:0.2:4", "replay:"]
)
def test_availability_reads_what_is_said_and_nothing_else(
    model: str, rates: tuple[float, ...], tmp_path: pathlib.Path
) -> None:
    def built(own: PopulationConfig) -> list[Any]:
        return [
            np.asarray(leaf).tolist() for leaf in jax.tree.leaves(build_online(0, own))
        ]

    if model == "replay:":
        np.save(tmp_path / "t.npy", np.arange(24).reshape(4, 6) % 5 > 0)
        model += str(tmp_path / "t.npy")
    elif model.startswith("diurnal"):
        rates = rates[-1:]
    plain = PopulationConfig(6, 3, rates, availability=model)
    unread = set(UNREAD[PopulationConfig](plain))
    for name, value in {
        "dropout_rates": (0.2, *rates[1:]),
        "assignment": "sorted",
    }.items():
        own = dataclasses.replace(plain, **{name: value})
        assert (built(own) == built(plain)) == (name in unread), name
        assert (as_read(own) == as_read(plain)) == (name in unread), name
    by_label = dataclasses.replace(plain, assignment="by_label")
    assert as_read(by_label).assignment == "by_label"


def test_clip_rules_and_noise_read_what_is_said() -> None:
    assert set(UNREAD[AggregationConfig](AggregationConfig())) == {
        "clip_multiplier",
        "clip_floor",
        "noise",
        "target_delta",
    }
    moving = AggregationConfig(
        clip_rule="last_max", clip_multiplier=2.0, noise="discrete_gaussian"
    )
    assert as_read(moving) == dataclasses.replace(moving, noise="skellam")
    for rule in get_args(ClipRuleName):
        own = [
            clip_rule(AggregationConfig(clip_rule=rule, clip_multiplier=m))
            for m in (2.0, 3.0)
        ]
        assert (own[0] == own[1]) == (rule == "fixed")
    noisy = AggregationConfig(
        noise_multiplier=1.0, clip_norm=1.0, noise="discrete_gaussian"
    )
    assert as_read(noisy) == noisy
    decays = TrainingConfig(decay_rounds=(3,), decay_factor=0.5)
    assert as_read(decays) == decays
    assert as_read(TrainingConfig(decay_factor=0.5)) == TrainingConfig()


def test_what_nothing_reads_multiplies_no_points() -> None:
    sweep = parse_sweep("""
command = "train"
[grid]
scheme = ["uniform", "batch_partitioning"]
privacy_target = [2, 4]
data.partition = ["iid", "dirichlet"]
data.concentration = [0.5, 2.0, 8.0]
""")
    known = Identities(sweep.kind)
    keys = np.array([known.of(point.config).key for point in sweep.points()]).reshape(
        2, 2, 2, 3
    )
    assert len(np.unique(keys)) == 12
    assert (keys[:, :, 0] == keys[:, :, 0, :1]).all()
    assert (keys[0, 0] == keys[0, 1]).all()


def test_axes_that_change_nothing_are_named() -> None:
    sweep = parse_sweep("""
skip_impossible = true
[grid]
scheme = ["uniform", "batch_partitioning"]
privacy_target = [2, 4]
population.dropout_rates = [[0.1], [0.2, 0.3]]
population.assignment = ["shuffled", "sorted", "by_label"]
""")
    known, cells = Identities(sweep.kind), np.zeros(sweep.size, CELL)
    for number, point in enumerate(sweep.points()):
        if not point.problem:  # of labels a simulation knows nothing
            cells[number]["key"] = known.of(point.config).key
    nothing = sweeps.Plan(sweep, Machine(), cells, {}, {}, (), (), {}, {}, 0)
    assert nothing.unread() == [
        "privacy_target changes nothing in 8 of 24 cells: scheme = Random, "
        "assignment = shuffled or sorted"
    ]
    fewer = Axis("a", ("population.assignment",), (("shuffled",), ("sorted",)))
    two = dataclasses.replace(sweep, axes=(*sweep.axes[:3], fewer))
    cells = cells.reshape(sweep.shape)[..., :2].ravel()
    both = dataclasses.replace(nothing, sweep=two, cells=cells).unread()
    assert both == [
        "privacy_target changes nothing in 8 of 16 cells: scheme = Random",
        "a changes nothing in 8 of 16 cells: dropout_rates = 0.1",
    ]


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
        plan.identities[number].key: {
            name: own.tolist() for name, own in values.items()
        }
        for task in plan.tasks()
        for number, values in zip(task.numbers, computed(plan, task), strict=True)
    }


@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_golden_points(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a result has changed.

    Say so in `COMPUTES_ALIKE`, then make the file anew.
    It is made by running this file.
    """
    # whose results are the same
    monkeypatch.setattr(_sources, "library_versions", dict)
    golden = json.loads(GOLDEN.read_text())
    assert golden["changes"] == {
        kind: len(own) for kind, own in _keys.COMPUTES_ALIKE.items()
    }
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
    _sources.library_versions = dict
    GOLDEN.write_text(
        json.dumps(
            {
                "changes": {
                    kind: len(own) for kind, own in _keys.COMPUTES_ALIKE.items()
                },
                "points": {name: found(text) for name, text in STUDIES.items()},
            }
        )
        + "\n"
    )
