"""The bound on a client's integers against brute force, and the transform against its matrix."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import zeros
from mrsa_jax.quantize import lattice
from mrsa_jax.quantize._lattice import hadamard, norm, rotate, rotate_back, sign_words
from mrsa_jax.quantize._stochastic import squared_norm


def sylvester(length: int) -> np.ndarray:
    matrix = np.ones((1, 1), np.int64)
    while len(matrix) < length:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def test_transform_is_the_matrix() -> None:
    random = np.random.default_rng(0)
    for power in (0, 1, 2, 5, 8):
        values = random.integers(-999, 999, 2**power)
        found = jax.jit(hadamard)(values.astype(np.float32))
        assert np.array_equal(found, sylvester(2**power) @ values)  # integers: exact


def test_rotation_is_undone() -> None:
    values = np.random.default_rng(0).integers(-99, 99, 77).astype(np.float32)

    @jax.jit
    def there_and_back(values, words):
        turned = rotate(values, words)
        return turned, rotate_back(turned, words, 77), norm(values)

    words = sign_words(5, 128)
    turned, back, length = there_and_back(values, words)
    assert turned.shape == (128,)
    assert np.array_equal(back, 128 * values)
    assert not np.array_equal(turned, there_and_back(values, sign_words(6, 128))[0])
    assert float(length) == pytest.approx(
        math.sqrt((values.astype(int) ** 2).sum()), rel=1e-6
    )


def test_decoding_is_the_transposed_rotation() -> None:
    """A^T A = step^2 I for the matrix A of decoded unit vectors, and encoding is A / step^2."""
    own = lattice(0.25, 20.0, 10, key=3)
    matrix = np.asarray(own.decode(np.eye(16, dtype=np.uint32), 1), np.float64)
    np.testing.assert_allclose(matrix.T @ matrix, 0.25**2 * np.eye(10), atol=1e-7)
    assert np.allclose(abs(matrix), 0.25 / 4)
    values = np.random.default_rng(6).normal(size=10).astype(np.float32)
    np.testing.assert_allclose(own.scaled(values), matrix @ values / 0.25**2, atol=1e-4)


def test_squares_are_added_up_exactly() -> None:
    random = np.random.default_rng(1)
    program = jax.jit(squared_norm)
    for size in (257, 2**17):
        for top in (2, 2**12, 2**13, 2**24):
            sizes = random.integers(0, top, size)
            sizes[0] = top - 1
            high, low = program(sizes.astype(np.uint32))
            assert int(high) * 2**32 + int(low) == (sizes.astype(np.uint64) ** 2).sum()
    high, low = program(np.full(2**17, 2**24 - 1, np.uint32))  # passes 2**64
    assert (int(high), int(low)) == (2**32 - 1, 2**32 - 1)


def hostile(dim: int, clip: float, step: float) -> np.ndarray:
    """Return updates that would break a careless bound, one a row."""
    random = np.random.default_rng(dim)
    first, halves = np.zeros(dim), np.full(dim, 0.5 * step)
    first[0] = clip
    short = np.sqrt(max(clip**2 - 0.25 * step**2 * (dim - 1), 0.0))
    rows = [
        np.zeros(dim),
        first,
        -first,
        1e30 * first,
        halves,
        1.5 * halves,
        np.concatenate([[short], halves[1:]]),
        np.full(dim, clip / np.sqrt(dim)),
        -np.full(dim, np.nextafter(clip, 9e9) / np.sqrt(dim)),
        np.full(dim, 3e38),
        np.full(dim, 1e-45),
        np.full(dim, np.nan),
        np.full(dim, np.inf),
        np.where(np.arange(dim) % 3 == 0, np.nan, clip),
        random.normal(size=dim) * clip,
        random.choice([-1.0, 1.0], dim) * step * 0.999_999,
        random.standard_cauchy(dim) * clip,
    ]
    with np.errstate(over="ignore"):
        return np.stack(rows).astype(np.float32)


CASES = [
    # step, clip, dim, rotate, rejection
    (1.0, 1.0, 64, False, math.exp(-0.5)),
    (3.0, 1.0, 65, True, 0.99),
    (1e-3, 1.0, 300, False, 0.0),
    (1e-2, 1.0, 300, False, 1 - 1e-12),  # every second draw is too long
    (2.0**-20, 8.0, 200, True, 1 - 1e-12),
    (1e12, 1e15, 1, True, 1e-9),
]


@pytest.mark.long
@pytest.mark.parametrize(("step", "clip", "dim", "rotate", "rejection"), CASES)
def test_no_update_passes_the_bound(step, clip, dim, rotate, rejection) -> None:
    own = lattice(step, clip, dim, rotate=rotate, key=3, rejection=rejection)
    updates = hostile(dim, clip, step)
    keys = jax.random.split(jax.random.key(0), 8)
    encode = jax.jit(jax.vmap(jax.vmap(own.encode, (None, 0)), (0, None)))
    codes = (
        np.asarray(encode(keys, jnp.asarray(updates))).astype(np.int32).astype(object)
    )
    assert codes.shape == (8, len(updates), own.padded_dim)
    largest = int((codes * codes).sum(axis=-1).max())
    assert largest <= own.squared_bound
    assert (
        int(abs(codes).max())
        <= int(own.num_levels) // 2
        <= clip / step * (1 + 1e-6) + 1
    )
    assert math.isqrt(largest) * float(own.step) <= own.sensitivity
    assert int(abs(codes).sum(axis=-1).max()) * float(own.step) <= own.sensitivity_l1
    assert not codes[:, [0, 11, 12]].any()  # of nothing, NaN and infinities: nothing

    # the paper's bound in units of updates, the integers' floor apart
    d, g, c = own.padded_dim, float(own.step), float(own.clip_norm)
    simple = (c + g * math.sqrt(d)) ** 2
    if rejection > 0:
        extra = math.sqrt(2 * math.log(1 / rejection)) * g * (c + g * math.sqrt(d) / 2)
        simple = min(simple, c**2 + g**2 * d / 4 + extra)
    assert (
        0 <= simple - g**2 * own.squared_bound + 1e-9 * simple <= g**2 + 2e-9 * simple
    )
    assert own.sensitivity >= g * math.sqrt(own.squared_bound)


@pytest.mark.parametrize("rejection", [0.9, 0.3, 0.05])
def test_a_rounding_passes_as_often_as_promised(rejection) -> None:
    # all roundings of a small vector, with their chances
    random = np.random.default_rng(2)
    vectors = [
        np.full(10, 0.5),
        np.full(10, 2.5),
        random.random(10) * 4,
        np.full(10, 0.9),
    ]
    for values in vectors:
        length = float(np.sqrt((values**2).sum()))
        own = lattice(1.0, length, 10, rotate=False, rejection=rejection)
        chance = 0.0
        for up in itertools.product((0, 1), repeat=10):
            floor, f = np.floor(values), values - np.floor(values)
            if ((floor + up) ** 2).sum() <= own.squared_bound:
                chance += np.prod(np.where(up, f, 1 - f))
        assert chance >= 1 - rejection


@pytest.mark.long
def test_where_no_draw_passes_all_go_towards_zero() -> None:
    own = lattice(1.0, 40.0, 256, rotate=False)
    values = jnp.asarray([-2.5, 1.5] * 128, jnp.float32)
    least = 128 * (4 + 1)
    tight = dataclasses.replace(own, bound=jnp.asarray([0, least], jnp.uint32))
    codes = tight.encode(jax.random.key(1), values).astype(jnp.int32)
    assert codes.tolist() == [-2, 1] * 128
    none = dataclasses.replace(own, bound=jnp.asarray([0, least - 1], jnp.uint32))
    assert not none.encode(jax.random.key(1), values).any()
    assert (
        own.encode(jax.random.key(1), values).astype(jnp.int32).tolist()
        != codes.tolist()
    )


@pytest.mark.long
@pytest.mark.parametrize("rotate", [False, True])
def test_mean_of_many_is_the_clipped_update(rotate) -> None:
    own = lattice(0.3, 2.0, 40, rotate=rotate, rejection=0.05)
    values = np.random.default_rng(4).normal(size=40).astype(np.float32)
    keys = jax.random.split(jax.random.key(2), 4000)
    draws = jax.jit(
        jax.vmap(lambda key: own.decode(own.encode(key, jnp.asarray(values)), 1))
    )(keys)
    clipped = values * (2.0 / np.linalg.norm(values))
    gaps = np.asarray(draws, np.float64).mean(axis=0) - clipped
    error = np.asarray(draws).std(axis=0) / np.sqrt(len(keys))
    assert np.abs(gaps / error).max() < 4.5
    assert 0.05 < error.mean() * np.sqrt(len(keys)) < 0.3
    # however long: the direction is kept
    for size in (1e30, 3e38 / np.abs(values).max(), 1.0):
        own_scale = own.decode(
            own.encode(keys[0], jnp.asarray(values * np.float32(size))), 1
        )
        assert 1.5 < np.linalg.norm(own_scale) < 2.5
        assert np.dot(own_scale, clipped) > 3.0
        assert (
            float(own.clipped_fraction(jnp.asarray(values * np.float32(size)))) == 1.0
        )
    fractions = own.clipped_fraction(jnp.stack([jnp.asarray(values), jnp.zeros(40)]))
    assert fractions.tolist() == [1.0, 0.0]


@pytest.mark.long
def test_bits_do_not_depend_on_what_else_is_encoded() -> None:
    own = lattice(1e-4, 1.0, 1000)
    updates = jax.random.normal(jax.random.key(5), (6, 1000)) * 0.1
    keys = jax.random.split(jax.random.key(6), 6)
    together = jax.jit(jax.vmap(own.encode))(keys, updates)
    alone = [own.encode(keys[i], updates[i]) for i in (0, 5)]
    assert np.array_equal(together[jnp.asarray([0, 5])], jnp.stack(alone))
    # another step and clip norm are data: the same program
    other = lattice(3e-4, 2.0, 1000, key=7)
    program = type(own).encode
    compiled = program._cache_size()
    assert not np.array_equal(other.encode(keys[0], updates[0]), alone[0])
    assert program._cache_size() == compiled


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 0.0}, "`step` must lie in"),
        ({"step": float("nan")}, "`step` must lie in"),
        ({"clip_norm": -1.0}, "`clip_norm` must lie in"),
        ({"clip_norm": 1e9}, r"`clip_norm` must be at most 2\*\*23 steps"),
        ({"dim": 0}, "`dim` must be at least 1"),
        ({"dim": 2**24 + 1}, r"`dim` must be at most 2\*\*24"),
        ({"rejection": 1.0}, r"`rejection` must lie in \[0, 1\)"),
        ({"rejection": -0.1}, r"`rejection` must lie in \[0, 1\)"),
        ({"key": -1}, "`key` must"),
    ],
)
def test_rejects_impossible_lattices(change, message) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        lattice(**({"step": 0.1, "clip_norm": 1.0, "dim": 5} | change))
    with pytest.raises(
        mj.ConfigurationError, match="`values` must have a last axis of 5"
    ):
        lattice(0.1, 1.0, 5).encode(jax.random.key(0), zeros(6, np.float32))
