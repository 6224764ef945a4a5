"""Shamir's sharing against a published example, Python integers and its own definition."""

import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax.modular import shamir
from mrsa_jax.modular.shamir import (
    LIMBS,
    SHAMIR_PRIME,
    limbs_of,
    recover_secrets,
    share_secrets,
    words_of_limbs,
)

P = SHAMIR_PRIME


def polynomial_at(secret, coefficients, x, prime):
    """The definition, in Python integers."""
    return (
        secret + sum(int(c) * x ** (k + 1) for k, c in enumerate(coefficients))
    ) % prime


def test_rejects_fields_and_choices_that_do_not_fit():
    row = on_device(np.ones((1, 2), np.uint32))
    with pytest.raises(mj.ConfigurationError, match="`prime` must"):
        share_secrets(row, on_device(np.ones((1, 1, 2), np.uint32)), row, prime=2**31)
    shares = on_device(np.ones((1, 2, 2), np.uint32))
    with pytest.raises(mj.ConfigurationError, match="`used` must be bool; got"):
        recover_secrets(shares, row, np.ones((1, 2), np.int32))
    with pytest.raises(mj.ConfigurationError, match="`used` must match `points`"):
        recover_secrets(shares, row, np.ones((1, 3), bool))
    points = on_device([[1, 2]], jnp.uint32)
    with pytest.raises(
        mj.ConfigurationError, match=r"`prime` must be a prime, because.*; got 15"
    ):
        share_secrets(row, row[:, None], points, prime=15)
    with pytest.raises(mj.ConfigurationError, match="`prime` must be a prime"):
        recover_secrets(shares, points, np.ones((1, 2), bool), prime=15)
    with pytest.raises(mj.ConfigurationError, match=r"`secrets` must lie in \[0, 13\)"):
        share_secrets(13 * row, row[:, None], points, prime=13)
    with pytest.raises(
        mj.ConfigurationError, match=r"`coefficients` must lie in \[0, 13\)"
    ):
        share_secrets(row, 13 * row[:, None], points, prime=13)


def test_exactly_the_primes_are_fields():
    """By division, and the squares and products that pass tests of one base."""
    for number in [
        *range(-2, 1000),
        2_047,
        1_373_653,
        25_326_001,
        46_337**2,
        2**31 - 3,
    ]:
        divisors = range(2, int(max(number, 0) ** 0.5) + 1)
        if number > 1 and all(number % divisor for divisor in divisors):
            assert shamir._check_prime(number) == number
        else:
            with pytest.raises(mj.ConfigurationError, match="`prime` must"):
                shamir._check_prime(number)


def are_points_modulo_7(where):
    """The definition: distinct elements of the field other than 0."""
    return len(set(where)) == len(where) and all(0 < point < 7 for point in where)


