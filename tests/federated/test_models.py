"""Models: parameter counts, flat vectors, what is rejected."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device


@functools.partial(jax.jit, static_argnums=0)
def _answers(model: nn.Module, flat: jax.Array, inputs: jax.Array) -> jax.Array:
    return model.apply(mj.federated.unflatten(model, inputs.shape[1:], flat), inputs)


_FACTORIES = [
    mj.federated.cnn,
    mj.federated.lenet,
    mj.federated.logistic,
    mj.federated.mlp,
    mj.federated.smooth_lenet,
    mj.federated.vgg11,
]


@pytest.mark.parametrize("factory", _FACTORIES)
@pytest.mark.parametrize("num_classes", [0, 1, True])
def test_bad_number_of_classes(
    factory: Callable[..., nn.Module], num_classes: object
) -> None:
    with pytest.raises(mj.ConfigurationError, match="`num_classes` must be an integer"):
        factory(num_classes)


def test_bad_hidden_sizes() -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`hidden_sizes` must be an integer"
    ):
        mj.federated.mlp(10, hidden_sizes=(20, 0))


def test_bad_norm() -> None:
    with pytest.raises(
        mj.ConfigurationError, match=r"must be None or 'group'.*got 'layer'"
    ):
        mj.federated.vgg11(10, norm="layer")
    with pytest.raises(
        mj.ConfigurationError, match="batch normalisation mixes samples"
    ):
        mj.federated.vgg11(10, norm="batch")


@pytest.mark.parametrize(
    ("factory", "least"),
    [(mj.federated.cnn, 4), (mj.federated.lenet, 12), (mj.federated.vgg11, 32)],
)
def test_images_that_do_not_fit(factory: Callable[..., nn.Module], least: int) -> None:
    side = least - 1
    message = (
        rf"`model` must fit.*at least {least} x {least} pixels; got '{side} x {least}'"
    )
    with pytest.raises(mj.ConfigurationError, match=message):
        mj.federated.num_parameters(factory(), (side, least, 1))
    with pytest.raises(
        mj.ConfigurationError, match=r"takes images .*got 'samples of shape \(784,"
    ):
        mj.federated.num_parameters(factory(), (784,))
    assert mj.federated.num_parameters(factory(), (least, least, 1)) > 0


def test_models_with_other_state_are_rejected() -> None:
    class WithStatistics(nn.Module):
        @nn.compact
        def __call__(self, inputs: jax.Array) -> jax.Array:
            return nn.BatchNorm(use_running_average=False)(
                inputs.reshape(inputs.shape[0], -1)
            )

    with pytest.raises(mj.ConfigurationError, match="parameters only") as caught:
        mj.federated.num_parameters(WithStatistics(), (4, 4, 1))
    assert "batch_stats" in str(caught.value)


def _conv_count(side: int, channels: int, features: int) -> int:
    return side * side * channels * features + features


def _dense_count(*sizes: int) -> int:
    return sum(before * after + after for before, after in itertools.pairwise(sizes))


_VGG_CHANNELS = (3, 64, 128, 256, 256, 512, 512, 512, 512)
_VGG_CONVS = sum(_conv_count(3, *pair) for pair in itertools.pairwise(_VGG_CHANNELS))


@pytest.mark.smoke("model7-shape7-7850-7850")
@pytest.mark.parametrize(
    ("model", "shape", "by_hand", "published"),
    [
        (  # 28 -> 14 -> 7 pixels
            mj.federated.cnn(),
            (28, 28, 1),
            _conv_count(5, 1, 32)
            + _conv_count(5, 32, 64)
            + _dense_count(7 * 7 * 64, 512, 10),
            1_663_370,
        ),
        (  # 28 (in a frame: 32) -> 28 -> 14 -> 10 -> 5
            mj.federated.lenet(),
            (28, 28, 1),
            _conv_count(5, 1, 6)
            + _conv_count(5, 6, 16)
            + _dense_count(400, 120, 84, 10),
            61_706,
        ),
        (  # 32 -> 28 -> 14 -> 10 -> 5
            mj.federated.lenet(),
            (32, 32, 3),
            _conv_count(5, 3, 6)
            + _conv_count(5, 6, 16)
            + _dense_count(400, 120, 84, 10),
            62_006,
        ),
        (
            mj.federated.vgg11(),
            (32, 32, 3),
            _VGG_CONVS + _dense_count(512, 10),
            9_225_610,
        ),
        (
            mj.federated.vgg11(100),
            (32, 32, 3),
            _VGG_CONVS + _dense_count(512, 100),
            9_271_780,
        ),
        (
            # a scale and an offset for each channel
            mj.federated.vgg11(10, norm="group"),
            (32, 32, 3),
            _VGG_CONVS + 2 * sum(_VGG_CHANNELS[1:]) + _dense_count(512, 10),
            9_231_114,
        ),
        (mj.federated.mlp(), (28, 28, 1), _dense_count(784, 200, 200, 10), 199_210),
        (mj.federated.logistic(), (28, 28, 1), _dense_count(784, 10), 7850),
        (mj.federated.logistic(7), (8, 8, 1), _dense_count(64, 7), 455),
    ],
)
def test_parameter_counts(
    model: nn.Module, shape: tuple[int, ...], by_hand: int, published: int
) -> None:
    assert mj.federated.num_parameters(model, shape) == by_hand == published


@pytest.mark.long
def test_flat_vector_is_the_ravelled_tree() -> None:
    model = mj.federated.mlp(4, hidden_sizes=(5, 3))
    flat = mj.federated.initial_parameters(3, model, (2, 2, 1))
    tree = mj.federated.unflatten(model, (2, 2, 1), flat)
    np.testing.assert_array_equal(ravel_pytree(tree)[0], flat)
    with pytest.raises(
        mj.ConfigurationError, match="`parameters` must have the model's"
    ):
        mj.federated.unflatten(model, (2, 2, 1), flat[:-1])


def test_initial_parameters_depend_on_the_seed_only() -> None:
    model = mj.federated.logistic(3)
    first, again, other = (
        mj.federated.initial_parameters(seed, model, (4, 4, 1)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_logistic_is_a_matrix_product() -> None:
    model = mj.federated.logistic(3)
    flat = on_device(np.arange(4 * 3 + 3, dtype=np.float32))
    inputs = np.random.default_rng(0).normal(size=(5, 2, 2, 1)).astype(np.float32)
    # flax sorts bias first
    bias, weights = np.arange(3), np.arange(3, 15).reshape(4, 3)
    np.testing.assert_allclose(
        _answers(model, flat, on_device(inputs)),
        inputs.reshape(5, 4) @ weights + bias,
        rtol=1e-5,
        atol=1e-5,
    )


class _PlainLeNet(nn.Module):
    """LeNet-5 of flax's own layers; images below 32 pixels get a frame of zeros."""

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        frame = 2 if inputs.shape[1] == 28 else 0
        values = jnp.pad(inputs, ((0, 0), (frame, frame), (frame, frame), (0, 0)))
        for features in (6, 16):
            values = nn.relu(nn.Conv(features, (5, 5), padding="VALID")(values))
            values = nn.max_pool(values, (2, 2), (2, 2))
        values = values.reshape(inputs.shape[0], -1)
        for size in (120, 84):
            values = nn.relu(nn.Dense(size)(values))
        return nn.Dense(10)(values)


