"""Strategies that record and select, around either of Flower's two kinds.

First Flower's grid and its client manager, seen through a filter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from logging import INFO
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import FitIns, FitRes, Parameters, log
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.criterion import Criterion
from flwr.server.strategy import Strategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as MessageStrategy

from mrsa_watch._base.errors import require
from mrsa_watch._recorder import Recorder
from mrsa_watch.flower._books import Books, GateLike

_MOST_LOOKS = 5
_ONE_DAY_SECONDS = 86_400  # what Flower itself waits


def _handed_on(inside: str, name: str) -> Any:
    """Return a method that calls the one of this name of the object in an attribute.

    Flower's base classes have their methods abstract, so that `__getattr__` is too late
    for them.
    """

    def hand_on(self: Any, *args: Any, **settings: Any) -> Any:
        return getattr(getattr(self, inside), name)(*args, **settings)

    return hand_on


class GridView(Grid):
    """A grid that hands everything on; what filters it overrides a method."""

    set_run = _handed_on("_grid", "set_run")
    create_message = _handed_on("_grid", "create_message")
    get_node_ids = _handed_on("_grid", "get_node_ids")
    get_nodes = _handed_on("_grid", "get_nodes")
    push_messages = _handed_on("_grid", "push_messages")
    pull_messages = _handed_on("_grid", "pull_messages")
    send_and_receive = _handed_on("_grid", "send_and_receive")

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    @property
    def run(self) -> Any:
        """Hand on."""
        return self._grid.run


class CohortGrid(GridView):
    """A grid whose nodes are a cohort."""

    def __init__(self, grid: Grid, cohort: Sequence[int]) -> None:
        super().__init__(grid)
        self._cohort = cohort
        self._looks = 0

    def get_node_ids(self) -> Iterable[int]:
        """Return the cohort, until it is clear that more nodes are waited for."""
        self._looks += 1
        rule = (
            f"must not wait for more nodes than the cohort's {len(self._cohort)} (its "
            "min_train_nodes and min_available_nodes)"
        )
        require(self._looks <= _MOST_LOOKS, "strategy", rule)
        return list(self._cohort)

    def get_nodes(self) -> Iterable[Any]:
        """Return the known details of the cohort's nodes."""
        inside = set(self._cohort)
        return [node for node in self._grid.get_nodes() if node.node_id in inside]


class CohortManager(ClientManager):
    """A client manager whose clients are a cohort; whoever samples gets all of them."""

    register = _handed_on("_manager", "register")
    unregister = _handed_on("_manager", "unregister")

    def __init__(self, manager: ClientManager, cohort: Sequence[ClientProxy]) -> None:
        self._manager = manager
        self._cohort = {proxy.cid: proxy for proxy in cohort}

    def num_available(self) -> int:
        """Return the size of the cohort."""
        return len(self._cohort)

    def all(self) -> dict[str, ClientProxy]:
        """Return the cohort."""
        return dict(self._cohort)

    def wait_for(self, num_clients: int, timeout: int = 86400) -> bool:
        """Return at once: the cohort is there."""
        return num_clients <= len(self._cohort)

    def sample(
        self,
        num_clients: int,
        min_num_clients: int | None = None,
        criterion: Criterion | None = None,
    ) -> list[ClientProxy]:
        """Return the cohort, however many are wanted."""
        cohort = self._cohort.values()
        return [
            proxy for proxy in cohort if criterion is None or criterion.select(proxy)
        ]


class _Wrapper:
    """Hands on whatever is not overridden, to the strategy inside."""

    configure_evaluate = _handed_on("strategy", "configure_evaluate")
    aggregate_evaluate = _handed_on("strategy", "aggregate_evaluate")

    def __init__(self, strategy: Any, books: Books, nodes_to_wait_for: int = 0) -> None:
        self.strategy = strategy
        self.books = books
        self.nodes_to_wait_for = nodes_to_wait_for

    def __getattr__(self, name: str) -> Any:
        if name in ("strategy", "books"):  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def _identify(self, grids: Iterable[Any]) -> None:
        """Name the app and its run in the log, where `flwr run` started it."""
        run: Any = getattr(next(iter(grids), None), "run", None)
        if app := getattr(run, "fab_id", ""):
            self.books.recorder.identify(app, str(run.run_id))

    def _check_asked(
        self, cohort: Iterable[Any], asked: Iterable[Any], more: str
    ) -> None:
        rule = f"must ask exactly the clients that are chosen ({more} must be 1)"
        require(sorted(cohort) == sorted(asked), "strategy", rule, self.strategy)


class FitWrapper(_Wrapper, Strategy):
    """Around a `flwr.server.strategy.Strategy`."""

    initialize_parameters = _handed_on("strategy", "initialize_parameters")
    evaluate = _handed_on("strategy", "evaluate")

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Return the clients to ask, with the task; none if the gate forbids it."""
        self.books.close()
        if self.books.chooser is None:
            plan = self.strategy.configure_fit(server_round, parameters, client_manager)
            self._identify(getattr(proxy, "grid", None) for proxy, _ in plan)
            nodes = [_node(proxy) for proxy, _ in plan]
            return plan if nodes and self.books.open(server_round, nodes) else []
        client_manager.num_available()  # brings a workflow's list of nodes up to date
        client_manager.wait_for(self.nodes_to_wait_for, timeout=_ONE_DAY_SECONDS)
        present = {_node(proxy): proxy for proxy in client_manager.all().values()}
        self._identify(getattr(proxy, "grid", None) for proxy in present.values())
        cohort = self.books.choose(server_round, sorted(present))
        if not cohort:
            return []
        view = CohortManager(client_manager, [present[node] for node in cohort])
        plan = self.strategy.configure_fit(server_round, parameters, view)
        self._check_asked(cohort, [_node(proxy) for proxy, _ in plan], "fraction_fit")
        return plan

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Any]]:
        """Write the sum's line, then hand on."""
        weights = {_node(proxy): result.num_examples for proxy, result in results}
        self.books.learn(server_round, weights)
        return self.strategy.aggregate_fit(server_round, results, failures)


