"""A round's choice by kernel and by sorting against the search that a CPU makes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import selection
from mrsa_jax._core import batches as _batches
from mrsa_jax._core.device import compiling_for
from mrsa_jax.availability import independent
from mrsa_jax.selection import _rollout


def schemes(n, k, t):
    losses = [1.0 + i % 3 for i in range(n)]
    return [
        selection.batch_partitioning(n, k, t),
        selection.batch_partitioning(n, k, t, fairness="greedy"),
        selection.power_of_choice(n, k, min(n, k + 2), initial_loss=losses),
    ]


# trials that fill no tile, and more than one; clients that are no power of two, and
# just enough
@pytest.mark.long
@pytest.mark.parametrize(("n", "k", "t", "trials"), [(1, 1, 1, 3), (18, 6, 3, 150)])
def test_all_ways_choose_the_same(n, k, t, trials):
    online = independent([0.3 * (i % 3) / 2 for i in range(n)])
    for scheme in schemes(n, k, t)[: 1 if n == 1 else None]:
        with mj.use_form("xla"):
            expected = np.asarray(
                selection.rollout_trials(5, scheme, online, 6, trials)
            )
        assert expected.any()
        with mj.use_form("pallas"):
            by_kernel = np.asarray(
                selection.rollout_trials(5, scheme, online, 6, trials)
            )
            alone = np.asarray(selection.rollout(5, scheme, online, 6))
        assert (by_kernel == expected).all()
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
def test_more_clients_than_the_kernel_takes_are_no_error(monkeypatch):
    monkeypatch.setattr("mrsa_jax.selection._ranking._MOST_CLIENTS", 11)
    scheme, online = selection.uniform(13, 5), independent(0.4)
    expected = np.asarray(selection.rollout_trials(1, scheme, online, 3, 2))
    monkeypatch.setattr("mrsa_jax.selection._ranking._in_tiles", None)
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
