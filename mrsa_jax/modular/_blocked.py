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
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float32, Int32, Shaped, UInt32

from mrsa_jax._core.batches import at_once
from mrsa_jax._core.device import multiplies_wide
from mrsa_jax._core.prime import (
    Field,
    companion,
    inverse,
    multiply,
    reduce_wide,
    residues,
    scale,
    subtract,
)

_BLOCK = 8  # rows
# The largest prime p with _BLOCK * h * h + h < 2**24 for residues up to h = p / 2 + 3.
SMALL_PRIME = 2_887
# The matrix is cut down so many times on its way, so that finished rows cost little.
_STAGES = 2
_LIMB = 10  # bits: _BLOCK * 3 products of two limbs stay below 2**24


@functools.partial(jax.jit, static_argnames=("steps",))
def independent_rows(
    matrices: Shaped[Array, "batch rows columns"],
    of: Field | None,
    steps: int,
    count: Int32[Array, ""] | None = None,
) -> Bool[Array, "batch rows"]:
    """Return which rows are no combinations, modulo a prime, of those before them.

    Args:
        matrices: Bools or integers of any kind.
        of: The field of a 31-bit prime, or None: modulo `SMALL_PRIME`, at a tenth of
            the cost.
        steps: Rows after the first `steps` are compared with these only (static).
        count: Matrices from here on are padding and may be skipped; None: none are.
    """
    rows, columns = matrices.shape[1:]
    # limbs modulo a 31-bit prime have five sums an entry besides
    item_bytes = 4 * rows * columns * (1 if of is None or multiplies_wide() else 7)
    return in_chunks(
        functools.partial(_of_chunk, of=of, steps=steps), matrices, item_bytes, count
    )


