"""The k-regular circulant of SecAgg+ under a random relabelling of the clients.

Bell, Bonawitz, Gascón, Lepoint, Raykova, "Secure single-server aggregation with (poly)logarithmic
overhead" (CCS 2020): a Harary graph H(n, k) whose vertices are a random permutation of the clients.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._arrays import on_device
from mrsa_jax._checks import check_integer
from mrsa_jax._errors import require
from mrsa_jax._html import brief
from mrsa_jax._streams import client_words
from mrsa_jax.graphs._types import check_num_clients


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Harary:
    """A circulant on randomly placed clients; built by `harary`.

    Attributes:
        degree: int32[], k.
        num_clients: n.
    """

    __repr__ = brief

    degree: Array
    num_clients: int = dataclasses.field(metadata={"static": True})

    @jax.jit
    def sample(self, key: Key[Array, ""]) -> Bool[Array, "clients clients"]:
        """Return the circulant on the clients' places of this key."""
        return circulant(random_places(key, self.num_clients), self.degree)


def harary(num_clients: int | np.integer, degree: int | np.integer) -> Harary:
    """Return the k-regular circulant on a ring of randomly placed clients: SecAgg+.

    Everybody is joined to the k/2 next clients on either side of the ring and, for odd k, to the
    one opposite: the graph is k-connected (Harary 1962), so that the loss of fewer than k
    clients never splits it. The places must be random and unknown to corrupt clients when they
    are chosen: SecAgg+ bounds the corrupt and the lost neighbours of a client by a hypergeometric
    law, which holds only if its neighbours are a uniform k-subset of the others.

    Args:
        num_clients: n, at least 1.
        degree: k in [0, n - 1]; n k must be even.

    Returns:
        The model, a pytree; k is traced, so that changing it compiles nothing new.

    Raises:
        ConfigurationError: If n or k is no integer, out of range, or both are odd.

    Edge cases: k = 0 joins nobody; k = n - 1 is the complete graph.

    Examples:
        >>> harary(8, 3).sample(jax.random.key(0)).sum(1).tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]

    Source: Bell et al., Section 3, GenerateGraphs of the semi-honest protocol.
    """
    clients = check_num_clients(num_clients)
    return Harary(jnp.int32(check_degree(degree, clients)), clients)


def check_degree(degree: object, num_clients: int) -> int:
    """Return k as a Python int after checking that a k-regular graph of n clients exists."""
    rule = f"must lie in [0, {num_clients - 1}], below `num_clients`"
    k = check_integer(degree, "degree", 0, num_clients - 1, rule=rule)
    rule = "must be even when `num_clients` is odd: n k / 2 is the number of edges"
    require(num_clients * k % 2 == 0, "degree", rule, k, num_clients)
    return k


def random_places(key: Key[Array, ""], num_clients: int) -> Int32[Array, " clients"]:
    """Return a random permutation: the clients sorted by 64 random bits each."""
    first, second = client_words(key, num_clients), client_words(key, num_clients, word=1)
    index = jax.lax.iota(jnp.int32, num_clients)
    return jax.lax.sort((first, second, index), num_keys=2)[2]


def circulant(
    places: Int32[Array, " clients"], degree: Int32[Array, ""]
) -> Bool[Array, "clients clients"]:
    """Join those whose places on the ring are 1 to k/2 apart, and for odd k those opposite."""
    num_clients = places.shape[0]
    n, k = jnp.int32(num_clients), on_device(degree, jnp.int32)
    apart = jnp.abs(places[:, None] - places[None, :])
    distance = jnp.minimum(apart, n - apart)
    near = (distance >= 1) & (distance <= k // 2)
    return near | ((k % 2 == 1) & (distance * 2 == n))
