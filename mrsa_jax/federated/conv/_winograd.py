"""Convolution by two-dimensional Toom-Cook tiles, with its own backward pass.

A tile of m x m outputs of an r x r kernel takes (m + r - 1)² products a channel and
feature instead of m² r²: 6.25 times fewer for 5 x 5 kernels, 4 times for 3 x 3. The
products of all tiles are one batched matrix product; the transforms around it are sums
along the tile's rows and columns. Minibatches run in chunks whose tiles stay in cache,
and the backward pass makes the input's tiles again instead of keeping them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from mrsa_jax._core.batches import at_once
from mrsa_jax.federated.conv._tile import Bias, Images, Kernel, Outputs, relu_of_largest

# `outputs` values of a filter of `taps` weights cost outputs + taps - 1 products
# instead of outputs x taps. Source: Winograd 1980, "Arithmetic Complexity of
# Computations"; Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural
# Networks", eq. (5) to (7).
# zero, then pairs of opposite sign: small numbers keep the rounding small
_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))

Matrix = list[list[Fraction]]


class ToomCook(NamedTuple):
    """y = output @ ((kernel @ g) * (data @ d)) with y_i = sum_k g_k d_{i+k}.

    All float64.
    """

    output: np.ndarray  # [outputs, products]
    kernel: np.ndarray  # [products, taps]
    data: np.ndarray  # [products, products]


@functools.cache
def toom_cook(outputs: int, taps: int) -> ToomCook:
    """Return the matrices for a number of outputs and of taps.

    Made of exact fractions; a factor of two moves between the kernel's and the data's
    row of each product, so that both are of about one size and rounding stays small.

    Args:
        outputs: Outputs of one application, at least 1.
        taps: Weights of the filter, at least 1; outputs + taps is at most 9.

    Examples:
        >>> short = toom_cook(2, 3)
        >>> g, d = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0, 5.0])
        >>> short.output @ ((short.kernel @ g) * (short.data @ d))
        array([ 7., 19.])
    """
    # The product of polynomials of degree m - 1 and r - 1 is fixed by m + r - 1 values:
    # at these points, and at infinity (its leading coefficient). The transpose of that
    # product is the correlation y_i = sum_k g_k d_(i+k).
    points = _POINTS[: outputs + taps - 2]
    # Denominators of Lagrange's interpolation.
    norms = [math.prod(a - b for b in points if b != a) for a in points]
    unit, zero = Fraction(1), Fraction(0)
    output = [
        # Evaluation at the points; infinity sees the highest power alone.
        [a**i for a in points] + [unit if i == outputs - 1 else zero]
        for i in range(outputs)
    ]
    kernel = [
        [a**k / norm for k in range(taps)]
        for a, norm in zip(points, norms, strict=True)
    ]
    kernel.append([zero] * (taps - 1) + [unit])
    # Numerators of Lagrange: the polynomial that vanishes at all other points, and for
    # infinity the one that vanishes at all of them.
    data = [[*_with_roots([b for b in points if b != a]), zero] for a in points]
    data.append(_with_roots(list(points)))
    for weights, values in zip(kernel, data, strict=True):
        # Balance both transforms of a product by a power of 2, which rounds nothing:
        # their largest entries become about equal.
        ratio = max(map(abs, values)) / max(map(abs, weights))
        scale = Fraction(2) ** round(math.log2(ratio) / 2)
        weights[:] = [scale * weight for weight in weights]
        values[:] = [value / scale for value in values]
    return ToomCook(*(_array(matrix) for matrix in (output, kernel, data)))


def _with_roots(roots: list[Fraction]) -> list[Fraction]:
    """Return the coefficients of the monic polynomial of these roots, lowest first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [-root * value for value in coefficients] + [Fraction(0)]
        coefficients = [a + b for a, b in zip(shifted, scaled, strict=True)]
    return coefficients


def _array(matrix: Matrix) -> np.ndarray:
    return np.array([[float(value) for value in row] for row in matrix])


# below, the transforms cost more than the products that they save
_FEWEST_CHANNELS = 16


