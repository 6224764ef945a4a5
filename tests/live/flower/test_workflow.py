"""SecAgg+ whose losses are recorded.

The log is the injected truth, the sum the kept clients'.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from network import Losses, Network, lines, serve, sums, weights
from test_record import START, Fake, Keeps

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.live import Recorder, flower

NODES = range(201, 209)
STAGES = ("setup", "share_keys", "upload", "unmask")
MAX_WEIGHT = 10.0
LEVELS, CLIP = 2**22, 8.0


def tolerance(kept: dict[int, Any]) -> float:
    """Return what quantization may change of a mean.

    A level a client, and its rounded weight.
    """
    total = sum(float(weight) for weight in kept.values()) / MAX_WEIGHT
    return len(kept) * (2 * CLIP + 2) / LEVELS / total


@pytest.fixture
def recorder(tmp_path: pathlib.Path) -> Iterator[Recorder]:
    path = tmp_path / "log.jsonl"
    with Recorder(path, system="flower", aggregation="secagg+", salt=b"") as found:
        yield found


def _random_losses(num_rounds: int, chance: float, seed: int) -> Losses:
    draws = np.random.default_rng(seed)
    return {
        (number, stage): {node for node in NODES if draws.random() < chance}
        for number in range(1, num_rounds + 1)
        for stage in STAGES
    }


def _check_truth(
    network: Network, path: pathlib.Path, means: dict[int, np.ndarray]
) -> None:
    """Check every line against what the network saw, and every mean against its clients'."""
    found = lines(path)
    for line in found:
        for stage in STAGES:
            gone = network.lost.get((line.round, stage), set())
            assert {*map(int, line.lost.get(stage, ()))} == gone, (line.round, stage)
        asked = network.asked.get((line.round, "setup"), {})
        assert {*map(int, line.asked or ())} == asked.keys()
        kept = weights(line)
        assert (line.status == "learnt") == (line.round in means)
        if kept:
            error = np.abs(means[line.round] - network.mean(line.round, kept)).max()
            assert error <= tolerance(kept), line.round


def _check_no_node_gave_both_shares(network: Network) -> None:
    """Who has shares of a pad's key and of the own pad of one node can take its update."""
    for (_, stage), contents in network.asked.items():
        if stage == "unmask":
            alive, dead = set[int](), set[int]()
            for content in contents.values():
                record = content.config_records[RECORD_KEY_CONFIGS]
                alive |= set(record[Key.ACTIVE_NODE_ID_LIST])
                dead |= set(record[Key.DEAD_NODE_ID_LIST])
            assert alive
            assert not alive & dead


def test_a_strategy_that_records_nothing_is_told() -> None:
    with pytest.raises(
        ConfigurationError, match="`strategy` must be made by `record` or `select`"
    ):
        serve(
            Network(NODES),
            FedAvg(initial_parameters=START),
            flower.SecAggPlus(1.0, 0.5),
            1,
        )


@pytest.mark.long
def test_a_loss_at_each_stage(recorder: Recorder) -> None:
    everybody = set(NODES)
    losses: Losses = {(i, stage): {200 + i} for i, stage in enumerate(STAGES, 1)}
    inside, network = Keeps(recorder.path), Network(NODES, losses)
    network.examples = {node: node - 200 for node in NODES}
    serve(
        network,
        flower.record(inside, recorder),
        flower.SecAggPlus(1.0, 0.5, max_weight=MAX_WEIGHT),
        5,
    )
    assert sums(recorder.path) == [
        (1, "learnt", everybody - {201}, {"setup": {201}}),
        (2, "learnt", everybody - {202}, {"share_keys": {202}}),
        (3, "learnt", everybody - {203}, {"upload": {203}}),
        (4, "learnt", everybody, {"unmask": {204}}),
        (5, "learnt", everybody, {}),
    ]
    assert inside.held == {number: number for number in range(1, 6)}
    _check_truth(network, recorder.path, inside.means)


