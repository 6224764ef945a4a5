"""Cohorts spread over two devices: the same statuses, and floats to rounding."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj

_CLIENTS = 6
_MODEL = mj.federated.logistic(10)


@functools.cache
def _clients() -> mj.data.ClientData:
    dataset = mj.data.load("digits", seed=0)
    small = dataclasses.replace(
        dataset,
        train_inputs=dataset.train_inputs[:90],
        train_labels=dataset.train_labels[:90],
    )
    return mj.data.dirichlet_by_class(0, small, _CLIENTS, concentration=2.0)


def _train(mesh: Any = None) -> mj.federated.TrainingResult:
    history = np.zeros((4, _CLIENTS), bool)
    history[:, :3] = True
    history[1] = False
    history[2, 0] = False  # a slot in which nobody is
    training = mj.federated.Training(
        _MODEL,
        _clients(),
        history,
        mj.federated.local_sgd(_MODEL, 0.3, batch_size=8),
        mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 3, 650),
    )
    return mj.federated.train(3, training, mesh=mesh)


def test_misuse() -> None:
    with pytest.raises((mj.ConfigurationError, TypeError), match="mesh"):
        _train(mesh=2)
    mesh = jax.make_mesh((1, 2), ("runs", "clients"))
    with pytest.raises(mj.ConfigurationError, match="`mesh` must have one axis"):
        _train(mesh=mesh)


@pytest.mark.long
def test_two_devices_train_as_one() -> None:
    """Three slots on two devices: one more, in which nobody is, makes them even."""
    one = _train()
    mesh = jax.make_mesh((2,), ("clients",))
    two = _train(mesh=mesh)
    for field in ("status", "participation", "components"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
    # a rounding that falls on the other side moves an entry by a third of a
    # quantization step
    np.testing.assert_allclose(one.parameters, two.parameters, atol=3 * 1.6e-5)
    np.testing.assert_allclose(one.clipped_fraction, two.clipped_fraction, atol=1e-4)


@pytest.mark.long
def test_frozen_updates_over_two_devices_are_those_of_one() -> None:
    start = mj.federated.initial_parameters(0, _MODEL, (8, 8, 1))
    trainer = mj.federated.local_sgd(_MODEL, 0.3, batch_size=8)
    arguments = (1, _MODEL, start, _clients(), trainer, [4, 0, 2])
    mesh = jax.make_mesh((2,), ("clients",))
    two = mj.federated.client_updates(*arguments, mesh=mesh)
    assert two.shape == (3, 650)
    np.testing.assert_allclose(mj.federated.client_updates(*arguments), two, atol=1e-5)


def test_a_mesh_of_one_device_is_none() -> None:
    mesh = jax.make_mesh((1,), ("clients",), devices=jax.devices()[:1])
    np.testing.assert_array_equal(_train().parameters, _train(mesh=mesh).parameters)


def test_each_device_trains_its_share() -> None:
    from mrsa_jax._core.mesh import checked_mesh, spread
    from mrsa_jax.federated import programs

    mesh = checked_mesh(jax.make_mesh((2,), ("clients",)))
    assert mesh is not None
    double = spread(lambda factor, values: factor * values, mesh, 1, 1)
    values = np.arange(4, dtype=np.float32)
    out = double(programs.replicated(np.float32(2), mesh), values)
    assert [shard.data.tolist() for shard in out.addressable_shards] == [[0, 2], [4, 6]]
    assert programs.gathered(out, mesh).devices() == {jax.devices()[0]}
