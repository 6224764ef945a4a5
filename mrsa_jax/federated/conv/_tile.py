"""Convolutions of few channels as products of patches.

One with bias, relu and 2x2 max-pool, and one that may be differentiated twice.

On the input folded into 2x2 cells (space to depth) the block is a small convolution
with four outputs a channel, one for each place of the pooling window, and a maximum
over them. (Samples innermost, for longer rows, were measured too: LeNet took half as
long again.)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int8

from mrsa_jax._core.programs import one_program

# of any form of a layer
Images = Float[Array, "batch height width channels"]
Kernel = Float[Array, "side side channels features"]
Bias = Float[Array, " features"]
Outputs = Float[Array, "batch out_height out_width features"]


def pooled_size(size: int, kernel_size: int, padding: int) -> int:
    """Return the side of the block's output, `(size + 2 padding - kernel + 1) // 2`.

    Examples:
        >>> pooled_size(28, 5, 2), pooled_size(14, 5, 0)
        (14, 5)
    """
    return (size + 2 * padding - kernel_size + 1) // 2


def tile_conv_relu_pool(
    inputs: Images, kernel: Kernel, bias: Bias, *, padding: int
) -> Outputs:
    """Return the block `conv_relu_pool`; arguments as there."""
    side, _, _, features = kernel.shape
    cells = _patches_of_cells(inputs, side, padding)
    batch, out_height, out_width, depth = cells.shape
    rows = cells.reshape(batch * out_height * out_width, depth)
    pooled = _product_relu_max(rows, _weights_of_cells(kernel), bias)
    return pooled.reshape(batch, out_height, out_width, features)


def _patches_of_cells(
    inputs: Images, side: int, padding: int
) -> Float[Array, "batch out_height out_width depth"]:
    """Fold the input into 2x2 cells, and lay out the cells of each pooled output."""
    batch, height, width, channels = inputs.shape
    reach = (side + 1) // 2  # cells that a pooling window and its kernels span
    out_height = pooled_size(height, side, padding)
    out_width = pooled_size(width, side, padding)
    # Windows of `reach` cells at stride 1 give one pooled output each.
    num_rows, num_columns = out_height + reach - 1, out_width + reach - 1
    zero = jnp.zeros((), inputs.dtype)
    edges = [(0, 0, 0), (padding, 2 * num_rows - height - padding, 0)]
    edges += [(padding, 2 * num_columns - width - padding, 0), (0, 0, 0)]
    # a negative edge crops what the pool drops
    padded = jax.lax.pad(inputs, zero, edges)
    # Space to depth: the 2x2 pixels of a cell become its channels, ordered by row,
    # column, channel; `_weights_of_cells` keeps the same order.
    cells = padded.reshape(batch, num_rows, 2, num_columns, 2, channels)
    cells = cells.transpose(0, 1, 3, 2, 4, 5).reshape(
        batch, num_rows, num_columns, 4 * channels
    )
    return windows(cells, reach)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def windows(
    cells: Float[Array, "batch rows columns depth"], reach: int
) -> Float[Array, "batch out_height out_width window_depth"]:
    """Lay the `reach` x `reach` cells at each place side by side."""
    height, width = cells.shape[1] - reach + 1, cells.shape[2] - reach + 1
    shifted = [
        cells[:, down : down + height, right : right + width]
        for down in range(reach)
        for right in range(reach)
    ]
    return jnp.concatenate(shifted, axis=-1)


def _windows_backward(reach: int, saved: None, gradient: Array) -> tuple[Array]:
    """Add each shifted part in place.

    Sums of padded parts would be recomputed by every user.
    """
    batch, height, width, window_depth = gradient.shape
    depth = window_depth // reach**2
    total = jnp.zeros(
        (batch, height + reach - 1, width + reach - 1, depth), gradient.dtype
    )
    # In the order of `windows`: the parts lie side by side on the last axis.
    for place in range(reach**2):
        down, right = divmod(place, reach)
        here = (slice(None), slice(down, down + height), slice(right, right + width))
        part = gradient[..., place * depth : (place + 1) * depth]
        total = jax.lax.dynamic_update_slice(
            total, total[here] + part, (0, down, right, 0)
        )
    return (total,)


windows.defvjp(lambda cells, reach: (windows(cells, reach), None), _windows_backward)


def _weights_of_cells(
    kernel: Float[Array, "side side channels features"],
) -> Float[Array, "depth outputs"]:
    """Place the kernel at the four offsets of a pooling window, as in the patches."""
    side, _, channels, features = kernel.shape
    reach = (side + 1) // 2
    # A side grows from 2 r - 1 to 2 r: the kernel starts at pixel 0 or 1 of its cell,
    # once for each of the four outputs of a pooling window.
    placed = [
        jnp.pad(kernel, ((down, 1 - down), (right, 1 - right), (0, 0), (0, 0)))
        for down in range(2)
        for right in range(2)
    ]
    weights = jnp.stack(placed, axis=3)  # [side + 1, side + 1, channels, 4, features]
    weights = weights.reshape(reach, 2, reach, 2, channels, 4 * features)
    # Pixels are split into (cell, place in the cell); the places go behind the cells.
    weights = weights.transpose(0, 2, 1, 3, 4, 5)
    return weights.reshape(4 * reach * reach * channels, 4 * features)


@jax.custom_vjp
def _product_relu_max(
    rows: Float[Array, "rows depth"],
    weights: Float[Array, "depth outputs"],
    bias: Float[Array, " features"],
) -> Float[Array, "rows features"]:
    """Return relu(max over four of `rows @ weights` + bias)."""
    return _forward(rows, weights, bias)[0]


def _forward(
    rows: Array, weights: Array, bias: Array
) -> tuple[
    Float[Array, "rows features"], tuple[Array, Array, Int8[Array, "rows features"]]
]:
    features = bias.shape[0]
    outputs = rows @ weights
    places = [
        outputs[:, place * features : (place + 1) * features] for place in range(4)
    ]
    pooled, where = relu_of_largest(places, bias)
    return pooled, (rows, weights, where)


def relu_of_largest(places: Sequence[Array], bias: Array) -> tuple[Array, Array]:
    """Return relu of a window's maximum + bias, and its place.

    The place is 4 where relu is not active.
    """
    best, where = places[0], jnp.zeros(places[0].shape, jnp.int8)
    for place in range(1, 4):  # a later place must be larger: the first of equals wins
        where = jnp.where(places[place] > best, jnp.int8(place), where)
        best = jnp.maximum(best, places[place])
    best = best + bias.reshape((1,) * (best.ndim - 1) + (-1,))
    is_active = best > 0
    pooled = jnp.where(is_active, best, jnp.zeros((), best.dtype))
    # 4 marks a window that relu shuts: no place of it has a gradient.
    return pooled, jnp.where(is_active, where, jnp.int8(4))


def _backward(
    saved: tuple[Array, Array, Array], gradient: Array
) -> tuple[Array, Array, Array]:
    rows, weights, where = saved
    zero = jnp.zeros((), gradient.dtype)
    # The pooled gradient goes to the largest place alone; the others get zero.
    spread = jnp.concatenate(
        [jnp.where(where == k, gradient, zero) for k in range(4)], axis=1
    )
    bias_gradient = jnp.sum(jnp.where(where < 4, gradient, zero), axis=0)
    return spread @ weights.T, rows.T @ spread, bias_gradient


_product_relu_max.defvjp(_forward, _backward)


# XLA differentiates a strided convolution of few channels into dilated ones that a CPU
# runs slowly. A convolution is bilinear, and so are its two derivatives, which are
# again a convolution of the gradient with the reversed kernel and a product of patches:
# closed under differentiation, all are matrix products of patches. Stride 2 becomes
# stride 1 by moving 2 x 2 pixels into channels.
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
    """Return the kernel K with <patch_conv(inputs, kernel), outputs> = <kernel, K>."""
    product = jnp.einsum("nhwp,nhwf->pf", _patches(inputs, size), outputs)
    return product.reshape(size, size, inputs.shape[-1], outputs.shape[-1])


def _input_gradient(outputs: _Outputs, kernel: _Kernel) -> _Images:
    """Return the inputs X with <patch_conv(inputs, kernel), outputs> = <inputs, X>."""
    # The adjoint of a correlation: reverse the kernel, swap channels and features.
    return patch_conv(outputs, kernel[::-1, ::-1].swapaxes(2, 3))


@functools.partial(one_program, static_argnums=1)
def _patches(inputs: Array, size: int) -> Array:
    """Return each pixel's neighbourhood.

    Its shape is [batch, height, width, size * size * channels].
    """
    reach = size // 2
    return windows(
        jnp.pad(inputs, ((0, 0), (reach, reach), (reach, reach), (0, 0))), size
    )


patch_conv.defvjp(
    lambda inputs, kernel: (patch_conv(inputs, kernel), (inputs, kernel)),
    lambda saved, outputs: (
        _input_gradient(outputs, saved[1]),
        _kernel_gradient(saved[0], outputs, saved[1].shape[0]),
    ),
)
_kernel_gradient.defvjp(
    lambda inputs, outputs, size: (
        _kernel_gradient(inputs, outputs, size),
        (inputs, outputs),
    ),
    # The map is bilinear: its derivative in one factor is the map of the other two.
    lambda _, saved, kernel: (
        _input_gradient(saved[1], kernel),
        patch_conv(saved[0], kernel),
    ),
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
    blocks = even.reshape(batch, rows, 2, columns, 2, channels).transpose(
        0, 1, 3, 2, 4, 5
    )
    # tap t reads pixel 2 i + t - 2, which is pixel t % 2 of block i + t // 2 - 1
    taps = jnp.pad(kernel, ((0, 1), (0, 1), (0, 0), (0, 0))).reshape(
        3, 2, 3, 2, channels, -1
    )
    taps = taps.transpose(0, 2, 1, 3, 4, 5).reshape(3, 3, 4 * channels, -1)
    return patch_conv(blocks.reshape(batch, rows, columns, 4 * channels), taps)
