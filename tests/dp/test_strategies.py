"""Strategies: the sensitivities that are published for schemas are the ledger's largest."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError

ROUNDS, EPOCHS = 12, 3
# coefficients of the square root of the matrix of ones
ROOTS = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1.0, ROUNDS)))])
STRATEGIES = {
    "banded": lambda: mj.dp.toeplitz(ROOTS[:4], ROUNDS),
    "root": lambda: mj.dp.toeplitz(ROOTS, ROUNDS),
    "signs": lambda: np.tril(np.random.default_rng(0).normal(size=(ROUNDS, ROUNDS))),
}


def epochs():
    """Return the patterns of a client that comes again every n / EPOCHS rounds, one a column."""
    return np.tile(np.eye(ROUNDS // EPOCHS, dtype=bool), (EPOCHS, 1))


def separated(separation, most):
    """Return all patterns of at most `most` rounds, `separation` or more apart, one a column."""
    found = [
        rounds
        for count in range(1, most + 1)
        for rounds in itertools.combinations(range(ROUNDS), count)
        if all(b - a >= separation for a, b in itertools.pairwise(rounds))
    ]
    patterns = np.zeros((ROUNDS, len(found)), bool)
    for column, rounds in enumerate(found):
        patterns[list(rounds), column] = True
    return patterns


def brute(C, pattern):
    """Return the largest length of C X over contributions of length 1 in these rounds, squared."""
    gram = np.abs(C.T @ C)
    return sum(
        gram[a, b] for a, b in itertools.product(np.flatnonzero(pattern), repeat=2)
    )


def test_published_patterns_of_four_bands():
    told = mj.dp.ledger(epochs(), 1.0, strategy=STRATEGIES["banded"]())
    assert told.mu.round(4).tolist() == [2.1130, 2.0898, 2.0559, 1.9941]
    assert told.is_exact
    # a client by itself, whose other rounds are empty: steps all the same
    alone = mj.dp.ledger(epochs()[:, 1:2], 1.0, strategy=STRATEGIES["banded"]())
    assert alone.mu.round(4).tolist() == [2.0898]


def test_every_pattern_is_bounded_as_by_hand():
    for kind in STRATEGIES:
        patterns = np.concatenate([epochs(), separated(4, 3), separated(1, 2)], axis=1)
        told = mj.dp.ledger(patterns, 0.5, 3.0, STRATEGIES[kind]())
        expected = [
            np.sqrt(brute(STRATEGIES[kind](), pattern)) / 0.5 for pattern in patterns.T
        ]
        np.testing.assert_allclose(told.mu, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_schemas_of_jax_privacy_are_the_largest_of_the_ledger(kind):
    sensitivity = pytest.importorskip("jax_privacy.matrix_factorization.sensitivity")
    C = STRATEGIES[kind]()

    def largest(patterns):
        return mj.dp.ledger(patterns, 1.0, strategy=C).mu.max()

    close = functools.partial(np.testing.assert_allclose, rtol=1e-12)
    with jax.enable_x64(True):
        theirs = jnp.asarray(C)
        close(largest(epochs()), sensitivity.fixed_epoch_sensitivity(theirs, EPOCHS))
        once = sensitivity.single_participation_sensitivity(theirs)
        close(largest(np.eye(ROUNDS, dtype=bool)), float(once))
        for separation, most in ((4, 3), (4, 2), (5, 3)):
            bound = sensitivity.get_min_sep_sensitivity_upper_bound(
                theirs, separation, most
            )
            found = largest(separated(separation, most))
            assert found <= bound * (1 + 1e-12)
            if kind == "banded":  # then it is no bound but the value
                close(
                    found, sensitivity.get_sensitivity_banded(theirs, separation, most)
                )
                close(found, bound)


def test_strategies_of_jax_privacy_are_taken_as_they_are():
    """Of JAX's arrays in 32 bits, too."""
    factors = pytest.importorskip("jax_privacy.matrix_factorization.toeplitz")
    coefficients = factors.optimal_max_error_strategy_coefs(ROUNDS)
    np.testing.assert_allclose(coefficients, ROOTS, rtol=1e-6)
    theirs = factors.materialize_lower_triangular(coefficients)
    told = mj.dp.ledger(epochs(), 1.0, strategy=theirs)
    own = mj.dp.ledger(epochs(), 1.0, strategy=mj.dp.toeplitz(coefficients, ROUNDS))
    np.testing.assert_allclose(told.mu, own.mu, rtol=1e-6)


def test_toeplitz():
    assert mj.dp.toeplitz([2, -1, 3], 2).tolist() == [[2.0, 0.0], [-1.0, 2.0]]
    for wrong, words in (
        ([], "must be a list"),
        ([0, 1], "must not start with 0"),
        ([1, np.inf], "must be finite"),
        (1.0, "must be a list"),
        ([[1.0]], "must be a list"),
        (["a"], "must be a list"),
    ):
        with pytest.raises(ConfigurationError, match=f"`coefficients` {words}"):
            mj.dp.toeplitz(wrong, 3)
    with pytest.raises(ConfigurationError, match="`rounds`"):
        mj.dp.toeplitz([1.0], 0)