def serves(kernel_shape: Sequence[int]) -> bool:
    """Tell whether tiles are worth their transforms.

    Kernels are [side, side, channels, features].

    Examples:
        >>> serves((5, 5, 32, 64)), serves((5, 5, 1, 32)), serves((7, 7, 32, 32))
        (True, False, False)
    """
    side, _, channels, features = kernel_shape
    return side in (3, 5) and min(channels, features) >= _FEWEST_CHANNELS


class _Tiling(NamedTuple):
    """The cut of images into tiles.

    `outputs` x `outputs` results a tile, tiles a column and a row.
    """

    side: int
    padding: int
    height: int
    width: int
    outputs: int
    down: int
    right: int

    @property
    def matrices(self) -> ToomCook:
        return toom_cook(self.outputs, self.side)

    @property
    def products(self) -> int:
        """Products along one side of a tile; a tile reaches this many inputs."""
        return self.outputs + self.side - 1

    @property
    def output_shape(self) -> tuple[int, int]:
        spare = 2 * self.padding - self.side + 1
        return self.height + spare, self.width + spare


def _tiling(image_shape: Sequence[int], side: int, padding: int) -> _Tiling:
    height, width = image_shape
    spare = 2 * padding - side + 1
    # a tile's inputs reach into the next one only: at least side - 1 outputs
    outputs = 2 if side == 3 and min(height, width) + spare <= 2 else 4
    # Tiles cover the outputs; the last of a row or column may reach beyond them.
    down, right = (-(-(length + spare) // outputs) for length in (height, width))
    return _Tiling(side, padding, height, width, outputs, down, right)


def winograd(
    inputs: Images, kernel: Kernel, bias: Bias, *, padding: int, is_pooled: bool
) -> Outputs:
    """Return `conv`, or the block `conv_relu_pool`.

    A tile's outputs are whole pooling windows.
    """
    tiling = _tiling(inputs.shape[1:3], kernel.shape[0], padding)
    return _block(inputs, kernel, bias, tiling, is_pooled)


def _along_rows(matrix: np.ndarray, values: Array) -> Array:
    """Multiply along the first axis.

    A product of matrices was faster than sums of slices.
    """
    flat = jnp.asarray(matrix, jnp.float32) @ values.reshape(values.shape[0], -1)
    return flat.reshape(len(matrix), *values.shape[1:])


def _along_columns(matrix: np.ndarray, values: Array) -> Array:
    """Multiply along the second axis."""
    rows, columns = values.shape[:2]
    # The same matrix for each row, as a batched product, so that no axis has to be
    # moved.
    repeated = jnp.broadcast_to(jnp.asarray(matrix, jnp.float32), (rows, *matrix.shape))
    flat = jax.lax.batch_matmul(repeated, values.reshape(rows, columns, -1))
    return flat.reshape(rows, len(matrix), *values.shape[2:])


def _input_tiles(
    inputs: Array, tiling: _Tiling
) -> Float32[Array, "products tiles channels"]:
    """Return each tile of the inputs, transformed, by product.

    [p², batch x tiles, channels].
    """
    data, more = tiling.matrices.data, tiling.side - 1
    m, down, right = tiling.outputs, tiling.down, tiling.right
    # [m, m, batch, down + 1, right + 1, channels]
    cells = _cells(inputs, m, down + 1, right + 1, tiling.padding)
    # A tile needs m + r - 1 rows: all m of one cell, and the first r - 1 of the cell
    # below. Both transforms act on one axis at a time.
    once = _along_rows(
        data, jnp.concatenate([cells[:, :, :, :-1], cells[:more, :, :, 1:]])
    )
    columns = [once[:, :, :, :, :-1], once[:, :more, :, :, 1:]]
    twice = _along_columns(data, jnp.concatenate(columns, axis=1))
    return twice.reshape(tiling.products**2, -1, inputs.shape[-1])


def _input_tiles_transposed(tiles: Array, tiling: _Tiling) -> Array:
    """Return the gradient of the inputs of `_input_tiles`."""
    n, back = tiling.products, tiling.matrices.data.T
    tiles = tiles.reshape(n, n, -1, tiling.down, tiling.right, tiles.shape[-1])
    # Transposes in reverse order: columns first, then rows.
    columns = _along_columns(back, tiles)
    once = _overlapped([columns[:, k] for k in range(n)], tiling.outputs, axis=3)
    rows = _along_rows(back, jnp.stack(once, axis=1))
    cells = jnp.stack(_overlapped(list(rows), tiling.outputs, axis=2))
    return _images(cells, tiling.height, tiling.width, tiling.padding)


def _overlapped(parts: Sequence[Array], m: int, axis: int) -> list[Array]:
    """Add what reaches into the next tile to that tile."""
    results = []
    for k in range(m):
        # Part k + m of a tile lies on place k of the next tile. A tile more along the
        # axis holds what reaches beyond the last.
        first = _shifted(parts[k], axis, 0)
        results.append(
            first + _shifted(parts[k + m], axis, 1) if k + m < len(parts) else first
        )
    return results


def _shifted(values: Array, axis: int, start: int) -> Array:
    edges = [(0, 0, 0)] * values.ndim
    edges[axis] = (start, 1 - start, 0)
    return jax.lax.pad(values, jnp.zeros((), values.dtype), edges)


def _cells(values: Array, cell: int, down: int, right: int, pad: int = 0) -> Array:
    """Pad images to whole cells and order them by place within a cell, then by cell."""
    batch, height, width, depth = values.shape
    edges = [
        (0, 0, 0),
        (pad, cell * down - height - pad, 0),
        (pad, cell * right - width - pad, 0),
    ]
    padded = jax.lax.pad(values, jnp.zeros((), values.dtype), [*edges, (0, 0, 0)])
    # [cell, cell, batch, down, right, depth]: the transforms act on the leading axes.
    return padded.reshape(batch, down, cell, right, cell, depth).transpose(
        2, 4, 0, 1, 3, 5
    )


def _images(cells: Array, height: int, width: int, pad: int = 0) -> Array:
    """Undo `_cells`."""
    cell, _, batch, down, right, depth = cells.shape
    images = cells.transpose(2, 3, 0, 4, 1, 5).reshape(
        batch, cell * down, cell * right, depth
    )
    return images[:, pad : pad + height, pad : pad + width]


def _kernel_transform(
    kernel: Array, tiling: _Tiling
) -> Float32[Array, "products channels features"]:
    side, _, channels, features = kernel.shape
    # Kernels are small: one Kronecker product transforms rows and columns at once.
    both = np.kron(tiling.matrices.kernel, tiling.matrices.kernel)
    flat = kernel.reshape(side * side, channels * features)
    return (jnp.asarray(both, jnp.float32) @ flat).reshape(-1, channels, features)


def _kernel_transform_transposed(gradient: Array, tiling: _Tiling) -> Array:
    _, channels, features = gradient.shape
    both = np.kron(tiling.matrices.kernel, tiling.matrices.kernel)
    flat = jnp.asarray(both.T, jnp.float32) @ gradient.reshape(-1, channels * features)
    return flat.reshape(tiling.side, tiling.side, channels, features)


def _tile_outputs(
    products: Array, tiling: _Tiling
) -> Float32[Array, "rows columns tiles features"]:
    """Return the outputs of all tiles by row and column in the tile."""
    n = tiling.products
    products = products.reshape(n, n, *products.shape[1:])
    return _along_columns(
        tiling.matrices.output, _along_rows(tiling.matrices.output, products)
    )


def _tile_outputs_transposed(
    gradient: Float32[Array, "rows columns tiles features"], tiling: _Tiling
) -> Float32[Array, "products tiles features"]:
    """Return the gradient of the inputs of `_tile_outputs`."""
    back = tiling.matrices.output.T
    twice = _along_rows(back, _along_columns(back, gradient))
    return twice.reshape(-1, *twice.shape[2:])


def _convolved(inputs: Array, weights: Array, tiling: _Tiling) -> Array:
    """Return the outputs of all tiles.

    Exactly zero where a kernel's patch is nothing but zeros.
    A tile's transforms mix all its outputs, which leaves rounding where a product of
    patches has none: with a zero bias it would switch on units that relu keeps off, all
    over blank borders.
    """
    outputs = _tile_outputs(_input_tiles(inputs, tiling) @ weights, tiling)
    # The rounding of the transforms leaks into outputs whose receptive field is all
    # zero (padding, blank borders): those are set to exact zero.
    seen = (inputs != 0).any(axis=-1, keepdims=True)
    edges = (
        (0, 0),
        (tiling.padding, tiling.padding),
        (tiling.padding, tiling.padding),
        (0, 0),
    )
    seen = jnp.pad(seen, edges)
    height, width = tiling.output_shape
    # A dilation by the kernel's square, along one axis after the other.
    rows = functools.reduce(
        jnp.logical_or, [seen[:, k : k + height] for k in range(tiling.side)]
    )
    cells = [rows[:, :, k : k + width] for k in range(tiling.side)]
    seen = functools.reduce(jnp.logical_or, cells)
    return jnp.where(
        _by_place(seen, tiling.outputs, tiling), outputs, jnp.zeros((), outputs.dtype)
    )


def _by_place(values: Array, cell: int, tiling: _Tiling) -> Array:
    """Order images by place in the tile: [cell, cell, tiles, ...]."""
    return _cells(values, cell, tiling.down, tiling.right).reshape(
        cell, cell, -1, values.shape[-1]
    )


def _from_places(placed: Array, tiling: _Tiling, height: int, width: int) -> Array:
    """Undo `_by_place`."""
    cell, _, _, depth = placed.shape
    return _images(
        placed.reshape(cell, cell, -1, tiling.down, tiling.right, depth), height, width
    )


def _pull_back(
    tiles_gradient: Array, inputs: Array, weights: Array, tiling: _Tiling
) -> tuple[Array, Array]:
    """Return the gradients of the inputs and of the transformed kernel."""
    # Made again from the inputs: cheaper than to keep tiles (m + r - 1)^2 / m^2 times
    # as large.
    tiles = _input_tiles(inputs, tiling)
    # One batched product per place in the tile: contract over tiles for the kernel,
    # over features for the inputs.
    by_tile = (((1,), (1,)), ((0,), (0,)))
    by_feature = (((2,), (2,)), ((0,), (0,)))
    weights_gradient = jax.lax.dot_general(tiles, tiles_gradient, by_tile)
    inputs_gradient = jax.lax.dot_general(tiles_gradient, weights, by_feature)
    return _input_tiles_transposed(inputs_gradient, tiling), weights_gradient


def _in_chunks(batch: int, weights: Array, tiling: _Tiling) -> tuple[int, int]:
    """Return the number of chunks and of samples in each.

    A chunk outweighs the kernel that it reads.
    """
    products, channels, features = weights.shape
    sample = 4 * products * tiling.down * tiling.right * (channels + features)
    # As many samples as stay in cache, but enough for their tiles to outweigh the
    # weights, which are read again for every chunk (4 bytes each, as in `sample`).
    most = max(at_once("tiles", sample), 4 * math.prod(weights.shape) // sample)
    chunks = -(-batch // most)
    # Chunks of equal size, so that the padding is least.
    return chunks, -(-batch // chunks)


def _split(values: Array, chunks: int, size: int) -> Array:
    """Cut along the first axis; zeros fill the last chunk."""
    spare = chunks * size - values.shape[0]
    edges = ((0, spare), *[(0, 0)] * (values.ndim - 1))
    return jnp.pad(values, edges).reshape(chunks, size, *values.shape[1:])


def _joined(chunks: Array, batch: int) -> Array:
    return chunks.reshape(-1, *chunks.shape[2:])[:batch]


def _forward_in_chunks(
    of_chunk: Callable[[Array], Any], inputs: Array, weights: Array, tiling: _Tiling
) -> Any:
    batch = inputs.shape[0]
    chunks, size = _in_chunks(batch, weights, tiling)
    if chunks == 1:
        return of_chunk(inputs)
    results = jax.lax.map(of_chunk, _split(inputs, chunks, size))
    return jax.tree.map(lambda leaf: _joined(leaf, batch), results)


def _backward_in_chunks(
    of_chunk: Callable[..., tuple[Array, Array, Array]],
    batched: Sequence[Array],
    weights: Array,
    tiling: _Tiling,
) -> tuple[Array, Array, Array]:
    """Return gradients of the inputs, and the added ones of kernel and bias."""
    batch = batched[0].shape[0]
    chunks, size = _in_chunks(batch, weights, tiling)

    def step(sums: tuple[Array, Array], chunk: tuple[Array, ...]) -> tuple[Any, Array]:
        inputs_gradient, *more = of_chunk(*chunk)
        return jax.tree.map(jnp.add, sums, tuple(more)), inputs_gradient

    if chunks == 1:
        inputs_gradient, weights_gradient, bias_gradient = of_chunk(*batched)
    else:
        zeros = jnp.zeros_like(weights), jnp.zeros(weights.shape[-1], weights.dtype)
        cut = tuple(_split(values, chunks, size) for values in batched)
        (weights_gradient, bias_gradient), parts = jax.lax.scan(step, zeros, cut)
        inputs_gradient = _joined(parts, batch)
    return (
        inputs_gradient,
        _kernel_transform_transposed(weights_gradient, tiling),
        bias_gradient,
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _block(
    inputs: Array, kernel: Array, bias: Array, tiling: _Tiling, is_pooled: bool
) -> Array:
    return _forward(inputs, kernel, bias, tiling, is_pooled)[0]


def _forward(
    inputs: Array, kernel: Array, bias: Array, tiling: _Tiling, is_pooled: bool
) -> tuple[Array, tuple[Array, ...]]:
    weights = _kernel_transform(kernel, tiling)
    height, width = (
        length // (2 if is_pooled else 1) for length in tiling.output_shape
    )

    def one(chunk: Array) -> list[Array]:
        outputs = _convolved(chunk, weights, tiling)
        results: tuple[Array, ...] = (outputs + bias[None, None, None, :],)
        if is_pooled:
            m, _, tiles, features = outputs.shape
            # m is even, so every pooling window lies within one tile.
            windows = outputs.reshape(m // 2, 2, m // 2, 2, tiles, features)
            places = [windows[:, place // 2, :, place % 2] for place in range(4)]
            results = relu_of_largest(places, bias)
        return [_from_places(part, tiling, height, width) for part in results]

    outputs, *where = _forward_in_chunks(one, inputs, weights, tiling)
    return outputs, (inputs, weights, *where)


def _backward(
    tiling: _Tiling, is_pooled: bool, saved: tuple[Array, ...], gradient: Array
) -> tuple[Array, Array, Array]:
    inputs, weights, *where = saved

    def one(
        chunk: Array, gradient: Array, *places: Array
    ) -> tuple[Array, Array, Array]:
        if is_pooled:
            gradient = jnp.where(places[0] < 4, gradient, jnp.zeros((), gradient.dtype))
            outputs = _unpooled(gradient, places[0], tiling)
        else:
            outputs = _by_place(gradient, tiling.outputs, tiling)
        tiles = _tile_outputs_transposed(outputs, tiling)
        return *_pull_back(tiles, chunk, weights, tiling), jnp.sum(
            gradient, axis=(0, 1, 2)
        )

    return _backward_in_chunks(one, (inputs, gradient, *where), weights, tiling)


def _unpooled(gradient: Array, places: Array, tiling: _Tiling) -> Array:
    """Return the gradient of the outputs by place: each window's at its maximum."""
    windows, zero = tiling.outputs // 2, jnp.zeros((), gradient.dtype)
    placed, chosen = (
        _by_place(values, windows, tiling) for values in (gradient, places)
    )
    spread = [
        jnp.stack(
            [jnp.where(chosen == 2 * i + j, placed, zero) for j in range(2)], axis=2
        )
        for i in range(2)
    ]
    outputs = jnp.stack(spread, axis=1)  # [windows, 2, windows, 2, tiles, features]
    return outputs.reshape(tiling.outputs, tiling.outputs, *outputs.shape[4:])


_block.defvjp(_forward, _backward)
