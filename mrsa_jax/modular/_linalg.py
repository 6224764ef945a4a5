"""Ranks of integer matrices, by elimination modulo a prime.

Floats may filter, never decide: ranks come from exact arithmetic mod p. A rank mod p
never exceeds the rank over the rationals, and equals it unless p divides every minor of
that size. Where that leaves an answer open, primes are drawn at random for the call:
whatever the matrix was made for, they err with a chance below 2**-30.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
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

_FEWEST_A_CORE = 8
# What NumPy still takes of little, in entries: by then it was as long as compiling the
# loops takes.
_left_to_numpy = [2**19]
_LEAST_A_ROW = 100  # entries, however few there are


def is_for_kernel(columns: int) -> bool:
    """Return whether a kernel eliminates matrices of this many columns."""
    # on a GPU `_rank_kernel` holds a basis in registers, `_small_kernel` rows; wider
    # matrices go through `_blocked` by XLA
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
    """Flag rows that are no combinations, modulo a prime, of those before them.

    Args:
        matrices: What `held` returned, or traced.
        prime: Of 31 bits; None: the small one of the form that runs.
        steps: Rows after the first `steps` are compared with these only.
        count: Matrices from here on are padding; None: none are.
    """
    number = None if count is None else jnp.int32(count)
    of = None if prime is None else field(prime)
    form: Any = _blocked
    if is_for_kernel(matrices.shape[-1]):
        from mrsa_jax.modular import _rank_kernel, _small_kernel

        form = _small_kernel if of is None else _rank_kernel
    if not isinstance(matrices, jax.Array) or matrices.dtype.itemsize == 8:
        matrices = residues(matrices, prime or form.SMALL_PRIME)
    return form.independent_rows(matrices, of, steps, number)


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


def _proven_ranks(
    matrices: np.ndarray | Array,
    count: int,
    primes: Iterator[int | None],
    modulo: Callable[[Any, Any, int], Any],
    bounds: Callable[[Any], Any],
) -> Int32[np.ndarray, " batch"]:
    """Return ranks modulo a first prime and, where that proves nothing, others.

    Args:
        matrices: On the host, or what `held` returned.
        count: Those from here on are padding.
        primes: The next one is asked for only when a rank is open.
        modulo: Matrices, a prime, and how many are no padding -> their ranks.
        bounds: Matrices -> upper bounds of their ranks.
    """
    ranks = np.array(modulo(matrices, next(primes), count))[:count]
    most = np.full(count, min(matrices.shape[1:]), np.int32)
    places = np.flatnonzero(ranks < most)
    if places.size:
        upper = np.asarray(bounds(_taken(matrices, places)))
        most[places] = np.minimum(most[places], upper[: places.size])
        places = np.flatnonzero(ranks < most)
    while places.size and (prime := next(primes, 0)):
        raised = np.asarray(modulo(_taken(matrices, places), prime, places.size))
        ranks[places] = np.maximum(ranks[places], raised[: places.size])
        places = np.flatnonzero(ranks < most)
    return ranks


def _taken(matrices: np.ndarray | Array, places: np.ndarray) -> np.ndarray | Array:
    """Return some matrices, a power of two of them: few sizes are ever compiled."""
    size = 1 << (len(places) - 1).bit_length()
    padded = np.resize(places, size).astype(np.int32)
    if isinstance(matrices, np.ndarray):
        return matrices[padded]
    return jnp.take(matrices, padded, axis=0, mode="clip")


def ranks_modulo(
    matrices: np.ndarray | Array,
    prime: int | None,
    count: int,
) -> Int32[Array, " batch"]:
    """Return ranks modulo a 31-bit prime.

    None: the small one of the form that runs.
    """
    flags = independent_rows(matrices, prime, matrices.shape[1], count)
    return jnp.sum(flags, axis=1, dtype=jnp.int32)


def upper_bounds(matrices: np.ndarray | Array) -> Int32[Array, " batch"]:
    """Bound each rank by the number of distinct non-zero rows, and of columns.

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
    return _blocked.in_chunks(
        run,
        matrices,
        4 * (rows + columns) ** 2,
        None,
    )


