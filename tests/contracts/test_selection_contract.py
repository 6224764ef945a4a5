"""Every selector and availability model keeps its family's contract: one table each."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import availability, selection
from mrsa_jax._streams import as_key, trial_key
from mrsa_jax.selection import Selector, SelectorState

N, K = 12, 6
# factory -> [(scheme, the same scheme with other numbers, block size, cohort size or None)]
SELECTORS = {
    "uniform": [(selection.uniform(N, K), selection.uniform(N, 3), 1, K)],
    "weighted": [(selection.weighted(N, K), selection.weighted(N, 2), 1, K)],
    "partition": [(selection.partition(N, K), selection.partition(N, 4), K, K)],
    "batch_partitioning": [
        (
            selection.batch_partitioning(N, K, t, fairness),
            selection.batch_partitioning(N, 4, 4),
            t,
            K,
        )
        for t in (1, 2, 3, 6)
        for fairness in ("least_used", "uniform", "greedy")
    ],
    "bernoulli": [(selection.bernoulli(N, 0.5), selection.bernoulli(N, 0.9), 1, None)],
}
AVAILABILITY = {
    "independent": [
        (availability.independent(0.3), availability.independent(0.9)),
        (availability.independent([0.2] * N), availability.independent(np.linspace(0, 1, N))),
    ],
}
ROWS = [
    pytest.param(*row, id=f"{name}{i}")
    for name, rows in SELECTORS.items()
    for i, row in enumerate(rows)
]
MODELS = [
    pytest.param(*row, id=f"{name}{i}")
    for name, rows in AVAILABILITY.items()
    for i, row in enumerate(rows)
]


def _factories(module: object, returned: type) -> set[str]:
    """Public lower-case functions that return something with the protocol's methods."""
    methods = [m for m in vars(returned) if not m.startswith("_")]
    found = set()
    for name in module.__all__:  # type: ignore[attr-defined]
        function = getattr(module, name)
        if not inspect.isfunction(inspect.unwrap(function)) or not name.islower():
            continue
        hint = inspect.signature(inspect.unwrap(function)).return_annotation
        built = getattr(module, str(hint), None)
        if inspect.isclass(built) and all(hasattr(built, m) or m == "num_clients" for m in methods):
            found.add(name)
    return found


def test_every_factory_is_in_its_table() -> None:
    assert _factories(selection, Selector) == set(SELECTORS)
    assert _factories(availability, availability.Availability) == set(AVAILABILITY)


def _states(trials: int) -> tuple[jax.Array, SelectorState, jax.Array]:
    """Keys [B], counts [N, B] equal within blocks of 6, availability [N, B]."""
    rng = np.random.default_rng(0)
    keys = jax.vmap(lambda t: trial_key(as_key(1), t))(jnp.arange(trials, dtype=jnp.uint32))
    counts = np.repeat(rng.integers(0, 3, (2, trials)), 6, axis=0)
    available = rng.random((N, trials)) < rng.choice([0.5, 0.9, 0.98], trials)
    return keys, SelectorState(jnp.asarray(counts, jnp.int32)), jnp.asarray(available)


_select = jax.jit(lambda s, *a: s.select(*a))
_mapped = jax.jit(lambda s, *a: jax.vmap(s.select, in_axes=(0, -1, -1), out_axes=-1)(*a))
_sample = jax.jit(lambda m, key: m.sample(key, m.init(key))[0])


@pytest.mark.parametrize(("selector", "other", "block", "size"), ROWS)
def test_selector(selector: Selector, other: Selector, block: int, size: int | None) -> None:
    assert isinstance(selector, Selector)
    assert selector.num_clients == N
    start = selector.init()
    assert start.counts.dtype == jnp.int32
    assert start.counts.tolist() == [0] * N
    trials = 64
    keys, states, available = _states(trials)
    together, after = _select(selector, keys, states, available)  # trials as trailing axes
    assert together.shape == (N, trials)
    assert together.dtype == jnp.bool_
    mapped, _ = _mapped(selector, keys, states, available)
    assert (mapped == together).all()
    for b in range(8):  # a row of a batch is the same trial alone
        alone = _select(selector, keys[b], SelectorState(states.counts[:, b]), available[:, b])
        assert (alone[0] == together[:, b]).all()
        assert (alone[1].counts == after.counts[:, b]).all()

    cohorts = np.asarray(together)
    assert not (cohorts & ~np.asarray(available)).any()
    assert (np.asarray(after.counts - states.counts) == cohorts).all()
    blocks = cohorts.reshape(-1, block, trials)
    assert (blocks.all(1) == blocks.any(1)).all()
    if size is not None:
        whole = np.asarray(available).reshape(-1, block, trials).all(1).sum(0)
        assert (cohorts.sum(0) == np.where(whole >= size // block, size, 0)).all()
        assert set(cohorts.sum(0)) == {0, size}

    compiled = _select._cache_size()
    _select(other, keys, states, available)
    assert _select._cache_size() == compiled


@pytest.mark.parametrize(("selector", "other", "block", "size"), ROWS[:1] + ROWS[-1:])
def test_selector_without_jit(
    selector: Selector, other: Selector, block: int, size: int | None
) -> None:
    del other, block, size
    keys, states, available = _states(3)
    together, _ = _select(selector, keys, states, available)
    eager, _ = selector.select(keys, states, available)
    assert (eager == together).all()


@pytest.mark.parametrize(("model", "other"), MODELS)
def test_availability(model: availability.Availability, other: availability.Availability) -> None:
    assert isinstance(model, availability.Availability)
    model, other = model.for_clients(N), other.for_clients(N)
    keys, _, _ = _states(32)
    alone = jnp.stack([_sample(model, key) for key in keys], axis=-1)
    assert alone.shape == (N, 32)
    assert alone.dtype == jnp.bool_
    assert (alone == jax.vmap(lambda key: _sample(model, key), out_axes=-1)(keys)).all()
    if getattr(model, "takes_trials", False):
        assert (alone == model.sample(keys, model.init(keys[0]))[0]).all()
    compiled = _sample._cache_size()
    _sample(other, keys[0])
    assert _sample._cache_size() == compiled
    with jax.enable_x64(True):
        assert (np.asarray(model.sample(keys[0], model.init(keys[0]))[0]) == alone[:, 0]).all()
