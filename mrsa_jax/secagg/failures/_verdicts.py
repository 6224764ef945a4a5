"""One round judged by Theorems 1 and 2 as array operations on packed sets, mapped or in a kernel.

Paper: CCESA (Choi, Sohn, Han, Moon), Section 4.2. Sets of clients are 32-bit words: an
eighth of the memory traffic of bool matrices, and measured twenty times as fast as the
predicates of `_conditions`, whose verdicts these are.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt8, UInt32

from mrsa_jax._core.status import FEWEST_IN_A_SUM

# What a round's byte says; the compiled loops use the same.
UNRELIABLE, NOT_PRIVATE, DISCONNECTED, UNMASKABLE, PLANTED_FIRST = 1, 2, 4, 8, 16
NO_SUM = 32

MOST_IN_REGISTERS = 128  # clients of a round that one program of the kernel holds
_BITS = 32
_Graph = Bool[Array, "n n"]
_Limits = Int32[Array, " n"]
# V0 to V4 as rows, or each by itself: a kernel has no arrays of five rows
_Alive = Bool[Array, "5 n"] | tuple[Bool[Array, " n"], ...]


def verdict(
    adjacency: _Graph, survivors: _Alive, thresholds: _Limits
) -> UInt8[Array, ""]:
    """Return the byte of one round."""
    return _judged(adjacency, survivors, thresholds)[0]


def planted_verdict(
    adjacency: _Graph,
    survivors: Bool[Array, "5 n"],
    thresholds: _Limits,
    cut: Bool[Array, " n"],
    client: Int32[Array, ""],
) -> UInt8[Array, ""]:
    """Return the byte of one round, with `PLANTED_FIRST` if what was planted fails first.

    A client if it is the first whose secret is needed and lost; without one (-1), a cut
    of V3 if it parts the component of V3's first client from the rest.
    """
    byte, lost, first = _judged(adjacency, survivors, thresholds)
    summed = survivors[3]
    first_lost = _some(lost) & (jnp.argmax(lost).astype(jnp.int32) == client)
    side = _packed(summed & (cut == cut[jnp.argmax(summed)]))
    parted = _some(summed) & ~_some(first != side)
    return byte | _byte(
        (PLANTED_FIRST, jnp.where(client >= jnp.int32(0), first_lost, parted))
    )


def verdicts_in_registers(
    adjacency: Bool[Array, "trials n n"],
    survivors: Bool[Array, "trials 5 n"],
    thresholds: Int32[Array, " n"],
) -> UInt8[Array, " trials"]:
    """Return the bytes of many rounds by one kernel, a program each, which reads its round once.

    Args:
        adjacency: Of at most `MOST_IN_REGISTERS` clients.
        survivors: V0 to V4 of each round.
        thresholds: Shares that rebuild a client's secrets.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    from mrsa_jax._core.kernels import launch

    num_trials, clients, _ = adjacency.shape
    size = max(_BITS, pl.next_power_of_2(clients))

    def kernel(
        adjacency_ref: Any, survivors_ref: Any, thresholds_ref: Any, bytes_ref: Any
    ) -> None:
        trial, everybody = pl.program_id(0), pl.ds(0, size)
        is_client = jax.lax.iota(jnp.int32, size) < clients
        pairs = is_client[:, None] & is_client[None, :]
        edges = triton.load(
            adjacency_ref.at[trial, everybody, everybody], mask=pairs, other=False
        )
        alive = tuple(
            triton.load(
                survivors_ref.at[trial, row, everybody], mask=is_client, other=False
            )
            for row in map(jnp.int32, range(5))
        )
        limits = triton.load(
            thresholds_ref.at[everybody], mask=is_client, other=2**31 - 1
        )
        bytes_ref[trial] = _judged(edges, alive, limits)[0].astype(jnp.int32)

    shapes = [jax.ShapeDtypeStruct((num_trials,), jnp.int32)]
    (found,) = launch(
        "judge", kernel, (num_trials,), shapes, adjacency, survivors, thresholds
    )
    return found.astype(jnp.uint8)


def _judged(
    adjacency: _Graph, survivors: _Alive, thresholds: _Limits
) -> tuple[UInt8[Array, ""], Bool[Array, " n"], UInt32[Array, " words"]]:
    """Return a round's byte, whose needed secrets are lost, and the first one's component."""
    rows = _packed(adjacency)
    silent, lost = _silent_and_lost(rows, survivors, thresholds)
    found = _components(rows, survivors, silent)
    apart = found.parts > 1
    # 2 t <= |Adj| + 1, without a product that could overflow
    most = (_sizes(rows) + jnp.int32(1)) // jnp.int32(2)
    byte = _byte(
        (NO_SUM, _ends_without_a_sum(rows, survivors, thresholds)),
        (UNRELIABLE, _some(lost)),
        (NOT_PRIVATE, apart & found.leaks),
        (DISCONNECTED, apart),
        (UNMASKABLE, _some(thresholds <= most)),
    )
    return byte, lost, found.first


def _byte(*flags: tuple[int, Array]) -> Array:
    values = [flag.astype(jnp.uint8) * jnp.uint8(value) for value, flag in flags]
    return functools.reduce(jnp.bitwise_or, values)


