"""Padding and summing one block by XLA: where there is neither numba nor an NVIDIA GPU.

Coordinates go in chunks of whole keystream blocks. Each stream of a chunk is made once; then every
client gathers those that it uses, a few at a time.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from mrsa_jax._chacha20_rounds import keystream_words
from mrsa_jax._tracing import varying_like
from mrsa_jax.modular import Ring, add, ring_sum_over, subtract
from mrsa_jax.secagg._pad_tables import Place, Round, Table, nothing, residues_of, settled, tallied

__all__ = ["block_by_xla"]

_UNROLLED = 4  # streams that a client gathers in one step


def block_by_xla(
    round_: Round, table: Table, place: Place, ring: Ring, chunks: tuple[int, int], padded: bool
) -> tuple[Array | None, Array]:
    """Return a block's padded inputs [members, coordinates], if wanted, and its sum.

    Args:
        round_: The round.
        table: The block's streams.
        place: Where it lies.
        ring: Its ring.
        chunks: How many chunks of how many keystream blocks (static).
        padded: Whether padded inputs are wanted (static).
    """
    count, width = chunks
    size = width * residues_of(ring.is_power)
    where = jnp.asarray(place.start) + jnp.arange(count * size, dtype=jnp.int32)
    values = jnp.take(jnp.asarray(round_.inputs), jnp.asarray(place.members), axis=0, mode="clip")
    values = jnp.take(values, where, axis=1, mode="clip")
    here = table.sends[:, None] & (where < place.stop)[None, :]
    values = jnp.where(here, values, jnp.uint32(0))
    nonce = (table.labels[:, None], jnp.asarray(place.number), jnp.asarray(round_.index))
    key = tuple(table.seeds[:, word, None] for word in range(8))

    def chunk(number: Array) -> tuple[Array | None, Array]:
        first = number.astype(jnp.uint32) * jnp.uint32(width)
        counters = first + jnp.arange(width, dtype=jnp.uint32)
        words = keystream_words(key, counters[None, :], nonce, (table.seeds.shape[0], width))
        step = 1 if ring.is_power else 2
        streams = [jnp.stack(words[k::step], axis=2).reshape(-1, size) for k in range(step)]

        def row(odd: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            pads = settled(*_used(table, streams, odd), ring)
            return add(carry[0], pads, ring), pads

        own = lax.dynamic_slice_in_dim(values, number * jnp.int32(size), size, axis=1)
        start = varying_like((own, jnp.zeros_like(own)), own, streams)
        rows, removed = lax.fori_loop(jnp.int32(0), jnp.int32(2), row, start)
        total = ring_sum_over(subtract(rows, removed, ring), ring)
        return rows if padded else None, total

    rows, sums = lax.map(chunk, jnp.arange(count, dtype=jnp.int32))
    if rows is not None:
        rows = rows.swapaxes(0, 1).reshape(rows.shape[1], count * size)
    return rows, sums.reshape(-1)


def _used(table: Table, streams: list[Array], odd: Array) -> tuple[tuple[Array, ...], Array]:
    """Return the sum of the streams of each client's even row of uses (0) or odd one (1).

    With it comes how many of them are subtracted, [members, 1].
    """
    begin, end = (part.reshape(-1, 2)[:, odd] for part in (table.heads[:-1], table.heads[1:]))
    last = jnp.int32(table.uses.shape[0] - 1)
    ones, zero = jnp.uint32(2**32 - 1), jnp.uint32(0)

    def step(k: Array, carry: tuple[tuple[Array, ...], Array]) -> tuple[tuple[Array, ...], Array]:
        tally, subtracted = carry
        for j in range(_UNROLLED):
            at = begin + jnp.int32(_UNROLLED) * k + jnp.int32(j)
            use = table.uses[jnp.minimum(at, last)]
            flip = jnp.where(use & jnp.int32(1) == jnp.int32(1), ones, zero)[:, None]
            only = jnp.where(at < end, ones, zero)[:, None]
            found = [jnp.take(stream, use >> jnp.int32(1), axis=0) for stream in streams]
            tally = tallied(tally, found, flip, only)
            subtracted = subtracted + (flip & only & jnp.uint32(1))
        return tally, subtracted

    steps = (jnp.max(end - begin) + jnp.int32(_UNROLLED - 1)) // jnp.int32(_UNROLLED)
    shape = (begin.shape[0], streams[0].shape[1])
    start = nothing(shape, len(streams) == 1), jnp.zeros((shape[0], 1), jnp.uint32)
    return lax.fori_loop(jnp.int32(0), steps, step, varying_like(start, steps, streams))
