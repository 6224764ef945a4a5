"""Assignment graphs: their contract, checked matrices, edges and components.

`edges` numbers the pair seeds of `secagg.Seeds`.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from mrsa_jax._core.array_types import Adjacency, Nested, PRNGKey
from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.streams import MAX_PAIRED
from mrsa_watch._base.errors import check_integer, require

# Pure array functions that map under `jax.vmap`; all take a symmetric adjacency matrix.
# G_3 of CCESA is the graph that the clients of V3 induce.


def component_labels(adjacency: Nested, alive: Nested) -> Int32[Array, " clients"]:
    """Label the component of each living client.

    Args:
        adjacency: bool[n, n], symmetric.
        alive: bool[n], the clients who are left.

    Returns:
        int32[n]: the smallest member of the client's component; -1 for those who are
        lost.

    Raises:
        ConfigurationError: If a shape or a type is wrong.

    Edge cases: with nobody alive all are -1; a client without living neighbours is a
    separate component. Cost: O(n^2) per step and about log n steps at most; a dense
    graph takes three.

    Examples:
        >>> import mrsa_jax as mj
        >>> path = [[False, True, False], [True, False, True], [False, True, False]]
        >>> mj.graphs.component_labels(path, [True, True, True]).tolist()
        [0, 0, 0]
        >>> mj.graphs.component_labels(path, [True, False, True]).tolist()
        [0, -1, 2]
    """
    return _labels(*_checked(adjacency, alive))


def is_connected(adjacency: Nested, alive: Nested) -> Bool[Array, ""]:
    """Return whether the living clients are all in one component.

    Args:
        adjacency: bool[n, n], symmetric.
        alive: bool[n], the clients who are left.

    Returns:
        bool[]; nobody and a single client count as connected.

    Raises:
        ConfigurationError: If a shape or a type is wrong.

    Examples:
        >>> import mrsa_jax as mj
        >>> path = [[False, True, False], [True, False, True], [False, True, False]]
        >>> [
        ...     bool(mj.graphs.is_connected(path, [True, middle, True]))
        ...     for middle in (True, False)
        ... ]
        [True, False]
    """
    labels = component_labels(adjacency, alive)
    return (
        jnp.sum(labels == jax.lax.iota(jnp.int32, labels.shape[0]), dtype=jnp.int32)
        <= 1
    )


def _checked(adjacency: Nested, alive: Nested) -> tuple[Array, Array]:
    matrix, living = on_device(adjacency), on_device(alive)
    require(
        matrix.dtype == jnp.bool_, "adjacency", "must hold bools", str(matrix.dtype)
    )
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
    require(square, "adjacency", "must be a square matrix", f"shape {matrix.shape}")
    require(living.dtype == jnp.bool_, "alive", "must hold bools", str(living.dtype))
    require(
        living.shape == matrix.shape[:1],
        "alive",
        f"must have one entry for each of the {matrix.shape[0]} clients",
        f"shape {living.shape}",
    )
    return matrix, living


@jax.jit
def _labels(
    adjacency: Adjacency, alive: Bool[Array, " clients"]
) -> Int32[Array, " clients"]:
    """Return `component_labels` of checked arrays.

    A label is always a member of the client's component, and never grows. Each step
    takes the least label among a client and its neighbours, hands it to the client's
    old root, and jumps to the label of the label. When a step changes nothing, all of a
    component agree, and its smallest member, whose label cannot be larger than itself,
    says which label that is.
    """
    index = jax.lax.iota(jnp.int32, adjacency.shape[0])
    edge = adjacency & alive[:, None] & alive[None, :]

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        label, _ = carry
        around = jnp.where(edge, label[None, :], jnp.int32(adjacency.shape[0]))
        least = jnp.minimum(label, jnp.min(around, axis=1))
        hooked = jnp.minimum(label.at[label].min(least), least)
        jumped = hooked[hooked]
        return jumped, jnp.any(jumped != label)

    start = varying_like((index, jnp.bool_(True)), edge)
    labels, _ = jax.lax.while_loop(lambda carry: carry[1], step, start)
    return jnp.where(alive, labels, -1)


# CCESA, Section 3: clients are the vertices of G; client i shares keys, secret shares
# and pads with Adj(i) only. Adj(i) -> row i of `adjacency`, bool[n, n], symmetric, with
# a false diagonal.


@runtime_checkable
class GraphModel(Protocol):
    """Which clients share pads in a round.

    A protocol for pytrees with a pure method `sample`.
    `sample` is written for one round and maps under `jax.vmap`.
    """

    @property
    def num_clients(self) -> int:
        """Clients, n."""
        ...

    def sample(self, key: PRNGKey) -> Adjacency:
        """Return a round's adjacency matrix: symmetric, with a false diagonal."""
        ...


