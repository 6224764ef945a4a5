"""Assignment graphs over clients.

Complete, random, circulant, regular, and over blocks.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32

from mrsa_jax._core.array_types import Adjacency, PRNGKey, Whole
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.factories import also_traced, is_whole, plain, unless_traced
from mrsa_jax._core.pytrees import Calls, pytree, static
from mrsa_jax._core.streams import (
    chances_typed,
    client_words,
    fold,
    happens,
    pair_words,
    threshold,
)
from mrsa_jax._core.traced import is_traced
from mrsa_jax.graphs._lists import GraphModel, check_degree, check_num_clients
from mrsa_watch._base.errors import check_integer, check_number, require

# Choi, Sohn, Han, Moon, "Communication-Computation Efficient Secure Aggregation":
# SecAgg is the case of the complete graph, CCESA(n, p) that of G(n, p). p ->
# `connection_probability`.


_MOST_SHOWN = 300  # clients


def _one_graph(self: Any) -> np.ndarray | None:
    """Return one graph of a model, to be shown."""
    return (
        np.asarray(self.sample(jax.random.key(0)))
        if self.num_clients <= _MOST_SHOWN
        else None
    )


@pytree
class Complete:
    """Everybody with everybody; built by `complete`.

    Attributes:
        num_clients: n.
    """

    num_clients: int = static()

    _cells = _one_graph

    def typed(self) -> Calls:
        """Return the call that made it."""
        return [(complete, self.num_clients)]

    @property
    def connection_probability(self) -> float:
        """Return 1.0, the probability of an edge."""
        return 1.0

    @jax.jit
    def sample(self, key: PRNGKey) -> Adjacency:
        """Return the complete graph, whatever the key."""
        del key
        return ~jnp.eye(self.num_clients, dtype=jnp.bool_)


@pytree
class ErdosRenyi:
    """Every pair joined independently with one chance; built by `erdos_renyi`.

    Attributes:
        threshold: uint32[], a pair is joined when its word is below it; the largest
            value stands for chance 1.
        num_clients: n.
    """

    threshold: Array
    num_clients: int = static()

    _cells = _one_graph

    def typed(self) -> Calls:
        """Return the call that made it."""
        return [(erdos_renyi, self.num_clients, self.connection_probability)]

    @property
    def connection_probability(self) -> float:
        """Return p, the shortest decimal that gives the threshold."""
        return float(chances_typed(self.threshold))

    @jax.jit
    def sample(self, key: PRNGKey) -> Adjacency:
        """Return one graph; whether i and j are joined does not depend on n."""
        words = pair_words(key, self.num_clients)
        return happens(words, self.threshold) & ~jnp.eye(
            self.num_clients, dtype=jnp.bool_
        )


def complete(num_clients: Whole) -> Complete:
    """Return the complete graph.

    SecAgg, in which everybody shares a pad with everybody.
    Choose it for small rounds; its pads grow as n^2, those of the others as n k.

    Args:
        num_clients: n, at least 1.

    Returns:
        The model, a pytree; `sample(key)` does not depend on the key.

    Raises:
        ConfigurationError: If n is no integer from 1 on.

    Edge cases: n = 1 is a graph without edges.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> mj.graphs.complete(3).sample(jax.random.key(0)).sum(1).tolist()
        [2, 2, 2]

    Source: Bonawitz et al., "Practical secure aggregation" (2017).
    """
    return Complete(check_num_clients(num_clients))


@also_traced
def erdos_renyi(num_clients: Whole, connection_probability: ArrayLike) -> ErdosRenyi:
    """Return G(n, p).

    Each of the n (n - 1) / 2 pairs is joined independently with chance p.
    CCESA's assignment graph. `secagg.connection_probability` gives the paper's p*.

    Args:
        num_clients: n, at least 1.
        connection_probability: p in [0, 1], rounded to a multiple of 2^-32; 1 is
            certain.

    Returns:
        The model, a pytree; p is traced, so that changing it compiles nothing new. A
        pair's draw depends on the key and the pair alone: the graph on the first m
        clients of n is the graph that the same key gives for m, and a graph for a
        smaller p is part of that for a larger.

    Raises:
        ConfigurationError: If n is no integer from 1 on, or p no number in [0, 1].

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> graph = mj.graphs.erdos_renyi(6, 0.5).sample(jax.random.key(1))
        >>> bool(
        ...     (
        ...         mj.graphs.erdos_renyi(4, 0.5).sample(jax.random.key(1))
        ...         == graph[:4, :4]
        ...     ).all()
        ... )
        True

    Source: CCESA, Section 4.3.
    """
    clients = check_num_clients(num_clients)
    rule, kind = "must lie in [0, 1]", "must be a number in [0, 1]"
    chance = unless_traced(
        check_number,
        connection_probability,
        "connection_probability",
        rule,
        0.0,
        1.0,
        kind=kind,
    )
    return ErdosRenyi(on_device(threshold(chance)), clients)


# Bell, Bonawitz, Gascón, Lepoint, Raykova, "Secure single-server aggregation with
# (poly)logarithmic overhead" (CCS 2020): a Harary graph H(n, k) whose vertices are a
# random permutation of the clients.


@pytree
class Harary:
    """A circulant on randomly placed clients; built by `harary`.

    Attributes:
        degree: int32[], k.
        num_clients: n.
    """

    degree: Array
    num_clients: int = static()

    _cells = _one_graph

    def typed(self) -> Calls:
        """Return the call that made it."""
        return [(harary, self.num_clients, int(self.degree))]

    @jax.jit
    def sample(self, key: PRNGKey) -> Adjacency:
        """Return the circulant on the clients' places of this key."""
        return circulant(random_places(key, self.num_clients), self.degree)


