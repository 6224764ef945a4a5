"""Rollouts: bad input, what a seed means, one compile, statistics against theory, huge sizes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax._core import batches as _batches
from mrsa_jax.availability import assign_rates, independent
from mrsa_jax.selection import (
    aggregation_cardinality,
    batch_partitioning,
    bernoulli,
    expected_cardinality,
    fairness_gap,
    partition,
    rollout,
    rollout_metrics,
    rollout_trials,
    uniform,
    weighted,
)
from mrsa_jax.selection._bernoulli import SelectorState

RATES = [0.1, 0.2, 0.3, 0.4, 0.5]
SELECTORS = {
    "uniform": lambda: uniform(12, 4),
    "weighted": lambda: weighted(12, 4),
    "partition": lambda: partition(12, 4),
    "batch_partitioning": lambda: batch_partitioning(12, 4, 2),
    "greedy": lambda: batch_partitioning(12, 4, 2, "greedy"),
    "any": lambda: batch_partitioning(12, 4, 2, "uniform"),
    "bernoulli": lambda: bernoulli(12, 0.4),
}
SELECTOR = SELECTORS["batch_partitioning"]
ONLINE = partial(independent, np.resize(RATES, 12))


def limit_work(monkeypatch: pytest.MonkeyPatch, kind: str, item_bytes: int) -> None:
    monkeypatch.setitem(_batches._WORK, kind, _batches._Work(item_bytes, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, SELECTOR, ONLINE, 0), "`num_rounds` must be at least 1; got 0"),
        ((0, SELECTOR, ONLINE, 5.0), "`num_rounds` must be an integer; got 5.0"),
        ((0, SELECTOR, ONLINE, 2**31), r"`num_rounds` must be below 2\*\*31"),
        (
            (0, SELECTOR, partial(independent, [0.1, 0.2]), 5),
            "`dropout_rate` must be one rate or 12",
        ),
        ((-1, SELECTOR, ONLINE, 5), "`seed` must lie in"),
        ((0, "uniform", ONLINE, 5), "`selector` must have .* got 'uniform'"),
        ((0, SELECTOR, 0.3, 5), "`availability` must have .* got 0.3"),
    ],
)
def test_misuse(arguments: tuple, message: str) -> None:
    arguments = tuple(one() if callable(one) else one for one in arguments)
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(rollout)(*arguments)
    for many in (rollout_trials, rollout_metrics):
        with pytest.raises(ConfigurationError, match=message):
            inspect.unwrap(many)(*arguments, 3)


@pytest.mark.smoke("-1")
@pytest.mark.parametrize("trials", [0, -1, 2.0, True])
def test_misuse_of_trials(trials: object) -> None:
    for many in (rollout_trials, rollout_metrics):
        with pytest.raises(ConfigurationError, match="`num_trials` must be"):
            inspect.unwrap(many)(0, SELECTOR(), ONLINE(), 5, trials)


@pytest.mark.long("bernoulli", "uniform", "weighted")
@pytest.mark.parametrize("name", SELECTORS)
def test_a_trial_does_not_depend_on_its_batch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector = SELECTORS[name]()
    many = np.asarray(rollout_trials(6, selector, ONLINE(), 30, 7))
    assert many.shape == (7, 30, 12)
    assert many.dtype == jnp.bool_
    with mj.use_form("xla"):  # where many may be by compiled loops
        assert np.array_equal(many[0], rollout(6, selector, ONLINE(), 30))
    assert np.array_equal(many[0], rollout(6, selector, ONLINE(), 30))
    assert np.array_equal(many[:3], rollout_trials(6, selector, ONLINE(), 30, 3))
    limit_work(monkeypatch, "selection", 4 * 24)  # two trials in a chunk
    assert np.array_equal(many, rollout_trials(6, selector, ONLINE(), 30, 7))
    assert len(np.unique(many.reshape(7, -1), axis=0)) == 7
    assert np.array_equal(many[:, :11], rollout_trials(6, selector, ONLINE(), 11, 7))


@pytest.mark.long
def test_integer_and_key_are_the_same_seed() -> None:
    a = rollout(7, SELECTOR(), ONLINE(), 10)
    assert (a == rollout(jax.random.key(7), SELECTOR(), ONLINE(), 10)).all()
    assert (a != rollout(8, SELECTOR(), ONLINE(), 10)).any()


@pytest.mark.long
def test_scalar_rate_equals_equal_rates() -> None:
    a = rollout(7, SELECTOR(), independent(0.25), 20)
    assert (a == rollout(7, SELECTOR(), independent([0.25] * 12), 20)).all()


@pytest.mark.long("bernoulli", "uniform", "weighted")
@pytest.mark.parametrize("name", SELECTORS)
def test_streamed_metrics_equal_those_of_the_history(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_work(monkeypatch, "selection", 4 * 24)
    history = rollout_trials(1, SELECTORS[name](), ONLINE(), 25, 5)
    streamed = rollout_metrics(1, SELECTORS[name](), ONLINE(), 25, 5)
    assert np.array_equal(streamed.fairness_gap, fairness_gap(history))
    assert np.array_equal(
        streamed.aggregation_cardinality, aggregation_cardinality(history)
    )
    known = np.asarray(history)
    assert np.array_equal(streamed.skipped, ~known.any(-1))
    assert np.array_equal(streamed.counts, known.sum(1))


@pytest.mark.long
def test_new_numbers_compile_nothing_new(compilations: Any) -> None:
    def run(seed: int, selector: object, rates: object) -> None:
        online = independent(rates)
        with mj.use_form("xla"):  # loops compile nothing for sizes either
            rollout(seed, selector, online, 9)
        rollout_trials(seed, selector, online, 9, 3)
        rollout_metrics(seed, selector, online, 9, 3)

    run(0, batch_partitioning(24, 12, 3), [0.1] * 24)
    with mj.use_form("xla"):
        jax.block_until_ready(
            rollout(0, batch_partitioning(24, 12, 3), independent(0.2), 9)
        )
    with compilations() as compiled:
        run(1, batch_partitioning(24, 12, 3), [0.4] * 24)
        run(2, batch_partitioning(24, 12, 6, "greedy"), [0.3] * 24)
        run(3, batch_partitioning(24, 8, 4, "uniform"), [0.0] * 24)
        run(4, uniform(24, 5), [1.0] * 24)
        run(5, weighted(24, 5), [0.7] * 24)
        run(6, partition(24, 12), [0.1] * 24)
    assert compiled == []
    with mj.use_form("xla"), compilations() as compiled:
        rollout(0, batch_partitioning(20, 4, 2), independent(0.1), 9)
    assert compiled != []  # the log is really read


@pytest.mark.long
def test_schemes_stack_under_vmap() -> None:
    """Six schemes, T = 1 to 12, in one program; each row is its own rollout."""
    schemes = [
        uniform(24, 12),
        weighted(24, 12),
        partition(24, 12),
        batch_partitioning(24, 12, 6),
        batch_partitioning(24, 12, 4),
        batch_partitioning(24, 12, 3, "uniform"),
    ]
    online = independent(assign_rates(0, [0.0, 0.1], 24))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *schemes)
    mapped = jax.vmap(lambda s: rollout_trials(3, s, online, 15, 2))(stacked)
    for row, scheme in zip(mapped, schemes, strict=True):
        assert (row == rollout_trials(3, scheme, online, 15, 2)).all()


@pytest.mark.long
def test_rates_and_seeds_stack_under_vmap() -> None:
    models = [independent([p] * 12) for p in (0.0, 0.2, 0.5)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    keys = jax.random.split(jax.random.key(2), 3)
    mapped = jax.vmap(lambda m, key: rollout(key, SELECTOR(), m, 15))(stacked, keys)
    for row, model, key in zip(mapped, models, keys, strict=True):
        assert (row == rollout(key, SELECTOR(), model, 15)).all()


@pytest.mark.long
@pytest.mark.usefixtures("wide_kernels")
def test_x64_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_work(monkeypatch, "selection", 4 * 12)  # a thread for each trial
    plain = {
        name: np.asarray(rollout_trials(5, s(), ONLINE(), 20, 2))
        for name, s in SELECTORS.items()
    }
    with jax.enable_x64(True):
        for name, make in SELECTORS.items():
            selector = make()
            wide = rollout_trials(5, selector, ONLINE(), 20, 2)
            assert (np.asarray(wide) == plain[name]).all()
            metrics = rollout_metrics(5, selector, ONLINE(), 20, 2)
            assert metrics.fairness_gap.dtype == jnp.float32
            assert metrics.counts.dtype == jnp.int32


@pytest.mark.long
def test_chunks_work_under_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_work(monkeypatch, "results", 12 * 5)  # one trial of five rounds
    keys = jax.random.split(jax.random.key(2), 2)
    selector = SELECTORS["bernoulli"]()
    mapped = jax.vmap(lambda key: rollout_trials(key, selector, ONLINE(), 5, 3))(keys)
    for row, key in zip(mapped, keys, strict=True):
        assert (row == rollout_trials(key, selector, ONLINE(), 5, 3)).all()


class _RoundRobin:
    """A user's own scheme, written for one trial: client j mod N if it is there."""

    num_clients = 12

    def init(self) -> SelectorState:
        return SelectorState(jnp.zeros(12, jnp.int32))

    def select(
        self, key: jax.Array, state: SelectorState, available: jax.Array
    ) -> tuple[jax.Array, SelectorState]:
        del key
        assert available.shape == (12,)
        turn = jnp.argmin(state.counts)
        return available & (jnp.arange(12) == turn), SelectorState(
            state.counts.at[turn].add(1)
        )