def check_num_clients(num_clients: object) -> int:
    """Return n as a Python int, or raise naming `num_clients`."""
    return check_integer(num_clients, "num_clients", 1, MAX_PAIRED)


def check_degree(degree: object, num_clients: int) -> int:
    """Return k as a Python int.

    Raise unless a k-regular graph of n clients exists.
    """
    rule = f"must lie in [0, {num_clients - 1}], below `num_clients`"
    k = check_integer(degree, "degree", 0, num_clients - 1, rule=rule)
    require(
        num_clients * k % 2 == 0,
        "degree",
        "must be even when `num_clients` is odd: n k / 2 is the number of edges",
        k,
        num_clients,
    )
    return k


def check_adjacency(
    adjacency: Nested, *, batch: bool = False
) -> Bool[np.ndarray | Array, "*rounds clients clients"]:
    """Return a graph as a NumPy matrix after checking that it is one.

    Args:
        adjacency: bool[n, n], n at least 1.
        batch: Also take many graphs, along leading axes, and traced ones, of which only
            shape and type are checked.

    Returns:
        bool[n, n].

    Raises:
        ConfigurationError: If it is not square, not of bools, not symmetric, or joins a
            client to itself; the message names the first such entry.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.graphs.check_adjacency([[False, True], [True, False]]).sum()
        np.int64(2)
    """
    is_traced = batch and isinstance(adjacency, jax.core.Tracer)
    matrix: Any = adjacency if is_traced else host_array(adjacency, "adjacency")
    require(matrix.dtype == np.bool_, "adjacency", "must hold bools", str(matrix.dtype))
    is_matrix = matrix.ndim == 2 or (batch and matrix.ndim > 2)
    square = is_matrix and matrix.shape[-1] == matrix.shape[-2] > 0
    require(square, "adjacency", "must be a square matrix", f"shape {matrix.shape}")
    if is_traced:
        return matrix
    loops = np.argwhere(np.diagonal(matrix, axis1=-2, axis2=-1))
    require(
        len(loops) == 0,
        "adjacency",
        "must not join a client to itself",
        *[f"client {at[-1]}" for at in loops[:1]],
    )
    uneven = np.argwhere(matrix & ~np.swapaxes(matrix, -1, -2))
    example = [f"only {at[-2]} -> {at[-1]}" for at in uneven[:1]]
    require(len(uneven) == 0, "adjacency", "must be symmetric", *example)
    return matrix


def edges(adjacency: Nested) -> Int32[np.ndarray, "edges 2"]:
    """Return the edges of a graph, in the order that numbers pair seeds.

    Args:
        adjacency: bool[n, n], symmetric, with a false diagonal.

    Returns:
        int32[E, 2], pairs i < j in lexicographic order.

    Raises:
        ConfigurationError: See `check_adjacency`.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.graphs.edges(
        ...     [[False, True, True], [True, False, False], [True, False, False]]
        ... ).tolist()
        [[0, 1], [0, 2]]
    """
    return np.argwhere(np.triu(check_adjacency(adjacency))).astype(np.int32)
