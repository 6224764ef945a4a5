"""Components under loss of clients, against plain breadth-first search."""

from __future__ import annotations

import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mrsa_jax import ConfigurationError
from mrsa_jax.graphs import complete, component_labels, is_connected

_labels = jax.jit(jax.vmap(component_labels))
_connected = jax.jit(jax.vmap(is_connected))


@pytest.mark.smoke("component_labels")
@pytest.mark.parametrize("function", [component_labels, is_connected])
def test_misuse_is_named(function: object) -> None:
    graph, alive = ~np.eye(3, dtype=bool), np.ones(3, bool)
    for arguments, words in (
        ((graph.astype(int), alive), "`adjacency` must hold bools"),
        (
            (graph[:2], alive),
            r"`adjacency` must be a square matrix; got 'shape \(2, 3\)'",
        ),
        ((graph[0], alive), "`adjacency` must be a square matrix"),
        ((graph[:0, :0], alive[:0]), "`adjacency` must be a square matrix"),
        ((graph, alive.astype(int)), "`alive` must hold bools"),
        (
            (graph, alive[:2]),
            r"`alive` must have one entry for each of the 3 clients; got",
        ),
        ((graph, alive[None]), "`alive` must have one entry for each"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            inspect.unwrap(function)(*arguments)


def _searched(graph: np.ndarray, alive: np.ndarray) -> list[int]:
    """Labels by search from each client in turn."""
    label = [-1] * len(graph)
    for root in range(len(graph)):
        if not alive[root] or label[root] >= 0:
            continue
        queue = [root]
        while queue:
            at = queue.pop()
            if label[at] < 0:
                label[at] = root
                queue += [j for j in range(len(graph)) if graph[at][j] and alive[j]]
    return label


def _assert_as_searched(graphs: np.ndarray, alive: np.ndarray) -> None:
    found = np.asarray(_labels(graphs, alive))
    assert found.dtype == np.int32
    expected = [_searched(g, a) for g, a in zip(graphs, alive, strict=True)]
    assert found.tolist() == expected
    pieces = [len(set(row) - {-1}) for row in expected]
    assert np.asarray(_connected(graphs, alive)).tolist() == [
        number <= 1 for number in pieces
    ]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_graph_and_loss(n: int) -> None:
    pairs = list(itertools.combinations(range(n), 2))
    graphs = np.zeros((2 ** len(pairs), n, n), bool)
    for column, (i, j) in enumerate(pairs):
        graphs[:, i, j] = graphs[:, j, i] = np.arange(len(graphs)) >> column & 1
    alive = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    _assert_as_searched(
        np.repeat(graphs, len(alive), 0), np.tile(alive, (len(graphs), 1))
    )


@given(st.integers(0, 2**32 - 1))
def test_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((20, 17, 17)) < rng.random((20, 1, 1)) ** 3, 1)
    alive = rng.random((20, 17)) < rng.choice([0.3, 0.8, 1.0], (20, 1))
    _assert_as_searched(upper | np.swapaxes(upper, 1, 2), alive)


def test_long_paths_under_any_numbering() -> None:
    """Paths are the worst graphs for passing labels on.

    64 clients, a third of them cut off.
    """
    n, count = 64, 12
    rng = np.random.default_rng(2)
    graphs = np.zeros((count, n, n), bool)
    for graph in graphs:
        order = rng.permutation(n)
        graph[order[1:], order[:-1]] = graph[order[:-1], order[1:]] = True
    alive = np.ones((count, n), bool)
    alive[6:] = rng.random((6, n)) < 0.95
    _assert_as_searched(graphs, alive)


def test_nobody_alive() -> None:
    graph = complete(3).sample(jax.random.key(0))
    assert component_labels(graph, jnp.zeros(3, bool)).tolist() == [-1] * 3
    assert bool(is_connected(graph, jnp.zeros(3, bool)))


def test_labels_are_of_32_bits() -> None:
    with jax.enable_x64(True):
        assert component_labels([[False]], [True]).dtype == jnp.int32