def in_chunks(
    run: Callable[[Array], Array], matrices: Array, item_bytes: int, count: Array | None
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
    one = jax.eval_shape(run, padded[:chunk])

    def body(place: Array, found: Array) -> Array:
        part = run(lax.dynamic_slice_in_dim(padded, place * chunk, chunk))
        return lax.dynamic_update_slice_in_dim(found, part, place * chunk, 0)

    used = (
        jnp.int32(chunks) if count is None else (count + jnp.int32(chunk - 1)) // chunk
    )
    found = jnp.zeros_like(padded, one.dtype, (chunks * chunk, *one.shape[1:]))
    return lax.fori_loop(jnp.int32(0), used, body, found)[:batch]


def _of_chunk(matrices: Array, *, of: Field | None, steps: int) -> Array:
    if of is None:
        rules = _Rules(_enter_small, _cross_small, _divide_small, _less_product_small)
    else:
        rules = _wide_rules(of) if multiplies_wide() else _rules_by_limbs(of)
    work = rules.enter(matrices)
    block = min(_BLOCK, steps)
    blocks = -(-steps // block)
    empty = jnp.zeros_like(work[:, : blocks * block - steps])
    work = jnp.concatenate([work[:, :steps], empty, work[:, steps:]], axis=1)
    body = functools.partial(_take_off_block, rules=rules, size=block)
    stage = -(-blocks // _STAGES)
    flags = []
    for begin in range(0, blocks, stage):
        here = min(stage, blocks - begin)
        spent = here * block
        found = jnp.zeros_like(work[:, :spent, 0], jnp.bool_)
        work, found = lax.fori_loop(0, here, body, (work, found))
        flags.append(found)
        work = work[:, spent:]
    raised = jnp.concatenate(flags, axis=1)[:, :steps]
    return jnp.concatenate(
        [raised, jnp.any(work != work.dtype.type(0), axis=2)], axis=1
    )


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
    place: Array, carry: tuple[Array, Array], *, rules: _Rules, size: int
) -> tuple[Array, Array]:
    """Reduce a block of rows and clear its pivots' columns from all rows.

    Those above are spent.
    """
    work, found = carry
    begin = place * size
    rows = lax.dynamic_slice_in_dim(work, begin, size, axis=1)
    columns = jnp.zeros_like(rows[:, :, 0], jnp.int32)
    body = functools.partial(_clear_column, rules=rules)
    rows, columns = lax.fori_loop(0, size, body, (rows, columns))
    pivots = jnp.take_along_axis(rows, columns[:, :, None], axis=2)[..., 0]
    # factors are divided, not rows: in one fused loop over columns that is done once a
    # row
    factors = jnp.take_along_axis(work, columns[:, None, :], axis=2, mode="clip")
    factors = rules.divide(factors, pivots)
    work = rules.less_product(work, factors, rows)
    return work, lax.dynamic_update_slice_in_dim(
        found, pivots != pivots.dtype.type(0), begin, 1
    )


def _clear_column(
    index: Array, carry: tuple[Array, Array], *, rules: _Rules
) -> tuple[Array, Array]:
    """Clear row `index`'s first non-zero column from the other rows of its block."""
    rows, columns = carry
    zero, one = rows.dtype.type(0), rows.dtype.type(1)
    row = lax.dynamic_index_in_dim(rows, index, 1, keepdims=False)
    column = jnp.argmax(row != zero, axis=1).astype(jnp.int32)
    entries = jnp.take_along_axis(rows, column[:, None, None], axis=2)[..., 0]
    pivot = lax.dynamic_index_in_dim(entries, index, 1, keepdims=False)
    factors = jnp.where((jnp.arange(rows.shape[1]) == index)[None, :], zero, entries)
    # an empty row changes nothing
    rows = rules.cross(rows, row, factors, jnp.where(pivot == zero, one, pivot))
    return rows, lax.dynamic_update_slice_in_dim(columns, column[:, None], index, 1)


# ---- modulo the small prime, in float32


def _enter_small(matrices: Array) -> Float32[Array, "*_"]:
    if matrices.dtype == jnp.bool_:
        return matrices.astype(jnp.float32)
    return _centre(residues(matrices, SMALL_PRIME).astype(jnp.float32))


def _cross_small(rows: Array, row: Array, factors: Array, pivot: Array) -> Array:
    return _centre(rows * pivot[:, None, None] - factors[:, :, None] * row[:, None, :])


def _divide_small(factors: Array, pivots: Array) -> Array:
    place = jnp.where(
        pivots < jnp.float32(0), pivots + jnp.float32(SMALL_PRIME), pivots
    )
    return _centre(
        factors * jnp.asarray(_inverses())[place.astype(jnp.int32)][:, None, :]
    )


def _less_product_small(rest: Array, factors: Array, rows: Array) -> Array:
    return _centre(rest - _matrix_product(factors, rows))


def _matrix_product(left: Array, right: Array) -> Array:
    """Return left @ right in float32, never in TF32.

    Integers whose sums are below 2**24.
    """
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def _centre(values: Array) -> Array:
    """Reduce integers below 2**24 to residues of absolute value at most p / 2 + 3.

    The quotient's rounding errs by less than 2**-10, so it is exact for multiples of p
    and otherwise off by one only next to a tie.
    """
    quotient = jnp.round(values * jnp.float32(1 / SMALL_PRIME))
    return values - quotient * jnp.float32(SMALL_PRIME)


@functools.cache
def _inverses() -> np.ndarray:
    values = [pow(a, SMALL_PRIME - 2, SMALL_PRIME) for a in range(SMALL_PRIME)]
    return np.asarray(
        [v - SMALL_PRIME * (v > SMALL_PRIME // 2) for v in values], np.float32
    )


# ---- modulo a 31-bit prime, in uint32


def _wide_rules(of: Field) -> _Rules:
    """Sum up to eight products of two words before one reduction, which divides by 2**32.

    In `cross` that factor scales a row, which changes no rank; `divide` leaves it on
    the factors of `less_product`.
    """
    word = reduce_wide(jnp.uint32(1), jnp.uint32(0), of)
    square = multiply(word, word, of)

    def cross(rows: Array, row: Array, factors: Array, pivot: Array) -> Array:
        less = of.prime - factors
        pairs = [(rows, pivot[:, None, None]), (row[:, None, :], less[:, :, None])]
        return _sum_of_products(pairs, of)

    def divide(factors: Array, pivots: Array) -> Array:
        units = multiply(inverse(pivots, of), square, of)
        return _sum_of_products([(factors, units[:, None, :])], of)

    def less_product(rest: Array, factors: Array, rows: Array) -> Array:
        pairs = [
            (factors[:, :, k, None], rows[:, None, k]) for k in range(rows.shape[1])
        ]
        return subtract(rest, _sum_of_products(pairs, of), of)

    return _Rules(
        lambda matrices: residues(matrices, of.prime), cross, divide, less_product
    )


def _sum_of_products(
    pairs: list[tuple[Array, Array]], of: Field
) -> UInt32[Array, "*_"]:
    """Return sum(left * right) / 2**32 mod p for residues, at most eight pairs (Montgomery).

    The primes are below 2**32 / 3.5, so eight products and a word times p stay below
    2**64, and what is left after the division below 3.3 p.
    """
    two = jnp.uint32(2)
    negative = of.prime  # its own inverse modulo 8; each step doubles the bits
    for _ in range(4):
        negative = negative * (two - of.prime * negative)
    negative = jnp.uint32(0) - negative
    with jax.enable_x64(True):  # no array of such words is ever made
        products = (a.astype(jnp.uint64) * b.astype(jnp.uint64) for a, b in pairs)
        total = functools.reduce(operator.add, products)
        low = total.astype(jnp.uint32) * negative
        total = total + low.astype(jnp.uint64) * of.prime.astype(jnp.uint64)
        rest = (total >> jnp.uint64(32)).astype(jnp.uint32)
    rest = jnp.minimum(rest, rest - (of.prime << jnp.uint32(1)))
    return jnp.minimum(rest, rest - of.prime)


def _rules_by_limbs(of: Field) -> _Rules:
    def cross(rows: Array, row: Array, factors: Array, pivot: Array) -> Array:
        kept = scale(
            rows, pivot[:, None, None], companion(pivot, of)[:, None, None], of
        )
        ratio = companion(factors, of)[:, :, None]
        return subtract(
            kept, scale(row[:, None, :], factors[:, :, None], ratio, of), of
        )

    def divide(factors: Array, pivots: Array) -> Array:
        units = inverse(pivots, of)
        return scale(factors, units[:, None, :], companion(units, of)[:, None, :], of)

    return _Rules(
        lambda matrices: residues(matrices, of.prime),
        cross,
        divide,
        functools.partial(_less_product, of=of),
    )


def _less_product(
    rest: UInt32[Array, "b m c"],
    factors: UInt32[Array, "b m r"],
    rows: UInt32[Array, "b r c"],
    of: Field,
) -> UInt32[Array, "b m c"]:
    """Return rest - factors @ rows mod p, by products of limbs of 10 bits with signs.

    A factor is f0 + f1 2**10 + f2 2**20 with |f0|, |f1| <= 2**9 and |f2| <= 586, a row
    likewise, so that each of the five sums below is an integer under 2**24. They are
    put together in words that wrap around, with the quotient by p estimated in float32:
    first the upper three sums (the quotient is below 2**12), then with the lower two
    (below 2**20): it errs by less than 1/4.
    """
    left, right = _limbs(factors, of), _limbs(rows, of)
    sums = [
        _matrix_product(
            jnp.concatenate([left[i] for i in range(3) if 0 <= k - i < 3], axis=2),
            jnp.concatenate([right[k - i] for i in range(3) if 0 <= k - i < 3], axis=1),
        )
        for k in range(5)
    ]
    base = jnp.float32(2**_LIMB)
    low, second, third, fourth, fifth = (part.astype(jnp.int32) for part in sums)
    high = (((fifth << _LIMB) + fourth) << _LIMB) + third
    size = (sums[4] * base + sums[3]) * base + sums[2]
    high = _less_multiples(high, size, of)
    size = (high.astype(jnp.float32) * base + sums[1]) * base + sums[0]
    both = (((high << _LIMB) + second) << _LIMB) + low
    product = _less_multiples(both, size, of)
    is_negative = product < jnp.int32(0)
    words = product.astype(jnp.uint32)
    return subtract(rest, jnp.where(is_negative, words + of.prime, words), of)


def _less_multiples(words: Array, size: Array, of: Field) -> Array:
    """Return an integer's residue from its lowest 32 bits and its size as a float."""
    quotient = jnp.round(size / of.prime.astype(jnp.float32)).astype(jnp.int32)
    return words - quotient * of.prime.astype(jnp.int32)


def _limbs(values: Array, of: Field) -> list[Float32[Array, "*_"]]:
    """Return three limbs with signs of residues between -p / 2 and p / 2."""
    is_large = values > of.prime >> jnp.uint32(1)
    rest = jnp.where(is_large, values - of.prime, values).astype(jnp.int32)
    limbs = []
    for _ in range(2):
        upper = (rest + jnp.int32(1 << _LIMB - 1)) >> _LIMB
        limbs.append((rest - (upper << _LIMB)).astype(jnp.float32))
        rest = upper
    return [*limbs, rest.astype(jnp.float32)]
