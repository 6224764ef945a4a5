"""Ring arithmetic against Python integers, the extreme residues always among them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.prime import words_per_residue
from mrsa_jax.modular import (
    add,
    check_modulus,
    reduce_words,
    ring_of,
    ring_sum_over,
    subtract,
)

MODULI = [
    2,
    3,
    37,
    2**8,
    255,
    221,
    2**16 + 1,
    10**9 + 7,
    2**30 + 2,
    2**31 - 1,
    2**31,
    2**32,
]


WRONG = [0, 1, -4, 2**31 + 1, 2**32 - 1, 2**33, 2.5, "8", True, None]


@pytest.mark.parametrize("modulus", WRONG)
def test_rejects_rings_it_cannot_compute(modulus):
    with pytest.raises(mj.ConfigurationError, match=r"`R` must be .*; got"):
        check_modulus(modulus, "R")


@pytest.mark.parametrize(
    "act", [add, subtract, reduce_words, lambda x, _, R: ring_sum_over(x, R)]
)
@pytest.mark.parametrize(
    "modulus", [number for number in WRONG if isinstance(number, int)]
)
def test_every_function_refuses_moduli_that_are_not_exact(act, modulus):
    ones = on_device(np.ones(2, np.uint32))
    with pytest.raises(mj.ConfigurationError, match=r"`modulus` must be .*; got"):
        act(ones, ones, modulus)


def test_accepts_numpy_integers():
    assert check_modulus(np.int64(37)) == 37
    assert int(add(jnp.uint32(30), jnp.uint32(10), np.int64(37))) == 3


@pytest.mark.parametrize("modulus", MODULI)
def test_add_subtract_and_sum(modulus):
    rng = np.random.default_rng(modulus)
    extremes = [0, 1, modulus // 2, modulus - 1]
    left = np.array(
        [a for a in extremes for _ in extremes] + list(rng.integers(0, modulus, 50)),
        np.uint32,
    )
    right = np.array(
        extremes * len(extremes) + list(rng.integers(0, modulus, 50)), np.uint32
    )
    pairs = [(int(a), int(b)) for a, b in zip(left, right, strict=True)]
    assert add(on_device(left), on_device(right), modulus).tolist() == [
        (a + b) % modulus for a, b in pairs
    ]
    assert subtract(jnp.asarray(left), jnp.asarray(right), modulus).tolist() == [
        (a - b) % modulus for a, b in pairs
    ]
    rows = on_device(np.stack([left, right, left]))
    assert ring_sum_over(rows, modulus).tolist() == [
        (2 * a + b) % modulus for a, b in pairs
    ]
    assert (
        ring_sum_over(rows.T, modulus, axis=-1).tolist()
        == ring_sum_over(rows, modulus).tolist()
    )


@pytest.mark.parametrize("count", [0, 1, 2**16, 2**16 + 3, 2**17 + 1])
def test_sums_of_many_residues_where_the_ring_is_traced(count):
    """Largest residues first: halves of 16 bits may be added up 2^16 times and no more."""
    modulus = 2**31 - 1
    values = np.full((2, count), modulus - 1, np.uint32)
    values[1] = np.random.default_rng(count).integers(0, modulus, count)
    total = jax.jit(lambda rows, ring: ring_sum_over(rows, ring, axis=1))(
        values, ring_of(modulus)
    )
    assert total.tolist() == [int(row.astype(object).sum()) % modulus for row in values]


@pytest.mark.parametrize("modulus", MODULI)
def test_reduction_of_64_bits(modulus):
    rng = np.random.default_rng(modulus + 1)
    edges = [0, 1, modulus - 1, modulus, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    edges += [
        modulus * k + e for k in (1, 2**20, 2**64 // modulus - 1) for e in (-1, 0, 1)
    ]
    numbers = [n for n in edges if 0 <= n < 2**64]
    numbers += [int(n) for n in rng.integers(0, 2**64, 400, dtype=np.uint64)]
    high = on_device([n >> 32 for n in numbers], jnp.uint32)
    low = jnp.asarray([n & 0xFFFFFFFF for n in numbers], jnp.uint32)
    expected = [n % modulus for n in numbers]
    assert reduce_words(high, low, modulus).tolist() == expected
    with jax.enable_x64(True):
        assert reduce_words(high, low, modulus).tolist() == expected


@pytest.mark.smoke
def test_keystream_words_of_a_residue():
    assert [words_per_residue(modulus) for modulus in (2, 2**32, 3, 37)] == [1, 1, 2, 2]
