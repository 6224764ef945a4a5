"""Gradient inversion finds images whose gradient is the update's, and says how far it got."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.attacks import (
    _gradient_inversion,
    _gradient_inversion as inner,
    gradient_inversion,
)
from mrsa_jax.attacks._gradient_inversion import inferred_labels, total_variation
from mrsa_jax.attacks.views import UpdateView

SHAPE = (8, 8, 1)
MODEL = mj.federated.mlp(10, hidden_sizes=(16,))


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    dataset = mj.data.load("digits", seed=0)
    return np.asarray(dataset.train_inputs[:40]), np.asarray(dataset.train_labels[:40])


@functools.partial(jax.jit, static_argnums=0)
def _gradient(
    model: Any, parameters: jax.Array, images: jax.Array, labels: jax.Array
) -> Any:
    """Written with flax and optax alone."""

    def loss(flat: jax.Array) -> jax.Array:
        variables = mj.federated.unflatten(model, SHAPE, flat)
        logits = model.apply(variables, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return jax.grad(loss)(parameters)


def _view(chosen: list[int], *, rate: float = 0.1, model: Any = MODEL) -> UpdateView:
    images, labels = (on_device(array[chosen]) for array in _digits())
    parameters = mj.federated.initial_parameters(1, model, SHAPE)
    update = jnp.float32(-rate) * _gradient(model, parameters, images, labels)
    return UpdateView(model, parameters, SHAPE, 10, update, len(chosen), labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"update": np.ones(3)}, "`update` must have the model's .* entries"),
        ({"parameters": np.ones(3)}, "`parameters` must have the model's .* entries"),
        ({"update": np.zeros(1210)}, "`update` must not be zero: it points nowhere"),
        ({"update": np.full(1210, np.nan)}, "`update` must be finite"),
        ({"labels": np.array([1, 2])}, "`labels` must be one for each image"),
        ({"labels": np.array([10])}, r"`labels` must lie in \[0, 10\)"),
        ({"num_images": 0}, "`num_images` must"),
        ({"input_shape": (64,)}, "`input_shape` must be an image's"),
    ],
)
def test_misuse_of_the_view(changes: dict[str, Any], message: str) -> None:
    made = {
        k: on_device(v) if isinstance(v, np.ndarray) else v for k, v in changes.items()
    }
    with pytest.raises(mj.ConfigurationError, match=message):
        gradient_inversion(num_steps=1).run(0, dataclasses.replace(_view([3]), **made))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "manhattan"}, "`method` must be one of"),
        ({"num_steps": 0}, "`num_steps` must"),
        ({"restarts": 0}, "`restarts` must"),
        ({"step_size": -0.1}, "`step_size` must be a finite number from 0"),
        ({"smoothness": float("inf")}, "`smoothness` must be a finite number"),
        ({"pixel_range": (1.0, 0.0)}, "`pixel_range` must be two finite numbers"),
    ],
)
def test_misuse_of_the_attack(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        inspect.unwrap(gradient_inversion)(**settings)


def test_another_view_is_refused() -> None:
    other: Any = mj.attacks.views.ModelView(
        MODEL, on_device(np.ones(3, np.float32)), SHAPE, 10
    )
    run = inspect.unwrap(_gradient_inversion.GradientInversion.run)
    with pytest.raises(
        mj.ConfigurationError, match="which lacks update, num_images, labels"
    ):
        run(gradient_inversion(), 0, other)


def test_total_variation_by_hand() -> None:
    image = jnp.asarray([[0.0, 1.0, 1.0], [0.5, 0.5, 0.0]])[..., None]  # 2 x 3
    down = (0.5 + 0.5 + 1.0) / 3
    across = (1.0 + 0.0 + 0.0 + 0.5) / 4
    assert float(total_variation(image)) == pytest.approx(down + across)
    pair = jnp.stack([image, jnp.full((2, 3, 1), 0.7)])
    np.testing.assert_allclose(total_variation(pair), [down + across, 0.0], atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("method", ["cosine", "euclidean"])
def test_the_truth_is_at_no_distance(method: Any) -> None:
    view = _view([5, 9], rate=1.0)
    images, labels = (on_device(array[[5, 9]]) for array in _digits())
    problem = inner._Problem(MODEL, gradient_inversion(method))
    objective = jax.jit(problem.objective)
    _, own = objective(view.parameters, -view.update, labels, images)
    _, other = objective(view.parameters, -view.update, labels, images[::-1] * 0.5)
    assert abs(float(own)) < 1e-6
    assert float(other) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "rate", "least"), [("cosine", 0.1, 20.0), ("euclidean", 1, 30)]
)
def test_one_image_is_recovered(method: Any, rate: float, least: float) -> None:
    view = _view([7], rate=float(rate))
    reports: list[tuple[int, int]] = []
    attack = gradient_inversion(method, num_steps=350, restarts=2, smoothness=0.0)
    compiled = inner._descend._cache_size()
    got = attack.run(0, view, lambda *report: reports.append(report))
    assert inner._descend._cache_size() == compiled + 1  # the last steps are fewer
    truth = _digits()[0][7:8]
    assert mj.attacks.psnr(got.images, truth)[0] > least
    assert got.distance.shape == (2,)
    assert int(got.best) == int(np.argmin(got.distance))
    assert reports == [(100, 350), (200, 350), (300, 350), (350, 350)]
    # the distance that is reported is that of the images that are returned
    gradient = _gradient(MODEL, view.parameters, jnp.asarray(got.images), view.labels)
    target = -view.update
    if method == "cosine":
        size = jnp.linalg.norm(gradient) * jnp.linalg.norm(target)
        expected = 1 - float(jnp.vdot(gradient, target) / size)
    else:
        expected = float(jnp.sum(jnp.square(gradient - target)))
    assert float(got.distance[int(got.best)]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
def test_pixels_stay_in_their_range() -> None:
    attack = gradient_inversion(num_steps=30, step_size=0.5, pixel_range=(0.2, 0.6))
    images = attack.run(0, _view([4, 8])).images
    assert images.min() >= np.float32(0.2)
    assert images.max() <= np.float32(0.6)


@pytest.mark.long
def test_updates_side_by_side_are_attacked_each_on_its_own() -> None:
    """The second of two updates gets what it gets when the first is another."""
    pairs = [[2, 3], [4, 5], [6, 7]]
    views = [_view(pair) for pair in pairs]
    attack = gradient_inversion(num_steps=20, restarts=2)

    def both(first: int) -> Any:
        own = (views[first], views[2])
        update = jnp.stack([view.update for view in own])
        labels = jnp.stack([jnp.asarray(view.labels) for view in own])
        return attack.run(
            3, dataclasses.replace(views[0], update=update, labels=labels)
        )

    one, other = both(0), both(1)
    assert one.images.shape == (2, 2, *SHAPE)
    assert one.distance.shape == (2, 2)
    np.testing.assert_allclose(one.images[1], other.images[1], atol=1e-5)
    assert np.abs(one.images[0] - other.images[0]).max() > 0.01


@pytest.mark.long
@pytest.mark.parametrize("chosen", [[0], [1], [2, 5, 11], list(range(12, 20))])
@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_labels_are_told_from_the_last_bias(chosen: list[int], rate: float) -> None:
    view = _view(chosen, rate=rate)
    expected = np.sort(_digits()[1][chosen])
    np.testing.assert_array_equal(
        inferred_labels(dataclasses.replace(view, labels=None)), expected
    )
    blind = gradient_inversion(num_steps=1).run(
        0, dataclasses.replace(view, labels=None)
    )
    np.testing.assert_array_equal(blind.labels, expected)


def test_labels_of_what_is_no_update() -> None:
    """A padded upload may push all classes one way.

    Some labels are told, and nothing breaks.
    """
    view = _view([3, 4])
    leaves, tree = jax.tree.flatten(mj.federated.unflatten(MODEL, SHAPE, view.update))
    ones = [jnp.ones_like(leaf) if leaf.shape == (10,) else leaf for leaf in leaves]
    flat = jnp.concatenate(
        [leaf.reshape(-1) for leaf in jax.tree.leaves(tree.unflatten(ones))]
    )
    labels = inferred_labels(dataclasses.replace(view, update=flat, labels=None))
    assert labels.shape == (2,)
    assert 0 <= int(labels.min()) <= int(labels.max()) < 10


def test_labels_of_noise() -> None:
    """Under pads the last bias is noise.

    Whatever it says, as many labels as images come out.
    """
    noise = np.random.default_rng(0).standard_normal((100, 1210)).astype(np.float32)
    view = dataclasses.replace(_view([3, 4]), update=on_device(noise), labels=None)
    labels = np.asarray(inferred_labels(view))
    assert labels.shape == (100, 2)
    assert 0 <= labels.min() <= labels.max() < 10
    assert len(np.unique(labels)) == 10


@pytest.mark.long
def test_labels_cannot_be_told_from_two_biases_of_as_many_entries() -> None:
    view = _view([3], model=mj.federated.mlp(10, hidden_sizes=(10,)))
    with pytest.raises(
        mj.ConfigurationError, match=r"`model` must have one bias .*got '2 of 10"
    ):
        inferred_labels(view)


@pytest.mark.long
def test_a_constant_image_is_an_image() -> None:
    images = jnp.full((1, *SHAPE), 0.5, jnp.float32)
    parameters = mj.federated.initial_parameters(1, MODEL, SHAPE)
    labels = jnp.asarray([3], jnp.int32)
    update = -_gradient(MODEL, parameters, images, labels)
    view = UpdateView(MODEL, parameters, SHAPE, 10, update, 1, labels)
    got = gradient_inversion(num_steps=200, smoothness=1e-2).run(0, view)
    assert np.isfinite(got.images).all()
    # the angle does not tell how bright it is, but that it has no structure
    assert float(total_variation(jnp.asarray(got.images))[0]) < 0.25
    start = np.random.default_rng(0).random((1, *SHAPE)).astype(np.float32)
    assert float(total_variation(jnp.asarray(start))[0]) > 0.5


@pytest.mark.long
def test_devices_do_not_change_a_restart() -> None:
    first, second = _view([7]), _view([5])
    targets = jnp.stack([-first.update, -second.update])
    assert first.labels is not None
    assert second.labels is not None
    shared = (
        first.parameters,
        targets,
        jnp.stack([first.labels, second.labels]).astype(jnp.int32),
    )
    problem = inner._Problem(MODEL, gradient_inversion(num_steps=3))
    state = problem.start(jax.random.uniform(jax.random.key(0), (4, 1, *SHAPE)))
    which = jnp.asarray([0, 0, 1, 1], jnp.int32)
    mesh = inner._shared_mesh(4)
    assert mesh is not None  # the suite has two devices
    assert inner._shared_mesh(3) is None
    for many, one in zip(
        jax.tree.leaves(
            inner._descend(problem, shared, which, state, np.int32(3), mesh)
        ),
        jax.tree.leaves(
            inner._descend(problem, shared, which, state, np.int32(3), None)
        ),
        strict=True,
    ):
        np.testing.assert_allclose(many, one, rtol=1e-4, atol=1e-5)
