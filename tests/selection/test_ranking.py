"""The k smallest and the windows over blocks, against sorting and loops."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax._core.device import compiling_for
from mrsa_jax.selection import _ranking


@contextlib.contextmanager
def _device(name: str) -> Iterator[None]:
    """Choose as on a CPU, by searching, or as elsewhere, by sorting."""
    with contextlib.ExitStack() as stack:
        if name != "cpu":
            stack.enter_context(compiling_for(name, 2**15, 2**34))
        yield


DEVICES = ("cpu", "tpu")
_smallest = jax.jit(_ranking.k_smallest)


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
    for name in DEVICES:
        with _device(name):
            got = _smallest(words, candidates, k, numbers)
            assert (np.asarray(got) == both).all(), name
            got = _smallest(words, candidates, k)
            assert (np.asarray(got) == alone).all(), name


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("k", [0, 1, 2, 3, 4])
def test_small_case_by_hand(k: int, name: str) -> None:
    words = np.array([9, 2**32 - 1, 4, 4, 2**32 - 1, 0], np.uint32)
    candidates = np.array([1, 1, 1, 1, 0, 0], bool)
    with _device(name):
        chosen = _smallest(words, candidates, jnp.int32(k))
    expected = [[], [2], [2, 3], [0, 2, 3], [0, 1, 2, 3]][k]
    assert np.flatnonzero(chosen).tolist() == expected


# few values, so that ties at every level are common; and the extremes
_WORDS = np.array([0, 1, 2, 3, 2**31, 2**32 - 3, 2**32 - 2, 2**32 - 1], np.uint32)
_NUMBERS = np.array([0, 1, 2, 2**31 - 2], np.int32)


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


@pytest.mark.parametrize("name", DEVICES)
def test_trials_are_data_and_map(name: str) -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (30, 64), dtype=np.uint32)
    candidates = rng.random((30, 64)) < 0.5
    k = rng.integers(0, candidates.sum(0) + 1).astype(np.int32)
    with _device(name):
        chosen = _smallest(words, candidates, k)
        mapped = jax.vmap(_smallest, in_axes=(1, 1, 0), out_axes=1)(
            words, candidates, k
        )
    assert np.array_equal(mapped, chosen)


@pytest.mark.parametrize("name", DEVICES)
def test_blocks_against_loops(name: str) -> None:
    """Every size in one program, those that leave a rest at the end among them."""
    rng = np.random.default_rng(0)
    flags = rng.random((24, 40)) < 0.8
    flags[:12, 0] = True
    sizes = jnp.arange(1, 25, dtype=jnp.int32)
    with _device(name):
        whole = jax.vmap(_ranking.block_start_all, (None, 0))(jnp.asarray(flags), sizes)
    for size in range(1, 25):
        starts = np.zeros_like(flags)
        expected = np.zeros_like(flags)
        for first in range(0, 24 - size + 1, size):
            starts[first] = flags[first : first + size].all(0)
            expected[first : first + size] = starts[first]
        assert (np.asarray(whole[size - 1]) == starts).all()
        with _device(name):
            spread = _ranking.block_any(jnp.asarray(starts), jnp.int32(size))
        assert (np.asarray(spread) == expected).all()


def test_block_size_is_data() -> None:
    flags = jnp.asarray(np.random.default_rng(0).random(24) < 0.8)
    sizes = jnp.asarray([1, 2, 3, 4, 6, 12], jnp.int32)
    for name in DEVICES:
        with _device(name):
            mapped = jax.vmap(_ranking.block_start_all, (None, 0))(flags, sizes)
            for row, size in zip(mapped, sizes, strict=True):
                assert (row == _ranking.block_start_all(flags, size)).all()
