"""The convolution block against XLA's convolution and pooling, forward and backward."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from mrsa_jax.federated import _layers
from mrsa_jax.federated._layers import pooled_size

conv_relu_pool = jax.jit(_layers.conv_relu_pool, static_argnames="padding")


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
    return jax.lax.reduce_window(active, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


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
            outputs[:, i, j] = np.einsum("bijc,ijcf->bf", window, kernel.astype(np.float64))
    active = np.maximum(outputs + bias, 0)[:, : height // 2 * 2, : width // 2 * 2]
    shape = (len(inputs), height // 2, 2, width // 2, 2, -1)
    return active.reshape(shape).max(axis=(2, 4))


_CASES = [  # height, width, channels, features, side, padding
    (28, 28, 1, 6, 5, 2),
    (14, 14, 6, 16, 5, 0),
    (13, 10, 3, 4, 5, 2),  # the last odd row falls out of the pool
    (9, 11, 2, 3, 3, 0),
    (6, 7, 2, 5, 1, 0),
]


def _draw(case: tuple[int, ...], seed: int = 0) -> tuple[Array, Array, Array]:
    height, width, channels, features, side, _ = case
    keys = jax.random.split(jax.random.key(seed), 3)
    return (
        jax.random.normal(keys[0], (3, height, width, channels)),
        jax.random.normal(keys[1], (side, side, channels, features)),
        jax.random.normal(keys[2], (features,)),
    )


@pytest.mark.parametrize("case", _CASES)
def test_forward_equals_the_definition(case: tuple[int, ...]) -> None:
    inputs, kernel, bias = _draw(case)
    ours = conv_relu_pool(inputs, kernel, bias, padding=case[-1])
    expected = _numpy_reference(*map(np.asarray, (inputs, kernel, bias)), case[-1])
    assert ours.shape[1:3] == tuple(pooled_size(side, case[4], case[5]) for side in case[:2])
    # sums of at most 150 products of size about 1 in float32
    np.testing.assert_allclose(ours, expected, atol=1e-4)


@pytest.mark.parametrize("case", _CASES)
def test_gradients_equal_those_of_xla(case: tuple[int, ...]) -> None:
    draws = _draw(case, seed=1)
    padding = case[-1]
    shape = conv_relu_pool(*draws, padding=padding).shape
    weights = jax.random.normal(jax.random.key(9), shape)

    def ours(*args: Array) -> Array:
        return jnp.sum(conv_relu_pool(*args, padding=padding) * weights)

    def theirs(*args: Array) -> Array:
        return jnp.sum(_reference(*args, padding) * weights)

    for mine, expected in zip(
        jax.jit(jax.grad(ours, (0, 1, 2)))(*draws),
        jax.jit(jax.grad(theirs, (0, 1, 2)))(*draws),
        strict=True,
    ):
        scale = float(jnp.abs(expected).max())
        np.testing.assert_allclose(mine, expected, atol=2e-5 * max(scale, 1.0))


def test_the_first_of_equal_places_takes_the_gradient() -> None:
    # A constant image: all four places of each window are equal.
    inputs = jnp.ones((1, 4, 4, 1))
    kernel = jnp.ones((1, 1, 1, 1))
    gradient = jax.grad(lambda x: jnp.sum(conv_relu_pool(x, kernel, jnp.zeros(1), padding=0)))(
        inputs
    )
    expected = np.zeros((4, 4))
    expected[::2, ::2] = 1
    np.testing.assert_array_equal(gradient[0, :, :, 0], expected)


def test_inactive_units_pass_no_gradient() -> None:
    inputs, kernel, _ = _draw(_CASES[0])
    gradients = jax.grad(
        lambda k, b: jnp.sum(conv_relu_pool(inputs, k, b, padding=2)), argnums=(0, 1)
    )(kernel, jnp.full(6, -1e6))
    assert all(not np.asarray(gradient).any() for gradient in gradients)


def test_mapped_over_clients_equals_a_loop() -> None:
    draws = [_draw(_CASES[2], seed) for seed in range(3)]
    stacked = [jnp.stack(parts) for parts in zip(*draws, strict=True)]

    def loss(inputs: Array, kernel: Array, bias: Array) -> Array:
        return jnp.sum(jnp.square(conv_relu_pool(inputs, kernel, bias, padding=2)))

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    mapped = jax.jit(jax.vmap(gradient))(*stacked)
    for client, own in enumerate(draws):
        for together, alone in zip(mapped, gradient(*own), strict=True):
            np.testing.assert_allclose(together[client], alone, rtol=1e-4, atol=1e-3)
