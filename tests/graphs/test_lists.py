"""Checks and edges."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.graphs import check_adjacency, complete, edges, erdos_renyi
from mrsa_jax.secagg.seeds import edge_rows

PATH = np.asarray([[0, 1, 0], [1, 0, 1], [0, 1, 0]], bool)


def _with(at: tuple[int, int], value: bool) -> np.ndarray:
    graph = PATH.copy()
    graph[at] = value
    return graph


@pytest.mark.parametrize("function", [check_adjacency, edges])
@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (PATH.astype(np.float32), "`adjacency` must hold bools; got 'float32'"),
        (PATH[:2], r"`adjacency` must be a square matrix; got 'shape \(2, 3\)'"),
        (PATH[None], r"`adjacency` must be a square matrix; got 'shape \(1, 3, 3\)'"),
        (PATH[:0, :0], "`adjacency` must be a square matrix"),
        (_with((0, 2), True), "`adjacency` must be symmetric; got 'only 0 -> 2'"),
        (
            _with((2, 2), True),
            "`adjacency` must not join a client to itself; got 'client 2'",
        ),
    ],
)
def test_misuse_is_named(function: Any, graph: np.ndarray, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        inspect.unwrap(function)(graph)


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
    assert edge_rows(found[:, 0], found[:, 1], 6).tolist() == list(range(15))
