"""Convolution + bias + relu + 2x2 max-pool as one matrix product with its own backward pass.

Clients hold different kernels, so their convolutions run inside a loop or a batch over clients,
where XLA's own convolution is many times slower on the CPU than it need be. On the input folded
into 2x2 cells (space to depth) the block is a small convolution with four outputs a channel, one
for each place of the pooling window, and a maximum over them: one product of patches.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int8

__all__ = ["conv", "conv_relu", "conv_relu_pool", "pooled_size"]


def pooled_size(size: int, kernel_size: int, padding: int) -> int:
    """Return the side of the block's output, `(size + 2 padding - kernel + 1) // 2`.

    Examples:
        >>> pooled_size(28, 5, 2), pooled_size(14, 5, 0)
        (14, 5)
    """
    return (size + 2 * padding - kernel_size + 1) // 2


def conv(
    inputs: Float32[Array, "batch height width channels"],
    kernel: Float32[Array, "side side channels features"],
    bias: Float32[Array, " features"],
    *,
    padding: int,
) -> Float32[Array, "batch out_height out_width features"]:
    """Return convolution(inputs, kernel) + bias, stride 1, odd kernel, as one matrix product.

    Equal to XLA's convolution up to float rounding, forward and backward.

    Args:
        inputs: f32 [batch, height, width, channels].
        kernel: f32 [k, k, channels, features], k odd.
        bias: f32 [features].
        padding: Zeros added on each side, at least 0.

    Returns:
        f32 [batch, height + 2 padding - k + 1, width + 2 padding - k + 1, features].

    Examples:
        >>> kernel = jnp.zeros((3, 3, 1, 1)).at[1, 1, 0, 0].set(1.0)  # the identity
        >>> image = jnp.arange(4, dtype=jnp.float32).reshape(1, 2, 2, 1)
        >>> bool((conv(image, kernel, jnp.zeros(1), padding=1) == image).all())
        True
    """
    side, _, _, features = kernel.shape
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    patches = _windows(jnp.pad(inputs, edges), side)
    batch, height, width, depth = patches.shape
    outputs = patches.reshape(-1, depth) @ kernel.reshape(depth, features) + bias[None, :]
    return outputs.reshape(batch, height, width, features)


def conv_relu(
    inputs: Float32[Array, "batch height width channels"],
    kernel: Float32[Array, "side side channels features"],
    bias: Float32[Array, " features"],
    *,
    padding: int,
) -> Float32[Array, "batch out_height out_width features"]:
    """Return relu(convolution(inputs, kernel) + bias); arguments as for `conv`.

    Examples:
        >>> kernel = -jnp.ones((1, 1, 1, 1))
        >>> float(conv_relu(jnp.ones((1, 2, 2, 1)), kernel, jnp.zeros(1), padding=0).max())
        0.0
    """
    return jax.nn.relu(conv(inputs, kernel, bias, padding=padding))


def conv_relu_pool(
    inputs: Float32[Array, "batch height width channels"],
    kernel: Float32[Array, "side side channels features"],
    bias: Float32[Array, " features"],
    *,
    padding: int,
) -> Float32[Array, "batch out_height out_width features"]:
    """Return max_pool_2x2(relu(convolution(inputs, kernel) + bias)), stride 1, odd kernel.

    Equal to XLA's convolution and `reduce_window` up to float rounding, forward and backward;
    where several places of a window attain the maximum the first takes the gradient, as there.
    A last odd row or column of the convolution's output is dropped by the pool.

    Args:
        inputs: f32 [batch, height, width, channels].
        kernel: f32 [k, k, channels, features], k odd.
        bias: f32 [features].
        padding: Zeros added on each side, at least 0.

    Returns:
        f32 [batch, h, w, features] with h, w from `pooled_size`.

    Examples:
        >>> kernel = jnp.zeros((5, 5, 1, 1)).at[2, 2, 0, 0].set(1.0)  # the identity
        >>> image = jnp.arange(16, dtype=jnp.float32).reshape(1, 4, 4, 1)
        >>> conv_relu_pool(image, kernel, jnp.zeros(1), padding=2)[0, :, :, 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """
    side, _, _, features = kernel.shape
    cells = _patches_of_cells(inputs, side, padding)
    batch, out_height, out_width, depth = cells.shape
    rows = cells.reshape(batch * out_height * out_width, depth)
    pooled = _product_relu_max(rows, _weights_of_cells(kernel), bias)
    return pooled.reshape(batch, out_height, out_width, features)


def _patches_of_cells(
    inputs: Float32[Array, "batch height width channels"], side: int, padding: int
) -> Float32[Array, "batch out_height out_width depth"]:
    """Fold the input into 2x2 cells and lay the cells that each pooled output sees in a row."""
    batch, height, width, channels = inputs.shape
    reach = (side + 1) // 2  # cells that a pooling window and its kernels span
    out_height = pooled_size(height, side, padding)
    out_width = pooled_size(width, side, padding)
    num_rows, num_columns = out_height + reach - 1, out_width + reach - 1
    zero = jnp.zeros((), inputs.dtype)
    edges = [(0, 0, 0), (padding, 2 * num_rows - height - padding, 0)]
    edges += [(padding, 2 * num_columns - width - padding, 0), (0, 0, 0)]
    padded = jax.lax.pad(inputs, zero, edges)  # a negative edge crops what the pool drops
    cells = padded.reshape(batch, num_rows, 2, num_columns, 2, channels)
    cells = cells.transpose(0, 1, 3, 2, 4, 5).reshape(batch, num_rows, num_columns, 4 * channels)
    return _windows(cells, reach)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _windows(
    cells: Float32[Array, "batch rows columns depth"], reach: int
) -> Float32[Array, "batch out_height out_width window_depth"]:
    """Lay the `reach` x `reach` cells at each place side by side."""
    height, width = cells.shape[1] - reach + 1, cells.shape[2] - reach + 1
    shifted = [
        cells[:, down : down + height, right : right + width]
        for down in range(reach)
        for right in range(reach)
    ]
    return jnp.concatenate(shifted, axis=-1)


def _windows_forward(cells: Array, reach: int) -> tuple[Array, None]:
    return _windows(cells, reach), None


def _windows_backward(reach: int, saved: None, gradient: Array) -> tuple[Array]:
    """Add each shifted part in place; sums of padded parts would be recomputed by every user."""
    batch, height, width, window_depth = gradient.shape
    depth = window_depth // reach**2
    total = jnp.zeros((batch, height + reach - 1, width + reach - 1, depth), gradient.dtype)
    for place in range(reach**2):
        down, right = divmod(place, reach)
        here = (slice(None), slice(down, down + height), slice(right, right + width))
        part = gradient[..., place * depth : (place + 1) * depth]
        total = jax.lax.dynamic_update_slice(total, total[here] + part, (0, down, right, 0))
    return (total,)


_windows.defvjp(_windows_forward, _windows_backward)


def _weights_of_cells(
    kernel: Float32[Array, "side side channels features"],
) -> Float32[Array, "depth outputs"]:
    """Place the kernel at the four offsets of a pooling window, in the order of the patches."""
    side, _, channels, features = kernel.shape
    reach = (side + 1) // 2
    placed = [
        jnp.pad(kernel, ((down, 1 - down), (right, 1 - right), (0, 0), (0, 0)))
        for down in range(2)
        for right in range(2)
    ]
    weights = jnp.stack(placed, axis=3)  # [side + 1, side + 1, channels, 4, features]
    weights = weights.reshape(reach, 2, reach, 2, channels, 4 * features)
    weights = weights.transpose(0, 2, 1, 3, 4, 5)
    return weights.reshape(4 * reach * reach * channels, 4 * features)


@jax.custom_vjp
def _product_relu_max(
    rows: Float32[Array, "rows depth"],
    weights: Float32[Array, "depth outputs"],
    bias: Float32[Array, " features"],
) -> Float32[Array, "rows features"]:
    """Return relu(max over four of `rows @ weights` + bias)."""
    return _forward(rows, weights, bias)[0]


def _forward(
    rows: Array, weights: Array, bias: Array
) -> tuple[Float32[Array, "rows features"], tuple[Array, Array, Int8[Array, "rows features"]]]:
    features = bias.shape[0]
    outputs = rows @ weights
    places = [outputs[:, place * features : (place + 1) * features] for place in range(4)]
    best, where = places[0], jnp.zeros(places[0].shape, jnp.int8)
    for place in range(1, 4):  # a later place must be larger: the first of equals wins
        where = jnp.where(places[place] > best, jnp.int8(place), where)
        best = jnp.maximum(best, places[place])
    best = best + bias[None, :]
    is_active = best > 0
    pooled = jnp.where(is_active, best, jnp.zeros((), best.dtype))
    return pooled, (rows, weights, jnp.where(is_active, where, jnp.int8(4)))


def _backward(saved: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    rows, weights, where = saved
    zero = jnp.zeros((), gradient.dtype)
    spread = jnp.concatenate(
        [jnp.where(where == place, gradient, zero) for place in range(4)], axis=1
    )
    bias_gradient = jnp.sum(jnp.where(where < 4, gradient, zero), axis=0)
    return spread @ weights.T, rows.T @ spread, bias_gradient


_product_relu_max.defvjp(_forward, _backward)
