"""Elimination of many matrices at once, in blocks of rows: what XLA runs.

A block of rows is brought to reduced form by itself, then taken off all rows below it
by one product of matrices: exact in float32, because every sum stays below 2**24. The
batch is an axis of every operation; it is cut into chunks only where memory asks for
it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float32, Int32, Shaped, UInt32

from mrsa_jax._core.batches import at_once
from mrsa_jax._core.prime import (
    Field,
    inverse,
    inverses,
    multiply,
    reduce_wide,
    residues,
    subtract,
)

_BLOCK = 8  # rows
# The largest prime p with _BLOCK * h * h + h < 2**24 for residues up to h = p / 2 + 3.
SMALL_PRIME = 2_887
# The matrix is cut down so many times on its way, so that finished rows cost little.
_STAGES = 2


@functools.partial(jax.jit, static_argnames=("steps",))
def independent_rows(
    matrices: Shaped[Array, "batch rows columns"],
    of: Field | None,
    steps: int,
    count: Int32[Array, ""] | None = None,
) -> Bool[Array, "batch rows"]:
    """Flag rows that are no combinations, modulo a prime, of those before them.

    Args:
        matrices: Bools or integers of any kind.
        of: The field of a 31-bit prime, or None: modulo `SMALL_PRIME`, at a tenth of
            the cost.
        steps: Rows after the first `steps` are compared with these only (static).
        count: Matrices from here on are padding and may be skipped; None: none are.
    """
    rows, columns = matrices.shape[1:]
    run = functools.partial(_of_chunk, of=of, steps=steps)
    return in_chunks(run, matrices, 4 * rows * columns, count)


def in_chunks(
    run: Callable[[Array], Array],
    matrices: Array,
    item_bytes: int,
    count: Array | None,
) -> Array:
    """Return `run(matrices)`, so many matrices at once as the device takes; traceable.

    Args:
        run: From matrices `[chunk, rows, columns]` to an array `[chunk, ...]`.
        matrices: `[batch, rows, columns]`.
        item_bytes: What a matrix has in flight.
        count: Results from here on are not needed; None: all are.
    """
    batch = matrices.shape[0]
    chunk = 1 << at_once("elimination", item_bytes).bit_length() - 1
    if chunk >= batch:
        return run(matrices)
    chunks = -(-batch // chunk)
    padded = jnp.pad(matrices, ((0, chunks * chunk - batch), (0, 0), (0, 0)))
    shape = jax.eval_shape(run, padded[:chunk])

    def body(place: Array, results: Array) -> Array:
        part = run(lax.dynamic_slice_in_dim(padded, place * chunk, chunk))
        return lax.dynamic_update_slice_in_dim(
            results,
            part,
            place * chunk,
            0,
        )

    # a whole chunk of padding is skipped
    used = jnp.int32(batch) if count is None else count
    results = jnp.zeros_like(padded, shape.dtype, (chunks * chunk, *shape.shape[1:]))
    number = (used + (chunk - 1)) // chunk
    return lax.fori_loop(jnp.int32(0), number, body, results)[:batch]


def _of_chunk(
    matrices: Array,
    *,
    of: Field | None,
    steps: int,
) -> Array:
    rules = _SMALL_RULES if of is None else _wide_rules(of)
    work = rules.enter(matrices)
    block = min(_BLOCK, steps)
    blocks = -(-steps // block)
    empty = jnp.zeros_like(work[:, : blocks * block - steps])
    work = jnp.concatenate([work[:, :steps], empty, work[:, steps:]], axis=1)
    body = functools.partial(_take_off_block, rules=rules, size=block)
    stage = -(-blocks // _STAGES)
    flags = []
    for begin in range(0, blocks, stage):
        number = min(stage, blocks - begin)
        spent = number * block
        raises = jnp.zeros_like(work[:, :spent, 0], jnp.bool_)
        work, raises = lax.fori_loop(0, number, body, (work, raises))
        flags.append(raises)
        work = work[:, spent:]
    raised = jnp.concatenate(flags, axis=1)[:, :steps]
    return jnp.concatenate([raised, jnp.any(work, axis=2)], axis=1)


class _Rules(NamedTuple):
    """Arithmetic modulo a prime, on residues of one kind.

    Attributes:
        enter: Integers to residues.
        cross: rows [batch, r, c], row [batch, c], factors [batch, r], pivot [batch]:
            pivot * rows - factors * row.
        divide: factors [batch, m, r] / pivots [batch, r], 0 where a pivot is 0.
        less_product: rest [batch, m, c] - factors [batch, m, r] @ rows [batch, r, c].
    """

    enter: Callable[[Array], Array]
    cross: Callable[[Array, Array, Array, Array], Array]
    divide: Callable[[Array, Array], Array]
    less_product: Callable[[Array, Array, Array], Array]


def _take_off_block(
    place: Array,
    carry: tuple[Array, Array],
    *,
    rules: _Rules,
    size: int,
) -> tuple[Array, Array]:
    """Reduce a block of rows and clear its pivots' columns from all rows.

    Those above are spent.
    """
    work, raises = carry
    begin = place * size
    rows = lax.dynamic_slice_in_dim(work, begin, size, axis=1)
    columns = jnp.zeros_like(rows[:, :, 0], jnp.int32)
    body = functools.partial(_clear_column, rules=rules)
    rows, columns = lax.fori_loop(0, size, body, (rows, columns))
    pivots = jnp.take_along_axis(rows, columns[:, :, None], axis=2)[..., 0]
    # factors are divided, not rows: in one fused loop over columns that is done once a
    # row
    factors = jnp.take_along_axis(
        work,
        columns[:, None, :],
        axis=2,
        mode="clip",
    )
    factors = rules.divide(factors, pivots)
    work = rules.less_product(work, factors, rows)
    return work, lax.dynamic_update_slice_in_dim(
        raises,
        pivots != 0,
        begin,
        1,
    )


def _clear_column(
    index: Array,
    carry: tuple[Array, Array],
    *,
    rules: _Rules,
) -> tuple[Array, Array]:
    """Clear row `index`'s first non-zero column from the other rows of its block."""
    rows, columns = carry
    row = lax.dynamic_index_in_dim(rows, index, 1, keepdims=False)
    column = jnp.argmax(row != 0, axis=1).astype(jnp.int32)
    entries = jnp.take_along_axis(rows, column[:, None, None], axis=2)[..., 0]
    pivot = lax.dynamic_index_in_dim(entries, index, 1, keepdims=False)
    # the pivot's own row stays as it is
    factors = jnp.where((jnp.arange(rows.shape[1]) == index)[None, :], 0, entries)
    # an empty row changes nothing
    rows = rules.cross(
        rows,
        row,
        factors,
        jnp.where(pivot == 0, 1, pivot),
    )
    return rows, lax.dynamic_update_slice_in_dim(
        columns,
        column[:, None],
        index,
        1,
    )


