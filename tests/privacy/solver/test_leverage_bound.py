"""The bound by leverages against the truth, by enumeration of supports."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy.solver import leverage_bound

CLIENTS, ROWS = 7, 4


def fewest_clients(histories: np.ndarray) -> np.ndarray:
    """Enumerate supports S.

    P without S has a smaller rank where a vector lies inside S.
    """
    subsets = np.array(list(itertools.product([0, 1], repeat=CLIENTS)))
    outside = histories[:, None] * (1 - subsets)[None, :, None]
    ranks = np.asarray(mj.modular.rank(outside.reshape(-1, ROWS, CLIENTS))).reshape(
        -1, 2**CLIENTS
    )
    sizes = subsets.sum(axis=1)
    return np.where(ranks < ranks[:, :1], sizes, CLIENTS + 1).min(axis=1)


def bound(history: np.ndarray) -> int:
    ranks = np.asarray(mj.modular.rank_trajectory(history))
    rows = history[np.diff(ranks, prepend=0) > 0][:, history.any(axis=0)]
    return leverage_bound(rows, np.ones(rows.shape[1], np.int64))


@pytest.mark.long
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_never_above_the_truth_on_matrices_of_all_sizes(count: int) -> None:
    """Entries and weights to 2^26, rows that are equal but for one, rows scaled apart."""
    generator = np.random.default_rng(11)
    shape = (count, ROWS, CLIENTS)
    histories = generator.integers(-3, 4, shape) * (generator.random(shape) < 0.6)
    histories[::2] = histories[::2] != 0
    histories[1::4] *= generator.integers(1, 2**22, (len(histories[1::4]), 1, CLIENTS))
    histories[2::5] *= 2 ** generator.integers(0, 24, (len(histories[2::5]), ROWS, 1))
    histories[::3, 2] = histories[::3, 1]
    histories[::3, 2, 4] += 1
    histories[:, 0, 0] += ~histories.any(axis=(1, 2))
    truth = fewest_clients(histories)
    found = np.array([bound(history) for history in histories])
    assert (found <= truth).all()
    assert (found == truth).mean() > 0.5  # and it says something
    assert (found >= 2).any()


def test_one_sum_and_blocks_are_bounded_by_what_they_are() -> None:
    for size in (1, 2, 3, 7, 49, 10_000):
        assert (
            leverage_bound(np.ones((1, size), np.int64), np.ones(size, np.int64))
            == size
        )
        assert leverage_bound(np.ones((1, 1), np.int64), np.array([size])) == size
    blocks = np.kron(np.eye(5, dtype=np.int64), np.ones((1, 6), np.int64))
    assert leverage_bound(blocks, np.ones(30, np.int64)) == 6


@pytest.mark.long
def test_many_clients_in_few_rounds_are_proven_to_hide_each_other() -> None:
    """Where no search goes: without it three clients are all that is proven of 4,000."""
    history = np.random.default_rng(1).random((20, 4000)) < 0.5
    found = mj.privacy.weak_privacy(history, effort=0)
    assert found.lower_method == "leverage"
    assert found.lower is not None
    worst = mj.privacy.hidden_among(history).min()
    assert worst <= found.lower < 1.2 * worst


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[2**30, 1]]),  # sums of products that floats do not hold
        np.array([[2**80, 1]], object),
        np.array([[2**24, 1, 0], [2**24, 0, 1]]),  # too nearly dependent to be enclosed
    ],
)
def test_says_nothing_where_floats_cannot_tell(rows: np.ndarray) -> None:
    assert leverage_bound(rows, np.ones(rows.shape[1], np.int64)) == 1
