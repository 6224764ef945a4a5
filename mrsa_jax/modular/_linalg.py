"""Ranks of integer matrices, by elimination modulo a prime.

Floats may filter, never decide: ranks come from exact arithmetic mod p. A rank mod p never
exceeds the rank over the rationals, and equals it unless p divides every minor of that size.
Where that leaves an answer open, primes are drawn at random for the call: whatever the matrix was
made for, they err with a chance below 2**-30.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from mrsa_jax._core.arrays import as_integers, on_device, one_program
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.device import chosen_form, is_traced, over_cores, within_memory
from mrsa_jax._core.prime import PRIMES, codes, host_residues, inverses, minor_bits
from mrsa_jax.modular._open_ranks import held, independent_rows, is_for_kernel, ranks_by_primes
from mrsa_watch._base.primes import draw_primes, enough_primes

# ---- Compiled eliminations over all cores: what the CPU uses in place of XLA's small operations.

_FEWEST_A_CORE = 8


def compiled_ranks(matrices: np.ndarray) -> np.ndarray:
    """Return the ranks of integer matrices `[batch, rows, columns]` modulo a small prime, int32.

    Four times as fast as modulo a large one, and proof enough of a rank that meets an upper bound.
    """
    from mrsa_jax.modular import _ranks

    def part(chunk: np.ndarray) -> np.ndarray:
        small = host_residues(chunk, _ranks.SMALL, np.int32)
        found: np.ndarray = _ranks.ranks(small, inverses(_ranks.SMALL))
        return found

    return _in_parts(part, matrices)


def compiled_prefix_ranks(matrices: np.ndarray, prime: int) -> np.ndarray:
    """Return the ranks of the first j + 1 rows of integer matrices modulo a prime, int32."""
    from mrsa_jax._core import elimination as _elimination

    def part(chunk: np.ndarray) -> np.ndarray:
        rows = host_residues(chunk, prime, np.uint64)
        grew = [_elimination.independent_rows(m, np.uint64(prime)) for m in rows]
        return np.cumsum(grew, axis=1, dtype=np.int32)

    return _in_parts(part, matrices)


def host_upper_bounds(matrices: np.ndarray) -> list[int]:
    """Return `_open_ranks.upper_bounds` without compiling anything."""
    if matrices.dtype == object:
        matrices = codes(matrices)
    counts = [_distinct_lines(matrices), _distinct_lines(matrices.swapaxes(-1, -2))]
    return [min(both) for both in zip(*counts, strict=True)]


def _distinct_lines(matrices: np.ndarray) -> list[int]:
    if matrices.dtype == np.bool_:
        matrices = np.packbits(matrices, axis=-1)
    lines = np.ascontiguousarray(matrices)
    width = lines.shape[-1] * lines.dtype.itemsize
    whole = lines.view(np.dtype((np.void, width)))[..., 0].tolist()
    return [len(set(rows) - {bytes(width)}) for rows in whole]


def _in_parts(part: Callable[[np.ndarray], np.ndarray], matrices: np.ndarray) -> np.ndarray:
    """Run a function of matrices on as many parts of a batch as there are cores."""
    cores = min(num_cores(), len(matrices) // _FEWEST_A_CORE)
    if cores < 2:
        return part(matrices)
    return np.concatenate(over_cores(part, np.array_split(matrices, cores)))


# ---- Ranks of integer matrices, by elimination modulo a prime.


def rank(matrix: Any) -> Int32[Array, "*batch"]:
    """Return the rank over the rationals of integer matrices.

    Use it wherever a rank decides what a server can solve for: floating-point ranks err near
    full rank. The rank modulo any prime is a proven lower bound, so a rank that meets an upper
    bound (rows, columns, distinct ones) is proven, and a small prime suffices for it. What is left
    open goes to 31-bit primes drawn for the call: then the largest of the ranks is proven from
    below and too small with error chance below 2**-30 a matrix, whatever it was made for
    (`mrsa_jax._core.prime.error_bits`).

    Args:
        matrix: Bools or integers of any sign and size, `[..., rows, columns]`.

    Returns:
        int32, one for each matrix.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or the matrix has fewer than two
            axes or an empty one.

    Edge cases: under `jit` nothing is known of the values, and two primes that never change
    decide: a matrix made of their products deceives them. The batch is one program: loops over the
    cores on a CPU that has numba, one launch of a kernel on an NVIDIA GPU (up to 128 rows or
    columns), elimination in blocks by XLA on all else. Accelerators hand back one number after
    each prime, how many ranks are still open.

    Examples:
        >>> int(rank([[1, 1, 0], [0, 1, 1], [1, 0, 1]]))  # an odd cycle; its rank mod 2 is 2
        3

    Cost: rows**2 * columns / 2 multiplications a matrix and prime (rows <= columns).
    """
    array = as_integers(matrix, "matrix")
    # One rule in three forms: compiled loops on a CPU (`_ranks`), blocks of rows by XLA
    # (`_blocked`), a kernel on a GPU (`_rank_kernel`). All decide modulo primes that are drawn for
    # this call.
    form = chosen_form(("loops", "xla", "pallas"), array)
    if form == "loops":
        array = np.asarray(array)
    rows, columns = array.shape[-2:]
    # a kernel takes any number of rows, all else is faster the fewer there are
    is_kernel = form == "pallas" and is_for_kernel(min(rows, columns))
    if rows < columns if is_kernel else rows > columns:
        array = array.swapaxes(-1, -2)
    stacked = _stack(array)
    if is_traced(array):
        both = [_prefix_ranks(stacked, prime)[:, -1] for prime in PRIMES]
        return jnp.maximum(*both).reshape(array.shape[:-2])
    if form == "loops":
        return on_device(_ranks_by_loops(np.asarray(stacked)).reshape(array.shape[:-2]))

    def run(chunk: int) -> Array:
        parts = [stacked[begin : begin + chunk] for begin in range(0, len(stacked), chunk)]
        ranks = [
            ranks_by_primes(held(part, padded=True), len(part), lambda: _drawn_for(stacked))
            for part in parts
        ]
        return jax.block_until_ready(jnp.concatenate(ranks))

    what = f"the ranks of {len(stacked):,} matrices of {rows} x {columns}"
    return within_memory(run, len(stacked), "matrix", what).reshape(array.shape[:-2])


def _ranks_by_loops(host: np.ndarray) -> np.ndarray:
    ranks = compiled_ranks(host)
    bounds = np.full(len(host), host.shape[1], np.int32)
    left = np.flatnonzero(ranks < bounds)
    bounds[left] = host_upper_bounds(host[left])
    for prime in _drawn_for(host) if (ranks < bounds).any() else ():
        left = np.flatnonzero(ranks < bounds)
        if left.size:
            found = compiled_prefix_ranks(host[left], prime)[:, -1]
            ranks[left] = np.maximum(ranks[left], found)
    return ranks


def rank_trajectory(matrix: Any) -> Int32[Array, "... rows"]:
    """Return the rank of the first j + 1 rows, for every j.

    Args:
        matrix: Bools or integers, `[..., rows, columns]`, e.g. a participation history.

    Returns:
        int32 `[..., rows]`; the last entry is `rank(matrix)`. The largest of the ranks modulo drawn
        primes: never too large, too small with error chance below 2**-30 a matrix.

    Raises:
        ConfigurationError: As `rank`.

    Examples:
        >>> rank_trajectory([[1, 0], [1, 0], [0, 0], [1, 1]]).tolist()
        [1, 1, 1, 2]
    """
    array = as_integers(matrix, "matrix")
    primes = _drawn_for(array)
    if chosen_form(("loops", "xla", "pallas"), array) == "loops":
        host = np.asarray(array).reshape((-1, *array.shape[-2:]))
        ranks = np.max([compiled_prefix_ranks(host, p) for p in primes], axis=0)
        return on_device(ranks.reshape(array.shape[:-1]), np.int32)
    stacked = _stack(array)
    here = held(stacked, padded=True)
    each = [_prefix_ranks(here, prime, len(stacked)) for prime in primes]
    return _largest(each, array.shape[:-1])


@functools.partial(one_program, static_argnums=1)
def _largest(ranks: list[Array], shape: tuple[int, ...]) -> Array:
    """Return the largest of primes' ranks, without the rows that pad them."""
    largest = jnp.max(jnp.stack(ranks), axis=0)[: math.prod(shape[:-1])]
    return largest.astype(jnp.int32).reshape(shape)


def _drawn_for(array: np.ndarray | Array) -> tuple[int, ...]:
    """Return primes that decide about these matrices."""
    if is_traced(array):
        return PRIMES
    return draw_primes(enough_primes(minor_bits(array), cases=2))


def _stack(array: np.ndarray | Array) -> np.ndarray | Array:
    return array.reshape((-1, *array.shape[-2:]))


def _prefix_ranks(stacked: np.ndarray | Array, prime: int, count: int | None = None) -> Array:
    flags = independent_rows(stacked, prime, stacked.shape[1], count)
    return jnp.cumsum(flags, axis=1, dtype=jnp.int32)