class _EveryOtherRound:
    """A user's own availability with a state, written for one trial."""

    def for_clients(self, num_clients: int) -> _EveryOtherRound:
        assert num_clients == 12
        return self

    def init(self, key: jax.Array) -> jax.Array:
        assert key.shape == ()
        return jnp.asarray([True] * 12)

    def sample(self, key: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        assert key.shape == ()
        return state, ~state


for _class in (_RoundRobin, _EveryOtherRound):
    jax.tree_util.register_pytree_node(
        _class, lambda s: ((), None), lambda _, __, c=_class: c()
    )


@pytest.mark.long
def test_schemes_of_users_need_not_know_about_trials() -> None:
    history = rollout_trials(0, _RoundRobin(), _EveryOtherRound(), 12, 4)
    expected = np.eye(12, dtype=bool) & (np.arange(12) % 2 == 0)
    assert (np.asarray(history) == expected).all()
    assert (
        rollout_metrics(0, _RoundRobin(), _EveryOtherRound(), 12, 2).skipped[1].sum()
        == 6
    )
    assert rollout(0, uniform(12, 2), _EveryOtherRound(), 4).sum(1).tolist() == [
        2,
        0,
        2,
        0,
    ]


@pytest.mark.long("1-u-False", "1-u-True")
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(
    ("target", "fairness"), [(1, "u"), (1, "w"), (2, "l"), (3, "g"), (6, "p")]
)
def test_cardinality_is_as_expected(mixed: bool, target: int, fairness: str) -> None:
    """Rounds work independently with one chance, so the mean has a known standard error."""
    n, k, rounds, trials = 24, 6, 100, 60
    rates = assign_rates(1, RATES, n) if mixed else np.full(n, 0.35, np.float32)
    selector = {
        "u": uniform(n, 20),  # skips only when few are left
        "w": weighted(n, 20),
        "l": batch_partitioning(n, k, 2),
        "g": batch_partitioning(n, k, 3, "greedy"),
        "p": partition(n, k),
    }[fairness]
    k = 20 if fairness in "uw" else k
    expected = expected_cardinality(n, k, target, rates)
    share = expected / k
    assert 0.001 < share < 0.999
    metrics = rollout_metrics(4, selector, independent(rates), rounds, trials)
    worked = int((~np.asarray(metrics.skipped)).sum())
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], rounds * trials, share)
    assert low <= worked <= high
    mean = float(np.asarray(metrics.aggregation_cardinality)[:, -1].mean())
    assert mean == pytest.approx(k * worked / rounds / trials, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["batch_partitioning", "bernoulli"])
