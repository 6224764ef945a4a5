"""The convolution block against XLA's convolution and pooling, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array

import mrsa_jax as mj
from mrsa_jax._core import batches as _batches
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax.federated import conv as layers
from mrsa_jax.federated.conv import _winograd, toom_cook

conv_relu_pool = jax.jit(layers.conv_relu_pool, static_argnames="padding")


def _reference(inputs: Array, kernel: Array, bias: Array, padding: int) -> Array:
    outputs = jax.lax.conv_general_dilated(
        inputs,
        kernel,
        (1, 1),
        [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=jax.lax.Precision.HIGHEST,
    )
    active = jax.nn.relu(outputs + bias[None, None, None, :])
    return jax.lax.reduce_window(
        active, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
    )


def _numpy_reference(
    inputs: np.ndarray, kernel: np.ndarray, bias: np.ndarray, padding: int
) -> np.ndarray:
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(inputs.astype(np.float64), edges)
    side = kernel.shape[0]
    height, width = padded.shape[1] - side + 1, padded.shape[2] - side + 1
    outputs = np.zeros((len(inputs), height, width, kernel.shape[3]))
    for i in range(height):
        for j in range(width):
            window = padded[:, i : i + side, j : j + side]
            outputs[:, i, j] = np.einsum(
                "bijc,ijcf->bf", window, kernel.astype(np.float64)
            )
    active = np.maximum(outputs + bias, 0)[:, : height // 2 * 2, : width // 2 * 2]
    shape = (len(inputs), height // 2, 2, width // 2, 2, -1)
    return active.reshape(shape).max(axis=(2, 4))


_CASES = [  # height, width, channels, features, side, padding
    # tiles with few products from here on: 5 x 5, whole and cut tiles
    (14, 14, 16, 18, 5, 2),
    (13, 10, 16, 16, 5, 0),
    (9, 11, 17, 16, 3, 1),
    (4, 5, 16, 16, 3, 0),
    (2, 2, 16, 16, 3, 1),
    (28, 28, 1, 6, 5, 2),
    (14, 14, 6, 16, 5, 0),
    (13, 10, 3, 4, 5, 2),  # the last odd row falls out of the pool
    (9, 11, 2, 3, 3, 0),
    (6, 7, 2, 5, 1, 0),
]


def _normal(seed: int, shape: tuple[int, ...]) -> Array:
    """Draw on the host: a generator of JAX's is a program for each shape."""
    return jax.device_put(np.float32(np.random.default_rng(seed).normal(size=shape)))


def _draw(case: tuple[int, ...], seed: int = 0) -> tuple[Array, Array, Array]:
    height, width, channels, features, side, _ = case
    shapes = (
        (3, height, width, channels),
        (side, side, channels, features),
        (features,),
    )
    inputs, kernel, bias = (
        _normal(3 * seed + k, shape) for k, shape in enumerate(shapes)
    )
    return inputs, kernel, bias


@pytest.mark.parametrize("case", _CASES)
def test_forward_equals_the_definition(case: tuple[int, ...]) -> None:
    inputs, kernel, bias = _draw(case)
    ours = conv_relu_pool(inputs, kernel, bias, padding=case[-1])
    expected = _numpy_reference(*map(np.asarray, (inputs, kernel, bias)), case[-1])
    assert ours.shape[1:3] == tuple(
        layers.pooled_size(side, case[4], case[5]) for side in case[:2]
    )
    # sums of n products of size about 1 in float32; transforms of tiles cost a digit
    # more
    size = np.sqrt(case[2] * case[4] ** 2)
    np.testing.assert_allclose(ours, expected, atol=5e-5 * max(size, 2.0))


@pytest.mark.parametrize("case", _CASES)
def test_gradients_equal_those_of_xla(case: tuple[int, ...]) -> None:
    draws = _draw(case, seed=1)
    padding = case[-1]
    shape = jax.eval_shape(
        lambda *own: conv_relu_pool(*own, padding=padding), *draws
    ).shape
    weights = _normal(99, shape)

    def ours(*args: Array) -> Array:
        return jnp.sum(conv_relu_pool(*args, padding=padding) * weights)

    def theirs(*args: Array) -> Array:
        return jnp.sum(_reference(*args, padding) * weights)

    for mine, expected in zip(
        jax.jit(jax.grad(ours, (0, 1, 2)))(*draws),
        jax.jit(jax.grad(theirs, (0, 1, 2)))(*draws),
        strict=True,
    ):
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(mine, expected, atol=5e-5 * max(scale, 1.0))