@pytest.mark.long
@pytest.mark.parametrize("num_shares", [1.0, 5])
def test_losses_at_all_stages_at_once(recorder: Recorder, num_shares: float) -> None:
    """Over the complete graph of pads, and over one in which a node has four neighbours."""
    num_rounds = 10
    network = Network(NODES, _random_losses(num_rounds, 0.06, 5))
    network.examples = {node: node % 5 + 1 for node in NODES}
    inside = Keeps(recorder.path)
    serve(
        network,
        flower.record(inside, recorder),
        flower.SecAggPlus(num_shares, 3, max_weight=MAX_WEIGHT),
        num_rounds,
    )
    assert len(inside.means) >= 5
    assert sum(map(bool, network.lost.values())) >= 10
    _check_truth(network, recorder.path, inside.means)
    _check_no_node_gave_both_shares(network)


@pytest.mark.long
def test_flowers_own_workflow_stops_where_this_one_goes_on(recorder: Recorder) -> None:
    losses: Losses = {(1, "setup"): {201}, (2, "share_keys"): {202}}
    for workflow, number in ((SecAggPlusWorkflow, 0), (flower.SecAggPlus, 2)):
        inside = Keeps(recorder.path)
        other = recorder.path.with_name(workflow.__name__)
        strategy = flower.record(
            inside, Recorder(other, system="flower", aggregation="secagg+")
        )
        serve(
            Network(NODES, losses),
            strategy,
            workflow(1.0, 0.5, max_weight=MAX_WEIGHT),
            2,
        )
        assert len(inside.means) == number


@pytest.mark.long
@pytest.mark.parametrize("policy", ["ignore", "abort", "drop_block"])
def test_blocks_stay_whole_by_policy(recorder: Recorder, policy: Any) -> None:
    """Against the policies' definition, from who survives which stage."""
    num_rounds, threshold, block_size = 9, 2, 2
    losses = _random_losses(num_rounds, 0.06, 11)
    network, inside = Network(NODES, losses), Keeps(recorder.path)
    selector = mj.selection.batch_partitioning(len(NODES), len(NODES), block_size)
    strategy = flower.select(inside, recorder, selector)
    workflow = flower.SecAggPlus(1.0, threshold, blocks=policy, max_weight=MAX_WEIGHT)
    serve(network, strategy, workflow, num_rounds)
    _check_no_node_gave_both_shares(network)
    _check_truth(network, recorder.path, inside.means)
    pairs = [{node, node + 1} for node in NODES[::2]]
    split_rounds = 0
    for number, (_, status, clients, _) in enumerate(sums(recorder.path), 1):
        gone = set().union(*(losses[number, stage] for stage in STAGES[:3]))
        split = {node for pair in pairs if len(pair & gone) == 1 for node in pair}
        split_rounds += bool(split)
        kept = set(NODES) - gone - (split if policy == "drop_block" else set())
        enough = len(kept - losses[number, "unmask"]) >= threshold
        learnt = enough and not (policy == "abort" and split)
        assert (status, clients) == (
            ("learnt", kept) if learnt else ("aborted", set())
        ), number
    assert 3 <= split_rounds < num_rounds
    if policy == "abort":  # and no shares were asked for
        aborted = {
            number for number, status, *_ in sums(recorder.path) if status == "aborted"
        }
        assert not {(number, "unmask") for number in aborted} & network.asked.keys()


