"""Cohorts of a selector for FedJAX's simulations; FedJAX itself is not imported."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Array, Key

from mrsa_jax._core.selector import Selector
from mrsa_jax.live._chooser import Chooser, check_clients
from mrsa_watch._base.errors import check_integer, require_methods


class ClientSampler:
    """A client sampler with the methods of `fedjax.client_samplers.ClientSampler`.

    Instead of `UniformGetClientSampler`; what `sample` returns goes to a federated
    algorithm's `apply`. A client's index is its place among the data set's client ids
    in their order as bytes.

    Args:
        federated_data: FedJAX's `FederatedData` (`client_ids` and `get_clients`) of N
            clients.
        selector: Any of `mrsa_jax.selection`, for N clients.
        seed: Integer in [0, 2**32), or a typed key.
        start_round_num: Round to begin with.

    Raises:
        ConfigurationError: If the data or the selector is none, or they are of
            different numbers of clients.

    Examples:
        >>> import mrsa_jax as mj
        >>> class Data:  # as FedJAX's
        ...     def client_ids(self):
        ...         return [b"a", b"b", b"c", b"d"]
        ...     def get_clients(self, ids):
        ...         return [(name, f"data of {name}") for name in ids]
        >>> sampler = ClientSampler(Data(), mj.selection.batch_partitioning(4, 2, 2))
        >>> [name for name, data, key in sampler.sample()] in ([b"a", b"b"], [b"c", b"d"])
        True

    Source: Ro et al., "FedJAX: Federated learning simulation with JAX" (2021); tried
    with FedJAX 0.0.17, whose own algorithms call `jax.tree_map`, which JAX no longer
    has.
    """

    def __init__(
        self,
        federated_data: Any,
        selector: Selector,
        seed: int | Key[Array, ""] = 0,
        start_round_num: int = 0,
    ) -> None:
        require_methods(federated_data, "federated_data", "client_ids", "get_clients")
        self._data, self._selector, self._seed = federated_data, selector, seed
        self._chooser = Chooser(selector, seed)
        ids = sorted(federated_data.client_ids())
        self._ids = check_clients(ids, "federated_data", self._chooser)
        self.set_round_num(start_round_num)

    def sample(self) -> list[tuple[Any, Any, Any]]:
        """Return id, data set and key of each client of the next round's cohort.

        Keys are FedJAX's own: of the round's number, split among the clients.
        """
        number = self._chooser.round
        ids = [self._ids[place] for place in self._chooser.play()]
        keys = jax.random.split(jax.random.PRNGKey(number), len(ids))
        found = zip(self._data.get_clients(ids), keys, strict=True)
        return [(client, data, key) for (client, data), key in found]

    def set_round_num(self, round_num: int) -> None:
        """Go to a round; what the selector remembers is played anew up to it."""
        wanted = check_integer(round_num, "round_num", 0)
        self._chooser = Chooser(self._selector, self._seed)
        while self._chooser.round < wanted:
            self._chooser.play()
