"""Inputs read off a dense layer's gradient: against which units fire for which image."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax.attacks import dense_recovery
from mrsa_jax.attacks.views import UpdateView

_SHAPE = (8, 8, 1)
_MODEL = mj.federated.mlp(10, hidden_sizes=(64,))
_flat = functools.cache(lambda: mj.federated.initial_parameters(0, _MODEL, _SHAPE))
_data = functools.cache(lambda: mj.data.load("digits"))


@jax.jit
def _step(start: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
    def loss(flat: jax.Array) -> jax.Array:
        logits = _MODEL.apply(
            mj.federated.unflatten(_MODEL, images.shape[1:], flat), images
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return -0.03 * jax.grad(loss)(start)


def _update(images: np.ndarray, labels: np.ndarray) -> jax.Array:
    return _step(_flat(), images, labels)


def _view(update: jax.Array, num_images: int) -> UpdateView:
    return UpdateView(_MODEL, _flat(), _SHAPE, 10, update, num_images)


def _first_layer() -> tuple[np.ndarray, np.ndarray]:
    layer = mj.federated.unflatten(_MODEL, _SHAPE, _flat())["params"]["Dense_0"]
    return np.asarray(layer["kernel"]), np.asarray(layer["bias"])


@pytest.mark.smoke("nan")
@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1.0, float("nan")])
def test_bad_tolerance(tolerance: float) -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`tolerance` must lie between 0 and 1"
    ):
        dense_recovery(tolerance=tolerance)


def test_bad_layer_and_model() -> None:
    view = _view(jnp.ones_like(_flat()), 1)
    with pytest.raises(
        mj.ConfigurationError, match=r"`layer` must be one of \['Dense_0', 'Dense_1'\]"
    ):
        dense_recovery("Dense_7").run(0, view)
    model = mj.federated.smooth_lenet(10)
    flat = mj.federated.initial_parameters(0, model, _SHAPE)
    with pytest.raises(
        mj.ConfigurationError, match="`model` must have a dense layer with a bias"
    ):
        dense_recovery().run(0, UpdateView(model, flat, _SHAPE, 10, flat, 1))


def test_one_image_is_read_to_rounding() -> None:
    images, labels = _data().train_inputs[:1], _data().train_labels[:1]
    found = dense_recovery().run(0, _view(_update(images, labels), 1))
    np.testing.assert_allclose(found.inputs[0], images[0].ravel(), atol=1e-5)


def test_a_batch_gives_each_image_that_has_units_of_its_own() -> None:
    count = 6
    images, labels = _data().train_inputs[:count], _data().train_labels[:count]
    kernel = np.asarray(
        mj.federated.unflatten(_MODEL, _SHAPE, _flat())["params"]["Dense_0"]["kernel"]
    )
    fires = images.reshape(count, -1) @ kernel > 0
    # units that fire for this image alone
    own = (fires & (fires.sum(axis=0) == 1)).sum(axis=1)
    assert 0 < (own >= 2).sum() < count  # the case is neither empty nor trivial
    found = dense_recovery(tolerance=1e-3).run(0, _view(_update(images, labels), count))
    exact = {
        int(np.argmin(distances)): int(agreeing)
        for value, agreeing in zip(found.inputs, found.agreeing, strict=True)
        if (
            distances := np.linalg.norm(images.reshape(count, -1) - value, axis=1)
        ).min()
        < 1e-3
    }
    for image in range(count):
        if own[image] >= 2:
            assert exact[image] == own[image]
    # what two units agree on is a sample, and what one tells here is not more than one
    # unit's
    assert all(exact[image] == own[image] for image in exact)


def test_leading_axes_and_a_later_layer() -> None:
    images, labels = _data().train_inputs[:2], _data().train_labels[:2]
    alone = jnp.stack([_update(images[i : i + 1], labels[i : i + 1]) for i in range(2)])
    found = dense_recovery("Dense_1").run(0, _view(alone, 1))
    kernel, bias = _first_layer()
    hidden = np.maximum(images.reshape(2, -1) @ kernel + bias, 0)
    assert found.inputs.shape == (2, 1, 64)
    np.testing.assert_allclose(found.inputs[:, 0], hidden, atol=1e-4)


def test_a_zero_update_tells_nothing() -> None:
    found = dense_recovery().run(0, _view(jnp.zeros_like(_flat()), 2))
    assert np.isnan(found.inputs).all()
    assert (found.agreeing == 0).all()