def test_a_cut_graph_of_pads_is_not_unmasked(recorder: Recorder) -> None:
    """In a ring two lost nodes leave two arcs, whose sums the server would learn apart."""
    inside, network = Keeps(recorder.path), Network(NODES)
    workflow = flower.SecAggPlus(3, 2, max_weight=MAX_WEIGHT)
    ring: dict[int, set[int]] = {}

    def lose_two() -> None:
        if (1, "share_keys") in network.asked and not network.losses:
            for node, content in network.asked[1, "share_keys"].items():
                keys = content.config_records[RECORD_KEY_CONFIGS]
                ring[node] = {int(name) for name in keys if name.isdigit()} - {node}
            first = min(NODES)
            second = next(
                n for n in NODES if n != first and not ring[n] & (ring[first] | {first})
            )
            network.losses = {(1, "upload"): {first, second}}

    network.before_send = lose_two
    serve(network, flower.record(inside, recorder), workflow, 2)
    assert all(len(neighbours) == 2 for neighbours in ring.values())
    gone = network.losses[1, "upload"]
    assert sums(recorder.path) == [
        (1, "aborted", set(), {"upload": gone}),
        (2, "learnt", set(NODES), {}),
    ]
    assert (1, "unmask") not in network.asked


@pytest.mark.long
def test_the_gate_is_asked_again_before_unmasking(recorder: Recorder) -> None:
    """It lets everybody's sum through, and none without 201."""

    class Needs201(Fake):
        def check(self, candidates: Any) -> Any:
            self.forbidden = {"202"} if "201" not in candidates[0] else set()
            return super().check(candidates)

    gate = Needs201()
    network = Network(NODES, {(1, "upload"): {201}, (2, "unmask"): {201}})
    strategy = flower.record(Keeps(recorder.path), recorder, gate=gate)
    serve(network, strategy, flower.SecAggPlus(1.0, 0.5, max_weight=MAX_WEIGHT), 2)
    everybody = set(NODES)
    assert sums(recorder.path) == [
        (1, "aborted", set(), {"upload": {201}}),
        (2, "learnt", everybody, {"unmask": {201}}),
    ]
    assert (1, "unmask") not in network.asked
    assert [len(clients) for clients in gate.asked] == [8, 7, 8, 8]
    assert len(gate.sums) == 1


def test_a_crash_in_a_round_is_an_aborted_one(recorder: Recorder) -> None:
    network = Network(NODES)

    def crash() -> None:
        if (1, "share_keys") in network.asked:
            raise RuntimeError("the network is down")

    network.before_send = crash
    with pytest.raises(RuntimeError, match="the network is down"):
        serve(
            network,
            flower.record(Keeps(recorder.path), recorder),
            flower.SecAggPlus(1.0, 0.5),
            1,
        )
    assert sums(recorder.path) == [(1, "aborted", set(), {})]


@pytest.mark.smoke
def test_the_gate_judges_by_weights_as_far_as_they_are_known(
    tmp_path: pathlib.Path,
) -> None:
    """Before a round those that each client had last, in the log too.

    Then those of the sum.
    """
    told: list[dict[int, int]] = []

    class Weighs(Fake):
        def check(self, candidates: Any) -> Any:
            told.append(
                {int(name): int(weight) for name, weight in candidates[0].items()}
            )
            return super().check(candidates)

    network, path = Network([201, 202, 203]), tmp_path / "log"
    weights = [
        {node: factor * (node - 200) for node in network.nodes} for factor in (2, 3)
    ]
    for network.examples in weights:  # two servers, one after the other
        with Recorder(
            path, system="flower", aggregation="secagg+", salt=b""
        ) as recorder:
            strategy = flower.record(Keeps(path), recorder, gate=Weighs())
            serve(
                network, strategy, flower.SecAggPlus(1.0, 0.5, max_weight=MAX_WEIGHT), 1
            )
    ones = dict.fromkeys(network.nodes, 1)
    assert told == [ones, weights[0], weights[0], weights[1]]


def test_a_weight_that_is_none_is_told_before_unmasking(recorder: Recorder) -> None:
    network = Network(NODES)
    network.examples[203] = -1
    with pytest.raises(
        ConfigurationError, match="`num_examples` of node 203 must be finite and"
    ):
        serve(
            network,
            flower.record(Keeps(recorder.path), recorder),
            flower.SecAggPlus(1.0, 0.5),
            1,
        )
    assert (1, "unmask") not in network.asked
    assert sums(recorder.path) == [(1, "aborted", set(), {})]
