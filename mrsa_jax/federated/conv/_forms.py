"""Convolutions at the speed of matrix products, for kernels that differ by client.

Clients hold different kernels, so their convolutions run inside a loop or a batch over
clients, where XLA's own convolution is many times slower on the CPU than it need be.
Three forms serve, chosen by what was measured: tiles with few products (`_winograd`,
many channels, on the CPU), pooling tiles (`conv._tile`, few channels), and plain
patches for everything else.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array

from mrsa_jax._core.device import platform
from mrsa_jax._core.programs import one_program
from mrsa_jax.federated.conv import _winograd
from mrsa_jax.federated.conv._tile import (
    Bias,
    Images,
    Kernel,
    Outputs,
    tile_conv_relu_pool,
    windows,
)

# CPU seconds of minibatches of 20 by XLA's own convolution and by these forms, on two
# shared cores: the CNN 0.55 and 0.052, LeNet 0.029 and 0.0035; VGG-11 17 times by the
# clock. Plain patches for all layers: the CNN 3.7 times these forms, LeNet 2.9 to 7.
_of_a_layer = functools.partial(one_program, static_argnames="padding")


@_of_a_layer
def conv(inputs: Images, kernel: Kernel, bias: Bias, *, padding: int) -> Outputs:
    """Return convolution(inputs, kernel) + bias, stride 1, odd kernel.

    Equal to XLA's convolution, forward and backward, within 2e-5 of the largest entry:
    tiles of few products round about ten times as coarsely as plain sums. Exactly the
    bias where a kernel's patch holds zeros alone, as there.

    Args:
        inputs: Float [batch, height, width, channels].
        kernel: Float [k, k, channels, features], k odd.
        bias: Float [features].
        padding: Zeros added on each side, at least 0.

    Returns:
        Float [batch, height + 2 padding - k + 1, width + 2 padding - k + 1, features].

    Examples:
        >>> kernel = jnp.zeros((3, 3, 1, 1)).at[1, 1, 0, 0].set(1.0)  # the identity
        >>> image = jnp.arange(4, dtype=jnp.float32).reshape(1, 2, 2, 1)
        >>> bool((conv(image, kernel, jnp.zeros(1), padding=1) == image).all())
        True
    """
    if _has_few_products(inputs, kernel):
        return _winograd.winograd(
            inputs, kernel, bias, padding=padding, is_pooled=False
        )
    side, _, _, features = kernel.shape
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    patches = windows(jnp.pad(inputs, edges), side)
    batch, height, width, depth = patches.shape
    # One product for the whole batch: [places, depth] @ [depth, features].
    outputs = (
        patches.reshape(-1, depth) @ kernel.reshape(depth, features) + bias[None, :]
    )
    return outputs.reshape(batch, height, width, features)


@_of_a_layer
def conv_relu(inputs: Images, kernel: Kernel, bias: Bias, *, padding: int) -> Outputs:
    """Return relu(convolution(inputs, kernel) + bias); arguments as for `conv`.

    Examples:
        >>> kernel = -jnp.ones((1, 1, 1, 1))
        >>> images, bias = jnp.ones((1, 2, 2, 1)), jnp.zeros(1)
        >>> float(conv_relu(images, kernel, bias, padding=0).max())
        0.0
    """
    return jax.nn.relu(conv(inputs, kernel, bias, padding=padding))


@_of_a_layer
def conv_relu_pool(
    inputs: Images, kernel: Kernel, bias: Bias, *, padding: int
) -> Outputs:
    """Return max_pool_2x2(relu(conv(inputs, kernel) + bias)), stride 1, odd kernel.

    Equal to XLA's convolution and `reduce_window` up to float rounding (`conv` says how
    much). Where several places of a window attain the maximum the first takes the
    gradient, as there; in tiles of few products any of those whose patches are equal
    may, which gives the kernel and the bias the same gradient. Windows that see zeros
    alone tie exactly, in relu too.

    Where no tie but rounding decides, between unequal patches or about a unit at zero,
    the gradient may take another way than XLA's: an update of McMahan's CNN from ten
    digits is within 1e-5 of float64's, of its norm, or by such a choice within 5
    percent, which met about one of nine updates of three steps. Plain float32 has the
    same choices, ten times more rarely.

    A last odd row or column of the convolution's output is dropped by the pool.

    Args:
        inputs: Float [batch, height, width, channels].
        kernel: Float [k, k, channels, features], k odd.
        bias: Float [features].
        padding: Zeros added on each side, at least 0.

    Returns:
        Float [batch, h, w, features] with h, w from `pooled_size`.

    Examples:
        >>> kernel = jnp.zeros((5, 5, 1, 1)).at[2, 2, 0, 0].set(1.0)  # the identity
        >>> image = jnp.arange(16, dtype=jnp.float32).reshape(1, 4, 4, 1)
        >>> conv_relu_pool(image, kernel, jnp.zeros(1), padding=2)[0, :, :, 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """
    if _has_few_products(inputs, kernel):
        return _winograd.winograd(inputs, kernel, bias, padding=padding, is_pooled=True)
    return tile_conv_relu_pool(inputs, kernel, bias, padding=padding)


def _has_few_products(inputs: Array, kernel: Array) -> bool:
    """Return whether to save products.

    Their transforms want float32, and a CPU's caches.
    """
    is_float32 = inputs.dtype == kernel.dtype == jnp.float32
    return is_float32 and platform() == "cpu" and _winograd.serves(kernel.shape)
