"""Judge one round by Theorems 1 and 2, as array operations on packed sets.

Paper: CCESA (Choi, Sohn, Han, Moon), Section 4.2. Sets of clients are 32-bit words: an
eighth of the memory traffic of bool matrices, and measured twenty times as fast as the
predicates of `_conditions`, whose verdicts these are.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt8, UInt32

from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.secagg.thresholds import more_than_half

# Bits of a round's byte.
UNRELIABLE = 1
NOT_PRIVATE = 2
DISCONNECTED = 4
UNMASKABLE = 8
PLANTED_FIRST = 16
NO_SUM = 32

_BITS = 32
_Graph = Bool[Array, "n n"]
_Alive = Bool[Array, "5 n"]
_Clients = Bool[Array, " n"]
_Limits = Int32[Array, " n"]
_Rule = _Limits | None  # None: more than half of each neighbourhood
_Rows = UInt32[Array, "n words"]
_Set = UInt32[Array, " words"]


class Verdict(NamedTuple):
    """A judged round.

    Attributes:
        byte: uint8, the conditions that failed.
        lost: bool[n], clients whose secrets are needed and lost.
        first: uint32[words], the component of G_3 that holds V3's first client.
    """

    byte: UInt8[Array, ""]
    lost: _Clients
    first: _Set


def verdict(adjacency: _Graph, survivors: _Alive, rule: _Rule) -> Verdict:
    """Judge one round."""
    rows = _packed(adjacency)
    thresholds = more_than_half(_sizes(rows)) if rule is None else rule
    silent, lost = _silent_and_lost(rows, survivors, thresholds)
    components = _components(rows, survivors, silent)
    apart = components.num_parts > 1
    # 2 t <= |Adj| + 1, without a product that could overflow
    most = (_sizes(rows) + 1) // 2
    byte = (
        _flag(NO_SUM, _ends_without_a_sum(rows, survivors, thresholds))
        | _flag(UNRELIABLE, lost.any())
        | _flag(NOT_PRIVATE, apart & components.leaks)
        | _flag(DISCONNECTED, apart)
        | _flag(UNMASKABLE, (thresholds <= most).any())
    )
    return Verdict(byte, lost, components.first)


def planted_byte(
    adjacency: _Graph,
    survivors: _Alive,
    rule: _Rule,
    cut: _Clients,
    client: Int32[Array, ""],
) -> UInt8[Array, ""]:
    """Judge a round: `PLANTED_FIRST` is set if what was planted fails first.

    A client if it is the first whose secret is needed and lost; without one (-1), a cut
    of V3 if it parts the component of V3's first client from the rest.
    """
    judged = verdict(adjacency, survivors, rule)
    first_lost = judged.lost.any() & (
        jnp.argmax(judged.lost).astype(jnp.int32) == client
    )
    summed = survivors[3]
    side = _packed(summed & (cut == cut[jnp.argmax(summed)]))
    is_parted = summed.any() & (judged.first == side).all()
    is_first = jnp.where(client >= 0, first_lost, is_parted)
    return judged.byte | _flag(PLANTED_FIRST, is_first)


def _flag(value: int, holds: Array) -> Array:
    return holds.astype(jnp.uint8) * jnp.uint8(value)


def _packed(members: Bool[Array, "*sets n"]) -> UInt32[Array, "*sets words"]:
    """Pack sets of clients into words, client i at bit i % 32 of word i // 32."""
    # filled up to whole words
    padding = [(0, 0)] * (members.ndim - 1) + [(0, -members.shape[-1] % _BITS)]
    lanes = jnp.pad(members, padding).reshape(*members.shape[:-1], -1, _BITS)
    place = jax.lax.broadcasted_iota(jnp.uint32, lanes.shape, members.ndim)
    return jnp.sum(lanes.astype(jnp.uint32) << place, axis=-1, dtype=jnp.uint32)


def _sizes(sets: _Rows) -> Int32[Array, " n"]:
    bits = jax.lax.population_count(sets.astype(jnp.int32))
    return jnp.sum(bits, axis=-1, dtype=jnp.int32)


