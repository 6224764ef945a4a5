"""Inputs whose rule floats keep only up to rounding.

Taken within 1e-9, refused beyond it.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import availability, selection
from mrsa_jax._core.matrices import NEAR, correlations, covariance_root

ROUNDS = 4
P = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]])
KERNEL = 0.5 ** np.abs(np.subtract.outer(np.arange(ROUNDS), np.arange(ROUNDS)))
STRATEGY = np.tril(np.full((ROUNDS, ROUNDS), 0.25)) + 0.75 * np.eye(ROUNDS)
REST = np.diag([1.0, 1.0, 1.0, 0.0])  # of four rounds the last has no noise


def entry(i, j, size):
    found = np.zeros((ROUNDS, ROUNDS))
    found[i, j] = size
    return found


# ways in which floats leave each kind of matrix by `size`
LEAVES = {
    "correlations": {
        "a diagonal of ones": lambda size: KERNEL + entry(1, 1, -size),
        "above one": lambda size: KERNEL + entry(2, 2, size),
        "symmetry": lambda size: KERNEL + entry(0, 2, size),
        "no negative eigenvalue": lambda size: np.ones((4, 4)) + size * (1 - np.eye(4)),
    },
    "covariance": {
        "symmetry": lambda size: 2 * KERNEL + entry(3, 0, 2 * size),
        "no negative eigenvalue": lambda size: np.ones((4, 4)) + size * (1 - np.eye(4)),
        "nothing beside a variance of 0": lambda size: (
            REST + entry(3, 1, size) + entry(1, 3, size)
        ),
        "no negative variance": lambda size: (
            REST + entry(3, 3, -size) + entry(0, 1, 1e-30)
        ),
    },
    "strategy": {
        "nothing above the diagonal": lambda size: STRATEGY + entry(1, 3, size),
    },
}
COINS = functools.cache(lambda: selection.bernoulli(4, 0.5))
ALWAYS = functools.cache(lambda: availability.independent(0.0))
# every public function that takes one: the argument's kind, and what is found with it
DOORS = {
    "hidden_among(memory=)": (
        "correlations",
        lambda m: mj.privacy.hidden_among(P, memory=m, noise=1.0),
    ),
    "hidden_among_trajectory(memory=)": (
        "correlations",
        lambda m: mj.privacy.hidden_among_trajectory(P, memory=m, noise=1.0),
    ),
    "information(memory=)": (
        "correlations",
        lambda m: mj.privacy.information(P, m, noise=1.0),
    ),
    "hidden_among(noise=)": (
        "covariance",
        lambda m: mj.privacy.hidden_among(P, noise=m),
    ),
    "hidden_among_trajectory(noise=)": (
        "covariance",
        lambda m: mj.privacy.hidden_among_trajectory(P, noise=m),
    ),
    "information(noise=)": (
        "covariance",
        lambda m: mj.privacy.information(P, 0.5, noise=m),
    ),
    "distinguishability(noise=)": (
        "covariance",
        lambda m: mj.privacy.distinguishability(P, noise=m).mu,
    ),
    "distinguish(noise=)": (
        "covariance",
        lambda m: mj.attacks.distinguish(0, noise=m).test(P).mu,
    ),
    "distinguish(kernel=)": (
        "covariance",
        lambda m: mj.attacks.distinguish(0, noise=1.0, kernel=m).test(P).mu,
    ),
    "ledger(strategy=)": ("strategy", lambda m: mj.dp.ledger(P, 1.0, strategy=m).mu),
    "account(strategy=)": (
        "strategy",
        lambda m: (
            mj.dp.account(
                COINS(), ALWAYS(), ROUNDS, 1.0, 0.1, strategy=m, trials=50
            ).epsilon
        ),
    ),
    "privacy_losses(strategy=)": (
        "strategy",
        lambda m: mj.dp.privacy_losses(
            selection.minimum_separation(COINS(), 4),
            ALWAYS(),
            ROUNDS,
            1.0,
            10,
            strategy=m,
        ),
    ),
}
CASES = [(door, way) for door, (kind, _) in DOORS.items() for way in LEAVES[kind]]


@pytest.mark.long("account(strategy=)-nothing above the diagonal")
@pytest.mark.parametrize(("door", "way"), CASES)
def test_rounding_is_taken_and_more_is_refused(door, way):
    kind, figure = DOORS[door]
    leave = LEAVES[kind][way]
    found, expected = np.asarray(figure(leave(1e-10))), np.asarray(figure(leave(0.0)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    argument = door.partition("(")[2].rstrip("=)")
    with pytest.raises(mj.ConfigurationError, match=f"`{argument}` must"):
        figure(leave(1e-5))


def test_what_numpy_and_jax_measure_is_taken():
    updates = np.random.default_rng(0).normal(size=(ROUNDS, 30))
    measured = np.corrcoef(updates)
    exact = (measured + measured.T) / 2
    np.fill_diagonal(exact, 1.0)
    assert (correlations(measured, "memory") == exact).all()
    # of 32 bits: as many digits as these have
    single = measured.astype(np.float32) * (1 - np.finfo(np.float32).eps)
    assert np.abs(correlations(single, "memory") - exact).max() < 1e-6
    root = covariance_root(np.cov(updates), "noise")
    np.testing.assert_allclose(root @ root.T, np.cov(updates), atol=1e-12)


def test_perfect_correlations_but_for_rounding_are_of_one_round():
    """Two sums of one round, as `numpy.corrcoef` writes them.

    Exposed together, exactly.
    """
    nearly = np.array(
        [[1 - 2e-16, 1 - 1e-16, 0.3], [1 - 1e-16, 1, 0.3], [0.3, 0.3, 1 + 2e-16]]
    )
    history = [[1, 1, 0], [1, 0, 0], [0, 1, 1]]
    assert mj.privacy.hidden_among(history, memory=nearly)[0] == 1.0


@pytest.mark.parametrize("size", [1.0 + 1e-12, 1e9, 1e-9])
def test_covariances_are_measured_by_their_own_variances(size):
    matrix = size * np.array([[1.0, 0.5], [0.5 + NEAR / 2, 1.0]])
    root = covariance_root(matrix, "noise")
    np.testing.assert_allclose(
        root @ root.T, size * np.array([[1, 0.5], [0.5, 1]]), rtol=1e-8
    )
    with pytest.raises(mj.ConfigurationError, match="must be a symmetric covariance"):
        covariance_root(size * np.array([[1.0, 0.5], [0.5 + 3 * NEAR, 1.0]]), "noise")
