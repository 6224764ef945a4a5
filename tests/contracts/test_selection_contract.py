"""Every selector and availability model keeps its family's contract: one table each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError, availability, selection
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.selector import block_size_of, cohort_size_of
from mrsa_jax._core.streams import as_key, trial_key
from mrsa_jax.selection import Selector

N, K = 12, 6
TRIALS = 64  # everywhere: a selector is compiled once for them
_SEPARATED = selection.minimum_separation
_POWER = selection.power_of_choice
_CROSSING = selection.crossing_partitions
_RATES = np.linspace(0, 1, N)
_PARTS = np.arange(N)[:, None] >= [0, 5]  # classes of 5 and 7


def _within(*arguments: Any) -> Any:
    return selection.blocks_within(*arguments).selector


_LINES = np.concatenate(
    [np.roll(np.eye(4, dtype=int).repeat(3, 1), r, 1) for r in range(3)]
)
Row = Callable[[], tuple[Any, ...]]
# factory -> [what makes (scheme, the same with other numbers, block size, cohort size
# or None)]
SELECTORS: dict[str, list[Row]] = {
    "uniform": [lambda: (selection.uniform(N, K), selection.uniform(N, 3), 1, K)],
    "weighted": [lambda: (selection.weighted(N, K), selection.weighted(N, 2), 1, K)],
    "partition": [lambda: (selection.partition(N, K), selection.partition(N, 4), K, K)],
    "batch_partitioning": [
        lambda t=t, fairness=fairness: (
            selection.batch_partitioning(N, K, t, fairness),
            selection.batch_partitioning(N, 4, 4),
            t,
            K,
        )
        for t in (1, 2, 3, 6)
        for fairness in ("least_used", "uniform", "greedy")
    ],
    "blocks_within": [
        lambda: (_within(_PARTS, K, 3), _within(_PARTS, 3, 3, "greedy"), 1, K)
    ],
    "crossing_partitions": [
        lambda: (_CROSSING(N, K, 2), _CROSSING(N, 4, 2, "uniform"), 1, K),
        # a grid and a block
        lambda: (_CROSSING(N, 9, 3, "greedy"), _CROSSING(N, 3, 3), 1, 9),
    ],
    "from_lines": [
        lambda: (
            selection.from_lines(_LINES, K, fairness="greedy"),
            selection.from_lines(_LINES[::-1], 3),
            1,
            K,
        )
    ],
    "power_of_choice": [
        lambda: (
            _POWER(N, K, 8),
            _POWER(N, 3, 3, initial_loss=2.0, decay=0.5, recovery=1.5),
            1,
            K,
        ),
        lambda: (
            _POWER(N, K, 12, initial_loss=1.0 + _RATES),
            _POWER(N, 5, 7, final_loss=0.5),
            1,
            K,
        ),
    ],
    "minimum_separation": [
        lambda: (
            _SEPARATED(selection.uniform(N, 3), 3),
            _SEPARATED(selection.uniform(N, 5), 2),
            1,
            3,
        ),
        lambda: (
            _SEPARATED(selection.batch_partitioning(N, 4, 2), 2),
            _SEPARATED(selection.batch_partitioning(N, 6, 3), 3),
            2,
            4,
        ),
        lambda: (_SEPARATED(_POWER(N, 4, 8), 2), _SEPARATED(_POWER(N, 3, 9), 3), 1, 4),
        lambda: (
            _SEPARATED(selection.bernoulli(N, 0.5), 2),
            _SEPARATED(selection.bernoulli(N, 0.9), 4),
            1,
            None,
        ),
    ],
    "balls_in_bins": [
        lambda fresh=fresh: (
            *(selection.balls_in_bins(N, bins, fresh=fresh) for bins in (2, 5)),
            1,
            None,
        )
        for fresh in (False, True)
    ],
    "poisson": [
        lambda: (
            selection.poisson(N, _RATES),
            selection.poisson(N, _RATES[::-1]),
            1,
            None,
        )
    ],
    "bernoulli": [
        lambda: (selection.bernoulli(N, 0.5), selection.bernoulli(N, 0.9), 1, None)
    ],
}
_TRACES = np.random.default_rng(3).random((2, 7, N)) < 0.6
AVAILABILITY: dict[str, list[Row]] = {
    "independent": [
        lambda: (availability.independent(0.3), availability.independent(0.9)),
        lambda: (availability.independent([0.2] * N), availability.independent(_RATES)),
    ],
    "markov": [
        lambda: (availability.markov(0.3, 4.0), availability.markov(0.5, 2.0)),
        lambda: (
            availability.markov(_RATES * 0.9, 12.0),
            availability.markov(0.5, 1.0 + _RATES),
        ),
    ],
    "cyclic": [
        lambda: (
            availability.cyclic([0.1, 0.9, 0.4], 2),
            availability.cyclic([0.3, 0.2, 0.0]),
        )
    ],
    "diurnal": [
        lambda: (
            availability.diurnal(0.5, 0.4, 6, list(range(N))),
            availability.diurnal(0.4, 0.1, 6, [0] * N),
        )
    ],
    "replay": [
        lambda: (
            availability.replay(_TRACES[0]),
            availability.replay(_TRACES[1], beyond="absent"),
        ),
        lambda: (
            availability.replay(_TRACES[1], start="random"),
            availability.replay(_TRACES[0]),
        ),
    ],
}
ROWS = [
    pytest.param(row, id=f"{name}{i}")
    for name, rows in SELECTORS.items()
    for i, row in enumerate(rows)
]
MODELS = [
    pytest.param(row, id=f"{name}{i}")
    for name, rows in AVAILABILITY.items()
    for i, row in enumerate(rows)
]


def _factories(module: object, returned: type) -> set[str]:
    """Public lower-case functions that return something with the protocol's methods."""
    methods = [m for m in vars(returned) if not m.startswith("_")]
    found = set()
    for name in module.__all__:  # type: ignore[attr-defined]
        function = inspect.unwrap(getattr(module, name))
        if not inspect.isfunction(function) or not name.islower():
            continue
        built = function.__globals__.get(inspect.signature(function).return_annotation)
        if inspect.isclass(built) and all(
            hasattr(built, m) or m == "num_clients" for m in methods
        ):
            found.add(name)
    return found


