"""Which clients' own updates the server can solve for, and from which round on.

Client i is exposed after round j if its unit vector e_i lies in the row space of rows 0..j of
the participation matrix P: some combination of the learnt sums is its update alone (weak
privacy T = 1 of Multi-RoundSecAgg, Remark 1).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt32

from mrsa_jax._errors import require
from mrsa_jax.modular._inputs import residues
from mrsa_jax.modular._linalg import decide, minor_bits, rank_trajectory
from mrsa_jax.modular._prime import (
    PRIMES,
    Field,
    companion,
    draw_primes,
    enough_primes,
    fields,
    inverse,
    scale,
    subtract,
    sum_residues,
)
from mrsa_jax.privacy._groups import column_codes
from mrsa_jax.privacy._history import as_history

__all__ = ["first_exposure"]

_MOST_ROWS = 2**16  # of a form: `sum_residues` adds no more


def first_exposure(P: Any) -> Int32[Array, "... clients"]:
    """Return the round from which on the server can solve for each client's own update.

    The definition is over the rationals: the smallest j with e_i in the row space of rows 0..j,
    for updates that stay the same over the rounds. Computed online modulo 31-bit primes that are
    drawn for the call and must agree: wrong anywhere in a history with error chance below 2**-30,
    whatever it was made for (`weak_privacy` proves what its effort allows). Never in floating
    point, which errs near full rank.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a row for
            each sum that the server learnt, skipped rounds being zero rows.

    Returns:
        int32 `[..., clients]`; -1 for a client that is never exposed (clients that never took
        part among them). Under `jit`, where P is not known, two primes that never change decide: a
        P made of their products deceives them.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or P has fewer than two axes or an
            empty one, or more than 65,536 both of rounds and of clients.

    Examples:
        >>> first_exposure([[1, 1, 0], [0, 0, 0], [0, 1, 0]]).tolist()
        [2, 2, -1]

    Cost: four products mod p for each round that raises the rank, and entry of a basis of the row
    space, min(J, N) x N; memory is that of a few such bases. Nothing where no column differs from
    all others, as with whole blocks.

    Source:
        Multi-RoundSecAgg, Remark 1 and Section 6 (least-squares reconstruction).
    """
    array = as_history(P)
    rule = f"must have at most {_MOST_ROWS} rounds or clients"
    require(min(array.shape[-2:]) <= _MOST_ROWS, "P", rule, array.shape)
    if not isinstance(array, jax.core.Tracer):
        return jnp.asarray(_of_values(np.asarray(array)))
    return _of_all_rows(array)


def _of_all_rows(array: np.ndarray | Array) -> Int32[Array, "... clients"]:
    """Return the first exposures from every row, of values that need not be known."""
    batch = (-1, *array.shape[-2:])
    primes: tuple[int, ...] = PRIMES
    if not isinstance(array, jax.core.Tracer):
        # with the ranks, decided before, all of a history stays below the chance that is stated
        cases = 4 * array.shape[-1]
        primes = draw_primes(enough_primes(minor_bits(np.asarray(array)), cases))
    rows = [residues(array, prime).reshape(batch) for prime in primes]
    found = _first_exposure(jnp.stack(rows, axis=1), fields(primes), _is_binary(array))
    return found.reshape(*array.shape[:-2], array.shape[-1])


def _of_values(array: np.ndarray) -> np.ndarray:
    """Return the first exposures of known values, leaving out what cannot change the answer.

    Clients with the same column are never told apart, so a history in which nobody's differs from
    all others' exposes nobody; and a row that lies in the space of those before it adds nothing.
    """
    rounds, clients = array.shape[-2:]
    histories = array.reshape(-1, rounds, clients)
    found = np.full((len(histories), clients), -1, np.int32)
    own = np.flatnonzero([_has_single_column(history) for history in histories])
    if own.size == 0:
        return found.reshape(*array.shape[:-2], clients)
    found[own] = _of_open(histories[own])
    return found.reshape(*array.shape[:-2], clients)


def _of_open(histories: np.ndarray) -> np.ndarray:
    """Return the first exposures of histories that may expose somebody."""
    count, rounds, clients = histories.shape
    # few sizes of batches, as each is compiled
    padding = min(2 ** (count - 1).bit_length(), -(-count // 64) * 64) - count
    histories = np.concatenate([histories, histories[:1].repeat(padding, axis=0)])
    if rounds <= clients:
        return np.asarray(_of_all_rows(histories))[:count]
    ranks = np.asarray(rank_trajectory(histories))
    grows = np.diff(ranks, axis=1, prepend=0) > 0
    # the rounds that raise the rank, in order, then some others, which are left empty
    chosen = np.argsort(~grows, axis=1, kind="stable")[:, :clients]
    rows = np.take_along_axis(histories, chosen[..., None], axis=1)
    rows = rows * np.take_along_axis(grows, chosen, axis=1)[..., None].astype(rows.dtype)
    first = np.asarray(_of_all_rows(rows))
    rounds_of = np.take_along_axis(chosen, np.maximum(first, 0), axis=1)
    return np.where(first >= 0, rounds_of, -1)[:count]


def _has_single_column(history: np.ndarray) -> bool:
    """Return whether some client who took part has a column that no other has."""
    took_part = (history != 0).any(axis=0)
    _, sizes = np.unique(column_codes(history)[took_part], return_counts=True)
    return bool((sizes == 1).any())


def _is_binary(array: np.ndarray | Array) -> bool:
    """Return whether all entries are surely 0 or 1; True makes the elimination cheaper."""
    if array.dtype == np.bool_:
        return True
    return isinstance(array, np.ndarray) and bool(((array == 0) | (array == 1)).all())


@functools.partial(jax.jit, static_argnames=("binary",))
def _first_exposure(
    rows: UInt32[Array, "batch primes rounds clients"], of: Field, binary: bool
) -> Int32[Array, "batch clients"]:
    return lax.map(functools.partial(_one_history, of=of, binary=binary), rows)


def _one_history(
    rows: UInt32[Array, "primes rounds clients"], *, of: Field, binary: bool
) -> Int32[Array, " clients"]:
    primes, rounds, clients = rows.shape
    most = min(rounds, clients)

    def one_round(
        carry: tuple[_Form, Array], step: tuple[Array, Array]
    ) -> tuple[tuple[_Form, Array], None]:
        form, first = carry
        index, row = step
        form = jax.vmap(functools.partial(_with_row, binary=binary))(form, row, of)
        is_unit = jnp.sum(form.rows != jnp.uint32(0), axis=2, dtype=jnp.int32) == jnp.int32(1)
        alone = jnp.zeros((primes, clients), jnp.bool_)
        alone = alone.at[jnp.arange(primes)[:, None], form.pivots].max(is_unit)
        exposed = decide(form.rank[:, None], alone)
        first = jnp.where(exposed & (first < jnp.int32(0)), index, first)
        return (form, first), None

    start = _Form(
        jnp.zeros((primes, most, clients), jnp.uint32),
        jnp.zeros((primes, most), jnp.int32),
        jnp.zeros(primes, jnp.int32),
    )
    never = jnp.full(clients, -1, jnp.int32)
    steps = (jnp.arange(rounds, dtype=jnp.int32), rows.swapaxes(0, 1))
    return lax.scan(one_round, (start, never), steps)[0][1]


class _Form(NamedTuple):
    """A reduced row-echelon form mod p: e_i lies in the row space exactly if it is one of its rows.

    Attributes:
        rows: uint32[most, clients]; from the rank on all zero.
        pivots: int32[most], the column in which a row has its 1 and all others have 0.
        rank: int32.
    """

    rows: Array
    pivots: Array
    rank: Array


def _with_row(form: _Form, row: UInt32[Array, " clients"], of: Field, *, binary: bool) -> _Form:
    """Return the form of the row space with one more row."""
    held = row[form.pivots]
    if binary:
        products = jnp.where(held[:, None] != jnp.uint32(0), form.rows, jnp.uint32(0))
    else:
        products = scale(form.rows, held[:, None], companion(held, of)[:, None], of)
    rest = subtract(row, sum_residues(products, of, axis=0), of)
    pivot = jnp.argmax(rest != jnp.uint32(0)).astype(jnp.int32)
    grew = rest[pivot] != jnp.uint32(0)
    leading = inverse(rest[pivot][None], of)
    unit = scale(rest, leading, companion(leading, of), of)
    column = form.rows[:, pivot]
    step = scale(unit[None, :], column[:, None], companion(column, of)[:, None], of)
    # a full form grows no more: what is out of range is written nowhere
    place = jnp.where(grew, form.rank, jnp.int32(form.pivots.shape[0]))
    return _Form(
        subtract(form.rows, step, of).at[place].set(unit, mode="drop"),
        form.pivots.at[place].set(pivot, mode="drop"),
        form.rank + grew.astype(jnp.int32),
    )
