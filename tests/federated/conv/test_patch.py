"""Patch convolutions against XLA's, through two derivatives."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mrsa_jax as mj
from mrsa_jax.federated.conv import patch_conv, strided_patch_conv

_SIZES = [(6, 6, 1), (7, 6, 2), (5, 7, 2)]


def _xla(inputs: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    reach = kernel.shape[0] // 2
    padding = ((reach, reach), (reach, reach))
    return lax.conv_general_dilated(
        inputs, kernel, (stride, stride), padding, dimension_numbers=numbers
    )


def _ours(inputs: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return (patch_conv if stride == 1 else strided_patch_conv)(inputs, kernel)


@pytest.mark.parametrize(("height", "width", "stride"), _SIZES)
def test_values_and_two_derivatives_are_those_of_xla(
    height: int, width: int, stride: int
) -> None:
    draw = np.random.default_rng(0)
    inputs, kernel, target = (
        np.float32(draw.normal(size=shape))
        for shape in ((2, height, width, 3), (5, 5, 3, 4), (5, 5, 3, 4))
    )

    def results(conv: object, inputs: jax.Array, kernel: jax.Array) -> list[jax.Array]:
        def energy(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
            return jnp.sum(jnp.tanh(conv(inputs, kernel, stride)))  # type: ignore[operator]

        def mismatch(inputs: jax.Array) -> jax.Array:
            return jnp.sum(
                jnp.square(jax.grad(energy, argnums=1)(inputs, kernel) - target)
            )

        return [
            conv(inputs, kernel, stride),  # type: ignore[operator]
            *jax.grad(energy, argnums=(0, 1))(inputs, kernel),
            jax.grad(mismatch)(inputs),
            jax.grad(lambda k: jnp.sum(jnp.square(jax.grad(energy)(inputs, k))))(
                kernel
            ),
        ]

    both = (
        jax.jit(functools.partial(results, conv))(inputs, kernel)
        for conv in (_ours, _xla)
    )
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(
            ours, theirs, rtol=2e-4, atol=2e-4 * float(np.abs(theirs).max())
        )


@pytest.mark.long
def test_smooth_lenet_is_the_network_of_plain_layers() -> None:
    class Plain(nn.Module):
        @nn.compact
        def __call__(self, values: jax.Array) -> jax.Array:
            for number, stride in enumerate((2, 2, 1)):
                layer = nn.Conv(
                    12,
                    (5, 5),
                    (stride, stride),
                    padding=2,
                    name=f"_ConvSigmoid_{number}",
                )
                values = nn.sigmoid(layer(values))
            return nn.Dense(10)(values.reshape(values.shape[0], -1))

    images = np.random.default_rng(0).random((3, 32, 32, 3), np.float32)
    model = mj.federated.smooth_lenet(10)
    flat = mj.federated.initial_parameters(0, model, (32, 32, 3))
    variables = mj.federated.unflatten(model, (32, 32, 3), flat)
    np.testing.assert_allclose(
        jax.jit(model.apply)(variables, images),
        jax.jit(Plain().apply)(variables, images),
        rtol=1e-5,
        atol=1e-5,
    )
