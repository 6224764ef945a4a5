"""Elimination modulo 31-bit primes, up to 128 columns, on NVIDIA GPUs (Pallas, Triton).

One launch.
A program takes a matrix row by row and holds in registers a basis of the kernel of the
rows so far, first the identity: a new row raises the rank exactly if it is not
orthogonal to all of the basis, which then loses a vector. Registers have no addresses:
a vector is taken out by a sum over the tile that leaves out all else. Nothing is ever
divided: vectors are multiplied by the pivot instead, a unit modulo a prime. Import
inside functions only, where the form is "pallas".
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Int32, Shaped

from mrsa_jax._core.kernels import launch
from mrsa_jax._core.prime import (
    Field,
    companion,
    residues,
    scale,
    subtract,
    sum_residues,
)

MOST_COLUMNS = 128
_LEAST_TILE = 16
_WARP_ENTRIES = 1_024  # of the tile, so that registers suffice: at most 128 a thread


@functools.partial(jax.jit, static_argnames=("steps",))
def independent_rows(
    matrices: Shaped[Array, "batch rows columns"],
    of: Field,
    steps: int,
    count: Int32[Array, ""] | None = None,
) -> Bool[Array, "batch rows"]:
    """Flag rows as `_blocked.independent_rows` does, given a field."""
    batch, rows, columns = matrices.shape
    side = max(_LEAST_TILE, pl.next_power_of_2(columns))
    scalars = [jnp.int32(batch) if count is None else count, of.prime, of.reciprocal]
    one = pl.BlockSpec((1,), lambda _: (0,))
    (found,) = launch(
        "independent_rows",
        functools.partial(_kernel, side=side, steps=steps),
        (batch,),
        [jax.ShapeDtypeStruct((batch, rows), jnp.bool_)],
        matrices,
        *(scalar[None] for scalar in scalars),
        num_warps=max(1, side * side // _WARP_ENTRIES),
        in_specs=[
            pl.BlockSpec((None, rows, columns), lambda place: (place, 0, 0)),
            *(one for _ in scalars),
        ],
        out_specs=[pl.BlockSpec((None, rows), lambda place: (place, 0))],
    )
    return found


def _kernel(
    matrix_ref: Any,
    count_ref: Any,
    prime_ref: Any,
    reciprocal_ref: Any,
    found_ref: Any,
    *,
    side: int,
    steps: int,
) -> None:
    # without what only an inverse needs
    of = Field(prime_ref[0], reciprocal_ref[0], jnp.zeros(1, jnp.int32))
    rows, columns = matrix_ref.shape
    place_of = lax.iota(jnp.int32, side)
    inside = place_of < jnp.int32(columns)
    zero = jnp.zeros((), matrix_ref.dtype)
    is_pair = (place_of[:, None] == place_of[None, :]) & inside[:, None]

    def products(index: Array, basis: Array) -> Array:
        row = triton.load(
            matrix_ref.at[index, place_of],
            mask=inside,
            other=zero,
        )
        return _products(basis, row, of)

    def shrink(index: Array, basis: Array) -> Array:
        values = products(index, basis)
        place = jnp.min(jnp.where(values != 0, place_of, jnp.int32(side)))
        raises = place < jnp.int32(side)
        triton.store(found_ref.at[index], raises)
        is_it = place_of == place
        vector = jnp.sum(
            jnp.where(is_it[:, None], basis, 0),
            0,
            dtype=jnp.uint32,
        )
        pivot = jnp.sum(jnp.where(is_it, values, 0), dtype=jnp.uint32)
        return _cross(
            basis,
            vector,
            values,
            jnp.where(raises, pivot, 1),
            of,
        )

    def compare(index: Array, basis: Array) -> Array:
        triton.store(found_ref.at[index], jnp.max(products(index, basis)) != 0)
        return basis

    # padding at the batch's end is skipped
    is_used = pl.program_id(0) < count_ref[0]
    ends = [jnp.where(is_used, jnp.int32(end), 0) for end in (steps, rows)]
    basis = lax.fori_loop(
        jnp.int32(0),
        ends[0],
        shrink,
        is_pair.astype(jnp.uint32),
    )
    if steps < rows:
        lax.fori_loop(jnp.int32(steps), ends[1], compare, basis)


def _products(
    basis: Array,
    row: Array,
    of: Field,
) -> Array:
    """Return the products mod p of a row with all vectors of the basis."""
    if row.dtype == jnp.bool_:
        each = jnp.where(row[None, :], basis, 0)
    else:
        factors = residues(row, of.prime)
        each = scale(
            basis,
            factors[None, :],
            companion(factors, of)[None, :],
            of,
        )
    return sum_residues(each, of, axis=1)


def _cross(
    basis: Array,
    vector: Array,
    values: Array,
    pivot: Array,
    of: Field,
) -> Array:
    """Return pivot * basis - values * vector."""
    kept = scale(basis, pivot, companion(pivot, of), of)
    ratio = companion(values, of)[:, None]
    return subtract(kept, scale(vector[None, :], values[:, None], ratio, of), of)
