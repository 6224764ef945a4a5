"""A round's choice by kernel and by sorting against the search that a CPU makes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import selection
from mrsa_jax._core import batches as _batches
from mrsa_jax._core.device import compiling_for
from mrsa_jax._core.pytrees import pytree
from mrsa_jax.availability import independent, markov
from mrsa_jax.selection import _by_kernel, _rollout
from mrsa_jax.selection._blocks import BlockSelection
from mrsa_jax.selection._by_kernel import runs_kernel


def schemes(n, k, t):
    """Return pairs of a scheme and who is online."""
    blocks = selection.batch_partitioning(n, k, t)
    away = independent([0.3 * (i % 3) / 2 for i in range(n)])
    losses = [1.0 + i % 3 for i in range(n)]
    chances = [i % 4 / 4 for i in range(n)]
    return [
        (blocks, away),
        (selection.batch_partitioning(n, k, t, fairness="greedy"), away),
        (selection.power_of_choice(n, k, min(n, k + 2), initial_loss=losses), away),
        (selection.poisson(n, chances), markov(0.2, 3.0)),
        (selection.balls_in_bins(n, 3, fresh=True), away),
        (selection.minimum_separation(blocks, 2), markov(0.2, 3.0)),
    ]


# trials that fill no tile, and more than one; clients that are no power of two, and
# just enough; one word of flags, and two
@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "k", "t", "trials", "which"),
    [
        (1, 1, 1, 3, 0),
        (42, 12, 6, 20, 0),
        *((18, 6, 3, 70, which) for which in range(6)),
    ],
)
def test_all_ways_choose_the_same(n, k, t, trials, which, monkeypatch):
    for scheme, online in [schemes(n, k, t)[which]]:
        with mj.use_form("xla"):
            expected = np.asarray(
                selection.rollout_trials(5, scheme, online, 6, trials)
            )
            counts = np.asarray(selection.rollout_counts(5, scheme, online, 6, trials))
        assert expected.any()
        with mj.use_form("pallas"), monkeypatch.context() as patch:
            patch.setattr(_rollout, "_play", None)  # no round is played by itself
            by_kernel = np.asarray(
                selection.rollout_trials(5, scheme, online, 6, trials)
            )
            alone = np.asarray(selection.rollout(5, scheme, online, 6))
            counts_by_kernel = np.asarray(
                selection.rollout_counts(5, scheme, online, 6, trials)
            )
        assert (by_kernel == expected).all()
        assert (counts_by_kernel == counts).all()
        assert (counts == expected.sum(axis=1)).all()
        assert (alone == expected[0]).all()
        with compiling_for("tpu", 2**15, 2**34):
            by_sorting = np.asarray(
                selection.rollout_trials(5, scheme, online, 6, trials)
            )
        assert (by_sorting == expected).all()


@pytest.mark.long
def test_the_kernel_maps_over_configurations():
    picks = [selection.batch_partitioning(18, 6, t) for t in (2, 3)]
    online = [independent(rate) for rate in (0.1, 0.3)]
    expected = selection.rollout_many([1, 2], picks, online, 4, num_trials=3)
    with mj.use_form("pallas"):
        assert (
            selection.rollout_many([1, 2], picks, online, 4, num_trials=3) == expected
        ).all()


@pytest.mark.long
@pytest.mark.parametrize("which", [0, 5])
def test_statistics_are_those_of_rounds_played_one_by_one(which, monkeypatch):
    scheme, online = schemes(18, 6, 3)[which]
    with mj.use_form("xla"):
        expected = selection.rollout_metrics(5, scheme, online, 9, 70)
    with mj.use_form("pallas"), monkeypatch.context() as patch:
        patch.setattr(_rollout, "_play", None)
        found = selection.rollout_metrics(5, scheme, online, 9, 70)
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()


@pytest.mark.long
@pytest.mark.parametrize("which", [0, 2])
def test_a_round_by_itself_is_chosen_by_a_kernel(which, monkeypatch):
    scheme, _ = schemes(18, 6, 3)[which]
    keys = jax.random.split(jax.random.key(1), 70)
    draw = np.random.default_rng(0)
    available = jnp.asarray(draw.random((18, 70)) < 0.9)
    state = jax.tree.map(
        lambda leaf: leaf[:, None] + draw.integers(0, 3, (18, 70)), scheme.init()
    )
    with mj.use_form("xla"):
        expected = scheme.select(keys, state, available)
    assert expected[0].any()
    monkeypatch.setattr(_by_kernel, "device_steps", None)
    with mj.use_form("pallas"):
        found = scheme.select(keys, state, available)
    for one, other in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
        assert (one == other).all()


@pytree
class Latecomers(BlockSelection):
    """Asks nobody of the first four."""

    def select(self, key, state, available):
        return super().select(key, state, available.at[:4].set(False))


def test_what_a_kernel_would_choose_otherwise_it_leaves():
    key, online = jax.random.key(0), independent(0.1).for_clients(8)
    scheme = selection.uniform(8, 2)
    other = Latecomers(*jax.tree.leaves(scheme), num_clients=8)
    away = mj.availability.replay([[1] * 8])
    with mj.use_form("pallas"):
        assert runs_kernel(key, scheme, online)
        assert not runs_kernel(jax.random.key(0, impl="rbg"), scheme, online)
        assert not runs_kernel(key, other, online)
        assert not runs_kernel(key, selection.minimum_separation(other, 2), online)
        assert not runs_kernel(key, scheme, away)
    with mj.use_form("xla"):
        assert not runs_kernel(key, scheme, online)


@pytest.mark.long
def test_more_clients_than_the_kernel_takes_are_no_error(monkeypatch):
    monkeypatch.setattr("mrsa_jax.selection._by_kernel._MOST_CLIENTS", 11)
    scheme, online = selection.uniform(13, 5), independent(0.4)
    expected = np.asarray(selection.rollout_trials(1, scheme, online, 3, 2))
    monkeypatch.setattr("mrsa_jax.selection._kernel._run", None)
    with mj.use_form("pallas"):
        found = np.asarray(selection.rollout_trials(1, scheme, online, 3, 2))
    assert (found == expected).all()


@pytest.mark.long
def test_a_full_device_is_given_half_a_chunk(monkeypatch):
    scheme, online = selection.uniform(12, 5), independent(0.4)
    expected = np.asarray(selection.rollout_trials(1, scheme, online, 3, 40))
    roll, most = _rollout._roll_chunk, [20]
    monkeypatch.setenv("MRSA_JAX_FORM", "xla")

    def roll_few(key, trials, *rest):
        if len(trials) > most[0]:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: allocating 7.5GiB")
        return roll(key, trials, *rest)

    monkeypatch.setattr(_rollout, "_roll_chunk", roll_few)
    assert (
        np.asarray(selection.rollout_trials(1, scheme, online, 3, 40)) == expected
    ).all()
    most[0] = 10
    told = "`num_trials` must fit .*: 40 trials of 3 rounds with 12 clients; got 20 at once"
    with pytest.raises(mj.ConfigurationError, match=told):
        selection.rollout_trials(1, scheme, online, 3, 40)


@pytest.mark.long
@pytest.mark.parametrize("trials", [1, 150])
def test_rounds_in_chunks_are_those_of_each_trial(trials, monkeypatch):
    """Keys, components and statuses come back joined as from one call."""
    scheme, online = selection.batch_partitioning(12, 6, 3), independent(0.2)
    steps = mj.availability.independent_steps(0.1)
    arguments = (scheme, online, steps, 3)
    rule = {"policy": "drop_block", "blocks": 3}
    whole = selection.rollout_rounds(3, *arguments, **rule, num_trials=trials)
    monkeypatch.setitem(_batches._WORK, "selection", _batches._Work(4 * 12 * 64, 0))
    parts = selection.rollout_rounds(3, *arguments, **rule, num_trials=trials)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        assert one.shape == other.shape
        assert (one == other).all()
    alone = selection.rollout_rounds(3, *arguments, **rule)
    assert (alone.survivors == parts.survivors[0]).all()
