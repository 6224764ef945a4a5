"""Exactly k of N clients by rank, and blocks of neighbours without gathers.

Ranks are found by narrowing a threshold: each step counts the keys at or below it, so
the cost is a few passes over N, and k is data. Blocks are runs of `size` neighbours:
their minimum, or their spread over their members, takes log2(size) shifted passes, and
`size` is data. Clients are the first axis; any axes that follow are trials, innermost
so that passes vectorise over them.

A CPU searches, in as many passes as the values need; other devices sort the keys of
each trial, in as few calls whatever the values. The results are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int32, UInt32

from mrsa_jax._core.array_types import Counts, Flags
from mrsa_jax._core.arrays import varying_like
from mrsa_jax._core.device import platform

_TOP = 2**31 - 1  # the key of a client who is no candidate
_Aim = Callable[[Array, Array, Array], Array]


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


def count(flags: Flags) -> Int32[Array, "*trials"]:
    """Count the clients that are flagged."""
    return jnp.sum(flags, axis=0, dtype=jnp.int32)


def word_key(
    words: UInt32[Array, " clients *trials"],
) -> Counts:
    """Return 31 bits of each word as a key in [0, 2^31 - 2].

    The two largest values are joined.
    """
    return jnp.minimum((words >> 1).astype(jnp.int32), _TOP - 1)


def _searches() -> bool:
    return platform() == "cpu"


def k_smallest(
    words: UInt32[Array, " clients *trials"],
    candidates: Flags,
    k: Int32[Array, "*trials"],
    numbers: Counts | None = None,
) -> Flags:
    """Return the k candidates with the smallest (number, word, index).

    Args:
        words: Uniform 32-bit words, of which 31 bits are compared.
        candidates: Who may be chosen.
        k: How many, from 0 to the number of candidates.
        numbers: From 0 to 2^31 - 2, e.g. how often a client took part; the same for all
            if None: then any k candidates, uniformly.

    Returns:
        bool[N, ...] with exactly k ones.
    """
    keys: tuple[Array, ...] = (word_key(words),)
    aims: tuple[_Aim, ...] = (_interpolate,)
    if numbers is not None:
        keys, aims = (numbers, *keys), (_halve, *aims)
    if not _searches():
        return _by_sorting(keys, candidates, k)
    split = _Split(jnp.zeros_like(candidates), candidates, count(candidates), k)
    for key, aim in zip(keys, aims, strict=True):
        split = _refine(key, split, aim)
    # random words hardly ever leave any tie
    return lax.cond(
        jnp.any(split.missing > 0),
        lambda split: _first_of_tied(split.chosen, split.tied, split.missing),
        lambda split: split.chosen,
        split,
    )


def _by_sorting(keys: tuple[Array, ...], candidates: Array, k: Array) -> Array:
    """Choose all candidates up to the k-th in order."""
    index = lax.broadcasted_iota(jnp.int32, candidates.shape, 0)
    columns = (jnp.where(candidates, keys[0], _TOP), *keys[1:], index)
    ordered = lax.sort(columns, dimension=0, is_stable=True, num_keys=len(keys))
    at = jnp.maximum(k - 1, 0)[None]
    is_below = jnp.ones_like(candidates)  # or the k-th itself
    for column, sorted_ in zip(reversed(columns), reversed(ordered), strict=True):
        last = jnp.take_along_axis(sorted_, at, axis=0)
        is_below = (column < last) | ((column == last) & is_below)
    return candidates & is_below & (k > 0)[None]


def _first_of_tied(chosen: Array, tied: Array, missing: Array) -> Array:
    """Add the first `missing` of the tied clients to those who are chosen."""
    places = jnp.cumsum(tied, axis=0, dtype=jnp.int32)
    return chosen | (tied & (places <= missing[None]))


def _refine(key: Array, split: _Split, aim: _Aim) -> _Split:
    """Choose among the tied clients by one more key.

    `aim` places the next threshold.
    """
    masked = jnp.where(split.tied, key, _TOP)
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
    masked: Array, num_candidates: Array, k: Array, aim: _Aim
) -> _Bracket:
    """Return the bracket from below the smallest key to the largest.

    Empty where k is 0.
    Most searches are for the one smallest key, which the first probe then hits.
    """
    is_empty = k == 0
    low = jnp.where(is_empty, -1, jnp.min(masked, axis=0) - 1)
    largest = jnp.max(jnp.where(masked == _TOP, -1, masked), axis=0)
    high = jnp.where(is_empty, -1, largest)
    num_high = jnp.where(is_empty, 0, num_candidates)
    aimed = low + _offset(aim, high - low, k, num_high)
    probe = jnp.where(k == 1, low + 1, aimed)
    return _Bracket(low, high, jnp.zeros_like(num_high), num_high, probe)


def _narrow(masked: Array, bracket: _Bracket, k: Array, aim: _Aim) -> _Bracket:
    """Move the ends together until the k smallest keys are known.

    Then exactly k keys are <= high, or high is the k-th smallest.
    """

    def open_(b: _Bracket) -> Array:
        return (b.num_high != k) & (b.high - b.low > 1)

    def step(b: _Bracket) -> _Bracket:
        counted = count(masked <= b.probe[None])
        up = open_(b) & (counted < k)
        down = open_(b) & (counted >= k)
        low = jnp.where(up, b.probe, b.low)
        num_low = jnp.where(up, counted, b.num_low)
        high = jnp.where(down, b.probe, b.high)
        num_high = jnp.where(down, counted, b.num_high)
        offset = _offset(aim, high - low, k - num_low, num_high - num_low)
        return _Bracket(low, high, num_low, num_high, low + offset)

    start = varying_like(bracket, masked, k)
    return lax.while_loop(lambda b: jnp.any(open_(b)), step, start)


def _offset(aim: _Aim, width: Array, k: Array, num_keys: Array) -> Array:
    """Place the next probe in a bracket, between its ends as long as it is open."""
    lowest = jnp.minimum(width, 1)
    return jnp.clip(aim(width, k, num_keys), lowest, jnp.maximum(width - 1, 1))


def _halve(width: Array, k: Array, num_keys: Array) -> Array:
    """Aim at the middle: never more than 31 steps, whatever the keys."""
    del k, num_keys
    return width // 2


def _interpolate(width: Array, k: Array, num_keys: Array) -> Array:
    """Aim between the expected k-th and the next of `num_keys` uniform keys."""
    share = (k.astype(jnp.float32) + 0.5) / (num_keys.astype(jnp.float32) + 1.0)
    return (width.astype(jnp.float32) * jnp.minimum(share, 0.999)).astype(jnp.int32)


def block_start_all(flags: Flags, size: Int32[Array, ""]) -> Flags:
    """Flag the first client of each block of `size` neighbours whose flags all hold.

    Blocks are clients 0 to size - 1 and so on; a last block of fewer does not count.
    False at all other clients.
    """
    index = lax.broadcasted_iota(jnp.int32, flags.shape, 0)
    starts = lax.rem(index, jnp.broadcast_to(size, index.shape)) == 0
    return starts & _windows(flags, size, ahead=True)


def block_any(starts: Flags, size: Int32[Array, ""]) -> Flags:
    """Return for each client the flag of its block's first client.

    Others must have none.
    """
    return _windows(starts, size, ahead=False)


def _windows(flags: Array, size: Array, *, ahead: bool) -> Array:
    """Join the flags of windows of `size` clients.

    Ahead of each client all of them must hold, behind it any.

    Windows are joined two by two.
    """
    n = flags.shape[0]

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, width = carry
        by = jnp.minimum(width, size - width)
        nobody = jnp.zeros_like(a)
        pair = [a, nobody] if ahead else [nobody, a]
        start = by if ahead else n - by
        shifted = lax.dynamic_slice_in_dim(jnp.concatenate(pair), start, n)
        return (a & shifted if ahead else a | shifted), width + by

    carry = varying_like((flags, jnp.int32(1)), flags, size)
    if _searches():
        return lax.while_loop(lambda carry: carry[1] < size, step, carry)[0]
    for _ in range((n - 1).bit_length()):
        carry = step(carry)  # joins nothing once the width is reached
    return carry[0]
