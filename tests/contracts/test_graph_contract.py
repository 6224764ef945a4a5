"""Every graph model keeps the family's contract: one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import graphs
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.graphs import GraphModel

N, TRIALS = 9, 6
Row = Callable[[], tuple[GraphModel, GraphModel]]
# factory -> [what makes (model, the same model with other numbers)]
MODELS: dict[str, list[Row]] = {
    "complete": [lambda: (graphs.complete(N), graphs.complete(N))],
    "erdos_renyi": [lambda: (graphs.erdos_renyi(N, 0.4), graphs.erdos_renyi(N, 1.0))],
    "harary": [
        lambda: (graphs.harary(N, 4), graphs.harary(N, 8)),
        lambda: (graphs.harary(8, 3), graphs.harary(8, 0)),
    ],
    "over_blocks": [
        lambda: tuple(graphs.over_blocks(graphs.harary(5, k), 2) for k in (2, 4)),
    ],
    # of equal sizes there are no numbers to change: k is the size of a list
    "random_regular": [
        lambda: (graphs.random_regular(N, 4), graphs.random_regular(N, 4)),
        lambda: (graphs.random_regular(8, 5), graphs.random_regular(8, 5)),
    ],
}
ROWS = [
    pytest.param(row, id=f"{name}{i}")
    for name, rows in MODELS.items()
    for i, row in enumerate(rows)
]
RANDOM = [row for row in ROWS if not str(row.id).startswith("complete")]


def _keys(count: int = TRIALS) -> jax.Array:
    return jax.vmap(lambda t: trial_key(as_key(5), t))(
        jnp.arange(count, dtype=jnp.uint32)
    )


_sample = jax.jit(lambda model, key: model.sample(key))
_mapped = jax.jit(jax.vmap(lambda model, key: model.sample(key), in_axes=(None, 0)))


@pytest.mark.smoke
def test_every_factory_is_in_the_table() -> None:
    found = set()
    for name in graphs.__all__:
        function = inspect.unwrap(getattr(graphs, name))
        if name.islower() and inspect.isfunction(function):
            hint = inspect.signature(function).return_annotation
            if hasattr(function.__globals__.get(str(hint)), "sample"):
                found.add(name)
    assert found == set(MODELS)


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
def test_model(row: Row) -> None:
    model, other = row()
    assert isinstance(model, GraphModel)
    keys, n = _keys(), model.num_clients
    batch = _mapped(model, keys)
    assert batch.shape == (TRIALS, n, n)
    assert batch.dtype == jnp.bool_
    for b, graph in enumerate(np.asarray(batch)):
        assert (graph == graph.T).all()
        assert not graph.diagonal().any()
        # a row of a batch: the trial alone
        assert np.array_equal(_sample(model, keys[b]), graph)
    assert np.array_equal(model.sample(keys[1]), batch[1])  # without jit
    with jax.enable_x64(True):
        wide = _sample(model, keys[2])
    assert wide.dtype == jnp.bool_
    assert np.array_equal(wide, batch[2])

    compiled = _mapped._cache_size()
    _mapped(other, keys)
    assert _mapped._cache_size() == compiled


@pytest.mark.parametrize("row", RANDOM)
def test_model_is_random(row: Row) -> None:
    drawn = np.asarray(_mapped(row()[0], _keys()))
    assert len({graph.tobytes() for graph in drawn}) > 1


@pytest.mark.long("random_regular1")
@pytest.mark.parametrize("row", ROWS)
def test_models_stack(row: Row) -> None:
    """Models of equal sizes are the rows of one stacked model."""
    model, other = row()
    key = as_key(3)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), model, other)
    leaves = jax.tree.leaves(both)
    axes = 0 if leaves else None
    sample = jax.jit(jax.vmap(lambda m: m.sample(key), in_axes=axes, axis_size=2))
    together = np.asarray(sample(both))
    assert np.array_equal(together[0], _sample(model, key))
    assert np.array_equal(together[1], _sample(other, key))