@pytest.mark.parametrize("case", [*_CASES[:5], (6, 7, 3, 4, 3, 1), (5, 5, 2, 3, 5, 0)])
def test_convolution_without_pool_equals_xla_forward_and_backward(
    case: tuple[int, ...],
) -> None:
    draws = _draw(case, seed=2)
    padding = case[-1]

    def theirs(inputs: Array, kernel: Array, bias: Array) -> Array:
        outputs = jax.lax.conv_general_dilated(
            inputs,
            kernel,
            (1, 1),
            [(padding, padding)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            precision=jax.lax.Precision.HIGHEST,
        )
        return outputs + bias[None, None, None, :]

    def ours(*args: Array) -> Array:
        return layers.conv(*args, padding=padding)

    weights = _normal(99, jax.eval_shape(theirs, *draws).shape)

    def pulled(function: Callable[..., Array], *args: Array) -> tuple[Array, ...]:
        value, pull_back = jax.vjp(function, *args)
        return value, *pull_back(weights)

    both = (jax.jit(functools.partial(pulled, own))(*draws) for own in (ours, theirs))
    for mine, expected in zip(*both, strict=True):
        assert mine.shape == expected.shape
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(mine, expected, atol=2e-5 * scale)


def test_chunks_of_a_minibatch_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = _draw((5, 4, 16, 16, 3, 1))

    def gradients(*args: Array) -> tuple[Array, ...]:
        def loss(*own: Array) -> Array:
            return jnp.sum(jnp.square(layers.conv_relu_pool(*own, padding=1)))

        return jax.jit(jax.grad(loss, (0, 1, 2)))(*args)

    whole = gradients(*draws)
    # three samples in chunks of two: one of zeros fills the last chunk
    monkeypatch.setattr(_winograd, "_in_chunks", lambda *args: (2, 2))
    for one, other in zip(whole, gradients(*draws), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("batch", [1, 7, 50, 100])
def test_chunks_hold_the_minibatch_and_waste_less_than_one_sample_each(
    batch: int,
) -> None:
    tiling = _winograd._tiling((14, 14), 5, 2)
    chunks, size = _winograd._in_chunks(batch, zeros((64, 32, 64), np.float32), tiling)
    assert batch <= chunks * size < batch + chunks
    # 64 products of 16 tiles, 32 channels and 64 features, in float32
    assert size * 4 * 64 * 16 * (32 + 64) <= _batches._WORK["tiles"].cpu_bytes


def test_bfloat16_runs_and_is_near_float32() -> None:
    inputs, kernel, bias = _draw((14, 14, 16, 18, 5, 2))
    exact = np.asarray(conv_relu_pool(inputs, kernel, bias, padding=2))
    halves = [part.astype(jnp.bfloat16) for part in (inputs, kernel, bias)]
    rough = conv_relu_pool(*halves, padding=2)
    assert rough.dtype == jnp.bfloat16
    difference = np.asarray(rough.astype(jnp.float32)) - exact
    assert np.sqrt(np.mean(difference**2)) < 0.02 * np.sqrt(np.mean(exact**2))


@pytest.mark.parametrize(("outputs", "taps"), [(1, 3), (2, 3), (4, 3), (4, 5), (3, 4)])
def test_toom_cook_is_exact_on_integers(outputs: int, taps: int) -> None:
    short = toom_cook(outputs, taps)
    generator = np.random.default_rng(outputs * 10 + taps)
    for _ in range(5):
        g = generator.integers(-9, 10, taps)
        d = generator.integers(-9, 10, outputs + taps - 1)
        expected = [int(g @ d[i : i + taps]) for i in range(outputs)]
        found = short.output @ ((short.kernel @ g) * (short.data @ d))
        np.testing.assert_allclose(found, expected, atol=1e-11)


def test_the_first_of_equal_places_takes_the_gradient() -> None:
    # A constant image: all four places of each window are equal.
    inputs = on_device(np.ones((1, 4, 4, 1), np.float32))
    kernel = on_device(np.ones((1, 1, 1, 1), np.float32))
    gradient = jax.grad(
        lambda x: jnp.sum(conv_relu_pool(x, kernel, zeros(1, np.float32), padding=0))
    )(inputs)
    expected = np.zeros((4, 4))
    expected[::2, ::2] = 1
    np.testing.assert_array_equal(np.asarray(gradient)[0, :, :, 0], expected)


def _sparse(case: tuple[int, ...], seed: int) -> tuple[np.ndarray, ...]:
    """Draw blank images with a few strokes, as of digits after relu, and a bias of zeros or not."""
    height, width, channels, features, side, _ = case
    generator = np.random.default_rng(seed)
    inputs = np.zeros((3, height, width, channels))
    for image in inputs[:2]:  # the third stays blank
        top, left = generator.integers(height), generator.integers(width)
        stroke = image[top : top + 2, left : left + 3]
        stroke[:] = np.maximum(generator.normal(size=stroke.shape), 0)
    kernel = generator.normal(size=(side, side, channels, features))
    bias = generator.normal(size=features) * (seed % 3 == 2)
    return tuple(np.float32(part) for part in (inputs, kernel, bias))


def _in_float64(
    inputs: np.ndarray, kernel: np.ndarray, bias: np.ndarray, padding: int
) -> tuple[np.ndarray, np.ndarray, Callable[..., tuple[np.ndarray, ...]]]:
    """Return the block, how near each window is to another choice, and its pull-back."""
    side = len(kernel)
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(inputs.astype(np.float64), edges)
    views = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(1, 2))
    exact = np.einsum("bhwcij,ijcf->bhwf", views, kernel.astype(np.float64))
    batch, height, width, features = exact.shape
    height, width = height // 2, width // 2
    shape = (batch, height, 2, width, 2)
    cut = exact[:, : 2 * height, : 2 * width].reshape(*shape, features)
    places = cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height, width, 4, features)
    own = (
        views[:, : 2 * height, : 2 * width]
        .reshape(*shape, -1)
        .transpose(0, 1, 3, 2, 4, 5)
    )
    patches = own.reshape(batch, height, width, 4, -1)
    first = places.argmax(axis=3)
    best = places.max(axis=3) + bias
    alike = (patches[:, :, :, :, None] == patches[:, :, :, None]).all(axis=-1)
    margin = np.full(best.shape, np.inf)
    # equal patches tie, and either gives the gradients of the weights
    for place in range(4):
        same = np.take_along_axis(alike[:, :, :, place], first, axis=3)
        rival = best - bias - places[:, :, :, place]
        margin = np.where(same, margin, np.minimum(margin, rival))
    is_blank = ~(patches != 0).any(axis=(3, 4))[..., None] & (bias == 0)
    margin = np.where(is_blank, margin, np.minimum(margin, np.abs(best)))

    def pull_back(gradient: np.ndarray) -> tuple[np.ndarray, ...]:
        active = np.where(best > 0, gradient, 0.0)
        by_place = [np.where(first == place, active, 0.0) for place in range(4)]
        rows = np.stack(by_place, axis=3).reshape(-1, features)
        flat = patches.reshape(len(rows), -1).T @ rows
        by_channel = flat.reshape(-1, side, side, features).transpose(1, 2, 0, 3)
        return by_channel, active.sum(axis=(0, 1, 2))

    return np.maximum(best, 0.0), margin, pull_back


