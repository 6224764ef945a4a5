"""Rank and row-space membership of integer matrices, by elimination modulo a 31-bit prime.

Floats may filter, never decide: ranks come from exact arithmetic mod p, confirmed by a second
prime wherever the first does not already prove the answer. p never exceeds what the rank over
the rationals allows: rank mod p <= rank over Q, with equality unless p divides every minor of
that size.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from mrsa_jax._errors import require
from mrsa_jax.modular._inputs import as_integers, residues
from mrsa_jax.modular._prime import PRIMES, companion, inverse, multiply, scale, subtract
from mrsa_jax.modular._ring import divide_step, multiply_wide

__all__ = ["PRIMES", "is_in_row_space", "kernel_step", "rank", "rank_trajectory"]

# Matrices eliminated side by side: eight of 120 x 120 words stay in a second-level cache.
_SIDE_BY_SIDE = 8
# The matrix is cut down this many times on its way, so that finished rows cost nothing.
_STAGES = 4


def rank(matrix: Any) -> Int32[Array, "*batch"]:
    """Return the rank over the rationals of integer matrices.

    Use it wherever a rank decides what a server can solve for: floating-point ranks err near
    full rank. A rank of min(rows, columns) mod one prime is a proof (rank mod p never exceeds
    the true rank); anything less is the larger of two ranks, each mod a 31-bit prime, which is
    a proven lower bound and wrong only if both primes divide all larger minors. For matrices
    not made with those primes in mind the chance of that is about 1e-18.

    Args:
        matrix: Bools or integers of any sign and size, `[..., rows, columns]`.

    Returns:
        int32, one for each matrix.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or the matrix has fewer than two
            axes or an empty one.

    Examples:
        >>> int(rank([[1, 1, 0], [0, 1, 1], [1, 0, 1]]))  # an odd cycle; its rank mod 2 is 2
        3

    Cost: rows**2 * columns / 2 multiplications a matrix and prime (rows <= columns).
    """
    array = as_integers(matrix, "matrix")
    if array.shape[-2] > array.shape[-1]:
        array = array.swapaxes(-1, -2)
    rows = array.shape[-2]
    first = _prefix_ranks(_stack(residues(array, PRIMES[0])), PRIMES[0])[:, -1]
    proven = first == jnp.int32(rows)
    if isinstance(proven, jax.core.Tracer) or not bool(proven.all()):
        second = _prefix_ranks(_stack(residues(array, PRIMES[1])), PRIMES[1])[:, -1]
        first = jnp.maximum(first, second)
    return first.reshape(array.shape[:-2])


def rank_trajectory(matrix: Any) -> Int32[Array, "... rows"]:
    """Return the rank of the first j + 1 rows, for every j.

    Args:
        matrix: Bools or integers, `[..., rows, columns]`, e.g. a participation history.

    Returns:
        int32 `[..., rows]`; the last entry is `rank(matrix)`. The larger of the ranks modulo
        two primes (see `rank`).

    Raises:
        ConfigurationError: As `rank`.

    Examples:
        >>> rank_trajectory([[1, 0], [1, 0], [0, 0], [1, 1]]).tolist()
        [1, 1, 1, 2]
    """
    array = as_integers(matrix, "matrix")
    both = [_prefix_ranks(_stack(residues(array, prime)), prime) for prime in PRIMES]
    return jnp.maximum(*both).reshape(array.shape[:-1])


def is_in_row_space(matrix: Any, vectors: Any) -> Bool[Array, "*batch"]:
    """Return which vectors are rational combinations of a matrix's rows.

    Args:
        matrix: Bools or integers, `[..., rows, columns]`.
        vectors: Bools or integers, `[..., count, columns]` with the same leading axes.

    Returns:
        bool `[..., count]`: true where both primes say so (if the two ranks differ, the prime
        with the larger rank decides alone, the other one being wrong for certain).

    Raises:
        ConfigurationError: As `rank`, or if the shapes do not match.

    Examples:
        >>> is_in_row_space([[1, 1, 0], [0, 1, 1]], [[1, 0, -1], [1, 0, 0]]).tolist()
        [True, False]
    """
    array, targets = as_integers(matrix, "matrix"), as_integers(vectors, "vectors")
    agrees = array.shape[:-2] == targets.shape[:-2] and array.shape[-1] == targets.shape[-1]
    require(agrees, "vectors", "must match `matrix` in all axes but the last but one",
            targets.shape, array.shape)  # fmt: skip
    ranks, members = [], []
    for prime in PRIMES:
        pivots, left = _eliminate(
            jnp.concatenate(
                [_stack(residues(array, prime)), _stack(residues(targets, prime))], axis=1
            ),
            array.shape[-2],
            prime,
        )
        ranks.append(jnp.sum(pivots, axis=1, dtype=jnp.int32)[:, None])
        members.append(jnp.all(left == jnp.uint32(0), axis=-1))
    return decide(*ranks, *members).reshape(targets.shape[:-1])


def decide(first_rank: Array, second_rank: Array, first: Array, second: Array) -> Array:
    """Combine two primes' verdicts "is a member": both, or the one whose rank is larger."""
    first_rank, second_rank, first, second = jnp.broadcast_arrays(
        *jnp.atleast_1d(first_rank, second_rank, first, second)
    )
    return jnp.where(
        first_rank == second_rank,
        first & second,
        jnp.where(first_rank > second_rank, first, second),
    )


