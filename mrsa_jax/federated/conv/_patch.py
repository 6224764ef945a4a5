"""Small convolutions that stay fast when differentiated twice, as gradient inversion does.

XLA differentiates a strided convolution of few channels into dilated ones that a CPU runs slowly.
A convolution is bilinear, and so are its two derivatives, which are again a convolution of the
gradient with the reversed kernel and a product of patches: closed under differentiation, all are
matrix products of patches. Stride 2 becomes stride 1 by moving 2 x 2 pixels into channels.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32

from mrsa_jax._core.arrays import one_program
from mrsa_jax.federated.conv._tile import windows

_Images = Float32[Array, "batch height width channels"]
_Outputs = Float32[Array, "batch height width features"]
_Kernel = Float32[Array, "size size channels features"]


@jax.custom_vjp
def patch_conv(inputs: _Images, kernel: _Kernel) -> _Outputs:
    """Return the 'same' cross-correlation with stride 1, of an odd-sized square kernel.

    Args:
        inputs: f32 [batch, height, width, channels].
        kernel: f32 [size, size, channels, features], size odd.

    Returns:
        f32 [batch, height, width, features].

    Examples:
        >>> image = jnp.arange(9.0).reshape(1, 3, 3, 1)
        >>> box = jnp.ones((3, 3, 1, 1))
        >>> float(patch_conv(image, box)[0, 1, 1, 0])
        36.0
    """
    size, _, channels, features = kernel.shape
    weights = kernel.reshape(size * size * channels, features)
    return jnp.einsum("nhwp,pf->nhwf", _patches(inputs, size), weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _kernel_gradient(inputs: _Images, outputs: _Outputs, size: int) -> _Kernel:
    """Return the kernel K that makes <patch_conv(inputs, kernel), outputs> = <kernel, K>."""
    product = jnp.einsum("nhwp,nhwf->pf", _patches(inputs, size), outputs)
    return product.reshape(size, size, inputs.shape[-1], outputs.shape[-1])


def _input_gradient(outputs: _Outputs, kernel: _Kernel) -> _Images:
    """Return the inputs X that make <patch_conv(inputs, kernel), outputs> = <inputs, X>."""
    return patch_conv(outputs, kernel[::-1, ::-1].swapaxes(2, 3))


@functools.partial(one_program, static_argnums=1)
def _patches(inputs: Array, size: int) -> Array:
    """Return each pixel's neighbourhood, [batch, height, width, size * size * channels]."""
    reach = size // 2
    return windows(jnp.pad(inputs, ((0, 0), (reach, reach), (reach, reach), (0, 0))), size)


patch_conv.defvjp(
    lambda inputs, kernel: (patch_conv(inputs, kernel), (inputs, kernel)),
    lambda saved, outputs: (
        _input_gradient(outputs, saved[1]),
        _kernel_gradient(saved[0], outputs, saved[1].shape[0]),
    ),
)
_kernel_gradient.defvjp(
    lambda inputs, outputs, size: (_kernel_gradient(inputs, outputs, size), (inputs, outputs)),
    lambda _, saved, kernel: (_input_gradient(saved[1], kernel), patch_conv(saved[0], kernel)),
)


@one_program
def strided_patch_conv(
    inputs: _Images, kernel: Float32[Array, "5 5 channels features"]
) -> Float32[Array, "batch rows columns features"]:
    """Return the 5x5 cross-correlation with stride 2 and padding 2.

    Args:
        inputs: f32 [batch, height, width, channels].
        kernel: f32 [5, 5, channels, features].

    Returns:
        f32 [batch, ceil(height / 2), ceil(width / 2), features].

    Examples:
        >>> strided_patch_conv(jnp.ones((1, 7, 8, 1)), jnp.ones((5, 5, 1, 2))).shape
        (1, 4, 4, 2)
    """
    batch, height, width, channels = inputs.shape
    rows, columns = -(-height // 2), -(-width // 2)
    even = jnp.pad(inputs, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
    blocks = even.reshape(batch, rows, 2, columns, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    # tap t reads pixel 2 i + t - 2, which is pixel t % 2 of block i + t // 2 - 1
    taps = jnp.pad(kernel, ((0, 1), (0, 1), (0, 0), (0, 0))).reshape(3, 2, 3, 2, channels, -1)
    taps = taps.transpose(0, 2, 1, 3, 4, 5).reshape(3, 3, 4 * channels, -1)
    return patch_conv(blocks.reshape(batch, rows, columns, 4 * channels), taps)
