"""Flower's server and its clients in one process.

Real messages and stages, losses by hand.
"""

from __future__ import annotations

import copy
import logging
import pathlib
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    Key,
    Stage,
)
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext, ServerConfig
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from mrsa_watch.logs import LineParser, SumLine

logging.getLogger("flwr").setLevel(logging.CRITICAL)
STAGES = {
    Stage.SETUP: "setup",
    Stage.SHARE_KEYS: "share_keys",
    Stage.COLLECT_MASKED_VECTORS: "upload",
    Stage.UNMASK: "unmask",
}
Losses = dict[tuple[int, str], set[int]]


class Network(Grid):
    """Nodes that answer at once, but for those that are lost in a stage of a round.

    Every other loss is an error that the server gets instead of an answer; the others
    are silent. `asked[round, stage]` is what the server sent, by node; `truth` who was
    asked and lost.
    """

    def __init__(
        self,
        nodes: Iterable[int],
        losses: Losses | None = None,
        *,
        size: int = 3,
        mod: Any = None,
    ):
        TaskIdentity.task_id = TaskIdentity.run_id = 1
        TaskIdentity.node_id = 0
        self.nodes, self.losses, self.size = list(nodes), losses or {}, size
        self.examples: dict[int, int | float] = {}
        self.asked: dict[tuple[int, str], dict[int, Any]] = {}
        self.lost: dict[tuple[int, str], set[int]] = {}
        self.before_send: Callable[[], None] = lambda: None
        self.mod = mod  # before Flower's, at each node
        self.app, self.run_id = "", 1  # as for what `flwr run` did not start
        self._contexts: dict[int, Context] = {}

    def update(self, number: int, node: int) -> np.ndarray:
        draws = np.random.default_rng([number, node])
        return draws.uniform(-1, 1, self.size)

    def mean(self, number: int, nodes: Iterable[int]) -> np.ndarray:
        """The weighted mean that a round's sum must come to."""
        nodes = list(nodes)
        weights = [self.examples.get(node, 1) for node in nodes]
        return np.average(
            [self.update(number, node) for node in nodes], axis=0, weights=weights
        )

    # ---- Flower's grid

    def set_run(self, run: Run) -> None:
        raise AssertionError

    @property
    def run(self) -> Run:
        run = Run.create_empty(self.run_id)
        run.fab_id = self.app
        return run

    def create_message(self, *args: Any, **named: Any) -> Message:
        raise AssertionError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise AssertionError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise AssertionError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        self.before_send()
        replies = [self._answer(copy.deepcopy(message)) for message in messages]
        return [reply for reply in replies if reply is not None]

    def _answer(self, message: Message) -> Message | None:
        node, records = message.metadata.dst_node_id, message.content.config_records
        is_secure = RECORD_KEY_CONFIGS in records
        stage = (
            STAGES[str(records[RECORD_KEY_CONFIGS][Key.STAGE])]
            if is_secure
            else "train"
        )
        is_new = "config" in records
        number = int(
            records["config"]["server-round"] if is_new else message.metadata.group_id
        )  # type: ignore[call-overload]
        self.asked.setdefault((number, stage), {})[node] = copy.deepcopy(
            message.content
        )
        gone = self.lost.setdefault((number, stage), set())
        try:
            reply = self._reply(message, node, number, is_secure, is_new)
        except (
            KeyError,
            ValueError,
        ) as error:  # the client's, which a real node answers with
            gone.add(node)
            return Message(Error(0, repr(error)), reply_to=message)
        if node not in self.losses.get((number, stage), ()):
            return reply
        gone.add(node)
        return (
            Message(Error(0, "lost"), reply_to=message) if len(gone) % 2 == 0 else None
        )

    def _reply(
        self, message: Message, node: int, number: int, is_secure: bool, is_new: bool
    ) -> Message:
        def train(message: Message, context: Context) -> Message:
            update, count = self.update(number, node), self.examples.get(node, 1)
            if is_new:
                metrics = MetricRecord({"num-examples": count})
                arrays = ArrayRecord([update])
                return Message(
                    RecordDict({"a": arrays, "m": metrics}), reply_to=message
                )
            result = FitRes(
                Status(Code.OK, ""), ndarrays_to_parameters([update]), int(count), {}
            )
            return Message(compat.fitres_to_recorddict(result, False), reply_to=message)

        context = self._contexts.setdefault(
            node, Context(0, node, {}, RecordDict(), {})
        )
        own = secaggplus_mod if is_secure else lambda m, c, call: call(m, c)
        if self.mod is not None:
            return self.mod(message, context, lambda m, c: own(m, c, train))
        return own(message, context, train)


def serve(
    network: Network, strategy: Any, workflow: Any, num_rounds: int
) -> LegacyContext:
    """Run Flower's own loop of rounds."""
    context = LegacyContext(
        Context(0, 0, {}, RecordDict(), {}),
        ServerConfig(num_rounds=num_rounds),
        strategy,
    )
    DefaultWorkflow(fit_workflow=workflow)(network, context)
    return context


def lines(path: pathlib.Path) -> list[SumLine]:
    parser = LineParser(str(path))
    found = [parser.feed(line) for line in path.read_bytes().splitlines(keepends=True)]
    return [line for line in found if line is not None]


def sums(path: pathlib.Path) -> list[tuple[int, str, set[int], dict[str, set[int]]]]:
    """Round, status, clients and losses of each line, of a log with names as they are."""
    return [
        (
            line.round,
            line.status,
            {*map(int, line.clients)},
            {stage: {*map(int, names)} for stage, names in line.lost.items()},
        )
        for line in lines(path)
    ]


def weights(line: SumLine) -> dict[int, Fraction]:
    factors = line.weights or (Fraction(1),) * len(line.clients)
    return dict(zip(map(int, line.clients), factors, strict=True))