def test_large_population(name: str) -> None:
    n = 20_000
    selector = (
        batch_partitioning(n, 1000, 10)
        if name == "batch_partitioning"
        else bernoulli(n, 0.1)
    )
    history = np.asarray(rollout(0, selector, independent(0.1), 3))
    if name == "bernoulli":
        assert (np.abs(history.sum(1) - 0.09 * n) < 5 * np.sqrt(0.09 * 0.91 * n)).all()
        return
    assert history.sum(1).tolist() == [1000] * 3
    blocks = history.reshape(3, -1, 10)
    assert (blocks.all(-1) == blocks.any(-1)).all()


_HUGE = """
import pathlib, sys, time
import numpy as np
import mrsa_jax as mj
n, k, t, rounds = 10**6, 1000, 10, int(sys.argv[1])
selector = mj.selection.batch_partitioning(n, k, t)
start = time.perf_counter()
history = np.asarray(mj.selection.rollout(0, selector, mj.availability.independent(0.1), rounds))
seconds = time.perf_counter() - start
assert history.shape == (rounds, n) and history.sum(1).tolist() == [k] * rounds
blocks = history.reshape(rounds, n // t, t)
assert (blocks.all(-1) == blocks.any(-1)).all()
assert mj.selection.rollout_metrics(0, selector, mj.availability.independent(0.1), rounds, 1)
# getrusage would count what the parent used when it started this process
status = pathlib.Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) / 2**20
print(f"peak {peak:.2f} GiB, {seconds:.1f} s")
sys.exit(peak > 4e9 / 2**30)
"""


# more rounds go one after the other: they add their megabyte each
@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_million_clients_fit_in_four_gigabytes(rounds: int) -> None:
    words = [sys.executable, "-c", _HUGE, str(rounds)]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