@pytest.mark.long
@pytest.mark.parametrize("case", [_CASES[1], _CASES[2], _CASES[5]])
def test_blank_patches_tie_as_by_the_definition(case: tuple[int, ...]) -> None:
    """Where a window sees zeros alone, rounding must not switch its relu on.

    Windows that are near another choice without a tie, by the outputs in float64, take
    no part.
    """
    padding = case[-1]

    @jax.jit
    def block(*args: Array) -> tuple[Array, ...]:
        *own, gradient = args
        value, pull_back = jax.vjp(
            lambda *a: layers.conv_relu_pool(*a, padding=padding), *own
        )
        return value, *pull_back(gradient)[1:]

    conv = jax.jit(lambda *own: layers.conv(*own, padding=padding))
    blanks = 0
    for seed in range(30):
        draws = _sparse(case, seed)
        value, margin, pull_back = _in_float64(*draws, padding)
        gradient = (
            np.random.default_rng(seed + 1).normal(size=value.shape).astype(np.float32)
        )
        gradient[margin < 1e-3] = 0
        blank = (value == 0) & (margin == np.inf)
        blanks += int(blank.sum())
        found = block(*map(jnp.asarray, (*draws, gradient)))
        for mine, expected in zip(found, (value, *pull_back(gradient)), strict=True):
            scale = max(float(np.abs(expected).max()), 1.0)
            np.testing.assert_allclose(mine, expected, atol=1e-5 * scale)
        assert not np.asarray(found[0])[blank].any()
        plain = conv(*map(jnp.asarray, draws))
        # of the blank image: the bias to the bit
        assert (np.asarray(plain)[2] == draws[2]).all()
    assert blanks > 500