class MessageWrapper(_Wrapper, MessageStrategy):
    """Around a `flwr.serverapp.strategy.Strategy`."""

    summary = _handed_on("strategy", "summary")

    def __init__(
        self, strategy: MessageStrategy, books: Books, nodes_to_wait_for: int = 0
    ) -> None:
        super().__init__(strategy, books, nodes_to_wait_for)
        # before `start` puts this wrapper's methods in their place
        self._configure = strategy.configure_train
        self._aggregate = strategy.aggregate_train

    def start(self, *args: Any, **settings: Any) -> Any:
        """Run the strategy's own loop of rounds, which meanwhile comes by here."""
        attributes = vars(self.strategy)
        attributes["configure_train"] = self.configure_train
        attributes["aggregate_train"] = self.aggregate_train
        try:
            return self.strategy.start(*args, **settings)
        finally:
            del attributes["configure_train"], attributes["aggregate_train"]

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages; none if the gate forbids the round or finds no one."""
        self.books.close()
        self._identify([grid])
        if self.books.chooser is None:
            plan = list(self._configure(server_round, arrays, config, grid))
            nodes = [message.metadata.dst_node_id for message in plan]
            return plan if nodes and self.books.open(server_round, nodes) else []
        while len(present := list(grid.get_node_ids())) < self.nodes_to_wait_for:
            time.sleep(1.0)
        cohort = self.books.choose(server_round, sorted(present))
        if not cohort:
            return []
        view = CohortGrid(grid, cohort)  # type: ignore[arg-type]
        plan = list(self._configure(server_round, arrays, config, view))
        nodes = [message.metadata.dst_node_id for message in plan]
        self._check_asked(cohort, nodes, "fraction_train")
        return plan

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Write the sum's line, then hand on."""
        replies = list(replies)
        key = getattr(self.strategy, "weighted_by_key", "num-examples")
        good = [reply for reply in replies if not reply.has_error()]
        weights = {reply.metadata.src_node_id: _weight(reply, key) for reply in good}
        self.books.learn(server_round, weights)
        return self._aggregate(server_round, replies)


def _node(proxy: ClientProxy) -> Any:
    """Return a client's node; in Flower's old server, the text of an address."""
    return getattr(proxy, "node_id", proxy.cid)


def _weight(reply: Message, key: str) -> Any:
    """Return the factor of a reply in the sum; 1 where it says none."""
    records = reply.content.metric_records.values()
    return next((metrics[key] for metrics in records if key in metrics), 1)


def wrapped(
    strategy: Any, books: Callable[[], Books], nodes_to_wait_for: int = 0
) -> Any:
    """Return a strategy that keeps books, made once it is known to be one that can."""
    rule = (
        "must be a flwr.server.strategy.Strategy or a flwr.serverapp.strategy.Strategy"
    )
    is_one = isinstance(strategy, Strategy | MessageStrategy)
    require(is_one, "strategy", rule, strategy)
    is_new = not isinstance(strategy, _Wrapper)
    require(is_new, "strategy", "must not be recorded already", strategy)
    opened = books()
    log(INFO, "The participation log of this run is %s", opened.recorder.path)
    wrapper = FitWrapper if isinstance(strategy, Strategy) else MessageWrapper
    return wrapper(strategy, opened, nodes_to_wait_for)


def record(
    strategy: Strategy | MessageStrategy,
    recorder: Recorder,
    *,
    gate: GateLike | None = None,
    name: Callable[[Any], Any] = str,
    part: str | None = None,
) -> Any:
    """Return a strategy that records members of sums, and acts as the given one.

    The line of a round is on the disk before the strategy sees the aggregate, so no sum
    is learnt that the log lacks. Weights are the clients' `num_examples`, which the
    server sees in every workflow; a client with none is not in the sum. With
    `DefaultWorkflow` and with strategies of messages the server sees every update by
    itself: the recorder's `aggregation` is `"plain"` then. With `SecAggPlus`, lost
    clients are recorded by stage, and rounds without a sum are written too; with
    Flower's `SecAggPlusWorkflow`, they are recorded as lost in training.

    Args:
        strategy: Any of Flower's, of `flwr.server.strategy` or
            `flwr.serverapp.strategy`; of several around each other the outermost.
        recorder: Of the log. With `flwr run` a relative path is of the folder where
            Flower's link was started, for every app: give an absolute one. Flower's log
            shows the path.
        gate: `live.Gate`, asked before each round; a round that it forbids is not
            begun. Weights are assumed to be the latest of each client; `SecAggPlus`
            asks again before it unmasks, when they are known. After a restart, use
            `Gate.from_log`.
        name: A client's lasting name, of its node's number. Flower gives a node that
            connects again without a key another number: the audit would count it as
            another client.
        part: The part of the vector that this strategy's sums are of, by a name, where
            its clients are those who train it; None for whole updates.

    Returns:
        A strategy of the same interface.

    Raises:
        ConfigurationError: If the strategy is none, or the recorder or gate is none; in
            the first round, if the log is of another app than the one that `flwr run`
            started.

    Examples:
        >>> import pathlib, tempfile
        >>> from flwr.server.strategy import FedAvg
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.jsonl")
        >>> recorder = Recorder(path, system="flower", aggregation="plain")
        >>> record(FedAvg(fraction_fit=0.25), recorder).fraction_fit
        0.25
        >>> recorder.close()
    """
    return wrapped(strategy, lambda: Books(recorder, gate, name, part=part))
