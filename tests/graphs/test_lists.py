"""Checks, edges and neighbour lists."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.graphs import check_adjacency, complete, edges, erdos_renyi
from mrsa_jax.graphs._lists import neighbour_lists
from mrsa_jax.secagg import _types

PATH = np.asarray([[0, 1, 0], [1, 0, 1], [0, 1, 0]], bool)


def _with(at: tuple[int, int], value: bool) -> np.ndarray:
    graph = PATH.copy()
    graph[at] = value
    return graph


@pytest.mark.parametrize("function", [check_adjacency, edges, lambda a: neighbour_lists(a, 3)])
@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (PATH.astype(np.float32), "`adjacency` must hold bools; got 'float32'"),
        (PATH[:2], r"`adjacency` must be a square matrix; got 'shape \(2, 3\)'"),
        (PATH[None], r"`adjacency` must be a square matrix; got 'shape \(1, 3, 3\)'"),
        (PATH[:0, :0], "`adjacency` must be a square matrix"),
        (_with((0, 2), True), "`adjacency` must be symmetric; got 'only 0 -> 2'"),
        (_with((2, 2), True), "`adjacency` must not join a client to itself; got 'client 2'"),
    ],
)
def test_misuse_is_named(function: Any, graph: np.ndarray, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        inspect.unwrap(function)(graph)


def test_width_must_hold_the_largest_degree() -> None:
    for width, words in (
        (1, "`width` must be at least the largest degree, 2; got 1"),
        (-1, "`width` must be at least 0; got -1"),
        (2.0, "`width` must be an integer; got 2.0"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            inspect.unwrap(neighbour_lists)(PATH, width)


def test_check_takes_what_is_a_graph() -> None:
    for graph in (PATH, jnp.asarray(PATH), PATH.tolist()):
        checked = check_adjacency(graph)
        assert isinstance(checked, np.ndarray)
        assert np.array_equal(checked, PATH)
    assert check_adjacency([[False]]).shape == (1, 1)


def test_edges_are_lexicographic() -> None:
    graph = np.asarray(erdos_renyi(12, 0.5).sample(jax.random.key(3)))
    expected = [[i, j] for i in range(12) for j in range(i + 1, 12) if graph[i, j]]
    found = edges(graph)
    assert found.dtype == np.int32
    assert found.tolist() == expected
    assert edges([[False]]).shape == (0, 2)


def test_edges_of_the_complete_graph_number_the_pair_seeds() -> None:
    found = edges(complete(6).sample(jax.random.key(0)))
    assert [_types.edge_index(int(i), int(j), 6) for i, j in found] == list(range(15))


@pytest.mark.parametrize("width", [0, 2, 3, 9, 20])
def test_neighbour_lists_are_padded_with_the_client(width: int) -> None:
    graph = np.asarray(erdos_renyi(9, 0.4 if width > 3 else 0.0).sample(jax.random.key(1)))
    if width == 2:
        graph = np.roll(np.eye(9, dtype=bool), 1, 0) | np.roll(np.eye(9, dtype=bool), -1, 0)
    lists, valid = neighbour_lists(graph, width)
    assert lists.dtype == jnp.int32
    rows, used = np.asarray(lists).tolist(), np.asarray(valid).tolist()
    for i in range(9):
        own = np.flatnonzero(graph[i]).tolist()
        assert rows[i] == own + [i] * (width - len(own))
        assert used[i] == [True] * len(own) + [False] * (width - len(own))


def test_neighbour_lists_map() -> None:
    keys = jax.random.split(jax.random.key(4), 5)
    graphs = np.asarray(jax.vmap(erdos_renyi(7, 0.5).sample)(keys))
    lists, valid = map(np.asarray, jax.jit(jax.vmap(lambda own: neighbour_lists(own, 6)))(graphs))
    for b in range(5):
        alone = neighbour_lists(graphs[b], 6)
        assert np.array_equal(alone[0], lists[b])
        assert np.array_equal(alone[1], valid[b])
    # traced values cannot raise: the largest numbers are left out
    cut, kept = jax.jit(lambda graph: neighbour_lists(graph, 1))(jnp.asarray(PATH))
    assert cut.tolist() == [[1], [0], [1]]
    assert np.asarray(kept).all()
