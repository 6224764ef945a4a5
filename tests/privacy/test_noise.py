"""Noise and spread: what is refused, and the forms that privacy's figures work with."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.noise import check_noise, check_spread
from mrsa_jax.privacy._hidden import noise_root


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (-0.5, r"`noise` must hold no negative variance; got -0.5"),
        ([1.0, -2.0, 0.0], r"`noise` must hold no negative variance; got -2.0"),
        (
            np.diag([1.0, -1.0, 1.0]),
            r"`noise` must hold no negative variance; got -1.0",
        ),
        (np.nan, r"`noise` must be finite; got nan"),
        ([0.0, np.inf, 1.0], r"`noise` must be finite; got inf"),
        (
            [1.0, 1.0],
            r"`noise` must be one number, or of shape \[3\] or \[3, 3\].*; got .*\(2,\)",
        ),
        (np.eye(2), r"`noise` must be one number, or of shape .*; got .*\(2, 2\)"),
        (
            np.ones((1, 3, 3)),
            r"`noise` must be one number, or of shape .*; got .*\(1, 3, 3\)",
        ),
        (
            [[1, 2, 0], [1, 1, 0], [0, 0, 1]],
            r"`noise` must be a symmetric covariance; got",
        ),
        (
            [[1, 2, 0], [2, 1, 0], [0, 0, 1]],
            r"`noise` must be a positive semidefinite cov.*-1",
        ),
        (
            [[0, 1, 0], [1, 1, 0], [0, 0, 1]],
            r"`noise` must be a positive semi.*a round of var",
        ),
        (
            [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
            r"`noise` must be a positive semi.*a round of var",
        ),
        # small beside the other rounds, but clearly negative in its own
        (
            [[1e6, 0, 0], [0, 1e-9, 2e-9], [0, 2e-9, 1e-9]],
            r"`noise` must be a positive semi",
        ),
        ("1", r"`noise` must be a variance, one for each round, or a covariance"),
        (True, r"`noise` must be a variance, one for each round, or a covariance"),
        (None, r"`noise` must be a variance, one for each round, or a covariance"),
        ([1.0, [2.0], 3.0], r"`noise` must hold real numbers"),
    ],
)
def test_rejects_what_is_no_noise(noise, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        check_noise(noise, 3)


def test_rejects_traced_noise():
    with pytest.raises(
        mj.ConfigurationError, match="`noise` must be known, not traced"
    ):
        jax.jit(lambda noise: check_noise(noise, 3))(1.0)


@pytest.mark.smoke("1")
@pytest.mark.parametrize("spread", [0, -1.0, np.nan, np.inf, "1", True, [1.0], None])
def test_rejects_what_is_no_spread(spread):
    with pytest.raises(
        mj.ConfigurationError, match="`spread` must be positive and finite"
    ):
        check_spread(spread)


@pytest.mark.parametrize("none", [0, 0.0, [0, 0, 0], np.zeros((3, 3))])
def test_noise_of_nothing_is_none(none):
    assert check_noise(none, 3) is None


def test_independent_noise_is_variances():
    assert check_noise(2, 3).tolist() == [2.0, 2.0, 2.0]
    assert check_noise([0, 1, 2.5], 3).tolist() == [0.0, 1.0, 2.5]
    assert check_noise(np.diag([0, 1, 2.5]), 3).tolist() == [0.0, 1.0, 2.5]
    assert check_noise([[4.0]], 1).tolist() == [4.0]
    assert check_spread(np.float32(0.5)) == 0.5


def test_roots_give_the_covariance_back_in_each_rounds_own_digits():
    rng = np.random.default_rng(0)
    for case in range(40):
        rounds, rank = int(rng.integers(2, 9)), int(rng.integers(1, 9))
        factor = rng.normal(size=(rounds, rank)) * 10.0 ** rng.integers(
            -9, 9, size=(rounds, 1)
        )
        if case % 3 == 0:
            factor[rng.integers(rounds)] = 0.0  # a round without noise
        covariance = factor @ factor.T
        found = check_noise(covariance, rounds)
        if found.ndim == 1:
            continue
        scale = np.sqrt(np.diag(covariance))
        gap = np.abs(found @ found.T - covariance)
        assert (gap <= 1e-13 * np.outer(scale, scale)).all()
        assert not found[scale == 0].any()


def test_noise_is_measured_in_spreads():
    root = noise_root([9.0, 0.0], 2.0, np.ones((2, 3), bool))
    assert root.tolist() == [1.5, 0.0]
