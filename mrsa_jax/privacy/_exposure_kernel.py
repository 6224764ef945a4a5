"""First exposures on an NVIDIA GPU: one kernel, a program for each history and prime.

The form is that of `_exposure_xla`, with a row for each client instead of one for each round: the
row whose pivot is the client's column, zero until there is one. It stays in registers while the
program goes through the rounds, so that a round is read once and nothing is written until the end.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Int32, UInt8, UInt32

from mrsa_jax._core.kernels import launch
from mrsa_jax._core.prime import Field, companion, scale, subtract, sum_residues
from mrsa_jax.privacy._exposure_xla import joined

_FEWEST_CLIENTS = 16
_ENTRIES_A_WARP = 1024  # 32 registers a thread for the form; as many again for a round's steps

# uint32 [width, width]; int32 [width], the round that changed a row last; int32, the rank
_Form = tuple[Array, Array, Array]


@jax.jit
def first_rounds(
    rows: UInt32[Array, "batch primes rounds clients"] | UInt8[Array, "batch 1 rounds clients"],
    of: Field,
) -> Int32[Array, "batch clients"]:
    """Return the first exposures of histories, as `_exposure_xla.first_rounds`.

    Args:
        rows: As there; of clients whose form fits into registers.
        of: The fields, stacked.
    """
    batch, kinds, rounds, clients = rows.shape
    primes = of.prime.shape[0]
    width = max(_FEWEST_CLIENTS, 1 << (clients - 1).bit_length())
    rows = jnp.pad(rows, ((0, 0), (0, 0), (0, 0), (0, width - clients)))
    first, ranks = launch(
        "first_exposure",
        functools.partial(_one_form, rounds=rounds, is_shared=kinds == 1),
        (batch, primes),
        [jax.ShapeDtypeStruct((batch, primes, size), jnp.int32) for size in (width, rounds)],
        rows,
        of.prime,
        of.reciprocal,
        num_warps=max(1, width * width // _ENTRIES_A_WARP),
    )
    return joined(first[:, :, :clients], ranks)


def _one_form(
    rows: Any,
    primes: Any,
    reciprocals: Any,
    first: Any,
    ranks: Any,
    *,
    rounds: int,
    is_shared: bool,
) -> None:
    history, which = pl.program_id(0), pl.program_id(1)
    width = first.shape[2]
    of = Field(primes[which], reciprocals[which], jnp.int32(0))
    kind = 0 if is_shared else which
    client = lax.broadcasted_iota(jnp.int32, (width,), 0)

    def one_round(index: Array, form: _Form) -> _Form:
        row = rows[history, kind, index, :].astype(jnp.uint32)
        rest = _rest(form[0], row, of, is_binary=is_shared)
        pivot = jnp.min(jnp.where(rest != jnp.uint32(0), client, jnp.int32(width)))
        own = client == pivot  # none where nothing is left
        is_new = pivot < jnp.int32(width)
        form = lax.cond(is_new, lambda: _with_row(form, rest, own, index, of), lambda: form)
        ranks[history, which, index] = form[2]
        return form

    start = (jnp.zeros((width, width), jnp.uint32), jnp.zeros(width, jnp.int32), jnp.int32(0))
    form, changed, _ = lax.fori_loop(0, rounds, one_round, start)
    count = jnp.sum((form != jnp.uint32(0)).astype(jnp.int32), axis=1)
    first[history, which, :] = jnp.where(count == jnp.int32(1), changed, jnp.int32(rounds))


def _rest(form: Array, row: Array, of: Field, *, is_binary: bool) -> Array:
    """Return what a form leaves of a row."""
    held = row[:, None]
    if is_binary:
        products = jnp.where(held != jnp.uint32(0), form, jnp.uint32(0))
    else:
        products = scale(form, held, companion(row, of)[:, None], of)
    return subtract(row, sum_residues(products, of, axis=0), of)


def _with_row(form: _Form, rest: Array, own: Array, index: Array, of: Field) -> _Form:
    """Return the form of the row space with one more row, whose pivot is in its own column."""
    rows, changed, rank = form
    head = jnp.sum(jnp.where(own, rest, jnp.uint32(0)))
    leading = _inverse(head, of)
    unit = scale(rest, leading, companion(leading, of), of)
    column = jnp.sum(jnp.where(own[None, :], rows, jnp.uint32(0)), axis=1)
    step = scale(unit[None, :], column[:, None], companion(column, of)[:, None], of)
    rows = jnp.where(own[:, None], unit[None, :], subtract(rows, step, of))
    changed = jnp.where(own | (column != jnp.uint32(0)), index, changed)
    return rows, changed, rank + jnp.int32(1)


def _inverse(value: Array, of: Field) -> Array:
    """Return the inverse of a residue that is not zero, by Euclid's algorithm.

    A power would take sixty products one after another, while all other threads wait.
    """

    def divided(state: tuple[Array, ...]) -> tuple[Array, ...]:
        high, low, before, now = state
        quotient = lax.div(high, low)
        # the signs alternate; kept modulo 2**32, of numbers below p
        return low, high - quotient * low, now, before - quotient * now

    start: tuple[Array, ...] = (of.prime, value, jnp.uint32(0), jnp.uint32(1))
    found = lax.while_loop(lambda state: state[1] != jnp.uint32(0), divided, start)[2]
    return jnp.minimum(found, found + of.prime)
