"""Topics run: a wrong result or a broken peer fails its case alone, a missing peer is left out."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np
import pytest

from benchmarks import rivals
from benchmarks.topics import averaging, failures
from mrsa_jax import bench
from mrsa_jax.bench import _run, harness, rank, selection, training
from mrsa_jax.cli import main
from mrsa_watch._base.errors import ConfigurationError


def _measure() -> harness.Measurement:
    return harness.compare(lambda: 1, lambda: 1, work=1.0, unit="x", repeats=1)


def _wrong() -> harness.Measurement:
    raise harness.ResultsDifferError("1 is not 2")


def _broken() -> harness.Measurement:
    raise harness.PeerError("ended with 1")


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        harness.Case("good", _measure),
        harness.Case("wrong", _wrong),
        harness.Case("broken", _broken, "pfl"),
        harness.Case("absent", _measure, "flower"),
        harness.Case("last", _measure),
    ]
    monkeypatch.setattr(_run, "cases_of", lambda topic, quick: found)
    here = {"pfl": pathlib.Path("python"), "flower": None}
    monkeypatch.setattr(
        rivals.System, "python", property(lambda system: here[system.name])
    )


@pytest.mark.parametrize(("given", "near"), [("rnak", "rank"), ("rond", "round")])
def test_a_misspelt_topic(given: str, near: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"`topics` must be .*'{near}'\?.*'{given}'"
    ):
        bench.run([given])


@pytest.mark.usefixtures("cases")
def test_one_failure_ends_nothing() -> None:
    stages, steps = [], []

    class Watch:
        def stage(self, name: str, total: int) -> None:
            stages.append((name, total))

        def update(self, done: int, total: int) -> None:
            steps.append(done)

    report = bench.run(["averaging"], peers=True, watch=Watch())
    named = [(item.benchmark, item.case) for item in report.measurements]
    assert named == [("averaging", "good"), ("averaging", "last")]
    reasons = [(failure.case, failure.reason) for failure in report.failures]
    assert reasons == [("wrong", "1 is not 2"), ("broken", "ended with 1")]
    assert {name: each.cases for name, each in report.left_out.items()} == {
        "flower": ("absent",)
    }
    assert report.left_out["flower"].why == "against Flower"
    assert (stages, steps) == ([("averaging", 5)], [1, 2, 3, 4, 5])
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


# ---- the peers that are written here are right


def test_histories_of_whole_blocks() -> None:
    histories = rank._histories(3, 12, 6, 3, 0)
    assert histories.shape == (3, 12, 12)
    np.testing.assert_array_equal(histories.sum(axis=2), 6)
    by_block = histories.reshape(3, 12, 4, 3)
    np.testing.assert_array_equal(by_block.all(axis=3), by_block.any(axis=3))
    rounds = rank._dependent(2, 12, 6)
    assert np.linalg.matrix_rank(rounds.astype(float)).max() < 12


@pytest.mark.smoke("3")
@pytest.mark.parametrize("size", [3, 12])
def test_the_numpy_peer_selects_whole_blocks_of_available_clients(size: int) -> None:
    peer = selection.NumPySelection(120, 12, size, "least_used")
    history = peer.rollouts(np.where(np.arange(120) < 12, 1.0, 0.1), 2, 40)
    assert set(history.sum(axis=2).ravel().tolist()) <= {0, 12}
    assert history.any()
    assert not history[:, :, :12].any()  # never online
    blocks = history.reshape(2, 40, -1, size)
    np.testing.assert_array_equal(blocks.all(axis=3), blocks.any(axis=3))


def test_the_numpy_peer_takes_the_least_used_first() -> None:
    for order, size in (("greedy", 1), ("least_used", 12)):
        history = selection.NumPySelection(120, 12, size, order).rollouts(
            np.zeros(120), 3, 20
        )
        assert (history.sum(axis=1) == 2).all()  # 20 rounds of 12 are two turns of 120


@pytest.mark.parametrize("law", ["rare", "normal", "heavy"])
def test_equal_samples_give_no_alarm_and_unequal_ones_do(law: str) -> None:
    """Chances below q come at most that often among equal samples, whatever their law."""
    draw = {
        "rare": lambda rng, size: (rng.random(size) < 0.008) * 1e-3 + 2e-3,
        "normal": lambda rng, size: rng.normal(size=size),
        "heavy": lambda rng, size: rng.exponential(size=size) ** 3,
    }[law]
    rng = np.random.default_rng(0)
    chances = []
    for _ in range(100):
        sizes = rng.integers(20, 200, 2)
        chances.append(selection.chance_of_means(*(draw(rng, size) for size in sizes)))
    assert np.mean(np.less(chances, 0.1)) < 0.1
    assert min(chances) > 1e-3
    a, b = draw(rng, 250), draw(rng, 1_000)
    assert selection.chance_of_means(a, b + 1.5 * b.std()) < selection.FALSE_ALARM


def test_a_gap_that_one_sample_lacks_is_no_difference() -> None:
    """F of weighted random.

    2.0e-03 in all of our trials, 2.008e-03 on average in the peer's.
    """
    ours = np.zeros((100, 1_000, 4), bool)
    ours[:, :2, 0] = True
    theirs = np.repeat(ours, [2] * 50 + [3] * 50, axis=0)
    theirs[0, 2, 0] = theirs[9, 2, 0] = True
    selection._same_statistics(ours, theirs)
    theirs[:, 2, 0] = True
    with pytest.raises(harness.ResultsDifferError, match="F and C differ"):
        selection._same_statistics(ours, theirs)


def test_cases_are_kept_as_they_are_measured() -> None:
    kept: list[dict[str, object]] = []
    sizes = {"n": ["8", "9"], "cohort-size": ["4"], "trials": ["3"]}
    report = bench.run(["rank"], sizes=sizes, keep=kept.append)
    assert kept == report.rows()
    assert len(kept) == 2


def test_the_numpy_peer_judges_rounds_as_the_theorems_do() -> None:
    # nobody leaves: every round is reliable with t = 1, none with more shares than
    # clients
    everyone = failures._peer(0, 12, 1.0, 0.0, 1, 70)
    assert everyone.tolist() == [0, 0, 0]
    assert failures._peer(0, 12, 1.0, 0.0, 13, 70).tolist() == [70, 0, 0]
    # without edges each client is a component of its own, and t = 1 gives each away
    assert failures._peer(0, 12, 0.0, 0.0, 1, 70).tolist() == [0, 70, 70]
    assert failures._peer(0, 12, 0.0, 0.0, 2, 70).tolist() == [70, 0, 70]


def test_ranks_by_eigenvalues_are_those_by_singular_values() -> None:
    histories = np.concatenate(
        [rank._histories(9, 24, 6, 1, 0), rank._dependent(4, 24, 6)]
    )
    expected = np.linalg.matrix_rank(histories.astype(float))
    np.testing.assert_array_equal(rank.float_ranks(histories), expected)
    assert (expected < 24).any()


def test_rounds_take_every_sample_of_each_client_once() -> None:
    clients = training.random_clients((28, 28, 1), 3, 60)
    order = averaging._order(clients, 2)
    np.testing.assert_array_equal(
        np.sort(order, axis=2), np.stack([clients.indices] * 2)
    )
    assert (order[0] != order[1]).any()


def test_a_wrong_result_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong() -> harness.Measurement:
        return harness.compare(
            lambda: 1,
            lambda: 2,
            work=1.0,
            unit="x",
            check=lambda ours, theirs: (
                pytest.fail("unreached") if ours == theirs else _differ()
            ),
        )

    def _differ() -> None:
        raise AssertionError("1 is not 2")

    # what the command sets for JAX is taken back
    monkeypatch.setenv(
        "JAX_NUM_CPU_DEVICES", os.environ.get("JAX_NUM_CPU_DEVICES", "1")
    )
    monkeypatch.setattr(
        _run, "cases_of", lambda topic, quick: [harness.Case("one", wrong)]
    )
    assert main(["bench", "rank"]) == 1
    assert "wrong: rank, one: 1 is not 2" in " ".join(capsys.readouterr().err.split())
    assert main(["bench", "rank", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["failures"] == [
        {"benchmark": "rank", "case": "one", "reason": "1 is not 2"}
    ]
