"""Strong privacy against its definition, equation (5), by exhaustive search."""

import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import strong_privacy, strong_privacy_trajectory


def definition(history) -> int | None:
    """Smallest level set over many combinations z of the rounds, in exact integers.

    Any z only merges classes of equal columns and a generic one separates them all, so
    the minimum over a grid of z that holds a base larger than every entry is the
    minimum over all.
    """
    history = [[int(value) for value in row] for row in history]
    rounds = len(history)
    best = None
    grid = itertools.product((-1, 0, 1, 2), repeat=rounds) if rounds <= 3 else []
    for z in [*grid, tuple(1009**j for j in range(rounds))]:
        values = [
            sum(a * row[i] for a, row in zip(z, history, strict=True))
            for i in range(len(history[0]))
        ]
        for value in set(values) - {0}:
            size = values.count(value)
            best = size if best is None else min(best, size)
    return best


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([[0.5, 1.0]], r"`P` must hold bools or integers; got \[0.5\]"),
        ([[np.nan]], r"`P` must hold bools or integers; got \[nan\]"),
        ([1, 0], r"`P` must have at least 2 axes"),
        (np.zeros((4, 0), bool), r"`P` must not be empty"),
    ],
)
def test_rejects_what_is_no_history(history, message):
    for function in (strong_privacy, strong_privacy_trajectory):
        with pytest.raises(mj.ConfigurationError, match=message):
            function(history)


def test_one_number_needs_one_history():
    with pytest.raises(
        mj.ConfigurationError, match=r"`P` must have two axes; got \(2, 3, 4\)"
    ):
        strong_privacy(np.ones((2, 3, 4), bool))


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (np.zeros((3, 4), bool), None),
        ([[1, 1, 0], [1, 0, 1]], 1),  # weak privacy is 2 here
        ([[1, 1, 1, 1]], 4),
        ([[1, 1, 1, 1], [0, 0, 0, 0]], 4),
        ([[1, 1, 2, 2]], 2),
        ([[1, 1, -1, 1]], 1),
        ([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], 2),
        ([[0, 0, 5]], 1),
    ],
)
def test_known_histories(history, expected):
    assert definition(history) == expected
    assert strong_privacy(history) == expected
    last = int(np.asarray(strong_privacy_trajectory(history))[-1])
    assert last == (-1 if expected is None else expected)


TRACED = jax.jit(strong_privacy_trajectory)  # the program that accelerators run


@hypothesis.given(st.integers(0, 2**32 - 1), st.booleans())
def test_trajectory_equals_the_definition(seed, weighted):
    rng = np.random.default_rng(seed)
    history = np.repeat(rng.random((6, 4)) < 0.35, 2, axis=1).astype(int)
    history[:, rng.integers(8)] = history[:, rng.integers(8)]
    history[rng.integers(6)] = 0
    if weighted:
        history *= rng.integers(-2, 3, (6, 1))
    expected = [definition(history[: j + 1]) or -1 for j in range(6)]
    assert strong_privacy_trajectory(history).tolist() == expected
    assert TRACED(history).tolist() == expected
    assert [strong_privacy(history[: j + 1]) or -1 for j in range(6)] == expected


def test_weights_too_large_for_a_word():
    big = [[2**40, 2**40 + 2**33, 2**40]]
    assert strong_privacy(big) == 1
    assert strong_privacy_trajectory(np.array(big, np.int64)).tolist() == [1]
    huge = np.array([[2**70, 2**70, 2**71]], dtype=object)
    assert strong_privacy(huge) == 1
    assert strong_privacy_trajectory(huge).tolist() == [1]


def test_rows_of_a_batch_equal_single_histories_and_types_do_not_matter():
    rng = np.random.default_rng(1)
    batch = np.repeat(rng.random((2, 3, 9, 5)) < 0.4, 2, axis=-1)
    found = strong_privacy_trajectory(batch)
    assert found.shape == (2, 3, 9)
    assert found.dtype == jnp.int32
    assert found[1, 2].tolist() == strong_privacy_trajectory(batch[1, 2]).tolist()
    assert np.array_equal(strong_privacy_trajectory(batch.astype(np.uint8)), found)
    assert np.array_equal(strong_privacy_trajectory(jnp.asarray(batch)), found)
    assert np.array_equal(jax.jit(strong_privacy_trajectory)(jnp.asarray(batch)), found)
    with jax.enable_x64(True):
        assert np.array_equal(strong_privacy_trajectory(batch.astype(np.int64)), found)
        assert np.array_equal(
            strong_privacy_trajectory(jnp.asarray(batch, jnp.int64)), found
        )


def test_never_rises_and_keeps_blocks():
    rng = np.random.default_rng(2)
    history = np.repeat(rng.random((40, 8)) < 0.3, 3, axis=1)
    trajectory = np.asarray(strong_privacy_trajectory(history))
    known = trajectory[trajectory > 0]
    assert bool((known[1:] <= known[:-1]).all())
    assert int(trajectory[-1]) == 3