class _PlainCNN(nn.Module):
    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        values = inputs
        for features in (32, 64):
            values = nn.relu(nn.Conv(features, (5, 5), padding="SAME")(values))
            values = nn.max_pool(values, (2, 2), (2, 2))
        values = nn.relu(nn.Dense(512)(values.reshape(inputs.shape[0], -1)))
        return nn.Dense(10)(values)


# A small VGG, in which every kind of layer occurs, and VGG-11.
_SMALL_VGG = ((32, True), (32, False), (64, True))
_VGG_11 = tuple(
    zip(_VGG_CHANNELS[1:], map(bool, (1, 1, 0, 1, 0, 1, 0, 1)), strict=True)
)


class _PlainVGG(nn.Module):
    """A VGG of flax's own layers."""

    norm: bool
    layers: tuple[tuple[int, bool], ...]

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        values = inputs
        for features, is_pooled in self.layers:
            values = nn.Conv(features, (3, 3), padding="SAME")(values)
            if self.norm:
                values = nn.GroupNorm(num_groups=32)(values)
            values = nn.relu(values)
            if is_pooled:
                values = nn.max_pool(values, (2, 2), (2, 2))
        return nn.Dense(10)(values.reshape(inputs.shape[0], -1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "plain", "shape"),
    [
        (mj.federated.lenet(), _PlainLeNet(), (28, 28, 1)),
        (mj.federated.lenet(), _PlainLeNet(), (32, 32, 3)),
        (mj.federated.cnn(), _PlainCNN(), (8, 8, 1)),
        (
            mj.federated.vgg11().clone(layers=_SMALL_VGG),
            _PlainVGG(False, _SMALL_VGG),
            (5, 4, 2),
        ),
        (
            mj.federated.vgg11(norm="group").clone(layers=_SMALL_VGG),
            _PlainVGG(True, _SMALL_VGG),
            (5, 4, 2),
        ),
        pytest.param(
            mj.federated.vgg11(10),
            _PlainVGG(False, _VGG_11),
            (32, 32, 3),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            mj.federated.vgg11(10, norm="group"),
            _PlainVGG(True, _VGG_11),
            (32, 32, 3),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_model_equals_the_same_network_of_flax_layers(
    model: nn.Module, plain: nn.Module, shape: tuple[int, ...]
) -> None:
    # noise for all parameters, so that biases, scales and offsets count too
    generator = np.random.default_rng(0)
    flat = generator.normal(scale=0.05, size=mj.federated.num_parameters(model, shape))
    flat = jnp.asarray(flat, jnp.float32)
    inputs = jnp.asarray(generator.uniform(size=(2, *shape)), jnp.float32)
    tree = mj.federated.unflatten(model, shape, flat)["params"]
    renamed = {
        name.replace("_ConvReluPool", "Conv"): value for name, value in tree.items()
    }
    theirs = jax.jit(plain.apply)({"params": renamed}, inputs)
    ours = jax.jit(_answers, static_argnums=0)(model, flat, inputs)
    tolerance = 1e-4 * float(jnp.std(theirs))
    assert tolerance > 0
    np.testing.assert_allclose(ours, theirs, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [None, "group"])
def test_vgg_starts_with_a_signal_and_gradient_in_every_layer(norm: str | None) -> None:
    # He normal keeps the power of the signal: the logits of white images differ by
    # order one and no layer is without gradient.
    model, shape = mj.federated.vgg11(10, norm), (32, 32, 3)
    flat = mj.federated.initial_parameters(0, model, shape)
    inputs = jnp.asarray(np.random.default_rng(0).normal(size=(2, *shape)), jnp.float32)

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def loss(parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = _answers(model, parameters, inputs)
        return -jax.nn.log_softmax(logits)[:, 0].mean(), logits

    (_, logits), gradient = loss(flat)
    assert 0.1 < float(jnp.std(logits)) < 10
    kernels = [
        leaf
        for leaf in jax.tree.leaves(mj.federated.unflatten(model, shape, gradient))
        if leaf.ndim == 4
    ]
    assert len(kernels) == 8
    assert min(float(jnp.linalg.norm(kernel)) for kernel in kernels) > 1e-2
