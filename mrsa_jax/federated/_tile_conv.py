"""Convolution + bias + relu + 2x2 max-pool of few channels as one product of patches.

On the input folded into 2x2 cells (space to depth) the block is a small convolution with four
outputs a channel, one for each place of the pooling window, and a maximum over them. Samples lie
innermost, so that sums and maxima run over long rows however few channels there are.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8

__all__ = ["pooled_size", "tile_conv_relu_pool"]


def pooled_size(size: int, kernel_size: int, padding: int) -> int:
    """Return the side of the block's output, `(size + 2 padding - kernel + 1) // 2`.

    Examples:
        >>> pooled_size(28, 5, 2), pooled_size(14, 5, 0)
        (14, 5)
    """
    return (size + 2 * padding - kernel_size + 1) // 2


def tile_conv_relu_pool(
    inputs: Float[Array, "batch height width channels"],
    kernel: Float[Array, "side side channels features"],
    bias: Float[Array, " features"],
    *,
    padding: int,
) -> Float[Array, "batch out_height out_width features"]:
    """Return the block `conv_relu_pool`; arguments as there."""
    side, _, _, features = kernel.shape
    patches = _patches(inputs, side, padding)
    depth, height, width, batch = patches.shape
    flat = patches.reshape(depth, height * width * batch)
    pooled = _product_relu_max(flat, _weights_of_cells(kernel), bias)
    return pooled.reshape(features, height, width, batch).transpose(3, 1, 2, 0)


def _patches(
    inputs: Float[Array, "batch height width channels"], side: int, padding: int
) -> Float[Array, "depth out_height out_width batch"]:
    """Fold the input into 2x2 cells and lay the cells that each pooled output sees below it."""
    batch, height, width, channels = inputs.shape
    reach = (side + 1) // 2  # cells that a pooling window and its kernels span
    rows = pooled_size(height, side, padding) + reach - 1
    columns = pooled_size(width, side, padding) + reach - 1
    edges = [(0, 0, 0), (padding, 2 * rows - height - padding, 0)]
    edges += [(padding, 2 * columns - width - padding, 0), (0, 0, 0)]
    # a negative edge crops what the pool drops
    padded = jax.lax.pad(inputs, jnp.zeros((), inputs.dtype), edges)
    cells = padded.reshape(batch, rows, 2, columns, 2, channels).transpose(2, 4, 5, 1, 3, 0)
    return _windows(cells.reshape(4 * channels, rows, columns, batch), reach)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _windows(
    cells: Float[Array, "depth rows columns batch"], reach: int
) -> Float[Array, "window_depth out_height out_width batch"]:
    """Stack the `reach` x `reach` cells at each place."""
    height, width = cells.shape[1] - reach + 1, cells.shape[2] - reach + 1
    shifted = [
        cells[:, down : down + height, right : right + width]
        for down in range(reach)
        for right in range(reach)
    ]
    return jnp.concatenate(shifted)


def _windows_forward(cells: Array, reach: int) -> tuple[Array, None]:
    return _windows(cells, reach), None


def _windows_backward(reach: int, saved: None, gradient: Array) -> tuple[Array]:
    """Add each shifted part in place; sums of padded parts would be recomputed by every user."""
    window_depth, height, width, batch = gradient.shape
    depth = window_depth // reach**2
    total = jnp.zeros((depth, height + reach - 1, width + reach - 1, batch), gradient.dtype)
    for place in range(reach**2):
        down, right = divmod(place, reach)
        here = (slice(None), slice(down, down + height), slice(right, right + width))
        part = gradient[place * depth : (place + 1) * depth]
        total = jax.lax.dynamic_update_slice(total, total[here] + part, (0, down, right, 0))
    return (total,)


_windows.defvjp(_windows_forward, _windows_backward)


def _weights_of_cells(
    kernel: Float[Array, "side side channels features"],
) -> Float[Array, "outputs depth"]:
    """Place the kernel at the four offsets of a pooling window, in the order of the patches."""
    side, _, channels, features = kernel.shape
    reach = (side + 1) // 2
    placed = [
        jnp.pad(kernel, ((down, 1 - down), (right, 1 - right), (0, 0), (0, 0)))
        for down in range(2)
        for right in range(2)
    ]
    weights = jnp.stack(placed)  # [4, side + 1, side + 1, channels, features]
    weights = weights.reshape(4, reach, 2, reach, 2, channels, features)
    return weights.transpose(0, 6, 1, 3, 2, 4, 5).reshape(4 * features, -1)


@jax.custom_vjp
def _product_relu_max(
    patches: Float[Array, "depth places"],
    weights: Float[Array, "outputs depth"],
    bias: Float[Array, " features"],
) -> Float[Array, "features places"]:
    """Return relu(max over four of `weights @ patches` + bias)."""
    return _forward(patches, weights, bias)[0]


def _forward(
    patches: Array, weights: Array, bias: Array
) -> tuple[Float[Array, "features places"], tuple[Array, Array, Int8[Array, "features places"]]]:
    outputs = (weights @ patches).reshape(4, bias.shape[0], -1)
    best, where = outputs[0], jnp.zeros(outputs.shape[1:], jnp.int8)
    for place in range(1, 4):  # a later place must be larger: the first of equals wins
        where = jnp.where(outputs[place] > best, jnp.int8(place), where)
        best = jnp.maximum(best, outputs[place])
    best = best + bias[:, None]
    is_active = best > 0
    pooled = jnp.where(is_active, best, jnp.zeros((), best.dtype))
    return pooled, (patches, weights, jnp.where(is_active, where, jnp.int8(4)))


def _backward(saved: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    patches, weights, where = saved
    zero = jnp.zeros((), gradient.dtype)
    spread = jnp.concatenate([jnp.where(where == place, gradient, zero) for place in range(4)])
    bias_gradient = jnp.sum(jnp.where(where < 4, gradient, zero), axis=1)
    return weights.T @ spread, spread @ patches.T, bias_gradient


_product_relu_max.defvjp(_forward, _backward)
