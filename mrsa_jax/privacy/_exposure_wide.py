"""First exposures in a history of many more clients than rounds, from its Gram matrix.

With G = P P^T, a random vector w less P^T G^-1 P w is a random vector of P's kernel. It is zero at
client i if e_i lies in the row space, and otherwise, modulo a prime, by an accident of chance 1/p.
So a few vectors sort out everybody but the exposed, of whom there are no more than rounds; their
combinations z = G^-1 p_i then tell the last round that they need. Everything is decided modulo
primes that are drawn for the call.
"""

from __future__ import annotations

import secrets

import numpy as np

from mrsa_jax._device import at_once
from mrsa_jax._prime import draw_primes, enough_primes, minor_bits
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy.solver import reduced_echelon, residues_of

_VECTORS = 2  # of the kernel for each prime: chance 2**-60 that a client is zero in both
_LIMB = 16


def fits(history: np.ndarray) -> bool:
    """Return whether sums over the clients of products with 16-bit numbers are exact floats."""
    if history.dtype == object:
        return False
    largest = 1 if history.dtype == np.bool_ else max(int(history.max()), -int(history.min()))
    return history.shape[1] * largest * max(largest, 1 << _LIMB) < 1 << 53


def first_rounds(history: np.ndarray) -> np.ndarray:
    """Return the first exposure of each client, int64 `[clients]`, -1 for never."""
    rounds, clients = history.shape
    size = at_once("columns", 8 * rounds)
    parts = [slice(start, start + size) for start in range(0, clients, size)]
    floats = (history[:, part].astype(np.float64) for part in parts)
    gram = np.asarray(sum(own @ own.T for own in floats)).astype(np.int64)
    # rows of P are independent exactly where those of P P^T are
    kept = np.flatnonzero(np.diff(np.asarray(rank_trajectory(gram)), prepend=0) > 0)
    gram = gram[np.ix_(kept, kept)]
    rows = history if len(kept) == rounds else history[kept]
    primes = draw_primes(enough_primes(2 * minor_bits(history), 4 * clients))
    suspects = np.arange(clients)
    rng = np.random.default_rng(secrets.randbits(128))
    for prime in primes:
        vectors = rng.integers(0, prime, (clients, _VECTORS))
        mixed = np.sum([_times(rows[:, p], vectors[p], prime) for p in parts], axis=0)
        solved = _solve(gram, mixed, prime)
        if solved is not None:
            zero = [_times(rows[:, p].T, solved, prime) == vectors[p] for p in parts]
            suspects = np.intersect1d(suspects, np.flatnonzero(np.concatenate(zero).all(axis=1)))
    found = np.full(clients, -1)
    for prime in primes:
        if len(suspects):
            solved = _solve(gram, rows[:, suspects], prime)
            if solved is not None:
                last = len(kept) - 1 - (solved != 0)[::-1].argmax(axis=0)
                found[suspects] = np.maximum(found[suspects], kept[last])
    return found


def _solve(gram: np.ndarray, right: np.ndarray, prime: int) -> np.ndarray | None:
    """Return G^-1 times some columns modulo a prime, int64; None where G is singular modulo it."""
    system = np.concatenate([residues_of(gram, prime), residues_of(right, prime)], axis=1)
    form, pivots = reduced_echelon(system, prime)
    if len(pivots) < len(gram) or (pivots[: len(gram)] != np.arange(len(gram))).any():
        return None
    return form[:, len(gram) :].astype(np.int64)


def _times(rows: np.ndarray, factors: np.ndarray, prime: int) -> np.ndarray:
    """Return rows @ factors modulo a prime, int64: products of floats, exact by halves."""
    left = rows.astype(np.float64)
    low, high = ((left @ half.astype(np.float64)).astype(np.int64) % prime
                 for half in (factors & 0xFFFF, factors >> _LIMB))  # fmt: skip
    return (low + (high << _LIMB)) % prime
