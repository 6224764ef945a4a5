"""First exposures in a history of many more clients than rounds, from its Gram matrix.

With G = P P^T, a random vector w less P^T G^-1 P w is a random vector of P's kernel. It is zero at
client i if e_i lies in the row space, and otherwise, modulo a prime, by an accident of chance 1/p.
So a few vectors sort out everybody but the exposed, of whom there are no more than rounds; their
combinations z = G^-1 p_i then tell the last round that they need. Everything is decided modulo
primes that are drawn for the call.
"""

from __future__ import annotations

import functools
import secrets

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.device import at_once
from mrsa_jax._core.prime import minor_bits
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy.solver import reduced_echelon, residues_of
from mrsa_watch._base.primes import draw_primes, enough_primes

_VECTORS = 2  # of the kernel for each prime: chance 2**-60 that a client is zero in both
_LIMB = 16
# of a triangular product at a time: what lies above the diagonal is not multiplied
ROWS = 256


def fits(history: np.ndarray) -> bool:
    """Return whether sums over the clients of products with 16-bit numbers are exact floats."""
    if history.dtype == object:
        return False
    largest = 1 if history.dtype == np.bool_ else max(int(history.max()), -int(history.min()))
    return history.shape[1] * largest * max(largest, 1 << _LIMB) < 1 << 53


def parts_of(history: np.ndarray) -> tuple[list[slice], int]:
    """Return pieces of the columns that go at once, and how many are in each but the last."""
    rounds, clients = history.shape
    size = min(clients, at_once("columns", 8 * rounds))
    return [slice(start, start + size) for start in range(0, clients, size)], size


def gram_of(history: np.ndarray) -> np.ndarray:
    """Return P P^T, float64 `[rounds, rounds]`, exact where its entries stay below 2^53."""
    parts, width = parts_of(history)
    is_binary = history.dtype == np.bool_ or bool(((history == 0) | (history == 1)).all())
    # counts of a piece stay below 2^24
    kind = np.float32 if is_binary and width < 1 << 24 else np.float64
    with jax.enable_x64(True):
        total = jnp.zeros((len(history),) * 2, jnp.float64)
        for part in parts:
            total = _add_gram(total, piece(history, part, width, kind))
        lower = np.tril(np.asarray(total))
    return lower + np.tril(lower, -1).T


def piece(history: np.ndarray, part: slice, width: int, kind: type[np.floating]) -> Array:
    """Return some of the columns, filled up with zeros so that one program serves all."""
    own = history[:, part]
    if own.dtype == object:
        own = own.astype(np.float64)
    missing = width - own.shape[1]
    return on_device(np.pad(own, ((0, 0), (0, missing))) if missing else own).astype(kind)


@functools.partial(jax.jit, donate_argnums=0)
def _add_gram(total: Array, part: Array) -> Array:
    """Add the part's products of rows with those before them, and some more beside the diagonal."""
    for start in range(0, len(part), ROWS):
        own = jnp.matmul(part[start : start + ROWS], part[: start + ROWS].T,
                         precision=lax.Precision.HIGHEST)  # fmt: skip
        total = total.at[start : start + ROWS, : start + ROWS].add(own.astype(total.dtype))
    return total


def first_rounds(history: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Return the first exposure of each client, int64 `[clients]`, -1 for never.

    Args:
        history: Integers that `fits`.
        gram: `gram_of` it.
    """
    clients = history.shape[1]
    gram = gram.astype(np.int64)
    # rows of P are independent exactly where those of P P^T are
    kept = np.flatnonzero(np.diff(np.asarray(rank_trajectory(gram)), prepend=0) > 0)
    gram = gram[np.ix_(kept, kept)]
    rows = history if len(kept) == len(history) else history[kept]
    primes = draw_primes(enough_primes(2 * minor_bits(history), 4 * clients))
    rng = np.random.default_rng(secrets.randbits(128))
    # for each prime some random vectors side by side
    moduli = np.repeat(primes, _VECTORS)
    vectors = rng.integers(0, moduli, (clients, len(moduli)))
    parts, _ = parts_of(history)
    mixed = np.sum([_times(rows[:, part], vectors[part], moduli) for part in parts], axis=0)
    # where G is singular modulo a prime, that one says nothing
    images = [_solve(gram, mixed[:, moduli == prime], prime) for prime in primes]
    told = np.repeat([image is not None for image in images], _VECTORS)
    solved = [image for image in images if image is not None]
    suspects = np.arange(clients)
    if solved:
        right = np.concatenate(solved, axis=1)
        zero = [
            (_times(rows[:, part].T, right, moduli[told]) == vectors[part][:, told]).all(axis=1)
            for part in parts
        ]
        suspects = np.flatnonzero(np.concatenate(zero))
    found = np.full(clients, -1)
    for prime in primes if len(suspects) else ():
        combinations = _solve(gram, rows[:, suspects], prime)
        if combinations is not None:
            last = len(kept) - 1 - (combinations != 0)[::-1].argmax(axis=0)
            found[suspects] = np.maximum(found[suspects], kept[last])
    return found


def _solve(gram: np.ndarray, right: np.ndarray, prime: int) -> np.ndarray | None:
    """Return G^-1 times some columns modulo a prime, int64; None where G is singular modulo it."""
    system = np.concatenate([residues_of(gram, prime), residues_of(right, prime)], axis=1)
    form, pivots = reduced_echelon(system, prime)
    if len(pivots) < len(gram) or (pivots[: len(gram)] != np.arange(len(gram))).any():
        return None
    return form[:, len(gram) :].astype(np.int64)


def _times(rows: np.ndarray, factors: np.ndarray, prime: np.ndarray) -> np.ndarray:
    """Return rows @ factors, each column modulo its prime: products of floats, exact by halves."""
    left = rows.astype(np.float64)
    low, high = ((left @ half.astype(np.float64)).astype(np.int64) % prime
                 for half in (factors & 0xFFFF, factors >> _LIMB))  # fmt: skip
    return (low + (high << _LIMB)) % prime
