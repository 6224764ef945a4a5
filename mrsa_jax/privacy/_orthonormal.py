"""Orthonormal rows by matrix products: what leverage is read from, for all rounds at once.

With Q the rows of a matrix made orthonormal one after another (Gram and Schmidt), the sum of the
squares of the first j rows' entries in column i is p_i^T G^-1 p_i of those rows, G their Gram
matrix: one factorisation serves every round and every client. It is done by Cholesky factors of
Gram matrices, three times over, because one alone squares the condition of the rows: the first is
shifted so that no rounding makes it indefinite, the others start from rows that are nearly
orthonormal (shifted CholeskyQR3: Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa 2020). Products
of matrices and few launches, where a loop over the rounds would take one each.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float64

PASSES = 3
# Of a row of length 1: what is nearer to the span of those before it is seen as in it.
_NOTHING = 1e-9


def orthonormal(rows: Float64[Array, "rows columns"]) -> Float64[Array, "rows columns"]:
    """Return independent rows made orthonormal one after another; rows of zeros stay."""
    rows = unit_rows(rows)
    for step in range(PASSES):
        gram = jnp.matmul(rows, rows.T, precision=lax.Precision.HIGHEST)
        shift = jnp.float64(0.0 if step else rounding_of(len(rows)))
        rows = jnp.matmul(factor(gram, shift), rows, precision=lax.Precision.HIGHEST)
    return rows


def orthonormal_by_rows(rows: Float64[Array, "rows columns"]) -> Float64[Array, "rows columns"]:
    """Return what `orthonormal` does where rows may depend on others: those become zeros.

    One row after another, each twice.
    """
    zero = jnp.float64(0)

    def one_row(units: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
        index, row = step
        rest = row - (units @ row) @ units
        rest = rest - (units @ rest) @ units
        length = jnp.sqrt(jnp.sum(rest * rest))
        is_new = length > jnp.float64(_NOTHING)
        unit = jnp.where(is_new, rest / jnp.where(is_new, length, jnp.float64(1)), zero)
        return units.at[index].set(unit), None

    rows = unit_rows(rows)
    index = jnp.arange(len(rows), dtype=jnp.int32)
    return lax.scan(one_row, jnp.zeros_like(rows), (index, rows))[0]


def unit_rows(rows: Float64[Array, "rows columns"]) -> Float64[Array, "rows columns"]:
    """Return rows of length 1; zero where a row is."""
    for size in (jnp.max, jnp.linalg.norm):  # the square of a large entry may be no number
        length = size(jnp.abs(rows), axis=-1, keepdims=True)
        rows = rows / jnp.where(length > 0, length, jnp.float64(1))
    return rows


def rounding_of(rows: int) -> float:
    """Return what rounding may take from the eigenvalues of so many rows' Gram matrix."""
    return 4e-16 * rows * rows


def factor(
    gram: Float64[Array, "rows rows"], shift: Float64[Array, ""]
) -> Float64[Array, "rows rows"]:
    """Return the inverse of a Gram matrix' lower Cholesky factor; 1 for rows of zeros.

    Args:
        gram: Of rows of length at most 1.
        shift: Is added to the diagonal.
    """
    empty = jnp.where(jnp.diagonal(gram) > 0, jnp.float64(0), jnp.float64(1))
    whole = gram + jnp.diag(empty + shift)
    return _lower_inverse(lax.linalg.cholesky(whole, symmetrize_input=False))


def _lower_inverse(lower: Float64[Array, "rows rows"]) -> Float64[Array, "rows rows"]:
    """Invert a lower triangular matrix by doubling the blocks on its diagonal.

    Products of ever larger blocks, log2 of the rows in number: a triangular solve takes a CPU
    fifteen times as long, and an accelerator as many steps as rows.
    """
    rows = lower.shape[-1]
    size = 1 << (rows - 1).bit_length()
    ones = (jnp.arange(size) >= rows).astype(lower.dtype)
    lower = jnp.pad(lower, ((0, size - rows),) * 2) + jnp.diag(ones)
    blocks = (jnp.float64(1) / jnp.diagonal(lower))[:, None, None]
    width = 1
    while width < size:
        pairs = size // (2 * width)
        at = jnp.arange(pairs)
        below = lower.reshape(pairs, 2, width, pairs, 2, width)[at, 1, :, at, 0, :]
        first, second = blocks[0::2], blocks[1::2]
        high = lax.Precision.HIGHEST
        corner = -jnp.matmul(jnp.matmul(second, below, precision=high), first, precision=high)
        upper = jnp.concatenate([first, jnp.zeros_like(first)], axis=2)
        blocks = jnp.concatenate([upper, jnp.concatenate([corner, second], axis=2)], axis=1)
        width *= 2
    return blocks[0, :rows, :rows]
