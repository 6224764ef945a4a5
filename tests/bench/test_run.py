"""Topics run: a wrong result or a broken peer fails its case alone, a missing peer is left out."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np
import pytest

from mrsa_jax import bench
from mrsa_jax.bench import _harness, _random_clients, _rank, _rounds, _run, _selection
from mrsa_jax.cli import main
from mrsa_watch._base.errors import ConfigurationError


def _measure() -> bench.Measurement:
    return _harness.compare(lambda: 1, lambda: 1, work=1.0, unit="x", repeats=1)


def _wrong() -> bench.Measurement:
    raise _harness.ResultsDifferError("1 is not 2")


def _broken() -> bench.Measurement:
    raise _run.PeerError("ended with 1")


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        _harness.Case("good", _measure),
        _harness.Case("wrong", _wrong),
        _harness.Case("broken", _broken, "pfl"),
        _harness.Case("absent", _measure, "flower"),
        _harness.Case("last", _measure),
    ]
    monkeypatch.setattr(_run, "cases_of", lambda topic, quick: found)
    here = {"pfl": pathlib.Path("python"), "flower": None}
    monkeypatch.setattr(_run, "python_of", here.get)


@pytest.mark.parametrize(("given", "near"), [("rnak", "rank"), ("secag", "secagg")])
def test_a_misspelt_topic(given: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"`topics` must be .*'{near}'\?.*'{given}'"):
        bench.run([given])


@pytest.mark.usefixtures("cases")
def test_one_failure_ends_nothing() -> None:
    stages, steps = [], []

    class Watch:
        def stage(self, name: str, total: int) -> None:
            stages.append((name, total))

        def update(self, done: int, total: int) -> None:
            steps.append(done)

    report = bench.run(["rank"], peers=True, watch=Watch())
    named = [(item.benchmark, item.case) for item in report.measurements]
    assert named == [("rank", "good"), ("rank", "last")]
    reasons = [(failure.case, failure.reason) for failure in report.failures]
    assert reasons == [("wrong", "1 is not 2"), ("broken", "ended with 1")]
    assert {name: each.cases for name, each in report.left_out.items()} == {"flower": ("absent",)}
    assert report.left_out["flower"].why == "beside Flower"
    assert (stages, steps) == ([("rank", 5)], [1, 2, 3, 4, 5])
    content = report.as_json()
    assert content["left_out"]["flower"]["cases"] == ("absent",)
    assert len(content["measurements"]) == 2
    assert content["measurements"][0]["machine"]["processor"]


@pytest.mark.usefixtures("cases")
def test_without_peers_only_what_needs_none() -> None:
    report = bench.run(["rank"])
    assert [item.case for item in report.measurements] == ["good", "last"]
    assert [failure.case for failure in report.failures] == ["wrong"]
    assert report.left_out == {}


def test_topics_once_each_and_all_by_default() -> None:
    assert bench.check_topics(["rank", "pads", "rank"]) == ("rank", "pads")
    assert bench.check_topics([]) == tuple(bench.TOPICS)


@pytest.mark.parametrize("topic", bench.TOPICS)
def test_cases_of_every_topic(topic: str) -> None:
    for quick in (True, False):
        found = _run.cases_of(topic, quick=quick)
        names = [case.name for case in found]
        assert len(set(names)) == len(names) > 0
        assert {case.needs for case in found} - {None} == set(bench.TOPICS[topic].peers)


# --- the peers that are written here are right --------------------------------------------------


def test_histories_of_whole_blocks() -> None:
    histories = _rank._histories(3, 12, 6, 3, 0)
    assert histories.shape == (3, 12, 12)
    np.testing.assert_array_equal(histories.sum(axis=2), 6)
    by_block = histories.reshape(3, 12, 4, 3)
    np.testing.assert_array_equal(by_block.all(axis=3), by_block.any(axis=3))
    rounds = _rank._dependent(2, 12, 6)
    assert np.linalg.matrix_rank(rounds.astype(float)).max() < 12


@pytest.mark.parametrize("size", [3, 12])
def test_the_numpy_loop_selects_whole_blocks_of_available_clients(size: int) -> None:
    history = _selection._numpy_rollouts(
        _selection._numpy_blocks(size, "least_used"), np.full(120, 0.1), 1, 40
    )
    assert set(history.sum(axis=2).ravel().tolist()) <= {0, 12}
    blocks = history.reshape(1, 40, -1, size)
    np.testing.assert_array_equal(blocks.all(axis=3), blocks.any(axis=3))


def test_rounds_take_every_sample_of_each_client_once() -> None:
    clients = _random_clients.random_clients((28, 28, 1), 3, 60)
    order = _rounds._order(clients, 2)
    np.testing.assert_array_equal(np.sort(order, axis=2), np.stack([clients.indices] * 2))
    assert (order[0] != order[1]).any()


def test_a_wrong_result_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong() -> bench.Measurement:
        return _harness.compare(
            lambda: 1, lambda: 2, work=1.0, unit="x",
            check=lambda ours, theirs: pytest.fail("unreached") if ours == theirs else _differ(),
        )  # fmt: skip

    def _differ() -> None:
        raise AssertionError("1 is not 2")

    # what the command sets for JAX is taken back
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", os.environ.get("JAX_NUM_CPU_DEVICES", "1"))
    monkeypatch.setattr(_run, "cases_of", lambda topic, quick: [_harness.Case("one", wrong)])
    assert main(["bench", "rank"]) == 1
    assert "wrong: rank, one: 1 is not 2" in " ".join(capsys.readouterr().err.split())
    assert main(["bench", "rank", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["failures"] == [{"benchmark": "rank", "case": "one", "reason": "1 is not 2"}]
