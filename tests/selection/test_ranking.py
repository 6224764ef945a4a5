"""The k smallest and the windows over blocks, against sorting and loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrsa_jax.selection import _ranking

_smallest = jax.jit(_ranking.k_smallest)
_smallest_words = jax.jit(_ranking.k_smallest_words)


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


def _check(numbers: np.ndarray, words: np.ndarray, candidates: np.ndarray, k: int) -> None:
    got = _smallest(jnp.asarray(numbers), jnp.asarray(words), jnp.asarray(candidates), jnp.int32(k))
    assert (np.asarray(got) == _by_sorting(numbers, words, candidates, k)).all()
    got = _smallest_words(jnp.asarray(words), jnp.asarray(candidates), jnp.int32(k))
    assert (np.asarray(got) == _by_sorting(0 * numbers, words, candidates, k)).all()


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4])
def test_small_case_by_hand(k: int) -> None:
    words = np.array([9, 2**32 - 1, 4, 4, 2**32 - 1, 0], np.uint32)
    candidates = np.array([1, 1, 1, 1, 0, 0], bool)
    chosen = _smallest_words(jnp.asarray(words), jnp.asarray(candidates), jnp.int32(k))
    expected = [[], [2], [2, 3], [0, 2, 3], [0, 1, 2, 3]][k]
    assert np.flatnonzero(chosen).tolist() == expected


# few values, so that ties at every level are common; and the extremes
_WORDS = st.sampled_from([0, 1, 2, 3, 2**31, 2**32 - 3, 2**32 - 2, 2**32 - 1])
_NUMBERS = st.sampled_from([0, 1, 2, 2**31 - 2])


@given(
    st.lists(st.tuples(_NUMBERS, _WORDS, st.booleans()), min_size=7, max_size=7), st.integers(0, 7)
)
def test_ties_fall_to_the_next_key(rows: list[tuple[int, int, bool]], k: int) -> None:
    numbers, words, candidates = (np.array(column) for column in zip(*rows, strict=True))
    _check(
        numbers.astype(np.int32), words.astype(np.uint32), candidates, min(k, int(candidates.sum()))
    )


@pytest.mark.parametrize("n", [1, 2, 50, 1000])
def test_random_words(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(8):
        candidates = rng.random(n) < 0.7
        numbers = rng.integers(0, rng.choice([1, 3, 10**6]), n).astype(np.int32)
        words = rng.integers(0, 2**32, n, dtype=np.uint32)
        _check(numbers, words, candidates, int(rng.integers(0, candidates.sum() + 1)))


def test_trials_and_numbers_to_choose_are_data() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (30, 64), dtype=np.uint32)
    candidates = rng.random((30, 64)) < 0.5
    k = rng.integers(0, candidates.sum(0) + 1).astype(np.int32)
    chosen = _smallest_words(words, candidates, k)
    for b in range(64):
        expected = _by_sorting(np.zeros(30), words[:, b], candidates[:, b], int(k[b]))
        assert (np.asarray(chosen[:, b]) == expected).all()
    mapped = jax.vmap(_ranking.k_smallest_words, in_axes=(1, 1, 0), out_axes=1)(
        words, candidates, k
    )
    assert (mapped == chosen).all()


@pytest.mark.parametrize("size", [1, 2, 3, 8, 12, 24])
def test_blocks_against_loops(size: int) -> None:
    rng = np.random.default_rng(size)
    flags = rng.random(24) < 0.8
    flags[:size] = True
    whole = np.asarray(_ranking.block_start_all(jnp.asarray(flags), jnp.int32(size)))
    blocks = flags.reshape(-1, size).all(1)
    assert (whole[::size] == blocks).all()
    starts = np.zeros(24, bool)
    starts[::size] = blocks
    spread = np.asarray(_ranking.block_any(jnp.asarray(starts), jnp.int32(size)))
    assert (spread == np.repeat(blocks, size)).all()


def test_block_size_is_data() -> None:
    flags = jnp.asarray(np.random.default_rng(0).random(24) < 0.8)
    sizes = jnp.asarray([1, 2, 3, 4, 6, 12], jnp.int32)
    mapped = jax.vmap(_ranking.block_start_all, (None, 0))(flags, sizes)
    for row, size in zip(mapped, sizes, strict=True):
        assert (row == _ranking.block_start_all(flags, size)).all()
