"""Exactly k of N clients by rank, without sorting, and blocks of neighbours, without gathers.

Ranks are found by bisecting for a threshold: each step counts the keys at or below it, so the
cost is a few passes over N, and k is data. Blocks are runs of `size` neighbours: a block's
minimum or its spread over its members takes log2(size) shifted passes, and `size` is data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

__all__ = ["block_any", "block_start_all", "lexicographic_smallest"]


class _Split(NamedTuple):
    chosen: Array  # bool[N], certainly among the smallest
    tied: Array  # bool[N], equal keys of which only some are
    missing: Array  # int32[], how many of the tied


def lexicographic_smallest(
    keys: tuple[Int32[Array, " clients"], ...],
    candidates: Bool[Array, " clients"],
    k: Int32[Array, ""],
) -> Bool[Array, " clients"]:
    """Return the k candidates with the smallest (keys[0], keys[1], ..., index).

    Args:
        keys: Non-negative integers below 2^31 - 1; the first decides, the next break its ties.
        candidates: Who may be chosen; at least k, or the result holds all of them.
        k: How many, at least 0.

    Returns:
        bool[N] with min(k, number of candidates) ones.
    """
    index = jnp.arange(candidates.shape[0], dtype=jnp.int32)
    missing = jnp.minimum(k, jnp.sum(candidates, dtype=jnp.int32))
    split = _Split(jnp.zeros_like(candidates), candidates, missing)
    for key in (*keys, index):
        split = _refine(key, split)
    # indices differ: what is still tied is the k-th client alone
    return split.chosen | split.tied


def _refine(key: Array, split: _Split) -> _Split:
    """Choose among the tied by one more key."""
    top = jnp.int32(jnp.iinfo(jnp.int32).max)
    masked = jnp.where(split.tied, key, top)
    threshold, exact = _threshold(masked, split.missing)
    below = masked < jnp.where(exact, threshold + 1, threshold)
    tied = (masked == threshold) & ~exact
    missing = split.missing - jnp.sum(below, dtype=jnp.int32)
    return _Split(split.chosen | below, tied, missing)


def _threshold(masked: Array, k: Array) -> tuple[Array, Array]:
    """Return t and whether exactly k keys are <= t; if not, t is the k-th smallest key.

    Invariant: count(key <= low) < k <= count(key <= high), until some count equals k.
    """
    top = jnp.iinfo(jnp.int32).max
    low = jnp.where(k == 0, jnp.int32(-1), jnp.min(masked) - 1)
    high = jnp.max(jnp.where(masked == top, jnp.int32(-1), masked))

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        low, high, exact = carry
        return ~exact & (high - low > 1)

    def halve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, _ = carry
        middle = low + (high - low) // 2
        count = jnp.sum(masked <= middle, dtype=jnp.int32)
        enough = count >= k
        return (
            jnp.where(enough, low, middle),
            jnp.where(enough, middle, high),
            count == k,
        )

    none = k == 0
    low, high, exact = lax.while_loop(unfinished, halve, (low, jnp.where(none, low, high), none))
    return high, exact


def block_start_all(flags: Bool[Array, " clients"], size: Int32[Array, ""]) -> Array:
    """Return at each index whether `flags` holds there and at the size - 1 indices that follow.

    At the first client of a block of `size` neighbours: whether all of the block's flags hold.
    Indices past the end count as false.
    """
    n = flags.shape[0]

    def shifted(a: Array, by: Array) -> Array:
        return lax.dynamic_slice(jnp.pad(a, (0, n)), (by,), (n,))

    return _windows(flags, size, lambda a, by: a & shifted(a, by))


def block_any(flags: Bool[Array, " clients"], size: Int32[Array, ""]) -> Array:
    """Return at each index whether `flags` holds there or at one of the size - 1 indices before.

    With flags only at the first clients of blocks: each client gets its block's flag.
    """
    n = flags.shape[0]

    def shifted(a: Array, by: Array) -> Array:
        return lax.dynamic_slice(jnp.pad(a, (n, 0)), (jnp.int32(n) - by,), (n,))

    return _windows(flags, size, lambda a, by: a | shifted(a, by))


def _windows(flags: Array, size: Array, widen: Callable[[Array, Array], Array]) -> Array:
    """Combine windows of `size` flags by doubling; `widen(a, by)` joins two windows."""

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, width = carry
        by = jnp.minimum(width, size - width)
        return widen(a, by), width + by

    return lax.while_loop(lambda carry: carry[1] < size, step, (flags, jnp.int32(1)))[0]


def word_key(words: UInt32[Array, " clients"]) -> Int32[Array, " clients"]:
    """Return 31 bits of each word as a key for `lexicographic_smallest`."""
    key = (words >> jnp.uint32(1)).astype(jnp.int32)
    return jnp.minimum(key, jnp.int32(jnp.iinfo(jnp.int32).max - 1))