def kernel_step(
    kernel: UInt32[Array, "dim dim"],
    row: UInt32[Array, " dim"],
    row_companion: UInt32[Array, " dim"],
    prime: int,
) -> tuple[UInt32[Array, "dim dim"], Bool[Array, ""]]:
    """Shrink a kernel basis by one more row of the matrix.

    The rows of `kernel` (zero rows apart) are a basis of {v : P v = 0} mod p, the identity
    before the first row of P. A basis vector q is an equation that the row space V obeys; unit
    vector e_i lies in V exactly if column i of the basis is zero.

    Args:
        kernel: Basis before, in residues, spent rows being zero.
        row: The new row of P in residues.
        row_companion: `companion(row, prime)`.
        prime: One of `PRIMES` (static).

    Returns:
        Basis after, and whether the rank has grown by one.

    Cost: two products for each entry of the basis; fixed shapes, made for `lax.scan`.
    """
    products = scale(kernel, row[None, :], row_companion[None, :], prime)
    values = _sum_residues(products, prime)
    pivot = jnp.argmax(values != jnp.uint32(0))
    factors = multiply(
        values, jnp.broadcast_to(inverse(values[pivot][None], prime), values.shape), prime
    )
    step = scale(
        kernel[pivot][None, :], factors[:, None], companion(factors, prime)[:, None], prime
    )
    return subtract(kernel, step, prime), values[pivot] != jnp.uint32(0)


def _sum_residues(values: Array, prime: int) -> Array:
    """Sum residues over the last axis (up to 2**16 of them) modulo a prime."""
    require(values.shape[-1] <= 2**16, "matrix", "must have at most 65536 columns", values.shape)
    high = jnp.sum(values >> jnp.uint32(16), axis=-1, dtype=jnp.uint32)
    low = jnp.sum(values & jnp.uint32(0xFFFF), axis=-1, dtype=jnp.uint32)
    top, bottom = multiply_wide(high, jnp.full_like(high, 1 << 16))
    bottom = bottom + low
    top = top + (bottom < low).astype(jnp.uint32)
    one = jnp.uint32(1)
    top = (top << one) | (bottom >> jnp.uint32(31))
    return divide_step(top, bottom << one, prime << 1)[1] >> one


def _stack(array: Array) -> Array:
    return array.reshape((-1, *array.shape[-2:]))


def _prefix_ranks(matrices: Array, prime: int) -> Array:
    pivots, _ = _eliminate(matrices, matrices.shape[1], prime)
    return jnp.cumsum(pivots, axis=1, dtype=jnp.int32)


@functools.partial(jax.jit, static_argnames=("steps", "prime"))
def _eliminate(
    matrices: UInt32[Array, "batch rows columns"], steps: int, prime: int
) -> tuple[Bool[Array, "batch steps"], UInt32[Array, "batch left columns"]]:
    """Eliminate with the first `steps` rows as pivots; return pivot flags and the other rows."""
    batch, rows, columns = matrices.shape
    width = min(batch, _SIDE_BY_SIDE)
    groups = -(-batch // width)
    padding = jnp.zeros((groups * width - batch, rows, columns), jnp.uint32)
    grouped = jnp.concatenate([matrices, padding]).reshape(groups, width, rows, columns)
    pivots, left = lax.map(lambda group: _eliminate_group(group, steps, prime), grouped)
    return (
        pivots.reshape(-1, steps)[:batch],
        left.reshape(groups * width, rows - steps, columns)[:batch],
    )


def _eliminate_group(group: Array, steps: int, prime: int) -> tuple[Array, Array]:
    stage = max(8, -(-steps // _STAGES))
    flags = []
    for begin in range(0, steps, stage):
        count = min(stage, steps - begin)
        found = jnp.zeros((group.shape[0], count), jnp.bool_)
        group, found = lax.fori_loop(
            0, count, functools.partial(_eliminate_row, prime=prime), (group, found)
        )
        flags.append(found)
        group = group[:, count:]
    return jnp.concatenate(flags, axis=1), group


def _eliminate_row(index: Array, carry: tuple[Array, Array], *, prime: int) -> tuple[Array, Array]:
    """Clear row `index`'s first non-zero column from all rows (those above are spent)."""
    group, found = carry
    row = lax.dynamic_index_in_dim(group, index, 1, keepdims=False)
    column = jnp.argmax(row != jnp.uint32(0), axis=-1)
    pivot = jnp.take_along_axis(row, column[:, None], 1)
    entries = jnp.take_along_axis(group, column[:, None, None], 2)[:, :, 0]
    factors = multiply(entries, jnp.broadcast_to(inverse(pivot, prime), entries.shape), prime)
    step = scale(row[:, None, :], factors[:, :, None], companion(factors, prime)[:, :, None], prime)
    found = lax.dynamic_update_index_in_dim(found, pivot[:, 0] != jnp.uint32(0), index, 1)
    return subtract(group, step, prime), found
