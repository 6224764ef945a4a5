"""Compiled eliminations over all cores: what the CPU uses in place of XLA's small operations."""

from __future__ import annotations

import concurrent.futures
import functools
import importlib.util
import os
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

__all__ = [
    "compiled_prefix_ranks",
    "compiled_ranks",
    "inverses",
    "num_cores",
    "over_cores",
    "runs_compiled_loops",
    "start_over_cores",
]

_FEWEST_A_CORE = 8


@functools.cache
def _has_numba() -> bool:
    try:
        return importlib.util.find_spec("numba") is not None
    except ImportError:  # somebody forbids it
        return False


def runs_compiled_loops() -> bool:
    """Return whether exact loops run compiled: on the CPU, with numba installed."""
    return jax.default_backend() == "cpu" and _has_numba()


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


def over_cores(part: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    """Return `map(part, *arguments)` as a list, worked off by one thread a core.

    For loops that release the interpreter's lock and call nothing that comes back here: the
    threads are kept from call to call, because starting them takes as long as a small round.
    """
    return [job.result() for job in start_over_cores(part, *arguments)]


def start_over_cores(
    part: Callable[..., Any], *arguments: Iterable[Any]
) -> list[concurrent.futures.Future[Any]]:
    """Start what `over_cores` does and return at once, to prepare what comes next meanwhile."""
    pool = _pool(os.getpid(), num_cores())
    return [pool.submit(part, *each) for each in zip(*arguments, strict=True)]


@functools.lru_cache(maxsize=1)
def _pool(_process: int, cores: int) -> concurrent.futures.ThreadPoolExecutor:
    """Make the threads, anew in a forked process, which inherits none."""
    return concurrent.futures.ThreadPoolExecutor(cores, "mrsa_jax")


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