def _enter_small(matrices: Array) -> Float32[Array, "*_"]:
    if matrices.dtype == jnp.bool_:
        return matrices.astype(jnp.float32)
    return _centre(residues(matrices, SMALL_PRIME).astype(jnp.float32))


def _cross_small(
    rows: Array,
    row: Array,
    factors: Array,
    pivot: Array,
) -> Array:
    return _centre(rows * pivot[:, None, None] - factors[:, :, None] * row[:, None, :])


def _divide_small(factors: Array, pivots: Array) -> Array:
    place = jnp.where(pivots < 0, pivots + SMALL_PRIME, pivots).astype(jnp.int32)
    units = jnp.asarray(inverses(SMALL_PRIME))[place].astype(jnp.float32)
    return _centre(factors * units[:, None, :])


def _less_product_small(
    rest: Array,
    factors: Array,
    rows: Array,
) -> Array:
    # in float32, never in TF32: sums are integers below 2**24
    product = jnp.matmul(factors, rows, precision=lax.Precision.HIGHEST)
    return _centre(rest - product)


def _centre(values: Array) -> Array:
    """Reduce integers below 2**24 to residues of absolute value at most p / 2 + 3.

    The quotient's rounding errs by less than 2**-10, so it is exact for multiples of p
    and otherwise off by one only next to a tie.
    """
    quotient = jnp.round(values * (1 / SMALL_PRIME))
    return values - quotient * SMALL_PRIME


_SMALL_RULES = _Rules(_enter_small, _cross_small, _divide_small, _less_product_small)


def _wide_rules(of: Field) -> _Rules:
    """Sum up to eight products of two words before one reduction.

    In `cross` that factor scales a row, which changes no rank; `divide` leaves it on
    the factors of `less_product`.
    """
    word = reduce_wide(jnp.uint32(1), jnp.uint32(0), of)
    square = multiply(word, word, of)

    def cross(
        rows: Array,
        row: Array,
        factors: Array,
        pivot: Array,
    ) -> Array:
        less = of.prime - factors
        pairs = [(rows, pivot[:, None, None]), (row[:, None, :], less[:, :, None])]
        return _sum_of_products(pairs, of)

    def divide(factors: Array, pivots: Array) -> Array:
        units = multiply(inverse(pivots, of), square, of)
        return _sum_of_products([(factors, units[:, None, :])], of)

    def less_product(
        rest: Array,
        factors: Array,
        rows: Array,
    ) -> Array:
        block = range(rows.shape[1])
        pairs = [(factors[:, :, k, None], rows[:, None, k]) for k in block]
        return subtract(rest, _sum_of_products(pairs, of), of)

    return _Rules(
        lambda matrices: residues(matrices, of.prime),
        cross,
        divide,
        less_product,
    )


def _sum_of_products(
    pairs: list[tuple[Array, Array]], of: Field
) -> UInt32[Array, "*_"]:
    """Return sum(left * right) / 2**32 mod p for residues, of at most eight pairs.

    By Montgomery's reduction.

    The primes are below 2**32 / 3.5, so eight products and a word times p stay below
    2**64, and what is left after the division below 3.3 p.
    """
    unit = of.prime  # its own inverse modulo 8; each step doubles the bits
    for _ in range(4):
        unit = unit * (2 - of.prime * unit)
    with jax.enable_x64(True):  # no array of such words is ever made
        products = (a.astype(jnp.uint64) * b.astype(jnp.uint64) for a, b in pairs)
        total = functools.reduce(operator.add, products)
        low = 0 - total.astype(jnp.uint32) * unit
        total = total + low.astype(jnp.uint64) * of.prime.astype(jnp.uint64)
        rest = (total >> jnp.uint64(32)).astype(jnp.uint32)
    rest = jnp.minimum(rest, rest - (of.prime << 1))
    return jnp.minimum(rest, rest - of.prime)
