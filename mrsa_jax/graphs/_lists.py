"""Adjacency matrices as lists: checks, edges, padded neighbour lists.

`edges` numbers the pair seeds of `secagg.Seeds`; neighbour lists feed kernels whose work grows as
n k and not as n^2.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.checks import check_integer
from mrsa_jax._core.errors import require
from mrsa_jax._core.streams import MAX_PAIRED
from mrsa_jax._core.tracing import one_program

# ---- What every assignment graph offers: an adjacency matrix from a key.
#
# CCESA, Section 3: clients are the vertices of G; client i shares keys, secret shares and pads with
# Adj(i) only. Adj(i) -> row i of `adjacency`, bool[n, n], symmetric, with a false diagonal.


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


# ---- Adjacency matrices as lists: checks, edges, padded neighbour lists.


def check_adjacency(
    adjacency: ArrayLike | Sequence[Any], *, batch: bool = False
) -> Bool[np.ndarray | Array, "*rounds clients clients"]:
    """Return a graph as a NumPy matrix after checking that it is one.

    Args:
        adjacency: bool[n, n], n at least 1.
        batch: Also take many graphs, along leading axes, and traced ones, of which only shape and
            type are checked.

    Returns:
        bool[n, n].

    Raises:
        ConfigurationError: If it is not square, not of bools, not symmetric, or joins a client
            to itself; the message names the first such entry.

    Examples:
        >>> check_adjacency([[False, True], [True, False]]).sum()
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
    rule = "must not join a client to itself"
    require(len(loops) == 0, "adjacency", rule, *[f"client {at[-1]}" for at in loops[:1]])
    uneven = np.argwhere(matrix & ~np.swapaxes(matrix, -1, -2))
    found = [f"only {at[-2]} -> {at[-1]}" for at in uneven[:1]]
    require(len(uneven) == 0, "adjacency", "must be symmetric", *found)
    return matrix


def edges(adjacency: ArrayLike | Sequence[Any]) -> Int32[np.ndarray, "edges 2"]:
    """Return the edges of a graph, in the order that numbers pair seeds.

    Args:
        adjacency: bool[n, n], symmetric, with a false diagonal.

    Returns:
        int32[E, 2], pairs i < j in lexicographic order.

    Raises:
        ConfigurationError: See `check_adjacency`.

    Examples:
        >>> edges([[False, True, True], [True, False, False], [True, False, False]]).tolist()
        [[0, 1], [0, 2]]
    """
    return np.argwhere(np.triu(check_adjacency(adjacency))).astype(np.int32)


def neighbour_lists(
    adjacency: ArrayLike | Sequence[Any], width: int | np.integer
) -> tuple[Int32[Array, "clients {width}"], Bool[Array, "clients {width}"]]:
    """Return every client's neighbours as one row of equal length.

    Args:
        adjacency: bool[n, n], symmetric, with a false diagonal.
        width: Length of the rows, at least the largest degree.

    Returns:
        Neighbours, int32[n, width], ascending, then the client's own number where there are no
        more; and bool[n, width], which entries are neighbours.

    Raises:
        ConfigurationError: If the matrix is not a graph or some degree exceeds `width`. Traced
            values cannot raise: there the neighbours with the largest numbers are left out, so
            compare `degrees(adjacency)` with `width` first.

    Examples:
        >>> lists, valid = neighbour_lists([[False, True], [True, False]], 2)
        >>> lists.tolist(), valid.tolist()
        ([[1, 0], [0, 1]], [[True, False], [True, False]])
    """
    size = check_integer(width, "width", 0)
    if isinstance(adjacency, jax.core.Tracer):
        return _neighbour_lists(adjacency, size)
    matrix = np.asarray(check_adjacency(adjacency))
    largest = int(matrix.sum(axis=1).max())
    require(largest <= size, "width", f"must be at least the largest degree, {largest}", size)
    return _neighbour_lists(on_device(matrix), size)


@functools.partial(one_program, static_argnums=1)
def _neighbour_lists(adjacency: Bool[Array, "clients clients"], width: int) -> tuple[Array, Array]:
    """Sort every row's neighbours to its front."""
    num_clients = adjacency.shape[0]
    index = jax.lax.broadcasted_iota(jnp.int32, (num_clients, num_clients), 1)
    none = jnp.int32(num_clients)
    ordered = jnp.sort(jnp.where(adjacency, index, none), axis=1)[:, :width]
    missing = max(0, width - num_clients)
    ordered = jnp.pad(ordered, ((0, 0), (0, missing)), constant_values=num_clients)
    valid = ordered < none
    own = jax.lax.broadcasted_iota(jnp.int32, (num_clients, width), 0)
    return jnp.where(valid, ordered, own), valid
