"""First exposures as an array program: histories, primes and entries side by side.

The rows are brought to reduced row-echelon form mod p, each up to a factor, one round
after another and each in its place: e_i lies in the span of the first rounds exactly if
a multiple of it is one of their rows in the form. Such a row stays from then on, so
that the round which changed it last is the one in which it became one.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt8, UInt32

from mrsa_jax._core.batches import map_tiles
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.prime import Field, companion, scale, subtract, sum_residues
from mrsa_jax._core.programs import quick_for_little

# uint32 [primes, rounds, clients], each round's row in the form; int32 [primes,
# rounds], the round that changed it last
_Form = tuple[Array, Array]


@quick_for_little(lambda rows, *_: rows.size, static_argnames=("tile",))
def first_rounds(
    rows: UInt32[Array, "batch primes rounds clients"]
    | UInt8[Array, "batch 1 rounds clients"],
    of: Field,
    tile: int,
) -> Int32[Array, "batch clients"]:
    """Return the first exposures of histories, modulo the primes of `of`.

    Args:
        rows: Residues modulo each prime; one for all of them where they are 0 or 1.
        of: The fields, stacked.
        tile: Histories that go at once. One at a time leaves out the rounds that add
            nothing.
    """
    return map_tiles(
        functools.partial(_one_history, of=of, skips=tile == 1), rows, tile
    )


def joined(
    first: Int32[Array | np.ndarray, "*batch primes clients"],
    ranks: Int32[Array | np.ndarray, "*batch primes rounds"],
) -> Any:
    """Return the first round in which all primes of the largest rank expose a client.

    Args:
        first: The round of each prime's own verdict, the number of rounds where there
            is none.
        ranks: Of the first j + 1 rows modulo each prime.

    Returns:
        int32 `[*batch, clients]`, -1 where there is no such round.
    """
    library: Any = np if isinstance(first, np.ndarray) else jnp
    rounds = ranks.shape[-1]
    behind = ranks < library.max(ranks, axis=-2, keepdims=True)
    index = library.arange(rounds, dtype=np.int32).reshape(
        (1,) * first.ndim + (rounds,)
    )
    agreed = library.all((first[..., None] <= index) | behind[..., None, :], axis=-3)
    exposed_from = library.min(
        library.where(agreed, index[0], np.int32(rounds)), axis=-1
    )
    return library.where(exposed_from < np.int32(rounds), exposed_from, np.int32(-1))


def _one_history(rows: Array, *, of: Field, skips: bool) -> Int32[Array, " clients"]:
    primes = of.prime.shape[0]
    of = varying_like(of, rows)
    _, rounds, clients = rows.shape
    form = jnp.broadcast_to(rows.astype(jnp.uint32), (primes, rounds, clients))
    start = varying_like((form, jnp.zeros((primes, rounds), jnp.int32)), rows)
    step, steps = (_next_round, rounds) if skips else (_next_new, min(rounds, clients))
    form, changed = lax.fori_loop(0, steps, functools.partial(step, of=of), start)
    entries = form != 0
    count = jnp.sum(entries, axis=2, dtype=jnp.int32)
    is_unit = entries & (count == 1)[..., None]
    first = jnp.min(jnp.where(is_unit, changed[..., None], rounds), axis=1)
    return joined(first, jnp.cumsum(count > 0, axis=1, dtype=jnp.int32))


def _next_round(index: Array, form: _Form, *, of: Field) -> _Form:
    """Take a round into the form, if anything is left of its row."""
    # outside the branches: JAX cannot map one that spreads over a mesh what is the same
    # there
    places = varying_like(jnp.broadcast_to(index, of.prime.shape), form)
    is_due = varying_like(jnp.ones(of.prime.shape, jnp.bool_), form)

    def taken() -> _Form:
        steps = jax.vmap(_step)(form[0], places, is_due, of)
        # a separate branch, so that its factors are not computed again for each entry
        return lax.cond(
            jnp.any(steps.is_touched), lambda: _taken(form, steps, of), lambda: form
        )

    return lax.cond(jnp.any(form[0][:, index] != 0), taken, lambda: form)


def _next_new(count: Array, form: _Form, *, of: Field) -> _Form:
    """Take the next round of whose row anything is left, by each prime, into the form.

    The rows before it that are not zero are the form's, as many as its rank.
    """
    is_left = jnp.any(form[0] != 0, axis=2)
    is_next = is_left & (jnp.cumsum(is_left, axis=1, dtype=jnp.int32) == count + 1)
    places = jnp.argmax(is_next, axis=1).astype(jnp.int32)
    return _taken(
        form, jax.vmap(_step)(form[0], places, jnp.any(is_next, axis=1), of), of
    )


class _Step(NamedTuple):
    """The effect of one round on the rows of one prime.

    Attributes:
        row: uint32 [clients], what remains of it.
        head: uint32 [1, 2], its pivot and the companion; all other rows are multiplied
            by it.
        factors: uint32 [rounds, 2], of the row that is then taken from each, and the
            companions.
        is_touched: bool [rounds], which rows change by more than a factor.
        place: int32, the round.
    """

    row: Array
    head: Array
    factors: Array
    is_touched: Array
    place: Array


def _step(rows: Array, place: Array, is_due: Array, of: Field) -> _Step:
    row = lax.dynamic_index_in_dim(rows, place, 0, keepdims=False)
    pivot = jnp.argmax(row != 0)
    column = lax.dynamic_index_in_dim(rows, pivot, 1, keepdims=False)
    is_place = jnp.arange(column.shape[0], dtype=jnp.int32) == place
    is_new = is_due & (row[pivot] != 0)
    head = jnp.where(is_new, row[pivot], 1)[None]
    factors = jnp.where(is_new & ~is_place, column, 0)
    is_touched = is_new & (is_place | (column != 0))
    return _Step(
        row, _with_companion(head, of), _with_companion(factors, of), is_touched, place
    )


def _with_companion(factors: Array, of: Field) -> Array:
    return jnp.stack([factors, companion(factors, of)], axis=-1)


def _taken(form: _Form, steps: _Step, of: Field) -> _Form:
    """Clear the pivot of a round's row from all others.

    Without a division: whether an entry is zero does not depend on its row's scale.
    """
    rows, changed = form

    def cleared(rows: Array, step: _Step, of: Field) -> Array:
        scaled = scale(rows, step.head[:, :1], step.head[:, 1:], of)
        taken = scale(step.row[None, :], step.factors[:, :1], step.factors[:, 1:], of)
        return subtract(scaled, taken, of)

    changed = jnp.where(steps.is_touched, steps.place[:, None], changed)
    return jax.vmap(cleared)(rows, steps, of), changed


# The same on an NVIDIA GPU: one kernel, a program for each history and prime.
#
# The form is that of the array program, with a row for each client instead of one for
# each round: the row whose pivot is the client's column, zero until there is one. It
# stays in registers while the program goes through the rounds, so that a round is read
# once and nothing is written until the end.

_FEWEST_CLIENTS = 16
# 32 registers a thread for the form; as many again for a round's steps
_ENTRIES_A_WARP = 1024

# uint32 [width, width]; int32 [width], the round that changed a row last; int32, the
# rank
_Held = tuple[Array, Array, Array]


@jax.jit
def first_rounds_by_kernel(
    rows: UInt32[Array, "batch primes rounds clients"]
    | UInt8[Array, "batch 1 rounds clients"],
    of: Field,
) -> Int32[Array, "batch clients"]:
    """Return the first exposures of histories, as `first_rounds`.

    Args:
        rows: As there; of clients whose form fits into registers.
        of: The fields, stacked.
    """
    from mrsa_jax._core.kernels import launch

    batch, kinds, rounds, clients = rows.shape
    primes = of.prime.shape[0]
    width = max(_FEWEST_CLIENTS, 1 << (clients - 1).bit_length())
    rows = jnp.pad(rows, ((0, 0), (0, 0), (0, 0), (0, width - clients)))
    first, ranks = launch(
        "first_exposure",
        functools.partial(_one_kernel, rounds=rounds, is_shared=kinds == 1),
        (batch, primes),
        [
            jax.ShapeDtypeStruct((batch, primes, size), jnp.int32)
            for size in (width, rounds)
        ],
        rows,
        of.prime,
        of.reciprocal,
        num_warps=max(1, width * width // _ENTRIES_A_WARP),
    )
    return joined(first[:, :, :clients], ranks)


def _one_kernel(
    rows: Any,
    primes: Any,
    reciprocals: Any,
    first: Any,
    ranks: Any,
    *,
    rounds: int,
    is_shared: bool,
) -> None:
    from jax.experimental import pallas as pl

    history, which = pl.program_id(0), pl.program_id(1)
    width = first.shape[2]
    of = Field(primes[which], reciprocals[which], jnp.int32(0))
    kind = 0 if is_shared else which
    client = lax.broadcasted_iota(jnp.int32, (width,), 0)

    def one_round(index: Array, form: _Held) -> _Held:
        row = rows[history, kind, index, :].astype(jnp.uint32)
        rest = _rest(form[0], row, of, is_binary=is_shared)
        pivot = jnp.min(jnp.where(rest != 0, client, width))
        is_pivot = client == pivot  # none where nothing is left
        is_new = pivot < width
        form = lax.cond(
            is_new, lambda: _with_row(form, rest, is_pivot, index, of), lambda: form
        )
        ranks[history, which, index] = form[2]
        return form

    start = (
        jnp.zeros((width, width), jnp.uint32),
        jnp.zeros(width, jnp.int32),
        jnp.int32(0),
    )
    form, changed, _ = lax.fori_loop(0, rounds, one_round, start)
    count = jnp.sum((form != 0).astype(jnp.int32), axis=1)
    first[history, which, :] = jnp.where(count == 1, changed, rounds)


def _rest(form: Array, row: Array, of: Field, *, is_binary: bool) -> Array:
    """Subtract the part of a row that lies in the form's space."""
    held = row[:, None]
    if is_binary:
        products = jnp.where(held != 0, form, 0)
    else:
        products = scale(form, held, companion(row, of)[:, None], of)
    return subtract(row, sum_residues(products, of, axis=0), of)


def _with_row(
    form: _Held, rest: Array, is_pivot: Array, index: Array, of: Field
) -> _Held:
    """Return the form with one more row, whose pivot is in its own column."""
    rows, changed, rank = form
    head = jnp.sum(jnp.where(is_pivot, rest, 0))
    leading = _inverse(head, of)
    unit = scale(rest, leading, companion(leading, of), of)
    column = jnp.sum(jnp.where(is_pivot[None, :], rows, 0), axis=1)
    step = scale(unit[None, :], column[:, None], companion(column, of)[:, None], of)
    rows = jnp.where(is_pivot[:, None], unit[None, :], subtract(rows, step, of))
    changed = jnp.where(is_pivot | (column != 0), index, changed)
    return rows, changed, rank + 1


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
    factor = lax.while_loop(lambda state: state[1] != 0, divided, start)[2]
    return jnp.minimum(factor, factor + of.prime)