@also_traced
def harary(num_clients: Whole, degree: Whole | Array) -> Harary:
    """Return the k-regular circulant on a ring of randomly placed clients: SecAgg+.

    Everybody is joined to the k/2 next clients on either side of the ring and, for odd
    k, to the one opposite: the graph is k-connected (Harary 1962), so that the loss of
    fewer than k clients never splits it. The places must be random and unknown to
    corrupt clients when they are chosen: SecAgg+ bounds the corrupt and the lost
    neighbours of a client by a hypergeometric law, which holds only if its neighbours
    are a uniform k-subset of the others.

    Args:
        num_clients: n, at least 1.
        degree: k in [0, n - 1]; n k must be even.

    Returns:
        The model, a pytree; k is traced, so that changing it compiles nothing new.

    Raises:
        ConfigurationError: If n or k is no integer, out of range, or both are odd.

    Edge cases: k = 0 joins nobody; k = n - 1 is the complete graph.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> mj.graphs.harary(8, 3).sample(jax.random.key(0)).sum(1).tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]

    Source: Bell et al., Section 3, GenerateGraphs of the semi-honest protocol.
    """
    clients = check_num_clients(num_clients)
    k: Any = degree
    if is_traced(k):  # of a degree that no graph has, nobody has neighbours
        k = jnp.where(is_whole(k, 0, clients - 1) & (clients * k % 2 == 0), k, 0)
    else:
        k = check_degree(plain(degree), clients)
    return Harary(jnp.int32(k), clients)


def random_places(key: PRNGKey, num_clients: int) -> Int32[Array, " clients"]:
    """Return a random permutation: the clients sorted by 64 random bits each."""
    first, second = (
        client_words(key, num_clients),
        client_words(key, num_clients, word=1),
    )
    return jax.lax.sort(
        (first, second, jax.lax.iota(jnp.int32, num_clients)), num_keys=2
    )[2]


