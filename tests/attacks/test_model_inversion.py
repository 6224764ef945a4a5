"""Model inversion shows the classes of a model in the clear, and nothing of a padded one."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.attacks import _model_inversion, identified, model_inversion, read_models
from mrsa_jax.attacks.views import ModelView, WireView

SHAPE = (8, 8, 1)
MODEL = mj.federated.logistic(10)


@functools.cache
def _trained() -> tuple[jax.Array, np.ndarray]:
    """Softmax regression on digits, and the mean image of each class."""
    dataset = mj.data.load("digits", seed=0)
    clients = mj.data.iid(0, dataset, 1)
    start = mj.federated.initial_parameters(0, MODEL, SHAPE)
    trainer = mj.federated.local_sgd(MODEL, 0.05, batch_size=20, num_epochs=3)
    update = mj.federated.client_updates(0, MODEL, start, clients, trainer)[0]
    labels = np.asarray(dataset.train_labels)
    means = np.stack(
        [dataset.train_inputs[labels == c].mean(axis=0) for c in range(10)]
    )
    return start + update, means


def _view(parameters: Any) -> ModelView:
    return ModelView(MODEL, parameters, SHAPE, 10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_steps": 0}, "`num_steps` must"),
        ({"step_size": float("nan")}, "`step_size` must be a finite number from 0"),
        ({"smoothness": -1.0}, "`smoothness` must be a finite number from 0"),
        ({"enough": 0.0}, r"`enough` must lie in \(0, 1\]"),
        ({"pixel_range": (1.0, 1.0)}, "`pixel_range` must be two finite numbers"),
    ],
)
def test_misuse_of_the_attack(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        model_inversion(**settings)


def test_misuse_of_the_views() -> None:
    attack = model_inversion(num_steps=1)
    with pytest.raises(
        mj.ConfigurationError, match="`parameters` must have the model's 650"
    ):
        attack.run(None, _view(jnp.ones(3)))
    with pytest.raises(mj.ConfigurationError, match="`parameters` must be finite"):
        attack.run(None, _view(on_device(np.full(650, np.inf, np.float32))))
    quantizer = mj.quantize.stochastic(4, 1.0)
    wire: Any = WireView(np.full((1, 3), 16, np.uint32), 16, quantizer)
    with pytest.raises(mj.ConfigurationError, match=r"`uploads` must lie in \[0, 16\)"):
        read_models(wire)
    run = inspect.unwrap(_model_inversion.ModelInversion.run)
    with pytest.raises(
        mj.ConfigurationError, match="got WireView, which lacks model, parameters"
    ):
        run(attack, None, wire)
    with pytest.raises(
        mj.ConfigurationError, match="`images` must have one image for each"
    ):
        identified(np.ones((2, 8, 8, 1)), np.ones((3, 8, 8, 1)))


@pytest.mark.smoke
def test_likeness_by_hand() -> None:
    people = np.stack([np.eye(3), 1 - np.eye(3), np.tri(3)])[..., None]
    noisy = 3 * people + 2 + np.random.default_rng(0).normal(0, 0.1, people.shape)
    assert identified(noisy, people).tolist() == [True, True, True]
    assert identified(noisy[[1, 0, 2]], people).tolist() == [False, False, True]
    flat = np.full_like(people, 0.5)
    assert not identified(flat, people).any()
    assert identified(np.stack([noisy, flat]), people).shape == (2, 3)


@pytest.mark.long
def test_a_model_in_the_clear_shows_its_classes() -> None:
    parameters, means = _trained()
    got = model_inversion().run(None, _view(parameters))
    assert identified(got.images, means).sum() >= 9
    assert got.images.min() >= 0
    assert got.images.max() <= 1
    # the confidence is the model's own, by flax alone
    variables = mj.federated.unflatten(MODEL, SHAPE, parameters)
    chance = jax.nn.softmax(MODEL.apply(variables, jnp.asarray(got.images)))
    np.testing.assert_allclose(got.confidence, np.diagonal(chance), atol=1e-5)
    assert got.confidence.min() > 0.8


@pytest.mark.long
def test_models_side_by_side() -> None:
    parameters, _ = _trained()
    attack = model_inversion(num_steps=40, smoothness=0.1)
    both = attack.run(None, _view(jnp.stack([parameters, -parameters])))
    assert both.images.shape == (2, 10, *SHAPE)
    alone = attack.run(None, _view(-parameters))
    np.testing.assert_allclose(both.images[1], alone.images, atol=1e-6)


@pytest.mark.long
def test_padded_uploads_show_nothing() -> None:
    """Uniform codes in the ring: who is identified is a draw of 1 in 10, 30 times 10."""
    parameters, means = _trained()
    quantizer = mj.quantize.stochastic(2**16, 2.0)
    codes = np.asarray(quantizer.encode(jax.random.key(0), parameters), np.uint64)
    pads = np.random.default_rng(1).integers(0, 2**20, (30, 650), dtype=np.uint64)
    uploads = np.concatenate([codes[None], (codes + pads) % 2**20]).astype(np.uint32)
    models = read_models(WireView(uploads, 2**20, quantizer))
    np.testing.assert_allclose(models[0], parameters, atol=float(quantizer.step))
    got = model_inversion(num_steps=60).run(None, _view(jnp.asarray(models)))
    seen = identified(got.images, means)
    assert seen[0].sum() >= 9
    # two-sided, at a false-failure probability of 1e-6
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 300, 0.1)
    assert low <= seen[1:].sum() <= high
