"""First exposures: from which round the server can solve for a client's update.

Client i is exposed after round j if its unit vector e_i lies in the row space of rows
0..j of the participation matrix P: some combination of the learnt sums is its update
alone (weak privacy T = 1 of Multi-RoundSecAgg, Remark 1).

Histories of many more clients than rounds come first, by their Gram matrix; all others
follow, by elimination.
"""

from __future__ import annotations

import functools
import secrets
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once, within_memory
from mrsa_jax._core.forms import chosen_form, forced_form
from mrsa_jax._core.prime import PRIMES, fields, host_residues, minor_bits, residues
from mrsa_jax._core.programs import LITTLE
from mrsa_jax._core.threads import over_ranges
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._coalitions import without
from mrsa_jax.privacy._exposure_programs import (
    first_rounds,
    first_rounds_by_kernel,
    joined,
)
from mrsa_jax.privacy.solver import column_codes, reduced_echelon, residues_of
from mrsa_watch._base.primes import draw_primes, enough_primes

# First exposures in a history of many more clients than rounds, from its Gram matrix.
#
# With G = P P^T, a random vector w less P^T G^-1 P w is a random vector of P's kernel.
# It is zero at client i if e_i lies in the row space, and otherwise, modulo a prime, by
# an accident of chance 1/p. So a few vectors sort out everybody but the exposed, of
# whom there are no more than rounds; their combinations z = G^-1 p_i then tell the last
# round that they need. Everything is decided modulo primes that are drawn for the call.

# of the kernel for each prime: chance 2**-60 that a client is zero in both
_VECTORS = 2
_LIMB = 16
# of a triangular product at a time: what lies above the diagonal is not multiplied
ROWS = 256


def fits(history: np.ndarray) -> bool:
    """Return whether sums over clients of products with 16-bit numbers are exact."""
    if history.dtype == object:
        return False
    largest = 1
    if history.dtype != np.bool_:
        largest = max(int(history.max()), -int(history.min()))
    return history.shape[1] * largest * max(largest, 1 << _LIMB) < 1 << 53


def parts_of(history: np.ndarray) -> tuple[list[slice], int]:
    """Cut the columns into pieces of one size, the last one perhaps shorter."""
    rounds, clients = history.shape
    size = min(clients, at_once("columns", 8 * rounds))
    return [slice(start, start + size) for start in range(0, clients, size)], size


def gram_of(history: np.ndarray) -> np.ndarray:
    """Return P P^T, float64 `[rounds, rounds]`, exact below 2^53."""
    parts, width = parts_of(history)
    # counts of a piece stay below 2^24
    kind = np.float32 if _is_binary(history) and width < 1 << 24 else np.float64
    with jax.enable_x64(True):
        total = jnp.zeros((len(history),) * 2, jnp.float64)
        for part in parts:
            total = _add_gram(total, piece(history, part, width, kind))
        lower = np.tril(np.asarray(total))
    return lower + np.tril(lower, -1).T


def piece(
    history: np.ndarray, part: slice, width: int, kind: type[np.floating]
) -> Array:
    """Return some of the columns, filled up with zeros to one width."""
    columns = history[:, part]
    if columns.dtype == object:
        columns = columns.astype(np.float64)
    missing = width - columns.shape[1]
    return on_device(np.pad(columns, ((0, 0), (0, missing)))).astype(kind)


@functools.partial(jax.jit, donate_argnums=0)
def _add_gram(total: Array, part: Array) -> Array:
    """Add the part's products of rows with earlier rows, in blocks of rows."""
    for start in range(0, len(part), ROWS):
        products = jnp.matmul(
            part[start : start + ROWS],
            part[: start + ROWS].T,
            precision=lax.Precision.HIGHEST,
        )
        total = total.at[start : start + ROWS, : start + ROWS].add(
            products.astype(total.dtype)
        )
    return total


