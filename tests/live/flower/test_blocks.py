"""Clients of Flower that unmask whole blocks only.

What they refuse, and what is learnt then.
"""

from __future__ import annotations

import inspect
import pathlib
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    Key,
    Stage,
)
from network import Losses, Network, serve, sums
from test_record import Keeps

import mrsa_jax as mj
from mrsa_jax.live import Recorder, flower
from mrsa_watch.flower._blocks import RefusedError

NODES = range(201, 209)
BLOCKS = {node: (node - 201) // 2 for node in NODES}


def answer(
    node: int, configs: dict[str, Any] | None, kind: str = "train", **more: int
) -> str:
    """Return what the mod lets through, or why it refuses."""
    Network(())  # by which Flower knows its run
    content = RecordDict()
    if configs is not None:
        content[RECORD_KEY_CONFIGS] = ConfigRecord(configs)
    message = Message(content, dst_node_id=node, message_type=kind)
    context = Context(0, node, {}, RecordDict(), {})
    try:
        flower.whole_blocks(BLOCKS, **more)(message, context, lambda m, c: m)
    except RefusedError as error:
        return str(error).partition("refuses: ")[2]
    return ""


def unmask(*alive: int, dead: tuple[int, ...] = ()) -> dict[str, Any]:
    return {
        Key.STAGE: Stage.UNMASK,
        Key.ACTIVE_NODE_ID_LIST: list(alive),
        Key.DEAD_NODE_ID_LIST: list(dead),
    }


def keys(*nodes: int) -> dict[str, Any]:
    return {Key.STAGE: Stage.SHARE_KEYS} | {
        str(node): [b"one", b"two"] for node in nodes
    }


def shares(*nodes: int) -> dict[str, Any]:
    return {
        Key.STAGE: Stage.COLLECT_MASKED_VECTORS,
        Key.SOURCE_LIST: list(nodes),
        Key.CIPHERTEXT_LIST: [b"sealed"] * len(nodes),
    }


WHOLE = "the sum must be over whole blocks"


@pytest.mark.parametrize(
    ("configs", "refused"),
    [
        (None, "no SecAgg+"),
        ({Key.STAGE: Stage.SETUP, Key.THRESHOLD: 4}, "the threshold must be 5 or more"),
        ({Key.STAGE: Stage.SETUP, Key.THRESHOLD: 5}, ""),
        (keys(*NODES), ""),
        (keys(201, 202, 203), ""),
        (keys(201, 203, 204), "keys must be those of its mates"),
        (keys(201, 202, 7), "keys must be those of its mates"),
        (shares(202, 203), ""),
        (shares(203, 204), "shares of mates are missing"),
        (unmask(*NODES), ""),
        (unmask(201, 202, dead=(203, 204)), ""),
        (unmask(*NODES[1:]), WHOLE),  # its own block
        (unmask(*NODES[:-1]), WHOLE),  # another's
        (unmask(203, 204), WHOLE),  # without it
        (unmask(201, 202, 7, 8), WHOLE),
        (unmask(*NODES, dead=(203,)), "a node is both in the sum and lost"),
    ],
)
def test_what_a_client_refuses(configs: dict[str, Any] | None, refused: str) -> None:
    found = answer(201, configs)
    assert found.startswith(refused)
    assert bool(found) == bool(refused)


def test_strangers_colluders_and_other_messages() -> None:
    assert answer(7, keys(*NODES)) == "no SecAgg+"  # a node without a block
    setup = {Key.STAGE: Stage.SETUP, Key.THRESHOLD: 5}
    assert answer(201, setup, colluders=2) == "the threshold must be 6 or more"
    assert answer(201, None, "evaluate") == ""
    unchecked = inspect.unwrap(flower.whole_blocks)
    for wrong in ({}, [0, 0, 1, 1], None):
        with pytest.raises(mj.ConfigurationError, match="`blocks` must name the block"):
            unchecked(wrong)  # type: ignore[arg-type]
    with pytest.raises(
        mj.ConfigurationError, match="`blocks` must have the numbers of nodes"
    ):
        unchecked({"201": 0, "202": 0})  # type: ignore[dict-item]
    with pytest.raises(
        mj.ConfigurationError, match="`blocks` must be equal for the mates"
    ):
        unchecked({201: float("nan"), 202: float("nan")})


def test_blocks_that_are_changed_later_change_no_mod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drawn again behind its back, they would let a sum without a mate pass."""
    blocks = dict(BLOCKS)
    mod = flower.whole_blocks(blocks)
    blocks[202], blocks[203] = blocks[203], blocks[202]
    monkeypatch.setattr(flower, "whole_blocks", lambda _: mod)
    assert answer(201, unmask(201, 202)) == ""
    assert answer(201, unmask(201, 203)).startswith(WHOLE)


def played(
    path: pathlib.Path, mod: Any, losses: Losses, policy: Any, rounds: int
) -> tuple[Network, Keeps]:
    """Play rounds of a server that sums who is left, or whole blocks."""
    network = Network(NODES, losses, mod=mod)
    inside = Keeps(path)
    with Recorder(path, system="flower", aggregation="secagg+", salt=b"") as recorder:
        selector = mj.selection.batch_partitioning(len(NODES), len(NODES), 2)
        strategy = flower.select(inside, recorder, selector)
        workflow = flower.SecAggPlus(1.0, 5, blocks=policy, max_weight=10.0)
        serve(network, strategy, workflow, rounds)
    return network, inside


@pytest.mark.long
def test_a_server_that_sums_parts_of_blocks_exposes_unless_clients_refuse(
    tmp_path: pathlib.Path,
) -> None:
    """It calls one upload late in each round; who refuses is lost to it."""
    losses: Losses = {(number, "upload"): {200 + number} for number in range(1, 9)}
    exposed, learnt = {}, {}
    for name, mod in (("obedient", None), ("enforcing", flower.whole_blocks(BLOCKS))):
        path = tmp_path / f"{name}.jsonl"
        network, _ = played(path, mod, losses, "ignore", 9)
        rows = [
            [node in clients for node in NODES]
            for _, status, clients, _ in sums(path)
            if status == "learnt"
        ]
        learnt[name] = len(rows)
        exposed[name] = int((np.asarray(mj.privacy.first_exposure(rows)) >= 0).sum())
    assert learnt == {"obedient": 9, "enforcing": 1}
    assert exposed == {"obedient": 8, "enforcing": 0}
    assert len(network.lost[1, "unmask"]) == 7


@pytest.mark.long
def test_a_server_that_drops_blocks_works_on(tmp_path: pathlib.Path) -> None:
    losses: Losses = {
        (1, "setup"): {201},
        (2, "share_keys"): {202},
        (3, "upload"): {203},
        (4, "unmask"): {204},
    }
    results = []
    for name, mod in (("stock", None), ("enforcing", flower.whole_blocks(BLOCKS))):
        path = tmp_path / f"{name}.jsonl"
        _, inside = played(path, mod, losses, "drop_block", 5)
        results.append(
            [(number, status, clients) for number, status, clients, _ in sums(path)]
        )
        assert len(inside.means) == 5
    assert results[0] == results[1]
