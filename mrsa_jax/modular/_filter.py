"""Ranks modulo a 13-bit prime in float32: a lower bound at a fifth of the cost.

Every product and sum below is an integer of at most 24 bits, so float32 is exact. A rank modulo
any prime is a proven lower bound of the rank over the rationals; it decides wherever it meets an
upper bound (the number of distinct non-zero rows or columns), never otherwise.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Int32

# Largest prime p with h * h + h < 2**24 for residues of absolute value up to h = p // 2 + 2.
SMALL_PRIME = 8_179
# Rows are cut off this many times on the way, so that finished ones cost nothing.
_STAGES = 6


def rank_lower_bounds(matrices: np.ndarray) -> np.ndarray:
    """Return the rank modulo `SMALL_PRIME` of integer matrices `[batch, rows, columns]`."""
    reduced = matrices
    if matrices.dtype != np.bool_:
        half = SMALL_PRIME // 2
        wide = matrices.astype(np.int64) if matrices.dtype.itemsize < 8 else matrices
        reduced = (wide % SMALL_PRIME).astype(np.int64)
        reduced = np.where(reduced > half, reduced - SMALL_PRIME, reduced)
    padded = jnp.asarray(round_up(reduced.astype(np.float32)))
    found = _ranks(padded, jnp.int32(len(matrices)))
    return np.array(found[: len(matrices)])


def round_up(matrices: np.ndarray) -> np.ndarray:
    """Return a batch padded to a power of two, so that few sizes are ever compiled."""
    size = 1 << (len(matrices) - 1).bit_length()
    return np.resize(matrices, (size, *matrices.shape[1:]))


def rank_upper_bounds(matrices: np.ndarray) -> list[int]:
    """Return of each matrix the smaller one of its numbers of distinct non-zero rows, columns."""
    if matrices.dtype == object:  # equal integers need not be one object: number the values
        values, codes = np.unique(matrices, return_inverse=True)
        zero = int(np.searchsorted(values, 0))  # 0's own number, if it occurs
        matrices = codes.reshape(matrices.shape) - zero
    counts = [_distinct_lines(matrices), _distinct_lines(matrices.swapaxes(-1, -2))]
    return [min(both) for both in zip(*counts, strict=True)]


def _distinct_lines(matrices: np.ndarray) -> list[int]:
    if matrices.dtype == np.bool_:
        matrices = np.packbits(matrices, axis=-1)
    lines = np.ascontiguousarray(matrices)
    width = lines.shape[-1] * lines.dtype.itemsize
    whole = lines.view(np.dtype((np.void, width)))[..., 0].tolist()
    return [len(set(rows) - {bytes(width)}) for rows in whole]


@jax.jit
def _ranks(
    matrices: Float32[Array, "batch rows columns"], count: Int32[Array, ""]
) -> Int32[Array, " batch"]:
    """Rank the first `count` matrices, one after the other, each staying in cache."""
    start = jnp.zeros(matrices.shape[0], jnp.int32)
    return lax.fori_loop(
        jnp.int32(0), count, lambda place, done: done.at[place].set(_rank(matrices[place])), start
    )


def _rank(matrix: Array) -> Array:
    rows = matrix.shape[0]
    stage = max(20, -(-rows // _STAGES))
    rank = jnp.int32(0)
    inverses = jnp.asarray(_inverses())
    body = functools.partial(_eliminate_row, inverses=inverses)
    for begin in range(0, rows, stage):
        count = min(stage, rows - begin)
        matrix, rank = lax.fori_loop(0, count, body, (matrix, rank))
        matrix = matrix[count:]
    return rank


def _eliminate_row(
    index: Array, carry: tuple[Array, Array], *, inverses: Array
) -> tuple[Array, Array]:
    matrix, rank = carry
    row = lax.dynamic_index_in_dim(matrix, index, 0, keepdims=False)
    column = jnp.argmax(row != jnp.float32(0))
    pivot = row[column]
    place = jnp.where(pivot < jnp.float32(0), pivot + jnp.float32(SMALL_PRIME), pivot)
    factors = _centre(matrix[:, column] * inverses[place.astype(jnp.int32)])
    matrix = _centre(matrix - factors[:, None] * row[None, :])
    return matrix, rank + (pivot != jnp.float32(0)).astype(jnp.int32)


def _centre(values: Array) -> Array:
    """Reduce integers below 2**24 to residues of absolute value at most p // 2 + 2.

    The quotient's rounding errs by less than 2**-11, so it is exact for multiples of p and
    otherwise off by one only next to a tie.
    """
    quotient = jnp.round(values * jnp.float32(1 / SMALL_PRIME))
    return values - quotient * jnp.float32(SMALL_PRIME)


@functools.cache
def _inverses() -> np.ndarray:
    values = [pow(a, SMALL_PRIME - 2, SMALL_PRIME) for a in range(SMALL_PRIME)]
    return np.asarray([v - SMALL_PRIME * (v > SMALL_PRIME // 2) for v in values], np.float32)