def circulant(places: Int32[Array, " clients"], degree: Int32[Array, ""]) -> Adjacency:
    """Join clients whose places on the ring are 1 to k/2 apart.

    For odd k also those opposite.
    """
    n, k = jnp.int32(places.shape[0]), on_device(degree, jnp.int32)
    apart = jnp.abs(places[:, None] - places[None, :])
    distance = jnp.minimum(apart, n - apart)
    near = (distance >= 1) & (distance <= k // 2)
    return near | ((k % 2 == 1) & (distance * 2 == n))


# A switch takes two edges {a, b} and {c, d} to {a, d} and {c, b}: all degrees stay. The
# classical chain makes one switch a step; this one pairs up all edges and makes every
# pair's switch that cannot meet another's, so that a few dozen steps of array
# operations take the place of many thousand sequential ones. SecAgg+ (Bell et al., CCS
# 2020) may use any graph of this kind.

_STEPS = 100


@pytree
class RandomRegular:
    """A random simple k-regular graph; built by `random_regular`.

    Attributes:
        num_clients: n.
        degree: k; static, because it is the size of the list of edges.
    """

    num_clients: int = static()
    degree: int = static()

    _cells = _one_graph

    def typed(self) -> Calls:
        """Return the call that made it."""
        return [(random_regular, self.num_clients, self.degree)]

    @jax.jit
    def sample(self, key: PRNGKey) -> Adjacency:
        """Return one graph.

        A circulant on random places after `_STEPS` steps of the chain.
        """
        n = self.num_clients
        others = ~jnp.eye(n, dtype=jnp.bool_)
        sparse = min(self.degree, n - 1 - self.degree)
        places = random_places(key, n)
        joined = (
            _switched(key, places, sparse) if sparse else jnp.zeros((n, n), jnp.bool_)
        )
        return joined if sparse == self.degree else ~joined & others


def random_regular(num_clients: Whole, degree: Whole) -> RandomRegular:
    """Return a random simple graph in which everybody has k neighbours.

    Unlike `harary`, neighbours of neighbours are hardly ever neighbours, so that the
    graph stays connected under heavier loss; it costs some hundred times as much to
    draw.

    The draw starts from a circulant on random places and makes 100 steps of a chain
    whose moves are symmetric and reach every k-regular graph, so its only stationary
    law is the uniform one over simple k-regular graphs on n labelled clients. The law
    after 100 steps is exactly the same under every relabelling of the clients, and
    close to uniform, not proved uniform: for n to 300 and k to n/2, the mean numbers of
    triangles and of closed walks of length four do not differ from those after 200
    steps. A graph of more than (n - 1)/2 neighbours is the complement of one of fewer.

    Args:
        num_clients: n, at least 1.
        degree: k in [0, n - 1]; n k must be even. Static: another k compiles again.

    Returns:
        The model, a pytree.

    Raises:
        ConfigurationError: If n or k is no integer, out of range, or both are odd.

    Edge cases: k = 0 joins nobody; k = n - 1 is the complete graph. Cost: 100 steps of
    O(n^2 + n k).

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> mj.graphs.random_regular(6, 3).sample(jax.random.key(0)).sum(1).tolist()
        [3, 3, 3, 3, 3, 3]

    Source: Bell et al., Section 3, ask for some random k-regular graph. The chain is
    this package's own; that single switches reach every graph of given degrees is due
    to Petersen.
    """
    clients = check_num_clients(num_clients)
    return RandomRegular(clients, check_degree(degree, clients))


def _switched(key: PRNGKey, places: Int32[Array, " clients"], degree: int) -> Adjacency:
    """Run the chain from the circulant on `places` and return the adjacency matrix."""
    num_clients = places.shape[0]
    start = _circulant_edges(places, degree)

    def step(ends: Array, number: Array) -> tuple[Array, None]:
        return _switch_pairs(fold(key, number), ends, num_clients), None

    ends, _ = jax.lax.scan(step, start, jnp.arange(1, _STEPS + 1, dtype=jnp.uint32))
    half = (
        jnp.zeros((num_clients, num_clients), jnp.bool_).at[ends[0], ends[1]].set(True)
    )
    return half | half.T


def _circulant_edges(
    places: Int32[Array, " clients"], degree: int
) -> Int32[Array, "2 edges"]:
    """Return the circulant's edges.

    From each place to the k/2 next, and to the opposite one.
    """
    n = places.shape[0]
    at = np.arange(n)
    pairs = [np.stack([at, (at + apart) % n]) for apart in range(1, degree // 2 + 1)]
    if degree % 2:
        pairs.append(np.stack([at[: n // 2], at[n // 2 :]]))
    return places[jnp.asarray(np.concatenate(pairs, axis=1), jnp.int32)]


def _switch_pairs(
    key: PRNGKey,
    ends: Int32[Array, "2 edges"],
    num_clients: int,
) -> Int32[Array, "2 edges"]:
    """Make one step.

    Pair slots e and c - e (mod E), switch each free pair with chance 1/2.
    A pair is free when none of its two edges and of the two that would replace them is
    an edge or a replacement of any other pair, and no replacement is a loop. That
    depends on each pair's unordered {edges, replacements} only, which a switch leaves
    as it is: a step back is as likely as the step, so the chain is symmetric. Which
    second ends are exchanged is random too, so both switches of two edges can happen,
    and c makes any two edges a pair in some step.
    """
    num_edges = ends.shape[1]
    slot = jax.lax.iota(jnp.int32, num_edges)
    words = client_words(key, num_edges)
    shift = client_words(key, 1, word=1)[0] % jnp.uint32(num_edges)
    mate = (shift.astype(jnp.int32) - slot) % jnp.int32(num_edges)
    lower = jnp.minimum(slot, mate)
    word = words[lower]
    crossed = (word >> 30) & 1 == 1
    first, second = ends
    is_lower = slot == lower
    # exchange the lower slot's second end with the other's second end, or with its
    # first
    theirs = jnp.where(is_lower & crossed, first[mate], second[mate])
    new_first = jnp.where(~is_lower & crossed, second[mate], first)
    new_second = jnp.where(~is_lower & crossed, second, theirs)
    free = _free(ends, jnp.stack([new_first, new_second]), mate, num_clients)
    moves = free & (slot != mate) & (word >> 31 == 1)
    return jnp.where(moves[None], jnp.stack([new_first, new_second]), ends)


def _free(
    old: Int32[Array, "2 edges"],
    new: Int32[Array, "2 edges"],
    mate: Int32[Array, " edges"],
    num_clients: int,
) -> Bool[Array, " edges"]:
    """Flag edges that, with their replacements, are named once in all, loops apart."""
    codes = [
        jnp.minimum(*e) * jnp.int32(num_clients) + jnp.maximum(*e) for e in (old, new)
    ]
    named = jnp.zeros(num_clients * num_clients, jnp.int32)
    for code in codes:
        named = named.at[code].add(1)
    is_free = (named[codes[0]] == 1) & (named[codes[1]] == 1) & (new[0] != new[1])
    return is_free & is_free[mate]


@pytree
class OverBlocks:
    """A graph over blocks, each vertex blown up to its clients; built by `over_blocks`.

    Attributes:
        graph: The graph over blocks.
        block_size: T (static).
    """

    graph: Any  # a GraphModel; while JAX rebuilds the pytree, anything
    block_size: int = static()

    _cells = _one_graph

    def typed(self) -> Calls:
        """Return the call that made it."""
        return [(over_blocks, self.graph, self.block_size)]

    @property
    def num_clients(self) -> int:
        """Return n, the clients of all blocks."""
        return int(self.graph.num_clients) * self.block_size

    @jax.jit
    def sample(self, key: PRNGKey) -> Adjacency:
        """Return the graph in which mates, and clients of joined blocks, are joined."""
        blocks = jax.lax.iota(jnp.int32, self.num_clients) // self.block_size
        near = self.graph.sample(key)[blocks[:, None], blocks[None, :]]
        mates = blocks[:, None] == blocks[None, :]
        return (near | mates) & ~jnp.eye(self.num_clients, dtype=jnp.bool_)


def over_blocks(graph: GraphModel, block_size: Whole) -> OverBlocks:
    """Return a graph over blocks of T clients instead of one over clients.

    The block of client i is i

    T.

    Mates are joined to each other and share all neighbours. That is what blocks need
    which clients keep on a sparse graph (`protocol.run(..., blocks=)`): joining mates
    in any other sparse graph is not enough for a server that lies.

    Args:
        graph: The graph over blocks, e.g. `harary(num_blocks, degree)`.
        block_size: T, at least 1.

    Returns:
        The model, a pytree of n = T times the graph's vertices; with k neighbours of
        each block, every client has T (k + 1) - 1.

    Raises:
        ConfigurationError: If T is no integer from 1 on, there would be too many
            clients, or `graph` is no model.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> model = mj.graphs.over_blocks(mj.graphs.harary(5, 2), 3)
        >>> set(model.sample(jax.random.key(0)).sum(1).tolist())
        {8}
    """
    require(
        isinstance(graph, GraphModel),
        "graph",
        "must be a `GraphModel`, e.g. `graphs.harary(n, k)`",
        graph,
    )
    size = check_integer(block_size, "block_size", 1)
    check_num_clients(int(graph.num_clients) * size)
    return OverBlocks(graph, size)
