"""Compiled rollouts against the array programs, and their order of equal keys against sorting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import selection
from mrsa_jax._core.selector import Selector
from mrsa_jax._core.streams import as_key
from mrsa_jax.availability import (
    Availability,
    cyclic,
    diurnal,
    independent,
    markov,
    replay,
)
from mrsa_jax.selection import _by_loops, _loops
from mrsa_jax.selection._blocks import BlockSelection

pytest.importorskip("numba", reason="loops are compiled by numba")
LAST = 2**31 - 2


def _blocks_of(n: int, size: int) -> BlockSelection:
    """Return one block a round of blocks that the last clients are too few for."""
    return dataclasses.replace(selection.uniform(n, 1), block_size=jnp.int32(size))


def cases(n: int) -> dict[str, tuple[Selector, object]]:
    """Return schemes of n clients.

    Every mode, blocks that fill no vector, a client without one.
    """
    s, mixed = selection, [(0.0, 0.2, 0.45, 0.1)[i % 4] for i in range(n)]
    t = next(size for size in (3, 2, 1) if n % size == 0)
    k = max(1, n // 6) * t if t > 1 else max(1, n // 3)
    return {
        "uniform": (s.uniform(n, k), mixed),
        "weighted": (s.weighted(n, k), mixed),
        "least used": (s.batch_partitioning(n, k, t), mixed),
        "greedy": (s.batch_partitioning(n, k, t, "greedy"), 0.1),
        "any block": (s.batch_partitioning(n, k, t, "uniform"), mixed),
        "everybody": (s.uniform(n, n), 0.0),
        "nobody": (s.uniform(n, 1), 1.0),
        "coins": (s.bernoulli(n, 0.3), mixed),
        "coins of their own": (
            s.poisson(n, [(0.4, 0.0, 1.0)[i % 3] for i in range(n)]),
            mixed,
        ),
        "certain coins": (s.bernoulli(n, 1.0), 0.1),
        "a last block of fewer": (_blocks_of(n, max(1, n // 2 - 1)), 0.05),
    }


def _day(rates: float | list[float]) -> Availability:
    """Return waves about the mean rate, over more rounds than are played."""
    p = float(np.mean(rates))
    return diurnal(p, 0.9 * min(p, 1 - p), 90, 17)


MODELS: dict[str, Callable[..., Availability]] = {
    "independent": independent,
    "chains": lambda rates: markov(rates, 3.0),
    "cycles": lambda rates: cyclic(
        rates, np.arange(np.size(rates)) if np.ndim(rates) else 2
    ),
    "days": _day,
}


@pytest.mark.long
@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("n", [1, 18, 37])
@pytest.mark.parametrize("model", MODELS)
def test_loops_are_the_array_programs(model: str, n: int) -> None:
    """Histories and counts, over more rounds and trials than a tile and a thread hold."""
    rounds, trials, first = 70, 17, 5
    for name, (scheme, rates) in cases(n).items():
        online = MODELS[model](rates)
        given = (as_key(n), scheme, online, rounds, trials)
        with mj.use_form("xla"):
            expected = np.asarray(selection.rollout_trials(*given, first=first))
        assert _by_loops.runs_loops(given[0], scheme, online.for_clients(n))
        found = selection.rollout_trials(*given, first=first)
        counts = selection.rollout_counts(*given, first=first)
        assert (found.dtype, counts.dtype) == (np.bool_, np.int32)
        assert (np.asarray(found) == expected).all(), name
        assert (np.asarray(counts) == expected.sum(axis=1)).all(), name
        assert expected.any() == (name != "nobody")


@pytest.mark.long
def test_smallest_of_equal_keys() -> None:
    """Against sorting by (key, index).

    Keys all equal, in few values, at both ends, different.
    """
    generator = np.random.default_rng(3)
    top = 2**31 - 1
    for trial in range(300):
        width = _loops.LANES * int(generator.integers(1, 20))
        most = [1, 2, 7, 1000, LAST + 1][trial % 5]
        keys = generator.integers(0, most, width).astype(np.int32)
        if trial % 2:
            keys = LAST - keys
        able = generator.random(width) < generator.choice([0.1, 0.6, 1.0])
        able[int(generator.integers(width))] = True
        keys[~able] = top
        wanted = int(generator.integers(1, able.sum() + 1))
        scores = np.where(able, 3, top).astype(np.int32)
        order = np.lexsort((np.arange(width), keys))
        expected = scores.copy()
        expected[order[:wanted]] = -1
        _loops._take_smallest(keys, wanted, int(able.sum()), scores)
        assert (scores == expected).all()


@pytest.mark.usefixtures("on_a_cpu")
def test_who_runs_by_loops() -> None:
    """Nothing that may choose otherwise, is traced, or has keys of another kind."""

    class Own(BlockSelection):
        pass

    class Chains(type(markov(0.1, 2.0))):  # type: ignore[misc]
        pass

    scheme, online, key = selection.uniform(6, 2), independent([0.1] * 6), as_key(1)
    own = Own(**{f.name: getattr(scheme, f.name) for f in dataclasses.fields(scheme)})
    stacked = jax.tree.map(lambda leaf: leaf[None], scheme)
    assert _by_loops.runs_loops(key, scheme, online)
    assert not _by_loops.runs_loops(key, own, online)
    assert not _by_loops.runs_loops(key, stacked, online)
    coins = (
        selection.poisson(6, 0.5),
        selection.poisson(6, [0.1] * 6),
        selection.bernoulli(6, 0.5),
    )
    assert all(_by_loops.runs_loops(key, own, online) for own in coins)
    several = jax.tree.map(lambda leaf: leaf[None], coins[1])
    assert not _by_loops.runs_loops(key, several, online)
    assert not _by_loops.runs_loops(key, selection.balls_in_bins(6, 3), online)
    chains, days = markov([0.1] * 6, 2.0), diurnal(0.3, 0.2, 7, [3] * 6)
    assert all(_by_loops.runs_loops(key, scheme, model) for model in (chains, days))
    assert not _by_loops.runs_loops(
        key, scheme, Chains(chains.away, chains.leave, chains.back)
    )
    assert not _by_loops.runs_loops(
        key, scheme, jax.tree.map(lambda leaf: leaf[None], chains)
    )
    assert not _by_loops.runs_loops(key, scheme, replay([[1] * 6]))
    # a table of all clients' chances over the cycle would not fit
    many, long = selection.uniform(2**15, 2), diurnal(0.3, 0.2, 2**14)
    assert not _by_loops.runs_loops(key, many, long.for_clients(2**15))
    assert not _by_loops.runs_loops(jax.random.key(1, impl="rbg"), scheme, online)
    for form in ("xla", "pallas"):
        with mj.use_form(form):
            assert not _by_loops.runs_loops(key, scheme, online)
    traced = jax.jit(
        lambda own: (_by_loops.runs_loops(own, scheme, online), own)[0] + 0
    )
    assert not traced(key)