@pytest.mark.slow
def test_updates_of_the_cnn_are_those_of_float64() -> None:
    """Blank borders tie by the thousand in each step.

    A few of 40 may meet a chance near tie.
    """
    dataset = mj.data.load("mnist_5k", seed=0)
    model = mj.federated.cnn(10)

    class Plain(nn.Module):
        @nn.compact
        def __call__(self, values: Array) -> Array:
            dtype = values.dtype
            for number, features in enumerate((32, 64)):
                name = f"_ConvReluPool_{number}"
                layer = nn.Conv(features, (5, 5), name=name, param_dtype=dtype)
                values = nn.max_pool(nn.relu(layer(values)), (2, 2), (2, 2))
            values = values.reshape(values.shape[0], -1)
            values = nn.relu(nn.Dense(512, param_dtype=dtype)(values))
            return nn.Dense(10, param_dtype=dtype)(values)

    def gradient_of(own: nn.Module) -> Callable[..., Any]:
        def loss(variables: Any, images: Array, labels: Array) -> Array:
            logits = own.apply(variables, images)
            return optax.softmax_cross_entropy_with_integer_labels(
                logits, labels
            ).mean()

        return jax.jit(jax.grad(loss))

    ours, plain = gradient_of(model), gradient_of(Plain())
    errors = []
    for seed in range(40):
        flat = mj.federated.initial_parameters(seed, model, (28, 28, 1))
        start = mj.federated.unflatten(model, (28, 28, 1), flat)
        chosen = np.random.default_rng(seed).choice(
            len(dataset.train_labels), 10, replace=False
        )
        images, labels = dataset.train_inputs[chosen], dataset.train_labels[chosen]
        found = jax.flatten_util.ravel_pytree(ours(start, images, labels))[0]
        with jax.enable_x64(True):
            wide = jax.tree.map(
                lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), start
            )
            expected = plain(wide, jnp.asarray(images.astype(np.float64)), labels)
            expected = np.asarray(jax.flatten_util.ravel_pytree(expected)[0])
        errors.append(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    assert np.quantile(errors, 0.8) < 1e-5, errors
    assert max(errors) < 0.05, errors


def test_inactive_units_pass_no_gradient() -> None:
    inputs, kernel, _ = _draw(_CASES[5])
    gradients = jax.grad(
        lambda k, b: jnp.sum(conv_relu_pool(inputs, k, b, padding=2)), argnums=(0, 1)
    )(kernel, on_device(np.full(6, -1e6, np.float32)))
    assert all(not np.asarray(gradient).any() for gradient in gradients)


@pytest.mark.long
def test_mapped_over_clients_equals_a_loop() -> None:
    draws = [_draw(_CASES[7], seed) for seed in range(3)]
    stacked = [jnp.stack(parts) for parts in zip(*draws, strict=True)]

    def loss(inputs: Array, kernel: Array, bias: Array) -> Array:
        return jnp.sum(jnp.square(conv_relu_pool(inputs, kernel, bias, padding=2)))

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    mapped = jax.jit(jax.vmap(gradient))(*stacked)
    for client, own in enumerate(draws):
        for together, alone in zip(mapped, gradient(*own), strict=True):
            np.testing.assert_allclose(together[client], alone, rtol=1e-4, atol=1e-3)
