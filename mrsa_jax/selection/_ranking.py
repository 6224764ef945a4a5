"""Exactly k of N clients by rank, without sorting, and blocks of neighbours, without gathers.

Ranks are found by narrowing a threshold: each step counts the keys at or below it, so the cost
is a few passes over N, and k is data. Blocks are runs of `size` neighbours: their minimum, or
their spread over their members, takes log2(size) shifted passes, and `size` is data. Clients are
the first axis; any axes that follow are trials, innermost so that passes vectorise over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from mrsa_jax._tracing import varying_like

__all__ = ["block_any", "block_start_all", "count", "k_smallest", "k_smallest_words", "word_key"]

_TOP = 2**31 - 1  # the key of a client who is no candidate


class _Split(NamedTuple):
    chosen: Array  # bool[N, ...], certainly among the smallest
    tied: Array  # bool[N, ...], clients with equal keys, of whom only some are
    num_tied: Array  # int32[...]
    missing: Array  # int32[...], how many of the tied are


class _Bracket(NamedTuple):
    """Invariant: count(key <= low) = num_low < k <= num_high = count(key <= high)."""

    low: Array
    high: Array
    num_low: Array
    num_high: Array
    probe: Array  # the next threshold to try, low < probe < high while unfinished


def count(flags: Bool[Array, " clients *trials"]) -> Int32[Array, "*trials"]:
    """Return how many clients are flagged."""
    return jnp.sum(flags, axis=0, dtype=jnp.int32)


def word_key(words: UInt32[Array, " clients *trials"]) -> Int32[Array, " clients *trials"]:
    """Return 31 bits of each word as a key in [0, 2^31 - 2] (the two largest values joined)."""
    key = (words >> jnp.uint32(1)).astype(jnp.int32)
    return jnp.minimum(key, jnp.int32(_TOP - 1))


def k_smallest_words(
    words: UInt32[Array, " clients *trials"],
    candidates: Bool[Array, " clients *trials"],
    k: Int32[Array, "*trials"],
) -> Bool[Array, " clients *trials"]:
    """Return the k candidates with the smallest words: k of them uniformly, for random words.

    Args:
        words: Uniform 32-bit words, of which 31 bits are compared.
        candidates: Who may be chosen.
        k: How many, from 0 to the number of candidates.

    Returns:
        bool[N, ...] with exactly k ones; of equal words the lower index is smaller.
    """
    split = _Split(jnp.zeros_like(candidates), candidates, count(candidates), k)
    return _finish(_by_words(words, split))


def k_smallest(
    numbers: Int32[Array, " clients *trials"],
    words: UInt32[Array, " clients *trials"],
    candidates: Bool[Array, " clients *trials"],
    k: Int32[Array, "*trials"],
) -> Bool[Array, " clients *trials"]:
    """Return the k candidates with the smallest (number, word, index).

    Args:
        numbers: From 0 to 2^31 - 2, e.g. how often a client took part.
        words: Uniform 32-bit words that break ties.
        candidates: Who may be chosen.
        k: How many, from 0 to the number of candidates.

    Returns:
        bool[N, ...] with exactly k ones.
    """
    split = _Split(jnp.zeros_like(candidates), candidates, count(candidates), k)
    return _finish(_by_words(words, _refine(numbers, split, _halve)))


def _by_words(words: Array, split: _Split) -> _Split:
    return _refine(word_key(words), split, _interpolate)


def _finish(split: _Split) -> Array:
    """Break remaining ties by index; random words hardly ever leave any."""

    def by_index(split: _Split) -> Array:
        index = lax.broadcasted_iota(jnp.int32, split.tied.shape, 0)
        last = _refine(index, split, _halve)
        return last.chosen | last.tied  # indices differ: only the k-th client is still tied

    def done(split: _Split) -> Array:
        return split.chosen

    return lax.cond(jnp.any(split.missing > 0), by_index, done, split)


def _refine(key: Array, split: _Split, aim: Callable[[Array, Array, Array], Array]) -> _Split:
    """Choose among the tied clients by one more key; `aim` places the next threshold."""
    masked = jnp.where(split.tied, key, jnp.int32(_TOP))
    k = split.missing
    bracket = _narrow(masked, _first_bracket(masked, split.num_tied, k, aim), k, aim)
    exact = bracket.num_high == k
    bound = jnp.where(exact, bracket.high, bracket.low)
    return _Split(
        chosen=split.chosen | (masked <= bound[None]),
        tied=(masked == bracket.high[None]) & ~exact[None],
        num_tied=jnp.where(exact, 0, bracket.num_high - bracket.num_low),
        missing=jnp.where(exact, 0, k - bracket.num_low),
    )


def _first_bracket(
    masked: Array, num_candidates: Array, k: Array, aim: Callable[[Array, Array, Array], Array]
) -> _Bracket:
    """Return the bracket from below the smallest key to the largest; empty where k is 0.

    Most searches are for the one smallest key, which the first probe then hits.
    """
    none = k == 0
    low = jnp.where(none, -1, jnp.min(masked, axis=0) - 1)
    high = jnp.where(none, -1, jnp.max(jnp.where(masked == _TOP, -1, masked), axis=0))
    num_high = jnp.where(none, 0, num_candidates)
    num_low = jnp.zeros_like(num_high)
    aimed = low + _within(aim(high - low, k, num_high), high - low)
    return _Bracket(low, high, num_low, num_high, jnp.where(k == 1, low + 1, aimed))


def _narrow(
    masked: Array, bracket: _Bracket, k: Array, aim: Callable[[Array, Array, Array], Array]
) -> _Bracket:
    """Move the ends together until exactly k keys are <= high, or high is the k-th smallest."""

    def open_(b: _Bracket) -> Array:
        return (b.num_high != k) & (b.high - b.low > 1)

    def step(b: _Bracket) -> _Bracket:
        counted = count(masked <= b.probe[None])
        up, down = open_(b) & (counted < k), open_(b) & (counted >= k)
        low, num_low = jnp.where(up, b.probe, b.low), jnp.where(up, counted, b.num_low)
        high, num_high = jnp.where(down, b.probe, b.high), jnp.where(down, counted, b.num_high)
        offset = _within(aim(high - low, k - num_low, num_high - num_low), high - low)
        return _Bracket(low, high, num_low, num_high, low + offset)

    start = varying_like(bracket, masked, k)
    return lax.while_loop(lambda b: jnp.any(open_(b)), step, start)


def _within(offset: Array, width: Array) -> Array:
    return jnp.clip(offset, jnp.minimum(width, 1), jnp.maximum(width - 1, 1))


def _halve(width: Array, k: Array, num_keys: Array) -> Array:
    """Aim at the middle: never more than 31 steps, whatever the keys."""
    del k, num_keys
    return width // 2


def _interpolate(width: Array, k: Array, num_keys: Array) -> Array:
    """Aim between where the k-th and the next of `num_keys` uniform keys are expected."""
    share = (k.astype(jnp.float32) + 0.5) / (num_keys.astype(jnp.float32) + 1.0)
    return (width.astype(jnp.float32) * jnp.minimum(share, 0.999)).astype(jnp.int32)


def block_start_all(
    flags: Bool[Array, " clients *trials"], size: Int32[Array, ""]
) -> Bool[Array, " clients *trials"]:
    """Return at each index whether `flags` holds there and at the size - 1 indices that follow.

    At the first client of a block of `size` neighbours: whether all of the block's flags hold.
    Indices past the end count as false.
    """
    n = flags.shape[0]

    def widen(a: Array, by: Array) -> Array:
        padded = jnp.concatenate([a, jnp.zeros_like(a)])
        return a & lax.dynamic_slice_in_dim(padded, by, n)

    return _windows(flags, size, widen)


def block_any(
    flags: Bool[Array, " clients *trials"], size: Int32[Array, ""]
) -> Bool[Array, " clients *trials"]:
    """Return at each index whether `flags` holds there or at one of the size - 1 indices before.

    With flags only at the first clients of blocks: each client gets its block's flag.
    """
    n = flags.shape[0]

    def widen(a: Array, by: Array) -> Array:
        padded = jnp.concatenate([jnp.zeros_like(a), a])
        return a | lax.dynamic_slice_in_dim(padded, jnp.int32(n) - by, n)

    return _windows(flags, size, widen)


def _windows(flags: Array, size: Array, widen: Callable[[Array, Array], Array]) -> Array:
    """Combine windows of `size` flags by doubling; `widen(a, by)` joins two windows."""

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, width = carry
        by = jnp.minimum(width, size - width)
        return widen(a, by), width + by

    start = varying_like((flags, jnp.int32(1)), flags, size)
    return lax.while_loop(lambda carry: carry[1] < size, step, start)[0]
