"""Elimination modulo a small prime, up to 128 columns, on NVIDIA GPUs (Pallas, Triton).

One launch.
A program is one warp and takes one matrix after another: warps never wait for each
other, and a program's matrix stays in the caches. Sixteen rows are brought to reduced
form in registers and taken off the rows below them by products of matrices on the
tensor cores: exact, because residues fit float16 and sums stay below 2**23. Import
inside functions only, where the form is "pallas".
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Float32, Int32, Shaped

from mrsa_jax._core.device import interprets_kernels, num_programs
from mrsa_jax._core.kernels import launch
from mrsa_jax._core.prime import inverses, residues

_BLOCK = 16  # rows: the fewest that tensor cores take
# The largest prime p with _BLOCK * h * h + 2 * h < 2**23 for residues up to h = p / 2 + 1.
SMALL_PRIME = 1_447
_SHIFT = 1_024  # makes residues positive
_PLACE = np.int32(2 * _SHIFT)
_ROUNDER = 1.5 * 2**23  # added and taken off again, it rounds a float32 to an integer
# A program takes registers and caches of a multiprocessor as if it had so many.
_THREADS = 512


@functools.partial(jax.jit, static_argnames=("steps",))
def independent_rows(
    matrices: Shaped[Array, "batch rows columns"],
    of: None,
    steps: int,
    count: Int32[Array, ""] | None = None,
) -> Bool[Array, "batch rows"]:
    """Flag rows as `_blocked.independent_rows` does without a field.

    Modulo `SMALL_PRIME`.
    """
    batch, rows, columns = matrices.shape
    side = max(_BLOCK, pl.next_power_of_2(columns))
    programs = min(batch, num_programs(_THREADS))
    flags, _ = launch(
        "independent_rows_small",
        functools.partial(_kernel, steps=steps),
        (programs,),
        [
            jax.ShapeDtypeStruct((batch, rows), jnp.bool_),
            # what a program works on
            jax.ShapeDtypeStruct(
                (programs, -(-rows // _BLOCK), _BLOCK, side), jnp.float16
            ),
        ],
        matrices,
        (jnp.int32(batch) if count is None else count)[None],
        jnp.asarray(_inverses()),
        num_warps=1,
    )
    return flags


@functools.cache
def _inverses() -> np.ndarray:
    """Return the inverses of residues, shifted, as float32; 0 for what is none."""
    values = np.arange(-_SHIFT, _SHIFT)
    table = inverses(SMALL_PRIME)[values % SMALL_PRIME]
    table -= np.where(table > SMALL_PRIME // 2, SMALL_PRIME, 0)
    return np.where(abs(values) <= SMALL_PRIME // 2 + 1, table, 0).astype(np.float32)


def _kernel(
    matrices: Any, count: Any, inverses: Any, flags: Any, work: Any, *, steps: int
) -> None:
    rows, columns = matrices.shape[1:]
    programs, blocks, _, side = work.shape
    program = pl.program_id(0)
    line, place_of = lax.iota(jnp.int32, _BLOCK), lax.iota(jnp.int32, side)

    def enter(block: Array, which: Array) -> Array:
        lines = block * _BLOCK + line
        inside = (lines < rows)[:, None] & (place_of < columns)[None, :]
        values = triton.load(
            matrices.at[which, lines[:, None], place_of[None, :]],
            mask=inside,
            other=jnp.zeros((), matrices.dtype),
        )
        work[program, block] = _residues(values).astype(jnp.float16)
        return which

    def clear(block: Array, which: Array) -> Array:
        lines = block * _BLOCK + line
        tile = work[program, block].astype(jnp.float32)
        tile, lasts = _reduced(tile, inverses, steps - block * _BLOCK)
        triton.store(flags.at[which, lines], lasts > 0, mask=lines < rows)
        if steps < rows:
            tile = jnp.where((lines < steps)[:, None], tile, 0)
        negative = (-tile).astype(jnp.float16)
        places = lasts // _PLACE

        def take_off(below: Array, which: Array) -> Array:
            factors = triton.load(
                work.at[program, below, line[:, None], places[None, :]]
            )
            product = jnp.dot(factors, negative, preferred_element_type=jnp.float32)
            rest = work[program, below].astype(jnp.float32) + product
            work[program, below] = _centre(rest).astype(jnp.float16)
            return which

        # rows that are all zero change nothing below
        end = jnp.where(jnp.max(lasts) > 0, jnp.int32(blocks), jnp.int32(0))
        lax.fori_loop(block + 1, end, take_off, which)
        _wait_for_lanes()
        return which

    def eliminate(turn: Array, carry: Array) -> Array:
        which = program + turn * programs
        lax.fori_loop(0, blocks, enter, which)
        _wait_for_lanes()
        lax.fori_loop(0, blocks, clear, which)
        return carry

    # padding at the batch's end is skipped
    turns = lax.div(count[0] - program + (programs - 1), jnp.int32(programs))
    lax.fori_loop(0, turns, eliminate, jnp.int32(0))


def _reduced(
    tile: Float32[Array, "rows columns"], inverses: Any, leads: Array
) -> tuple[Float32[Array, "rows columns"], Int32[Array, " rows"]]:
    """Return rows in reduced form, and of each the place of its pivot times `_PLACE`.

    With more below that; 0 where nothing was left of the row. Rows from `leads` on are
    only reduced. An entry is brought below p where its turn comes: until then it is a
    sum of at most sixteen products.
    """
    line, place_of = (lax.iota(jnp.int32, size) for size in tile.shape)

    def clear(index: Array, held: tuple[Array, Array]) -> tuple[Array, Array]:
        tile, lasts = held
        is_it = line == index
        row = _centre(_taken(tile, is_it[:, None], 0))
        # the last place, with its value: as words, floats above 0 keep their order
        shifted = (place_of * _PLACE + _SHIFT).astype(jnp.float32) + row
        words = lax.bitcast_convert_type(jnp.where(row != 0, shifted, 0), jnp.int32)
        last = lax.bitcast_convert_type(jnp.max(words), jnp.float32).astype(jnp.int32)
        place, pivot = lax.div(last, _PLACE), lax.rem(last, _PLACE)
        row = _centre(row * jnp.where(index < leads, inverses[pivot], 0))
        factors = _centre(_taken(tile, (place_of == place)[None, :], 1))
        # one less for the row itself, which stays: all of it would leave zeros
        factors -= is_it.astype(jnp.float32)
        tile = tile - factors[:, None] * row[None, :]
        return tile, jnp.where(is_it, last, lasts)

    start = tile, jnp.zeros(_BLOCK, jnp.int32)
    tile, lasts = lax.fori_loop(0, _BLOCK, clear, start)
    return _centre(tile), lasts


def _wait_for_lanes() -> None:
    """Let what lanes have stored be seen by the others."""
    if not interprets_kernels():
        triton.debug_barrier()


def _taken(tile: Array, mask: Array, axis: int) -> Array:
    """Return the line of a tile that a mask leaves: registers have no addresses."""
    words = lax.bitcast_convert_type(tile, jnp.int32)
    words = jnp.sum(jnp.where(mask, words, 0), axis, dtype=jnp.int32)
    return lax.bitcast_convert_type(words, jnp.float32)


def _residues(values: Array) -> Float32[Array, "*_"]:
    if values.dtype == jnp.bool_:
        return values.astype(jnp.float32)
    words = residues(values, SMALL_PRIME) % jnp.uint32(SMALL_PRIME)
    return _centre(words.astype(jnp.int32).astype(jnp.float32))


def _centre(values: Array) -> Array:
    """Reduce integers below 2**23 to residues of absolute value at most p / 2 + 1."""
    # the maximum changes nothing but XLA's mind, which would cancel the two
    rounded = jnp.maximum(values * (1 / SMALL_PRIME) + _ROUNDER, 0)
    quotient = rounded - _ROUNDER
    return values - quotient * SMALL_PRIME
