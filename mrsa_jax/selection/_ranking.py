"""Exactly k of N clients by rank, and blocks of neighbours without gathers.

Ranks are found by narrowing a threshold: each step counts the keys at or below it, so
the cost is a few passes over N, and k is data. Blocks are runs of `size` neighbours:
their minimum, or their spread over their members, takes log2(size) shifted passes, and
`size` is data. Clients are the first axis; any axes that follow are trials, innermost
so that passes vectorise over them.

How steps are made differs by device, their results do not (`Steps`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, UInt32

from mrsa_jax._core.array_types import Counts, Flags, TrialKeys
from mrsa_jax._core.device import platform
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.streams import client_words

# "search": as many passes as the values need, which is fewest on a CPU. "sort": the
# keys of each trial are sorted, in as few calls whatever the values. "bits": inside a
# kernel, which cannot shift: searched too, and blocks joined as the bits of words.
Steps = Literal["search", "sort", "bits"]
Words = Callable[[int], Array]  # which of a client's words -> uint32[N, ...]


def by_key(key: TrialKeys, num_clients: int) -> Words:
    """Return a function that draws a word of each client, under keys of trials."""
    return lambda word: client_words(key, num_clients, word)


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


def some(flags: Bool[Array, "*trials"]) -> Bool[Array, ""]:
    """Return whether any flag holds; kernels reduce numbers only."""
    return jnp.max(flags.astype(jnp.int32)) > 0


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


def device_steps() -> Steps:
    """Return how passes over clients are made outside of kernels."""
    return "search" if platform() == "cpu" else "sort"


def k_smallest(
    words: UInt32[Array, " clients *trials"],
    candidates: Flags,
    k: Int32[Array, "*trials"],
    steps: Steps,
    numbers: Counts | None = None,
) -> Flags:
    """Return the k candidates with the smallest (number, word, index).

    Args:
        words: Uniform 32-bit words, of which 31 bits are compared.
        candidates: Who may be chosen.
        k: How many, from 0 to the number of candidates.
        steps: How.
        numbers: From 0 to 2^31 - 2, e.g. how often a client took part; the same for all
            if None: then any k candidates, uniformly.

    Returns:
        bool[N, ...] with exactly k ones.
    """
    keys: tuple[Array, ...] = (word_key(words),)
    aims: tuple[_Aim, ...] = (_interpolate,)
    if numbers is not None:
        keys, aims = (numbers, *keys), (_halve, *aims)
    if steps == "sort":
        return _by_sorting(keys, candidates, k)
    split = _Split(jnp.zeros_like(candidates), candidates, count(candidates), k)
    for key, aim in zip(keys, aims, strict=True):
        split = _refine(key, split, aim)
    # random words hardly ever leave any tie
    return lax.cond(
        some(split.missing > 0),
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
    index = lax.broadcasted_iota(jnp.int32, tied.shape, 0)
    last = _kth(index, tied, missing, (len(index) - 1).bit_length())
    return chosen | (tied & (index <= last[None]) & (missing > 0)[None])


def _kth(key: Array, among: Array, k: Array, num_bits: int) -> Array:
    """Return the k-th smallest key of some clients; 0 where k is 0.

    It is the largest number that fewer than k keys are below.
    """
    masked = jnp.where(among, key, _TOP)

    def step(i: Array, found: Array) -> Array:
        probe = found | (1 << (jnp.int32(num_bits - 1) - i))
        return jnp.where(count(masked < probe[None]) < k, probe, found)

    return lax.fori_loop(0, num_bits, step, jnp.zeros_like(k))


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
    masked: Array,
    num_candidates: Array,
    k: Array,
    aim: _Aim,
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
    return lax.while_loop(lambda b: some(open_(b)), step, start)


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


def block_start_all(flags: Flags, size: Int32[Array, ""], steps: Steps) -> Flags:
    """Flag the first client of each block of `size` neighbours whose flags all hold.

    Blocks are clients 0 to size - 1 and so on; a last block of fewer does not count.
    False at all other clients.
    """
    index = lax.broadcasted_iota(jnp.int32, flags.shape, 0)
    starts = lax.rem(index, jnp.broadcast_to(size, index.shape)) == 0
    return starts & _windows(flags, size, steps, ahead=True)


def block_any(starts: Flags, size: Int32[Array, ""], steps: Steps) -> Flags:
    """Return for each client the flag of its block's first client.

    Others must have none.
    """
    return _windows(starts, size, steps, ahead=False)


def _windows(flags: Array, size: Array, steps: Steps, *, ahead: bool) -> Array:
    """Join the flags of windows of `size` clients.

    Ahead of each client all of them must hold, behind it any.

    Windows are joined two by two.
    """
    n = flags.shape[0]
    join = operator.and_ if ahead else operator.or_
    parts = packed(flags) if steps == "bits" else [flags]
    move = _moved_bits if steps == "bits" else _moved

    def step(carry: tuple[list[Array], Array]) -> tuple[list[Array], Array]:
        parts, width = carry
        by = jnp.minimum(width, size - width)
        return list(map(join, parts, move(parts, by, ahead=ahead))), width + by

    carry = varying_like((parts, jnp.int32(1)), flags, size)
    if steps == "sort":
        for _ in range((n - 1).bit_length()):
            carry = step(carry)  # joins nothing once the width is reached
    else:
        carry = lax.while_loop(lambda carry: carry[1] < size, step, carry)
    return unpacked(carry[0], n) if steps == "bits" else carry[0][0]


def _moved(parts: list[Array], by: Array, *, ahead: bool) -> list[Array]:
    """Return for each client the flag of the one `by` ahead of it, or behind."""
    (flags,) = parts
    n = flags.shape[0]
    nobody = jnp.zeros_like(flags)
    pair = [flags, nobody] if ahead else [nobody, flags]
    start = by if ahead else n - by
    return [lax.dynamic_slice_in_dim(jnp.concatenate(pair), start, n)]


def _moved_bits(words: list[Array], by: Array, *, ahead: bool) -> list[Array]:
    """Do the same for clients who are bits of words."""
    ways = (operator.rshift, operator.lshift)
    near, far = ways if ahead else ways[::-1]
    nobody = [jnp.zeros_like(words[0])]
    moved = words if ahead else words[::-1]
    bits = (by & 31).astype(jnp.uint32)
    # in two shifts, as one by 32 has no meaning
    moved = [
        near(word, bits) | far(far(following, 1), 31 - bits)
        for word, following in zip(moved, moved[1:] + nobody, strict=True)
    ]
    for level in range((len(words) - 1).bit_length()):
        is_moved = (by >> (5 + level)) & 1 == 1
        further = moved[1 << level :] + nobody * (1 << level)
        moved = [
            jnp.where(is_moved, other, word)
            for word, other in zip(moved, further, strict=True)
        ]
    return moved if ahead else moved[::-1]


def packed(flags: Flags) -> list[UInt32[Array, "*trials"]]:
    """Return the flags of 32 clients after the other as the bits of a word, lowest first."""
    client = lax.broadcasted_iota(jnp.uint32, flags.shape, 0)
    bits = jnp.where(flags, jnp.uint32(1) << (client & 31), jnp.uint32(0))

    def word(i: int) -> Array:
        members = jnp.where(client >> 5 == i, bits, jnp.uint32(0))
        return jnp.sum(members, axis=0, dtype=jnp.uint32)

    return [word(i) for i in range(-(-flags.shape[0] // 32))]


def unpacked(words: list[UInt32[Array, "*trials"]], num_clients: int) -> Flags:
    """Return the flags of clients who are bits."""
    shape = (num_clients, *words[0].shape)
    client = lax.broadcasted_iota(jnp.uint32, shape, 0)
    word_of = jnp.broadcast_to(words[0][None], shape)
    for i, word in enumerate(words[1:], 1):
        word_of = jnp.where(client >> 5 == i, word[None], word_of)
    return (word_of >> (client & 31)) & 1 == 1