def first_of_wide(history: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Return the first exposure of each client, int64 `[clients]`, -1 for never.

    Args:
        history: Integers that `fits`.
        gram: `gram_of` it.
    """
    clients = history.shape[1]
    gram = gram.astype(np.int64)
    # rows of P are independent exactly where those of P P^T are
    basis = np.flatnonzero(np.diff(np.asarray(rank_trajectory(gram)), prepend=0) > 0)
    gram = gram[np.ix_(basis, basis)]
    rows = history if len(basis) == len(history) else history[basis]
    primes = draw_primes(enough_primes(2 * minor_bits(history), 4 * clients))
    rng = np.random.default_rng(secrets.randbits(128))
    parts, _ = parts_of(history)
    is_suspect = np.ones(clients, np.bool_)
    # where G is singular modulo a prime, that one says nothing
    for prime in primes:
        vectors = rng.integers(0, prime, (clients, _VECTORS))
        mixed = sum(_times(rows[:, part], vectors[part], prime) for part in parts)
        image = _solve(gram, np.asarray(mixed), prime)
        if image is None:
            continue
        for part in parts:
            explained = _times(rows[:, part].T, image, prime) == vectors[part]
            is_suspect[part] &= explained.all(axis=1)
    suspects = np.flatnonzero(is_suspect)
    exposed_from = np.full(clients, -1)
    for prime in primes if len(suspects) else ():
        combinations = _solve(gram, rows[:, suspects], prime)
        if combinations is not None:
            last = len(basis) - 1 - (combinations != 0)[::-1].argmax(axis=0)
            exposed_from[suspects] = np.maximum(exposed_from[suspects], basis[last])
    return exposed_from


def _solve(gram: np.ndarray, right: np.ndarray, prime: int) -> np.ndarray | None:
    """Return G^-1 times some columns modulo a prime, int64.

    None where G is singular modulo it.
    """
    system = np.concatenate(
        [residues_of(gram, prime), residues_of(right, prime)], axis=1
    )
    form, pivots = reduced_echelon(system, prime)
    if len(pivots) < len(gram) or (pivots[: len(gram)] != np.arange(len(gram))).any():
        return None
    return form[:, len(gram) :].astype(np.int64)


def _times(rows: np.ndarray, factors: np.ndarray, prime: int) -> np.ndarray:
    """Return rows @ factors modulo a prime: products of floats, exact by halves."""
    exact = rows.astype(np.float64)
    low, high = (
        (exact @ half.astype(np.float64)).astype(np.int64) % prime
        for half in (factors & 0xFFFF, factors >> _LIMB)
    )
    return (low + (high << _LIMB)) % prime


# In flight for each entry of a history and prime: residues before and after a round.
_BYTES_AN_ENTRY = 8
# From so many entries on, a history of many more clients than rounds goes by its Gram
# matrix.
_WIDE = 2**22
# of a kernel: a form of this many rows of words is a quarter of a processor's registers
MOST_CLIENTS = 128


def first_exposure(P: Any, *, coalition: Any = ()) -> Int32[Array, "... clients"]:
    """Return the round from which on the server can solve for each client's own update.

    The definition is over the rationals: the smallest j with e_i in the row space of
    rows 0..j, for updates that stay the same over the rounds. Computed online modulo
    31-bit primes that are drawn for the call and must agree: wrong anywhere in a
    history with error chance below 2**-30, whatever it was made for (`weak_privacy`
    proves what its effort allows). Never in floating point, which errs near full rank.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a
            row for each sum that the server learnt, skipped rounds being zero rows.
        coalition: Indices of clients who reveal their updates to the server, known and
            not all: they count as if they had taken no part.

    Returns:
        int32 `[..., clients]`; -1 for a client that is never exposed (members of the
        coalition and clients that never took part among them). Under `jit`, where P is
        not known, two primes that never change decide: a P made of their products
        deceives them.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or P has fewer than two
            axes or an empty one; if a coalition is none; if the device's memory does
            not hold one history.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.privacy.first_exposure([[1, 1, 0], [0, 0, 0], [0, 1, 0]]).tolist()
        [2, 2, -1]
        >>> mj.privacy.first_exposure([[1, 1, 0], [0, 1, 1]], coalition=[2]).tolist()
        [1, 1, -1]

    Cost: two products mod p for each round that raises the rank and each entry of P;
    memory is that of a few such histories. Much less for large histories of more than
    twice as many clients as rounds, whose Gram matrix is eliminated. Nothing where no
    column of a NumPy array differs from all others, as with whole blocks.

    Source:
        Multi-RoundSecAgg, Remark 1 and Section 6 (least-squares reconstruction).
    """
    array = without(P, coalition)
    histories = array.reshape((-1, *array.shape[-2:]))
    # numba takes longer to import than XLA to compile a program for little
    is_little = (
        histories.size <= LITTLE
        and "numba" not in sys.modules
        and forced_form() is None
    )
    has_loops = not is_little and chosen_form(("loops", "xla"), histories) == "loops"
    if has_loops or isinstance(histories, np.ndarray):
        exposed_from: np.ndarray | Array = _of_values(np.asarray(histories), has_loops)
    else:
        exposed_from = _of_all_rows(histories)
    return on_device(exposed_from.reshape((*array.shape[:-2], array.shape[-1])))


def _of_values(histories: np.ndarray, has_loops: bool) -> np.ndarray:
    """Return the first exposures in the host's histories.

    Histories that cannot expose a client are left out.

    Clients with the same column are never told apart, so a history in which nobody's
    differs from all others' exposes nobody.
    """
    count, rounds, clients = histories.shape
    is_wide = clients > 2 * rounds and rounds * clients >= _WIDE and has_loops
    if is_wide and fits(histories):
        each = [first_of_wide(history, gram_of(history)) for history in histories]
        return np.stack(each).astype(np.int32)
    # of classes of equal columns, 0 where all is 0
    names = np.zeros((count, clients), np.int32)
    for classes, history in zip(names, histories, strict=True):
        part = np.flatnonzero((history != 0).any(axis=0))
        classes[part] = (
            np.unique(column_codes(history)[part], return_inverse=True)[1] + 1
        )
    due = np.array([(np.bincount(classes)[1:] == 1).any() for classes in names])
    exposed_from = np.full((count, clients), -1, np.int32)
    if due.any():
        part = histories if due.all() else histories[due]
        exposed_from[due] = (
            _of_classes(part, names[due]) if has_loops else _of_all_rows(part)
        )
    return exposed_from


def _of_classes(histories: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return the first exposures by compiled loops over classes of equal columns."""
    count, rounds, clients = histories.shape
    primes = draw_primes(enough_primes(minor_bits(histories), 4 * clients))
    distinct = np.repeat(names.max(axis=1, keepdims=True), rounds, axis=1)
    ranks, first, is_proven = (
        np.empty_like(distinct),
        np.empty_like(names),
        np.zeros(count, bool),
    )

    def part(some: slice) -> None:
        own = (each[some] for each in (names, distinct, ranks, first, is_proven))
        follow(histories[some], primes, *own)

    over_ranges("summaries", part, count)
    return first


def follow(
    histories: np.ndarray,
    primes: Sequence[int],
    names: np.ndarray,
    distinct: np.ndarray,
    ranks: np.ndarray,
    first: np.ndarray,
    is_proven: np.ndarray,
) -> None:
    """Fill ranks and first exposures, by as many primes as it takes to prove them.

    What all of them do not prove is what those of the largest rank agree on. The
    arguments are those of `_summary_loops.follow_trials`; histories that are proven
    from the start stay as they are.
    """
    from mrsa_jax.privacy._summary_loops import follow_trials

    is_binary = histories.dtype == np.bool_
    # one type, to be compiled once
    rows = np.require(histories, requirements=["C", "W"])
    tried = []
    for prime in primes:
        if is_proven.all():
            return
        unit = np.uint32(2**32 % prime)
        if not is_binary:
            wide = (
                host_residues(histories, prime, np.uint64)
                * np.uint64(unit)
                % np.uint64(prime)
            )
            rows = np.ascontiguousarray(wide, np.uint32)
        field = unit, np.uint32(prime), np.uint32(2**32 - pow(prime, -1, 2**32))
        scale = unit if is_binary else np.uint32(1)
        follow_trials(rows, scale, names, distinct, *field, ranks, first, is_proven)
        # of weights the prime may divide all in a row, which then is none
        is_proven &= is_binary
        tried.append(
            (ranks.copy(), np.where(first < 0, np.int32(histories.shape[1]), first))
        )
    is_open = ~is_proven
    of_ranks, of_first = (
        np.stack([own[is_open] for own in kind], axis=1)
        for kind in zip(*tried, strict=True)
    )
    ranks[is_open], first[is_open] = of_ranks.max(axis=1), joined(of_first, of_ranks)


def _of_all_rows(histories: np.ndarray | Array) -> np.ndarray | Array:
    """Return the first exposures from every row, of values that need not be known."""
    count, rounds, clients = histories.shape
    if is_traced(histories):
        return _first(histories, PRIMES, lambda run, tile: run(tile))
    # with the ranks, decided before, all of a history stays below the chance that is
    # stated
    primes = draw_primes(enough_primes(minor_bits(histories), 4 * clients))
    # few sizes of batches, as each is compiled
    padding = min(2 ** (count - 1).bit_length(), -(-count // 64) * 64) - count
    library: Any = np if isinstance(histories, np.ndarray) else jnp
    padded = library.pad(histories, ((0, padding), (0, 0), (0, 0)))
    what = (
        f"first exposures in {count} histories of {rounds} rounds and {clients} clients"
    )

    def in_memory(run: Any, tile: int) -> Array:
        return within_memory(
            lambda size: jax.block_until_ready(run(size)), tile, "P", what
        )

    return np.asarray(_first(padded, primes, in_memory))[:count]


def _first(histories: np.ndarray | Array, primes: tuple[int, ...], call: Any) -> Array:
    """Return `call` of the device's program, and of how many histories go at once."""
    _, rounds, clients = histories.shape
    if _is_binary(histories):
        rows = on_device(histories[:, None], jnp.uint8)
    else:
        rows = jnp.stack([residues(histories, prime) for prime in primes], axis=1)
    of = fields(primes)
    # one elimination, one row at a time, in two forms, both in `_exposure_programs`;
    # `first_of_wide` does without it where clients are many and rounds few
    if chosen_form(("xla", "pallas")) == "pallas" and clients <= MOST_CLIENTS:
        return call(lambda _: first_rounds_by_kernel(rows, of), 1)
    tile = at_once("eliminations", _BYTES_AN_ENTRY * len(primes) * rounds * clients)
    return call(lambda size: first_rounds(rows, of, size), tile)


def _is_binary(array: np.ndarray | Array) -> bool:
    """Return whether all entries are surely 0 or 1, which makes elimination cheaper."""
    if array.dtype == np.bool_:
        return True
    return isinstance(array, np.ndarray) and bool(((array == 0) | (array == 1)).all())
