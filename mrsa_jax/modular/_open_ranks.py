"""Ranks of a batch on the device: a small prime first, drawn primes for what that leaves open.

All of it stays on the device but one number each time: how many ranks are still open, which
decides how many matrices the next program gets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Shaped

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.device import chosen_form
from mrsa_jax._core.prime import codes, field, residues
from mrsa_jax.modular import _blocked


def is_for_kernel(columns: int) -> bool:
    """Return whether a kernel eliminates matrices of so many columns."""
    from mrsa_jax.modular._rank_kernel import MOST_COLUMNS

    # on a GPU `_rank_kernel` holds a matrix in registers; wider ones go through `_blocked` by XLA
    return chosen_form(("xla", "pallas")) == "pallas" and columns <= MOST_COLUMNS


def independent_rows(
    matrices: Array | np.ndarray, prime: int | None, steps: int, count: int | None = None
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
    """Return matrices on the device; integers beyond its words stay on the host as they are.

    Args:
        matrices: Bools or integers `[batch, rows, columns]`.
        padded: Whether to repeat some up to a power of two of them where they come from the host,
            so that few sizes are ever compiled.
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
    if isinstance(matrices, jax.Array) and matrices.dtype.itemsize < 8:  # as a kernel takes them
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
    most = jnp.where(jnp.arange(size) < count, jnp.int32(min(rows, columns)), jnp.int32(0))
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

    Where sums of different lines happen to be equal, more lines may be counted than there are,
    never fewer: an upper bound of the rank all the same.
    """
    words = matrices if isinstance(matrices, jax.Array) else on_device(codes(matrices))
    return _upper_bounds(words)


@jax.jit
def _upper_bounds(matrices: Shaped[Array, "batch rows columns"]) -> Int32[Array, " batch"]:
    def run(part: Array) -> Array:
        return jnp.minimum(_distinct_lines(part), _distinct_lines(part.swapaxes(1, 2)))

    rows, columns = matrices.shape[1:]
    return _blocked.in_chunks(run, matrices, 4 * (rows + columns) ** 2, None)


def _distinct_lines(matrices: Array) -> Array:
    """Count each line that differs from the first one of the same sum; equal ones never do.

    The first of some equal lines is either the first of its sum or differs from that: it counts.
    """
    count, width = matrices.shape[1:]
    zero = jnp.zeros((), matrices.dtype)
    factors = np.asarray([pow(0x9E3779B1, k + 1, 2**32) for k in range(width)], np.uint32)
    sums = jnp.sum(matrices.astype(jnp.uint32) * factors[None, None, :], axis=2, dtype=jnp.uint32)
    places = jnp.arange(count, dtype=jnp.int32)
    is_alike = sums[:, :, None] == sums[:, None, :]
    first = jnp.min(jnp.where(is_alike, places[None, None, :], jnp.int32(count)), axis=2)
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
    return jnp.nonzero(ranks < most, size=size, fill_value=ranks.shape[0])[0].astype(jnp.int32)


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
