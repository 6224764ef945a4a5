"""Compiled eliminations over all cores: what the CPU uses in place of XLA's small operations."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from mrsa_jax._device import num_cores, over_cores

__all__ = [
    "compiled_prefix_ranks",
    "compiled_ranks",
    "inverses",
]

_FEWEST_A_CORE = 8


def compiled_ranks(matrices: np.ndarray, prime: int | None = None) -> np.ndarray:
    """Return the ranks of integer matrices `[batch, rows, columns]` modulo a prime, int32.

    The prime is a small one unless given: four times as fast, and proof enough of a rank that
    meets an upper bound.
    """
    from mrsa_jax.modular import _elimination, _ranks

    def part(chunk: np.ndarray) -> np.ndarray:
        if prime is None:
            small = _residues(chunk, _ranks.SMALL, np.dtype(np.int32))
            return _ranks.ranks(small, inverses(_ranks.SMALL))
        rows = _residues(chunk, prime, np.dtype(np.uint64))
        return np.asarray([_elimination.rank_of(m, np.uint64(prime)) for m in rows], np.int32)

    return _in_parts(part, matrices)


def compiled_prefix_ranks(matrices: np.ndarray, prime: int) -> np.ndarray:
    """Return the ranks of the first j + 1 rows of integer matrices modulo a prime, int32."""
    from mrsa_jax.modular import _elimination

    def part(chunk: np.ndarray) -> np.ndarray:
        rows = _residues(chunk, prime, np.dtype(np.uint64))
        grew = [_elimination.independent_rows(m, np.uint64(prime)) for m in rows]
        return np.cumsum(grew, axis=1, dtype=np.int32)

    return _in_parts(part, matrices)


def _residues(matrices: np.ndarray, prime: int, dtype: np.dtype) -> np.ndarray:
    if matrices.dtype == np.bool_:
        return matrices.astype(dtype)
    if matrices.dtype != object and matrices.dtype.itemsize < 8:
        matrices = matrices.astype(np.int64)
    return (matrices % prime).astype(dtype)


def _in_parts(part: Callable[[np.ndarray], np.ndarray], matrices: np.ndarray) -> np.ndarray:
    """Run a function of matrices on as many parts of a batch as there are cores."""
    cores = min(num_cores(), len(matrices) // _FEWEST_A_CORE)
    if cores < 2:
        return part(matrices)
    return np.concatenate(over_cores(part, np.array_split(matrices, cores)))


@functools.cache
def inverses(prime: int) -> np.ndarray:
    """Return the inverses of all residues modulo a small prime (of 0: 0), int32 `[prime]`."""
    found = np.zeros(prime, np.int32)
    found[1] = 1
    for value in range(2, prime):
        found[value] = (prime - prime // value) * int(found[prime % value]) % prime
    return found
