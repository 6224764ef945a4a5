"""Flower's grid and its client manager, seen through a filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flwr.app import Message, RecordDict
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.criterion import Criterion
from flwr.serverapp import Grid

from mrsa_jax._errors import require

_MOST_LOOKS = 5


class GridView(Grid):
    """A grid that hands everything on; what filters it overrides a method."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Any) -> None:
        """Hand on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """Hand on."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Hand on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Hand on."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """Hand on."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Hand on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Hand on."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Hand on."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class CohortGrid(GridView):
    """A grid whose nodes are a cohort."""

    def __init__(self, grid: Grid, cohort: Sequence[int]) -> None:
        super().__init__(grid)
        self._cohort = cohort
        self._looks = 0

    def get_node_ids(self) -> Iterable[int]:
        """Return the cohort, until it is clear that more nodes are waited for."""
        self._looks += 1
        rule = f"must not wait for more nodes than the cohort's {len(self._cohort)} (its "
        rule += "min_train_nodes and min_available_nodes)"
        require(self._looks <= _MOST_LOOKS, "strategy", rule)
        return list(self._cohort)

    def get_nodes(self) -> Iterable[Any]:
        """Return what is known of the cohort's nodes."""
        inside = set(self._cohort)
        return [node for node in self._grid.get_nodes() if node.node_id in inside]


class CohortManager(ClientManager):
    """A client manager whose clients are a cohort; whoever samples gets all of them."""

    def __init__(self, manager: ClientManager, cohort: Sequence[ClientProxy]) -> None:
        self._manager, self._cohort = manager, {proxy.cid: proxy for proxy in cohort}

    def num_available(self) -> int:
        """Return the size of the cohort."""
        return len(self._cohort)

    def register(self, client: ClientProxy) -> bool:
        """Hand on."""
        return self._manager.register(client)

    def unregister(self, client: ClientProxy) -> None:
        """Hand on."""
        self._manager.unregister(client)

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
        return [proxy for proxy in cohort if criterion is None or criterion.select(proxy)]