def _touching(rows: _Rows, part: _Set) -> _Clients:
    """Mark the clients that are joined to at least one of a set."""
    return ((rows & part[None, :]) != 0).any(axis=-1)


def _silent_and_lost(
    rows: _Rows,
    survivors: _Alive,
    thresholds: _Limits,
) -> tuple[_Clients, _Clients]:
    """Mark the clients that are not informative, and those of them in V3+."""
    silent = _holders(rows, survivors[4]) < thresholds
    needed = survivors[3] | (survivors[2] & _touching(rows, _packed(survivors[3])))
    return silent, silent & needed


def _ends_without_a_sum(
    rows: _Rows,
    survivors: _Alive,
    thresholds: _Limits,
) -> Bool[Array, ""]:
    """Return whether the server learns no sum over all whose inputs it may sum.

    Clients refuse as `secagg.lists.heeded` describes, so that the status is that of
    `aggregate`. Theorem 1 alone speaks of shares: it holds where nobody sent an input.
    """
    advertised = _holders(rows, survivors[1])
    shared = _holders(rows, survivors[2])
    sends = survivors[3] & ((shared >= thresholds) | (advertised < thresholds))
    answers = survivors[4] & sends & (_holders(rows, sends) >= thresholds)
    heeded = jnp.stack([*survivors[:3], sends, answers])
    lost = _silent_and_lost(rows, heeded, thresholds)[1]
    num_summed = jnp.sum(sends, dtype=jnp.int32)
    return (num_summed < FEWEST_IN_A_SUM) | lost.any()


def _holders(rows: _Rows, present: _Clients) -> Int32[Array, " n"]:
    """Count the present holders of shares of each client's secrets."""
    return _sizes(rows & _packed(present)[None, :]) + present.astype(jnp.int32)


class _Flood(NamedTuple):
    """Components as far as they are known, sets as words."""

    rest: Array  # uint32[words], the living who are in no finished component
    part: Array  # uint32[words], of them, the component that grows
    num_parts: Array  # int32[], how many components are finished
    leaks: Array  # bool[], whether one of them had nobody silent in its C_l+
    first: Array  # uint32[words], the first finished component


def _components(rows: _Rows, survivors: _Alive, silent: _Clients) -> _Flood:
    """Find the components of G_3.

    One loop for all of them: a step adds the neighbours to the component that grows, or
    finishes it and begins the next. So there are at most 2 n steps; rounds side by side
    each continue at once, and not when the slowest of them has finished its component.
    """
    quiet = _packed(silent)
    reachable = _packed(survivors[2])
    nobody = jnp.uint32(0)

    def step(now: _Flood) -> _Flood:
        around = _packed(_touching(rows, now.part))
        grown = now.part | (around & now.rest)
        is_whole = (grown == now.part).all()
        protected = ((quiet & (now.part | (around & reachable))) != nobody).any()
        rest = jnp.where(is_whole, now.rest & ~now.part, now.rest)
        return _Flood(
            rest=rest,
            part=jnp.where(is_whole, _first_of(rest), grown),
            num_parts=now.num_parts + is_whole.astype(jnp.int32),
            leaks=now.leaks | (is_whole & ~protected),
            first=jnp.where(is_whole & (now.num_parts == 0), now.part, now.first),
        )

    everybody = _packed(survivors[3])
    start = _Flood(
        rest=everybody,
        part=_first_of(everybody),
        num_parts=jnp.int32(0),
        leaks=jnp.bool_(False),
        first=jnp.zeros_like(everybody),
    )
    return jax.lax.while_loop(lambda now: (now.rest != nobody).any(), step, start)


def _first_of(members: _Set) -> _Set:
    """Keep only the first member of a set."""
    words = jnp.arange(members.shape[0])
    # x & -x is the lowest bit of a word
    lowest = members & (~members + 1)
    return jnp.where(words == jnp.argmax(members != 0), lowest, 0)