@hypothesis.given(
    st.lists(st.integers(0, 8), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_exactly_distinct_points_of_a_field_are_taken(where, used):
    """Of all holders where shares are made, of those that are used where secrets come back."""
    points, one = on_device([where], jnp.uint32), on_device([[3]], jnp.uint32)
    chosen = [point for point, is_used in zip(where, used, strict=True) if is_used]
    acts = [
        (where, lambda: share_secrets(one, one[:, None], points, prime=7)),
        (
            chosen,
            lambda: recover_secrets(
                points[:, None] % 7, points, np.asarray([used]), prime=7
            ),
        ),
    ]
    for given, act in acts:
        if are_points_modulo_7(given):
            act()
        else:
            with pytest.raises(mj.ConfigurationError, match="`points` must"):
                act()


def test_largest_points():
    one, many = on_device([[1]], jnp.uint32), np.asarray([[2**16 - 1]], np.uint32)
    assert share_secrets(one, one[:, None], on_device(many)).tolist() == [[[2**16]]]
    with pytest.raises(
        mj.ConfigurationError, match=r"must lie in \[1, 65535\], because the share"
    ):
        share_secrets(one, one[:, None], on_device(many + 1))


def test_the_widely_printed_example():
    """S = 1234, a = (166, 94), p = 1613; any three of the six shares give 1234 back."""
    points = on_device(np.arange(1, 7, dtype=np.uint32)[None])
    secret = on_device([[1234]], jnp.uint32)
    coefficients = on_device([[[166], [94]]], jnp.uint32)
    shares = share_secrets(secret, coefficients, points, prime=1613)
    assert shares[0, 0].tolist() == [1494, 329, 965, 176, 1188, 775]
    for three in itertools.combinations(range(6), 3):
        used = np.isin(np.arange(6), three)[None]
        assert recover_secrets(shares, points, used, prime=1613).tolist() == [[1234]]


def test_limbs_hold_256_bits():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (50, 8), dtype=np.uint32)
    words[0], words[1] = 0, 2**32 - 1
    limbs = np.asarray(limbs_of(on_device(words)))
    for row, cut in zip(words, limbs, strict=True):
        value = int.from_bytes(row.astype("<u4").tobytes(), "little")
        assert sum(int(limb) << 30 * k for k, limb in enumerate(cut)) == value
    assert np.array_equal(words_of_limbs(on_device(limbs)), words)


@pytest.mark.long
@hypothesis.settings(max_examples=20)
@hypothesis.given(st.integers(0, 2**32 - 1), st.sampled_from([P, 2**31 - 19, 65537]))
def test_shares_are_the_polynomial_and_any_t_of_them_recover_it(seed, prime):
    rng = np.random.default_rng(seed)
    secrets = rng.integers(0, prime, (3, 2))
    coefficients = rng.integers(0, prime, (3, 4, 2))
    secrets[0], coefficients[0] = prime - 1, prime - 1  # the extremes
    coefficients[1, 2:] = 0  # a lower threshold: t = 3
    points = np.stack(
        [rng.choice(np.arange(1, 65536), 7, replace=False) for _ in range(3)]
    )
    points[0, 0] = 65535
    arrays = [jnp.asarray(a.astype(np.uint32)) for a in (secrets, coefficients, points)]
    shares = np.asarray(share_secrets(*arrays, prime=prime))
    for i, j, k in np.ndindex(3, 2, 7):
        expected = polynomial_at(
            int(secrets[i, j]), coefficients[i, :, j], int(points[i, k]), prime
        )
        assert shares[i, j, k] == expected
    used = np.zeros((3, 7), bool)
    for i, threshold in enumerate((5, 3, 5)):
        used[i, rng.choice(7, threshold, replace=False)] = True
    broken = np.where(used[:, None, :], shares, rng.integers(0, prime, shares.shape))
    found = recover_secrets(
        jnp.asarray(broken.astype(np.uint32)), arrays[2], used, prime=prime
    )
    assert np.array_equal(found, secrets)


def test_fewer_shares_than_the_threshold_fit_every_secret():
    """Over a tiny field.

    Two shares of a t = 3 sharing leave all secrets equally likely.
    """
    prime = 7
    coefficients = np.asarray(
        list(itertools.product(range(prime), repeat=2)), np.uint32
    )
    count = len(coefficients)
    points = on_device(np.tile([[2, 5]], (count, 1)).astype(np.uint32))
    seen = {}
    for secret in range(prime):
        secrets = on_device(np.full((count, 1), secret, np.uint32))
        shares = share_secrets(
            secrets, on_device(coefficients[:, :, None]), points, prime=prime
        )
        for pair in np.asarray(shares)[:, 0].tolist():
            seen.setdefault(tuple(pair), []).append(secret)
    assert len(seen) == prime**2
    assert all(sorted(secrets) == list(range(prime)) for secrets in seen.values())


def test_a_threshold_of_one_and_nothing_used():
    secret, points = on_device([[5, 6]], jnp.uint32), on_device([[1, 9]], jnp.uint32)
    shares = share_secrets(secret, zeros((1, 0, 2), np.uint32), points)
    assert shares.tolist() == [[[5, 5], [6, 6]]]
    assert recover_secrets(shares, points, np.asarray([[False, True]])).tolist() == [
        [5, 6]
    ]
    assert recover_secrets(shares, points, np.asarray([[False, False]])).tolist() == [
        [0, 0]
    ]


@pytest.mark.long
def test_jit_vmap_and_x64_change_nothing():
    rng = np.random.default_rng(2)
    secrets = jnp.asarray(rng.integers(0, P, (4, LIMBS)).astype(np.uint32))
    coefficients = jnp.asarray(rng.integers(0, P, (4, 3, LIMBS)).astype(np.uint32))
    points = jnp.asarray(np.tile(np.arange(1, 7, dtype=np.uint32), (4, 1)))
    shares = share_secrets(secrets, coefficients, points)
    alone = jax.vmap(lambda s, c, x: share_secrets(s[None], c[None], x[None])[0])
    assert np.array_equal(alone(secrets, coefficients, points), shares)
    with jax.enable_x64(True):
        assert np.array_equal(share_secrets(secrets, coefficients, points), shares)
        assert np.array_equal(
            recover_secrets(shares, points, np.ones((4, 6), bool)), secrets
        )
