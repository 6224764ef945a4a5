"""What every assignment graph offers: an adjacency matrix from a key.

CCESA, Section 3: clients are the vertices of G; client i shares keys, secret shares and pads with
Adj(i) only. Adj(i) -> row i of `adjacency`, bool[n, n], symmetric, with a false diagonal.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Bool, Key

from mrsa_jax._checks import check_integer
from mrsa_jax._streams import MAX_PAIRED


@runtime_checkable
class GraphModel(Protocol):
    """Who shares pads with whom in a round: a pytree with a pure method.

    `sample` is written for one round and maps under `jax.vmap`.
    """

    @property
    def num_clients(self) -> int:
        """Clients, n."""
        ...

    def sample(self, key: Key[Array, ""]) -> Bool[Array, "clients clients"]:
        """Return the adjacency matrix of one round: symmetric, with a false diagonal."""
        ...


def check_num_clients(num_clients: object) -> int:
    """Return n as a Python int, or raise naming `num_clients`."""
    return check_integer(num_clients, "num_clients", 1, MAX_PAIRED)