def _lines_that_differ(matrices: Array) -> Array:
    """Count each line that differs from the first one of the same sum.

    Equal ones never do.
    The first of some equal lines is either the first of its sum or differs from that:
    it counts.
    """
    count, width = matrices.shape[1:]
    factors = np.cumprod(np.full(width, 0x9E3779B1, np.uint32), dtype=np.uint32)
    # a hash of each line: equal lines have equal sums, others hardly ever
    words = matrices.astype(jnp.uint32) * factors[None, None]
    sums = jnp.sum(words, axis=2, dtype=jnp.uint32)
    places = jnp.arange(count, dtype=jnp.int32)[None, :]
    is_alike = sums[:, :, None] == sums[:, None, :]
    first = jnp.min(jnp.where(is_alike, places[None], count), axis=2)
    others = jnp.take_along_axis(matrices, first[:, :, None], axis=1)
    is_new = (first == places) | jnp.any(others != matrices, axis=2)
    is_new &= jnp.any(matrices, axis=2)
    return jnp.sum(is_new, axis=1, dtype=jnp.int32)


def compiled_prefix_ranks(matrices: np.ndarray, prime: int) -> np.ndarray:
    """Return the ranks of the first j + 1 rows modulo a prime, int32."""
    from mrsa_jax._core import compiled

    def part(chunk: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(host_residues(chunk, prime, np.uint64))
        grew = compiled.independent_rows_of_each(rows, np.uint64(prime))
        return np.cumsum(grew, axis=1, dtype=np.int32)

    cores = min(num_cores(), len(matrices) // _FEWEST_A_CORE)
    if cores < 2:
        return part(matrices)
    return np.concatenate(over_cores(part, np.array_split(matrices, cores)))


def _prefix_ranks_of_little(matrices: np.ndarray, prime: int) -> np.ndarray:
    """Return `compiled_prefix_ranks`.

    No loops are compiled while little has been asked for.
    """
    work = math.prod(matrices.shape[:-1]) * max(matrices.shape[-1], _LEAST_A_ROW)
    if work > min(LITTLE, _left_to_numpy[0]) or forced_form() is not None:
        return compiled_prefix_ranks(matrices, prime)
    _left_to_numpy[0] -= work
    return np.stack([host_prefix_ranks(matrix, prime) for matrix in matrices])


def host_prefix_ranks(matrix: np.ndarray, prime: int) -> np.ndarray:
    """Return the ranks of the first j + 1 rows modulo a prime, int32, by NumPy."""
    rows, p = host_residues(matrix, prime, np.uint64), np.uint64(prime)
    grew = np.zeros(len(rows), np.bool_)
    for i, row in enumerate(rows):
        pivot = int(row.argmax())
        grew[i] = row[pivot] != 0
        # rows beneath with something in the pivot's column
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
    # (`_blocked`), kernels on a GPU (`_small_kernel` first, then `_rank_kernel`). All
    # decide modulo primes that are drawn for this call.
    form = chosen_form(("loops", "xla", "pallas"), array)
    if form == "loops":
        array = np.asarray(array)
    rows, columns = array.shape[-2:]
    # a kernel takes any number of rows, all else is faster the fewer there are
    is_kernel = form == "pallas" and is_for_kernel(min(rows, columns))
    if rows != columns and (rows < columns) == is_kernel:
        array = array.swapaxes(-1, -2)
    stacked = _stack(array)
    if is_traced(array):
        both = [_prefix_ranks(stacked, prime)[:, -1] for prime in PRIMES]
        return jnp.maximum(*both).reshape(array.shape[:-2])
    if form == "loops":

        def by_loops(
            part: np.ndarray,
            prime: int,
            number: int,
        ) -> np.ndarray:
            return compiled_prefix_ranks(part[:number], prime)[:, -1]

        primes = iter(_drawn_for(stacked))
        ranks = _proven_ranks(
            stacked,
            len(stacked),
            primes,
            by_loops,
            host_upper_bounds,
        )
        return on_device(ranks.reshape(array.shape[:-2]))

    def small_and_drawn() -> Iterator[int | None]:
        yield None
        yield from _drawn_for(stacked)

    def run(chunk: int) -> np.ndarray:
        ranks = []
        for begin in range(0, len(stacked), chunk):
            part = stacked[begin : begin + chunk]
            words = held(part, padded=True)
            primes = small_and_drawn()
            ranks.append(
                _proven_ranks(
                    words,
                    len(part),
                    primes,
                    ranks_modulo,
                    upper_bounds,
                )
            )
        return np.concatenate(ranks)

    what = f"the ranks of {len(stacked):,} matrices of {rows} x {columns}"
    ranks = within_memory(run, len(stacked), "matrix", what)
    return on_device(ranks.reshape(array.shape[:-2]))


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
    words = held(stacked, padded=True)
    each = [_prefix_ranks(words, prime, len(stacked)) for prime in primes]
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


def _prefix_ranks(
    stacked: np.ndarray | Array,
    prime: int,
    count: int | None = None,
) -> Array:
    flags = independent_rows(stacked, prime, stacked.shape[1], count)
    return jnp.cumsum(flags, axis=1, dtype=jnp.int32)
