"""What an assignment graph is: a matrix that is checked, and its edges in order.

`edges` numbers the pair seeds of `secagg.Seeds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.streams import MAX_PAIRED
from mrsa_watch._base.errors import check_integer, require

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


# ---- Adjacency matrices: checks, and edges as a list.


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
