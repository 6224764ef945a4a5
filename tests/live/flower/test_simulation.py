"""`flwr run`, its simulation on ray, and clients that crash.

The log is what they wrote down.
"""

from __future__ import annotations

import collections
import importlib.util
import json
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import launch
import numpy as np
import pytest
from network import lines, weights

import mrsa_jax as mj
from mrsa_jax.privacy._weak import WeakPrivacy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not importlib.util.find_spec("ray"), reason="Flower's simulation needs ray"
    ),
]
HERE = pathlib.Path(__file__).parent
SIZE, MAX_WEIGHT = 4, 10.0
PROJECT = """
[project]
name = "lossy"
version = "1.0.0"
description = "clients that crash"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "simulation:server"
clientapp = "simulation:client"

[tool.flwr.app.config]
folder = ""
settings = ""
"""
RAY = "client-resources-num-cpus=1 init-args-num-cpus=2 init-args-log-to-driver=false"


class Run(NamedTuple):
    """Lines of the log and the truth, in numbers of clients."""

    lines: list[Any]
    client: dict[str, int]
    lost: dict[tuple[int, str], set[int]]
    means: dict[int, np.ndarray]

    def participation(self, num_clients: int) -> np.ndarray:
        rows = [line.clients for line in self.lines if line.clients]
        matrix = np.zeros((len(rows), num_clients), np.bool_)
        for row, names in enumerate(rows):
            matrix[row, [self.client[name] for name in names]] = True
        return matrix


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the variables of commands that share a link."""
    home = tmp_path_factory.mktemp("link")
    found = launch.environment(pathlib.Path(sys.executable).parent, home) | {
        "JAX_PLATFORMS": "cpu"
    }
    (home / "app").mkdir()
    (home / "app" / "pyproject.toml").write_text(PROJECT)
    shutil.copy(HERE / "simulation.py", home / "app")
    with launch.link(found, "simulated", "--simulation"):
        yield found


def _simulate(link: dict[str, str], folder: pathlib.Path, **settings: Any) -> Run:
    folder.mkdir()
    config = f"folder='{folder}' settings='{json.dumps(settings)}'"
    where = f"num-supernodes={settings['clients']} {RAY}"
    command = (
        f'flwr run app --stream --run-config "$CONFIG" --federation-config "{where}"'
    )
    said = launch.run(command, {**link, "CONFIG": config}, pathlib.Path(link["HOME"]))
    assert (folder / "found.npz").exists(), said[-3000:]
    assert "deprecat" not in said.lower()
    client = {
        path.name.split()[1]: int(path.read_text()) for path in folder.glob("node *")
    }
    lost = collections.defaultdict(set)
    for path in folder.glob("lost *"):
        _, number, stage, who = path.name.split()
        lost[int(number), stage].add(int(who))
    with np.load(folder / "found.npz") as found:
        means = {int(number): found[number] for number in found}
    return Run(lines(folder / "log.jsonl"), client, lost, means)


def _mean(number: int, clients: list[int]) -> np.ndarray:
    values = [
        np.random.default_rng([number, who]).uniform(-1, 1, SIZE) for who in clients
    ]
    return np.average(values, axis=0, weights=[who % 4 + 1 for who in clients])


def _check(run: Run, num_rounds: int, stages: tuple[str, ...], atol: float) -> None:
    assert [line.round for line in run.lines] == list(range(1, num_rounds + 1))
    for line in run.lines:
        for stage in stages:
            found = {run.client[name] for name in line.lost.get(stage, ())}
            assert found == run.lost.get((line.round, stage), set()), (
                line.round,
                stage,
            )
        assert (line.status == "learnt") == (line.round in run.means)
        factors = {
            run.client[str(node)]: weight for node, weight in weights(line).items()
        }
        assert factors == {who: who % 4 + 1 for who in factors}
        if factors:
            mean = _mean(line.round, [*factors])
            np.testing.assert_allclose(run.means[line.round], mean, atol=atol)


def test_plain_averaging(link: dict[str, str], tmp_path: pathlib.Path) -> None:
    run = _simulate(
        link,
        tmp_path / "run",
        clients=14,
        rounds=8,
        seed=1,
        chance=0.2,
        workflow="plain",
    )
    _check(run, 8, ("train",), 1e-12)
    assert len(run.means) == 8
    everybody = set(range(14))
    for line in run.lines:
        inside = {run.client[name] for name in line.clients}
        assert inside == everybody - run.lost.get((line.round, "train"), set())


def test_secagg_plus(link: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Every stage loses clients, and every round is learnt all the same."""
    run = _simulate(
        link,
        tmp_path / "run",
        clients=14,
        rounds=8,
        seed=2,
        chance=0.2,
        workflow="ignore",
    )
    stages = ("setup", "share_keys", "upload", "unmask")
    # a level of quantization a client, over weights of at least 1 of 10 in all
    _check(run, 8, stages, 14 * 18 / 2**22 / (10 / MAX_WEIGHT))
    assert len(run.means) == 8
    everybody = set(range(14))
    for line in run.lines:
        gone = set().union(
            *(run.lost.get((line.round, stage), set()) for stage in stages[:3])
        )
        assert {run.client[name] for name in line.clients} == everybody - gone
    told = {
        stage: sum(len(run.lost.get((number, stage), ())) for number in range(1, 9))
        for stage in stages
    }
    assert all(told.values())


def test_selection_keeps_t_at_a_fifth_lost(
    link: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """Blocks of three.

    Flower's workflow, given the same cohorts and losses, parts their members.
    Few of its rounds are learnt, so that weak T may happen to be large: strong T says
    it.
    """
    settings = {
        "clients": 18,
        "cohort": 12,
        "scheme": "batch_partitioning:3",
        "rounds": 30,
        "seed": 4,
        "chance": 0.2,
    }
    found: dict[str, WeakPrivacy] = {}
    for workflow in ("drop_block", "stock"):
        run = _simulate(link, tmp_path / workflow, workflow=workflow, **settings)
        rows = run.participation(18)
        found[workflow] = mj.privacy.weak_privacy(rows)
    assert found["drop_block"].certified
    assert found["drop_block"].lower >= 3
    assert found["drop_block"].strong == 3
    assert found["stock"].strong == 1
