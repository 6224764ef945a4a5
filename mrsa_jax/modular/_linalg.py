"""Ranks of integer matrices, by elimination modulo a prime.

Floats may filter, never decide: ranks come from exact arithmetic mod p. A rank mod p
never exceeds the rank over the rationals, and equals it unless p divides every minor of
that size. Where that leaves an answer open, primes are drawn at random for the call:
whatever the matrix was made for, they err with a chance below 2**-30.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Shaped

from mrsa_jax._core.arrays import as_integers, on_device
from mrsa_jax._core.batches import within_memory
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.forms import chosen_form, forced_form
from mrsa_jax._core.prime import (
    PRIMES,
    codes,
    field,
    host_residues,
    minor_bits,
    residues,
)
from mrsa_jax._core.programs import LITTLE, one_program
from mrsa_jax._core.threads import over_cores
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular import _blocked
from mrsa_watch._base.primes import draw_primes, enough_primes

# ---- Ranks of a batch on the device: a small prime first, drawn primes for what that
# leaves open.
#
# All of it stays on the device but one number each time: how many ranks are still open,
# which
# decides how many matrices the next program gets.


def is_for_kernel(columns: int) -> bool:
    """Return whether a kernel eliminates matrices of this many columns."""
    # on a GPU `_rank_kernel` holds a matrix in registers; wider ones go through
    # `_blocked` by XLA
    if chosen_form(("xla", "pallas")) != "pallas":
        return False
    from mrsa_jax.modular._rank_kernel import MOST_COLUMNS

    return columns <= MOST_COLUMNS


def independent_rows(
    matrices: Array | np.ndarray,
    prime: int | None,
    steps: int,
    count: int | None = None,
) -> Bool[Array, "batch rows"]:
    """Return which rows are no combinations, modulo a prime, of those before them.

    Args:
        matrices: What `held` returned, or traced.
        prime: Of 31 bits; None: the small one of the form that runs.
        steps: Rows after the first `steps` are compared with these only.
        count: Matrices from here on are padding; None: none are.
    """
    number = None if count is None else jnp.int32(count)
    of = None if prime is None else field(prime)
    if is_for_kernel(matrices.shape[-1]):
        from mrsa_jax.modular import _rank_kernel

        words = _words(matrices, prime or _rank_kernel.WORD_PRIME)
        return _rank_kernel.independent_rows(words, of, steps, number)
    words = _words(matrices, prime or _blocked.SMALL_PRIME)
    return _blocked.independent_rows(words, of, steps, number)


def held(matrices: np.ndarray | Array, *, padded: bool = False) -> np.ndarray | Array:
    """Return matrices on the device.

    Integers beyond its words stay on the host as they are.

    Args:
        matrices: Bools or integers `[batch, rows, columns]`.
        padded: Whether to repeat some up to a power of two of them where they come from
            the host, so that few sizes are ever compiled.
    """
    if isinstance(matrices, jax.Array):
        return matrices
    if padded:
        size = 1 << (len(matrices) - 1).bit_length()
        matrices = np.resize(matrices, (size, *matrices.shape[1:]))
    if matrices.dtype == object or matrices.dtype.itemsize == 8:
        if not (matrices.min() >= -(2**31) and matrices.max() < 2**31):
            return matrices
        matrices = matrices.astype(np.int32)
    return on_device(matrices)


def _words(matrices: np.ndarray | Array, prime: int) -> Array:
    # as a kernel takes them
    if isinstance(matrices, jax.Array) and matrices.dtype.itemsize < 8:
        return matrices
    return residues(matrices, prime)


def ranks_by_primes(
    matrices: np.ndarray | Array, count: int, draw: Callable[[], Iterable[int]]
) -> Int32[Array, " batch"]:
    """Return the largest rank modulo a small prime and, where that proves nothing, others.

    Args:
        matrices: What `held` returned.
        count: Those from here on are padding.
        draw: Returns primes of 31 bits; asked only when something is open.
    """
    size, rows, columns = matrices.shape
    most = jnp.where(
        jnp.arange(size) < count, jnp.int32(min(rows, columns)), jnp.int32(0)
    )
    ranks = ranks_modulo(matrices, None, count)

    def still_open() -> tuple[Array, np.ndarray | Array, int]:
        number = int(_num_open(ranks, most))
        places = _open_places(ranks, most, 1 << max(0, number - 1).bit_length())
        return places, _taken(matrices, places), number

    places, part, number = still_open()
    if number:
        most = _lowered(most, places, upper_bounds(part))
        for prime in draw() if int(_num_open(ranks, most)) else ():
            places, part, number = still_open()
            if number == 0:
                break
            ranks = _raised(ranks, places, ranks_modulo(part, prime, number))
    return ranks[:count]


def ranks_modulo(
    matrices: np.ndarray | Array, prime: int | None, count: int
) -> Int32[Array, " batch"]:
    """Return ranks modulo a 31-bit prime, or (None) the small one of the form that runs."""
    return _sums(independent_rows(matrices, prime, matrices.shape[1], count))


def upper_bounds(matrices: np.ndarray | Array) -> Int32[Array, " batch"]:
    """Return of each matrix the smaller one of its numbers of distinct non-zero rows, columns.

    Where sums of different lines happen to be equal, too many lines may be counted,
    never too few: an upper bound of the rank all the same.
    """
    words = matrices if isinstance(matrices, jax.Array) else on_device(codes(matrices))
    return _upper_bounds(words)


@jax.jit
def _upper_bounds(
    matrices: Shaped[Array, "batch rows columns"],
) -> Int32[Array, " batch"]:
    def run(part: Array) -> Array:
        return jnp.minimum(
            _lines_that_differ(part), _lines_that_differ(part.swapaxes(1, 2))
        )

    rows, columns = matrices.shape[1:]
    return _blocked.in_chunks(run, matrices, 4 * (rows + columns) ** 2, None)


def _lines_that_differ(matrices: Array) -> Array:
    """Count each line that differs from the first one of the same sum.

    Equal ones never do.
    The first of some equal lines is either the first of its sum or differs from that:
    it counts.
    """
    count, width = matrices.shape[1:]
    zero = jnp.zeros((), matrices.dtype)
    factors = np.asarray(
        [pow(0x9E3779B1, k + 1, 2**32) for k in range(width)], np.uint32
    )
    sums = jnp.sum(
        matrices.astype(jnp.uint32) * factors[None, None, :], axis=2, dtype=jnp.uint32
    )
    places = jnp.arange(count, dtype=jnp.int32)
    is_alike = sums[:, :, None] == sums[:, None, :]
    first = jnp.min(
        jnp.where(is_alike, places[None, None, :], jnp.int32(count)), axis=2
    )
    others = jnp.take_along_axis(matrices, first[:, :, None], axis=1)
    is_new = (first == places[None, :]) | jnp.any(others != matrices, axis=2)
    is_new &= jnp.any(matrices != zero, axis=2)
    return jnp.sum(is_new, axis=1, dtype=jnp.int32)


# ---- what is left open, compacted


@jax.jit
def _num_open(ranks: Array, most: Array) -> Array:
    return jnp.sum(ranks < most, dtype=jnp.int32)


@functools.partial(jax.jit, static_argnames=("size",))
def _open_places(ranks: Array, most: Array, size: int) -> Array:
    """Return where ranks are open; past the end where there are fewer than `size`."""
    return jnp.nonzero(ranks < most, size=size, fill_value=ranks.shape[0])[0].astype(
        jnp.int32
    )


def _taken(matrices: np.ndarray | Array, places: Array) -> np.ndarray | Array:
    if isinstance(matrices, np.ndarray):
        return matrices.take(np.asarray(places), axis=0, mode="clip")
    return _taken_on_device(matrices, places)


@jax.jit
def _taken_on_device(matrices: Array, places: Array) -> Array:
    return jnp.take(matrices, places, axis=0, mode="clip")


@jax.jit
def _sums(flags: Array) -> Array:
    return jnp.sum(flags, axis=1, dtype=jnp.int32)


@jax.jit
def _lowered(most: Array, places: Array, bounds: Array) -> Array:
    return most.at[places].min(bounds, mode="drop")


@jax.jit
def _raised(ranks: Array, places: Array, found: Array) -> Array:
    return ranks.at[places].max(found, mode="drop")


# ---- Compiled eliminations over all cores: what the CPU uses instead of XLA's small
# operations.

_FEWEST_A_CORE = 8


def compiled_prefix_ranks(matrices: np.ndarray, prime: int) -> np.ndarray:
    """Return the ranks of the first j + 1 rows of integer matrices modulo a prime, int32."""
    from mrsa_jax._core import compiled

    def part(chunk: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(host_residues(chunk, prime, np.uint64))
        grew = compiled.independent_rows_of_each(rows, np.uint64(prime))
        return np.cumsum(grew, axis=1, dtype=np.int32)

    return _in_parts(part, matrices)


# What NumPy still takes of little, in entries: by then it was as long as compiling the
# loops takes.
_left_to_numpy = [2**19]
_LEAST_A_ROW = 100  # entries, however few there are


def _prefix_ranks_of_little(matrices: np.ndarray, prime: int) -> np.ndarray:
    """Return `compiled_prefix_ranks`, without loops to compile while little has been asked for."""
    work = math.prod(matrices.shape[:-1]) * max(matrices.shape[-1], _LEAST_A_ROW)
    if work > min(LITTLE, _left_to_numpy[0]) or forced_form() is not None:
        return compiled_prefix_ranks(matrices, prime)
    _left_to_numpy[0] -= work
    return np.stack([host_prefix_ranks(own, prime) for own in matrices])


def host_prefix_ranks(matrix: np.ndarray, prime: int) -> np.ndarray:
    """Return the ranks of the first j + 1 rows modulo a prime, int32, by NumPy."""
    rows, p = host_residues(matrix, prime, np.uint64), np.uint64(prime)
    grew = np.zeros(len(rows), np.bool_)
    for i, row in enumerate(rows):
        pivot = int(row.argmax())
        grew[i] = row[pivot] != 0
        below = i + 1 + np.flatnonzero(rows[i + 1 :, pivot])
        if grew[i] and below.size:
            row = row * np.uint64(pow(int(row[pivot]), -1, prime)) % p
            rows[below] = (rows[below] + (p - rows[below, pivot, None]) * row) % p
    return np.cumsum(grew, dtype=np.int32)


def host_upper_bounds(matrices: np.ndarray) -> list[int]:
    """Return `_linalg.upper_bounds` without compiling anything."""
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


def _in_parts(
    part: Callable[[np.ndarray], np.ndarray], matrices: np.ndarray
) -> np.ndarray:
    """Run a function of matrices on as many parts of a batch as there are cores."""
    cores = min(num_cores(), len(matrices) // _FEWEST_A_CORE)
    if cores < 2:
        return part(matrices)
    return np.concatenate(over_cores(part, np.array_split(matrices, cores)))


# ---- Ranks of integer matrices, by elimination modulo a prime.


def rank(matrix: Any) -> Int32[Array, "*batch"]:
    """Return the rank over the rationals of integer matrices.

    Use it wherever a rank decides what a server can solve for: floating-point ranks err
    near full rank. The rank modulo any prime is a proven lower bound, so a rank that
    meets an upper bound (rows, columns, distinct ones) is proven, and a small prime
    suffices for it. What is left open goes to 31-bit primes drawn for the call: then
    the largest of the ranks is proven from below and too small with error chance below
    2**-30 a matrix, whatever it was made for (`mrsa_jax._core.prime.error_bits`).

    Args:
        matrix: Bools or integers of any sign and size, `[..., rows, columns]`.

    Returns:
        int32, one for each matrix.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or the matrix has fewer
            than two axes or an empty one.

    Edge cases: under `jit` nothing is known of the values, and two primes that never
    change decide: a matrix made of their products deceives them. The batch is one
    program: loops over the cores on a CPU that has numba, one launch of a kernel on an
    NVIDIA GPU (up to 128 rows or columns), elimination in blocks by XLA on all else.
    Accelerators hand back one number after each prime, how many ranks are still open.

    Examples:
        >>> import mrsa_jax as mj
        >>> odd_cycle = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]  # of rank 2 modulo 2
        >>> int(mj.modular.rank(odd_cycle))
        3

    Cost: rows**2 * columns / 2 multiplications a matrix and prime (rows <= columns).
    """
    array = as_integers(matrix, "matrix")
    # One rule in three forms: compiled loops on a CPU, blocks of rows by XLA
    # (`_blocked`), a kernel on a GPU (`_rank_kernel`). All decide modulo primes that
    # are drawn for this call.
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
        parts = [
            stacked[begin : begin + chunk] for begin in range(0, len(stacked), chunk)
        ]
        ranks = [
            ranks_by_primes(
                held(part, padded=True), len(part), lambda: _drawn_for(stacked)
            )
            for part in parts
        ]
        return jax.block_until_ready(jnp.concatenate(ranks))

    what = f"the ranks of {len(stacked):,} matrices of {rows} x {columns}"
    return within_memory(run, len(stacked), "matrix", what).reshape(array.shape[:-2])


def _ranks_by_loops(host: np.ndarray) -> np.ndarray:
    first, *others = _drawn_for(host)
    ranks = compiled_prefix_ranks(host, first)[:, -1]
    bounds = np.full(len(host), host.shape[1], np.int32)
    left = np.flatnonzero(ranks < bounds)
    bounds[left] = host_upper_bounds(host[left])
    for prime in others:
        left = np.flatnonzero(ranks < bounds)
        if left.size:
            ranks[left] = np.maximum(
                ranks[left], compiled_prefix_ranks(host[left], prime)[:, -1]
            )
    return ranks


def rank_trajectory(matrix: Any) -> Int32[Array, "... rows"]:
    """Return the rank of the first j + 1 rows, for every j.

    Args:
        matrix: Bools or integers, `[..., rows, columns]`, e.g. a participation history.

    Returns:
        int32 `[..., rows]`; the last entry is `rank(matrix)`. The largest of the ranks
        modulo drawn primes: never too large, too small with error chance below 2**-30 a
        matrix.

    Raises:
        ConfigurationError: As `rank`.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.modular.rank_trajectory([[1, 0], [1, 0], [0, 0], [1, 1]]).tolist()
        [1, 1, 1, 2]
    """
    array = as_integers(matrix, "matrix")
    primes = _drawn_for(array)
    if chosen_form(("loops", "xla", "pallas"), array) == "loops":
        host = np.asarray(array).reshape((-1, *array.shape[-2:]))
        ranks = np.max([_prefix_ranks_of_little(host, p) for p in primes], axis=0)
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
    return (
        PRIMES
        if is_traced(array)
        else draw_primes(enough_primes(minor_bits(array), cases=2))
    )


def _stack(array: np.ndarray | Array) -> np.ndarray | Array:
    return array.reshape((-1, *array.shape[-2:]))


def _prefix_ranks(
    stacked: np.ndarray | Array, prime: int, count: int | None = None
) -> Array:
    flags = independent_rows(stacked, prime, stacked.shape[1], count)
    return jnp.cumsum(flags, axis=1, dtype=jnp.int32)