@pytest.mark.smoke
def test_every_factory_is_in_its_table() -> None:
    more = {"blocks_within"}  # returns what clients train beside its selector
    assert _factories(selection, Selector) == set(SELECTORS) - more
    named = set(SELECTORS) - more - {"from_lines"}  # a matrix has no place in a name
    # those of users come after
    assert set(selection.Scheme.names()[: len(named)]) == named
    assert _factories(availability, availability.Availability) == set(AVAILABILITY)


def _keys(trials: int, seed: int = 1) -> jax.Array:
    return jax.vmap(lambda t: trial_key(as_key(seed), t))(
        np.arange(trials, dtype=np.uint32)
    )


def _states(selector: Selector) -> tuple[jax.Array, Any, jax.Array]:
    """Keys [B], states after two rounds, each leaf [..., B], and availability [N, B]."""
    rng, trials = np.random.default_rng(0), TRIALS

    def online() -> jax.Array:
        return jnp.asarray(
            rng.random((N, trials)) < rng.choice([0.5, 0.9, 0.98], trials)
        )

    state = jax.tree.map(
        lambda leaf: jnp.stack([leaf] * trials, axis=-1), selector.init()
    )
    for seed in (2, 3):
        _, state = _mapped(selector, _keys(trials, seed), state, online())
    return _keys(trials), state, online()


def _eligible(state: Any, available: np.ndarray) -> np.ndarray:
    """Who may be asked.

    The available clients, where the state knows of rest the rested ones.
    """
    rest = getattr(state, "rest", None)
    return available if rest is None else available & (np.asarray(rest) == 0)


def _offered(selector: Any, free: np.ndarray) -> np.ndarray:
    """How many clients can be asked together.

    Those of whole blocks, or of lines of one class.
    """
    if hasattr(selector, "order"):  # blocks of clients who train the same parts
        return _offered(selector.inner, free[np.asarray(selector.order)])
    if not hasattr(selector, "members"):
        blocks = free.reshape(-1, block_size_of(selector), free.shape[1])
        return block_size_of(selector) * blocks.all(1).sum(0)
    lines = np.append(free, np.zeros_like(free[:1]), 0)[
        np.asarray(selector.members)
    ].all(1)
    most = lines.reshape(*selector.shape, -1).sum(2).max(1).sum(0)
    return selector.members.shape[1] * most


