"""Which clients' own updates the server can solve for, and from which round on.

Client i is exposed after round j if its unit vector e_i lies in the row space of rows 0..j of
the participation matrix P: some combination of the learnt sums is its update alone (weak
privacy T = 1 of Multi-RoundSecAgg, Remark 1).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt32

from mrsa_jax.modular._inputs import as_integers, residues
from mrsa_jax.modular._linalg import decide, kernel_step, rank_trajectory
from mrsa_jax.modular._prime import PRIMES, fields
from mrsa_jax.privacy._groups import column_codes

__all__ = ["first_exposure"]


def first_exposure(P: Any) -> Int32[Array, "... clients"]:
    """Return the round from which on the server can solve for each client's own update.

    The definition is over the rationals: the smallest j with e_i in the row space of rows 0..j,
    for updates that stay the same over the rounds. Computed online modulo two 31-bit primes
    that must agree (`modular.is_in_row_space`), never in floating point, which errs near full
    rank.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a row for
            each sum that the server learnt, skipped rounds being zero rows.

    Returns:
        int32 `[..., clients]`; -1 for a client that is never exposed (clients that never took
        part among them).

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or P has fewer than two axes or an
            empty one.

    Examples:
        >>> first_exposure([[1, 1, 0], [0, 0, 0], [0, 1, 0]]).tolist()
        [2, 2, -1]

    Cost: four products mod p for each round that raises the rank, at most N, and entry of an
    N x N basis; nothing where no column differs from all others, as with whole blocks.

    Source:
        Multi-RoundSecAgg, Remark 1 and Section 6 (least-squares reconstruction).
    """
    array = as_integers(P, "P")
    if not isinstance(array, jax.core.Tracer):
        return jnp.asarray(_of_values(np.asarray(array)))
    return _of_all_rows(array)


def _of_all_rows(array: np.ndarray | Array) -> Int32[Array, "... clients"]:
    """Return the first exposures from every row, of values that need not be known."""
    batch = (-1, *array.shape[-2:])
    rows = [residues(array, prime).reshape(batch) for prime in PRIMES]
    found = _first_exposure(jnp.stack(rows, axis=1), _is_binary(array))
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
    rows: UInt32[Array, "batch primes rounds clients"], binary: bool
) -> Int32[Array, "batch clients"]:
    return lax.map(functools.partial(_one_history, binary=binary), rows)


def _one_history(
    rows: UInt32[Array, "primes rounds clients"], *, binary: bool
) -> Int32[Array, " clients"]:
    primes, rounds, clients = rows.shape
    of = fields()
    basis = jnp.broadcast_to(jnp.eye(clients, dtype=jnp.uint32), (primes, clients, clients))

    def one_round(
        carry: tuple[Array, Array, Array], step: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array, Array], None]:
        kernels, ranks, first = carry
        index, row = step
        kernels, grew = jax.vmap(functools.partial(kernel_step, binary=binary))(kernels, row, of)
        ranks = ranks + grew.astype(jnp.int32)
        isolated = jnp.all(kernels == jnp.uint32(0), axis=1)
        exposed = decide(ranks[0], ranks[1], isolated[0], isolated[1])
        first = jnp.where(exposed & (first < jnp.int32(0)), index, first)
        return (kernels, ranks, first), None

    start = (basis, jnp.zeros(primes, jnp.int32), jnp.full(clients, -1, jnp.int32))
    steps = (jnp.arange(rounds, dtype=jnp.int32), rows.swapaxes(0, 1))
    return lax.scan(one_round, start, steps)[0][2]
