"""The k smallest and the windows over blocks, against sorting and loops."""

from __future__ import annotations

import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax.selection import _ranking

STEPS = typing.get_args(_ranking.Steps)
_smallest = jax.jit(_ranking.k_smallest, static_argnames="steps")


def _by_sorting(
    numbers: np.ndarray, words: np.ndarray, candidates: np.ndarray, k: int
) -> np.ndarray:
    keys = [
        (int(n), min(int(w) >> 1, 2**31 - 2), i)
        for i, (n, w) in enumerate(zip(numbers, words, strict=True))
    ]
    ranked = sorted(key for key in keys if candidates[key[2]])
    chosen = np.zeros(len(numbers), bool)
    chosen[[key[2] for key in ranked[:k]]] = True
    return chosen


def _check(
    numbers: np.ndarray, words: np.ndarray, candidates: np.ndarray, k: np.ndarray
) -> None:
    """Compare all ways with sorting in Python; trials are the second axis."""
    columns = list(zip(numbers.T, words.T, candidates.T, k, strict=True))
    both = np.stack([_by_sorting(*column) for column in columns], axis=1)
    alone = np.stack([_by_sorting(0 * n, w, c, m) for n, w, c, m in columns], axis=1)
    for steps in STEPS:
        got = _smallest(words, candidates, k, numbers=numbers, steps=steps)
        assert (np.asarray(got) == both).all(), steps
        got = _smallest(words, candidates, k, steps=steps)
        assert (np.asarray(got) == alone).all(), steps


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("k", [0, 1, 2, 3, 4])
def test_small_case_by_hand(k: int, steps: _ranking.Steps) -> None:
    words = np.array([9, 2**32 - 1, 4, 4, 2**32 - 1, 0], np.uint32)
    candidates = np.array([1, 1, 1, 1, 0, 0], bool)
    chosen = _smallest(words, candidates, jnp.int32(k), steps=steps)
    expected = [[], [2], [2, 3], [0, 2, 3], [0, 1, 2, 3]][k]
    assert np.flatnonzero(chosen).tolist() == expected


# few values, so that ties at every level are common; and the extremes
_WORDS = np.array([0, 1, 2, 3, 2**31, 2**32 - 3, 2**32 - 2, 2**32 - 1], np.uint32)
_NUMBERS = np.array([0, 1, 2, 2**31 - 2], np.int32)


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2, 7, 33])
def test_every_tie_falls_to_the_next_key(n: int) -> None:
    """Thousands of cases in one call, with k from nobody to everybody."""
    rng = np.random.default_rng(n)
    shape = (n, 2000 if n < 10 else 300)
    numbers, words = rng.choice(_NUMBERS, shape), rng.choice(_WORDS, shape)
    some = rng.random(shape[1]) < 0.5  # the other trials differ in most keys
    spread = rng.integers(0, 2**32, shape, dtype=np.uint32)
    words = np.where(some, words, spread)
    candidates = rng.random(shape) < rng.choice([0.3, 0.7, 1.0], shape[1])
    k = rng.integers(0, candidates.sum(0) + 1)
    k = np.where(rng.random(shape[1]) < 0.2, candidates.sum(0), k).astype(np.int32)
    _check(numbers, words, candidates, k)


@pytest.mark.long("search", "sort")
@pytest.mark.parametrize("steps", STEPS)
def test_trials_are_data_and_map(steps: _ranking.Steps) -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (30, 64), dtype=np.uint32)
    candidates = rng.random((30, 64)) < 0.5
    k = rng.integers(0, candidates.sum(0) + 1).astype(np.int32)
    chosen = _smallest(words, candidates, k, steps=steps)
    one = functools.partial(_ranking.k_smallest, steps=steps)
    mapped = jax.jit(jax.vmap(one, in_axes=(1, 1, 0), out_axes=1))(words, candidates, k)
    assert np.array_equal(mapped, chosen)


# in bits also of clients who fill words, and who are some more
@pytest.mark.parametrize(
    ("steps", "n"), [*((each, 24) for each in STEPS), ("bits", 64), ("bits", 77)]
)
def test_blocks_against_loops(steps: _ranking.Steps, n: int) -> None:
    """Every size in one program, those that leave a rest at the end among them."""
    rng = np.random.default_rng(0)
    flags = rng.random((n, 40)) < 0.8
    flags[: n // 2, 0] = True
    flags[:, 1] = True
    whole = jax.jit(_ranking.block_start_all, static_argnames="steps")
    spread = jax.jit(_ranking.block_any, static_argnames="steps")
    for size in range(1, n + 1):
        starts = np.zeros_like(flags)
        expected = np.zeros_like(flags)
        for first in range(0, n - size + 1, size):
            starts[first] = flags[first : first + size].all(0)
            expected[first : first + size] = starts[first]
        assert (np.asarray(whole(flags, jnp.int32(size), steps=steps)) == starts).all()
        assert (
            np.asarray(spread(starts, jnp.int32(size), steps=steps)) == expected
        ).all()


@pytest.mark.long
def test_block_size_is_data() -> None:
    flags = jnp.asarray(np.random.default_rng(0).random(24) < 0.8)
    sizes = jnp.asarray([1, 2, 3, 4, 6, 12], jnp.int32)
    for steps in STEPS:
        of = functools.partial(_ranking.block_start_all, steps=steps)
        mapped = jax.vmap(of, (None, 0))(flags, sizes)
        for row, size in zip(mapped, sizes, strict=True):
            assert (row == of(flags, size)).all()
