"""Pad the inputs of a round in one launch on NVIDIA GPUs (Pallas, through Triton).

A program takes some clients of a block over one tile of coordinates, a keystream block
in each thread. It makes each of a client's pads in registers and adds it to the
client's input there: no keystream is ever in memory. The keystream of a pair is made
twice, once for each end, which costs arithmetic and spares all traffic. Import inside
functions only, where the form is "pallas".
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from mrsa_jax._core.chacha20 import keystream_words
from mrsa_jax._core.chacha20_kernel import TILE, woven
from mrsa_jax._core.device import num_programs
from mrsa_jax._core.kernels import launch
from mrsa_jax.modular import Ring, add, subtract
from mrsa_jax.secagg._pad_tables import (
    PAIR_PAD,
    SELF_PAD,
    Place,
    Round,
    Table,
    nothing,
    residues_of,
    settled,
    tallied,
)


def blocks_by_kernel(
    round_: Round,
    table: Table,
    place: Place,
    ring: Ring,
    num_blocks: int,
    out: Array | None,
    padded: bool,
) -> tuple[Array | None, Array]:
    """Pad the inputs of blocks of about one size, and sum them in parts.

    Args:
        round_: The round.
        table: The blocks' streams, each leaf with a leading axis of blocks; so the
            others.
        place: Where they lie.
        ring: Their rings.
        num_blocks: Of keystream, that cover each block's coordinates (static).
        out: uint32[n, d] to write padded inputs to; None where no row of it is kept.
        padded: Whether to write them (static).

    Returns:
        The padded inputs, if written, and uint32[blocks, parts, coordinates], whose sum
        over the parts in each block's ring is the block's total; what lies beyond a
        block's last coordinate means nothing.
    """
    num, size = table.sends.shape
    tiles, tile = -(-num_blocks // TILE), residues_of(ring.is_power) * TILE
    parts = max(1, min(size, num_programs(TILE) // (num * tiles)))
    each = -(-size // parts)
    parts = -(-size // each)
    clients, dim = round_.inputs.shape
    # clients beyond the last, who use no stream
    absent = ((0, 0), (0, parts * each - size))
    inputs = [
        jnp.asarray(round_.inputs),
        jnp.pad(jnp.asarray(place.members), absent, constant_values=clients),
        jnp.pad(table.sends.astype(jnp.int32), absent),
        jnp.stack([jnp.asarray(place.start), jnp.asarray(place.stop)], axis=1),
        _numbers(round_, place, ring),
        table.seeds,
        jnp.pad(table.heads, ((0, 0), (0, 2 * (parts * each - size))), mode="edge"),
        table.uses,
    ]
    shapes = [(num, parts, tiles * tile), (clients, dim)][: 2 if padded else 1]
    aliases = {} if out is None else {len(inputs): 1}
    inputs += [] if out is None else [out]
    kernel = functools.partial(
        _kernel, ring.is_power, each, clients, table.seeds.shape[1] - size, len(inputs)
    )
    results = [jax.ShapeDtypeStruct(shape, jnp.uint32) for shape in shapes]
    grid = tiles, parts, num
    results_made = launch(
        "pads", kernel, grid, results, *inputs, input_output_aliases=aliases
    )
    return (results_made[1] if padded else None), results_made[0]


def _numbers(round_: Round, place: Place, ring: Ring) -> Array:
    """Return each block's words: of its nonces, and of its ring."""
    numbers = jnp.asarray(place.number)
    words = (numbers, round_.index, *(getattr(ring, name) for name in _WORDS))
    return jnp.stack(
        [jnp.broadcast_to(jnp.asarray(word), numbers.shape) for word in words], axis=1
    )


_WORDS = ("low_bits", "modulus", "shift", "divisor", "reciprocal")


def _kernel(
    is_power: bool,
    each: int,
    clients: int,
    pairs: int,
    num_inputs: int,
    *refs: Any,
) -> None:
    """Pad `each` clients' inputs of one tile, and sum what the server keeps."""
    inputs, members, sends, bounds, numbers, seeds, heads, uses = refs[:8]
    sums, *padded = refs[num_inputs:]
    tile, part, block = (pl.program_id(axis) for axis in range(3))
    width = residues_of(is_power)
    size = width * TILE
    ring = Ring(is_power, *(numbers[block, 2 + place] for place in range(len(_WORDS))))
    first = bounds[block, 0] + tile * jnp.int32(size)
    inside = first + jnp.arange(size, dtype=jnp.int32) < bounds[block, 1]
    counters = (tile * jnp.int32(TILE) + jnp.arange(TILE, dtype=jnp.int32)).astype(
        jnp.uint32
    )

    def use(place: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        tallies, subtracted = carry
        stream, sign = (
            uses[block, place] >> jnp.int32(1),
            uses[block, place] & jnp.int32(1),
        )
        label = jnp.where(
            stream < jnp.int32(pairs), jnp.uint32(PAIR_PAD), jnp.uint32(SELF_PAD)
        )
        words = keystream_words(
            [seeds[block, stream, word] for word in range(8)],
            counters,
            (label, numbers[block, 0], numbers[block, 1]),
            (TILE,),
        )
        step = len(words) // width
        flip = jnp.uint32(0) - sign.astype(jnp.uint32)
        tallies = [
            tallied(tally, words[step * k : step * (k + 1)], flip)
            for k, tally in enumerate(tallies)
        ]
        return tallies, subtracted + sign.astype(jnp.uint32)

    def pads(row: Array) -> Array:
        start = [nothing((TILE,), is_power)] * width, jnp.uint32(0)
        begin, end = heads[block, row], heads[block, row + jnp.int32(1)]
        tallies, subtracted = lax.fori_loop(begin, end, use, start)
        # in the order of coordinates from here on
        return settled(tuple(map(woven, zip(*tallies, strict=True))), subtracted, ring)

    def client(place: Array, total: Array) -> Array:
        member = members[block, place]
        row_of_inputs = jnp.minimum(member, jnp.int32(clients - 1))
        here = inside & (sends[block, place] != jnp.int32(0))
        at = pl.ds(first, size)

        def row(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            pad = pads(jnp.int32(2) * place + number)
            return add(carry[0], pad, ring), pad

        values = triton.load(
            inputs.at[row_of_inputs, at], mask=here, other=jnp.uint32(0)
        )
        none = jnp.zeros(size, jnp.uint32)
        sent, removed = lax.fori_loop(jnp.int32(0), jnp.int32(2), row, (values, none))
        for out in padded:
            is_written = inside & (member < jnp.int32(clients))
            triton.store(out.at[row_of_inputs, at], sent, mask=is_written)
        return add(total, subtract(sent, removed, ring), ring)

    begin = part * jnp.int32(each)
    # nothing to do beyond the block's last coordinate
    end = jnp.where(first < bounds[block, 1], begin + jnp.int32(each), begin)
    total = lax.fori_loop(begin, end, client, jnp.zeros(size, jnp.uint32))
    triton.store(sums.at[block, part, pl.ds(tile * jnp.int32(size), size)], total)
