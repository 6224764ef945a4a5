"""Graph models: misuse, degrees, and laws against combinatorics."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mrsa_jax import ConfigurationError
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.graphs import (
    complete,
    erdos_renyi,
    harary,
    is_connected,
    over_blocks,
    random_regular,
)
from mrsa_jax.graphs.models import _switch_pairs

FALSE_FAILURE = 1e-6


def _keys(count: int, seed: int = 1) -> jax.Array:
    return jax.vmap(lambda t: trial_key(as_key(seed), t))(
        np.arange(count, dtype=np.uint32)
    )


def _graphs(model: Any, count: int, seed: int = 1) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(model.sample))(_keys(count, seed)))


@pytest.mark.parametrize(
    ("factory", "arguments", "words"),
    [
        (complete, (0,), r"`num_clients` must lie in \[1, 92681\]; got 0"),
        (complete, (2.0,), "`num_clients` must be an integer; got 2.0"),
        (complete, (True,), "`num_clients` must be an integer; got True"),
        (over_blocks, (5, 2), "`graph` must be a `GraphModel`"),
        (over_blocks, (complete(5), 0), "`block_size` must be at least 1"),
        (over_blocks, (complete(5), 20_000), "`num_clients` must lie in"),
        (erdos_renyi, (-1, 0.5), "`num_clients` must lie in"),
        (erdos_renyi, (100_000, 0.5), "`num_clients` must lie in"),
        (
            erdos_renyi,
            (3, -0.1),
            r"`connection_probability` must lie in \[0, 1\]; got -0.1",
        ),
        (
            erdos_renyi,
            (3, 1.117),
            r"`connection_probability` must lie in \[0, 1\]; got 1.117",
        ),
        (
            erdos_renyi,
            (3, math.nan),
            r"`connection_probability` must lie in \[0, 1\]; got nan",
        ),
        (erdos_renyi, (3, True), "`connection_probability` must be a number"),
        (erdos_renyi, (3, "0.5"), "`connection_probability` must be a number"),
        (erdos_renyi, (3, [0.5]), "`connection_probability` must be a number"),
        (
            harary,
            (5, 3),
            "`degree` must be even when `num_clients` is odd.*; got 3 and 5",
        ),
        (harary, (4, 4), r"`degree` must lie in \[0, 3\], below `num_clients`; got 4"),
        (harary, (4, -2), r"`degree` must lie in \[0, 3\]"),
        (harary, (4, 2.0), "`degree` must be an integer"),
        (harary, (0, 0), "`num_clients` must lie in"),
        (
            random_regular,
            (7, 3),
            "`degree` must be even when `num_clients` is odd.*; got 3 and 7",
        ),
        (
            random_regular,
            (4, 4),
            r"`degree` must lie in \[0, 3\], below `num_clients`; got 4",
        ),
        (random_regular, (4, "2"), "`degree` must be an integer"),
    ],
)
def test_misuse_is_named(factory: Any, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        inspect.unwrap(factory)(*arguments)


def test_complete() -> None:
    for n in (1, 2, 5):
        expected = [[i != j for j in range(n)] for i in range(n)]
        assert complete(n).sample(as_key(0)).tolist() == expected


# -- G(n, p)
# --------------------------------------------------------------------------------------


def test_chances_of_nothing_and_of_everything() -> None:
    for n in (1, 2, 30):
        assert not np.asarray(erdos_renyi(n, 0).sample(as_key(1))).any()
        assert np.array_equal(
            erdos_renyi(n, 1.0).sample(as_key(1)), complete(n).sample(as_key(1))
        )
    assert not np.asarray(erdos_renyi(200, 2.0**-40).sample(as_key(2))).any()


def test_chance_is_rounded_to_32_bits() -> None:
    for p, threshold in (
        (0.5, 2**31),
        (2.0**-32, 1),
        (0.6 * 2.0**-32, 1),
        # one word apart from 1, which has the last threshold
        (1 - 2.0**-32, 2**32 - 2),
        (1 - 2.0**-40, 2**32 - 2),
    ):
        assert int(erdos_renyi(2, p).threshold) == threshold
    assert int(erdos_renyi(2, np.float32(0.25)).threshold) == 2**30
    assert int(erdos_renyi(2, jnp.float32(0.25)).threshold) == 2**30


def test_pair_does_not_depend_on_how_many_clients_there_are() -> None:
    large = np.asarray(erdos_renyi(300, 0.3).sample(as_key(4)))
    for n in (1, 2, 3, 50):
        assert np.array_equal(erdos_renyi(n, 0.3).sample(as_key(4)), large[:n, :n])


def test_graphs_grow_with_the_chance() -> None:
    few, more = (np.asarray(erdos_renyi(60, p).sample(as_key(4))) for p in (0.3, 0.5))
    assert (few <= more).all()
    assert few.sum() < more.sum()


@pytest.mark.parametrize("p", [0.05, 0.6362])
def test_edges_are_independent_with_chance_p(p: float) -> None:
    """Every pair, its degree sums, and pairs of pairs, against the binomial law."""
    n, count = 8, 20_000
    drawn = _graphs(erdos_renyi(n, p), count)
    each = drawn[:, *np.triu_indices(n, 1)].astype(float)
    pairs = each.shape[1]
    z = (each.mean(0) - p) / math.sqrt(p * (1 - p) / count)
    assert np.abs(z).max() < stats.norm.isf(FALSE_FAILURE / 2 / pairs)
    joint = (each.T @ each) / count
    variance = p**2 * (1 - p**2) / count
    off = (joint - p**2)[np.triu_indices(pairs, 1)] / math.sqrt(variance)
    assert np.abs(off).max() < stats.norm.isf(FALSE_FAILURE / 2 / len(off)) * 1.3
    counts = np.bincount(each.sum(1).astype(int), minlength=pairs + 1)
    expected = stats.binom.pmf(np.arange(pairs + 1), pairs, p) * count
    keep = expected > 10
    statistic = ((counts - expected)[keep] ** 2 / expected[keep]).sum()
    assert statistic < stats.chi2.isf(FALSE_FAILURE, keep.sum())


# -- circulants
# -----------------------------------------------------------------------------------


@pytest.mark.long("6-3")
@pytest.mark.parametrize(
    ("n", "k"), [(1, 0), (2, 1), (5, 2), (6, 3), (8, 7), (9, 8), (10, 0)]
)
def test_harary_is_the_circulant_under_a_relabelling(n: int, k: int) -> None:
    ring = np.zeros((n, n), bool)
    for i in range(n):
        for d in [*range(1, k // 2 + 1), *([n // 2] if k % 2 else [])]:
            ring[i, (i + d) % n] = ring[(i + d) % n, i] = True
    graph = np.asarray(harary(n, k).sample(as_key(7)))
    assert (graph.sum(1) == k).all()
    if n <= 6:
        relabelled = {
            ring[np.ix_(order, order)].tobytes()
            for order in itertools.permutations(range(n))
        }
        assert graph.tobytes() in relabelled
    spectrum = [np.sort(np.linalg.eigvalsh(a.astype(float))) for a in (graph, ring)]
    assert np.allclose(*spectrum, atol=1e-9)


@pytest.mark.long
def test_harary_survives_the_loss_of_fewer_than_k() -> None:
    """H(n, k) is k-connected.

    No loss of k - 1 clients splits it, and some loss of k does.
    """
    n = 8
    for k in (2, 3, 4, 5):
        graph = harary(n, k).sample(as_key(k))
        connected = jax.jit(jax.vmap(is_connected, in_axes=(None, 0)))
        for size, expected in ((k - 1, True), (k, False)):
            lost = np.asarray(list(itertools.combinations(range(n), size)))
            alive = np.ones((len(lost), n), bool)
            np.put_along_axis(alive, lost, False, axis=1)
            assert bool(connected(graph, alive).all()) == expected


def _assert_cells_are_even(graphs: np.ndarray, num_cells: int) -> None:
    """Every labelled graph of the class equally often."""
    n = graphs.shape[-1]
    bits = graphs[:, *np.triu_indices(n, 1)]
    code = (bits * 2 ** np.arange(bits.shape[1])).sum(1)
    counts = np.unique(code, return_counts=True)[1]
    assert len(counts) == num_cells
    expected = len(graphs) / num_cells
    low, high = stats.chi2.ppf(
        [FALSE_FAILURE / 2, 1 - FALSE_FAILURE / 2], num_cells - 1
    )
    assert low < ((counts - expected) ** 2 / expected).sum() < high


def test_harary_places_clients_evenly() -> None:
    """The 60 cycles on six labelled clients are equally likely."""
    _assert_cells_are_even(_graphs(harary(6, 2), 12_000), 60)


# -- random regular
# -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "k"), [(1, 0), (2, 1), (3, 2), (4, 2), (10, 3), (21, 16)]
)
def test_random_regular_is_simple_and_regular(n: int, k: int) -> None:
    for graph in _graphs(random_regular(n, k), 20):
        assert (graph.sum(1) == k).all()
        assert (graph == graph.T).all()
        assert not graph.diagonal().any()


def test_a_step_of_switches_keeps_graphs_simple_and_degrees() -> None:
    """From a cycle of five and one chord, in which hardly any two edges may switch."""
    ends = np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]], np.int32)
    step = jax.jit(jax.vmap(lambda key: _switch_pairs(key, jax.device_put(ends), 5)))
    graphs = set()
    for first, second in np.asarray(step(jax.random.split(as_key(0), 200))):
        graph = np.zeros((5, 5), int)
        np.add.at(graph, (first, second), 1)
        graph += graph.T
        assert graph.max() == 1
        assert not graph.diagonal().any()
        assert graph.sum(axis=1).tolist() == [3, 2, 3, 2, 2]
        graphs.add(graph.tobytes())
    assert len(graphs) > 1


@pytest.mark.long
@pytest.mark.parametrize(("k", "number"), [(3, 70), (2, 70), (4, 15)])
def test_random_regular_is_near_uniform(k: int, number: int) -> None:
    """On six clients there are 70 labelled graphs of degree 3.

    10 of K_{3,3} and 60 prisms.
    Of degree 2 as many: 60 cycles of six and 10 pairs of triangles; of degree 4, 15.
    """
    _assert_cells_are_even(_graphs(random_regular(6, k), 14_000), number)


@pytest.mark.long
def test_random_regular_has_the_triangles_of_the_uniform_law() -> None:
    """Against all 19,355 cubic graphs on eight clients, counted here one by one."""
    law: dict[int, int] = {}
    for graph in _cubic_graphs(8):
        triangles = int(np.trace(np.linalg.matrix_power(graph, 3))) // 6
        law[triangles] = law.get(triangles, 0) + 1
    assert sum(law.values()) == 19_355
    drawn = _graphs(random_regular(8, 3), 8000).astype(int)
    found = np.trace(drawn @ drawn @ drawn, axis1=1, axis2=2) // 6
    values, counts = np.unique(found, return_counts=True)
    assert set(values.tolist()) <= set(law)
    expected = np.asarray([law[v] for v in sorted(law)]) * len(drawn) / 19_355
    counted = np.asarray(
        [dict(zip(values, counts, strict=True)).get(v, 0) for v in sorted(law)]
    )
    statistic = ((counted - expected) ** 2 / expected).sum()
    assert statistic < stats.chi2.isf(FALSE_FAILURE, len(expected) - 1)


def _cubic_graphs(n: int) -> list[np.ndarray]:
    """All cubic graphs on n labelled clients.

    Give each in turn the neighbours that it lacks.
    """
    found = []

    def extend(graph: np.ndarray, client: int) -> None:
        if client == n:
            found.append(graph)
            return
        lacking = 3 - int(graph[client].sum())
        later = [j for j in range(client + 1, n) if graph[j].sum() < 3]
        for chosen in itertools.combinations(later, max(lacking, 0)):
            following = graph.copy()
            following[client, list(chosen)] = following[list(chosen), client] = 1
            extend(following, client + 1)

    extend(np.zeros((n, n), int), 0)
    return found


def test_mates_share_one_closed_neighbourhood() -> None:
    for drawn, base in zip(
        _graphs(over_blocks(erdos_renyi(6, 0.5), 3), 20),
        _graphs(erdos_renyi(6, 0.5), 20),
        strict=True,
    ):
        closed = drawn | np.eye(18, dtype=bool)
        assert np.array_equal(
            closed, np.kron(base | np.eye(6, dtype=bool), np.ones((3, 3), bool))
        )
