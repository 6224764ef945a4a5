"""Rank and row-space membership of integer matrices, by elimination modulo a 31-bit prime.

Floats may filter, never decide: ranks come from exact arithmetic mod p. A rank mod p never
exceeds the rank over the rationals, and equals it unless p divides every minor of that size.
Where that leaves an answer open, primes are drawn at random for the call: whatever the matrix was
made for, they err with a chance below 2**-30.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from mrsa_jax._device import chosen_form
from mrsa_jax._errors import require
from mrsa_jax.modular._cores import compiled_prefix_ranks, compiled_ranks
from mrsa_jax.modular._filter import rank_lower_bounds, rank_upper_bounds, round_up
from mrsa_jax.modular._inputs import as_integers, residues
from mrsa_jax.modular._prime import (
    PRIMES,
    Field,
    companion,
    draw_primes,
    enough_primes,
    field,
    inverse,
    multiply,
    scale,
    subtract,
    sum_residues,
)

__all__ = ["PRIMES", "is_in_row_space", "kernel_step", "rank", "rank_trajectory"]

# The matrix is cut down this many times on its way, so that finished rows cost nothing.
_STAGES = 4
_SMALLEST_STAGE = 20


def rank(matrix: Any) -> Int32[Array, "*batch"]:
    """Return the rank over the rationals of integer matrices.

    Use it wherever a rank decides what a server can solve for: floating-point ranks err near
    full rank. The rank modulo any prime is a proven lower bound, so a rank that meets an upper
    bound (rows, columns, distinct ones) is proven, and a small prime suffices for it. What is left
    open goes to 31-bit primes drawn for the call: then the largest of the ranks is proven from
    below and too small with error chance below 2**-30 a matrix, whatever it was made for
    (`modular._prime.error_bits`).

    Args:
        matrix: Bools or integers of any sign and size, `[..., rows, columns]`.

    Returns:
        int32, one for each matrix.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or the matrix has fewer than two
            axes or an empty one.

    Edge cases: under `jit` nothing is known of the values, and two primes that never change
    decide: a matrix made of their products deceives them. On the CPU compiled loops do the
    elimination if numba is there, on accelerators XLA.

    Examples:
        >>> int(rank([[1, 1, 0], [0, 1, 1], [1, 0, 1]]))  # an odd cycle; its rank mod 2 is 2
        3

    Cost: rows**2 * columns / 2 multiplications a matrix and prime (rows <= columns).
    """
    array = as_integers(matrix, "matrix")
    if array.shape[-2] > array.shape[-1]:
        array = array.swapaxes(-1, -2)
    if isinstance(array, jax.core.Tracer):
        both = [_prefix_ranks(array, prime)[:, -1] for prime in PRIMES]
        return jnp.maximum(*both).reshape(array.shape[:-2])
    host = np.asarray(array).reshape((-1, *array.shape[-2:]))
    is_compiled = chosen_form(("loops", "xla")) == "loops"
    ranks = compiled_ranks(host) if is_compiled else rank_lower_bounds(host)
    bounds = np.full(len(host), host.shape[1], np.int32)
    left = np.flatnonzero(ranks < bounds)
    bounds[left] = rank_upper_bounds(host[left])
    for prime in _drawn_for(host) if (ranks < bounds).any() else ():
        left = np.flatnonzero(ranks < bounds)
        if left.size and is_compiled:
            ranks[left] = np.maximum(ranks[left], compiled_ranks(host[left], prime))
        elif left.size:
            again = _prefix_ranks(round_up(host[left]), prime, left.size)[: left.size, -1]
            ranks[left] = np.maximum(ranks[left], again)
    return jnp.asarray(ranks.reshape(array.shape[:-2]), jnp.int32)


def rank_trajectory(matrix: Any) -> Int32[Array, "... rows"]:
    """Return the rank of the first j + 1 rows, for every j.

    Args:
        matrix: Bools or integers, `[..., rows, columns]`, e.g. a participation history.

    Returns:
        int32 `[..., rows]`; the last entry is `rank(matrix)`. The largest of the ranks modulo drawn
        primes: never too large, too small with error chance below 2**-30 a matrix.

    Raises:
        ConfigurationError: As `rank`.

    Examples:
        >>> rank_trajectory([[1, 0], [1, 0], [0, 0], [1, 1]]).tolist()
        [1, 1, 1, 2]
    """
    array = as_integers(matrix, "matrix")
    primes = _drawn_for(array)
    if chosen_form(("loops", "xla"), array) == "loops":
        host = np.asarray(array).reshape((-1, *array.shape[-2:]))
        ranks = np.max([compiled_prefix_ranks(host, prime) for prime in primes], axis=0)
        return jnp.asarray(ranks.reshape(array.shape[:-1]), jnp.int32)
    every = jnp.stack([_prefix_ranks(array, prime) for prime in primes])
    return jnp.max(every, axis=0).reshape(array.shape[:-1])


def is_in_row_space(matrix: Any, vectors: Any) -> Bool[Array, "*batch"]:
    """Return which vectors are rational combinations of a matrix's rows.

    Args:
        matrix: Bools or integers, `[..., rows, columns]`.
        vectors: Bools or integers, `[..., count, columns]` with the same leading axes.

    Returns:
        bool `[..., count]`: true where all drawn primes say so (those whose rank is smaller than
        another's are wrong for certain and not asked). Wrong with error chance below 2**-30 a
        vector.

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
    known = not any(isinstance(part, jax.core.Tracer) for part in (array, targets))
    both = [np.asarray(part) for part in (array, targets)] if known else []
    bits = sum(minor_bits(part) for part in both)
    for prime in draw_primes(enough_primes(bits)) if known else PRIMES:
        rows = [_stack(residues(part, prime)) for part in (array, targets)]
        stacked = jnp.concatenate(rows, axis=1)
        pivots, left = _eliminate(stacked, field(prime), array.shape[-2])
        ranks.append(jnp.sum(pivots, axis=1, dtype=jnp.int32)[:, None])
        members.append(jnp.all(left == jnp.uint32(0), axis=-1))
    return decide(jnp.stack(ranks), jnp.stack(members)).reshape(targets.shape[:-1])


def decide(ranks: Array, verdicts: Array) -> Array:
    """Combine primes' verdicts "is a member", `[primes, ...]`: all of those of the largest rank."""
    return jnp.all(verdicts | (ranks < jnp.max(ranks, axis=0, keepdims=True)), axis=0)


def minor_bits(matrices: np.ndarray) -> float:
    """Return log2 of a bound on every minor of integer matrices `[..., rows, columns]` (Hadamard).

    A minor is at most the product of its rows' lengths.
    """
    rank = min(matrices.shape[-2:])
    if matrices.dtype == np.bool_:
        squares = float(matrices.sum(axis=-1, dtype=np.int64).max())
    elif matrices.dtype == object:
        largest = max(abs(int(value)).bit_length() for value in matrices.flat)
        return rank * (largest + 0.5 * math.log2(matrices.shape[-1]))
    else:
        squares = float((matrices.astype(np.float64) ** 2).sum(axis=-1).max())
    return rank * 0.5 * math.log2(max(2.0, squares)) * (1 + 1e-9)


def _drawn_for(array: np.ndarray | Array) -> tuple[int, ...]:
    """Return primes that decide about these matrices."""
    if isinstance(array, jax.core.Tracer):
        return PRIMES
    return draw_primes(enough_primes(minor_bits(np.asarray(array)), cases=2))


def kernel_step(
    kernel: UInt32[Array, "dim dim"], row: UInt32[Array, " dim"], of: Field, *, binary: bool = False
) -> tuple[UInt32[Array, "dim dim"], Bool[Array, ""]]:
    """Shrink a kernel basis by one more row of the matrix.

    The rows of `kernel` (zero rows apart) are a basis of {v : P v = 0} mod p, the identity
    before the first row of P. A basis vector q is an equation that the row space V obeys; unit
    vector e_i lies in V exactly if column i of the basis is zero.

    Args:
        kernel: Basis before, in residues, spent rows being zero; at most 2**16 columns.
        row: The new row of P in residues.
        of: The field (`modular._prime.field`).
        binary: Whether `row` is known to hold only 0 and 1, which halves the work (static).

    Returns:
        Basis after, and whether the rank has grown by one.

    Cost: two products (one if `binary`) for each entry of the basis; its shapes are fixed, so it
    can be the body of a `lax.scan`.

    Examples:
        >>> from mrsa_jax.modular._prime import PRIMES, field
        >>> row = jnp.asarray([0, 1], jnp.uint32)
        >>> kernel, grew = kernel_step(jnp.eye(2, dtype=jnp.uint32), row, field(PRIMES[0]))
        >>> kernel.tolist(), bool(grew)  # e_1 is known, e_0 is not
        ([[1, 0], [0, 0]], True)
    """
    if binary:
        products = jnp.where(row[None, :] != jnp.uint32(0), kernel, jnp.uint32(0))
    else:
        products = scale(kernel, row[None, :], companion(row, of)[None, :], of)
    values = sum_residues(products, of)
    pivot = jnp.argmax(values != jnp.uint32(0))
    leading = jnp.broadcast_to(inverse(values[pivot][None], of), values.shape)
    factors = multiply(values, leading, of)
    step = scale(kernel[pivot][None, :], factors[:, None], companion(factors, of)[:, None], of)
    return subtract(kernel, step, of), values[pivot] != jnp.uint32(0)


def _stack(array: Array) -> Array:
    return array.reshape((-1, *array.shape[-2:]))


def _prefix_ranks(array: np.ndarray | Array, prime: int, count: int | None = None) -> Array:
    matrices = _stack(residues(array, prime))
    number = None if count is None else jnp.int32(count)
    pivots, _ = _eliminate(matrices, field(prime), matrices.shape[1], number)
    return jnp.cumsum(pivots, axis=1, dtype=jnp.int32)


@functools.partial(jax.jit, static_argnames=("steps",))
def _eliminate(
    matrices: UInt32[Array, "batch rows columns"],
    of: Field,
    steps: int,
    count: Int32[Array, ""] | None = None,
) -> tuple[Bool[Array, "batch steps"], UInt32[Array, "batch left columns"]]:
    """Eliminate with the first `steps` rows as pivots; return pivot flags and the other rows.

    Matrices come one after the other, each staying in cache; those from `count` on (None: none)
    are padding and skipped.
    """
    batch, rows, columns = matrices.shape
    start = (
        jnp.zeros((batch, steps), jnp.bool_),
        jnp.zeros((batch, rows - steps, columns), jnp.uint32),
    )

    def body(place: Array, done: tuple[Array, Array]) -> tuple[Array, Array]:
        result = _eliminate_one(matrices[place], of, steps)
        return done[0].at[place].set(result[0]), done[1].at[place].set(result[1])

    end = jnp.int32(batch) if count is None else count
    return lax.fori_loop(jnp.int32(0), end, body, start)


def _eliminate_one(matrix: Array, of: Field, steps: int) -> tuple[Array, Array]:
    stage = max(_SMALLEST_STAGE, -(-steps // _STAGES))
    body = functools.partial(_eliminate_row, of=of)
    flags = []
    for begin in range(0, steps, stage):
        count = min(stage, steps - begin)
        matrix, found = lax.fori_loop(0, count, body, (matrix, jnp.zeros(count, jnp.bool_)))
        flags.append(found)
        matrix = matrix[count:]
    return jnp.concatenate(flags), matrix


def _eliminate_row(index: Array, carry: tuple[Array, Array], *, of: Field) -> tuple[Array, Array]:
    """Clear row `index`'s first non-zero column from all rows (those above are spent)."""
    matrix, found = carry
    row = lax.dynamic_index_in_dim(matrix, index, 0, keepdims=False)
    column = jnp.argmax(row != jnp.uint32(0))
    pivot = row[column]
    entries = lax.dynamic_index_in_dim(matrix, column, 1, keepdims=False)
    factors = multiply(entries, jnp.broadcast_to(inverse(pivot[None], of), entries.shape), of)
    step = scale(row[None, :], factors[:, None], companion(factors, of)[:, None], of)
    return subtract(matrix, step, of), found.at[index].set(pivot != jnp.uint32(0))
