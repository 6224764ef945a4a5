"""One round judged by Theorems 1 and 2 as array operations on packed sets, for vmapping.

Paper: CCESA (Choi, Sohn, Han, Moon), Section 4.2. Sets of clients are 32-bit words: an eighth
of the memory traffic of bool matrices, and measured twenty times as fast as the predicates of
`_conditions`, whose verdicts these are.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt8, UInt32

__all__ = [
    "DISCONNECTED",
    "NOT_PRIVATE",
    "PLANTED_FIRST",
    "UNMASKABLE",
    "UNRELIABLE",
    "planted_verdict",
    "verdict",
]

# What a round's byte says; the compiled loops use the same.
UNRELIABLE, NOT_PRIVATE, DISCONNECTED, UNMASKABLE, PLANTED_FIRST = 1, 2, 4, 8, 16


def verdict(
    adjacency: Bool[Array, "n n"], survivors: Bool[Array, "5 n"], thresholds: Int32[Array, " n"]
) -> UInt8[Array, ""]:
    """Return the byte of one round."""
    rows = _packed(adjacency)
    silent, lost = _silent_and_lost(rows, survivors, thresholds)
    parts, leaks = _components(rows, survivors, silent)
    apart = parts > 1
    # 2 t <= |Adj| + 1, without a product that could overflow
    most = (_sizes(rows) + jnp.int32(1)) // jnp.int32(2)
    return _byte(
        (UNRELIABLE, jnp.any(lost)),
        (NOT_PRIVATE, apart & leaks),
        (DISCONNECTED, apart),
        (UNMASKABLE, jnp.any(thresholds <= most)),
    )


def planted_verdict(
    adjacency: Bool[Array, "n n"],
    survivors: Bool[Array, "5 n"],
    thresholds: Int32[Array, " n"],
    cut: Bool[Array, " n"],
    client: Int32[Array, ""],
) -> UInt8[Array, ""]:
    """Return the byte of one round, with `PLANTED_FIRST` if what was planted fails first.

    A client if it is the first whose secret is needed and lost; without one (-1), a cut of V3 if
    it parts the component of V3's first client from the rest.
    """
    rows, summed = _packed(adjacency), survivors[3]
    _, lost = _silent_and_lost(rows, survivors, thresholds)
    first_lost = jnp.any(lost) & (jnp.argmax(lost).astype(jnp.int32) == client)
    start = jnp.argmax(summed)
    part, _ = _flood(rows, summed, start)
    parted = jnp.any(summed) & jnp.all(~summed | (part == (cut == cut[start])))
    is_first = jnp.where(client >= jnp.int32(0), first_lost, parted)
    return verdict(adjacency, survivors, thresholds) | _byte((PLANTED_FIRST, is_first))


def _byte(*flags: tuple[int, Array]) -> Array:
    values = [flag.astype(jnp.uint8) * jnp.uint8(value) for value, flag in flags]
    return functools.reduce(jnp.bitwise_or, values)


def _packed(members: Bool[Array, "*sets n"]) -> UInt32[Array, "*sets words"]:
    """Return sets of clients as words, client i at bit i % 32 of word i // 32."""
    padding = [(0, 0)] * (members.ndim - 1) + [(0, -members.shape[-1] % 32)]
    lanes = jnp.pad(members, padding).reshape(*members.shape[:-1], -1, 32)
    bits = lanes.astype(jnp.uint32) << jax.lax.broadcasted_iota(
        jnp.uint32, lanes.shape, members.ndim
    )
    return jnp.sum(bits, axis=-1, dtype=jnp.uint32)


def _sizes(sets: UInt32[Array, "n words"]) -> Int32[Array, " n"]:
    return jnp.sum(jax.lax.population_count(sets).astype(jnp.int32), axis=-1, dtype=jnp.int32)


def _joined(rows: UInt32[Array, "n words"], members: Bool[Array, " n"]) -> Bool[Array, " n"]:
    """Return who is joined to at least one of a set."""
    return jnp.any((rows & _packed(members)[None, :]) != jnp.uint32(0), axis=-1)


def _silent_and_lost(
    rows: UInt32[Array, "n words"], survivors: Bool[Array, "5 n"], thresholds: Int32[Array, " n"]
) -> tuple[Bool[Array, " n"], Bool[Array, " n"]]:
    """Return who is not informative, and who of them is in V3+."""
    shares = _sizes(rows & _packed(survivors[4])[None, :]) + survivors[4].astype(jnp.int32)
    silent = shares < thresholds
    return silent, silent & (survivors[3] | (survivors[2] & _joined(rows, survivors[3])))


def _flood(
    rows: UInt32[Array, "n words"], alive: Bool[Array, " n"], start: Array
) -> tuple[Bool[Array, " n"], Bool[Array, " n"]]:
    """Return a living client's component, and all, dead or alive, who are joined to it."""
    index = jax.lax.iota(jnp.int32, alive.shape[0])

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        part, _, _ = carry
        around = _joined(rows, part)
        grown = part | (around & alive)
        return grown, around, jnp.any(grown != part)

    alone = (index == start.astype(jnp.int32)) & alive
    carry = (alone, jnp.zeros_like(alone), jnp.bool_(True))
    part, around, _ = jax.lax.while_loop(lambda carry: carry[2], step, carry)
    return part, around


def _components(
    rows: UInt32[Array, "n words"], survivors: Bool[Array, "5 n"], silent: Bool[Array, " n"]
) -> tuple[Int32[Array, ""], Bool[Array, ""]]:
    """Return how many components G_3 has, and whether one has nobody silent in its C_l+."""

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        left, parts, leaks = carry
        part, around = _flood(rows, survivors[3], jnp.argmax(left))
        protected = jnp.any(silent & (part | (around & survivors[2])))
        return left & ~part, parts + jnp.int32(1), leaks | ~protected

    carry = (survivors[3], jnp.int32(0), jnp.bool_(False))
    _, parts, leaks = jax.lax.while_loop(lambda carry: jnp.any(carry[0]), step, carry)
    return parts, leaks