def _some(
    flags: Bool[Array, "*lead n"], axis: int | None = None
) -> Bool[Array, "*lead"]:
    """Return whether a flag holds; kernels have no `any`."""
    return jnp.max(flags.astype(jnp.int32), axis=axis) > 0


def _packed(members: Bool[Array, "*sets n"]) -> UInt32[Array, "*sets words"]:
    """Return sets of clients as words, client i at bit i % 32 of word i // 32."""
    if members.shape[-1] % _BITS != 0:
        padding = [(0, 0)] * (members.ndim - 1) + [(0, -members.shape[-1] % _BITS)]
        members = jnp.pad(members, padding)
    lanes = members.reshape(*members.shape[:-1], -1, _BITS)
    place = jax.lax.broadcasted_iota(jnp.uint32, lanes.shape, members.ndim)
    return jnp.sum(lanes.astype(jnp.uint32) << place, axis=-1, dtype=jnp.uint32)


def _sizes(sets: UInt32[Array, "n words"]) -> Int32[Array, " n"]:
    return jnp.sum(
        jax.lax.population_count(sets.astype(jnp.int32)), axis=-1, dtype=jnp.int32
    )


def _joined(
    rows: UInt32[Array, "n words"], part: UInt32[Array, " words"]
) -> Bool[Array, " n"]:
    """Return who is joined to at least one of a set."""
    return _some((rows & part[None, :]) != jnp.uint32(0), axis=-1)


def _silent_and_lost(
    rows: UInt32[Array, "n words"], survivors: _Alive, thresholds: _Limits
) -> tuple[Bool[Array, " n"], Bool[Array, " n"]]:
    """Return who is not informative, and who of them is in V3+."""
    silent = _holders(rows, survivors[4]) < thresholds
    return silent, silent & (
        survivors[3] | (survivors[2] & _joined(rows, _packed(survivors[3])))
    )


def _ends_without_a_sum(
    rows: UInt32[Array, "n words"], survivors: _Alive, thresholds: _Limits
) -> Bool[Array, ""]:
    """Return whether the server learns no sum over all whose inputs it may sum.

    Clients refuse as `secagg._aggregator_state.heeded` says, so that the status is that
    of `aggregate`. Theorem 1 alone speaks of shares: it holds where nobody sent an
    input.
    """
    asked, shared = (_holders(rows, survivors[step]) for step in (1, 2))
    sends = survivors[3] & ((shared >= thresholds) | (asked < thresholds))
    answers = survivors[4] & sends & (_holders(rows, sends) >= thresholds)
    heeded = (*(survivors[step] for step in range(3)), sends, answers)
    lost = _silent_and_lost(rows, heeded, thresholds)[1]
    num_summed = jnp.sum(sends.astype(jnp.int32), dtype=jnp.int32)
    return (num_summed < jnp.int32(FEWEST_IN_A_SUM)) | _some(lost)


def _holders(
    rows: UInt32[Array, "n words"], here: Bool[Array, " n"]
) -> Int32[Array, " n"]:
    """Return how many of those who hold shares of each client's secrets are among `here`."""
    return _sizes(rows & _packed(here)[None, :]) + here.astype(jnp.int32)


class _Flood(NamedTuple):
    """Components as far as they are known, sets as words."""

    left: Array  # uint32[words], the living who are in no finished component
    part: Array  # uint32[words], of them, the component that grows
    parts: Array  # int32[], how many components are finished
    leaks: Array  # bool[], whether one of them had nobody silent in its C_l+
    first: Array  # uint32[words], the first finished component


def _components(
    rows: UInt32[Array, "n words"], survivors: _Alive, silent: Bool[Array, " n"]
) -> _Flood:
    """Return the components of G_3.

    One loop for all of them: a step adds the neighbours to the component that grows, or
    finishes it and begins the next. So there are at most 2 n steps; rounds side by side
    each continue at once, and not when the slowest of them has finished its component.
    """
    quiet, reachable = _packed(silent), _packed(survivors[2])
    none = jnp.uint32(0)

    def step(now: _Flood) -> _Flood:
        around = _packed(_joined(rows, now.part))
        grown = now.part | (around & now.left)
        is_whole = ~_some(grown != now.part)
        protected = _some((quiet & (now.part | (around & reachable))) != none)
        left = jnp.where(is_whole, now.left & ~now.part, now.left)
        return _Flood(
            left=left,
            part=jnp.where(is_whole, _first_of(left), grown),
            parts=now.parts + is_whole.astype(jnp.int32),
            leaks=now.leaks | (is_whole & ~protected),
            first=jnp.where(is_whole & (now.parts == 0), now.part, now.first),
        )

    everybody = _packed(survivors[3])
    nothing = jnp.zeros_like(everybody)
    start = _Flood(
        everybody, _first_of(everybody), jnp.int32(0), jnp.bool_(False), nothing
    )
    return jax.lax.while_loop(lambda now: _some(now.left != none), step, start)


def _first_of(members: UInt32[Array, " words"]) -> UInt32[Array, " words"]:
    """Return the set of the first member."""
    place = jnp.argmax((members != jnp.uint32(0)).astype(jnp.int32)).astype(jnp.int32)
    lowest = members & (~members + jnp.uint32(1))
    return jnp.where(
        jax.lax.iota(jnp.int32, members.shape[0]) == place, lowest, jnp.uint32(0)
    )