_select = jax.jit(lambda s, *a: s.select(*a))
_mapped = jax.jit(
    lambda s, *a: jax.vmap(s.select, in_axes=(0, -1, -1), out_axes=-1)(*a)
)
_init = jax.jit(lambda m, key: m.init(key))
_sample = jax.jit(lambda m, key, state: m.sample(key, state))


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
def test_selector(row: Row) -> None:
    selector, other, block, size = row()
    assert isinstance(selector, Selector)
    assert selector.num_clients == N
    assert (block_size_of(selector), cohort_size_of(selector)) == (block, size)
    start = selector.init()
    assert start.counts.dtype == jnp.int32
    assert start.counts.tolist() == [0] * N
    trials = TRIALS
    keys, states, available = _states(selector)
    together, after = _mapped(selector, keys, states, available)
    assert together.shape == (N, trials)
    assert together.dtype == jnp.bool_
    _assert_equal(jax.tree.map(lambda leaf: leaf.dtype, after), _dtypes(states))
    if getattr(selector, "takes_trials", False):  # trials as trailing axes
        _assert_equal(_select(selector, keys, states, available), (together, after))
    for b in range(8):  # a row of a batch is the same trial alone

        def trial(tree: Any, b: int = b) -> Any:
            return jax.tree.map(lambda leaf: on_device(np.asarray(leaf)[..., b]), tree)

        alone = _select(selector, keys[b], trial(states), available[:, b])
        _assert_equal(alone, trial((together, after)))

    cohorts, free = np.asarray(together), _eligible(states, np.asarray(available))
    assert not (cohorts & ~free).any()
    assert (np.asarray(after.counts - states.counts) == cohorts).all()
    blocks = cohorts.reshape(-1, block, trials)
    assert (blocks.all(1) == blocks.any(1)).all()
    if size is not None:
        assert (
            cohorts.sum(0) == np.where(_offered(selector, free) >= size, size, 0)
        ).all()
        assert set(cohorts.sum(0)) == {0, size}

    compiled = _mapped._cache_size()
    _mapped(other, keys, states, available)
    assert _mapped._cache_size() == compiled


def _dtypes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.dtype, tree)


def _assert_equal(ours: Any, theirs: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


FIRST = [row for row in ROWS if str(row.id).endswith("0")]
EAGER = ("uniform0", "power_of_choice0", "minimum_separation0", "bernoulli0")


@pytest.mark.long
@pytest.mark.parametrize("row", [row for row in ROWS if row.id in EAGER])
def test_selector_without_jit(row: Row) -> None:
    selector = row()[0]
    keys, states, available = _states(selector)
    together = _mapped(selector, keys, states, available)
    alone = jax.tree.map(lambda leaf: leaf[..., 1], (states, available))
    eager = selector.select(keys[1], *alone)
    _assert_equal(eager, jax.tree.map(lambda leaf: leaf[..., 1], together))


@pytest.mark.long
@pytest.mark.usefixtures("wide_kernels")
@pytest.mark.parametrize("row", FIRST)
def test_selector_stacks_and_widens(row: Row) -> None:
    """Schemes of equal structure are the rows of one stacked scheme.

    X64 changes nothing.
    """
    selector, other = row()[:2]
    keys, state, available = _states(selector)
    arguments = (
        keys[0],
        jax.tree.map(lambda leaf: leaf[..., 0], state),
        available[:, 0],
    )
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), selector, other)
    stacked = jax.jit(
        jax.vmap(lambda s, *a: s.select(*a), in_axes=(0, None, None, None))
    )
    with jax.enable_x64(True):
        cohorts, _ = stacked(both, *arguments)
    for ours, scheme in zip(cohorts, (selector, other), strict=True):
        assert (np.asarray(ours) == _select(scheme, *arguments)[0]).all()


@pytest.mark.long("cyclic0", "independent0", "markov0")
@pytest.mark.parametrize("row", MODELS)
def test_availability(row: Row) -> None:
    model, other = row()
    assert isinstance(model, availability.Availability)
    model, other = model.for_clients(N), other.for_clients(N)
    keys = _keys(32)
    start = jax.vmap(lambda key: _init(model, key), out_axes=-1)(_keys(32, 5))

    def trial(tree: Any, b: int) -> Any:
        return jax.tree.map(lambda leaf: on_device(np.asarray(leaf)[..., b]), tree)

    many = jax.jit(jax.vmap(model.sample, in_axes=-1, out_axes=-1))
    together, after = many(keys, start)
    assert together.shape == (N, 32)
    assert together.dtype == jnp.bool_
    _assert_equal(_dtypes(after), _dtypes(start))
    for b in range(32):  # a row of a batch is the same trial alone
        _assert_equal(
            _sample(model, keys[b], trial(start, b)), trial((together, after), b)
        )
    if getattr(model, "takes_trials", False):
        _assert_equal(model.sample(keys, start), (together, after))
    compiled = _sample._cache_size()
    _sample(other, keys[0], trial(start, 0))
    assert _sample._cache_size() == compiled
    with jax.enable_x64(True):
        wide = model.sample(keys[0], trial(start, 0))
        _assert_equal(wide, trial((together, after), 0))
        _assert_equal(model.init(keys[0]), _init(model, keys[0]))


@pytest.mark.long
@pytest.mark.parametrize("row", MODELS)
def test_availability_in_rollouts(row: Row) -> None:
    """Trials side by side are the same trials one by one."""
    model = row()[0]
    everybody = selection.bernoulli(N, 1.0)
    many = selection.rollout_trials(4, everybody, model, 9, 3)
    assert np.array_equal(
        np.asarray(many)[0], selection.rollout(4, everybody, model, 9)
    )
    with pytest.raises(ConfigurationError, match=f"{N + 1}.*, one for each client"):
        model.for_clients(N).for_clients(N + 1)
