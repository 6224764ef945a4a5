"""One person, one name, whatever number a node has; the secret stays where the node is."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from network import Network, lines

from mrsa_watch import ConfigurationError, Recorder
from mrsa_watch.flower import Pseudonyms, pseudonym_mod, record

app = ClientApp()


@app.query("pseudonym", mods=[pseudonym_mod])
def tell(message: Message, context: Context) -> Message:
    return Message(RecordDict(), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    content = RecordDict(
        {
            "arrays": ArrayRecord([np.ones(2)]),
            "metrics": MetricRecord({"num-examples": 1}),
        }
    )
    return Message(content, reply_to=message)


class Nodes(Network):
    """Nodes by number, each with its configuration; None for one that does not answer."""

    def __init__(self, configs: dict[int, dict[str, Any] | None]) -> None:
        super().__init__(configs)
        self.configs, self.queries = configs, 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        found = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.queries += message.metadata.message_type == "query.pseudonym"
            config = self.configs[node]
            if config is not None:
                found.append(app(message, Context(1, node, config, RecordDict(), {})))
        return found


def _names(configs: dict[int, dict[str, Any] | None]) -> list[str]:
    people = Pseudonyms(Nodes(configs))
    return [people.name(node) for node in people.get_node_ids()]


def test_a_secret_makes_one_name_for_any_node_number(tmp_path: pathlib.Path) -> None:
    anna, bob = (
        {"secret": str(tmp_path / name), "partition-id": 0} for name in ("anna", "bob")
    )
    first = _names({11: anna, 12: bob})
    assert _names({7: {**bob, "partition-id": 5}, 9: anna}) == first[::-1]
    assert len(set(first)) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in first)
    secret = tmp_path / "anna"
    assert secret.stat().st_mode & 0o777 == 0o600
    # no drafts are left
    assert {path.name for path in tmp_path.iterdir()} == {"anna", "bob"}
    assert secret.read_bytes().hex()[:32] not in first
    secret.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="must hold 32 bytes"):
        _names({1: anna})


def test_simulated_nodes_of_one_machine_differ_by_partition(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    first = _names({1: {"partition-id": 0}, 2: {"partition-id": 1}})
    assert len(set(first)) == 2
    assert _names({1: {"partition-id": 1}, 2: {"partition-id": 0}}) == first[::-1]


def test_who_does_not_answer_is_left_out_and_asked_again(
    tmp_path: pathlib.Path,
) -> None:
    config = {"secret": str(tmp_path / "one")}
    grid = Nodes({1: None, 2: config})
    people = Pseudonyms(grid)
    assert list(people.get_node_ids()) == [2]
    grid.configs[1] = {"secret": str(tmp_path / "two")}
    assert list(people.get_node_ids()) == [1, 2]
    assert list(people.get_node_ids()) == [1, 2]
    assert grid.queries == 3  # who is known is not asked again
    grid.nodes.append(3)
    grid.configs[3] = config  # node 2's person, connected again
    assert list(people.get_node_ids()) == [1, 3]
    assert people.name(3) == people.name(2)


@pytest.mark.parametrize("name", ["anna", 5, "A" * 32])
def test_what_is_no_pseudonym_is_not_taken(name: Any) -> None:
    class Odd(Nodes):
        def send_and_receive(
            self, messages: Any, *, timeout: float | None = None
        ) -> Any:
            one, two, three = messages
            told = RecordDict({"pseudonym": ConfigRecord({"pseudonym": name})})
            return [
                Message(told, reply_to=one),
                Message(RecordDict(), reply_to=two),
                Message(Error(0, "no"), reply_to=three),
            ]

    assert list(Pseudonyms(Odd({1: None, 2: None, 3: None})).get_node_ids()) == []


def test_two_runs_of_a_strategy_know_the_same_people(tmp_path: pathlib.Path) -> None:
    configs = [{"secret": str(tmp_path / name)} for name in ("anna", "bob")]
    for first in (10, 20):  # Flower numbers the nodes of each run anew
        people = Pseudonyms(
            Nodes({first + i: config for i, config in enumerate(configs)})
        )
        with Recorder(
            tmp_path / "log", system="f", aggregation="plain", salt=b""
        ) as recorder:
            strategy = record(FedAvg(fraction_evaluate=0.0), recorder, name=people.name)
            strategy.start(
                people, ArrayRecord([np.zeros(2)]), num_rounds=1, timeout=9.0
            )
    one, two = lines(tmp_path / "log")
    assert (
        one.clients == two.clients == tuple(sorted(_names(dict(enumerate(configs, 5)))))
    )
    assert one.asked == one.clients
